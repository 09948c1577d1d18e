//go:build linux

package clockshim

import (
	"math"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// standstill is the rate of a clock that does not move, in parts per million.
const standstill = -1_000_000

// shownBy runs date(1) on the clock: any C program that asks for the time will do.
func shownBy(t *testing.T, c *Clock) time.Time {
	t.Helper()
	path, err := exec.LookPath("date")
	require.NoError(t, err)
	cmd := exec.Command(path, "+%s %N")
	cmd.Env = c.Environment([]string{"PATH=" + os.Getenv("PATH")})
	out, err := cmd.CombinedOutput()
	require.NoError(t, err, "%s", out)
	seconds, nanos, found := strings.Cut(strings.TrimSpace(string(out)), " ")
	require.True(t, found, "%s", out)
	s, err := strconv.ParseInt(seconds, 10, 64)
	require.NoError(t, err)
	ns, err := strconv.ParseInt(nanos, 10, 64)
	require.NoError(t, err)
	return time.Unix(s, ns)
}

func newClock(t *testing.T) *Clock {
	t.Helper()
	c, err := New(t.TempDir())
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, c.Close()) })
	return c
}

func TestClockInAProcess(t *testing.T) {
	c := newClock(t)
	require.WithinDuration(t, time.Now(), shownBy(t, c), time.Second)

	c.Step(-time.Hour)
	require.WithinDuration(t, time.Now().Add(-time.Hour), shownBy(t, c), time.Second)

	c.Stop()
	at := c.Now()
	require.Equal(t, at, shownBy(t, c), "to the nanosecond")
	c.Step(2 * time.Hour)
	require.Equal(t, at.Add(2*time.Hour), shownBy(t, c))
	require.Equal(t, at.Add(2*time.Hour), c.Now())

	c.SetRate(1)
	require.WithinDuration(t, time.Now().Add(time.Hour), shownBy(t, c), time.Second)
	c.Reset()
	require.WithinDuration(t, time.Now(), shownBy(t, c), time.Second)
}

func TestRateIsKeptToAMillionth(t *testing.T) {
	c := newClock(t)
	for rate, ppm := range map[float64]int64{0: standstill, 1: 0, 1.1: 100_000, 0.9: -100_000, 1.000005: 5, 0.92: -80_000, 2: 1_000_000} {
		c.SetRate(rate)
		require.Equal(t, ppm, c.slot.ppm, "rate %v", rate)
	}
	c.Stop()
	require.EqualValues(t, standstill, c.slot.ppm)
	c.Step(time.Hour)
	require.EqualValues(t, standstill, c.slot.ppm, "a stopped clock that is set stands")
	c.Reset()
	require.Zero(t, c.slot.ppm)
	require.Equal(t, c.slot.base, c.slot.shown)
}

// An hour at ten percent fast is six minutes ahead, and stays so when the rate changes.
func TestChangeOfRateTakesNothingBack(t *testing.T) {
	c := newClock(t)
	hourAgo := time.Now().Add(-time.Hour).UnixNano()
	c.slot = slot{base: hourAgo, shown: hourAgo}
	c.SetRate(1.1)
	require.WithinDuration(t, time.Now(), shownBy(t, c), time.Second, "what passed before stays as it was")

	c.slot = slot{base: hourAgo, shown: hourAgo, ppm: 100_000}
	c.SetRate(1)
	require.WithinDuration(t, time.Now().Add(6*time.Minute), shownBy(t, c), time.Second)
}

// Two slots that both show the host's time, a hundred years apart: a process that took the base of one and the time
// shown of the other would be off by as much.
func TestNoSlotIsSeenByHalves(t *testing.T) {
	const questions = 200_000
	c := newClock(t)
	file := filepath.Join(t.TempDir(), "questions")
	require.NoError(t, os.WriteFile(file, []byte(strings.Repeat("now\n", questions)), 0o600))
	date, err := exec.LookPath("date")
	require.NoError(t, err)
	cmd := exec.Command(date, "-f", file, "+%s")
	cmd.Env = c.Environment(os.Environ())

	stop, stopped := make(chan struct{}), make(chan error)
	go func() {
		for i := int64(0); ; i++ {
			select {
			case <-stop:
				stopped <- nil
				return
			default:
			}
			base := i % 2 * 100 * 365 * 24 * time.Hour.Nanoseconds()
			if err := c.shim.put(slot{base: base, shown: base}); err != nil {
				stopped <- err
				return
			}
		}
	}()
	out, err := cmd.CombinedOutput()
	close(stop)
	require.NoError(t, <-stopped)
	require.NoError(t, err, "%.200s", out)
	answers := strings.Fields(string(out))
	require.Len(t, answers, questions)
	now := time.Now()
	for _, answer := range answers {
		s, err := strconv.ParseInt(answer, 10, 64)
		require.NoError(t, err)
		if d := now.Sub(time.Unix(s, 0)); d.Abs() > time.Hour {
			t.Fatalf("a process was shown a time %v from ours", d)
		}
	}
}

