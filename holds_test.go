package redlock_test

import (
	"context"
	"errors"
	"log/slog"
	"math"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/redlock-go/redlock"
	"github.com/redlock-go/redlock/internal/logtest"
)

// What options of one lock do, in virtual time.

// Every way to take a lock refuses options that cannot be, names them with their values, and asks no node.
func TestHoldOptionsAreRefusedWithValueAndRule(t *testing.T) {
	type options = []redlock.HoldOption
	interleave(t, 3, func(t *testing.T, s *schedule) {
		l := s.open("a")
		for _, row := range []struct {
			reason  string
			options options
			says    []string
		}{
			{"no option", options{redlock.AtMost(time.Second), nil}, []string{"HoldOption 2 of 2 is nil"}},
			{"nothing", options{redlock.AtMost(0)}, []string{"AtMost(0s)", "at least 1ms"}},
			{"less than nothing", options{redlock.AtMost(-time.Second)}, []string{"AtMost(-1s)", "at least 1ms"}},
			{"more than an instant can hold", options{redlock.AtMost(math.MaxInt64)}, []string{"AtMost(2562047h47m16.854775807s)", "at most 2160h0m0s"}},
			{"a lease below Redis' grain", options{redlock.Lease(19 * time.Millisecond)}, []string{"Lease(19ms)", "at least 20ms"}},
			{"a lease longer than the set's longest", options{redlock.Lease(lease + 1)}, []string{"Lease(1.000000001s)", "MaxKeyValidity 1s"}},
			{"a fixed one as well", options{redlock.FixedLease(2 * lease)}, []string{"FixedLease(2s)", "MaxKeyValidity 1s"}},
			{"a lease of which nothing counts", options{redlock.Lease(50 * time.Millisecond)}, []string{"Lease(50ms)", "ClockBound 50ms"}},
			{"two leases", options{redlock.Lease(lease), redlock.FixedLease(lease)}, []string{"FixedLease(1s)", "Lease(1s)"}},
			{"an end behind the end", options{redlock.FixedLease(lease / 2), redlock.AtMost(lease / 2)}, []string{"AtMost(500ms)", "FixedLease(500ms)"}},
			{"to be kept for no time", options{redlock.AtLeast(-1)}, []string{"AtLeast(-1ns)", "at least 1ms"}},
			{"to be kept for longer than an instant can hold", options{redlock.AtLeast(2161 * time.Hour)}, []string{"AtLeast(2161h0m0s)", "at most 2160h0m0s"}},
			{"no delay", options{redlock.LockDelay(0)}, []string{"LockDelay(0s)", "at least 1ms"}},
			{"a label that is too long", options{redlock.Label(strings.Repeat("x", 129))}, []string{"129 bytes", "at most 128"}},
			{"two labels", options{redlock.Label("a"), redlock.Label("b")}, []string{`Label("a")`, `Label("b")`}},
			{"one option twice", options{redlock.AtMost(time.Second), redlock.AtMost(2 * time.Second)}, []string{"AtMost(1s)", "AtMost(2s)"}},
		} {
			for call, take := range waysToTake(l) {
				err := take(row.options...)
				require.ErrorIs(t, err, redlock.ErrInvalidOption, "%s: %s", row.reason, call)
				for _, text := range row.says {
					require.ErrorContains(t, err, text, "%s: %s", row.reason, call)
				}
			}
			require.Equal(t, []string{"", "", ""}, s.stored())
		}
		for reason, options := range map[string]options{
			"the same twice": {redlock.AtMost(time.Second), redlock.AtMost(time.Second)},
		} {
			for call, take := range waysToTake(l) {
				require.NoError(t, take(options...), "%s: %s", reason, call)
			}
		}
	})
}

// waysToTake are all calls that take options of a hold. Each lets go at once of what it got.
func waysToTake(l *redlock.Locker) map[string]func(...redlock.HoldOption) error {
	guard := func(take func(context.Context, string, ...redlock.HoldOption) (*redlock.Guard, error)) func(...redlock.HoldOption) error {
		return func(options ...redlock.HoldOption) error {
			g, err := take(context.Background(), "x", options...)
			if err != nil {
				return err
			}
			return g.Release(context.Background())
		}
	}
	function := func(take func(context.Context, string, func(context.Context) error, ...redlock.HoldOption) error) func(...redlock.HoldOption) error {
		return func(options ...redlock.HoldOption) error {
			return take(context.Background(), "x", func(context.Context) error { return nil }, options...)
		}
	}
	return map[string]func(...redlock.HoldOption) error{
		"Acquire": guard(l.Acquire), "TryAcquire": guard(l.TryAcquire), "ForceAcquire": guard(l.ForceAcquire),
		"ForceAcquireNow": guard(l.ForceAcquireNow), "Do": function(l.Do), "TryDo": function(l.TryDo),
	}
}

