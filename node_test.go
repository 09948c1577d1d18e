package redlock_test

import (
	"context"
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/redis/rueidis"
	"github.com/stretchr/testify/require"

	"github.com/redlock-go/redlock"
	"github.com/redlock-go/redlock/internal/logtest"
	"github.com/redlock-go/redlock/internal/netproxy"
	"github.com/redlock-go/redlock/internal/redisproc"
	"github.com/redlock-go/redlock/internal/redisproc/redistest"
)

// Pushes: a loss is noticed long before the next extension.

func TestLossIsPushed(t *testing.T) {
	t.Parallel()
	for _, row := range []struct {
		reason  string
		command []string
		taken   bool
	}{
		{"deleted", []string{"DEL", lockKey("a")}, false},
		{"unlinked", []string{"UNLINK", lockKey("a")}, false},
		{"expired", []string{"PEXPIRE", lockKey("a"), "0"}, false},
		{"flushed", []string{"FLUSHALL"}, false},
		{"overwritten", []string{"SET", lockKey("a"), "foreign", "PX", "60000"}, true},
		{"renamed", []string{"RENAME", lockKey("a"), "elsewhere"}, false},
	} {
		t.Run(row.reason, func(t *testing.T) {
			t.Parallel()
			nodes := startNodes(t, 5)
			l := newLocker(t, redistest.Options(nodes), validity(60*time.Second))
			g := acquireOnAll(t, l, nodes, "a")
			doAll(t, nodes[:2], row.command...)
			requireHeldFor(t, g, 200*time.Millisecond) // a minority loses nothing
			struck := time.Now()
			doAll(t, nodes[2:3], row.command...)
			err := requireDone(t, g, soon) // the next extension is 20 s away
			t.Logf("noticed after %v: %v", time.Since(struck), err)
			require.ErrorIs(t, err, redlock.ErrLost)
			require.Equal(t, row.taken, errors.Is(err, redlock.ErrTakenOver))
			require.Eventually(t, func() bool {
				for _, n := range nodes[3:] {
					if len(keysOf(t, n)) > 0 {
						return false
					}
				}
				return true
			}, soon, tick, "a dead guard lets go of what is left")
		})
	}
}

func TestFalsePushesLoseNothing(t *testing.T) {
	t.Parallel()
	nodes := redistest.StartSet(t, 3, redisproc.Options{Args: []string{"--tracking-table-max-keys", "1"}})
	l := newLocker(t, far(t, nodes), validity(3*time.Second))
	a, b := acquire(t, l, "a"), acquire(t, l, "b") // each reading evicts the other from the table
	requireHeldFor(t, a, 4*time.Second)
	require.NoError(t, b.Err())
}

func TestFlushOfAnotherDatabaseLosesNothing(t *testing.T) {
	t.Parallel()
	nodes := startNodes(t, 3)
	l := newLocker(t, far(t, nodes), validity(10*time.Second))
	g := acquire(t, l, "a")
	var others []rueidis.Client
	for _, n := range nodes {
		option := redistest.Option(n)
		option.SelectDB, option.DisableCache = 1, true
		c, err := rueidis.NewClient(option)
		require.NoError(t, err)
		t.Cleanup(c.Close)
		others = append(others, c)
	}
	for range 10 {
		for _, c := range others {
			require.NoError(t, c.Do(t.Context(), c.B().Set().Key(lockKey("a")).Value("x").Build()).Error())
			require.NoError(t, c.Do(t.Context(), c.B().Flushdb().Build()).Error())
		}
		requireHeldFor(t, g, 20*time.Millisecond)
	}
	release(t, g)
}

// Faults that pass.

