package redlock_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/redlock-go/redlock"
	"github.com/redlock-go/redlock/internal/netproxy"
	"github.com/redlock-go/redlock/internal/redisproc"
	"github.com/redlock-go/redlock/internal/redisproc/redistest"
	"github.com/redlock-go/redlock/redlocktest"
)

// crowd is what became of some Lockers that all took one lock over and over.
type crowd struct {
	shares []int
	waits  []time.Duration
	holds  int
}

// contend lets one Locker each take the lock in a loop, fails if two hold it at once, and returns how it went.
func contend(t *testing.T, lockers []*redlock.Locker, name string, hold, length time.Duration) crowd {
	t.Helper()
	var (
		mu    sync.Mutex
		held  int
		token uint64
		wg    sync.WaitGroup
		c     = crowd{shares: make([]int, len(lockers))}
	)
	end := time.Now().Add(length)
	for i, l := range lockers {
		wg.Go(func() {
			for time.Now().Before(end) {
				began := time.Now()
				g, err := l.Acquire(context.Background(), name)
				if err != nil {
					t.Errorf("contender %d: %v", i, err)
					return
				}
				mu.Lock()
				held++
				if held != 1 {
					t.Errorf("%d hold the lock at once", held)
				}
				if g.FencingToken() <= token {
					t.Errorf("token %d after %d", g.FencingToken(), token)
				}
				token = g.FencingToken()
				c.waits = append(c.waits, time.Since(began))
				c.shares[i]++
				c.holds++
				mu.Unlock()
				time.Sleep(hold)
				mu.Lock()
				held--
				mu.Unlock()
				if err := g.Release(context.Background()); err != nil {
					t.Errorf("contender %d: release: %v", i, err)
				}
			}
		})
	}
	wg.Wait()
	return c
}

// Whoever was served stands in no line any more, whatever its attempts were told in what order: nobody waits behind it.
func TestWhoIsServedLeavesEveryLine(t *testing.T) {
	nodes := startNodes(t, 5)
	a, b := newLocker(t, redistest.Options(nodes)), newLocker(t, redistest.Options(nodes))
	for range 3 {
		contend(t, []*redlock.Locker{a, b}, "x", 0, time.Second)
		require.Eventually(t, func() bool {
			return !slices.ContainsFunc(nodes, func(n *redisproc.Node) bool { return do(t, n, "EXISTS", "redlock:queue:{x}") != "0" })
		}, time.Second, tick, "a line is left, and would be until a wake key has run out: 1.8 s")
	}
}

// Nobody starves, nobody overlaps, and what a hand-over costs does not grow with the number of waiters.
func TestWaitingIsFairAndQuiet(t *testing.T) {
	for _, n := range []int{1, 5} {
		perHold := make(map[int]float64)
		for _, k := range []int{2, 8, 32, 100} {
			t.Run(fmt.Sprintf("%d nodes, %d contenders", n, k), func(t *testing.T) {
				nodes := startNodes(t, n)
				var lockers []*redlock.Locker
				for range k {
					lockers = append(lockers, newLocker(t, redistest.Options(nodes)))
				}
				before := calls(t, nodes[0], "evalsha")
				c := contend(t, lockers, "fair", time.Millisecond, 2*time.Second)
				cost := calls(t, nodes[0], "evalsha") - before
				least, most := slices.Min(c.shares), slices.Max(c.shares)
				t.Logf("%d holds, shares %d to %d, longest wait %v, %.1f scripts per hold on a node",
					c.holds, least, most, slices.Max(c.waits), float64(cost)/float64(c.holds))
				require.NotZero(t, least, "every contender is served")
				require.LessOrEqual(t, most-least, 2+most/4, "all are served about equally often")
				// By time a waiter asks once in askEvery to keep its place; the rest is what hand-overs cost.
				perHold[k] = float64(cost-4*k) / float64(c.holds)
			})
		}
		require.Less(t, perHold[100], 2*perHold[2]+6, "commands per hand-over with 100 contenders and with 2")
	}
}

// Who began to wait first is served first, across processes, and a newcomer overtakes nobody.
func TestWaitingIsFirstComeFirstServed(t *testing.T) {
	t.Parallel()
	nodes := startNodes(t, 5)
	holder := newLocker(t, redistest.Options(nodes))
	g := tryAcquire(t, holder, "fifo")

	var (
		mu     sync.Mutex
		served []int
		wg     sync.WaitGroup
	)
	for i := range 10 {
		l := newLocker(t, redistest.Options(nodes))
		wg.Go(func() {
			g, err := l.Acquire(context.Background(), "fifo")
			if err != nil {
				t.Errorf("waiter %d: %v", i, err)
				return
			}
			mu.Lock()
			served = append(served, i)
			mu.Unlock()
			if err := g.Release(context.Background()); err != nil {
				t.Errorf("waiter %d: %v", i, err)
			}
		})
		require.Eventually(t, func() bool {
			line, err := holder.Inspect(context.Background(), "fifo")
			return err == nil && line.Waiters == i+1
		}, soon, tick)
	}
	newcomer := newLocker(t, redistest.Options(nodes))
	_, err := newcomer.TryAcquire(context.Background(), "fifo")
	require.ErrorIs(t, err, redlock.ErrNotLocked)
	require.NoError(t, g.Release(context.Background()))
	wg.Wait()
	require.Equal(t, []int{0, 1, 2, 3, 4, 5, 6, 7, 8, 9}, served)
}