// Schedule: a hangs, and goes on being renewed. Its guard ends to the nanosecond after AtMost, and whoever waits is woken.
func TestScheduleAtMostEndsAHungHolder(t *testing.T) {
	interleave(t, 3, func(t *testing.T, s *schedule) {
		var log logtest.Log
		a, b := s.open("a", logTo(&log)), s.open("b")
		const atMost = 5 * time.Second
		began := time.Now()
		g, err := a.TryAcquire(context.Background(), "x", redlock.AtMost(atMost))
		require.NoError(t, err)
		granted := time.Now()
		waited := make(chan time.Duration)
		go func() {
			g := acquire(t, b, "x")
			waited <- time.Since(granted)
			release(t, g)
		}()

		<-g.Done()
		require.Equal(t, atMost, time.Since(granted))
		require.Greater(t, granted, began)
		require.ErrorIs(t, g.Err(), redlock.ErrHeldTooLong)
		require.NotErrorIs(t, g.Err(), redlock.ErrLost)
		require.ErrorContains(t, g.Err(), `"x": AtMost is 5s`)
		require.Equal(t, g.Err(), context.Cause(g.Context()))
		require.Equal(t, g.Err(), g.Release(context.Background()))
		require.Less(t, <-waited, atMost+10*oneWay)
		requireLogged(t, &log, 1, slog.LevelWarn, "redlock: lock held too long", "lock token error")
		requireLogged(t, &log, 0, slog.LevelWarn, lineLost, "")
		requireTidy(t, &log)
	})
}

func TestScheduleAtMostBoundsValidity(t *testing.T) {
	interleave(t, 3, func(t *testing.T, s *schedule) {
		l := s.open("a")
		g, err := l.TryAcquire(context.Background(), "x", redlock.AtMost(time.Second))
		require.NoError(t, err)
		granted := time.Now()
		for g.Err() == nil {
			require.LessOrEqual(t, g.ValidUntil().Sub(granted), time.Second)
			time.Sleep(time.Millisecond)
		}
		require.Equal(t, time.Second, time.Since(granted))
	})
}

// Do says that its function had more time than it was given, beside what the function says.
func TestScheduleDoTellsThatItTookTooLong(t *testing.T) {
	interleave(t, 3, func(t *testing.T, s *schedule) {
		l := s.open("a")
		own := errors.New("own")
		err := l.Do(context.Background(), "x", func(ctx context.Context) error {
			<-ctx.Done()
			require.ErrorIs(t, context.Cause(ctx), redlock.ErrHeldTooLong)
			return own
		}, redlock.AtMost(time.Second))
		require.ErrorIs(t, err, own)
		require.ErrorIs(t, err, redlock.ErrHeldTooLong)
		require.NotErrorIs(t, err, redlock.ErrLost)
		require.NoError(t, l.Do(context.Background(), "x", func(context.Context) error { return nil }, redlock.AtMost(time.Second)))
	})
}

// Schedule: two of five nodes fall silent. Who watches is told at the instant at which their votes no longer count, and again
// when they are back; then no node answers, and it is told before the lock is lost.
func TestScheduleAtRiskIsToldAndUntold(t *testing.T) {
	t.Run("by itself", func(t *testing.T) { atRiskIsToldAndUntold(t) })
	t.Run("with an Observer", func(t *testing.T) {
		atRiskIsToldAndUntold(t, func(o *redlock.LockerOption) { o.Observer = new(recorder) })
	})
}

