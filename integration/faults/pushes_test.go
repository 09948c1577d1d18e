package faults

import (
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/redlock-go/redlock"
	"github.com/redlock-go/redlock/internal/netproxy"
	"github.com/redlock-go/redlock/internal/redisproc"
	"github.com/redlock-go/redlock/internal/redisproc/redistest"
)

// Row 32: the server's tracking table has room for one key, so it pushes what nobody touched. Locks hold, and whoever
// waits for a dead holder is not deaf: timers do what pushes should.
func TestRow32TrackingTableOverflows(t *testing.T) {
	t.Parallel()
	r := newRig(t, 5, redisproc.Options{Args: []string{"--tracking-table-max-keys", "1"}})
	// A vote of which a push speaks ends if four round trips, 50 ms at least, bring no answer. That is for a busy machine to
	// keep, with every node pushing all the time: a far one is given longer. The leases are long, and renewed as often as
	// short ones.
	patient := func(o *redlock.LockerOption) {
		o.KeyValidity, o.ExtendInterval, o.NodeTimeout = 8*lease, lease/3, lease/2
	}
	r.allow(8 * lease)
	a, b, c := r.client("a", patient), r.client("b"), r.client("c")
	for _, l := range a.links {
		l.Delay(netproxy.Both, 100*time.Millisecond, nil)
	}
	for range 10 { // so that it knows how far they are
		r.release(a.mustTry("far"))
	}
	var guards []*redlock.Guard
	for i := range 10 {
		guards = append(guards, a.mustTry(fmt.Sprint("held", i)))
	}
	for end := time.Now().Add(lease + lease/2); time.Now().Before(end); time.Sleep(lease / 10) {
		for _, g := range guards {
			require.NoError(t, g.Err())
		}
	}
	dead := b.mustTry("dead")
	b.silence(netproxy.Both, 0, 1, 2, 3, 4)
	start := time.Now()
	g := c.wait("dead", lease+soon)
	t.Logf("served %v after the holder died", time.Since(start))
	require.Error(t, dead.Err())
	r.release(g)
	b.heal()
	// And a release wakes the next one.
	next := make(chan *redlock.Guard)
	go func() { next <- b.wait("held0", soon) }()
	r.waiters(a, "held0", 1)
	r.release(guards[0])
	r.release(<-next)
	r.settle("held0", "dead")
}

// Row 33: 100,000 other keys that expire hold up the server's own expiry for many seconds, and with it the push. A
// waiter's timer does not wait for it.
func TestRow33ManyVolatileKeys(t *testing.T) {
	t.Parallel()
	r := newRig(t, 5, redisproc.Options{})
	const fill = `for i = 1, 20000 do redis.call('SET', 'v' .. ARGV[1] .. i, '', 'PX', 60000 + i % 60000) end`
	for _, n := range r.nodes {
		for part := range 5 {
			r.do(n, "EVAL", fill, "0", fmt.Sprint(part, "-"))
		}
	}
	a, b := r.client("a"), r.client("b")
	g := a.mustTry("held")
	a.silence(netproxy.Both, 0, 1, 2, 3, 4)
	start := time.Now()
	next := b.wait("held", lease+soon)
	took := time.Since(start)
	t.Logf("served %v after the holder died, lease %v", took, lease)
	require.Error(t, g.Err())
	r.release(next)
	a.heal()
	r.all("FLUSHALL")
	r.settle("held")
}

// Row 37: an adversary deletes the key as fast as it can, so that pushes come before the answers they belong to. On
// a minority of nodes that costs their votes: a lock that had been won by them alone, an instant before the others
// answered, is lost again as soon as the push is there. On all nodes whatever is granted ends at once.
func TestRow37DeletedBeforeTheReply(t *testing.T) {
	t.Parallel()
	r := newRig(t, 5, redisproc.Options{})
	a, b := r.client("a"), r.client("b")
	adversary := func(n *redisproc.Node) (stop func()) {
		c := redistest.Client(t, n)
		return r.background(func() {
			c.Do(t.Context(), c.B().Del().Key(lockKey("held")).Build())
			time.Sleep(50 * time.Microsecond)
		})
	}
	stops := []func(){adversary(r.nodes[0]), adversary(r.nodes[3])}
	lost := 0
	for range 50 {
		g := a.mustTry("held")
		// Until the push is there a's guard does not know: judged by the tokens.
		if next, err := r.history.AcquireNow(t.Context(), "b", b.TryAcquire, "held"); err == nil {
			r.requireLost(g, soon)
			r.history.Release(t.Context(), next)
		} else {
			require.Regexp(t, "not locked|no quorum", err) // the latter where its own votes were deleted, too
		}
		if r.history.Release(t.Context(), g) != nil {
			lost++
		}
	}
	t.Logf("%d of 50 were lost with a minority deleted", lost)
	require.Less(t, lost, 50)
	var g *redlock.Guard
	r.eventually("held by all others", func() bool {
		g = a.mustTry("held")
		time.Sleep(lease / 20)
		return g.Err() == nil
	})
	r.requireHeldFor(g, lease)
	for _, i := range []int{1, 2, 4} {
		stops = append(stops, adversary(r.nodes[i]))
	}
	r.requireLost(g, soon)
	won := 0
	for range 50 {
		// Somebody who deletes everywhere takes exclusion away, so these are not for the history.
		g, err := a.TryAcquire(t.Context(), "held")
		if err != nil {
			continue
		}
		won++
		r.requireLost(g, soon)
	}
	t.Logf("%d of 50 were granted, and lost", won)
	for _, stop := range stops {
		stop()
	}
	r.settle("held")
}
