package redlock_test

import (
	"context"
	"errors"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/redlock-go/redlock"
	"github.com/redlock-go/redlock/internal/netproxy"
	"github.com/redlock-go/redlock/internal/redisproc/redistest"
)

func TestForceOfAFreeLock(t *testing.T) {
	t.Parallel()
	nodes := startNodes(t, 3)
	l := newLocker(t, redistest.Options(nodes))
	g, err := l.ForceAcquire(t.Context(), "a")
	require.NoError(t, err)
	release(t, g)
	requireNoKeys(t, nodes, soon)
}

func TestForceFromAConnectedHolderIsFastAndAfterItsEnd(t *testing.T) {
	t.Parallel()
	nodes := startNodes(t, 3)
	a := newLocker(t, redistest.Options(nodes), validity(30*time.Second))
	b := newLocker(t, redistest.Options(nodes), validity(30*time.Second))
	for range 100 {
		g := acquire(t, a, "a")
		start := time.Now()
		g2, err := b.ForceAcquire(t.Context(), "a")
		require.NoError(t, err)
		require.Error(t, g.Err(), "before ForceAcquire returns")
		require.ErrorIs(t, g.Err(), redlock.ErrTakenOver)
		require.ErrorIs(t, g.Err(), redlock.ErrLost)
		require.Less(t, time.Since(start), 5*time.Second, "acknowledged by push: neither waited out nor found at the next extension")
		require.Greater(t, g2.FencingToken(), g.FencingToken())
		require.ErrorIs(t, g.Release(t.Context()), redlock.ErrTakenOver)
		require.NoError(t, g2.Err(), "the loser's release leaves the winner's lock alone")
		release(t, g2)
	}
	requireNoKeys(t, nodes, soon)
}

func TestForceWithinOneLocker(t *testing.T) {
	t.Parallel()
	nodes := startNodes(t, 3)
	l := newLocker(t, redistest.Options(nodes), validity(30*time.Second))
	g := acquire(t, l, "a")
	within(t, 10*time.Second, "no push comes of one's own writes, and none is needed", func() {
		g2, err := l.ForceAcquire(t.Context(), "a")
		require.NoError(t, err)
		require.ErrorIs(t, g.Err(), redlock.ErrTakenOver)
		g3, err := l.ForceAcquireNow(t.Context(), "a")
		require.NoError(t, err)
		require.ErrorIs(t, requireDone(t, g2, soon), redlock.ErrTakenOver)
		release(t, g3)
	})
	requireNoKeys(t, nodes, soon)
}

func TestForceFromAHolderCutOffWaitsOutItsLease(t *testing.T) {
	t.Parallel()
	nodes := startNodes(t, 3)
	options, links := proxied(t, nodes)
	a := newLocker(t, options, validity(2*time.Second))
	b := newLocker(t, redistest.Options(nodes), validity(2*time.Second))
	g := acquire(t, a, "a")
	for _, link := range links {
		link.Silence(netproxy.Both)
	}
	until := g.ValidUntil()
	g2, err := b.ForceAcquire(t.Context(), "a")
	require.NoError(t, err)
	require.Error(t, g.Err(), "two live guards")
	require.True(t, time.Now().After(until), "its lease had that long to go")
	require.Greater(t, g2.FencingToken(), g.FencingToken())
	for _, link := range links {
		link.Heal(netproxy.Both)
	}
	requireHeldFor(t, g2, 500*time.Millisecond)
	release(t, g2)
	requireNoKeys(t, nodes, soon)
}

func TestForceNowDoesNotWait(t *testing.T) {
	t.Parallel()
	nodes := startNodes(t, 3)
	options, links := proxied(t, nodes)
	a := newLocker(t, options, validity(20*time.Second))
	b := newLocker(t, redistest.Options(nodes), validity(20*time.Second))
	g := acquire(t, a, "a")
	for _, link := range links {
		link.Silence(netproxy.Both)
	}
	within(t, 5*time.Second, "not the lease", func() {
		g2, err := b.ForceAcquireNow(t.Context(), "a")
		require.NoError(t, err)
		require.NoError(t, g.Err(), "overlaps with the old holder until it notices")
		require.Greater(t, g2.FencingToken(), g.FencingToken())
		for _, link := range links {
			link.Heal(netproxy.Both)
		}
		require.ErrorIs(t, requireDone(t, g, soon), redlock.ErrTakenOver)
		release(t, g2)
	})
}

func TestReleaseOfATakerKeepsTheLockFreeForTheDisplaced(t *testing.T) {
	t.Parallel()
	nodes := startNodes(t, 3)
	options, links := proxied(t, nodes)
	a := newLocker(t, options, validity(2*time.Second))
	b := newLocker(t, redistest.Options(nodes), validity(2*time.Second))
	c := newLocker(t, redistest.Options(nodes), validity(2*time.Second))
	g := acquire(t, a, "a")
	for _, link := range links {
		link.Silence(netproxy.Both)
	}
	g2, err := b.ForceAcquireNow(t.Context(), "a")
	require.NoError(t, err)
	release(t, g2) // a still counts on its lease
	_, err = c.TryAcquire(t.Context(), "a")
	require.ErrorIs(t, err, redlock.ErrNotLocked)
	require.ErrorContains(t, err, "kept free for a displaced holder")
	g3 := acquire(t, c, "a")
	require.Error(t, g.Err(), "two live guards")
	release(t, g3)
}

