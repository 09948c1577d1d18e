package redlocktest

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/redlock-go/redlock"
	"github.com/redlock-go/redlock/redlocktest/internal/redissim"
)

// Cluster is n independent simulated Redis nodes and the network around them. All of it may be used from any goroutine.
type Cluster struct {
	t    testing.TB // nil outside a test
	seed uint64

	// One mutex for everything simulated: it is held for the length of a command, never across a wait.
	mu      sync.Mutex
	nodes   []*Node
	clients []*Client
	network network
	lua     *redissim.Interpreter
	closed  bool
}

// ClusterOption configures NewCluster and Start.
type ClusterOption func(*Cluster)

// Seed makes everything drawn at random (run ids, [Jitter]) another draw. Without it the seed is 1: two clusters are
// alike.
func Seed(seed uint64) ClusterOption {
	return func(c *Cluster) { c.seed = seed }
}

// Jitter lets every message of every link take between low and high, drawn anew for each message, on top of other
// delays; no two messages of a connection arrive at one instant. With low > 0 a run in a synctest bubble repeats
// exactly for an equal seed; see the package doc.
func Jitter(low, high time.Duration) ClusterOption {
	return func(c *Cluster) {
		if low < 0 || high < low {
			c.fail("redlocktest: Jitter(%v, %v): want 0 <= low <= high", low, high)
		}
		c.network.jitterLow, c.network.jitterHigh = low, high
	}
}

// NewCluster starts n nodes and closes them when the test ends. Bad input to any method fails the test at once.
func NewCluster(t testing.TB, n int, options ...ClusterOption) *Cluster {
	t.Helper()
	c := newCluster(t, n, options)
	t.Cleanup(c.Close)
	return c
}

// Start is [NewCluster] outside a test: the caller closes the cluster, and bad input panics.
func Start(n int, options ...ClusterOption) *Cluster {
	return newCluster(nil, n, options)
}

func newCluster(t testing.TB, n int, options []ClusterOption) *Cluster {
	c := &Cluster{t: t, seed: 1}
	if n < 1 {
		c.fail("redlocktest: cluster of %d nodes: want at least 1", n)
	}
	for _, option := range options {
		option(c)
	}
	c.lua = redissim.GetInterpreter()
	c.network.start(c)
	for i := range n {
		c.nodes = append(c.nodes, newNode(c, i))
	}
	return c
}

// Close ends the cluster: every connection is closed as by the server, every dial fails, no goroutine and no timer is
// left. Nodes can still be looked at, but run no script. Clients built on it must be closed by their owner, best
// before. A second call does nothing.
func (c *Cluster) Close() {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.closed {
		return
	}
	c.closed = true
	for _, client := range c.clients {
		for _, l := range client.links {
			l.releaseDials()
			for _, conn := range l.conns {
				conn.end(errClosed)
			}
			l.conns = nil
		}
	}
	c.network.stop()
	for _, n := range c.nodes {
		n.server.Retire()
	}
	c.lua.Put()
	c.lua = nil
}

// Option is what a Locker needs to use the cluster: all nodes, and no quarantine after a restart, so that fresh nodes
// grant at once. Tests of the quarantine set RestartQuarantine themselves. It is the option of the client host
// "client".
func (c *Cluster) Option() redlock.LockerOption { return c.Client("client").Option() }

// Len returns the number of nodes.
func (c *Cluster) Len() int { return len(c.Nodes()) }

// Node returns node i, counted from 0.
func (c *Cluster) Node(i int) *Node {
	c.helper()()
	nodes := c.Nodes()
	if i < 0 || i >= len(nodes) {
		c.fail("redlocktest: node %d of a cluster of %d", i, len(nodes))
	}
	return nodes[i]
}

// Nodes returns all nodes in order.
func (c *Cluster) Nodes() []*Node {
	c.mu.Lock()
	defer c.mu.Unlock()
	return slices.Clone(c.nodes)
}

// Add starts one more node, to which every client host has a link, and returns it. Whoever is to use it lists it: options that were
// asked for before do not have it. A server that is replaced is one that is stopped, and another that is added:
//
//	cluster.Node(2).Stop()
//	cluster.Add()
//	err := locker.SetNodes(ctx, redlock.NodeSet{Nodes: ..., Off: []string{cluster.Node(2).Addr()}})
func (c *Cluster) Add() *Node {
	c.helper()()
	n := c.add()
	if n == nil {
		c.fail("redlocktest: Add: the cluster is closed")
	}
	return n
}

func (c *Cluster) add() *Node {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.closed {
		return nil
	}
	i := len(c.nodes)
	n := newNode(c, i)
	c.nodes = append(c.nodes, n)
	for _, client := range c.clients {
		client.links = append(client.links, newLink(client, n, i))
	}
	return n
}

// Client returns the client host of that name, with links of its own to every node. The first call creates it.
func (c *Cluster) Client(name string) *Client {
	c.helper()()
	if name == "" {
		c.fail("redlocktest: a client without a name")
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, client := range c.clients {
		if client.name == name {
			return client
		}
	}
	client := &Client{cluster: c, name: name, index: len(c.clients)}
	for i, node := range c.nodes {
		client.links = append(client.links, newLink(client, node, i))
	}
	c.clients = append(c.clients, client)
	return client
}

// fail reports bad input. It must not be called with the mutex held: Fatalf ends the goroutine.
func (c *Cluster) fail(format string, args ...any) {
	if c.t == nil {
		panic(fmt.Sprintf(format, args...))
	}
	c.t.Helper()
	c.t.Fatalf(format, args...)
}

// helper returns t.Helper, so that a failure names the line of the test.
func (c *Cluster) helper() func() {
	if c.t == nil {
		return func() {}
	}
	return c.t.Helper
}

// checkDelay fails for a negative delay.
func (c *Cluster) checkDelay(method string, delays ...time.Duration) {
	c.helper()()
	for _, d := range delays {
		if d < 0 {
			c.fail("redlocktest: %s: negative delay %v", method, d)
		}
	}
}

// source is a stream of random numbers of its own for each purpose, so that one purpose's draws do not move another's.
func (c *Cluster) source(purpose ...uint64) *rand.Rand {
	h := c.seed
	for _, p := range purpose {
		h = (h ^ p) * 0x9e3779b97f4a7c15
		h ^= h >> 29
	}
	return rand.New(rand.NewPCG(c.seed, h))
}
