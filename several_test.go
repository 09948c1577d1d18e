package redlock_test

import (
	"context"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/redlock-go/redlock"
)

// register is what resources know of who has them now, and of the largest token that each has seen.
type register struct {
	t     testing.TB
	mu    sync.Mutex
	has   map[string]*redlock.Guard
	token map[string]uint64
	total int
}

func newRegister(t testing.TB) *register {
	return &register{t: t, has: make(map[string]*redlock.Guard), token: make(map[string]uint64)}
}

// enter has a guard use all its names: nobody else may have any, and its token is the largest of each.
func (d *register) enter(g *redlock.Guard) {
	d.mu.Lock()
	defer d.mu.Unlock()
	for _, name := range g.Names() {
		if o := d.has[name]; o != nil && o.Err() == nil {
			d.t.Errorf("%s: %v and %v are both alive", name, o, g)
		}
		if g.FencingToken() <= d.token[name] {
			d.t.Errorf("%s: token %d after %d", name, g.FencingToken(), d.token[name])
		}
		d.has[name], d.token[name] = g, g.FencingToken()
	}
	d.total++
}

func (d *register) leave(g *redlock.Guard) {
	d.mu.Lock()
	defer d.mu.Unlock()
	for _, name := range g.Names() {
		delete(d.has, name)
	}
}

// owners returns who has each name on each node, "" for nobody.
func (s *schedule) owners(names ...string) (owners []string) {
	for _, n := range s.cluster.Nodes() {
		for _, name := range names {
			value, _ := n.Get("redlock:{" + name + "}")
			owner, _, _ := strings.Cut(value, "#")
			owners = append(owners, owner)
		}
	}
	return owners
}

// waitAll has a call wait for several names, or one.
func waitAll(t testing.TB, l *redlock.Locker, names ...string) <-chan served {
	t.Helper()
	return waitFor(t, func(ctx context.Context, opts ...redlock.HoldOption) (*redlock.Guard, error) {
		return l.AcquireAll(ctx, names, opts...)
	})
}

func tryAll(t testing.TB, l *redlock.Locker, names ...string) *redlock.Guard {
	t.Helper()
	g, err := l.TryAcquireAll(context.Background(), names)
	require.NoError(t, err)
	return g
}

// Schedule: nobody is there. Many names take one round trip, as one does, on all nodes, under one owner and with one token that
// is the largest of each; and they are gone after the release.
func TestScheduleSeveralNamesTakeOneRoundTrip(t *testing.T) {
	interleave(t, 5, func(t *testing.T, s *schedule) {
		a, b := s.open("a"), s.open("b")
		time.Sleep(3 * lease) // behind the fence floors of new nodes
		d := newRegister(t)
		var names []string
		for i := range 64 {
			names = append(names, fmt.Sprint("n", 63-i))
		}
		for range 3 {
			one := tryAcquire(t, b, "n7")
			d.enter(one)
			d.leave(one)
			release(t, one)
			time.Sleep(10 * oneWay)
			for i, l := range []*redlock.Locker{a, b} {
				got := <-waitAll(t, l, names[3*i:]...)
				require.Equal(t, 2*oneWay, got.took)
				d.enter(got.guard)
				time.Sleep(10 * oneWay)
				for _, owner := range s.owners(got.guard.Names()...) {
					require.Equal(t, got.guard.ID(), owner)
				}
				time.Sleep(3 * lease)
				require.NoError(t, got.guard.Err())
				d.leave(got.guard)
				release(t, got.guard)
				time.Sleep(10 * oneWay)
				for _, owner := range s.owners(names...) {
					require.Empty(t, owner)
				}
			}
		}
		require.Equal(t, 9, d.total)
	})
}

