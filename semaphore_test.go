package redlock_test

import (
	"context"
	"fmt"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/redlock-go/redlock"
	"github.com/redlock-go/redlock/redlocktest"
)

// pool is what a resource with k places knows of a semaphore: whoever has one now.
type pool struct {
	t     testing.TB
	mu    sync.Mutex
	held  map[int]*redlock.Guard
	most  int
	total int
	token map[int]uint64
}

func newPool(t testing.TB) *pool {
	return &pool{t: t, held: make(map[int]*redlock.Guard), token: make(map[int]uint64)}
}

// enter has a guard take its place, which must be free, and asserts that its token is the largest of it.
func (p *pool) enter(g *redlock.Guard, k int) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if o := p.held[g.Slot()]; o != nil && o.Err() == nil {
		p.t.Errorf("%v and %v are both alive", o, g)
	}
	if g.Slot() < 1 || g.Slot() > k {
		p.t.Errorf("slot %d of %d", g.Slot(), k)
	}
	if g.FencingToken() <= p.token[g.Slot()] {
		p.t.Errorf("slot %d: token %d after %d", g.Slot(), g.FencingToken(), p.token[g.Slot()])
	}
	p.token[g.Slot()] = g.FencingToken()
	p.held[g.Slot()] = g
	p.most = max(p.most, len(p.held))
	p.total++
}

func (p *pool) leave(g *redlock.Guard) {
	p.mu.Lock()
	defer p.mu.Unlock()
	delete(p.held, g.Slot())
}

// Of tries that meet as many win as there are slots, each another slot, tick after tick, with pushes and without.
func TestSimultaneousTriesFillASemaphore(t *testing.T) {
	for _, row := range []struct{ programs, k, nodes int }{{3, 1, 3}, {3, 2, 3}, {5, 3, 5}, {4, 4, 4}, {6, 2, 4}, {8, 8, 3}} {
		for _, noPushes := range []bool{false, true} {
			t.Run(fmt.Sprintf("%d programs, %d slots, %d nodes, no pushes %v", row.programs, row.k, row.nodes, noPushes), func(t *testing.T) {
				seeds := 60
				if testing.Short() || redlock.RaceDetector {
					seeds = 30
				}
				const perCluster = 30
				for first := 0; first < seeds; first += perCluster {
					seedRandom(t, uint64(first))
					synctest.Test(t, func(t *testing.T) {
						cluster := redlocktest.NewCluster(t, row.nodes, redlocktest.Seed(uint64(first)),
							redlocktest.Jitter(300*time.Microsecond, 3*time.Millisecond))
						lockers := make([]*redlock.Locker, row.programs)
						for i := range lockers {
							o := cluster.Client(fmt.Sprint(i)).Option()
							pushes(!noPushes)(&o)
							l, err := redlock.NewLocker(o)
							require.NoError(t, err)
							t.Cleanup(l.Close)
							lockers[i] = l
						}
						time.Sleep(100 * time.Millisecond)
						for seed := range perCluster {
							var mu sync.Mutex
							var wg sync.WaitGroup
							var slots []int
							var guards []*redlock.Guard
							for _, l := range lockers {
								wg.Go(func() {
									g, err := l.Semaphore("x", row.k).TryAcquire(context.Background())
									mu.Lock()
									defer mu.Unlock()
									if err != nil {
										require.ErrorIs(t, err, redlock.ErrNotLocked)
										return
									}
									guards, slots = append(guards, g), append(slots, g.Slot())
								})
							}
							wg.Wait()
							slices.Sort(slots)
							require.Len(t, slices.Compact(slots), min(row.k, row.programs), "tick %d", first+seed)
							require.Len(t, guards, min(row.k, row.programs), "tick %d", first+seed)
							for _, g := range guards {
								require.NoError(t, g.Err())
								release(t, g)
							}
							time.Sleep(20 * time.Millisecond)
						}
					})
				}
			})
		}
	}
}

