package redlock

import (
	"context"
	"errors"
	"sync"
	"time"
)

// Grace has ForceAcquire ask the holder to let go, and take the lock over only when d is over and it has not. Meanwhile it
// stands in line before all who only wait, and returns as soon as it has the lock: a round trip or two after the holder has
// released. When d is over, or at once where nobody holds the lock and it is only kept (AtLeast, LockDelay), it takes over as
// without Grace, which lasts up to a lease longer if the holder cannot be reached.
//
// The holder is told by [Guard.AtRisk] and [Guard.Risk], whose error matches [ErrAskedFor]. One that looks at neither, or
// whose program has a release of this package without Grace, is taken over after d without a word. It is told by push, mostly
// within two round trips, and where a node pushes nothing at its next extension: an ExtendInterval later, which may be too
// late. It is asked on as many nodes at a time as it has votes to spare, because a vote is in doubt until the holder has looked
// at its node, and on one where it has none; then on others, so that it hears of it before d is over if it can be reached at all.
//
// d counts from the call, whoever holds the lock meanwhile, and is 1 ms to 90 days. Those who ask are served in the order of
// their calls. If ctx ends, or the Locker is closed, errors are those of Acquire, and the holder is told that nobody asks any
// more; where the program dies it is told so when d is over. So it is with ErrNoQuorum, if no quorum was reachable for a
// KeyValidity.
func Grace(d time.Duration) HoldOption {
	return func(h *hold) { h.set(&h.grace, "Grace", d) }
}

// errOnlyKept ends a wait by Grace: there is nobody to let go.
var errOnlyKept = errors.New("nobody holds the lock")

// forceAfterGrace waits for the lock for as long as the holder has to let go, and then takes it over.
func (l *Locker) forceAfterGrace(ctx context.Context, name string, h hold) (*Guard, error) {
	now := l.clock.Now()
	w, err := l.lineUp(h.subjects(name), &h, &request{
		until: now + h.grace.d, every: min(h.rules.line.every, h.grace.d/time.Duration(len(l.nodes)+1)),
		heard: make(map[int]holding),
	})
	if err != nil {
		return nil, err
	}
	defer l.stepAside(w) // not before: nobody may come in between, and the holder must not be told that all is well
	waiting, cancel := context.WithTimeout(ctx, l.clock.Wait(h.grace.d))
	defer cancel()
	waits := h
	waits.takeover = noTakeover
	g, err := l.waitFor(waiting, name, waits, w)
	if err != nil && ctx.Err() == nil && (err == errOnlyKept || waiting.Err() != nil) {
		return l.force(ctx, name, h)
	}
	return g, err
}

// request is what a waiter asks of the holder, attempt by attempt.
type request struct {
	until time.Duration // then the lock is taken over
	every time.Duration // time between two sets of nodes on which the holder is asked, so that no more are pushed at a time
	next  time.Duration // when the next set may be: its goroutine's own

	mu    sync.Mutex
	heard map[int]holding // by node: answers come when they come, those of earlier attempts, too
}

// join returns the nodes on which an attempt is to ask the holder as well.
func (r *request) join(g *Guard) []int {
	r.mu.Lock()
	defer r.mu.Unlock()
	now := g.l.clock.Now()
	on := toAsk(r.heard, g.life.quorum())
	if len(on) == 0 || r.next > now {
		return nil
	}
	for _, i := range on {
		h := r.heard[i]
		h.tried++
		r.heard[i] = h
	}
	r.next = now + r.every
	g.lock.Own().Grace = max(time.Millisecond, r.until-now)
	return on
}

// plan returns in what time the attempt after g, which came to nothing, is to ask the holder; an error if there is none.
func (r *request) plan(g *Guard) (in time.Duration, err error) {
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.life.onlyKept() {
		return 0, errOnlyKept
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	if len(toAsk(r.heard, g.life.quorum())) == 0 {
		return r.every, nil
	}
	return max(0, r.next-g.l.clock.Now()), nil
}

// note takes what node i has said to a question; asked is whether it was to ask the holder, too.
func (r *request) note(i int, a *answer, asked bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	owner := ownerOf(a.Text)
	if a.Err != nil || a.Code != codeHeld || owner == tombstone {
		delete(r.heard, i)
		return
	}
	h := r.heard[i]
	if h.owner != owner {
		h = holding{owner: owner}
	}
	h.asked = h.asked || asked
	r.heard[i] = h
}

// request is what the guard's waiter asks of the holder; nil for nothing.
func (g *Guard) request() *request {
	if g.waiter == nil {
		return nil
	}
	return g.waiter.request
}

// noteRequest takes what node i has answered to a waiter that asks the holder to let go. Holders in this same Locker look at
// the node where they are asked now, or not any more: a write of our own pushes nobody here.
func (g *Guard) noteRequest(i int, a *answer) {
	r, step := g.request(), &g.life.ballot[i].step
	if r == nil {
		return
	}
	if step.Script == scriptAcquire {
		r.note(i, a, step.TakeOver)
	}
	if a.Err == nil && (step.TakeOver || step.Leave) {
		g.l.background.Go(func() { g.l.tellHolders(g.subject(), i) })
	}
}

// tellHolders has who holds a lock in this Locker look at node i.
func (l *Locker) tellHolders(of subject, i int) {
	for _, g := range l.guardsOf(of) {
		if g.deadline.Load() != 0 {
			g.lookAgain(i)
		}
	}
}
