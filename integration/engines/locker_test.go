package engines_test

import (
	"context"
	"crypto/rand"
	"strings"
	"testing"
	"time"

	"github.com/redis/rueidis"
	"github.com/stretchr/testify/require"

	"github.com/redlock-go/redlock"
	"github.com/redlock-go/redlock/integration/check"
	"github.com/redlock-go/redlock/integration/engines"
	"github.com/redlock-go/redlock/internal/logtest"
	"github.com/redlock-go/redlock/internal/redisproc"
	"github.com/redlock-go/redlock/internal/redisproc/redistest"
)

const lease = 2 * time.Second

func newLocker(t *testing.T, log *logtest.Log, prefix string, nodes []rueidis.ClientOption) *redlock.Locker {
	t.Helper()
	l, err := redlock.NewLocker(redlock.LockerOption{
		Nodes: nodes, KeyPrefix: prefix, KeyValidity: lease, Logger: log.Logger(),
	})
	require.NoError(t, err)
	t.Cleanup(l.Close)
	return l
}

// judged is a history that is judged at the end of the test.
func judged(t *testing.T) *check.History {
	h := check.New()
	t.Cleanup(func() {
		h.Stop()
		for _, v := range h.Violations() {
			t.Error(v)
		}
	})
	return h
}

func acquire(t *testing.T, h *check.History, l *redlock.Locker, name string) *redlock.Guard {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	g, err := h.Acquire(ctx, "client", l.Acquire, name)
	require.NoError(t, err)
	return g
}

func release(t *testing.T, h *check.History, g *redlock.Guard) {
	t.Helper()
	require.NoError(t, h.Release(context.Background(), g))
}

func requireHeldFor(t *testing.T, g *redlock.Guard, d time.Duration) {
	t.Helper()
	select {
	case <-g.Done():
		require.NoError(t, g.Err(), "guard has ended")
	case <-time.After(d):
	}
}

// The whole life of locks on whatever servers there are: REDLOCK_TEST_ADDRS, or else processes.
func TestLockerOnNodes(t *testing.T) {
	nodes := engines.Nodes(t, 5)
	for _, option := range nodes {
		engine, err := engines.Describe(t.Context(), dial(t, option))
		require.NoError(t, err)
		t.Log(engine)
	}
	prefix := "redlock-test-" + rand.Text() // nothing is flushed, and others may be at work there
	t.Cleanup(func() {
		for _, option := range nodes {
			client := dial(t, option)
			keys, err := client.Do(context.Background(), client.B().Keys().Pattern(prefix+":*").Build()).AsStrSlice()
			require.NoError(t, err)
			for _, key := range keys {
				require.NotContains(t, key, "{", "a lock is left")
				require.NoError(t, client.Do(context.Background(), client.B().Del().Key(key).Build()).Error())
			}
		}
	})
	h := judged(t)
	var log logtest.Log
	a, b := newLocker(t, &log, prefix, nodes), newLocker(t, &log, prefix, nodes)
	require.Eventually(t, func() bool { return a.Init(context.Background()) == nil }, patience, 10*time.Millisecond)

	g := acquire(t, h, a, "held")
	_, err := b.TryAcquire(context.Background(), "held")
	require.ErrorIs(t, err, redlock.ErrNotLocked)
	requireHeldFor(t, g, lease+lease/2)
	next := make(chan *redlock.Guard)
	go func() { next <- acquire(t, h, b, "held") }()
	time.Sleep(lease / 4)
	release(t, h, g)
	g = <-next
	forced, err := h.Acquire(context.Background(), "client", a.ForceAcquire, "held")
	require.NoError(t, err)
	require.ErrorIs(t, g.Err(), redlock.ErrTakenOver)
	release(t, h, forced)
	release(t, h, acquire(t, h, b, "held"))
}

