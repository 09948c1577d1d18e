package node

import (
	"cmp"
	"slices"
	"time"
)

// Instants are durations on the program's own clock (Clock); node clocks appear only as offsets from it.

// GoneAfter returns how long to wait, from the moment a node said that left remains of a lease, until that lease
// has surely run out.
func GoneAfter(left time.Duration, drift float64, bound time.Duration) time.Duration {
	return left + DriftOver(left, drift) + bound
}

// DriftOver returns how far two clocks may run apart over d, rounded up.
func DriftOver(d time.Duration, drift float64) time.Duration {
	return time.Duration(float64(d)*drift) + 1
}

// Offset is what is known of a node's clock: node time minus local time lies in [lo, hi], as of at.
// An answer that carries the node's time t, asked at s and received at r, gives [t − r, t − s].
type Offset struct {
	Lo, Hi time.Duration
	At     time.Duration
}

func OffsetOf(nodeNow, sentAt, receivedAt time.Duration) Offset {
	return Offset{Lo: nodeNow - receivedAt, Hi: nodeNow - sentAt, At: receivedAt}
}

func (o Offset) Mid() time.Duration { return o.Lo + (o.Hi-o.Lo)/2 }

// Gap returns how far two intervals are apart, 0 where they touch.
func (o Offset) Gap(p Offset) time.Duration {
	return max(0, o.Lo-p.Hi, p.Lo-o.Hi)
}

// Aged widens an interval by what the clocks may have drifted apart since it was measured.
func (o Offset) Aged(now time.Duration, drift float64) Offset {
	d := DriftOver(now-o.At, drift)
	return Offset{Lo: o.Lo - d, Hi: o.Hi + d, At: now}
}

// Median sorts values and returns the one in the middle, the lower of the two for an even number of them.
func Median(values []time.Duration) time.Duration {
	slices.Sort(values)
	return values[(len(values)-1)/2]
}

// MedianOffset returns the interval whose middle is the median.
func MedianOffset(offsets []Offset) Offset {
	var buf [16]Offset
	s := append(buf[:0], offsets...)
	slices.SortFunc(s, func(a, b Offset) int { return cmp.Compare(a.Mid(), b.Mid()) })
	return s[(len(s)-1)/2]
}
