package redlock_test

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/redis/rueidis/rueidislock"
	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"

	"github.com/redlock-go/redlock"
	"github.com/redlock-go/redlock/internal/netproxy"
	"github.com/redlock-go/redlock/internal/redisproc/redistest"
)

type key struct{}

func TestTrio(t *testing.T) {
	t.Parallel()
	nodes := startNodes(t, 3)
	var a rueidislock.Locker = newLocker(t, redistest.Options(nodes))
	b := newLocker(t, redistest.Options(nodes))

	parent := context.WithValue(t.Context(), key{}, "carried")
	ctx, cancel, err := a.WithContext(parent, "a")
	require.NoError(t, err)
	require.NoError(t, ctx.Err())
	require.Equal(t, "carried", ctx.Value(key{}))
	first, ok := redlock.FencingToken(ctx)
	require.True(t, ok)
	derived, stop := context.WithTimeout(ctx, time.Hour)
	defer stop()

	failed, nothing, err := b.TryWithContext(parent, "a")
	require.ErrorIs(t, err, redlock.ErrNotLocked)
	require.ErrorIs(t, err, rueidislock.ErrNotLocked)
	require.Error(t, failed.Err(), "an ended context, so that who misses the error does nothing")
	require.ErrorIs(t, context.Cause(failed), redlock.ErrNotLocked)
	nothing()
	require.NoError(t, ctx.Err(), "the cancel of a failed call releases nothing")

	cancel()
	require.Equal(t, context.Canceled, ctx.Err())
	require.Equal(t, redlock.ErrReleased, context.Cause(ctx))
	require.Equal(t, redlock.ErrReleased, context.Cause(derived))
	cancel()

	ctx, cancel, err = b.TryWithContext(parent, "a")
	require.NoError(t, err)
	second, _ := redlock.FencingToken(ctx)
	require.Greater(t, second, first)
	forced, undo, err := a.ForceWithContext(parent, "a")
	require.NoError(t, err)
	require.ErrorIs(t, context.Cause(ctx), redlock.ErrTakenOver)
	third, _ := redlock.FencingToken(forced)
	require.Greater(t, third, second)
	cancel()
	require.NoError(t, forced.Err(), "the loser's cancel leaves the winner's lock alone")
	undo()
	requireNoKeys(t, nodes, soon)
}

func TestTrioEndsWithItsParent(t *testing.T) {
	t.Parallel()
	nodes := startNodes(t, 3)
	l := newLocker(t, redistest.Options(nodes))

	why := errors.New("shutting down")
	parent, end := context.WithCancelCause(t.Context())
	ctx, cancel, err := l.WithContext(parent, "a")
	require.NoError(t, err)
	defer cancel()
	end(why)
	<-ctx.Done()
	require.Equal(t, context.Canceled, ctx.Err())
	require.Equal(t, why, context.Cause(ctx))
	requireNoKeys(t, nodes, soon) // nobody called cancel

	deadline := time.Now().Add(2 * time.Second)
	parent, stop := context.WithDeadline(t.Context(), deadline)
	defer stop()
	ctx, cancel, err = l.WithContext(parent, "b")
	require.NoError(t, err)
	defer cancel()
	got, ok := ctx.Deadline()
	require.True(t, ok)
	require.Equal(t, deadline, got)
	<-ctx.Done()
	require.ErrorIs(t, ctx.Err(), context.DeadlineExceeded)
	require.ErrorIs(t, context.Cause(ctx), context.DeadlineExceeded)
	requireNoKeys(t, nodes, soon)
}

func TestNestedLocksSeeEachOthersEnd(t *testing.T) {
	t.Parallel()
	nodes := startNodes(t, 3)
	l := newLocker(t, redistest.Options(nodes))
	release(t, acquire(t, l, "outer")) // both start at the nodes' fence floors; so the outer one's is larger
	outer, cancel, err := l.WithContext(t.Context(), "outer")
	require.NoError(t, err)
	inner, cancelInner, err := l.WithContext(outer, "inner")
	require.NoError(t, err)
	defer cancelInner()
	outerToken, _ := redlock.FencingToken(outer)
	innerToken, _ := redlock.FencingToken(inner)
	require.NotEqual(t, outerToken, innerToken, "the innermost counts")
	cancel()
	require.Error(t, inner.Err())
	requireNoKeys(t, nodes, soon)
}

