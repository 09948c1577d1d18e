package faults

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"os"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/redis/rueidis"
	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"

	"github.com/redlock-go/redlock"
	"github.com/redlock-go/redlock/integration/check"
	"github.com/redlock-go/redlock/internal/logtest"
	"github.com/redlock-go/redlock/internal/netproxy"
	"github.com/redlock-go/redlock/internal/redisproc"
	"github.com/redlock-go/redlock/internal/redisproc/redistest"
)

// Most of these tests wait for leases to run out, so many of them fit on one processor.
func TestMain(m *testing.M) {
	if os.Getenv(envHolder) != "" {
		beHolder() // this process is a client of one of the tests
		return
	}
	flag.Parse()
	if f := flag.Lookup("test.parallel"); f.Value.String() == f.DefValue {
		if err := f.Value.Set("6"); err != nil {
			panic(err)
		}
	}
	goleak.VerifyTestMain(m)
}

const (
	// lease is short, so that a test can wait for its end, and long beside what a busy machine stops for.
	lease = 2 * time.Second
	// soon is how long what takes some round trips may take on a machine that is busy with other things.
	soon = 8 * time.Second
	tick = 5 * time.Millisecond
)

// rig is five nodes and the clients of one test, each with a network of its own to every node. It judges all guards
// when the test ends, and whether the nodes serve again and are clean once the faults are over.
type rig struct {
	t       *testing.T
	nodes   []*redisproc.Node
	proxies []*netproxy.Proxy
	history *check.History
	clients []*client
	unseen  bool // keys go without a command, or the clock is set, so that no audit can follow

	distance time.Duration // of the next client from the nodes, one way

	mu   sync.Mutex
	held []*redlock.Guard
}

// newRig starts nodes and skips the first quarantine of all of them.
func newRig(t *testing.T, n int, options redisproc.Options) *rig {
	t.Helper()
	return newRigOn(t, redistest.StartSet(t, n, options))
}

func newRigOn(t *testing.T, nodes []*redisproc.Node) *rig {
	t.Helper()
	// Cloned, because a test may put another server in a node's place, and the first is still to be closed.
	r := &rig{t: t, nodes: slices.Clone(nodes), history: check.New()}
	for _, n := range r.nodes {
		p := netproxy.New(n.Network(), n.Addr())
		t.Cleanup(p.Close)
		r.proxies = append(r.proxies, p)
	}
	t.Cleanup(func() {
		r.history.Stop()
		for _, v := range r.history.Violations() {
			t.Error(v)
		}
	})
	for _, n := range r.nodes {
		audit := check.NewAudit(n.Network(), n.Addr())
		t.Cleanup(func() {
			for _, v := range audit.Stop() {
				if !r.unseen {
					t.Error(v)
				}
			}
		})
	}
	founder := r.client("founder")
	founder.init()
	founder.Close() // or each test would have one more client for the machine to serve
	return r
}

// client is one Locker with a link of its own to every node.
type client struct {
	*redlock.Locker
	r     *rig
	name  string
	links []*netproxy.Link
	off   map[int]bool // nodes that cutOff names
	log   *logtest.Log
}

type optionFunc = func(*redlock.LockerOption)

func validity(d time.Duration) optionFunc {
	return func(o *redlock.LockerOption) { o.KeyValidity = d }
}

// patient is for what a busy machine, or a node that restarts, takes long for beside a lease: the rig must allow it.
func patient(o *redlock.LockerOption) { o.KeyValidity, o.ExtendInterval = 4*lease, lease/3 }

func (r *rig) client(name string, options ...optionFunc) *client {
	r.t.Helper()
	c, err := r.newClient(name, options...)
	require.NoError(r.t, err)
	r.eventually(name+" is connected", func() bool { // NewLocker waits for a quorum, and for others only as long as that took
		return !slices.ContainsFunc(c.Status().Nodes, func(n redlock.NodeStatus) bool { return !n.Up })
	})
	return c
}

