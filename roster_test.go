package redlock_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/redis/rueidis"
	"github.com/stretchr/testify/require"

	"github.com/redlock-go/redlock"
	"github.com/redlock-go/redlock/internal/logtest"
)

// Schedules of sets whose members change, and of programs that list other nodes than these.

// listing has a program list these nodes, of all that there are.
func (s *schedule) listing(host string, nodes ...int) optionFunc {
	return func(o *redlock.LockerOption) { o.Nodes = s.nodes(host, nodes...) }
}

func (s *schedule) nodes(host string, nodes ...int) (list []rueidis.ClientOption) {
	for _, i := range nodes {
		list = append(list, s.link(host, i).Option())
	}
	return list
}

// setNodes makes these nodes the members.
func (s *schedule) setNodes(l *redlock.Locker, host string, nodes ...int) {
	s.Helper()
	require.NoError(s, l.SetNodes(s.within(10*time.Second), redlock.NodeSet{Nodes: s.nodes(host, nodes...)}))
}

func (s *schedule) within(d time.Duration) context.Context {
	ctx, cancel := context.WithTimeout(context.Background(), d)
	s.Cleanup(cancel)
	return ctx
}

// oneHolder has both programs try at the same moments, so often, and asserts that no two have the lock at one time. It returns
// how often somebody had it.
func (s *schedule) oneHolder(times int, programs ...*redlock.Locker) (held int) {
	s.Helper()
	for range times {
		guards := make([]*redlock.Guard, len(programs))
		var wg sync.WaitGroup
		for i, l := range programs {
			wg.Go(func() { guards[i], _ = l.TryAcquire(context.Background(), "x") })
		}
		wg.Wait()
		alive := 0
		for _, g := range guards {
			if g != nil && g.Err() == nil {
				alive++
			}
		}
		require.LessOrEqual(s, alive, 1, "two have the lock")
		held += alive
		for _, g := range guards {
			if g != nil {
				g.Release(context.Background())
			}
		}
	}
	return held
}

// Schedule: a node was replaced, and a deploy is rolling: some programs list it, others list the new one. The set is who it was:
// nobody takes the new one into it by listing it.
func TestScheduleTwoListsHaveOneHolder(t *testing.T) {
	for _, quarantine := range []bool{false, true} {
		interleave(t, 4, func(t *testing.T, s *schedule) {
			options := func(host string, nodes ...int) []optionFunc {
				o := []optionFunc{s.listing(host, nodes...)}
				if quarantine {
					o = append(o, quarantineOn)
				}
				return o
			}
			a := s.open("a", options("a", 0, 1, 2)...)
			time.Sleep(2 * lease)
			b := s.open("b", options("b", 0, 1, 3)...)
			require.NotZero(t, s.oneHolder(400, a, b))
			require.Empty(t, s.cluster.Node(3).Keys(), "it is left alone")
			status := b.Status()
			require.NoError(t, status.Err, "two of three members")
			require.ErrorIs(t, status.Nodes[2].Err, redlock.ErrDisagreement)
			require.ErrorContains(t, status.Nodes[2].Err, "node-3:6379 is not a member of this set (node-0:6379, node-1:6379, node-2:6379; roster 1), and has no vote; to replace node-2:6379 by it: SetNodes")

			err := b.SetNodes(s.within(lease), redlock.NodeSet{Nodes: s.nodes("b", 0, 1, 3)})
			require.ErrorContains(t, err, "node-2:6379 cannot be told of the change", "who does not reach it cannot know")
			s.setNodes(a, "a", 0, 1, 3)
			require.NotZero(t, s.oneHolder(400, a, b))
			status = a.Status()
			require.NoError(t, status.Err)
			require.Equal(t, []string{"node-0:6379", "node-1:6379", "node-3:6379"}, status.Members)
			require.Equal(t, 2, status.Roster)
			require.ErrorContains(t, status.Nodes[2].Err, "node-2:6379 is not a member of this set (node-0:6379, node-1:6379, node-3:6379; roster 2)")
			s.cluster.Node(0).Stop()
			time.Sleep(2 * lease)
			release(t, tryAcquire(t, b, "x")) // by the new one
		})
	}
}

