package faults

import (
	"context"
	"iter"
	"net"
	"strings"
	"testing"
	"time"

	"github.com/redis/rueidis"
	"github.com/stretchr/testify/require"

	"github.com/redlock-go/redlock"
	"github.com/redlock-go/redlock/internal/netproxy"
	"github.com/redlock-go/redlock/internal/redisproc"
	"github.com/redlock-go/redlock/internal/redisproc/redistest"
)

func lines(text string) iter.Seq[string] { return strings.SplitSeq(text, "\r\n") }

func cutField(line, field string) (string, bool) { return strings.CutPrefix(line, field+":") }

// follow makes a node the replica of another, and waits until it has its data.
func (r *rig) follow(n, primary *redisproc.Node) {
	r.t.Helper()
	host, port, err := net.SplitHostPort(primary.Addr())
	require.NoError(r.t, err)
	r.do(n, "REPLICAOF", host, port)
	r.eventually("the replica has its primary's data", func() bool {
		return infoField(r.t, n, "replication", "master_link_status") == "up"
	})
}

func replicable() redisproc.Options {
	return redisproc.Options{TCP: true, Args: []string{"--repl-diskless-sync-delay", "0"}}
}

// Row 34: a replica that lags is promoted under the node's address: it has the marker, and not the lock. The marker is
// of another process, so it grants nothing for a lease.
func TestRow34LaggingReplicaPromoted(t *testing.T) {
	t.Parallel()
	r := newRig(t, 5, replicable())
	replica := redistest.Start(t, replicable())
	r.follow(replica, r.nodes[2])
	r.do(replica, "REPLICAOF", "NO", "ONE") // from here on it lags
	r.forgetting(func() {
		require.Equal(t, "1", r.do(replica, "EXISTS", "redlock:marker"))
		require.False(t, r.stored(replica, "held"))
		r.proxies[2].SetTarget("tcp", replica.Addr())
		// The holder's connection is held, not cut: it must not notice.
		for _, c := range r.others("a") {
			c.links[2].Cut()
		}
	})
	r.nodes[2] = replica
	r.settle("held")
}

// Row 34, with a replica that lacks nothing: the guard's vote is renewed there, and the node is quarantined, as it
// cannot prove that.
func TestRow34CurrentReplicaPromoted(t *testing.T) {
	t.Parallel()
	r := newRig(t, 5, replicable())
	replica := redistest.Start(t, replicable())
	r.follow(replica, r.nodes[2])
	a, b := r.client("a"), r.client("b")
	g := a.mustTry("held")
	r.eventually("replicated", func() bool { return r.stored(replica, "held") })
	r.do(replica, "REPLICAOF", "NO", "ONE")
	promoted := time.Now()
	r.proxies[2].SetTarget("tcp", replica.Addr())
	r.proxies[2].Cut()
	r.nodes[2] = replica
	a.cutOff(3, 4) // the vote at the promoted one is needed from here on
	r.requireHeldFor(g, lease+lease/2)
	b.cutOff(3, 4)
	r.release(b.tryFor("other", lease+soon))
	require.Greater(t, time.Since(promoted), lease)
	a.heal()
	b.heal()
	r.settle("held", "other")
}

// Row 35: REPLICAOF another server and back on live connections: same process, same run_id, somebody else's data.
func TestRow35ReplicaOfAnotherAndBack(t *testing.T) {
	for _, of := range []string{"a stranger", "another node"} {
		t.Run(of, func(t *testing.T) {
			t.Parallel()
			r := newRig(t, 5, replicable())
			other := r.nodes[4]
			if of == "a stranger" {
				other = redistest.Start(t, replicable())
			}
			r.forgetting(func() {
				r.follow(r.nodes[2], other)
				r.do(r.nodes[2], "REPLICAOF", "NO", "ONE")
				require.False(t, r.stored(r.nodes[2], "held"))
			})
			r.settle("held")
		})
	}
}

// others are all clients but one.
func (r *rig) others(name string) (others []*client) {
	for _, c := range r.clients {
		if c.name != name {
			others = append(others, c)
		}
	}
	return others
}

// Row 36: two processes behind one address. Where one client sees both in turn it gets no vote from them that counts,
// and its locks live on the other nodes.
func TestRow36TwoProcessesInTurn(t *testing.T) {
	t.Parallel()
	r := newRig(t, 5, redisproc.Options{})
	twin := redistest.Start(t, redisproc.Options{})
	a, b := r.client("a"), r.client("b")
	g := a.mustTry("held")
	for i := range 8 {
		target := []*redisproc.Node{twin, r.nodes[2]}[i%2]
		r.proxies[2].SetTarget(target.Network(), target.Addr())
		r.proxies[2].Cut()
		_, err := b.try("held")
		require.Error(t, err)
		r.release(b.mustTry("other"))
		r.requireHeldFor(g, lease/4)
	}
	r.settle("held", "other")
}

