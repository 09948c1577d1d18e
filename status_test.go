package redlock_test

import (
	"context"
	"encoding/json"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/redlock-go/redlock"
	"github.com/redlock-go/redlock/redlocktest"
)

// requests counts what the nodes have been asked so far.
func (s *schedule) requests() (n int) {
	for _, node := range s.cluster.Nodes() {
		for _, times := range node.Commands() {
			n += times
		}
	}
	return n
}

func TestStatusOfNodesThatAreWell(t *testing.T) {
	interleave(t, 3, func(t *testing.T, s *schedule) {
		s.cluster.Node(1).SkewClock(30 * time.Millisecond) // within ClockBound
		s.cluster.Node(2).SkewClock(-10 * time.Millisecond)
		a := s.open("a")
		s.link("a", 2).Delay(10*oneWay, 10*oneWay)
		g := tryAcquire(t, a, "x")
		ctx, cancel := context.WithCancel(context.Background())
		defer cancel()
		afterward(t, func() {
			_, err := a.Acquire(ctx, "x")
			assert.ErrorIs(t, err, context.Canceled)
		})
		time.Sleep(lease)

		asked := s.requests()
		began := time.Now()
		status := a.Status()
		require.Equal(t, began, time.Now())
		require.Equal(t, asked, s.requests(), "it asks no node")
		require.NoError(t, status.Err)
		require.Equal(t, []int{2, 3, 1, 1}, []int{status.Quorum, status.MayVote, status.Held, status.Waiting})
		require.Len(t, status.Nodes, 3)
		for i, n := range status.Nodes {
			require.Equal(t, s.cluster.Node(i).Addr(), n.Addr)
			require.True(t, n.Up && n.MayVote && n.Pushes, "%+v", n)
			require.NoError(t, n.Err)
		}
		require.Equal(t, 2*oneWay, status.Nodes[0].RoundTrip)
		require.Greater(t, status.Nodes[2].RoundTrip, 2*oneWay)
		require.InDelta(t, 30*time.Millisecond, status.Nodes[1].ClockOffset, float64(10*oneWay))
		require.Zero(t, status.Nodes[0].ClockOffset, "the median's own")
		_, err := json.Marshal(status)
		require.NoError(t, err)

		cancel()
		release(t, g)
		status = a.Status()
		require.Zero(t, status.Held)
		require.Zero(t, status.Waiting)
		a.Close()
		require.Equal(t, redlock.ErrLockerClosed, a.Status().Err)
		require.ErrorIs(t, (*redlock.Locker)(nil).Status().Err, redlock.ErrLockerClosed)
	})
}

// Each thing that can keep a node from voting is named, and counted once; what is left is said to be enough or not.
func TestStatusOfNodesThatCannotVote(t *testing.T) {
	step := func(n *redlocktest.Node) time.Duration { // one way and the other: two that are off alike are the median
		if n.Addr() == "node-0:6379" {
			return lease
		}
		return -lease
	}
	for name, row := range map[string]struct {
		spoil func(n *redlocktest.Node)
		up    bool
		want  error
		text  string
	}{
		"stopped":   {(*redlocktest.Node).Stop, false, redlock.ErrNodeDown, ""},
		"hanging":   {(*redlocktest.Node).Silence, false, nil, ""},
		"emptied":   {(*redlocktest.Node).CrashEmpty, true, redlock.ErrQuarantined, "grants nothing for"},
		"full":      {(*redlocktest.Node).FillMemory, true, nil, "OOM"},
		"off":       {func(n *redlocktest.Node) { n.StepClock(step(n)) }, true, redlock.ErrClockOff, "its votes do not count for"},
		"a replica": {func(n *redlocktest.Node) { n.SetInfo("role", "slave"); n.Cut() }, true, redlock.ErrUnsupportedNode, "replica"},
	} {
		t.Run(name, func(t *testing.T) {
			interleave(t, 3, func(t *testing.T, s *schedule) {
				a := s.open("a", quarantineOn, validity(4*lease))
				require.ErrorIs(t, a.Status().Err, redlock.ErrNoQuorum, "new nodes")
				require.ErrorIs(t, a.Status().Err, redlock.ErrQuarantined)
				require.NoError(t, a.Init(context.Background()))
				require.NoError(t, a.Status().Err)

				for spoiled := range 2 {
					n := s.cluster.Node(spoiled)
					row.spoil(n)
					time.Sleep(500 * time.Millisecond)
					if g, err := a.TryAcquire(context.Background(), "x"); err == nil {
						release(t, g)
					}
					time.Sleep(1500 * time.Millisecond)
					status := a.Status()
					require.Equal(t, 2-spoiled, status.MayVote)
					of := status.Nodes[spoiled]
					require.False(t, of.MayVote)
					require.Equal(t, row.up, of.Up)
					require.Equal(t, row.up, of.Pushes)
					require.ErrorContains(t, of.Err, row.text)
					if row.want != nil {
						require.ErrorIs(t, of.Err, row.want)
					}
					if spoiled == 0 {
						require.NoError(t, status.Err)
						continue
					}
					require.ErrorIs(t, status.Err, redlock.ErrNoQuorum)
					require.ErrorContains(t, status.Err, "redlock: no quorum: 1 of 3 nodes may vote, quorum is 2 (node-0:6379: ")
					var qe *redlock.QuorumError
					require.ErrorAs(t, status.Err, &qe)
					require.Len(t, qe.Errs, 2)
				}
			})
		})
	}
}

// A node that refuses client tracking votes, and does not push.
func TestStatusWithoutPushes(t *testing.T) {
	interleave(t, 3, func(t *testing.T, s *schedule) {
		s.cluster.Node(0).RefuseTracking()
		o := s.option("a")
		o.Nodes[1].DisableCache = true
		a, err := redlock.NewLocker(o)
		require.NoError(t, err)
		defer a.Close()
		time.Sleep(lease)
		status := a.Status()
		require.NoError(t, status.Err)
		require.Equal(t, 3, status.MayVote)
		for i, pushes := range []bool{false, false, true} {
			require.Equal(t, pushes, status.Nodes[i].Pushes, "node %d", i)
		}
	})
}

// Before anything has answered it says so.
func TestStatusBeforeTheFirstAnswer(t *testing.T) {
	interleave(t, 3, func(t *testing.T, s *schedule) {
		o := s.option("a")
		for _, n := range s.cluster.Nodes() {
			n.Silence()
		}
		a, err := redlock.NewLocker(o)
		require.NoError(t, err)
		defer a.Close()
		status := a.Status()
		require.ErrorIs(t, status.Err, redlock.ErrNoQuorum)
		require.Zero(t, status.MayVote)
		for _, n := range status.Nodes {
			require.Error(t, n.Err)
			require.False(t, n.Up)
			require.Zero(t, n.RoundTrip)
		}
	})
}
