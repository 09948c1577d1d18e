package redlock

import (
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

func TestClaimUntilIsSentPlusLeaseMinusDriftMinusBound(t *testing.T) {
	for _, row := range []struct {
		reason      string
		sent, lease time.Duration
		drift       float64
		bound, want time.Duration
	}{
		{"the defaults at 10 s: 1 s of drift, 0.5 s of bound, rounded down", 0, 10 * time.Second, 0.1, 500 * time.Millisecond, 8500*time.Millisecond - 1},
		{"counted from before the request left", 42 * time.Second, 10 * time.Second, 0.1, 500 * time.Millisecond, 42*time.Second + 8500*time.Millisecond - 1},
		{"no bound", 0, 2 * time.Second, 0.25, 0, 1500*time.Millisecond - 1},
		{"a short lease", time.Second, 20 * time.Millisecond, 0.5, time.Millisecond, time.Second + 9*time.Millisecond - 1},
		{"a bound beyond the lease gives a claim that has ended already", time.Second, time.Second, 0.1, 2 * time.Second, time.Second - 1100*time.Millisecond - 1},
	} {
		require.Equal(t, row.want, claimUntil(row.sent, row.lease, row.drift, row.bound), row.reason)
	}
}

// A node whose clock runs fast by the drift drops the key after lease/(1+drift) of our time; one that runs fast by
// the drift of its own rate after lease·(1−drift). The claim must have ended in either reading, at any bound.
func TestClaimEndsBeforeTheKeyAtAnyRateWithinTheDrift(t *testing.T) {
	random := rand.New(rand.NewPCG(3, 4))
	for range 10_000 {
		lease := time.Duration(20+random.IntN(100_000)) * time.Millisecond
		drift := random.Float64() * 0.5
		step := time.Duration(random.Int64N(int64(lease)/10 + 1))
		arrives := time.Duration(random.Int64N(int64(time.Second)))
		until := claimUntil(0, lease, drift, step)
		fast := arrives + time.Duration(float64(lease-step)/(1+drift))
		require.Less(t, until, fast, "lease %v, drift %v, step %v, arrived after %v", lease, drift, step, arrives)
	}
}

func TestGoneAfterIsLeftPlusDriftPlusBound(t *testing.T) {
	require.Equal(t, 11500*time.Millisecond+1, goneAfter(10*time.Second, 0.1, 500*time.Millisecond))
	require.Equal(t, 500*time.Millisecond+1, goneAfter(0, 0.1, 500*time.Millisecond), "what has run out by the node's word is waited for by the bound")
	require.Equal(t, 2500*time.Millisecond+1, goneAfter(2*time.Second, 0.25, 0))
}

func TestOffsetOfIsBetweenReceivedAndSent(t *testing.T) {
	o := offsetOf(1000, 300, 340)
	require.Equal(t, offset{lo: 660, hi: 700, at: 340}, o)
	require.Equal(t, time.Duration(680), o.mid())
	require.LessOrEqual(t, offsetOf(5, 10, 30).hi, time.Duration(0), "a node behind us has a negative offset")
}

func TestOffsetGap(t *testing.T) {
	o := func(lo, hi time.Duration) offset { return offset{lo: lo, hi: hi} }
	for _, row := range []struct {
		reason string
		a, b   offset
		want   time.Duration
	}{
		{"the same", o(1, 3), o(1, 3), 0},
		{"overlapping", o(1, 5), o(4, 9), 0},
		{"one inside the other", o(1, 9), o(4, 5), 0},
		{"touching", o(1, 4), o(4, 9), 0},
		{"apart", o(1, 4), o(9, 12), 5},
		{"apart on both sides of zero", o(-7, -4), o(2, 3), 6},
	} {
		require.Equal(t, row.want, row.a.gap(row.b), row.reason)
		require.Equal(t, row.want, row.b.gap(row.a), "%s, the other way round", row.reason)
	}
}

func TestOffsetAgedWidensByTheDrift(t *testing.T) {
	o := offset{lo: 100, hi: 200, at: time.Second}.aged(11*time.Second, 0.1)
	require.Equal(t, 100-time.Second-1, o.lo)
	require.Equal(t, 200+time.Second+1, o.hi)
	require.Equal(t, 11*time.Second, o.at)

	at := offset{lo: 100, hi: 200, at: time.Second}.aged(time.Second, 0.1)
	require.Equal(t, offset{lo: 99, hi: 201, at: time.Second}, at, "at once, it is widened by the rounding alone")
}

func TestMedian(t *testing.T) {
	for _, row := range []struct {
		reason string
		values []time.Duration
		want   time.Duration
	}{
		{"one", []time.Duration{7}, 7},
		{"two: the lower", []time.Duration{9, 7}, 7},
		{"three", []time.Duration{9, 1, 7}, 7},
		{"four: the lower of the middle two", []time.Duration{9, 1, 7, 3}, 3},
		{"five, one of them mad", []time.Duration{5, 4, 6, 5, 1 << 60}, 5},
	} {
		require.Equal(t, row.want, median(slices.Clone(row.values)), row.reason)
		var offsets []offset
		for _, v := range row.values {
			offsets = append(offsets, offset{lo: v - 1, hi: v + 1})
		}
		require.Equal(t, row.want, medianOffset(offsets).mid(), row.reason)
	}
}
