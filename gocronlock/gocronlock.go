// Package gocronlock has the jobs of gocron (github.com/go-co-op/gocron/v2) run in one of several programs, by locks of
// package redlock: each tick in one of them (NewLocker), or all in the one that leads (NewElector).
//
//	scheduler, err := gocron.NewScheduler(gocron.WithDistributedLocker(
//		gocronlock.NewLocker(locker, redlock.AtLeast(30*time.Second))))
//
// gocron does not tell a job that its lock is lost: its context goes on. A job for which a second run does damage checks
// the fencing token, and looks at a context that ends: that of [Elector.Context], or, without gocron's locker, of
// redlock's own TryDo, called in the job:
//
//	gocron.NewTask(func(ctx context.Context) error {
//		return locker.TryDo(ctx, "purge", purge, redlock.AtLeast(30*time.Second))
//	})
package gocronlock

import (
	"context"

	"github.com/go-co-op/gocron/v2"

	"github.com/redlock-go/redlock"
)

// NewLocker returns what gocron.WithDistributedLocker and gocron.WithDistributedJobLocker take. A job runs where its lock,
// of the job's name, is free, and in no other program meanwhile: give jobs names, by gocron.WithName.
//
// That alone is "not two at a time". Programs' clocks and schedulers differ, and where the quickest has done its work before
// the next one looks, that one does it again. For "once per tick" give redlock.AtLeast, longer than they differ and shorter than
// the time between two ticks. Other options are as good: redlock.AtMost bounds a job that hangs.
func NewLocker(locker *redlock.Locker, options ...redlock.HoldOption) gocron.Locker {
	return &jobLocker{locker, options}
}

type jobLocker struct {
	locker  *redlock.Locker
	options []redlock.HoldOption
}

// Lock does not wait: a job whose lock another program has is skipped here. Errors are those of redlock's TryAcquire.
func (l *jobLocker) Lock(ctx context.Context, key string) (gocron.Lock, error) {
	guard, err := l.locker.TryAcquire(ctx, key, l.options...)
	if err != nil {
		return nil, err
	}
	return jobLock{guard}, nil
}

type jobLock struct{ guard *redlock.Guard }

// Unlock returns what redlock's Release does: ErrLost where the lock was gone before the job had ended.
func (l jobLock) Unlock(ctx context.Context) error { return l.guard.Release(ctx) }
