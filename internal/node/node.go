package node

import (
	"fmt"
	"net"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/redis/rueidis"

	"github.com/redlock-go/redlock/internal/roster"
)

// Node is the one seam to rueidis: what is asked of one server goes through Send, and comes back through
// Receiver.Answered. Its keeper (keeper.go) owns the connection.
//
// Order on the wire is not kept between calls, so it is kept above: a receiver hands over its next step for a node
// only after the one before has returned.
type Node struct {
	set       *Set
	index     int
	addr      string
	option    rueidis.ClientOption
	recheck   chan struct{} // 1-buffered: the keeper is to look at the node again
	mayDial   atomic.Bool   // only the keeper dials: rueidis would dial on whatever call comes first
	forgot    atomic.Bool   // the keeper is to look again because a script was not known
	pushesOff bool          // client tracking was refused; the keeper's own
	thorough  bool          // a step was refused: look for what is; the keeper's own
	loops     bool          // the server pushes our own writes back; the keeper's own
	pushes    atomic.Bool   // it pushes what changes: client tracking is on
	telling                 // what was logged of it

	mu         sync.Mutex
	client     rueidis.Client
	scripts    *loaded
	down       error                  // why nothing can be sent; nil while connected
	unfit      error                  // why the node may not vote although it is connected
	refusals   refusals               // what the server is known to answer to steps of each kind: refusal.go
	server     atomic.Pointer[string] // run_id of the process it votes for, "" for none, as it is another node's; set under mu
	doubted    bool                   // a step was refused since the last look began
	known      *identity
	queue      []Delivery
	callers    []*caller           // who wait for something to do
	dismissed  bool                // nobody waits for more to do: the Locker is closing
	calls      int                 // batches on their way, or about to be taken from the queue
	collecting int                 // how many are about to take what is queued
	conns      map[string]net.Conn // open connections by address: one, or more with Sentinel
	cutFor     error               // why the keeper hung up, until the next dial
	rtt        time.Duration       // round-trip time, smoothed
	path       time.Duration       // the part of it that is the network's: its slowly forgotten minimum
	offset     Offset              // of its clock, as last measured
	expect     Offset              // where it was seen to be, against which it is watched
	watched    bool                // both have been measured
	offTill    time.Duration       // the clock ran off: no vote counts before
	step       Offset              // by how much it ran off when it last did, and when that was seen
	offBefore  time.Duration       // offTill as it was before that
	toldOff    bool                // it was logged that it is off
}

// loaded is the scripts as they were loaded into one process.
type loaded struct {
	runID    string
	digests  Sources
	resend   Sources // sent where a digest is not known
	volatile bool    // only that process can know the digests: see SourcesFor
}

// together is how many steps a script may hold.
func (s *loaded) together() int {
	if s.volatile {
		return maxScript
	}
	return maxOldScript
}

// next returns those steps at the head of a batch that leave in one script. A lock of several names has one for itself.
func (s *loaded) next(steps []Delivery) []Delivery {
	most := min(len(steps), s.together())
	for i := range most {
		if steps[i].Lock.Names != nil {
			return steps[:max(i, 1)]
		}
	}
	return steps[:most]
}

// identity is what the scripts must be told of a node: its marker, spelled out.
type identity struct {
	marker                marker
	record                *roster.Record // that the node goes by, or that it proposes; nil where there is none
	until, floor, longest string
}

func identify(m marker) *identity {
	return &identity{
		marker:  m,
		record:  m.roster.Active,
		until:   strconv.FormatInt(m.until, 10),
		floor:   strconv.FormatInt(m.floor, 10),
		longest: strconv.FormatInt(m.longest.Milliseconds(), 10),
	}
}

