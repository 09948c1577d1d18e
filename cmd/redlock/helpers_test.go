package main

import (
	"bytes"
	"context"
	"errors"
	"os"
	"os/exec"
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

// longEnough is far above what anything here takes, for a machine busy with others.
const longEnough = 30 * time.Second

// result is what a command line came to.
type result struct {
	code            int
	out, complaints string
}

// inProcess executes a command line in this process.
func inProcess(t *testing.T, nodes []*redisproc.Node, args ...string) result {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), longEnough)
	defer cancel()
	if nodes != nil {
		args = append(args[:len(args):len(args)], "--nodes", listOf(nodes))
	}
	var out, complaints bytes.Buffer
	code := run(ctx, args, &out, &complaints)
	return result{code, out.String(), complaints.String()}
}

// listOf is the nodes as --nodes takes them.
func listOf(nodes []*redisproc.Node) string {
	var list []string
	for _, n := range nodes {
		list = append(list, n.Addr())
	}
	return strings.Join(list, ",")
}

// processOn returns the redlock command as a process of its own that finds the nodes in its environment.
func processOn(t *testing.T, nodes []*redisproc.Node, args ...string) *exec.Cmd {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), longEnough)
	t.Cleanup(cancel)
	cmd := exec.CommandContext(ctx, os.Args[0], args...)
	cmd.Env = append(os.Environ(), "REDLOCK_TEST_COMMAND=1", "REDLOCK_NODES="+listOf(nodes), "REDISCLI_AUTH=")
	return cmd
}

// execute runs a process and returns what it came to.
func execute(t *testing.T, cmd *exec.Cmd) result {
	t.Helper()
	var out, complaints bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &complaints
	err := cmd.Run()
	var exit *exec.ExitError
	if err != nil && !errors.As(err, &exit) {
		require.NoError(t, err)
	}
	return result{cmd.ProcessState.ExitCode(), out.String(), complaints.String()}
}

// startNodes starts so many servers past their first quarantine.
func startNodes(t *testing.T, n int) []*redisproc.Node {
	t.Helper()
	return startNodesFor(t, n, testLease)
}

// startNodesFor starts them for leases of up to longest.
func startNodesFor(t *testing.T, n int, longest time.Duration) []*redisproc.Node {
	t.Helper()
	nodes := redistest.StartSet(t, n, redisproc.Options{})
	r := inProcess(t, nodes, "init", "--lease", longest.String())
	require.Equal(t, exitOK, r.code, r.complaints)
	return nodes
}

const (
	// testLease is long enough for a busy machine, and short enough to wait for.
	testLease = 2 * time.Second
	// longLease does not run out, nor is it renewed, while a test takes votes from a lock and looks at what is left.
	longLease = 30 * time.Second
)

// newLocker returns another program's Locker.
func newLocker(t *testing.T, nodes []*redisproc.Node) *redlock.Locker {
	t.Helper()
	return newLockerFor(t, nodes, testLease)
}

func newLockerFor(t *testing.T, nodes []*redisproc.Node, lease time.Duration) *redlock.Locker {
	t.Helper()
	l, err := redlock.NewLocker(redlock.LockerOption{Nodes: redistest.Options(nodes), KeyValidity: lease})
	require.NoError(t, err)
	t.Cleanup(l.Close)
	return l
}

// newFarLocker returns that of a program that is far from the nodes. Of a lock that is taken over a node's push says only that
// it has changed, and a holder that hears nothing more within four round trips, 50 ms at least, ends without knowing why: that is
// short for a busy machine, and long for a far node.
func newFarLocker(t *testing.T, nodes []*redisproc.Node) *redlock.Locker {
	t.Helper()
	option := redlock.LockerOption{KeyValidity: testLease}
	for _, n := range nodes {
		p := netproxy.New(n.Network(), n.Addr())
		t.Cleanup(p.Close)
		link, err := p.Listen()
		require.NoError(t, err)
		link.Delay(netproxy.Both, 50*time.Millisecond, nil)
		option.Nodes = append(option.Nodes, rueidis.ClientOption{InitAddress: []string{link.Addr()}})
	}
	l, err := redlock.NewLocker(option)
	require.NoError(t, err)
	t.Cleanup(l.Close)
	return l
}

// hold has another program hold a lock until the test ends.
func hold(t *testing.T, nodes []*redisproc.Node, name string) *redlock.Guard {
	t.Helper()
	return holdFor(t, nodes, name, testLease)
}

func holdFor(t *testing.T, nodes []*redisproc.Node, name string, lease time.Duration) *redlock.Guard {
	t.Helper()
	guard, err := newLockerFor(t, nodes, lease).Acquire(context.Background(), name)
	require.NoError(t, err)
	return guard
}

// awaitKeys waits until every node has the lock's key: a call returns at a quorum.
func awaitKeys(t *testing.T, nodes []*redisproc.Node, name string) {
	t.Helper()
	for _, n := range nodes {
		eventually(t, func() bool {
			keys, err := n.Do("EXISTS", "redlock:{"+name+"}")
			return err == nil && keys == "1"
		}, "the lock is on "+n.Addr())
	}
}

func eventually(t *testing.T, done func() bool, what string) {
	t.Helper()
	require.Eventually(t, done, longEnough, 5*time.Millisecond, what)
}