func TestTakerThatGivesUpLeavesATombstone(t *testing.T) {
	t.Parallel()
	nodes := startNodes(t, 3)
	options, links := proxied(t, nodes)
	a := newLocker(t, options, validity(3*time.Second))
	b := newLocker(t, redistest.Options(nodes), validity(3*time.Second))
	c := newLocker(t, redistest.Options(nodes), validity(3*time.Second))
	g := acquire(t, a, "a")
	for _, link := range links {
		link.Silence(netproxy.Both)
	}
	ctx, cancel := context.WithTimeout(t.Context(), 300*time.Millisecond)
	defer cancel()
	within(t, 1500*time.Millisecond, "ends with its context", func() {
		_, err := b.ForceAcquire(ctx, "a")
		require.ErrorIs(t, err, context.DeadlineExceeded)
	})
	g3 := acquire(t, c, "a")
	require.Error(t, g.Err(), "two live guards")
	release(t, g3)
}

func TestTwoTakersDoNotOverlapNorKillEachOtherForEver(t *testing.T) {
	t.Parallel()
	nodes := startNodes(t, 3)
	lockers := []*redlock.Locker{
		newLocker(t, redistest.Options(nodes), validity(2*time.Second)),
		newLocker(t, redistest.Options(nodes), validity(2*time.Second)),
		newLocker(t, redistest.Options(nodes), validity(2*time.Second)),
	}
	for range 4 {
		g := acquire(t, lockers[0], "a")
		var mu sync.Mutex
		var guards []*redlock.Guard
		var takers sync.WaitGroup
		for _, l := range lockers[1:] {
			takers.Go(func() {
				taken, err := l.ForceAcquire(context.Background(), "a")
				if err != nil {
					if !errors.Is(err, redlock.ErrTakenOver) && !errors.Is(err, redlock.ErrNotLocked) {
						t.Error(err)
					}
					return
				}
				mu.Lock()
				defer mu.Unlock()
				for _, before := range guards {
					if before.Err() == nil {
						t.Error("two takers hold the lock")
					}
				}
				guards = append(guards, taken)
			})
		}
		takers.Wait()
		require.Error(t, g.Err())
		alive := 0
		for _, g := range guards {
			if g.Err() == nil {
				alive++
				if err := g.Release(t.Context()); err != nil { // the other one had taken a vote of it before it gave up
					require.ErrorIs(t, err, redlock.ErrLost)
				}
			}
		}
		require.LessOrEqual(t, alive, 1)
	}
}

func TestChainOfTakersCarriesEveryoneDisplaced(t *testing.T) {
	t.Parallel()
	nodes := startNodes(t, 3)
	options, links := proxied(t, nodes)
	first := newLocker(t, options, validity(3*time.Second), nodeTimeout(time.Second))
	second := newLocker(t, redistest.Options(nodes), validity(3*time.Second), nodeTimeout(time.Second))
	third := newLocker(t, redistest.Options(nodes), validity(3*time.Second), nodeTimeout(time.Second))
	g := acquire(t, first, "a")
	for _, link := range links {
		link.Silence(netproxy.Both)
	}
	g2, err := second.ForceAcquireNow(t.Context(), "a")
	require.NoError(t, err)
	g3, err := third.ForceAcquire(t.Context(), "a")
	require.NoError(t, err)
	require.Error(t, g2.Err())
	require.Error(t, g.Err(), "displaced by the one that the taker displaced")
	release(t, g3)
}

func TestForceWhereNoQuorumIs(t *testing.T) {
	t.Parallel()
	nodes := startNodes(t, 3)
	l := newLocker(t, redistest.Options(nodes))
	for _, n := range nodes[:2] {
		require.NoError(t, n.Kill())
	}
	_, err := l.ForceAcquire(t.Context(), "a")
	require.ErrorIs(t, err, redlock.ErrNoQuorum)
	requireNoKeys(t, nodes[2:], soon)
}

func TestForceEndsAHolderThatAMinorityCanReach(t *testing.T) {
	t.Parallel()
	nodes := startNodes(t, 3)
	options, links := proxied(t, nodes)
	a := newLocker(t, options, validity(20*time.Second))
	b := newLocker(t, redistest.Options(nodes), validity(20*time.Second))
	g := acquire(t, a, "a")
	require.Eventually(t, func() bool { return do(t, nodes[2], "EXISTS", lockKey("a")) == "1" }, soon, tick)
	for _, link := range links[:2] {
		link.Silence(netproxy.Both) // the news and the acknowledgement go through the third
	}
	within(t, 10*time.Second, "acknowledged through one node", func() {
		g2, err := b.ForceAcquire(t.Context(), "a")
		require.NoError(t, err)
		require.Error(t, g.Err())
		release(t, g2)
	})
}
