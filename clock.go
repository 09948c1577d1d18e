package redlock

import (
	"sync"
	"sync/atomic"
	"time"
)

// clock is the Locker's own clock: it never goes back, does not follow steps of the wall clock, and counts the
// time the machine was suspended. Go's monotonic clock alone stands still in suspend, so that a guard would
// outlive its keys by as long as the lid was closed.
//
// Wall clock and monotonic clock are slewed alike, so they part only at a step of the wall clock or in suspend.
// Reading the suspend-proof clock costs a system call (226 ns measured), so it is read only when they part.
// Nothing inside the machine sees that a hypervisor stopped it: that is for the fencing token.
type clock struct {
	read   func() time.Time                  // time.Now, but for a simulated host that is stopped
	apart  func(time.Duration) time.Duration // nil, but in a simulation: see wait
	base   time.Time
	asleep atomic.Int64 // time spent in suspend since base
	parted atomic.Int64 // by how much wall and monotonic clock had parted when last looked at

	mu      sync.Mutex
	suspend interface {
		asleep(awake, stepped time.Duration) time.Duration
	}
}

// partedBy is how far wall and monotonic clock must part before it is looked into. It is what a claim may be
// counted too long, and is no more than the smallest default ClockBound.
const partedBy = time.Millisecond

func newClock() *clock {
	return &clock{read: time.Now, base: time.Now(), suspend: newSuspendClock()}
}

// Now returns the time since the Unix epoch as it was when the clock was made, advanced by true elapsed time.
func (c *clock) Now() time.Duration {
	t := c.read()
	awake := t.Sub(c.base)
	parted := time.Duration(t.UnixNano()-c.base.UnixNano()) - awake
	if d := parted - time.Duration(c.parted.Load()); d > partedBy || d < -partedBy {
		c.look(awake, parted)
	}
	return time.Duration(c.base.UnixNano()) + awake + time.Duration(c.asleep.Load())
}

// Wait returns how long to set a timer for what is due in d. A simulation lengthens it by nanoseconds, so that no two
// timers fire at one instant: a synctest bubble draws their order, and from something that no seed governs.
func (c *clock) Wait(d time.Duration) time.Duration {
	if c.apart == nil {
		return d
	}
	return c.apart(d)
}

func (c *clock) look(awake, parted time.Duration) {
	c.mu.Lock()
	defer c.mu.Unlock()
	asleep := c.suspend.asleep(awake, parted-time.Duration(c.parted.Load()))
	if asleep > time.Duration(c.asleep.Load()) {
		c.asleep.Store(int64(asleep))
	}
	c.parted.Store(int64(parted))
}

// date returns the wall-clock time of a local instant, with Go's monotonic reading, so that it compares well
// with time.Now.
func (c *clock) date(at time.Duration) time.Time {
	return c.read().Add(at - c.Now())
}
