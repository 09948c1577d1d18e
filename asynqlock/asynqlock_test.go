package asynqlock_test

import (
	"context"
	"errors"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/hibiken/asynq"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/redlock-go/redlock"
	"github.com/redlock-go/redlock/asynqlock"
	"github.com/redlock-go/redlock/internal/redisproc"
	"github.com/redlock-go/redlock/internal/redisproc/redistest"
)

type silent struct{ asynq.Logger }

func (silent) Debug(...any) {}
func (silent) Info(...any)  {}
func (silent) Warn(...any)  {}
func (silent) Error(...any) {}

// workers starts so many programs that work on one queue, and returns a client of it. Its server is none of the nodes.
func workers(t *testing.T, n int, nodes []*redisproc.Node, handle asynq.HandlerFunc) (*asynq.Client, *asynq.Inspector) {
	t.Helper()
	queue := redistest.Start(t, redisproc.Options{})
	redis := asynq.RedisClientOpt{Network: queue.Network(), Addr: queue.Addr()}
	for range n {
		locker := newLocker(t, nodes)
		mux := asynq.NewServeMux()
		mux.Use(asynqlock.Middleware(locker, func(_ context.Context, task *asynq.Task) string { return string(task.Payload()) }))
		mux.Handle("bill", handle)
		server := asynq.NewServer(redis, asynq.Config{
			Concurrency: 8, Logger: silent{}, LogLevel: asynq.FatalLevel,
			TaskCheckInterval: 20 * time.Millisecond, DelayedTaskCheckInterval: 20 * time.Millisecond,
			IsFailure:      asynqlock.IsFailure,
			RetryDelayFunc: asynqlock.RetryDelay(20*time.Millisecond, func(int, error, *asynq.Task) time.Duration { return time.Millisecond }),
		})
		require.NoError(t, server.Start(mux))
		t.Cleanup(server.Shutdown)
	}
	client, inspector := asynq.NewClient(redis), asynq.NewInspector(redis)
	t.Cleanup(func() { client.Close(); inspector.Close() })
	return client, inspector
}

func newLocker(t *testing.T, nodes []*redisproc.Node) *redlock.Locker {
	t.Helper()
	l, err := redlock.NewLocker(redlock.LockerOption{Nodes: redistest.Options(nodes), KeyValidity: 3 * time.Second, RestartQuarantine: -1})
	require.NoError(t, err)
	t.Cleanup(l.Close)
	return l
}

func enqueue(t *testing.T, client *asynq.Client, customer string, options ...asynq.Option) {
	t.Helper()
	_, err := client.Enqueue(asynq.NewTask("bill", []byte(customer)), options...)
	require.NoError(t, err)
}

// Two workers, three customers, twenty tasks of each: all are done, no two of one customer at a time, and each customer's
// tokens rise. Tasks that go back to their queue have one retry, which not being run does not use up; those with none wait.
func TestTasksOfOneLockRunOneAtATime(t *testing.T) {
	t.Run("back to the queue", func(t *testing.T) { runOneAtATime(t, 1) })
	t.Run("wait in line", func(t *testing.T) { runOneAtATime(t, 0) })
}

func runOneAtATime(t *testing.T, retries int) {
	nodes := redistest.StartSet(t, 3, redisproc.Options{})
	var mu sync.Mutex
	running, tokens := make(map[string]int), make(map[string][]uint64)
	var done atomic.Int32
	sideBySide := make(chan struct{})
	var seen sync.Once
	client, _ := workers(t, 2, nodes, func(ctx context.Context, task *asynq.Task) error {
		customer := string(task.Payload())
		token, held := redlock.FencingToken(ctx)
		mu.Lock()
		assert.Equal(t, customer != "", held)
		if running[customer]++; customer != "" {
			assert.Equal(t, 1, running[customer], "two tasks of %s at a time", customer)
			tokens[customer] = append(tokens[customer], token)
		} else if running[customer] > 1 {
			seen.Do(func() { close(sideBySide) })
		}
		mu.Unlock()
		if time.Sleep(5 * time.Millisecond); customer == "" {
			select { // on a busy machine the next one may come later than that
			case <-sideBySide:
			case <-time.After(20 * time.Second):
				t.Error("tasks without a lock do not run side by side")
			}
		}
		mu.Lock()
		running[customer]--
		mu.Unlock()
		done.Add(1)
		return nil
	})
	for range 20 {
		for _, customer := range []string{"anna", "bert", "cleo", ""} {
			enqueue(t, client, customer, asynq.MaxRetry(retries))
		}
	}
	require.Eventually(t, func() bool { return done.Load() == 80 }, 60*time.Second, 5*time.Millisecond)
	mu.Lock()
	defer mu.Unlock()
	for customer, list := range tokens {
		require.Len(t, list, 20)
		require.IsIncreasing(t, list, customer)
	}
}

// A handler's own failure is one, a lost lock ends the handler's context and is one, too; both are tried again.
func TestFailuresAreFailures(t *testing.T) {
	nodes := redistest.StartSet(t, 3, redisproc.Options{})
	another := newLocker(t, nodes)
	var runs atomic.Int32
	failed := errors.New("no money")
	client, inspector := workers(t, 1, nodes, func(ctx context.Context, task *asynq.Task) error {
		switch runs.Add(1) {
		case 1:
			return failed
		case 2:
			guard, err := another.ForceAcquire(context.Background(), string(task.Payload()))
			assert.NoError(t, err)
			<-ctx.Done()
			assert.ErrorIs(t, context.Cause(ctx), redlock.ErrTakenOver)
			time.AfterFunc(100*time.Millisecond, func() { guard.Release(context.Background()) })
		}
		return nil
	})
	enqueue(t, client, "anna", asynq.MaxRetry(2), asynq.Retention(time.Minute), asynq.TaskID("one"))
	var info *asynq.TaskInfo
	require.Eventually(t, func() bool {
		var err error
		info, err = inspector.GetTaskInfo("default", "one")
		return err == nil && info.State == asynq.TaskStateCompleted
	}, 30*time.Second, 5*time.Millisecond)
	require.EqualValues(t, 3, runs.Load())
	require.Equal(t, 2, info.Retried, "the failure and the loss; what was not run is none")
}

func TestWhatIsAFailure(t *testing.T) {
	notRun := &asynqlock.NotRunError{Lock: "x", Cause: redlock.ErrNotLocked}
	require.False(t, asynqlock.IsFailure(nil))
	require.False(t, asynqlock.IsFailure(notRun))
	require.True(t, asynqlock.IsFailure(redlock.ErrNotLocked), "a handler's own lock, inside")
	require.ErrorIs(t, notRun, redlock.ErrNotLocked)
	delay := asynqlock.RetryDelay(time.Second, func(n int, _ error, _ *asynq.Task) time.Duration { return time.Duration(n) })
	for range 100 {
		require.InDelta(t, time.Second, delay(7, notRun, nil), float64(time.Second/2))
	}
	require.Equal(t, time.Duration(7), delay(7, redlock.ErrLost, nil))
}
