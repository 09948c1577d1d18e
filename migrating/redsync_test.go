package migrating

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/go-redsync/redsync/v4"
	redsyncredis "github.com/go-redsync/redsync/v4/redis"
	"github.com/go-redsync/redsync/v4/redis/goredis/v9"
	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"

	"github.com/redlock-go/redlock"
	"github.com/redlock-go/redlock/internal/redisproc"
	"github.com/redlock-go/redlock/internal/redisproc/redistest"
)

// What docs/migrating.md shows of redsync, asked of redsync.

type work = func(context.Context) error

// before is a program with redsync. It has to be done within the mutex's expiry, 8 s by default: nobody extends it.
func before(ctx context.Context, rs *redsync.Redsync, purge work) error {
	mutex := rs.NewMutex("cron:purge")
	if err := mutex.LockContext(ctx); err != nil {
		return err
	}
	defer mutex.UnlockContext(ctx)
	return purge(ctx)
}

// after is the same with redlock: the lock is extended, and ctx ends with it.
func after(ctx context.Context, locker *redlock.Locker, purge work) error {
	return locker.Do(ctx, "cron:purge", purge)
}

var errExpired = errors.New("redsync's lock has expired")

// meanwhile is the version for the rollout: it takes the old lock and, inside it, the new one.
func meanwhile(ctx context.Context, rs *redsync.Redsync, locker *redlock.Locker, purge work) error {
	mutex := rs.NewMutex("cron:purge")
	if err := mutex.LockContext(ctx); err != nil {
		return err
	}
	defer mutex.UnlockContext(context.WithoutCancel(ctx))
	ctx, cancel := context.WithDeadlineCause(ctx, mutex.Until(), errExpired)
	defer cancel()
	return locker.Do(ctx, "cron:purge", purge)
}

func TestRolloutFromRedsync(t *testing.T) {
	nodes := redistest.StartSet(t, 3, redisproc.Options{})
	locker, err := redlock.NewLocker(redlock.LockerOption{Nodes: redistest.Options(nodes), RestartQuarantine: -1})
	require.NoError(t, err)
	defer locker.Close()
	var pools []redsyncredis.Pool
	for _, n := range nodes {
		client := redis.NewClient(&redis.Options{Network: n.Network(), Addr: n.Addr()})
		t.Cleanup(func() { client.Close() })
		pools = append(pools, goredis.NewPool(client))
	}
	rs := redsync.New(pools...)

	old := func(purge work) error { return before(t.Context(), rs, purge) }
	both := func(purge work) error { return meanwhile(t.Context(), rs, locker, purge) }
	renewed := func(purge work) error { return after(t.Context(), locker, purge) }
	// within reports whether a program that holds its lock keeps another from its work, whose patience is so long.
	within := func(patience time.Duration, holder func(work) error, other func(context.Context, work) error) (excluded bool) {
		require.NoError(t, holder(func(context.Context) error {
			impatient, cancel := context.WithTimeout(t.Context(), patience)
			defer cancel()
			excluded = other(impatient, func(context.Context) error { return nil }) != nil
			return nil
		}))
		return excluded
	}
	holds := func(holder func(work) error, other func(context.Context, work) error) bool {
		return within(300*time.Millisecond, holder, other)
	}
	lets := func(holder func(work) error, other func(context.Context, work) error) bool {
		return !within(5*time.Second, holder, other) // redsync's expiry is longer
	}
	oldToo := func(ctx context.Context, purge work) error { return before(ctx, rs, purge) }
	bothToo := func(ctx context.Context, purge work) error { return meanwhile(ctx, rs, locker, purge) }
	renewedToo := func(ctx context.Context, purge work) error { return after(ctx, locker, purge) }

	require.True(t, lets(old, renewedToo), "old and new do not exclude each other")
	require.True(t, lets(renewed, oldToo))
	for name, holder := range map[string]func(work) error{"before": old, "meanwhile": both} {
		require.True(t, holds(holder, oldToo), "%s against before", name)
		require.True(t, holds(holder, bothToo), "%s against meanwhile", name)
	}
	for name, holder := range map[string]func(work) error{"meanwhile": both, "after": renewed} {
		require.True(t, holds(holder, bothToo), "%s against meanwhile", name)
		require.True(t, holds(holder, renewedToo), "%s against after", name)
	}

	// The old lock is not extended: the work ends with it.
	rs = redsync.New(pools...)
	mutex := rs.NewMutex("cron:purge")
	require.NoError(t, mutex.LockContext(t.Context()), "all have let go")
	_, err = mutex.UnlockContext(t.Context())
	require.NoError(t, err)
	err = meanwhile(t.Context(), rs, locker, func(ctx context.Context) error {
		deadline, bounded := ctx.Deadline()
		require.True(t, bounded)
		require.Less(t, time.Until(deadline), 8*time.Second)
		return nil
	})
	require.NoError(t, err)
}
