package redlock_test

import (
	"context"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/redlock-go/redlock"
	"github.com/redlock-go/redlock/internal/logtest"
	"github.com/redlock-go/redlock/redlocktest"
)

// Clocks and agreement: which nodes may vote, and who is told why not.

// simulated runs a test on simulated nodes a millisecond away, with virtual time. Lockers made by open are closed.
func simulated(t *testing.T, n int, test func(t *testing.T, c *redlocktest.Cluster, open func(client string, options ...optionFunc) *redlock.Locker)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		c := redlocktest.NewCluster(t, n, redlocktest.Jitter(time.Millisecond/2, time.Millisecond))
		test(t, c, func(client string, options ...optionFunc) *redlock.Locker {
			t.Helper()
			o := c.Client(client).Option()
			o.KeyValidity = time.Second
			for _, f := range options {
				f(&o)
			}
			l, err := redlock.NewLocker(o)
			require.NoError(t, err)
			t.Cleanup(l.Close)
			return l
		})
	})
}

type opener = func(client string, options ...optionFunc) *redlock.Locker

// requireOff asserts that a node's votes do not count: with two of three nodes like it there is no quorum.
func requireOff(t *testing.T, l *redlock.Locker, name string) {
	t.Helper()
	_, err := l.TryAcquire(context.Background(), name)
	require.ErrorIs(t, err, redlock.ErrNoQuorum)
	require.ErrorIs(t, err, redlock.ErrClockOff)
}

func TestJumpedClockDoesNotCountForALease(t *testing.T) {
	for _, step := range []time.Duration{time.Second, -time.Second, 60 * time.Millisecond, -time.Hour} {
		simulated(t, 3, func(t *testing.T, c *redlocktest.Cluster, open opener) {
			var log logtest.Log
			l := open("a", logTo(&log))
			release(t, tryAcquire(t, l, "x"))
			c.Node(0).StepClock(step)
			release(t, tryAcquire(t, l, "x")) // two others make a quorum
			require.Contains(t, log.String(), "clock")
			c.Node(1).Stop()
			time.Sleep(50 * time.Millisecond)
			requireOff(t, l, "x")
			c.Node(1).Start()
			c.Node(0).SkewClock(0)
			time.Sleep(time.Second)
			release(t, tryAcquire(t, l, "x")) // sees the clock step back
			time.Sleep(4 * time.Second)
			c.Node(2).Stop()
			time.Sleep(50 * time.Millisecond)
			release(t, tryAcquire(t, l, "x")) // right again, and a lease later
		})
	}
}

func TestStepWithinTheBoundIsSurvived(t *testing.T) {
	simulated(t, 3, func(t *testing.T, c *redlocktest.Cluster, open opener) {
		l := open("a")
		g := tryAcquire(t, l, "x")
		for _, n := range c.Nodes() {
			n.StepClock(49 * time.Millisecond) // ClockBound is a twentieth of the lease
		}
		time.Sleep(10 * time.Second)
		require.NoError(t, g.Err())
		release(t, g)
	})
}

// One who never saw the node before has nothing to compare with but the other nodes.
func TestNewcomerFindsTheJumpedClock(t *testing.T) {
	simulated(t, 3, func(t *testing.T, c *redlocktest.Cluster, open opener) {
		holder := open("a")
		g := tryAcquire(t, holder, "x")
		for _, l := range c.Client("a").Links() {
			l.SilenceReplies() // it keeps counting on its votes, and hears nothing
		}
		c.Node(0).StepClock(time.Hour) // its lease is gone there
		newcomer := open("b")
		_, err := newcomer.TryAcquire(context.Background(), "x")
		require.Error(t, err)
		require.NoError(t, g.Err())
	})
}

func TestClockOfAnotherRateIsFound(t *testing.T) {
	for _, rate := range []float64{0, .5, 1.5} {
		simulated(t, 3, func(t *testing.T, c *redlocktest.Cluster, open opener) {
			var log logtest.Log
			l := open("a", logTo(&log))
			g := tryAcquire(t, l, "x")
			c.Node(1).SetClockRate(rate)
			time.Sleep(5 * time.Second)
			require.NoError(t, g.Err(), "the others are a quorum")
			require.Contains(t, log.String(), "runs wrong", "rate %v", rate)
			c.Node(2).Stop()
			time.Sleep(50 * time.Millisecond)
			requireOff(t, l, "y")
		})
	}
}

func TestDriftWithinTheBoundIsNoFault(t *testing.T) {
	simulated(t, 3, func(t *testing.T, c *redlocktest.Cluster, open opener) {
		var log logtest.Log
		l := open("a", logTo(&log))
		g := tryAcquire(t, l, "x")
		for _, n := range c.Nodes() {
			n.SetClockRate(1.083) // the fastest that NTP daemons slew
		}
		time.Sleep(time.Minute)
		require.NoError(t, g.Err())
		require.NotContains(t, log.String(), "clock")
	})
}

func TestLeaseWithoutAnEndIsCutToTheLongest(t *testing.T) {
	simulated(t, 1, func(t *testing.T, c *redlocktest.Cluster, open opener) {
		l := open("a", func(o *redlock.LockerOption) { o.MaxKeyValidity = 3 * time.Second })
		for _, lease := range []time.Duration{0, time.Hour} {
			c.Node(0).Set("redlock:{x}", "stranger", lease)
			_, err := l.TryAcquire(context.Background(), "x")
			require.ErrorIs(t, err, redlock.ErrNotLocked)
			left, leased := c.Node(0).PTTL("redlock:{x}")
			require.True(t, leased)
			require.LessOrEqual(t, left, 3*time.Second)
			require.Greater(t, left, 2900*time.Millisecond)
			time.Sleep(4 * time.Second)
			release(t, tryAcquire(t, l, "x"))
		}
	})
}