func TestTransientErrorsAreRiddenOut(t *testing.T) {
	t.Parallel()
	for _, row := range []struct {
		reason string
		strike func(*testing.T, *redisproc.Node)
	}{
		{"connections are killed", func(t *testing.T, n *redisproc.Node) { do(t, n, "CLIENT", "KILL", "TYPE", "normal") }},
		{"scripts are forgotten", func(t *testing.T, n *redisproc.Node) { do(t, n, "SCRIPT", "FLUSH") }},
		{"clients are paused", func(t *testing.T, n *redisproc.Node) { do(t, n, "CLIENT", "PAUSE", "400") }},
		{"the server stands still", func(t *testing.T, n *redisproc.Node) {
			require.NoError(t, n.Freeze())
			time.AfterFunc(400*time.Millisecond, func() { n.Thaw() })
		}},
	} {
		t.Run(row.reason, func(t *testing.T) {
			t.Parallel()
			nodes := startNodes(t, 3)
			l := newLocker(t, redistest.Options(nodes), validity(3*time.Second), interval(200*time.Millisecond))
			g := acquire(t, l, "a")
			for range 3 {
				for _, n := range nodes {
					row.strike(t, n)
				}
				requireHeldFor(t, g, 900*time.Millisecond)
			}
			before := g.ValidUntil()
			require.Eventually(t, func() bool { return g.ValidUntil().After(before) }, soon, tick, "extension goes on")
			for _, n := range nodes {
				require.Eventually(t, func() bool { return do(t, n, "EXISTS", lockKey("a")) == "1" }, soon, tick)
			}
			require.NoError(t, g.Err())
			release(t, g)
			requireNoKeys(t, nodes, soon)
			release(t, acquire(t, l, "a"))
		})
	}
}

// A keeper that finds its scripts forgotten looks at the node, and so does every guard then, who may find the same.
func TestScriptsFlushedAllTheTimeAreNotLookedForAllTheTime(t *testing.T) {
	t.Parallel()
	nodes := startNodes(t, 1)
	l := newLocker(t, redistest.Options(nodes), interval(50*time.Millisecond))
	g := acquire(t, l, "x")
	load, flushes := "script|load", 0
	if !nodes[0].AtLeast(7, 0) {
		load = "script" // it counts no subcommands
	}
	before, start := calls(t, nodes[0], load), time.Now()
	loads := 0
	for time.Since(start) < 500*time.Millisecond || loads == 0 && time.Since(start) < soon { // on a busy machine nobody may have looked yet
		do(t, nodes[0], "SCRIPT", "FLUSH")
		flushes++
		if time.Since(start) >= 500*time.Millisecond {
			loads = calls(t, nodes[0], load) - before
		}
	}
	require.NoError(t, g.Err())
	release(t, g)
	if !nodes[0].AtLeast(7, 0) {
		require.Equal(t, flushes, loads, "there they are sent by source, which loads them: nobody looks at the node")
		return
	}
	require.Positive(t, loads)
	const scripts, pause, more = 5, 10 * time.Millisecond, 2
	require.LessOrEqual(t, loads, scripts*(int(time.Since(start)/pause)+more))
}

func TestPushesAreRearmedAfterReconnection(t *testing.T) {
	t.Parallel()
	nodes := startNodes(t, 3)
	l := newLocker(t, redistest.Options(nodes), validity(60*time.Second))
	g := acquireOnAll(t, l, nodes, "a")
	for _, n := range nodes {
		before := calls(t, n, "evalsha")
		do(t, n, "CLIENT", "KILL", "TYPE", "normal")
		require.Eventually(t, func() bool { return calls(t, n, "evalsha") > before }, soon, tick, "looked at again")
	}
	require.NoError(t, g.Err())
	doAll(t, nodes[:2], "DEL", lockKey("a"))
	require.ErrorIs(t, requireDone(t, g, soon), redlock.ErrLost)
}

func TestFullMemoryStopsNeitherExtensionNorRelease(t *testing.T) {
	t.Parallel()
	nodes := startNodes(t, 3)
	l := newLocker(t, redistest.Options(nodes), validity(2*time.Second), interval(200*time.Millisecond))
	g := acquire(t, l, "a")
	for _, n := range nodes {
		do(t, n, "CONFIG", "SET", "maxmemory-policy", "noeviction")
		do(t, n, "CONFIG", "SET", "maxmemory", "1")
		_, err := n.Do("SET", "x", "y")
		require.ErrorContains(t, err, "OOM")
	}
	requireHeldFor(t, g, 5*time.Second) // more than two leases
	_, err := l.TryAcquire(t.Context(), "b")
	require.ErrorIs(t, err, redlock.ErrNoQuorum)
	require.ErrorContains(t, err, "OOM")
	release(t, g)
	requireNoKeys(t, nodes, soon)
	for _, n := range nodes {
		do(t, n, "CONFIG", "SET", "maxmemory", "0")
	}
	release(t, acquire(t, l, "b"))
}

