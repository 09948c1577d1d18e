package redlock_test

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"math/rand/v2"
	"net"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/redlock-go/redlock"
	"github.com/redlock-go/redlock/redlocktest"
)

// Schedules are single interleavings, each the shortest that tells a mutation of the library from the library: where
// the simulation needs luck these need none. docs/safety.md, section 5, says which mutation each one catches.
//
// All run on simulated nodes under virtual time. Every message takes 1 ms unless a schedule says otherwise; the lease
// is 1 s, so that ClockBound is 50 ms and a claim ends 850 ms after its question was sent.

const (
	oneWay = time.Millisecond
	lease  = time.Second
	counts = lease - lease/10 - lease/20 // of a lease, by the default DriftFactor and ClockBound
	lockX  = "redlock:{x}"
)

// schedule is one interleaving under way.
type schedule struct {
	*testing.T
	cluster *redlocktest.Cluster
}

func interleave(t *testing.T, nodes int, test func(t *testing.T, s *schedule)) {
	t.Helper()
	seedRandom(t, 1)
	synctest.Test(t, func(t *testing.T) {
		test(t, &schedule{t, redlocktest.NewCluster(t, nodes)})
	})
}

// open returns a Locker on a host of its own that has looked at all nodes.
func (s *schedule) open(host string, options ...optionFunc) *redlock.Locker {
	s.Helper()
	l, err := redlock.NewLocker(s.option(host, options...))
	require.NoError(s, err)
	s.Cleanup(l.Close)
	time.Sleep(20 * time.Millisecond)
	return l
}

func (s *schedule) option(host string, options ...optionFunc) redlock.LockerOption {
	for _, l := range s.cluster.Client(host).Links() {
		l.Delay(oneWay, oneWay)
	}
	o := s.cluster.Client(host).Option()
	o.KeyValidity = lease
	for _, f := range options {
		f(&o)
	}
	return o
}

func (s *schedule) link(host string, node int) *redlocktest.Link {
	return s.cluster.Client(host).Link(node)
}

// stored returns what the nodes store under lock x, "" for nothing.
func (s *schedule) stored() (values []string) {
	for _, n := range s.cluster.Nodes() {
		value, _ := n.Get(lockX)
		values = append(values, value)
	}
	return values
}

// requireCovered asserts that a guard counts on no node's key for longer than it lasts there by any clock within the
// assumptions.
func (s *schedule) requireCovered(g *redlock.Guard, node int) {
	s.Helper()
	left, leased := s.cluster.Node(node).PTTL(lockX)
	if !leased {
		require.Error(s, g.Err(), "the key is gone")
		return
	}
	require.LessOrEqual(s, time.Until(g.ValidUntil()), left-s.spare(), "guard against what is left on the node")
}

// spare is for how much longer than it counts a key must last. PTTL counts whole milliseconds.
func (s *schedule) spare() time.Duration { return lease - counts - time.Millisecond }

// requireEndedBy has a rival try until it is granted the lock, and asserts that the holder has ended by then.
func (s *schedule) requireEndedBy(rival *redlock.Locker, holder *redlock.Guard) *redlock.Guard {
	s.Helper()
	for range 2000 {
		g, err := rival.TryAcquire(context.Background(), "x")
		if err == nil {
			require.Error(s, holder.Err(), "two live guards")
			return g
		}
		time.Sleep(5 * time.Millisecond)
	}
	require.Fail(s, "the rival never gets the lock")
	return nil
}

// Schedule: nothing happens. a holds, renews, and releases, then b does. It holds for every mutation that is worth
// trying: what fails it breaks more than it means to.
func TestScheduleUndisturbed(t *testing.T) {
	interleave(t, 3, func(t *testing.T, s *schedule) {
		a, b := s.open("a"), s.open("b")
		for _, l := range []*redlock.Locker{a, b} {
			g := tryAcquire(t, l, "x")
			time.Sleep(lease / 2)
			require.NoError(t, g.Err())
			release(t, g)
		}
	})
}

// Schedule: the question takes 1 ms, the answer 200 ms. The node counts its lease from when the question came, so a
// claim counted from when the answer came would outlast the key by 50 ms. Then the same with the answers to renewals.
func TestScheduleValidityCountsFromTheSend(t *testing.T) {
	interleave(t, 1, func(t *testing.T, s *schedule) {
		l := s.open("a")
		s.link("a", 0).Delay(oneWay, 200*time.Millisecond)
		sent := time.Now()
		g := tryAcquire(t, l, "x")
		require.Equal(t, counts-1, g.ValidUntil().Sub(sent))
		for range 200 {
			s.requireCovered(g, 0)
			time.Sleep(10 * time.Millisecond)
		}
		require.NoError(t, g.Err())
		silence(s.cluster.Client("a"))
		for g.Err() == nil {
			s.requireCovered(g, 0)
			time.Sleep(time.Millisecond)
		}
	})
}

// holdsBetween deletes a holder's key on node 0, where the holder "a" hears of it only after delay; rival takes the lock
// meanwhile and gives it back. That is outside the assumptions: somebody deletes keys.
func (s *schedule) holdsBetween(holder *redlock.Guard, rival *redlock.Locker, delay time.Duration) {
	s.Helper()
	s.link("a", 0).Delay(oneWay, delay)
	require.True(s, s.cluster.Node(0).Del(lockX))
	g := tryAcquire(s, rival, "x")
	require.NoError(s, g.Err())
	release(s, g)
	require.NoError(s, holder.Err(), "not told yet")
}

// lapse cuts the holder off just after its grant and asserts that its guard ends before its key does.
func (s *schedule) lapse(g *redlock.Guard) {
	s.Helper()
	silence(s.cluster.Client("a"))
	for ended := false; ; time.Sleep(time.Millisecond / 4) {
		ended = ended || g.Err() != nil
		if _, ok := s.cluster.Node(0).Get(lockX); !ok {
			require.True(s, ended, "the key is gone, the guard counts on it until %v", g.ValidUntil())
			return
		}
	}
}

// Schedule: right after the grant the node's clock steps forward by just under ClockBound, and the holder hears nothing
// any more. Its key goes that much early.
func TestScheduleClockBoundCoversAStep(t *testing.T) {
	interleave(t, 1, func(t *testing.T, s *schedule) {
		l := s.open("a", func(o *redlock.LockerOption) { o.DriftFactor = .0001 })
		g := tryAcquire(t, l, "x")
		s.cluster.Node(0).StepClock(lease/20 - 2*time.Millisecond)
		s.lapse(g)
	})
}

// Schedule: the node's clock runs 9 % fast, the holder hears nothing any more. Its key goes after 1 s / 1.09.
func TestScheduleDriftCoversAFastClock(t *testing.T) {
	interleave(t, 1, func(t *testing.T, s *schedule) {
		l := s.open("a")
		g := tryAcquire(t, l, "x")
		s.cluster.Node(0).SetClockRate(1.09)
		s.lapse(g)
	})
}

