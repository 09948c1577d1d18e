package faults

import (
	"context"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/redlock-go/redlock"
	"github.com/redlock-go/redlock/internal/redisproc"
)

// A lock goes from hand to hand on real servers while nodes restart and others wait for it: one holder at a time, one token,
// and nobody else until the last has released.
func TestHandOver(t *testing.T) {
	t.Parallel()
	r := newRig(t, 5, redisproc.Options{AOF: true})
	// An exported lock is renewed by nobody: its lease is long beside what a restart and a round of tries take.
	r.allow(4 * lease)
	hands := []*client{r.client("a", patient), r.client("b", patient), r.client("c", patient)}
	waiter := r.client("waiter")
	g := hands[0].mustTryOnAll("held")
	token := g.FencingToken()
	waited := make(chan *redlock.Guard, 1)
	go func() {
		ctx, cancel := context.WithTimeout(context.Background(), 20*lease+soon)
		defer cancel()
		next, _ := waiter.Acquire(ctx, "held")
		waited <- next
	}()
	for round := range 6 {
		exported, err := g.Export()
		require.NoError(t, err)
		require.Equal(t, redlock.ErrExported, g.Err())
		if round == 2 {
			require.NoError(t, r.nodes[0].Restart()) // with its data, and what it had voted
		}
		// All of them try: one gets it.
		var mu sync.Mutex
		var got []*redlock.Guard
		var all sync.WaitGroup
		for _, c := range hands {
			all.Go(func() {
				ctx, cancel := context.WithTimeout(context.Background(), 2*lease)
				defer cancel()
				for ctx.Err() == nil {
					next, err := c.Resume(ctx, exported)
					if err == nil {
						mu.Lock()
						got = append(got, next)
						mu.Unlock()
						return
					}
					mu.Lock()
					done := len(got) > 0
					mu.Unlock()
					if done {
						cancel()
					}
					time.Sleep(tick)
				}
			})
		}
		all.Wait()
		require.Len(t, got, 1, "round %d", round)
		g = got[0]
		require.Equal(t, token, g.FencingToken())
		require.Empty(t, waited)
		r.requireHeldFor(g, lease/2)
	}
	require.NoError(t, g.Release(context.Background()))
	next := <-waited
	require.NotNil(t, next)
	require.Greater(t, next.FencingToken(), token)
	require.NoError(t, next.Release(context.Background()))
	r.settle("held")
}

// A full memory keeps nobody from handing a lock over.
func TestHandOverWithFullMemory(t *testing.T) {
	t.Parallel()
	r := newRig(t, 3, redisproc.Options{})
	a, b := r.client("a"), r.client("b")
	g := a.mustTryOnAll("held")
	for _, n := range r.nodes {
		r.do(n, "CONFIG", "SET", "maxmemory", "1")
	}
	exported, err := g.Export()
	require.NoError(t, err)
	resumed, err := b.Resume(context.Background(), exported)
	require.NoError(t, err)
	r.requireHeldFor(resumed, 2*lease)
	for _, n := range r.nodes {
		r.do(n, "CONFIG", "SET", "maxmemory", "0")
	}
	require.NoError(t, resumed.Release(context.Background()))
	r.settle("held")
}
