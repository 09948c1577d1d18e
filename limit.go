package redlock

import (
	"fmt"
	"time"
)

// AtMost ends the guard d after the lock was granted, whatever its holder does: a worker that hangs does not hold for ever.
// The guard is then released as by its user, its cause matches [ErrHeldTooLong] and not [ErrLost], and so does what Release
// and Do return. As with a loss the next holder may come before the work has wound down.
func AtMost(d time.Duration) HoldOption {
	return func(h *hold) { h.set(&h.atMost, "AtMost", d) }
}

// limitHold notes when a lock that was granted at this moment is to end whatever its votes say; 0 is never. A fixed lease ends
// with the claims that it was granted with: those that come later, or are won back, are not to prolong it.
func (f *life) limitHold() {
	f.limit = 0
	if f.fixed {
		f.limit = f.standsUntil()
	}
	if at := f.heldAt + f.atMost; f.atMost != 0 && (f.limit == 0 || at < f.limit) {
		f.limit = at
	}
}

// endIfTooLong ends a lock that has been held for as long as it may be, unless its quorum was gone before that.
func (f *life) endIfTooLong(now time.Duration) {
	if f.phase != held || f.limit == 0 || f.limit > now || !f.stands(f.limit-1) {
		return
	}
	why := fmt.Errorf("%w: %q: AtMost is %v", ErrHeldTooLong, f.name, f.atMost)
	if f.limit != f.heldAt+f.atMost {
		why = fmt.Errorf("%w: %q: FixedLease is %v", ErrHeldTooLong, f.name, f.lease)
	}
	f.end(why, now)
}

// validUntil returns when the life ends if nothing renews it from now on.
func (f *life) validUntil() time.Duration {
	until := f.standsUntil()
	if f.phase == held && f.limit != 0 {
		until = min(until, f.limit)
	}
	return until
}
