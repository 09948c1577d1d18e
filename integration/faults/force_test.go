package faults

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/redlock-go/redlock"
	"github.com/redlock-go/redlock/integration/check"
	"github.com/redlock-go/redlock/internal/netproxy"
	"github.com/redlock-go/redlock/internal/redisproc"
)

func (c *client) force(ctx context.Context, name string) (*redlock.Guard, error) {
	return c.take(ctx, c.ForceAcquire, name)
}

// Row 39: the displaced holder is connected: it is told, acknowledges, and the taker need not wait for its lease.
func TestRow39ForceConnected(t *testing.T) {
	t.Parallel()
	r := newRig(t, 5, redisproc.Options{})
	a, b := r.far("a"), r.far("b") // what the one writes the other is pushed, both ways
	best := time.Hour
	for range 10 {
		g := a.mustTry("held")
		start := time.Now()
		next, err := b.force(t.Context(), "held")
		require.NoError(t, err)
		best = min(best, time.Since(start))
		require.ErrorIs(t, g.Err(), redlock.ErrTakenOver)
		require.Greater(t, next.FencingToken(), g.FencingToken())
		r.release(next)
	}
	require.Less(t, best, lease/2)
	t.Logf("taken over within %v at best", best)
	r.settle("held")
}

// Row 39: the displaced holder is cut off and counts on its lease: the taker waits for that and no less.
func TestRow39ForcePartitioned(t *testing.T) {
	for _, direction := range []netproxy.Direction{netproxy.Both, netproxy.Requests, netproxy.Replies} {
		t.Run(map[netproxy.Direction]string{netproxy.Both: "both ways", netproxy.Requests: "requests", netproxy.Replies: "replies"}[direction], func(t *testing.T) {
			t.Parallel()
			r := newRig(t, 5, redisproc.Options{})
			a, b := r.client("a"), r.far("b")
			g := a.mustTry("held")
			a.silence(direction, 0, 1, 2, 3, 4)
			ctx, cancel := context.WithTimeout(context.Background(), 2*lease+soon)
			defer cancel()
			start := time.Now()
			next, err := b.force(ctx, "held")
			require.NoError(t, err)
			t.Logf("taken over after %v", time.Since(start))
			require.Error(t, g.Err())
			r.requireHeldFor(next, lease/2)
			a.heal()
			r.requireHeldFor(next, lease/2)
			r.settle("held")
		})
	}
}

// Row 39: takers at the same time, again and again, with a holder that is cut off now and then. Never two at once,
// tokens all different, and somebody gets it.
func TestRow39ForceManyTakers(t *testing.T) {
	t.Parallel()
	r := newRig(t, 5, redisproc.Options{})
	clients := []*client{r.client("a"), r.client("b"), r.client("c")}
	var register check.Register
	got := 0
	const rounds = 8
	for round := range rounds {
		start := time.Now()
		type taken struct {
			g   *redlock.Guard
			err error
		}
		results := make(chan taken, len(clients))
		ctx, cancel := context.WithTimeout(context.Background(), 2*lease+soon)
		for _, c := range clients {
			go func() {
				g, err := c.force(ctx, "held")
				if err == nil && g.Err() == nil {
					register.Write(g.FencingToken())
				}
				results <- taken{g, err}
			}()
		}
		if round%4 == 3 {
			clients[0].silence(netproxy.Both, 0, 1, 2, 3, 4)
		}
		for range clients {
			if res := <-results; res.err == nil {
				got++
			}
		}
		cancel()
		t.Logf("round %d took %v", round, time.Since(start))
		clients[0].heal()
	}
	require.Positive(t, got)
	require.Empty(t, register.Violations())
	t.Logf("%d of %d takeovers came to a guard", got, rounds*len(clients))
	r.settle("held")
}

// Row 39: the taker dies while it waits for a displaced holder that is cut off. Whoever comes next, by force or not,
// must not overlap with that holder: its lease is remembered in the value.
func TestRow39ForceTakerDies(t *testing.T) {
	for _, next := range []string{"acquire", "force"} {
		t.Run(next, func(t *testing.T) {
			t.Parallel()
			r := newRig(t, 5, redisproc.Options{})
			a, taker, b := r.client("a"), r.client("taker"), r.far("b")
			g := a.mustTry("held")
			a.silence(netproxy.Both, 0, 1, 2, 3, 4)
			died := make(chan error, 1)
			go func() {
				ctx, cancel := context.WithTimeout(context.Background(), 3*lease)
				defer cancel()
				_, err := taker.force(ctx, "held")
				died <- err
			}()
			r.eventually("overwritten", func() bool {
				value := r.do(r.nodes[4], "GET", lockKey("held"))
				return value != "" && len(value) > 30 // an owner and a list
			})
			taker.silence(netproxy.Both, 0, 1, 2, 3, 4)
			var h *redlock.Guard
			if next == "force" {
				var err error
				ctx, cancel := context.WithTimeout(context.Background(), 3*lease+soon)
				defer cancel()
				h, err = b.force(ctx, "held")
				require.NoError(t, err)
			} else {
				h = b.wait("held", 3*lease+soon)
			}
			require.Error(t, g.Err())
			require.Greater(t, h.FencingToken(), g.FencingToken())
			a.heal()
			taker.heal()
			r.requireHeldFor(h, lease/2)
			require.Error(t, <-died)
			r.settle("held")
		})
	}
}

