package redlocktest

import (
	"context"
	"crypto/tls"
	"errors"
	"maps"
	"math/rand/v2"
	"net"
	"os"
	"slices"
	"syscall"
	"time"

	"github.com/redis/rueidis"

	"github.com/redlock-go/redlock"
)

// Client is a host that uses the cluster, with one link to each node.
type Client struct {
	cluster *Cluster
	name    string
	index   int
	links   []*Link
}

// Option is what a Locker on this host needs; see [Cluster.Option].
func (c *Client) Option() redlock.LockerOption {
	option := redlock.LockerOption{RestartQuarantine: -1}
	for _, l := range c.Links() {
		option.Nodes = append(option.Nodes, l.Option())
	}
	return option
}

// Name returns the name given to [Cluster.Client].
func (c *Client) Name() string { return c.name }

// Link returns the host's link to node i.
func (c *Client) Link(i int) *Link {
	c.cluster.helper()()
	links := c.Links()
	if i < 0 || i >= len(links) {
		c.cluster.fail("redlocktest: link to node %d of a cluster of %d", i, len(links))
	}
	return links[i]
}

// Links returns all links, in the order of the nodes.
func (c *Client) Links() []*Link {
	c.cluster.mu.Lock()
	defer c.cluster.mu.Unlock()
	return slices.Clone(c.links)
}

// Link is the way from one client host to one node. Its faults come on top of the node's own: delays add up, either
// silence is silence.
type Link struct {
	client *Client
	node   *Node
	faults
	number int            // of the node
	jitter *rand.Rand     // for dials; nil without Jitter
	dials  int            // connections made, which also numbers them
	conns  []*conn        // alive, by number
	dialed []*dial        // dials under way
	sent   map[string]int // commands executed for this link
}

func newLink(client *Client, node *Node, i int) *Link {
	l := &Link{client: client, node: node, number: i, sent: map[string]int{}}
	l.jitter = l.source(dialing, 0)
	return l
}

// What a source of jitter is for. Each connection has its own for either direction: the end of one and the begin of the
// next are not ordered among themselves.
const (
	dialing = iota + 10
	requesting
	replying
)

// source returns what jitter is drawn from, or nil without Jitter.
func (l *Link) source(purpose uint64, connection int) *rand.Rand {
	if l.client.cluster.network.jitterHigh == 0 {
		return nil
	}
	return l.client.cluster.source(purpose, uint64(l.client.index), uint64(l.number), uint64(connection))
}

// Option is the rueidis option that reaches the node over this link. Ring and buffers are small: a simulation has many
// clients.
func (l *Link) Option() rueidis.ClientOption {
	return rueidis.ClientOption{
		InitAddress:         []string{l.node.Addr()},
		ForceSingleClient:   true,
		RingScaleEachConn:   8,
		ReadBufferEachConn:  4 << 10,
		WriteBufferEachConn: 4 << 10,
		DialCtxFn: func(ctx context.Context, _ string, dialer *net.Dialer, _ *tls.Config) (net.Conn, error) {
			if dialer != nil && dialer.Timeout > 0 {
				var cancel context.CancelFunc
				ctx, cancel = context.WithTimeout(ctx, dialer.Timeout)
				defer cancel()
			}
			return l.Dial(ctx)
		},
	}
}

// Delay makes each request and each reply (pushes are replies) take that long, in place of what was set before.
func (l *Link) Delay(requests, replies time.Duration) {
	l.client.cluster.helper()()
	l.client.cluster.checkDelay("Link.Delay", requests, replies)
	l.DelayFunc(fixed(requests), fixed(replies))
}

// DelayFunc asks the hooks for the delay of each message; nil is none, a negative answer is 0. A later message never
// overtakes an earlier one of its connection. The hooks are called with the cluster locked: they must not wait, nor
// call the cluster. Give each hook a random source of its own.
func (l *Link) DelayFunc(requests, replies func() time.Duration) {
	l.client.cluster.mu.Lock()
	defer l.client.cluster.mu.Unlock()
	l.requestDelay, l.replyDelay = requests, replies
}

// Silence stops messages in both directions without a sign of it; see [Node.Silence].
func (l *Link) Silence() { l.silence(true, true) }

// SilenceRequests stops what the client sends: the node never sees it, pushes still arrive.
func (l *Link) SilenceRequests() { l.silence(true, false) }

// SilenceReplies stops what the node sends: requests are still executed.
func (l *Link) SilenceReplies() { l.silence(false, true) }

func (l *Link) silence(requests, replies bool) {
	l.client.cluster.mu.Lock()
	defer l.client.cluster.mu.Unlock()
	l.requestSilent = l.requestSilent || requests
	l.replySilent = l.replySilent || replies
}

// Heal ends this link's silence; what was held is delivered; see [Node.Heal].
func (l *Link) Heal() { l.heal(false) }

// HealLosing ends this link's silence; what was held is lost; see [Node.HealLosing].
func (l *Link) HealLosing() { l.heal(true) }

