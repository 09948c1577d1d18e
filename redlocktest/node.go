package redlocktest

import (
	"encoding/hex"
	"fmt"
	"math"
	"math/rand/v2"
	"slices"
	"strings"
	"time"

	"github.com/redlock-go/redlock/redlocktest/internal/redissim"
)

// Node is one simulated Redis server. Its faults can be set at any time from any goroutine; they stay until they are
// taken back.
type Node struct {
	cluster *Cluster
	index   int
	server  *redissim.Server
	clock   clock
	random  *rand.Rand
	faults
	refusing bool
	off      bool // stopped
	frozen   bool
	lazy     bool     // no cycle deletes expired keys
	inbox    []func() // what has arrived at a frozen node, in order

	phase time.Duration // of the expiry cycle
	cycle time.Duration // when the next cycle is due; -1: none is needed
}

// expiryCycle is hz 10: an expired key that nobody touches is deleted, and its trackers are told, at most that late.
const expiryCycle = 100 * time.Millisecond

func newNode(c *Cluster, i int) *Node {
	n := &Node{cluster: c, index: i, random: c.source(3, uint64(i)), cycle: -1}
	n.clock.set(0, c.network.epoch, 1)
	n.phase = time.Duration(n.random.Int64N(int64(expiryCycle)))
	n.server = redissim.New(n.newRunID(), n.read, c.lua)
	return n
}

func (n *Node) newRunID() string {
	var b [20]byte
	for i := range b {
		b[i] = byte(n.random.Uint32())
	}
	return hex.EncodeToString(b[:])
}

func (n *Node) read() time.Time { return n.clock.read(n.cluster.network.now()) }

func (n *Node) address() address { return address(n.Addr()) }

// Addr returns the address under which clients reach the node.
func (n *Node) Addr() string { return fmt.Sprintf("node-%d:6379", n.index) }

// lock takes the cluster's mutex, and returns the call that gives it back, after the expiry cycle has been set to what
// may have changed.
func (n *Node) lock() (unlock func()) {
	n.cluster.mu.Lock()
	return func() {
		n.schedule()
		n.cluster.mu.Unlock()
	}
}

// Delay makes each request to the node and each reply from it (pushes are replies) take that long, in place of what was
// set before.
func (n *Node) Delay(requests, replies time.Duration) {
	n.cluster.helper()()
	n.cluster.checkDelay("Node.Delay", requests, replies)
	n.DelayFunc(fixed(requests), fixed(replies))
}

// DelayFunc asks the hooks for the delay of each message; see [Link.DelayFunc].
func (n *Node) DelayFunc(requests, replies func() time.Duration) {
	defer n.lock()()
	n.requestDelay, n.replyDelay = requests, replies
}

// Silence stops messages from and to all clients without a sign of it, as a network that drops packets does. What is
// under way already arrives. What is sent from now on is held, because TCP repeats it: [Node.Heal] delivers it, late
// and in order, [Node.HealLosing] loses it. A dial waits.
func (n *Node) Silence() { n.silence(true, true) }

// SilenceRequests stops what clients send; the node's pushes and replies still arrive.
func (n *Node) SilenceRequests() { n.silence(true, false) }

// SilenceReplies stops what the node sends; requests are still executed.
func (n *Node) SilenceReplies() { n.silence(false, true) }

func (n *Node) silence(requests, replies bool) {
	defer n.lock()()
	n.requestSilent = n.requestSilent || requests
	n.replySilent = n.replySilent || replies
}

// Heal ends the node's silence: what was held goes on its way, with today's delay, on the connections it was sent on.
func (n *Node) Heal() { n.heal(false) }

// HealLosing ends the node's silence as TCP does when it gave up meanwhile: what was held is lost, and each connection
// that lost something is cut.
func (n *Node) HealLosing() { n.heal(true) }

func (n *Node) heal(losing bool) {
	defer n.lock()()
	n.requestSilent, n.replySilent = false, false
	for _, l := range n.links() {
		l.resume(losing)
	}
}

// Refuse makes every dial fail with "connection refused". Connections live on.
func (n *Node) Refuse() {
	defer n.lock()()
	n.refusing = true
}

// Accept ends [Node.Refuse].
func (n *Node) Accept() {
	defer n.lock()()
	n.refusing = false
}

// Cut closes every connection at once at both ends, also through a silence; what was under way is lost. Clients may
// dial again.
func (n *Node) Cut() {
	defer n.lock()()
	n.cut()
}

func (n *Node) cut() {
	for _, l := range n.links() {
		l.cut()
	}
}

// Stop is Cut and Refuse in one step, so that nobody can dial in between: the host is off, its data safe. [Node.Start]
// switches it on.
func (n *Node) Stop() {
	defer n.lock()()
	n.off = true
	n.cut()
}

// Start ends [Node.Stop]: the node is as it was, and accepts connections unless it refuses them.
func (n *Node) Start() {
	defer n.lock()()
	n.off = false
}

