package redlock_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"regexp"
	"testing"
	"time"

	"github.com/redis/rueidis/rueidislock"
	"github.com/stretchr/testify/require"

	"github.com/redlock-go/redlock"
	"github.com/redlock-go/redlock/internal/redisproc/redistest"
)

// What a person is told: texts are no contract, but they must not mislead.

// fineGrained is a duration that shows more than anybody wants to know.
var fineGrained = regexp.MustCompile(`\d\.\d{4,}|[µn]s\b`)

func TestTryOnOnesOwnLockSaysThatNoNodeWasAsked(t *testing.T) {
	interleave(t, 3, func(t *testing.T, s *schedule) {
		a, b := s.open("a"), s.open("b")
		g := tryAcquire(t, a, "x")
		_, err := a.TryAcquire(context.Background(), "x")
		require.ErrorIs(t, err, redlock.ErrNotLocked)
		require.EqualError(t, err, `redlock: not locked: "x": no node was asked: this Locker itself holds it`)

		s.link("a", 0).Silence()
		s.link("a", 1).Silence()
		afterward(t, func() { g.Release(context.Background()) })
		time.Sleep(oneWay)
		_, err = a.TryAcquire(context.Background(), "x")
		require.EqualError(t, err, `redlock: not locked: "x": no node was asked: this Locker itself is releasing it`)
		s.link("a", 0).Heal()
		s.link("a", 1).Heal()
		time.Sleep(3 * lease)

		g = tryAcquire(t, b, "x")
		afterward(t, func() {
			waited, err := a.Acquire(context.Background(), "x")
			require.NoError(t, err)
			waited.Release(context.Background())
		})
		time.Sleep(10 * oneWay)
		_, err = a.TryAcquire(context.Background(), "x")
		require.EqualError(t, err, `redlock: not locked: "x": no node was asked: this Locker itself waits for it`)
		release(t, g)
	})
}

// A lease that is longer than the set allows is refused, and nobody has lost its memory.
func TestLongerLeaseIsNotLostMemory(t *testing.T) {
	interleave(t, 3, func(t *testing.T, s *schedule) {
		a := s.open("a", quarantineOn)
		require.NoError(t, a.Init(t.Context()))
		_, err := redlock.NewLocker(s.option("b", quarantineOn, validity(2*lease)))
		require.ErrorIs(t, err, redlock.ErrNoQuorum)
		require.ErrorIs(t, err, redlock.ErrDisagreement)
		require.NotContains(t, err.Error(), "memory")
		require.ErrorContains(t, err, "a lease of 2s is longer than 1s")
	})
}

func TestQuarantineSaysThatItsNodeIsNewOrLostItsMemory(t *testing.T) {
	interleave(t, 3, func(t *testing.T, s *schedule) {
		a := s.open("a", quarantineOn)
		_, err := a.TryAcquire(t.Context(), "x")
		require.ErrorIs(t, err, redlock.ErrQuarantined)
		require.ErrorContains(t, err, "quarantined: it is new or lost its memory, and grants nothing for 9")
	})
}

// Whoever finds a key of somebody else's making that has no TTL is not told that its lease ended a moment ago.
func TestKeyWithoutTTLHasNoEnd(t *testing.T) {
	t.Parallel()
	nodes := startNodes(t, 1)
	l := newLocker(t, redistest.Options(nodes))
	g := acquire(t, l, "a")
	do(t, nodes[0], "SET", lockKey("a"), "foreign")
	require.ErrorContains(t, requireDone(t, g, soon), "held by foreign without an end: its key has no TTL")
	_, err := l.TryAcquire(t.Context(), "a")
	require.ErrorIs(t, err, redlock.ErrNotLocked)
	require.NotContains(t, err.Error(), "-1")
}

// A lock that is lost to silence says how long ago each vote ran out, as a person would.
func TestTextsRoundDurations(t *testing.T) {
	interleave(t, 3, func(t *testing.T, s *schedule) {
		a := s.open("a", validity(997*time.Millisecond), func(o *redlock.LockerOption) { o.DriftFactor = .0333333 })
		g := tryAcquire(t, a, "x")
		s.link("a", 0).Silence()
		time.Sleep(lease/2 + 123456)
		silence(s.cluster.Client("a"))
		<-g.Done()
		require.ErrorIs(t, g.Err(), redlock.ErrLost)
		require.NotRegexp(t, fineGrained, g.Err().Error())
		_, err := a.TryAcquire(context.Background(), "x")
		require.ErrorIs(t, err, redlock.ErrNoQuorum)
		require.NotRegexp(t, fineGrained, err.Error())
	})
}

