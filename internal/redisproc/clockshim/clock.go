// Package clockshim gives a process a wall clock of its own, which steps, drifts and stands still as a test wants, at
// once and without touching the clock of the host or of any other process. Go programs ignore it, since they do not ask
// libc for the time; it is made for servers written in C.
//
// Only the wall clock is controlled: CLOCK_REALTIME, gettimeofday, time. The monotonic clock goes on, so a server's own
// timers, its event loop among them, are not touched, as with a real clock that somebody sets.
//
// It works by LD_PRELOAD, on Linux. The library is compiled from the source embedded here, once per program, with the C
// compiler at hand. libfaketime would spare the compiler, but is inexact at any rate but 1.
package clockshim

import (
	"fmt"
	"math"
	"sync"
	"time"
)

// Clock is the wall clock of the processes that are started with its environment. It starts as the host's. It is safe
// for concurrent use. Its methods panic after Close: a test that thinks it moves a clock and does not proves nothing.
type Clock struct {
	shim *shim

	mu     sync.Mutex
	slot   slot
	closed bool
}

// New makes a clock that keeps its files in dir, which must outlive the processes that use it. Where there is no C
// compiler, the error says what to install.
func New(dir string) (*Clock, error) {
	d, err := newShim(dir)
	if err != nil {
		return nil, err
	}
	c := &Clock{shim: d, slot: hostTime(time.Now().UnixNano())}
	err = d.put(c.slot)
	if err != nil {
		_ = d.close()
		return nil, fmt.Errorf("clockshim: %w", err)
	}
	return c, nil
}

// Step sets the clock forward by d, or back if d is negative.
func (c *Clock) Step(d time.Duration) {
	c.change(func() { c.slot.shown += d.Nanoseconds() })
}

// SetRate makes the clock go that many seconds per second of the host's from now on, to a millionth and without a step:
// 1.08 is 8 % fast, 0 stands still.
func (c *Clock) SetRate(rate float64) {
	c.change(func() { c.slot.ppm = int64(math.Round((rate - 1) * 1e6)) })
}

// Stop is SetRate(0): the clock stays at what it shows. Step still moves it, and SetRate lets it go on from there,
// behind by the time it stood still.
func (c *Clock) Stop() { c.SetRate(0) }

// Reset makes the clock the host's again, by a step to the time of the host.
func (c *Clock) Reset() {
	c.change(func() {
		c.slot = hostTime(c.slot.base)
	})
}

// Now is what a process that asks now is told.
func (c *Clock) Now() time.Time {
	c.mu.Lock()
	defer c.mu.Unlock()
	return time.Unix(0, c.slot.at(time.Now().UnixNano()))
}

// Environment returns env with what a process needs that is to run on this clock. A library that env preloads already
// stays, behind ours.
func (c *Clock) Environment(env []string) []string {
	return append(withPreload(env, c.shim.library), envControl+"="+c.shim.control.Name())
}

// Close lets go of the clock's files. The processes that use it keep the clock as it is.
func (c *Clock) Close() error {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.closed {
		return nil
	}
	c.closed = true
	return c.shim.close()
}

// change starts a new slot where the old one is now, lets f alter it, and puts it in force. So a change of rate is no
// step, and takes nothing back of what has passed.
func (c *Clock) change(f func()) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.closed {
		panic("clockshim: change of a closed clock")
	}
	now := time.Now().UnixNano()
	c.slot.base, c.slot.shown = now, c.slot.at(now)
	f()
	err := c.shim.put(c.slot)
	if err != nil {
		panic(fmt.Sprintf("clockshim: the clock cannot be changed: %v", err))
	}
}

// slot is a clock that showed shown when the host's showed base, both in ns since 1970, and goes ppm parts per million
// faster.
type slot struct{ base, shown, ppm int64 }

func hostTime(now int64) slot { return slot{base: now, shown: now} }

// at is the formula of src/clockshim.c, digit by digit.
func (s slot) at(host int64) int64 {
	passed := host - s.base
	return s.shown + passed + passed/1_000_000*s.ppm + passed%1_000_000*s.ppm/1_000_000
}
