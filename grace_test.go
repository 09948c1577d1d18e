package redlock_test

import (
	"context"
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/redlock-go/redlock"
)

// What ForceAcquire with Grace does, in virtual time.

// forced is what a takeover has come to, and when.
type forced struct {
	guard *redlock.Guard
	err   error
	at    time.Time
}

// force has a Locker take lock x by grace, in the background.
func force(ctx context.Context, l *redlock.Locker, grace time.Duration) <-chan forced {
	c := make(chan forced, 1)
	go func() {
		g, err := l.ForceAcquire(ctx, "x", redlock.Grace(grace))
		c <- forced{g, err, time.Now()}
	}()
	return c
}

// awaitAsked waits until a holder is told that it is asked to let go. With one node or two the push that tells it puts its quorum
// in doubt for a moment, and of that it is told first.
func awaitAsked(g *redlock.Guard) {
	for {
		changed, why := g.Risk()
		if errors.Is(why, redlock.ErrAskedFor) || changed == nil {
			return
		}
		<-changed
	}
}

// requireAsked asserts that a holder has been told that it is asked to let go, and returns what tells it of the next change.
func requireAsked(t *testing.T, g *redlock.Guard) <-chan struct{} {
	t.Helper()
	changed, why := g.Risk()
	require.ErrorIs(t, why, redlock.ErrAskedFor)
	require.ErrorIs(t, why, redlock.ErrAtRisk)
	require.NotErrorIs(t, why, redlock.ErrLost)
	require.NoError(t, g.Err())
	return changed
}

// requireNoMark asserts that no node has a word of anybody's who asks.
func (s *schedule) requireNoMark() {
	s.Helper()
	for _, value := range s.stored() {
		require.NotContains(s, value, "?")
	}
}

// Schedule: a holds, w has waited for a while when b asks. a is told within three round trips, keeps all its votes, and lets go after some
// seconds. b has the lock at once, before w and before those who just try in that moment; w is next.
func TestScheduleGraceHolderLetsGo(t *testing.T) {
	for nodes := 1; nodes <= 5; nodes++ {
		interleave(t, nodes, func(t *testing.T, s *schedule) {
			ctx := context.Background()
			a, b, w, c := s.open("a"), s.open("b"), s.open("w"), s.open("c")
			g := tryAcquire(t, a, "x")
			served := make(chan *redlock.Guard, 1)
			go func() { served <- acquire(t, w, "x") }()
			time.Sleep(50 * time.Millisecond)
			atRisk := g.AtRisk()
			requireOpen(t, atRisk)

			asked := time.Now()
			taken := force(ctx, b, 10*time.Second)
			<-atRisk
			awaitAsked(g)
			require.LessOrEqual(t, time.Since(asked), 6*oneWay)
			changed := requireAsked(t, g)
			_, why := g.Risk()
			require.ErrorContains(t, why, "redlock: lock asked for, it is taken over in 9.99s unless it is released")
			for range 40 {
				time.Sleep(100 * time.Millisecond)
				require.Equal(t, nodes, g.Votes())
				if nodes > 2 { // else the next question puts the quorum in doubt
					requireOpen(t, changed)
				}
			}

			released := time.Now()
			go g.Release(ctx)
			for range 20 {
				_, err := c.TryAcquire(ctx, "x")
				require.ErrorIs(t, err, redlock.ErrNotLocked)
				time.Sleep(oneWay / 4)
			}
			next := <-taken
			require.NoError(t, next.err)
			require.LessOrEqual(t, next.at.Sub(released), 6*oneWay)
			require.Greater(t, next.guard.FencingToken(), g.FencingToken())
			require.ErrorIs(t, g.Err(), redlock.ErrReleased)
			time.Sleep(time.Second)
			require.Empty(t, served)
			_, why = next.guard.Risk()
			require.NoError(t, why)
			s.requireNoMark()
			release(t, next.guard)
			release(t, <-served)
			require.Equal(t, make([]string, nodes), s.stored())
		})
	}
}