// allows refuses a vote for a longer lease than the set allows: a node that lost its memory might grant the lock to another
// before it has run out.
func (i *identity) allows(ns *Set, s *Delivery) error {
	if (s.Script != ScriptAcquire && !s.MayWin) || s.Lock.Lease <= i.marker.proven || i.marker.raw == "" {
		return nil
	}
	if i.record != nil {
		return ns.tooLong(s.Lock.Lease, i.record)
	}
	return fmt.Errorf("%w: a lease of %v is longer than %v, the longest lease of this set", ErrDisagreement, s.Lock.Lease, i.marker.proven)
}

// Delivery is a step on its way to a node, what it is about, and whom the answer is for.
type Delivery struct {
	To   Receiver
	Lock *Lock
	Step
}

// alone is the script that does the step by itself.
func (s *Delivery) alone() Script {
	if s.Lock.Names != nil {
		return ScriptSeveral
	}
	return s.Script
}

// Receiver is told what has come of a step. Every step that a node has taken is answered exactly once, on a goroutine that
// holds no mutex of this package. The answer is the receiver's until it returns.
type Receiver interface {
	Answered(node int, a *Answer)
	// Touch reads what Answered will read first, and needs no mutex for it. What it returns means nothing.
	Touch() int
}

// Lock is what the scripts are told of one attempt at a lock. It does not change once a step has been sent. What each step reads
// stands together: of a lock that is held nobody has looked at it since its last renewal.
type Lock struct {
	Key   string // of a lock; empty for anything else, and where it is to be put together
	Claim string // the value that a node stores: owner, the ticket of a waiter or a try, and what comes behind it
	*Rarity
	Bucket uint16 // the counter that fences the name
	Slot   int16  // of a semaphore, from 1; Gate for its gate; Writer or Reader; 0 for a lock
	Slots  int16  // how many the semaphore has; 0 for a gate, and for a lock

	Name   string
	Waiter *string       // whose attempt it is; nil for one that does not wait
	Lease  time.Duration // the longest for which a vote is counted
}

// Rarity is what few locks have.
type Rarity struct {
	Names []string      // several as one, in order; nil for one. Name is what people are told then
	Grace time.Duration // how long whoever holds the lock has to let go of it, where a waiter asks for that
	From  string        // the owner that exported a lock which is being resumed; empty for any other
}

// Usual is the Rarity of locks that have nothing of it. All share it: it is never written to.
var Usual = new(Rarity)

// Own is a lock's own Rarity, to be written to before a step is sent.
func (l *Lock) Own() *Rarity {
	if l.Rarity == Usual {
		l.Rarity = new(Rarity)
	}
	return l.Rarity
}

const (
	// maxBatch keeps one call well below the size at which rueidis would dial another connection. What a crowd has due at a time
	// fits into it.
	maxBatch = 512
	// maxScript bounds the steps in one script, and with them the time for which it holds up a server.
	maxScript = 64
	// maxOldScript is the same before 7.0, where each of them reads, and each read tracks all keys of the script.
	maxOldScript = 16
	// maxCalls bounds the batches on their way to one node.
	maxCalls = 16
	// minCalls keeps a server on the same machine busy while answers are dealt with here: with one call the two take
	// turns.
	minCalls = 3
	// callSpacing is the round-trip time that makes room for one more call.
	callSpacing = 300 * time.Microsecond
	// shares is how many calls the steps of all who wait for the one node are, and minShare how many steps each of them has at the least.
	shares   = 3
	minShare = 16
)

// Send queues s and sees to it that it leaves. The error says why it cannot: nothing was sent then.
func (n *Node) Send(s Delivery) error {
	n.mu.Lock()
	defer n.mu.Unlock()
	err := n.enqueue(s)
	n.kick()
	return err
}

// Enqueue queues s without sending it, so that the renewals due at one time leave in one batch.
func (n *Node) Enqueue(s Delivery) error {
	n.mu.Lock()
	defer n.mu.Unlock()
	return n.enqueue(s)
}

