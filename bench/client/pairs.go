package client

import (
	"fmt"
	"runtime"
	"sync"
	"syscall"
	"time"
)

// names is how many names each caller goes round: a straggler of the last use of a name is home before its next.
const names = 4

// Load is what Pairs is told: so many callers acquire and release names of their own, over and over.
type Load struct {
	Callers int
	For     time.Duration
}

// Pairs is what a load came to. Durations are of the pairs that succeeded.
type Pairs struct {
	Done, Failed  int
	Err           string // one of the failures
	Elapsed       time.Duration
	P50, P99, Max time.Duration
	CPU           time.Duration // of this process
	Allocs        uint64
}

// pairs runs one operation per caller over and over for d, and returns when all have returned from their last.
// operations[i] is the i-th caller's.
func pairs(d time.Duration, operations []func() error) Pairs {
	type result struct {
		latencies histogram
		failed    int
		err       error
	}
	results := make([]result, len(operations))
	var wg sync.WaitGroup
	var mem runtime.MemStats
	runtime.ReadMemStats(&mem)
	allocs, cpu, start := mem.Mallocs, cpuTime(), time.Now()
	for i, operation := range operations {
		wg.Go(func() {
			r := &results[i]
			for at := start; at.Sub(start) < d; {
				err := operation()
				now := time.Now()
				if err != nil {
					r.failed++
					r.err = err
				} else {
					r.latencies.add(now.Sub(at))
				}
				at = now
			}
		})
	}
	wg.Wait()
	p := Pairs{Elapsed: time.Since(start), CPU: cpuTime() - cpu}
	runtime.ReadMemStats(&mem)
	p.Allocs = mem.Mallocs - allocs

	var all histogram
	for i := range results {
		all.merge(&results[i].latencies)
		p.Failed += results[i].failed
		if p.Err == "" && results[i].err != nil {
			p.Err = results[i].err.Error()
		}
	}
	p.Done, p.P50, p.P99, p.Max = all.count(), all.quantile(0.5), all.quantile(0.99), all.quantile(1)
	return p
}

// callers returns n operations, each an acquisition and release of a name of its own.
func callers(l locker, n int) []func() error {
	operations := make([]func() error, n)
	for i := range operations {
		var pairs [names]func() error
		for j := range pairs {
			pairs[j] = l.pair(fmt.Sprintf("%d-%d", i, j))
		}
		next := 0
		operations[i] = func() error {
			next = (next + 1) % names
			return pairs[next]()
		}
	}
	return operations
}

// cpuTime is what this process has used, in user and kernel mode.
func cpuTime() time.Duration {
	var usage syscall.Rusage
	if err := syscall.Getrusage(syscall.RUSAGE_SELF, &usage); err != nil {
		return 0
	}
	return time.Duration(usage.Utime.Nano() + usage.Stime.Nano())
}