// Schedule: a does not let go. It is told all the time that it is asked, and taken over when grace is over: safely, as without it.
func TestScheduleGraceIsOver(t *testing.T) {
	for _, grace := range []time.Duration{time.Millisecond, 20 * time.Millisecond, 300 * time.Millisecond, 7 * time.Second} {
		interleave(t, 3, func(t *testing.T, s *schedule) {
			a, b := s.open("a"), s.open("b")
			g := tryAcquire(t, a, "x")
			atRisk := g.AtRisk()
			asked := time.Now()
			taken := force(context.Background(), b, grace)
			<-atRisk
			if grace > 6*oneWay {
				for changed := requireAsked(t, g); g.Err() == nil; {
					<-changed // overwritten, and in doubt, a moment before it knows
					require.GreaterOrEqual(t, time.Since(asked), grace)
					if g.Err() == nil {
						changed = requireAsked(t, g)
					}
				}
			}
			require.ErrorIs(t, requireDone(t, g, time.Second), redlock.ErrTakenOver)
			next := <-taken
			require.NoError(t, next.err)
			require.Error(t, g.Err(), "two live guards")
			require.GreaterOrEqual(t, next.at.Sub(asked), grace)
			require.Less(t, next.at.Sub(asked), grace+10*oneWay)
			require.Greater(t, next.guard.FencingToken(), g.FencingToken())
			release(t, next.guard)
			time.Sleep(5 * oneWay)
			require.Equal(t, []string{"", "", ""}, s.stored())
		})
	}
}

// Schedule: a is told by pushes, and what it looks at then answers only after the votes in doubt have ended. It loses those, one
// at a time, wins them back, and goes on.
func TestScheduleGraceDoubtsNoQuorum(t *testing.T) {
	for _, nodes := range []int{3, 5} {
		interleave(t, nodes, func(t *testing.T, s *schedule) {
			a, b := s.open("a"), s.open("b")
			g := tryAcquire(t, a, "x")
			time.Sleep(10 * oneWay)
			for _, link := range s.cluster.Client("a").Links() {
				link.Delay(oneWay, 60*time.Millisecond)
			}
			_, why := g.Risk()
			require.NoError(t, why)
			asked := time.Now()
			taken := force(context.Background(), b, 5*time.Second)
			<-g.AtRisk()
			for time.Since(asked) < 5*time.Second {
				require.NoError(t, g.Err())
				require.GreaterOrEqual(t, g.Votes(), nodes/2+1)
				time.Sleep(10 * time.Millisecond)
			}
			_, why = g.Risk()
			require.ErrorIs(t, why, redlock.ErrAskedFor)
			next := <-taken
			require.NoError(t, next.err)
			release(t, next.guard)
		})
	}
}

// Schedule: of five nodes two are cut off from the holder, and two from the one who asks, who have but one in common. The holder
// is told before grace is over.
func TestScheduleGraceIsToldByTheOneNodeInCommon(t *testing.T) {
	for common := range 5 {
		interleave(t, 5, func(t *testing.T, s *schedule) {
			a, b := s.open("a", validity(10*time.Second)), s.open("b", validity(10*time.Second))
			g := tryAcquire(t, a, "x")
			time.Sleep(10 * oneWay)
			for i := 1; i <= 2; i++ {
				s.link("a", (common+i)%5).Silence()
				s.link("b", (common+i+2)%5).Silence()
			}
			asked := time.Now()
			taken := force(context.Background(), b, 4*time.Second)
			awaitAsked(g)
			require.NoError(t, g.Err())
			require.Less(t, time.Since(asked), 3500*time.Millisecond)
			release(t, g)
			next := <-taken
			require.NoError(t, next.err) // when the keys that the holder cannot take back have run out
			release(t, next.guard)
		})
	}
}