func TestGuard(t *testing.T) {
	t.Parallel()
	nodes := startNodes(t, 3)
	l := newLocker(t, redistest.Options(nodes))
	parent, cancel := context.WithTimeout(context.WithValue(t.Context(), key{}, "carried"), time.Minute)
	g, err := l.Acquire(parent, "invoice:42")
	require.NoError(t, err)
	require.Equal(t, "invoice:42", g.Name())
	require.NoError(t, g.Err())
	require.Positive(t, g.FencingToken())
	require.True(t, g.ValidUntil().After(time.Now()))
	require.Equal(t, "carried", g.Context().Value(key{}))
	_, ok := g.Context().Deadline()
	require.False(t, ok, "ctx bounds the wait alone")
	token, ok := redlock.FencingToken(context.WithValue(g.Context(), key{}, "x"))
	require.True(t, ok)
	require.Equal(t, g.FencingToken(), token)
	_, ok = redlock.FencingToken(parent)
	require.False(t, ok)

	cancel()
	require.NoError(t, g.Context().Err())
	require.NoError(t, g.Release(parent))
	select {
	case <-g.Done():
	default:
		require.Fail(t, "done at the return of Release")
	}
	require.Equal(t, redlock.ErrReleased, g.Err())
	require.NoError(t, g.Release(parent), "a repeat returns nil")
	requireNoKeys(t, nodes, soon)
}

func TestTryAcquireIsRefusedLocally(t *testing.T) {
	t.Parallel()
	nodes := startNodes(t, 3)
	l := newLocker(t, redistest.Options(nodes))
	g := acquire(t, l, "a")
	for _, n := range nodes {
		require.NoError(t, n.Freeze())
	}
	_, err := l.TryAcquire(t.Context(), "a")
	require.ErrorIs(t, err, redlock.ErrNotLocked, "without asking the nodes, who are mute")
	var qe *redlock.QuorumError
	ok := errors.As(err, &qe)
	require.True(t, ok)
	require.Equal(t, 3, qe.Nodes)
	for _, n := range nodes {
		require.NoError(t, n.Thaw())
	}
	release(t, g)
	release(t, tryAcquire(t, l, "a"))
}

func TestDo(t *testing.T) {
	t.Parallel()
	nodes := startNodes(t, 3)
	l := newLocker(t, redistest.Options(nodes))

	ran := false
	require.NoError(t, l.Do(t.Context(), "a", func(ctx context.Context) error {
		ran = true
		_, ok := redlock.FencingToken(ctx)
		require.True(t, ok)
		_, err := l.TryAcquire(t.Context(), "a")
		require.ErrorIs(t, err, redlock.ErrNotLocked)
		return nil
	}))
	require.True(t, ran)

	failed := errors.New("work failed")
	err := l.Do(t.Context(), "a", func(context.Context) error { return failed })
	require.ErrorIs(t, err, failed)

	err = l.Do(t.Context(), "a", func(ctx context.Context) error {
		doAll(t, nodes, "DEL", lockKey("a"))
		<-ctx.Done()
		return failed
	})
	require.ErrorIs(t, err, failed)
	require.ErrorIs(t, err, redlock.ErrLost, "joined with the loss")

	err = l.Do(t.Context(), "a", func(ctx context.Context) error {
		doAll(t, nodes, "DEL", lockKey("a"))
		<-ctx.Done()
		return nil
	})
	require.ErrorIs(t, err, redlock.ErrLost, "work without a lock is no success")

	require.PanicsWithValue(t, "boom", func() {
		l.Do(t.Context(), "a", func(context.Context) error { panic("boom") })
	})
	requireNoKeys(t, nodes, soon)
	require.NoError(t, l.Do(t.Context(), "a", func(context.Context) error { return nil }), "released at the panic")

	ctx, cancel := context.WithCancel(t.Context())
	err = l.Do(ctx, "a", func(ctx context.Context) error {
		cancel()
		<-ctx.Done()
		return ctx.Err()
	})
	require.ErrorIs(t, err, context.Canceled)
	require.NotErrorIs(t, err, redlock.ErrLost)
	requireNoKeys(t, nodes, soon)

	err = l.Do(ctx, "a", func(context.Context) error {
		require.Fail(t, "without the lock")
		return nil
	})
	require.ErrorIs(t, err, context.Canceled)
}