// Names that break a rule are refused at once, with their values, and one name is a lock of that name.
func TestSeveralNamesThatAreRefused(t *testing.T) {
	interleave(t, 3, func(t *testing.T, s *schedule) {
		l := s.open("a")
		ctx := context.Background()
		for _, row := range []struct {
			names []string
			says  string
		}{
			{nil, "0 names are asked for as one lock, it must be from 1 to 64"},
			{make([]string, 65), "65 names are asked for as one lock, it must be from 1 to 64"},
			{[]string{"b", "a", "b"}, `the name "b" is given twice`},
			{[]string{"a", ""}, "the lock's name is empty"},
			{[]string{"a", strings.Repeat("x", 64<<10+1)}, "the lock's name has 65537 bytes"},
		} {
			before := time.Now()
			_, err := l.AcquireAll(ctx, row.names)
			require.ErrorIs(t, err, redlock.ErrInvalidOption)
			require.ErrorContains(t, err, row.says)
			_, err = l.TryAcquireAll(ctx, row.names)
			require.ErrorIs(t, err, redlock.ErrInvalidOption)
			err = l.DoAll(ctx, row.names, func(context.Context) error { panic("it runs") })
			require.ErrorIs(t, err, redlock.ErrInvalidOption)
			require.Equal(t, before, time.Now())
		}
		_, err := l.AcquireAll(ctx, []string{"a", "b"}, redlock.Grace(time.Second))
		require.ErrorIs(t, err, redlock.ErrInvalidOption)
		given := []string{"b", "a"}
		g := tryAll(t, l, given...)
		require.Equal(t, []string{"b", "a"}, given, "it is the caller's")
		require.Equal(t, []string{"a", "b"}, g.Names())
		require.Equal(t, "a, b", g.Name())
		_, err = g.Export()
		require.ErrorIs(t, err, redlock.ErrInvalidOption)
		require.NoError(t, g.Err())
		release(t, g)
		one := tryAll(t, l, "a")
		require.Equal(t, []string{"a"}, one.Names())
		_, err = one.Export()
		require.NoError(t, err, "a lock like any")
		long := tryAll(t, l, strings.Repeat("x", 64<<10), strings.Repeat("y", 64<<10))
		release(t, long)
	})
}

// Programs that take names which overlap, in any order, beside others that take one: never two of one name, nobody waits for ever,
// and nothing is left behind.
func TestSeveralNamesAreExclusiveAndFair(t *testing.T) {
	for _, row := range []struct {
		programs, calls, names, nodes int
		noPushes                      bool
	}{{2, 1, 2, 3, false}, {6, 2, 4, 3, false}, {6, 2, 4, 3, true}, {10, 1, 8, 5, false}, {4, 4, 3, 4, false}} {
		t.Run(fmt.Sprintf("%d programs, %d calls, %d names, %d nodes, no pushes %v", row.programs, row.calls, row.names, row.nodes, row.noPushes), func(t *testing.T) {
			interleave(t, row.nodes, func(t *testing.T, s *schedule) {
				d := newRegister(t)
				const hold = 20 * time.Millisecond
				length := 3 * time.Second
				if testing.Short() || redlock.RaceDetector {
					length = time.Second
				}
				lockers := make([]*redlock.Locker, row.programs)
				for i := range lockers {
					lockers[i] = s.open(fmt.Sprint(i), pushes(!row.noPushes))
				}
				longest := takeTurns(t, lockers, row.calls, length, func(l *redlock.Locker, i, j int) caller {
					r := rand.New(rand.NewPCG(uint64(i), uint64(j)))
					return caller{
						func(ctx context.Context, opts ...redlock.HoldOption) (*redlock.Guard, error) {
							var names []string
							for _, n := range r.Perm(row.names)[:1+r.IntN(min(3, row.names))] {
								names = append(names, fmt.Sprint("n", n))
							}
							return l.AcquireAll(ctx, names, opts...)
						},
						func(g *redlock.Guard) {
							d.enter(g)
							time.Sleep(hold)
							d.leave(g)
						},
					}
				})
				handOver := 16 * oneWay
				if row.noPushes {
					handOver = time.Second // one asking, and more where names come free one by one
				}
				require.GreaterOrEqual(t, d.total, int(length/(hold+handOver)))
				require.Less(t, longest, time.Duration(2+row.programs*row.calls)*(hold+2*handOver))
				time.Sleep(2 * lease)
				for name := range row.names {
					for _, owner := range s.owners(fmt.Sprint("n", name)) {
						require.Empty(t, owner)
					}
				}
			})
		})
	}
}

