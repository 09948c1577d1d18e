package faults

import (
	"context"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/redlock-go/redlock"
	"github.com/redlock-go/redlock/internal/netproxy"
	"github.com/redlock-go/redlock/internal/redisproc"
)

// places judges the guards of a semaphore: whoever comes finds its slot free.
type places struct {
	mu   sync.Mutex
	held map[int]*redlock.Guard
	most int
	runs int
}

func (p *places) enter(t *testing.T, g *redlock.Guard) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if o := p.held[g.Slot()]; o != nil && o.Err() == nil && g.Err() == nil {
		t.Errorf("%v and %v are both alive", o, g)
	}
	p.held[g.Slot()] = g
	p.most, p.runs = max(p.most, len(p.held)), p.runs+1
}

func (p *places) leave(g *redlock.Guard) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.held[g.Slot()] == g {
		delete(p.held, g.Slot())
	}
}

// Row 42: ten programs want the three slots of a semaphore, while nodes are killed, restarted empty, stopped and cut off, never more
// than a minority at a time. No slot has two guards, all three are in use, and everybody is served.
func TestRow42SlotsOverAMinority(t *testing.T) {
	r := newRig(t, 5, redisproc.Options{})
	const k = 3
	p := places{held: make(map[int]*redlock.Guard)}
	enough := func() bool {
		p.mu.Lock()
		defer p.mu.Unlock()
		return p.runs > 100
	}
	r.overAMinority(10, 12*time.Second, 3*time.Second, enough, func(_ int, c *client) program {
		return program{c.Semaphore("pool", k).Acquire, func(g *redlock.Guard) *redlock.Guard {
			p.enter(t, g)
			time.Sleep(30 * time.Millisecond)
			p.leave(g)
			return g
		}}
	})
	require.Equal(t, k, p.most, "all slots are used")
	require.True(t, enough(), p.runs)
	r.requireClean()
}

// A program dies that holds both slots: two others have them when its lease has run out. Meanwhile one that gives another
// number is told.
func TestSlotsOfADeadProgram(t *testing.T) {
	t.Parallel()
	r := newRig(t, 3, redisproc.Options{})
	a, b := r.client("a"), r.client("b")
	ctx := context.Background()
	for range 2 {
		_, err := a.Semaphore("pool", 2).TryAcquire(ctx)
		require.NoError(t, err)
	}
	a.silence(netproxy.Both, 0, 1, 2)
	died := time.Now()
	_, err := b.Semaphore("pool", 3).Acquire(ctx)
	require.ErrorIs(t, err, redlock.ErrDisagreement)
	require.ErrorContains(t, err, "the semaphore has 2 slots there, not 3")
	guards, err := b.Semaphore("pool", 2).AcquireN(ctx, 2)
	require.NoError(t, err)
	require.Less(t, time.Since(died), lease+soon)
	for i, g := range guards {
		require.Equal(t, i+1, g.Slot())
		require.NoError(t, g.Release(ctx))
	}
	a.heal()
	r.requireClean()
}