// Schedule: a is stopped just after its grant, for longer than its keys last; b acquires, acts, releases; a goes on, and
// what its extender finds due is sent. Then a's keys are absent and free to be set again, which must not revive it:
// the acts of the name would be a, b, a.
func TestScheduleStoppedHolderIsNotRevived(t *testing.T) {
	interleave(t, 3, func(t *testing.T, s *schedule) {
		var mu sync.Mutex
		stoppedAt := time.Time{}
		a, err := redlock.NewLockerOn(s.option("a"), func() time.Time {
			mu.Lock()
			defer mu.Unlock()
			if !stoppedAt.IsZero() {
				return stoppedAt
			}
			return time.Now()
		}, nil)
		require.NoError(t, err)
		t.Cleanup(a.Close)
		b := s.open("b")
		g := tryAcquire(t, a, "x")
		require.NoError(t, g.Err())

		silence(s.cluster.Client("a"))
		mu.Lock()
		stoppedAt = time.Now()
		mu.Unlock()
		time.Sleep(lease + 2*time.Millisecond)
		g2 := tryAcquire(t, b, "x")
		release(t, g2)
		mu.Lock()
		stoppedAt = time.Time{}
		mu.Unlock()
		for _, l := range s.cluster.Client("a").Links() {
			l.Heal()
		}
		time.Sleep(100 * time.Millisecond) // its first look at the guard comes late
		for range 100 {
			require.ErrorIs(t, g.Err(), redlock.ErrLost)
			require.Error(t, g.Context().Err())
			time.Sleep(10 * time.Millisecond)
		}
		require.Equal(t, []string{"", "", ""}, s.stored())
	})
}

// Schedule, three nodes:
//
//	a holds on all; its key is deleted on node 2, which a finds out
//	a's next renewal is sent, to node 2 with leave to set the key again; to node 2 it takes 50 ms
//	a's key is deleted on node 0, the push of which takes 40 ms
//	b acquires on nodes 0 and 2, acts, and releases
//	the push comes: a's vote on node 0 is in doubt, a look is on its way
//	node 2 sets a's key again and says so; it was pushed too, and says so once more
//	the look says that the vote on node 0 is gone
//
// If the vote won back counted, a would have nodes 1 and 2 and live on, after b.
func TestScheduleVoteIsWonBackOnlyWhileAQuorumStands(t *testing.T) {
	interleave(t, 3, func(t *testing.T, s *schedule) {
		a, b := s.open("a"), s.open("b")
		g := tryAcquire(t, a, "x")
		time.Sleep(5 * time.Millisecond)
		require.True(t, s.cluster.Node(2).Del(lockX))
		time.Sleep(5 * time.Millisecond)
		s.link("a", 2).Delay(50*time.Millisecond, oneWay)
		renewals := func() int { return s.link("a", 0).Commands()["EVALSHA"] }
		for before := renewals(); renewals() == before; {
			time.Sleep(time.Millisecond / 4)
		}
		time.Sleep(3 * time.Millisecond) // answered
		s.link("a", 2).Delay(oneWay, oneWay)
		s.holdsBetween(g, b, 40*time.Millisecond)
		time.Sleep(200 * time.Millisecond)
		require.ErrorIs(t, g.Err(), redlock.ErrLost)
	})
}

// Schedule, three nodes: a holds by nodes 0 and 1, somebody else node 2. When that one lets go a takes the vote at once, since those who wait
// would have it before its next renewal. A vote that a has had, and that somebody deletes, waits for that.
func TestScheduleAVoteThatWasNeverHadIsTakenWhenItIsFree(t *testing.T) {
	interleave(t, 3, func(t *testing.T, s *schedule) {
		s.cluster.Node(2).Set(lockX, "SOMEBODYELSEWHOWAITS000000", 10*lease)
		g := tryAcquire(t, s.open("a"), "x")
		renewals := func() int { return s.link("a", 2).Commands()["EVALSHA"] }
		for before := renewals(); renewals() == before; {
			time.Sleep(time.Millisecond)
		}
		time.Sleep(5 * time.Millisecond) // answered
		require.True(t, s.cluster.Node(2).Del(lockX))
		time.Sleep(5 * time.Millisecond)
		value, _ := s.cluster.Node(2).Get(lockX)
		require.Contains(t, value, g.Owner())

		require.True(t, s.cluster.Node(2).Del(lockX))
		time.Sleep(5 * time.Millisecond)
		value, _ = s.cluster.Node(2).Get(lockX)
		require.Empty(t, value)
		time.Sleep(lease / 2)
		value, _ = s.cluster.Node(2).Get(lockX)
		require.Contains(t, value, g.Owner())
		require.NoError(t, g.Err())
	})
}

// Schedule, three nodes: as before, but the third vote is a straggler.
//
//	a has nodes 0 and 1 and holds; its question to node 2 takes 100 ms
//	a's key is deleted on node 0, the push of which takes 95 ms
//	b acquires on nodes 0 and 2, acts, and releases
//	the push comes; node 2 votes for a, long after the verdict; the look says that the vote on node 0 is gone
func TestScheduleStragglerCountsOnlyWhileAQuorumStands(t *testing.T) {
	interleave(t, 3, func(t *testing.T, s *schedule) {
		a, b := s.open("a"), s.open("b")
		s.link("a", 2).Delay(100*time.Millisecond, oneWay)
		g := tryAcquire(t, a, "x")
		s.holdsBetween(g, b, 95*time.Millisecond)
		time.Sleep(250 * time.Millisecond)
		require.ErrorIs(t, g.Err(), redlock.ErrLost)
	})
}

// Schedule: somebody deletes a's keys on two nodes of three. Both pushes arrive, but nothing that a sends: the looks that
// follow get no answer. Both votes are in doubt, and end when a look has had its time, long before the claims.
func TestSchedulePushedVoteEndsUnlessALookConfirmsIt(t *testing.T) {
	interleave(t, 3, func(t *testing.T, s *schedule) {
		a := s.open("a")
		g := tryAcquire(t, a, "x")
		time.Sleep(5 * time.Millisecond)
		for _, l := range s.cluster.Client("a").Links() {
			l.SilenceRequests()
		}
		s.cluster.Node(0).Del(lockX)
		s.cluster.Node(1).Del(lockX)
		time.Sleep(2 * oneWay)
		require.NoError(t, g.Err(), "the looks are on their way")
		time.Sleep(lease / 10)
		require.ErrorIs(t, g.Err(), redlock.ErrLost)
	})
}

// Schedule: b holds nodes 0 and 1; a's question reaches node 2 after 100 ms, when its attempt has long been refused.
// The vote is for an attempt that is over: it is given back as soon as it is heard of.
func TestScheduleVoteForAnAttemptThatIsOverIsGivenBack(t *testing.T) {
	interleave(t, 3, func(t *testing.T, s *schedule) {
		a, b := s.open("a"), s.open("b")
		s.link("b", 2).SilenceRequests()
		g := tryAcquire(t, b, "x")
		s.link("a", 2).Delay(100*time.Millisecond, oneWay)
		asked := time.Now()
		_, err := a.TryAcquire(context.Background(), "x")
		require.ErrorIs(t, err, redlock.ErrNotLocked)
		s.link("a", 2).Delay(oneWay, oneWay)
		time.Sleep(time.Until(asked.Add(100*time.Millisecond + oneWay/2)))
		require.NotEmpty(t, s.stored()[2], "the straggler's vote")
		time.Sleep(3 * oneWay)
		require.Empty(t, s.stored()[2])
		require.NoError(t, g.Err())
	})
}

