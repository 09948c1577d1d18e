package faults

import (
	"context"
	"os"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/redlock-go/redlock"
	"github.com/redlock-go/redlock/internal/netproxy"
	"github.com/redlock-go/redlock/internal/redisproc"
)

// Row 1: as many nodes as a quorum can do without die; holding and acquiring go on.
func TestRow01MinorityKilled(t *testing.T) {
	t.Parallel()
	r := newRig(t, 5, redisproc.Options{})
	a, b := r.client("a"), r.client("b")
	g := a.mustTry("held")
	require.NoError(t, r.nodes[0].Kill())
	require.NoError(t, r.nodes[4].Kill())
	r.release(b.mustTry("other"))
	_, err := b.try("held")
	require.ErrorIs(t, err, redlock.ErrNotLocked)
	r.requireHeldFor(g, lease+lease/2)
	r.release(b.mustTry("later"))
	for _, n := range r.nodes {
		if !n.Running() {
			require.NoError(t, n.CrashEmpty())
		}
	}
	r.settle("held")
}

// Row 2: one more than that dies; guards end by their own clock, calls fail in bounded time and say why.
func TestRow02QuorumKilled(t *testing.T) {
	t.Parallel()
	r := newRig(t, 5, redisproc.Options{})
	a, b := r.client("a"), r.client("b")
	g := a.mustTry("held")
	for _, n := range r.nodes[:3] {
		require.NoError(t, n.Kill())
	}
	r.requireEndsInTime(g)

	start := time.Now()
	_, err := b.try("other")
	require.ErrorIs(t, err, redlock.ErrNoQuorum)
	require.Less(t, time.Since(start), soon)
	reasons := nodeErrors(err)
	for i := range 3 {
		require.NotEmpty(t, reasons[b.links[i].Addr()], "node %d is not named in: %v", i, err)
	}
	_, err = b.take(context.Background(), b.Acquire, "other")
	require.ErrorIs(t, err, redlock.ErrNoQuorum)

	for _, n := range r.nodes[:3] {
		require.NoError(t, n.CrashEmpty())
	}
	r.settle("held", "other")
}

// forgetting is row 3 and its kin: a lock lives on nodes 0, 1, 2 alone; node 2 forgets it, and its holder, cut off
// from node 2, cannot know. If node 2 votes, {2, 3, 4} is a second majority while {0, 1, 2} is still counted on.
func (r *rig) forgetting(forget func()) {
	t := r.t
	t.Helper()
	before := r.client("before")
	a := r.client("a")
	a.cutOff(3, 4)
	g := a.mustTry("held")
	for i := range r.nodes {
		require.Equal(t, i < 3, r.stored(r.nodes[i], "held"), nodeName(i))
	}
	// All of a's lease is ahead, and nothing reaches it any more.
	a.silence(netproxy.Both, 0, 1, 2)
	since := time.Now()
	forget()
	after, err := r.newClient("after")
	require.NoError(t, err)

	type taken struct {
		g   *redlock.Guard
		err error
	}
	got := make(chan taken)
	for _, c := range []*client{before, after} {
		go func() {
			for deadline := time.Now().Add(2*lease + soon); ; time.Sleep(2 * time.Millisecond) {
				next, err := c.try("held")
				if err == nil || time.Now().After(deadline) {
					got <- taken{next, err}
					if err == nil {
						r.history.Release(context.Background(), next)
					}
					return
				}
			}
		}()
	}
	for range 2 {
		next := <-got
		require.NoError(t, next.err)
		require.Error(t, g.Err())
		require.Greater(t, next.g.FencingToken(), g.FencingToken())
	}
	t.Logf("next holder %v after node 2 forgot", time.Since(since))
	a.heal()
	require.ErrorIs(t, g.Err(), redlock.ErrLost)
}

// Row 3: kill -9 and a restart with nothing.
func TestRow03RestartEmpty(t *testing.T) {
	t.Parallel()
	r := newRig(t, 5, redisproc.Options{})
	r.forgetting(func() { require.NoError(t, r.nodes[2].CrashEmpty()) })
	r.settle("held")
}

// Row 4: a restart from a dump that is older than the lock, with somebody else's old vote in it.
func TestRow04RestartFromStaleDump(t *testing.T) {
	t.Parallel()
	r := newRig(t, 5, redisproc.Options{})
	x := r.client("x")
	old := x.mustTry("held")
	dump, err := r.nodes[2].SaveDump()
	require.NoError(t, err)
	r.release(old)
	r.eventually("released everywhere", func() bool { return !r.stored(r.nodes[2], "held") })
	r.forgetting(func() { require.NoError(t, r.nodes[2].RestartFrom(dump)) })
	r.settle("held")
}

// Row 4: a restart from an append-only file that lost nothing. The vote is still there and is renewed; the node
// cannot prove that it lost nothing, so it grants nothing for a lease.
func TestRow04RestartFromAOF(t *testing.T) {
	t.Parallel()
	r := newRig(t, 5, redisproc.Options{AOF: true})
	a, b := r.client("a"), r.client("b")
	a.cutOff(3, 4)
	g := a.mustTry("held")
	require.NoError(t, r.nodes[2].Restart())
	require.True(t, r.stored(r.nodes[2], "held"))
	restarted := time.Now()
	r.requireHeldFor(g, lease) // on 0, 1 and 2 alone
	_, err := b.try("held")
	require.ErrorIs(t, err, redlock.ErrNotLocked)

	b.cutOff(3, 4)
	r.release(b.tryFor("other", lease+soon)) // needs node 2
	require.Greater(t, time.Since(restarted), lease)
	b.heal()
	a.heal()
	r.settle("held", "other")
}