// Of tries for names that overlap one wins, tick after tick, whatever the order; those that have nothing in common all do.
func TestSimultaneousTriesForSeveralNames(t *testing.T) {
	for _, nodes := range []int{3, 4, 5} {
		for _, noPushes := range []bool{false, true} {
			t.Run(fmt.Sprintf("%d nodes, no pushes %v", nodes, noPushes), func(t *testing.T) {
				interleave(t, nodes, func(t *testing.T, s *schedule) {
					sets := [][]string{{"a", "b"}, {"b", "c"}, {"c", "a"}, {"b", "a"}, {"a"}, {"d", "e"}}
					lockers := make([]*redlock.Locker, len(sets))
					for i := range lockers {
						lockers[i] = s.open(fmt.Sprint(i), validity(10*time.Second), pushes(!noPushes))
					}
					r := rand.New(rand.NewPCG(1, 2))
					d := newRegister(t)
					ticks := 60
					if testing.Short() || redlock.RaceDetector {
						ticks = 15
					}
					for tick := range ticks {
						for i := range lockers {
							for n := range nodes {
								to, from := oneWay+time.Duration(r.IntN(3000))*time.Microsecond, oneWay+time.Duration(r.IntN(3000))*time.Microsecond
								s.link(fmt.Sprint(i), n).Delay(to, from)
							}
						}
						guards := make([]*redlock.Guard, len(sets))
						var wg sync.WaitGroup
						for i, l := range lockers {
							wg.Go(func() {
								g, err := l.TryAcquireAll(context.Background(), sets[i])
								if err != nil {
									if !strings.HasPrefix(err.Error(), "redlock: not locked") {
										t.Error(err)
									}
									return
								}
								guards[i] = g
								d.enter(g)
							})
						}
						wg.Wait()
						overlapping := slices.DeleteFunc(slices.Clone(guards[:5]), func(g *redlock.Guard) bool { return g == nil })
						require.NotEmpty(t, overlapping, "tick %d", tick)
						require.NotNil(t, guards[5], "tick %d: nobody else wants its names", tick)
						for _, g := range guards {
							if g != nil {
								require.NoError(t, g.Err())
								d.leave(g)
								release(t, g)
							}
						}
						time.Sleep(200 * time.Millisecond)
					}
				})
			})
		}
	}
}

// Schedule: x is free and y is held. One waits for both, another for x alone, a third for y: nobody overtakes the first, though x is free
// all the time. When y is given back the first has both, and then the others have theirs at once. It holds for any order of names.
func TestScheduleNobodyOvertakesWhoWaitsForSeveral(t *testing.T) {
	interleave(t, 3, func(t *testing.T, s *schedule) {
		a, b, c, d := s.open("a"), s.open("b"), s.open("c"), s.open("d")
		y := tryAcquire(t, a, "y")
		both := waitAll(t, b, "y", "x")
		time.Sleep(50 * time.Millisecond)
		onlyX, onlyY := waitAll(t, c, "x"), waitAll(t, d, "y")
		time.Sleep(5 * lease)
		require.Empty(t, both)
		require.Empty(t, onlyX, "x is free, and somebody was before us")
		_, err := a.TryAcquire(context.Background(), "x")
		require.ErrorIs(t, err, redlock.ErrNotLocked)
		release(t, y)
		freed := time.Now()
		first := <-both
		require.LessOrEqual(t, time.Since(freed), 6*oneWay)
		time.Sleep(lease)
		require.Empty(t, onlyX)
		require.Empty(t, onlyY)
		release(t, first.guard)
		freed = time.Now()
		gx, gy := <-onlyX, <-onlyY
		require.LessOrEqual(t, time.Since(freed), 6*oneWay)
		release(t, gx.guard)
		release(t, gy.guard)
	})
}

