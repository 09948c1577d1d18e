//go:build linux

package redisproc_test

import (
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/redlock-go/redlock/internal/redisproc"
	"github.com/redlock-go/redlock/internal/redisproc/redistest"
)

// serverTime is what the node's own TIME says.
func serverTime(t *testing.T, n *redisproc.Node) time.Time {
	t.Helper()
	seconds, micros, found := strings.Cut(do(t, n, "TIME"), "\n")
	require.True(t, found)
	s, err := strconv.ParseInt(seconds, 10, 64)
	require.NoError(t, err)
	us, err := strconv.ParseInt(micros, 10, 64)
	require.NoError(t, err)
	return time.Unix(s, us*1000)
}

// pttl is the time the node gives a key, -2 ms for a key that is gone.
func pttl(t *testing.T, n *redisproc.Node, key string) time.Duration {
	t.Helper()
	ms, err := strconv.ParseInt(do(t, n, "PTTL", key), 10, 64)
	require.NoError(t, err)
	return time.Duration(ms) * time.Millisecond
}

const gone = -2 * time.Millisecond

func startWithClock(t *testing.T) *redisproc.Node {
	t.Helper()
	return redistest.Start(t, redisproc.Options{Clock: true})
}

func TestClockIsTheHostsUntilItIsMoved(t *testing.T) {
	n := startWithClock(t)
	require.WithinDuration(t, time.Now(), serverTime(t, n), time.Second)
	require.WithinDuration(t, n.Clock().Now(), serverTime(t, n), time.Second)
	plain := redistest.Start(t, redisproc.Options{})
	require.Panics(t, func() { plain.Clock() })
}

func TestStepForwardEndsLeasesAtOnce(t *testing.T) {
	n := startWithClock(t)
	do(t, n, "SET", "lock", "me", "PX", "60000")
	n.Clock().Step(time.Hour)
	require.Equal(t, gone, pttl(t, n, "lock"))
	require.WithinDuration(t, time.Now().Add(time.Hour), serverTime(t, n), time.Second)
}

func TestStepBackProlongsLeases(t *testing.T) {
	n := startWithClock(t)
	do(t, n, "SET", "lock", "me", "PX", "60000")
	n.Clock().Step(-time.Hour)
	require.InDelta(t, time.Hour+time.Minute, pttl(t, n, "lock"), float64(30*time.Second))
	require.WithinDuration(t, time.Now().Add(-time.Hour), serverTime(t, n), time.Second)

	n.Clock().Reset()
	require.LessOrEqual(t, pttl(t, n, "lock"), time.Minute)
	require.WithinDuration(t, time.Now(), serverTime(t, n), time.Second)
}

// The two clocks are compared over the same stretch of time, however long the machine makes it: no bound here is one of
// speed.
func TestRateStretchesTheServersTime(t *testing.T) {
	for _, rate := range []float64{1.1, 0.9, 1.08, 0.92} {
		n := startWithClock(t)
		n.Clock().SetRate(rate)
		require.WithinDuration(t, time.Now(), serverTime(t, n), time.Second, "a change of rate is no step")

		host0, server0 := time.Now(), serverTime(t, n)
		time.Sleep(time.Second)
		server1, host1 := serverTime(t, n), time.Now()
		ratio := float64(server1.Sub(server0)) / float64(host1.Sub(host0))
		require.InDelta(t, rate, ratio, 0.03)
	}
}

func TestFastServerEndsLeasesEarly(t *testing.T) {
	n := startWithClock(t)
	n.Clock().SetRate(1.1)
	start := time.Now()
	do(t, n, "SET", "lock", "me", "PX", "2000")
	time.Sleep(time.Until(start.Add(1900 * time.Millisecond))) // ends after 1818 ms of ours
	require.Equal(t, gone, pttl(t, n, "lock"))

	n.Clock().SetRate(0.9)
	do(t, n, "SET", "lock", "me", "PX", "2000")
	start = time.Now()
	time.Sleep(1900 * time.Millisecond)
	left := pttl(t, n, "lock")
	if time.Since(start) < 2100*time.Millisecond { // else this machine slept too long to tell
		require.Positive(t, left, "a slow server keeps the key for 2222 ms of ours")
	}
}

func TestStoppedClockGoesOnFromThere(t *testing.T) {
	n := startWithClock(t)
	do(t, n, "SET", "lock", "me", "PX", "100")
	n.Clock().Stop()
	stoppedAt, left := serverTime(t, n), pttl(t, n, "lock")
	time.Sleep(300 * time.Millisecond)
	require.Equal(t, stoppedAt, serverTime(t, n))
	require.Equal(t, left, pttl(t, n, "lock"), "nothing expires where no time passes")
	require.Equal(t, "PONG", do(t, n, "PING"), "the server itself goes on")

	n.Clock().Step(time.Minute)
	require.Equal(t, stoppedAt.Add(time.Minute), serverTime(t, n), "a stopped clock can be set")

	n.Clock().SetRate(1)
	require.Eventually(t, func() bool { return serverTime(t, n).After(stoppedAt.Add(time.Minute)) }, longEnough, time.Millisecond)
	require.Equal(t, gone, pttl(t, n, "lock"))
}

func TestClockOutlivesTheServer(t *testing.T) {
	n := startWithClock(t)
	n.Clock().Step(-time.Hour)
	require.NoError(t, n.CrashEmpty())
	require.WithinDuration(t, time.Now().Add(-time.Hour), serverTime(t, n), 5*time.Second)
	n.Clock().Step(2 * time.Hour)
	require.WithinDuration(t, time.Now().Add(time.Hour), serverTime(t, n), 5*time.Second)
	require.NoError(t, n.Stop(), "a server whose clock went back still hears SIGTERM")
	require.Contains(t, n.LogTail(5), "bye bye")
}

func TestClocksOfASetAreIndependent(t *testing.T) {
	nodes := redistest.StartSet(t, 3, redisproc.Options{Clock: true})
	nodes[1].Clock().Step(time.Hour)
	for i, n := range nodes {
		want := time.Now()
		if i == 1 {
			want = want.Add(time.Hour)
		}
		require.WithinDuration(t, want, serverTime(t, n), time.Second)
	}
}
