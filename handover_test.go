package redlock_test

import (
	"context"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/redlock-go/redlock"
	"github.com/redlock-go/redlock/redlocktest"
)

// export has a Locker take lock x on all nodes and export it.
func (s *schedule) export(l *redlock.Locker, options ...redlock.HoldOption) (g *redlock.Guard, exported []byte) {
	s.Helper()
	g, err := l.TryAcquire(context.Background(), "x", options...)
	require.NoError(s, err)
	time.Sleep(10 * oneWay)
	require.Equal(s, s.cluster.Len(), g.Votes())
	exported, err = g.Export()
	require.NoError(s, err)
	return g, exported
}

// requireUndisturbed looks at a guard for two leases, after which it has all votes.
func (s *schedule) requireUndisturbed(g *redlock.Guard) {
	s.Helper()
	requireHeldFor(s, g, 2*lease)
	require.Equal(s, s.cluster.Len(), g.Votes())
}

// Schedule: a exports, b resumes: the same token, never held by anybody else, and extended from then on.
func TestScheduleLockIsHandedOver(t *testing.T) {
	interleave(t, 3, func(t *testing.T, s *schedule) {
		a, b, c := s.open("a"), s.open("b"), s.open("c")
		g := acquire(t, a, "x")
		afterward(t, func() {
			next, err := c.Acquire(context.Background(), "x")
			if err == nil {
				next.Release(context.Background())
			}
		})
		time.Sleep(lease / 4)
		exported, err := g.Export()
		require.NoError(t, err)
		require.Equal(t, redlock.ErrExported, g.Err())
		require.Equal(t, redlock.ErrExported, context.Cause(g.Context()))
		require.Equal(t, redlock.ErrExported, g.Release(context.Background()))
		_, err = g.Export()
		require.Equal(t, redlock.ErrExported, err)
		time.Sleep(lease / 2)
		require.NotEmpty(t, s.stored()[0], "nobody has released it")

		resumed, err := b.Resume(context.Background(), exported)
		require.NoError(t, err)
		require.Equal(t, "x", resumed.Name())
		require.Equal(t, g.FencingToken(), resumed.FencingToken())
		require.Equal(t, g.Owner()[:16], resumed.Owner()[:16])
		require.NotEqual(t, g.Owner(), resumed.Owner())
		requireHeldFor(t, resumed, 3*lease)
		require.Equal(t, 3, resumed.Votes())
		release(t, resumed)
		require.Equal(t, 0, a.OpenGuards())
	})
}

// Schedule: the exporter's program ends at once, as one does that replaces itself. Close releases nothing of what it has exported.
func TestScheduleExporterIsClosed(t *testing.T) {
	interleave(t, 3, func(t *testing.T, s *schedule) {
		a, b := s.open("a"), s.open("b")
		_, exported := s.export(a)
		closing := time.Now()
		a.Close()
		require.Less(t, time.Since(closing), lease/10, "nothing is waited for")
		time.Sleep(lease / 4)
		g, err := b.Resume(context.Background(), exported)
		require.NoError(t, err)
		s.requireUndisturbed(g)
	})
}

// Schedule: a renewal is on its way to each node when the lock is exported, and comes before or after it has been resumed.
func TestScheduleRenewalOnItsWayOutlivesTheExport(t *testing.T) {
	for name, late := range map[string]time.Duration{"before": 20 * time.Millisecond, "after": 200 * time.Millisecond} {
		t.Run(name, func(t *testing.T) {
			interleave(t, 3, func(t *testing.T, s *schedule) {
				a, b := s.open("a"), s.open("b")
				g := acquire(t, a, "x")
				time.Sleep(10 * oneWay)
				for i := range 3 {
					s.link("a", i).Delay(late, oneWay)
				}
				time.Sleep(lease / 3)
				exported, err := g.Export()
				require.NoError(t, err)
				time.Sleep(100 * time.Millisecond)
				resumed, err := b.Resume(context.Background(), exported)
				require.NoError(t, err)
				s.requireUndisturbed(resumed)
				require.Zero(t, a.OpenGuards())
			})
		})
	}
}

