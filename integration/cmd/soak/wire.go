package main

import (
	"strings"
	"time"

	"golang.org/x/sys/unix"
)

// instant is a reading of CLOCK_MONOTONIC, the same in all processes of the host. Zero: it never happened.
type instant int64

func now() instant {
	var ts unix.Timespec
	if err := unix.ClockGettime(unix.CLOCK_MONOTONIC, &ts); err != nil {
		panic("soak: clock_gettime(CLOCK_MONOTONIC): " + err.Error())
	}
	return instant(ts.Nano())
}

func (i instant) add(d time.Duration) instant { return i + instant(d) }
func (i instant) sub(j instant) time.Duration { return time.Duration(i - j) }

// at returns t as an instant, to some microseconds.
func at(t time.Time) instant { return now().add(time.Until(t)) }

// kind is what a worker tells.
type kind string

const (
	asked  kind = "asked"  // a lock was asked for
	failed kind = "failed" // and not got
	got    kind = "got"    // or got
	write  kind = "write"  // a write to the register
	over   kind = "over"   // the guard has ended and was released
)

// way is how a lock was asked for.
type way string

const (
	acquire  way = "Acquire"
	try      way = "TryAcquire"
	force    way = "ForceAcquire"
	forceNow way = "ForceAcquireNow"

	read       way = "Read"
	writing    way = "Write"
	tryToRead  way = "TryRead"
	tryToWrite way = "TryWrite"
)

// reads reports whether it is a way to read.
func (w way) reads() bool { return w == read || w == tryToRead }

// event is one message of a worker. Each is answered.
type event struct {
	Kind  kind
	Guard string // process.life/worker/number; the same from asked to over
	Lock  string `json:",omitempty"`
	Way   way    `json:",omitempty"`

	At    instant       `json:",omitempty"` // asked: the call
	Bound time.Duration `json:",omitempty"` // asked: how long the call may take

	Returned instant `json:",omitempty"` // got, failed: when the call returned
	Token    uint64  `json:",omitempty"`
	Slot     int     `json:",omitempty"` // got: of the semaphore; 0 for a lock
	First    instant `json:",omitempty"` // got: Err was nil before this

	Looked instant `json:",omitempty"` // write: Err was nil just before, after this; 0: it was not

	Life  *life  `json:",omitempty"` // over
	Error string `json:",omitempty"` // failed: what kind of error
	Text  string `json:",omitempty"` // and its text
}

// process returns the worker process that a guard belongs to, as process.life.
func processOf(guard string) string {
	process, _, _ := strings.Cut(guard, "/")
	return process
}

// reply is the parent's answer.
type reply struct {
	Accepted bool // of a write
	Stop     bool // finish
}

// life is what a worker saw of one guard.
type life struct {
	First, Last instant      // Err was nil before First and after Last
	Checks      [][2]instant // some looks that found it nil: call and return
	Ended       instant      // Err was seen non-nil by then
	Revived     instant      // and nil again after that, which must never be
	ValidUntil  instant      // as last told while it was alive
	Done        instant      // the context had ended by then
	Quiet       bool         // nobody looked at Err, so the context ended by itself
	Cause       string       // what kind of error Err was
	Text        string       // and its text
	ReleasedAt  instant      // the release was called
	ReleaseTook time.Duration
	LiveRefused instant // a write was refused though Err was nil before and after it
}
