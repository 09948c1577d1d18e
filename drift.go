package redlock

import (
	"cmp"
	"slices"
	"time"
)

// Instants of this file are durations on the Locker's own clock (clock.go); node clocks appear only as offsets
// from it.

// claimUntil returns when a claim ends whose request was sent at sentAt:
//
//	sentAt + lease·(1 − drift) − bound
//
// The node starts its lease when the request arrives, so counting from before the request left can only err to
// the safe side. drift covers clocks that run at different rates over the lease, bound one step of the node's
// clock. The formula is Redlock's MIN_VALIDITY, taken per node.
func claimUntil(sentAt, lease time.Duration, drift float64, bound time.Duration) time.Duration {
	return sentAt + lease - driftOver(lease, drift) - bound
}

// goneAfter returns how long to wait, from the moment a node said that left remains of a lease, until that lease
// has surely run out.
func goneAfter(left time.Duration, drift float64, bound time.Duration) time.Duration {
	return left + driftOver(left, drift) + bound
}

// driftOver returns how far two clocks may run apart over d, rounded up.
func driftOver(d time.Duration, drift float64) time.Duration {
	return time.Duration(float64(d)*drift) + 1
}

// offset is what is known of a node's clock: node time minus local time lies in [lo, hi], as of at.
// An answer that carries the node's time t, asked at s and received at r, gives [t − r, t − s].
type offset struct {
	lo, hi time.Duration
	at     time.Duration
}

func offsetOf(nodeNow, sentAt, receivedAt time.Duration) offset {
	return offset{lo: nodeNow - receivedAt, hi: nodeNow - sentAt, at: receivedAt}
}

func (o offset) mid() time.Duration { return o.lo + (o.hi-o.lo)/2 }

// gap returns how far two intervals are apart, 0 where they touch.
func (o offset) gap(p offset) time.Duration {
	return max(0, o.lo-p.hi, p.lo-o.hi)
}

// aged widens an interval by what the clocks may have drifted apart since it was measured.
func (o offset) aged(now time.Duration, drift float64) offset {
	d := driftOver(now-o.at, drift)
	return offset{lo: o.lo - d, hi: o.hi + d, at: now}
}

// median sorts values and returns the one in the middle, the lower of the two for an even number of them.
func median(values []time.Duration) time.Duration {
	slices.Sort(values)
	return values[(len(values)-1)/2]
}

// medianOffset returns the interval whose middle is the median.
func medianOffset(offsets []offset) offset {
	s := slices.SortedFunc(slices.Values(offsets), func(a, b offset) int { return cmp.Compare(a.mid(), b.mid()) })
	return s[(len(s)-1)/2]
}