func TestSlowNodeSlowsNothing(t *testing.T) {
	t.Parallel()
	nodes := startNodes(t, 5)
	options, links := proxied(t, nodes)
	l := newLocker(t, options, nodeTimeout(2*time.Second))
	for _, link := range links[:2] {
		link.Delay(netproxy.Both, 500*time.Millisecond, nil)
	}
	quick(t, 900*time.Millisecond, "ten locks and unlocks, below one round trip of the slow", func() {
		for range 10 {
			release(t, acquire(t, l, "a"))
		}
	})
	requireNoKeys(t, nodes, 8*time.Second)
}

// Nodes that come and go.

func TestNodeDownAtConstructionJoinsByItself(t *testing.T) {
	t.Parallel()
	nodes := startNodes(t, 3)
	require.NoError(t, nodes[1].Kill())
	var l *redlock.Locker
	within(t, 2*time.Second, "a minority that is down delays nothing", func() { l = newLocker(t, redistest.Options(nodes)) })
	g := acquire(t, l, "a")
	require.NoError(t, nodes[1].CrashEmpty())
	require.Eventually(t, func() bool { return do(t, nodes[1], "EXISTS", lockKey("a")) == "1" }, 2*soon, tick, "its vote is won")
	require.NoError(t, nodes[0].Kill())
	requireHeldFor(t, g, 200*time.Millisecond)
	release(t, g)
	release(t, acquire(t, l, "a"))
}

func TestHungNodeDelaysConstructionLittle(t *testing.T) {
	t.Parallel()
	nodes := startNodes(t, 3)
	require.NoError(t, nodes[1].Freeze())
	within(t, 3*time.Second, "NodeTimeout, at most", func() {
		release(t, acquire(t, newLocker(t, redistest.Options(nodes)), "a"))
	})
}

func TestAllNodesDownAtConstruction(t *testing.T) {
	t.Parallel()
	nodes := startNodes(t, 3)
	for _, n := range nodes {
		require.NoError(t, n.Kill())
	}
	var l *redlock.Locker
	within(t, 3*time.Second, "NodeTimeout, at most", func() { l = newLocker(t, redistest.Options(nodes), validity(2*time.Second)) })
	require.Nil(t, l.Client())
	_, err := l.TryAcquire(t.Context(), "a")
	require.ErrorIs(t, err, redlock.ErrNoQuorum)
	require.ErrorIs(t, err, redlock.ErrNodeDown)
	within(t, 10*time.Second, "a wait gives up after KeyValidity", func() {
		_, err = l.Acquire(t.Context(), "a")
		require.ErrorIs(t, err, redlock.ErrNoQuorum)
	})
	for _, n := range nodes {
		require.NoError(t, n.CrashEmpty())
	}
	release(t, acquire(t, l, "a"))
}

// Servers that cannot be nodes.

func refused(t *testing.T, options []rueidis.ClientOption) error {
	t.Helper()
	l, err := redlock.NewLocker(lockerOption(options))
	if l != nil {
		l.Close()
	}
	require.Error(t, err)
	require.Nil(t, l)
	ok := errors.As(err, new(*redlock.NodeError))
	require.True(t, ok)
	return err
}

func TestSameServerTwiceIsRefused(t *testing.T) {
	t.Parallel()
	node := startNodes(t, 1)[0]
	options, _ := proxied(t, []*redisproc.Node{node, node})
	// Two, here and below: no quorum without the one that is wrong, so construction waits for its check.
	err := refused(t, options)
	require.ErrorIs(t, err, redlock.ErrUnsupportedNode)
	require.ErrorContains(t, err, "same server")
	require.ErrorContains(t, err, options[0].InitAddress[0])
	require.ErrorContains(t, err, options[1].InitAddress[0])
}