func (r *rig) newClient(name string, options ...optionFunc) (*client, error) {
	r.t.Helper()
	c := &client{r: r, name: name, off: make(map[int]bool), log: &logtest.Log{}}
	o := redlock.LockerOption{KeyValidity: lease, Logger: c.log.Logger()}
	for _, p := range r.proxies {
		link, err := p.Listen()
		require.NoError(r.t, err)
		if r.distance > 0 {
			link.Delay(netproxy.Both, r.distance, nil)
		}
		c.links = append(c.links, link)
		o.Nodes = append(o.Nodes, rueidis.ClientOption{InitAddress: []string{link.Addr()}})
	}
	for _, f := range options {
		f(&o)
	}
	l, err := redlock.NewLocker(o)
	if err != nil {
		return nil, err
	}
	c.Locker = l
	r.clients = append(r.clients, c)
	r.t.Cleanup(l.Close)
	r.t.Cleanup(func() {
		if r.t.Failed() && c.log.String() != "" {
			r.t.Logf("%s has logged:\n%s", name, c.log)
		}
	})
	return c, nil
}

// far is a client at a distance from all nodes, for one whose lock must outlive that most nodes push its key. A vote of which a push
// speaks ends if four round trips, 50 ms at least, bring no answer: that is short for a busy machine, and long for a far node.
func (r *rig) far(name string, options ...optionFunc) *client {
	r.t.Helper()
	r.distance = 50 * time.Millisecond
	defer func() { r.distance = 0 }()
	return r.client(name, options...)
}

// allow has the set allow longer leases than the founder's.
func (r *rig) allow(longest time.Duration) {
	r.t.Helper()
	operator := r.client("operator")
	require.NoError(r.t, operator.SetNodes(context.Background(), redlock.NodeSet{LongestLease: longest}))
	operator.Close()
}

// init skips the first quarantine. All nodes must be looked at before that; it says so until they are.
func (c *client) init() {
	c.r.t.Helper()
	require.Eventually(c.r.t, func() bool { return c.Init(context.Background()) == nil }, soon, tick, "Init")
}

// cutOff takes the way to some nodes away, loudly: connections are reset, and so is every new one at once. Links keep
// their ports: one that is refused could be taken by another test meanwhile.
func (c *client) cutOff(nodes ...int) {
	for _, i := range nodes {
		c.links[i].SetTarget("unix", "/nonexistent/redlock")
		c.links[i].Reset()
		c.off[i] = true
	}
}

// silence stops the bytes to or from some nodes, or both: nothing is closed, nothing arrives.
func (c *client) silence(d netproxy.Direction, nodes ...int) {
	for _, i := range nodes {
		c.links[i].Silence(d)
	}
}

// heal ends cutOff and silence everywhere.
func (c *client) heal() {
	for i, l := range c.links {
		l.Heal(netproxy.Both)
		if c.off[i] {
			l.SetTarget(c.r.nodes[i].Network(), c.r.nodes[i].Addr())
			c.off[i] = false
		}
	}
}

// connected waits until every node gives this client its vote, and until nothing more is on the way to any.
func (c *client) connected() {
	c.r.t.Helper()
	c.r.eventually(c.name+" reaches every node", func() bool {
		g, err := c.TryAcquire(context.Background(), "connected")
		if err != nil {
			return false
		}
		defer g.Release(context.Background())
		for end := time.Now().Add(lease / 8); time.Now().Before(end); time.Sleep(tick) {
			if c.r.storing("connected") == len(c.r.nodes) {
				return true
			}
		}
		return false
	})
	c.r.eventually("all has been given back", func() bool { return c.r.storing("connected") == 0 })
	time.Sleep(lease / 20)
}

func (c *client) try(name string) (*redlock.Guard, error) {
	return c.take(context.Background(), c.TryAcquire, name)
}

func (c *client) take(ctx context.Context, acquire check.Acquirer, name string) (*redlock.Guard, error) {
	g, err := c.r.history.Acquire(ctx, c.name, acquire, name)
	if err == nil {
		c.r.hold(g)
	}
	return g, err
}