// Of any number that resume one export at the same time at most one holds the lock; and one does where the others are not
// as fast everywhere. Who comes after that disturbs nobody.
func TestScheduleExportIsResumedOnce(t *testing.T) {
	for _, nodes := range []int{1, 3, 5} {
		for _, fastest := range []bool{true, false} {
			interleave(t, nodes, func(t *testing.T, s *schedule) {
				a := s.open("a")
				rivals := []*redlock.Locker{s.open("b"), s.open("c"), s.open("d")}
				for r, host := range []string{"b", "c", "d"} {
					for i := range nodes {
						way := oneWay + time.Duration(r)*oneWay
						if !fastest { // each is the first on another node
							way = oneWay + time.Duration((i+r)%3)*oneWay
						}
						s.link(host, i).Delay(way, oneWay)
					}
				}
				g, exported := s.export(a)
				guards := make(chan *redlock.Guard, len(rivals))
				for _, l := range rivals {
					go func() {
						g, err := l.Resume(context.Background(), exported)
						if err != nil {
							assert.ErrorIs(t, err, redlock.ErrExportUsed)
							assert.NotErrorIs(t, err, redlock.ErrNotLocked)
						}
						guards <- g
					}()
				}
				var resumed *redlock.Guard
				for range rivals {
					if g := <-guards; g != nil {
						require.Nil(t, resumed, "two of them")
						resumed = g
					}
				}
				if fastest || nodes == 1 {
					require.NotNil(t, resumed)
				}
				if resumed == nil {
					time.Sleep(lease / 10) // what they got is given back
					require.NotContains(t, s.stored(), "", "nothing is lost: one of them may try again")
					resumed, _ = rivals[0].Resume(context.Background(), exported)
					require.NotNil(t, resumed)
				}
				for _, l := range rivals {
					_, err := l.Resume(context.Background(), exported)
					require.ErrorIs(t, err, redlock.ErrExportUsed)
				}
				require.Equal(t, g.FencingToken(), resumed.FencingToken())
				s.requireUndisturbed(resumed)

				again, err := resumed.Export()
				require.NoError(t, err)
				third, err := a.Resume(context.Background(), again)
				require.NoError(t, err)
				for _, old := range [][]byte{exported, again} {
					_, err = rivals[0].Resume(context.Background(), old)
					require.ErrorIs(t, err, redlock.ErrExportUsed, "by whoever has it in the third hand")
				}
				s.requireUndisturbed(third)
				exported, err = third.Export()
				require.NoError(t, err)
				resumed, err = rivals[0].Resume(context.Background(), exported)
				require.NoError(t, err)
				release(t, resumed)
				_, err = rivals[1].Resume(context.Background(), exported)
				require.ErrorIs(t, err, redlock.ErrExportUsed, "and released: it is gone before its lease was over")
			})
		}
	}
}

// What is gone is not resumed, and whoever has it now is not disturbed.
func TestScheduleExportThatIsGone(t *testing.T) {
	for name, row := range map[string]struct {
		then func(t *testing.T, s *schedule, c *redlock.Locker) *redlock.Guard
		want error
	}{
		"expired": {func(t *testing.T, s *schedule, c *redlock.Locker) *redlock.Guard {
			time.Sleep(lease + 10*time.Millisecond)
			return nil
		}, redlock.ErrExportExpired},
		"expired, and acquired": {func(t *testing.T, s *schedule, c *redlock.Locker) *redlock.Guard {
			return acquire(t, c, "x")
		}, redlock.ErrExportExpired},
		"taken over": {func(t *testing.T, s *schedule, c *redlock.Locker) *redlock.Guard {
			g, err := c.ForceAcquireNow(context.Background(), "x")
			require.NoError(t, err)
			return g
		}, redlock.ErrExportExpired},
		"taken over, and released": {func(t *testing.T, s *schedule, c *redlock.Locker) *redlock.Guard {
			g, err := c.ForceAcquireNow(context.Background(), "x")
			require.NoError(t, err)
			release(t, g)
			return nil
		}, redlock.ErrExportExpired},
		"deleted": {func(t *testing.T, s *schedule, c *redlock.Locker) *redlock.Guard {
			for _, n := range s.cluster.Nodes() {
				n.Del(lockX)
			}
			return nil
		}, redlock.ErrExportUsed},
		"deleted on a quorum": {func(t *testing.T, s *schedule, c *redlock.Locker) *redlock.Guard {
			s.cluster.Node(0).Del(lockX)
			s.cluster.Node(2).Del(lockX)
			return nil
		}, redlock.ErrExportUsed},
		"on nodes that restarted": {func(t *testing.T, s *schedule, c *redlock.Locker) *redlock.Guard {
			s.cluster.Node(0).Restart() // with its data
			s.cluster.Node(2).Restart()
			time.Sleep(lease / 2)
			return nil
		}, redlock.ErrExportExpired},
	} {
		t.Run(name, func(t *testing.T) {
			interleave(t, 3, func(t *testing.T, s *schedule) {
				a, b, c := s.open("a"), s.open("b"), s.open("c")
				_, exported := s.export(a)
				now := row.then(t, s, c)
				_, err := b.Resume(context.Background(), exported)
				require.ErrorIs(t, err, row.want)
				require.NotErrorIs(t, err, redlock.ErrNoQuorum)
				if now != nil {
					s.requireUndisturbed(now)
					return
				}
				time.Sleep(lease / 10)
				if row.want == redlock.ErrExportUsed {
					release(t, tryAcquire(t, c, "x")) // what it found left it has given back
				}
			})
		})
	}
}

