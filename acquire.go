package redlock

import (
	"context"
	"errors"
	"fmt"
)

// HoldOption changes how one lock is held.
type HoldOption func(*hold)

// hold is how one lock is held.
type hold struct {
	takeover takeover
	parented bool // the guard ends with the context it was acquired with
}

func holdOf(h hold, opts []HoldOption) hold {
	for _, o := range opts {
		o(&h)
	}
	return h
}

// Acquire waits for the lock and returns it as a guard. ctx bounds the wait alone: the guard lives until it is
// released, lost, or the Locker is closed.
//
// The error matches ctx.Err() and context.Cause(ctx) if ctx ended first; ErrLockerClosed; ErrNoQuorum if no quorum
// was reachable for KeyValidity, or if permanent faults (NOPERM, WRONGTYPE, clients that disagree) alone make one
// impossible. After an error every node has been asked to release; one that cannot be reached keeps the key for at
// most one lease.
//
// Locks are not reentrant: a second Acquire of a name that this Locker holds waits for the first.
func (l *Locker) Acquire(ctx context.Context, name string, opts ...HoldOption) (*Guard, error) {
	return l.acquire(ctx, name, holdOf(hold{}, opts))
}

func (l *Locker) acquire(ctx context.Context, name string, h hold) (*Guard, error) {
	if err := l.ready(ctx, name); err != nil {
		return nil, err
	}
	return l.wait(ctx, name, h)
}

// TryAcquire asks every node once. It returns when a quorum has voted yes, when a quorum has become impossible, or
// when ctx is done, and takes at most NodeTimeout a round.
//
// The error matches ErrNotLocked if a quorum was reachable and too few voted yes, if the lock was lost again before the
// call returned, or if this Locker already holds the name or has waiters for it; ErrNoQuorum if too few nodes could
// vote; both carry a *QuorumError. Otherwise it matches ctx.Err() or ErrLockerClosed. What is left behind is as with
// Acquire.
func (l *Locker) TryAcquire(ctx context.Context, name string, opts ...HoldOption) (*Guard, error) {
	return l.tryAcquire(ctx, name, holdOf(hold{}, opts))
}

func (l *Locker) tryAcquire(ctx context.Context, name string, h hold) (*Guard, error) {
	if err := l.ready(ctx, name); err != nil {
		return nil, err
	}
	g := l.newGuard(ctx, name, h)
	if err := l.enterAlone(g); err != nil {
		g.cancel(err)
		return nil, err
	}
	if err := l.attempt(ctx, g); err != nil {
		return nil, err
	}
	return g, nil
}

// enterAlone puts an attempt in its place if nothing goes on there.
func (l *Locker) enterAlone(g *Guard) error {
	l.mu.Lock()
	defer l.mu.Unlock()
	if p := l.places[g.name]; p != nil && !l.isClosed() {
		e := &QuorumError{Name: g.name, Quorum: g.ballot.quorum(), Nodes: len(g.ballot), kind: ErrNotLocked}
		return fmt.Errorf("%w (this Locker itself holds it, releases it or waits for it: %d guards, %d waiters)", e, len(p.guards), len(p.waiters))
	}
	return l.enterLocked(g)
}

// ForceAcquire takes the lock from whoever holds it, and returns when every displaced holder's guard has ended: when
// it was told and has acknowledged, which takes some round trips, or when its lease has run out. It does not wait for
// the holder's code to return: that is for the fencing token, which is larger than the displaced holder's.
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

func (l *Locker) forceAcquire(ctx context.Context, name string, h hold) (*Guard, error) {
	if err := l.ready(ctx, name); err != nil {
		return nil, err
	}
	g := l.newGuard(ctx, name, h)
	if err := l.enter(g); err != nil {
		g.cancel(err)
		return nil, err
	}
	if h.takeover == takeoverNow {
		defer l.endOthers(g)
	}
	if err := l.attempt(ctx, g); err != nil {
		return nil, err
	}
	return g, nil
}

// endOthers ends the guards of this Locker that g displaced.
func (l *Locker) endOthers(g *Guard) {
	if g.outcome() != nil {
		return
	}
	for _, other := range l.guardsOf(g.name) {
		if other != g {
			other.takenOver()
		}
	}
}

// ready refuses a call that cannot come to anything.
func (l *Locker) ready(ctx context.Context, name string) error {
	if err := checkName(name); err != nil {
		return err
	}
	if l.isClosed() {
		return ErrLockerClosed
	}
	if ctx.Err() != nil {
		return contextEnded(ctx, name)
	}
	return nil
}

// Do waits for the lock, runs fn with a context that ends with the lock or with ctx, and releases. It returns fn's
// error joined with the cause if the lock was lost meanwhile, or else with the error of the release. The lock is
// released if fn panics, too.
func (l *Locker) Do(ctx context.Context, name string, fn func(context.Context) error) (err error) {
	g, err := l.acquire(ctx, name, hold{parented: true})
	if err != nil {
		return err
	}
	stop := g.endWith(ctx)
	defer func() {
		stop()
		released := g.Release(context.WithoutCancel(ctx))
		if released != nil && ctx.Err() != nil && errors.Is(released, context.Cause(ctx)) {
			released = nil // ended with the parent, which is for fn to tell
		}
		err = errors.Join(err, released)
	}()
	return fn(g.Context())
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

func trio(ctx context.Context, name string, acquire func(context.Context, string, hold) (*Guard, error), h hold) (context.Context, context.CancelFunc, error) {
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
