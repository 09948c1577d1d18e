package redlock_test

import (
	"context"
	"testing"
	"time"
	"log/slog"
	"os"

	"github.com/redlock-go/redlock"
	"github.com/redlock-go/redlock/internal/redisproc"
	"github.com/redlock-go/redlock/internal/redisproc/redistest"
	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"
)

func TestSmoke(t *testing.T) {
	defer goleak.VerifyNone(t, goleak.IgnoreCurrent())
	nodes := redistest.StartSet(t, 5, redisproc.Options{})
	l, err := redlock.NewLocker(redlock.LockerOption{Nodes: redistest.Options(nodes), RestartQuarantine: -1, Logger: slog.New(slog.NewTextHandler(os.Stderr, nil))})
	require.NoError(t, err)
	l2, err := redlock.NewLocker(redlock.LockerOption{Nodes: redistest.Options(nodes), RestartQuarantine: -1})
	require.NoError(t, err)
	ctx := context.Background()
	g, err := l.TryAcquire(ctx, "a")
	require.NoError(t, err)
	t.Log(g.FencingToken(), g.ValidUntil(), g.Err())
	_, err = l2.TryAcquire(ctx, "a")
	t.Log(err)
	require.ErrorIs(t, err, redlock.ErrNotLocked)
	start := time.Now()
	g2, err := l2.ForceAcquire(ctx, "a")
	require.NoError(t, err)
	t.Log(time.Since(start), g2.FencingToken(), g.Err())
	require.ErrorIs(t, g.Err(), redlock.ErrTakenOver)
	go func() { time.Sleep(100 * time.Millisecond); g2.Release(ctx) }()
	start = time.Now()
	g3, err := l.Acquire(ctx, "a")
	require.NoError(t, err)
	t.Log(time.Since(start), g3.FencingToken())
	nodes[0].Do("DEL", "redlock:{a}")
	time.Sleep(50 * time.Millisecond)
	v, _ := nodes[0].Do("GET", "redlock:{a}")
	t.Log(v)
	nodes[0].Do("DEL", "redlock:{a}")
	for _, n := range nodes { n.Do("DEL", "redlock:{a}") }
	start = time.Now()
	select { case <-g3.Done(): case <-time.After(5*time.Second): }
	t.Log(time.Since(start), g3.Err())
	start = time.Now()
	for range 1000 {
		g, err := l.TryAcquire(ctx, "b")
		require.NoError(t, err)
		require.NoError(t, g.Release(ctx))
	}
	t.Log(time.Since(start)/1000)
	l.Close()
	l2.Close()
	for _, n := range nodes { n.Close() }
}
