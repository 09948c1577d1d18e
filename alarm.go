package redlock

// AtRisk returns a channel that is closed while the lock is at risk, and once it has ended. Where the lock is well it is
// closed as soon as that changes. To see it well again ask anew: a channel that was closed stays closed.
//
// A lock is at risk while one more vote that goes would end it although there are nodes to spare; while renewals are late
// and less than half of its validity is left; for the last quarter of AtMost, or less where the validity is shorter; and while
// somebody asks for it by [Grace]. A worker may then take on no more work, save its state, or look at [Guard.Err] more often. With one or two nodes, which
// have none to spare, votes alone put no lock at risk.
//
// A lock whose risk nobody has asked for, by this, by [Guard.Risk] or by an Observer, pays nothing for it.
func (g *Guard) AtRisk() <-chan struct{} {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.watch()
	return g.alarm.atRisk
}

// Risk returns a channel that is closed when the lock's risk changes, and why it is at risk, nil where it is well. The error
// matches [ErrAtRisk], and [ErrAskedFor] where somebody asks for it, and is a *QuorumError with the nodes whose votes are missing. Once the guard has ended it is the cause
// of that, and the channel is nil, as nothing changes any more.
func (g *Guard) Risk() (changed <-chan struct{}, why error) {
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.watch(); g.life.phase == over {
		return nil, g.life.cause
	}
	return g.alarm.changed, g.life.watch.why
}

// watch has the life look out for risks from now on, and look now.
func (g *Guard) watch() {
	if g.alarm == nil {
		g.alarm = &alarm{atRisk: make(chan struct{}), changed: make(chan struct{})}
	}
	g.handle(event{kind: watched})
	if risky := g.life.phase == over || g.life.watch.why != nil; risky != g.alarm.risky { // an Observer has had it watched before
		g.alarm.ring(risky)
	}
}

// alarm is what those wait for who watch a guard.
type alarm struct {
	risky   bool
	atRisk  chan struct{} // closed while it is risky
	changed chan struct{} // closed at the next change
}

// ring tells them that something has changed.
func (a *alarm) ring(risky bool) {
	close(a.changed)
	a.changed = make(chan struct{})
	switch {
	case risky && !a.risky:
		close(a.atRisk)
	case a.risky && !risky:
		a.atRisk = make(chan struct{})
	}
	a.risky = risky
}
