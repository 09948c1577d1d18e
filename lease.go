package redlock

import "time"

// Lease gives this lock a lease of its own, shorter or longer than KeyValidity, at most MaxKeyValidity: so long a holder that
// died costs the others. The lock is extended as any other. Its ExtendInterval is the Locker's in proportion to what counts of
// the lease; so is NodeTimeout where the lease is shorter, and what remains after an interval allows no more. ClockBound and
// DriftFactor are those of the Locker, so that much less counts of a lease that is much shorter than KeyValidity.
//
// A lease that is longer than any before is used only one old lease after all nodes know of it, as with KeyValidity: until
// then they answer ErrQuarantined.
func Lease(d time.Duration) HoldOption {
	return func(h *hold) { h.set(&h.lease, "Lease", d) }
}

// FixedLease is Lease without extension: the guard ends by itself when what counts of the lease is over, which is
// d·(1 − DriftFactor) − ClockBound after the lock was asked for, so that the work has the rest to wind down before anybody
// else can have the lock. Its cause then matches [ErrHeldTooLong] and not [ErrLost]. It is for work that must not outlive its
// slot, be the program alive or not. Until then it is looked after as any other: a vote that is lost is won back, for what is
// left of the lease.
func FixedLease(d time.Duration) HoldOption {
	return func(h *hold) { h.set(&h.lease, "FixedLease", d); h.fixed = true }
}

// allowsLease refuses a lease that is longer than the nodes are known to keep in mind for each other: one that loses its
// memory grants nothing for the longest lease, and no longer.
func (l *Locker) allowsLease(lease term) error {
	if lease.d > l.option.MaxKeyValidity {
		return invalid("%v is longer than MaxKeyValidity %v, the longest lease of any program on these nodes", lease, l.option.MaxKeyValidity)
	}
	return nil
}

// withLease returns the rules for a lease of a lock's own, in proportion.
func (r rules) withLease(lease term) (rules, error) {
	if lease.d < minKeyValidity {
		return r, invalid("%v: it must be at least %v", lease, minKeyValidity)
	}
	usual := r.claimUntil(0)
	interval, timeout := r.interval, r.timeout
	r.lease = lease.d.Truncate(time.Millisecond) // as nodes count it: never count on more
	counted := r.claimUntil(0)
	share := float64(counted) / float64(usual)
	r.interval = time.Duration(share * float64(interval))
	if counted < usual {
		r.timeout = min(timeout, max(time.Duration(share*float64(timeout)), (counted-r.interval)/2))
	}
	if r.interval < minDuration || r.timeout < minDuration || r.interval+r.timeout >= counted {
		return r, invalid("%v: %v of it count after drift %v and ClockBound %v, too little to be renewed in", lease, counted, r.drift, r.bound)
	}
	return r, nil
}

// claimUntil returns when a claim ends that was asked for at sentAt.
func (f *life) claimUntil(sentAt time.Duration) time.Duration {
	return claimUntil(sentAt, f.leaseAt(sentAt), f.drift, f.bound)
}

// leaseAt returns the lease that is asked for at an instant, as nodes count it: of a fixed one what is left.
func (f *life) leaseAt(at time.Duration) time.Duration {
	if f.fixed && f.phase >= held && at > f.heldAt {
		return max(time.Millisecond, (f.lease - (at - f.heldAt)).Truncate(time.Millisecond))
	}
	return f.lease
}