// Programs that take slots over and over: never two of one slot, all of them in use, nobody waits for much longer than the
// others.
func TestSemaphoreIsFilledAndFair(t *testing.T) {
	for _, row := range []struct{ programs, calls, k, nodes int }{{2, 1, 1, 3}, {6, 1, 2, 3}, {12, 1, 4, 5}, {3, 8, 3, 3}, {40, 1, 16, 3}} {
		t.Run(fmt.Sprintf("%d programs, %d calls, %d slots, %d nodes", row.programs, row.calls, row.k, row.nodes), func(t *testing.T) {
			interleave(t, row.nodes, func(t *testing.T, s *schedule) {
				p := newPool(t)
				const hold, length = 20 * time.Millisecond, 2 * time.Second
				lockers := make([]*redlock.Locker, row.programs)
				for i := range lockers {
					lockers[i] = s.open(fmt.Sprint(i))
				}
				longest := takeTurns(t, lockers, row.calls, length, func(l *redlock.Locker, _, _ int) caller {
					return caller{l.Semaphore("x", row.k).Acquire, func(g *redlock.Guard) {
						p.enter(g, row.k)
						time.Sleep(hold)
						p.leave(g)
					}}
				})
				require.Equal(t, min(row.k, row.programs*row.calls), p.most)
				const handOver = 12 * oneWay // on the average: its push, its question, and at most two wrong guesses
				require.GreaterOrEqual(t, p.total, row.k*int(length/(hold+handOver)))
				require.Less(t, longest, time.Duration(1+row.programs*row.calls/row.k)*(hold+2*handOver))
			})
		})
	}
}

// take takes a slot without waiting.
func take(t testing.TB, sem *redlock.Semaphore, opts ...redlock.HoldOption) *redlock.Guard {
	t.Helper()
	g, err := sem.TryAcquire(context.Background(), opts...)
	require.NoError(t, err)
	return g
}

// slotKey is the key of a slot of semaphore x.
func slotKey(slot int) string { return fmt.Sprintf("redlock:slot:{x}%d", slot) }

// Schedule: nobody is there. A slot takes one round trip, as a lock does; so do all of them, taken at once by one program; and a
// few, taken at once by as many programs as there are slots.
func TestScheduleSlotsTakeOneRoundTrip(t *testing.T) {
	for _, programs := range []int{1, 8} {
		interleave(t, 5, func(t *testing.T, s *schedule) {
			k := max(3, programs) // of one program no more than the calls that may be on their way to a node at a time
			lockers := make([]*redlock.Locker, k)
			for i := range lockers {
				if lockers[i] = lockers[0]; i < programs {
					lockers[i] = s.open(fmt.Sprint(i))
				}
			}
			time.Sleep(3 * lease) // behind the fence floors of new nodes
			var calls []<-chan served
			one := lockers[0].Semaphore("x", k)
			for _, l := range lockers {
				sem := one
				if l != lockers[0] {
					sem = l.Semaphore("x", k)
				}
				calls = append(calls, waitFor(t, sem.Acquire))
			}
			var slots []int
			for _, came := range calls {
				c := <-came
				if programs == 1 {
					require.Equal(t, 2*oneWay, c.took, "%v", c.guard)
				} else {
					require.LessOrEqual(t, c.took, 7*2*oneWay)
				}
				slots = append(slots, c.guard.Slot())
				defer release(t, c.guard)
			}
			slices.Sort(slots)
			require.Equal(t, []int{1, 2, 3, 4, 5, 6, 7, 8}[:k], slots)
		})
	}
}

// Schedule: a program takes a slot, gives it back, and takes one again while the others come and go: the same slot.
func TestScheduleSemaphoreBeginsAtTheSlotUsedLast(t *testing.T) {
	interleave(t, 3, func(t *testing.T, s *schedule) {
		sem := s.open("a").Semaphore("x", 200)
		g := take(t, sem)
		for range 5 {
			release(t, g)
			next := take(t, sem)
			require.Equal(t, g.Slot(), next.Slot())
			g = next
		}
		release(t, g)
	})
}

// Schedule: two slots are held, and five programs come one after the other. One slot after the other is given back: they
// are served in the order in which they came, within three round trips of the release.
func TestScheduleSlotsAreServedInOrder(t *testing.T) {
	interleave(t, 3, func(t *testing.T, s *schedule) {
		a := s.open("a").Semaphore("x", 2)
		held := []*redlock.Guard{take(t, a), take(t, a)}
		var calls []<-chan served
		for i := range 5 {
			l := s.open(fmt.Sprint(i))
			calls = append(calls, waitFor(t, l.Semaphore("x", 2).Acquire))
			time.Sleep(30 * time.Millisecond)
		}
		for i, came := range calls {
			for _, later := range calls[i:] {
				require.Empty(t, later)
			}
			release(t, held[i])
			freed := time.Now()
			c := <-came
			require.LessOrEqual(t, time.Since(freed), 6*oneWay)
			held = append(held, c.guard)
			time.Sleep(100 * time.Millisecond)
		}
		release(t, held[5])
		release(t, held[6])
	})
}