// Schedule: as before, and the first gives up, or its program dies: who waits for x has it at once, or within the time for which the
// dead keep a place.
func TestScheduleWhoWaitsForSeveralLeaves(t *testing.T) {
	for _, dies := range []bool{false, true} {
		interleave(t, 3, func(t *testing.T, s *schedule) {
			a, b, c := s.open("a"), s.open("b"), s.open("c")
			y := tryAcquire(t, a, "y")
			ctx, cancel := context.WithCancel(context.Background())
			defer cancel()
			ended := make(chan error, 1)
			go func() {
				_, err := b.AcquireAll(ctx, []string{"x", "y"})
				ended <- err
			}()
			time.Sleep(50 * time.Millisecond)
			onlyX := waitAll(t, c, "x")
			time.Sleep(lease)
			require.Empty(t, onlyX)
			left := time.Now()
			if dies {
				for i := range 3 {
					s.link("b", i).Silence()
				}
				release(t, (<-onlyX).guard)
				require.LessOrEqual(t, time.Since(left), 2*time.Second)
				cancel()
				<-ended
			} else {
				cancel()
				err := <-ended
				require.ErrorIs(t, err, context.Canceled)
				var held *redlock.HeldError
				require.ErrorAs(t, err, &held)
				require.Equal(t, "y", held.Name)
				require.Equal(t, y.ID(), held.Owner)
				release(t, (<-onlyX).guard)
				require.LessOrEqual(t, time.Since(left), 20*oneWay, "it is woken, and does not wait until it asks by itself")
			}
			release(t, y)
			release(t, tryAll(t, c, "y", "x"))
		})
	}
}

// Schedule: x, y and z are held by three, and one wants them all. Each refusal says who has which, and it gets them when the last is
// free; so does who waits for all in the same Locker.
func TestScheduleRefusalsNameTheNames(t *testing.T) {
	interleave(t, 3, func(t *testing.T, s *schedule) {
		a, b := s.open("a"), s.open("b")
		held := make(map[string]*redlock.Guard)
		for _, name := range []string{"x", "y", "z"} {
			held[name] = tryAcquire(t, a, name)
		}
		_, err := b.TryAcquireAll(context.Background(), []string{"z", "w", "y", "x"})
		require.ErrorIs(t, err, redlock.ErrNotLocked)
		for name, g := range held {
			require.ErrorContains(t, err, fmt.Sprintf("%q: held by %s", name, g.ID()))
		}
		require.NotContains(t, err.Error(), `"w": held`)
		_, err = a.TryAcquireAll(context.Background(), []string{"v", "y"})
		require.ErrorIs(t, err, redlock.ErrNotLocked)
		require.ErrorContains(t, err, `of "y", this Locker itself holds it`)
		there := waitAll(t, b, "z", "w", "y", "x")
		time.Sleep(20 * oneWay)
		here := waitAll(t, a, "x", "z")
		for _, name := range []string{"y", "x", "z"} {
			time.Sleep(lease)
			require.Empty(t, there)
			require.Empty(t, here)
			release(t, held[name])
		}
		first := <-there
		time.Sleep(lease)
		require.Empty(t, here)
		release(t, first.guard)
		release(t, (<-here).guard)
	})
}

// In one Locker calls for names that overlap stand in the order in which they came, in each line, and none waits for one that came later.
func TestSeveralNamesInOneLocker(t *testing.T) {
	interleave(t, 3, func(t *testing.T, s *schedule) {
		l := s.open("a")
		g := tryAll(t, l, "x", "y")
		_, err := l.TryAcquire(context.Background(), "y")
		require.ErrorIs(t, err, redlock.ErrNotLocked)
		require.ErrorContains(t, err, "this Locker itself holds it")
		require.Equal(t, 1, l.Status().Held)
		var calls []<-chan served
		for _, names := range [][]string{{"x"}, {"y", "x"}, {"y"}, {"z", "y"}, {"x", "z"}, {"z"}, {"x", "y", "z"}} {
			calls = append(calls, waitAll(t, l, names...))
			time.Sleep(time.Millisecond)
		}
		time.Sleep(lease)
		for i, c := range calls {
			require.Empty(t, c, i)
		}
		release(t, g)
		d := newRegister(t)
		for _, c := range calls {
			got := <-c
			d.enter(got.guard)
			time.Sleep(20 * time.Millisecond)
			d.leave(got.guard)
			release(t, got.guard)
		}
		require.Equal(t, 0, l.Status().Held)
		require.Equal(t, 0, l.Status().Waiting)
	})
}