func (n *Node) enqueue(s Delivery) error {
	if n.down != nil {
		return n.down
	}
	// Another node's server is told of our end at most: what a live guard gives back here it would take from that node.
	if n.unfit != nil && (s.Script == ScriptAcquire || n.votesFor("") && !s.Ended) {
		return n.unfit
	}
	if err := n.refusals[s.Script]; err != nil {
		return err
	}
	n.queue = append(n.queue, s)
	return nil
}

// Kick starts a call for what is queued, unless somebody is about to take it and it is not enough for one more, or enough calls are on
// their way: then the next to return takes it along. One batch at a time would cost a round trip of waiting where the network is slow, so the
// window grows with the round-trip time; on a fast one, batching saves most of the CPU.
func (n *Node) Kick() {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.kick()
}

func (n *Node) kick() {
	if len(n.queue) == 0 || len(n.queue) < n.collecting*n.enough() || n.calls >= n.window() {
		return
	}
	if last := len(n.callers) - 1; last >= 0 {
		n.callers[last].wake <- struct{}{}
		n.callers = n.callers[:last]
	} else if !n.set.option.Go(n.newCaller().serve) {
		return
	}
	n.calls++
	n.collecting++
}

func (n *Node) window() int {
	return min(maxCalls, minCalls+int(n.path/callSpacing))
}

// caller sends batches, one at a time, on a goroutine that waits for the next: the stack of a new one would have to grow for
// each. What it needs it keeps, too.
type caller struct {
	node     *Node
	wake     chan struct{} // 1-buffered: something is queued; closed where the caller is dismissed
	hang     *time.Timer   // hangs the node up where a call is unanswered for too long
	batch    []Delivery
	commands []rueidis.Completed
	args     []string // of a batch's command
	answer   Answer   // the one that is being handed out
	touched  int      // what Touch has returned, or the compiler might leave the reads out
}

func (n *Node) newCaller() *caller {
	c := &caller{node: n, wake: make(chan struct{}, 1), hang: time.AfterFunc(time.Hour, n.hangUp)}
	c.hang.Stop()
	return c
}

// serve sends what is queued, and again whenever the caller is woken.
func (c *caller) serve() {
	for c.work() {
		if _, more := <-c.wake; !more {
			return
		}
	}
}

// rest notes that c has nothing to do, and reports whether it is to wait for more: as many do as a node nearby needs, while those that
// only a slow network called for end. The caller of this has the mutex.
func (n *Node) rest(c *caller) bool {
	n.calls--
	if n.dismissed || len(n.callers) >= minCalls {
		return false
	}
	n.callers = append(n.callers, c)
	return true
}

// dismiss ends those who wait for something to do, and sees to it that nobody does any more.
func (n *Node) dismiss() {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.dismissed = true
	for _, c := range n.callers {
		close(c.wake)
	}
	n.callers = nil
}

// take moves what is queued, up to a batch, to the caller. The caller of this has the node's mutex.
func (c *caller) take() {
	n := c.node
	c.batch = append(c.batch[:0], n.queue[:min(len(n.queue), maxBatch)]...)
	rest := n.queue[len(c.batch):]
	if len(rest) > maxBatch { // a long queue is not moved for each batch
		clear(n.queue[:len(c.batch)])
		n.queue = rest
		return
	}
	if cap(n.queue) > maxBatch*maxCalls { // after a rush of renewals
		n.queue = slices.Clone(rest)
		return
	}
	n.queue = append(n.queue[:0], rest...)
	clear(n.queue[len(rest):][:len(c.batch)])
}

// work sends what is queued, batch after batch, while nobody else does. It reports whether the caller is to wait for more.
func (c *caller) work() bool {
	n := c.node
	for {
		n.gather()
		c.take()
		n.collecting--
		if len(c.batch) == 0 {
			more := n.rest(c)
			n.mu.Unlock()
			return more
		}
		client, scripts, known, offset, down, refusals := n.client, n.scripts, n.known, n.clockNow(), n.down, n.refusals
		n.mu.Unlock()
		n.Kick() // for what was more than a batch

		sentAt := n.set.option.Clock.Now()
		if down != nil {
			for i := range c.batch {
				c.unsent(&c.batch[i], down, sentAt)
			}
		} else {
			c.refuse(refusals, sentAt)
			c.hang.Reset(n.set.option.Clock.Wait(n.set.hangAfter))
			c.call(client, scripts, known, offset, sentAt)
			c.hang.Stop()
		}
		clear(c.batch)

		n.mu.Lock()
		if n.collecting > 0 {
			more := n.rest(c)
			n.mu.Unlock()
			return more
		}
		n.collecting++
		n.mu.Unlock()
	}
}

