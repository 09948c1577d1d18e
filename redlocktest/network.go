package redlocktest

import (
	"math/rand/v2"
	"time"
)

// network delivers what is under way, in the order of arrival. Messages that arrive at one instant are delivered in the order of their connections, not in the order in which goroutines
// happened to send them: that is what makes a run repeatable.
type network struct {
	cluster               *Cluster
	epoch                 time.Time
	events                []*event // heap
	timer                 *time.Timer
	armed                 time.Duration // when the timer fires, since the epoch; -1: it does not
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

func (n *network) start(c *Cluster) {
	n.cluster = c
	n.epoch = time.Now()
	n.armed = -1
}

func (n *network) stop() {
	n.events = nil
	if n.timer != nil {
		n.timer.Stop()
	}
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
	n.arm()
}

// arm sets the timer to the first event.
func (n *network) arm() {
	if len(n.events) == 0 || n.armed == n.events[0].at {
		return
	}
	n.armed = n.events[0].at
	wait := max(n.armed-n.now(), 0)
	if n.timer == nil {
		n.timer = time.AfterFunc(wait, n.deliver)
		return
	}
	n.timer.Reset(wait)
}

// deliver runs on the timer's goroutine.
func (n *network) deliver() {
	n.cluster.mu.Lock()
	defer n.cluster.mu.Unlock()
	n.armed = -1
	for !n.cluster.closed && len(n.events) > 0 && n.events[0].at <= n.now() {
		n.pop().do()
	}
	n.arm()
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
