package redlock

import (
	"cmp"
	"math"
	"slices"
	"sort"
	"sync"
	"time"
)

// extender keeps all guards of a Locker alive: one goroutine and one timer for all of them. It wakes each guard when
// a vote is to be renewed, when its validity ends, and after its end until every node has been told.
//
// Renewals that fall due together leave in one batch per node.
//
// A hundred thousand guards lie far apart in memory, and each look at one that nobody has looked at for a while costs as much
// as all else that is done to it here. So instants are kept beside their guards: those that are due within a while in order,
// the others in none, and those are gone through once in that while.
type extender struct {
	l    *Locker
	wake chan struct{} // 1-buffered: an earlier instant was scheduled

	mu      sync.Mutex
	soon    []wakeUp      // the earliest last; also some that are not true any more
	before  time.Duration // what is due before that is in soon
	later   []wakeUp
	first   time.Duration // no instant in later is before that
	wakesAt time.Duration // when run wakes by itself
	due     []*Guard      // run's own
}

// wakeUp is when a guard is to be woken.
type wakeUp struct {
	at    time.Duration
	guard *Guard
}

const (
	// soonPart is how far ahead instants are put in order, as a part of ExtendInterval: not so far that most are.
	soonPart = 16
	// together is how many guards are woken before their steps leave: a large batch to each node. All that are due after a long
	// pause would leave memory that has just been read.
	together = 64

	// crowd is how many guards make so many renewals that they are gathered for as long as gatherFor.
	crowd     = 1000
	gatherFor = 4 * time.Millisecond

	unscheduled = -1 // a guard's place in later
	isSoon      = -2
)

func newExtender(l *Locker) *extender {
	return &extender{l: l, wake: make(chan struct{}, 1), first: math.MaxInt64}
}

// schedule sees to it that g is woken at the instant at, or before.
func (e *extender) schedule(g *Guard, at time.Duration) {
	e.mu.Lock()
	defer e.mu.Unlock()
	if g.inLater != unscheduled && g.wakeAt <= at {
		return
	}
	g.wakeAt = at
	switch {
	case at < e.before:
		e.leaveLater(g)
		i := sort.Search(len(e.soon), func(i int) bool { return e.soon[i].at <= at })
		e.soon = slices.Insert(e.soon, i, wakeUp{at, g})
		g.inLater = isSoon
	case g.inLater >= 0:
		e.later[g.inLater].at = at
	default:
		g.inLater = int32(len(e.later))
		e.later = append(e.later, wakeUp{at, g})
	}
	if g.inLater >= 0 {
		e.first = min(e.first, at)
	}
	if at < e.wakesAt {
		e.wakesAt = at
		select {
		case e.wake <- struct{}{}:
		default:
		}
	}
}

// drop forgets a guard of which nothing is due any more. Without it every lock of the last interval would stay in
// memory.
func (e *extender) drop(g *Guard) {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.leaveLater(g)
	g.inLater = unscheduled
}

// leaveLater takes a guard out of those that are due later, if it is one. The caller has the mutex.
func (e *extender) leaveLater(g *Guard) {
	if g.inLater < 0 {
		return
	}
	last := len(e.later) - 1
	e.later[g.inLater] = e.later[last]
	e.later[g.inLater].guard.inLater = g.inLater
	e.later[last] = wakeUp{}
	e.later = e.later[:last]
	g.inLater = unscheduled
}

// run wakes guards until the Locker's life ends.
func (e *extender) run() {
	timer := time.NewTimer(time.Hour)
	defer timer.Stop()
	for {
		now := e.l.clock.Now()
		guards, next := e.take(now)
		for some := range slices.Chunk(guards, together) {
			for _, g := range some {
				g.tick()
			}
			for _, n := range e.l.nodes {
				n.Kick()
			}
		}
		if len(guards) > 0 {
			if !e.crowded() {
				continue
			}
			next = now + gatherFor
		}
		timer.Reset(e.l.clock.Wait(next - now))
		select {
		case <-timer.C:
		case <-e.wake:
		case <-e.l.life.Done():
			return
		}
	}
}

// take returns the guards that are due, or when to look again: when the next one is due, but soon. A timer stands still
// while the machine is suspended, and nothing may be late for long after that.
func (e *extender) take(now time.Duration) (guards []*Guard, next time.Duration) {
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.first <= now {
		e.sort(now)
	}
	clear(e.due)
	e.due = e.due[:0]
	e.wakesAt = min(now+e.l.option.NodeTimeout, e.first)
	for last := len(e.soon) - 1; last >= 0; last-- {
		w := e.soon[last]
		if w.at > now {
			e.wakesAt = min(e.wakesAt, w.at)
			break
		}
		if w.guard.inLater == isSoon && w.guard.wakeAt == w.at {
			w.guard.inLater = unscheduled
			e.due = append(e.due, w.guard)
		}
		e.soon[last] = wakeUp{}
		e.soon = e.soon[:last]
	}
	return e.due, e.wakesAt
}

// crowded reports whether so many guards are scheduled that some are always due: these are gathered.
func (e *extender) crowded() bool {
	e.mu.Lock()
	defer e.mu.Unlock()
	return len(e.later)+len(e.soon) >= crowd
}

// sort puts in order what is due within a while. The caller has the mutex.
func (e *extender) sort(now time.Duration) {
	e.before, e.first = now+e.l.option.ExtendInterval/soonPart, math.MaxInt64
	for i := 0; i < len(e.later); {
		w := e.later[i]
		if w.at >= e.before {
			e.first = min(e.first, w.at)
			i++
			continue
		}
		e.leaveLater(w.guard)
		w.guard.inLater = isSoon
		e.soon = append(e.soon, w)
	}
	slices.SortFunc(e.soon, func(a, b wakeUp) int { return cmp.Compare(b.at, a.at) })
}