// Row 36, where two clients see one process each, and that is what decides. Nobody can see it: exclusion is not
// promised, which the package doc says, and the tokens must do.
func TestRow36TwoProcessesByClient(t *testing.T) {
	t.Parallel()
	r := newRig(t, 5, redisproc.Options{})
	twin := redistest.Start(t, redisproc.Options{})
	a, b := r.client("a"), r.client("b")
	a.cutOff(3, 4)
	b.links[2].SetTarget(twin.Network(), twin.Addr())
	b.links[2].Cut()
	g := a.mustTry("held")
	b.silence(netproxy.Both, 0, 1)
	next, err := b.TryAcquire(t.Context(), "held") // not for the history: they may overlap
	for end := time.Now().Add(lease + soon); err != nil && time.Now().Before(end); time.Sleep(tick) {
		next, err = b.TryAcquire(t.Context(), "held")
	}
	require.NoError(t, err)
	require.NoError(t, g.Err(), "the twin could not be told from its brother")
	require.Greater(t, next.FencingToken(), g.FencingToken())
	require.NoError(t, next.Release(t.Context()))
	a.heal()
	b.heal()
	b.links[2].SetTarget(r.nodes[2].Network(), r.nodes[2].Addr())
	b.links[2].Cut()
	r.settle("held")
}

// Row 41: clients that do not agree on what must be the same for all are refused, with both values.
func TestRow41Disagreement(t *testing.T) {
	t.Parallel()
	r := newRig(t, 5, redisproc.Options{})
	a := r.client("a")
	r.release(a.mustTry("held"))

	_, err := r.newClient("too few", func(o *redlock.LockerOption) { o.Nodes = o.Nodes[:2] })
	require.ErrorIs(t, err, redlock.ErrDisagreement)
	require.ErrorContains(t, err, "2 of 5 nodes are left without a permanent fault, quorum is 3")
	r.release(r.client("fewer", func(o *redlock.LockerOption) { o.Nodes = o.Nodes[:3] }).mustTry("held")) // a quorum of the members
	_, err = r.newClient("careless", func(o *redlock.LockerOption) { o.RestartQuarantine = -1 })
	require.ErrorContains(t, err, "RestartQuarantine is off here, the node's marker says on")

	// Two sets, both in use for longer than a lease. Those of a client's nodes that are not of the one set do not vote.
	stranger := newRig(t, 5, redisproc.Options{})
	s := stranger.client("stranger")
	time.Sleep(lease + 3*bound)
	mixed, err := r.newClient("mixed", func(o *redlock.LockerOption) {
		o.Nodes = append([]rueidis.ClientOption{redistest.Option(stranger.nodes[0]), redistest.Option(stranger.nodes[1])}, o.Nodes[:3]...)
	})
	if err == nil {
		mixed.try("held")
		r.eventually("mixed sets are seen", func() bool { return strings.Contains(mixed.log.String(), "nodes of different sets were mixed") })
		mixed.Close()
	} else {
		require.ErrorContains(t, err, "nodes of different sets were mixed")
	}
	// And neither set has been harmed.
	held, other := a.mustTry("held"), s.mustTry("held")
	for i := range 5 {
		r.eventually("all vote", func() bool { return r.stored(r.nodes[i], "held") && r.stored(stranger.nodes[i], "held") })
	}
	r.release(held)
	stranger.release(other)

	twice, err := r.newClient("twice", func(o *redlock.LockerOption) { o.Nodes[4] = redistest.Option(r.nodes[0]) })
	if err == nil { // it was looked at after a quorum of others: the log says it
		r.eventually("one server twice is seen", func() bool { return strings.Contains(twice.log.String(), "it is the same server as") })
		twice.Close()
	} else {
		require.ErrorContains(t, err, "it is the same server as")
	}
	stranger.settle("held")
	r.settle("held")
}

// Row 41: a longer lease than the set allows is refused, until one call raises it.
func TestRow41LongerLease(t *testing.T) {
	t.Parallel()
	r := newRig(t, 5, redisproc.Options{})
	a := r.client("a")
	g := a.mustTry("held")
	_, err := r.newClient("long", validity(2*lease))
	require.ErrorIs(t, err, redlock.ErrNoQuorum)
	require.ErrorIs(t, err, redlock.ErrDisagreement)
	require.ErrorContains(t, err, "a lease of 4s is longer than 2s, the longest that this set allows")
	require.NoError(t, a.SetNodes(context.Background(), redlock.NodeSet{LongestLease: 2 * lease}))
	long := r.client("long", validity(2*lease))
	r.release(long.tryFor("other", soon))
	r.requireHeldFor(g, lease/2)
	// From now on a node that forgets waits for the longer one, whoever adopts it.
	forgot := time.Now()
	require.NoError(t, r.nodes[0].CrashEmpty())
	a.cutOff(3, 4)
	r.release(a.tryFor("more", 2*lease+soon))
	require.Greater(t, time.Since(forgot), 2*lease)
	a.heal()
	r.settle("held", "other", "more")
}
