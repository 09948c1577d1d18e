package node

import (
	"context"
	"errors"
	"fmt"
	"net"
	"strings"
	"time"

	"github.com/redis/rueidis"
)

// Why a node did not vote yes, which a NodeError of the root package wraps.
var (
	// ErrNodeTimeout says that the node did not answer in time. What it was asked may have been done.
	ErrNodeTimeout = errors.New("no answer in time")
	// ErrNodeDown says that there is no connection to the node.
	ErrNodeDown = errors.New("not connected")
	// ErrQuarantined says that the node grants nothing for now: it is new or lost its memory, and every lease it may
	// have forgotten has to run out; or our lease is longer than the nodes know of. The text says which.
	ErrQuarantined = errors.New("quarantined")
	// ErrUnsupportedNode says that the server cannot be a node: a Redis Cluster, a replica, a Sentinel, too old, or
	// the same server as another node.
	ErrUnsupportedNode = errors.New("unsupported node")
	// ErrDisagreement says that clients of one prefix do not agree on what must be the same for all.
	ErrDisagreement = errors.New("clients disagree")
	// ErrClockOff says that the node's clock is too far from the others', or runs too fast or too slow.
	ErrClockOff = errors.New("clock is off")
)

// Rounded is a duration as a text should show it: three digits of it, in milliseconds or coarser units.
func Rounded(d time.Duration) time.Duration {
	switch size := d.Abs(); {
	case size >= 100*time.Second:
		return d.Round(time.Second)
	case size >= 10*time.Second:
		return d.Round(100 * time.Millisecond)
	case size >= time.Second:
		return d.Round(10 * time.Millisecond)
	case size >= 100*time.Millisecond:
		return d.Round(time.Millisecond)
	case size >= 10*time.Millisecond:
		return d.Round(100 * time.Microsecond)
	default:
		return d.Round(10 * time.Microsecond)
	}
}

// ContextEnded is the error of a wait whose context ended: it matches ctx.Err() and context.Cause(ctx).
func ContextEnded(ctx context.Context, name string) error {
	waiting := "redlock: waiting"
	if name != "" {
		waiting += fmt.Sprintf(" for %q", name)
	}
	err, cause := ctx.Err(), context.Cause(ctx)
	if errors.Is(cause, err) {
		return fmt.Errorf("%s: %w", waiting, cause)
	}
	return fmt.Errorf("%s: %w: %w", waiting, err, cause)
}

// ConnectionFault turns what rueidis reports about a connection into a node's error. The text is kept; a context error
// is not, since it never was the caller's.
func ConnectionFault(err error) error {
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

// Permanent reports whether asking again cannot help: somebody has to change something first.
func Permanent(err error) bool {
	if errors.Is(err, ErrUnsupportedNode) || errors.Is(err, ErrDisagreement) || errors.Is(err, errRights) || wrongTLS(err) {
		return true
	}
	var re *rueidis.RedisError
	if !errors.As(err, &re) {
		return false
	}
	for _, prefix := range []string{"NOPERM", "WRONGTYPE", "NOAUTH", "WRONGPASS", "No such master"} {
		if strings.HasPrefix(re.Error(), prefix) || strings.Contains(re.Error(), ": "+prefix) {
			return true
		}
	}
	return lacksRights(re.Error()) // what a script may not call: said in words alone
}

// errForgotten is what a node answers that does not know our scripts. Nothing was done.
var ErrForgotten = errors.New("it has forgotten the scripts, and is being looked at")

// errFormerServer is what an answer comes to that is older than the node's present server.
var errFormerServer = fmt.Errorf("%w: the answer came from the server that it was connected to before", ErrNodeDown)