func atRiskIsToldAndUntold(t *testing.T, options ...optionFunc) {
	interleave(t, 5, func(t *testing.T, s *schedule) {
		l := s.open("a", options...)
		g := tryAcquire(t, l, "x")
		time.Sleep(10 * time.Millisecond)
		atRisk := g.AtRisk()
		changed, why := g.Risk()
		require.NoError(t, why)
		for range 10 {
			time.Sleep(lease / 10)
			requireOpen(t, atRisk)
			requireOpen(t, changed)
		}

		for i := range 2 {
			s.link("a", i).Silence()
		}
		<-atRisk
		<-changed
		require.NoError(t, g.Err())
		require.Equal(t, 3, g.Votes())
		changed, why = g.Risk()
		require.ErrorIs(t, why, redlock.ErrAtRisk)
		require.ErrorContains(t, why, "hangs by one vote")
		requireFrom(t, why, s.cluster.Node(0).Addr(), s.cluster.Node(1).Addr())

		for i := range 2 {
			s.link("a", i).Heal()
		}
		<-changed
		changed, why = g.Risk()
		require.NoError(t, why)
		requireOpen(t, g.AtRisk())

		for i := range 5 {
			s.link("a", i).Silence()
		}
		<-g.AtRisk()
		require.NoError(t, g.Err())
		again, why := g.Risk()
		require.ErrorContains(t, why, "unless it is renewed")
		require.GreaterOrEqual(t, time.Until(g.ValidUntil()), lease/4)
		<-changed
		<-g.Done()
		<-again
		<-g.AtRisk()
		changed, why = g.Risk()
		require.Equal(t, g.Err(), why)
		require.Nil(t, changed)
	})
}

// A lock that was lost before anybody asked is at risk from the first question on.
func TestScheduleAtRiskOfALockThatHasEnded(t *testing.T) {
	interleave(t, 3, func(t *testing.T, s *schedule) {
		for host, options := range map[string][]optionFunc{"a": nil, "b": {func(o *redlock.LockerOption) { o.Observer = new(recorder) }}} {
			g := tryAcquire(t, s.open(host, options...), "x")
			release(t, g)
			<-g.AtRisk()
			changed, why := g.Risk()
			require.ErrorIs(t, why, redlock.ErrReleased)
			require.Nil(t, changed)
		}
	})
}

// A lease of a lock's own: nodes keep it for so long, the guard counts on less, it is renewed in time, and a dead holder costs
// no more.
func TestScheduleLeaseOfItsOwn(t *testing.T) {
	for _, own := range []time.Duration{lease / 2, lease, 3 * lease} {
		interleave(t, 3, func(t *testing.T, s *schedule) {
			longest := func(o *redlock.LockerOption) { o.MaxKeyValidity = 3 * lease }
			a, b := s.open("a", longest), s.open("b", longest)
			other := tryAcquire(t, a, "other")
			g, err := a.TryAcquire(context.Background(), "x", redlock.Lease(own))
			require.NoError(t, err)
			counts := own - own/10 - lease/20 // the drift of its own, the bound of the Locker
			for range 400 {
				time.Sleep(own / 40)
				require.NoError(t, g.Err())
				require.LessOrEqual(t, time.Until(g.ValidUntil()), counts)
				left, _ := s.cluster.Node(0).PTTL(lockX)
				require.LessOrEqual(t, left, own)
				require.Greater(t, left, own/3, "renewed in time")
				s.requireCoveredBy(g, 0, own-counts)
			}
			silence(s.cluster.Client("a"))
			died := time.Now()
			require.Error(t, b.Do(context.Background(), "x", func(context.Context) error {
				require.Less(t, time.Since(died), own+lease/10)
				require.Error(t, g.Err())
				return errDone
			}))
			require.Error(t, other.Release(context.Background()))
		})
	}
}

var errDone = errors.New("done")

// requireCoveredBy is requireCovered for a lease of which so much does not count.
func (s *schedule) requireCoveredBy(g *redlock.Guard, node int, spare time.Duration) {
	s.Helper()
	left, _ := s.cluster.Node(node).PTTL(lockX)
	require.LessOrEqual(s, time.Until(g.ValidUntil()), left-spare+time.Millisecond, "guard against what is left on the node")
}

