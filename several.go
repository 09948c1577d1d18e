package redlock

import (
	"context"
	"slices"
	"strings"
)

// maxNames bounds how long one step holds a node up.
const maxNames = 64

// AcquireAll waits for the locks of several names, 1 to 64 different ones in any order, and returns them as one guard: all of
// them or none. They are the locks that Acquire takes, one by one. The guard has one fencing token, which is larger than that
// of every earlier holder of each of the names. Whoever loses one has lost all.
//
// Who waits stands in the line of each name since the same moment, and nobody overtakes it in any of them, nor does it overtake anybody: so callers
// whose names overlap never wait for each other in a circle, whatever their order. A name that is free is kept meanwhile for whoever
// is first in line for it. See docs/several-names.md.
//
// ctx bounds the wait alone. Errors, and what is left behind, are those of Acquire; each [*HeldError] says which name it is about.
// No names, one given twice, and more than 64 match ErrInvalidOption.
func (l *Locker) AcquireAll(ctx context.Context, names []string, opts ...HoldOption) (*Guard, error) {
	return allOf(names, l.acquire)(ctx, "", holdOf(hold{}, opts))
}

// TryAcquireAll takes the locks of several names, all of them or none, and does not wait for a holder. Errors, time, and what is
// left behind are those of TryAcquire; names are those of AcquireAll.
func (l *Locker) TryAcquireAll(ctx context.Context, names []string, opts ...HoldOption) (*Guard, error) {
	return allOf(names, l.tryAcquire)(ctx, "", holdOf(hold{}, opts))
}

// DoAll waits for the locks of several names, runs fn, and releases them when fn has returned or panicked. All else is as with
// Do and AcquireAll.
func (l *Locker) DoAll(ctx context.Context, names []string, fn func(context.Context) error, opts ...HoldOption) error {
	return do(ctx, "", fn, allOf(names, l.acquire), opts)
}

// allOf has one of the ways to get a lock get those of several names.
func allOf(names []string, acquire acquireFunc) acquireFunc {
	return func(ctx context.Context, _ string, h hold) (*Guard, error) {
		sorted := slices.Sorted(slices.Values(names))
		if err := checkNames(sorted); err != nil {
			h.fault = err
			return acquire(ctx, "of several names", h)
		}
		if len(sorted) == 1 {
			return acquire(ctx, sorted[0], h)
		}
		h.names = sorted
		return acquire(ctx, strings.Join(sorted, ", "), h)
	}
}

// checkNames refuses names that cannot be held as one lock. They are in order.
func checkNames(names []string) error {
	if len(names) == 0 || len(names) > maxNames {
		return invalid("%d names are asked for as one lock, it must be from 1 to %d", len(names), maxNames)
	}
	for i, name := range names {
		if err := checkName(name); err != nil {
			return err
		}
		if i > 0 && name == names[i-1] {
			return invalid("the name %q is given twice: each of several names must be another", name)
		}
	}
	return nil
}

// Names returns the names that the guard holds, in order: one, or those of AcquireAll.
func (g *Guard) Names() []string {
	if g.lock.Names == nil {
		return []string{g.life.name}
	}
	return slices.Clone(g.lock.Names)
}
