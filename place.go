package redlock

import (
	"maps"
	"slices"
	"strings"

	"github.com/redlock-go/redlock/internal/node"
)

// subject is what a call is about: the lock, the semaphore, or the reader-writer lock of a name.
type subject struct {
	name string
	kind kind
}

// kind is what has a name.
type kind uint8

const (
	aLock kind = iota
	aSemaphore
	aGate // of a semaphore: a lock that is held while several of its slots are got together
	anRW
)

// subject is what the guard is about, if it is of one name.
func (g *Guard) subject() subject { return subjectOf(g.life.name, int(g.life.slots), int(g.life.slot)) }

// subjects are all that the guard is about: of several names the lock of each.
func (g *Guard) subjects(yield func(subject) bool) {
	if g.lock.Names == nil {
		yield(g.subject())
		return
	}
	for _, name := range g.lock.Names {
		if !yield(subject{name: name}) {
			return
		}
	}
}

// subjectOf returns what a slot of so many is about.
func subjectOf(name string, slots, slot int) subject {
	switch {
	case slot == node.Gate:
		return subject{name, aGate}
	case slot == node.Writer || slot == node.Reader:
		return subject{name, anRW}
	case slots != 0 || slot != 0:
		return subject{name, aSemaphore}
	}
	return subject{name, aLock}
}

// place is what one Locker does about one subject: the guards it has there, and who waits in line for it. A guard, or a waiter,
// of several names is in the place of each.
type place struct {
	guards []*Guard  // attempts on their way, and held guards until their release is confirmed
	line   *line     // nil where nobody waits
	tries  int32     // calls that do not wait, from their first attempt to their last: 0 or 1, or of a semaphore or readers more
	slots  int32     // of a semaphore; 0 for a lock
	one    [1]*Guard // room for the usual one
}

// line is who waits in a place, and what they know. Most locks are held with nobody behind them.
type line struct {
	waiters []*waiter // in the order of their calls; only the first ones speak to the nodes
	patience
	one [1]*waiter // room for the usual one
}

// waiters are those in the place's line.
func (p *place) waiters() []*waiter {
	if p.line == nil {
		return nil
	}
	return p.line.waiters
}

// enter puts an attempt in its place, where pushes find it. It must be there before anything is sent. Of a semaphore these are the
// slots that it may be about, the best first.
func (l *Locker) enter(g *Guard, choices ...slotChoice) error {
	g.mu.Lock() // its waiter may be told already that the lock is free
	defer g.mu.Unlock()
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.enterLocked(g, choices)
}

func (l *Locker) enterLocked(g *Guard, choices []slotChoice) error {
	if l.isClosed() {
		return ErrLockerClosed
	}
	for of := range g.subjects {
		p := l.placeOf(of)
		if g.life.slots != 0 {
			p.slots = int32(g.life.slots)
			g.life.slot = int16(p.chooseSlot(choices))
			g.lock.Slot, g.lock.Bucket = g.life.slot, node.FenceBucket(node.SlotFence(g.life.name, int(g.life.slot)))
		}
		p.guards = append(p.guards, g)
	}
	l.opened(g)
	return nil
}

// opened notes that nodes may know of a guard from now on.
func (l *Locker) opened(g *Guard) {
	g.open = true
	l.open++
}

// placeOf returns the place of a subject, making it where there is none.
func (l *Locker) placeOf(of subject) *place {
	p := l.places[of]
	if p == nil {
		p = &place{}
		p.guards = p.one[:0]
		if g := l.aloneAt(of); g != nil {
			p.guards = append(p.guards, g)
			delete(l.alone, of.name)
			if g.trying {
				p.tries, g.trying = 1, false
			}
		}
		l.places[of] = p
	}
	return p
}

// aloneAt returns the guard of a subject about which nothing else goes on; nil if that is not so. Most locks are tried for and held like
// that, and need no place.
func (l *Locker) aloneAt(of subject) *Guard {
	if of.kind != aLock {
		return nil
	}
	return l.alone[of.name]
}

// guardsAt returns the guards of a subject, which are the Locker's.
func (l *Locker) guardsAt(of subject) []*Guard {
	if g := l.aloneAt(of); g != nil {
		return []*Guard{g}
	}
	if p := l.places[of]; p != nil {
		return p.guards
	}
	return nil
}

// inPlaces are the guards of all subjects, in no order, each with the name of its subject: one of several names comes with each.
func (l *Locker) inPlaces(yield func(string, *Guard) bool) {
	for name, g := range l.alone {
		if !yield(name, g) {
			return
		}
	}
	for of, p := range l.places {
		for _, g := range p.guards {
			if !yield(of.name, g) {
				return
			}
		}
	}
}

// chooseSlot returns the best slot that this Locker does not hold or ask for already.
func (p *place) chooseSlot(choices []slotChoice) int {
	for _, c := range choices {
		if !slices.ContainsFunc(p.guards, func(g *Guard) bool { return int(g.life.slot) == c.slot }) {
			return c.slot
		}
	}
	return choices[0].slot
}

