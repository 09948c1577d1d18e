package redlock

import (
	"fmt"
	"net"
	"runtime"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/redis/rueidis"
)

// node is the one seam to rueidis: what is asked of one server goes through send, and comes back through
// Guard.answered. Its keeper (keeper.go) owns the connection.
//
// Order on the wire is not kept between calls, so it is kept above: a guard hands over its next step for a node
// only after the one before has returned.
type node struct {
	l         *Locker
	index     int
	addr      string
	option    rueidis.ClientOption
	recheck   chan struct{} // 1-buffered: the keeper is to look at the node again
	mayDial   atomic.Bool   // only the keeper dials: rueidis would dial on whatever call comes first
	forgot    atomic.Bool   // the keeper is to look again because a script was not known
	pushesOff bool          // client tracking was refused; the keeper's own
	loops     bool          // the server pushes our own writes back; the keeper's own

	mu         sync.Mutex
	client     rueidis.Client
	scripts    loaded
	down       error // why nothing can be sent; nil while connected
	unfit      error // why the node may not vote although it is connected
	known      identity
	queue      []*step
	calls      int                 // batches on their way, or about to be taken from the queue
	collecting bool                // somebody is about to take what is queued
	conns      map[string]net.Conn // open connections by address: one, or more with Sentinel
	cutFor     error               // why the keeper hung up, until the next dial
	rtt        time.Duration       // round-trip time, smoothed
	path       time.Duration       // the part of it that is the network's: its slowly forgotten minimum
	offset     offset              // of its clock, as last measured
	expect     offset              // where it was seen to be, against which it is watched
	watched    bool                // both have been measured
	offTill    time.Duration       // the clock ran off: no vote counts before
}

// loaded is the scripts as they were loaded into one process.
type loaded struct {
	digests  [scriptCount]string
	resend   [scriptCount]string // sent where a digest is not known
	volatile bool                // only that process can know the digests: see sourcesFor
}

// identity is what the scripts must be told of a node: its marker, spelled out.
type identity struct {
	marker                marker
	until, floor, longest string
}

func identify(m marker) identity {
	return identity{
		marker:  m,
		until:   strconv.FormatInt(m.until, 10),
		floor:   strconv.FormatInt(m.floor, 10),
		longest: strconv.FormatInt(m.longest.Milliseconds(), 10),
	}
}

// step is one script for one owner on one node. A claim owns one step and reuses it: there is never a second one
// on its way.
type step struct {
	guard    *Guard
	index    int // of the node
	script   script
	notAfter time.Duration // local instant after which the script does nothing
	token    uint64        // acquire: proposed; extend: to be stored
	mayWin   bool          // extend: an absent key may be won back
	stay     string        // release: the ticket of a waiter that stays in line, "" for one that leaves
	ended    bool          // release: the guard has ended, strike it out of displaced lists
	takeOver bool          // acquire: from whoever holds it
}

// answer is what came of a step.
type answer struct {
	err      error // set: no answer, or an error reply; what was asked may have been done unless unsent
	unsent   bool  // surely nothing was done
	code     int64
	number   int64  // fencing token, or milliseconds left
	text     string // value found, list of displaced owners, or who is before us or was woken
	first    bool   // refused, but first in line
	kept     bool   // granted, and it was ours already
	sentAt   time.Duration
	at       time.Duration
	offset   offset
	hasClock bool
}

// left returns how long a refusal will stand by itself.
func (a answer) left() time.Duration { return time.Duration(a.number) * time.Millisecond }

const (
	// maxBatch keeps one call well below the size at which rueidis would dial another connection, and one call's
	// worth of scripts below a millisecond of the server's time.
	maxBatch = 128
	// maxCalls bounds the batches on their way to one node.
	maxCalls = 16
	// minCalls keeps a server on the same machine busy while answers are dealt with here: with one call the two take
	// turns.
	minCalls = 3
	// callSpacing is the round-trip time that makes room for one more call.
	callSpacing = 300 * time.Microsecond
)

