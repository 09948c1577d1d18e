package faults

import (
	"context"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/redlock-go/redlock"
	"github.com/redlock-go/redlock/internal/netproxy"
	"github.com/redlock-go/redlock/internal/redisproc"
)

// Row 10: silence both ways between the holder and one node, which heals.
func TestRow10PartitionFromOneNode(t *testing.T) {
	t.Parallel()
	r := newRig(t, 5, redisproc.Options{})
	a := r.client("a")
	g := a.mustTry("held")
	a.silence(netproxy.Both, 0)
	r.requireHeldFor(g, lease+lease/2)
	a.heal()
	r.requireHeldFor(g, lease/2)
	r.settle("held")
}

// Row 10: silence both ways between the holder and a majority. It ends by its clock, the successor gets the lock
// when the leases are over, and what the silence kept back changes nothing when it comes.
func TestRow10PartitionFromMajority(t *testing.T) {
	t.Parallel()
	r := newRig(t, 5, redisproc.Options{})
	a, b := r.client("a"), r.far("b")
	g := a.mustTry("held")
	a.silence(netproxy.Both, 0, 1, 2)
	got := make(chan *redlock.Guard, 1)
	go func() { got <- b.wait("held", lease+soon) }()
	r.requireEndsInTime(g)
	next := <-got
	a.heal()
	r.requireHeldFor(next, lease)
	r.settle("held")
}

// Row 10, the other way round: the waiter is the one who is cut off, and gets the lock once it is not.
func TestRow10WaiterCutOff(t *testing.T) {
	t.Parallel()
	r := newRig(t, 5, redisproc.Options{})
	a, b := r.client("a"), r.client("b")
	g := a.mustTry("held")
	b.silence(netproxy.Both, 0, 1, 2)
	_, err := b.try("held")
	require.ErrorIs(t, err, redlock.ErrNoQuorum)
	got := make(chan *redlock.Guard, 1)
	go func() { got <- b.wait("held", 3*soon) }()
	time.Sleep(lease / 2)
	b.heal()
	time.Sleep(lease / 4)
	require.NoError(t, g.Err())
	r.release(g)
	r.release(<-got)
	r.settle("held")
}

// Row 11: requests are lost: as if the nodes were down.
func TestRow11RequestsLost(t *testing.T) {
	t.Parallel()
	r := newRig(t, 5, redisproc.Options{})
	a, b := r.client("a"), r.far("b")
	g := a.mustTry("held")
	a.silence(netproxy.Requests, 0, 1)
	r.requireHeldFor(g, lease+lease/2)
	a.silence(netproxy.Requests, 2)
	r.requireEndsInTime(g)
	_, err := a.try("other")
	require.ErrorIs(t, err, redlock.ErrNoQuorum)
	next := b.wait("held", lease+soon)
	a.heal() // the lost renewals arrive now
	r.requireHeldFor(next, lease)
	r.settle("held", "other")
}

// Row 12: requests arrive, answers and pushes do not. Votes nobody heard do not count, although the keys are
// renewed; when the guard has ended its releases arrive too, and the successor need not wait for a lease.
func TestRow12RepliesLost(t *testing.T) {
	t.Parallel()
	r := newRig(t, 5, redisproc.Options{})
	a, b := r.client("a"), r.far("b")
	g := a.mustTry("held")
	a.silence(netproxy.Replies, 0, 1, 2, 3, 4)
	_, err := a.try("unheard")
	require.ErrorIs(t, err, redlock.ErrNoQuorum)
	r.requireEndsInTime(g)
	next := b.wait("held", lease+soon)
	r.release(b.wait("unheard", lease+soon))
	a.heal()
	r.requireHeldFor(next, lease)
	r.settle("held", "unheard")
}

// Row 13: one node answers later than NodeTimeout. The quorum does not wait for it; its late votes are renewed or
// released.
func TestRow13SlowNode(t *testing.T) {
	t.Parallel()
	r := newRig(t, 5, redisproc.Options{})
	a := r.client("a")
	const delay = lease / 2 // there and back; NodeTimeout is lease/4, hang-up after 1 s
	a.links[4].Delay(netproxy.Both, delay/2-50*time.Millisecond, nil)
	best := time.Hour
	for range 10 {
		start := time.Now()
		g := a.mustTry("quick")
		best = min(best, time.Since(start))
		r.release(g)
	}
	require.Less(t, best, delay/4, "the quorum waited for the slow node")
	g := a.mustTry("held")
	r.requireHeldFor(g, 2*lease)
	r.release(g)
	r.settle("held", "quick")
}