// gathering is how often at most a call lets others go first before it leaves. Each time is short where they only ask for locks; where
// they do something else for long, one more each time could come along for ever.
const gathering = 3

// gather lets whoever was ready to run before us, and asks this node too, come along: as long as any does, since those whom answers have just
// come to wake others, and until they are enough. It returns with the mutex.
func (n *Node) gather() {
	n.mu.Lock()
	if n.set.Callers.Load() <= 1 {
		return
	}
	for i, queued := 1, 0; len(n.queue) < n.enough(); i++ {
		n.mu.Unlock()
		runtime.Gosched()
		n.mu.Lock()
		if len(n.queue) == queued || i == gathering {
			return
		}
		queued = len(n.queue)
	}
}

// enough is how many steps leave without waiting for more. Where there is one node, it and those who wait for it would take turns if all
// of their steps left together: it would have nothing to do while they are told and ask again, and they nothing while it works.
func (n *Node) enough() int {
	if callers := int(n.set.Callers.Load()); len(n.set.nodes) == 1 && callers > 1 {
		return min(maxBatch, max(minShare, callers/shares))
	}
	return maxBatch
}

// refuse answers what was queued before it was known that the node refuses such steps.
func (c *caller) refuse(refusals refusals, sentAt time.Duration) {
	if !slices.ContainsFunc(refusals[:], func(err error) bool { return err != nil }) {
		return
	}
	c.batch = slices.DeleteFunc(c.batch, func(s Delivery) bool {
		err := refusals[s.Script]
		if err != nil {
			c.unsent(&s, err, sentAt)
		}
		return err != nil
	})
}

// call sends a batch and hands out its answers. sentAt was read before anything could leave, and stands also for what has
// to be sent again because the server forgot the script, or would not take it for the sake of one of its steps.
func (c *caller) call(client rueidis.Client, scripts *loaded, known *identity, off Offset, sentAt time.Duration) {
	n := c.node
	live := c.batch[:0]
	for i := range c.batch {
		s := &c.batch[i]
		if err := known.allows(n.set, s); err != nil {
			c.unsent(s, err, sentAt)
			continue
		}
		if s.NotAfter != 0 && s.NotAfter < sentAt {
			c.unsent(s, ErrNodeTimeout, sentAt)
			continue
		}
		live = append(live, *s)
	}
	if len(live) == 0 {
		return
	}
	w := wire{set: n.set, client: client, known: known, off: off}
	commands := c.commands[:0]
	for rest := live; len(rest) > 0; {
		some := scripts.next(rest)
		rest = rest[len(some):]
		if len(some) == 1 {
			commands = append(commands, w.step(&some[0], "EVALSHA", scripts.digests[some[0].alone()]))
		} else {
			commands = append(commands, w.batch(some, scripts.digests[ScriptBatch], sentAt, &c.args))
		}
	}
	c.commands = commands
	var one [1]rueidis.RedisResult
	results := one[:]
	if len(commands) == 1 {
		one[0] = client.Do(n.set.option.Life, commands[0]) // costs less than a list of one
	} else {
		results = client.DoMulti(n.set.option.Life, commands...)
	}
	at := n.set.option.Clock.Now()
	if results[0].NonRedisError() == nil {
		n.measured(at - sentAt)
	}
	clear(commands)
	base := Answer{Server: scripts.runID, By: known.record, InForce: known.marker.inForce() != nil, SentAt: sentAt, At: at}
	var again resend
	for rest := live; len(rest) > 0; results = results[1:] {
		some, r := scripts.next(rest), results[0]
		rest = rest[len(some):]
		err := r.Error()
		switch {
		case err != nil && isNoScript(err):
			if scripts.volatile {
				n.forgot.Store(true)
				n.LookAgain() // flushed, or another process: the keeper finds out, and loads them anew
			}
			for i := range some {
				s := &some[i]
				if source := scripts.resend[s.alone()]; source != "" {
					again.add(*s, w.step(s, "EVAL", source))
				} else {
					c.answer = Answer{Err: ErrForgotten, Unsent: true, SentAt: sentAt, At: at}
					c.tell(s)
				}
			}
		case err != nil && len(some) > 1 && isRefusedRight(err): // it may be about the key of one of them
			for i := range some {
				s := &some[i]
				again.add(*s, w.step(s, "EVALSHA", scripts.digests[s.alone()]))
			}
		case len(some) == 1:
			c.read(&some[0], r, &base)
		default:
			c.readBatch(some, r, &base)
		}
	}
	if len(again.steps) == 0 {
		return
	}
	results = client.DoMulti(n.set.option.Life, again.commands...)
	base.At = n.set.option.Clock.Now()
	for i := range again.steps {
		c.read(&again.steps[i], results[i], &base)
	}
}