func (r *rig) hold(g *redlock.Guard) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.held = append(r.held, g)
}

// mustTry takes a lock that must be free. A vote that one busy machine has delayed is no reason to fail.
func (c *client) mustTry(name string) *redlock.Guard {
	c.r.t.Helper()
	return c.tryFor(name, soon)
}

// mustTryOnAll takes a lock and waits until all votes count, not only the first three: a test that takes one vote away
// would else take the quorum, where a busy machine has kept the other answers back. All nodes store it, and two
// renewals later, which come after what was asked before, the answers have been heard.
func (c *client) mustTryOnAll(name string) *redlock.Guard {
	c.r.t.Helper()
	g := c.mustTry(name)
	c.r.eventually("every node has voted", func() bool { return c.r.storing(name) == len(c.r.nodes) })
	for range 2 {
		until := g.ValidUntil()
		c.r.eventually("renewed", func() bool { return g.ValidUntil().After(until) })
	}
	return g
}

// tryFor tries until it gets the lock.
func (c *client) tryFor(name string, within time.Duration) *redlock.Guard {
	c.r.t.Helper()
	deadline := time.Now().Add(within)
	for {
		g, err := c.try(name)
		if err == nil {
			return g
		}
		if time.Now().After(deadline) {
			require.NoError(c.r.t, err, "%s did not get %q within %v", c.name, name, within)
		}
		time.Sleep(10 * time.Millisecond)
	}
}

// wait acquires a lock in the ordinary way.
func (c *client) wait(name string, within time.Duration) *redlock.Guard {
	c.r.t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), within)
	defer cancel()
	g, err := c.take(ctx, c.Acquire, name)
	require.NoError(c.r.t, err, "%s waited for %q", c.name, name)
	return g
}

// release lets a lock go that is held. Where the answers of a quorum take a busy machine too long, it is waited for what they would say.
func (r *rig) release(g *redlock.Guard) {
	r.t.Helper()
	err := r.history.Release(context.Background(), g)
	if errors.Is(err, redlock.ErrNoQuorum) {
		r.eventually("released", func() bool {
			without := 0
			for _, n := range r.nodes {
				if value, err := n.Do("GET", lockKey(g.Name())); err == nil && !strings.HasPrefix(value, g.ID()) {
					without++
				}
			}
			return without > len(r.nodes)/2
		})
		return
	}
	require.NoError(r.t, err)
}

// settle ends the test: with all faults over, every lock that was asked for is to be had again within a lease and a
// second, and once all are released no key is left but markers and fence buckets. Guards still held are released.
func (r *rig) settle(names ...string) {
	r.t.Helper()
	start := time.Now()
	for i, n := range r.nodes {
		r.proxies[i].Clear()
		require.NoError(r.t, n.Thaw())
	}
	r.mu.Lock()
	held := r.held
	r.mu.Unlock()
	for _, g := range held {
		r.history.Release(context.Background(), g)
	}
	fresh := r.client("fresh")
	for _, name := range append(names, "anew") {
		g := fresh.wait(name, lease+time.Second+soon)
		r.release(g)
	}
	if took := time.Since(start); took > lease+time.Second {
		r.t.Logf("served again %v after the faults were over", took)
	}
	r.requireClean()
}

// requireClean waits until nothing is left on the nodes but what is meant to stay.
func (r *rig) requireClean() {
	r.t.Helper()
	for i, n := range r.nodes {
		c := redistest.Client(r.t, n)
		var left []string
		clean := func() bool {
			left = left[:0]
			all, err := c.Do(context.Background(), c.B().Keys().Pattern("redlock:*").Build()).AsStrSlice()
			if err != nil {
				left = append(left, err.Error())
			}
			for _, key := range all {
				if key != "redlock:marker" && !strings.HasPrefix(key, "redlock:fence:") {
					left = append(left, key)
				}
			}
			return len(left) == 0
		}
		for end := time.Now().Add(lease + soon); !clean(); time.Sleep(20 * time.Millisecond) {
			require.True(r.t, time.Now().Before(end), "node %d keeps %v", i, left)
		}
	}
}

