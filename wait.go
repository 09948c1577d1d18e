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

	"github.com/redlock-go/redlock/internal/node"
)

// Who waits stands in line on every node, ordered by ticket: when the wait began, in node time. Nodes grant a free
// lock to nobody who has somebody before them in line, and a release wakes the first in line and it alone, by writing
// that waiter's own tracked key. docs/waiting.md has the protocol and why it cannot deadlock.

// waiter is one call in line for a name. Its methods may be called on nil: the waiter of a call that does not wait.
type waiter struct {
	l      *Locker
	of     []subject // what it waits for: one, or each of several names
	id     string
	reads  bool // it wants to read: its id begins with an r
	began  time.Duration
	ticket uint64        // 0 until a node is known; under the Locker's mutex
	turn   chan struct{} // 1-buffered: it may be worth asking now
	placed atomic.Bool   // it stands in line on so many nodes that nobody who came later can be served before it

	request *request // it asks the holder to let go, and stands before those who do not; nil for most

	mu      sync.Mutex
	attempt *Guard     // the last one
	woken   bool       // a node said that the lock is free there, since the last attempt began
	done    bool       // it waits no longer: it is to leave every line it stands in
	lines   []nodeLine // by node
}

// nodeLine is what is known of a waiter's place in line on a node.
type nodeLine struct {
	stands bool          // it stands in line there
	heard  time.Duration // when it was heard last that it does
}

// wait acquires a name when its turn comes: who began to wait first is served first, in this Locker and among all.
func (l *Locker) wait(ctx context.Context, name string, h hold) (*Guard, error) {
	w, err := l.lineUp(h.subjects(name), &h, nil)
	if err != nil {
		return nil, err
	}
	defer l.stepAside(w)
	return l.waitFor(ctx, name, h, w)
}

// waitFor is wait for one who stands in line already.
func (l *Locker) waitFor(ctx context.Context, name string, h hold, w *waiter) (*Guard, error) {
	timer := time.NewTimer(time.Hour)
	timer.Stop()
	defer timer.Stop()
	w.tell() // no timer is ever due at once: two that look at theirs crash the race detector of Go 1.26 in a synctest bubble
	for tried := 0; ; tried++ {
		if tried == 1 && l.option.Observer != nil {
			l.observeWaiting(ctx, name, w)
		}
		select {
		case <-ctx.Done():
			return nil, waitEnded(ctx, name, l.lastAnswers(w))
		case <-l.closed:
			return nil, ErrLockerClosed
		case <-w.turn:
		case <-timer.C:
		}
		if !l.speaks(w) {
			if err := l.hopeless(w); err != nil {
				return nil, err
			}
			continue
		}
		g := l.newGuard(ctx, name, h)
		w.begin(g, l.ticketFor(w))
		if err := l.enter(g, h.choices...); err != nil {
			g.cancel(err)
			return nil, err
		}
		err := l.attempt(ctx, g)
		if err == nil {
			return g, nil
		}
		if last := l.lastAnswers(w); last != nil && ctx.Err() != nil && g.heardNothing() {
			return nil, waitEnded(ctx, name, last) // says more than that nobody has answered yet
		}
		if err = l.patient(w, err); err != nil {
			return nil, err
		}
		in := g.askIn()
		if w.request != nil {
			ask, err := w.request.plan(g)
			if err != nil {
				return nil, err
			}
			in = min(in, ask)
		}
		if h.slots != 0 {
			in = min(in, l.moveOn(g, &h))
		}
		if in <= 0 {
			w.tell()
		} else {
			timer.Reset(l.clock.Wait(in))
		}
	}
}

// lineUp puts a call at the end of this Locker's line; one that asks the holder to let go, behind those alone that do so, too.
func (l *Locker) lineUp(of []subject, h *hold, r *request) (*waiter, error) {
	now := l.clock.Now()
	w := &waiter{
		l: l, of: of, id: crand.Text(), reads: h.slot == node.Reader, began: now, request: r,
		turn:  make(chan struct{}, 1),
		lines: make([]nodeLine, len(l.nodes)),
	}
	if w.reads {
		w.id = node.ReaderID(w.id)
	}
	ticket := l.proposal(now)
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.isClosed() {
		return nil, ErrLockerClosed
	}
	l.waiters[w.id] = w
	for _, of := range of {
		p := l.placeOf(of)
		p.slots = int32(h.slots)
		if p.line == nil {
			p.line = &line{}
			p.line.waiters = p.line.one[:0]
		}
		before := p.line.waiters
		at := len(before)
		for r != nil && at > 0 && before[at-1].request == nil {
			at--
		}
		if len(w.of) > 1 && at > 0 && ticket != 0 { // one ticket for all its lines, behind all who stand there
			ticket = max(ticket, before[at-1].ticket+1)
		}
		p.line.waiters = slices.Insert(before, at, w)
	}
	l.drawTickets(w, ticket)
	return w, nil
}

