package faults

import (
	"context"
	"math/rand/v2"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/redlock-go/redlock/integration/check"
	"github.com/redlock-go/redlock/internal/netproxy"
	"github.com/redlock-go/redlock/internal/redisproc"
)

// Slow, jittery, narrow, choppy and breaking ways to the nodes: clients contend for one lock over each, and one of them
// holds another all the time. The faults that break connections are on a minority.
func TestLinks(t *testing.T) {
	const latency, jitter = 30 * time.Millisecond, 25 * time.Millisecond
	either := func() time.Duration { return rand.N(2*jitter) - jitter }
	for _, row := range []struct {
		name  string
		nodes int
		fault func(*netproxy.Proxy)
	}{
		{"latency and jitter", 5, func(p *netproxy.Proxy) { p.Delay(netproxy.Both, latency, either) }},
		{"one far node", 1, func(p *netproxy.Proxy) { p.Delay(netproxy.Requests, lease, nil) }},
		{"bandwidth", 5, func(p *netproxy.Proxy) { p.Bandwidth(netproxy.Both, 64_000) }},
		{"slices", 5, func(p *netproxy.Proxy) { p.Slice(netproxy.Both, 32, 96, 100*time.Microsecond) }},
		{"resets", 2, func(p *netproxy.Proxy) { p.ResetAfter(netproxy.Replies, 50*time.Millisecond) }},
		{"silence", 2, func(p *netproxy.Proxy) { p.Silence(netproxy.Replies) }},
	} {
		t.Run(row.name, func(t *testing.T) {
			t.Parallel()
			r := newRig(t, 5, redisproc.Options{})
			clients := []*client{r.client("a"), r.client("b"), r.client("c")}
			g := clients[0].mustTry("held")
			for _, p := range r.proxies[:row.nodes] {
				row.fault(p)
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
			for _, p := range r.proxies {
				p.HealLosing(netproxy.Both) // what the silence kept is lost, and not only late
				p.Clear()
			}
			require.Empty(t, register.Violations())
			require.Zero(t, register.Refused())
			r.settle("held", "busy")
		})
	}
}