// Schedule: two programs with different lists meet a brand-new set at the same moment.
func TestScheduleTwoListsFoundOneSet(t *testing.T) {
	for _, slow := range []time.Duration{0, time.Millisecond, 3 * time.Millisecond, 10 * time.Millisecond} {
		interleave(t, 4, func(t *testing.T, s *schedule) {
			open := func(host string, nodes ...int) *redlock.Locker {
				l, err := redlock.NewLocker(s.option(host, s.listing(host, nodes...), quarantineOn))
				require.NoError(t, err)
				t.Cleanup(l.Close)
				return l
			}
			option := s.option("a")
			_ = option
			for i, l := range s.cluster.Client("a").Links() {
				l.Delay(oneWay+time.Duration(i)*slow, oneWay)
			}
			var wg sync.WaitGroup
			var a, b *redlock.Locker
			wg.Go(func() { a = open("a", 0, 1, 2) })
			wg.Go(func() { b = open("b", 0, 1, 3) })
			wg.Wait()
			time.Sleep(3 * lease)
			require.NotZero(t, s.oneHolder(100, a, b), "they have come to one")
		})
	}
}

// Schedule: all nodes lose their memory. One program, which remembers the set, takes a node back; another is founding a new one of
// the others at that moment. They come to one set, also where they know the nodes by other addresses.
func TestScheduleAllForgetAndTwoBringThemBack(t *testing.T) {
	for row := range 12 {
		back, renamed, options := row%3, row%2 == 0, []optionFunc{quarantineOn}
		if row >= 6 {
			options = nil
		}
		interleave(t, 3, func(t *testing.T, s *schedule) {
			a := s.open("a", options...)
			time.Sleep(2 * lease)
			remembered, _ := s.cluster.Node(back).Get("redlock:marker")
			for i, n := range s.cluster.Nodes() {
				s.link("a", i).Silence()
				n.Do("FLUSHALL")
			}
			option := func(host string) redlock.LockerOption {
				o := s.option(host, options...)
				for i := range o.Nodes {
					if renamed {
						o.Nodes[i].InitAddress = []string{fmt.Sprintf("%s-%d:6379", host, i)}
					}
				}
				return o
			}
			s.cluster.Node(back).Fail("EVAL", "LOADING")
			var founder *redlock.Locker
			var wg sync.WaitGroup
			wg.Go(func() { founder, _ = redlock.NewLocker(option("b")) })
			for range 1000 {
				time.Sleep(oneWay / 2)
				if len(s.cluster.Node((back+1)%3).Keys())+len(s.cluster.Node((back+2)%3).Keys()) == 2 {
					break
				}
			}
			require.Empty(t, s.cluster.Node(back).Keys())
			s.cluster.Node(back).Recover("EVAL")
			s.cluster.Node(back).Set("redlock:marker", remembered, 0)
			newcomer, err := redlock.NewLocker(option("c"))
			require.NoError(t, err, "nothing says yet that it cannot be")
			t.Cleanup(newcomer.Close)
			for i := range s.cluster.Nodes() {
				s.link("a", i).Heal()
			}
			wg.Wait()
			t.Cleanup(founder.Close)
			for _, l := range []*redlock.Locker{a, founder, newcomer} {
				g, err := l.Acquire(s.within(10*time.Second), "x")
				require.NoError(t, err)
				release(t, g)
			}
			require.Equal(t, []string{"node-0:6379", "node-1:6379", "node-2:6379"}, founder.Status().Members)
		})
	}
}

