package bench

import (
	"fmt"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// BenchmarkAcquireRelease acquires and releases names that nobody else wants. Its peers
// run one after the other: cmd/compare is for ratios.
func BenchmarkAcquireRelease(b *testing.B) {
	for _, n := range []int{1, 3, 5} {
		nodes, err := StartNodes(n)
		require.NoError(b, err)
		b.Cleanup(nodes.Close)
		for _, callers := range []int{1, 16, 64} {
			for _, p := range []Peer{Redlock, BareQuorum, BareAll, BareFenced, BareOurs, Redsync, Rueidislock} {
				if p.OneServer && n > 1 {
					continue
				}
				b.Run(fmt.Sprintf("nodes=%d/callers=%d/peer=%s", n, callers, strings.ReplaceAll(p.Name, ", ", "-")), func(b *testing.B) {
					c, err := p.New(nodes.Options(nil))
					require.NoError(b, err)
					defer c.Close()
					operations := Callers(c, p.Name, callers)
					Load(50*time.Millisecond, operations)
					b.ReportAllocs()
					if callers == 1 {
						alone(b, operations[0])
					} else {
						together(b, operations)
					}
				})
			}
		}
	}
}

func alone(b *testing.B, operation func() error) {
	var latencies Histogram
	cpu := CPUTime()
	for b.Loop() {
		start := time.Now()
		if err := operation(); err != nil {
			b.Fatal(err)
		}
		latencies.Add(time.Since(start))
	}
	report(b, &latencies, CPUTime()-cpu)
}

// together shares b.N among the callers; b.Loop knows one goroutine only.
func together(b *testing.B, operations []func() error) {
	latencies := make([]Histogram, len(operations))
	var left atomic.Int64
	left.Store(int64(b.N))
	var wg sync.WaitGroup
	b.ResetTimer()
	cpu := CPUTime()
	for i, operation := range operations {
		wg.Go(func() {
			for left.Add(-1) >= 0 {
				start := time.Now()
				if err := operation(); err != nil {
					b.Error(err)
					return
				}
				latencies[i].Add(time.Since(start))
			}
		})
	}
	wg.Wait()
	cpu = CPUTime() - cpu
	b.StopTimer()
	for i := range latencies[1:] {
		latencies[0].Merge(&latencies[i+1])
	}
	report(b, &latencies[0], cpu)
}

func report(b *testing.B, latencies *Histogram, cpu time.Duration) {
	b.ReportMetric(float64(b.N)/b.Elapsed().Seconds(), "ops/s")
	b.ReportMetric(float64(latencies.Quantile(0.5).Microseconds()), "p50-µs")
	b.ReportMetric(float64(latencies.Quantile(0.99).Microseconds()), "p99-µs")
	b.ReportMetric(float64(cpu.Microseconds())/float64(b.N), "cpu-µs/op")
}