// send queues s and sees to it that it leaves. The error says why it cannot: nothing was sent then.
func (n *node) send(s *step) error {
	err := n.enqueue(s)
	n.kick()
	return err
}

// enqueue queues s without sending it, so that the renewals due at one time leave in one batch.
func (n *node) enqueue(s *step) error {
	n.mu.Lock()
	defer n.mu.Unlock()
	if n.down != nil {
		return n.down
	}
	if n.unfit != nil && s.script == scriptAcquire {
		return n.unfit
	}
	n.queue = append(n.queue, s)
	return nil
}

// kick starts a call for what is queued, unless somebody is about to take it, or enough calls are on their way: then the
// next to return takes it along. One batch at a time would cost a round trip of waiting where the network is slow, so the
// window grows with the round-trip time; on a fast one, batching saves most of the CPU.
func (n *node) kick() {
	n.mu.Lock()
	defer n.mu.Unlock()
	if len(n.queue) == 0 || n.collecting || n.calls >= n.window() {
		return
	}
	if n.l.background.Go(n.drain) {
		n.calls++
		n.collecting = true
	}
}

func (n *node) window() int {
	return min(maxCalls, minCalls+int(n.path/callSpacing))
}

// drain sends what is queued, batch after batch, while nobody else does.
func (n *node) drain() {
	hang := time.AfterFunc(n.l.clock.wait(n.l.hangAfter), n.hangUp)
	defer hang.Stop()
	for {
		runtime.Gosched() // whoever was ready to run before us, and asks this node too, comes along
		n.mu.Lock()
		batch := n.queue[:min(len(n.queue), maxBatch)]
		n.queue = n.queue[len(batch):]
		if len(n.queue) == 0 {
			n.queue = nil
		}
		n.collecting = false
		if len(batch) == 0 {
			n.calls--
			n.mu.Unlock()
			return
		}
		client, scripts, known, offset, down := n.client, n.scripts, n.known, n.clockNow(), n.down
		n.mu.Unlock()
		n.kick() // for what was more than a batch

		sentAt := n.l.clock.now()
		if down != nil {
			n.answerAll(batch, answer{err: down, unsent: true, sentAt: sentAt, at: sentAt})
		} else {
			hang.Reset(n.l.clock.wait(n.l.hangAfter))
			n.call(client, &scripts, known, offset, batch, sentAt)
			hang.Stop()
		}

		n.mu.Lock()
		if n.collecting {
			n.calls--
			n.mu.Unlock()
			return
		}
		n.collecting = true
		n.mu.Unlock()
	}
}

// call sends one batch and hands out its answers. sentAt was read before anything could leave, and stands also for
// what has to be sent again by source because the server forgot the script.
func (n *node) call(client rueidis.Client, scripts *loaded, known identity, off offset, batch []*step, sentAt time.Duration) {
	live := make([]*step, 0, len(batch))
	commands := make([]rueidis.Completed, 0, len(batch))
	for _, s := range batch {
		if s.notAfter != 0 && s.notAfter < sentAt {
			s.guard.answered(s.index, answer{err: ErrNodeTimeout, unsent: true, sentAt: sentAt, at: sentAt})
			continue
		}
		live = append(live, s)
		commands = append(commands, n.command(client, s, "EVALSHA", scripts.digests[s.script], known, off))
	}
	if len(live) == 0 {
		return
	}
	results := client.DoMulti(n.l.life, commands...)
	at := n.l.clock.now()
	if results[0].NonRedisError() == nil {
		n.measured(at - sentAt)
	}

	var forgotten []*step
	for i, s := range live {
		a := n.read(s, results[i], sentAt, at)
		if a.err != nil && isNoScript(a.err) {
			if scripts.volatile {
				n.forgot.Store(true)
				n.lookAgain() // flushed, or another process: the keeper finds out, and loads them anew
			}
			if scripts.resend[s.script] != "" {
				forgotten = append(forgotten, s)
				continue
			}
			a = answer{err: errForgotten, unsent: true, sentAt: sentAt, at: at}
		}
		s.guard.answered(s.index, a)
	}
	if len(forgotten) == 0 {
		return
	}
	commands = commands[:0]
	for _, s := range forgotten {
		commands = append(commands, n.command(client, s, "EVAL", scripts.resend[s.script], known, off))
	}
	results = client.DoMulti(n.l.life, commands...)
	at = n.l.clock.now()
	for i, s := range forgotten {
		s.guard.answered(s.index, n.read(s, results[i], sentAt, at))
	}
}