// Schedule: one node restarts between export and resume; its vote is won back later.
func TestScheduleExportOutlivesAMinority(t *testing.T) {
	interleave(t, 3, func(t *testing.T, s *schedule) {
		a, b := s.open("a"), s.open("b")
		_, exported := s.export(a)
		s.cluster.Node(1).Restart()
		time.Sleep(lease / 4)
		for _, i := range []int{0, 2} { // what comes once the lock is held is won back at once
			s.link("b", i).Delay(oneWay, 2*oneWay)
		}
		g, err := b.Resume(context.Background(), exported)
		require.NoError(t, err)
		require.Equal(t, 2, g.Votes())
		s.requireUndisturbed(g)
	})
}

// Schedule: a's vote on node 2 is gone, and a renewal that is to win it back is on its way there when a exports. The key on
// node 0 is deleted; c gets the lock on 0 and 2, and releases. Then the renewal comes to node 2 and stores a's owner again.
// By what the nodes store a quorum has the exporter's owner; but c has held the lock in between.
func TestScheduleResumedLockWasNeverHeldByAnother(t *testing.T) {
	interleave(t, 3, func(t *testing.T, s *schedule) {
		a, b, c := s.open("a"), s.open("b"), s.open("c")
		g := acquire(t, a, "x")
		time.Sleep(10 * oneWay)
		s.cluster.Node(2).Del(lockX)
		time.Sleep(10 * oneWay)
		require.Equal(t, 2, g.Votes())
		s.link("a", 2).Delay(200*time.Millisecond, oneWay)
		time.Sleep(lease/3 - 20*oneWay)
		exported, err := g.Export()
		require.NoError(t, err)
		s.cluster.Node(0).Del(lockX)
		between := tryAcquire(t, c, "x")
		release(t, between)
		time.Sleep(250 * time.Millisecond)
		require.Contains(t, s.stored()[1], g.Owner())
		require.Contains(t, s.stored()[2], g.Owner(), "the schedule has failed")
		require.Greater(t, between.FencingToken(), g.FencingToken())
		_, err = b.Resume(context.Background(), exported)
		require.Error(t, err)
		require.NotErrorIs(t, err, redlock.ErrNoQuorum)
	})
}

// Schedule: b reaches one node of three, and gives up; what it got there goes back. Then it reaches all, and resumes.
func TestScheduleResumeMayBeTriedAgain(t *testing.T) {
	for _, row := range []string{"no quorum", "ctx ends", "closed"} {
		t.Run(row, func(t *testing.T) {
			interleave(t, 3, func(t *testing.T, s *schedule) {
				a, b, c := s.open("a"), s.open("b"), s.open("c")
				g, exported := s.export(a)
				s.link("b", 1).SilenceReplies() // it is asked and does it, and the answer is lost
				s.link("b", 2).SilenceRequests()
				ctx, cancel := context.WithCancel(context.Background())
				defer cancel()
				switch row {
				case "ctx ends":
					time.AfterFunc(20*oneWay, cancel)
				case "closed":
					time.AfterFunc(20*oneWay, b.Close)
				}
				_, err := b.Resume(ctx, exported)
				switch row {
				case "no quorum":
					require.ErrorIs(t, err, redlock.ErrNoQuorum)
					s.link("b", 1).Heal()
					s.link("b", 2).Heal()
					time.Sleep(10 * oneWay)
				case "ctx ends":
					require.ErrorIs(t, err, context.Canceled)
					s.link("b", 1).Heal()
					s.link("b", 2).Heal()
					time.Sleep(10 * oneWay)
				case "closed":
					require.ErrorIs(t, err, redlock.ErrLockerClosed)
					time.Sleep(10 * oneWay)
				}
				require.Contains(t, s.stored()[0], g.Owner(), "it went back")
				resumed, err := c.Resume(context.Background(), exported)
				require.NoError(t, err)
				require.Equal(t, g.FencingToken(), resumed.FencingToken())
				s.requireUndisturbed(resumed)
			})
		})
	}
}