// full reports whether a call that does not wait is refused without asking anybody: of readers by those who write alone.
func (p *place) full(g *Guard) bool {
	if g.life.slot == node.Reader {
		return slices.ContainsFunc(p.waiters(), func(w *waiter) bool { return !w.reads }) ||
			slices.ContainsFunc(p.guards, func(o *Guard) bool { return o.life.slot == node.Writer })
	}
	return len(p.waiters()) > 0 || len(p.guards) >= int(p.slots)
}

// doing says in words what goes on in a place. It reads of each guard what needs no mutex: a guard locks its own first.
func (p *place) doing() string {
	what := "waits for it"
	for _, g := range p.guards {
		switch {
		case g.deadline.Load() != 0:
			return "holds it"
		case g.ended.Load():
			what = "is releasing it"
		case len(p.waiters()) == 0:
			what = "is asking for it"
		}
	}
	return what
}

// leave takes a guard out of its place, if it is there.
func (l *Locker) leave(g *Guard) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for of := range g.subjects {
		p := l.places[of]
		if g.trying { // the call has not ended, and may ask again: its place is kept
			p = l.placeOf(of)
		}
		if p != nil && slices.Contains(p.guards, g) {
			p.guards = slices.DeleteFunc(p.guards, func(o *Guard) bool { return o == g })
			l.tidy(of, p)
		} else if l.aloneAt(of) == g {
			delete(l.alone, of.name)
		} else {
			continue
		}
		if g.open {
			l.left[g.life.owner] = g
		}
	}
}

// tidy drops a place in which nothing is going on, or nothing but that a lock is held, and a line in which nobody waits and of which
// nothing is known.
func (l *Locker) tidy(of subject, p *place) {
	if p.line != nil && len(p.line.waiters) == 0 && p.line.patience == (patience{}) {
		p.line = nil
	}
	switch {
	case len(p.waiters()) > 0 || p.tries > 0 || len(p.guards) > 1:
	case len(p.guards) == 0:
		delete(l.places, of)
	case of.kind == aLock && p.line == nil:
		delete(l.places, of)
		l.alone[of.name] = p.guards[0]
	}
}

// reopen has Close wait for what a guard that may have been forgotten is still to say to the nodes: that its waiter has
// left the line. A program that gives up and ends would otherwise hold up those behind it as if it had died.
func (l *Locker) reopen(g *Guard) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if g.open {
		return
	}
	if l.drained != nil && l.open == 0 {
		l.drained = make(chan struct{})
	}
	g.open = true
	l.open++
	l.left[g.life.owner] = g
}

// forget drops a guard of which no node knows any more.
func (l *Locker) forget(g *Guard) {
	l.extender.drop(g)
	l.mu.Lock()
	defer l.mu.Unlock()
	if !g.open {
		return
	}
	g.open = false
	l.open--
	delete(l.left, g.life.owner)
	if l.drained != nil && l.open == 0 {
		close(l.drained)
	}
}

// guardsOf returns the guards that this Locker has for a subject.
func (l *Locker) guardsOf(of subject) []*Guard {
	l.mu.Lock()
	defer l.mu.Unlock()
	return slices.Clone(l.guardsAt(of))
}

// openGuards returns every guard that nodes may still know of.
func (l *Locker) openGuards() []*Guard {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.openGuardsLocked()
}

// isLeftover reports whether the key of a subject, with this owner, is what is left of an attempt of this Locker: its release is on its
// way. A guard's end is final, so what was over when it was looked at stays so.
func (l *Locker) isLeftover(of subject, owner string) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, g := range l.guardsAt(of) {
		if g.life.owner == owner {
			return g.open && g.ended.Load()
		}
	}
	g := l.left[owner]
	return g != nil && g.ended.Load()
}

// openGuardsLocked returns them in an order that a simulated run repeats.
func (l *Locker) openGuardsLocked() []*Guard {
	guards := make([]*Guard, 0, l.open)
	for _, g := range l.inPlaces {
		if g.open {
			guards = append(guards, g)
		}
	}
	guards = slices.AppendSeq(guards, maps.Values(l.left))
	slices.SortFunc(guards, func(a, b *Guard) int { return strings.Compare(a.life.owner, b.life.owner) })
	return slices.Compact(guards) // of several names it is in several places
}

// tellWaiters has the first in every line ask the nodes.
func (l *Locker) tellWaiters() {
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, of := range slices.SortedFunc(maps.Keys(l.places), func(a, b subject) int { return strings.Compare(a.name, b.name) }) {
		l.places[of].tellSpeakers()
	}
}

func (p *place) tellSpeakers() {
	waiters := p.waiters()
	for _, w := range waiters[:min(p.speakers(), len(waiters))] {
		w.tell()
	}
}
