package redlock_test

import (
	"context"
	"fmt"
	"math/rand/v2"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/redlock-go/redlock"
	"github.com/redlock-go/redlock/internal/node"
)

// book is what a resource knows of a reader-writer lock: who reads and who writes now, and the tokens so far.
type book struct {
	t       testing.TB
	mu      sync.Mutex
	inside  map[*redlock.Guard]bool // whether it writes
	most    int                     // readers at a time
	written uint64                  // the largest token of a writer
	any     uint64                  // of anybody
	reads   int
	writes  int
}

func newBook(t testing.TB) *book { return &book{t: t, inside: make(map[*redlock.Guard]bool)} }

// enter has a guard read or write, and asserts that nobody is alive who keeps it out.
func (b *book) enter(g *redlock.Guard, writes bool) {
	b.mu.Lock()
	defer b.mu.Unlock()
	readers := 0
	for o, wrote := range b.inside {
		if !wrote {
			readers++
		}
		if (writes || wrote) && o.Err() == nil && g.Err() == nil {
			b.t.Errorf("%v (writes %v) and %v (writes %v) are both alive", o, wrote, g, writes)
		}
	}
	if token := g.FencingToken(); token <= b.written || writes && token <= b.any {
		b.t.Errorf("token %d (writes %v) after %d of a writer, %d of anybody", token, writes, b.written, b.any)
	}
	b.inside[g] = writes
	b.any = max(b.any, g.FencingToken())
	if writes {
		b.written = g.FencingToken()
		b.writes++
	} else {
		b.most = max(b.most, readers+1)
		b.reads++
	}
}

func (b *book) leave(g *redlock.Guard) {
	b.mu.Lock()
	defer b.mu.Unlock()
	delete(b.inside, g)
}

// tryRead and tryWrite take their part without waiting.
func tryRead(t testing.TB, rw *redlock.RW, opts ...redlock.HoldOption) *redlock.Guard {
	t.Helper()
	g, err := rw.TryRead(context.Background(), opts...)
	require.NoError(t, err)
	return g
}

func tryWrite(t testing.TB, rw *redlock.RW, opts ...redlock.HoldOption) *redlock.Guard {
	t.Helper()
	g, err := rw.TryWrite(context.Background(), opts...)
	require.NoError(t, err)
	return g
}

// Schedule: readers come one after the other, to two programs, and are all there; a writer is refused as long as one of them is.
// Then the writer has it, and a reader is refused. All take one round trip, and leave nothing behind but the counters.
func TestScheduleReadersOrOneWriter(t *testing.T) {
	interleave(t, 3, func(t *testing.T, s *schedule) {
		ctx := context.Background()
		a, b := s.open("a").RW("x"), s.open("b").RW("x")
		time.Sleep(3 * lease) // behind the fence floors of new nodes
		var readers []*redlock.Guard
		for _, rw := range []*redlock.RW{a, a, b, b, b} {
			began := time.Now()
			readers = append(readers, tryRead(t, rw))
			require.Equal(t, 2*oneWay, time.Since(began))
		}
		time.Sleep(3 * lease)
		c := s.open("c").RW("x")
		for _, g := range readers {
			require.NoError(t, g.Err(), "each is extended")
			began := time.Now()
			_, err := c.TryWrite(ctx)
			require.ErrorIs(t, err, redlock.ErrNotLocked)
			require.Less(t, time.Since(began), 10*oneWay)
			_, err = a.TryWrite(ctx)
			require.ErrorIs(t, err, redlock.ErrNotLocked)
			release(t, g)
		}
		time.Sleep(10 * time.Millisecond)
		began := time.Now()
		writer := tryWrite(t, c)
		require.Equal(t, 2*oneWay, time.Since(began))
		for _, g := range readers {
			require.Greater(t, writer.FencingToken(), g.FencingToken())
		}
		for _, rw := range []*redlock.RW{a, b, c} {
			_, err := rw.TryRead(ctx)
			require.ErrorIs(t, err, redlock.ErrNotLocked)
			_, err = rw.TryWrite(ctx)
			require.ErrorIs(t, err, redlock.ErrNotLocked)
		}
		time.Sleep(3 * lease)
		require.NoError(t, writer.Err())
		release(t, writer)
		last := tryRead(t, b)
		require.Greater(t, last.FencingToken(), writer.FencingToken())
		release(t, last)
		time.Sleep(4 * lease)
		for _, n := range s.cluster.Nodes() {
			for _, key := range n.Keys() {
				require.NotContains(t, key, "{x}")
			}
		}
	})
}