// Inside one Locker it is the order of calls, and the line is shared with other processes by ticket.
func TestWaitingInsideOneLockerIsFirstComeFirstServed(t *testing.T) {
	t.Parallel()
	nodes := startNodes(t, 3)
	l := newLocker(t, redistest.Options(nodes))
	g := tryAcquire(t, l, "fifo")
	var (
		mu     sync.Mutex
		served []int
		wg     sync.WaitGroup
	)
	for i := range 10 {
		wg.Go(func() {
			g, err := l.Acquire(context.Background(), "fifo")
			if err != nil {
				t.Errorf("waiter %d: %v", i, err)
				return
			}
			mu.Lock()
			served = append(served, i)
			mu.Unlock()
			if err := g.Release(context.Background()); err != nil {
				t.Errorf("waiter %d: %v", i, err)
			}
		})
		waitForCalls(t, l, "fifo", i+1)
	}
	waitForWaiters(t, l, "fifo", 2) // the others come to the nodes one by one
	began := time.Now()
	require.NoError(t, g.Release(context.Background()))
	wg.Wait()
	require.Equal(t, []int{0, 1, 2, 3, 4, 5, 6, 7, 8, 9}, served)
	require.Less(t, time.Since(began), 5*time.Second, "own writes do not push: the hand-over inside a process must not wait for polls")
}

// Peer15: every extension wakes every waiting process. Ours wakes nobody, and an idle waiter costs about one command a
// second on each node.
func TestPeer15ExtensionWakesNobody(t *testing.T) {
	t.Parallel()
	nodes := startNodes(t, 3)
	holder := newLocker(t, redistest.Options(nodes), validity(2*time.Second), interval(50*time.Millisecond))
	tryAcquire(t, holder, "busy")
	const waiters = 20
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	for range waiters {
		l := newLocker(t, redistest.Options(nodes), validity(2*time.Second))
		go l.Acquire(ctx, "busy")
	}
	require.Eventually(t, func() bool {
		line, err := holder.Inspect(ctx, "busy")
		return err == nil && line.Waiters == waiters
	}, soon, tick)
	before, began := calls(t, nodes[0], "evalsha"), time.Now()
	time.Sleep(3 * time.Second)
	seconds := time.Since(began).Seconds()
	spent := float64(calls(t, nodes[0], "evalsha") - before)
	extensions := seconds / 0.045
	require.Less(t, spent-extensions, 2*waiters*seconds, "scripts of %d waiters in %.1f s beside %.0f extensions", waiters, seconds, extensions)
}

// Peer06 and its like: a cancelled waiter passes the turn on at once, first in line or not.
func TestWaitingCancelledWaitersAreSkippedAtOnce(t *testing.T) {
	t.Parallel()
	nodes := startNodes(t, 5)
	holder, last := newLocker(t, redistest.Options(nodes)), newLocker(t, redistest.Options(nodes))
	var waiters []*redlock.Locker
	for range 5 {
		waiters = append(waiters, newLocker(t, redistest.Options(nodes)))
	}
	// round returns how long after the release the last one has the lock.
	round := func() time.Duration {
		g := acquire(t, holder, "skip")
		ctx, cancel := context.WithCancel(context.Background())
		defer cancel()
		var wg sync.WaitGroup
		for i, l := range waiters {
			wg.Go(func() {
				if _, err := l.Acquire(ctx, "skip"); !errors.Is(err, context.Canceled) {
					t.Error(err)
				}
			})
			waitForWaiters(t, holder, "skip", i+1)
		}
		got := make(chan time.Time, 1)
		wg.Go(func() {
			defer close(got)
			g, err := last.Acquire(context.Background(), "skip")
			if err == nil {
				got <- time.Now()
				err = g.Release(context.Background())
			}
			if err != nil {
				t.Error(err)
			}
		})
		waitForWaiters(t, holder, "skip", 6)
		cancel()
		waitForWaiters(t, holder, "skip", 1)
		released := time.Now()
		require.NoError(t, g.Release(context.Background()))
		wg.Wait()
		return (<-got).Sub(released)
	}
	var took []time.Duration
	for range 10 { // as quick does
		if took = append(took, round()); took[len(took)-1] < 900*time.Millisecond {
			return
		}
	}
	require.Fail(t, "by push, not by the next asking", "%v", took)
}

