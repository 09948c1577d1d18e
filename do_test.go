package redlock_test

import (
	"context"
	"errors"
	"runtime"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/redlock-go/redlock"
)

type doFunc = func(context.Context, string, func(context.Context) error, ...redlock.HoldOption) error

// Schedule: ctx ends while fn runs, and fn takes three leases more to come to an end, as a program does that is being
// replaced. Its own context ends at once; until it has returned nobody else may have the lock.
func TestScheduleDoHoldsUntilItsFunctionHasReturned(t *testing.T) {
	for _, row := range []struct {
		name string
		do   func(*redlock.Locker) doFunc
	}{
		{"Do", func(l *redlock.Locker) doFunc { return l.Do }},
		{"TryDo", func(l *redlock.Locker) doFunc { return l.TryDo }},
	} {
		t.Run(row.name, func(t *testing.T) {
			interleave(t, 3, func(t *testing.T, s *schedule) {
				a, b := s.open("a"), s.open("b")
				why := errors.New("a new version is rolled out")
				ctx, cancel := context.WithCancelCause(context.Background())
				var returned atomic.Bool
				err := row.do(a)(ctx, "x", func(held context.Context) error {
					require.NoError(t, held.Err())
					token, fenced := redlock.FencingToken(held)
					require.True(t, fenced)
					afterward(t, func() {
						g, err := b.Acquire(context.Background(), "x")
						assert.NoError(t, err)
						assert.True(t, returned.Load(), "granted while fn ran")
						assert.Greater(t, g.FencingToken(), token)
						g.Release(context.Background())
					})
					asked := time.Now()
					cancel(why)
					<-held.Done()
					require.Equal(t, asked, time.Now(), "fn is told at once")
					require.ErrorIs(t, held.Err(), context.Canceled)
					require.Equal(t, why, context.Cause(held))
					time.Sleep(3 * lease)
					for _, value := range s.stored() {
						require.Contains(t, value, redlock.GuardOf(held).Owner())
					}
					require.NoError(t, redlock.GuardOf(held).Err())
					returned.Store(true)
					return nil
				})
				require.NoError(t, err, "fn has done all it was to do, and nobody else had the lock")
			})
		})
	}
}

// fn's context has ctx's values and deadline; what a deadline of ctx ends is not released before fn returns either.
func TestScheduleDoPassesTheDeadlineOn(t *testing.T) {
	interleave(t, 3, func(t *testing.T, s *schedule) {
		a, b := s.open("a"), s.open("b")
		type key struct{}
		ctx, cancel := context.WithTimeout(context.WithValue(context.Background(), key{}, "value"), lease/2)
		defer cancel()
		want, _ := ctx.Deadline()
		err := a.Do(ctx, "x", func(held context.Context) error {
			got, ok := held.Deadline()
			require.True(t, ok)
			require.Equal(t, want, got)
			require.Equal(t, "value", held.Value(key{}))
			<-held.Done()
			require.Equal(t, want, time.Now())
			require.Equal(t, context.DeadlineExceeded, held.Err())
			time.Sleep(lease)
			_, err := b.TryAcquire(context.Background(), "x")
			require.ErrorIs(t, err, redlock.ErrNotLocked)
			return held.Err()
		})
		require.ErrorIs(t, err, context.DeadlineExceeded)
		require.NotErrorIs(t, err, redlock.ErrLost)
		require.NotErrorIs(t, err, redlock.ErrNotReleased)
		release(t, tryAcquire(t, b, "x"))
	})
}

// A context whose end only its Err can tell, as that of a guard that has run out while the process was stopped, ends
// fn's context too.
type silentlyEnded struct {
	context.Context
	err error
}

func (c *silentlyEnded) Err() error { return c.err }

func TestDoAsksItsParentsErr(t *testing.T) {
	interleave(t, 3, func(t *testing.T, s *schedule) {
		a, b := s.open("a"), s.open("b")
		parent := &silentlyEnded{Context: t.Context()}
		require.NoError(t, a.Do(parent, "x", func(held context.Context) error {
			derived, cancel := context.WithCancel(held)
			defer cancel()
			parent.err = context.Canceled
			require.ErrorIs(t, held.Err(), context.Canceled)
			<-derived.Done()
			_, err := b.TryAcquire(context.Background(), "x")
			require.ErrorIs(t, err, redlock.ErrNotLocked)
			return nil
		}))
	})
}