// Schedule: readers that come at the same instant, from many programs, are given what they propose: one round trip each.
func TestScheduleReadersAtOnceTakeOneRoundTrip(t *testing.T) {
	interleave(t, 3, func(t *testing.T, s *schedule) {
		var sides []*redlock.RW
		for i := range 8 {
			sides = append(sides, s.open(fmt.Sprint(i)).RW("x"))
		}
		time.Sleep(3 * lease)
		for i := range sides { // so that each node is asked in another order
			for n := range 3 {
				delay := oneWay + time.Duration((i*(n+3))%8)*10*time.Microsecond
				s.link(fmt.Sprint(i), n).Delay(delay, oneWay)
			}
		}
		var calls []<-chan served
		for _, rw := range sides {
			calls = append(calls, waitFor(t, rw.Read))
		}
		for _, came := range calls {
			c := <-came
			require.Less(t, c.took, 3*oneWay)
			defer release(t, c.guard)
		}
	})
}

// Schedule: somebody writes while twenty calls of one program wait to read, and one of another behind them to write. When it lets go all
// twenty read, within three round trips; then the writer has it.
func TestScheduleReadersOfOneProgramEnterTogether(t *testing.T) {
	interleave(t, 3, func(t *testing.T, s *schedule) {
		a, b, c := s.open("a").RW("x"), s.open("b").RW("x"), s.open("c").RW("x")
		writer := tryWrite(t, a)
		var reads []<-chan served
		for range 20 {
			reads = append(reads, waitFor(t, b.Read))
		}
		time.Sleep(20 * time.Millisecond)
		writes := waitFor(t, c.Write)
		time.Sleep(2 * lease)
		release(t, writer)
		freed := time.Now()
		var guards []*redlock.Guard
		for _, came := range reads {
			guards = append(guards, (<-came).guard)
			require.Less(t, time.Since(freed), 6*oneWay)
		}
		require.Empty(t, writes)
		for _, g := range guards {
			release(t, g)
		}
		release(t, (<-writes).guard)
	})
}

// Schedule: a reader holds; a writer, two readers, a writer and a reader come, in this order. They are served in it: those who came
// behind a writer wait although a reader holds, and the two readers that stand next to each other enter together. All within
// three round trips of what they wait for.
func TestScheduleOneLineForReadersAndWriters(t *testing.T) {
	for _, programs := range []int{1, 5} {
		t.Run(fmt.Sprintf("%d programs", programs), func(t *testing.T) {
			interleave(t, 3, func(t *testing.T, s *schedule) {
				var sides []*redlock.RW
				for i := range 5 {
					if i < programs {
						sides = append(sides, s.open(fmt.Sprint(i)).RW("x"))
					} else {
						sides = append(sides, sides[0])
					}
				}
				holder := tryRead(t, sides[0])
				var calls []<-chan served
				for i, writes := range []bool{true, false, false, true, false} {
					if writes {
						calls = append(calls, waitFor(t, sides[i].Write))
					} else {
						calls = append(calls, waitFor(t, sides[i].Read))
					}
					time.Sleep(5 * time.Millisecond)
				}
				_, err := sides[4].TryRead(context.Background())
				require.ErrorIs(t, err, redlock.ErrNotLocked, "a writer waits")
				time.Sleep(3 * lease)
				await := func(came <-chan served, freed time.Time) *redlock.Guard {
					t.Helper()
					g := (<-came).guard
					require.Less(t, time.Since(freed), 7*oneWay)
					return g
				}
				still := func(calls ...<-chan served) {
					t.Helper()
					time.Sleep(2 * lease)
					for _, came := range calls {
						require.Empty(t, came)
					}
				}
				still(calls...)
				release(t, holder)
				first := await(calls[0], time.Now())
				still(calls[1:]...)
				release(t, first)
				freed := time.Now()
				two := []*redlock.Guard{await(calls[1], freed), await(calls[2], freed)}
				still(calls[3:]...)
				release(t, two[0])
				still(calls[3:]...)
				release(t, two[1])
				second := await(calls[3], time.Now())
				still(calls[4])
				release(t, second)
				last := await(calls[4], time.Now())
				require.Greater(t, last.FencingToken(), second.FencingToken())
				require.Greater(t, second.FencingToken(), two[0].FencingToken())
				release(t, last)
			})
		})
	}
}

