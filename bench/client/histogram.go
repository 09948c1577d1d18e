package client

import (
	"math/bits"
	"time"
)

// histogram counts durations in buckets 3 % wide, so that a load of any length records without allocating.
type histogram struct {
	buckets [64 * bucketsPerOctave]uint32
	max     time.Duration
}

const bucketsPerOctave = 32

// add counts one duration.
func (h *histogram) add(d time.Duration) {
	h.buckets[bucketOf(d)]++
	h.max = max(h.max, d)
}

func bucketOf(d time.Duration) int {
	n := uint64(max(d, bucketsPerOctave))
	octave := bits.Len64(n) - 1
	return octave*bucketsPerOctave + int(n>>(octave-5))&(bucketsPerOctave-1)
}

// merge adds what another has counted.
func (h *histogram) merge(other *histogram) {
	for i, n := range other.buckets {
		h.buckets[i] += n
	}
	h.max = max(h.max, other.max)
}

// count returns how many durations were added.
func (h *histogram) count() (n int) {
	for _, c := range h.buckets {
		n += int(c)
	}
	return n
}

// quantile returns the q-th quantile, rounded up to its bucket's end; 0 of nothing.
func (h *histogram) quantile(q float64) time.Duration {
	rank := int(q * float64(h.count()))
	for i, c := range h.buckets {
		if rank -= int(c); rank < 0 {
			octave := i / bucketsPerOctave
			return min(h.max, time.Duration((uint64(i%bucketsPerOctave)+bucketsPerOctave+1)<<(octave-5)))
		}
	}
	return h.max
}