func TestReplicaIsRefused(t *testing.T) {
	t.Parallel()
	nodes := redistest.StartSet(t, 2, redisproc.Options{TCP: true})
	host, port, _ := strings.Cut(nodes[0].Addr(), ":")
	do(t, nodes[1], "REPLICAOF", host, port)
	err := refused(t, redistest.Options(nodes))
	require.ErrorIs(t, err, redlock.ErrUnsupportedNode)
	require.ErrorContains(t, err, "replica")
	require.ErrorContains(t, err, nodes[1].Addr())
}

func TestClusterIsRefused(t *testing.T) {
	t.Parallel()
	node := startNodes(t, 1)[0]
	cluster := redistest.Start(t, redisproc.Options{TCP: true, Args: []string{"--cluster-enabled", "yes"}})
	err := refused(t, redistest.Options([]*redisproc.Node{node, cluster}))
	require.ErrorIs(t, err, redlock.ErrUnsupportedNode)
	require.ErrorContains(t, err, "cluster")
	require.ErrorContains(t, err, cluster.Addr())
}

func TestWrongPasswordIsRefused(t *testing.T) {
	t.Parallel()
	nodes := redistest.StartSet(t, 3, redisproc.Options{Args: []string{"--requirepass", "secret"}})
	options := redistest.Options(nodes)
	err := refused(t, options)
	require.ErrorContains(t, err, "NOAUTH")
	for i := range options {
		options[i].Password = "wrong"
	}
	err = refused(t, options)
	require.ErrorContains(t, err, "WRONGPASS")
	require.NotContains(t, err.Error(), "secret")
	for i := range options {
		options[i].Password = "secret"
	}
	release(t, acquire(t, newLocker(t, options), "a"))
}

func TestRefusedTrackingStillVotes(t *testing.T) {
	t.Parallel()
	nodes := startNodes(t, 3)
	tracking := "-client|tracking"
	if !nodes[0].AtLeast(7, 0) {
		tracking = "-client" // 6.2 takes no single subcommand away
	}
	doAll(t, nodes, "ACL", "SETUSER", "default", tracking)
	var log logtest.Log
	l := newLocker(t, redistest.Options(nodes), logTo(&log), validity(2*time.Second), interval(200*time.Millisecond))
	other := newLocker(t, redistest.Options(nodes), validity(2*time.Second))
	g := acquire(t, l, "a")
	_, err := other.TryAcquire(t.Context(), "a")
	require.ErrorIs(t, err, redlock.ErrNotLocked)
	requireHeldFor(t, g, 2500*time.Millisecond)
	doAll(t, nodes, "DEL", lockKey("a"))
	require.ErrorIs(t, requireDone(t, g, soon), redlock.ErrLost, "seen by extension")
	require.Equal(t, len(nodes), strings.Count(log.String(), "refuses client tracking"), "once per node:\n%s", log.String())

	got := make(chan error, 1)
	g = acquire(t, other, "a")
	go func() {
		g, err := l.Acquire(context.Background(), "a")
		if err == nil {
			err = g.Release(context.Background())
		}
		got <- err
	}()
	waitForWaiters(t, other, "a", 1)
	release(t, g)
	select {
	case err := <-got:
		require.NoError(t, err)
	case <-time.After(soon):
		require.Fail(t, "waits on without pushes")
	}
}

func TestNoPushesByOption(t *testing.T) {
	t.Parallel()
	nodes := startNodes(t, 3)
	options := redistest.Options(nodes)
	options[0].DisableCache, options[1].AlwaysRESP2, options[1].DisableCache = true, true, true
	options[2].DisableCache = true
	l := newLocker(t, options, validity(2*time.Second), interval(200*time.Millisecond))
	g := acquire(t, l, "a")
	requireHeldFor(t, g, time.Second)
	doAll(t, nodes, "DEL", lockKey("a"))
	require.ErrorIs(t, requireDone(t, g, soon), redlock.ErrLost)
	release(t, acquire(t, l, "a"))
}

