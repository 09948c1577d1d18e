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

// catalogue judges the guards of a reader-writer lock: no writer beside anybody.
type catalogue struct {
	mu            sync.Mutex
	inside        map[*redlock.Guard]bool // whether it writes
	token         uint64                  // of the last writer
	most          int
	reads, writes int
}

func (c *catalogue) enter(t *testing.T, g *redlock.Guard, writes bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for o, wrote := range c.inside {
		if (writes || wrote) && o.Err() == nil && g.Err() == nil {
			t.Errorf("%v (writes %v) and %v (writes %v) are both alive", o, wrote, g, writes)
		}
	}
	if g.Err() == nil && g.FencingToken() <= c.token {
		t.Errorf("token %d (writes %v) after %d of a writer", g.FencingToken(), writes, c.token)
	}
	c.inside[g] = writes
	if writes {
		c.token, c.writes = max(c.token, g.FencingToken()), c.writes+1
	} else {
		c.reads++
	}
	c.most = max(c.most, len(c.inside))
}

func (c *catalogue) leave(g *redlock.Guard) {
	c.mu.Lock()
	defer c.mu.Unlock()
	delete(c.inside, g)
}

// Row 42: eight programs read and three write, some of which go on reading, while nodes are killed, restarted empty, stopped and cut off, never more
// than a minority at a time. No writer is beside anybody, readers read together, and both go on.
func TestRow42ReadersAndWritersOverAMinority(t *testing.T) {
	r := newRig(t, 5, redisproc.Options{})
	c := catalogue{inside: make(map[*redlock.Guard]bool)}
	enough := func() bool {
		c.mu.Lock()
		defer c.mu.Unlock()
		return c.writes > 20 && c.reads > 50
	}
	r.overAMinority(11, 10*time.Second, 2*time.Second, enough, func(i int, p *client) program {
		rw, writes, runs := p.RW("catalogue"), i < 3, -1
		acquire := rw.Read
		if writes {
			acquire = rw.Write
		}
		use := func(g *redlock.Guard, writes bool) {
			c.enter(t, g, writes)
			time.Sleep(20 * time.Millisecond)
			c.leave(g)
		}
		return program{
			func(ctx context.Context, opts ...redlock.HoldOption) (*redlock.Guard, error) {
				runs++
				return acquire(ctx, opts...)
			},
			func(g *redlock.Guard) *redlock.Guard {
				use(g, writes)
				if writes && runs%3 == 0 {
					ctx, cancel := context.WithTimeout(context.Background(), 30*time.Second)
					defer cancel()
					if reader, err := g.Downgrade(ctx); err == nil {
						g = reader
						use(g, false)
					}
				}
				return g
			},
		}
	})
	require.Greater(t, c.most, 2, "readers read together")
	require.True(t, enough(), "%d writes, %d reads", c.writes, c.reads)
	r.requireClean()
}

// A program dies that reads: another reads at once, and one writes when the dead reader's lease has run out.
func TestADeadReaderCostsOneLease(t *testing.T) {
	t.Parallel()
	r := newRig(t, 3, redisproc.Options{})
	a, b := r.client("a"), r.client("b")
	ctx := context.Background()
	_, err := a.RW("catalogue").Read(ctx)
	require.NoError(t, err)
	a.silence(netproxy.Both, 0, 1, 2)
	died := time.Now()
	reader, err := b.RW("catalogue").TryRead(ctx)
	require.NoError(t, err)
	require.NoError(t, reader.Release(ctx))
	_, err = b.RW("catalogue").TryWrite(ctx)
	require.ErrorIs(t, err, redlock.ErrNotLocked)
	writer, err := b.RW("catalogue").Write(ctx)
	require.NoError(t, err)
	require.Less(t, time.Since(died), lease+soon)
	require.NoError(t, writer.Release(ctx))
	a.heal()
	r.requireClean()
}
