package redlock

import (
	"math/rand/v2"
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
