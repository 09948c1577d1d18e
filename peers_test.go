package redlock_test

import (
	"context"
	"errors"
	"fmt"
	"math/bits"
	"os"
	"regexp"
	"runtime"
	"slices"
	"strconv"
	"sync"
	"testing"
	"time"

	"github.com/redis/rueidis/rueidislock"
	"github.com/stretchr/testify/require"

	"github.com/redlock-go/redlock"
	"github.com/redlock-go/redlock/internal/netproxy"
	"github.com/redlock-go/redlock/internal/redisproc"
	"github.com/redlock-go/redlock/internal/redisproc/redistest"
)

// Each test is named for a defect that another library has: its number in docs/peers.md, and what ours does instead.

func TestPeersAreThoseOfTheList(t *testing.T) {
	list, err := os.ReadFile("docs/peers.md")
	require.NoError(t, err)
	tests, err := os.ReadFile("peers_test.go")
	require.NoError(t, err)
	var listed, there []string
	for _, row := range regexp.MustCompile(`(?m)^\| (\d+) \|.*`).FindAllStringSubmatch(string(list), -1) {
		for _, name := range regexp.MustCompile("`(TestPeer\\d\\d[^`]*)`").FindAllStringSubmatch(row[0], -1) {
			number, err := strconv.Atoi(row[1])
			require.NoError(t, err)
			require.Contains(t, name[1], fmt.Sprintf("TestPeer%02d", number))
			listed = append(listed, name[1])
		}
	}
	for _, f := range regexp.MustCompile(`(?m)^func (TestPeer\d\d\w*)\(`).FindAllStringSubmatch(string(tests), -1) {
		there = append(there, f[1])
	}
	require.Equal(t, there, listed)
}

func TestPeer01StandaloneNodesVote(t *testing.T) {
	t.Parallel()
	nodes := startNodes(t, 3)
	l := newLocker(t, redistest.Options(nodes), validity(2*time.Second))
	g := acquire(t, l, "a")
	for _, n := range nodes {
		require.Eventually(t, func() bool { return do(t, n, "EXISTS", lockKey("a")) == "1" }, soon, tick, "every node has a vote of its own")
	}
	for _, n := range nodes {
		require.NoError(t, n.Kill())
		requireHeldFor(t, g, 300*time.Millisecond)
		require.NoError(t, n.CrashEmpty())
		require.Eventually(t, func() bool { return do(t, n, "EXISTS", lockKey("a")) == "1" }, soon, tick)
	}
	release(t, g)
}

func TestPeer02GuardEndsBeforeItsKeysUnderPartition(t *testing.T) {
	t.Parallel()
	for _, every := range []time.Duration{500 * time.Millisecond, 1200 * time.Millisecond} {
		t.Run(every.String(), func(t *testing.T) {
			t.Parallel()
			nodes := startNodes(t, 3)
			options, links := proxied(t, nodes)
			holder := newLocker(t, options, validity(2*time.Second), interval(every), nodeTimeout(300*time.Millisecond))
			rival := newLocker(t, redistest.Options(nodes), validity(2*time.Second))
			g := acquire(t, holder, "a")
			time.Sleep(every) // into the middle of an extension
			for _, link := range links {
				link.Silence(netproxy.Both)
			}
			start := time.Now()
			g2 := acquire(t, rival, "a")
			require.Error(t, g.Err(), "two live guards")
			require.ErrorIs(t, g.Err(), redlock.ErrLost)
			require.Greater(t, g2.FencingToken(), g.FencingToken())
			require.Less(t, time.Since(start), 10*time.Second)
		})
	}
}

func TestPeer03ExpiryIsNobodysWallClock(t *testing.T) {
	t.Parallel()
	for _, step := range []time.Duration{time.Hour, -time.Hour, 6 * time.Second, -6 * time.Second} {
		t.Run(step.String(), func(t *testing.T) {
			t.Parallel()
			nodes := redistest.StartSet(t, 3, redisproc.Options{Clock: true})
			for _, n := range nodes {
				n.Clock().Step(step)
			}
			a := newLocker(t, redistest.Options(nodes), validity(3*time.Second))
			b := newLocker(t, redistest.Options(nodes), validity(3*time.Second))
			g := acquire(t, a, "a")
			for range 5 {
				_, err := b.TryAcquire(t.Context(), "a")
				require.ErrorIs(t, err, redlock.ErrNotLocked)
				requireHeldFor(t, g, 900*time.Millisecond)
			}
			left, err := strconv.Atoi(do(t, nodes[0], "PTTL", lockKey("a")))
			require.NoError(t, err)
			require.LessOrEqual(t, left, 3000)
			release(t, g)
			release(t, tryAcquire(t, b, "a"))
		})
	}
}