// A program that has just started finds its nodes one after the other: those that come up in time are asked again.
func TestScheduleResumeWaitsForNodesThatComeUp(t *testing.T) {
	interleave(t, 3, func(t *testing.T, s *schedule) {
		a := s.open("a")
		_, exported := s.export(a)
		o := s.option("b")
		s.link("b", 1).Silence()
		s.link("b", 2).Silence()
		time.AfterFunc(300*time.Millisecond, func() { s.link("b", 1).Heal() })
		b, err := redlock.NewLocker(o)
		require.NoError(t, err)
		defer b.Close()
		g, err := b.Resume(context.Background(), exported)
		require.NoError(t, err)
		requireHeldFor(t, g, 2*lease)
		release(t, g)
	})
}

// A resumed lock is taken over, listed and acknowledged as any other.
func TestScheduleResumedLockIsTakenOver(t *testing.T) {
	interleave(t, 3, func(t *testing.T, s *schedule) {
		a, b, c := s.open("a"), s.open("b"), s.open("c")
		_, exported := s.export(a)
		g, err := b.Resume(context.Background(), exported)
		require.NoError(t, err)
		began := time.Now()
		next, err := c.ForceAcquire(context.Background(), "x")
		require.NoError(t, err)
		require.ErrorIs(t, g.Err(), redlock.ErrTakenOver)
		require.Less(t, time.Since(began), 20*oneWay)
		require.Greater(t, next.FencingToken(), g.FencingToken())
		s.requireUndisturbed(next)
	})
}

// Schedule: a taker displaces the exporter before anybody resumes: it waits for the lease, as nobody can acknowledge.
func TestScheduleTakerWaitsForAnExportedLock(t *testing.T) {
	interleave(t, 3, func(t *testing.T, s *schedule) {
		a, b, c := s.open("a"), s.open("b"), s.open("c")
		s.link("c", 0).Delay(20*oneWay, oneWay)
		s.link("c", 1).Delay(20*oneWay, oneWay)
		_, exported := s.export(a)
		taken := make(chan *redlock.Guard, 1)
		go func() {
			g, err := c.ForceAcquire(context.Background(), "x") // node 2 first
			assert.NoError(t, err)
			taken <- g
		}()
		time.Sleep(10 * oneWay)
		g, err := b.Resume(context.Background(), exported)
		require.NoError(t, err, "two nodes of three")
		next := <-taken
		require.ErrorIs(t, g.Err(), redlock.ErrTakenOver, "ended before the taker's began")
		s.requireUndisturbed(next)
	})
}

// AtMost goes on to count.
func TestScheduleExportKeepsAtMost(t *testing.T) {
	interleave(t, 3, func(t *testing.T, s *schedule) {
		a, b := s.open("a"), s.open("b")
		granted := time.Now()
		_, exported := s.export(a, redlock.AtMost(2*lease))
		time.Sleep(lease / 2)
		g, err := b.Resume(context.Background(), exported)
		require.NoError(t, err)
		require.ErrorIs(t, requireDone(t, g, 3*lease), redlock.ErrHeldTooLong)
		require.InDelta(t, 2*lease, time.Since(granted), float64(20*oneWay))
		time.Sleep(5 * oneWay) // it is released

		_, exported = s.export(a, redlock.AtMost(lease/4))
		time.Sleep(lease / 2)
		_, err = b.Resume(context.Background(), exported)
		require.ErrorIs(t, err, redlock.ErrHeldTooLong)
	})
}

