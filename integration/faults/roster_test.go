package faults

import (
	"context"
	"fmt"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/redis/rueidis"
	"github.com/stretchr/testify/require"

	"github.com/redlock-go/redlock"
	"github.com/redlock-go/redlock/integration/check"
	"github.com/redlock-go/redlock/internal/redisproc"
	"github.com/redlock-go/redlock/internal/redisproc/redistest"
)

// Each of three nodes is replaced in turn, three become five and three again, while programs work, of which one lists the first
// three nodes only and one all that there will be. No two guards are alive at once, a lock that is held is held throughout, and
// locks are granted after each change.
func TestMembersChangeUnderLoad(t *testing.T) {
	t.Parallel()
	nodes := redistest.StartSet(t, 6, redisproc.Options{})
	list := func(indexes ...int) (o []rueidis.ClientOption) {
		for _, i := range indexes {
			o = append(o, redistest.Option(nodes[i]))
		}
		return o
	}
	open := func(indexes ...int) *redlock.Locker {
		l, err := redlock.NewLocker(redlock.LockerOption{Nodes: list(indexes...), KeyValidity: lease})
		require.NoError(t, err)
		t.Cleanup(l.Close)
		return l
	}
	old := open(0, 1, 2)
	require.Eventually(t, func() bool { return old.Init(context.Background()) == nil }, soon, tick)
	all := open(0, 1, 2, 3, 4, 5)
	history := check.New()
	held, err := history.Acquire(context.Background(), "all", all.Acquire, "held")
	require.NoError(t, err)

	stop := make(chan struct{})
	var workers sync.WaitGroup
	var granted atomic.Int64
	for i, l := range []*redlock.Locker{old, old, all, all, all} {
		workers.Go(func() {
			for n := 0; ; n++ {
				select {
				case <-stop:
					return
				default:
				}
				ctx, cancel := context.WithTimeout(context.Background(), lease)
				g, err := history.Acquire(ctx, fmt.Sprint(i), l.Acquire, []string{"x", "y"}[n%2])
				cancel()
				if err == nil {
					if l == all {
						granted.Add(1)
					}
					history.Release(context.Background(), g)
				}
				time.Sleep(tick)
			}
		})
	}
	for _, step := range [][]int{{0, 1, 3}, {0, 4, 3}, {5, 4, 3}, {5, 4, 3, 0, 1}, {5, 0, 1}, {0, 1, 2}} {
		begun := time.Now()
		ctx, cancel := context.WithTimeout(context.Background(), soon)
		require.NoError(t, all.SetNodes(ctx, redlock.NodeSet{Nodes: list(step...)}), "%v", step)
		cancel()
		took, before := time.Since(begun), granted.Load()
		require.Eventually(t, func() bool { return granted.Load() > before }, lease+soon, tick, "%v", step)
		t.Logf("%v: %v, the next grant after %v", step, took.Round(time.Millisecond), time.Since(begun).Round(time.Millisecond))
		require.NoError(t, held.Err(), "%v", step)
		time.Sleep(2 * lease) // those that joined may vote, and renewals have won their votes
	}
	close(stop)
	workers.Wait()
	require.NoError(t, history.Release(context.Background(), held))
	history.Stop()
	require.Empty(t, history.Violations())
	var g *redlock.Guard
	require.Eventually(t, func() bool { // the last of the workers leave the lines
		g, err = old.TryAcquire(context.Background(), "x")
		return err == nil
	}, lease+soon, tick, "its list is right again")
	require.NoError(t, g.Release(context.Background()))
}