// Schedule: ctx ends, and after that the lock is lost while fn goes on: fn's result is joined with the loss all the same.
func TestScheduleDoTellsALossAfterItsContextHasEnded(t *testing.T) {
	interleave(t, 3, func(t *testing.T, s *schedule) {
		a, b := s.open("a"), s.open("b")
		failed := errors.New("work failed")
		ctx, cancel := context.WithCancel(context.Background())
		err := a.Do(ctx, "x", func(held context.Context) error {
			cancel()
			<-held.Done()
			g, err := b.ForceAcquire(context.Background(), "x")
			require.NoError(t, err)
			release(t, g)
			return failed
		})
		require.ErrorIs(t, err, failed)
		require.ErrorIs(t, err, redlock.ErrLost)
		require.ErrorIs(t, err, redlock.ErrTakenOver)
	})
}

// Do's error tells "fn never ran" from "fn ran".
func TestScheduleDoSaysWhetherItsFunctionRan(t *testing.T) {
	never := func(context.Context) error { panic("without the lock") }
	interleave(t, 3, func(t *testing.T, s *schedule) {
		a, b := s.open("a"), s.open("b")

		// It never ran: somebody else holds the lock, or no quorum can be reached.
		g := tryAcquire(t, b, "x")
		err := a.TryDo(context.Background(), "x", never)
		require.ErrorIs(t, err, redlock.ErrNotLocked)
		release(t, g)
		s.link("a", 0).Silence()
		s.link("a", 1).Silence()
		for _, do := range []doFunc{a.Do, a.TryDo} {
			err = do(context.Background(), "x", never)
			require.ErrorIs(t, err, redlock.ErrNoQuorum)
			require.NotErrorIs(t, err, redlock.ErrNotReleased)
		}
		s.link("a", 0).Heal()
		s.link("a", 1).Heal()
		time.Sleep(3 * lease)

		// It ran, and the release cannot be confirmed.
		failed := errors.New("work failed")
		err = a.Do(context.Background(), "x", func(context.Context) error {
			s.link("a", 0).Silence()
			s.link("a", 1).Silence()
			return failed
		})
		require.ErrorIs(t, err, failed)
		require.ErrorIs(t, err, redlock.ErrNotReleased)
		require.NotErrorIs(t, err, redlock.ErrNoQuorum)
		require.NotErrorIs(t, err, redlock.ErrLost)
		require.NotErrorIs(t, err, redlock.ErrNotLocked)
		var qe *redlock.QuorumError
		require.ErrorAs(t, err, &qe)
		require.Equal(t, []int{1, 2, 3, 2}, []int{qe.Votes, qe.Quorum, qe.Nodes, len(qe.Errs)})
		require.ErrorIs(t, err, redlock.ErrNodeTimeout, "which node, and what became of it")
		require.ErrorContains(t, err, "redlock: lock not released: \"x\": 1 of 3 nodes confirmed the release, quorum is 2 (")

		// A panic, or a goroutine that ends, releases as well.
		requireGivenBack(t, b, "y", func(fn func(context.Context) error) { b.Do(context.Background(), "y", fn) })
	})
}

// requireGivenBack asserts that others can have a lock whose function has panicked, or whose goroutine has ended.
func requireGivenBack(t *testing.T, other *redlock.Locker, name string, do func(fn func(context.Context) error)) {
	t.Helper()
	require.PanicsWithValue(t, "boom", func() { do(func(context.Context) error { panic("boom") }) })
	release(t, tryAcquire(t, other, name))
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		do(func(context.Context) error { runtime.Goexit(); return nil })
	}()
	<-ended
	release(t, tryAcquire(t, other, name))
}

// Schedule: the Locker is closed while fn runs. fn went on without the lock, which is no success, and did run.
func TestScheduleDoTellsThatTheLockerWasClosed(t *testing.T) {
	interleave(t, 3, func(t *testing.T, s *schedule) {
		a := s.open("a")
		err := a.Do(context.Background(), "x", func(held context.Context) error {
			a.Close()
			require.ErrorIs(t, context.Cause(held), redlock.ErrLockerClosed)
			return nil
		})
		require.ErrorIs(t, err, redlock.ErrLost)
		require.ErrorIs(t, err, redlock.ErrLockerClosed)
	})
}

// rueidislock's trio keeps its meaning: the parent's end releases.
func TestScheduleTrioReleasesWhenItsParentEnds(t *testing.T) {
	interleave(t, 3, func(t *testing.T, s *schedule) {
		a, b := s.open("a"), s.open("b")
		ctx, cancel := context.WithCancel(context.Background())
		held, release1, err := a.WithContext(ctx, "x")
		require.NoError(t, err)
		cancel()
		<-held.Done()
		time.Sleep(10 * time.Millisecond)
		release(t, tryAcquire(t, b, "x"))
		release1()
	})
}