// Schedule: three slots are given back at the same time. The first three in line have them at once, and not one after the
// other; the fourth has none. What is left behind of their questions is no place in line.
func TestScheduleSlotsFreedAtOnceAreNotSerialized(t *testing.T) {
	interleave(t, 3, func(t *testing.T, s *schedule) {
		const k = 3
		var held []*redlock.Guard
		for i := range k {
			held = append(held, take(t, s.open(fmt.Sprint("holder", i)).Semaphore("x", k)))
		}
		var calls []<-chan served
		for i := range k + 1 {
			l := s.open(fmt.Sprint(i))
			calls = append(calls, waitFor(t, l.Semaphore("x", k).Acquire))
			time.Sleep(30 * time.Millisecond)
		}
		var wg sync.WaitGroup
		freed := time.Now()
		for _, g := range held {
			wg.Go(func() { release(t, g) })
		}
		wg.Wait()
		held = nil
		for _, came := range calls[:k] {
			c := <-came
			held = append(held, c.guard)
			require.LessOrEqual(t, time.Since(freed), 5*2*oneWay)
		}
		time.Sleep(lease)
		require.Empty(t, calls[k])
		lines, err := s.open("looks").Semaphore("x", k).Inspect(context.Background())
		require.NoError(t, err)
		for _, line := range lines {
			require.Equal(t, 1, line.Waiters)
		}
		for _, g := range held {
			release(t, g)
		}
		release(t, (<-calls[k]).guard)
	})
}

// Schedule: a program that holds both slots dies, two wait. Each is served when a lease has run out, not later.
func TestScheduleDeadHolderOfSlotsCostsOneLease(t *testing.T) {
	interleave(t, 3, func(t *testing.T, s *schedule) {
		a := s.open("a").Semaphore("x", 2)
		b, c := s.open("b"), s.open("c")
		take(t, a)
		take(t, a)
		died := time.Now()
		for i := range 3 {
			s.link("a", i).Silence()
		}
		for _, came := range []<-chan served{waitFor(t, b.Semaphore("x", 2).Acquire), waitFor(t, c.Semaphore("x", 2).Acquire)} {
			g := (<-came).guard
			require.LessOrEqual(t, time.Since(died), lease+10*time.Millisecond)
			defer release(t, g)
		}
	})
}

// Schedule: a semaphore of 2 is used, and asked for a slot as one of 3 and as one of 1, by tries and by who waits. Each is told
// both numbers and gets nothing, also when only a holder is left who asks for nothing; a lease after the last has gone it may be any.
func TestScheduleOtherNumberOfSlotsIsRefused(t *testing.T) {
	interleave(t, 3, func(t *testing.T, s *schedule) {
		a, b := s.open("a"), s.open("b")
		g := take(t, a.Semaphore("x", 2))
		for range 3 {
			for _, k := range []int{1, 3} {
				sem := b.Semaphore("x", k)
				_, err := sem.TryAcquire(context.Background())
				require.ErrorIs(t, err, redlock.ErrDisagreement)
				require.ErrorIs(t, err, redlock.ErrNoQuorum)
				require.ErrorContains(t, err, fmt.Sprintf("the semaphore has 2 slots there, not %d", k))
				_, err = sem.Acquire(context.Background())
				require.ErrorIs(t, err, redlock.ErrDisagreement)
				_, err = sem.ForceAcquire(context.Background(), 1)
				require.ErrorIs(t, err, redlock.ErrDisagreement)
			}
			time.Sleep(2 * lease)
			require.NoError(t, g.Err())
		}
		release(t, g)
		time.Sleep(lease + 10*time.Millisecond)
		release(t, take(t, b.Semaphore("x", 3)))
	})
}

// Schedule: the node that knows the number of slots loses its memory and is looked at: the holder's renewals tell it again.
func TestScheduleHolderTellsTheNumberOfSlots(t *testing.T) {
	interleave(t, 1, func(t *testing.T, s *schedule) {
		g := take(t, s.open("a").Semaphore("x", 2))
		s.cluster.Node(0).Del("redlock:slot:{x}")
		time.Sleep(lease / 2)
		size, _ := s.cluster.Node(0).Get("redlock:slot:{x}")
		require.Equal(t, "2", size)
		release(t, g)
	})
}