// Schedule: a's question takes 100 ms to the only node; after 10 ms something on the way, a firewall say, resets the
// connection at a's end. a connects anew and releases, and the node confirms: it has nothing of a. Then the question
// arrives and is granted. a still owes a release, and sends it once the question can no longer be executed.
func TestScheduleGhostIsReleased(t *testing.T) {
	interleave(t, 1, func(t *testing.T, s *schedule) {
		var conn net.Conn
		a := s.open("a", func(o *redlock.LockerOption) {
			dial := o.Nodes[0].DialCtxFn
			o.Nodes[0].DialCtxFn = func(ctx context.Context, addr string, d *net.Dialer, c *tls.Config) (net.Conn, error) {
				reached, err := dial(ctx, addr, d, c)
				conn = reached
				return reached, err
			}
		})
		s.link("a", 0).Delay(100*time.Millisecond, oneWay)
		asked := time.Now()
		afterward(t, func() {
			time.Sleep(10 * time.Millisecond)
			s.link("a", 0).Delay(oneWay, oneWay)
			conn.Close()
		})
		_, err := a.TryAcquire(context.Background(), "x")
		require.ErrorIs(t, err, redlock.ErrNoQuorum)
		time.Sleep(time.Until(asked.Add(110 * time.Millisecond)))
		require.NotEmpty(t, s.stored()[0], "the ghost")
		time.Sleep(lease / 2)
		require.Empty(t, s.stored()[0], "nobody has given it back")
	})
}

// Schedule: a holds on nodes 0 and 1 and is cut off. Node 1 forgets everything, by FLUSHALL, and before b has been told
// of it b's question is there. Nodes 1 and 2 would make b a second holder.
func TestScheduleFlushedNodeGrantsNothing(t *testing.T) {
	interleave(t, 3, func(t *testing.T, s *schedule) {
		a, b := s.open("a", quarantineOn), s.open("b", quarantineOn)
		time.Sleep(5 * lease)
		s.link("a", 2).Silence()
		g := tryAcquire(t, a, "x")
		silence(s.cluster.Client("a"))
		s.cluster.Node(1).Do("FLUSHALL")
		s.requireEndedBy(b, g)
	})
}

// Schedule: as before, but node 1 restarts empty, and b comes again and again until it is granted the lock.
func TestScheduleNodeThatLostItsMemoryIsQuarantined(t *testing.T) {
	interleave(t, 3, func(t *testing.T, s *schedule) {
		a, b := s.open("a", quarantineOn), s.open("b", quarantineOn)
		time.Sleep(5 * lease)
		s.link("a", 2).Silence()
		g := tryAcquire(t, a, "x")
		silence(s.cluster.Client("a"))
		s.cluster.Node(1).CrashEmpty()
		s.requireEndedBy(b, g)
	})
}

// Schedule: a holds on nodes 0 and 1 and is cut off. Node 0's clock jumps by an hour, so that a's key is gone there; b,
// who has never seen it before, asks. Nodes 0 and 2 would make b a second holder; node 1, which refuses, tells the time.
func TestScheduleNewcomerDoesNotCountAJumpedClock(t *testing.T) {
	interleave(t, 3, func(t *testing.T, s *schedule) {
		a := s.open("a")
		s.link("a", 2).Silence()
		g := tryAcquire(t, a, "x")
		silence(s.cluster.Client("a"))
		s.cluster.Node(0).StepClock(time.Hour)
		s.requireEndedBy(s.open("b"), g)
	})
}

// Schedule: the same, and b has seen the clock before, but only that of node 0 and node 2: node 1 is cut off from b.
func TestScheduleClockIsWatchedFromLookToLook(t *testing.T) {
	interleave(t, 3, func(t *testing.T, s *schedule) {
		a, b := s.open("a"), s.open("b")
		s.link("a", 2).Silence()
		g := tryAcquire(t, a, "x")
		silence(s.cluster.Client("a"))
		s.link("b", 1).Silence()
		s.cluster.Node(0).StepClock(time.Hour)
		s.cluster.Node(2).StepClock(time.Hour)
		for g.Err() == nil {
			if g2, err := b.TryAcquire(context.Background(), "x"); err == nil {
				require.Error(t, g.Err(), "two live guards")
				release(t, g2)
			}
			time.Sleep(5 * time.Millisecond)
		}
	})
}

// Schedule: a's machine stands still for 700 ms, its clock with it. To it all nodes' clocks step. Its lock ends, for it counts
// on leases that end 700 ms before it thinks; and it goes on at once, where one node that steps alone has no vote for the
// longest lease of any program.
func TestScheduleMachineThatStoodStillGoesOn(t *testing.T) {
	interleave(t, 3, func(t *testing.T, s *schedule) {
		a := s.open("a", func(o *redlock.LockerOption) { o.MaxKeyValidity, o.KeyValidity = time.Hour, 4*lease })
		g := tryAcquire(t, a, "x")
		time.Sleep(time.Second)
		for _, n := range s.cluster.Nodes() { // the same seen from there
			n.StepClock(700 * time.Millisecond)
		}
		time.Sleep(2 * time.Second)
		require.ErrorIs(t, g.Err(), redlock.ErrLost)
		require.ErrorIs(t, g.Err(), redlock.ErrClockOff)
		g = tryAcquire(t, a, "x")
		time.Sleep(10 * time.Second)
		require.NoError(t, g.Err())
		release(t, g)

		s.cluster.Node(0).StepClock(700 * time.Millisecond)
		s.cluster.Node(1).StepClock(700 * time.Millisecond)
		time.Sleep(time.Second)
		for range 3 {
			_, err := a.TryAcquire(context.Background(), "x")
			require.ErrorIs(t, err, redlock.ErrNoQuorum, "two may be wrong")
			time.Sleep(time.Second)
		}
	})
}

// Schedule, one node, answers and pushes take 200 ms:
//
//	b holds; a is refused, so that it is told of changes
//	b releases; a asks; a's question is granted
//	a is pushed b's release: the answer that comes now may be void, so a asks again
//	the node says yes, it is yours: it must have renewed the lease, for a counts it from the second question
func TestScheduleAskingAgainRenews(t *testing.T) {
	interleave(t, 1, func(t *testing.T, s *schedule) {
		a, b := s.open("a", nodeTimeout(450*time.Millisecond)), s.open("b")
		g := tryAcquire(t, b, "x")
		_, err := a.TryAcquire(context.Background(), "x")
		require.ErrorIs(t, err, redlock.ErrNotLocked)
		time.Sleep(10 * time.Millisecond)
		s.link("a", 0).Delay(oneWay, 200*time.Millisecond)
		before := s.link("a", 0).Commands()["EVALSHA"]
		afterward(t, func() { release(t, g) })
		time.Sleep(time.Millisecond / 2)
		g = tryAcquire(t, a, "x")
		require.Equal(t, 2, s.link("a", 0).Commands()["EVALSHA"]-before, "it asked twice")
		s.requireCovered(g, 0)
	})
}

// Schedule: a, with a lease of 4 s, is cut off; b takes over with a lease of 1 s and dies, before or after its first
// extension. Its keys are what keeps c away until a's lease has run out: nothing may shorten them.
func TestScheduleTakersLeaseIsNeverShorterThanTheDisplaced(t *testing.T) {
	long := func(o *redlock.LockerOption) { o.KeyValidity, o.MaxKeyValidity = 4*lease, 4*lease }
	short := func(o *redlock.LockerOption) { o.MaxKeyValidity = 4 * lease }
	for _, lives := range []time.Duration{10 * time.Millisecond, 500 * time.Millisecond} {
		interleave(t, 3, func(t *testing.T, s *schedule) {
			a, b, c := s.open("a", long), s.open("b", short), s.open("c", short)
			g := tryAcquire(t, a, "x")
			silence(s.cluster.Client("a"))
			_, err := b.ForceAcquireNow(context.Background(), "x")
			require.NoError(t, err)
			time.Sleep(lives)
			silence(s.cluster.Client("b"))
			s.requireEndedBy(c, g)
		})
	}
}

