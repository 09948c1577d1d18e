package faults

import (
	"context"
	"testing"
	"time"

	"github.com/redis/rueidis"
	"github.com/stretchr/testify/require"

	"github.com/redlock-go/redlock"
	"github.com/redlock-go/redlock/integration/check"
	"github.com/redlock-go/redlock/integration/toxics"
	"github.com/redlock-go/redlock/internal/redisproc"
)

// Slow, jittery, narrow, choppy and breaking ways to the nodes, by toxiproxy: clients contend for one lock over each,
// and one of them holds another all the time. The toxics that break connections are on a minority.
func TestToxics(t *testing.T) {
	for _, row := range []struct {
		name  string
		nodes int
		to    []toxics.Direction
		toxic toxics.Toxic
	}{
		{"latency and jitter", 5, []toxics.Direction{toxics.ToNode, toxics.ToClient}, toxics.Latency(30*time.Millisecond, 25*time.Millisecond)},
		{"one far node", 1, []toxics.Direction{toxics.ToNode}, toxics.Latency(lease, 0)},
		{"bandwidth", 5, []toxics.Direction{toxics.ToNode, toxics.ToClient}, toxics.Bandwidth(64)},
		{"slices", 5, []toxics.Direction{toxics.ToNode, toxics.ToClient}, toxics.Slice(64, 32, 100*time.Microsecond)},
		{"resets", 2, []toxics.Direction{toxics.ToClient}, toxics.ResetPeer(50 * time.Millisecond)},
		{"silence", 2, []toxics.Direction{toxics.ToClient}, toxics.Timeout(0)},
	} {
		t.Run(row.name, func(t *testing.T) {
			t.Parallel()
			r := newRig(t, 5, redisproc.Options{TCP: true})
			proxies := toxics.Start(t, r.addrs()...)
			via := func(o *redlock.LockerOption) {
				o.Nodes = nil
				for _, p := range proxies {
					o.Nodes = append(o.Nodes, rueidis.ClientOption{InitAddress: []string{p.Addr()}})
				}
			}
			clients := []*client{r.client("a", via), r.client("b", via), r.client("c", via)}
			g := clients[0].mustTry("held")
			for _, p := range proxies[:row.nodes] {
				for _, direction := range row.to {
					require.NoError(t, p.Add(direction, row.toxic))
				}
			}
			var register check.Register
			ctx, cancel := context.WithTimeout(context.Background(), 2*lease)
			defer cancel()
			got := make(chan int)
			for _, c := range clients {
				go func() {
					n := 0
					for ctx.Err() == nil {
						g, err := c.take(ctx, c.Acquire, "busy")
						if err != nil {
							continue
						}
						n++
						if g.Err() == nil {
							register.Write(g.FencingToken())
						}
						r.history.Release(context.Background(), g)
					}
					got <- n
				}()
			}
			total := 0
			for range clients {
				total += <-got
			}
			require.NoError(t, g.Err())
			require.Positive(t, total)
			t.Logf("%d acquisitions", total)
			for _, p := range proxies {
				p.Clear()
			}
			require.Empty(t, register.Violations())
			require.Zero(t, register.Refused())
			r.settle("held", "busy")
		})
	}
}