// Schedule: b takes a longer lease for allowed than the set does. A node that loses its memory grants nothing for the set's longest,
// and might give a longer one away; so nobody is granted it, it is said at once, and b's usual lease is to be had. Once the set
// allows it, it is granted.
func TestScheduleLeaseIsGrantedOnceTheSetAllowsIt(t *testing.T) {
	interleave(t, 3, func(t *testing.T, s *schedule) {
		a := s.open("a", quarantineOn)
		time.Sleep(2 * lease)
		b := s.open("b", quarantineOn, func(o *redlock.LockerOption) { o.MaxKeyValidity = 3 * lease })
		release(t, tryAcquire(t, b, "x"))
		for _, acquire := range []func(context.Context, string, ...redlock.HoldOption) (*redlock.Guard, error){b.TryAcquire, b.Acquire} {
			began := time.Now()
			_, err := acquire(context.Background(), "x", redlock.Lease(2*lease))
			require.ErrorIs(t, err, redlock.ErrNoQuorum)
			require.ErrorIs(t, err, redlock.ErrDisagreement)
			require.ErrorContains(t, err, "a lease of 2s is longer than 1s, the longest that this set allows")
			require.Less(t, time.Since(began), lease/10, "no time brings it")
		}
		require.NoError(t, a.SetNodes(context.Background(), redlock.NodeSet{LongestLease: 3 * lease}))
		release(t, tryAcquire(t, a, "y"))
		time.Sleep(10 * oneWay) // b is told
		release(t, tryAcquire(t, b, "x", redlock.Lease(2*lease)))
	})
}

// A fixed lease is looked after and not prolonged: the guard ends by itself, its keys not later than the lease.
func TestScheduleFixedLeaseEndsByItself(t *testing.T) {
	interleave(t, 3, func(t *testing.T, s *schedule) {
		a, b := s.open("a"), s.open("b")
		began := time.Now()
		g, err := a.TryAcquire(context.Background(), "x", redlock.FixedLease(lease))
		require.NoError(t, err)
		until := g.ValidUntil()
		require.Equal(t, counts-1, until.Sub(began))
		granted := time.Now()
		time.Sleep(10 * time.Millisecond)
		s.cluster.Node(2).Del(lockX)
		time.Sleep(lease / 2)
		require.NotEmpty(t, s.stored()[2], "won back")
		require.Equal(t, 3, g.Votes())
		for _, n := range s.cluster.Nodes() {
			left, _ := n.PTTL(lockX)
			require.LessOrEqual(t, left, lease-time.Since(granted))
		}
		waited := make(chan time.Time)
		go func() {
			release(t, acquire(t, b, "x"))
			waited <- time.Now()
		}()
		<-g.Done()
		require.Equal(t, until, time.Now())
		require.ErrorIs(t, g.Err(), redlock.ErrHeldTooLong)
		require.NotErrorIs(t, g.Err(), redlock.ErrLost)
		require.ErrorContains(t, g.Err(), "FixedLease is 1s")
		require.Less(t, (<-waited).Sub(until), 10*time.Millisecond)
	})
}

// A holder whose process dies with a fixed lease costs what is left of it.
func TestScheduleFixedLeaseOfADeadHolder(t *testing.T) {
	interleave(t, 3, func(t *testing.T, s *schedule) {
		a, b := s.open("a"), s.open("b")
		g, err := a.TryAcquire(context.Background(), "x", redlock.FixedLease(lease))
		require.NoError(t, err)
		granted := time.Now()
		time.Sleep(counts * 4 / 5)
		silence(s.cluster.Client("a"))
		release(t, acquire(t, b, "x"))
		require.Less(t, time.Since(granted), lease+20*time.Millisecond)
		require.Error(t, g.Err())
	})
}

// Schedule: a cron job of two programs, whose schedulers differ. The first has done it before the second comes.
func TestScheduleAtLeastRunsATickOnce(t *testing.T) {
	interleave(t, 5, func(t *testing.T, s *schedule) {
		const period, apart = time.Hour, time.Minute
		a, b := s.open("a"), s.open("b")
		runs := 0
		tick := func(l *redlock.Locker) error {
			return l.TryDo(context.Background(), "x", func(context.Context) error { runs++; return nil }, redlock.AtLeast(period/2))
		}
		for n := 1; n <= 3; n++ {
			began := time.Now()
			require.NoError(t, tick(a))
			require.Less(t, time.Since(began), time.Second, "nobody waits for the end of it")
			time.Sleep(apart)
			require.ErrorIs(t, tick(b), redlock.ErrNotLocked)
			require.ErrorIs(t, tick(a), redlock.ErrNotLocked, "nor does who had it have it again")
			require.Equal(t, n, runs)
			time.Sleep(period - apart)
			a, b = b, a
		}
	})
}