// Schedule: programs with a lease of 10 s and of 60 s. Two of three nodes lose their memory where the third is not seen by who has
// the longer lease, and could be taken for a set of their own, with another longest lease.
func TestScheduleForgottenMajorityIsNoNewSet(t *testing.T) {
	interleave(t, 3, func(t *testing.T, s *schedule) {
		short := s.open("s", quarantineOn, validity(10*time.Second))
		time.Sleep(11 * time.Second)
		held := tryAcquire(t, short, "y")
		for _, i := range []int{1, 2} {
			s.link("s", i).Silence()
			s.link("s", i).Cut()
			s.cluster.Node(i).CrashEmpty()
		}
		s.link("l", 0).Silence()
		long, err := redlock.NewLocker(s.option("l", quarantineOn, validity(time.Minute)))
		require.NoError(t, err, "nothing says yet that it cannot be")
		t.Cleanup(long.Close)
		_, err = long.Acquire(s.within(3*time.Minute), "x")
		require.ErrorIs(t, err, context.DeadlineExceeded)
		require.ErrorContains(t, err, "none remembers anything")
		require.Error(t, held.Err())
		s.cluster.Node(2).CrashEmpty()
		for _, i := range []int{1, 2} {
			s.link("s", i).Heal()
		}
		g, err := short.Acquire(s.within(time.Minute), "x")
		require.NoError(t, err, "all members have been read")
		release(t, g)
	})
}

// Schedule: a program is started with a lease that the set does not allow. It is told at once, and nobody else is the worse for it;
// where it is meant, one call raises what the set allows, and lowers it again.
func TestScheduleLongLeaseIsRefusedAndRaised(t *testing.T) {
	interleave(t, 3, func(t *testing.T, s *schedule) {
		a := s.open("a", quarantineOn)
		time.Sleep(2 * lease)
		long := s.option("b", quarantineOn, validity(time.Hour))
		_, err := redlock.NewLocker(long)
		require.ErrorIs(t, err, redlock.ErrDisagreement)
		require.ErrorContains(t, err, "a lease of 1h0m0s is longer than 1s, the longest that this set allows")
		require.ErrorContains(t, err, "SetNodes with LongestLease raises it")
		_, err = a.TryAcquire(context.Background(), "x", redlock.Lease(2*lease))
		require.Error(t, err)

		s.cluster.Node(0).CrashEmpty()
		s.cluster.Node(1).Stop()
		start := time.Now()
		g, err := a.Acquire(s.within(10*time.Second), "x")
		require.NoError(t, err)
		require.Less(t, time.Since(start), lease+lease/2, "the quarantine is what it was")
		s.cluster.Node(1).Start()
		time.Sleep(lease)

		start = time.Now()
		require.NoError(t, a.SetNodes(s.within(time.Minute), redlock.NodeSet{LongestLease: 10 * time.Second}))
		require.Less(t, time.Since(start), lease/2, "it waits for nothing")
		require.NoError(t, g.Err(), "and the lock goes on")
		b := s.open("b", quarantineOn, validity(10*time.Second))
		release(t, tryAcquire(t, b, "y"))
		h := tryAcquire(t, b, "y")

		start = time.Now()
		require.NoError(t, a.SetNodes(s.within(time.Minute), redlock.NodeSet{LongestLease: 2 * lease}))
		require.Greater(t, time.Since(start), 10*time.Second, "what was held by the old one is waited for")
		require.ErrorIs(t, h.Err(), redlock.ErrLost, "its lease is not to be had any more")
		require.NoError(t, g.Err())
		_, err = b.TryAcquire(context.Background(), "y")
		require.ErrorContains(t, err, "a lease of 10s is longer than 2s")
		release(t, g)
		s.cluster.Node(0).CrashEmpty()
		s.cluster.Node(1).Stop()
		start = time.Now()
		g, err = a.Acquire(s.within(10*time.Second), "x")
		require.NoError(t, err)
		require.Less(t, time.Since(start), 3*lease, "nor for the old one")
		release(t, g)
	})
}

