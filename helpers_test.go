package redlock_test

import (
	"bufio"
	"bytes"
	"context"
	"log/slog"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/redis/rueidis"
	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"

	"github.com/redlock-go/redlock"
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

func quarantineOn(o *redlock.LockerOption) { o.RestartQuarantine = 0 }

func logTo(log *logBuffer) optionFunc {
	return func(o *redlock.LockerOption) { o.Logger = slog.New(slog.NewTextHandler(log, nil)) }
}

// logBuffer is a log that can be read while it is written.
type logBuffer struct {
	mu sync.Mutex
	b  bytes.Buffer
}

func (l *logBuffer) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.b.Write(p)
}

func (l *logBuffer) String() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.b.String()
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

func acquire(t testing.TB, l *redlock.Locker, name string) *redlock.Guard {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), 30*time.Second)
	defer cancel()
	g, err := l.Acquire(ctx, name)
	require.NoError(t, err)
	return g
}

func tryAcquire(t testing.TB, l *redlock.Locker, name string) *redlock.Guard {
	t.Helper()
	g, err := l.TryAcquire(context.Background(), name)
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

// afterward runs f in a goroutine that the test waits for at its end.
func afterward(t testing.TB, f func()) {
	done := make(chan struct{})
	go func() {
		defer close(done)
		f()
	}()
	t.Cleanup(func() { <-done })
}