func TestUsersInvalidationsAreCalled(t *testing.T) {
	t.Parallel()
	nodes := startNodes(t, 1)
	options := redistest.Options(nodes)
	pushed := make(chan string, 100)
	options[0].OnInvalidations = func(keys []rueidis.RedisMessage) {
		for _, k := range keys {
			s, _ := k.ToString()
			select {
			case pushed <- s:
			default:
			}
		}
	}
	l := newLocker(t, options)
	l.Client().Do(t.Context(), l.Client().B().Get().Key("mine").Build())
	do(t, nodes[0], "SET", "mine", "x")
	require.Eventually(t, func() bool {
		select {
		case k := <-pushed:
			return k == "mine"
		default:
			return false
		}
	}, soon, tick)
}

// Lost memory.

func TestBrandNewSetWaitsOneLeaseOnce(t *testing.T) {
	t.Parallel()
	nodes := startNodes(t, 3)
	start := time.Now()
	l := newLocker(t, redistest.Options(nodes), quarantineOn, validity(2*time.Second))
	var err error
	require.Eventually(t, func() bool { // as soon as all have been read
		_, err = l.TryAcquire(t.Context(), "a")
		return err == nil || strings.Contains(err.Error(), "more")
	}, soon, tick, "until when")
	require.ErrorIs(t, err, redlock.ErrNoQuorum)
	require.NotErrorIs(t, err, redlock.ErrNotLocked)
	require.ErrorIs(t, err, redlock.ErrQuarantined)
	for _, n := range nodes {
		require.ErrorContains(t, err, n.Addr())
	}
	g := acquire(t, l, "a") // a wait waits it out
	require.GreaterOrEqual(t, time.Since(start), 1900*time.Millisecond)
	release(t, g)
	awaitAllNodes(t, l) // a node that was reached later is quarantined for longer

	other := newLocker(t, redistest.Options(nodes), quarantineOn, validity(2*time.Second))
	release(t, tryAcquire(t, other, "a")) // once: who comes later does not wait
	require.NoError(t, initWhenUp(t, other), "on a set that is not quarantined it does nothing")
}

func TestInit(t *testing.T) {
	t.Parallel()
	nodes := startNodes(t, 3)
	l := newLocker(t, redistest.Options(nodes), quarantineOn, validity(30*time.Second))
	do(t, nodes[1], "SET", lockKey("left"), "somebody", "PX", "60000")
	err := initWhenUp(t, l)
	require.ErrorContains(t, err, lockKey("left"))
	require.ErrorContains(t, err, nodes[1].Addr())
	_, err = l.TryAcquire(t.Context(), "a")
	require.ErrorIs(t, err, redlock.ErrQuarantined)
	do(t, nodes[1], "DEL", lockKey("left"))

	require.NoError(t, nodes[2].Freeze())
	ctx, cancel := context.WithTimeout(t.Context(), time.Second)
	require.Error(t, l.Init(ctx), "every node must answer")
	cancel()
	require.NoError(t, nodes[2].Thaw())

	require.NoError(t, initWhenUp(t, l))
	release(t, tryAcquire(t, l, "a"))
	require.NoError(t, l.Init(t.Context()), "again")
	g := tryAcquire(t, l, "a")
	require.NoError(t, l.Init(t.Context()), "and with a lock held, once nobody is quarantined")
	release(t, g)
}

// initWhenUp calls Init until it no longer says that a node is on its way up.
func initWhenUp(t *testing.T, l *redlock.Locker) error {
	t.Helper()
	var err error
	require.Eventually(t, func() bool {
		err = l.Init(context.Background())
		return err == nil || !errors.Is(err, redlock.ErrNodeDown) && !errors.Is(err, redlock.ErrNodeTimeout) && !errors.Is(err, redlock.ErrQuarantined)
	}, 2*soon, 20*time.Millisecond)
	return err
}

