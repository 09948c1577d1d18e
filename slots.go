package redlock

import (
	"cmp"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"
)

// A semaphore is k slots, each an ordinary lock, and one line for all of them. An attempt is about one slot, on all nodes: if
// each node gave its first free one, the votes of one call would be of different slots, and k of them on each node are more than
// k quorums (docs/semaphore.md). Whoever is refused is told how the slots stand there, and goes on to the best of them.

// slotTimes returns from when on each slot may be had on the node that refused us with this answer; nil where the answer is of
// no semaphore. Of those in line the i-th may have one as soon as i are free.
func slotTimes(a *answer, waits bool) []time.Duration {
	if a.Lefts == "" {
		return nil
	}
	lefts := strings.Split(a.Lefts, ",")
	at := make([]time.Duration, len(lefts))
	for i, left := range lefts {
		at[i] = a.At
		if ms, err := strconv.ParseInt(left, 10, 64); err != nil || ms > 0 {
			at[i] += time.Duration(ms)*time.Millisecond + afterExpiry
		}
	}
	ours := a.At
	switch {
	case waits && a.Place > 0 && a.Place <= len(at):
		ours = slices.Sorted(slices.Values(at))[a.Place-1]
	case waits || a.Code == codeInLine: // all that is free there is for those before us
		ours = never
	}
	for i := range at {
		at[i] = max(at[i], ours)
	}
	return at
}

// slotChoice is a slot that a call may go on to.
type slotChoice struct {
	slot  int           // from 1
	at    time.Duration // from when on it may have a quorum, by what the nodes have said; never: not before they say something else
	free  int           // how many nodes have said that it is free now
	shift uint64        // what decides between equals, otherwise for each client
}

// never is later than any instant.
const never time.Duration = 1<<63 - 1

// slotChoices returns the slots of a semaphore by what is known after an attempt, the best first: those that may be had
// soonest, of them those free on most nodes. A node that has not said how its slots stand may have any of them free.
func (f *life) slotChoices(now time.Duration, seed uint64) []slotChoice {
	choices := make([]slotChoice, f.slots)
	times := make([]time.Duration, len(f.ballot))
	for s := range choices {
		c := &choices[s]
		c.slot, c.shift = s+1, slotShift(seed, s+1)
		for i := range f.ballot {
			v := &f.ballot[i]
			switch no := v.said(); {
			case v.state == refused && s < len(no.slots): // one that is asked again has told of what was
				times[i] = max(no.slots[s], now)
				if times[i] == now {
					c.free++
				}
			case v.state == failed && no.freeAt > now:
				times[i] = no.freeAt
			case v.state == failed:
				times[i] = never
			default:
				times[i] = now
			}
		}
		slices.Sort(times)
		c.at = times[min(f.quorum(), len(times))-1]
	}
	slices.SortFunc(choices, func(a, b slotChoice) int {
		return cmp.Or(cmp.Compare(a.at, b.at), cmp.Compare(b.free, a.free), cmp.Compare(a.shift, b.shift))
	})
	return choices
}

// firstChoices returns the slots of a semaphore as a call knows them that has asked nobody: the one that was used last, and the
// others by chance.
func firstChoices(slots, last int, seed uint64) []slotChoice {
	choices := make([]slotChoice, slots)
	for s := range choices {
		if choices[s].slot = s + 1; s+1 != last {
			choices[s].shift = slotShift(seed, s+1) + 1
		}
	}
	slices.SortFunc(choices, func(a, b slotChoice) int { return cmp.Compare(a.shift, b.shift) })
	return choices
}

// slotShift is a number for a slot, by which each client has an order of its own.
func slotShift(seed uint64, slot int) uint64 {
	return (seed ^ uint64(slot)) * 0x9e3779b97f4a7c15 >> 1
}

// otherSize is why a node gives no slot of a semaphore that has another number of them than it knows of.
func otherSize(known int64, ours int) error {
	return fmt.Errorf("%w: the semaphore has %d slots there, not %d", ErrDisagreement, known, ours)
}