// requireHeldFor looks at a guard for a while: it must not end.
func (r *rig) requireHeldFor(g *redlock.Guard, d time.Duration) {
	r.t.Helper()
	select {
	case <-g.Done():
		require.NoError(r.t, g.Err(), "guard has ended")
	case <-time.After(d):
	}
	require.NoError(r.t, g.Err())
}

// requireLost waits until a guard has ended by itself, and returns the cause.
func (r *rig) requireLost(g *redlock.Guard, within time.Duration) error {
	r.t.Helper()
	select {
	case <-g.Done():
	case <-time.After(within):
		require.Fail(r.t, "guard is still alive", "after %v", within)
	}
	require.ErrorIs(r.t, g.Err(), redlock.ErrLost)
	return g.Err()
}

// requireEndsInTime waits for the end of a guard that nothing renews any more: its own clock must end it no later
// than it said.
func (r *rig) requireEndsInTime(g *redlock.Guard) {
	r.t.Helper()
	until := g.ValidUntil()
	for g.Err() == nil {
		until = g.ValidUntil()
		time.Sleep(time.Millisecond)
	}
	r.requireLost(g, soon)
	require.Less(r.t, r.history.Of(g).Last.Sub(until), 50*time.Millisecond, "it was alive after its end")
}

// waiters waits until so many stand in line for a name, as a client can see.
func (r *rig) waiters(c *client, name string, n int) {
	r.t.Helper()
	r.eventually(fmt.Sprintf("%d wait for %q", n, name), func() bool {
		line, err := c.Inspect(context.Background(), name)
		return err == nil && line.Waiters == n
	})
}

// all runs a command on every node.
func (r *rig) all(args ...string) {
	r.t.Helper()
	for _, n := range r.nodes {
		r.do(n, args...)
	}
}

func (r *rig) do(n *redisproc.Node, args ...string) string {
	r.t.Helper()
	answer, err := n.Do(args...)
	require.NoError(r.t, err, "%q", args)
	return answer
}

// stored tells whether a node stores a lock.
func (r *rig) stored(n *redisproc.Node, name string) bool {
	r.t.Helper()
	return r.do(n, "EXISTS", lockKey(name)) == "1"
}

// storing counts the nodes that store a lock.
func (r *rig) storing(name string) (n int) {
	r.t.Helper()
	for _, node := range r.nodes {
		if r.stored(node, name) {
			n++
		}
	}
	return n
}

func lockKey(name string) string { return "redlock:{" + name + "}" }

// eventually waits for something that takes some round trips.
func (r *rig) eventually(what string, f func() bool) {
	r.t.Helper()
	require.Eventually(r.t, f, soon, tick, what)
}

// nodeErrors are the reasons in an error, one per node that did not vote yes.
func nodeErrors(err error) map[string]string {
	var qe *redlock.QuorumError
	reasons := make(map[string]string)
	if errors.As(err, &qe) {
		for _, e := range qe.Errs {
			var ne *redlock.NodeError
			if errors.As(e, &ne) {
				reasons[ne.Addr] = ne.Err.Error()
			}
		}
	}
	return reasons
}

// reasonsWith counts the nodes of which an error says this.
func reasonsWith(err error, text string) (n int) {
	for _, reason := range nodeErrors(err) {
		if strings.Contains(reason, text) {
			n++
		}
	}
	return n
}

// background runs f until stop is called; the test waits for its end.
func (r *rig) background(f func()) (stop func()) {
	quit, done := make(chan struct{}), make(chan struct{})
	go func() {
		defer close(done)
		for {
			select {
			case <-quit:
				return
			default:
				f()
			}
		}
	}()
	var once sync.Once
	stop = func() {
		once.Do(func() { close(quit) })
		<-done
	}
	r.t.Cleanup(stop)
	return stop
}

// nodeName names a node in messages.
func nodeName(i int) string { return fmt.Sprintf("node %d", i) }