func TestCloseTwiceReleasesEverythingAndLeavesNoGoroutine(t *testing.T) {
	nodes := startNodes(t, 3)
	running := goleak.IgnoreCurrent()
	l, err := redlock.NewLocker(lockerOption(redistest.Options(nodes)))
	require.NoError(t, err)
	other, err := redlock.NewLocker(lockerOption(redistest.Options(nodes)))
	require.NoError(t, err)
	remote := acquire(t, other, "waited for")
	g := acquire(t, l, "guard")
	ctx, cancel, err := l.WithContext(t.Context(), "trio")
	require.NoError(t, err)
	defer cancel()
	waits := make(chan error, 3)
	for _, name := range []string{"guard", "guard", "waited for"} {
		go func() {
			_, err := l.Acquire(context.Background(), name)
			waits <- err
		}()
	}
	time.Sleep(100 * time.Millisecond)

	var closers sync.WaitGroup
	for range 3 {
		closers.Go(l.Close)
	}
	for range 3 {
		select {
		case err := <-waits:
			require.ErrorIs(t, err, redlock.ErrLockerClosed)
			require.ErrorIs(t, err, rueidislock.ErrLockerClosed)
		case <-time.After(soon):
			require.Fail(t, "a waiter sleeps on")
		}
	}
	closers.Wait()
	l.Close()
	require.ErrorIs(t, g.Err(), redlock.ErrLockerClosed)
	require.ErrorIs(t, context.Cause(ctx), redlock.ErrLockerClosed)
	require.NoError(t, g.Release(t.Context()))
	require.NoError(t, remote.Err())
	for _, n := range nodes {
		require.NotContains(t, keysOf(t, n), lockKey("guard"))
		require.NotContains(t, keysOf(t, n), lockKey("trio"))
	}
	for _, call := range []func(context.Context, string, ...redlock.HoldOption) (*redlock.Guard, error){l.Acquire, l.TryAcquire, l.ForceAcquire, l.ForceAcquireNow} {
		_, err := call(t.Context(), "late")
		require.ErrorIs(t, err, redlock.ErrLockerClosed)
	}
	require.ErrorIs(t, l.Do(t.Context(), "late", nil), redlock.ErrLockerClosed)
	require.Error(t, l.Init(t.Context()))
	require.Nil(t, l.Client())
	other.Close()
	goleak.VerifyNone(t, running)
}

func TestCloseRacingCallsStrandsNoKey(t *testing.T) {
	t.Parallel()
	nodes := startNodes(t, 3)
	for round := range 15 {
		l, err := redlock.NewLocker(lockerOption(redistest.Options(nodes)))
		require.NoError(t, err)
		var calls sync.WaitGroup
		for i := range 8 {
			calls.Go(func() {
				for j := range 100 {
					g, err := l.TryAcquire(context.Background(), fmt.Sprint(i, j))
					if errors.Is(err, redlock.ErrLockerClosed) {
						return
					}
					if err == nil && j%2 == 0 {
						g.Release(context.Background())
					}
				}
			})
		}
		time.Sleep(time.Duration(round) * time.Millisecond)
		l.Close()
		calls.Wait()
		for _, n := range nodes {
			require.Empty(t, keysOf(t, n))
		}
	}
}

func TestCloseWithHungNodesIsBounded(t *testing.T) {
	t.Parallel()
	for _, row := range []struct {
		reason        string
		before, after time.Duration // hung so long before NewLocker, and so long before Close
	}{
		{"hung from the start", 1, 0},
		{"hung while a lock is held", 0, 1},
		{"hung up and being dialed again", 0, 3 * time.Second},
	} {
		t.Run(row.reason, func(t *testing.T) {
			t.Parallel()
			nodes := startNodes(t, 3)
			hang := func(after time.Duration) {
				if after == 0 {
					return
				}
				for _, n := range nodes[:2] {
					require.NoError(t, n.Freeze())
				}
				time.Sleep(after)
			}
			hang(row.before)
			l := newLocker(t, redistest.Options(nodes), validity(20*time.Second))
			if row.before == 0 {
				acquire(t, l, "a")
			}
			hang(row.after)
			within(t, 3500*time.Millisecond, "a NodeTimeout of 1 s; what dials and shakes hands is hung up", l.Close)
		})
	}
}