func TestPeer04IdleLockCostsOneCommandPerInterval(t *testing.T) {
	t.Parallel()
	nodes := startNodes(t, 3)
	l := newLocker(t, redistest.Options(nodes), validity(2*time.Second), interval(200*time.Millisecond))
	g := acquire(t, l, "a")
	time.Sleep(100 * time.Millisecond)
	before := make([]int, len(nodes))
	total := make([]int, len(nodes))
	for i, n := range nodes {
		before[i] = calls(t, n, "evalsha")
		total[i] = calls(t, n, "eval") + calls(t, n, "ping") + calls(t, n, "info") + calls(t, n, "script|load")
	}
	const intervals = 10
	start := time.Now()
	requireHeldFor(t, g, intervals*200*time.Millisecond)
	for i, n := range nodes {
		spent := int(time.Since(start)/(180*time.Millisecond)) + 2 // some jitter
		got := calls(t, n, "evalsha") - before[i]
		require.LessOrEqual(t, got, spent, "extensions on node %d", i)
		require.GreaterOrEqual(t, got, 3, "extensions on node %d", i)
		others := calls(t, n, "eval") + calls(t, n, "ping") + calls(t, n, "script|load") - total[i]
		require.LessOrEqual(t, others, 2, "and hardly anything else, on node %d", i)
	}
}

func TestPeer05StalledFirstAttemptDoesNotHangAWait(t *testing.T) {
	t.Parallel()
	nodes := startNodes(t, 3)
	l := newLocker(t, redistest.Options(nodes), validity(4*time.Second), nodeTimeout(200*time.Millisecond))
	for _, n := range nodes {
		require.NoError(t, n.Freeze())
	}
	time.AfterFunc(500*time.Millisecond, func() {
		for _, n := range nodes {
			n.Thaw()
		}
	})
	within(t, 10*time.Second, "the lock is free", func() {
		_, cancel, err := l.WithContext(t.Context(), "a")
		require.NoError(t, err)
		cancel()
	})
}

func TestPeer05PermanentErrorsSurfaceFromAWait(t *testing.T) {
	t.Parallel()
	for _, row := range []struct {
		reason   string
		breaking [][]string
		says     string
	}{
		{"the key is a list", [][]string{{"LPUSH", lockKey("a"), "x"}}, "WRONGTYPE"},
		{"scripts are forbidden", [][]string{{"ACL", "SETUSER", "default", "-evalsha", "-eval"}}, "NOPERM"},
		{"the lock key is forbidden", [][]string{{"ACL", "SETUSER", "default", "resetkeys", "~redlock:marker"}}, "NOPERM"},
		{"the fence key is forbidden", [][]string{{"ACL", "SETUSER", "default", "resetkeys", "~redlock:marker", "~redlock:{*"}}, ""},
		{"a command inside the script is forbidden", [][]string{{"ACL", "SETUSER", "default", "-set"}}, "user executing the script"},
	} {
		t.Run(row.reason, func(t *testing.T) {
			t.Parallel()
			nodes := startNodes(t, 3)
			l := newLocker(t, redistest.Options(nodes), validity(20*time.Second))
			for _, command := range row.breaking {
				doAll(t, nodes[1:], command...)
			}
			ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second)
			defer cancel()
			_, _, err := l.WithContext(ctx, "a")
			require.ErrorIs(t, err, redlock.ErrNoQuorum)
			require.NotErrorIs(t, err, context.DeadlineExceeded)
			require.ErrorContains(t, err, row.says)
			require.ErrorContains(t, err, nodes[1].Addr())
		})
	}
}

func TestPeer05PermanentErrorOfAMinorityIsOutvoted(t *testing.T) {
	t.Parallel()
	nodes := startNodes(t, 3)
	l := newLocker(t, redistest.Options(nodes))
	do(t, nodes[1], "LPUSH", lockKey("a"), "x")
	release(t, acquire(t, l, "a"))
	require.Equal(t, "list", do(t, nodes[1], "TYPE", lockKey("a")), "what is not ours is left alone")
}

func TestPeer06CancelledWaiterPassesTheTurnOn(t *testing.T) {
	t.Parallel()
	nodes := startNodes(t, 3)
	remote := newLocker(t, redistest.Options(nodes), validity(20*time.Second))
	local := newLocker(t, redistest.Options(nodes), validity(20*time.Second))
	slow := 0
	for range 20 {
		g := acquire(t, remote, "a")
		ctx, cancel := context.WithCancel(t.Context())
		first, second := make(chan error, 1), make(chan *redlock.Guard, 1)
		go func() {
			g, err := local.Acquire(ctx, "a")
			if g != nil {
				err = g.Release(context.Background())
			}
			first <- err
		}()
		waitForCalls(t, local, "a", 1)
		go func() {
			g, _ := local.Acquire(context.Background(), "a")
			second <- g
		}()
		waitForWaiters(t, remote, "a", 2)
		start := time.Now()
		go cancel()
		release(t, g)
		if err := <-first; err != nil {
			require.ErrorIs(t, err, context.Canceled)
		}
		select {
		case g := <-second:
			require.NotNil(t, g)
			release(t, g)
		case <-time.After(soon):
			require.Fail(t, "the second waiter sleeps on a free lock")
		}
		if time.Since(start) > 800*time.Millisecond { // below the slow poll, which would hide it
			slow++
		}
	}
	require.LessOrEqual(t, slow, 2, "rounds in which only the slow poll found the lock free")
}

