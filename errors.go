package redlock

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/redis/rueidis/rueidislock"

	"github.com/redlock-go/redlock/internal/node"
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
	// holds the lock, or is before us in line. It matches rueidislock.ErrNotLocked too.
	ErrNotLocked error = &sentinel{"redlock: not locked", rueidislock.ErrNotLocked}
	// ErrLockerClosed says that the Locker was closed. It matches rueidislock.ErrLockerClosed too.
	ErrLockerClosed error = &sentinel{"redlock: locker closed", rueidislock.ErrLockerClosed}
	// ErrNoQuorum says that too few nodes could vote at all: failed, silent, down or quarantined.
	ErrNoQuorum = errors.New("redlock: no quorum")
	// ErrLost is the cause of a guard whose quorum of votes is gone.
	ErrLost = errors.New("redlock: lock lost")
	// ErrHeldTooLong is the cause of a guard that has ended because it was held for as long as it was to be, by AtMost or
	// FixedLease. It does not match ErrLost: nothing went wrong with the votes.
	ErrHeldTooLong = errors.New("redlock: lock held too long")
	// ErrAtRisk says, from Guard.Risk, that a lock is held and may soon not be. It is the cause of nothing.
	ErrAtRisk = errors.New("redlock: lock at risk")
	// ErrAskedFor says, from Guard.Risk, that somebody asks for the lock and takes it over if it is not released: Grace. It
	// matches ErrAtRisk, too.
	ErrAskedFor error = &sentinel{"redlock: lock asked for", ErrAtRisk}
	// ErrTakenOver matches beside ErrLost where somebody else took the lock.
	ErrTakenOver = errors.New("redlock: lock taken over")
	// ErrReleased is the cause of a guard that was released.
	ErrReleased = errors.New("redlock: lock released")
	// ErrExported is the cause of a guard that was exported: it is for another process to resume, and not released.
	ErrExported = errors.New("redlock: lock exported")
	// ErrNotReleased comes from Do: fn has run, and no quorum of nodes has confirmed the release. It does not match
	// ErrNoQuorum, which says that fn never ran.
	ErrNotReleased = errors.New("redlock: lock not released")
	// ErrUpgrade says that Write was called with a context that comes from a read guard of the same reader-writer lock, which would
	// have to wait for itself. Nothing was asked.
	ErrUpgrade = errors.New("redlock: a reader cannot become a writer")
	// ErrInvalidOption says that an option or a name breaks a rule; the text names the value and the rule.
	ErrInvalidOption = errors.New("redlock: invalid option")
)

// What keeps an exported lock from being resumed, beside ErrNoQuorum, after which it may be tried again.
var (
	// ErrExportInvalid says that what was to be resumed is no exported lock: cut off, altered, of another version.
	ErrExportInvalid = errors.New("redlock: not an exported lock")
	// ErrExportForeign says that the lock is of other nodes or another KeyPrefix than the Locker's.
	ErrExportForeign = errors.New("redlock: exported lock of other nodes")
	// ErrExportUsed says that the lock was resumed before; or that it is gone although its lease has not run out, so that
	// somebody has released it, or deleted it.
	ErrExportUsed = errors.New("redlock: exported lock was resumed already")
	// ErrExportExpired says that the lock was not resumed before its lease ran out, or that it was taken over meanwhile, or
	// that too many nodes have restarted since.
	ErrExportExpired = errors.New("redlock: exported lock is gone")
)

// Why a node did not vote yes, inside a [*NodeError].
var (
	// ErrNodeTimeout says that the node did not answer in time. What it was asked may have been done.
	ErrNodeTimeout = node.ErrNodeTimeout
	// ErrNodeDown says that there is no connection to the node.
	ErrNodeDown = node.ErrNodeDown
	// ErrQuarantined says that the node grants nothing for now: it is new or lost its memory, and every lease it may
	// have forgotten has to run out; or our lease is longer than the nodes know of. The text says which.
	ErrQuarantined = node.ErrQuarantined
	// ErrUnsupportedNode says that the server cannot be a node: a Redis Cluster, a replica, a Sentinel, too old, or
	// the same server as another node.
	ErrUnsupportedNode = node.ErrUnsupportedNode
	// ErrDisagreement says that clients of one prefix do not agree on what must be the same for all.
	ErrDisagreement = node.ErrDisagreement
	// ErrClockOff says that the node's clock is too far from the others', or runs too fast or too slow.
	ErrClockOff = node.ErrClockOff
)

