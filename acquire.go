package redlock

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/redlock-go/redlock/internal/node"
)

// Acquire waits for the lock and returns it as a guard. ctx bounds the wait alone: the guard lives until it is
// released, lost, or the Locker is closed.
//
// The error matches ctx.Err() and context.Cause(ctx) if ctx ended first, and then carries a *QuorumError with what the
// nodes said last, if any was asked; ErrLockerClosed; ErrNoQuorum if no quorum was reachable for KeyValidity, or if
// permanent faults (NOPERM, WRONGTYPE, clients that disagree) alone make one impossible. After an error every node has
// been asked to release; one that cannot be reached keeps the key for at most one lease.
//
// The wait is silent: whether it is for a holder, for nodes that are down, or for the quarantine of a new set of nodes,
// one lease long, is told by the Logger alone, or by TryAcquire's error.
//
// Locks are not reentrant: a second Acquire of a name that this Locker holds waits for the first.
func (l *Locker) Acquire(ctx context.Context, name string, opts ...HoldOption) (*Guard, error) {
	return l.acquire(ctx, name, holdOf(hold{}, opts))
}

func (l *Locker) acquire(ctx context.Context, name string, h hold) (guard *Guard, err error) {
	if err := l.prepare(ctx, name, &h); err != nil {
		return nil, err
	}
	if l.option.Observer != nil {
		began := l.clock.Now()
		defer func() { l.observeCall(ctx, name, began, guard, err) }()
	}
	return l.wait(ctx, name, h)
}

// TryAcquire asks every node, and does not wait for a holder. It returns when a quorum has voted yes, when a quorum has
// become impossible, or when ctx is done, and takes at most NodeTimeout a round. Of tries that meet on a free lock the
// one that began first gets it, or another: one does, while nodes are healthy. They settle it within NodeTimeout, so
// ErrNotLocked says that somebody has the lock or is before us in line. Where nodes hang meanwhile it can take nearly two
// NodeTimeouts: no attempt begins after the first, but the last has as long as any. See docs/waiting.md.
//
// The error matches ErrNotLocked if a quorum was reachable and too few voted yes, if the lock was lost again before the
// call returned, or if this Locker already holds the name or has waiters for it; ErrNoQuorum if too few nodes could
// vote; ctx.Err() and context.Cause(ctx) if ctx ended first; all carry a *QuorumError. Otherwise it matches
// ErrLockerClosed. What is left behind is as with Acquire.
func (l *Locker) TryAcquire(ctx context.Context, name string, opts ...HoldOption) (*Guard, error) {
	return l.tryAcquire(ctx, name, holdOf(hold{}, opts))
}

func (l *Locker) tryAcquire(ctx context.Context, name string, h hold) (guard *Guard, err error) {
	if err := l.prepare(ctx, name, &h); err != nil {
		return nil, err
	}
	if l.option.Observer != nil {
		began := l.clock.Now()
		defer func() { l.observeCall(ctx, name, began, guard, err) }()
	}
	began := l.clock.Now()
	ticket := l.proposal(began)
	g := l.newGuard(ctx, name, h)
	g.compete(ticket)
	if err := l.enterAlone(g, h.choices); err != nil {
		g.cancel(err)
		return nil, err
	}
	defer l.tried(g)
	for pause := time.Duration(0); ; {
		err := l.attempt(ctx, g)
		if err == nil {
			return g, nil
		}
		if pause = min(2*pause, h.rules.timeout/8); pause == 0 {
			pause = l.splitPause(h.rules)
		}
		rest, again := pause+l.jitter(pause), g.life.split
		if h.slots != 0 && l.moveOn(g, &h) == 0 {
			rest, again = 0, true
		}
		if g.life.outdated {
			rest = 0 // others are members now: they are asked
		} else if !again || l.clock.Now()+rest >= began+h.rules.timeout {
			return nil, err
		}
		if err := l.rest(ctx, name, rest, err); err != nil {
			return nil, err
		}
		g = l.newGuard(ctx, name, h)
		g.compete(ticket)
		if err := l.enter(g, h.choices...); err != nil {
			g.cancel(err)
			return nil, err
		}
	}
}

// rest lets some time pass between two attempts of a try. err is what the last came to.
func (l *Locker) rest(ctx context.Context, name string, d time.Duration, err error) error {
	if d <= 0 {
		return nil // the next attempt finds out
	}
	timer := time.NewTimer(l.clock.Wait(d))
	defer timer.Stop()
	select {
	case <-timer.C:
		return nil
	case <-ctx.Done():
		return waitEnded(ctx, name, err)
	case <-l.closed:
		return ErrLockerClosed
	}
}

