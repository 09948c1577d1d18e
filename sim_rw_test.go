package redlock_test

import (
	"context"
	"strings"
	"time"

	"github.com/redlock-go/redlock"
	"github.com/redlock-go/redlock/internal/node"
)

// In some profiles the names of a run are reader-writer locks. Those who write have the history of the name, and all that must be
// true of a lock must be true of it; those who read have one of their own, "a/r", and may be many. Between the two is judged here: never a
// reader beside a writer, alive or by the order of what they do; tokens; and who is served before whom.

const readersOf = "/r"

// readsFor is the name of the history of those who read.
func readsFor(name string) string { return name + readersOf }

// isReading reports whether a history is that of those who read.
func isReading(name string) bool { return strings.HasSuffix(name, readersOf) }

// othersOf returns the histories of those whom a guard must not be alive beside: none for what is no reader-writer lock.
func (s *sim) othersOf(l *life) *lockHistory {
	switch {
	case !s.profile.rw:
		return nil
	case isReading(l.name):
		return s.locks[askedName(l.name)]
	}
	return s.locks[readsFor(l.name)]
}

// keyOf is the key of a guard on a node.
func (s *sim) keyOf(l *life) string {
	switch {
	case !s.profile.rw:
		return lockKeyOf(l.name)
	case isReading(l.name):
		return node.ReaderKey(simPrefix, askedName(l.name), l.guard.Owner())
	}
	return node.WriterKey(simPrefix, l.name)
}

// callRW asks for a reader-writer lock once, and holds it.
func (a *actor) callRW(locker *redlock.Locker, name string, ctx context.Context, limit func(float64)) bool {
	s, r := a.sim, a.r
	rw := locker.RW(name)
	writes := r.Float64() < .4
	if try := r.Float64() < .3; writes && try {
		ask := s.invoke(a.from, name, "TryWrite", false, false)
		g, err := rw.TryWrite(ctx)
		return a.got(ask, locker, ctx, g, err)
	} else if try {
		ask := s.invoke(a.from, name, "TryRead", false, false)
		g, err := rw.TryRead(ctx)
		return a.got(ask, locker, ctx, g, err)
	}
	limit(.3)
	if writes {
		ask := s.invoke(a.from, name, "Write", true, false)
		g, err := rw.Write(ctx)
		return a.got(ask, locker, ctx, g, err)
	}
	ask := s.invoke(a.from, name, "Read", true, false)
	g, err := rw.Read(ctx)
	return a.got(ask, locker, ctx, g, err)
}

// downgrade makes a reader of a writer, which goes on where that fails. It reports whether the host is alive.
func (a *actor) downgrade(l *life, ctx context.Context) (reader *life, alive bool) {
	s := a.sim
	ask := s.invoke(a.from, l.name, "Downgrade", false, false)
	s.mu.Lock()
	l.released = true
	s.mu.Unlock()
	g, err := l.guard.Downgrade(ctx)
	if err != nil {
		if !a.gate() {
			return nil, false
		}
		s.mu.Lock()
		s.forget(ask)
		s.mu.Unlock()
		return nil, true
	}
	reader = s.granted(ask, a.from, l.locker, g, g.Err, nil)
	s.mu.Lock()
	if l.acted { // nobody has written since
		reader.acted, reader.actedAt = true, l.actedAt
	}
	if s.judge(l) {
		s.violated(l.host.name, l.name, "downgrade", "guard %d is alive beside guard %d, which it has become", l.id, reader.id)
	}
	s.mu.Unlock()
	return reader, a.gate()
}

// judgeSides looks at a guard that was granted beside those of the other side.
func (s *sim) judgeSides(a *asked, l *life) {
	others := s.othersOf(l)
	for _, o := range others.lives {
		if o.returned < l.invoked && o.token >= l.token {
			s.violated(a.host.name, a.name, "fence", "guard %d of %s has token %d, not above %d of guard %d of %s that came before it was asked for", l.id, l.name, l.token, o.token, o.id, o.name)
		}
	}
	if !s.profile.quiet || !a.waits {
		return
	}
	for _, o := range s.open {
		both := isReading(l.name) && o.call == "Read"
		if o.name == a.name && o.waits && !both && o.began > 2*s.longest && s.isBefore(others, o, a) && !stoodBehind(s.locks[l.name], o) {
			s.violated(a.host.name, a.name, "order", "guard %d began to %s at %v, served before %s of %s, which waits since %v", l.id, a.call, a.began, o.call, o.host.name, o.began)
		}
	}
}

// actRW judges what a guard does beside those of the other side, and reports whether its history knows no overlap of its own.
func (s *sim) actRW(l *life, look bool) {
	s.clockOfActs++
	now := s.clockOfActs
	others := s.othersOf(l)
	if look {
		for _, o := range append([]*life(nil), others.live...) {
			if !o.host.isStopped() && s.judge(o) {
				s.violated(l.host.name, l.name, "overlap", "guards %d of %s and %d of %s are both alive", o.id, o.name, l.id, l.name)
			}
		}
	}
	if l.acted && others.actedAt > l.actedAt {
		s.violated(l.host.name, l.name, "continuity", "guard %d of %s acts again after guard %d of %s acted", l.id, l.name, others.last.id, others.last.name)
	}
	if !l.acted && l.token <= others.lastToken {
		s.violated(l.host.name, l.name, "fence", "guard %d of %s with token %d acts after one of %s with token %d", l.id, l.name, l.token, others.last.name, others.lastToken)
	}
	l.actedAt, s.locks[l.name].actedAt = now, now
}

// auditReaders looks whether a node stores readers that ended long ago, or any for longer than the longest lease.
func (s *sim) auditReaders(i int, now time.Duration) {
	for _, name := range s.names {
		for _, l := range s.locks[readsFor(name)].lives {
			if l.cause != nil && now > l.ended+2*s.outlives {
				continue // looked at often enough
			}
			left, leased := s.cluster.Node(i).PTTL(s.keyOf(l))
			if !leased && left == 0 {
				continue
			}
			if left > s.longest+2*s.bound || l.cause != nil && now > l.ended+s.outlives && s.healthy[i]+s.outlives < now {
				s.violated(l.host.name, l.name, "lease", "node %d stores guard %d for %v, longest lease %v", i, l.id, left, s.longest)
			}
			index, ok := s.cluster.Node(i).PTTL(node.ReadersKey(simPrefix, name))
			if !ok || index < left {
				s.violated(l.host.name, l.name, "index", "node %d stores guard %d for %v, and the index for %v", i, l.id, left, index)
			}
		}
	}
}

// freshRW writes, and then reads, when all faults are off.
func freshRW(ctx context.Context, l *redlock.Locker, name string) ([]*redlock.Guard, error) {
	g, err := l.RW(name).Write(ctx)
	if err != nil {
		return nil, err
	}
	g.Release(ctx)
	var guards []*redlock.Guard
	for range 2 {
		if g, err = l.RW(name).Read(ctx); err != nil {
			return guards, err
		}
		guards = append(guards, g)
	}
	return guards, nil
}