func TestEvictingNodeIsWarnedOf(t *testing.T) {
	simulated(t, 3, func(t *testing.T, c *redlocktest.Cluster, open opener) {
		c.Node(1).SetInfo("maxmemory", "1000000")
		c.Node(1).SetInfo("maxmemory_policy", "allkeys-lru")
		var log logtest.Log
		l := open("a", logTo(&log))
		require.Contains(t, log.String(), "may evict locks")
		require.Contains(t, log.String(), "allkeys-lru")
		require.Contains(t, log.String(), c.Node(1).Addr())
		release(t, tryAcquire(t, l, "x")) // warned, not refused
	})
}

func TestDisagreeingClients(t *testing.T) {
	disagree := func(t *testing.T, o redlock.LockerOption, says ...string) {
		t.Helper()
		l, err := redlock.NewLocker(o)
		if err == nil {
			defer l.Close()
			_, err = l.TryAcquire(context.Background(), "x")
		}
		require.ErrorIs(t, err, redlock.ErrDisagreement)
		for _, s := range says {
			require.ErrorContains(t, err, s)
		}
	}
	t.Run("number of nodes", func(t *testing.T) {
		simulated(t, 5, func(t *testing.T, c *redlocktest.Cluster, open opener) {
			open("a")
			o := c.Client("b").Option()
			o.KeyValidity, o.Nodes = time.Second, o.Nodes[:2]
			disagree(t, o, "2 of 5 nodes", "quorum is 3", "it is a member of the set, and is not among the Nodes listed here")
			c.Node(3).Stop()
			c.Node(4).Stop()
			o = c.Client("c").Option()
			o.KeyValidity, o.Nodes = time.Second, o.Nodes[:3]
			l, err := redlock.NewLocker(o)
			require.NoError(t, err, "three of the five members")
			defer l.Close()
			release(t, tryAcquire(t, l, "x"))
			c.Node(2).Stop()
			time.Sleep(50 * time.Millisecond)
			_, err = l.TryAcquire(context.Background(), "x")
			require.ErrorContains(t, err, "of 5 nodes vote yes, quorum is 3")
		})
	})
	t.Run("quarantine", func(t *testing.T) {
		simulated(t, 3, func(t *testing.T, c *redlocktest.Cluster, open opener) {
			open("a")
			o := c.Client("b").Option()
			o.RestartQuarantine = 0
			disagree(t, o, "is on here", "says off")
		})
	})
	t.Run("two sets", func(t *testing.T) {
		simulated(t, 3, func(t *testing.T, c *redlocktest.Cluster, open opener) {
			l := open("a")
			release(t, tryAcquire(t, l, "x"))
			l.Close()
			time.Sleep(5 * time.Second)
			for _, i := range []int{0, 1} {
				raw, _ := c.Node(i).Get("redlock:marker")
				fields := strings.Split(raw, ":")
				fields[5] = "ANOTHERSET" + fields[5][10:]
				c.Node(i).Set("redlock:marker", strings.Join(fields, ":"), 0)
			}
			disagree(t, c.Client("b").Option(), "ANOTHERSET", "different sets were mixed")
		})
	})
	t.Run("a longer lease than the set allows", func(t *testing.T) {
		simulated(t, 3, func(t *testing.T, c *redlocktest.Cluster, open opener) {
			a := open("a")
			time.Sleep(3 * time.Second)
			o := c.Client("b").Option()
			o.KeyValidity = 4 * time.Second
			disagree(t, o, "a lease of 4s is longer than 1s", "SetNodes with LongestLease raises it")
			start := time.Now()
			require.NoError(t, a.SetNodes(context.Background(), redlock.NodeSet{LongestLease: 4 * time.Second}))
			release(t, tryAcquire(t, a, "x"))
			release(t, tryAcquire(t, open("b", validity(4*time.Second)), "x"))
			require.Less(t, time.Since(start), time.Second, "raising it waits for nothing")
		})
	})
}

// Node 1's clock is ahead, within the bound, when the set is made, and its floor is the first token. Node 0 forgets at once, and
// is taken back by what one of the others says: its tokens must start above. The bound is wide, so that the time that this takes
// is not above that floor by itself.
func TestTokenRisesAboveTheFloorsOfOthers(t *testing.T) {
	wide := func(o *redlock.LockerOption) { o.ClockBound = time.Second }
	for _, unread := range []int{1, 2} {
		simulated(t, 3, func(t *testing.T, c *redlocktest.Cluster, open opener) {
			c.Node(1).StepClock(900 * time.Millisecond)
			a := open("a", quarantineOn, validity(4*time.Second), wide)
			require.NoError(t, a.Init(context.Background()))
			c.Node(2).Stop()
			g := tryAcquire(t, a, "x")
			token := g.FencingToken()
			release(t, g)
			c.Node(unread).Stop()
			c.Node(3 - unread).Start()
			c.Node(0).CrashEmpty()
			b := open("b", quarantineOn, validity(4*time.Second), wide)
			time.Sleep(3600 * time.Millisecond) // taken back, and still quarantined
			if unread == 2 {
				c.Node(2).Start()
				c.Node(1).Stop()
			}
			g, err := b.Acquire(context.Background(), "x")
			require.NoError(t, err)
			require.Greater(t, g.FencingToken(), token)
			release(t, g)
		})
	}
}
