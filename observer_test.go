package redlock_test

import (
	"cmp"
	"context"
	"errors"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/redlock-go/redlock"
	"github.com/redlock-go/redlock/internal/redisproc/redistest"
	"github.com/redlock-go/redlock/redlocktest"
)

// recorder is an Observer that keeps what it is told.
type recorder struct {
	mu     sync.Mutex
	events []redlock.Event
	traced int // events whose context is a call's
}

type traceKey struct{}

func (r *recorder) Observe(ctx context.Context, e redlock.Event) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.events = append(r.events, e)
	if ctx.Value(traceKey{}) != nil {
		r.traced++
	}
}

// take returns the events of some kinds so far, and forgets all.
func (r *recorder) take(kinds ...redlock.EventKind) []redlock.Event {
	synctest.Wait()
	r.mu.Lock()
	defer r.mu.Unlock()
	taken := slices.DeleteFunc(r.events, func(e redlock.Event) bool { return !slices.Contains(kinds, e.Kind) })
	r.events = nil
	return taken
}

// calls returns how many events had the context of a call.
func (r *recorder) calls() int {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.traced
}

func TestObserver(t *testing.T) {
	simulated(t, 3, func(t *testing.T, c *redlocktest.Cluster, open opener) {
		var r recorder
		l := open("a", func(o *redlock.LockerOption) { o.Observer = &r })
		other := open("b")
		ctx := context.WithValue(context.Background(), traceKey{}, true)
		for i := range 3 {
			c.Node(i).Delay(5*time.Millisecond, 5*time.Millisecond)
		}

		g, err := l.Acquire(ctx, "x")
		require.NoError(t, err)
		time.Sleep(100 * time.Millisecond)
		e := r.take(redlock.EventGranted, redlock.EventRefused, redlock.EventEnded)
		require.Len(t, e, 1)
		require.Equal(t, redlock.Event{Kind: redlock.EventGranted, Name: "x", Token: g.FencingToken(), Took: e[0].Took}, e[0])
		require.GreaterOrEqual(t, e[0].Took, 10*time.Millisecond)
		require.Equal(t, 1, r.calls())

		time.Sleep(2 * time.Second) // renewals
		extended := r.take(redlock.EventAnswered)
		require.GreaterOrEqual(t, len(extended), 9, "three nodes, renewed every third of a second")
		for _, e := range extended {
			require.Equal(t, "extend", e.Step)
			require.NoError(t, e.Err)
			require.GreaterOrEqual(t, e.Took, 10*time.Millisecond)
			require.Contains(t, []string{c.Node(0).Addr(), c.Node(1).Addr(), c.Node(2).Addr()}, e.Node)
		}

		_, err = l.TryAcquire(ctx, "x")
		require.ErrorIs(t, err, redlock.ErrNotLocked)
		e = r.take(redlock.EventGranted, redlock.EventRefused, redlock.EventEnded)
		require.Len(t, e, 1)
		require.Equal(t, redlock.EventRefused, e[0].Kind)
		require.ErrorIs(t, e[0].Err, redlock.ErrNotLocked)

		release(t, g)
		e = r.take(redlock.EventGranted, redlock.EventRefused, redlock.EventEnded)
		require.Len(t, e, 1)
		require.Equal(t, redlock.EventEnded, e[0].Kind)
		require.ErrorIs(t, e[0].Err, redlock.ErrReleased)
		require.Equal(t, g.FencingToken(), e[0].Token)
		require.GreaterOrEqual(t, e[0].Took, 2*time.Second)

		// A loss, and a node that is silent.
		g = tryAcquire(t, l, "x")
		r.take()
		c.Node(2).Silence()
		time.Sleep(2 * time.Second)
		failed := slices.ContainsFunc(r.take(redlock.EventAnswered), func(e redlock.Event) bool {
			var ne *redlock.NodeError
			return e.Node == c.Node(2).Addr() && errors.As(e.Err, &ne) && ne.Addr == e.Node
		})
		require.True(t, failed, "the silent node's steps fail")
		taken, err := other.ForceAcquire(context.Background(), "x")
		require.NoError(t, err)
		e = r.take(redlock.EventGranted, redlock.EventRefused, redlock.EventEnded)
		require.Len(t, e, 1)
		require.ErrorIs(t, e[0].Err, redlock.ErrTakenOver)
		require.ErrorIs(t, g.Err(), redlock.ErrTakenOver)

		_, err = l.TryAcquire(ctx, "x") // refused by nodes: nothing was held, nothing has ended
		require.ErrorIs(t, err, redlock.ErrNotLocked)
		require.Len(t, r.take(redlock.EventGranted, redlock.EventRefused, redlock.EventEnded), 1)
		release(t, taken)

		// Every way in is seen, each call once.
		require.NoError(t, l.Do(ctx, "y", func(context.Context) error { return nil }))
		forced, err := l.ForceAcquireNow(ctx, "z")
		require.NoError(t, err)
		l.Close()
		require.ErrorIs(t, forced.Err(), redlock.ErrLockerClosed)
		e = r.take(redlock.EventGranted, redlock.EventRefused, redlock.EventEnded)
		require.Len(t, e, 4)
		require.ErrorIs(t, e[3].Err, redlock.ErrLockerClosed)
		require.Equal(t, "ended", e[3].Kind.String())
	})
}

