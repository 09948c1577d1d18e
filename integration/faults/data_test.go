package faults

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"testing"
	"time"

	"github.com/redis/rueidis"
	"github.com/stretchr/testify/require"

	"github.com/redlock-go/redlock"
	"github.com/redlock-go/redlock/internal/netproxy"
	"github.com/redlock-go/redlock/internal/redisproc"
	"github.com/redlock-go/redlock/internal/redisproc/redistest"
)

// Row 20: FLUSHALL on one node: its vote is gone, the others stand, and the node grants nothing for a lease.
func TestRow20FlushOne(t *testing.T) {
	for _, command := range []string{"FLUSHALL", "FLUSHDB"} {
		t.Run(command, func(t *testing.T) {
			t.Parallel()
			r := newRig(t, 5, redisproc.Options{})
			a, b := r.client("a"), r.client("b")
			g := a.mustTryOnAll("held")
			r.do(r.nodes[0], command)
			flushed := time.Now()
			_, err := b.try("held")
			require.ErrorIs(t, err, redlock.ErrNotLocked)
			b.cutOff(3, 4)
			r.release(b.tryFor("other", lease+soon)) // needs node 0
			require.Greater(t, time.Since(flushed), lease)
			b.heal()
			r.requireHeldFor(g, lease/2)
			r.settle("held", "other")
		})
	}
}

// Row 20, of the node that decides, with a holder that cannot know.
func TestRow20FlushTheDecidingNode(t *testing.T) {
	t.Parallel()
	r := newRig(t, 5, redisproc.Options{})
	r.forgetting(func() { r.do(r.nodes[2], "FLUSHALL") })
	r.settle("held")
}

// Row 21: FLUSHALL on a majority. The holder is pushed and ends; nobody else acquires for a lease.
func TestRow21FlushMajority(t *testing.T) {
	for _, cutOff := range []bool{false, true} {
		t.Run(fmt.Sprintf("holder cut off %v", cutOff), func(t *testing.T) {
			t.Parallel()
			r := newRig(t, 5, redisproc.Options{})
			a, b := r.client("a"), r.client("b")
			g := a.mustTry("held")
			if cutOff {
				a.silence(netproxy.Both, 0, 1, 2, 3, 4)
			}
			flushed := time.Now()
			for _, n := range r.nodes[:3] {
				r.do(n, "FLUSHALL")
			}
			next := b.tryFor("held", lease+soon)
			require.Greater(t, time.Since(flushed), lease)
			require.ErrorIs(t, g.Err(), redlock.ErrLost)
			require.Greater(t, next.FencingToken(), g.FencingToken())
			r.release(next)
			a.heal()
			r.settle("held")
		})
	}
}

// inDB runs commands on one connection in another database.
func inDB(t *testing.T, n *redisproc.Node, db int, commands ...string) {
	t.Helper()
	o := redistest.Option(n)
	o.SelectDB, o.DisableCache = db, true
	c, err := rueidis.NewClient(o)
	require.NoError(t, err)
	defer c.Close()
	for _, command := range commands {
		require.NoError(t, c.Do(context.Background(), c.B().Arbitrary(command).Build()).Error())
	}
}

// Row 22: FLUSHDB of another database pushes "everything is gone" to everybody. It is not: look, and live on.
func TestRow22FlushOtherDatabase(t *testing.T) {
	t.Parallel()
	r := newRig(t, 5, redisproc.Options{})
	a, b := r.far("a"), r.client("b")
	g := a.mustTry("held")
	for end := time.Now().Add(lease); time.Now().Before(end); time.Sleep(lease / 20) {
		for _, n := range r.nodes {
			inDB(t, n, 1, "FLUSHDB")
		}
	}
	require.NoError(t, g.Err())
	_, err := b.try("held")
	require.ErrorIs(t, err, redlock.ErrNotLocked)
	r.release(b.mustTry("other"))
	// Re-armed: a real loss is pushed.
	r.all("DEL", lockKey("held"))
	r.requireLost(g, soon)
	r.settle("held", "other")
}