// Schedule: somebody flushes the scripts of all nodes faster than they can be loaded again. A lock that is held does not
// notice, and is given back; no vote is lost, as none could be won back meanwhile.
func TestScheduleScriptsAreFlushedAllTheTime(t *testing.T) {
	interleave(t, 3, func(t *testing.T, s *schedule) {
		a := s.open("a")
		g := tryAcquire(t, a, "x")
		for end := time.Now().Add(3 * lease); time.Now().Before(end); time.Sleep(oneWay) {
			for _, n := range s.cluster.Nodes() {
				n.FlushScripts()
			}
		}
		require.NoError(t, g.Err())
		covered := 0 // the third may have been renewed a look later or earlier than the two that the guard counts on
		for i := range 3 {
			if left, _ := s.cluster.Node(i).PTTL(lockX); time.Until(g.ValidUntil()) <= left-s.spare() {
				covered++
			}
			require.NotEmpty(t, s.stored()[i])
		}
		require.GreaterOrEqual(t, covered, 2, "guard against what is left on the nodes")
		release(t, g)
		require.Equal(t, []string{"", "", ""}, s.stored())
	})
}

// Schedule, three nodes; a reaches node 2 through a proxy, so that its connection outlives the server:
//
//	a holds on all; somebody deletes its key on node 2, which a finds out: it is to be won back
//	node 2 restarts on data that may be old; the marker is there, and is the one that a knows
//	a's renewal meets a server that does not know its scripts, and is sent once more by source
//
// Nobody knows what else node 2 has forgotten, a vote for somebody else maybe: it must not store a's owner before its
// quarantine is over.
func TestScheduleRenewalBySourceWinsNothingBackInAnotherProcess(t *testing.T) {
	for _, names := range [][]string{{"x"}, {"w", "x"}} {
		interleave(t, 3, func(t *testing.T, s *schedule) {
			a := s.open("a", quarantineOn, func(o *redlock.LockerOption) {
				dial := o.Nodes[2].DialCtxFn
				o.Nodes[2].DialCtxFn = func(ctx context.Context, addr string, d *net.Dialer, c *tls.Config) (net.Conn, error) {
					server, err := dial(ctx, addr, d, c)
					return &relay{Conn: server, turn: make(chan struct{}, 1), dial: func() (net.Conn, error) { return dial(context.Background(), addr, nil, nil) }}, err
				}
			})
			time.Sleep(5 * lease)
			g := tryAll(t, a, names...)
			time.Sleep(5 * time.Millisecond)
			dials := s.link("a", 2).Dials()
			require.True(t, s.cluster.Node(2).Del(lockX))
			time.Sleep(5 * time.Millisecond)
			s.cluster.Node(2).Restart()
			for restarted := time.Now(); time.Since(restarted) < lease; time.Sleep(time.Millisecond) {
				require.Empty(t, s.stored()[2], "%v after the restart", time.Since(restarted))
			}
			require.NoError(t, g.Err())
			require.Equal(t, dials+1, s.link("a", 2).Dials(), "by the proxy: a has seen no end of its connection")
			require.NotZero(t, s.link("a", 2).Commands()["EVAL"], "by source")
			time.Sleep(lease)
			require.NotEmpty(t, s.stored()[2], "its quarantine is over")
		})
	}
}

// relay is a proxy's end of a connection, which goes on with the next process when the server's has ended.
type relay struct {
	net.Conn               // to the server
	turn     chan struct{} // whoever has put something in may use it; a mutex would stop a bubble's time
	dial     func() (net.Conn, error)
	greeting []byte // what the client sent until it was answered, which the next process is sent, too
	answered atomic.Bool
}

func (r *relay) use() (done func()) {
	r.turn <- struct{}{}
	return func() { <-r.turn }
}

func (r *relay) Write(b []byte) (int, error) {
	defer r.use()()
	if !r.answered.Load() {
		r.greeting = append(r.greeting, b...)
	}
	return r.Conn.Write(b)
}

func (r *relay) Close() error {
	defer r.use()()
	return r.Conn.Close()
}

func (r *relay) SetDeadline(t time.Time) error {
	defer r.use()()
	return r.Conn.SetDeadline(t)
}

// Read is the one that replaces the connection, so that it may wait on it without its turn.
func (r *relay) Read(b []byte) (int, error) {
	n, err := r.Conn.Read(b)
	if !errors.Is(err, syscall.ECONNRESET) {
		r.answered.Store(true)
		return n, err
	}
	if err := r.reconnect(); err != nil {
		return 0, err
	}
	return r.Read(b)
}

func (r *relay) reconnect() (err error) {
	defer r.use()()
	if r.Conn, err = r.dial(); err != nil {
		return err
	}
	if _, err = r.Conn.Write(r.greeting); err != nil {
		return err
	}
	time.Sleep(5 * oneWay)
	_, err = r.Conn.Read(make([]byte, 1<<12)) // what the greeting is answered, which the client has had
	return err
}

// Schedule: more locks are asked for at once than a call to a node carries, on a network that is slow for such a crowd
// but not for one of them. They leave in several calls at once.
func TestScheduleBurst(t *testing.T) {
	interleave(t, 3, func(t *testing.T, s *schedule) {
		a := s.open("a")
		for _, l := range s.cluster.Client("a").Links() {
			l.Delay(25*time.Millisecond, 25*time.Millisecond)
		}
		began := time.Now()
		var callers sync.WaitGroup
		var failed atomic.Int64
		for i := range 1000 {
			callers.Go(func() {
				if _, err := a.TryAcquire(context.Background(), fmt.Sprint(i)); err != nil {
					failed.Add(1)
				}
			})
		}
		callers.Wait()
		require.Zero(t, failed.Load())
		require.LessOrEqual(t, time.Since(began), 3*50*time.Millisecond)
	})
}

// Schedule: b lists nodes 0 and 1, and node 0 again under another address, which takes 100 ms each way. Node 1 is silent.
// The other address has been looked at when node 0 can be reached: one server must not be a quorum, not even until the
// other address is looked at again. Then the other address goes, and comes back: still one.
func TestScheduleOneServerTwiceIsNoQuorum(t *testing.T) {
	interleave(t, 3, func(t *testing.T, s *schedule) {
		s.open("a") // the nodes have been adopted
		o := s.option("b")
		other := s.cluster.Client("again").Link(0)
		other.Delay(100*time.Millisecond, 100*time.Millisecond)
		o.Nodes[2] = other.Option()
		o.Nodes[2].InitAddress = []string{"again:6379"}
		s.link("b", 0).Silence()
		s.link("b", 1).Silence()
		b, err := redlock.NewLocker(o)
		require.NoError(t, err, "nothing was wrong with what answered")
		t.Cleanup(b.Close)
		refused := ""
		try := func(d time.Duration) { // a waiter asks as soon as one more node is up
			ctx, cancel := context.WithTimeout(context.Background(), d)
			defer cancel()
			for ctx.Err() == nil {
				_, err := b.Acquire(ctx, "x")
				require.Error(t, err, "one server is a quorum")
				if strings.Contains(err.Error(), "same server") {
					refused = err.Error()
				}
			}
		}
		try(6 * time.Second) // the first dials have run into their time
		s.link("b", 0).Heal()
		try(6 * time.Second)
		require.Contains(t, refused, "node-0:6379: unsupported node: it is the same server as again:6379")
		other.Silence()
		other.Cut()
		try(10 * time.Second)
		other.Heal()
		refused = ""
		try(10 * time.Second)
		require.Contains(t, refused, "again:6379: unsupported node: it is the same server as node-0:6379")
		s.link("b", 1).Heal()
		time.Sleep(6 * time.Second)
		release(t, tryAcquire(t, b, "x")) // two servers are two of three
	})
}