func TestPeer07ForeignKeysOnAMinorityVetoNothing(t *testing.T) {
	t.Parallel()
	for _, n := range []int{3, 4, 5} {
		t.Run(fmt.Sprint(n), func(t *testing.T) {
			t.Parallel()
			nodes := startNodes(t, n)
			l := newLocker(t, redistest.Options(nodes))
			for mask := range 1 << n {
				name := fmt.Sprintf("mask %0*b", n, mask)
				for i, node := range nodes {
					if mask>>i&1 == 1 {
						do(t, node, "SET", lockKey(name), "foreign", "PX", "60000")
					}
				}
				g, err := l.TryAcquire(t.Context(), name)
				if free := n - bits.OnesCount(uint(mask)); 2*free > n {
					require.NoError(t, err, name)
					release(t, g)
				} else {
					require.ErrorIs(t, err, redlock.ErrNotLocked, name)
					require.ErrorIs(t, err, rueidislock.ErrNotLocked, name)
					require.NotErrorIs(t, err, redlock.ErrNoQuorum, name)
					var held *redlock.HeldError
					ok := errors.As(err, &held)
					require.True(t, ok)
					require.Equal(t, "foreign", held.Owner)
				}
				for i, node := range nodes {
					want := ""
					if mask>>i&1 == 1 {
						want = "foreign"
					}
					require.Eventually(t, func() bool { return do(t, node, "GET", lockKey(name)) == want }, soon, tick, "%s, node %d", name, i)
				}
			}
		})
	}
}

func TestPeer08NodesAreAskedAllAtOnce(t *testing.T) {
	t.Parallel()
	nodes := startNodes(t, 5)
	options, links := proxied(t, nodes)
	l := newLocker(t, options, nodeTimeout(2*time.Second))
	for _, link := range links {
		link.Delay(netproxy.Both, 150*time.Millisecond, nil)
	}
	quick(t, 1300*time.Millisecond, "five nodes at 300 ms one after the other take 1.5 s, three 0.9 s", func() {
		g := tryAcquire(t, l, "a")
		release(t, g)
	})
}

func TestPeer09HungNodesBlockNobody(t *testing.T) {
	t.Parallel()
	nodes := startNodes(t, 3)
	l := newLocker(t, redistest.Options(nodes), validity(20*time.Second), nodeTimeout(4*time.Second))
	_, cancel, err := l.TryWithContext(t.Context(), "held")
	require.NoError(t, err)
	for _, n := range nodes {
		require.NoError(t, n.Freeze())
	}
	ctx, stop := context.WithTimeout(t.Context(), 100*time.Millisecond)
	defer stop()
	within(t, 3500*time.Millisecond, "the caller's context is listened to at once", func() {
		_, _, err := l.TryWithContext(ctx, "a")
		require.ErrorIs(t, err, context.DeadlineExceeded)
	})
	within(t, 12*time.Second, "a NodeTimeout bounds the attempt, not the validity of 20 s", func() {
		_, _, err := l.TryWithContext(t.Context(), "b")
		require.ErrorIs(t, err, redlock.ErrNoQuorum)
		require.ErrorIs(t, err, redlock.ErrNodeTimeout)
		require.NotErrorIs(t, err, context.DeadlineExceeded)
	})
	within(t, 12*time.Second, "and the release", cancel)
	for _, n := range nodes {
		require.NoError(t, n.Thaw())
	}
	requireNoKeys(t, nodes, 2*soon)
}

func TestPeer10LostMinorityVoteIsWonBack(t *testing.T) {
	t.Parallel()
	nodes := startNodes(t, 3)
	l := newLocker(t, redistest.Options(nodes), validity(2*time.Second), interval(300*time.Millisecond))
	g := acquire(t, l, "a")
	token := g.FencingToken()
	counted := func() bool { return g.Votes() == len(nodes) }
	// Two votes are enough to hold it; here the third is to be counted, too.
	require.Eventually(t, counted, soon, tick)
	for round := range 2 * len(nodes) {
		n := nodes[round%len(nodes)]
		require.Eventually(t, func() bool { return do(t, n, "EXISTS", lockKey("a")) == "1" }, soon, tick)
		do(t, n, "DEL", lockKey("a"))
		require.Eventually(t, func() bool { return do(t, n, "EXISTS", lockKey("a")) == "1" }, soon, tick, "won back at the next renewal")
		require.Eventually(t, counted, soon, tick, "and counted again")
	}
	for _, n := range nodes { // a rolling restart
		require.NoError(t, n.CrashEmpty())
		require.Eventually(t, func() bool { return do(t, n, "EXISTS", lockKey("a")) == "1" }, soon, tick, "won back from a server without memory")
		require.Eventually(t, counted, soon, tick, "and counted again")
	}
	require.NoError(t, g.Err())
	require.Equal(t, token, g.FencingToken())
	release(t, g)
	require.Greater(t, tryAcquire(t, l, "a").FencingToken(), token)
}

