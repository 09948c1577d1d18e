package netproxy

import (
	"fmt"
	"math/rand/v2"
	"time"
)

// fault is how one direction fails. The zero value is a network that works.
type fault struct {
	silent     bool                 // nothing leaves
	delay      func() time.Duration // nil for none
	rate       int                  // bytes per second, 0 for no limit
	slice      slice
	reset      bool // the next data is a connection's last
	resetAfter time.Duration
}

func silence(f *fault) { f.silent = true }
func heal(f *fault)    { f.silent = false }
func well(f *fault)    { *f = fault{} }

func bandwidth(rate int) func(*fault) { return func(f *fault) { f.rate = rate } }
func sliced(s slice) func(*fault)     { return func(f *fault) { f.slice = s } }
func resetAfter(after time.Duration) func(*fault) {
	return func(f *fault) { f.reset, f.resetAfter = true, after }
}

// slice is the sizes of the pieces that data leaves in, and the pause after each. The zero value leaves data whole.
type slice struct {
	shortest, longest int
	pause             time.Duration
}

func newSlice(shortest, longest int, pause time.Duration) slice {
	if longest != 0 && (shortest < 1 || longest < shortest) {
		panic(fmt.Sprintf("netproxy: slices of %d to %d bytes: want at least 1, and the longest last", shortest, longest))
	}
	return slice{shortest, longest, pause}
}

// ratePieces is how many pieces a second's worth of bytes leaves in under a limited rate: it is kept to within 10 ms.
const ratePieces = 100

// piece is how much of n bytes leaves at once, and how long nothing leaves after it.
func (f fault) piece(n int) (size int, pause time.Duration) {
	size = n
	if f.slice.longest > 0 {
		size = min(size, f.slice.shortest+rand.IntN(f.slice.longest-f.slice.shortest+1))
		pause = f.slice.pause
	}
	if f.rate > 0 {
		size = min(size, max(1, f.rate/ratePieces))
		pause = max(pause, time.Duration(size)*time.Second/time.Duration(f.rate))
	}
	return size, pause
}

// faults are those of both directions.
type faults struct{ requests, replies fault }

func (f *faults) change(d Direction, change func(*fault)) {
	if d&Requests != 0 {
		change(&f.requests)
	}
	if d&Replies != 0 {
		change(&f.replies)
	}
}
