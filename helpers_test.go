package redlock_test

import (
	"bufio"
	"context"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/redis/rueidis"
	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"

	"github.com/redlock-go/redlock"
	"github.com/redlock-go/redlock/internal/logtest"
	"github.com/redlock-go/redlock/internal/netproxy"
	"github.com/redlock-go/redlock/internal/redisproc"
	"github.com/redlock-go/redlock/internal/redisproc/redistest"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

const (
	// soon is how long what takes some round trips may take on a machine that is busy with other things.
	soon = 5 * time.Second
	// tick is how often a condition is looked at.
	tick = 5 * time.Millisecond
)

type optionFunc = func(*redlock.LockerOption)

func validity(d time.Duration) optionFunc {
	return func(o *redlock.LockerOption) { o.KeyValidity = d }
}

func interval(d time.Duration) optionFunc {
	return func(o *redlock.LockerOption) { o.ExtendInterval = d }
}

func nodeTimeout(d time.Duration) optionFunc {
	return func(o *redlock.LockerOption) { o.NodeTimeout = d }
}

// pushes says whether nodes are asked to push.
func pushes(on bool) optionFunc {
	return func(o *redlock.LockerOption) {
		for i := range o.Nodes {
			o.Nodes[i].DisableCache = !on
		}
	}
}

func quarantineOn(o *redlock.LockerOption) { o.RestartQuarantine = 0 }

func logTo(log *logtest.Log) optionFunc {
	return func(o *redlock.LockerOption) { o.Logger = log.Logger() }
}

func startNodes(t testing.TB, n int) []*redisproc.Node {
	t.Helper()
	return redistest.StartSet(t, n, redisproc.Options{})
}

// newLocker returns a Locker of its own over nodes, without quarantine unless told otherwise. The test closes it.
func newLocker(t testing.TB, nodes []rueidis.ClientOption, options ...optionFunc) *redlock.Locker {
	t.Helper()
	l, err := redlock.NewLocker(lockerOption(nodes, options...))
	require.NoError(t, err)
	t.Cleanup(l.Close)
	return l
}

// awaitAllNodes waits until every node may vote: NewLocker waits for a quorum, and a node that is not up is not asked.
func awaitAllNodes(t testing.TB, lockers ...*redlock.Locker) {
	t.Helper()
	for _, l := range lockers {
		require.Eventually(t, func() bool { s := l.Status(); return s.MayVote == len(s.Nodes) }, soon, tick, "every node may vote")
	}
}

func lockerOption(nodes []rueidis.ClientOption, options ...optionFunc) redlock.LockerOption {
	o := redlock.LockerOption{Nodes: nodes, RestartQuarantine: -1}
	for _, f := range options {
		f(&o)
	}
	return o
}

// proxied puts one client's own network before every node.
func proxied(t testing.TB, nodes []*redisproc.Node) (options []rueidis.ClientOption, links []*netproxy.Link) {
	t.Helper()
	for _, n := range nodes {
		p := netproxy.New(n.Network(), n.Addr())
		t.Cleanup(p.Close)
		link, err := p.Listen()
		require.NoError(t, err)
		options = append(options, rueidis.ClientOption{InitAddress: []string{link.Addr()}})
		links = append(links, link)
	}
	return options, links
}

// far puts a client at a distance. A vote of which a push speaks ends if four round trips, 50 ms at least, bring no answer: that is
// short for a busy machine, and long for a far node.
func far(t testing.TB, nodes []*redisproc.Node) (options []rueidis.ClientOption) {
	t.Helper()
	options, links := proxied(t, nodes)
	for _, link := range links {
		link.Delay(netproxy.Both, 50*time.Millisecond, nil)
	}
	return options
}

func acquire(t testing.TB, l *redlock.Locker, name string) *redlock.Guard {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), 30*time.Second)
	defer cancel()
	g, err := l.Acquire(ctx, name)
	require.NoError(t, err)
	return g
}

func tryAcquire(t testing.TB, l *redlock.Locker, name string, options ...redlock.HoldOption) *redlock.Guard {
	t.Helper()
	g, err := l.TryAcquire(context.Background(), name, options...)
	require.NoError(t, err)
	return g
}