// Schedule: SetNodes is the first call of a Locker, which has begun with the two members that were quicker to answer.
func TestScheduleSetNodesWaitsForAFirstLook(t *testing.T) {
	interleave(t, 3, func(t *testing.T, s *schedule) {
		s.open("a", quarantineOn)
		time.Sleep(2 * lease)
		o := s.option("b", quarantineOn)
		s.link("b", 2).Delay(20*oneWay, 20*oneWay)
		b, err := redlock.NewLocker(o)
		require.NoError(t, err)
		defer b.Close()
		require.False(t, b.Status().Nodes[2].Up)
		require.NoError(t, b.SetNodes(s.within(time.Minute), redlock.NodeSet{LongestLease: 2 * lease}))
	})
}

// Schedule: each node is replaced in turn, while a lock is held, and a program that lists the first ones goes on with those that are
// left, until there are too few. Then it says who the members are.
func TestScheduleListOfAYearAgo(t *testing.T) {
	interleave(t, 6, func(t *testing.T, s *schedule) {
		var log logtest.Log
		first := s.open("first", s.listing("first", 0, 1, 2), quarantineOn, logTo(&log))
		operator := s.open("o", s.listing("o", 0, 1, 2, 3, 4, 5), quarantineOn)
		last := s.open("last", s.listing("last", 3, 4, 5, 0, 1, 2), quarantineOn)
		time.Sleep(2 * lease)
		g := tryAcquire(t, last, "x")
		s.setNodes(operator, "o", 0, 1, 3)
		time.Sleep(2 * lease)
		require.NoError(t, g.Err(), "it is held on, and won where a node has joined")
		release(t, tryAcquire(t, first, "y"))
		require.Contains(t, log.String(), "members of the set")
		require.Contains(t, log.String(), "roster=2")
		s.setNodes(operator, "o", 0, 4, 3)
		time.Sleep(2 * lease)
		require.NoError(t, g.Err())
		_, err := first.TryAcquire(context.Background(), "y")
		require.ErrorIs(t, err, redlock.ErrNoQuorum, "it lists one of three")
		s.setNodes(operator, "o", 5, 4, 3)
		time.Sleep(2 * lease)
		require.NoError(t, g.Err())
		require.Equal(t, 3, g.Votes(), "on all that are members")
		release(t, g)
		release(t, tryAcquire(t, last, "y"))

		_, err = redlock.NewLocker(s.option("old", s.listing("old", 0, 1, 2), quarantineOn))
		require.ErrorIs(t, err, redlock.ErrDisagreement)
		for i := range 3 {
			require.ErrorContains(t, err, s.cluster.Node(i).Addr()+" is not a member of this set (node-3:6379, node-4:6379, node-5:6379; roster 4)")
		}
	})
}

// Schedule: three nodes become five and three again, under locks. Those that join grant nothing for a lease; when so many leave,
// nobody does.
func TestScheduleThreeBecomeFiveAndThree(t *testing.T) {
	interleave(t, 5, func(t *testing.T, s *schedule) {
		a := s.open("a", quarantineOn)
		_, err := redlock.NewLocker(s.option("b", s.listing("b", 0, 1), quarantineOn))
		require.ErrorContains(t, err, "2 of 5 nodes are left without a permanent fault, quorum is 3")
		require.ErrorContains(t, err, "it is a member of the set, and is not among the Nodes listed here")
		time.Sleep(2 * lease)
		three := s.open("three", s.listing("three", 0, 1, 2), quarantineOn)
		g := tryAcquire(t, three, "held")
		start := time.Now()
		s.setNodes(a, "a", 0, 1, 2)
		require.Less(t, time.Since(start), lease/2)
		require.NoError(t, g.Err())
		_, err = a.TryAcquire(context.Background(), "x")
		require.ErrorIs(t, err, redlock.ErrQuarantined, "of five, three and two need not meet")
		h, err := a.Acquire(s.within(5*lease), "x")
		require.NoError(t, err)
		require.Less(t, time.Since(start), lease+lease/4)
		require.NoError(t, g.Err(), "what is held goes on")

		s.setNodes(a, "a", 0, 1, 2, 3, 4)
		require.NoError(t, g.Err())
		require.NoError(t, h.Err())
		release(t, tryAcquire(t, a, "y")) // three of five, which were members before
		time.Sleep(2 * lease)
		s.cluster.Node(0).Stop()
		s.cluster.Node(1).Stop()
		time.Sleep(2 * lease)
		require.NoError(t, h.Err(), "it was won on those that joined")
		require.Error(t, g.Err(), "of a program that lists three of five")
		release(t, tryAcquire(t, a, "y"))
	})
}