// resend is steps that are sent again, each by itself.
type resend struct {
	steps    []Delivery
	commands []rueidis.Completed
}

func (r *resend) add(s Delivery, command rueidis.Completed) {
	r.steps, r.commands = append(r.steps, s), append(r.commands, command)
}

// tell hands out what came of a step that was sent.
func (c *caller) tell(s *Delivery) {
	if err := c.answer.Err; err != nil && Replied(err) {
		c.node.noteRefusal(err)
	}
	s.To.Answered(c.node.index, &c.answer)
}

// unsent hands out why a step was not sent.
func (c *caller) unsent(s *Delivery, why error, at time.Duration) {
	c.answer = Answer{Err: why, Unsent: true, SentAt: at, At: at}
	s.To.Answered(c.node.index, &c.answer)
}

// Disowns returns why an answer that came from this process is not the node's to give, nil if it is.
func (n *Node) Disowns(server string) error {
	if n.votesFor(server) { // asked at every answer: without the mutex
		return nil
	}
	n.mu.Lock()
	defer n.mu.Unlock()
	if n.votesFor("") && n.unfit != nil {
		return n.unfit // another node votes for it
	}
	return errFormerServer
}

func (n *Node) votesFor(server string) bool { return *n.server.Load() == server }

// LongestLease returns the longest lease that any client may have on this node.
func (n *Node) LongestLease() time.Duration {
	n.mu.Lock()
	defer n.mu.Unlock()
	return max(n.known.marker.longest, n.set.option.MaxKeyValidity)
}

func (n *Node) longestQuarantine() time.Duration {
	n.mu.Lock()
	defer n.mu.Unlock()
	return n.set.longestQuarantine(n.known.marker)
}

// broken notes that the connection failed and returns what to tell the receivers.
func (n *Node) broken(err error) error {
	n.mu.Lock()
	defer n.mu.Unlock()
	if n.cutFor != nil {
		err = n.cutFor
	} else {
		err = ConnectionFault(err)
	}
	if n.down == nil {
		n.down = err
	}
	n.LookAgain()
	return err
}

// LookAgain asks the keeper to check the node.
func (n *Node) LookAgain() {
	select {
	case n.recheck <- struct{}{}:
	default:
	}
}

// measured smooths the round-trip time as TCP does (RFC 6298, alpha = 1/8).
func (n *Node) measured(rtt time.Duration) {
	n.mu.Lock()
	defer n.mu.Unlock()
	if n.rtt == 0 {
		n.rtt, n.path = rtt, rtt
		return
	}
	n.rtt += (rtt - n.rtt) / 8
	if n.path = min(n.path, rtt); n.path < rtt {
		n.path += (rtt - n.path) / 256
	}
}

