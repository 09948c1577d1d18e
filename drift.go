package redlock

import (
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