// Schedule: a is cut off; b takes over safely. It must have waited for a's end.
func TestScheduleTakerWaitsForTheDisplaced(t *testing.T) {
	interleave(t, 3, func(t *testing.T, s *schedule) {
		a, b := s.open("a"), s.open("b")
		g := tryAcquire(t, a, "x")
		silence(s.cluster.Client("a"))
		_, err := b.ForceAcquire(context.Background(), "x")
		require.NoError(t, err)
		require.Error(t, g.Err(), "two live guards")
	})
}

// Schedule: a, with a lease of 4 s, is cut off; b, with a lease of 1 s, takes over safely. What b has to wait for is what
// was left of a's lease, however short its own.
func TestScheduleDisplacedIsListedForItsOwnLease(t *testing.T) {
	interleave(t, 3, func(t *testing.T, s *schedule) {
		a := s.open("a", func(o *redlock.LockerOption) { o.KeyValidity, o.MaxKeyValidity = 4*lease, 4*lease })
		b := s.open("b", func(o *redlock.LockerOption) { o.MaxKeyValidity = 4 * lease })
		g := tryAcquire(t, a, "x")
		silence(s.cluster.Client("a"))
		_, err := b.ForceAcquire(context.Background(), "x")
		require.NoError(t, err)
		require.Error(t, g.Err(), "two live guards")
	})
}

// Schedule, three nodes:
//
//	a holds on all; node 2 hears of no renewal any more, so that its lease runs out first there
//	a renews on nodes 0 and 1 and is cut off there too; b takes over safely; its question to node 2 takes 20 ms
//
// The list that comes last names the earliest end of a's leases, and a counts on the others.
func TestScheduleTakerWaitsForTheLastOfTheDisplacedsLeases(t *testing.T) {
	interleave(t, 3, func(t *testing.T, s *schedule) {
		a, b := s.open("a"), s.open("b")
		g := tryAcquire(t, a, "x")
		s.link("a", 2).Silence()
		time.Sleep(lease * 7 / 10)
		silence(s.cluster.Client("a"))
		left := func(node int) time.Duration { left, _ := s.cluster.Node(node).PTTL(lockX); return left }
		require.Greater(t, left(2), lease/10)
		require.Greater(t, min(left(0), left(1)), left(2)+lease*2/5)
		s.link("b", 2).Delay(20*time.Millisecond, oneWay)
		_, err := b.ForceAcquire(context.Background(), "x")
		require.NoError(t, err)
		require.Error(t, g.Err(), "two live guards")
	})
}

// Schedule: a is cut off; b takes over at once; c takes over from b, safely. b acknowledges by return, but a, whom c
// never met, still counts on its lease: the list that b's value carries must be carried on.
func TestScheduleTakersTakerWaitsForAllDisplaced(t *testing.T) {
	interleave(t, 3, func(t *testing.T, s *schedule) {
		a, b, c := s.open("a"), s.open("b"), s.open("c")
		g := tryAcquire(t, a, "x")
		silence(s.cluster.Client("a"))
		_, err := b.ForceAcquireNow(context.Background(), "x")
		require.NoError(t, err)
		_, err = c.ForceAcquire(context.Background(), "x")
		require.NoError(t, err)
		require.Error(t, g.Err(), "two live guards")
	})
}

// Schedule: a is cut off; b takes over safely and waits for a's lease to run out. Shortly before that c takes over from
// b, and what tells b of it arrives shortly after: b must not come back with a lock that it has lost already.
func TestScheduleTakerIsTakenOverWhileItWaits(t *testing.T) {
	const slow = 40 * time.Millisecond // what comes back to b
	take := func(t *testing.T, before time.Duration) (took time.Duration, err error) {
		interleave(t, 3, func(t *testing.T, s *schedule) {
			a, b, c := s.open("a"), s.open("b"), s.open("c")
			tryAcquire(t, a, "x")
			silence(s.cluster.Client("a"))
			afterward(t, func() {
				time.Sleep(4 * oneWay)
				for _, l := range s.cluster.Client("b").Links() {
					l.Delay(oneWay, slow)
				}
				if before > 0 {
					time.Sleep(before)
					_, err := c.ForceAcquireNow(context.Background(), "x")
					require.NoError(t, err)
				}
			})
			began := time.Now()
			_, err = b.ForceAcquire(context.Background(), "x")
			took = time.Since(began)
		})
		return took, err
	}
	took, err := take(t, 0)
	require.NoError(t, err)
	require.Greater(t, took, lease)
	waited := took - oneWay - slow // what follows is the question whether b still has the lock
	_, err = take(t, waited-slow/2)
	require.ErrorIs(t, err, redlock.ErrTakenOver)
}

// Schedule, many times: three calls of one Locker take the lock over at once, on links of any speed. As soon as all is said
// whoever believes to hold it is stored on a quorum.
func TestScheduleTakersOfOneLockerAtOnce(t *testing.T) {
	interleave(t, 3, func(t *testing.T, s *schedule) {
		a := s.open("a")
		random := rand.New(rand.NewPCG(1, 2))
		for range 200 {
			for _, l := range s.cluster.Client("a").Links() {
				l.Delay(time.Duration(random.IntN(5000))*time.Microsecond, time.Duration(random.IntN(5000))*time.Microsecond)
			}
			var mu sync.Mutex
			var guards []*redlock.Guard
			var takers sync.WaitGroup
			for range 3 {
				wait := time.Duration(random.IntN(12000)) * time.Microsecond
				takers.Go(func() {
					time.Sleep(wait)
					g, err := a.ForceAcquireNow(context.Background(), "x")
					if err != nil {
						require.ErrorIs(t, err, redlock.ErrTakenOver)
						return
					}
					mu.Lock()
					defer mu.Unlock()
					guards = append(guards, g)
				})
			}
			takers.Wait()
			time.Sleep(50 * time.Millisecond)
			for _, g := range guards {
				if g.Err() != nil {
					continue
				}
				votes := 0
				for _, value := range s.stored() {
					if strings.HasPrefix(value, g.Owner()) {
						votes++
					}
				}
				require.GreaterOrEqual(t, votes, 2, "a live guard that is stored nowhere")
				release(t, g)
			}
			time.Sleep(50 * time.Millisecond)
		}
	})
}

// Schedule: a is cut off; b takes over safely and gives up while it waits for a. What it leaves behind must keep c
// away until a has ended.
func TestScheduleTakerThatGivesUpLeavesATombstone(t *testing.T) {
	interleave(t, 3, func(t *testing.T, s *schedule) {
		a, b, c := s.open("a"), s.open("b"), s.open("c")
		g := tryAcquire(t, a, "x")
		silence(s.cluster.Client("a"))
		ctx, cancel := context.WithTimeout(context.Background(), 100*time.Millisecond)
		defer cancel()
		_, err := b.ForceAcquire(ctx, "x")
		require.ErrorIs(t, err, context.DeadlineExceeded)
		s.requireEndedBy(c, g)
	})
}

