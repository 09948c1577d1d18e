package redlocktest_test

import (
	"context"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/redlock-go/redlock"
	"github.com/redlock-go/redlock/redlocktest"
)

func TestScratchLife(t *testing.T) {
	start := time.Now()
	const n = 2000
	synctest.Test(t, func(t *testing.T) {
		cluster := redlocktest.NewCluster(t, 5, redlocktest.Jitter(time.Millisecond, 3*time.Millisecond))
		l, err := redlock.NewLocker(cluster.Option())
		require.NoError(t, err)
		defer l.Close()
		for range n {
			g, err := l.Acquire(context.Background(), "x")
			require.NoError(t, err)
			require.NoError(t, g.Release(context.Background()))
		}
		t.Log(cluster.Node(0).Commands())
	})
	t.Log(time.Since(start) / n)
	start = time.Now()
	synctest.Test(t, func(t *testing.T) {
		cluster := redlocktest.NewCluster(t, 5, redlocktest.Jitter(time.Millisecond, 3*time.Millisecond))
		l, err := redlock.NewLocker(cluster.Option())
		require.NoError(t, err)
		defer l.Close()
		g, err := l.Acquire(context.Background(), "x")
		require.NoError(t, err)
		time.Sleep(time.Hour)
		require.NoError(t, g.Err())
		t.Log(cluster.Node(0).Commands())
	})
	t.Log("hour", time.Since(start))
}
