package redlock

import (
	"context"
	"math/rand/v2"
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
		return len(l.extender.soon)+len(l.extender.later)+len(l.extender.due) == 0
	}, 2*time.Second, time.Millisecond)
	require.Empty(t, l.openGuards())
	l.mu.Lock()
	defer l.mu.Unlock()
	require.Empty(t, l.places)
	require.Empty(t, l.alone)
	require.Empty(t, l.waiters)
}

// Whatever is scheduled, put forward and dropped: each guard is woken once when it is due, neither before nor later, and when to
// look again is not behind the next.
func TestExtenderWakesEachGuardWhenItIsDue(t *testing.T) {
	r := rand.New(rand.NewPCG(1, 2))
	e := newExtender(&Locker{option: LockerOption{NodeTimeout: time.Second, ExtendInterval: 400 * time.Millisecond}})
	guards := make([]*Guard, 300)
	for i := range guards {
		guards[i] = &Guard{inLater: unscheduled}
	}
	due := make(map[*Guard]time.Duration)
	woken, now := 0, time.Duration(0)
	for range 20_000 {
		switch g := guards[r.IntN(len(guards))]; r.IntN(8) {
		case 0:
			e.drop(g)
			delete(due, g)
		case 1:
			now += time.Duration(r.IntN(int(5 * time.Millisecond)))
			if r.IntN(50) == 0 { // it came late, and a stretch went by
				now += 40 * time.Millisecond
			}
			next, want := now+time.Second, make(map[*Guard]bool)
			for g, at := range due {
				if at <= now {
					want[g] = true
					delete(due, g)
				} else {
					next = min(next, at)
				}
			}
			got, again := e.take(now)
			for _, g := range got {
				require.True(t, want[g], "not due, or woken twice")
				delete(want, g)
				e.schedule(g, now) // whatever is due before the tick is its
				g.awaited = false
				woken++
			}
			require.Empty(t, want, "not woken")
			require.LessOrEqual(t, again, next)
			require.Greater(t, again, now)
		default:
			at := now + time.Duration(r.IntN(int(200*time.Millisecond)))
			e.schedule(g, at)
			if before, scheduled := due[g]; !scheduled || at < before {
				due[g] = at
			}
		}
	}
	require.Greater(t, woken, 1000)
	for _, g := range guards {
		e.drop(g)
	}
	_, _ = e.take(now + time.Second)
	_, _ = e.take(now + time.Second)
	require.Empty(t, e.later)
	require.Empty(t, e.soon)
	require.Empty(t, e.due)
}
