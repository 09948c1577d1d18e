package bench

import (
	"math/bits"
	"runtime"
	"slices"
	"sync"
	"syscall"
	"time"
)

// Sample is what one load came to. Durations are of the operations that succeeded.
type Sample struct {
	PerSecond     float64
	Ratio         float64 // to the first peer of the same round
	P50, P99, Max time.Duration
	CPU           time.Duration // of this process, per operation
	NodeCPU       time.Duration // of all servers, per operation; 0 where it was not asked
	Allocs        float64       // per operation
	Done, Failed  int
	Err           error // one of the failures
}

// Load runs one operation per caller over and over for d, and returns when all have
// returned from their last. operations[i] is the i-th caller's.
func Load(d time.Duration, operations []func() error) Sample {
	type result struct {
		latencies Histogram
		failed    int
		err       error
	}
	results := make([]result, len(operations))
	var wg sync.WaitGroup
	var mem runtime.MemStats
	runtime.ReadMemStats(&mem)
	allocs, cpu, start := mem.Mallocs, CPUTime(), time.Now()
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
					r.latencies.Add(now.Sub(at))
				}
				at = now
			}
		})
	}
	wg.Wait()
	elapsed := time.Since(start)
	cpu = CPUTime() - cpu
	runtime.ReadMemStats(&mem)

	var all Histogram
	var s Sample
	for i := range results {
		all.Merge(&results[i].latencies)
		s.Failed += results[i].failed
		if s.Err == nil {
			s.Err = results[i].err
		}
	}
	s.Done = all.Count()
	s.P50, s.P99, s.Max = all.Quantile(0.5), all.Quantile(0.99), all.Quantile(1)
	s.PerSecond = float64(s.Done) / elapsed.Seconds()
	if s.Done > 0 {
		s.CPU = cpu / time.Duration(s.Done)
		s.Allocs = float64(mem.Mallocs-allocs) / float64(s.Done)
	}
	return s
}

// CPUTime is what this process has used, in user and kernel mode.
func CPUTime() time.Duration {
	var usage syscall.Rusage
	if err := syscall.Getrusage(syscall.RUSAGE_SELF, &usage); err != nil {
		return 0
	}
	return time.Duration(usage.Utime.Nano() + usage.Stime.Nano())
}

// medianSample takes the median of each figure by itself.
func medianSample(samples []Sample) Sample {
	return Sample{
		PerSecond: medianOf(samples, func(s Sample) float64 { return s.PerSecond }),
		Ratio:     medianOf(samples, func(s Sample) float64 { return s.Ratio }),
		P50:       medianOf(samples, func(s Sample) time.Duration { return s.P50 }),
		P99:       medianOf(samples, func(s Sample) time.Duration { return s.P99 }),
		Max:       medianOf(samples, func(s Sample) time.Duration { return s.Max }),
		CPU:       medianOf(samples, func(s Sample) time.Duration { return s.CPU }),
		NodeCPU:   medianOf(samples, func(s Sample) time.Duration { return s.NodeCPU }),
		Allocs:    medianOf(samples, func(s Sample) float64 { return s.Allocs }),
		Done:      medianOf(samples, func(s Sample) int { return s.Done }),
		Failed:    medianOf(samples, func(s Sample) int { return s.Failed }),
		Err:       samples[0].Err,
	}
}

func medianOf[S any, T int | float64 | time.Duration](samples []S, figure func(S) T) T {
	figures := make([]T, len(samples))
	for i, s := range samples {
		figures[i] = figure(s)
	}
	slices.Sort(figures)
	return figures[len(figures)/2]
}

// Histogram counts durations in buckets 3 % wide, so that a load of any length records
// without allocating.
type Histogram struct {
	buckets [64 * bucketsPerOctave]uint32
	max     time.Duration
}

const bucketsPerOctave = 32

// Add counts one duration.
func (h *Histogram) Add(d time.Duration) {
	h.buckets[bucketOf(d)]++
	h.max = max(h.max, d)
}

func bucketOf(d time.Duration) int {
	n := uint64(max(d, bucketsPerOctave))
	octave := bits.Len64(n) - 1
	return octave*bucketsPerOctave + int(n>>(octave-5))&(bucketsPerOctave-1)
}

// Merge adds what another has counted.
func (h *Histogram) Merge(other *Histogram) {
	for i, n := range other.buckets {
		h.buckets[i] += n
	}
	h.max = max(h.max, other.max)
}

// Count returns how many durations were added.
func (h *Histogram) Count() (n int) {
	for _, c := range h.buckets {
		n += int(c)
	}
	return n
}

// Quantile returns the q-th quantile, rounded up to its bucket's end; 0 of nothing.
func (h *Histogram) Quantile(q float64) time.Duration {
	rank := int(q * float64(h.Count()))
	for i, c := range h.buckets {
		if rank -= int(c); rank < 0 {
			octave := i / bucketsPerOctave
			return min(h.max, time.Duration((uint64(i%bucketsPerOctave)+bucketsPerOctave+1)<<(octave-5)))
		}
	}
	return h.max
}