// What is of other nodes is refused, and nothing is asked.
func TestExportOfOtherNodes(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ours, others, more := redlocktest.NewCluster(t, 3), redlocktest.NewCluster(t, 3, redlocktest.Seed(2)), redlocktest.NewCluster(t, 5)
		open := func(c *redlocktest.Cluster, prefix string) *redlock.Locker {
			o := c.Client("client" + prefix).Option()
			o.KeyPrefix = prefix
			l, err := redlock.NewLocker(o)
			require.NoError(t, err)
			t.Cleanup(l.Close)
			time.Sleep(20 * time.Millisecond)
			return l
		}
		a := open(ours, "one")
		exported, err := acquire(t, a, "x").Export()
		require.NoError(t, err)
		for _, stranger := range []*redlock.Locker{open(others, "one"), open(more, "one"), open(ours, "two")} {
			_, err := stranger.Resume(context.Background(), exported)
			require.ErrorIs(t, err, redlock.ErrExportForeign)
		}
		g, err := a.Resume(context.Background(), exported)
		require.NoError(t, err, "nothing was lost by that")
		release(t, g)

		_, err = (*redlock.Locker)(nil).Resume(context.Background(), exported)
		require.ErrorIs(t, err, redlock.ErrLockerClosed)
		ended, cancel := context.WithCancel(context.Background())
		cancel()
		_, err = a.Resume(ended, exported)
		require.ErrorIs(t, err, context.Canceled)
		for _, garbage := range []string{"", "redlock1", "redlock1.", "redlock2." + string(exported[9:]), "nonsense", string(exported[:len(exported)-1]), string(exported) + "A"} {
			_, err := a.Resume(context.Background(), []byte(garbage))
			require.ErrorIs(t, err, redlock.ErrExportInvalid, garbage)
		}
	})
}

// Only what is held is exported.
func TestExportOfWhatIsNotHeld(t *testing.T) {
	interleave(t, 3, func(t *testing.T, s *schedule) {
		a := s.open("a")
		g := tryAcquire(t, a, "x")
		release(t, g)
		_, err := g.Export()
		require.Equal(t, redlock.ErrReleased, err)

		// The connections to a quorum have just gone: what was on its way may still be done.
		g = tryAcquire(t, a, "x")
		time.Sleep(lease / 4)
		for i := range 2 {
			s.link("a", i).SilenceReplies()
		}
		time.Sleep(lease / 10)
		for i := range 2 {
			s.link("a", i).Cut()
		}
		time.Sleep(5 * oneWay)
		_, err = g.Export()
		require.ErrorIs(t, err, redlock.ErrNoQuorum)
		require.ErrorContains(t, err, "1 of 3 nodes can hand their vote over, quorum is 2")
		require.NoError(t, g.Err(), "it goes on")
		for i := range 2 {
			s.link("a", i).Heal()
		}
		requireHeldFor(t, g, lease)
		_, err = g.Export()
		require.NoError(t, err)
	})
}

// What was asked for at the grant goes along, or the lock is not exported.
func TestScheduleExportKeepsItsOptions(t *testing.T) {
	interleave(t, 3, func(t *testing.T, s *schedule) {
		a, b := s.open("a"), s.open("b")
		_, exported := s.export(a, redlock.Lease(lease/2), redlock.Label("worker 7"))
		g, err := b.Resume(context.Background(), exported)
		require.NoError(t, err)
		requireHeldFor(t, g, 2*lease)
		left, _ := s.cluster.Node(0).PTTL(lockX)
		require.LessOrEqual(t, left, lease/2)
		line, err := a.Inspect(context.Background(), "x")
		require.NoError(t, err)
		require.Equal(t, "worker 7", line.Label)
		release(t, g)

		granted := time.Now()
		_, exported = s.export(a, redlock.FixedLease(lease))
		g, err = b.Resume(context.Background(), exported)
		require.NoError(t, err)
		require.ErrorIs(t, requireDone(t, g, 2*lease), redlock.ErrHeldTooLong)
		require.LessOrEqual(t, time.Since(granted), lease)
		time.Sleep(lease)

		g, err = a.TryAcquire(context.Background(), "x", redlock.AtLeast(2*lease))
		require.NoError(t, err)
		_, err = g.Export()
		require.ErrorIs(t, err, redlock.ErrInvalidOption)
		require.NoError(t, g.Err(), "it goes on")
	})
}
