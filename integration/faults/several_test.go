package faults

import (
	"context"
	"fmt"
	"math/rand/v2"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/redlock-go/redlock"
	"github.com/redlock-go/redlock/internal/netproxy"
	"github.com/redlock-go/redlock/internal/redisproc"
)

// books judges the guards of several names: whoever comes finds each of its names free, and has the largest token of it.
type books struct {
	mu    sync.Mutex
	held  map[string]*redlock.Guard
	token map[string]uint64
	runs  int
}

func (b *books) enter(t *testing.T, g *redlock.Guard) {
	b.mu.Lock()
	defer b.mu.Unlock()
	for _, name := range g.Names() {
		if o := b.held[name]; o != nil && o.Err() == nil && g.Err() == nil {
			t.Errorf("%s: %v and %v are both alive", name, o, g)
		}
		if g.FencingToken() <= b.token[name] {
			t.Errorf("%s: token %d after %d", name, g.FencingToken(), b.token[name])
		}
		b.held[name], b.token[name] = g, g.FencingToken()
	}
	b.runs++
}

func (b *books) leave(g *redlock.Guard) {
	b.mu.Lock()
	defer b.mu.Unlock()
	for _, name := range g.Names() {
		if b.held[name] == g {
			delete(b.held, name)
		}
	}
}

// Row 42: ten programs want one to three of five names, in any order, while nodes are killed, restarted empty, stopped and cut off, never more
// than a minority at a time. No name has two guards, tokens rise, and everybody is served.
func TestRow42SeveralNamesOverAMinority(t *testing.T) {
	r := newRig(t, 5, redisproc.Options{})
	b := books{held: make(map[string]*redlock.Guard), token: make(map[string]uint64)}
	const names = 5
	enough := func() bool {
		b.mu.Lock()
		defer b.mu.Unlock()
		return b.runs > 50
	}
	r.overAMinority(10, 10*time.Second, 2*time.Second, enough, func(i int, c *client) program {
		draw := rand.New(rand.NewPCG(uint64(i), 1))
		return program{
			func(ctx context.Context, opts ...redlock.HoldOption) (*redlock.Guard, error) {
				var some []string
				for _, n := range draw.Perm(names)[:1+draw.IntN(3)] {
					some = append(some, fmt.Sprint("account:", n))
				}
				return c.AcquireAll(ctx, some, opts...)
			},
			func(g *redlock.Guard) *redlock.Guard {
				b.enter(t, g)
				time.Sleep(20 * time.Millisecond)
				b.leave(g)
				return g
			},
		}
	})
	require.True(t, enough(), b.runs)
	r.requireClean()
}

// A program dies that holds two names, and another that waits for them: a third has both when the lease has run out. Scripts are forgotten
// meanwhile, and a name is taken over.
func TestSeveralNamesOfADeadProgram(t *testing.T) {
	t.Parallel()
	r := newRig(t, 3, redisproc.Options{})
	a, b, c := r.client("a"), r.client("b"), r.client("c")
	ctx := context.Background()
	held, err := a.TryAcquireAll(ctx, []string{"x", "y"})
	require.NoError(t, err)
	for _, n := range r.nodes {
		r.do(n, "SCRIPT", "FLUSH")
	}
	time.Sleep(lease)
	require.NoError(t, held.Err(), "renewed by source")
	waiting, cancel := context.WithCancel(ctx)
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		b.AcquireAll(waiting, []string{"y", "x"})
	}()
	time.Sleep(lease / 4)
	a.silence(netproxy.Both, 0, 1, 2)
	b.silence(netproxy.Both, 0, 1, 2)
	died := time.Now()
	g, err := c.AcquireAll(ctx, []string{"x", "z", "y"})
	require.NoError(t, err)
	require.Less(t, time.Since(died), lease+soon)
	cancel()
	<-ended
	taker, err := c.ForceAcquire(ctx, "z")
	require.NoError(t, err)
	require.ErrorIs(t, g.Err(), redlock.ErrTakenOver)
	require.NoError(t, taker.Release(ctx))
	a.heal()
	b.heal()
	r.requireClean()
}