func TestNodeThatRestartsEmptyGrantsNothingForTheLongestLease(t *testing.T) {
	t.Parallel()
	nodes := startNodes(t, 3)
	longest := func(o *redlock.LockerOption) { o.MaxKeyValidity = 4 * time.Second }
	a := newLocker(t, redistest.Options(nodes), quarantineOn, validity(2*time.Second), longest)
	require.NoError(t, initWhenUp(t, a))
	b := newLocker(t, redistest.Options(nodes), quarantineOn, validity(2*time.Second), longest)

	require.NoError(t, nodes[2].Kill()) // a holds two of three
	g := acquire(t, a, "a")
	require.NoError(t, nodes[2].CrashEmpty())
	restarted := time.Now()
	require.NoError(t, nodes[1].CrashEmpty()) // and one of those two forgets

	for time.Since(restarted) < 3*time.Second {
		_, err := b.TryAcquire(t.Context(), "a")
		require.Error(t, err, "two nodes without memory make no quorum")
		if g.Err() == nil {
			time.Sleep(50 * time.Millisecond)
		} else {
			time.Sleep(100 * time.Millisecond)
		}
	}
	require.ErrorIs(t, requireDone(t, g, soon), redlock.ErrLost)
	g2 := acquire(t, b, "a")
	require.GreaterOrEqual(t, time.Since(restarted), 3900*time.Millisecond)
	require.Greater(t, g2.FencingToken(), g.FencingToken(), "the floor")
	release(t, g2)
}

func TestFlushedNodeIsQuarantinedToo(t *testing.T) {
	t.Parallel()
	nodes := startNodes(t, 3)
	l := newLocker(t, redistest.Options(nodes), quarantineOn, validity(2*time.Second))
	require.NoError(t, initWhenUp(t, l))
	g := acquire(t, l, "a")
	token := g.FencingToken()
	release(t, g)
	doAll(t, nodes, "FLUSHALL")
	start := time.Now()
	_, err := l.TryAcquire(t.Context(), "a")
	require.ErrorIs(t, err, redlock.ErrNoQuorum)
	require.ErrorIs(t, err, redlock.ErrQuarantined)
	g = acquire(t, l, "a")
	require.GreaterOrEqual(t, time.Since(start), 1800*time.Millisecond)
	require.Greater(t, g.FencingToken(), token)
	release(t, g)
}

func TestHeldLockSurvivesOneRestartedNodeWithinItsQuarantine(t *testing.T) {
	t.Parallel()
	nodes := startNodes(t, 3)
	l := newLocker(t, redistest.Options(nodes), quarantineOn, validity(2*time.Second))
	require.NoError(t, initWhenUp(t, l))
	g := acquire(t, l, "a")
	require.Eventually(t, func() bool { return do(t, nodes[1], "EXISTS", lockKey("a")) == "1" }, soon, tick)
	crashed := time.Now()
	require.NoError(t, nodes[1].CrashEmpty())
	for time.Since(crashed) < time.Second { // the quarantine is of 2 s, and begins later
		require.Equal(t, "0", do(t, nodes[1], "EXISTS", lockKey("a")), "not won back while it is quarantined")
		requireHeldFor(t, g, 100*time.Millisecond)
	}
	require.Eventually(t, func() bool { return do(t, nodes[1], "EXISTS", lockKey("a")) == "1" }, soon, tick, "and after that it is")
	release(t, g)
}

func TestClientsThatDisagreeAreRefused(t *testing.T) {
	t.Parallel()
	nodes := startNodes(t, 4)
	l := newLocker(t, redistest.Options(nodes[:3]))
	release(t, acquire(t, l, "a"))

	_, err := redlock.NewLocker(lockerOption(redistest.Options(nodes[:3]), quarantineOn))
	require.ErrorIs(t, err, redlock.ErrDisagreement)
	require.ErrorContains(t, err, "RestartQuarantine")

	other, err := redlock.NewLocker(lockerOption(redistest.Options(nodes)))
	if other != nil {
		defer other.Close()
	}
	require.NoError(t, err, "three of its nodes are the members")
	require.Eventually(t, func() bool { return errors.Is(other.Status().Nodes[3].Err, redlock.ErrDisagreement) }, soon, tick)
	require.ErrorContains(t, other.Status().Nodes[3].Err, "is not a member of this set")
	require.Equal(t, "", do(t, nodes[3], "KEYS", "*"), "it is left alone")
}