// Row 29: connections are reset when the scripts have run and before their answers are read. Nothing is counted,
// and what was stored unheard is released.
func TestRow29ResetBeforeTheReply(t *testing.T) {
	t.Parallel()
	r := newRig(t, 5, redisproc.Options{})
	a, b := r.client("a"), r.client("b")
	for _, name := range []string{"x", "y", "z"} {
		a.connected()
		a.silence(netproxy.Replies, 0, 1, 2, 3, 4)
		failed := make(chan error, 1)
		go func() {
			_, err := a.try(name)
			failed <- err
		}()
		r.eventually("the scripts have run", func() bool { return r.storing(name) == len(r.nodes) })
		for _, l := range a.links {
			l.Reset()
		}
		for _, l := range a.links {
			l.Heal(netproxy.Both)
		}
		require.ErrorIs(t, <-failed, redlock.ErrNoQuorum)
		start := time.Now()
		g := b.tryFor(name, lease+soon)
		t.Logf("free again %v after the reset", time.Since(start))
		r.release(g)
	}
	r.settle("x", "y", "z")
}

// Row 29, of a holder: its renewals are reset mid-way again and again. Each vote keeps its end, and is renewed on the
// next connection.
func TestRow29ResetsDuringHold(t *testing.T) {
	t.Parallel()
	r := newRig(t, 5, redisproc.Options{})
	r.allow(4 * lease)
	a := r.client("a", patient)
	g := a.mustTry("held")
	for end := time.Now().Add(6 * lease); time.Now().Before(end); {
		until := g.ValidUntil()
		for i, l := range a.links {
			if a.Status().Nodes[i].Up { // a busy machine needs longer to connect again
				l.Reset()
			}
			time.Sleep(30 * time.Millisecond)
		}
		r.eventually("renewed since", func() bool { return g.ValidUntil().After(until) || g.Err() != nil })
	}
	require.NoError(t, g.Err())
	r.settle("held")
}

// Row 30: CLIENT KILL on all nodes, again and again: votes are unknown then, and looked at.
func TestRow30ClientKill(t *testing.T) {
	t.Parallel()
	r := newRig(t, 5, redisproc.Options{})
	r.allow(4 * lease)
	a, b := r.client("a", patient), r.client("b", patient)
	g := a.mustTry("held")
	kills := 0
	for end := time.Now().Add(6 * lease); time.Now().Before(end); kills++ {
		until := g.ValidUntil()
		r.all("CLIENT", "KILL", "TYPE", "normal")
		time.Sleep(lease / 8)
		r.eventually("connected again, and renewed since", func() bool { // which takes a busy machine longer
			return a.Status().MayVote == len(r.nodes) && g.ValidUntil().After(until) || g.Err() != nil
		})
	}
	t.Logf("killed %d times", kills)
	require.NoError(t, g.Err())
	// Re-armed: what happens to the lock after the last kill is pushed.
	r.eventually("up again", func() bool { g, err := a.try("other"); return err == nil && g.Release(context.Background()) == nil })
	time.Sleep(lease / 8)
	start := time.Now()
	r.all("DEL", lockKey("held"))
	r.requireLost(g, soon)
	t.Logf("deletion noticed after %v", time.Since(start))
	r.release(b.mustTry("held"))
	r.settle("held", "other")
}

// Row 38: what an old connection kept back arrives after the new one's, and long after the verdict: requests that are
// executed then do nothing.
func TestRow38OldRequestsAfterNewOnes(t *testing.T) {
	t.Parallel()
	r := newRig(t, 5, redisproc.Options{})
	a, b := r.client("a"), r.far("b")
	for range 3 {
		a.connected()
		a.silence(netproxy.Requests, 0, 1, 2, 3, 4)
		_, err := a.try("held")
		require.ErrorIs(t, err, redlock.ErrNoQuorum)
		time.Sleep(1200 * time.Millisecond) // a has hung up by now; the bytes it sent wait on their way
		g := b.mustTry("held")
		a.heal()
		r.requireHeldFor(g, lease/4)
		for i, n := range r.nodes {
			require.True(t, r.stored(n, "held"), nodeName(i))
		}
		r.release(g)
		r.eventually("gone everywhere, and nothing late comes in its place", func() bool { return r.storing("held") == 0 })
	}
	r.settle("held")
}
