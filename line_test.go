package redlock_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/redlock-go/redlock"
	"github.com/redlock-go/redlock/internal/redisproc/redistest"
	"github.com/redlock-go/redlock/redlocktest"
)

// lastingKeys returns the keys of a node that have no end, but for those that are meant to stay.
func lastingKeys(n *redlocktest.Node, prefix string) (keys []string) {
	for _, key := range n.Keys() {
		if _, leased := n.PTTL(key); !leased && key != prefix+":marker" && !strings.HasPrefix(key, prefix+":fence:") {
			keys = append(keys, key)
		}
	}
	return keys
}

// Schedule: w waits behind a, and its process dies; a releases, b tries. The line that b's question pops its only member
// from has to end nevertheless.
func TestScheduleEveryKeyOfALineEnds(t *testing.T) {
	for _, refused := range []string{"behind a dead waiter", "by another marker"} {
		t.Run(refused, func(t *testing.T) {
			interleave(t, 3, func(t *testing.T, s *schedule) {
				a, w, b := s.open("a"), s.open("w"), s.open("b")
				g := tryAcquire(t, a, "x")
				ctx, cancel := context.WithCancel(context.Background())
				defer cancel()
				afterward(t, func() { w.Acquire(ctx, "x") })
				time.Sleep(20 * time.Millisecond)
				silence(s.cluster.Client("w"))
				if refused == "by another marker" {
					for _, n := range s.cluster.Nodes() {
						n.Set("redlock:marker", "another", 0)
					}
				}
				release(t, g)
				_, err := b.TryAcquire(context.Background(), "x")
				require.Error(t, err)
				for _, n := range s.cluster.Nodes() {
					require.Empty(t, lastingKeys(n, "redlock"))
				}
				time.Sleep(10 * time.Second)
				for _, n := range s.cluster.Nodes() {
					for _, key := range n.Keys() {
						require.True(t, key == "redlock:marker" || strings.HasPrefix(key, "redlock:fence:"), "left behind: %q", key)
					}
				}
			})
		})
	}
}

// A line of dead waiters, more than any loop of a script was once ready to drop, and a living one behind them: nobody
// is granted past it, no script fails, and its turn comes.
func TestThousandsOfDeadWaitersAreSkipped(t *testing.T) {
	t.Parallel()
	nodes := startNodes(t, 3)
	holder, w, other := newLocker(t, redistest.Options(nodes)), newLocker(t, redistest.Options(nodes)), newLocker(t, redistest.Options(nodes))
	bury := func() {
		for _, n := range nodes {
			zadd := []string{"ZADD", "redlock:queue:{x}"}
			for i := range 3000 {
				zadd = append(zadd, fmt.Sprint(i+1), fmt.Sprint("dead", i))
			}
			do(t, n, zadd...)
		}
	}
	ctx, cancel := context.WithTimeout(context.Background(), 30*time.Second)
	g := tryAcquire(t, holder, "x")
	bury()
	got := make(chan *redlock.Guard, 1)
	afterward(t, func() {
		g, err := w.Acquire(ctx, "x") // puts itself in line behind them
		if err != nil {
			t.Error(err)
		}
		got <- g
	})
	waitForWaiters(t, holder, "x", 1)
	bury()
	release(t, g) // wakes the living one
	g = <-got
	require.NotNil(t, g)

	afterward(t, func() { other.Acquire(ctx, "x") })
	t.Cleanup(cancel) // before they are waited for
	waitForWaiters(t, holder, "x", 1)
	bury()
	doAll(t, nodes, "DEL", "redlock:{x}") // free, and nobody woken: who comes now comes after the living one
	_, err := holder.TryAcquire(ctx, "x")
	require.ErrorIs(t, err, redlock.ErrNotLocked)
}

// Schedule: w1 and w2 begin to wait in a Locker that has seen no node, on a machine whose clock is ten minutes ahead; then
// it reaches the nodes; then b, whose clock is right, begins to wait. They are served in this order.
func TestScheduleTicketIsNotOfTheClientsClock(t *testing.T) {
	for _, ahead := range []time.Duration{10 * time.Minute, -10 * time.Minute} {
		interleave(t, 3, func(t *testing.T, s *schedule) {
			a, b := s.open("a", validity(10*time.Second)), s.open("b", validity(10*time.Second))
			o := s.option("w", validity(10*time.Second))
			silence(s.cluster.Client("w"))
			w, err := redlock.NewLockerOn(o, func() time.Time { return time.Now().Add(ahead) }, nil)
			require.NoError(t, err)
			t.Cleanup(w.Close)
			g := tryAcquire(t, a, "x")
			ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
			defer cancel()
			var mu sync.Mutex
			var served []string
			var wg sync.WaitGroup
			wait := func(l *redlock.Locker, who string) {
				wg.Go(func() {
					g, err := l.Acquire(ctx, "x")
					require.NoError(t, err, who)
					mu.Lock()
					served = append(served, who)
					mu.Unlock()
					release(t, g)
				})
				time.Sleep(10 * time.Millisecond)
			}
			if ahead < 0 {
				wait(b, "b")
			}
			wait(w, "w1")
			wait(w, "w2")
			for _, l := range s.cluster.Client("w").Links() {
				l.Heal()
			}
			time.Sleep(5 * time.Second)
			want := []string{"b", "w1", "w2"}
			if ahead > 0 {
				wait(b, "b")
				want = []string{"w1", "w2", "b"}
			}
			release(t, g)
			wg.Wait()
			require.Equal(t, want, served)
		})
	}
}

