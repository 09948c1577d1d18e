package redlock

import (
	"slices"
	"time"

	"github.com/redlock-go/redlock/internal/node"
)

// Status is how a Locker stands at one moment, by what it knows of its nodes.
type Status struct {
	// Err is nil while so many nodes may vote that a quorum can be had. Else it matches ErrNoQuorum, is a *QuorumError and
	// says of each node what is in the way; or ErrLockerClosed. Locks that are held may live on until their validity is over.
	Err error
	// Nodes are the nodes as LockerOption lists them, Quorum how many of them must vote for a lock, MayVote how many may
	// do so now.
	Nodes           []NodeStatus
	Quorum, MayVote int
	// Members are the names of the set's members, by the nodes' own record, and Roster is its version; none and 0 while the set
	// has no record that this Locker has seen.
	Members []string
	Roster  int
	// Held is how many guards are alive, Waiting how many calls wait for a lock.
	Held, Waiting int
}

// NodeStatus is what a Locker knows of one node.
type NodeStatus struct {
	Addr    string // as errors and the Logger name it
	Up      bool   // connected, and has answered
	MayVote bool
	Err     error // why it may not vote, nil if it may: ErrNodeDown, ErrNodeTimeout, ErrQuarantined, ErrClockOff, …

	RoundTrip   time.Duration // smoothed; 0 while none was measured
	ClockOffset time.Duration // how far its clock is ahead of the median of the nodes' clocks, as far as round trips tell
	Pushes      bool          // it tells of changes at once; else a loss there is seen at the next extension, and waiters poll
}

// Status says how the Locker and its nodes stand, for readiness probes and dashboards. It asks no node, and never waits
// for one: what it says of a node is what the last answers and the last look came to. So a connection that was closed is
// noticed at once, and a node that hangs by the next call or renewal there: it is down within max(NodeTimeout, 1s) of that.
func (l *Locker) Status() Status {
	if l == nil {
		return Status{Err: errNoLocker}
	}
	by := l.set.Electorate()
	s := Status{Quorum: by.Quorum}
	if r := by.Record; r != nil {
		s.Members, s.Roster = slices.Clone(r.Members), r.Version
	}
	var offsets []time.Duration
	unfit := &QuorumError{Quorum: s.Quorum, Nodes: by.Size, kind: ErrNoQuorum, verb: "may vote"}
	known := make([]node.Status, len(l.nodes))
	for i, n := range l.nodes {
		if known[i] = n.Status(); known[i].Clocked {
			offsets = append(offsets, known[i].Offset.Mid())
		}
	}
	for i, k := range known {
		n := NodeStatus{Addr: l.nodes[i].Addr(), Up: k.Up, MayVote: k.Unfit == nil, Err: k.Unfit, RoundTrip: k.RoundTrip, Pushes: k.Pushes}
		if k.Clocked {
			n.ClockOffset = k.Offset.Mid() - node.Median(offsets)
		}
		if n.MayVote {
			s.MayVote++
		} else {
			unfit.Errs = append(unfit.Errs, l.nodeError(node.Fault{Node: i, Err: k.Unfit}))
		}
		s.Nodes = append(s.Nodes, n)
	}
	now := l.clock.Now()
	l.mu.Lock()
	defer l.mu.Unlock()
	for name, g := range l.inPlaces {
		if g.lock.Names != nil && g.lock.Names[0] != name {
			continue // it is in several places, and one lock
		}
		if time.Duration(g.deadline.Load()) > now {
			s.Held++
		}
	}
	s.Waiting = len(l.waiters)
	if unfit.Votes = s.MayVote; s.MayVote < s.Quorum {
		s.Err = unfit
	}
	if l.isClosed() {
		s.Err = ErrLockerClosed
	}
	return s
}