// What is kept is told from what is held, is waited for, and is taken over at once; the token rises.
func TestScheduleKeptLockIsNotHeld(t *testing.T) {
	interleave(t, 3, func(t *testing.T, s *schedule) {
		ctx := context.Background()
		a, b := s.open("a"), s.open("b")
		const atLeast = time.Hour
		g, err := a.TryAcquire(ctx, "x", redlock.AtLeast(atLeast), redlock.Label("first"))
		require.NoError(t, err)
		granted := time.Now()
		line, err := b.Inspect(ctx, "x")
		require.NoError(t, err)
		require.Equal(t, g.ID(), line.Holder)
		require.Equal(t, "first", line.Label)
		require.False(t, line.Kept)
		time.Sleep(10 * lease)
		require.NoError(t, g.Release(ctx))
		require.ErrorIs(t, g.Err(), redlock.ErrReleased)

		line, err = b.Inspect(ctx, "x")
		require.NoError(t, err)
		require.True(t, line.Kept)
		require.Empty(t, line.Holder)
		require.Equal(t, "first", line.Label)
		require.InDelta(t, atLeast-time.Since(granted), line.Left, float64(10*time.Millisecond))
		_, err = b.TryAcquire(ctx, "x")
		require.ErrorIs(t, err, redlock.ErrNotLocked)
		var held *redlock.HeldError
		require.ErrorAs(t, err, &held)
		require.True(t, held.Kept)
		require.Equal(t, "first", held.Label)
		require.ErrorContains(t, err, "not held any more, but kept for 59m50s more by first")

		waiting, cancel := context.WithTimeout(ctx, time.Minute)
		_, err = b.Acquire(waiting, "x")
		cancel()
		require.ErrorIs(t, err, context.DeadlineExceeded)
		require.ErrorAs(t, err, &held)
		require.True(t, held.Kept)
		next, err := b.Acquire(ctx, "x")
		require.NoError(t, err)
		require.InDelta(t, atLeast, time.Since(granted), float64(50*time.Millisecond), "the wait is for its end, and no longer")
		require.Greater(t, next.FencingToken(), g.FencingToken())
		release(t, next)

		g, err = a.TryAcquire(ctx, "x", redlock.AtLeast(atLeast))
		require.NoError(t, err)
		release(t, g)
		began := time.Now()
		taker, err := b.ForceAcquire(ctx, "x")
		require.NoError(t, err)
		require.Less(t, time.Since(began), 10*oneWay)
		require.Greater(t, taker.FencingToken(), g.FencingToken())
		release(t, taker)
		release(t, tryAcquire(t, a, "x"))
	})
}

// However the guard ends, the lock stays taken, for what was promised and no longer.
func TestScheduleAtLeastWhateverBecomesOfTheHolder(t *testing.T) {
	const atLeast = 20 * lease
	for end, of := range map[string]func(s *schedule, g *redlock.Guard, l *redlock.Locker){
		"released":       func(s *schedule, g *redlock.Guard, l *redlock.Locker) { release(s.T, g) },
		"closed":         func(s *schedule, g *redlock.Guard, l *redlock.Locker) { l.Close() },
		"dead":           func(s *schedule, g *redlock.Guard, l *redlock.Locker) { silence(s.cluster.Client("a")) },
		"held too long":  func(s *schedule, g *redlock.Guard, l *redlock.Locker) { time.Sleep(2 * lease) },
		"held all along": func(s *schedule, g *redlock.Guard, l *redlock.Locker) { time.Sleep(lease); release(s.T, g) },
		"lost, and back": func(s *schedule, g *redlock.Guard, l *redlock.Locker) {
			silence(s.cluster.Client("a"))
			<-g.Done()
			for _, link := range s.cluster.Client("a").Links() {
				link.Heal()
			}
		},
	} {
		t.Run(end, func(t *testing.T) {
			interleave(t, 3, func(t *testing.T, s *schedule) {
				a, b := s.open("a"), s.open("b")
				options := []redlock.HoldOption{redlock.AtLeast(atLeast)}
				if end == "held too long" {
					options = append(options, redlock.AtMost(lease))
				}
				g, err := a.TryAcquire(context.Background(), "x", options...)
				require.NoError(t, err)
				granted := time.Now()
				of(s, g, a)
				next := acquire(t, b, "x")
				require.InDelta(t, atLeast, time.Since(granted), float64(50*time.Millisecond))
				require.Error(t, g.Err())
				release(t, next)
			})
		})
	}
}

