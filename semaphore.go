package redlock

import (
	"cmp"
	"context"
	"errors"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/redlock-go/redlock/internal/node"
)

// Semaphore is k slots of one name: at most k guards are alive at once. [Locker.Semaphore] returns one. It is safe for
// concurrent use, and costs nothing while nobody asks it for a slot.
//
// A guard of it is like any other, and has a slot: a number from 1 to k, which no other guard has at the same time. Its
// fencing token is larger than that of every earlier holder of the slot: a resource that checks tokens keeps the largest of each
// slot. Tokens of different slots say nothing about each other.
//
// The name is the semaphore's own: a lock of the same name has nothing to do with it.
type Semaphore struct {
	l    *Locker
	name string
	k    int
	last atomic.Int32 // the slot that was granted last
}

// Semaphore returns the semaphore of a name with k slots, 1 to 256. It asks nothing of the nodes; what is wrong with name or k
// is the error of the calls, which matches ErrInvalidOption.
//
// All programs must give the same k. While anybody holds a slot, and a MaxKeyValidity longer, the nodes know it, and answer
// whoever comes with another by an error that matches [ErrDisagreement] and names both. [Semaphore.Resize] changes it.
func (l *Locker) Semaphore(name string, k int) *Semaphore {
	return &Semaphore{l: l, name: name, k: k}
}

// Acquire waits for a slot and returns it as a guard. ctx bounds the wait alone. Who waits is served in the order in which the
// waits began, among programs too. Errors, and what is left behind, are those of [Locker.Acquire]; ErrNotLocked is not among them.
func (s *Semaphore) Acquire(ctx context.Context, opts ...HoldOption) (*Guard, error) {
	return s.acquire(ctx, s.name, holdOf(hold{}, opts))
}

func (s *Semaphore) acquire(ctx context.Context, name string, h hold) (*Guard, error) {
	return s.note(s.l.acquire(ctx, name, s.hold(h)))
}

// AcquireN waits for n slots, 1 to k, and returns their guards by ascending slot: all of them, or none. Each is a guard by itself,
// and is to be watched and released as such. Calls for several slots get them one after the other, so that none of them waits for
// what another has got already; among themselves, and for each slot with those that want one, they are served in order. What has
// been got is held until the rest is there. Errors are those of Acquire; nothing is held after one.
func (s *Semaphore) AcquireN(ctx context.Context, n int, opts ...HoldOption) ([]*Guard, error) {
	if err := s.check(); err != nil {
		return nil, err
	}
	if n < 1 || n > s.k {
		return nil, invalid("semaphore %q: %d slots are asked for, it must be from 1 to %d", s.name, n, s.k)
	}
	for {
		gate, err := s.l.acquire(ctx, s.name, hold{slot: node.Gate})
		if err != nil {
			return nil, err
		}
		guards, err := s.collect(gate, n, ctx, opts)
		lost := gate.Err()
		gate.Release(ctx)
		if err == nil || ctx.Err() != nil || s.l.isClosed() || lost == nil && !errors.Is(err, ErrLost) {
			return guards, err
		}
	}
}

// collect gets several slots, while nobody else does.
func (s *Semaphore) collect(gate *Guard, n int, ctx context.Context, opts []HoldOption) ([]*Guard, error) {
	joined, cancel := gate.Join(ctx)
	defer cancel()
	guards := make([]*Guard, n)
	var wg sync.WaitGroup
	var once sync.Once
	var first error
	for i := range guards {
		wg.Go(func() {
			g, err := s.Acquire(joined, opts...)
			if guards[i] = g; err != nil {
				once.Do(func() { first = err; cancel() })
			}
		})
	}
	wg.Wait()
	for _, g := range guards {
		if first == nil {
			first = g.Err() // lost while the others were on their way
		}
	}
	if first == nil {
		slices.SortFunc(guards, func(a, b *Guard) int { return cmp.Compare(a.Slot(), b.Slot()) })
		return guards, nil
	}
	for _, g := range guards {
		if g != nil {
			wg.Go(func() { g.Release(ctx) })
		}
	}
	wg.Wait()
	return nil, first
}

// TryAcquire takes a slot if one is free and nobody waits for it. Of tries that meet as many get a slot as are free, while nodes
// are healthy. Errors, time, and what is left behind are those of [Locker.TryAcquire]; ErrNotLocked says that all slots are taken.
func (s *Semaphore) TryAcquire(ctx context.Context, opts ...HoldOption) (*Guard, error) {
	return s.note(s.l.tryAcquire(ctx, s.name, s.hold(holdOf(hold{}, opts))))
}

// Do waits for a slot, runs fn, and gives the slot back when fn has returned or panicked. All else is as with [Locker.Do].
func (s *Semaphore) Do(ctx context.Context, fn func(context.Context) error, opts ...HoldOption) error {
	return do(ctx, s.name, fn, s.acquire, opts)
}

// ForceAcquire takes one slot, from 1 to k, from whoever holds it, as [Locker.ForceAcquire] takes a lock: for a holder that
// hangs, which [Semaphore.Inspect] has shown. It does not wait in line. [Grace] is refused.
func (s *Semaphore) ForceAcquire(ctx context.Context, slot int, opts ...HoldOption) (*Guard, error) {
	h := s.hold(holdOf(hold{takeover: takeoverSafely}, opts))
	h.choices = []slotChoice{{slot: slot}}
	if slot < 1 || slot > s.k {
		h.refuse("semaphore %q has no slot %d: its slots are 1 to %d", s.name, slot, s.k)
	}
	return s.l.forceAcquire(ctx, s.name, h)
}