// A vote that a push put in doubt, and that no look has cleared, did not run out by itself: its cause says so.
func TestDoubtedVoteSaysThatItWasPushed(t *testing.T) {
	interleave(t, 3, func(t *testing.T, s *schedule) {
		a := s.open("a")
		g := tryAcquire(t, a, "x")
		time.Sleep(5 * oneWay)
		for i := range 3 {
			s.link("a", i).SilenceRequests()
		}
		s.cluster.Node(0).Del(lockX)
		s.cluster.Node(1).Del(lockX)
		<-g.Done()
		require.ErrorIs(t, g.Err(), redlock.ErrLost)
		for i := range 2 {
			require.ErrorContains(t, g.Err(), fmt.Sprintf("node-%d:6379: it pushed that the key had changed, a look was not answered in time: vote ended ", i))
		}
		require.NotContains(t, g.Err().Error(), "node-2")
		require.NotRegexp(t, fineGrained, g.Err().Error())
	})
}

func TestGuardDescribesItself(t *testing.T) {
	interleave(t, 3, func(t *testing.T, s *schedule) {
		a := s.open("a")
		var log bytes.Buffer
		logger := slog.New(slog.NewTextHandler(&log, nil))
		g := tryAcquire(t, a, "x")
		time.Sleep(10 * oneWay) // until the third vote has moved the end
		host, err := os.Hostname()
		require.NoError(t, err)
		label := fmt.Sprintf("%s[%d]@%s", filepath.Base(os.Args[0]), os.Getpid(), host)
		who := fmt.Sprintf(`lock "x", fencing token %d, owner %s (%s), `, g.FencingToken(), g.ID(), label)
		const millis = "2006-01-02T15:04:05.000Z07:00"
		until := g.ValidUntil().Format(millis)
		require.Equal(t, who+"valid until "+until, g.String())
		require.Equal(t, g.String(), fmt.Sprintf("%v", g))
		require.Equal(t, g.String(), fmt.Sprintf("%+v", g), "and nothing of what is inside")
		logger.Info("held", "lock", g)
		require.Contains(t, log.String(), fmt.Sprintf(`lock.name=x lock.fencing_token=%d lock.owner=%s lock.label=%s lock.valid_until=%s`,
			g.FencingToken(), g.ID(), label, until))

		release(t, g)
		require.Equal(t, who+"ended: redlock: lock released", g.String())
		log.Reset()
		logger.Info("over", "lock", g)
		require.Contains(t, log.String(), `lock.ended="redlock: lock released"`)
		require.NotContains(t, log.String(), "valid_until")
	})
	var none *redlock.Guard
	require.Equal(t, "no lock", none.String())
	require.Equal(t, "no lock", none.LogValue().String())
}

// A Locker that NewLocker did not return is nil, and behind an interface it is not. It behaves as a closed one.
func TestNilLockerBehavesAsAClosedOne(t *testing.T) {
	ctx := t.Context()
	none, err := redlock.NewLocker(redlock.LockerOption{})
	require.ErrorIs(t, err, redlock.ErrInvalidOption)
	require.Nil(t, none)
	var locker rueidislock.Locker = none
	require.NotEqual(t, any(nil), any(locker), "which is why")
	for _, call := range []func(context.Context, string) (context.Context, context.CancelFunc, error){
		locker.WithContext, locker.TryWithContext, locker.ForceWithContext,
	} {
		held, cancel, err := call(ctx, "x")
		require.ErrorIs(t, err, rueidislock.ErrLockerClosed)
		require.ErrorContains(t, err, "the Locker is nil")
		require.Error(t, held.Err())
		cancel()
	}
	for _, call := range []func(context.Context, string, ...redlock.HoldOption) (*redlock.Guard, error){
		none.Acquire, none.TryAcquire, none.ForceAcquire, none.ForceAcquireNow,
	} {
		_, err := call(ctx, "x")
		require.ErrorIs(t, err, redlock.ErrLockerClosed)
	}
	for _, do := range []doFunc{none.Do, none.TryDo} {
		require.ErrorIs(t, do(ctx, "x", func(context.Context) error { return errors.New("ran") }), redlock.ErrLockerClosed)
	}
	_, err = none.Inspect(ctx, "x")
	require.ErrorIs(t, err, redlock.ErrLockerClosed)
	require.ErrorIs(t, none.Init(ctx), redlock.ErrLockerClosed)
	require.Nil(t, locker.Client())
	locker.Close()
}