// Schedule: three slots of three are held. Fewer: whoever asks for the old number is refused at once, the one of the new number
// gets no slot above it and waits for those below, and Resize waits for the holder above, however long that goes on. More: at once.
func TestScheduleResize(t *testing.T) {
	interleave(t, 3, func(t *testing.T, s *schedule) {
		ctx := context.Background()
		a, b, c := s.open("a"), s.open("b"), s.open("c")
		old := a.Semaphore("x", 3)
		held := make(map[int]*redlock.Guard)
		for range 3 {
			g := take(t, old)
			held[g.Slot()] = g
		}
		_, err := b.Semaphore("x", 4).Resize(ctx, 2)
		require.ErrorIs(t, err, redlock.ErrDisagreement)
		require.ErrorContains(t, err, "has 3 slots there, not 4")

		resized := make(chan *redlock.Semaphore, 1)
		go func() {
			now, err := b.Semaphore("x", 3).Resize(ctx, 2)
			if err != nil {
				t.Error(err)
			}
			resized <- now
		}()
		time.Sleep(10 * time.Millisecond)
		_, err = c.Semaphore("x", 3).TryAcquire(ctx)
		require.ErrorIs(t, err, redlock.ErrDisagreement)
		require.ErrorContains(t, err, "has 2 slots there, not 3")
		waiting := waitFor(t, b.Semaphore("x", 2).Acquire)
		time.Sleep(3 * lease)
		require.Empty(t, resized, "slot 3 is held")
		require.NoError(t, held[3].Err())
		release(t, held[3])
		now := <-resized
		require.Empty(t, waiting, "slots 1 and 2 are held")
		_, err = now.TryAcquire(ctx)
		require.ErrorIs(t, err, redlock.ErrNotLocked)
		release(t, held[1])
		g := (<-waiting).guard
		require.Equal(t, 1, g.Slot())

		began := time.Now()
		now, err = now.Resize(ctx, 5)
		require.NoError(t, err)
		require.Equal(t, 2*oneWay, time.Since(began))
		for range 3 {
			defer release(t, take(t, now))
		}
		_, err = now.TryAcquire(ctx)
		require.ErrorIs(t, err, redlock.ErrNotLocked)
		release(t, g)
		release(t, held[2])
	})
}

// Programs that want three of four slots, two, or one, over and over: whoever wants several gets them all, nobody waits for what
// another waits with, and all four are in use.
func TestSlotsAreHadTogether(t *testing.T) {
	interleave(t, 3, func(t *testing.T, s *schedule) {
		const k = 4
		p := newPool(t)
		var lockers []*redlock.Locker
		for i := range 6 {
			lockers = append(lockers, s.open(fmt.Sprint(i)))
		}
		var wg sync.WaitGroup
		end := time.Now().Add(4 * lease)
		for i, l := range lockers {
			wg.Go(func() {
				sem := l.Semaphore("x", k)
				for had := 0; time.Now().Before(end); had++ {
					began := time.Now()
					ctx, cancel := context.WithTimeout(context.Background(), 2*lease)
					guards, err := sem.AcquireN(ctx, 1+i%3)
					cancel()
					if err != nil {
						t.Error(err)
						return
					}
					if len(guards) != 1+i%3 || !slices.IsSortedFunc(guards, func(a, b *redlock.Guard) int { return a.Slot() - b.Slot() }) {
						t.Error(guards)
					}
					if time.Since(began) > lease {
						t.Error("waited for", time.Since(began))
					}
					for _, g := range guards {
						p.enter(g, k)
					}
					time.Sleep(20 * time.Millisecond)
					for _, g := range guards {
						p.leave(g)
						release(t, g)
					}
				}
			})
		}
		wg.Wait()
		require.Equal(t, k, p.most)

		ctx, cancel := context.WithTimeout(context.Background(), lease)
		defer cancel()
		g := take(t, lockers[0].Semaphore("x", k))
		_, err := lockers[1].Semaphore("x", k).AcquireN(ctx, 4)
		require.ErrorIs(t, err, context.DeadlineExceeded)
		for range 3 {
			defer release(t, take(t, lockers[2].Semaphore("x", k)))
		}
		for _, n := range []int{-1, 0, 5} {
			_, err = lockers[1].Semaphore("x", k).AcquireN(context.Background(), n)
			require.ErrorIs(t, err, redlock.ErrInvalidOption)
			require.ErrorContains(t, err, fmt.Sprintf("%d slots are asked for, it must be from 1 to 4", n))
		}
		time.AfterFunc(lease/2, lockers[1].Close)
		_, err = lockers[1].Semaphore("x", k).AcquireN(context.Background(), 2)
		require.ErrorIs(t, err, redlock.ErrLockerClosed)
		release(t, g)
	})
}