func TestPeer11BusyServersAreRiddenOut(t *testing.T) {
	t.Parallel()
	nodes := redistest.StartSet(t, 3, redisproc.Options{Args: []string{"--lua-time-limit", "20"}})
	l := newLocker(t, redistest.Options(nodes), validity(30*time.Second), interval(300*time.Millisecond))
	g := acquireOnAll(t, l, nodes, "a")
	for _, n := range nodes {
		afterward(t, func() { n.Do("EVAL", "while true do end", "0") })
	}
	for _, n := range nodes {
		require.Eventually(t, func() bool {
			_, err := n.Do("GET", "x")
			return err != nil
		}, soon, tick, "busy")
	}
	requireHeldFor(t, g, 900*time.Millisecond)
	before := g.ValidUntil()
	for _, n := range nodes {
		require.Eventually(t, func() bool {
			n.Do("SCRIPT", "KILL")
			_, err := n.Do("GET", "x")
			return err == nil
		}, soon, tick)
		require.Equal(t, "1", do(t, n, "EXISTS", lockKey("a")), "nobody deletes their own key over an error")
	}
	require.Eventually(t, func() bool { return g.ValidUntil().After(before.Add(100 * time.Millisecond)) }, soon, tick, "extension goes on")
	require.NoError(t, g.Err())
	release(t, g)
	requireNoKeys(t, nodes, soon)
}

func TestPeer12CloseLeavesNoKey(t *testing.T) {
	t.Parallel()
	nodes := startNodes(t, 3)
	for range 20 {
		l, err := redlock.NewLocker(lockerOption(redistest.Options(nodes)))
		require.NoError(t, err)
		guards := make([]*redlock.Guard, 10)
		for i := range guards {
			guards[i] = tryAcquire(t, l, strconv.Itoa(i))
		}
		l.Close()
		for _, g := range guards {
			require.ErrorIs(t, g.Err(), redlock.ErrLockerClosed)
		}
		for _, n := range nodes {
			require.Empty(t, keysOf(t, n))
		}
	}
}

func TestPeer13PushedKeysOfAnyShapeHurtNobody(t *testing.T) {
	t.Parallel()
	nodes := startNodes(t, 1)
	l := newLocker(t, redistest.Options(nodes))
	g := acquire(t, l, "name")
	keys := []string{"redlock", "redlock:", "redlock:9:name", "redlock:-1:name", "redlock:{", "redlock:{}", "redlock:}", "redlock:{\x00\xff\n}", "redlock:fence:1", "", "redlock:{name"}
	for _, key := range keys {
		l.Client().Do(t.Context(), l.Client().B().Get().Key(key).Build()) // tracked now
		do(t, nodes[0], "SET", key, "x")
	}
	requireHeldFor(t, g, 100*time.Millisecond)
	release(t, g)
	release(t, acquire(t, l, "name"))
}

func TestPeer14CauseValidityFenceAndReleaseError(t *testing.T) {
	t.Parallel()
	nodes := startNodes(t, 3)
	l := newLocker(t, redistest.Options(nodes), validity(2*time.Second))
	ctx, cancel := context.WithTimeout(t.Context(), 2*time.Second)
	defer cancel()
	g, err := l.Acquire(ctx, "a")
	require.NoError(t, err)
	require.Positive(t, g.FencingToken())
	left := time.Until(g.ValidUntil())
	require.Positive(t, left)
	require.Less(t, left, 2*time.Second)
	<-ctx.Done()
	requireHeldFor(t, g, 300*time.Millisecond) // the wait's deadline is not the hold's
	require.NoError(t, g.Release(ctx))
	require.Equal(t, redlock.ErrReleased, g.Err())
	require.Equal(t, redlock.ErrReleased, context.Cause(g.Context()))
	require.Equal(t, context.Canceled, g.Context().Err())

	g = acquire(t, l, "a")
	for _, n := range nodes[1:] {
		require.NoError(t, n.Freeze())
	}
	err = g.Release(t.Context())
	require.ErrorIs(t, err, redlock.ErrNoQuorum, "an unconfirmed release says so")
	for _, n := range nodes[1:] {
		require.ErrorContains(t, err, n.Addr())
		require.NoError(t, n.Thaw())
	}
	requireNoKeys(t, nodes, soon)
}

func TestPeer15HeldLocksCostNoGoroutines(t *testing.T) {
	nodes := startNodes(t, 3)
	l := newLocker(t, redistest.Options(nodes))
	release(t, acquire(t, l, "first"))
	time.Sleep(50 * time.Millisecond)
	before := runtime.NumGoroutine()
	guards := make([]*redlock.Guard, 1000)
	for i := range guards {
		guards[i] = tryAcquire(t, l, strconv.Itoa(i))
	}
	require.Eventually(t, func() bool { return runtime.NumGoroutine() <= before+10 }, soon, tick,
		"1,000 held locks, %d goroutines before", before)
	time.Sleep(4 * time.Second) // an extension of them all
	require.Eventually(t, func() bool { return runtime.NumGoroutine() <= before+10 }, soon, tick)
	for _, g := range guards {
		require.NoError(t, g.Err())
	}
}