func (n *node) answerAll(batch []*step, a answer) {
	for _, s := range batch {
		s.guard.answered(s.index, a)
	}
}

// command spells out one step. A script gets "not after" in the node's own time, so that it does nothing when it
// arrives late: no ghost votes.
func (n *node) command(client rueidis.Client, s *step, verb, script string, known identity, off offset) rueidis.Completed {
	g, l := s.guard, n.l
	b := client.B().Arbitrary(verb).Args(script)
	notAfter := "0" // no such limit
	if s.notAfter != 0 {
		notAfter = strconv.FormatInt((s.notAfter + off.hi).Microseconds(), 10)
	}
	token := strconv.FormatUint(s.token, 10)
	switch s.script {
	case scriptAcquire:
		if w := g.waiter; w != nil {
			b = b.Args("3", g.key, l.markerKey, w.wakeKey)
		} else {
			b = b.Args("2", g.key, l.markerKey)
		}
		return b.Args(g.claim, l.leaseMillis, token, notAfter, g.fenceKey, known.marker.raw, known.until, known.floor,
			known.longest, l.boundMicros, flag(s.takeOver),
			g.queueKey, l.wakePrefix, g.waiter.name(), g.waiter.place(), wakeMillis).Build()
	case scriptExtend:
		return b.Args("2", g.key, l.markerKey, g.claim, l.leaseMillis, token, notAfter, g.fenceKey,
			known.marker.raw, known.until, flag(s.mayWin)).Build()
	default:
		waiter := "" // unless it stands in line there, or is to
		if w := g.waiter; w != nil && (s.stay != "" || w.inLine[n.index].Load()) {
			waiter = w.id
			b = b.Args("2", g.key, w.wakeKey)
		} else {
			b = b.Args("1", g.key)
		}
		return b.Args(g.claim, l.wakePrefix, wakeMillis, waiter, s.stay, flag(s.ended), notAfter, g.queueKey).Build()
	}
}

func flag(set bool) string {
	if set {
		return "1"
	}
	return "0"
}

// read turns one reply into an answer. Only a well-formed reply is an answer; anything else is an error, never a
// grant.
func (n *node) read(s *step, r rueidis.RedisResult, sentAt, at time.Duration) answer {
	a := answer{sentAt: sentAt, at: at}
	if err := r.NonRedisError(); err != nil {
		a.err = n.broken(err)
		return a
	}
	values, err := r.ToArray()
	if err != nil {
		a.err = err
		return a
	}
	number := func(i int) (v int64) {
		if i < len(values) && err == nil {
			v, err = values[i].AsInt64()
		}
		return v
	}
	text := func(i int) (v string) {
		if i < len(values) && err == nil {
			v, err = values[i].ToString()
		}
		return v
	}
	a.code = number(0)
	if s.script == scriptRelease {
		a.text = text(1)
	} else {
		a.offset = offsetOf(time.Duration(number(1))*time.Microsecond, sentAt, at)
		a.hasClock = true
		a.number, a.text, a.first = number(2), text(3), text(4) == "1"
		a.kept = a.first && a.code == codeOK || s.script == scriptExtend
	}
	if err != nil || len(values) < 2 {
		return answer{err: fmt.Errorf("reply is not one of ours: %v", err), sentAt: sentAt, at: at}
	}
	if a.hasClock {
		a.err = n.watch(a.offset)
	}
	switch {
	case a.code == codeOtherMarker:
		n.lookAgain()
	case a.code == codeQuarantined && a.left() > n.longestQuarantine():
		n.lookAgain() // the clock has gone back: it is to be adopted again, not waited out
	}
	return a
}

