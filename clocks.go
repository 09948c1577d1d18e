package redlock

import (
	"fmt"
	"time"
)

// A clock that jumped forward has let leases expire that others still count on, so its vote is worth nothing. Looked
// at from one attempt, the nodes' clocks tell: all answered within one round. This is stateless, so it also protects a
// client that never saw the node before; internal/node sees a clock run off between two looks.

// trusted returns the ballot without the votes of nodes whose clocks are off. Two answers that disagree do not say
// which one is wrong: until a third comes neither counts.
func (f *life) trusted(now time.Duration) ballot {
	off, undecided := f.clocksOff()
	if off == nil {
		return f.ballot
	}
	b := append(ballot(nil), f.ballot...)
	for i := range b {
		switch {
		case !off[i]:
		case undecided && f.round > now:
			b[i].state = pending
		default:
			b[i].state = failed
		}
	}
	return b
}

// dropMistrusted takes the votes that the verdict did not count out of the ballot. Their nodes are told only where a
// quorum of clocks agrees: of fewer answers the median depends on who was first to answer, and where clocks are split
// three to two, each half would have the other mistrusted for ever.
func (f *life) dropMistrusted(now time.Duration) {
	off, _ := f.clocksOff()
	if off == nil {
		return
	}
	agree := 0
	for i := range off {
		if f.poll.clocks[i].known && !off[i] {
			agree++
		}
	}
	for i := range off {
		if !off[i] {
			continue
		}
		f.ballot[i].state = failed
		f.ballot[i].note(fmt.Errorf("%w: more than %v from the other nodes'", ErrClockOff, rounded(f.bound)))
		if agree >= f.quorum() {
			f.out.mistrusted = append(f.out.mistrusted, clockOffBy{i, f.clockGap(i)})
		}
	}
}

// clocksOff returns which nodes' clocks, as they answered this attempt, are further than the bound from the median;
// nil if none. undecided says that there were only two, which disagree.
//
// They are compared as measured. Aged to now they would agree ever better the longer the attempt waits for the last of
// them: by the defaults a whole NodeTimeout of it would hide a step of two bounds. All were measured within one, in which
// rates that differ by the drift part clocks by half a bound.
func (f *life) clocksOff() (off []bool, undecided bool) {
	var buf [16]offset
	offsets := buf[:0]
	for _, c := range f.poll.clocks {
		if c.known {
			offsets = append(offsets, c.offset)
		}
	}
	if len(offsets) < 2 {
		return nil, false
	}
	bound := f.bound
	if len(offsets) == 2 {
		if offsets[0].Gap(offsets[1]) <= bound {
			return nil, false
		}
		undecided = true
	}
	middle := medianOffset(offsets)
	for i, c := range f.poll.clocks {
		if c.known && (undecided || c.offset.Gap(middle) > bound) {
			if off == nil {
				off = make([]bool, len(f.ballot))
			}
			off[i] = true
		}
	}
	return off, undecided
}

// clocked is what a node's clock was as it answered this attempt, if it did.
type clocked struct {
	offset offset
	known  bool
}

// clockOffBy is a node whose clock is so far from the other nodes'.
type clockOffBy struct {
	node int
	gap  time.Duration
}

// clockGap returns how far a node's clock is from the median of those that answered this attempt, for people.
func (f *life) clockGap(i int) time.Duration {
	var offsets []offset
	for _, c := range f.poll.clocks {
		if c.known {
			offsets = append(offsets, c.offset)
		}
	}
	return f.poll.clocks[i].offset.Gap(medianOffset(offsets))
}