// enterAlone puts an attempt in its place if nothing goes on there.
func (l *Locker) enterAlone(g *Guard, choices []slotChoice) error {
	l.mu.Lock()
	defer l.mu.Unlock()
	if of := g.subject(); g.lock.Names == nil && of.kind == aLock && l.alone[of.name] == nil && l.places[of] == nil && !l.isClosed() {
		l.alone[of.name], g.trying = g, true
		l.opened(g)
		return nil
	}
	for of := range g.subjects {
		p := l.places[of]
		if l.aloneAt(of) != nil {
			p = l.placeOf(of)
		}
		if p != nil && p.full(g) && !l.isClosed() {
			e := &QuorumError{
				Name: g.life.name, Quorum: g.life.quorum(), Nodes: g.life.size(), kind: ErrNotLocked,
				unasked: "this Locker itself " + p.doing(),
			}
			if g.lock.Names != nil {
				e.unasked = fmt.Sprintf("of %q, %s", of.name, e.unasked)
			}
			l.tidy(of, p)
			return e
		}
	}
	err := l.enterLocked(g, choices)
	if err == nil {
		for of := range g.subjects {
			l.places[of].tries++
		}
	}
	return err
}

// tried ends a try, of which this was the first attempt: its place is kept for it from that to its last.
func (l *Locker) tried(g *Guard) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if g.trying {
		g.trying = false
		return
	}
	for of := range g.subjects {
		p := l.places[of]
		p.tries--
		l.tidy(of, p)
	}
}

// ForceAcquire takes the lock from whoever holds it, and returns when every displaced holder's guard has ended: when
// it was told and has acknowledged, which takes some round trips, or when its lease has run out. It does not wait for
// the holder's code to return: that is for the fencing token, which is larger than the displaced holder's. With [Grace] the
// holder is asked first.
//
// If another taker is faster the error matches ErrTakenOver; ForceAcquire does not force again by itself, or two would
// kill each other for ever. Otherwise errors and what is left behind are as with TryAcquire.
func (l *Locker) ForceAcquire(ctx context.Context, name string, opts ...HoldOption) (*Guard, error) {
	return l.forceAcquire(ctx, name, holdOf(hold{takeover: takeoverSafely}, opts))
}

// ForceAcquireNow takes the lock from whoever holds it and does not wait for them: two guards are alive until the
// displaced holder has noticed, a round trip if it is connected, its whole lease if it is not. Only a resource that
// checks the fencing token is safe. Errors and what is left behind are as with ForceAcquire.
func (l *Locker) ForceAcquireNow(ctx context.Context, name string, opts ...HoldOption) (*Guard, error) {
	return l.forceAcquire(ctx, name, holdOf(hold{takeover: takeoverNow}, opts))
}

func (l *Locker) forceAcquire(ctx context.Context, name string, h hold) (guard *Guard, err error) {
	if err := l.prepare(ctx, name, &h); err != nil {
		return nil, err
	}
	if l.option.Observer != nil {
		began := l.clock.Now()
		defer func() { l.observeCall(ctx, name, began, guard, err) }()
	}
	if h.grace.d != 0 {
		return l.forceAfterGrace(ctx, name, h)
	}
	return l.force(ctx, name, h)
}

// force takes the lock from whoever holds it.
func (l *Locker) force(ctx context.Context, name string, h hold) (*Guard, error) {
	for {
		g := l.newGuard(ctx, name, h)
		if err := l.enter(g, h.choices...); err != nil {
			g.cancel(err)
			return nil, err
		}
		err := l.attempt(ctx, g)
		if h.takeover == takeoverNow {
			l.endDisplaced(g)
		}
		if err == nil {
			return g, nil
		}
		if !g.life.outdated { // else others are members now: they are asked
			return nil, err
		}
	}
}

// endDisplaced ends the guards of this Locker that g displaced, before g is returned. No others: one that displaced g
// would end, too, and leave g, which is not pushed what its own connection wrote.
func (l *Locker) endDisplaced(g *Guard) {
	if g.outcome() != nil {
		return
	}
	for _, other := range l.guardsOf(g.subject()) {
		g.mu.Lock()
		displaced := g.life.rarely().displaced[other.life.owner] != nil
		g.mu.Unlock()
		if displaced {
			other.takenOver()
		}
	}
}

// errNoLocker comes from the calls of a nil Locker: what NewLocker returns beside an error. Behind an interface it is not
// nil, so that "if locker != nil" lets it through.
var errNoLocker = fmt.Errorf("%w: the Locker is nil, NewLocker has failed", ErrLockerClosed)

