package faults

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/redlock-go/redlock"
	"github.com/redlock-go/redlock/internal/redisproc"
)

// Nodes die one after the other, without a call that would find out; a probe is told of each, and of the lost quorum. They
// come back empty, are quarantined, and are well again after that.
func TestStatusFollowsTheNodes(t *testing.T) {
	t.Parallel()
	r := newRig(t, 3, redisproc.Options{})
	a := r.client("a")
	mayVote := func(want int) {
		t.Helper()
		r.eventually("so many may vote", func() bool { return a.Status().MayVote == want })
	}
	mayVote(3)
	require.NoError(t, a.Status().Err)
	require.NoError(t, r.nodes[0].Kill())
	mayVote(2)
	require.NoError(t, a.Status().Err)
	require.False(t, a.Status().Nodes[0].Up)
	require.NoError(t, r.nodes[1].Kill())
	mayVote(1)
	require.ErrorIs(t, a.Status().Err, redlock.ErrNoQuorum)
	require.NoError(t, r.nodes[0].CrashEmpty())
	r.eventually("quarantined", func() bool {
		n := a.Status().Nodes[0]
		return n.Up && !n.MayVote
	})
	require.ErrorIs(t, a.Status().Nodes[0].Err, redlock.ErrQuarantined)
	require.NoError(t, r.nodes[1].CrashEmpty())
	mayVote(3)
	require.NoError(t, a.Status().Err)
	r.settle("held")
}