func TestPeer16DeadHoldersLeaseIsTimedByTheWaiter(t *testing.T) {
	t.Parallel()
	nodes := redistest.StartSet(t, 3, redisproc.Options{Args: []string{"--enable-debug-command", "yes"}})
	l := newLocker(t, redistest.Options(nodes), validity(30*time.Second))
	for _, n := range nodes {
		do(t, n, "DEBUG", "SET-ACTIVE-EXPIRE", "0") // no expiry is pushed
	}
	quick(t, 950*time.Millisecond, "the slow poll comes after 1 s", func() {
		start := time.Now()
		doAll(t, nodes, "SET", lockKey("a"), "dead", "PX", "250")
		release(t, acquire(t, l, "a"))
		require.GreaterOrEqual(t, time.Since(start), 250*time.Millisecond)
	})
}

func TestPeer17HungNodeSlowsNothing(t *testing.T) {
	t.Parallel()
	nodes := startNodes(t, 3)
	l := newLocker(t, redistest.Options(nodes), validity(10*time.Second), nodeTimeout(4*time.Second), interval(time.Second))
	g := acquireOnAll(t, l, nodes, "held")
	require.NoError(t, nodes[1].Freeze())
	within(t, 3500*time.Millisecond, "lock and unlock, with one of three hung, below any timeout", func() {
		for range 5 {
			release(t, acquire(t, l, "a"))
		}
	})
	requireHeldFor(t, g, 5*time.Second)
	within(t, 3500*time.Millisecond, "unlock of a lock that was extended meanwhile", func() { release(t, g) })
}

func TestPeer18EndedContextLeavesNoKey(t *testing.T) {
	t.Parallel()
	nodes := startNodes(t, 3)
	options, links := proxied(t, nodes)
	l := newLocker(t, options)
	for _, link := range links {
		link.Delay(netproxy.Both, 100*time.Millisecond, nil)
	}
	for _, after := range []time.Duration{10, 50, 120, 170, 199} {
		ctx, cancel := context.WithTimeout(t.Context(), after*time.Millisecond)
		g, err := l.TryAcquire(ctx, "a")
		cancel()
		if err == nil && after >= 120 { // a busy machine was told of the answers first
			release(t, g)
		} else {
			require.ErrorIs(t, err, context.DeadlineExceeded)
		}
		time.Sleep(time.Second)
		requireNoKeys(t, nodes, soon) // half a lease
	}
}

func TestPeer19StragglersOrphanNoKey(t *testing.T) {
	t.Parallel()
	nodes := startNodes(t, 3)
	options, links := proxied(t, nodes)
	l := newLocker(t, options)
	links[2].Delay(netproxy.Both, 200*time.Millisecond, nil)
	for i := range 5 {
		release(t, acquire(t, l, strconv.Itoa(i))) // a quorum is enough, the third is on its way
	}
	doAll(t, nodes[:2], "SET", lockKey("lost"), "foreign", "PX", "60000")
	_, err := l.TryAcquire(t.Context(), "lost") // refused by two, the third's yes comes later
	require.ErrorIs(t, err, redlock.ErrNotLocked)
	requireNoKeys(t, nodes[2:], 5*time.Second) // half a lease
}

func TestPeer20LostLockIsNeverRevived(t *testing.T) {
	t.Parallel()
	nodes := startNodes(t, 3)
	options, links := proxied(t, nodes)
	a := newLocker(t, options, validity(1500*time.Millisecond))
	b := newLocker(t, redistest.Options(nodes), validity(1500*time.Millisecond))
	g := acquire(t, a, "a")
	for _, link := range links {
		link.Silence(netproxy.Both)
	}
	requireDone(t, g, soon)
	g2 := acquire(t, b, "a")
	require.Greater(t, g2.FencingToken(), g.FencingToken())
	release(t, g2)
	requireNoKeys(t, nodes, soon) // Release returns at a quorum
	for _, link := range links {
		link.Heal(netproxy.Both)
	}
	for range 20 {
		time.Sleep(50 * time.Millisecond)
		require.ErrorIs(t, g.Err(), redlock.ErrLost)
		for _, n := range nodes {
			require.Empty(t, keysOf(t, n))
		}
	}
	require.ErrorIs(t, g.Release(t.Context()), redlock.ErrLost)
}

func TestPeer21ExtendedWithoutAskingAndEndOfContextIsTheContexts(t *testing.T) {
	t.Parallel()
	nodes := startNodes(t, 3)
	l := newLocker(t, redistest.Options(nodes), validity(2*time.Second))
	other := newLocker(t, redistest.Options(nodes), validity(2*time.Second))
	g := acquire(t, l, "a")
	requireHeldFor(t, g, 5*time.Second) // several leases
	ctx, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
	defer cancel()
	_, err := other.Acquire(ctx, "a")
	require.ErrorIs(t, err, context.DeadlineExceeded)
	require.NotErrorIs(t, err, redlock.ErrNotLocked)

	var wg sync.WaitGroup // read while it is extended: the race detector looks on
	for range 4 {
		wg.Go(func() {
			for range 200 {
				g.ValidUntil()
				g.Err()
				g.FencingToken()
				time.Sleep(time.Millisecond)
			}
		})
	}
	wg.Wait()
	doAll(t, nodes, "DEL", lockKey("a"))
	require.ErrorIs(t, requireDone(t, g, soon), redlock.ErrLost)
}