func TestAnyNumberOfNodes(t *testing.T) {
	t.Parallel()
	for n := 1; n <= 6; n++ {
		t.Run(strconv.Itoa(n), func(t *testing.T) {
			t.Parallel()
			nodes := startNodes(t, n)
			a := newLocker(t, redistest.Options(nodes))
			b := newLocker(t, redistest.Options(nodes))
			spare := n - (n/2 + 1)
			for _, node := range nodes[:spare] {
				require.NoError(t, node.Kill())
			}
			g := acquire(t, a, "a")
			_, err := b.TryAcquire(t.Context(), "a")
			require.ErrorIs(t, err, redlock.ErrNotLocked)
			var qe *redlock.QuorumError
			ok := errors.As(err, &qe)
			require.True(t, ok)
			require.Equal(t, n, qe.Nodes)
			require.Equal(t, n/2+1, qe.Quorum)
			release(t, g)
			release(t, acquire(t, b, "a"))
			require.NoError(t, nodes[spare].Kill()) // one too many
			_, err = b.TryAcquire(t.Context(), "a")
			require.ErrorIs(t, err, redlock.ErrNoQuorum)
			require.NotErrorIs(t, err, redlock.ErrNotLocked)
		})
	}
}

func TestNamesOfAnyBytes(t *testing.T) {
	t.Parallel()
	nodes := startNodes(t, 3)
	a := newLocker(t, redistest.Options(nodes))
	b := newLocker(t, redistest.Options(nodes))
	names := []string{
		"a", "{a}", "}a{", "{", "}", "{}", "a}:{b", "redlock:9:x", "marker", "fence:1", "queue:{a}", "\x00", "a\x00b", "\n", "a\r\nb",
		"\xff\xfe", "ü", " ", "*", "[a-z]?", strings.Repeat("x", 1000), `\`, `"`, "A",
	}
	awaitAllNodes(t, a, b)
	guards := make(map[string]*redlock.Guard)
	for _, name := range names {
		guards[name] = tryAcquire(t, a, name)
	}
	for _, name := range names {
		_, err := b.TryAcquire(t.Context(), name)
		require.ErrorIs(t, err, redlock.ErrNotLocked, "%q", name)
		require.Eventually(t, func() bool { return do(t, nodes[0], "EXISTS", "redlock:{"+name+"}") == "1" }, soon, tick, "%q", name)
	}
	for _, name := range names {
		got := make(chan *redlock.Guard, 1)
		go func() {
			g, _ := b.Acquire(context.Background(), name)
			got <- g
		}()
		time.Sleep(5 * time.Millisecond)
		release(t, guards[name])
		select {
		case g := <-got:
			require.NotNil(t, g, "%q", name)
			doAll(t, nodes, "DEL", "redlock:{"+name+"}")
			require.ErrorIs(t, requireDone(t, g, soon), redlock.ErrLost, "%q: its pushes are understood", name)
		case <-time.After(soon):
			require.Fail(t, "still waiting", "%q", name)
		}
	}
	for _, empty := range []func() error{
		func() error { _, err := a.Acquire(t.Context(), ""); return err },
		func() error { _, err := a.TryAcquire(t.Context(), ""); return err },
		func() error { _, _, err := a.WithContext(t.Context(), ""); return err },
	} {
		require.ErrorIs(t, empty(), redlock.ErrInvalidOption)
	}
}