// HeldError is a node's refusal: who holds the lock there, and for how long the node keeps it by itself.
type HeldError struct {
	Name    string        // of several names (AcquireAll), which one; else empty
	Owner   string        // the holder's random id, or the waiter's
	Label   string        // the holder's
	Left    time.Duration // until the lease ends; 0 for a waiter, negative if the key has no TTL
	Kept    bool          // nobody holds the lock any more, but it is kept from others for so long: AtLeast, or LockDelay
	Waiting bool          // nobody holds the lock there, but Owner waits for it and is before us in line
}

func (e *HeldError) Error() string {
	if e.Name != "" {
		one := *e
		one.Name = ""
		return fmt.Sprintf("%q: %s", e.Name, one.Error())
	}
	if e.Waiting {
		return "free, but " + e.Owner + " is first in line"
	}
	if e.Kept {
		return fmt.Sprintf("not held any more, but kept for %v more by %s", rounded(e.Left), cmp.Or(printable(e.Label), "its last holder"))
	}
	if e.Owner == tombstone {
		return fmt.Sprintf("kept free for a displaced holder for %v more", rounded(e.Left))
	}
	if e.Left < 0 {
		return fmt.Sprintf("held by %s without an end: its key has no TTL", named(e.Owner, e.Label))
	}
	return fmt.Sprintf("held by %s, lease ends in %v", named(e.Owner, e.Label), rounded(e.Left))
}

// NodeError is what one node came to. It matches neither ErrNotLocked nor a context error: a context error in
// a chain of ours always means the caller's own context.
type NodeError struct {
	Addr string
	Err  error
}

func (e *NodeError) Error() string { return e.Addr + ": " + e.Err.Error() }
func (e *NodeError) Unwrap() error { return e.Err }

// QuorumError says how a vote over all nodes came out. It matches exactly one of ErrNotLocked, ErrNoQuorum, ErrLost,
// ErrNotReleased, and the end of the caller's context, before which it was the last to be known; and with ErrLost also
// ErrTakenOver where somebody else took the lock. It is always returned as *QuorumError.
type QuorumError struct {
	Name                 string // the lock's, or several with ", " between them; empty if it is NewLocker's or Status's error
	Votes, Quorum, Nodes int
	Errs                 []error // a *NodeError for each node that did not vote yes

	kind      error
	takenOver bool
	freed     bool   // it counts confirmations of a release
	slot      int    // of a semaphore, the last that was asked for; 0 for a lock
	unasked   string // why no node was asked
	verb      string // what the nodes do that it counts, where that is no vote on a lock
}

func (e *QuorumError) Error() string {
	kind := e.kind.Error()
	if e.takenOver {
		kind += " to another holder"
	}
	if e.unasked != "" {
		return fmt.Sprintf("%s: %q: no node was asked: %s", kind, e.Name, e.unasked)
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
	name := fmt.Sprintf("%q: ", e.Name)
	switch {
	case e.verb != "":
		name, verb = "", e.verb
	case e.slot > 0:
		name = fmt.Sprintf("%q, slot %d: ", e.Name, e.slot)
	}
	text := fmt.Sprintf("%s: %s%d of %d nodes %s, quorum is %d", kind, name, e.Votes, e.Nodes, verb, e.Quorum)
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

// waitEnded is the same of a wait that has come to something: it carries what the nodes said last, and says nothing
// about the lock.
func waitEnded(ctx context.Context, name string, last error) error {
	var qe *QuorumError
	if !errors.As(last, &qe) {
		return node.ContextEnded(ctx, name)
	}
	e := *qe
	e.kind, e.takenOver = node.ContextEnded(ctx, ""), false
	return &e
}
