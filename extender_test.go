package redlock

import (
	"context"
	"strconv"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/redlock-go/redlock/internal/redisproc"
	"github.com/redlock-go/redlock/internal/redisproc/redistest"
)

// A timer stands still while the machine is suspended, so what falls due at the resume waits for the one that is set.
func TestExtenderNeverSleepsForLong(t *testing.T) {
	g, _ := pausedGuard(t)
	e := g.l.extender
	e.drop(g)
	now := g.l.clock.Now()
	_, next := e.take(now)
	require.LessOrEqual(t, next, now+g.l.option.NodeTimeout, "nothing is due")
	e.schedule(g, now+time.Hour)
	_, next = e.take(now)
	require.LessOrEqual(t, next, now+g.l.option.NodeTimeout, "in an hour")
	e.schedule(g, now+time.Millisecond)
	_, next = e.take(now)
	require.Equal(t, now+time.Millisecond, next)
}

// A released lock leaves nothing in memory, not even until its next renewal would have been due.
func TestExtenderForgetsReleasedGuards(t *testing.T) {
	t.Parallel()
	l, err := NewLocker(LockerOption{
		Nodes:             redistest.Options(redistest.StartSet(t, 3, redisproc.Options{})),
		RestartQuarantine: -1,
	})
	require.NoError(t, err)
	t.Cleanup(l.Close)
	for i := range 200 {
		g, err := l.TryAcquire(context.Background(), strconv.Itoa(i))
		require.NoError(t, err)
		require.NoError(t, g.Release(context.Background()))
	}
	require.Eventually(t, func() bool {
		l.extender.mu.Lock()
		defer l.extender.mu.Unlock()
		return len(l.extender.due) == 0
	}, 2*time.Second, time.Millisecond)
	require.Empty(t, l.openGuards())
	l.mu.Lock()
	defer l.mu.Unlock()
	require.Empty(t, l.places)
	require.Empty(t, l.waiters)
}