// ticketFor returns a waiter's ticket. It may be one that came when no node was known, and one has been found since.
func (l *Locker) ticketFor(w *waiter) uint64 {
	now := l.clock.Now()
	ticket := l.proposal(now)
	l.mu.Lock()
	defer l.mu.Unlock()
	l.drawTickets(w, ticket)
	if w.ticket == 0 {
		return uint64(now.Microseconds()) // no node will hear of it, or of this attempt alone
	}
	return w.ticket
}

// drawTickets has all draw their tickets who stand in a line with w.
func (l *Locker) drawTickets(w *waiter, ticket uint64) {
	for _, of := range w.of {
		l.places[of].drawTickets(ticket)
	}
}

// drawTickets gives each waiter that has none a ticket, in the order of their calls. While no node is known there is none
// to be had: this program's own clock may be off by minutes, and nobody's turn depends on it.
func (p *place) drawTickets(ticket uint64) {
	if ticket == 0 {
		return
	}
	for _, w := range p.waiters() {
		if w.ticket == 0 && w.request != nil {
			w.ticket = max(1, ticket/1000) // in ms, and so before all that are in µs
		} else if w.ticket == 0 {
			w.ticket = ticket
		}
		ticket = max(ticket, w.ticket+1)
	}
}

// stepAside takes a call out of the line here and on the nodes, and passes the turn to speak on.
func (l *Locker) stepAside(w *waiter) {
	l.mu.Lock()
	delete(l.waiters, w.id)
	for _, of := range w.of {
		p := l.places[of]
		p.line.waiters = slices.DeleteFunc(p.line.waiters, func(x *waiter) bool { return x == w })
		p.tellSpeakers()
		l.tidy(of, p)
	}
	l.mu.Unlock()
	w.leave()
}

// speakers is how many of a Locker's line speak to the nodes. The second is in line there before the first is served:
// else somebody who came later could overtake it while it lines up.
const speakers = 2

// speakers is how many of the place's line speak to the nodes: of a semaphore as many as there are slots, of a reader-writer lock
// all readers before the first writer, and one more.
func (p *place) speakers() int { return max(speakers, p.atOnce()+1) }

// atOnce is how many of the place's line may be served at the same time.
func (p *place) atOnce() int {
	readers, waiters := 0, p.waiters()
	for readers < min(len(waiters), maxReaders) && waiters[readers].reads {
		readers++
	}
	return max(int(p.slots), readers)
}

// maxReaders bounds how many readers of one Locker speak to the nodes while they wait.
const maxReaders = 256

// speaks reports whether w is near enough to the head of this Locker's line to speak to the nodes, and whoever is before it
// in this line has its place on the nodes. Nodes know an order of those alone who have asked them: while the questions of
// the first are still on their way, or its goroutine has yet to run, they would grant the lock to the second. Of a semaphore
// each may find a slot, and readers do not wait for each other. Of several names this is so in each line; all stand in the
// order of their calls, so the first speaks.
func (l *Locker) speaks(w *waiter) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, of := range w.of {
		p := l.places[of]
		i := slices.Index(p.waiters(), w)
		if i != 0 && i >= p.atOnce() && (i >= p.speakers() || !p.waiters()[i-1].placed.Load()) {
			return false
		}
	}
	return true
}