// Row 39: the taker gives up while it waits. Its release leaves a tombstone, so the lock stays closed until the
// displaced holder, who does not know, has run out.
func TestRow39ForceTakerGivesUp(t *testing.T) {
	t.Parallel()
	r := newRig(t, 5, redisproc.Options{})
	a, taker, b := r.client("a"), r.client("taker"), r.far("b")
	g := a.mustTry("held")
	a.silence(netproxy.Both, 0, 1, 2, 3, 4)
	ctx, cancel := context.WithTimeout(context.Background(), lease/10)
	defer cancel()
	_, err := taker.force(ctx, "held")
	require.ErrorIs(t, err, context.DeadlineExceeded)
	next := b.tryFor("held", lease+soon)
	require.ErrorIs(t, g.Err(), redlock.ErrLost)
	require.Greater(t, next.FencingToken(), g.FencingToken())
	a.heal()
	r.requireHeldFor(next, lease/2)
	r.settle("held")
}

// Row 39: the immediate form does overlap with a holder that is cut off. The fence alone is promised, and holds.
func TestRow39ForceNow(t *testing.T) {
	t.Parallel()
	r := newRig(t, 5, redisproc.Options{})
	a, b := r.client("a"), r.far("b")
	var register check.Register
	g := a.mustTry("held")
	require.True(t, register.Write(g.FencingToken()))
	a.silence(netproxy.Both, 0, 1, 2, 3, 4)
	next, err := r.history.AcquireNow(t.Context(), "b", b.ForceAcquireNow, "held")
	require.NoError(t, err)
	require.NoError(t, g.Err(), "it cannot know yet")
	require.True(t, register.Write(next.FencingToken()))
	require.False(t, register.Write(g.FencingToken()), "the resource refuses who was displaced")
	r.requireLost(g, lease+soon)
	a.heal()
	r.requireHeldFor(next, lease/2)
	r.release(next)
	require.Empty(t, register.Violations())
	r.settle("held")
}

// Row 39, by Grace: two nodes of five are cut off from the holder, two others from the one who asks. By the one that both reach the
// holder is told that it is asked, lets go after a while, and the taker has the lock before one who waits.
func TestRow39ForceAsksFirst(t *testing.T) {
	t.Parallel()
	r := newRig(t, 5, redisproc.Options{})
	a, b, w := r.far("a"), r.client("b"), r.client("w")
	g := a.mustTryOnAll("held")
	a.silence(netproxy.Both, 0, 1)
	b.silence(netproxy.Both, 3, 4)
	ctx, cancel := context.WithTimeout(context.Background(), 20*lease)
	defer cancel()
	waiting, giveUp := context.WithCancel(ctx)
	served := make(chan error, 1)
	go func() {
		_, err := w.take(waiting, w.Acquire, "held")
		served <- err
	}()
	r.waiters(w, "held", 1)
	taken := make(chan error, 1)
	go func() {
		_, err := b.take(ctx, func(ctx context.Context, name string, _ ...redlock.HoldOption) (*redlock.Guard, error) {
			return b.ForceAcquire(ctx, name, redlock.Grace(10*lease))
		}, "held")
		taken <- err
	}()
	start := time.Now()
	for changed, why := g.Risk(); !errors.Is(why, redlock.ErrAskedFor); changed, why = g.Risk() {
		require.NotNil(t, changed, "ended before it was told: %v", why)
		<-changed
	}
	t.Logf("told after %v", time.Since(start))
	r.requireHeldFor(g, lease)
	require.Empty(t, taken)
	r.release(g)
	require.NoError(t, <-taken)
	require.Less(t, time.Since(start), 10*lease, "it was not waited for longer than it took")
	require.Empty(t, served)
	giveUp()
	require.ErrorIs(t, <-served, context.Canceled)
	a.heal()
	b.heal()
	r.settle("held")
}