// Schedule: node 0 is down for the one who asks, node 1 is cut off from the holder, and node 2 answers last of all, when the attempt is
// over: it is the one on which the holder is told.
func TestScheduleGraceIsToldByTheLastToAnswer(t *testing.T) {
	interleave(t, 3, func(t *testing.T, s *schedule) {
		a, b := s.open("a", validity(10*time.Second)), s.open("b", validity(10*time.Second))
		g := tryAcquire(t, a, "x")
		time.Sleep(10 * oneWay)
		s.cluster.Node(0).Refuse() // connections: a has one
		s.link("b", 0).Cut()
		time.Sleep(100 * time.Millisecond) // that is known
		s.link("a", 1).Silence()
		s.link("b", 2).Delay(oneWay, 10*oneWay)
		g.AtRisk()
		asked := time.Now()
		taken := force(context.Background(), b, 3*time.Second)
		awaitAsked(g)
		require.Less(t, time.Since(asked), 2*time.Second)
		release(t, g)
		release(t, (<-taken).guard)
	})
}

// Schedule: b has asked, and its wait ends: by its context, or with its Locker. a is told at once that nobody asks any more, and
// nothing is left on the nodes. Where b's machine dies, a is told so when grace is over.
func TestScheduleGraceIsUntold(t *testing.T) {
	const grace = 3 * time.Second
	for name, row := range map[string]struct {
		end    func(s *schedule, b *redlock.Locker, cancel context.CancelFunc)
		err    error
		untold time.Duration
	}{
		"cancelled": {func(s *schedule, b *redlock.Locker, cancel context.CancelFunc) { cancel() }, context.Canceled, 5 * oneWay},
		"closed":    {func(s *schedule, b *redlock.Locker, cancel context.CancelFunc) { go b.Close() }, redlock.ErrLockerClosed, 5 * oneWay},
		"dead":      {func(s *schedule, b *redlock.Locker, cancel context.CancelFunc) { silence(s.cluster.Client("b")) }, nil, grace},
	} {
		t.Run(name, func(t *testing.T) {
			interleave(t, 3, func(t *testing.T, s *schedule) {
				a, b := s.open("a"), s.open("b")
				g := tryAcquire(t, a, "x")
				g.AtRisk()
				ctx, cancel := context.WithCancel(context.Background())
				defer cancel()
				asked := time.Now()
				taken := force(ctx, b, grace)
				<-g.AtRisk()
				changed := requireAsked(t, g)
				time.Sleep(2 * time.Second)
				requireOpen(t, changed)
				ended := time.Now()
				row.end(s, b, cancel)
				if row.err == nil { // a round after its time
					<-changed
					require.InDelta(t, grace+lease/4, time.Since(asked), float64(5*oneWay))
				} else {
					require.ErrorIs(t, (<-taken).err, row.err)
					for { // a node after the other
						<-changed
						var why error
						if changed, why = g.Risk(); why == nil {
							break
						}
					}
					require.LessOrEqual(t, time.Since(ended), row.untold)
					time.Sleep(row.untold)
					s.requireNoMark()
				}
				_, why := g.Risk()
				require.NoError(t, why)
				requireOpen(t, g.AtRisk())
				time.Sleep(grace)
				require.NoError(t, g.Err())
				require.Equal(t, 3, g.Votes())
				release(t, g)
				for _, link := range s.cluster.Client("b").Links() {
					link.Heal()
				}
				if row.err == nil {
					require.ErrorIs(t, (<-taken).err, redlock.ErrNoQuorum)
				}
				release(t, acquire(t, a, "x"))
			})
		})
	}
}