// Schedule: two programs replace two nodes at the same moment. Both changes are made, one after the other, or the second of them
// says what is in the way; there is one set.
func TestScheduleTwoReplacementsAtOnce(t *testing.T) {
	for _, apart := range []time.Duration{0, time.Millisecond, 3 * time.Millisecond, 5 * time.Millisecond} {
		interleave(t, 5, func(t *testing.T, s *schedule) {
			a := s.open("a", s.listing("a", 0, 1, 2, 3))
			require.NoError(t, a.SetNodes(s.within(time.Second), redlock.NodeSet{Nodes: s.nodes("a", 0, 1, 2)}))
			b := s.open("b", s.listing("b", 0, 1, 2, 4))
			var wg sync.WaitGroup
			errs := make([]error, 2)
			wg.Go(func() {
				errs[0] = a.SetNodes(s.within(10*time.Second), redlock.NodeSet{Nodes: s.nodes("a", 0, 1, 3)})
			})
			wg.Go(func() {
				time.Sleep(apart)
				errs[1] = b.SetNodes(s.within(10*time.Second), redlock.NodeSet{Nodes: s.nodes("b", 0, 2, 4)})
			})
			wg.Wait()
			require.True(t, errs[0] == nil || errs[1] == nil, "%v, %v", errs[0], errs[1])
			time.Sleep(3 * lease)
			require.NotZero(t, s.oneHolder(100, a, b))
			voting := 0
			for _, n := range s.cluster.Nodes() {
				raw, _ := n.Get("redlock:marker")
				if f := strings.Split(raw, ":"); len(f) == 8 && f[4] == "3" {
					voting++
				}
			}
			require.Equal(t, 3, voting, "three members have votes")
		})
	}
}

// Schedule: a node is off, and replaced; later it comes back with all that it remembers. It is told, and has no vote.
func TestScheduleDisplacedServerReturns(t *testing.T) {
	interleave(t, 4, func(t *testing.T, s *schedule) {
		a := s.open("a", s.listing("a", 0, 1, 2), quarantineOn)
		b := s.open("b", s.listing("b", 0, 1, 3), quarantineOn)
		time.Sleep(2 * lease)
		s.cluster.Node(2).Stop()
		time.Sleep(lease)
		set := redlock.NodeSet{Nodes: s.nodes("a", 0, 1, 3)}
		err := a.SetNodes(s.within(lease), set)
		require.ErrorContains(t, err, "node-2:6379 cannot be told of the change")
		require.ErrorContains(t, err, "name it Off if it is off for good")
		require.ErrorIs(t, err, redlock.ErrNodeDown)
		require.Empty(t, s.cluster.Node(3).Keys(), "nothing was begun")
		set.Off = []string{"node-2:6379"}
		require.NoError(t, a.SetNodes(s.within(lease), set))
		time.Sleep(2 * lease)
		s.cluster.Node(2).Start()
		time.Sleep(2 * lease)
		require.ErrorContains(t, a.Status().Nodes[2].Err, "node-2:6379 is not a member of this set (node-0:6379, node-1:6379, node-3:6379; roster 2)")
		require.NotZero(t, s.oneHolder(100, a, b))
		s.cluster.Node(0).Stop() // a sees one member, and one that was
		time.Sleep(lease)
		_, err = a.TryAcquire(context.Background(), "x")
		require.ErrorIs(t, err, redlock.ErrNoQuorum)
		release(t, acquire(t, b, "x"))
	})
}