func TestSlotNeitherOverflowsNorRoundsAway(t *testing.T) {
	const year = int64(365 * 24 * time.Hour)
	for _, s := range []struct{ passed, ppm int64 }{
		{0, 100_000}, {1, standstill}, {999_999, 1}, {1_000_000, 1}, {year, 100_000}, {year, -80_000}, {year + 7, standstill}, {-year, 100_000},
	} {
		got := slot{base: 1e18, shown: 2e18, ppm: s.ppm}.at(1e18 + s.passed)
		want := 2e18 + float64(s.passed)*(1+float64(s.ppm)/1e6)
		require.InDelta(t, want, float64(got), math.Max(1, math.Abs(want)*1e-15), "%+v", s)
	}
	require.EqualValues(t, 2e18, slot{base: 1e18, shown: 2e18, ppm: standstill}.at(1e18+year+7), "standstill is exact")
}

// The formula in C has to be the one in Go; a clock with a base long ago shows where they differ.
func TestFormulaInCIsTheOneInGo(t *testing.T) {
	for _, ppm := range []int64{0, 1, 100_000, -100_000, -999_999} {
		c := newClock(t)
		host := time.Now().UnixNano()
		c.slot = slot{base: host - 300*24*time.Hour.Nanoseconds(), shown: host, ppm: ppm}
		require.NoError(t, c.shim.put(c.slot))
		before := c.Now()
		shown := shownBy(t, c)
		after := c.Now()
		require.False(t, shown.Before(before), "ppm %d: %v before %v", ppm, shown, before)
		require.False(t, shown.After(after), "ppm %d: %v after %v", ppm, shown, after)
	}
}

func TestClosedClockPanics(t *testing.T) {
	c := newClock(t)
	require.NoError(t, c.Close())
	require.Panics(t, func() { c.Step(time.Hour) })
}

func TestProcessWithoutItsControlFileRefusesToRun(t *testing.T) {
	c := newClock(t)
	date, err := exec.LookPath("date")
	require.NoError(t, err)
	for _, env := range []string{"X=", envControl + "=/no/such/file"} {
		cmd := exec.Command(date)
		cmd.Env = []string{"LD_PRELOAD=" + c.shim.library, env}
		out, err := cmd.CombinedOutput()
		require.Error(t, err)
		require.Contains(t, string(out), "clockshim: ")
	}
}

func TestPreloadKeepsWhatIsThere(t *testing.T) {
	env := withPreload([]string{"A=1", "LD_PRELOAD=/x.so", "B=2", "LD_PRELOAD="}, "/ours.so")
	require.Equal(t, []string{"A=1", "B=2", "LD_PRELOAD=/ours.so:/x.so"}, env)
}

func TestCompilerThatFailsSaysWhatItSaid(t *testing.T) {
	t.Setenv("TMPDIR", t.TempDir())
	_, err := compile("cc --no-such-flag")
	require.ErrorContains(t, err, "no-such-flag")
	require.ErrorContains(t, err, "apt-get install libc6-dev")
	left, err := os.ReadDir(os.TempDir())
	require.NoError(t, err)
	require.Empty(t, left)
}

func TestWithoutACompiler(t *testing.T) {
	t.Setenv("PATH", t.TempDir())
	t.Setenv("CC", "")
	_, err := New(t.TempDir())
	require.ErrorContains(t, err, "apt-get install gcc libc6-dev")
	require.ErrorContains(t, err, "none of cc, gcc, clang in PATH")
}