// acquireOnAll acquires once every node is up, so that each has a vote to begin with.
func acquireOnAll(t testing.TB, l *redlock.Locker, nodes []*redisproc.Node, name string) *redlock.Guard {
	t.Helper()
	for range 1000 {
		g := acquire(t, l, name)
		all := true
		for _, n := range nodes {
			for range 10 {
				if all = do(t, n, "EXISTS", lockKey(name)) == "1"; all {
					break
				}
				time.Sleep(tick)
			}
			if !all {
				break
			}
		}
		if all {
			return g
		}
		release(t, g)
	}
	require.Fail(t, "a node has no vote")
	return nil
}

func release(t testing.TB, g *redlock.Guard) {
	t.Helper()
	require.NoError(t, g.Release(context.Background()))
}

// do runs a command on a node.
func do(t testing.TB, n *redisproc.Node, args ...string) string {
	t.Helper()
	answer, err := n.Do(args...)
	require.NoError(t, err, "%q", args)
	return answer
}

func doAll(t testing.TB, nodes []*redisproc.Node, args ...string) {
	t.Helper()
	for _, n := range nodes {
		do(t, n, args...)
	}
}

func lockKey(name string) string { return "redlock:{" + name + "}" }

// keysOf returns the lock keys that a node stores.
func keysOf(t testing.TB, n *redisproc.Node) []string {
	t.Helper()
	client := redistest.Client(t, n)
	defer client.Close()
	keys, err := client.Do(context.Background(), client.B().Keys().Pattern("redlock:{*").Build()).AsStrSlice()
	require.NoError(t, err)
	return keys
}

// requireNoKeys waits until no node stores a lock any more.
func requireNoKeys(t testing.TB, nodes []*redisproc.Node, within time.Duration) {
	t.Helper()
	require.Eventually(t, func() bool {
		for _, n := range nodes {
			if len(keysOf(t, n)) > 0 {
				return false
			}
		}
		return true
	}, within, tick, "a lock key is left on a node")
}

// requireDone waits until a guard has ended, and returns the cause.
func requireDone(t testing.TB, g *redlock.Guard, within time.Duration) error {
	t.Helper()
	select {
	case <-g.Done():
	case <-time.After(within):
		require.Fail(t, "guard is still alive", "after %v", within)
	}
	require.Error(t, g.Err())
	require.Equal(t, g.Err(), context.Cause(g.Context()))
	return g.Err()
}

// requireHeldFor looks at a guard for a while: it must not end.
func requireHeldFor(t testing.TB, g *redlock.Guard, d time.Duration) {
	t.Helper()
	select {
	case <-g.Done():
		require.NoError(t, g.Err(), "guard has ended")
	case <-time.After(d):
	}
	require.NoError(t, g.Err())
}

// calls returns how often a node was sent a command so far.
func calls(t testing.TB, n *redisproc.Node, command string) int {
	t.Helper()
	s := bufio.NewScanner(strings.NewReader(do(t, n, "INFO", "commandstats")))
	for s.Scan() {
		rest, ok := strings.CutPrefix(s.Text(), "cmdstat_"+command+":calls=")
		if !ok {
			continue
		}
		number, _, _ := strings.Cut(rest, ",")
		count, err := strconv.Atoi(number)
		require.NoError(t, err)
		return count
	}
	return 0
}

func within(t testing.TB, d time.Duration, what string, f func()) {
	t.Helper()
	start := time.Now()
	f()
	require.Less(t, time.Since(start), d, what)
}

// quick runs f until it has taken less than d once. A busy machine holds up some runs; what is built wrongly takes
// longer in each.
func quick(t testing.TB, d time.Duration, what string, f func()) {
	t.Helper()
	var took []time.Duration
	for range 10 {
		start := time.Now()
		f()
		if took = append(took, time.Since(start)); took[len(took)-1] < d {
			return
		}
	}
	require.Fail(t, what, "never below %v: %v", d, took)
}

// afterward runs f in a goroutine that the test waits for at its end.
func afterward(t testing.TB, f func()) {
	done := make(chan struct{})
	go func() {
		defer close(done)
		f()
	}()
	t.Cleanup(func() { <-done })
}
