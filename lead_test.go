package redlock_test

import (
	"context"
	"errors"
	"log/slog"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/redlock-go/redlock"
	"github.com/redlock-go/redlock/internal/logtest"
)

const (
	lineLeads      = "redlock: begins to lead"
	lineLeadEnds   = "redlock: leads no longer"
	lineNoCampaign = "redlock: cannot campaign, goes on trying"
)

// campaign has a Locker lead in the background, and returns where Lead's error will be.
func campaign(t *testing.T, ctx context.Context, l *redlock.Locker, fn func(context.Context) error) <-chan error {
	returned := make(chan error, 1)
	afterward(t, func() { returned <- l.Lead(ctx, "x", fn) })
	return returned
}

// Schedule: the leader is told to end and takes three leases to wind down, as a program does that is being replaced. Its
// context ends at once; nobody else leads before it has returned, and somebody does some round trips after that.
func TestScheduleLeadIsHandedOverWhenItsFunctionHasWoundDown(t *testing.T) {
	interleave(t, 3, func(t *testing.T, s *schedule) {
		a, b := s.open("a"), s.open("b")
		why := errors.New("a new version is rolled out")
		ctx, cancel := context.WithCancelCause(context.Background())
		leading := make(chan struct{})
		var woundDown time.Time
		first := campaign(t, ctx, a, func(held context.Context) error {
			close(leading)
			<-held.Done()
			assert.Equal(t, why, context.Cause(held))
			time.Sleep(3 * lease)
			assert.NoError(t, redlock.GuardOf(held).Err(), "held meanwhile")
			woundDown = time.Now()
			return nil
		})
		<-leading
		others, stop := context.WithCancel(context.Background())
		led := make(chan time.Time, 1)
		second := campaign(t, others, b, func(held context.Context) error {
			led <- time.Now()
			<-held.Done()
			return held.Err()
		})
		time.Sleep(lease)
		cancel(why)
		err := <-first
		require.ErrorIs(t, err, context.Canceled)
		require.ErrorIs(t, err, why)
		require.NotErrorIs(t, err, redlock.ErrLost)
		require.Less(t, (<-led).Sub(woundDown), 20*oneWay)
		stop()
		require.EqualError(t, <-second, `redlock: waiting for "x": context canceled`, "no more than its own context's end")
	})
}

// Schedule: a taker has the leader's lock for two leases. fn is told, and runs again with a larger token once the lock is free.
func TestScheduleLeaderThatLostCampaignsAgain(t *testing.T) {
	interleave(t, 3, func(t *testing.T, s *schedule) {
		var log logtest.Log
		a, b := s.open("a", logTo(&log)), s.open("b")
		ctx, cancel := context.WithCancel(context.Background())
		tokens := make(chan uint64, 1)
		causes := make(chan error, 1)
		returned := campaign(t, ctx, a, func(held context.Context) error {
			token, _ := redlock.FencingToken(held)
			tokens <- token
			<-held.Done()
			causes <- context.Cause(held)
			return nil
		})
		before := <-tokens
		g, err := b.ForceAcquire(context.Background(), "x")
		require.NoError(t, err)
		require.ErrorIs(t, <-causes, redlock.ErrTakenOver)
		time.Sleep(2 * lease)
		require.Empty(t, tokens)
		release(t, g)
		require.Greater(t, <-tokens, before)
		cancel()
		<-causes
		require.ErrorIs(t, <-returned, context.Canceled)
		settle()
		requireLogged(t, &log, 2, slog.LevelInfo, lineLeads, "lock token")
		ends := log.Lines(lineLeadEnds)
		require.Len(t, ends, 2)
		require.Equal(t, slog.LevelWarn, ends[0].Level, "the loss")
		require.Equal(t, slog.LevelInfo, ends[1].Level, "told to")
		requireTidy(t, &log)
	})
}

// Whatever fn returns, others can have the lead before it runs again. The pauses double from a hundredth of a lease up to
// a lease, and begin anew after a lead that lasted.
func TestLeadPausesAfterItsFunctionHasReturned(t *testing.T) {
	for name, result := range map[string]error{"an error": errors.New("work failed"), "nil": nil, "an error that is not ours": redlock.ErrLockerClosed} {
		t.Run(name, func(t *testing.T) {
			interleave(t, 3, func(t *testing.T, s *schedule) {
				a := s.open("a")
				ctx, cancel := context.WithCancel(context.Background())
				defer cancel()
				var ended time.Time
				var pauses []time.Duration
				returned := campaign(t, ctx, a, func(held context.Context) error {
					if !ended.IsZero() {
						pauses = append(pauses, time.Since(ended))
					}
					if len(pauses) == 9 {
						time.Sleep(lease)
					}
					if len(pauses) == 10 {
						cancel()
					}
					ended = time.Now()
					return result
				})
				err := <-returned
				require.ErrorIs(t, err, context.Canceled)
				if result != nil {
					require.ErrorIs(t, err, result)
				}
				const trips = 10 * oneWay
				want := lease / 100
				for i, pause := range pauses {
					if i == 9 {
						want = lease / 100
					}
					require.GreaterOrEqual(t, pause, want/2, "pause %d of %v", i, pauses)
					require.LessOrEqual(t, pause, want+trips, "pause %d of %v", i, pauses)
					want = min(2*want, lease)
				}
				require.Len(t, pauses, 10)
			})
		})
	}
}