// Schedule: one holds x and y, and two calls of its own Locker and two of another wait for one each. All are told at once of the release: those
// of the same Locker are pushed nothing.
func TestScheduleReleaseOfSeveralNamesWakesAll(t *testing.T) {
	interleave(t, 3, func(t *testing.T, s *schedule) {
		for _, host := range []string{"a", "b"} {
			a := s.open(host)
			l := a
			if host == "b" {
				l = s.open("c")
			}
			g := tryAll(t, a, "x", "y")
			calls := []<-chan served{waitAll(t, l, "x"), waitAll(t, l, "y")}
			time.Sleep(lease)
			release(t, g)
			freed := time.Now()
			for _, c := range calls {
				got := <-c
				require.LessOrEqual(t, time.Since(freed), 6*oneWay)
				defer release(t, got.guard)
			}
			for _, c := range calls {
				require.Empty(t, c)
			}
			time.Sleep(lease)
			if host == "a" {
				a.Close()
			}
		}
	})
}

// Schedule: somebody takes one of the names over. The guard ends, of all names, as one that was taken over; the taker has waited for that; the other
// name is free at once.
func TestScheduleOneNameIsTakenOver(t *testing.T) {
	for _, local := range []bool{false, true} {
		interleave(t, 3, func(t *testing.T, s *schedule) {
			a, b := s.open("a"), s.open("b")
			if local {
				b = a
			}
			g := tryAll(t, a, "x", "y")
			taker, err := b.ForceAcquire(context.Background(), "y")
			require.NoError(t, err)
			require.ErrorIs(t, g.Err(), redlock.ErrTakenOver)
			require.Greater(t, taker.FencingToken(), g.FencingToken())
			time.Sleep(4 * oneWay)
			release(t, tryAcquire(t, b, "x"))
			require.NoError(t, taker.Err())
			release(t, taker)
		})
	}
}

// Schedule: y is deleted on one node: its vote is gone, x is still ours there and is not given to anybody by that. It is won back. y is
// deleted on a quorum: the guard ends, and x is free.
func TestScheduleOneNameIsDeleted(t *testing.T) {
	interleave(t, 3, func(t *testing.T, s *schedule) {
		a, b := s.open("a"), s.open("b")
		g := tryAll(t, a, "x", "y")
		time.Sleep(10 * oneWay)
		s.cluster.Node(0).Del("redlock:{y}")
		time.Sleep(5 * oneWay)
		require.NoError(t, g.Err())
		require.Equal(t, []string{g.ID(), ""}, s.owners("x", "y")[:2])
		time.Sleep(lease)
		require.Equal(t, []string{g.ID(), g.ID()}, s.owners("x", "y")[:2])
		require.NoError(t, g.Err())
		s.cluster.Node(0).Del("redlock:{x}")
		s.cluster.Node(1).Del("redlock:{y}")
		time.Sleep(5 * oneWay)
		require.ErrorIs(t, g.Err(), redlock.ErrLost)
		time.Sleep(5 * oneWay)
		require.Equal(t, make([]string, 6), s.owners("x", "y"))
		release(t, tryAll(t, b, "x", "y"))
	})
}