func waitForWaiters(t testing.TB, l *redlock.Locker, name string, n int) {
	t.Helper()
	require.Eventually(t, func() bool {
		line, err := l.Inspect(context.Background(), name)
		return err == nil && line.Waiters == n
	}, soon, tick, "%d waiters for %q", n, name)
}

// waitForCalls waits until so many calls of one Locker stand in its line for a name.
func waitForCalls(t testing.TB, l *redlock.Locker, name string, n int) {
	t.Helper()
	require.Eventually(t, func() bool { return l.Waiting(name) == n }, soon, tick, "%d calls wait for %q", n, name)
}

// Peer36: dead heads block Redisson's fair queue for five minutes. Ours are skipped within 2 s; the bound here leaves
// room for a busy machine.
func TestPeer36DeadWaitersAreSkipped(t *testing.T) {
	t.Parallel()
	nodes := startNodes(t, 5)
	holder := newLocker(t, redistest.Options(nodes))
	g := tryAcquire(t, holder, "dead")
	var dying []*netproxy.Link
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	for i := range 3 {
		options, links := proxied(t, nodes)
		dying = append(dying, links...)
		l := newLocker(t, options)
		go l.Acquire(ctx, "dead")
		waitForWaiters(t, holder, "dead", i+1)
	}
	last := newLocker(t, redistest.Options(nodes))
	got := make(chan *redlock.Guard, 1)
	go func() {
		g, err := last.Acquire(ctx, "dead")
		if err == nil {
			got <- g
		}
	}()
	waitForWaiters(t, holder, "dead", 4)
	for _, link := range dying { // the process is gone, and nobody is told
		link.Refuse()
		link.Silence(netproxy.Both)
	}
	require.NoError(t, g.Release(context.Background()))
	released := time.Now()
	select {
	case <-got:
		t.Logf("three dead waiters skipped in %v", time.Since(released))
	case <-time.After(4 * time.Second):
		t.Fatal("dead waiters block the line")
	}
}

// Peer16: a dead holder is noticed only when Redis expires the key. Here the first in line has its own timer, and it
// works with pushes lost and with thousands of other volatile keys about.
func TestPeer16DeadHoldersSuccessorMovesWhenTheLeaseEnds(t *testing.T) {
	t.Parallel()
	nodes := startNodes(t, 5)
	options, links := proxied(t, nodes)
	holder := newLocker(t, options, validity(3*time.Second))
	g := tryAcquire(t, holder, "dead holder")
	waiter := newLocker(t, redistest.Options(nodes), validity(3*time.Second))
	got := make(chan time.Time, 1)
	go func() {
		if g, err := waiter.Acquire(context.Background(), "dead holder"); err == nil {
			got <- time.Now()
			g.Release(context.Background())
		}
	}()
	waitForWaiters(t, waiter, "dead holder", 1)
	for _, link := range links {
		link.Refuse()
		link.Silence(netproxy.Both)
	}
	died := time.Now()
	at := <-got
	require.Error(t, g.Err(), "the successor is there: the dead holder's guard has ended by its own clock")
	require.Less(t, at.Sub(died), 3*time.Second+900*time.Millisecond)
}

// With tracking refused a hand-over costs one asking.
func TestWaitingWithoutPushes(t *testing.T) {
	t.Parallel()
	nodes := startNodes(t, 3)
	options := redistest.Options(nodes)
	for i := range options {
		options[i].DisableCache = true
	}
	a, b := newLocker(t, options), newLocker(t, options)
	g := tryAcquire(t, a, "deaf")
	got := make(chan time.Time, 1)
	go func() {
		if g, err := b.Acquire(context.Background(), "deaf"); err == nil {
			got <- time.Now()
			g.Release(context.Background())
		}
	}()
	waitForWaiters(t, a, "deaf", 1)
	released := time.Now()
	require.NoError(t, g.Release(context.Background()))
	require.Less(t, (<-got).Sub(released), 3*time.Second)
}

// Peer37: contenders that split the nodes resolve it by ticket, not by sleeping at random.
func TestPeer37SplitVotesAreResolved(t *testing.T) {
	t.Parallel()
	nodes := startNodes(t, 5)
	var lockers []*redlock.Locker
	for range 10 {
		lockers = append(lockers, newLocker(t, redistest.Options(nodes)))
	}
	for round := range 20 {
		name := fmt.Sprint("split ", round)
		start := make(chan struct{})
		var wg sync.WaitGroup
		for _, l := range lockers {
			wg.Go(func() {
				<-start
				g, err := l.Acquire(context.Background(), name)
				if err == nil {
					err = g.Release(context.Background())
				}
				if err != nil {
					t.Error(err)
				}
			})
		}
		began := time.Now()
		close(start)
		wg.Wait()
		require.Less(t, time.Since(began), soon, "round %d: ten contenders at once", round)
	}
}

