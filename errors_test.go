package redlock

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"testing"
	"time"

	"github.com/redis/rueidis/rueidislock"
	"github.com/stretchr/testify/require"

	"github.com/redlock-go/redlock/internal/node"
)

var kinds = []error{ErrNotLocked, ErrNoQuorum, ErrLost, ErrNotReleased}

func TestQuorumErrorMatchesExactlyOneKind(t *testing.T) {
	inside := []error{
		&NodeError{"a:1", &HeldError{Owner: "ABC", Left: time.Second}},
		&NodeError{"b:1", node.ConnectionFault(context.DeadlineExceeded)},
		&NodeError{"c:1", node.ConnectionFault(context.Canceled)},
	}
	for _, kind := range kinds {
		var err error = &QuorumError{Name: "n", Votes: 1, Quorum: 2, Nodes: 3, Errs: inside, kind: kind}
		for _, other := range kinds {
			require.Equal(t, kind == other, errors.Is(err, other), "%v as %v", kind, other)
		}
		require.NotErrorIs(t, err, ErrTakenOver)
		require.NotErrorIs(t, err, context.DeadlineExceeded)
		require.NotErrorIs(t, err, context.Canceled)
		require.Equal(t, kind == ErrNotLocked, errors.Is(err, rueidislock.ErrNotLocked))
		require.NotErrorIs(t, err, rueidislock.ErrLockerClosed)

		wrapped := fmt.Errorf("outside: %w", err)
		var qe *QuorumError
		ok := errors.As(wrapped, &qe)
		require.True(t, ok)
		require.Equal(t, 1, qe.Votes)
		var ne *NodeError
		ok = errors.As(wrapped, &ne)
		require.True(t, ok)
		require.Equal(t, "a:1", ne.Addr)
		var held *HeldError
		ok = errors.As(wrapped, &held)
		require.True(t, ok)
		require.Equal(t, "ABC", held.Owner)
		require.ErrorIs(t, wrapped, ErrNodeTimeout)
		require.ErrorIs(t, wrapped, ErrNodeDown)
	}
}

func TestTakenOverMatchesBesideLost(t *testing.T) {
	err := &QuorumError{kind: ErrLost, takenOver: true}
	require.ErrorIs(t, err, ErrLost)
	require.ErrorIs(t, err, ErrTakenOver)
	require.ErrorContains(t, err, "to another holder")
}

func TestQuorumErrorSaysTheNumbersAndTheNodes(t *testing.T) {
	err := &QuorumError{Name: "invoice:42", Votes: 2, Quorum: 3, Nodes: 5, kind: ErrNotLocked, Errs: []error{
		&NodeError{"a:6379", &HeldError{Owner: "ABC", Left: 1500 * time.Millisecond}},
		&NodeError{"b:6379", &HeldError{Owner: tombstone, Left: time.Second}},
		&NodeError{"c:6379", node.ConnectionFault(&net.OpError{Op: "dial", Err: errors.New("connection refused")})},
	}}
	require.Equal(t, `redlock: not locked: "invoice:42": 2 of 5 nodes vote yes, quorum is 3 (a:6379: held by ABC, lease ends in 1.5s; `+
		`b:6379: kept free for a displaced holder for 1s more; c:6379: not connected: dial: connection refused)`, err.Error())
}

func TestSentinelsMatchRueidislock(t *testing.T) {
	require.ErrorIs(t, ErrNotLocked, rueidislock.ErrNotLocked)
	require.ErrorIs(t, ErrLockerClosed, rueidislock.ErrLockerClosed)
	require.NotErrorIs(t, ErrNotLocked, ErrLockerClosed)
	for _, other := range []error{ErrNoQuorum, ErrLost, ErrTakenOver, ErrReleased, ErrNotReleased, ErrInvalidOption} {
		require.NotErrorIs(t, other, rueidislock.ErrNotLocked)
		require.NotErrorIs(t, other, rueidislock.ErrLockerClosed)
		require.ErrorContains(t, other, "redlock: ")
	}
}

func TestNodeFaultsMatchNoContextError(t *testing.T) {
	for _, row := range []struct {
		reason string
		err    error
		want   error
	}{
		{"rueidis' way of saying slow", context.DeadlineExceeded, ErrNodeTimeout},
		{"wrapped", fmt.Errorf("dial: %w", context.DeadlineExceeded), ErrNodeTimeout},
		{"a socket's", os.ErrDeadlineExceeded, ErrNodeTimeout},
		{"joined with another", errors.Join(io.EOF, context.DeadlineExceeded), ErrNodeTimeout},
		{"our own end", context.Canceled, ErrNodeDown},
		{"refused", &net.OpError{Op: "dial", Err: errors.New("connection refused")}, ErrNodeDown},
		{"hung up", io.EOF, ErrNodeDown},
	} {
		err := &NodeError{"a:1", node.ConnectionFault(row.err)}
		require.ErrorIs(t, err, row.want, row.reason)
		require.NotErrorIs(t, err, context.DeadlineExceeded, row.reason)
		require.NotErrorIs(t, err, context.Canceled, row.reason)
		require.NotErrorIs(t, err, ErrNotLocked, row.reason)
		require.ErrorContains(t, err, "a:1: ", row.reason)
		require.ErrorContains(t, err, row.err.Error(), "the text is kept: %s", row.reason)
	}
}

func TestEndedWaitMatchesErrAndCause(t *testing.T) {
	why := errors.New("shutting down")
	ctx, cancel := context.WithCancelCause(t.Context())
	cancel(why)
	err := node.ContextEnded(ctx, "invoice:42")
	require.ErrorIs(t, err, context.Canceled)
	require.ErrorIs(t, err, why)
	require.ErrorContains(t, err, "invoice:42")

	ctx, stop := context.WithTimeout(t.Context(), 0)
	defer stop()
	require.ErrorIs(t, node.ContextEnded(ctx, "x"), context.DeadlineExceeded)
}