// Schedule: all four slots are held, and three programs want three each, at the same instant. The four are given back one
// after the other: all three have theirs in turn, where each would wait with one or two for the others' if they got them beside each other.
func TestScheduleSlotsAreNotHadByHalves(t *testing.T) {
	interleave(t, 3, func(t *testing.T, s *schedule) {
		const k = 4
		sem := s.open("holder").Semaphore("x", k)
		var held []*redlock.Guard
		for range k {
			held = append(held, take(t, sem))
		}
		lockers := []*redlock.Locker{s.open("a"), s.open("b"), s.open("c")}
		var wg sync.WaitGroup
		for _, l := range lockers {
			wg.Go(func() {
				ctx, cancel := context.WithTimeout(context.Background(), 3*lease)
				defer cancel()
				guards, err := l.Semaphore("x", k).AcquireN(ctx, 3)
				if err != nil {
					t.Error(err)
				}
				for _, g := range guards {
					release(t, g)
				}
			})
		}
		for _, g := range held {
			time.Sleep(30 * time.Millisecond)
			release(t, g)
		}
		wg.Wait()
	})
}

// Schedule: slot 2 of two is taken over. Its holder ends before the taker has it; the holder of the other goes on.
func TestScheduleSlotIsTakenOver(t *testing.T) {
	interleave(t, 3, func(t *testing.T, s *schedule) {
		a, b := s.open("a").Semaphore("x", 2), s.open("b").Semaphore("x", 2)
		held := map[int]*redlock.Guard{}
		for range 2 {
			g := take(t, a)
			held[g.Slot()] = g
		}
		g, err := b.ForceAcquire(context.Background(), 2)
		require.NoError(t, err)
		require.Equal(t, 2, g.Slot())
		require.ErrorIs(t, held[2].Err(), redlock.ErrTakenOver)
		require.Greater(t, g.FencingToken(), held[2].FencingToken())
		time.Sleep(2 * lease)
		require.NoError(t, held[1].Err())
		release(t, held[1])
		release(t, g)
	})
}

// Schedule: the keys of slot 1 are deleted on all nodes. Its guard ends, by push; those of slot 2 and of the lock of that name
// are not even asked.
func TestSchedulePushIsOfOneSlot(t *testing.T) {
	interleave(t, 3, func(t *testing.T, s *schedule) {
		l := s.open("a")
		sem := l.Semaphore("x", 2)
		held := map[int]*redlock.Guard{}
		for range 2 {
			g := take(t, sem)
			held[g.Slot()] = g
		}
		lock := tryAcquire(t, l, "x")
		for _, n := range s.cluster.Nodes() {
			n.Del(slotKey(1))
		}
		time.Sleep(2 * oneWay)
		require.Zero(t, held[1].Votes(), "in doubt, and looked at")
		require.Equal(t, 3, held[2].Votes())
		require.Equal(t, 3, lock.Votes())
		time.Sleep(2 * oneWay)
		require.ErrorIs(t, held[1].Err(), redlock.ErrLost)
		time.Sleep(2 * lease)
		release(t, held[2])
		release(t, lock)
	})
}

// Schedule: two of five nodes are down, and a third comes back without its memory. All slots are had, and never one more.
func TestScheduleSemaphoreOverAMinority(t *testing.T) {
	interleave(t, 5, func(t *testing.T, s *schedule) {
		const k = 3
		p := newPool(t)
		lockers := []*redlock.Locker{s.open("a"), s.open("b"), s.open("c"), s.open("d"), s.open("e")}
		s.cluster.Node(0).Stop()
		s.cluster.Node(1).Stop()
		takeTurns(t, lockers, 1, 6*lease, func(l *redlock.Locker, _, _ int) caller {
			return caller{l.Semaphore("x", k).Acquire, func(g *redlock.Guard) {
				p.enter(g, k)
				time.Sleep(lease / 10)
				p.leave(g)
			}}
		})
		require.Equal(t, k, p.most)
		require.Greater(t, p.total, k*6*8, "slots are not left unused")
	})
}