// Schedule: on two nodes of three somebody else has taken x over, who cannot be heard of by the holder yet, and the holder renews: it finds
// that out, but its answers are lost. y must not be given to a third, while the holder counts on it.
func TestScheduleRenewalThatFindsOneNameGoneFreesNone(t *testing.T) {
	interleave(t, 3, func(t *testing.T, s *schedule) {
		a, b := s.open("a"), s.open("b")
		g := tryAll(t, a, "x", "y")
		time.Sleep(10 * oneWay)
		for i := range 3 {
			s.link("a", i).SilenceReplies()
		}
		for i := range 2 {
			left, _ := s.cluster.Node(i).PTTL("redlock:{x}")
			s.cluster.Node(i).Set("redlock:{x}", "taker", left)
		}
		for range 200 {
			time.Sleep(lease / 100)
			rival, err := b.TryAcquire(context.Background(), "y")
			if err == nil {
				require.Error(t, g.Err(), "y is held by two")
				release(t, rival)
				return
			}
		}
		require.Fail(t, "y is never free")
	})
}

// Schedule: a node has another holder of x. The guard lives by the others, and when that one has gone it wins the vote back. At its end
// nothing is left there.
func TestScheduleVoteOfSeveralNamesIsWonBack(t *testing.T) {
	interleave(t, 3, func(t *testing.T, s *schedule) {
		a := s.open("a")
		g := tryAll(t, a, "x", "y")
		time.Sleep(10 * oneWay)
		s.cluster.Node(2).Set("redlock:{x}", "somebody", lease/2)
		time.Sleep(lease / 4)
		require.NoError(t, g.Err())
		require.Equal(t, []string{"somebody", g.ID()}, s.owners("x", "y")[4:])
		time.Sleep(2 * lease)
		require.NoError(t, g.Err())
		require.Equal(t, []string{g.ID(), g.ID()}, s.owners("x", "y")[4:])
		s.cluster.Node(2).Set("redlock:{x}", "somebody", 5*time.Second)
		time.Sleep(lease / 4)
		release(t, g)
		time.Sleep(5 * oneWay)
		require.Equal(t, []string{"somebody", ""}, s.owners("x", "y")[4:], "what was ours is gone, although the vote was not")
	})
}

// AtLeast keeps all names, LockDelay too; Inspect shows the guard as the holder of each.
func TestSeveralNamesAreKeptAndSeen(t *testing.T) {
	interleave(t, 3, func(t *testing.T, s *schedule) {
		ctx := context.Background()
		a, b := s.open("a"), s.open("b")
		g, err := a.TryAcquireAll(ctx, []string{"x", "y"}, redlock.AtLeast(4*lease), redlock.Label("mover"))
		require.NoError(t, err)
		granted := time.Now()
		time.Sleep(10 * oneWay)
		for _, name := range g.Names() {
			line, err := b.Inspect(ctx, name)
			require.NoError(t, err)
			require.Equal(t, g.ID(), line.Holder)
			require.Equal(t, "mover", line.Label)
			require.Equal(t, g.FencingToken(), line.FencingToken)
		}
		release(t, g)
		_, err = b.TryAcquireAll(ctx, []string{"w", "y"})
		require.ErrorIs(t, err, redlock.ErrNotLocked)
		require.ErrorContains(t, err, `"y": not held any more, but kept`)
		one := <-waitAll(t, b, "x")
		require.InDelta(t, 4*lease, time.Since(granted), float64(20*oneWay))
		two := <-waitAll(t, b, "y", "w")
		require.InDelta(t, 4*lease, time.Since(granted), float64(20*oneWay))
		release(t, one.guard)
		release(t, two.guard)
	})
}

// A function runs while the names are held, and they are released when it has returned, or panicked.
func TestDoAll(t *testing.T) {
	interleave(t, 3, func(t *testing.T, s *schedule) {
		a, b := s.open("a"), s.open("b")
		ctx := context.Background()
		require.NoError(t, a.DoAll(ctx, []string{"x", "y"}, func(ctx context.Context) error {
			token, ok := redlock.FencingToken(ctx)
			require.True(t, ok)
			require.NotZero(t, token)
			_, err := b.TryAcquire(ctx, "x")
			require.ErrorIs(t, err, redlock.ErrNotLocked)
			return nil
		}))
		require.Panics(t, func() {
			_ = a.DoAll(ctx, []string{"x", "y"}, func(context.Context) error { panic("it is well") })
		})
		release(t, tryAll(t, b, "x", "y"))
	})
}