// Schedule: of two readers one dies. Who wants to read does so at once, who wants to write one lease after the death, where the other
// has gone by then; where it has not, when it goes.
func TestScheduleDeadReaderCostsOneLease(t *testing.T) {
	for _, stays := range []bool{false, true} {
		t.Run(fmt.Sprintf("another stays %v", stays), func(t *testing.T) {
			interleave(t, 3, func(t *testing.T, s *schedule) {
				a, b, c := s.open("a").RW("x"), s.open("b").RW("x"), s.open("c").RW("x")
				tryRead(t, a)
				other := tryRead(t, b)
				died := time.Now()
				for i := range 3 {
					s.link("a", i).Silence()
				}
				release(t, tryRead(t, c))
				came := waitFor(t, c.Write)
				if stays {
					time.Sleep(3 * lease)
					require.Empty(t, came)
					require.NoError(t, other.Err())
					died = time.Now().Add(-lease)
				}
				release(t, other)
				g := (<-came).guard
				require.LessOrEqual(t, time.Since(died), lease+10*time.Millisecond)
				release(t, g)
			})
		})
	}
}

// Schedule: whoever reads wants to write. By a context that comes from the read guard it is refused at once, however many guards of other
// locks are in between; from another, and when the guard has ended, it waits, or gets it.
func TestScheduleUpgradeIsRefused(t *testing.T) {
	interleave(t, 3, func(t *testing.T, s *schedule) {
		l := s.open("a")
		rw := l.RW("x")
		reader := tryRead(t, rw)
		inner, err := l.TryAcquire(reader.Context(), "y")
		require.NoError(t, err)
		for _, ctx := range []context.Context{reader.Context(), inner.Context()} {
			ctx, cancel := context.WithTimeout(ctx, lease)
			defer cancel()
			began := time.Now()
			for call, err := range map[string]error{
				"Write":    second(rw.Write(ctx)),
				"TryWrite": second(l.RW("x").TryWrite(ctx)),
				"WriteDo":  rw.WriteDo(ctx, func(context.Context) error { return nil }),
			} {
				require.ErrorIs(t, err, redlock.ErrUpgrade, call)
				require.NotErrorIs(t, err, redlock.ErrNotLocked, call)
			}
			require.Zero(t, time.Since(began))
			release(t, must(l.RW("z").Write(ctx)))
			release(t, must(rw.Read(ctx)))
		}
		require.ErrorIs(t, rw.ReadDo(context.Background(), func(ctx context.Context) error {
			return rw.WriteDo(ctx, func(context.Context) error { return nil })
		}), redlock.ErrUpgrade)
		waits, cancel := context.WithTimeout(context.Background(), lease)
		defer cancel()
		_, err = rw.Write(waits)
		require.ErrorIs(t, err, context.DeadlineExceeded)
		require.NotErrorIs(t, err, redlock.ErrUpgrade)
		release(t, reader)
		release(t, must(rw.Write(context.WithoutCancel(reader.Context()))))
		release(t, inner)
	})
}

// must is for calls that have to succeed.
func must(g *redlock.Guard, err error) *redlock.Guard {
	if err != nil {
		panic(err)
	}
	return g
}