// observe opens a Locker with an Observer of its own.
func (s *schedule) observe(host string, options ...optionFunc) (*redlock.Locker, *recorder) {
	s.Helper()
	var r recorder
	return s.open(host, append(options, func(o *redlock.LockerOption) { o.Observer = &r })...), &r
}

// A call that does not get its lock at once is told to wait once, however long it does and wherever it stands in line.
func TestObserverIsToldOfWaits(t *testing.T) {
	interleave(t, 3, func(t *testing.T, s *schedule) {
		l, r := s.observe("a")
		holder := tryAcquire(t, s.open("b"), "x")
		ctx := context.WithValue(context.Background(), traceKey{}, true)
		for range 3 { // the third speaks to no node while it waits
			afterward(t, func() {
				g, err := l.Acquire(ctx, "x")
				assert.NoError(t, err)
				g.Release(context.Background())
			})
			time.Sleep(10 * oneWay)
		}
		time.Sleep(3 * lease)
		e := r.take(redlock.EventWaiting, redlock.EventGranted, redlock.EventSplit)
		require.Len(t, e, 3)
		for _, e := range e {
			require.Equal(t, redlock.EventWaiting, e.Kind)
			require.Equal(t, "x", e.Name)
			require.LessOrEqual(t, e.Took, 10*oneWay)
		}
		require.Equal(t, 3, r.calls())
		release(t, holder)
		time.Sleep(lease)
		require.Len(t, r.take(redlock.EventGranted), 3)

		release(t, acquire(t, l, "y"))
		require.Empty(t, r.take(redlock.EventWaiting), "it was free")
	})
}

// Each try gets the vote of another node first. That is told as a split, and one of them has the lock in the end.
func TestObserverIsToldOfSplits(t *testing.T) {
	interleave(t, 3, func(t *testing.T, s *schedule) {
		var won atomic.Int32
		var told []*recorder
		for i, host := range []string{"a", "b", "c"} {
			l, r := s.observe(host)
			told = append(told, r)
			for node := range 3 {
				if node != i {
					s.link(host, node).Delay(10*oneWay, oneWay)
				}
			}
			afterward(t, func() {
				time.Sleep(time.Until(time.Now().Truncate(lease).Add(lease))) // all at once
				_, err := l.TryAcquire(context.Background(), "x")
				if err == nil {
					won.Add(1)
				} else {
					assert.ErrorIs(t, err, redlock.ErrNotLocked)
				}
			})
		}
		time.Sleep(4 * lease)
		require.EqualValues(t, 1, won.Load())
		splits := 0
		for _, r := range told {
			for _, e := range r.take(redlock.EventSplit) {
				splits++
				require.ErrorIs(t, e.Err, redlock.ErrNotLocked)
				require.Positive(t, e.Took)
			}
		}
		require.Positive(t, splits)
	})
}