// Schedule: d holds and is cut off; a, with a lease of 4 s, takes over at once and is cut off; b takes over safely and
// gives up while it waits for both. What it leaves behind must keep c away until a has ended, who is listed last.
func TestScheduleTombstoneOutlivesAllDisplaced(t *testing.T) {
	interleave(t, 3, func(t *testing.T, s *schedule) {
		longest := func(o *redlock.LockerOption) { o.MaxKeyValidity = 4 * lease }
		d, b, c := s.open("d", longest), s.open("b", longest), s.open("c", longest)
		a := s.open("a", longest, validity(4*lease))
		tryAcquire(t, d, "x")
		silence(s.cluster.Client("d"))
		g, err := a.ForceAcquireNow(context.Background(), "x")
		require.NoError(t, err)
		silence(s.cluster.Client("a"))
		ctx, cancel := context.WithTimeout(context.Background(), 100*time.Millisecond)
		defer cancel()
		_, err = b.ForceAcquire(ctx, "x")
		require.ErrorIs(t, err, context.DeadlineExceeded)
		s.requireEndedBy(c, g)
	})
}

// Schedule, three nodes; a's requests to node 2 take 100 ms:
//
//	a has nodes 0 and 1 and holds
//	node 0 pushes a without need: that vote is in doubt for a moment
//	node 2 votes for a in that moment, which does not count and is given back; the look at node 0 is well
//	a is cut off from nodes 0 and 1; b takes over on all three, and waits for a
//	a's release reaches node 2, where a is listed as displaced
//
// a is alive on nodes 0 and 1. The release of a live guard must not strike it out.
func TestScheduleReleaseOfALiveGuardStrikesNobodyOut(t *testing.T) {
	interleave(t, 3, func(t *testing.T, s *schedule) {
		a, b := s.open("a"), s.open("b")
		s.link("a", 2).Delay(100*time.Millisecond, oneWay)
		begin := time.Now()
		g := tryAcquire(t, a, "x")
		time.Sleep(time.Until(begin.Add(99500 * time.Microsecond)))
		s.cluster.Node(0).Untrack(lockX)
		time.Sleep(time.Until(begin.Add(110 * time.Millisecond)))
		require.NoError(t, g.Err())
		require.NotEmpty(t, s.stored()[2], "its release is on its way")
		s.link("a", 0).Silence()
		s.link("a", 1).Silence()
		s.link("a", 2).SilenceReplies()
		_, err := b.ForceAcquire(context.Background(), "x")
		require.NoError(t, err)
		require.Error(t, g.Err(), "two live guards")
	})
}

// Schedule, three nodes:
//
//	a holds on all; node 0 hears of no renewal any more, so that its lease runs out first
//	a renews on nodes 1 and 2 and is cut off there too; d takes over at once; b takes over from d, safely
//	a's lease on node 0 runs out
//	d releases: its own entry is struck out, and on node 0 a's entry, which has run out, is dropped with it
//
// On node 0 a is not listed any more, and yet it is alive, on nodes 1 and 2: b has to wait.
func TestScheduleEntryThatRanOutIsNotStruckOut(t *testing.T) {
	interleave(t, 3, func(t *testing.T, s *schedule) {
		a, d, b := s.open("a"), s.open("d"), s.open("b")
		g := tryAcquire(t, a, "x")
		renewed := func(nodes ...int) {
			for fresh := false; !fresh; {
				time.Sleep(time.Millisecond)
				fresh = true
				for _, i := range nodes {
					left, _ := s.cluster.Node(i).PTTL(lockX)
					fresh = fresh && left > lease-5*time.Millisecond
				}
			}
			time.Sleep(5 * time.Millisecond)
		}
		time.Sleep(100 * time.Millisecond)
		renewed(0, 1, 2)
		s.link("a", 0).Silence()
		time.Sleep(450 * time.Millisecond)
		renewed(1, 2)
		silence(s.cluster.Client("a"))
		left, _ := s.cluster.Node(0).PTTL(lockX)
		require.Greater(t, left, 50*time.Millisecond)

		g2, err := d.ForceAcquireNow(context.Background(), "x")
		require.NoError(t, err)
		silence(s.cluster.Client("d"))
		afterward(t, func() {
			time.Sleep(left + 5*time.Millisecond)
			afterward(t, func() { g2.Release(context.Background()) })
			time.Sleep(time.Millisecond)
			for _, l := range s.cluster.Client("d").Links() {
				l.Heal()
			}
		})
		_, err = b.ForceAcquire(context.Background(), "x")
		require.NoError(t, err)
		require.Error(t, g.Err(), "two live guards")
	})
}

// Schedule, three nodes:
//
//	a holds on all and is cut off; b takes over; its questions to nodes 1 and 2 take 100 ms
//	node 0 has granted b, and listed a; somebody deletes that key; b is pushed and asks again
//	node 0 grants b anew, with an empty list
//
// a is not listed there any more, but nobody has struck it out.
func TestScheduleEmptyListOfANewGrantStrikesNobodyOut(t *testing.T) {
	interleave(t, 3, func(t *testing.T, s *schedule) {
		a, b := s.open("a"), s.open("b")
		g := tryAcquire(t, a, "x")
		silence(s.cluster.Client("a"))
		s.link("b", 1).Delay(100*time.Millisecond, oneWay)
		s.link("b", 2).Delay(100*time.Millisecond, oneWay)
		afterward(t, func() {
			time.Sleep(10 * time.Millisecond)
			s.cluster.Node(0).Del(lockX)
		})
		_, err := b.ForceAcquire(context.Background(), "x")
		require.NoError(t, err)
		require.Error(t, g.Err(), "two live guards")
	})
}

// Schedule, without a quarantine: a is granted a token, which is the nodes' time. Nodes 0 and 1 restart empty, and their
// clocks are set back by less than the bound meanwhile. Then b, who does not reach node 2, would be granted less.
func TestScheduleTokensStartAboveWhatWasForgotten(t *testing.T) {
	interleave(t, 3, func(t *testing.T, s *schedule) {
		bound := func(o *redlock.LockerOption) { o.ClockBound = lease / 5 }
		a, b := s.open("a", bound), s.open("b", bound)
		s.link("b", 2).Silence()
		time.Sleep(2 * lease) // tokens are the time again: a new node's start a lease above it
		g := tryAcquire(t, a, "x")
		release(t, g)
		for i := range 2 {
			s.cluster.Node(i).CrashEmpty()
			s.cluster.Node(i).StepClock(-lease * 3 / 20)
			time.Sleep(lease / 20) // it is back, and adopted
		}
		require.Greater(t, tryAcquire(t, b, "x").FencingToken(), g.FencingToken())
	})
}

// Schedule, five nodes that store tokens x+10, x+12, x+12, x+4, x+4:
//
//	a reaches nodes 0, 1, 2 and is granted x+11, x+13, x+13: its token is x+13, which it has to store on node 0
//	b reaches nodes 0, 3, 4: x+14, x+5, x+5. If node 0 still stored x+11, b would have x+12, below a's
//
// And the same where what a sends to node 0 after its grant is lost: then a has no lock.
func TestScheduleTokenIsStoredOnAQuorum(t *testing.T) {
	for _, lost := range []bool{false, true} {
		raise(t, lost)
	}
}