func TestPeer22WaitersArePushedNotPolling(t *testing.T) {
	t.Parallel()
	nodes := startNodes(t, 3)
	a := newLocker(t, redistest.Options(nodes), validity(20*time.Second))
	b := newLocker(t, redistest.Options(nodes), validity(20*time.Second))
	var took []time.Duration
	for range 9 {
		g := acquire(t, a, "a")
		got := make(chan *redlock.Guard, 1)
		go func() {
			g, _ := b.Acquire(context.Background(), "a")
			got <- g
		}()
		waitForWaiters(t, a, "a", 1)
		start := time.Now()
		release(t, g)
		g2 := <-got
		require.NotNil(t, g2)
		took = append(took, time.Since(start))
		release(t, g2)
	}
	slices.Sort(took)
	require.Less(t, took[len(took)/2], 300*time.Millisecond, "the slow poll comes after 1 s: %v", took)
}

func TestPeer23LossesSayWhatHappened(t *testing.T) {
	t.Parallel()
	nodes := startNodes(t, 3)
	a := newLocker(t, redistest.Options(nodes), validity(2*time.Second))
	b := newLocker(t, redistest.Options(nodes), validity(2*time.Second))
	awaitAllNodes(t, a, b)

	g := acquire(t, a, "deleted")
	doAll(t, nodes, "DEL", lockKey("deleted"))
	err := requireDone(t, g, soon)
	require.ErrorIs(t, err, redlock.ErrLost)
	require.NotErrorIs(t, err, redlock.ErrTakenOver)
	require.ErrorContains(t, err, "gone")

	g = acquire(t, a, "taken")
	taker, err := b.ForceAcquire(t.Context(), "taken")
	require.NoError(t, err)
	err = requireDone(t, g, soon)
	require.ErrorIs(t, err, redlock.ErrLost)
	require.ErrorIs(t, err, redlock.ErrTakenOver)
	var qe *redlock.QuorumError
	ok := errors.As(err, &qe)
	require.True(t, ok)
	require.Equal(t, 2, qe.Quorum)
	require.Equal(t, 3, qe.Nodes)
	require.Less(t, qe.Votes, 3)
	ok = errors.As(err, new(*redlock.NodeError))
	require.True(t, ok)
	release(t, taker)

	g = acquire(t, a, "expired")
	for _, n := range nodes {
		require.NoError(t, n.Freeze())
	}
	err = requireDone(t, g, soon)
	for _, n := range nodes {
		require.NoError(t, n.Thaw())
	}
	require.ErrorIs(t, err, redlock.ErrLost)
	require.NotErrorIs(t, err, redlock.ErrTakenOver)
}

func TestPeer24OwnerWithASharedPrefixIsSomebodyElse(t *testing.T) {
	t.Parallel()
	nodes := startNodes(t, 3)
	l := newLocker(t, redistest.Options(nodes), validity(3*time.Second))
	g := acquireOnAll(t, l, nodes, "a")
	owner := do(t, nodes[0], "GET", lockKey("a")) // begins with it
	require.GreaterOrEqual(t, len(owner), 26)
	doAll(t, nodes, "SET", lockKey("a"), owner[:8], "PX", "60000") // "worker-1" for "worker-12"
	require.ErrorIs(t, requireDone(t, g, soon), redlock.ErrTakenOver)
	_, err := l.TryAcquire(t.Context(), "a")
	require.ErrorIs(t, err, redlock.ErrNotLocked)
	for _, n := range nodes {
		require.Equal(t, owner[:8], do(t, n, "GET", lockKey("a")), "somebody else's key is not deleted")
	}
}

func TestPeer24EveryCallRetriesForItself(t *testing.T) {
	t.Parallel()
	nodes := startNodes(t, 3)
	l := newLocker(t, redistest.Options(nodes))
	for i := range 3 {
		doAll(t, nodes, "SET", lockKey("a"), "foreign", "PX", "200")
		release(t, acquire(t, l, "a"))
		require.Less(t, i, 3)
	}
}

func TestPeer25ReleaseOnADeadContextRemovesTheKey(t *testing.T) {
	t.Parallel()
	nodes := startNodes(t, 3)
	l := newLocker(t, redistest.Options(nodes))
	ctx, cancel := context.WithCancel(t.Context())
	g, err := l.Acquire(ctx, "a")
	require.NoError(t, err)
	cancel()
	require.NoError(t, g.Err())
	require.NoError(t, g.Release(ctx))
	requireNoKeys(t, nodes, soon)

	ctx, cancel = context.WithCancel(t.Context())
	held, undo, err := l.WithContext(ctx, "b")
	require.NoError(t, err)
	cancel()
	undo()
	undo()
	require.ErrorIs(t, held.Err(), context.Canceled)
	requireNoKeys(t, nodes, soon)
}