// Schedule: a writer and a reader wait while somebody writes, who becomes a reader: one round trip, and the reader that waits before
// the writer enters, too. The writer has it when both have gone. No writer has been in between, and tokens say so.
func TestScheduleDowngrade(t *testing.T) {
	interleave(t, 3, func(t *testing.T, s *schedule) {
		ctx := context.Background()
		a, b, c := s.open("a").RW("x"), s.open("b").RW("x"), s.open("c").RW("x")
		time.Sleep(3 * lease)
		writer := tryWrite(t, a, redlock.Label("rebuild"))
		reads := waitFor(t, b.Read)
		time.Sleep(10 * time.Millisecond)
		writes := waitFor(t, c.Write)
		time.Sleep(2 * lease)
		began := time.Now()
		reader, err := writer.Downgrade(ctx, redlock.Label("looks"))
		require.NoError(t, err)
		require.Equal(t, 2*oneWay, time.Since(began))
		require.ErrorIs(t, writer.Err(), redlock.ErrReleased)
		release(t, writer)
		require.Greater(t, reader.FencingToken(), writer.FencingToken())
		other := (<-reads).guard
		require.Less(t, time.Since(began), 8*oneWay)
		time.Sleep(3 * lease)
		require.NoError(t, reader.Err())
		require.Empty(t, writes)
		_, err = reader.Downgrade(ctx)
		require.ErrorIs(t, err, redlock.ErrInvalidOption)
		_, err = a.TryRead(ctx)
		require.ErrorIs(t, err, redlock.ErrNotLocked, "a writer waits")
		release(t, other)
		time.Sleep(lease)
		require.Empty(t, writes)
		release(t, reader)
		next := (<-writes).guard
		require.Greater(t, next.FencingToken(), reader.FencingToken())
		release(t, next)
		_, err = next.Downgrade(ctx)
		require.ErrorIs(t, err, redlock.ErrReleased)
	})
}

// Schedule: the writer's nodes are silent while it becomes a reader. It goes on as a writer, and becomes a reader later. Then its keys are
// deleted while the nodes are asked, so that it is lost before it is a reader: there is no reader.
func TestScheduleDowngradeFails(t *testing.T) {
	interleave(t, 3, func(t *testing.T, s *schedule) {
		ctx := context.Background()
		a, b := s.open("a").RW("x"), s.open("b").RW("x")
		writer := tryWrite(t, a)
		for i := range 2 {
			s.link("a", i).Silence()
		}
		_, err := writer.Downgrade(ctx)
		require.ErrorIs(t, err, redlock.ErrNoQuorum)
		for i := range 2 {
			s.link("a", i).Heal()
		}
		require.NoError(t, writer.Err())
		time.Sleep(lease / 2)
		require.NoError(t, writer.Err())
		_, err = b.TryRead(ctx)
		require.ErrorIs(t, err, redlock.ErrNotLocked)
		reader, err := writer.Downgrade(ctx)
		require.NoError(t, err)
		release(t, tryRead(t, b))
		release(t, reader)

		writer = tryWrite(t, a)
		for i := range 3 {
			s.link("a", i).Delay(100*oneWay, oneWay) // the questions are long on their way
		}
		time.AfterFunc(10*oneWay, func() {
			for _, n := range s.cluster.Nodes() {
				n.Del(node.WriterKey("redlock", "x"))
			}
			release(t, tryWrite(t, b))
		})
		_, err = writer.Downgrade(ctx)
		require.ErrorIs(t, err, redlock.ErrLost)
		require.ErrorIs(t, writer.Err(), redlock.ErrLost)
		time.Sleep(lease)
		release(t, tryWrite(t, b))

		kept := tryWrite(t, b, redlock.AtLeast(lease))
		_, err = kept.Downgrade(ctx)
		require.ErrorIs(t, err, redlock.ErrInvalidOption)
		require.NoError(t, kept.Err())
		release(t, kept)
		_, err = b.TryRead(ctx)
		require.ErrorIs(t, err, redlock.ErrNotLocked, "it is kept")
		time.Sleep(lease)
		release(t, tryRead(t, b))
	})
}

