package redlock_test

import (
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/redlock-go/redlock"
	"github.com/redlock-go/redlock/internal/redisproc"
	"github.com/redlock-go/redlock/internal/redisproc/redistest"
)

// A primary with min-replicas-to-write that has lost sight of its replica, as one that Sentinel has replaced meanwhile,
// grants and renews nothing. What it is asked to release runs out by itself.
func TestPrimaryWithoutReplicasHasNoVote(t *testing.T) {
	t.Parallel()
	nodes := redistest.StartSet(t, 2, redisproc.Options{TCP: true})
	primary, replica := nodes[0], nodes[1]
	host, port, _ := strings.Cut(primary.Addr(), ":")
	do(t, replica, "REPLICAOF", host, port)
	do(t, primary, "CONFIG", "SET", "repl-diskless-sync-delay", "0")
	do(t, primary, "CONFIG", "SET", "min-replicas-max-lag", "2")
	l := newLocker(t, redistest.Options(nodes[:1]), validity(3*time.Second))
	release(t, acquire(t, l, "before"))
	do(t, primary, "CONFIG", "SET", "min-replicas-to-write", "1")

	var g *redlock.Guard
	require.Eventually(t, func() (ok bool) {
		var err error
		g, err = l.TryAcquire(t.Context(), "a")
		return err == nil
	}, 6*soon, 50*time.Millisecond, "with a replica it votes")

	do(t, replica, "REPLICAOF", "NO", "ONE") // as Sentinel tells the one that it promotes
	require.Eventually(t, func() bool {
		_, err := l.TryAcquire(t.Context(), "b")
		return err != nil && strings.Contains(err.Error(), "NOREPLICAS")
	}, 6*soon, 50*time.Millisecond)
	_, err := l.TryAcquire(t.Context(), "b")
	require.ErrorIs(t, err, redlock.ErrNoQuorum)
	require.ErrorContains(t, err, "NOREPLICAS Not enough good replicas to write")
	cause := requireDone(t, g, 2*soon)
	require.ErrorIs(t, cause, redlock.ErrLost, "nor does it renew")
	require.ErrorContains(t, cause, "NOREPLICAS")
}
