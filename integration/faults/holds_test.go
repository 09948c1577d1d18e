package faults

import (
	"context"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/redlock-go/redlock"
	"github.com/redlock-go/redlock/internal/netproxy"
	"github.com/redlock-go/redlock/internal/redisproc"
)

// A holder with AtLeast is cut off from all nodes, and a minority of them loses its memory. Nobody has the lock before that
// time is over, although the holder's lease has long run out; then somebody has, with a larger token.
func TestAtLeastOutlivesItsHolderAndAMinority(t *testing.T) {
	t.Parallel()
	r := newRig(t, 5, redisproc.Options{})
	a, b := r.client("a"), r.client("b")
	const atLeast = 3 * lease
	began := time.Now()
	g, err := a.TryAcquire(context.Background(), "tick", redlock.AtLeast(atLeast))
	require.NoError(t, err)
	r.eventually("all votes", func() bool { return r.storing("tick") == len(r.nodes) })
	a.silence(netproxy.Both, 0, 1, 2, 3, 4)
	for _, n := range r.nodes[:2] {
		r.do(n, "FLUSHALL")
	}
	next := b.tryFor("tick", atLeast+soon)
	require.GreaterOrEqual(t, time.Since(began), atLeast)
	require.ErrorIs(t, g.Err(), redlock.ErrLost)
	require.Greater(t, next.FencingToken(), g.FencingToken())
	r.release(next)
	a.heal()
	r.settle("tick")
}