// Freeze stops the process as SIGSTOP does: the host still accepts connections and bytes, nothing is executed and
// nothing answered, keys do not expire. The clock goes on.
func (n *Node) Freeze() {
	defer n.lock()()
	n.frozen = true
}

// Thaw lets a frozen process go on: it executes everything that arrived meanwhile, in that order, also for clients that
// have hung up since.
func (n *Node) Thaw() {
	defer n.lock()()
	n.thaw()
}

func (n *Node) thaw() {
	n.frozen = false
	inbox := n.inbox
	n.inbox = nil
	for _, execute := range inbox {
		execute()
	}
}

// Restart ends the process and starts it again at once on the same data: connections are reset, the run id is new,
// scripts and tracking are gone. A frozen node thaws, and what it had not executed is lost.
func (n *Node) Restart() { n.reboot((*redissim.Server).Reboot) }

// CrashEmpty is Restart with all data lost.
func (n *Node) CrashEmpty() { n.reboot((*redissim.Server).RebootEmpty) }

func (n *Node) reboot(boot func(*redissim.Server, string)) {
	defer n.lock()()
	n.frozen, n.inbox = false, nil
	for _, l := range n.links() {
		for _, c := range slices.Clone(l.conns) {
			c.hangUpByServer(errReset)
		}
	}
	boot(n.server, n.newRunID())
}

// RunID returns the run_id that INFO shows.
func (n *Node) RunID() string {
	defer n.lock()()
	return n.server.RunID()
}

// Now returns what the node's clock shows.
func (n *Node) Now() time.Time {
	defer n.lock()()
	return n.read()
}

// SkewClock sets the node's clock to the true time plus skew, which may be negative. Its rate stays.
func (n *Node) SkewClock(skew time.Duration) {
	defer n.lock()()
	now := n.cluster.network.now()
	n.clock.set(now, n.cluster.network.epoch.Add(now+skew), n.clock.rate)
}

// StepClock sets the node's clock forward by step, or back where step is negative.
func (n *Node) StepClock(step time.Duration) {
	defer n.lock()()
	n.clock.set(n.cluster.network.now(), n.read().Add(step), n.clock.rate)
}

// SetClockRate makes the node's clock go that many seconds per second from now on: 1.08 is 8 % fast, 0 stands still.
func (n *Node) SetClockRate(rate float64) {
	n.cluster.helper()()
	if !(rate >= 0) || math.IsInf(rate, 0) {
		n.cluster.fail("redlocktest: clock rate %v: want 0 or more", rate)
	}
	defer n.lock()()
	n.clock.set(n.cluster.network.now(), n.read(), rate)
}

// StopClock is SetClockRate(0).
func (n *Node) StopClock() { n.SetClockRate(0) }

// SetActiveExpiry(false) makes the node delete an expired key only when somebody touches it, so that no push comes by
// itself: a real server with 10^5 other volatile keys is as good as that.
func (n *Node) SetActiveExpiry(on bool) {
	defer n.lock()()
	n.lazy = !on
}

// RefuseTracking makes CLIENT TRACKING answer NOPERM, as an ACL does. Sessions that track already go on.
func (n *Node) RefuseTracking() {
	n.Fail("CLIENT TRACKING", "NOPERM User default has no permissions to run the 'client|tracking' command")
}

// AllowTracking ends [Node.RefuseTracking].
func (n *Node) AllowTracking() { n.Recover("CLIENT TRACKING") }

// Fail makes every later call of a command answer the error message, e.g. Fail("EVALSHA", "BUSY Redis is busy running a
// script."). The command is a name, with a subcommand ("SCRIPT LOAD"), or "*" for all. Calls inside scripts fail, too.
// The command is not executed.
func (n *Node) Fail(command, message string) {
	n.cluster.helper()()
	if command == "" || message == "" {
		n.cluster.fail("redlocktest: Fail(%q, %q): want a command and a message", command, message)
	}
	defer n.lock()()
	n.server.Fail(strings.TrimPrefix(command, "*"), message)
}

// Recover ends [Node.Fail] for a command.
func (n *Node) Recover(command string) {
	defer n.lock()()
	n.server.Fail(strings.TrimPrefix(command, "*"), "")
}

// FillMemory makes commands that may need memory answer OOM, as under noeviction: SET does, PEXPIRE and DEL do not. A
// script may go on once it has written.
func (n *Node) FillMemory() {
	defer n.lock()()
	n.server.FullMemory = true
}

// FreeMemory ends [Node.FillMemory].
func (n *Node) FreeMemory() {
	defer n.lock()()
	n.server.FullMemory = false
}

// RequirePassword makes the node ask for a password of the default user; "" ends it. Sessions that are open have to
// authenticate, too.
func (n *Node) RequirePassword(password string) {
	defer n.lock()()
	n.server.Password = password
}

// SetInfo makes INFO, HELLO, ROLE and CONFIG GET say something else: SetInfo("role", "slave"), ("redis_version",
// "6.0.16"), ("redis_mode", "cluster"), ("maxmemory_policy", "allkeys-lru"), ("run_id", ...).
func (n *Node) SetInfo(field, value string) {
	defer n.lock()()
	n.server.SetInfo(field, value)
}

