package redlock

import (
	"context"
	"fmt"
	"time"

	"github.com/redis/rueidis"

	"github.com/redlock-go/redlock/internal/node"
)

// NodeSet is what SetNodes makes of a set of nodes. What is zero stays as it is.
type NodeSet struct {
	// Nodes are all members of the set from now on, old and new, as LockerOption lists them.
	Nodes []rueidis.ClientOption
	// LongestLease is the longest lease that any program may use on these nodes, and with it for how long a node that lost its
	// memory grants nothing.
	LongestLease time.Duration
	// Off names members, as errors and logs do, that are off for good, or have lost their memory for good. Every other member
	// has to be told of the change. It is unsafe if it is not true: a member that is named Off and is not, and a program
	// that still reaches it, may make a second set of it.
	Off []string
}

// SetNodes changes the set of nodes that this Locker uses: who its members are, and the longest lease. It is called once, by any
// program or operator, before, while or after programs are started with the new list of nodes; all of them run on meanwhile. See docs/roster.md.
//
// Locks that are held go on, if a quorum of the old members and one of the new have their votes. Members that join grant nothing
// for one longest lease; so do all where so few stay that a quorum of the new and one of the old need not meet (of five, three).
// A longest lease that is lowered takes a call as long as the old one, since claims of before may be counted until then. A Locker
// goes on with those of the members that it lists; more than it lists it does not learn to reach.
//
// It looks first: where a member cannot be told, or a new one cannot be reached or belongs to another set, the error says so and
// nothing has changed. ctx bounds it. An error after that says that the change may have begun; whoever sees that finishes it, and
// a repeated call does. A call that asks for what is already so does nothing.
func (l *Locker) SetNodes(ctx context.Context, set NodeSet) error {
	if l == nil {
		return errNoLocker
	}
	if l.isClosed() {
		return ErrLockerClosed
	}
	addrs, err := checkNodes(set.Nodes)
	if err != nil {
		return err
	}
	switch d := set.LongestLease; {
	case d == 0:
	case d < minKeyValidity:
		return invalid("LongestLease is %v: it must be at least %v", d, minKeyValidity)
	case d > maxDuration:
		return invalid("LongestLease is %v: it must be at most %v", d, maxDuration)
	case d < l.option.KeyValidity:
		return invalid("LongestLease is %v, below KeyValidity %v of this Locker", d, l.option.KeyValidity)
	}
	if set.Nodes == nil && set.LongestLease == 0 {
		return invalid("NodeSet is empty: nothing is to change")
	}
	if err := l.set.Change(ctx, node.Change{Nodes: set.Nodes, Addrs: addrs, Longest: set.LongestLease, Off: set.Off}); err != nil {
		return fmt.Errorf("redlock: SetNodes: %w", err)
	}
	return nil
}
