package gocronlock_test

import (
	"context"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/go-co-op/gocron/v2"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/redlock-go/redlock"
	"github.com/redlock-go/redlock/gocronlock"
	"github.com/redlock-go/redlock/internal/redisproc"
	"github.com/redlock-go/redlock/internal/redisproc/redistest"
)

// newLocker is the Locker of one of several programs with the same jobs.
func newLocker(t *testing.T, nodes []*redisproc.Node) *redlock.Locker {
	t.Helper()
	l, err := redlock.NewLocker(redlock.LockerOption{Nodes: redistest.Options(nodes), KeyValidity: 3 * time.Second, RestartQuarantine: -1})
	require.NoError(t, err)
	t.Cleanup(l.Close)
	return l
}

// schedule runs a job every so often.
func schedule(t *testing.T, every time.Duration, job func(), option gocron.SchedulerOption) gocron.Scheduler {
	t.Helper()
	s, err := gocron.NewScheduler(option)
	require.NoError(t, err)
	_, err = s.NewJob(gocron.DurationJob(every), gocron.NewTask(job), gocron.WithName("purge"))
	require.NoError(t, err)
	s.Start()
	t.Cleanup(func() { s.Shutdown() })
	return s
}

const every = 300 * time.Millisecond

// Three programs whose schedulers differ by a third of a tick: each tick is one program's, and never two at a time.
func TestLockerRunsEachTickOnce(t *testing.T) {
	nodes := redistest.StartSet(t, 3, redisproc.Options{})
	const atLeast = 200 * time.Millisecond
	var runs, running atomic.Int32
	begin := time.Now()
	var schedulers []gocron.Scheduler
	for range 3 {
		job := func() {
			assert.EqualValues(t, 1, running.Add(1), "two at a time")
			time.Sleep(5 * time.Millisecond)
			running.Add(-1)
			runs.Add(1)
		}
		schedulers = append(schedulers, schedule(t, every, job, gocron.WithDistributedLocker(
			gocronlock.NewLocker(newLocker(t, nodes), redlock.AtLeast(atLeast)))))
		time.Sleep(every / 6)
	}
	require.Eventually(t, func() bool { return runs.Load() >= 5 }, 20*time.Second, time.Millisecond)
	for _, s := range schedulers {
		require.NoError(t, s.Shutdown())
	}
	// Each run keeps the lock for AtLeast, so there cannot be more than that; three programs would have had three times as many.
	require.LessOrEqual(t, int(runs.Load()), int(time.Since(begin)/atLeast)+1)
}

// Without AtLeast jobs still are not run two at a time, and a job whose lock cannot be had is skipped.
func TestLockerSkipsWhatAnotherProgramDoes(t *testing.T) {
	nodes := redistest.StartSet(t, 3, redisproc.Options{})
	another := newLocker(t, nodes)
	guard, err := another.Acquire(context.Background(), "purge")
	require.NoError(t, err)
	var runs atomic.Int32
	l := gocronlock.NewLocker(newLocker(t, nodes))
	schedule(t, every/10, func() { runs.Add(1) }, gocron.WithDistributedLocker(l))
	time.Sleep(every)
	require.Zero(t, runs.Load())
	_, err = l.Lock(context.Background(), "purge")
	require.ErrorIs(t, err, redlock.ErrNotLocked)
	require.NoError(t, guard.Release(context.Background()))
	require.Eventually(t, func() bool { return runs.Load() > 0 }, 10*time.Second, time.Millisecond)
}

// Of three programs one runs the jobs; when it ends another does, with a larger token, and never both.
func TestElector(t *testing.T) {
	nodes := redistest.StartSet(t, 3, redisproc.Options{})
	type run struct {
		program int
		token   uint64
	}
	var mu sync.Mutex
	var runs []run
	last := func() (run, int) {
		mu.Lock()
		defer mu.Unlock()
		if len(runs) == 0 {
			return run{program: -1}, 0
		}
		return runs[len(runs)-1], len(runs)
	}
	var electors []*gocronlock.Elector
	var schedulers []gocron.Scheduler
	for i := range 3 {
		e := gocronlock.NewElector(newLocker(t, nodes), "scheduler")
		t.Cleanup(e.Close)
		electors = append(electors, e)
		schedulers = append(schedulers, schedule(t, every/10, func() {
			token, leads := redlock.FencingToken(e.Context())
			if !leads {
				return // lost between gocron's look and ours
			}
			mu.Lock()
			defer mu.Unlock()
			runs = append(runs, run{i, token})
		}, gocron.WithDistributedElector(e)))
	}
	for range 2 {
		_, before := last()
		require.Eventually(t, func() bool { _, n := last(); return n >= before+5 }, 20*time.Second, time.Millisecond)
		leader, _ := last()
		leaders := 0
		for _, e := range electors {
			if err := e.IsLeader(context.Background()); err == nil {
				leaders++
			} else {
				require.ErrorIs(t, err, gocronlock.ErrNotLeader)
			}
		}
		require.Equal(t, 1, leaders)
		require.NoError(t, electors[leader.program].IsLeader(context.Background()))
		require.NoError(t, schedulers[leader.program].Shutdown())
		electors[leader.program].Close()
		require.ErrorIs(t, electors[leader.program].IsLeader(context.Background()), gocronlock.ErrNotLeader)
		require.Error(t, electors[leader.program].Context().Err())
		require.Eventually(t, func() bool { now, _ := last(); return now.program != leader.program }, 20*time.Second, time.Millisecond)
	}
	mu.Lock()
	defer mu.Unlock()
	for i := 1; i < len(runs); i++ {
		require.LessOrEqual(t, runs[i-1].token, runs[i].token)
		require.Equal(t, runs[i-1].program != runs[i].program, runs[i-1].token != runs[i].token, "one lead, one token")
	}
}

// A lead that is taken away ends, says why, and is campaigned for again.
func TestElectorLosesTheLead(t *testing.T) {
	nodes := redistest.StartSet(t, 3, redisproc.Options{})
	e := gocronlock.NewElector(newLocker(t, nodes), "scheduler")
	defer e.Close()
	require.Eventually(t, func() bool { return e.IsLeader(context.Background()) == nil }, 10*time.Second, time.Millisecond)
	lead := e.Context()
	taken, err := newLocker(t, nodes).ForceAcquire(context.Background(), "scheduler")
	require.NoError(t, err)
	require.ErrorIs(t, context.Cause(lead), redlock.ErrTakenOver)
	require.ErrorIs(t, e.IsLeader(context.Background()), gocronlock.ErrNotLeader)
	require.NoError(t, taken.Release(context.Background()))
	require.Eventually(t, func() bool { return e.IsLeader(context.Background()) == nil }, 10*time.Second, time.Millisecond)
}