// Schedule: the holder and the first in line die at once. Who is next waits for the one's lease and the other's place in
// line, and the place is kept no longer than the lease, but for a floor.
func TestScheduleDeadWaiterCostsNoMoreThanADeadHolder(t *testing.T) {
	for _, row := range []struct{ lease, atMost time.Duration }{
		{100 * time.Millisecond, 400 * time.Millisecond},
		{500 * time.Millisecond, 1100 * time.Millisecond},
		{10 * time.Second, 12 * time.Second},
	} {
		interleave(t, 3, func(t *testing.T, s *schedule) {
			a, dead, w := s.open("a", validity(row.lease)), s.open("dead", validity(row.lease)), s.open("w", validity(row.lease))
			tryAcquire(t, a, "x")
			ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
			defer cancel()
			afterward(t, func() { dead.Acquire(ctx, "x") })
			time.Sleep(10 * time.Millisecond)
			served := make(chan struct{})
			afterward(t, func() {
				defer close(served)
				release(t, acquire(t, w, "x"))
			})
			time.Sleep(10 * time.Millisecond)
			silence(s.cluster.Client("a"))
			silence(s.cluster.Client("dead"))
			died := time.Now()
			<-served
			t.Logf("lease %v: served %v after both died", row.lease, time.Since(died))
			require.LessOrEqual(t, time.Since(died), row.atMost, "lease %v", row.lease)
			cancel()
		})
	}
}

// Schedule: 20 calls of one Locker wait for one name when all nodes fall silent; one more comes half a lease later. Each is
// told after a lease of its own, and the time its own last question may take.
func TestScheduleEveryWaiterIsToldThatThereIsNoQuorum(t *testing.T) {
	interleave(t, 3, func(t *testing.T, s *schedule) {
		l := s.open("a")
		silence(s.cluster.Client("a"))
		began := time.Now()
		var wg sync.WaitGroup
		wait := func(atMost time.Duration) {
			wg.Go(func() {
				_, err := l.Acquire(context.Background(), "x")
				require.ErrorIs(t, err, redlock.ErrNoQuorum)
				var qe *redlock.QuorumError
				require.ErrorAs(t, err, &qe)
				require.Len(t, qe.Errs, 3)
				require.GreaterOrEqual(t, time.Since(began), atMost-lease)
				require.LessOrEqual(t, time.Since(began), atMost)
			})
		}
		for range 20 {
			wait(2 * lease)
		}
		time.Sleep(lease / 2)
		wait(2*lease + lease/2)
		wg.Wait()
	})
}

// What ends with its context says why it had not come to anything: which nodes, and what each said.
func TestScheduleEndedContextCarriesTheAnswers(t *testing.T) {
	reason := errors.New("the caller's reason")
	ended := func(t *testing.T, err error, said ...error) {
		t.Helper()
		require.ErrorIs(t, err, context.DeadlineExceeded)
		require.ErrorIs(t, err, reason)
		for _, kind := range []error{redlock.ErrNotLocked, redlock.ErrNoQuorum, redlock.ErrLost} {
			require.NotErrorIs(t, err, kind, "an ended context says nothing about the lock")
		}
		var qe *redlock.QuorumError
		require.ErrorAs(t, err, &qe)
		require.Equal(t, "x", qe.Name)
		require.Len(t, qe.Errs, 3)
		for _, e := range said {
			require.ErrorIs(t, err, e)
		}
	}
	within := func(d time.Duration) context.Context {
		ctx, cancel := context.WithTimeoutCause(context.Background(), d, reason)
		t.Cleanup(cancel)
		return ctx
	}
	interleave(t, 3, func(t *testing.T, s *schedule) {
		a, b := s.open("a", validity(20*time.Second)), s.open("b")
		g := tryAcquire(t, a, "x")
		var wg sync.WaitGroup
		for range 4 { // the last two never ask the nodes themselves
			wg.Go(func() {
				_, err := b.Acquire(within(700*time.Millisecond), "x")
				ended(t, err)
				held := (*redlock.HeldError)(nil)
				require.ErrorAs(t, err, &held)
				require.Equal(t, g.Owner(), held.Owner)
			})
		}
		wg.Wait()
		for i := range 3 {
			s.link("b", i).Silence()
		}
		_, err := b.TryAcquire(within(20*time.Millisecond), "x")
		ended(t, err)
		_, err = b.Acquire(within(600*time.Millisecond), "x")
		ended(t, err, redlock.ErrNodeTimeout)
		for i, n := range s.cluster.Nodes() {
			s.link("b", i).Heal()
			n.Refuse()
			n.Cut()
		}
		time.Sleep(5 * time.Second)
		_, err = b.Acquire(within(600*time.Millisecond), "x")
		ended(t, err, redlock.ErrNodeDown)
		ctx, cancel := context.WithCancelCause(context.Background())
		cancel(reason)
		_, err = b.Acquire(ctx, "x")
		require.ErrorIs(t, err, reason, "nothing was asked")
	})
}