// placed has the next of this Locker's line speak, because the one before has its place on the nodes.
func (l *Locker) placed(w *waiter) {
	if w.placed.Swap(true) {
		return
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, of := range w.of {
		if p := l.places[of]; p != nil {
			waiters := p.waiters()
			if i := slices.Index(waiters, w) + 1; i > 0 && i < min(p.speakers(), len(waiters)) {
				waiters[i].tell()
			}
		}
	}
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
	if g == nil || g.lock.Slots != 0 || !g.freeOn(node) { // a slot that is free may be another than the one that is asked for
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
func (w *waiter) begin(g *Guard, ticket uint64) {
	w.mu.Lock()
	defer w.mu.Unlock()
	g.waiter = w
	g.lock.Waiter = &w.id
	g.life.waits, g.life.woken = true, w.woken
	g.compete(ticket)
	w.attempt, w.woken = g, false
	w.done = false // the one before may have won, and lost at once
}

// stop notes that the waiter waits no longer: what is sent from now on takes it out of line.
func (w *waiter) stop() {
	if w != nil {
		w.mu.Lock()
		defer w.mu.Unlock()
		w.done = true
	}
}

// leave takes the waiter out of the lines it still stands in.
func (w *waiter) leave() {
	w.stop()
	w.mu.Lock()
	g := w.attempt
	w.mu.Unlock()
	if g != nil {
		w.l.reopen(g)
		g.leaveLines()
	}
}

// tell has the life take an event. It goes by what is known of its waiter's place in line, and what it makes of that is known before any
// other attempt takes an event: the attempts of one waiter follow each other while answers to the earlier ones are still to come.
//
// These may be heard in another order than the node came to them: a grant that was asked for before it was heard that the waiter stands
// in line, by what an earlier attempt had asked, may be the older news.
func (g *Guard) tell(e event, now time.Duration) *orders {
	w := g.waiter
	if w == nil {
		return g.life.on(e, now)
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	g.life.staying = !w.done
	for i := range g.life.ballot {
		g.life.ballot[i].inLine = w.lines[i].stands
	}
	if e.kind == answered {
		e.answer.LinedUp = w.lines[e.node].heard >= e.answer.SentAt
	}
	o := g.life.on(e, now)
	for i := range g.life.ballot {
		w.lines[i].stands = g.life.ballot[i].inLine
	}
	if e.kind == answered && w.lines[e.node].stands {
		w.lines[e.node].heard = now
	}
	w.done = w.done || o.served
	return o
}

// compete gives an attempt the ticket of its call.
func (g *Guard) compete(ticket uint64) {
	key := ""
	if g.lock.Slot == 0 && g.lock.Slots == 0 && g.lock.Names == nil {
		key = node.LockKey(g.l.option.KeyPrefix, g.life.name)
	}
	since := ""
	if g.life.ticket = ticket; ticket != 0 { // else no node is known yet
		since = "#" + strconv.FormatUint(ticket, 10)
	}
	text := key + g.life.owner + since + g.life.claimTail // one for all, so that a renewal reads them together
	g.lock.Key, g.lock.Claim = text[:len(key)], text[len(key):]
	g.life.owner = g.lock.Claim[:len(g.life.owner)]
}

// splitPause is after what time those who have split the nodes should have settled it: whoever is before us has heard of
// the votes that were let go, and asked for them. A try that was refused asks again then, whether or not it was pushed.
func (l *Locker) splitPause(r *rules) time.Duration {
	var buf [16]time.Duration
	trips := buf[:0]
	for _, n := range l.nodes {
		trips = append(trips, n.RoundTrip())
	}
	slices.Sort(trips)
	return min(max(4*trips[min(l.set.Electorate().Quorum, len(trips))-1], time.Millisecond), r.timeout/8)
}

// patience is what one Locker knows of the hope for one name: its calls share it, for only the first of them ask.
type patience struct {
	since time.Duration // no quorum has been reachable since then; 0: it was
	last  *QuorumError  // what the nodes said last
}

// patient returns nil if it is worth trying again after err, or the error that ends the wait: a permanent one where
// such alone make a quorum impossible, no quorum where none has been reachable for a lease. Quarantines are waited
// out.
func (l *Locker) patient(w *waiter, err error) error {
	var qe *QuorumError
	if !errors.As(err, &qe) || qe.kind != ErrNotLocked && qe.kind != ErrNoQuorum {
		return err // the context, or Close
	}
	lasting, reachable := 0, qe.Votes
	for _, e := range qe.Errs {
		held := (*HeldError)(nil)
		switch {
		case node.IsStranger(e), errors.Is(e, errNoMember), errors.Is(e, errUnlisted): // another member may do
		case errors.Is(e, errNoAnswerYet): // the others decided: whether it can be reached nobody knows
			reachable++
		case node.Permanent(e):
			lasting++
		case errors.As(e, &held), errors.Is(e, ErrQuarantined), errors.Is(e, errDoubted):
			reachable++
		}
	}
	if by := l.set.Electorate(); qe.Nodes-lasting < qe.Quorum || by.Listed() < by.Quorum { // nor is its place in line worth anything
		return err
	}
	l.mu.Lock()
	for _, of := range w.of {
		p := l.places[of].line
		p.last = qe
		switch {
		case qe.kind == ErrNotLocked, reachable >= qe.Quorum: // a node still within its time is reachable
			p.since = 0
		case p.since == 0:
			p.since = l.clock.Now()
		}
	}
	l.mu.Unlock()
	return l.hopeless(w)
}

// hopeless returns the error of a call that has waited for a lease in which no quorum was reachable, and then has those
// look who do not ask the nodes themselves.
func (l *Locker) hopeless(w *waiter) (err error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, of := range w.of {
		p := l.places[of]
		if p.line.since == 0 || l.clock.Now()-max(p.line.since, w.began) < l.option.KeyValidity {
			continue
		}
		for _, other := range p.line.waiters[min(p.speakers(), len(p.line.waiters)):] {
			other.tell()
		}
		err = fmt.Errorf("redlock: gave up after %v without a reachable quorum: %w", l.option.KeyValidity, p.line.last)
	}
	return err
}

// lastAnswers returns what the nodes said last about a name that is waited for.
func (l *Locker) lastAnswers(w *waiter) error {
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, of := range w.of {
		if last := l.places[of].line.last; last != nil {
			return last
		}
	}
	return nil
}

// heardNothing reports whether an attempt ended before any node had answered.
func (g *Guard) heardNothing() bool {
	g.mu.Lock()
	defer g.mu.Unlock()
	return g.life.ballot.silent() == len(g.life.ballot)
}

// askIn returns when a waiter asks again if nobody wakes it.
func (g *Guard) askIn() time.Duration {
	g.mu.Lock()
	defer g.mu.Unlock()
	at, every := g.life.askIn(g.l.clock.Now())
	return min(at, every-g.l.jitter(every/16))
}