// Schedule: node 2 loses the key of a reader, and the writer that asks has its vote there. The reader does not win it back meanwhile, and goes
// on with the others; it does when the writer has let go. The other way round the reader is first, and the writer has no vote.
func TestScheduleReaderRegainsWhileAWriterCollects(t *testing.T) {
	for _, readerFirst := range []bool{false, true} {
		t.Run(fmt.Sprintf("reader first %v", readerFirst), func(t *testing.T) {
			interleave(t, 3, func(t *testing.T, s *schedule) {
				a, b := s.open("a").RW("x"), s.open("b").RW("x")
				reader := tryRead(t, a)
				key, writer := node.ReaderKey("redlock", "x", reader.Owner()), node.WriterKey("redlock", "x")
				s.cluster.Node(2).Del(key)
				if readerFirst {
					time.Sleep(lease / 2)
					require.Equal(t, 3, reader.Votes())
					_, err := b.TryWrite(context.Background())
					require.ErrorIs(t, err, redlock.ErrNotLocked)
				} else {
					s.cluster.Node(2).Set(writer, "SOMEBODYELSEWHOISAWRITER0000", 2*lease)
					time.Sleep(3 * lease / 2)
					require.Equal(t, 2, reader.Votes())
					_, stored := s.cluster.Node(2).Get(key)
					require.False(t, stored)
					time.Sleep(lease)
					require.Equal(t, 3, reader.Votes())
				}
				release(t, reader)
			})
		})
	}
}

// Schedule: somebody deletes the index on all nodes, and a writer comes in. The reader finds it there and ends; the writer goes on. Where no
// writer has come the reader's renewal has put it back.
func TestScheduleDeletedIndex(t *testing.T) {
	interleave(t, 3, func(t *testing.T, s *schedule) {
		a, b := s.open("a").RW("x"), s.open("b").RW("x")
		reader := tryRead(t, a)
		drop := func() {
			for _, n := range s.cluster.Nodes() {
				n.Del(node.ReadersKey("redlock", "x"))
			}
		}
		drop()
		time.Sleep(lease / 2)
		_, err := b.TryWrite(context.Background())
		require.ErrorIs(t, err, redlock.ErrNotLocked)
		drop()
		writer := tryWrite(t, b)
		time.Sleep(lease)
		require.ErrorIs(t, reader.Err(), redlock.ErrLost)
		require.NoError(t, writer.Err())
		release(t, writer)
	})
}

// Schedule: of two readers with leases of their own the one with the longer dies, the other is extended for a while and goes. The index does not end
// before the dead one's key: a writer waits for that.
func TestScheduleIndexOutlivesEveryReader(t *testing.T) {
	interleave(t, 3, func(t *testing.T, s *schedule) {
		long := func(o *redlock.LockerOption) { o.MaxKeyValidity = 4 * lease }
		a, b, c := s.open("a", long).RW("x"), s.open("b", long).RW("x"), s.open("c", long).RW("x")
		tryRead(t, a, redlock.Lease(4*lease))
		began := time.Now()
		other := tryRead(t, b)
		for i := range 3 {
			s.link("a", i).Silence()
		}
		came := waitFor(t, c.Write)
		time.Sleep(10 * time.Millisecond)
		for time.Since(began) < 39*lease/10 {
			for _, n := range s.cluster.Nodes() {
				left, ok := n.PTTL(node.ReadersKey("redlock", "x"))
				require.True(t, ok)
				require.GreaterOrEqual(t, left, 4*lease-time.Since(began)-5*time.Millisecond) // the node counts from when it was asked, in whole milliseconds
			}
			require.Empty(t, came)
			if time.Since(began) > 2*lease && other != nil {
				release(t, other)
				other = nil
			}
			time.Sleep(lease / 5)
		}
		last := <-came
		require.InDelta(t, 4*lease, last.took, float64(10*time.Millisecond))
		release(t, last.guard)
	})
}

// Programs that read and write over and over: never a reader beside a writer, never two writers; readers read together; nobody waits for much
// longer than it takes to serve those before it.
func TestReadersAndWritersAreFair(t *testing.T) {
	for _, row := range []struct{ readers, writers, calls, nodes int }{{6, 1, 1, 3}, {2, 6, 1, 3}, {12, 3, 1, 5}, {3, 2, 4, 3}} {
		t.Run(fmt.Sprintf("%d readers, %d writers, %d calls, %d nodes", row.readers, row.writers, row.calls, row.nodes), func(t *testing.T) {
			interleave(t, row.nodes, func(t *testing.T, s *schedule) {
				b := newBook(t)
				const hold, length = 20 * time.Millisecond, 3 * time.Second
				var lockers []*redlock.Locker
				for i := range row.readers + row.writers {
					lockers = append(lockers, s.open(fmt.Sprint(i)))
				}
				longest := takeTurns(t, lockers, row.calls, length, func(l *redlock.Locker, i, _ int) caller {
					r := rand.New(rand.NewPCG(uint64(i), 1))
					rw, writes := l.RW("x"), i >= row.readers
					acquire := rw.Read
					if writes {
						acquire = rw.Write
					}
					return caller{acquire, func(g *redlock.Guard) {
						b.enter(g, writes)
						time.Sleep(hold/2 + time.Duration(r.Int64N(int64(hold))))
						b.leave(g)
					}}
				})
				const turn = 3*hold/2 + 12*oneWay
				// Before each there are at most all writers, and a group of readers before each of them.
				require.Less(t, longest, time.Duration(2*row.writers*row.calls+2)*turn)
				require.GreaterOrEqual(t, b.most, min(row.readers*row.calls, 3))
				require.Greater(t, b.writes, int(length/turn)/(2*row.writers*row.calls+2))
			})
		})
	}
}