// Schedule: b asks with a short grace, c with a long one. a is told of the shorter; b takes over, and is asked by c in turn, which
// gets the lock when b lets go.
func TestScheduleGraceOfTwo(t *testing.T) {
	interleave(t, 3, func(t *testing.T, s *schedule) {
		a, b, c := s.open("a"), s.open("b"), s.open("c")
		g := tryAcquire(t, a, "x")
		g.AtRisk()
		long := force(context.Background(), c, 20*time.Second)
		time.Sleep(20 * time.Millisecond)
		_, why := g.Risk()
		require.ErrorContains(t, why, "taken over in 20s")
		changed := requireAsked(t, g)
		short := force(context.Background(), b, 2*time.Second)
		<-changed
		_, why = g.Risk()
		require.ErrorContains(t, why, "taken over in 1.99s")
		first := <-short
		require.NoError(t, first.err)
		require.ErrorIs(t, g.Err(), redlock.ErrTakenOver)
		require.Empty(t, long)

		awaitAsked(first.guard)
		requireAsked(t, first.guard)
		_, why = first.guard.Risk()
		require.ErrorContains(t, why, "taken over in 1")
		time.Sleep(time.Second)
		released := time.Now()
		release(t, first.guard)
		second := <-long
		require.NoError(t, second.err)
		require.LessOrEqual(t, second.at.Sub(released), 6*oneWay)
		release(t, second.guard)
		require.Equal(t, []string{"", "", ""}, s.stored())
	})
}

// Of two that ask with the same grace the first to call is served first, in one Locker and in two; when grace is over one of them
// takes over.
func TestScheduleGraceOfTwoIsInOrder(t *testing.T) {
	for _, hosts := range [][]string{{"b", "b"}, {"b", "c"}} {
		interleave(t, 3, func(t *testing.T, s *schedule) {
			g := tryAcquire(t, s.open("a"), "x")
			lockers := map[string]*redlock.Locker{}
			var taken []<-chan forced
			for _, host := range hosts {
				if lockers[host] == nil {
					lockers[host] = s.open(host)
				}
				taken = append(taken, force(context.Background(), lockers[host], 10*time.Second))
				time.Sleep(5 * time.Millisecond)
			}
			release(t, g)
			first := <-taken[0]
			require.NoError(t, first.err)
			time.Sleep(time.Second)
			require.Empty(t, taken[1])
			release(t, first.guard)
			second := <-taken[1]
			require.NoError(t, second.err)
			release(t, second.guard)
		})
	}
}

// A holder of the same Locker is told, too, and told when nobody asks any more, although its own connection pushes it nothing.
func TestScheduleGraceWithinOneLocker(t *testing.T) {
	interleave(t, 3, func(t *testing.T, s *schedule) {
		l := s.open("a")
		g := tryAcquire(t, l, "x")
		atRisk := g.AtRisk()
		waits := make(chan *redlock.Guard, 1)
		go func() { waits <- acquire(t, l, "x") }()
		time.Sleep(10 * time.Millisecond)

		ctx, cancel := context.WithCancel(context.Background())
		asked := time.Now()
		taken := force(ctx, l, 10*time.Second)
		<-atRisk
		require.LessOrEqual(t, time.Since(asked), 6*oneWay)
		requireAsked(t, g)
		time.Sleep(time.Second)
		require.Equal(t, 3, g.Votes())
		cancel()
		require.ErrorIs(t, (<-taken).err, context.Canceled)
		time.Sleep(5 * oneWay)
		_, why := g.Risk()
		require.NoError(t, why)

		taken = force(context.Background(), l, 10*time.Second)
		<-g.AtRisk()
		released := time.Now()
		release(t, g)
		next := <-taken
		require.NoError(t, next.err)
		require.LessOrEqual(t, next.at.Sub(released), 6*oneWay)
		time.Sleep(time.Second)
		require.Empty(t, waits)
		release(t, next.guard)
		release(t, <-waits)

		g = tryAcquire(t, l, "x")
		taken = force(context.Background(), l, time.Second)
		require.ErrorIs(t, requireDone(t, g, 2*time.Second), redlock.ErrTakenOver)
		release(t, (<-taken).guard)
	})
}

