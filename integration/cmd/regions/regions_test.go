package main

import (
	"context"
	"fmt"
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
	took, err := w.open(t.Context(), redlock.LockerOption{KeyValidity: 5 * time.Second, NodeTimeout: time.Second, RestartQuarantine: time.Minute})
	require.NoError(t, err)
	require.Less(t, took, 20*time.Second, "Init must not wait for the quarantine's end")
	return w
}

func best(s samples) time.Duration { return slices.Min(s) }

func of(t *testing.T, figures []figure, what string) [2]samples {
	t.Helper()
	i := slices.IndexFunc(figures, func(f figure) bool { return f.what == what })
	require.GreaterOrEqual(t, i, 0, what)
	return figures[i].by
}

// bound is how long what is measured may take for one of the clients.
type bound struct {
	what   string
	client int
	below  time.Duration
}

// measured is what has been measured, again and again where a busy machine has held up each try so far. What takes longer by
// itself does so in every try.
func measured(t *testing.T, measure func(context.Context, int) ([]figure, error), bounds []bound) []figure {
	t.Helper()
	late := func(all []figure) (late []string) {
		for _, b := range bounds {
			if took := best(of(t, all, b.what)[b.client]); took >= b.below {
				late = append(late, fmt.Sprintf("%s, client %d: %v is not below %v", b.what, b.client, took, b.below))
			}
		}
		return late
	}
	var all []figure
	for range 8 {
		more, err := measure(context.Background(), 2)
		require.NoError(t, err)
		for i, f := range all {
			by := of(t, more, f.what)
			for client := range by {
				all[i].by[client] = append(f.by[client], by[client]...)
			}
		}
		if all == nil {
			all = more
		}
		if len(late(all)) == 0 {
			break
		}
	}
	require.Empty(t, late(all))
	return all
}

func TestTheThirdFastestAnswerDecides(t *testing.T) {
	t.Parallel()
	w := startWorld(t)
	deciding := []string{acquiring, releasing, refusing, extending}
	var bounds []bound
	for i, c := range w.clients {
		for _, what := range deciding {
			bounds = append(bounds, bound{what, i, third(c.trips) + busy})
		}
		// A hand-over comes through the nodes, not by asking again every now and then, let alone by the lease's end.
		bounds = append(bounds, bound{takingOver, i, time.Second}, bound{handingTo, i, 900 * time.Millisecond}, bound{handingOwn, i, 900 * time.Millisecond})
	}
	figures := measured(t, w.measure, bounds)
	for i, c := range w.clients {
		for _, what := range deciding {
			require.GreaterOrEqual(t, best(of(t, figures, what)[i]), third(c.trips)-time.Millisecond, "%s, %s", what, c.name)
		}
		// A takeover is a vote, and a holder that has to be told and to answer, through nodes.
		require.Greater(t, best(of(t, figures, takingOver)[i]), best(of(t, figures, displacing)[i]), "%s returns once the other has ended", c.name)
	}
}

func TestALostRegionCostsItsVote(t *testing.T) {
	t.Parallel()
	w := startWorld(t)
	for _, region := range []int{0, 4} { // the one next to A, and the farthest
		w.lose(region)
		var bounds []bound
		var thirds []time.Duration
		for i, c := range w.clients {
			left := slices.Delete(slices.Clone(c.trips), region, region+1)
			slices.Sort(left)
			thirds = append(thirds, left[2])
			bounds = append(bounds, bound{acquiring, i, left[2] + busy}, bound{takingOver, i, time.Second}, bound{handingTo, i, time.Second})
		}
		figures := measured(t, w.measureShort, bounds)
		for i, c := range w.clients {
			require.GreaterOrEqual(t, best(of(t, figures, acquiring)[i]), thirds[i]-time.Millisecond, "without region %d, %s", region+1, c.name)
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