// Schedule: each node has another reader, with an older ticket. They would let each other in, so whoever tries to write is refused by the
// first answers, and does not wait for one of them to have a quorum.
func TestScheduleToAWriterReadersAreOne(t *testing.T) {
	interleave(t, 3, func(t *testing.T, s *schedule) {
		rw := s.open("a").RW("x")
		for i, n := range s.cluster.Nodes() {
			reader := "r" + strings.Repeat(string(rune('A'+i)), 25)
			n.Set(node.ReaderKey("redlock", "x", reader), reader+"#5", lease)
			n.Do("ZADD", node.ReadersKey("redlock", "x"), "1", reader)
		}
		began := time.Now()
		_, err := rw.TryWrite(context.Background())
		require.ErrorIs(t, err, redlock.ErrNotLocked)
		require.Equal(t, 2*oneWay, time.Since(began))
		time.Sleep(lease)
		release(t, tryWrite(t, rw))
	})
}

// Of tries that meet readers or one writer win, tick after tick, with pushes and without.
func TestSimultaneousTriesToReadAndWrite(t *testing.T) {
	for _, row := range []struct{ readers, writers, nodes int }{{3, 0, 3}, {0, 3, 3}, {2, 1, 3}, {3, 3, 5}, {4, 2, 4}} {
		for _, noPushes := range []bool{false, true} {
			t.Run(fmt.Sprintf("%d readers, %d writers, %d nodes, no pushes %v", row.readers, row.writers, row.nodes, noPushes), func(t *testing.T) {
				interleave(t, row.nodes, func(t *testing.T, s *schedule) {
					var sides []*redlock.RW
					for i := range row.readers + row.writers {
						sides = append(sides, s.open(fmt.Sprint(i), pushes(!noPushes)).RW("x"))
					}
					r := rand.New(rand.NewPCG(1, 2))
					jitter := func() time.Duration { return 300*time.Microsecond + time.Duration(r.Int64N(3_000_000)) }
					for range 30 {
						for i := range sides {
							for n := range row.nodes {
								s.link(fmt.Sprint(i), n).Delay(jitter(), jitter())
							}
						}
						var mu sync.Mutex
						var wg sync.WaitGroup
						b := newBook(t)
						var guards []*redlock.Guard
						for i, rw := range sides {
							wg.Go(func() {
								try, writes := rw.TryRead, i >= row.readers
								if writes {
									try = rw.TryWrite
								}
								g, err := try(context.Background())
								mu.Lock()
								defer mu.Unlock()
								if err != nil {
									if !strings.Contains(err.Error(), "not locked") {
										t.Error(err)
									}
									return
								}
								b.enter(g, writes)
								guards = append(guards, g)
							})
						}
						wg.Wait()
						require.NotEmpty(t, guards)
						if row.writers == 0 {
							require.Len(t, guards, row.readers)
						}
						for _, g := range guards {
							release(t, g)
						}
						time.Sleep(20 * time.Millisecond)
					}
				})
			})
		}
	}
}

