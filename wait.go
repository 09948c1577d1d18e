package redlock

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"
)

// waiter is one call in line for a name.
type waiter struct {
	turn chan struct{} // 1-buffered: something happened that may make an attempt worth while
}

func (w *waiter) wake() {
	select {
	case w.turn <- struct{}{}:
	default:
	}
}

const (
	// afterExpiry is how long after a lease's end it is surely gone: Redis counts whole milliseconds.
	afterExpiry = 2 * time.Millisecond
	// wakeJitter spreads the attempts of processes that were woken by the same push.
	wakeJitter = 5 * time.Millisecond
	// maxPoll is the longest time between two attempts when nothing says that one is worth while.
	maxPoll = time.Second
)

// wait acquires a name when its turn comes. In this Locker the turn goes by order of calls; among Lockers, to whoever
// asks first when the lock is free: a push, the end of the blocking lease or a slow poll says when to ask.
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
			if !l.sleep(ctx, l.jitter(wakeJitter)) {
				continue
			}
		case <-timer.C:
		}
		if !l.isTurn(name, w) {
			timer.Reset(maxPoll)
			continue
		}
		g := l.newGuard(ctx, name, h)
		if err := l.enter(g); err != nil {
			return nil, err
		}
		err := l.attempt(ctx, g)
		if err == nil {
			return g, nil
		}
		if err = patience.after(l, g, err); err != nil {
			return nil, err
		}
		timer.Reset(g.retryIn())
	}
}

// lineUp puts a call at the end of the line.
func (l *Locker) lineUp(name string) (*waiter, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.isClosed() {
		return nil, ErrLockerClosed
	}
	w := &waiter{turn: make(chan struct{}, 1)}
	p := l.placeOf(name)
	p.waiters = append(p.waiters, w)
	return w, nil
}

// stepAside takes a call out of the line, and passes the turn on.
func (l *Locker) stepAside(name string, w *waiter) {
	l.mu.Lock()
	defer l.mu.Unlock()
	p := l.places[name]
	p.waiters = slices.DeleteFunc(p.waiters, func(x *waiter) bool { return x == w })
	p.wakeFirst()
	l.tidy(name, p)
}

// isTurn reports whether w is first in line and this Locker does not hold the name.
func (l *Locker) isTurn(name string, w *waiter) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	p := l.places[name]
	return p.waiters[0] == w && len(p.guards) == 0
}

// sleep waits, and reports whether it did to the end.
func (l *Locker) sleep(ctx context.Context, d time.Duration) bool {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
		return true
	case <-ctx.Done():
	case <-l.closed:
	}
	return false
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
	case qe.Nodes-unreachable >= qe.Quorum:
		p.since = 0
	case p.since == 0:
		p.since = now
	case now-p.since >= l.option.KeyValidity:
		return fmt.Errorf("redlock: gave up after %v without a reachable quorum: %w", l.option.KeyValidity, err)
	}
	return nil
}

// retryIn returns how long to wait for a push before asking again by timer: until so many of the refusing nodes are
// free by themselves that a quorum is possible, and at most one poll.
func (g *Guard) retryIn() time.Duration {
	g.mu.Lock()
	defer g.mu.Unlock()
	now := g.l.clock.now()
	poll := min(maxPoll, g.l.option.KeyValidity/4)
	poll += g.l.jitter(poll / 4)
	var frees []time.Duration
	missing := g.ballot.quorum()
	for i, v := range g.ballot {
		switch {
		case v.state == granted:
			missing--
		case g.claims[i].freeAt > now:
			frees = append(frees, g.claims[i].freeAt+afterExpiry-now)
		}
	}
	slices.Sort(frees)
	if missing >= 1 && missing <= len(frees) {
		return min(poll, frees[missing-1])
	}
	return poll
}