// Row 4, all nodes one after the other: the lock survives where the disks do.
func TestRow04RollingRestart(t *testing.T) {
	t.Parallel()
	r := newRig(t, 5, redisproc.Options{AOF: true})
	a := r.client("a")
	g := a.mustTry("held")
	for _, n := range r.nodes {
		require.NoError(t, n.Restart())
		r.requireHeldFor(g, lease/2)
	}
	r.settle("held")
}

// Row 5: all nodes restart empty. The holder is cut off and may count on its lease; nobody else gets anything
// before the longest lease has run out.
func TestRow05AllNodesRestartEmpty(t *testing.T) {
	t.Parallel()
	r := newRig(t, 5, redisproc.Options{})
	a, b := r.client("a"), r.client("b")
	g := a.mustTry("held")
	a.silence(netproxy.Both, 0, 1, 2, 3, 4)
	forgot := time.Now()
	for _, n := range r.nodes {
		require.NoError(t, n.CrashEmpty())
	}
	c := r.client("c")
	_, err := c.try("held")
	require.ErrorIs(t, err, redlock.ErrNoQuorum)
	next := b.tryFor("held", lease+soon)
	require.Greater(t, time.Since(forgot), lease)
	require.ErrorIs(t, g.Err(), redlock.ErrLost)
	require.Greater(t, next.FencingToken(), g.FencingToken())
	a.heal()
	r.settle("held")
}

// Row 6: a server is killed while its child saves. The child keeps the connections open, so they are mute instead
// of reset: nobody may hang on them.
func TestRow06KilledWhileSaving(t *testing.T) {
	t.Parallel()
	r := newRig(t, 5, redisproc.Options{})
	a, b := r.client("a"), r.client("b")
	g := a.mustTry("held")
	for _, n := range r.nodes[:2] {
		// Some keys of 1 s each: the child lives long enough, and ends by itself.
		for _, key := range []string{"1", "2", "3"} {
			r.do(n, "SET", key, "")
		}
		r.do(n, "CONFIG", "SET", "rdb-key-save-delay", "1000000")
		r.do(n, "BGSAVE")
		process, err := os.FindProcess(n.PID())
		require.NoError(t, err)
		require.NoError(t, process.Signal(syscall.SIGKILL))
		r.eventually("the server is gone", func() bool { return !n.Running() })
	}
	start := time.Now()
	r.release(b.mustTry("other"))
	require.Less(t, time.Since(start), soon)
	r.requireHeldFor(g, lease)
	for _, n := range r.nodes[:2] {
		require.NoError(t, n.CrashEmpty())
	}
	r.eventually("the keepers are back", func() bool {
		for _, n := range r.nodes[:2] {
			if r.do(n, "EXISTS", "redlock:marker") == "0" {
				return false
			}
		}
		return true
	})
	r.settle("held")
}

// Row 7: a node stands still for less than a lease: nothing happens.
func TestRow07PausedShort(t *testing.T) {
	t.Parallel()
	r := newRig(t, 5, redisproc.Options{})
	a, b := r.client("a"), r.client("b")
	a.cutOff(3, 4)
	g := a.mustTry("held") // on 0, 1, 2: each vote counts
	require.NoError(t, r.nodes[1].Freeze())
	time.Sleep(lease / 4)
	require.NoError(t, r.nodes[1].Thaw())
	r.requireHeldFor(g, lease)
	_, err := b.try("held")
	require.ErrorIs(t, err, redlock.ErrNotLocked)
	a.heal()
	r.settle("held")
}

// Row 7: nodes stand still for longer than a lease. A minority of them costs nothing; what reached them while they
// stood is executed late, and must do nothing: no ghost of an attempt that failed long ago.
func TestRow07PausedLong(t *testing.T) {
	t.Parallel()
	r := newRig(t, 5, redisproc.Options{})
	a, b := r.client("a"), r.client("b")
	g := a.mustTryOnAll("held")
	r.all("CONFIG", "RESETSTAT")
	for _, n := range r.nodes[:2] {
		require.NoError(t, n.Freeze())
	}
	// The attempt gets its three votes and leaves a question at the two that stand.
	ghost := b.mustTry("ghost")
	r.release(ghost)
	r.requireHeldFor(g, lease+lease/2)
	// A third: no quorum.
	require.NoError(t, r.nodes[2].Freeze())
	_, err := b.try("failed")
	require.ErrorIs(t, err, redlock.ErrNoQuorum)
	r.requireEndsInTime(g)
	for _, n := range r.nodes[:3] {
		require.NoError(t, n.Thaw())
	}
	for end := time.Now().Add(lease / 2); time.Now().Before(end); time.Sleep(time.Millisecond) {
		for i, n := range r.nodes[:2] {
			require.False(t, r.stored(n, "ghost"), nodeName(i))
			require.False(t, r.stored(n, "failed"), nodeName(i))
		}
	}
	// A grant raises the name's fence bucket, which stays: nothing was granted late.
	buckets := func(n *redisproc.Node) string {
		return r.do(n, "EVAL", "return #redis.call('KEYS', 'redlock:fence:*')", "0")
	}
	require.Equal(t, "1", buckets(r.nodes[0]), "only of held")
	require.Equal(t, "1", buckets(r.nodes[1]), "only of held")
	require.Equal(t, "2", buckets(r.nodes[2]), "of held and ghost")
	r.settle("held", "ghost", "failed")
}
