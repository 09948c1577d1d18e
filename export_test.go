package redlock

import "time"

// NewLockerOn is NewLocker on a host whose clock the test holds in its hands: a simulated pause stops it.
func NewLockerOn(option LockerOption, now func() time.Time, apart func(time.Duration) time.Duration) (*Locker, error) {
	option, err := option.resolve()
	if err != nil {
		return nil, err
	}
	l := newLocker(option)
	l.clock.read, l.clock.apart = now, apart
	l.keepers.Go(l.extender.run)
	for _, n := range l.nodes {
		l.keepers.Go(n.keep)
	}
	if err := l.awaitFirstChecks(); err != nil {
		l.Close()
		return nil, err
	}
	return l, nil
}

// Owner returns what nodes store for a guard.
func (g *Guard) Owner() string { return g.owner }

// GuardOf returns the guard that a context comes from, however it was derived.
func GuardOf(ctx interface{ Value(any) any }) *Guard {
	g, _ := ctx.Value(guardKey{}).(*Guard)
	return g
}