// Each round of renewals is told once, with how much later than due a quorum of them has come: a round trip where all is
// well, more where nodes are slow, and what is retried is late from the time it was due.
func TestObserverIsToldOfExtensionsAndTheirLag(t *testing.T) {
	interleave(t, 3, func(t *testing.T, s *schedule) {
		l, r := s.observe("a", interval(lease/4))
		g := tryAcquire(t, l, "x")
		r.take()
		extended := func(d time.Duration) []redlock.Event {
			t.Helper()
			time.Sleep(d)
			e := r.take(redlock.EventExtended)
			require.InDelta(t, float64(d)/float64(lease/4), len(e), 2, "some jitter")
			for _, e := range e {
				require.Equal(t, redlock.Event{Kind: redlock.EventExtended, Name: "x", Token: g.FencingToken(), Took: e.Took}, e)
			}
			return e
		}
		usually := func(events []redlock.Event, least time.Duration) { // but for a look that came before it was due
			t.Helper()
			late := 0
			for _, e := range events {
				if e.Took >= least {
					late++
				}
			}
			require.Greater(t, late, len(events)/2)
		}
		e := extended(5 * lease)
		usually(e, 2*oneWay)
		for _, e := range e {
			require.LessOrEqual(t, e.Took, 4*oneWay)
		}
		s.link("a", 0).Silence() // one of three is not waited for
		for _, e := range extended(5 * lease) {
			require.LessOrEqual(t, e.Took, 4*oneWay)
		}
		s.link("a", 1).Delay(50*oneWay, 50*oneWay)
		time.Sleep(lease / 2)
		r.take()
		e = extended(5 * lease)
		usually(e, 100*oneWay-lease/4/16) // it may be sent a sixteenth of the interval too early
		for _, e := range e {
			require.LessOrEqual(t, e.Took, 104*oneWay+lease/4/16)
		}

		// Once nodes have been away, their votes are renewed at other times than the others'. That is no lag.
		s.link("a", 0).Heal()
		s.link("a", 1).Delay(oneWay, oneWay)
		for range 5 {
			time.Sleep(lease / 3)
			s.link("a", 2).Silence()
			time.Sleep(lease / 3)
			s.link("a", 2).Heal()
		}
		time.Sleep(lease)
		r.take()
		for _, e := range extended(5 * lease) {
			require.LessOrEqual(t, e.Took, 4*oneWay)
		}
		s.link("a", 0).Silence()

		// No quorum answers for a while: the round that succeeds after that is late by that.
		time.Sleep(lease / 2)
		r.take()
		s.link("a", 1).Silence()
		time.Sleep(lease / 2)
		s.link("a", 1).Heal()
		time.Sleep(lease / 4)
		require.NoError(t, g.Err())
		late := slices.MaxFunc(r.take(redlock.EventExtended), func(a, b redlock.Event) int { return cmp.Compare(a.Took, b.Took) })
		require.GreaterOrEqual(t, late.Took, lease/8)
		require.LessOrEqual(t, late.Took, lease)
	})
}

// The end of a risk is told for each beginning, be it that the lock is well again or gone.
func TestObserverIsToldOfRisks(t *testing.T) {
	interleave(t, 5, func(t *testing.T, s *schedule) {
		l, r := s.observe("a")
		g := tryAcquire(t, l, "x")
		time.Sleep(lease)
		require.Empty(t, r.take(redlock.EventAtRisk, redlock.EventRiskOver))
		for i := range 2 {
			s.link("a", i).Silence()
		}
		time.Sleep(lease)
		e := r.take(redlock.EventAtRisk, redlock.EventRiskOver)
		require.Len(t, e, 1)
		require.Equal(t, redlock.EventAtRisk, e[0].Kind)
		require.Equal(t, g.FencingToken(), e[0].Token)
		require.ErrorIs(t, e[0].Err, redlock.ErrAtRisk)
		require.ErrorContains(t, e[0].Err, "hangs by one vote")
		<-g.AtRisk() // who asks only now is told, too
		changed, why := g.Risk()
		require.Equal(t, e[0].Err, why)

		for i := range 2 {
			s.link("a", i).Heal()
		}
		<-changed
		requireOpen(t, g.AtRisk())
		e = r.take(redlock.EventAtRisk, redlock.EventRiskOver)
		require.Len(t, e, 1)
		require.Equal(t, redlock.EventRiskOver, e[0].Kind)
		require.NoError(t, e[0].Err)
		require.GreaterOrEqual(t, e[0].Took, lease/10)

		for i := range 5 {
			s.link("a", i).Silence()
		}
		<-g.Done()
		e = r.take(redlock.EventAtRisk, redlock.EventRiskOver, redlock.EventEnded)
		require.Len(t, e, 3, "at risk, lost, and at risk no more")
		for _, e := range e {
			if e.Kind != redlock.EventAtRisk {
				require.ErrorIs(t, e.Err, redlock.ErrLost)
			}
		}
	})
}

