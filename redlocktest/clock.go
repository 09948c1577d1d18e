package redlocktest

import "time"

// clock is a node's wall clock: a line through (at, shows) with the slope rate, over the cluster's monotonic time.
type clock struct {
	at    time.Duration
	shows time.Time
	rate  float64 // 1 is right, 0 stands still
}

func (k *clock) read(now time.Duration) time.Time {
	passed := now - k.at
	if k.rate != 1 {
		passed = time.Duration(float64(passed) * k.rate)
	}
	return k.shows.Add(passed)
}

// set makes the clock show t now and go on at rate.
func (k *clock) set(now time.Duration, t time.Time, rate float64) {
	k.at, k.shows, k.rate = now, t, rate
}

// when returns the time at which the clock will show t or later; never is false where it stands still.
func (k *clock) when(now time.Duration, t time.Time) (at time.Duration, ever bool) {
	missing := t.Sub(k.read(now))
	switch {
	case missing <= 0:
		return now, true
	case k.rate == 0:
		return 0, false
	}
	return now + time.Duration(float64(missing)/k.rate), true
}
