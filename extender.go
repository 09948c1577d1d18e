package redlock

import (
	"cmp"
	"maps"
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
// as all else that is done to it here. So instants are kept beside their guards, by the stretch of time that they fall into: those of
// the stretch that has begun in order, the others in none. No guard is looked at when its stretch begins.
type extender struct {
	l    *Locker
	wake chan struct{} // 1-buffered: an earlier instant was scheduled

	mu      sync.Mutex
	soon    []wakeUp      // the earliest last; also some that are not true any more
	before  time.Duration // what is due before that is in soon, all else in later
	later   map[int64]*stretch
	spare   *stretch      // an empty one: a lone caller's lock is alone in its own, and would make one each time
	first   time.Duration // no instant in later is before that
	wakesAt time.Duration // when run wakes by itself
	due     []*Guard      // run's own
	touched int           // what Touch has returned, or the compiler might leave the reads out
}

// wakeUp is when a guard is to be woken.
type wakeUp struct {
	at    time.Duration
	guard *Guard
}

// stretch is what is due in one stretch of time.
type stretch struct {
	first   time.Duration // none is due before that
	wakeUps []wakeUp
}

const (
	// stretches is into how many of them an ExtendInterval falls.
	stretches = 16
	// together is how many guards are woken before their steps leave: as many as fill two scripts. All that are due after a long
	// pause would leave memory that has just been read.
	together = 128

	// crowd is how many guards make so many renewals that they are gathered for as long as gatherFor.
	crowd     = 1000
	gatherFor = 8 * time.Millisecond

	unscheduled = -1 // a guard's place in its stretch
)

func newExtender(l *Locker) *extender {
	return &extender{l: l, wake: make(chan struct{}, 1), later: make(map[int64]*stretch), first: math.MaxInt64}
}

// stretchOf is which stretch of time an instant falls into.
func (e *extender) stretchOf(at time.Duration) int64 { return int64(at / e.length()) }

func (e *extender) length() time.Duration { return e.l.option.ExtendInterval / stretches }

// schedule sees to it that g is woken at the instant at, or before. A tick that comes by then sees to all that is due after it: most
// answers need no more, and take no mutex here. The caller has the guard's.
func (e *extender) schedule(g *Guard, at time.Duration) {
	if g.awaited && g.wakeAt <= at {
		return
	}
	g.awaited = true
	e.mu.Lock()
	defer e.mu.Unlock()
	if g.inLater != unscheduled && g.wakeAt <= at {
		return
	}
	e.leaveLater(g)
	g.wakeAt = at
	if at < e.before {
		i := sort.Search(len(e.soon), func(i int) bool { return e.soon[i].at <= at })
		e.soon = slices.Insert(e.soon, i, wakeUp{at, g})
		g.inLater = 0 // any but unscheduled
	} else {
		i := e.stretchOf(at)
		s := e.later[i]
		if s == nil {
			if s = e.spare; s == nil {
				s = &stretch{}
			}
			e.spare, s.first = nil, at
			e.later[i] = s
		}
		g.inLater = int32(len(s.wakeUps))
		s.wakeUps = append(s.wakeUps, wakeUp{at, g})
		s.first = min(s.first, at)
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
// memory. The caller has the guard's mutex.
func (e *extender) drop(g *Guard) {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.leaveLater(g)
	g.inLater, g.awaited = unscheduled, false
}

// leaveLater takes a guard out of those that are due later, if it is one. The caller has the mutex.
func (e *extender) leaveLater(g *Guard) {
	if g.inLater == unscheduled || g.wakeAt < e.before {
		return
	}
	s := e.later[e.stretchOf(g.wakeAt)]
	last := len(s.wakeUps) - 1
	s.wakeUps[g.inLater] = s.wakeUps[last]
	s.wakeUps[g.inLater].guard.inLater = g.inLater
	s.wakeUps[last] = wakeUp{}
	s.wakeUps = s.wakeUps[:last]
	if last == 0 {
		delete(e.later, e.stretchOf(g.wakeAt))
		e.spare = s
	}
}

// run wakes guards until the Locker's life ends.
func (e *extender) run() {
	timer := time.NewTimer(time.Hour)
	defer timer.Stop()
	for {
		now := e.l.clock.Now()
		guards, next := e.take(now)
		for some := range slices.Chunk(guards, together) {
			for _, g := range some { // they lie far apart: to wait for the memory of all at once costs less than one by one
				e.touched += (*receiver)(g).Touch()
			}
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
		if w.guard.inLater != unscheduled && w.guard.wakeAt == w.at {
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
	n := len(e.soon)
	for _, s := range e.later {
		n += len(s.wakeUps)
	}
	return n >= crowd
}

// sort puts in order what is due in the stretch that has begun, or was in one before. The caller has the mutex.
func (e *extender) sort(now time.Duration) {
	begun := e.stretchOf(now)
	e.before, e.first = time.Duration(begun+1)*e.length(), math.MaxInt64
	for _, i := range slices.Sorted(maps.Keys(e.later)) { // simulated runs repeat
		s := e.later[i]
		if i > begun {
			e.first = min(e.first, s.first)
			continue
		}
		e.soon = append(e.soon, s.wakeUps...)
		delete(e.later, i)
	}
	slices.SortFunc(e.soon, func(a, b wakeUp) int { return cmp.Compare(b.at, a.at) })
}