// What a release came to is told, beside the end of the lock.
func TestObserverIsToldOfReleases(t *testing.T) {
	interleave(t, 3, func(t *testing.T, s *schedule) {
		l, r := s.observe("a")
		g := tryAcquire(t, l, "x")
		r.take()
		release(t, g)
		release(t, g) // a repeat is none
		e := r.take(redlock.EventReleased)
		require.Equal(t, []redlock.Event{{Kind: redlock.EventReleased, Name: "x", Token: g.FencingToken(), Took: 2 * oneWay}}, e)

		g = tryAcquire(t, l, "x")
		for i := range 2 {
			s.link("a", i).Silence()
		}
		err := g.Release(context.Background())
		require.ErrorIs(t, err, redlock.ErrNoQuorum)
		e = r.take(redlock.EventReleased)
		require.Len(t, e, 1)
		require.Equal(t, err, e[0].Err)
		require.Equal(t, lease/4, e[0].Took, "NodeTimeout")
	})
}

// A lock that is resumed is one that was granted, and its exporter's has ended.
func TestObserverIsToldOfHandovers(t *testing.T) {
	interleave(t, 3, func(t *testing.T, s *schedule) {
		a, from := s.observe("a")
		b, to := s.observe("b")
		_, exported := s.export(a)
		e := from.take(redlock.EventEnded)
		require.Len(t, e, 1)
		require.ErrorIs(t, e[0].Err, redlock.ErrExported)
		g, err := b.Resume(context.Background(), exported)
		require.NoError(t, err)
		e = to.take(redlock.EventGranted)
		require.Len(t, e, 1)
		require.Equal(t, g.FencingToken(), e[0].Token)
		_, err = a.Resume(context.Background(), exported)
		require.ErrorIs(t, err, redlock.ErrExportUsed)
		require.ErrorIs(t, from.take(redlock.EventRefused)[0].Err, redlock.ErrExportUsed)
	})
}

func TestEventKindsHaveNames(t *testing.T) {
	named := make(map[string]bool)
	for kind := redlock.EventGranted; kind <= redlock.EventRoster; kind++ {
		named[kind.String()] = true
	}
	require.Len(t, named, int(redlock.EventRoster))
	require.NotContains(t, named, "unknown")
	require.Equal(t, "unknown", (redlock.EventRoster + 1).String())
	require.Equal(t, "unknown", redlock.EventKind(0).String())
}

// Without an Observer a lock allocates what it did before Observers were told of waits, risks and renewals. Nothing of the nodes is
// counted: they are processes.
func TestObserverCostsNothingWhenUnset(t *testing.T) {
	if redlock.RaceDetector {
		t.Skip("the race detector allocates")
	}
	nodes := startNodes(t, 3)
	pairs := func(options ...optionFunc) float64 {
		l := newLocker(t, redistest.Options(nodes), options...)
		defer l.Close()
		acquireOnAll(t, l, nodes, "x")
		return testing.AllocsPerRun(300, func() {
			g, err := l.TryAcquire(context.Background(), "y")
			require.NoError(t, err)
			require.NoError(t, g.Release(context.Background()))
		})
	}
	const before = 31                       // measured at the commit before Observer had a say in guards, 30 or 31
	unset := min(pairs(), pairs(), pairs()) // on a busy machine answers come apart, and each costs
	set := pairs(func(o *redlock.LockerOption) { o.Observer = new(recorder) })
	t.Logf("an acquire and a release: %v allocations, %v with an Observer", unset, set)
	require.LessOrEqual(t, unset, float64(before))
	require.Greater(t, set, unset+5, "an Observer is seen")
}

// The version of the set's record is told when it is read, and once for each change.
func TestObserverIsToldOfRosters(t *testing.T) {
	interleave(t, 3, func(t *testing.T, s *schedule) {
		l, r := s.observe("a")
		time.Sleep(2 * lease)
		first := r.take(redlock.EventRoster)
		require.Len(t, first, 1)
		require.Equal(t, l.Status().Roster, first[0].Roster)
		require.Equal(t, "roster", first[0].Kind.String())
		release(t, tryAcquire(t, l, "x"))

		b := s.open("b")
		require.NoError(t, b.SetNodes(s.within(time.Minute), redlock.NodeSet{LongestLease: 2 * lease}))
		time.Sleep(lease)
		second := r.take(redlock.EventRoster)
		require.Len(t, second, 1)
		require.Equal(t, first[0].Roster+1, second[0].Roster)
	})
}
