package redlock_test

import (
	"context"
	"strconv"
	"strings"

	"github.com/redlock-go/redlock"
	"github.com/redlock-go/redlock/internal/node"
)

// In some profiles the names of a run are semaphores. Each slot has a history of its own, by a name of its own, "a/2", and all
// that must be true of a lock must be true of it; that there are as many slots as there should be, and so no more guards than
// that, is looked at when one is granted. Asked for is the semaphore.

// slotsOf is how many slots the semaphore of a name has.
func slotsOf(name string) int { return map[string]int{"a": 1, "b": 2, forcedName: 4}[name] }

// slotName is the name of a guard's history.
func slotName(name string, slot int) string {
	if slot == 0 {
		return name
	}
	return name + "/" + strconv.Itoa(slot)
}

// askedName is the name by which a lock was asked for.
func askedName(name string) string {
	asked, _, _ := strings.Cut(name, "/")
	return asked
}

// lockKeyOf is the key of a lock, or of a slot.
func lockKeyOf(name string) string {
	if asked, slot, ok := strings.Cut(name, "/"); ok {
		n, _ := strconv.Atoi(slot)
		return node.SlotKey(simPrefix, asked, n)
	}
	return node.LockKey(simPrefix, name)
}

// histories are the names of all that a run keeps a history of.
func (s *sim) histories() (names []string) {
	for _, name := range s.names {
		if !s.profile.slots {
			names = append(names, name)
			if s.profile.rw {
				names = append(names, readsFor(name))
			}
			continue
		}
		for slot := range slotsOf(name) + 1 {
			names = append(names, slotName(name, slot))
		}
	}
	return names
}

// callSlot asks for a slot once, and holds it.
func (a *actor) callSlot(locker *redlock.Locker, name string, ctx context.Context, limit func(float64)) bool {
	s, r := a.sim, a.r
	sem := locker.Semaphore(name, slotsOf(name))
	switch p := r.Float64(); {
	case chance(r, s.profile.forces):
		limit(.2)
		ask := s.invoke(a.from, name, "ForceAcquire", false, true)
		g, err := sem.ForceAcquire(ctx, 1+r.IntN(slotsOf(name)))
		return a.got(ask, locker, ctx, g, err)
	case p < .3:
		ask := s.invoke(a.from, name, "TryAcquire", false, false)
		g, err := sem.TryAcquire(ctx)
		return a.got(ask, locker, ctx, g, err)
	default:
		limit(.3)
		ask := s.invoke(a.from, name, "Acquire", true, false)
		g, err := sem.Acquire(ctx)
		return a.got(ask, locker, ctx, g, err)
	}
}

// judgeSlot looks at a slot that was granted: it is one of the semaphore's, and who began to wait long before was not left
// out when an earlier one was granted to somebody else. It is not judged at once, since two may be granted at a time.
func (s *sim) judgeSlot(a *asked, l *life) {
	k := slotsOf(a.name)
	if slot := l.guard.Slot(); slot < 1 || slot > k {
		s.violated(l.host.name, l.name, "slots", "guard %d has slot %d of %d", l.id, slot, k)
	}
	if !s.profile.quiet || !a.waits || a.began < 2*s.longest {
		return
	}
	for slot := range k {
		h := s.locks[slotName(a.name, slot+1)]
		for _, o := range h.lives {
			early := o.waits && o.from != a.from && a.began+s.orderSlack < o.began && o.at+s.orderSlack+10*s.latency < l.at
			if early && !s.sharedHost(a, l) {
				s.violated(l.host.name, l.name, "order", "guard %d waits since %v and is granted at %v, %v after guard %d that waits since %v", l.id, a.began, l.at, l.at-o.at, o.id, o.began)
			}
		}
	}
}

// sharedHost reports whether the call had others of its host beside it: of those only some stand in line on the nodes.
func (s *sim) sharedHost(a *asked, l *life) bool {
	for slot := range slotsOf(a.name) {
		for _, o := range s.locks[slotName(a.name, slot+1)].lives {
			if o != l && o.host == a.host && o.at >= a.began {
				return true
			}
		}
	}
	return false
}

// freshSlot takes every slot of a semaphore at once when all faults are off.
func freshSlots(ctx context.Context, l *redlock.Locker, name string) (guards []*redlock.Guard, err error) {
	sem := l.Semaphore(name, slotsOf(name))
	for range slotsOf(name) {
		g, err := sem.Acquire(ctx)
		if err != nil {
			return guards, err
		}
		guards = append(guards, g)
	}
	return guards, nil
}