// A holder whose nodes push nothing is told by its next extension. So is one that was asked before it looked at its risk at all.
func TestScheduleGraceWithoutPushes(t *testing.T) {
	interleave(t, 3, func(t *testing.T, s *schedule) {
		b := s.open("b")
		a, err := redlock.NewLocker(s.option("a", pushes(false)))
		require.NoError(t, err)
		defer a.Close()
		g := tryAcquire(t, a, "x")
		taken := force(context.Background(), b, 10*time.Second)
		time.Sleep(lease)
		requireAsked(t, g)
		<-g.AtRisk()
		release(t, g)
		next := <-taken
		require.NoError(t, next.err)
		release(t, next.guard)
	})
}

// Holders by options of their own are told as any other; what their locks are kept for afterwards is not waited for.
func TestScheduleGraceAndOptionsOfTheHolder(t *testing.T) {
	for _, option := range []redlock.HoldOption{
		redlock.FixedLease(lease), redlock.Lease(lease / 2), redlock.AtLeast(time.Hour), redlock.LockDelay(time.Hour), redlock.AtMost(time.Minute), redlock.Label("a;?b@99999999999999999"),
	} {
		interleave(t, 3, func(t *testing.T, s *schedule) {
			ctx := context.Background()
			a, b := s.open("a"), s.open("b")
			g, err := a.TryAcquire(ctx, "x", option)
			require.NoError(t, err)
			atRisk := g.AtRisk()
			taken := force(ctx, b, 10*time.Second)
			<-atRisk
			requireAsked(t, g)
			time.Sleep(lease / 2)
			released := time.Now()
			release(t, g)
			next := <-taken
			require.NoError(t, next.err)
			require.LessOrEqual(t, next.at.Sub(released), 10*oneWay)
			require.Greater(t, next.guard.FencingToken(), g.FencingToken())
			release(t, next.guard)
			time.Sleep(10 * oneWay)
			require.Equal(t, []string{"", "", ""}, s.stored())
		})
	}
}

// Where nobody holds the lock there is nobody to ask: it is had at once, be it free or only kept. So are the taker's own options.
func TestScheduleGraceOfNobody(t *testing.T) {
	interleave(t, 3, func(t *testing.T, s *schedule) {
		ctx := context.Background()
		a, b := s.open("a"), s.open("b")
		time.Sleep(2 * lease) // the nodes' first fence floors are over: no second round
		asked := time.Now()
		g := tryAcquire(t, a, "x")
		took := time.Since(asked)
		release(t, g)
		asked = time.Now()
		g, err := a.ForceAcquire(ctx, "x", redlock.Grace(time.Minute), redlock.AtLeast(time.Hour), redlock.Label("first"))
		require.NoError(t, err)
		require.LessOrEqual(t, time.Since(asked), took, "as any acquire")
		line, err := b.Inspect(ctx, "x")
		require.NoError(t, err)
		require.Equal(t, "first", line.Label)
		release(t, g)
		asked = time.Now()
		next, err := b.ForceAcquire(ctx, "x", redlock.Grace(time.Minute), redlock.Label("second"))
		require.NoError(t, err)
		require.LessOrEqual(t, time.Since(asked), 6*oneWay)
		require.Greater(t, next.FencingToken(), g.FencingToken())
		line, err = a.Inspect(ctx, "x")
		require.NoError(t, err)
		require.Equal(t, "second", line.Label)
		time.Sleep(2 * oneWay)
		line, err = a.Inspect(ctx, "x")
		require.NoError(t, err)
		require.Zero(t, line.Waiters)
		release(t, next)
	})
}

