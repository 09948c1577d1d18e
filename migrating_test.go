package redlock_test

import (
	"context"
	"testing"
	"time"

	"github.com/redis/rueidis/rueidislock"
	"github.com/stretchr/testify/require"

	"github.com/redlock-go/redlock"
	"github.com/redlock-go/redlock/internal/redisproc"
	"github.com/redlock-go/redlock/internal/redisproc/redistest"
)

// What docs/migrating.md says of rueidislock is asked of rueidislock.

func newRueidislock(t *testing.T, node *redisproc.Node) rueidislock.Locker {
	t.Helper()
	l, err := rueidislock.NewLocker(rueidislock.LockerOption{
		ClientOption: redistest.Options([]*redisproc.Node{node})[0],
		KeyPrefix:    "redlock", // even with the same prefix
		KeyValidity:  time.Second,
		TryNextAfter: time.Second, // 20 ms is little for a machine that is busy with other tests
	})
	require.NoError(t, err)
	t.Cleanup(l.Close)
	return l
}

func TestMigratingOldAndNewDoNotExcludeEachOther(t *testing.T) {
	t.Parallel()
	nodes := startNodes(t, 1)
	before := newRueidislock(t, nodes[0])
	after := newLocker(t, redistest.Options(nodes))

	old, releaseOld, err := before.WithContext(t.Context(), "x")
	require.NoError(t, err)
	defer releaseOld()
	require.Equal(t, "1", do(t, nodes[0], "EXISTS", "redlock:0:x"))
	for range 2 { // whoever was first
		held, release, err := after.TryWithContext(t.Context(), "x")
		require.NoError(t, err)
		require.NoError(t, held.Err())
		require.NoError(t, old.Err(), "both hold it")
		release()
	}
}

// Who takes both locks, the old one first, excludes the programs that know only one of them.
func TestMigratingThroughBothLocks(t *testing.T) {
	t.Parallel()
	nodes := startNodes(t, 3)
	// Lockers of three programs: the old version, the one in between, and the new one.
	onlyBefore, before := newRueidislock(t, nodes[0]), newRueidislock(t, nodes[0])
	after, onlyAfter := newLocker(t, redistest.Options(nodes)), newLocker(t, redistest.Options(nodes))
	both := func(ctx context.Context, name string) (context.Context, context.CancelFunc, error) {
		ctx, releaseOld, err := before.WithContext(ctx, name)
		if err != nil {
			return nil, nil, err
		}
		ctx, releaseNew, err := after.WithContext(ctx, name)
		if err != nil {
			releaseOld()
			return nil, nil, err
		}
		return ctx, func() { releaseNew(); releaseOld() }, nil
	}

	held, release, err := both(t.Context(), "x")
	require.NoError(t, err)
	_, _, err = onlyBefore.TryWithContext(t.Context(), "x")
	require.ErrorIs(t, err, rueidislock.ErrNotLocked)
	_, _, err = onlyAfter.TryWithContext(t.Context(), "x")
	require.ErrorIs(t, err, rueidislock.ErrNotLocked)
	require.NoError(t, held.Err())
	release()

	for _, other := range []rueidislock.Locker{onlyBefore, onlyAfter} {
		_, releaseOther, err := other.WithContext(t.Context(), "x")
		require.NoError(t, err)
		impatient, cancel := context.WithTimeout(t.Context(), 200*time.Millisecond)
		defer cancel()
		_, _, err = both(impatient, "x")
		require.ErrorIs(t, err, context.DeadlineExceeded)
		releaseOther()
	}

	// The loss of either ends the work.
	held, release, err = both(t.Context(), "x")
	require.NoError(t, err)
	do(t, nodes[0], "DEL", "redlock:0:x", "redlock:1:x", "redlock:2:x")
	select {
	case <-held.Done():
	case <-time.After(soon):
		require.Fail(t, "the old lock is gone")
	}
	release()
}

// Errors: rueidislock wraps ErrNotLocked as we do, so that == finds neither; its ErrLockerClosed it returns bare.
func TestMigratingErrors(t *testing.T) {
	t.Parallel()
	nodes := startNodes(t, 1)
	lockers := map[string]func() rueidislock.Locker{
		"before": func() rueidislock.Locker { return newRueidislock(t, nodes[0]) },
		"after":  func() rueidislock.Locker { return newLocker(t, redistest.Options(nodes)) },
	}
	for name, open := range lockers {
		holder, other := open(), open()
		held, release, err := holder.WithContext(t.Context(), "x")
		require.NoError(t, err, name)
		_, cancel, err := other.TryWithContext(t.Context(), "x")
		require.ErrorIs(t, err, rueidislock.ErrNotLocked, name)
		require.False(t, err == rueidislock.ErrNotLocked, name) //nolint:errorlint // that is the point
		cancel()

		impatient, stop := context.WithTimeout(t.Context(), 50*time.Millisecond)
		ended, cancel, err := other.WithContext(impatient, "x")
		stop()
		require.ErrorIs(t, err, context.DeadlineExceeded, name)
		require.Equal(t, name == "before", ended == nil, "a nil context, and a nil cancel")
		require.Equal(t, name == "before", cancel == nil)

		release()
		require.ErrorIs(t, held.Err(), context.Canceled, name)
		require.Equal(t, name == "before", context.Cause(held) == context.Canceled, "no cause")
		other.Close()
		_, _, err = other.TryWithContext(t.Context(), "x")
		require.ErrorIs(t, err, rueidislock.ErrLockerClosed, name)
		require.Equal(t, name == "before", err == rueidislock.ErrLockerClosed, name)
	}
}

// With no node to be reached rueidislock waits on; a Locker gives up after a lease.
func TestMigratingWaitWithoutNodes(t *testing.T) {
	t.Parallel()
	nodes := startNodes(t, 1)
	before := newRueidislock(t, nodes[0])
	after := newLocker(t, redistest.Options(nodes), validity(time.Second))
	require.NoError(t, nodes[0].Kill())
	ctx, cancel := context.WithTimeout(t.Context(), 3*time.Second)
	defer cancel()
	_, _, err := before.WithContext(ctx, "x")
	require.ErrorIs(t, err, context.DeadlineExceeded)
	_, _, err = after.WithContext(t.Context(), "x")
	require.ErrorIs(t, err, redlock.ErrNoQuorum)
	require.NotErrorIs(t, err, rueidislock.ErrNotLocked)

	_, err = rueidislock.NewLocker(rueidislock.LockerOption{ClientOption: redistest.Options(nodes)[0]})
	require.Error(t, err)
	later, err := redlock.NewLocker(lockerOption(redistest.Options(nodes)))
	require.NoError(t, err)
	later.Close()
}