// What a majority of nodes has forgotten is not kept any more, once their quarantine is over; a minority changes nothing.
func TestScheduleAtLeastIsForgottenWithAMajority(t *testing.T) {
	for _, forget := range []int{1, 2} {
		interleave(t, 3, func(t *testing.T, s *schedule) {
			a, b := s.open("a", quarantineOn), s.open("b", quarantineOn)
			time.Sleep(2 * lease)
			g, err := a.TryAcquire(context.Background(), "x", redlock.AtLeast(time.Hour))
			require.NoError(t, err)
			release(t, g)
			time.Sleep(10 * time.Millisecond) // released on the third node, too
			for i := range forget {
				s.cluster.Node(i).CrashEmpty()
			}
			crashed := time.Now()
			waiting, cancel := context.WithTimeout(context.Background(), time.Minute)
			defer cancel()
			next, err := b.Acquire(waiting, "x")
			if forget == 1 {
				require.ErrorIs(t, err, context.DeadlineExceeded)
				return
			}
			require.NoError(t, err)
			require.GreaterOrEqual(t, time.Since(crashed), lease)
			require.Greater(t, next.FencingToken(), g.FencingToken())
			release(t, next)
		})
	}
}

// A holder that is alive is told by its takeover as any other, however long its key would last; one that is dead is waited for
// by its lease, and not by what it was to keep.
func TestScheduleForceGetsPastAtLeast(t *testing.T) {
	for dead, within := range map[bool]time.Duration{false: 20 * oneWay, true: lease + lease/4} {
		interleave(t, 3, func(t *testing.T, s *schedule) {
			a, b := s.open("a"), s.open("b")
			g, err := a.TryAcquire(context.Background(), "x", redlock.AtLeast(time.Hour))
			require.NoError(t, err)
			if dead {
				silence(s.cluster.Client("a"))
			}
			began := time.Now()
			taker, err := b.ForceAcquire(context.Background(), "x")
			require.NoError(t, err)
			require.Error(t, g.Err(), "two live guards")
			require.Less(t, time.Since(began), within)
			release(t, taker)
			require.Equal(t, []string{"", "", ""}, s.stored())
		})
	}
}

// A try that came to nothing keeps nothing.
func TestScheduleAtLeastKeepsWhatWasHeldAlone(t *testing.T) {
	interleave(t, 3, func(t *testing.T, s *schedule) {
		a, b := s.open("a"), s.open("b")
		for i := range 2 {
			s.cluster.Node(i).Set(lockX, "SOMEBODY", lease)
		}
		_, err := a.TryAcquire(context.Background(), "x", redlock.AtLeast(time.Hour))
		require.ErrorIs(t, err, redlock.ErrNotLocked)
		time.Sleep(lease + time.Millisecond)
		require.Equal(t, []string{"", "", ""}, s.stored())
		release(t, tryAcquire(t, b, "x"))
	})
}

// A node that was set back keeps nothing for longer than it says of itself.
func TestScheduleKeptLockOfANodeWhoseClockWentBack(t *testing.T) {
	interleave(t, 1, func(t *testing.T, s *schedule) {
		a := s.open("a")
		g, err := a.TryAcquire(context.Background(), "x", redlock.AtLeast(10*lease))
		require.NoError(t, err)
		release(t, g)
		s.cluster.Node(0).StepClock(-time.Hour)
		_, err = a.TryAcquire(context.Background(), "x")
		require.Error(t, err)
		s.open("b").TryAcquire(context.Background(), "x")
		left, _ := s.cluster.Node(0).PTTL(lockX)
		require.LessOrEqual(t, left, 10*lease)
		require.Greater(t, left, 9*lease)
	})
}

