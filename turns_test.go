package redlock_test

import (
	"context"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/redlock-go/redlock"
)

// acquirer is a way to acquire: of a slot, of a side, of several names.
type acquirer = func(context.Context, ...redlock.HoldOption) (*redlock.Guard, error)

// served is a call that has waited, and for how long.
type served struct {
	guard *redlock.Guard
	took  time.Duration
}

// waitFor has a call wait, and returns its guard when it has been served.
func waitFor(t testing.TB, acquire acquirer) <-chan served {
	t.Helper()
	came := make(chan served, 1)
	began := time.Now()
	go func() {
		g, err := acquire(context.Background())
		if err != nil {
			t.Error(err)
		}
		came <- served{g, time.Since(began)}
	}()
	return came
}

// caller is one who acquires over and over, and what it does with each guard.
type caller struct {
	acquire acquirer
	hold    func(*redlock.Guard)
}

// takeTurns has so many callers of each Locker work for a while, and returns how long the longest waited. Their guards last until they are
// released.
func takeTurns(t testing.TB, lockers []*redlock.Locker, callers int, length time.Duration, start func(l *redlock.Locker, i, j int) caller) time.Duration {
	t.Helper()
	var wg sync.WaitGroup
	var mu sync.Mutex
	var waits []time.Duration
	end := time.Now().Add(length)
	for i, l := range lockers {
		for j := range callers {
			c := start(l, i, j)
			wg.Go(func() {
				for time.Now().Before(end) {
					began := time.Now()
					g, err := c.acquire(context.Background())
					if err != nil {
						t.Error(err)
						return
					}
					mu.Lock()
					waits = append(waits, time.Since(began))
					mu.Unlock()
					c.hold(g)
					if g.Err() != nil {
						t.Error(g.Err())
					}
					release(t, g)
				}
			})
		}
	}
	wg.Wait()
	require.NotEmpty(t, waits)
	slices.Sort(waits)
	longest := waits[len(waits)-1]
	t.Logf("%d holds, waits %v %v %v", len(waits), waits[len(waits)/2], waits[len(waits)*99/100], longest)
	return longest
}