// Two programs whose fn always fails take turns: the one that pauses leaves the lock to the other.
func TestLeadLeavesTheLockToOthersAfterAnError(t *testing.T) {
	interleave(t, 3, func(t *testing.T, s *schedule) {
		ctx, cancel := context.WithTimeout(context.Background(), 20*lease)
		defer cancel()
		var led [2]atomic.Int32
		var returned [2]<-chan error
		for i, host := range []string{"a", "b"} {
			returned[i] = campaign(t, ctx, s.open(host), func(context.Context) error {
				led[i].Add(1)
				time.Sleep(lease / 10)
				return errors.New("work failed")
			})
		}
		for i := range returned {
			require.ErrorIs(t, <-returned[i], context.DeadlineExceeded)
			require.Greater(t, led[i].Load(), int32(10))
		}
	})
}

// A panic, or a goroutine that ends, gives the lead back.
func TestLeadThatPanicsIsGivenBack(t *testing.T) {
	interleave(t, 3, func(t *testing.T, s *schedule) {
		a, b := s.open("a"), s.open("b")
		requireGivenBack(t, b, "x", func(fn func(context.Context) error) { a.Lead(context.Background(), "x", fn) })
	})
}

// What cannot become better ends Lead, wherever it is at that moment.
func TestLeadEndsWithItsLocker(t *testing.T) {
	never := func(context.Context) error { panic("without the lock") }
	interleave(t, 3, func(t *testing.T, s *schedule) {
		a, b, c, d := s.open("a"), s.open("b"), s.open("c"), s.open("d")
		ctx := context.Background()
		require.ErrorIs(t, a.Lead(ctx, "", never), redlock.ErrInvalidOption)
		require.ErrorIs(t, (*redlock.Locker)(nil).Lead(ctx, "x", never), redlock.ErrLockerClosed)
		canceled, cancel := context.WithCancel(ctx)
		cancel()
		require.ErrorIs(t, a.Lead(canceled, "x", never), context.Canceled)

		// While fn runs, which is waited for.
		failed := errors.New("work failed")
		leading := make(chan struct{})
		returned := campaign(t, ctx, a, func(held context.Context) error {
			close(leading)
			<-held.Done()
			assert.ErrorIs(t, context.Cause(held), redlock.ErrLockerClosed)
			time.Sleep(lease)
			return failed
		})
		<-leading
		waiting := campaign(t, ctx, b, never)
		time.Sleep(lease / 10)

		// While it waits for the lock.
		b.Close()
		require.ErrorIs(t, <-waiting, redlock.ErrLockerClosed)
		a.Close()
		err := <-returned
		require.ErrorIs(t, err, redlock.ErrLockerClosed)
		require.ErrorIs(t, err, redlock.ErrLost, "fn went on without it")
		require.ErrorIs(t, err, failed)

		// While it pauses: for half a lease at least, after eight leads.
		var leads atomic.Int32
		returned = campaign(t, ctx, c, func(context.Context) error { leads.Add(1); return failed })
		for leads.Load() < 8 {
			time.Sleep(oneWay)
		}
		time.Sleep(lease / 4)
		asked := time.Now()
		c.Close()
		err = <-returned
		require.ErrorIs(t, err, redlock.ErrLockerClosed)
		require.ErrorIs(t, err, failed)
		require.Less(t, time.Since(asked), lease/10)

		leads.Store(0)
		pausing, stop := context.WithCancel(ctx)
		returned = campaign(t, pausing, d, func(context.Context) error { leads.Add(1); return failed })
		for leads.Load() < 8 {
			time.Sleep(oneWay)
		}
		time.Sleep(lease / 4)
		asked = time.Now()
		stop()
		err = <-returned
		require.ErrorIs(t, err, context.Canceled)
		require.ErrorIs(t, err, failed)
		require.Equal(t, asked, time.Now())
	})
}

// Schedule: no quorum can be reached for ten leases, of which the Logger is told once; then there is one.
func TestScheduleLeadOutlivesItsNodes(t *testing.T) {
	interleave(t, 3, func(t *testing.T, s *schedule) {
		var log logtest.Log
		a := s.open("a", logTo(&log))
		s.link("a", 0).Silence()
		s.link("a", 1).Silence()
		ctx, cancel := context.WithCancel(context.Background())
		defer cancel()
		leading := make(chan struct{})
		returned := campaign(t, ctx, a, func(held context.Context) error {
			close(leading)
			<-held.Done()
			return held.Err()
		})
		time.Sleep(10 * lease)
		require.Empty(t, leading)
		s.link("a", 0).Heal()
		<-leading
		cancel()
		require.ErrorIs(t, <-returned, context.Canceled)
		settle()
		requireLogged(t, &log, 1, slog.LevelWarn, lineNoCampaign, "lock error")
		requireTidy(t, &log)
	})
}