// After an end that is no release nobody has the lock for LockDelay; after a release the next one has it at once.
func TestScheduleLockDelay(t *testing.T) {
	const delay = 5 * lease
	for _, row := range []struct {
		end    string
		of     func(s *schedule, g *redlock.Guard, l *redlock.Locker)
		waited time.Duration // from the end of the guard
	}{
		{"released", func(s *schedule, g *redlock.Guard, l *redlock.Locker) { release(s.T, g) }, 0},
		{"closed", func(s *schedule, g *redlock.Guard, l *redlock.Locker) { l.Close() }, 0},
		{"held too long", func(s *schedule, g *redlock.Guard, l *redlock.Locker) { <-g.Done() }, delay},
		{"dead", func(s *schedule, g *redlock.Guard, l *redlock.Locker) { silence(s.cluster.Client("a")) }, delay + lease - counts},
		{"lost, and back", func(s *schedule, g *redlock.Guard, l *redlock.Locker) {
			silence(s.cluster.Client("a"))
			<-g.Done()
			for _, link := range s.cluster.Client("a").Links() {
				link.Heal()
			}
		}, delay},
	} {
		t.Run(row.end, func(t *testing.T) {
			interleave(t, 3, func(t *testing.T, s *schedule) {
				a, b := s.open("a"), s.open("b")
				g, err := a.TryAcquire(context.Background(), "x", redlock.LockDelay(delay), redlock.AtMost(2*lease))
				require.NoError(t, err)
				row.of(s, g, a)
				ended := make(chan time.Time, 1)
				context.AfterFunc(g.Context(), func() { ended <- time.Now() })
				next := acquire(t, b, "x")
				require.InDelta(t, row.waited, time.Since(<-ended), float64(lease/4))
				release(t, next)
			})
		})
	}
}

// A label is any bytes, and is told to all who ask; it cannot be taken for anything else that a value holds.
func TestScheduleLabelSaysWhoHoldsTheLock(t *testing.T) {
	ctx := context.Background()
	for _, label := range []string{"worker 7", "", "a;B@9999999999999999#1!2=3~%41", "\x00\xff\n\"", strings.Repeat("ж", 64), "~!5"} {
		interleave(t, 3, func(t *testing.T, s *schedule) {
			a, b := s.open("a"), s.open("b")
			for _, take := range []func(context.Context, string, ...redlock.HoldOption) (*redlock.Guard, error){a.TryAcquire, a.Acquire, a.ForceAcquire} {
				g, err := take(ctx, "x", redlock.Label(label))
				require.NoError(t, err)
				time.Sleep(10 * time.Millisecond)
				line, err := b.Inspect(ctx, "x")
				require.NoError(t, err)
				require.Equal(t, g.ID(), line.Holder)
				require.Equal(t, label, line.Label)
				_, err = b.TryAcquire(ctx, "x")
				var held *redlock.HeldError
				require.ErrorAs(t, err, &held)
				require.Equal(t, redlock.HeldError{Owner: g.ID(), Label: label, Left: held.Left}, *held)
				require.NotContains(t, err.Error(), "\n")
				time.Sleep(2 * lease) // renewed
				require.NoError(t, g.Err())
				taker, err := b.ForceAcquire(ctx, "x", redlock.Label(label))
				require.NoError(t, err)
				require.ErrorIs(t, g.Err(), redlock.ErrTakenOver)
				release(t, taker)
				require.Equal(t, []string{"", "", ""}, s.stored())
			}
		})
	}
}

// Without the option a lock says which program holds it, unless that is switched off.
func TestScheduleLabelByDefault(t *testing.T) {
	interleave(t, 3, func(t *testing.T, s *schedule) {
		for host, silent := range map[string]bool{"a": false, "b": true} {
			l := s.open(host, func(o *redlock.LockerOption) { o.NoLabel = silent })
			g := tryAcquire(t, l, "x")
			line, err := l.Inspect(context.Background(), "x")
			require.NoError(t, err)
			require.Equal(t, silent, line.Label == "")
			require.Equal(t, !silent, strings.Contains(g.String(), line.Holder+" ("), g.String())
			release(t, g)
		}
	})
}

func requireOpen(t *testing.T, c <-chan struct{}) {
	t.Helper()
	select {
	case <-c:
		require.Fail(t, "closed")
	default:
	}
}

// requireFrom asserts that an error speaks of these nodes, and of no others.
func requireFrom(t *testing.T, err error, addrs ...string) {
	t.Helper()
	var qe *redlock.QuorumError
	require.ErrorAs(t, err, &qe)
	var found []string
	for _, e := range qe.Errs {
		var ne *redlock.NodeError
		require.ErrorAs(t, e, &ne)
		found = append(found, ne.Addr)
	}
	require.ElementsMatch(t, addrs, found)
}
