package redlock

import (
	"context"
	crand "crypto/rand"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"sync"
	"sync/atomic"
	"time"
)

// Who waits stands in line on every node, ordered by ticket: when the wait began, in node time. Nodes grant a free
// lock to nobody who has somebody before them in line, and a release wakes the first in line and it alone, by writing
// that waiter's own tracked key. docs/waiting.md has the protocol and why it cannot deadlock.

// waiter is one call in line for a name. Its methods may be called on nil: the waiter of a call that does not wait.
type waiter struct {
	l       *Locker
	id      string
	wakeKey string
	ticket  uint64
	turn    chan struct{} // 1-buffered: it may be worth asking now
	done    atomic.Bool   // it waits no longer: it is to leave every line it stands in
	inLine  []atomic.Bool // by node: it stands in line there, as far as is known

	mu      sync.Mutex
	attempt *Guard // the last one
	woken   bool   // a node said that the lock is free there, since the last attempt began
}

const (
	// askEvery is how often a waiter asks again when nothing tells it to. It keeps its place in line alive, and a
	// lost push costs no more than this.
	askEvery = 950 * time.Millisecond
	// askBehind is how often it asks where the lock is free and somebody is before it in line: they take it within
	// a round trip, or they are dead.
	askBehind = 150 * time.Millisecond
	// wakeMillis is how long a waiter that does not ask keeps its place, in milliseconds: long enough for one lost
	// question, and with askBehind dead waiters are skipped within 2 s.
	wakeMillis = "1800"
	// afterExpiry is how long after a lease's end it is surely gone: Redis counts whole milliseconds.
	afterExpiry = 2 * time.Millisecond
)

// wait acquires a name when its turn comes: who began to wait first is served first, in this Locker and among all.
func (l *Locker) wait(ctx context.Context, name string, h hold) (*Guard, error) {
	w, err := l.lineUp(name)
	if err != nil {
		return nil, err
	}
	defer l.stepAside(name, w)
	timer := time.NewTimer(0)
	defer timer.Stop()
	var patience patience
	for {
		select {
		case <-ctx.Done():
			return nil, contextEnded(ctx, name)
		case <-l.closed:
			return nil, ErrLockerClosed
		case <-w.turn:
		case <-timer.C:
		}
		if !l.speaks(name, w) {
			continue
		}
		g := l.newGuard(ctx, name, h)
		w.begin(g)
		if err := l.enter(g); err != nil {
			g.cancel(err)
			return nil, err
		}
		err := l.attempt(ctx, g)
		if err == nil {
			return g, nil
		}
		if err = patience.after(l, g, err); err != nil {
			return nil, err
		}
		timer.Reset(l.clock.wait(g.askIn()))
	}
}

// lineUp puts a call at the end of this Locker's line.
func (l *Locker) lineUp(name string) (*waiter, error) {
	now := l.clock.now()
	w := &waiter{
		l: l, id: crand.Text(), ticket: l.proposal(now),
		turn:   make(chan struct{}, 1),
		inLine: make([]atomic.Bool, len(l.nodes)),
	}
	w.wakeKey = l.wakePrefix + w.id
	if w.ticket == 0 {
		w.ticket = uint64(now.Microseconds()) // no node is known yet; this clock is all there is
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.isClosed() {
		return nil, ErrLockerClosed
	}
	p := l.placeOf(name)
	p.waiters = append(p.waiters, w)
	l.waiters[w.id] = w
	return w, nil
}

// stepAside takes a call out of the line here and on the nodes, and passes the turn to speak on.
func (l *Locker) stepAside(name string, w *waiter) {
	l.mu.Lock()
	delete(l.waiters, w.id)
	p := l.places[name]
	p.waiters = slices.DeleteFunc(p.waiters, func(x *waiter) bool { return x == w })
	p.tellSpeakers()
	l.tidy(name, p)
	l.mu.Unlock()
	w.leave()
}

// speakers is how many of a Locker's line speak to the nodes. The second is in line there before the first is served:
// else somebody who came later could overtake it while it lines up.
const speakers = 2

// speaks reports whether w is near enough to the head of this Locker's line to speak to the nodes.
func (l *Locker) speaks(name string, w *waiter) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	waiters := l.places[name].waiters
	return slices.Contains(waiters[:min(speakers, len(waiters))], w)
}

// wake tells a waiter of this Locker that the lock is free on a node.
func (l *Locker) wake(id string, node int) {
	l.mu.Lock()
	w := l.waiters[id]
	l.mu.Unlock()
	if w == nil {
		return
	}
	w.mu.Lock()
	g := w.attempt
	w.woken = true
	w.mu.Unlock()
	if g == nil || !g.freeOn(node) {
		w.tell()
	}
}

// tell has the waiter ask the nodes.
func (w *waiter) tell() {
	select {
	case w.turn <- struct{}{}:
	default:
	}
}

// begin makes g the waiter's next attempt.
func (w *waiter) begin(g *Guard) {
	w.mu.Lock()
	defer w.mu.Unlock()
	g.waiter, g.woken = w, w.woken
	g.claim = g.owner + "#" + w.place()
	w.attempt, w.woken = g, false
	w.done.Store(false) // the one before may have won, and lost at once
}

// stop notes that the waiter waits no longer: what is sent from now on takes it out of line.
func (w *waiter) stop() {
	if w != nil {
		w.done.Store(true)
	}
}

// leave takes the waiter out of the lines it still stands in.
func (w *waiter) leave() {
	w.stop()
	w.mu.Lock()
	g := w.attempt
	w.mu.Unlock()
	if g != nil {
		g.leaveLines()
	}
}