// Schedule: whoever changes the set dies when one member has accepted. That one grants nothing until another program finishes it.
func TestScheduleChangeIsFinishedByOthers(t *testing.T) {
	for _, silent := range []time.Duration{5, 6, 7, 8, 9, 10, 11, 12, 13, 14} { // ms after the call
		interleave(t, 4, func(t *testing.T, s *schedule) {
			a := s.open("a", s.listing("a", 0, 1, 2))
			b := s.open("b")
			ctx, die := context.WithCancel(context.Background())
			go func() {
				time.Sleep(silent * time.Millisecond)
				for i, l := range s.cluster.Client("a").Links() {
					if i != 0 || silent%2 == 0 {
						l.Silence()
					}
				}
				die()
			}()
			err := a.SetNodes(ctx, redlock.NodeSet{Nodes: s.nodes("a", 0, 1, 3)})
			if err != nil {
				require.True(t, errors.Is(err, context.Canceled) || errors.Is(err, redlock.ErrNodeDown) || errors.Is(err, redlock.ErrNodeTimeout), err)
			}
			time.Sleep(5 * lease)
			g := acquire(t, b, "x")
			require.GreaterOrEqual(t, g.Votes(), 2)
			release(t, g)
		})
	}
}

// Schedule: the nodes carry markers of a version before the roster, as they were written by programs that run on. Locks are granted
// from the first moment; one node is down, so that there is no record until it is back. What those programs see of a marker is
// what they wrote, until a member is replaced: it has no vote for them any more.
func TestScheduleUpgradeWithoutAPause(t *testing.T) {
	for _, quarantine := range []string{"on", "off"} {
		interleave(t, 4, func(t *testing.T, s *schedule) {
			options := []optionFunc{s.listing("a", 0, 1, 2)}
			if quarantine == "on" {
				options = append(options, quarantineOn)
			}
			fields := func(i int) []string {
				raw, _ := s.cluster.Node(i).Get("redlock:marker")
				return strings.Split(raw, ":")
			}
			for i := range 3 {
				n := s.cluster.Node(i)
				n.Set("redlock:marker", n.RunID()+":0:0:1000:3:OLDSET:again:"+quarantine, 0)
			}
			s.cluster.Node(2).Stop()
			a := s.open("a", options...)
			g := tryAcquire(t, a, "x")
			require.Equal(t, "again", fields(0)[6], "nobody has reached all nodes")
			s.cluster.Node(2).Start()
			for range 100 {
				release(t, tryAcquire(t, a, "y"))
				time.Sleep(20 * time.Millisecond)
			}
			require.NoError(t, g.Err())
			for i := range 3 {
				f := fields(i)
				require.Len(t, f, 8)
				require.Equal(t, []string{"1000", "3", "OLDSET"}, f[3:6])
				require.True(t, strings.HasPrefix(f[6], "again,"), f[6])
				require.Equal(t, quarantine, f[7])
			}
			s.setNodes(a, "a", 0, 1, 3)
			require.Equal(t, "0", fields(2)[4])
			require.Equal(t, "3", fields(3)[4])
			require.NoError(t, g.Err())
			release(t, g)
		})
	}
}

// beginChange has a program die so long after it began to replace node 2 by node 3: none, some, or all members have accepted that
// by then, when something else happens.
func (s *schedule) beginChange(a *redlock.Locker, silent time.Duration, then func()) {
	ctx, die := context.WithCancel(context.Background())
	go func() {
		time.Sleep(silent)
		for i, l := range s.cluster.Client("a").Links() {
			if i != 0 {
				l.Silence()
			}
		}
		then()
		die()
	}()
	_ = a.SetNodes(ctx, redlock.NodeSet{Nodes: s.nodes("a", 0, 1, 3)}) // it may have been faster
}

// Schedule: while a change is under way a member loses its memory. It is taken back as one that has accepted, too, or nobody could
// finish the change, and no member would grant anything for good.
func TestScheduleMemberForgetsDuringAChange(t *testing.T) {
	for silent := 12 * time.Millisecond; silent < 15*time.Millisecond; silent += time.Millisecond {
		for _, member := range []int{2} {
			interleave(t, 4, func(t *testing.T, s *schedule) {
				a := s.open("a", s.listing("a", 0, 1, 2), quarantineOn)
				b := s.open("b", s.listing("b", 0, 1, 2, 3), quarantineOn)
				time.Sleep(2 * lease)
				s.beginChange(a, silent, s.cluster.Node(member).CrashEmpty)
				g, err := b.Acquire(s.within(10*lease), "x")
				require.NoError(t, err)
				time.Sleep(3 * lease)
				require.NoError(t, g.Err())
				require.Equal(t, 3, g.Votes(), "all members grant")
				release(t, g)
			})
		}
	}
}