// Who asks and dies leaves a mark, which whoever asks next takes away: a value does not grow by those who have asked.
func TestScheduleGraceOfTheDeadIsDropped(t *testing.T) {
	interleave(t, 3, func(t *testing.T, s *schedule) {
		g := tryAcquire(t, s.open("a"), "x")
		ctx, cancel := context.WithCancel(context.Background())
		defer cancel()
		longest := 0
		for i, host := range []string{"b", "c", "d", "e", "f"} {
			l := s.open(host)
			force(ctx, l, time.Second)
			time.Sleep(900 * time.Millisecond)
			silence(s.cluster.Client(host))
			time.Sleep(300 * time.Millisecond)
			size := 0
			for _, value := range s.stored() {
				size = max(size, len(value))
			}
			require.Contains(t, strings.Join(s.stored(), ""), ";?")
			if i == 0 {
				longest = size
			}
			require.Equal(t, longest, size)
		}
		require.NoError(t, g.Err())
		release(t, g)
	})
}

// A lock that is handed to another process while it is asked for is asked for there.
func TestScheduleGraceOfAResumedLock(t *testing.T) {
	interleave(t, 3, func(t *testing.T, s *schedule) {
		ctx := context.Background()
		a, b, c := s.open("a"), s.open("b"), s.open("c")
		g := tryAcquire(t, a, "x")
		taken := force(ctx, b, 10*time.Second)
		time.Sleep(2 * time.Second)
		exported, err := g.Export()
		require.NoError(t, err)
		resumed, err := c.Resume(ctx, exported)
		require.NoError(t, err)
		requireAsked(t, resumed)
		release(t, resumed)
		next := <-taken
		require.NoError(t, next.err)
		release(t, next.guard)
	})
}

// Without a quorum there is nothing to be had, and nobody to ask: as any wait, it gives up after a lease.
func TestScheduleGraceWithoutQuorum(t *testing.T) {
	interleave(t, 3, func(t *testing.T, s *schedule) {
		b := s.open("b")
		for i := range 2 {
			s.link("b", i).Silence()
		}
		asked := time.Now()
		_, err := b.ForceAcquire(context.Background(), "x", redlock.Grace(time.Hour))
		require.ErrorIs(t, err, redlock.ErrNoQuorum)
		require.GreaterOrEqual(t, time.Since(asked), lease)
		require.Less(t, time.Since(asked), 3*lease)
		asked = time.Now()
		_, err = b.ForceAcquire(context.Background(), "x", redlock.Grace(lease/10))
		require.ErrorIs(t, err, redlock.ErrNoQuorum)
		require.Less(t, time.Since(asked), lease)
	})
}

// Only ForceAcquire takes a lock from its holder and waits for that: every other call refuses Grace, and says why.
func TestGraceIsForForceAcquireAlone(t *testing.T) {
	interleave(t, 3, func(t *testing.T, s *schedule) {
		l := s.open("a")
		ways := waysToTake(l)
		ways["Lead"] = func(options ...redlock.HoldOption) error {
			return l.Lead(context.Background(), "x", func(context.Context) error { return nil }, options...)
		}
		for call, take := range ways {
			err := take(redlock.Grace(time.Second))
			switch call {
			case "ForceAcquire":
				require.NoError(t, err)
				for text, d := range map[string]time.Duration{"Grace(0s): it must be at least 1ms": 0, "Grace(-1s): it must be at least 1ms": -time.Second, "Grace(2161h0m0s): it must be at most 2160h0m0s": 2161 * time.Hour} {
					err := take(redlock.Grace(d))
					require.ErrorIs(t, err, redlock.ErrInvalidOption)
					require.ErrorContains(t, err, text)
				}
				err = take(redlock.Grace(time.Second), redlock.Grace(2*time.Second))
				require.ErrorContains(t, err, "Grace(2s) contradicts Grace(1s)")
			case "ForceAcquireNow":
				require.ErrorContains(t, err, "Grace(1s) contradicts ForceAcquireNow, which waits for no holder")
			default:
				require.ErrorContains(t, err, "Grace(1s) is for ForceAcquire alone", call)
			}
			if err != nil {
				require.ErrorIs(t, err, redlock.ErrInvalidOption)
			}
		}
		require.False(t, strings.Contains(strings.Join(s.stored(), ""), "?"))
	})
}