func raise(t *testing.T, lost bool) {
	interleave(t, 5, func(t *testing.T, s *schedule) {
		a, b := s.open("a"), s.open("b")
		release(t, tryAcquire(t, a, "x")) // makes the fence key
		time.Sleep(50 * time.Millisecond)
		fence := ""
		for _, key := range s.cluster.Node(0).Keys() {
			if strings.HasPrefix(key, "redlock:fence:") {
				fence = key
			}
		}
		require.NotEmpty(t, fence)
		const x = 2_000_000_000_000_000 // above every clock
		for i, n := range []int{10, 12, 12, 4, 4} {
			s.cluster.Node(i).Set(fence, fmt.Sprint(x+n), 0)
		}
		s.link("a", 3).Silence()
		s.link("a", 4).Silence()
		s.link("b", 1).Silence()
		s.link("b", 2).Silence()
		if lost {
			afterward(t, func() {
				time.Sleep(oneWay * 3 / 2)
				s.link("a", 0).Silence()
			})
			s.link("a", 0).Delay(oneWay, oneWay/4)
			first, err := a.TryAcquire(context.Background(), "x")
			if err != nil {
				require.ErrorIs(t, err, redlock.ErrNoQuorum)
				return
			}
			time.Sleep(2 * lease) // b asks once: each try would raise what nodes 3 and 4 store
			require.Error(t, first.Err())
			require.Greater(t, tryAcquire(t, b, "x").FencingToken(), first.FencingToken())
			return
		}
		first := tryAcquire(t, a, "x")
		require.EqualValues(t, x+13, first.FencingToken())
		release(t, first)
		second := tryAcquire(t, b, "x")
		require.Greater(t, second.FencingToken(), first.FencingToken())
	})
}

// Schedule: a holds; its keys are taken away on some nodes, the pushes of which are on their way when it releases. That it was
// not ours any more on so many nodes that no quorum was left is the loss, and on one of three is nothing.
func TestScheduleReleaseTellsOfALossThatNobodyKnew(t *testing.T) {
	deleted := func(nodes ...int) func(*schedule) {
		return func(s *schedule) {
			for _, i := range nodes {
				require.True(s, s.cluster.Node(i).Del(lockX))
			}
		}
	}
	for name, tc := range map[string]struct {
		event func(*schedule)
		lost  bool
	}{
		"nothing":              {event: deleted()},
		"deleted on one node":  {event: deleted(0)},
		"deleted on two nodes": {event: deleted(0, 2), lost: true},
		"flushed": {lost: true, event: func(s *schedule) {
			s.cluster.Node(1).Do("FLUSHALL")
			s.cluster.Node(2).Do("FLUSHALL")
		}},
		"somebody else's": {lost: true, event: func(s *schedule) {
			deleted(0, 1, 2)(s)
			for _, n := range s.cluster.Nodes() {
				n.Set(lockX, "b", lease)
			}
		}},
		"taken over": {lost: true, event: func(s *schedule) {
			_, err := s.open("b").ForceAcquireNow(context.Background(), "x")
			require.NoError(s, err)
		}},
		"the answer is lost, and it is released again": {event: func(s *schedule) {
			for _, l := range s.cluster.Client("a").Links() {
				l.SilenceReplies()
				afterward(s.T, func() {
					time.Sleep(10 * time.Millisecond)
					l.Cut()
					l.Delay(oneWay, oneWay)
					l.Heal()
				})
			}
		}},
	} {
		for _, do := range []bool{false, true} {
			t.Run(fmt.Sprint(name, ", do ", do), func(t *testing.T) {
				interleave(t, 3, func(t *testing.T, s *schedule) {
					a := s.open("a")
					event := func() {
						time.Sleep(5 * time.Millisecond)
						for i, l := range s.cluster.Client("a").Links() {
							l.Delay(oneWay, 60*time.Millisecond+time.Duration(i)*10*time.Millisecond)
						}
						tc.event(s)
					}
					var err error
					if do {
						err = a.Do(context.Background(), "x", func(context.Context) error {
							event()
							return nil
						})
					} else {
						g := tryAcquire(t, a, "x")
						event()
						require.NoError(t, g.Err(), "not told yet")
						err = g.Release(context.Background())
						require.ErrorIs(t, g.Err(), redlock.ErrReleased)
						require.NoError(t, g.Release(context.Background()), "a repeat")
					}
					if tc.lost {
						require.ErrorIs(t, err, redlock.ErrLost)
					} else {
						require.NoError(t, err)
					}
				})
			})
		}
	}
}

// Schedule: a releases, or loses the lock to b; somebody who is woken by Done looks at Err at that very instant.
func TestScheduleDoneIsNeverReadAsHeld(t *testing.T) {
	for _, taken := range []bool{false, true} {
		interleave(t, 3, func(t *testing.T, s *schedule) {
			a, b := s.open("a"), s.open("b")
			g := tryAcquire(t, a, "x")
			looked := false
			g.WhenCanceled(func(counts bool) {
				looked = true
				require.False(t, counts)
			})
			if taken {
				g2, err := b.ForceAcquireNow(context.Background(), "x")
				require.NoError(t, err)
				defer release(t, g2)
				<-g.Done()
			} else {
				release(t, g)
			}
			synctest.Wait()
			require.True(t, looked)
		})
	}
}

// Schedule: a is cut off until its lease has run out; what it then sends as its release is held up until b holds.
func TestScheduleLateReleaseLeavesTheNextHolderAlone(t *testing.T) {
	interleave(t, 3, func(t *testing.T, s *schedule) {
		a, b := s.open("a"), s.open("b")
		g := tryAcquire(t, a, "x")
		time.Sleep(5 * time.Millisecond)
		for _, l := range s.cluster.Client("a").Links() {
			l.SilenceRequests()
		}
		g2 := s.requireEndedBy(b, g)
		time.Sleep(5 * time.Millisecond)
		before := s.stored()
		taken := 0
		for _, value := range before {
			if value != "" {
				taken++
			}
		}
		require.GreaterOrEqual(t, taken, 2, before) // where a's key ran out last b was refused, and has not asked again
		for _, l := range s.cluster.Client("a").Links() {
			l.Heal()
		}
		time.Sleep(5 * time.Millisecond)
		require.Equal(t, before, s.stored())
		require.NoError(t, g2.Err())
	})
}

// Schedule: a's question arrives at a server that stands still; a gives up and dies, so that its release never comes;
// 150 ms after a's time for an answer was over the server goes on.
func TestScheduleLateQuestionLeavesNoGhost(t *testing.T) {
	interleave(t, 1, func(t *testing.T, s *schedule) {
		a := s.open("a")
		s.cluster.Node(0).Freeze()
		afterward(t, func() {
			time.Sleep(10 * time.Millisecond)
			silence(s.cluster.Client("a"))
		})
		_, err := a.TryAcquire(context.Background(), "x")
		require.ErrorIs(t, err, redlock.ErrNoQuorum)
		time.Sleep(150 * time.Millisecond)
		s.cluster.Node(0).Thaw()
		require.Equal(t, []string{""}, s.stored())
	})
}

// Schedule: a renewal arrives at a server that stands still; a dies, its key runs out. When the server goes on the
// renewal, which might set the key again, must do nothing.
func TestScheduleLateRenewalLeavesNoGhost(t *testing.T) {
	interleave(t, 3, func(t *testing.T, s *schedule) {
		a := s.open("a")
		g := tryAcquire(t, a, "x")
		time.Sleep(5 * time.Millisecond)
		s.cluster.Node(2).Del(lockX)
		time.Sleep(5 * time.Millisecond)
		s.cluster.Node(2).Freeze()
		time.Sleep(400 * time.Millisecond) // the renewal is there, with leave to set the key again
		silence(s.cluster.Client("a"))
		time.Sleep(2 * lease)
		require.Error(t, g.Err())
		s.cluster.Node(2).Thaw()
		require.Equal(t, []string{"", "", ""}, s.stored())
	})
}