func (l *Link) heal(losing bool) {
	l.client.cluster.mu.Lock()
	defer l.client.cluster.mu.Unlock()
	l.requestSilent, l.replySilent = false, false
	l.resume(losing)
}

// Cut closes this link's connections at once at both ends; what was under way is lost.
func (l *Link) Cut() {
	l.client.cluster.mu.Lock()
	defer l.client.cluster.mu.Unlock()
	l.cut()
}

func (l *Link) cut() {
	for _, c := range slices.Clone(l.conns) {
		c.cut()
	}
}

// Dials returns how many connections were made over this link so far.
func (l *Link) Dials() int {
	l.client.cluster.mu.Lock()
	defer l.client.cluster.mu.Unlock()
	return l.dials
}

// Connections returns how many connections of this link are open at the client's end.
func (l *Link) Connections() int {
	l.client.cluster.mu.Lock()
	defer l.client.cluster.mu.Unlock()
	n := 0
	for _, c := range l.conns {
		if !c.left {
			n++
		}
	}
	return n
}

// Commands returns how often the node executed each command for this client, by name in capitals, with the subcommand
// where there is one. Calls inside scripts are not counted.
func (l *Link) Commands() map[string]int {
	l.client.cluster.mu.Lock()
	defer l.client.cluster.mu.Unlock()
	return maps.Clone(l.sent)
}

// requestTime and replyTime are what the next message takes; jitter is the source of its connection.
func (l *Link) requestTime(jitter *rand.Rand) time.Duration {
	return draw(l.requestDelay) + draw(l.node.requestDelay) + l.client.cluster.network.jittered(jitter)
}

func (l *Link) replyTime(jitter *rand.Rand) time.Duration {
	return draw(l.replyDelay) + draw(l.node.replyDelay) + l.client.cluster.network.jittered(jitter)
}

func (l *Link) requestsSilent() bool { return l.requestSilent || l.node.requestSilent }
func (l *Link) repliesSilent() bool  { return l.replySilent || l.node.replySilent }

// resume delivers, or drops, what a silence held, in directions that are not silent any more.
func (l *Link) resume(losing bool) {
	for _, c := range slices.Clone(l.conns) {
		c.resume(losing)
	}
	if l.requestsSilent() || l.repliesSilent() {
		return
	}
	for _, d := range slices.Clone(l.dialed) {
		if d.held {
			d.held = false
			l.send(d)
		}
	}
}

// dial is a connection being made.
type dial struct {
	done chan struct{} // closed when conn or err is set
	conn *conn
	err  error
	held bool // a silence keeps it
}

var errClosed = errors.New("redlocktest: the cluster is closed")

// Dial connects to the node. It takes a round trip, waits while a silence lasts in either direction, and is refused
// while the node refuses.
func (l *Link) Dial(ctx context.Context) (net.Conn, error) {
	if err := ctx.Err(); err != nil {
		return nil, l.dialError(err)
	}
	d := l.begin()
	select {
	case <-d.done:
	case <-ctx.Done():
		l.abandon(d)
		return nil, l.dialError(ctx.Err())
	}
	if d.err != nil {
		return nil, d.err
	}
	return d.conn, nil
}

func (l *Link) dialError(err error) error {
	return &net.OpError{Op: "dial", Net: "tcp", Addr: l.node.address(), Err: err}
}

func (l *Link) begin() *dial {
	l.client.cluster.mu.Lock()
	defer l.client.cluster.mu.Unlock()
	d := &dial{done: make(chan struct{})}
	if l.client.cluster.closed {
		d.err = errClosed
		close(d.done)
		return d
	}
	l.dialed = append(l.dialed, d)
	if l.requestsSilent() || l.repliesSilent() {
		d.held = true
	} else {
		l.send(d)
	}
	return d
}

func (l *Link) abandon(d *dial) {
	l.client.cluster.mu.Lock()
	defer l.client.cluster.mu.Unlock()
	if d.conn != nil { // it came at the same moment
		d.conn.hangUp()
	}
	l.forget(d)
}

func (l *Link) forget(d *dial) {
	l.dialed = slices.DeleteFunc(l.dialed, func(x *dial) bool { return x == d })
}

// send lets the handshake take its round trip.
func (l *Link) send(d *dial) {
	network := &l.client.cluster.network
	took := l.requestTime(l.jitter) + l.replyTime(l.jitter)
	if took == 0 {
		l.establish(d)
		return
	}
	network.at(network.now()+took, rank{node: l.node.index, client: l.client.index, conn: -1}, func() { l.establish(d) })
}

func (l *Link) establish(d *dial) {
	if !slices.Contains(l.dialed, d) {
		return // abandoned
	}
	l.forget(d)
	switch {
	case l.node.refusing || l.node.off:
		d.err = l.dialError(os.NewSyscallError("connect", syscall.ECONNREFUSED))
	default:
		d.conn = newConn(l)
	}
	close(d.done)
}

// releaseDials fails every dial that waits.
func (l *Link) releaseDials() {
	for _, d := range l.dialed {
		d.err = errClosed
		close(d.done)
	}
	l.dialed = nil
}
