// Package redistest is package redisproc for tests: what goes wrong fails the test, what was started ends with it.
package redistest

import (
	"context"
	"crypto/tls"
	"net"
	"testing"
	"time"

	"github.com/redis/rueidis"
	"github.com/stretchr/testify/require"

	"github.com/redlock-go/redlock/internal/redisproc"
)

// Start starts a node that lives as long as the test. If the test fails, the end of the node's log is in its output. A
// missing redis-server fails the test: a suite that skips what it came for would be green on a machine where nothing
// works.
func Start(t testing.TB, options redisproc.Options) *redisproc.Node {
	t.Helper()
	return StartSet(t, 1, options)[0]
}

// StartSet starts n nodes at once, each as Start does.
func StartSet(t testing.TB, n int, options redisproc.Options) []*redisproc.Node {
	t.Helper()
	nodes, err := redisproc.StartSet(n, options)
	require.NoError(t, err)
	t.Cleanup(func() {
		for _, node := range nodes {
			end(t, node)
		}
	})
	return nodes
}

func end(t testing.TB, node *redisproc.Node) {
	if t.Failed() {
		t.Logf("redis at %s has logged last:\n%s", node.Addr(), node.LogTail(30))
	}
	if err := node.Close(); err != nil {
		t.Errorf("close redis at %s: %v", node.Addr(), err)
	}
}

// Option is how rueidis reaches the node. For a node on a unix socket it sets DialCtxFn, and rueidis leaves everything
// about dialing to that: TLS, DialFn.
func Option(node *redisproc.Node) rueidis.ClientOption {
	option := rueidis.ClientOption{InitAddress: []string{node.Addr()}, ForceSingleClient: true}
	if node.Network() == "unix" {
		option.DialCtxFn = func(ctx context.Context, _ string, _ *net.Dialer, _ *tls.Config) (net.Conn, error) {
			return node.Dial(ctx)
		}
	}
	return option
}

// Options is Option for each of the nodes, in their order.
func Options(nodes []*redisproc.Node) []rueidis.ClientOption {
	options := make([]rueidis.ClientOption, len(nodes))
	for i, node := range nodes {
		options[i] = Option(node)
	}
	return options
}

// Client is a client of the node without client-side caching, for looking at a node and for breaking it. The test
// closes it.
func Client(t testing.TB, node *redisproc.Node) rueidis.Client {
	t.Helper()
	option := Option(node)
	option.DisableCache = true
	// A frozen node must not keep Close, and with it the test, waiting for long.
	option.ConnWriteTimeout = 2 * time.Second
	client, err := rueidis.NewClient(option)
	require.NoError(t, err)
	t.Cleanup(client.Close)
	return client
}
