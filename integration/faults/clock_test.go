package faults

import (
	"fmt"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/redlock-go/redlock"
	"github.com/redlock-go/redlock/internal/netproxy"
	"github.com/redlock-go/redlock/internal/redisproc"
)

// bound is ClockBound as it follows from the lease.
const bound = lease / 20

func clocked(t *testing.T) *rig {
	r := newRig(t, 5, redisproc.Options{Clock: true})
	r.unseen = true // what MONITOR says of the time, and what the script saw, are before and after a step
	return r
}

// Row 14: a node's clock steps forward by less than ClockBound: the margin covers it, also where every vote counts.
func TestRow14StepWithinTheBound(t *testing.T) {
	t.Parallel()
	r := clocked(t)
	a, b := r.client("a"), r.client("b")
	a.cutOff(3, 4)
	g := a.mustTry("held")
	for range 3 {
		r.nodes[2].Clock().Step(bound * 6 / 10)
		r.requireHeldFor(g, lease/2)
		_, err := b.try("held")
		require.ErrorIs(t, err, redlock.ErrNotLocked)
		r.nodes[2].Clock().Step(-bound * 6 / 10)
		r.requireHeldFor(g, lease/2)
	}
	a.silence(netproxy.Both, 0, 1, 2)
	r.nodes[2].Clock().Step(bound * 6 / 10)
	next := b.wait("held", lease+soon)
	require.Error(t, g.Err())
	r.release(next)
	a.heal()
	r.settle("held")
}

// Row 14: one node's clock jumps while the lock is held: that vote is gone, the others stand.
func TestRow14JumpOfOneNode(t *testing.T) {
	for _, step := range []time.Duration{bound * 3, lease + time.Second, time.Hour, -time.Hour} {
		t.Run(step.String(), func(t *testing.T) {
			t.Parallel()
			r := clocked(t)
			a, b := r.client("a"), r.client("b")
			g := a.mustTryOnAll("held")
			r.nodes[1].Clock().Step(step)
			r.requireHeldFor(g, lease+lease/2)
			_, err := b.try("held")
			require.ErrorIs(t, err, redlock.ErrNotLocked)
			_, err = r.client("c").try("held")
			require.ErrorIs(t, err, redlock.ErrNotLocked)
			r.release(g)
			r.release(b.mustTry("held"))
			r.nodes[1].Clock().Reset()
			r.settle("held")
		})
	}
}

// Row 14 at its worst, Kleppmann's: the lock is on 0, 1, 2 alone, 2 jumps and forgets it, and its holder, cut off,
// cannot know. The vote of 2 must not count for anybody, nor for one who has never seen it before.
func TestRow14JumpOfTheDecidingNode(t *testing.T) {
	for _, step := range []time.Duration{lease + time.Second, time.Hour} {
		t.Run(step.String(), func(t *testing.T) {
			t.Parallel()
			r := clocked(t)
			r.forgetting(func() {
				r.nodes[2].Clock().Step(step)
				r.eventually("node 2 forgot", func() bool { return !r.stored(r.nodes[2], "held") })
			})
			r.nodes[2].Clock().Reset()
			r.settle("held")
		})
	}
}

// Row 15: clocks go back by an hour while a holder is dead: its keys would stand for that hour. Whoever is refused
// cuts them to the longest lease.
func TestRow15ClocksGoBack(t *testing.T) {
	for _, nodes := range []int{1, 3, 5} {
		t.Run(fmt.Sprintf("%d nodes", nodes), func(t *testing.T) {
			t.Parallel()
			r := clocked(t)
			a, b := r.client("a"), r.client("b")
			g := a.mustTry("held")
			a.silence(netproxy.Both, 0, 1, 2, 3, 4)
			for _, n := range r.nodes[:nodes] {
				n.Clock().Step(-time.Hour)
			}
			start := time.Now()
			// A node is trusted again a lease after its step; its marker then lies an hour ahead, so it is adopted anew,
			// which is another lease. That a waiter may give up meanwhile, without a quorum for a lease, is its contract.
			next := b.tryFor("held", 2*lease+time.Second+soon)
			t.Logf("served %v after %d clocks went back", time.Since(start), nodes)
			require.Error(t, g.Err())
			require.Greater(t, next.FencingToken(), g.FencingToken())
			r.release(next)
			a.heal()
			if nodes == len(r.nodes) {
				// One that is adopted later than others on a busy machine would not be asked for the lock, and keep the dead one's key.
				r.eventually("all vote again", func() bool { return b.Status().MayVote == len(r.nodes) })
			}
			r.settle("held")
		})
	}
}

