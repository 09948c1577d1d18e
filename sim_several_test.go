package redlock_test

import (
	"context"
	"slices"

	"github.com/redlock-go/redlock"
)

// In some profiles calls want several names as one. Such a guard has a life in the history of each of its names, and all that must be true of a
// lock must be true of each: so nobody else is alive in any of them, no token of any is as large, nobody is overtaken in any line.

// callSeveral asks for some of the names at once, in any order, and holds them.
func (a *actor) callSeveral(locker *redlock.Locker, ctx context.Context, limit func(float64)) bool {
	s, r := a.sim, a.r
	var names []string
	for _, i := range r.Perm(len(s.names)) {
		if names = append(names, s.names[i]); len(names) > 1 && chance(r, .6) {
			break
		}
	}
	call, waits, acquire := "AcquireAll", true, locker.AcquireAll
	if chance(r, .3) {
		call, waits, acquire = "TryAcquireAll", false, locker.TryAcquireAll
	} else {
		limit(.3)
	}
	asks := make([]*asked, len(names))
	for i, name := range names {
		asks[i] = s.invoke(a.from, name, call, waits, false)
	}
	g, err := acquire(ctx, names)
	if err != nil {
		if !a.gate() {
			return false
		}
		for _, ask := range asks {
			s.failed(ask, a.from, locker, ctx, err)
		}
		return true
	}
	lives := make([]*life, len(names))
	s.mu.Lock()
	for i, ask := range asks {
		lives[i] = s.grant(ask, a.from, locker, g, g.Err, nil)
		lives[i].group = lives
	}
	s.mu.Unlock()
	if !a.gate() || !a.hold(lives[0]) {
		return false
	}
	before := make([]error, len(lives))
	for i, l := range lives {
		before[i] = s.releasing(l)
	}
	err = g.Release(ctx)
	if !a.gate() {
		return false
	}
	for i, l := range lives {
		s.releasedAs(l, before[i], err)
		s.finished(l)
	}
	return true
}

// actAll acts in all names of a guard, and reports whether it is alive.
func (s *sim) actAll(l *life, look bool) bool {
	alive := s.act(l, look)
	for _, o := range l.group {
		if o != l {
			alive = s.act(o, look) && alive
		}
	}
	return alive
}

// hadRivals reports whether anybody else asked for one of the names of a guard in its life.
func (s *sim) hadRivals(l *life) bool {
	return slices.ContainsFunc(l.group, func(o *life) bool { return s.locks[o.name].takeovers > 0 || s.hadRival(s.locks[o.name], o) })
}
