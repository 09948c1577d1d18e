package main

import (
	"context"
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"

	"github.com/redlock-go/redlock"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// busy is what a machine that does other things may add. Bounds are on the best of some tries: this is about which
// answers are waited for, not about speed.
const busy = 60 * time.Millisecond

func startWorld(t *testing.T) *world {
	t.Helper()
	w, err := newWorld()
	require.NoError(t, err)
	t.Cleanup(w.close)
	took, err := w.open(t.Context(), redlock.LockerOption{KeyValidity: 5 * time.Second, NodeTimeout: time.Second})
	require.NoError(t, err)
	require.Less(t, took, 4*time.Second, "Init must not wait for the quarantine's end")
	return w
}

func best(s samples) time.Duration { return slices.Min(s) }

func of(t *testing.T, figures []figure, what string) [2]samples {
	t.Helper()
	i := slices.IndexFunc(figures, func(f figure) bool { return f.what == what })
	require.GreaterOrEqual(t, i, 0, what)
	return figures[i].by
}

func TestTheThirdFastestAnswerDecides(t *testing.T) {
	t.Parallel()
	w := startWorld(t)
	figures, err := w.measure(context.Background(), 2)
	require.NoError(t, err)
	for _, what := range []string{acquiring, releasing, refusing, extending} {
		by := of(t, figures, what)
		for i, c := range w.clients {
			require.GreaterOrEqual(t, best(by[i]), third(c.trips)-time.Millisecond, "%s, %s", what, c.name)
			require.Less(t, best(by[i]), third(c.trips)+busy, "%s, %s", what, c.name)
		}
	}
	// A takeover is a vote, and a holder that has to be told and to answer, through nodes.
	taken, displaced := of(t, figures, takingOver), of(t, figures, displacing)
	for i, c := range w.clients {
		require.Greater(t, best(taken[i]), best(displaced[i]), "%s returns once the other has ended", c.name)
		require.Less(t, best(taken[i]), time.Second)
	}
	// A hand-over comes through the nodes, not by asking again every now and then, let alone by the lease's end.
	for _, what := range []string{handingTo, handingOwn} {
		by := of(t, figures, what)
		require.Less(t, best(by[0]), 900*time.Millisecond, what)
		require.Less(t, best(by[1]), 900*time.Millisecond, what)
	}
}

func TestALostRegionCostsItsVote(t *testing.T) {
	t.Parallel()
	w := startWorld(t)
	for _, region := range []int{0, 4} { // the one next to A, and the farthest
		w.lose(region)
		figures, err := w.measureShort(context.Background(), 2)
		require.NoError(t, err)
		for i, c := range w.clients {
			left := slices.Delete(slices.Clone(c.trips), region, region+1)
			slices.Sort(left)
			got := best(of(t, figures, acquiring)[i])
			require.GreaterOrEqual(t, got, left[2]-time.Millisecond, "without region %d, %s", region+1, c.name)
			require.Less(t, got, left[2]+busy, "without region %d, %s", region+1, c.name)
			require.Less(t, best(of(t, figures, takingOver)[i]), time.Second)
			require.Less(t, best(of(t, figures, handingTo)[i]), time.Second)
		}
		w.restore(region)
		require.NoError(t, w.settle(context.Background()))
	}
}

func TestPartitionEndsTheMinoritysLockBeforeTheMajorityHasIt(t *testing.T) {
	t.Parallel()
	w := startWorld(t)
	events, err := w.partition(context.Background()) // which checks the order and the tokens
	require.NoError(t, err)
	after := make(map[string]time.Duration)
	for _, e := range events {
		after[e.what] = e.after
	}
	require.Less(t, after[aEnds], after[bServed])
	require.Less(t, after[aEnds], 5*time.Second)
	require.Less(t, after[bServed], 12*time.Second)
}