// A slot is held as a lock is: kept from others, labelled, ended by its time, seen.
func TestSlotsAreHeldLikeLocks(t *testing.T) {
	interleave(t, 3, func(t *testing.T, s *schedule) {
		ctx := context.Background()
		l := s.open("a")
		sem := l.Semaphore("x", 2)
		g := take(t, sem, redlock.Label("one"), redlock.AtLeast(3*lease))
		other := take(t, sem, redlock.Label("two"), redlock.AtMost(lease/2))
		lines, err := sem.Inspect(ctx)
		require.NoError(t, err)
		require.Len(t, lines, 2)
		require.Equal(t, g.ID(), lines[g.Slot()-1].Holder)
		require.Equal(t, "one", lines[g.Slot()-1].Label)
		require.Equal(t, other.ID(), lines[other.Slot()-1].Holder)
		require.Equal(t, other.FencingToken(), lines[other.Slot()-1].FencingToken)
		require.Contains(t, g.String(), fmt.Sprintf(`lock "x", slot %d, fencing token`, g.Slot()))
		_, err = g.Export()
		require.ErrorIs(t, err, redlock.ErrInvalidOption)
		line, err := l.Inspect(ctx, "x")
		require.NoError(t, err)
		require.Empty(t, line.Holder, "a lock of the same name is another matter")
		require.Zero(t, tryAcquire(t, l, "x").Slot())

		release(t, g)
		<-other.Done()
		require.ErrorIs(t, other.Err(), redlock.ErrHeldTooLong)
		release(t, take(t, sem))
		last := take(t, sem)
		require.Equal(t, other.Slot(), last.Slot(), "the other is kept")
		_, err = sem.TryAcquire(ctx)
		require.ErrorIs(t, err, redlock.ErrNotLocked)
		release(t, last)

		ran := false
		require.NoError(t, sem.Do(ctx, func(ctx context.Context) error {
			_, ran = redlock.FencingToken(ctx)
			return ctx.Err()
		}))
		require.True(t, ran)
		time.Sleep(3 * lease)
		release(t, take(t, sem))
	})
}

func TestSemaphoreRefusesWhatCannotBe(t *testing.T) {
	interleave(t, 3, func(t *testing.T, s *schedule) {
		ctx := context.Background()
		l := s.open("a")
		for _, row := range []struct {
			name string
			k    int
			text string
		}{
			{"x", 0, `semaphore "x": k is 0, it must be from 1 to 256`},
			{"x", -1, `semaphore "x": k is -1, it must be from 1 to 256`},
			{"x", 257, `semaphore "x": k is 257, it must be from 1 to 256`},
			{"", 1, "name is empty"},
		} {
			sem := l.Semaphore(row.name, row.k)
			for call, err := range map[string]error{
				"Acquire":      second(sem.Acquire(ctx)),
				"TryAcquire":   second(sem.TryAcquire(ctx)),
				"ForceAcquire": second(sem.ForceAcquire(ctx, 1)),
				"Do":           sem.Do(ctx, func(context.Context) error { return nil }),
				"AcquireN":     second(sem.AcquireN(ctx, 1)),
				"Inspect":      second(sem.Inspect(ctx)),
				"Resize":       second(sem.Resize(ctx, 2)),
			} {
				require.ErrorIs(t, err, redlock.ErrInvalidOption, call)
				require.ErrorContains(t, err, row.text, call)
			}
		}
		sem := l.Semaphore("x", 2)
		for _, slot := range []int{-1, 0, 3} {
			_, err := sem.ForceAcquire(ctx, slot)
			require.ErrorIs(t, err, redlock.ErrInvalidOption)
			require.ErrorContains(t, err, fmt.Sprintf("no slot %d: its slots are 1 to 2", slot))
		}
		_, err := sem.Resize(ctx, 0)
		require.ErrorIs(t, err, redlock.ErrInvalidOption)
		_, err = sem.ForceAcquire(ctx, 1, redlock.Grace(time.Second))
		require.ErrorIs(t, err, redlock.ErrInvalidOption)
		_, err = sem.TryAcquire(ctx, redlock.AtMost(-1))
		require.ErrorIs(t, err, redlock.ErrInvalidOption)

		none := (*redlock.Locker)(nil).Semaphore("x", 2)
		_, err = none.Acquire(ctx)
		require.ErrorIs(t, err, redlock.ErrLockerClosed)
		_, err = none.Inspect(ctx)
		require.ErrorIs(t, err, redlock.ErrLockerClosed)
		_, err = none.Resize(ctx, 3)
		require.ErrorIs(t, err, redlock.ErrLockerClosed)
	})
}

func second[T any](_ T, err error) error { return err }
