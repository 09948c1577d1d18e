package redlock_test

import (
	"context"
	"fmt"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/redlock-go/redlock"
	"github.com/redlock-go/redlock/internal/redisproc/redistest"
	"github.com/redlock-go/redlock/redlocktest"
)

// tryAtOnce has every Locker try at one instant and returns who got the lock. Whoever did not must be told so, and
// nothing else.
func tryAtOnce(t *testing.T, lockers []*redlock.Locker, name string) (winners []*redlock.Guard, refusals []string) {
	t.Helper()
	var (
		mu    sync.Mutex
		wg    sync.WaitGroup
		start = make(chan struct{})
	)
	for _, l := range lockers {
		wg.Go(func() {
			<-start
			g, err := l.TryAcquire(context.Background(), name)
			mu.Lock()
			defer mu.Unlock()
			if err == nil {
				winners = append(winners, g)
				return
			}
			refusals = append(refusals, err.Error())
			require.ErrorIs(t, err, redlock.ErrNotLocked)
		})
	}
	close(start)
	wg.Wait()
	return winners, refusals
}

// Of simultaneous tries on a free lock exactly one wins, tick after tick, also right after the release of the last.
func TestSimultaneousTriesHaveOneWinner(t *testing.T) {
	for _, row := range []struct{ programs, nodes int }{{3, 3}, {3, 5}, {5, 5}, {4, 4}, {2, 4}} {
		for _, noPushes := range []bool{false, true} {
			t.Run(fmt.Sprintf("%d programs, %d nodes, no pushes %v", row.programs, row.nodes, noPushes), func(t *testing.T) {
				seeds := 300
				if noPushes || testing.Short() || redlock.RaceDetector {
					seeds = 60
				}
				const perCluster = 30
				for first := 0; first < seeds; first += perCluster {
					seedRandom(t, uint64(first))
					synctest.Test(t, func(t *testing.T) {
						cluster := redlocktest.NewCluster(t, row.nodes, redlocktest.Seed(uint64(first)),
							redlocktest.Jitter(300*time.Microsecond, 3*time.Millisecond))
						if noPushes {
							for _, n := range cluster.Nodes() {
								n.RefuseTracking()
							}
						}
						var lockers []*redlock.Locker
						for i := range row.programs {
							l, err := redlock.NewLocker(cluster.Client(fmt.Sprint(i)).Option())
							require.NoError(t, err)
							t.Cleanup(l.Close)
							lockers = append(lockers, l)
						}
						time.Sleep(time.Second)
						for tick := range perCluster {
							began := time.Now()
							winners, refusals := tryAtOnce(t, lockers, "x")
							require.Len(t, winners, 1, "tick %d of seed %d: %v", tick, first, refusals)
							require.Less(t, time.Since(began), time.Second, "settled within NodeTimeout")
							release(t, winners[0])
							if tick%2 == 0 {
								time.Sleep(10 * time.Millisecond)
							} // else its key is still on its way out on a minority
						}
					})
				}
			})
		}
	}
}

// The same on real servers, where a hundred try: in each round one wins.
func TestSimultaneousTriesOnServersHaveOneWinner(t *testing.T) {
	t.Parallel()
	for _, row := range []struct{ programs, nodes, rounds int }{{3, 3, 50}, {5, 5, 30}, {100, 5, 5}} {
		nodes := redistest.Options(startNodes(t, row.nodes))
		var lockers []*redlock.Locker
		for range row.programs { // a node that a busy machine keeps from answering in time is not a healthy one
			lockers = append(lockers, newLocker(t, nodes, nodeTimeout(4*time.Second)))
		}
		for round := range row.rounds {
			name := fmt.Sprint("tick ", round)
			winners, refusals := tryAtOnce(t, lockers, name)
			require.Len(t, winners, 1, "%d programs, %d nodes, round %d: %v", row.programs, row.nodes, round, refusals)
			release(t, winners[0])
		}
	}
}

// Schedule: what a try costs where nobody contends, and what it meets. One round trip in each case.
func TestScheduleTryIsOneRoundTrip(t *testing.T) {
	interleave(t, 5, func(t *testing.T, s *schedule) {
		a, b, c := s.open("a"), s.open("b"), s.open("c")
		time.Sleep(2 * lease) // keepers have looked: they send scripts, too; and clocks are past the fence floors, which may differ
		takes := func(l *redlock.Locker) error {
			before, began := commands(s.cluster), time.Now()
			_, err := l.TryAcquire(context.Background(), "x")
			require.Equal(t, 2*oneWay, time.Since(began).Round(10*time.Microsecond))
			time.Sleep(5 * oneWay)
			require.LessOrEqual(t, commands(s.cluster)-before, 10, "a question to each node, and a release at most")
			return err
		}
		s.link("a", 3).Silence()
		s.link("a", 4).Silence()
		before := commands(s.cluster)
		g := tryAcquire(t, a, "x")
		require.Equal(t, 3, commands(s.cluster)-before)
		require.ErrorIs(t, takes(b), redlock.ErrNotLocked, "a holder of three nodes, two are free")

		ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
		defer cancel()
		afterward(t, func() { c.Acquire(ctx, "x") })
		time.Sleep(10 * time.Millisecond)
		silence(s.cluster.Client("c")) // it lives on in the lines, and is not heard of again
		release(t, g)
		err := takes(b)
		require.ErrorIs(t, err, redlock.ErrNotLocked, "a waiter is before us")
		held := (*redlock.HeldError)(nil)
		require.ErrorAs(t, err, &held)
		require.True(t, held.Waiting)
		cancel()
	})
}

