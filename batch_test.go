package redlock_test

import (
	"context"
	"fmt"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/redlock-go/redlock"
	"github.com/redlock-go/redlock/internal/node"
	"github.com/redlock-go/redlock/internal/redisproc/redistest"
	"github.com/redlock-go/redlock/redlocktest"
)

// What callers ask of a node at one time is one script there. redlocktest/scripts_test.go has what each step comes to;
// here is that a call does not feel its neighbors.

func TestABadCallFailsNoneOfThoseThatLeaveWithIt(t *testing.T) {
	t.Parallel()
	nodes := startNodes(t, 3)
	l := newLocker(t, redistest.Options(nodes), validity(60*time.Second), nodeTimeout(4*time.Second))
	doAll(t, nodes, "LPUSH", lockKey("list"), "x")
	doAll(t, nodes, "SET", node.FenceKey("redlock", "spent"), "9007199254740000")
	doAll(t, nodes, "LPUSH", node.QueueKey("redlock", "line"), "x")
	doAll(t, nodes, "SET", "redlock:wake:", "*") // somebody stands in some line, or none is looked at
	doAll(t, nodes, "SET", lockKey("held"), "foreign", "PX", "60000")
	doAll(t, nodes, "ACL", "SETUSER", "default", "resetkeys", "~redlock:{[^f]*", "~redlock:marker", "~redlock:fence:*", "~redlock:queue:*", "~redlock:wake:*")
	bad := []string{"list", "spent", "line", "held", "forbidden"}
	good := make([]string, 20)
	for i := range good {
		good[i] = fmt.Sprint("good", i)
	}
	for range 20 {
		held := make([]*redlock.Guard, len(good))
		won := make([]error, len(good))
		lost := make([]error, len(bad))
		var wg sync.WaitGroup
		for i, name := range good {
			wg.Go(func() { held[i], won[i] = l.TryAcquire(context.Background(), name) })
			if i < len(bad) {
				wg.Go(func() { _, lost[i] = l.TryAcquire(context.Background(), bad[i]) })
			}
		}
		wg.Wait()
		for i := range good {
			require.NoError(t, won[i], good[i])
		}
		for i, says := range []string{"WRONGTYPE", "exhausted", "WRONGTYPE", "foreign", "NOPERM"} {
			require.ErrorContains(t, lost[i], says, bad[i])
		}
		for i := range held {
			wg.Go(func() { won[i] = held[i].Release(context.Background()) })
		}
		wg.Wait()
		for i := range good {
			require.NoError(t, won[i], good[i])
		}
	}
}

// A hundred and more steps at once go out in several scripts, and each gets the answer that is its own.
func TestEachOfManyCallsGetsItsOwnAnswer(t *testing.T) {
	t.Parallel()
	cluster := redlocktest.NewCluster(t, 3)
	l := newLocker(t, cluster.Option().Nodes, validity(60*time.Second), nodeTimeout(4*time.Second))
	awaitAllNodes(t, l)
	const names = 300
	for round := range 3 {
		name := func(i int) string { return fmt.Sprint(round, "-", i) } // a release goes on, on nodes that a quorum can do without
		guards := make([]*redlock.Guard, names)
		var wg sync.WaitGroup
		for i := range guards {
			wg.Go(func() { guards[i], _ = l.TryAcquire(context.Background(), name(i)) })
		}
		wg.Wait()
		for i, g := range guards {
			require.NotNil(t, g, i)
			for n := range 3 {
				require.Eventually(t, func() bool {
					stored, _ := cluster.Node(n).Get(lockKey(name(i)))
					return stored != ""
				}, soon, tick)
			}
			wg.Go(func() { _ = g.Release(context.Background()) })
		}
		wg.Wait()
		for i, g := range guards {
			require.ErrorIs(t, g.Err(), redlock.ErrReleased, i)
		}
	}
}

// A thousand locks and more are renewed together, again and again, in scripts of many; and when no node answers any more each ends by its own
// clock, no later than what is gathered may take.
func TestScheduleACrowdIsHeldAndEnds(t *testing.T) {
	interleave(t, 3, func(t *testing.T, s *schedule) {
		l := s.open("a")
		guards := make([]*redlock.Guard, 1200)
		var taking sync.WaitGroup
		for i := range guards {
			taking.Go(func() {
				g, err := l.Acquire(context.Background(), fmt.Sprint("held-", i))
				require.NoError(t, err)
				guards[i] = g
			})
			if i%64 == 63 {
				taking.Wait()
			}
		}
		taking.Wait()
		scripts := func() (n int) {
			for _, node := range s.cluster.Nodes() {
				n += node.Commands()["EVALSHA"]
			}
			return n
		}
		before := scripts()
		time.Sleep(2 * lease)
		for _, g := range guards {
			require.NoError(t, g.Err())
		}
		require.Less(t, scripts()-before, 2*len(guards), "for six renewals each on three nodes")
		for i := range 3 {
			s.link("a", i).Silence()
		}
		slices.SortFunc(guards, func(a, b *redlock.Guard) int { return a.ValidUntil().Compare(b.ValidUntil()) })
		for _, g := range guards {
			until := g.ValidUntil()
			<-g.Done()
			require.ErrorIs(t, g.Err(), redlock.ErrLost)
			require.LessOrEqual(t, time.Since(until), 5*time.Millisecond)
		}
	})
}