// FlushScripts empties the script cache: the next EVALSHA answers NOSCRIPT.
func (n *Node) FlushScripts() {
	defer n.lock()()
	n.server.FlushScripts()
}

// Do runs a command on database 0 at once, as a client outside the simulation: no fault of the network and no freeze
// holds it up, pushes to others follow. It returns a string, int64, float64, nil, an error, or []any of these.
func (n *Node) Do(args ...string) any {
	n.cluster.helper()()
	if len(args) == 0 {
		n.cluster.fail("redlocktest: Do without a command")
	}
	defer n.lock()()
	return n.server.Call(args...).Go()
}

// Get returns the string stored under key.
func (n *Node) Get(key string) (value string, ok bool) {
	value, ok = n.Do("GET", key).(string)
	return value, ok
}

// Set stores a string under key as a foreign client would. A lease of 0 is none.
func (n *Node) Set(key, value string, lease time.Duration) {
	n.cluster.helper()()
	if lease < 0 || lease > 0 && lease < time.Millisecond {
		n.cluster.fail("redlocktest: Set(%q): lease %v: want 0 or at least 1ms", key, lease)
	}
	args := []string{"SET", key, value}
	if lease > 0 {
		args = append(args, "PX", fmt.Sprint(lease.Milliseconds()))
	}
	n.Do(args...)
}

// Del deletes key as a foreign client would and reports whether it was there.
func (n *Node) Del(key string) bool { return n.Do("DEL", key) == int64(1) }

// PTTL returns what is left of key's lease by the node's clock. ok is false where there is no key, or no lease.
func (n *Node) PTTL(key string) (left time.Duration, ok bool) {
	ms, _ := n.Do("PTTL", key).(int64)
	return time.Duration(max(ms, 0)) * time.Millisecond, ms >= 0
}

// Keys returns the names of all keys of database 0, sorted.
func (n *Node) Keys() []string {
	list, _ := n.Do("KEYS", "*").([]any)
	keys := make([]string, len(list))
	for i, key := range list {
		keys[i] = key.(string)
	}
	slices.Sort(keys)
	return keys
}

// Untrack pushes an invalidation of key to all who track it, although it did not change, and forgets them: what a full
// tracking table does.
func (n *Node) Untrack(key string) {
	defer n.lock()()
	n.server.Untrack(key)
}

// Tracked returns how many connections would be told of a write to key.
func (n *Node) Tracked(key string) int {
	defer n.lock()()
	return n.server.Tracked(key)
}

// Commands returns how often the node executed each command for all clients; see [Link.Commands].
func (n *Node) Commands() map[string]int {
	defer n.lock()()
	sum := map[string]int{}
	for _, l := range n.links() {
		for name, count := range l.sent {
			sum[name] += count
		}
	}
	return sum
}

// Below this line the cluster's mutex is held.

func (n *Node) links() []*Link {
	list := make([]*Link, len(n.cluster.clients))
	for i, client := range n.cluster.clients {
		list[i] = client.links[n.index]
	}
	return list
}

// receive executes what arrived on c, or keeps it while the process is stopped.
func (n *Node) receive(c *conn, m message) {
	if n.frozen {
		n.inbox = append(n.inbox, func() { n.execute(c, m) })
		return
	}
	n.execute(c, m)
}

func (n *Node) execute(c *conn, m message) {
	if m.end != nil {
		c.session.Close()
		c.dropped = true
		c.retire()
		return
	}
	if c.session.Closed() {
		return
	}
	name := n.server.Execute(c.session, m.args)
	c.link.sent[name]++
	if name == "CLIENT KILL" || name == "QUIT" {
		n.endClosed()
	}
	n.schedule()
}

// endClosed closes the connections whose sessions the server has ended.
func (n *Node) endClosed() {
	for _, l := range n.links() {
		for _, c := range slices.Clone(l.conns) {
			if c.session.Closed() {
				c.hangUpByServer(errReset)
			}
		}
	}
}

// schedule sets the expiry cycle to the first tick at which a key is due: a node with nothing to expire costs nothing.
func (n *Node) schedule() {
	if n.cluster.closed || n.frozen || n.lazy {
		n.cycle = -1
		return
	}
	ms, ok := n.server.NextExpiry()
	if !ok {
		n.cycle = -1
		return
	}
	network := &n.cluster.network
	due, ever := n.clock.when(network.now(), time.UnixMilli(ms))
	if !ever {
		n.cycle = -1
		return
	}
	tick := (due-n.phase+expiryCycle)/expiryCycle*expiryCycle + n.phase
	if n.cycle == tick {
		return
	}
	n.cycle = tick
	network.at(tick, rank{node: n.index, client: -1, conn: -1}, func() {
		if n.cycle != tick {
			return
		}
		n.cycle = -1
		n.server.ExpireDue()
		n.schedule()
	})
}
