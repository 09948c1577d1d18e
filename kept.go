package redlock

import (
	"errors"
	"time"
)

// AtLeast keeps the lock taken for d from its grant, whatever becomes of it: released, ended, or its program dead. So a job that
// several programs start at about the same time runs once, whoever is first and however fast it is done. d is to be longer
// than their clocks and schedulers differ, and shorter than the time to the next run less that.
//
// It is a promise about ticks and not about exclusion, and may be longer than any lease. The nodes keep it by themselves, and
// nobody extends it: a node that loses its memory forgets it, and grants nothing for MaxKeyValidity alone. It stands as long as
// fewer than a quorum of nodes can vote that never had it, or have forgotten it.
//
// The guard ends as without it: Release returns nil once a quorum has confirmed that the lock is not held any more.
// TryAcquire is refused by a *HeldError that says that the lock is only kept, Acquire waits for its end, and ForceAcquire does not
// wait for it. Fencing tokens rise as ever. Deleting the lock's key on all nodes ends it.
func AtLeast(d time.Duration) HoldOption {
	return func(h *hold) { h.set(&h.atLeast, "AtLeast", d) }
}

// LockDelay keeps the lock from others for d after it has ended without having been released: it was lost, its time was over,
// or its program died. So work that is told of the end, or fenced off by nobody, has that long to wind down. Consul has the same under that name.
// A release lets the next one in at once, and so does Close; ForceAcquire does not wait for it. What AtLeast says of lost
// memory holds here too.
func LockDelay(d time.Duration) HoldOption {
	return func(h *hold) { h.set(&h.delay, "LockDelay", d) }
}

// keepFor returns for how long a node is asked to keep the key of a lock that is asked for or renewed at this moment. A claim
// on it never counts on more than the lease.
func (f *life) keepFor(now time.Duration) time.Duration {
	kept := f.atLeast
	if f.phase >= held {
		kept -= now - f.heldAt
	}
	return max(f.leaseAt(now)+f.delay, kept)
}

// keepAtEnd notes until when the nodes are to keep the lock taken although it has ended.
func (f *life) keepAtEnd(cause error, now time.Duration) {
	if f.atLeast != 0 {
		f.own().keptUntil = f.heldAt + f.atLeast
	}
	if f.delay != 0 && (errors.Is(cause, ErrLost) || errors.Is(cause, ErrHeldTooLong)) {
		f.own().keptUntil = max(f.rarely().keptUntil, now+f.delay)
	}
}

// keptFor returns for how long a node is to keep the lock taken that is released at this moment.
func (f *life) keptFor(now time.Duration) time.Duration { return max(0, f.rarely().keptUntil-now) }