// Who reads and who writes is held as a lock is: labelled, ended by its time, kept, seen, and not to be exported.
func TestReadersAndWritersAreHeldLikeLocks(t *testing.T) {
	interleave(t, 3, func(t *testing.T, s *schedule) {
		ctx := context.Background()
		l := s.open("a")
		rw := l.RW("x")
		one, two := tryRead(t, rw, redlock.Label("one")), tryRead(t, rw, redlock.Label("two"), redlock.AtMost(lease/2))
		came := waitFor(t, rw.Write)
		time.Sleep(20 * time.Millisecond)
		line, err := rw.Inspect(ctx)
		require.NoError(t, err)
		require.Empty(t, line.Holder)
		require.Equal(t, 1, line.Waiters)
		require.Equal(t, 1, line.Position)
		require.Len(t, line.Readers, 2)
		labels := map[string]string{line.Readers[0].Holder: line.Readers[0].Label, line.Readers[1].Holder: line.Readers[1].Label}
		require.Equal(t, map[string]string{one.ID(): "one", two.ID(): "two"}, labels)
		require.GreaterOrEqual(t, line.Readers[0].FencingToken, one.FencingToken())
		require.LessOrEqual(t, line.Readers[1].Left, lease)

		require.Zero(t, one.Slot())
		require.Equal(t, "x", one.Name())
		_, err = one.Export()
		require.ErrorIs(t, err, redlock.ErrInvalidOption)
		plain, err := l.Inspect(ctx, "x")
		require.NoError(t, err)
		require.Equal(t, redlock.Line{}, plain, "a lock of the same name is another matter")
		release(t, tryAcquire(t, l, "x"))
		release(t, take(t, l.Semaphore("x", 1)))

		<-two.Done()
		require.ErrorIs(t, two.Err(), redlock.ErrHeldTooLong)
		require.Empty(t, came)
		release(t, one)
		writer := (<-came).guard
		line, err = rw.Inspect(ctx)
		require.NoError(t, err)
		require.Equal(t, writer.ID(), line.Holder)
		require.Equal(t, writer.FencingToken(), line.FencingToken)
		require.Empty(t, line.Readers)
		release(t, writer)

		for _, who := range []string{"one", "two"} {
			release(t, tryRead(t, rw, redlock.AtLeast(3*lease), redlock.Label(who)))
		}
		release(t, tryRead(t, rw))
		time.Sleep(20 * time.Millisecond)
		line, err = rw.Inspect(ctx)
		require.NoError(t, err)
		require.Len(t, line.Readers, 2, "each keeps writers out, although nobody reads any more")
		for _, reader := range line.Readers {
			require.True(t, reader.Kept)
			require.Empty(t, reader.Holder)
		}
		require.ElementsMatch(t, []string{"one", "two"}, []string{line.Readers[0].Label, line.Readers[1].Label})
		time.Sleep(2 * lease)
		_, err = rw.TryWrite(ctx)
		require.ErrorIs(t, err, redlock.ErrNotLocked, "what a reader keeps is kept from writers")
		require.ErrorContains(t, err, "kept for")
		time.Sleep(lease)

		ran := 0
		run := func(ctx context.Context) error {
			if _, ok := redlock.FencingToken(ctx); ok {
				ran++
			}
			return ctx.Err()
		}
		require.NoError(t, rw.ReadDo(ctx, run))
		require.NoError(t, rw.WriteDo(ctx, run))
		require.Equal(t, 2, ran)
		for call, err := range map[string]error{
			"Read": second(l.RW("").Read(ctx)), "TryRead": second(l.RW("").TryRead(ctx)), "Write": second(l.RW("").Write(ctx)),
			"TryWrite": second(l.RW("").TryWrite(ctx)), "ReadDo": l.RW("").ReadDo(ctx, run), "WriteDo": l.RW("").WriteDo(ctx, run),
			"Inspect": second(l.RW("").Inspect(ctx)), "Grace": second(rw.Write(ctx, redlock.Grace(time.Second))),
			"Downgrade": second(tryAcquire(t, l, "y").Downgrade(ctx)),
		} {
			require.ErrorIs(t, err, redlock.ErrInvalidOption, call)
		}
		none := (*redlock.Locker)(nil).RW("x")
		for _, err := range []error{second(none.Read(ctx)), second(none.TryRead(ctx)), second(none.Write(ctx)), second(none.TryWrite(ctx)), second(none.Inspect(ctx))} {
			require.ErrorIs(t, err, redlock.ErrLockerClosed)
		}
	})
}
