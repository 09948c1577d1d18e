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

// shownBy runs date(1) on the clock: any C program that asks for the time will do.
func shownBy(t *testing.T, c *Clock) time.Time {
	t.Helper()
	path, err := exec.LookPath("date")
	require.NoError(t, err)
	cmd := exec.Command(path, "+%s %N")
	cmd.Env, err = c.Environment([]string{"PATH=" + os.Getenv("PATH")})
	require.NoError(t, err)
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

	c.Freeze()
	at := c.Now()
	require.Equal(t, at, shownBy(t, c), "to the nanosecond")
	c.Step(2 * time.Hour)
	require.Equal(t, at.Add(2*time.Hour), shownBy(t, c))
	require.Equal(t, at.Add(2*time.Hour), c.Now())

	c.Thaw()
	require.WithinDuration(t, time.Now().Add(time.Hour), shownBy(t, c), time.Second)
	c.Reset()
	require.WithinDuration(t, time.Now(), shownBy(t, c), time.Second)
}

func TestThawGoesOnAtTheOldRate(t *testing.T) {
	c := newClock(t)
	c.Rate(100_000)
	c.Freeze()
	require.EqualValues(t, standstill, c.slot.ppm)
	c.Thaw()
	require.EqualValues(t, 100_000, c.slot.ppm)
	c.Freeze()
	c.Rate(-5)
	require.EqualValues(t, -5, c.slot.ppm, "Rate thaws")
	c.Reset()
	require.Zero(t, c.slot.ppm)
	require.Equal(t, c.slot.base, c.slot.shown)
}

// An hour at ten percent fast is six minutes ahead, and stays so when the rate changes.
func TestChangeOfRateTakesNothingBack(t *testing.T) {
	c := newClock(t)
	hourAgo := time.Now().Add(-time.Hour).UnixNano()
	c.slot = slot{base: hourAgo, shown: hourAgo}
	c.Rate(100_000)
	require.WithinDuration(t, time.Now(), shownBy(t, c), time.Second, "what passed before stays as it was")

	c.slot = slot{base: hourAgo, shown: hourAgo, ppm: 100_000}
	c.Rate(0)
	require.WithinDuration(t, time.Now().Add(6*time.Minute), shownBy(t, c), time.Second)
}

// Two slots that both show the host's time, a hundred years apart: a process that took
// the base of one and the time shown of the other would be off by as much.
func TestNoSlotIsSeenByHalves(t *testing.T) {
	const questions = 200_000
	c := newClock(t)
	file := filepath.Join(t.TempDir(), "questions")
	require.NoError(t, os.WriteFile(file, []byte(strings.Repeat("now\n", questions)), 0o600))
	date, err := exec.LookPath("date")
	require.NoError(t, err)
	cmd := exec.Command(date, "-f", file, "+%s")
	cmd.Env, err = c.Environment(os.Environ())
	require.NoError(t, err)

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
			if err := c.driver.put(slot{base: base, shown: base}); err != nil {
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

// The formula in C has to be the one in Go; a clock with a base long ago shows where
// they differ.
func TestFormulaInCIsTheOneInGo(t *testing.T) {
	for _, ppm := range []int64{0, 1, 100_000, -100_000, -999_999} {
		c := newClock(t)
		host := time.Now().UnixNano()
		c.slot = slot{base: host - 300*24*time.Hour.Nanoseconds(), shown: host, ppm: ppm}
		require.NoError(t, c.driver.put(c.slot))
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
	d, isOwn := c.driver.(*own)
	require.True(t, isOwn, "no C compiler here")
	date, err := exec.LookPath("date")
	require.NoError(t, err)
	for _, env := range []string{"X=", envControl + "=/no/such/file"} {
		cmd := exec.Command(date)
		cmd.Env = []string{"LD_PRELOAD=" + d.library, env}
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

// Without a compiler there are two outcomes, by what the machine has: both are seen to
// be right where they occur.
func TestWithoutACompiler(t *testing.T) {
	date, err := exec.LookPath("date")
	require.NoError(t, err)
	dir := t.TempDir()
	require.NoError(t, os.Symlink(date, filepath.Join(dir, "date")))
	t.Setenv("PATH", dir)
	t.Setenv("CC", "")

	if _, err := findFaketime(); err != nil {
		_, err = New(t.TempDir())
		require.ErrorContains(t, err, "apt-get install gcc libc6-dev")
		require.ErrorContains(t, err, "apt-get install libfaketime")
		return
	}
	c := newClock(t)
	require.IsType(t, &faketime{}, c.driver)
	c.Step(-time.Hour)
	require.WithinDuration(t, time.Now().Add(-time.Hour), shownBy(t, c), time.Second)
	c.Freeze()
	require.WithinDuration(t, time.Now().Add(-time.Hour), shownBy(t, c), time.Second)
	c.Rate(100_000)
	c.Step(time.Hour)
	require.WithinDuration(t, time.Now(), shownBy(t, c), time.Second)
}

func TestFaketimeText(t *testing.T) {
	const s = int64(time.Second)
	d := &faketime{start: 100 * s}
	for _, c := range []struct {
		name string
		slot slot
		want string
	}{
		{"the host's", slot{base: 130 * s, shown: 130 * s}, "+0.000000 x1.000000"},
		{"an hour back", slot{base: 130 * s, shown: 130*s - 3600*s}, "-3600.000000 x1.000000"},
		// At 130 the library shows 100 + 30*1.1 + offset, and 130 is wanted.
		{"ten percent fast from 130 on", slot{base: 130 * s, shown: 130 * s, ppm: 100_000}, "-3.000000 x1.100000"},
		{"standing still at 130", slot{base: 130 * s, shown: 130 * s, ppm: standstill}, "+30.000000 x0.000000"},
	} {
		require.Equal(t, c.want, strings.TrimSpace(d.text(c.slot)), c.name)
	}
}
