package redlocktest

import (
	"math"
	"math/rand/v2"
	"time"
)

// network delivers what is under way, in the order of arrival. Messages that arrive at one instant are delivered in the
// order of their connections, not in the order in which goroutines happened to send them: that is what makes a run
// repeatable.
type network struct {
	cluster               *Cluster
	epoch                 time.Time
	events                []*event      // heap
	due                   time.Duration // when run looks again by itself; never: it does not
	wake                  chan struct{} // makes it look earlier
	stopped               chan struct{}
	seq                   uint64
	jitterLow, jitterHigh time.Duration
}

// event is one thing that happens at a time.
type event struct {
	at   time.Duration // since the epoch
	rank rank
	seq  uint64
	do   func()
}

// rank orders what happens at one instant.
type rank struct {
	client, node, conn int // -1 where an event belongs to none
	reply              bool
}

func (r rank) before(o rank) bool {
	switch {
	case r.node != o.node:
		return r.node < o.node
	case r.client != o.client:
		return r.client < o.client
	case r.conn != o.conn:
		return r.conn < o.conn
	}
	return !r.reply && o.reply
}

// never is later than everything.
const never = time.Duration(math.MaxInt64)

func (n *network) start(c *Cluster) {
	n.cluster = c
	n.epoch = time.Now()
	n.due = never
	n.wake = make(chan struct{}, 1)
	n.stopped = make(chan struct{})
	go n.run()
}

func (n *network) stop() {
	n.events = nil
	close(n.stopped)
}

// run is the goroutine that delivers; it ends with stop. A goroutine for each event, as of time.AfterFunc, would grow
// its stack for Lua each time anew.
func (n *network) run() {
	timer := time.NewTimer(never)
	timer.Stop()
	defer timer.Stop()
	for {
		select {
		case <-n.stopped:
			return
		case <-n.wake:
		case <-timer.C:
		}
		if wait := n.deliver(); wait != never {
			timer.Reset(wait) // a timer that stood on never would let a bubble's clock leap there, where it should report a deadlock
		}
	}
}

// deliver does what is due and returns how long to wait for the next.
func (n *network) deliver() time.Duration {
	n.cluster.mu.Lock()
	defer n.cluster.mu.Unlock()
	for len(n.events) > 0 && n.events[0].at <= n.now() {
		n.due = n.events[0].at // so that what is done now wakes nobody
		n.pop().do()
	}
	if len(n.events) == 0 {
		n.due = never
		return never
	}
	n.due = n.events[0].at
	return n.due - n.now()
}

func (n *network) jittered(source *rand.Rand) time.Duration {
	if source == nil {
		return 0
	}
	return n.jitterLow + time.Duration(source.Int64N(int64(n.jitterHigh-n.jitterLow)+1))
}

// now is the time since the cluster started, by the local monotonic clock.
func (n *network) now() time.Duration { return time.Since(n.epoch) }

// at has do called, with the mutex held, when the time has come.
func (n *network) at(when time.Duration, r rank, do func()) {
	n.seq++
	n.push(&event{at: when, rank: r, seq: n.seq, do: do})
	if when >= n.due {
		return
	}
	n.due = when
	select {
	case n.wake <- struct{}{}:
	default: // it is on its way
	}
}

func (n *network) less(i, j int) bool {
	a, b := n.events[i], n.events[j]
	switch {
	case a.at != b.at:
		return a.at < b.at
	case a.rank != b.rank:
		return a.rank.before(b.rank)
	}
	return a.seq < b.seq
}

func (n *network) push(e *event) {
	n.events = append(n.events, e)
	for i := len(n.events) - 1; i > 0; {
		up := (i - 1) / 2
		if !n.less(i, up) {
			return
		}
		n.events[i], n.events[up] = n.events[up], n.events[i]
		i = up
	}
}

func (n *network) pop() *event {
	first, last := n.events[0], len(n.events)-1
	n.events[0] = n.events[last]
	n.events[last] = nil
	n.events = n.events[:last]
	for i := 0; ; {
		child := 2*i + 1
		if child >= last {
			return first
		}
		if child+1 < last && n.less(child+1, child) {
			child++
		}
		if !n.less(child, i) {
			return first
		}
		n.events[i], n.events[child] = n.events[child], n.events[i]
		i = child
	}
}
