package redlock

import "slices"

// place is what one Locker does about one name: the guards it has there, and who waits in line for it.
type place struct {
	guards  []*Guard  // attempts on their way, and held guards until their release is confirmed
	waiters []*waiter // in the order of their calls; only the first speaks to the nodes
}

// enter puts an attempt in its place, where pushes find it. It must be there before anything is sent.
func (l *Locker) enter(g *Guard) error {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.enterLocked(g)
}

func (l *Locker) enterLocked(g *Guard) error {
	if l.isClosed() {
		return ErrLockerClosed
	}
	p := l.placeOf(g.name)
	p.guards = append(p.guards, g)
	l.open[g] = struct{}{}
	return nil
}

// placeOf returns the place of a name, making it where there is none.
func (l *Locker) placeOf(name string) *place {
	p := l.places[name]
	if p == nil {
		p = &place{}
		l.places[name] = p
	}
	return p
}

// leave takes a guard out of its place, if it is there.
func (l *Locker) leave(g *Guard) {
	l.mu.Lock()
	defer l.mu.Unlock()
	p := l.places[g.name]
	if p == nil {
		return
	}
	p.guards = slices.DeleteFunc(p.guards, func(o *Guard) bool { return o == g })
	l.tidy(g.name, p)
}

// tidy drops a place in which nothing is going on.
func (l *Locker) tidy(name string, p *place) {
	if len(p.guards) == 0 && len(p.waiters) == 0 {
		delete(l.places, name)
	}
}

// forget drops a guard of which no node knows any more.
func (l *Locker) forget(g *Guard) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if _, ok := l.open[g]; !ok {
		return
	}
	delete(l.open, g)
	if l.drained != nil && len(l.open) == 0 {
		close(l.drained)
	}
}

// guardsOf returns the guards that this Locker has for a name.
func (l *Locker) guardsOf(name string) []*Guard {
	l.mu.Lock()
	defer l.mu.Unlock()
	if p := l.places[name]; p != nil {
		return slices.Clone(p.guards)
	}
	return nil
}

// openGuards returns every guard that nodes may still know of.
func (l *Locker) openGuards() []*Guard {
	l.mu.Lock()
	defer l.mu.Unlock()
	guards := make([]*Guard, 0, len(l.open))
	for g := range l.open {
		guards = append(guards, g)
	}
	return guards
}

func (p *place) wakeFirst() {
	if len(p.waiters) > 0 {
		p.waiters[0].tell()
	}
}