func TestKeyLayout(t *testing.T) {
	t.Parallel()
	nodes := startNodes(t, 3)
	prefixed := func(o *redlock.LockerOption) { o.KeyPrefix = "app*[1]" }
	a := newLocker(t, redistest.Options(nodes), prefixed)
	b := newLocker(t, redistest.Options(nodes), prefixed)
	other := newLocker(t, redistest.Options(nodes))
	awaitAllNodes(t, a)
	g := acquire(t, a, "x")
	require.Eventually(t, func() bool { return do(t, nodes[0], "EXISTS", "app*[1]:{x}") == "1" }, soon, tick)
	_, err := b.TryAcquire(t.Context(), "x")
	var held *redlock.HeldError
	ok := errors.As(err, &held)
	require.True(t, ok)
	require.True(t, strings.HasPrefix(do(t, nodes[0], "GET", "app*[1]:{x}"), held.Owner), "the value begins with the owner")
	require.Positive(t, held.Left)
	require.LessOrEqual(t, held.Left, 10*time.Second)
	release(t, tryAcquire(t, other, "x")) // another prefix is another lock

	ctx, cancel := context.WithTimeout(t.Context(), 200*time.Millisecond)
	defer cancel()
	b.Acquire(ctx, "x") // whatever waiting writes
	client := redistest.Client(t, nodes[0])
	keys, err := client.Do(t.Context(), client.B().Keys().Pattern("*").Build()).AsStrSlice()
	require.NoError(t, err)
	for _, k := range keys {
		require.True(t, strings.HasPrefix(k, "app*[1]:") || strings.HasPrefix(k, "redlock:"), k)
		if strings.HasPrefix(k, "app*[1]:{") {
			require.Equal(t, "app*[1]:{x}", k, "nothing else can be taken for a lock")
		}
	}
	release(t, g)
}

func TestEndOfContextReturnsAtOnceAndLeavesNoKey(t *testing.T) {
	t.Parallel()
	nodes := startNodes(t, 3)
	options, links := proxied(t, nodes)
	l := newLocker(t, options, validity(10*time.Second), nodeTimeout(4*time.Second))
	holder := newLocker(t, redistest.Options(nodes))
	held := acquire(t, holder, "held")
	links[2].Silence(netproxy.Replies)
	for _, row := range []struct {
		name  string
		links []*netproxy.Link
	}{{"held", nil}, {"free", links[1:]}} {
		for _, link := range row.links {
			link.Silence(netproxy.Replies) // so that a free lock cannot be had
		}
		why := errors.New("shutting down")
		ctx, cancel := context.WithCancelCause(t.Context())
		var ended atomic.Int64
		time.AfterFunc(150*time.Millisecond, func() { ended.Store(time.Now().UnixNano()); cancel(why) })
		_, err := l.Acquire(ctx, row.name)
		require.Less(t, time.Since(time.Unix(0, ended.Load())), 3500*time.Millisecond, "no NodeTimeout is waited for")
		require.ErrorIs(t, err, context.Canceled)
		require.ErrorIs(t, err, why)
		require.NotErrorIs(t, err, redlock.ErrNotLocked)
		require.NotErrorIs(t, err, redlock.ErrNoQuorum)
		for _, link := range links {
			link.Heal(netproxy.Both)
		}
	}
	release(t, held)
	requireNoKeys(t, nodes, 5*time.Second)
}

func TestLockersTakeTurns(t *testing.T) {
	t.Parallel()
	nodes := startNodes(t, 3)
	var inside, most, turns atomic.Int64
	var all sync.WaitGroup
	var last atomic.Uint64
	for range 6 {
		l := newLocker(t, redistest.Options(nodes))
		for range 3 {
			all.Go(func() {
				for range 10 {
					err := l.Do(context.Background(), "a", func(ctx context.Context) error {
						most.Store(max(most.Load(), inside.Add(1)))
						defer inside.Add(-1)
						token, _ := redlock.FencingToken(ctx)
						if last.Swap(token) >= token {
							return errors.New("fencing token did not rise")
						}
						turns.Add(1)
						return nil
					})
					if err != nil {
						t.Error(err)
					}
				}
			})
		}
	}
	all.Wait()
	require.EqualValues(t, 1, most.Load())
	require.EqualValues(t, 180, turns.Load())
}

func TestClientIsTheFirstReachedNodes(t *testing.T) {
	t.Parallel()
	nodes := startNodes(t, 3)
	require.NoError(t, nodes[0].Kill())
	l := newLocker(t, redistest.Options(nodes))
	require.Eventually(t, func() bool { return l.Client() != nil }, soon, tick)
	require.NoError(t, l.Client().Do(t.Context(), l.Client().B().Set().Key("mine").Value("x").Build()).Error())
	require.Equal(t, "x", do(t, nodes[1], "GET", "mine"))
	require.NoError(t, nodes[0].CrashEmpty())
	require.Eventually(t, func() bool {
		return l.Client().Do(t.Context(), l.Client().B().Set().Key("now").Value("x").Build()).Error() == nil && do(t, nodes[0], "GET", "now") == "x"
	}, soon, 50*time.Millisecond)
}