// Schedule: the nodes are far, 20 to 300 ms there and back, and somebody holds the lock on all of them. The third answer
// decides, although the first came a sixteenth of NodeTimeout before it.
func TestScheduleFarTryIsRefusedByTheThirdAnswer(t *testing.T) {
	interleave(t, 5, func(t *testing.T, s *schedule) {
		tryAcquire(t, s.open("a", validity(5*time.Second), nodeTimeout(time.Second)), "x")
		o := s.option("b", validity(5*time.Second), nodeTimeout(time.Second))
		for i, trip := range []time.Duration{10, 75, 95, 125, 150} {
			s.link("b", i).Delay(trip*time.Millisecond, trip*time.Millisecond)
		}
		b, err := redlock.NewLocker(o)
		require.NoError(t, err)
		t.Cleanup(b.Close)
		time.Sleep(2 * time.Second)
		began := time.Now()
		_, err = b.TryAcquire(context.Background(), "x")
		require.ErrorIs(t, err, redlock.ErrNotLocked)
		require.Equal(t, 190*time.Millisecond, time.Since(began).Round(time.Millisecond))
	})
}

// Schedule, three nodes: a and b have split them, and c, who comes later, has by its estimate of the nodes' clocks the
// oldest ticket of all: its answers take 40 ms longer than its questions, so it takes them to be behind.
func TestScheduleLateTryWithAnOlderTicket(t *testing.T) {
	interleave(t, 3, func(t *testing.T, s *schedule) {
		for i := range 3 {
			s.link("c", i).Delay(oneWay, oneWay)
		}
		a, b := s.open("a"), s.open("b")
		o := s.option("c")
		for i := range 3 {
			s.link("c", i).Delay(oneWay, 41*oneWay)
		}
		c, err := redlock.NewLocker(o)
		require.NoError(t, err)
		t.Cleanup(c.Close)
		time.Sleep(100 * time.Millisecond)
		for round := range 50 {
			var wg sync.WaitGroup
			var mu sync.Mutex
			var winners []*redlock.Guard
			for i, l := range []*redlock.Locker{a, b, c} {
				wg.Go(func() {
					time.Sleep(time.Duration(i*round) * 100 * time.Microsecond)
					g, err := l.TryAcquire(context.Background(), "x")
					mu.Lock()
					defer mu.Unlock()
					if err == nil {
						winners = append(winners, g)
					} else {
						require.ErrorIs(t, err, redlock.ErrNotLocked)
					}
				})
			}
			wg.Wait()
			require.Len(t, winners, 1, "round %d", round)
			release(t, winners[0])
		}
	})
}

// A crowd of tries, a minority of nodes silent or down, tries inside one Locker, and tries against waiters: one gets it.
func TestScheduleTriesAmongOthers(t *testing.T) {
	for _, ill := range []string{"none", "silent", "down"} {
		t.Run(ill, func(t *testing.T) {
			interleave(t, 5, func(t *testing.T, s *schedule) {
				var lockers []*redlock.Locker
				for i := range 20 {
					lockers = append(lockers, s.open(fmt.Sprint(i), func(o *redlock.LockerOption) { o.KeyValidity = 10 * time.Second }))
				}
				switch ill {
				case "silent":
					s.cluster.Node(1).Silence()
				case "down":
					s.cluster.Node(1).Refuse()
					s.cluster.Node(1).Cut()
				}
				for round := range 20 {
					winners, refusals := tryAtOnce(t, append(lockers, lockers[0], lockers[0]), "x")
					require.Len(t, winners, 1, "round %d: %v", round, refusals)
					release(t, winners[0])

					var wg sync.WaitGroup
					for _, l := range lockers[:3] {
						wg.Go(func() { release(t, acquire(t, l, "x")) })
					}
					for _, l := range lockers[3:6] {
						wg.Go(func() {
							if g, err := l.TryAcquire(context.Background(), "x"); err == nil {
								release(t, g)
							} else {
								require.ErrorIs(t, err, redlock.ErrNotLocked)
							}
						})
					}
					wg.Wait()
				}
			})
		})
	}
}

// Schedule: w is in line and the lock is free, without w having been woken; c comes later, but with an older ticket, as
// above. It has the lock: order is by ticket, for who does not wait, too.
func TestScheduleTryWithAnOlderTicketThanTheFirstInLine(t *testing.T) {
	interleave(t, 3, func(t *testing.T, s *schedule) {
		a, w := s.open("a", validity(10*time.Second)), s.open("w", validity(10*time.Second))
		o := s.option("c", validity(10*time.Second))
		for i := range 3 {
			s.link("c", i).Delay(oneWay, 81*oneWay)
		}
		c, err := redlock.NewLocker(o)
		require.NoError(t, err)
		t.Cleanup(c.Close)
		time.Sleep(300 * time.Millisecond)
		g := tryAcquire(t, a, "x")
		ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
		defer cancel()
		afterward(t, func() { w.Acquire(ctx, "x") })
		time.Sleep(10 * time.Millisecond)
		silence(s.cluster.Client("w"))
		release(t, g)
		got := tryAcquire(t, c, "x")
		require.NoError(t, got.Err())
		cancel()
	})
}