// Row 16: a clock jumps forward and back between two looks. A documented residual: nobody can see it but by the push
// that the lost key causes. One node costs one vote; the tokens rise whatever happens.
func TestRow16ForthAndBack(t *testing.T) {
	t.Parallel()
	r := clocked(t)
	a, b := r.client("a"), r.client("b")
	a.connected()
	g := a.mustTryOnAll("held")
	for i := range 2 {
		r.nodes[i].Clock().Step(time.Hour)
		r.eventually("forgotten", func() bool { return !r.stored(r.nodes[i], "held") })
		r.nodes[i].Clock().Step(-time.Hour)
	}
	r.requireHeldFor(g, lease)
	_, err := b.try("held")
	require.ErrorIs(t, err, redlock.ErrNotLocked)
	last := g.FencingToken()
	r.release(g)
	for i := range r.nodes {
		r.nodes[i].Clock().Step(time.Hour)
		next := b.tryFor("held", lease+soon)
		require.Greater(t, next.FencingToken(), last)
		last = next.FencingToken()
		r.nodes[i].Clock().Step(-time.Hour)
		r.history.Release(t.Context(), next)
	}
	r.settle("held")
}

// Row 17: clocks that run fast or slow, as NTP daemons slew them (8 %) and to the edge of the drift (10 %). Locks hold,
// and a dead holder's guard ends before its keys do.
func TestRow17Slew(t *testing.T) {
	for _, percent := range []int{8, -8, 10, -10} {
		for _, nodes := range []int{1, 5} {
			t.Run(fmt.Sprintf("%d nodes %+d percent", nodes, percent), func(t *testing.T) {
				t.Parallel()
				r := clocked(t)
				a, b := r.client("a"), r.client("b")
				for _, n := range r.nodes[2 : 2+min(nodes, 3)] {
					n.Clock().SetRate(1 + float64(percent)/100)
				}
				if nodes == 5 {
					for _, n := range r.nodes[:2] {
						n.Clock().SetRate(1 + float64(percent)/100)
					}
				}
				a.cutOff(3, 4)
				g := a.tryFor("held", lease+soon)
				r.requireHeldFor(g, lease)
				_, err := b.try("held")
				require.Error(t, err)
				a.silence(netproxy.Both, 0, 1, 2)
				next := b.wait("held", 2*lease+soon)
				require.Error(t, g.Err())
				require.Greater(t, next.FencingToken(), g.FencingToken())
				r.release(next)
				a.heal()
				for _, n := range r.nodes {
					n.Clock().Reset()
				}
				r.settle("held")
			})
		}
	}
}

// Row 18: clocks that stand still. One costs its vote; a quorum of them can give no lock at all, because no lease
// would ever end there.
func TestRow18Stopped(t *testing.T) {
	t.Parallel()
	r := clocked(t)
	a, b := r.client("a"), r.client("b")
	g := a.mustTry("held")
	r.nodes[0].Clock().Stop()
	r.requireHeldFor(g, lease+lease/2)
	r.release(b.mustTry("other"))
	r.release(g)

	r.nodes[1].Clock().Stop()
	r.nodes[2].Clock().Stop()
	var err error
	r.eventually("three stopped clocks are seen", func() bool {
		g, e := a.try("held")
		if e == nil {
			r.history.Release(t.Context(), g)
			return false
		}
		err = e
		return true
	})
	require.ErrorIs(t, err, redlock.ErrNoQuorum)
	require.ErrorIs(t, err, redlock.ErrClockOff)
	for _, n := range r.nodes {
		n.Clock().Reset()
	}
	r.settle("held", "other")
}

// Row 19: the client's wall clock is an hour off the nodes', either way. The library takes no wall clock of its own:
// proposals are the nodes' time, so tokens follow that, and leases are counted on the monotonic clock.
func TestRow19ClientClockOff(t *testing.T) {
	for _, skew := range []time.Duration{time.Hour, -time.Hour} {
		t.Run(skew.String(), func(t *testing.T) {
			t.Parallel()
			r := clocked(t)
			first := r.client("first").mustTry("held")
			r.release(first)
			for _, n := range r.nodes {
				n.Clock().Step(skew)
			}
			a := r.client("a") // knows nothing of before
			g := a.mustTry("held")
			require.Greater(t, g.FencingToken(), first.FencingToken())
			r.requireHeldFor(g, lease)
			node, err := strconv.ParseUint(strings.SplitN(r.do(r.nodes[0], "TIME"), "\n", 2)[0], 10, 64)
			require.NoError(t, err)
			if skew > 0 {
				require.InDelta(t, float64(node), float64(g.FencingToken()/1e6), 60, "token is not in node time")
			}
			a.silence(netproxy.Both, 0, 1, 2)
			next := r.client("b").wait("held", lease+soon)
			require.Greater(t, next.FencingToken(), g.FencingToken())
			r.release(next)
			a.heal()
			r.settle("held")
		})
	}
}