// A node may be a primary that sentinels lead. The new primary is another process and may lack the last writes, so it
// grants nothing for a lease; the lock lives on the others.
func TestLockerOnSentinelLedNode(t *testing.T) {
	t.Parallel()
	s := engines.StartSentinel(t, 3)
	others := redistest.StartSet(t, 4, redisproc.Options{TCP: true})
	nodes := append([]rueidis.ClientOption{s.ClientOption()}, redistest.Options(others)...)
	h := judged(t)
	var log logtest.Log
	a, b := newLocker(t, &log, "redlock", nodes), newLocker(t, &log, "redlock", nodes)
	require.Eventually(t, func() bool { return a.Init(context.Background()) == nil }, patience, 10*time.Millisecond)

	g := acquire(t, h, a, "held")
	failed := time.Now()
	s.Failover(t)
	_, err := b.TryAcquire(context.Background(), "held")
	require.ErrorIs(t, err, redlock.ErrNotLocked)
	requireHeldFor(t, g, lease)
	require.Eventually(t, func() bool { return strings.Contains(log.String(), "adopted a node that lost its memory") },
		patience, 10*time.Millisecond, "the promoted server was taken for the old one")

	// With two others gone each vote is needed, that of the promoted one too: to be had a lease after the failover.
	require.NoError(t, others[0].Kill())
	require.NoError(t, others[1].Kill())
	other := tryUntil(t, h, b, "other")
	require.Greater(t, time.Since(failed), lease)
	requireHeldFor(t, other, lease)
	release(t, h, other)
	h.Release(context.Background(), g)
}

// Without a failover that anybody asked for: the primary dies, and the sentinels find out by themselves.
func TestLockerOnSentinelLedNodeThatDies(t *testing.T) {
	t.Parallel()
	s := engines.StartSentinel(t, 3)
	others := redistest.StartSet(t, 2, redisproc.Options{TCP: true})
	nodes := append([]rueidis.ClientOption{s.ClientOption()}, redistest.Options(others)...)
	h := judged(t)
	var log logtest.Log
	a := newLocker(t, &log, "redlock", nodes)
	require.Eventually(t, func() bool { return a.Init(context.Background()) == nil }, patience, 10*time.Millisecond)
	g := acquire(t, h, a, "held")
	require.NoError(t, s.Servers[0].Kill())
	requireHeldFor(t, g, 2*lease)
	old := s.Servers[0].Addr()
	require.Eventually(t, func() bool { now, err := s.Primary(); return err == nil && now != old }, patience, 50*time.Millisecond)
	require.NoError(t, others[0].Kill())
	other := tryUntil(t, h, a, "other")
	release(t, h, other)
	h.Release(context.Background(), g)
}

func tryUntil(t *testing.T, h *check.History, l *redlock.Locker, name string) *redlock.Guard {
	t.Helper()
	for deadline := time.Now().Add(patience); ; time.Sleep(10 * time.Millisecond) {
		g, err := h.Acquire(context.Background(), "client", l.TryAcquire, name)
		if err == nil {
			return g
		}
		require.True(t, time.Now().Before(deadline), "did not get %q: %v", name, err)
	}
}

// What cannot be a node is refused, and the error says why. One of three does not keep a Locker from starting.
func TestLockerRefusesWhatIsNoNode(t *testing.T) {
	t.Parallel()
	cluster := redistest.Option(engines.StartCluster(t))
	s := engines.StartSentinel(t, 1)
	sentinel := rueidis.ClientOption{InitAddress: s.ClientOption().InitAddress} // listed as if it were a server
	unknown := s.ClientOption()
	unknown.Sentinel.MasterSet = "nobody"
	good := redistest.Options(redistest.StartSet(t, 2, redisproc.Options{}))
	for _, row := range []struct {
		node rueidis.ClientOption
		says string
		is   error
	}{
		{cluster, "cluster mode", redlock.ErrUnsupportedNode},
		{sentinel, "it is a Sentinel", redlock.ErrUnsupportedNode},
		{unknown, "No such master", redlock.ErrNodeDown},
	} {
		var log logtest.Log
		l := newLocker(t, &log, "redlock", append([]rueidis.ClientOption{row.node}, good...))
		require.Eventually(t, func() bool { return log.Count("node cannot vote", row.says, row.node.InitAddress[0]) == 1 }, patience, 10*time.Millisecond, row.says)
		l.Close()
		// Of two, both are needed.
		_, err := redlock.NewLocker(redlock.LockerOption{Nodes: []rueidis.ClientOption{good[0], row.node}, KeyPrefix: "two", NodeTimeout: 2 * time.Second})
		require.ErrorIs(t, err, redlock.ErrNoQuorum, row.says)
		require.ErrorIs(t, err, row.is)
		require.ErrorContains(t, err, row.says)
		require.ErrorContains(t, err, row.node.InitAddress[0])
	}
}