// After everybody has gone nothing is left but markers and fence buckets, the line included.
func TestWaitingLeavesNothingBehind(t *testing.T) {
	t.Parallel()
	nodes := startNodes(t, 3)
	a, b := newLocker(t, redistest.Options(nodes)), newLocker(t, redistest.Options(nodes))
	g := tryAcquire(t, a, "tidy")
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan error, 1)
	go func() {
		_, err := b.Acquire(ctx, "tidy")
		done <- err
	}()
	waitForWaiters(t, a, "tidy", 1)
	cancel()
	require.ErrorIs(t, <-done, context.Canceled)
	require.NoError(t, g.Release(context.Background()))
	a.Close()
	b.Close()
	for _, n := range nodes {
		keys, err := n.Do("KEYS", "*")
		require.NoError(t, err)
		for key := range strings.FieldsSeq(keys) {
			require.True(t, key == "redlock:marker" || strings.HasPrefix(key, "redlock:fence:"), "left behind: %q", key)
		}
	}
}

func TestInspect(t *testing.T) {
	t.Parallel()
	nodes := startNodes(t, 5)
	a, b := newLocker(t, redistest.Options(nodes)), newLocker(t, redistest.Options(nodes))
	line, err := a.Inspect(context.Background(), "look")
	require.NoError(t, err)
	require.Equal(t, redlock.Line{}, line, "nobody holds, nobody waits")

	g := tryAcquire(t, a, "look")
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	go b.Acquire(ctx, "look")
	waitForWaiters(t, a, "look", 1)
	line, err = b.Inspect(context.Background(), "look")
	require.NoError(t, err)
	require.Len(t, line.Holder, 26)
	require.Equal(t, g.FencingToken(), line.FencingToken)
	require.InDelta(t, 10*time.Second, line.Left, float64(5*time.Second))
	require.Equal(t, 1, line.Waiters)
	require.Equal(t, 1, line.Position)
	line, err = a.Inspect(context.Background(), "look")
	require.NoError(t, err)
	require.Zero(t, line.Position, "the holder does not wait")

	for _, n := range nodes[:3] {
		require.NoError(t, n.Kill())
	}
	_, err = a.Inspect(context.Background(), "look")
	require.ErrorIs(t, err, redlock.ErrNoQuorum)
	_, err = a.Inspect(context.Background(), "")
	require.ErrorIs(t, err, redlock.ErrInvalidOption)
}

// A program that gives up and ends at once does not hold up those behind it, as one that dies would: Close waits until the
// nodes know that it has left the line.
func TestWaitingThatEndsWithItsLockerLeavesTheLine(t *testing.T) {
	for _, gives := range []string{"up", "way to Close"} {
		simulated(t, 3, func(t *testing.T, c *redlocktest.Cluster, open opener) {
			a, b, d := open("a"), open("b"), open("d")
			for i := range 3 {
				c.Node(i).Delay(time.Millisecond, time.Millisecond)
			}
			g := tryAcquire(t, a, "x")
			ctx, cancel := context.WithTimeout(context.Background(), 100*time.Millisecond)
			defer cancel()
			if gives == "up" {
				_, err := b.Acquire(ctx, "x")
				require.ErrorIs(t, err, context.DeadlineExceeded)
			} else {
				time.AfterFunc(100*time.Millisecond, b.Close)
				_, err := b.Acquire(context.Background(), "x")
				require.ErrorIs(t, err, redlock.ErrLockerClosed)
			}
			b.Close()
			line, err := a.Inspect(context.Background(), "x")
			require.NoError(t, err)
			require.Zero(t, line.Waiters, "it gave %s", gives)
			release(t, g)
			start := time.Now()
			release(t, acquire(t, d, "x"))
			require.Less(t, time.Since(start), 10*time.Millisecond)
		})
	}
}

// A keeper's look at a node tries its commands on keys of nobody. What says that somebody stands in a line is none of them: without it
// batches would wake nobody, and let newcomers in, until the next waiter asks again.
func TestLooksAtANodeTakeNothingFromItsLines(t *testing.T) {
	t.Parallel()
	nodes := startNodes(t, 3)
	doAll(t, nodes, "SET", "redlock:wake:", "*")
	awaitAllNodes(t, newLocker(t, redistest.Options(nodes)))
	for _, n := range nodes {
		require.Equal(t, "*", do(t, n, "GET", "redlock:wake:"))
	}
}