// Schedule: w waits in line; a releases; before w can have heard of it c's question is there, and later d's, who
// waits. Neither gets past w.
func TestScheduleNobodyIsGrantedPastTheLine(t *testing.T) {
	for _, waits := range []bool{false, true} {
		interleave(t, 3, func(t *testing.T, s *schedule) {
			a, w, c := s.open("a"), s.open("w"), s.open("c")
			g := tryAcquire(t, a, "x")
			served := make(chan time.Time, 1)
			afterward(t, func() {
				g := acquire(t, w, "x")
				served <- time.Now()
				time.Sleep(20 * time.Millisecond)
				release(t, g)
			})
			time.Sleep(50 * time.Millisecond)
			released := time.Now()
			afterward(t, func() { release(t, g) })
			time.Sleep(time.Millisecond / 2) // the release is before c's question on every node, w's question behind it
			if waits {
				g = acquire(t, c, "x")
				require.Greater(t, time.Since(released), 20*time.Millisecond)
				require.Len(t, served, 1)
				release(t, g)
				return
			}
			_, err := c.TryAcquire(context.Background(), "x")
			require.ErrorIs(t, err, redlock.ErrNotLocked)
			require.ErrorContains(t, err, "first in line")
			require.Less(t, (<-served).Sub(released), 10*oneWay)
		})
	}
}

// Schedule: 30 hosts wait in line, one after the other is served for 20 ms. A release wakes the next at once, and it
// alone: a hand-over takes four messages in a row, and each node sees the release, the next one's question, and the
// question by which the one behind it keeps its place.
func TestScheduleHandOver(t *testing.T) {
	for _, nodes := range []int{1, 3} {
		interleave(t, nodes, func(t *testing.T, s *schedule) {
			const waiters, holds = 30, 20 * time.Millisecond
			g := tryAcquire(t, s.open("a"), "x")
			var all sync.WaitGroup
			for i := range waiters {
				l := s.open(fmt.Sprint("w", i))
				all.Go(func() {
					g := acquire(t, l, "x")
					time.Sleep(holds)
					release(t, g)
				})
				time.Sleep(10 * time.Millisecond)
			}
			before, begin := commands(s.cluster), time.Now()
			release(t, g)
			all.Wait()
			took := time.Since(begin)
			require.Less(t, took, waiters*(holds+6*oneWay))
			idle := waiters * took.Seconds() / .85 * float64(nodes) // everybody asks about once a second to keep its place
			require.Less(t, float64(commands(s.cluster)-before)-idle, float64(4*waiters*nodes))
		})
	}
}

// Schedule: three hosts wait in line behind a and the first two die. When a releases the third is served within 2 s.
func TestScheduleDeadWaitersAreSkipped(t *testing.T) {
	interleave(t, 3, func(t *testing.T, s *schedule) {
		a := s.open("a", validity(10*time.Second))
		g := tryAcquire(t, a, "x")
		served := make(chan struct{})
		ctx, cancel := context.WithCancel(context.Background())
		defer cancel()
		for _, host := range []string{"dead1", "dead2", "w"} {
			l := s.open(host, validity(10*time.Second))
			afterward(t, func() {
				if g, err := l.Acquire(ctx, "x"); err == nil {
					close(served)
					release(t, g)
				}
			})
			time.Sleep(10 * time.Millisecond)
		}
		silence(s.cluster.Client("dead1"))
		silence(s.cluster.Client("dead2"))
		begin := time.Now()
		release(t, g)
		select {
		case <-served:
		case <-time.After(time.Minute):
		}
		require.Less(t, time.Since(begin), 2*time.Second)
	})
}

// Schedule: a right is missing for what a grant does after it has set the lock. So the error that comes back proves
// nothing: the release is owed, and leaves no key.
func TestScheduleRefusalWithinAScriptIsOwed(t *testing.T) {
	interleave(t, 3, func(t *testing.T, s *schedule) {
		l := s.open("a")
		release(t, acquire(t, l, "x"))
		for _, n := range s.cluster.Nodes() {
			n.Fail("MGET", "ERR ACL failure in script: User default has no permissions to run the 'mget' command")
		}
		_, err := l.TryAcquire(context.Background(), "x")
		require.ErrorIs(t, err, redlock.ErrNoQuorum)
		require.ErrorContains(t, err, "no permissions")
		time.Sleep(10 * oneWay)
		require.Equal(t, []string{"", "", ""}, s.stored())
		require.Zero(t, l.OpenGuards())

		_, err = l.TryAcquire(context.Background(), "x")
		require.ErrorContains(t, err, "missing rights: MGET redlock:{} redlock:marker")
		for _, n := range s.cluster.Nodes() {
			n.Recover("MGET")
		}
		time.Sleep(1100 * time.Millisecond) // a node that may not vote is looked at once a second
		release(t, acquire(t, l, "x"))
	})
}

// Schedule: a node with a full memory lets renewals and releases through; one whose writes are all refused does not, and
// is asked by its keeper alone: a held guard costs it nothing meanwhile, and is renewed when it is well again.
func TestScheduleHeldGuardsDoNotAskANodeThatRefuses(t *testing.T) {
	interleave(t, 3, func(t *testing.T, s *schedule) {
		l := s.open("a", validity(time.Hour))
		const guards, looks = 100, 30 * 60 * 2 // one a second at most, but for the jitter of a half
		var held []*redlock.Guard
		for i := range guards {
			held = append(held, tryAcquire(t, l, fmt.Sprint("name", i)))
		}
		n := s.cluster.Node(0)
		evals := func() int { return n.Commands()["EVALSHA"] }

		n.FillMemory()
		release(t, tryAcquire(t, l, "noticed")) // two of three
		before, asked := held[0].ValidUntil(), evals()
		time.Sleep(30 * time.Minute)
		require.Less(t, evals()-asked, looks+4*guards, "two renewals of each guard, and the keeper's")
		require.True(t, held[0].ValidUntil().After(before))
		left, _ := n.PTTL(lockKey("name0"))
		require.Greater(t, left, 30*time.Minute, "renewed on the full node, too")
		n.FreeMemory()

		writes := []string{"SET", "GETEX", "SETRANGE", "DEL", "INCRBY", "PEXPIRE", "ZADD", "ZPOPMIN", "ZREM"}
		for _, w := range writes {
			n.Fail(w, "MISCONF Redis is configured to save RDB snapshots")
		}
		tryAcquire(t, l, "another") // two of three
		time.Sleep(time.Second)
		asked = evals()
		for _, g := range held[:guards/2] {
			release(t, g)
		}
		time.Sleep(30 * time.Minute)
		require.Less(t, evals()-asked, looks, "the keeper's alone")
		require.NoError(t, held[guards-1].Err())
		for _, w := range writes {
			n.Recover(w)
		}
		time.Sleep(1100 * time.Millisecond)
		_, leased := n.PTTL(lockKey("name0"))
		require.False(t, leased, "released")
		left, _ = n.PTTL(lockKey(fmt.Sprint("name", guards-1)))
		require.Greater(t, left, 59*time.Minute, "renewed")
	})
}

// Schedule: two of four nodes are quarantined for longer than KeyValidity, and say so before the others can answer. They are
// waited out: of who was not heard to the end nobody knows that it cannot be reached.
func TestScheduleQuarantineIsWaitedOutBesideSlowNodes(t *testing.T) {
	interleave(t, 4, func(t *testing.T, s *schedule) {
		longest := func(o *redlock.LockerOption) { o.MaxKeyValidity = 5 * lease }
		a := s.open("a", quarantineOn, longest)
		time.Sleep(10 * lease)
		for _, i := range []int{1, 2} {
			s.cluster.Node(i).CrashEmpty()
		}
		for _, i := range []int{0, 3} {
			s.link("a", i).Delay(oneWay, 20*oneWay)
		}
		began := time.Now()
		g := acquire(t, a, "x")
		require.Greater(t, time.Since(began), 3*lease, "it was quarantined")
		release(t, g)
	})
}