// ready refuses a call that cannot come to anything.
func (l *Locker) ready(ctx context.Context, name string) error {
	if l == nil {
		return errNoLocker
	}
	if err := checkName(name); err != nil {
		return err
	}
	if l.isClosed() {
		return ErrLockerClosed
	}
	if ctx.Err() != nil {
		return node.ContextEnded(ctx, name)
	}
	return nil
}

// prepare is ready for a call that takes a lock, and makes its hold ready.
func (l *Locker) prepare(ctx context.Context, name string, h *hold) error {
	if h.names != nil {
		name = name[:min(len(name), maxName)] // each of them was looked at
	}
	if err := l.ready(ctx, name); err != nil {
		return err
	}
	return h.settle(l)
}

// Do waits for the lock, runs fn, and releases when fn has returned or panicked.
//
// fn's context carries ctx's values and deadline. It ends at once when ctx ends, and when the lock is lost;
// context.Cause says which, and Err looks at the clock, as that of [Guard.Context]. The end of ctx does not give the
// lock away: it is extended until fn has returned, however long that takes.
//
// If the lock was lost before fn had returned, the error is fn's joined with the loss, which matches ErrLost (and
// ErrLockerClosed where the Locker was closed meanwhile); if it had been held too long, with that, which matches
// ErrHeldTooLong. If no quorum has confirmed the release within NodeTimeout it is
// fn's joined with one that matches ErrNotReleased and not ErrNoQuorum; the nodes that did not confirm keep the key for at
// most one lease. Otherwise it is fn's alone. If fn never ran, errors and what is left behind are as with Acquire.
func (l *Locker) Do(ctx context.Context, name string, fn func(context.Context) error, opts ...HoldOption) error {
	return do(ctx, name, fn, l.acquire, opts)
}

// TryDo is Do without the wait: if fn never ran, errors and what is left behind are as with TryAcquire.
func (l *Locker) TryDo(ctx context.Context, name string, fn func(context.Context) error, opts ...HoldOption) error {
	return do(ctx, name, fn, l.tryAcquire, opts)
}

func do(ctx context.Context, name string, fn func(context.Context) error, acquire acquireFunc, opts []HoldOption) (err error) {
	g, err := acquire(ctx, name, holdOf(hold{parented: true, outlives: true}, opts))
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, g.releaseAfter(ctx)) }()
	return fn(g.Context())
}

// releaseAfter releases after fn has run, and returns an error that cannot be taken for one of an fn that never ran.
func (g *Guard) releaseAfter(ctx context.Context) error {
	err := g.Release(ctx)
	var qe *QuorumError
	switch {
	case err == nil && errors.Is(g.Err(), ErrLockerClosed):
		return fmt.Errorf("%w: %q: %w", ErrLost, g.life.name, ErrLockerClosed)
	case errors.Is(err, ErrNoQuorum) && errors.As(err, &qe):
		unconfirmed := *qe
		unconfirmed.kind = ErrNotReleased
		return &unconfirmed
	}
	return err
}

// endWith releases the guard in the background when ctx ends.
func (g *Guard) endWith(ctx context.Context) (stop func() bool) {
	return context.AfterFunc(ctx, func() { g.end(context.Cause(ctx)) })
}

// WithContext waits for the lock and returns a context that ends with it: context.Cause says why. ctx is the parent:
// its end and deadline bound the wait and the hold. cancel releases, waits for a quorum to confirm, and may be called
// twice; when the parent ends the lock is released in the background. Errors are those of Acquire; the context is then
// an ended one, and cancel does nothing.
func (l *Locker) WithContext(ctx context.Context, name string) (context.Context, context.CancelFunc, error) {
	return trio(ctx, name, l.acquire, hold{parented: true})
}

// TryWithContext is WithContext without the wait. Errors are those of TryAcquire.
func (l *Locker) TryWithContext(ctx context.Context, name string) (context.Context, context.CancelFunc, error) {
	return trio(ctx, name, l.tryAcquire, hold{parented: true})
}

// ForceWithContext is WithContext that takes the lock over, safely. Errors are those of ForceAcquire.
func (l *Locker) ForceWithContext(ctx context.Context, name string) (context.Context, context.CancelFunc, error) {
	return trio(ctx, name, l.forceAcquire, hold{parented: true, takeover: takeoverSafely})
}

// acquireFunc is one of the ways to get a lock.
type acquireFunc = func(context.Context, string, hold) (*Guard, error)

func trio(ctx context.Context, name string, acquire acquireFunc, h hold) (context.Context, context.CancelFunc, error) {
	g, err := acquire(ctx, name, h)
	if err != nil {
		ended, cancel := context.WithCancelCause(ctx)
		cancel(err)
		return ended, func() {}, err
	}
	stop := g.endWith(ctx)
	return g.Context(), func() {
		stop()
		g.Release(context.WithoutCancel(ctx))
	}, nil
}
