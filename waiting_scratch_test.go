package redlock_test

import (
	"context"
	"fmt"
	"os"
	"sync"
	"testing"
	"time"
	"sort"
	"strings"

	"github.com/redlock-go/redlock"
	"github.com/redlock-go/redlock/internal/redisproc"
	"github.com/redlock-go/redlock/internal/redisproc/redistest"
	"github.com/stretchr/testify/require"
)

func TestScratchContention(t *testing.T) {
	if os.Getenv("SCRATCH") == "" { t.Skip() }
	for _, nn := range []int{1, 5} {
	nodes := redistest.StartSet(t, nn, redisproc.Options{})
	for _, k := range []int{1, 2, 8, 32, 100} {
		var lockers []*redlock.Locker
		for range k {
			l, err := redlock.NewLocker(redlock.LockerOption{Nodes: redistest.Options(nodes), RestartQuarantine: -1})
			require.NoError(t, err)
			lockers = append(lockers, l)
		}
		calls := func() int {
			out, _ := nodes[0].Do("INFO", "commandstats")
			n := 0
			for _, line := range strings.Split(out, "\n") {
				if strings.HasPrefix(line, "cmdstat_evalsha:") { fmt.Sscanf(line, "cmdstat_evalsha:calls=%d,", &n) }
			}
			return n
		}
		c0 := calls()
		var mu sync.Mutex
		var waits, gaps []time.Duration
		counts := make([]int, k)
		var wg sync.WaitGroup
		holders := 0
		var lastRel time.Time
		end := time.Now().Add(2 * time.Second)
		for i, l := range lockers {
			wg.Go(func() {
				for time.Now().Before(end) {
					s := time.Now()
					g, err := l.Acquire(context.Background(), "x")
					require.NoError(t, err)
					mu.Lock()
					holders++
					require.Equal(t, 1, holders)
					waits = append(waits, time.Since(s))
					if !lastRel.IsZero() { gaps = append(gaps, time.Since(lastRel)) }
					counts[i]++
					mu.Unlock()
					time.Sleep(time.Millisecond)
					mu.Lock(); holders--; lastRel = time.Now(); mu.Unlock()
					g.Release(context.Background())
				}
			})
		}
		wg.Wait()
		n := len(waits)
		sort.Slice(waits, func(i, j int) bool { return waits[i] < waits[j] })
		sort.Slice(gaps, func(i, j int) bool { return gaps[i] < gaps[j] })
		sort.Ints(counts)
		fmt.Printf("N=%d k=%d holds=%d gap p50=%v p99=%v max=%v wait p50=%v max=%v share %d..%d cmds/node/hold=%.1f\n", nn, k, n, gaps[len(gaps)/2], gaps[len(gaps)*99/100], gaps[len(gaps)-1], waits[n/2], waits[n-1], counts[0], counts[k-1], float64(calls()-c0)/float64(n))
		for _, l := range lockers { l.Close() }
	}
	}
}
