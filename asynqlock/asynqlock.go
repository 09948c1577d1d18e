// Package asynqlock has the tasks of asynq (github.com/hibiken/asynq) run under locks of package redlock: of tasks with the
// same lock one runs at a time, over all workers. Queues share tasks out, and do not exclude two of one customer, or one task
// that is delivered twice, because its worker was taken for dead.
//
//	mux.Use(asynqlock.Middleware(locker, func(_ context.Context, task *asynq.Task) string {
//		return "customer:" + customerOf(task)
//	}))
//	server := asynq.NewServer(redis, asynq.Config{
//		IsFailure:      asynqlock.IsFailure,
//		RetryDelayFunc: asynqlock.RetryDelay(time.Second, asynq.DefaultRetryDelayFunc),
//	})
//
// The handler's context ends with the lock, and redlock.FencingToken finds the lock's token in it.
package asynqlock

import (
	"context"
	"errors"
	"math/rand/v2"
	"time"

	"github.com/hibiken/asynq"

	"github.com/redlock-go/redlock"
)

// Middleware runs each task while it holds the lock that name returns; the empty name is for a task that needs none.
//
// It does not wait, since a worker that waits does nothing else: a task whose lock cannot be had goes back to its queue, with an
// error that IsFailure and RetryDelay know. A task that has no retry left would be archived then, so that one waits in line. If the lock is lost while the handler runs its context ends, and the error
// matches redlock.ErrLost: asynq tries the task again.
func Middleware(locker *redlock.Locker, name func(context.Context, *asynq.Task) string, options ...redlock.HoldOption) asynq.MiddlewareFunc {
	return func(next asynq.Handler) asynq.Handler {
		return asynq.HandlerFunc(func(ctx context.Context, task *asynq.Task) error {
			lock := name(ctx, task)
			if lock == "" {
				return next.ProcessTask(ctx, task)
			}
			do, ran := locker.TryDo, false
			retried, _ := asynq.GetRetryCount(ctx)
			if most, known := asynq.GetMaxRetry(ctx); known && retried >= most {
				do = locker.Do
			}
			err := do(ctx, lock, func(ctx context.Context) error {
				ran = true
				return next.ProcessTask(ctx, task)
			}, options...)
			if !ran && (errors.Is(err, redlock.ErrNotLocked) || errors.Is(err, redlock.ErrNoQuorum)) {
				return &NotRunError{lock, err}
			}
			return err
		})
	}
}

// NotRunError is of a task that was not run because its lock could not be had: the cause matches redlock.ErrNotLocked where
// somebody else has it, redlock.ErrNoQuorum where too few nodes could vote.
type NotRunError struct {
	Lock  string
	Cause error
}

func (e *NotRunError) Error() string { return "asynqlock: not run: " + e.Cause.Error() }
func (e *NotRunError) Unwrap() error { return e.Cause }

// IsFailure is for asynq.Config.IsFailure: a task that was not run has not failed, so it is tried again for as long as that
// takes, and that uses up no retry.
func IsFailure(err error) bool {
	return err != nil && !errors.As(err, new(*NotRunError))
}

// RetryDelay is for asynq.Config.RetryDelayFunc: a task that was not run is tried again after about d (half of it to one and a
// half, so that those that wait for one lock do not all come at once), others after what failed returns. asynq itself looks
// for such tasks every five seconds: asynq.Config.DelayedTaskCheckInterval.
func RetryDelay(d time.Duration, failed asynq.RetryDelayFunc) asynq.RetryDelayFunc {
	return func(n int, err error, task *asynq.Task) time.Duration {
		if IsFailure(err) {
			return failed(n, err, task)
		}
		return d/2 + rand.N(d+1)
	}
}