// name, place and staysAs are what scripts are told of a waiter.
func (w *waiter) name() string {
	if w == nil {
		return ""
	}
	return w.id
}

func (w *waiter) place() string {
	if w == nil {
		return "0"
	}
	return strconv.FormatUint(w.ticket, 10)
}

func (w *waiter) staysAs() string {
	if w == nil || w.done.Load() {
		return ""
	}
	return w.place()
}

// mustLeave reports whether the waiter is to be taken out of line on node i.
func (w *waiter) mustLeave(i int) bool {
	return w != nil && w.done.Load() && w.inLine[i].Load()
}

// noteLine notes from an answer whether the waiter stands in line on node i.
func (w *waiter) noteLine(i int, a answer) {
	if w == nil || a.err != nil {
		return
	}
	switch a.code {
	case codeHeld, codeInLine:
		w.inLine[i].Store(true)
	case codeOK:
		w.inLine[i].Store(false)
	}
}

// noteReleased notes what a release did to the place in line. One that failed is not repeated: the node drops who
// does not ask.
func (w *waiter) noteReleased(i int, stays bool) {
	if w != nil {
		w.inLine[i].Store(stays)
	}
}

// freeOn takes a node's word that the lock is free there into an attempt, and reports whether there was one.
func (g *Guard) freeOn(i int) bool {
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.phase == over {
		return false
	}
	g.woken = true
	now := g.l.clock.now()
	g.claims[i].again = true
	if !g.claims[i].busy && g.ballot[i].state == refused {
		g.askAgain(i)
	}
	g.moved(i, now)
	return true
}

// askAgain has a refusing node asked once more if it woke us since it was asked.
func (g *Guard) askAgain(i int) {
	c := &g.claims[i]
	if c.again && g.phase == asking {
		c.again, c.look = false, true
		g.ballot[i].state = pending
	}
}

// keepsVotes reports whether a waiter's attempt that cannot win by the answers so far goes on with the votes it has.
//
// If nobody has a quorum, the contenders have split the nodes: the one with the oldest ticket keeps its votes, the
// others see that ticket and let go at once, and their releases wake it. If somebody has a quorum they hold the lock;
// then votes are kept only by one who was woken, because they are just being given back, node by node.
func (g *Guard) keepsVotes(now time.Duration) bool {
	if g.waiter == nil || g.round <= now || g.ballot.live(now) == 0 || !g.ballot.reachable(now) {
		return false
	}
	older := false
	votes := make(map[string]int, len(g.claims))
	for i := range g.claims {
		c := &g.claims[i]
		if g.ballot[i].state != refused {
			continue
		}
		if c.rival != "" {
			if votes[c.rival]++; votes[c.rival] >= g.ballot.quorum() {
				return g.woken
			}
		}
		older = older || c.rivalTicket != 0 && c.rivalTicket < g.waiter.ticket
	}
	return !older
}

// leaveLines takes the waiter of an attempt that is over, or of a held lock, out of the lines it still stands in.
func (g *Guard) leaveLines() {
	g.mu.Lock()
	defer g.mu.Unlock()
	now := g.l.clock.now()
	for i := range g.claims {
		g.next(i, now)
	}
	g.settle(now)
}

// patience says when a wait is hopeless.
type patience struct {
	since time.Duration // no quorum has been reachable since then; 0: it was
}

// after returns nil if it is worth trying again after err, or the error that ends the wait: a permanent one where
// such alone make a quorum impossible, no quorum where none has been reachable for a lease. Quarantines are waited
// out.
func (p *patience) after(l *Locker, g *Guard, err error) error {
	var qe *QuorumError
	if !errors.As(err, &qe) {
		return err // the context, or Close
	}
	lasting, unreachable := 0, 0
	for _, e := range qe.Errs {
		held := (*HeldError)(nil)
		switch {
		case permanent(e):
			lasting++
			unreachable++
		case !errors.As(e, &held) && !errors.Is(e, ErrQuarantined):
			unreachable++
		}
	}
	now := l.clock.now()
	switch {
	case qe.Nodes-lasting < qe.Quorum:
		return err
	case errors.Is(err, ErrNotLocked), qe.Nodes-unreachable >= qe.Quorum: // a node still within its time is reachable
		p.since = 0
	case p.since == 0:
		p.since = now
	case now-p.since >= l.option.KeyValidity:
		return fmt.Errorf("redlock: gave up after %v without a reachable quorum: %w", l.option.KeyValidity, err)
	}
	return nil
}

// askIn returns when a waiter asks again if nobody wakes it: when so many of the nodes where it is first in line are
// free by themselves that a quorum is possible, for a dead holder releases nothing; else to keep its place.
func (g *Guard) askIn() time.Duration {
	g.mu.Lock()
	defer g.mu.Unlock()
	now := g.l.clock.now()
	every := askEvery
	var frees []time.Duration
	for i := range g.claims {
		c := &g.claims[i]
		if held := (*HeldError)(nil); errors.As(c.err, &held) && held.Waiting {
			every = askBehind
		}
		switch {
		case g.ballot[i].state == granted:
			frees = append(frees, 0)
		case c.freeAt > now && (c.first || g.ballot[i].state == failed):
			frees = append(frees, c.freeAt+afterExpiry-now)
		}
	}
	every -= g.l.jitter(every / 16)
	slices.Sort(frees)
	if q := g.ballot.quorum(); len(frees) >= q && frees[q-1] > 0 {
		return min(every, frees[q-1])
	}
	return every
}