// Schedule: ctx ends, and when fn has wound down no quorum confirms that the lock is free. The successor waits for the lease.
func TestScheduleLeadSaysThatItWasNotHandedOver(t *testing.T) {
	interleave(t, 3, func(t *testing.T, s *schedule) {
		a := s.open("a")
		ctx, cancel := context.WithCancel(context.Background())
		err := a.Lead(ctx, "x", func(held context.Context) error {
			s.link("a", 0).Silence()
			s.link("a", 1).Silence()
			cancel()
			<-held.Done()
			return held.Err()
		})
		require.ErrorIs(t, err, context.Canceled)
		require.ErrorIs(t, err, redlock.ErrNotReleased)
		require.NotErrorIs(t, err, redlock.ErrNoQuorum)
	})
}

func TestLeaderSaysWhoLeads(t *testing.T) {
	interleave(t, 3, func(t *testing.T, s *schedule) {
		a, b := s.open("a"), s.open("b")
		nobody, err := b.Leader(context.Background(), "x")
		require.NoError(t, err)
		require.Empty(t, nobody.Holder)
		ctx, cancel := context.WithCancel(context.Background())
		require.ErrorIs(t, a.Lead(ctx, "x", func(held context.Context) error {
			defer cancel()
			line, err := b.Leader(ctx, "x")
			require.NoError(t, err)
			require.Equal(t, redlock.GuardOf(held).Owner(), line.Holder)
			require.Equal(t, redlock.GuardOf(held).FencingToken(), line.FencingToken)
			return nil
		}), context.Canceled)
	})
}

// Schedule: nobody asks for a guard's context before it has ended. It is done for whoever asks then, and knows why.
func TestScheduleContextIsDoneForWhoAsksAfterTheEnd(t *testing.T) {
	interleave(t, 3, func(t *testing.T, s *schedule) {
		g := tryAcquire(t, s.open("a"), "x")
		release(t, g)
		select {
		case <-g.Done():
		default:
			require.Fail(t, "its end is not done")
		}
		require.Equal(t, context.Canceled, g.Context().Err())
		require.Equal(t, redlock.ErrReleased, context.Cause(g.Context()))
		require.Equal(t, g.Context(), g.Context())
		token, fenced := redlock.FencingToken(g.Context())
		require.True(t, fenced)
		require.Equal(t, g.FencingToken(), token)
	})
}

// A joined context ends with whichever ends first, and the guard with none of them.
func TestJoinEndsWithTheGuardOrTheContext(t *testing.T) {
	interleave(t, 3, func(t *testing.T, s *schedule) {
		a, b := s.open("a"), s.open("b")
		g := tryAcquire(t, a, "x")
		type key struct{}
		why := errors.New("the client went away")

		parent, end := context.WithCancelCause(context.WithValue(context.Background(), key{}, "value"))
		joined, cancel := g.Join(parent)
		token, fenced := redlock.FencingToken(joined)
		require.True(t, fenced)
		require.Equal(t, g.FencingToken(), token)
		require.Equal(t, "value", joined.Value(key{}))
		require.NoError(t, joined.Err())
		end(why)
		<-joined.Done()
		require.ErrorIs(t, joined.Err(), context.Canceled)
		require.Equal(t, why, context.Cause(joined))
		require.NoError(t, g.Err(), "the request's end does not give the lock back")
		cancel()
		cancel()

		canceled, cancel := g.Join(context.Background())
		cancel()
		require.Equal(t, context.Canceled, context.Cause(canceled))
		require.NoError(t, g.Err())

		deadline, stop := context.WithTimeout(context.Background(), lease/10)
		defer stop()
		joined, cancel = g.Join(deadline)
		defer cancel()
		want, _ := deadline.Deadline()
		got, ok := joined.Deadline()
		require.True(t, ok)
		require.Equal(t, want, got)
		<-joined.Done()
		require.Equal(t, context.DeadlineExceeded, joined.Err())

		silent := &silentlyEnded{Context: context.Background()}
		joined, cancel = g.Join(silent)
		defer cancel()
		silent.err = context.Canceled
		require.ErrorIs(t, joined.Err(), context.Canceled)

		joined, cancel = g.Join(context.Background())
		defer cancel()
		derived, forget := context.WithCancel(joined)
		defer forget()
		taken, err := b.ForceAcquire(context.Background(), "x")
		require.NoError(t, err)
		<-derived.Done()
		require.ErrorIs(t, joined.Err(), context.Canceled)
		require.Equal(t, g.Err(), context.Cause(joined))
		require.ErrorIs(t, context.Cause(derived), redlock.ErrTakenOver)
		late, cancel := g.Join(context.Background())
		defer cancel()
		require.ErrorIs(t, late.Err(), context.Canceled, "of a guard that has ended")
		release(t, taken)
	})
}
