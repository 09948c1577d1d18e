package redlock

import (
	"maps"
	"slices"
	"strings"
)

// place is what one Locker does about one name: the guards it has there, and who waits in line for it.
type place struct {
	guards  []*Guard  // attempts on their way, and held guards until their release is confirmed
	waiters []*waiter // in the order of their calls; only the first ones speak to the nodes
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
	l.open[g.owner] = g
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
	l.extender.drop(g)
	l.mu.Lock()
	defer l.mu.Unlock()
	if _, ok := l.open[g.owner]; !ok {
		return
	}
	delete(l.open, g.owner)
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
	return l.openGuardsLocked()
}

// isLeftover reports whether a key with this owner is what is left of an attempt of this Locker: its release is on its
// way. A guard's end is final, so what was over when it was looked at stays so.
func (l *Locker) isLeftover(owner string) bool {
	l.mu.Lock()
	g := l.open[owner]
	l.mu.Unlock()
	return g != nil && g.ended.Load()
}

// openGuardsLocked returns them in an order that a simulated run repeats.
func (l *Locker) openGuardsLocked() []*Guard {
	return slices.SortedFunc(maps.Values(l.open), func(a, b *Guard) int { return strings.Compare(a.owner, b.owner) })
}

// tellWaiters has the first in every line ask the nodes.
func (l *Locker) tellWaiters() {
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, name := range slices.Sorted(maps.Keys(l.places)) {
		l.places[name].tellSpeakers()
	}
}

func (p *place) tellSpeakers() {
	for _, w := range p.waiters[:min(speakers, len(p.waiters))] {
		w.tell()
	}
}