func TestPeer26OneLockerHoldsANameOnce(t *testing.T) {
	t.Parallel()
	nodes := startNodes(t, 3)
	l := newLocker(t, redistest.Options(nodes))
	var mu sync.Mutex
	inside, most := 0, 0
	var wg sync.WaitGroup
	for range 20 {
		wg.Go(func() {
			g, err := l.Acquire(context.Background(), "a")
			if err != nil {
				t.Error(err)
				return
			}
			mu.Lock()
			inside++
			most = max(most, inside)
			mu.Unlock()
			time.Sleep(time.Millisecond)
			mu.Lock()
			inside--
			mu.Unlock()
			if err := g.Release(context.Background()); err != nil {
				t.Error(err)
			}
		})
	}
	wg.Wait()
	require.Equal(t, 1, most)

	old := acquire(t, l, "a")
	release(t, old)
	newer := acquire(t, l, "a")
	for range 3 {
		release(t, old) // a repeat must not free the newer lock
	}
	require.NoError(t, newer.Err())
	require.Eventually(t, func() bool { return len(keysOf(t, nodes[0])) > 0 }, soon, tick) // it may be the last to vote
	requireHeldFor(t, newer, 50*time.Millisecond)
}

func TestPeer26WaiterSeesItsOwnLockerEnd(t *testing.T) {
	t.Parallel()
	nodes := startNodes(t, 3)
	a := newLocker(t, redistest.Options(nodes))
	b := newLocker(t, redistest.Options(nodes))
	g := acquire(t, a, "a")
	waited := make(chan error, 1)
	go func() {
		_, err := b.Acquire(context.Background(), "a")
		waited <- err
	}()
	time.Sleep(50 * time.Millisecond)
	b.Close()
	select {
	case err := <-waited:
		require.ErrorIs(t, err, redlock.ErrLockerClosed)
	case <-time.After(soon):
		require.Fail(t, "still waiting")
	}
	require.NoError(t, g.Err())
}

func TestPeer27SilentPartitionIsNoticedWithinTheLease(t *testing.T) {
	t.Parallel()
	nodes := startNodes(t, 3)
	options, links := proxied(t, nodes)
	l := newLocker(t, options, validity(2*time.Second))
	g := acquire(t, l, "a")
	until := g.ValidUntil()
	for _, link := range links {
		link.Silence(netproxy.Replies)
	}
	err := requireDone(t, g, time.Until(until)+2*time.Second)
	require.ErrorIs(t, err, redlock.ErrLost)

	ended, cancel := context.WithCancel(t.Context())
	cancel()
	for _, call := range []func(context.Context, string, ...redlock.HoldOption) (*redlock.Guard, error){l.Acquire, l.TryAcquire, l.ForceAcquire, l.ForceAcquireNow} {
		g, err := call(ended, "b")
		require.Nil(t, g)
		require.ErrorIs(t, err, context.Canceled, "nil and nil would be taken for success")
	}
}

func TestPeer28AnAdaptersUnlockMayUseADeadContextAndSeesTheError(t *testing.T) {
	t.Parallel()
	nodes := startNodes(t, 3)
	l := newLocker(t, redistest.Options(nodes), validity(2*time.Second))
	job, stop := context.WithCancel(t.Context())
	g, err := l.TryAcquire(job, "job")
	require.NoError(t, err)
	stop()
	require.NoError(t, g.Err(), "the end of the job's context is not the end of the lock")
	require.NoError(t, g.Release(job))
	requireNoKeys(t, nodes, soon)

	g, err = l.TryAcquire(t.Context(), "job")
	require.NoError(t, err)
	for _, n := range nodes {
		require.NoError(t, n.Kill())
	}
	require.Error(t, g.Release(job))
}

func TestPeer29SplitsAndSilenceEndInTime(t *testing.T) {
	t.Parallel()
	nodes := startNodes(t, 4)
	l := newLocker(t, redistest.Options(nodes), validity(4*time.Second))
	awaitAllNodes(t, l)
	doAll(t, nodes[:2], "SET", lockKey("even"), "foreign", "PX", "60000")
	within(t, soon, "two for, two against", func() {
		_, err := l.TryAcquire(t.Context(), "even")
		require.ErrorIs(t, err, redlock.ErrNotLocked)
	})

	l3 := newLocker(t, redistest.Options(nodes[:3]), validity(4*time.Second), func(o *redlock.LockerOption) { o.KeyPrefix = "three" })
	awaitAllNodes(t, l3)
	do(t, nodes[0], "SET", "three:{odd}", "foreign", "PX", "60000")
	require.NoError(t, nodes[2].Freeze())
	within(t, soon, "one for, one against, one silent", func() {
		_, err := l3.TryAcquire(t.Context(), "odd")
		require.ErrorIs(t, err, redlock.ErrNotLocked)
	})
	require.NoError(t, nodes[2].Thaw())
}

