package redlock_test

import (
	"context"
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/redlock-go/redlock"
	"github.com/redlock-go/redlock/internal/redisproc/redistest"
)

// What options of one lock store, on servers.
func TestHoldsOnServers(t *testing.T) {
	t.Parallel()
	nodes := startNodes(t, 3)
	longest := func(o *redlock.LockerOption) { o.MaxKeyValidity = time.Minute }
	a := newLocker(t, redistest.Options(nodes), longest)
	b := newLocker(t, redistest.Options(nodes), longest)
	onAll := func() (values []string) {
		t.Helper()
		require.Eventually(t, func() bool {
			values = values[:0]
			for _, n := range nodes {
				values = append(values, do(t, n, "GET", lockKey("x")))
			}
			return !strings.Contains(" "+strings.Join(values, " ")+" ", "  ")
		}, soon, tick)
		return values
	}

	t.Run("a lease of its own", func(t *testing.T) {
		g, err := a.Acquire(t.Context(), "x", redlock.Lease(time.Minute))
		require.NoError(t, err)
		onAll()
		for _, n := range nodes {
			require.Len(t, do(t, n, "PTTL", lockKey("x")), len("59999"))
		}
		require.Greater(t, time.Until(g.ValidUntil()), 20*time.Second)
		release(t, g)
	})
	t.Run("kept, and its memory full", func(t *testing.T) {
		g, err := a.Acquire(t.Context(), "x", redlock.AtLeast(time.Hour), redlock.Label("who; it=is"))
		require.NoError(t, err)
		for _, value := range onAll() {
			require.True(t, strings.HasPrefix(value, g.ID()+"#"), value)
			require.True(t, strings.HasSuffix(value, "!3600000=who%3B%20it=is"), value)
		}
		doAll(t, nodes, "CONFIG", "SET", "maxmemory", "1")
		require.NoError(t, g.Release(context.Background()))
		require.Eventually(t, func() bool { // Release returns at a quorum
			for _, value := range onAll() {
				if value != "~!3600000=who%3B%20it=is" {
					return false
				}
			}
			return true
		}, soon, tick)
		doAll(t, nodes, "CONFIG", "SET", "maxmemory", "0")
		for _, n := range nodes {
			require.Len(t, do(t, n, "PTTL", lockKey("x")), len("3599999"))
		}
		require.Eventually(t, func() bool { // the keepers find out that there is memory again
			_, err = b.TryAcquire(t.Context(), "x")
			var held *redlock.HeldError
			return errors.As(err, &held) && held.Kept && held.Label == "who; it=is"
		}, soon, tick)
		taker, err := b.ForceAcquire(t.Context(), "x")
		require.NoError(t, err)
		require.Greater(t, taker.FencingToken(), g.FencingToken())
		release(t, taker)
		requireNoKeys(t, nodes, soon)
	})
	t.Run("asked to let go, a node of three dead", func(t *testing.T) {
		g := acquire(t, a, "x")
		onAll()
		require.NoError(t, nodes[0].Kill())
		defer func() { require.NoError(t, nodes[0].CrashEmpty()) }()
		waits := make(chan *redlock.Guard, 1)
		go func() { waits <- acquire(t, b, "x") }()
		require.Eventually(t, func() bool {
			line, err := a.Inspect(t.Context(), "x")
			return err == nil && line.Waiters == 1
		}, soon, tick)
		type forced struct {
			g   *redlock.Guard
			err error
		}
		taken := make(chan forced, 1)
		go func() {
			g, err := b.ForceAcquire(t.Context(), "x", redlock.Grace(30*time.Second))
			taken <- forced{g, err}
		}()
		for changed, why := g.Risk(); !errors.Is(why, redlock.ErrAskedFor); changed, why = g.Risk() {
			require.NotNil(t, changed, why)
			<-changed
		}
		require.NoError(t, g.Err())
		require.Contains(t, do(t, nodes[1], "GET", lockKey("x"))+do(t, nodes[2], "GET", lockKey("x")), ";?")
		release(t, g)
		next := <-taken
		require.NoError(t, next.err)
		require.ErrorIs(t, g.Err(), redlock.ErrReleased)
		require.Empty(t, waits)
		release(t, next.g)
		release(t, <-waits)
	})
	t.Run("a fixed lease is over", func(t *testing.T) {
		g, err := a.Acquire(t.Context(), "x", redlock.FixedLease(2*time.Second))
		require.NoError(t, err)
		require.ErrorIs(t, requireDone(t, g, soon), redlock.ErrHeldTooLong)
		release(t, acquire(t, b, "x"))
	})
}