// Schedule: while a change is under way a member is gone for good, which the change did not say. Another call does.
func TestScheduleMemberIsGoneDuringAChange(t *testing.T) {
	for silent := 10 * time.Millisecond; silent < 18*time.Millisecond; silent += time.Millisecond {
		interleave(t, 4, func(t *testing.T, s *schedule) {
			a := s.open("a", s.listing("a", 0, 1, 2), quarantineOn)
			b := s.open("b", s.listing("b", 0, 1, 2, 3), quarantineOn)
			time.Sleep(2 * lease)
			s.beginChange(a, silent, s.cluster.Node(2).Stop)
			require.NoError(t, b.SetNodes(s.within(10*lease), redlock.NodeSet{Nodes: s.nodes("b", 0, 1, 3), Off: []string{"node-2:6379"}}))
			time.Sleep(2 * lease)
			g := tryAcquire(t, b, "x")
			require.Equal(t, []string{"node-0:6379", "node-1:6379", "node-3:6379"}, b.Status().Members)
			release(t, g)
		})
	}
}

// Schedule: a program lists three members and two that are none. A release is confirmed by members.
func TestScheduleReleaseIsConfirmedByMembers(t *testing.T) {
	interleave(t, 5, func(t *testing.T, s *schedule) {
		s.open("a", s.listing("a", 0, 1, 2))
		b := s.open("b", s.listing("b", 0, 1, 2, 3, 4))
		g := tryAcquire(t, b, "x")
		for i := range 3 {
			s.link("b", i).SilenceRequests()
		}
		require.ErrorIs(t, g.Release(context.Background()), redlock.ErrNoQuorum)
		value, _ := s.cluster.Node(0).Get(lockKey("x"))
		require.NotEmpty(t, value, "it is still there")
	})
}

// Schedule: a program lists one member, and two servers that remember nothing: they might be members, but nobody knows them for
// such. A wait ends.
func TestScheduleWaitForStrangersEnds(t *testing.T) {
	interleave(t, 5, func(t *testing.T, s *schedule) {
		s.open("a", s.listing("a", 0, 1, 2), quarantineOn)
		time.Sleep(2 * lease)
		b, err := redlock.NewLocker(s.option("b", s.listing("b", 2, 3, 4), quarantineOn))
		if err == nil {
			defer b.Close()
			_, err = b.Acquire(s.within(10*lease), "x")
		}
		require.ErrorIs(t, err, redlock.ErrNoQuorum)
		require.NotErrorIs(t, err, context.DeadlineExceeded)
		require.ErrorContains(t, err, "is not a member of this set (node-0:6379, node-1:6379, node-2:6379; roster 1)")
	})
}

// Whoever has just seen that the set is founded changes it: the members that are near have not been told yet that the record which they
// hold is in force, and one that is far away has been told first.
func TestScheduleASetThatHasJustBeenFoundedIsChanged(t *testing.T) {
	for _, far := range []time.Duration{oneWay, 5 * oneWay, 20 * oneWay, 60 * oneWay} {
		interleave(t, 3, func(t *testing.T, s *schedule) {
			s.link("a", 2).Delay(far, far)
			o := s.option("a")
			s.link("a", 2).Delay(far, far)
			o.RestartQuarantine = -1
			l, err := redlock.NewLocker(o)
			require.NoError(t, err)
			defer l.Close()
			require.NoError(t, l.SetNodes(s.within(10*lease), redlock.NodeSet{LongestLease: 2 * lease}), "%v away", far)
		})
	}
}