func TestPeer29AnswersSlowerThanTheLeaseAreNoLock(t *testing.T) {
	t.Parallel()
	nodes := startNodes(t, 3)
	options, links := proxied(t, nodes)
	l := newLocker(t, options, validity(400*time.Millisecond), nodeTimeout(250*time.Millisecond), interval(50*time.Millisecond))
	for _, link := range links {
		link.Delay(netproxy.Replies, 300*time.Millisecond, nil)
	}
	for i := range 3 {
		_, err := l.TryAcquire(t.Context(), strconv.Itoa(i))
		require.ErrorIs(t, err, redlock.ErrNoQuorum)
	}
	requireNoKeys(t, nodes, soon)
}

func TestPeer30DeletedLockIsLostAndNotRecreated(t *testing.T) {
	t.Parallel()
	nodes := startNodes(t, 3)
	l := newLocker(t, redistest.Options(nodes), validity(2*time.Second), interval(200*time.Millisecond))
	for round := range 5 {
		name := strconv.Itoa(round)
		g := acquire(t, l, name)
		// A vote that is just on its way, or a renewal that is due between the two deletions, keeps the lock: rightly.
		require.Eventually(t, func() bool {
			doAll(t, nodes[:2], "DEL", lockKey(name))
			select {
			case <-g.Done():
				return true
			case <-time.After(100 * time.Millisecond):
				return false
			}
		}, soon, tick)
		require.ErrorIs(t, requireDone(t, g, soon), redlock.ErrLost)
		requireNoKeys(t, nodes, soon)
		for range 12 {
			time.Sleep(50 * time.Millisecond)
			for _, n := range nodes {
				require.Empty(t, keysOf(t, n))
			}
		}
		require.ErrorIs(t, g.Err(), redlock.ErrLost)
	}
}

func TestPeer31HolderIsToldByTheEndOfItsValidity(t *testing.T) {
	t.Parallel()
	for _, row := range []struct {
		reason string
		strike func(*redisproc.Node) error
	}{
		{"killed", (*redisproc.Node).Kill},
		{"stopped", (*redisproc.Node).Freeze},
	} {
		t.Run(row.reason, func(t *testing.T) {
			t.Parallel()
			nodes := startNodes(t, 3)
			l := newLocker(t, redistest.Options(nodes), validity(2*time.Second))
			g := acquire(t, l, "a")
			derived, cancel := context.WithCancel(g.Context())
			defer cancel()
			struck := time.Now()
			for _, n := range nodes[:2] {
				require.NoError(t, row.strike(n))
			}
			select {
			case <-g.Done():
			case <-time.After(soon):
				require.Fail(t, "nobody told")
			}
			require.Less(t, time.Since(struck), 2*time.Second+700*time.Millisecond, "a lease, and what a busy machine adds")
			select { // a context closes its own channel first, then tells those derived from it
			case <-derived.Done():
			case <-time.After(soon):
				require.Fail(t, "whoever derives from it is told too")
			}
			require.Error(t, derived.Err())
			require.ErrorIs(t, context.Cause(derived), redlock.ErrLost)
			require.Equal(t, context.Canceled, g.Context().Err())
		})
	}
}

func TestPeer32StaleHolderKeepsItsOwnTokenAndNothingRenewsAfterUnlock(t *testing.T) {
	t.Parallel()
	nodes := startNodes(t, 3)
	a := newLocker(t, redistest.Options(nodes), validity(2*time.Second), interval(50*time.Millisecond))
	b := newLocker(t, redistest.Options(nodes), validity(2*time.Second), interval(50*time.Millisecond))
	g := acquire(t, a, "a")
	stale := g.FencingToken()
	g2, err := b.ForceAcquire(t.Context(), "a")
	require.NoError(t, err)
	require.Error(t, g.Err())
	require.Equal(t, stale, g.FencingToken(), "not its successor's")
	require.Less(t, stale, g2.FencingToken())
	token, ok := redlock.FencingToken(g.Context())
	require.True(t, ok)
	require.Equal(t, stale, token)
	release(t, g2)

	for i := range 300 { // unlock races renewal
		g := acquire(t, a, "r"+strconv.Itoa(i))
		if i%10 == 0 {
			time.Sleep(time.Duration(40+i%20) * time.Millisecond)
		}
		release(t, g)
	}
	requireNoKeys(t, nodes, soon)
	time.Sleep(200 * time.Millisecond)
	for _, n := range nodes {
		require.Empty(t, keysOf(t, n), "a renewal outlived its unlock")
	}
}

func TestPeer33TokensRiseWhereEveryNodeCountsForItself(t *testing.T) {
	t.Parallel()
	nodes := startNodes(t, 5)
	options, links := proxied(t, nodes)
	l := newLocker(t, options, nodeTimeout(2*time.Second))
	last := uint64(0)
	for round := range 10 {
		away := []int{round % 5, (round*3 + 1) % 5} // the counters of these stay behind
		for _, i := range away {
			links[i].Refuse()
			links[i].Reset()
		}
		for range 10 {
			g := acquire(t, l, "a")
			require.Greater(t, g.FencingToken(), last)
			last = g.FencingToken()
			release(t, g)
		}
		for _, i := range away {
			require.NoError(t, links[i].Accept())
		}
		require.Eventually(t, func() bool { return links[away[0]].Conns() > 0 && links[away[1]].Conns() > 0 }, soon, tick)
	}
}
