package redlock

import (
	"container/heap"
	"sync"
	"time"
)

// extender keeps all guards of a Locker alive: one goroutine and one timer for all of them. It wakes each guard when
// a vote is to be renewed, when its validity ends, and after its end until every node has been told.
//
// Renewals that fall due together leave in one batch per node.
type extender struct {
	l    *Locker
	wake chan struct{} // 1-buffered: an earlier instant was scheduled

	mu      sync.Mutex
	due     guardHeap
	wakesAt time.Duration // when run wakes by itself
}

func newExtender(l *Locker) *extender {
	return &extender{l: l, wake: make(chan struct{}, 1)}
}

// schedule sees to it that g is woken at the instant at, or before.
func (e *extender) schedule(g *Guard, at time.Duration) {
	e.mu.Lock()
	defer e.mu.Unlock()
	switch {
	case g.heapAt < 0:
		g.wakeAt = at
		heap.Push(&e.due, g)
	case at < g.wakeAt:
		g.wakeAt = at
		heap.Fix(&e.due, int(g.heapAt))
	default:
		return
	}
	if g.heapAt == 0 && at < e.wakesAt {
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
	if g.heapAt >= 0 {
		heap.Remove(&e.due, int(g.heapAt))
	}
}

// run wakes guards until the Locker's life ends.
func (e *extender) run() {
	timer := time.NewTimer(time.Hour)
	defer timer.Stop()
	for {
		now := e.l.clock.Now()
		guards, next := e.take(now)
		for _, g := range guards {
			g.tick()
		}
		if len(guards) > 0 {
			for _, n := range e.l.nodes {
				n.Kick()
			}
			continue
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
	for len(e.due) > 0 && e.due[0].wakeAt <= now {
		guards = append(guards, heap.Pop(&e.due).(*Guard))
	}
	e.wakesAt = now + e.l.option.NodeTimeout
	if len(e.due) > 0 {
		e.wakesAt = min(e.wakesAt, e.due[0].wakeAt)
	}
	return guards, e.wakesAt
}

// guardHeap orders guards by when they are to be woken.
type guardHeap []*Guard

func (h guardHeap) Len() int           { return len(h) }
func (h guardHeap) Less(i, j int) bool { return h[i].wakeAt < h[j].wakeAt }

func (h guardHeap) Swap(i, j int) {
	h[i], h[j] = h[j], h[i]
	h[i].heapAt, h[j].heapAt = int32(i), int32(j)
}

func (h *guardHeap) Push(x any) {
	g := x.(*Guard)
	g.heapAt = int32(len(*h))
	*h = append(*h, g)
}

func (h *guardHeap) Pop() any {
	last := len(*h) - 1
	g := (*h)[last]
	(*h)[last] = nil
	*h = (*h)[:last]
	g.heapAt = -1
	return g
}