// Inspect asks every node who holds each slot and who waits. The Line of slot 1 comes first; Waiters and Position are the same
// in all, as there is one line for all slots. Errors are those of [Locker.Inspect].
func (s *Semaphore) Inspect(ctx context.Context) ([]Line, error) {
	if err := cmp.Or(s.check(), s.l.ready(ctx, s.name)); err != nil {
		return nil, err
	}
	places := make([]node.Place, s.k)
	for i := range places {
		places[i] = node.SlotPlace(s.l.option.KeyPrefix, s.name, i+1)
	}
	return s.l.inspect(ctx, subject{s.name, aSemaphore}, places)
}

// Resize gives the semaphore another number of slots and returns it as that. Slots may be held meanwhile, and go on: whoever
// has one above k keeps it until it is given back or lost, and Resize waits for that, so that at most k guards are alive when it
// has returned nil. Programs that still give the old number are refused as soon as Resize has begun, those that give the new one before.
//
// The error matches ErrDisagreement if the nodes know of another number than that of s; ErrNoQuorum if too few nodes have
// taken the new one; ctx.Err() and context.Cause(ctx) if ctx ended first. After an error some nodes may have the new number: call
// it again. A node that was not reached keeps the old one for as long as somebody asks it for a slot of the old number.
func (s *Semaphore) Resize(ctx context.Context, k int) (*Semaphore, error) {
	to := &Semaphore{l: s.l, name: s.name, k: k}
	if err := cmp.Or(s.check(), to.check(), s.l.ready(ctx, s.name)); err != nil {
		return nil, err
	}
	if err := to.replace(ctx, s.k); err != nil || k >= s.k {
		return to, err
	}
	// A look would not do: a guard may have lost a vote there and won one back elsewhere, and an attempt from before may be under
	// way. Whoever is granted a slot is its only guard, and the quorum that granted it knows of k from then on.
	for slot := k + 1; slot <= s.k; slot++ {
		if err := to.retire(ctx, slot, s.k); err != nil {
			return nil, err
		}
	}
	return to, nil
}

// replace has a quorum of nodes note that the semaphore has as many slots as s, instead of so many.
func (s *Semaphore) replace(ctx context.Context, before int) error {
	return s.l.askAll(ctx, s.name, func(ctx context.Context, n *node.Node) (func(), error) {
		size, err := n.Resize(ctx, s.name, before, s.k)
		if err == nil && size != int64(s.k) {
			err = otherSize(size, before)
		}
		return func() {}, err
	})
}

// retire waits until nobody holds a slot that the semaphore does not have any more.
func (s *Semaphore) retire(ctx context.Context, slot, before int) error {
	h := s.hold(hold{})
	h.choices = []slotChoice{{slot: slot}}
	if err := s.l.prepare(ctx, s.name, &h); err != nil {
		return err
	}
	for {
		g := s.l.newGuard(ctx, s.name, h)
		g.compete(0) // with nobody: it asks past the line, for a slot that nobody else is given
		if err := s.l.enter(g, h.choices...); err != nil {
			g.cancel(err)
			return err
		}
		err := s.l.attempt(ctx, g)
		if err == nil {
			return g.Release(ctx)
		}
		if err := s.l.rest(ctx, s.name, h.rules.line.every, err); err != nil {
			return err
		}
		if err := s.replace(ctx, before); err != nil {
			return err
		}
	}
}

// check refuses a number of slots that cannot be.
func (s *Semaphore) check() error {
	if s.k < 1 || s.k > node.MaxSlots {
		return invalid("semaphore %q: k is %d, it must be from 1 to %d", s.name, s.k, node.MaxSlots)
	}
	return nil
}

// hold makes a hold one of a slot.
func (s *Semaphore) hold(h hold) hold {
	if err := s.check(); err != nil {
		h.fault = cmp.Or(h.fault, err)
		return h
	}
	if s.l != nil {
		h.seed = uint64(s.l.jitter(1 << 62))
	}
	h.slots, h.choices = s.k, firstChoices(s.k, int(s.last.Load()), h.seed)
	return h
}

// note notes which slot was granted: the next call begins there.
func (s *Semaphore) note(g *Guard, err error) (*Guard, error) {
	if err == nil {
		s.last.Store(int32(g.Slot()))
	}
	return g, err
}

// moveOn has a call that came to nothing at one slot go on to the best by what the nodes have said, and returns in what time.
func (l *Locker) moveOn(g *Guard, h *hold) time.Duration {
	g.mu.Lock()
	now := l.clock.Now()
	h.choices = g.life.slotChoices(now, h.seed)
	g.mu.Unlock()
	l.mu.Lock()
	slot := l.places[g.subject()].chooseSlot(h.choices)
	l.mu.Unlock()
	i := slices.IndexFunc(h.choices, func(c slotChoice) bool { return c.slot == slot })
	return h.choices[i].at - now
}

// Slot returns the slot of a semaphore that the guard holds, from 1 to k; 0 for the guard of anything else.
func (g *Guard) Slot() int { return max(0, int(g.life.slot)) }