// longestLease returns the longest lease that any client may have on this node.
func (n *node) longestLease() time.Duration {
	n.mu.Lock()
	defer n.mu.Unlock()
	return max(n.known.marker.longest, n.l.option.MaxKeyValidity)
}

func (n *node) longestQuarantine() time.Duration {
	n.mu.Lock()
	defer n.mu.Unlock()
	return n.l.longestQuarantine(n.known.marker)
}

// broken notes that the connection failed and returns what to tell the guard.
func (n *node) broken(err error) error {
	n.mu.Lock()
	defer n.mu.Unlock()
	if n.cutFor != nil {
		err = n.cutFor
	} else {
		err = nodeFault(err)
	}
	if n.down == nil {
		n.down = err
	}
	n.lookAgain()
	return err
}

// lookAgain asks the keeper to check the node.
func (n *node) lookAgain() {
	select {
	case n.recheck <- struct{}{}:
	default:
	}
}

// measured smooths the round-trip time as TCP does (RFC 6298, alpha = 1/8).
func (n *node) measured(rtt time.Duration) {
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

// lookWithin is how long a look may take before a suspected vote is given up: four round trips, but not less than
// a busy machine needs to answer at all.
func (n *node) lookWithin() time.Duration {
	n.mu.Lock()
	defer n.mu.Unlock()
	return min(n.l.option.NodeTimeout, max(4*n.rtt, minLook))
}

const minLook = 50 * time.Millisecond

// watch compares the node's clock with where it must be by what was seen before: it may have run off ours by no
// more than the drift, and stepped by no more than the bound. It returns an error while the clock is off, for the
// longest lease after it last was.
//
// A small step does not move the expectation, or many of them, or a clock that stands still under frequent looks,
// would pass one by one; drift lets it catch up.
func (n *node) watch(o offset) error {
	ranOff, err := n.measureClock(o)
	if ranOff > 0 {
		n.l.log.Warn("redlock: node's clock stepped or runs wrong: its votes do not count for a lease",
			"node", n.addr, "off", ranOff, "bound", n.l.option.ClockBound)
		n.l.background.Go(func() { n.l.distrust(n.index) })
	}
	return err
}

func (n *node) measureClock(o offset) (ranOff time.Duration, err error) {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.offset = o
	expect := n.expect.aged(o.at, n.l.option.DriftFactor)
	off := expect.gap(o)
	switch {
	case !n.watched:
		n.expect, n.watched = o, true
	case off == 0:
		n.expect = offset{lo: max(o.lo, expect.lo), hi: min(o.hi, expect.hi), at: o.at}
	case off > n.l.option.ClockBound:
		n.expect = o
		n.offTill = o.at + max(n.known.marker.longest, n.l.option.MaxKeyValidity)
		ranOff = off
	}
	if o.at < n.offTill {
		err = fmt.Errorf("%w: it stepped or runs wrong, its votes do not count for %v more", ErrClockOff, n.offTill-o.at)
	}
	return ranOff, err
}

// clockNow returns what is known of the node's clock, for "not after". A slow answer alone would leave it wide open, and
// a step that was not more than the bound makes what was known before it wrong by as much. The caller holds the mutex.
func (n *node) clockNow() offset {
	o := n.offset
	if n.watched {
		expect := n.expect.aged(n.l.clock.now(), n.l.option.DriftFactor)
		o.hi = min(o.hi, expect.hi+n.l.option.ClockBound)
	}
	return o
}

// nodeTime estimates the node's clock at a local instant. ok is false for a node never heard of.
func (n *node) nodeTime(now time.Duration) (t time.Duration, ok bool) {
	n.mu.Lock()
	defer n.mu.Unlock()
	return now + n.offset.mid(), n.watched && n.down == nil
}

func isNoScript(err error) bool {
	re, ok := rueidis.IsRedisErr(err)
	return ok && strings.HasPrefix(re.Error(), "NOSCRIPT")
}
