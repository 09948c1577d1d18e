package redlock

import (
	"fmt"
	"time"
)

// HoldOption changes how one lock is held. Options that break a rule or contradict each other are refused by the call that
// they are given to, before anything is sent: its error matches ErrInvalidOption.
type HoldOption func(*hold)

// hold is how one lock is held.
type hold struct {
	takeover takeover
	parented bool // its context ends with the one that it was acquired with
	outlives bool // but the guard does not: it is held until it is released

	lease   term
	fixed   bool // it is not extended
	atMost  term
	atLeast term
	delay   term
	grace   term
	label   string
	labeled bool // by an option

	names   []string     // several as one, in order; nil for one
	slots   int          // how many a semaphore has; 0 for a lock
	slot    int          // node.Gate for a semaphore's gate; else 0
	seed    uint64       // of the order in which slots are tried that are as good as each other
	choices []slotChoice // the slots that the next attempt may be about, the best first

	fault error  // what is wrong with an option, or with two of them: the first that was found
	rules *rules // what its life goes by: the Locker's own, unless an option says otherwise
}

// subjects are what a call is about.
func (h *hold) subjects(name string) []subject {
	if h.names == nil {
		return []subject{subjectOf(name, h.slots, h.slot)}
	}
	of := make([]subject, len(h.names))
	for i, name := range h.names {
		of[i] = subject{name: name}
	}
	return of
}

// term is a length of time that an option has set, and which one did.
type term struct {
	option string // empty: none has
	d      time.Duration
}

func (t term) String() string { return fmt.Sprintf("%s(%v)", t.option, t.d) }

// holdOf returns a hold with options.
func holdOf(h hold, options []HoldOption) hold {
	if len(options) == 0 {
		return h
	}
	return h.with(options)
}

func (h hold) with(options []HoldOption) hold {
	for i, option := range options {
		if option == nil {
			h.refuse("HoldOption %d of %d is nil", i+1, len(options))
			continue
		}
		option(&h)
	}
	return h
}

// refuse notes why a hold cannot be.
func (h *hold) refuse(format string, args ...any) {
	if h.fault == nil {
		h.fault = invalid(format, args...)
	}
}

// set takes a length of time from an option. The same one twice is as good as once; two that differ are refused.
func (h *hold) set(t *term, option string, d time.Duration) {
	given := term{option, d}
	switch {
	case d < minDuration:
		h.refuse("%v: it must be at least %v", given, minDuration)
	case d > maxDuration:
		h.refuse("%v: it must be at most %v", given, maxDuration)
	case t.option != "" && *t != given:
		h.refuse("%v contradicts %v: one lock has one of them", given, *t)
	default:
		*t = given
	}
}

// own reports whether the lock goes by rules of its own.
func (h *hold) own() bool {
	none := term{}
	return h.lease != none || h.atMost != none || h.atLeast != none || h.delay != none || h.labeled
}

// settle checks the options of a hold against each other and the Locker's, and makes the rules that they come to.
func (h *hold) settle(l *Locker) error {
	h.rules = &l.rules
	switch asksFirst := h.grace.option != ""; {
	case h.fault != nil:
		return h.fault
	case asksFirst && h.takeover == takeoverNow:
		return invalid("%v contradicts ForceAcquireNow, which waits for no holder: ForceAcquire does", h.grace)
	case asksFirst && h.takeover == noTakeover:
		return invalid("%v is for ForceAcquire alone: no other call takes a lock from its holder", h.grace)
	case asksFirst && h.slots != 0:
		return invalid("%v is for a lock: nobody asks for one slot of a semaphore, for which all wait alike", h.grace)
	case !h.own():
		return nil
	}
	if h.fixed && h.atMost.option != "" && h.atMost.d >= h.lease.d {
		return invalid("%v contradicts %v, with which the lock ends before", h.atMost, h.lease)
	}
	own := l.rules
	own.fixed, own.atMost, own.atLeast, own.delay = h.fixed, h.atMost.d, h.atLeast.d, h.delay.d
	if h.lease.option != "" {
		if err := l.allowsLease(h.lease); err != nil {
			return err
		}
		var err error
		if own, err = own.withLease(h.lease); err != nil {
			return err
		}
	}
	if h.labeled {
		own.label = h.label
	}
	longest := time.Duration(0)
	if own.atLeast != 0 || own.delay != 0 {
		longest = max(own.lease+own.delay, own.atLeast)
	}
	own.claimTail = claimTail(longest, own.label)
	h.rules = &own
	return nil
}
