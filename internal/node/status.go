package node

import (
	"errors"
	"fmt"
	"time"
)

// Status is what is known of a node, without asking it.
type Status struct {
	Up        bool  // connected, and has answered
	Unfit     error // why it may not vote now; nil if it may
	RoundTrip time.Duration
	Offset    Offset
	Clocked   bool // Offset is known
	Pushes    bool
}

// Status says what is known of the node.
func (n *Node) Status() Status {
	n.set.mu.Lock()
	unchecked := n.set.firsts[n.index] == errUnchecked
	n.set.mu.Unlock()
	now := n.set.option.Clock.Now()
	n.mu.Lock()
	defer n.mu.Unlock()
	s := Status{Up: n.down == nil, RoundTrip: n.rtt, Offset: n.offset, Clocked: n.watched}
	s.Pushes = s.Up && n.pushes.Load()
	left := time.Duration(n.known.marker.until)*time.Microsecond - (now + n.offset.Mid())
	switch {
	case n.down != nil:
		s.Unfit = n.down
		if unchecked && errors.Is(n.down, ErrNodeDown) {
			s.Unfit = fmt.Errorf("%w: %w", ErrNodeDown, errUnchecked)
		}
	case n.unfit != nil:
		s.Unfit = n.unfit
	case n.refusals[ScriptAcquire] != nil:
		s.Unfit = n.refusals[ScriptAcquire]
	case now < n.offTill:
		s.Unfit = fmt.Errorf("%w: its votes do not count for %v more", ErrClockOff, Rounded(n.offTill-now))
	case left > 0:
		s.Unfit = fmt.Errorf("%w: it is new or lost its memory, and grants nothing for %v more", ErrQuarantined, Rounded(left))
	}
	return s
}

// ID returns the id of the set that the nodes belong to, "" while none is known.
func (ns *Set) ID() string {
	for _, n := range ns.nodes {
		n.mu.Lock()
		id := n.known.marker.set
		n.mu.Unlock()
		if id != "" {
			return id
		}
	}
	return ""
}

// Has reports whether the process with this run id is one of the set's nodes now.
func (ns *Set) Has(runID string) bool {
	for _, n := range ns.nodes {
		if n.votesFor(runID) {
			return true
		}
	}
	return false
}