// Row 23: SWAPDB takes lock and marker away and pushes nothing.
func TestRow23SwapDB(t *testing.T) {
	t.Parallel()
	r := newRig(t, 5, redisproc.Options{})
	a, b := r.client("a"), r.client("b")
	g := a.mustTryOnAll("held")
	for _, n := range r.nodes[:2] {
		r.do(n, "SWAPDB", "0", "1")
	}
	r.requireHeldFor(g, lease) // seen by an extension, and outvoted
	swapped := time.Now()
	r.do(r.nodes[2], "SWAPDB", "0", "1")
	next := b.tryFor("held", 2*lease+soon)
	require.ErrorIs(t, g.Err(), redlock.ErrLost)
	t.Logf("next holder %v after the third was swapped", time.Since(swapped))
	r.release(next)
	for _, n := range r.nodes[:3] {
		inDB(t, n, 1, "FLUSHDB")
	}
	r.settle("held")
}

func TestRow23SwapTheDecidingNode(t *testing.T) {
	t.Parallel()
	r := newRig(t, 5, redisproc.Options{})
	r.forgetting(func() { r.do(r.nodes[2], "SWAPDB", "0", "1") })
	inDB(t, r.nodes[2], 1, "FLUSHDB")
	r.settle("held")
}

// Row 24: somebody deletes the lock on one node: it is won back when the next renewal is due.
func TestRow24DeleteOnOneNode(t *testing.T) {
	t.Parallel()
	r := newRig(t, 5, redisproc.Options{})
	a, b := r.client("a"), r.client("b")
	g := a.mustTryOnAll("held")
	r.do(r.nodes[3], "DEL", lockKey("held"))
	_, err := b.try("held")
	require.ErrorIs(t, err, redlock.ErrNotLocked)
	r.eventually("won back", func() bool { return r.stored(r.nodes[3], "held") })
	r.requireHeldFor(g, lease/2)
	r.settle("held")
}

// Row 24: and on a majority: they mean it. The guard ends at once and recreates nothing.
func TestRow24DeleteOnMajority(t *testing.T) {
	t.Parallel()
	r := newRig(t, 5, redisproc.Options{})
	// With a lease so long that renewals are seldom, it is the push that says so.
	r.allow(5 * lease)
	a, b := r.client("a", validity(5*lease)), r.client("b", validity(5*lease))
	told := 0
	for range 5 {
		g := a.mustTry("held")
		start, times := time.Now(), 0
		// A vote that is just on its way, or a renewal that is due between two of the deletions, keeps the lock: rightly.
		r.eventually("lost", func() bool {
			times++
			for _, n := range r.nodes[:3] {
				r.do(n, "DEL", lockKey("held"))
			}
			select {
			case <-g.Done():
				return true
			case <-time.After(lease / 4):
				return false
			}
		})
		require.ErrorIs(t, g.Err(), redlock.ErrLost)
		t.Logf("lost %v after the first of %d deletions", time.Since(start), times)
		if time.Since(start) < lease/4 {
			told++
		}
		next := b.mustTry("held")
		require.Greater(t, next.FencingToken(), g.FencingToken())
		r.release(next)
	}
	require.GreaterOrEqual(t, told, 3, "pushes are not heard")
	r.settle("held")
}

// Row 25: PERSIST makes a dead holder's keys stand for ever. Whoever is refused cuts them to the longest lease.
func TestRow25Persist(t *testing.T) {
	t.Parallel()
	r := newRig(t, 5, redisproc.Options{})
	a, b := r.client("a"), r.client("b")
	g := a.mustTry("held")
	a.silence(netproxy.Both, 0, 1, 2, 3, 4)
	r.all("PERSIST", lockKey("held"))
	next := b.wait("held", 2*lease+soon)
	require.ErrorIs(t, g.Err(), redlock.ErrLost)
	r.release(next)
	a.heal()
	r.settle("held")
}

// Row 25, while the holder lives: nothing is lost, and its release takes the keys away.
func TestRow25PersistWhileHeld(t *testing.T) {
	t.Parallel()
	r := newRig(t, 5, redisproc.Options{})
	a, b := r.far("a"), r.client("b")
	g := a.mustTry("held")
	r.all("PERSIST", lockKey("held"))
	r.requireHeldFor(g, lease)
	_, err := b.try("held")
	require.ErrorIs(t, err, redlock.ErrNotLocked)
	r.release(g)
	r.release(b.mustTry("held"))
	r.settle("held")
}