// LookWithin is how long a look may take before a suspected vote is given up: four round trips, but not less than
// a busy machine needs to answer at all.
func (n *Node) LookWithin() time.Duration {
	n.mu.Lock()
	defer n.mu.Unlock()
	return min(n.set.option.NodeTimeout, max(4*n.rtt, MinLook))
}

const MinLook = 50 * time.Millisecond

// watch compares the node's clock with where it must be by what was seen before: it may have run off ours by no
// more than the drift, and stepped by no more than the bound. It returns an error while the clock is off, for the
// longest lease after it last was.
//
// A small step does not move the expectation, or many of them, or a clock that stands still under frequent looks,
// would pass one by one; drift lets it catch up.
func (n *Node) watch(o Offset) error {
	ranOff, news, err := n.measureClock(o)
	if ranOff > 0 {
		n.set.option.Go(func() {
			n.set.option.Listener.Distrusted(n.index, ErrClockOff)
			n.set.ownClockOff(o.At)
		})
	}
	if news {
		n.set.option.Go(func() {
			n.tellClock("redlock: node's clock stepped or runs wrong: its votes do not count for a lease", ranOff)
		})
	}
	return err
}

// measureClock also reports whether it is news that the clock is off, or not off any more.
func (n *Node) measureClock(o Offset) (ranOff time.Duration, news bool, err error) {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.offset = o
	expect := n.expect.Aged(o.At, n.set.option.DriftFactor)
	off := expect.Gap(o)
	switch {
	case !n.watched:
		n.expect, n.watched = o, true
	case off == 0:
		n.expect = Offset{Lo: max(o.Lo, expect.Lo), Hi: min(o.Hi, expect.Hi), At: o.At}
	case off > n.set.option.ClockBound:
		n.step = Offset{Lo: o.Lo - expect.Hi, Hi: o.Hi - expect.Lo, At: o.At}
		n.expect, n.offBefore = o, n.offTill
		n.offTill = o.At + max(n.known.marker.longest, n.set.option.MaxKeyValidity)
		ranOff = off
	}
	if o.At < n.offTill {
		err = fmt.Errorf("%w: it stepped or runs wrong, its votes do not count for %v more", ErrClockOff, Rounded(n.offTill-o.At))
	}
	news = n.toldOff != (err != nil)
	n.toldOff = err != nil
	return ranOff, news, err
}

// clockNow returns what is known of the node's clock, for "not after". A slow answer alone would leave it wide open, and
// a step that was not more than the bound makes what was known before it wrong by as much. The caller holds the mutex.
func (n *Node) clockNow() Offset {
	o := n.offset
	if n.watched {
		expect := n.expect.Aged(n.set.option.Clock.Now(), n.set.option.DriftFactor)
		o.Hi = min(o.Hi, expect.Hi+n.set.option.ClockBound)
	}
	return o
}

// Time estimates the node's clock at a local instant. ok is false for a node never heard of.
func (n *Node) Time(now time.Duration) (t time.Duration, ok bool) {
	n.mu.Lock()
	defer n.mu.Unlock()
	return now + n.offset.Mid(), n.watched && n.down == nil
}

// Addr returns how errors and logs name the node.
func (n *Node) Addr() string { return n.addr }

// RoundTrip returns the smoothed round-trip time to the node, 0 while none was measured.
func (n *Node) RoundTrip() time.Duration {
	n.mu.Lock()
	defer n.mu.Unlock()
	return n.rtt
}

// Client returns the node's client, nil while it is not connected.
func (n *Node) Client() rueidis.Client {
	n.mu.Lock()
	defer n.mu.Unlock()
	if n.down != nil {
		return nil
	}
	return n.client
}

func isNoScript(err error) bool {
	re, ok := rueidis.IsRedisErr(err)
	return ok && strings.HasPrefix(re.Error(), "NOSCRIPT")
}
