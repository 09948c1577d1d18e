package redlock

import (
	"context"
	"errors"
	"fmt"
	"net"
	"strings"
	"time"

	"github.com/redis/rueidis"
	"github.com/redis/rueidis/rueidislock"
)

// sentinel is an error value that also matches another package's value of the same meaning.
type sentinel struct {
	text string
	also error
}

func (s *sentinel) Error() string { return s.text }
func (s *sentinel) Unwrap() error { return s.also }

// What a call can come to. Compare with errors.Is; the facts are in [*QuorumError] and [*NodeError].
var (
	// ErrNotLocked says that a quorum of nodes was reachable and too few of them voted yes: somebody else
	// holds the lock. It matches rueidislock.ErrNotLocked too.
	ErrNotLocked error = &sentinel{"redlock: not locked", rueidislock.ErrNotLocked}
	// ErrLockerClosed says that the Locker was closed. It matches rueidislock.ErrLockerClosed too.
	ErrLockerClosed error = &sentinel{"redlock: locker closed", rueidislock.ErrLockerClosed}
	// ErrNoQuorum says that too few nodes could vote at all: failed, silent, down or quarantined.
	ErrNoQuorum = errors.New("redlock: no quorum")
	// ErrLost is the cause of a guard whose quorum of votes is gone.
	ErrLost = errors.New("redlock: lock lost")
	// ErrTakenOver matches beside ErrLost where somebody else took the lock.
	ErrTakenOver = errors.New("redlock: lock taken over")
	// ErrReleased is the cause of a guard that was released.
	ErrReleased = errors.New("redlock: lock released")
	// ErrInvalidOption says that an option or a name breaks a rule; the text names the value and the rule.
	ErrInvalidOption = errors.New("redlock: invalid option")
)

// Why a node did not vote yes, inside a [*NodeError].
var (
	// ErrNodeTimeout says that the node did not answer in time. What it was asked may have been done.
	ErrNodeTimeout = errors.New("no answer in time")
	// ErrNodeDown says that there is no connection to the node.
	ErrNodeDown = errors.New("not connected")
	// ErrQuarantined says that the node lost its memory and grants nothing until every lease it may have
	// forgotten has run out.
	ErrQuarantined = errors.New("quarantined after losing its memory")
	// ErrUnsupportedNode says that the server cannot be a node: a Redis Cluster, a replica, too old, or the
	// same server as another node.
	ErrUnsupportedNode = errors.New("unsupported node")
	// ErrDisagreement says that clients of one prefix do not agree on what must be the same for all.
	ErrDisagreement = errors.New("clients disagree")
	// ErrClockOff says that the node's clock is too far from the others', or runs too fast or too slow.
	ErrClockOff = errors.New("clock is off")
)

// HeldError is a node's refusal: who holds the lock there, and for how long the node keeps it by itself.
type HeldError struct {
	Owner   string        // the holder's random id, or the waiter's
	Left    time.Duration // until the lease ends; 0 for a waiter
	Waiting bool          // nobody holds the lock there, but Owner waits for it and is before us in line
}

func (e *HeldError) Error() string {
	if e.Waiting {
		return "free, but " + e.Owner + " is first in line"
	}
	if e.Owner == tombstone {
		return fmt.Sprintf("kept free for a displaced holder for %v more", e.Left)
	}
	return fmt.Sprintf("held by %s, lease ends in %v", e.Owner, e.Left)
}

// NodeError is what one node came to. It matches neither ErrNotLocked nor a context error: a context error in
// a chain of ours always means the caller's own context.
type NodeError struct {
	Addr string
	Err  error
}

func (e *NodeError) Error() string { return e.Addr + ": " + e.Err.Error() }
func (e *NodeError) Unwrap() error { return e.Err }

// QuorumError says how a vote over all nodes came out. It matches exactly one of ErrNotLocked, ErrNoQuorum and
// ErrLost, and with ErrLost also ErrTakenOver where somebody else took the lock. It is always returned as
// *QuorumError.
type QuorumError struct {
	Name                 string
	Votes, Quorum, Nodes int
	Errs                 []error // a *NodeError for each node that did not vote yes

	kind      error
	takenOver bool
	freed     bool // it counts confirmations of a release
}

func (e *QuorumError) Error() string {
	kind := e.kind.Error()
	if e.takenOver {
		kind += " to another holder"
	}
	verb := "vote yes"
	switch {
	case e.takenOver:
		verb = "were left when it was taken"
	case errors.Is(e.kind, ErrLost):
		verb = "were left"
	case e.freed:
		verb = "confirmed the release"
	}
	text := fmt.Sprintf("%s: %q: %d of %d nodes %s, quorum is %d", kind, e.Name, e.Votes, e.Nodes, verb, e.Quorum)
	if len(e.Errs) == 0 {
		return text
	}
	nodes := make([]string, len(e.Errs))
	for i, err := range e.Errs {
		nodes[i] = err.Error()
	}
	return text + " (" + strings.Join(nodes, "; ") + ")"
}

func (e *QuorumError) Is(target error) bool {
	return errors.Is(e.kind, target) || e.takenOver && target == ErrTakenOver
}

func (e *QuorumError) Unwrap() []error { return e.Errs }

// contextEnded is the error of a wait whose context ended: it matches ctx.Err() and context.Cause(ctx).
func contextEnded(ctx context.Context, name string) error {
	err, cause := ctx.Err(), context.Cause(ctx)
	if errors.Is(cause, err) {
		return fmt.Errorf("redlock: waiting for %q: %w", name, cause)
	}
	return fmt.Errorf("redlock: waiting for %q: %w: %w", name, err, cause)
}

// nodeFault turns what rueidis reports about a connection into a node's error. The text is kept; a context error
// is not, since it never was the caller's.
func nodeFault(err error) error {
	var ne net.Error
	switch {
	case errors.Is(err, context.DeadlineExceeded), errors.As(err, &ne) && ne.Timeout():
		return fmt.Errorf("%w: %v", ErrNodeTimeout, err)
	case errors.Is(err, context.Canceled):
		return fmt.Errorf("%w: %v", ErrNodeDown, err)
	default:
		return fmt.Errorf("%w: %w", ErrNodeDown, err)
	}
}

// permanent reports whether asking again cannot help: somebody has to change something first.
func permanent(err error) bool {
	if errors.Is(err, ErrUnsupportedNode) || errors.Is(err, ErrDisagreement) {
		return true
	}
	var re *rueidis.RedisError
	if !errors.As(err, &re) {
		return false
	}
	for _, prefix := range []string{"NOPERM", "WRONGTYPE", "NOAUTH", "WRONGPASS"} {
		if strings.HasPrefix(re.Error(), prefix) || strings.Contains(re.Error(), ": "+prefix) {
			return true
		}
	}
	// What a script may not call is NOPERM too, but Redis 7.0 says so in words alone.
	return strings.Contains(re.Error(), "user executing the script can't")
}