// Row 25: a foreign value. On a minority it costs that vote; on a majority the lock, and whoever is next waits a
// lease and not for ever.
func TestRow25ForeignSet(t *testing.T) {
	t.Parallel()
	r := newRig(t, 5, redisproc.Options{})
	a, b := r.client("a"), r.client("b")
	g := a.mustTryOnAll("held")
	for _, n := range r.nodes[:2] {
		r.do(n, "SET", lockKey("held"), "by hand")
	}
	r.requireHeldFor(g, lease)
	r.do(r.nodes[2], "SET", lockKey("held"), "by hand")
	r.requireLost(g, soon)
	r.release(b.wait("held", 2*lease+soon))
	r.settle("held")
}

// Row 26: a server that evicts may forget any key, and is warned of at the start. Where it evicts only what has a
// lease, as volatile-* does, locks are lost and exclusion with them, but not the fence: tokens rise all the same. Where
// it evicts anything, as allkeys-* does, the fence's memory may go too: nothing is promised but that it goes on.
func TestRow26Eviction(t *testing.T) {
	for _, policy := range []string{"volatile-lru", "allkeys-random"} {
		t.Run(policy, func(t *testing.T) {
			t.Parallel()
			r := newRig(t, 5, redisproc.Options{Args: []string{"--maxmemory", "4mb", "--maxmemory-policy", policy}})
			r.unseen = true
			a := r.client("a")
			require.Contains(t, a.log.String(), "maxmemory-policy noeviction")
			stop := r.background(func() {
				for _, n := range r.nodes {
					n.Do("EVAL", "for i=1,20 do redis.call('SET', KEYS[1]..ARGV[1]..i, string.rep('x', 4096), 'PX', 60000) end", "1", "filler", strconv.FormatInt(time.Now().UnixNano(), 36))
				}
			})
			last, got := uint64(0), 0
			evicted := func() (all int) {
				for _, n := range r.nodes {
					count, err := strconv.Atoi(infoField(t, n, "stats", "evicted_keys"))
					require.NoError(t, err)
					all += count
				}
				return all
			}
			start := time.Now()
			for time.Since(start) < 2*lease || (got == 0 || evicted() == 0) && time.Since(start) < 2*lease+soon {
				time.Sleep(2 * tick)
				g, err := a.TryAcquire(context.Background(), "held") // exclusion is not promised here: not for the history
				if err != nil {
					continue
				}
				if policy == "volatile-lru" {
					require.Greater(t, g.FencingToken(), last)
				}
				last, got = g.FencingToken(), got+1
				g.Release(context.Background())
			}
			stop()
			require.Positive(t, evicted())
			require.Positive(t, got)
			t.Logf("%d locks while %d keys were evicted", got, evicted())
			r.all("CONFIG", "SET", "maxmemory", "0")
			r.all("FLUSHALL")
			r.settle("held")
		})
	}
}

func infoField(t *testing.T, n *redisproc.Node, section, field string) string {
	t.Helper()
	c := redistest.Client(t, n)
	defer c.Close()
	text, err := c.Do(context.Background(), c.B().Info().Section(section).Build()).ToString()
	require.NoError(t, err)
	for line := range lines(text) {
		if value, ok := cutField(line, field); ok {
			return value
		}
	}
	require.Fail(t, "INFO has no field", "%s in %s", field, section)
	return ""
}

// Row 27: memory is full and nothing may be evicted: no new lock, and the error says why; what is held is renewed and
// can be released.
func TestRow27MemoryFull(t *testing.T) {
	t.Parallel()
	r := newRig(t, 5, redisproc.Options{})
	a, b := r.client("a"), r.client("b")
	g := a.mustTry("held")
	r.all("CONFIG", "SET", "maxmemory", "1")
	var err error
	r.eventually("each node says what it has", func() bool { // one that a busy machine keeps back may not have answered yet
		_, err = b.try("other")
		require.ErrorIs(t, err, redlock.ErrNoQuorum)
		return reasonsWith(err, "OOM") >= 3
	})
	var re *rueidis.RedisError
	require.True(t, errors.As(err, &re))
	r.requireHeldFor(g, lease+lease/2)
	r.release(g)
	r.eventually("released with full memory", func() bool { return r.storing("held") == 0 })
	r.all("CONFIG", "SET", "maxmemory", "0")
	r.settle("held", "other")
}
