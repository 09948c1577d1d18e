package redlocktest

import (
	"bytes"
	"io"
	"math/rand/v2"
	"net"
	"os"
	"slices"
	"sync"
	"syscall"
	"time"

	"github.com/redlock-go/redlock/redlocktest/internal/redissim"
)

// conn is one connection: the client's end is its [net.Conn], the server's end a session of the node. There is no
// goroutine in it. A request that takes no time is executed inside Write; one that takes time is an event of the
// network.
type conn struct {
	link    *Link
	number  int
	session *redissim.Session
	partial []byte // the begin of a request that is not complete
	left    bool   // the client has closed its end
	dropped bool   // the server's end is gone: what arrives there is lost
	over    bool   // the client's end has seen the end of the stream
	noWait  bool   // SetLinger(0)

	requests lane
	replies  lane

	in inbound
}

// lane is one direction of a connection. Nothing in it overtakes.
type lane struct {
	jitter   *rand.Rand
	underWay int
	last     time.Duration // when the last message under way arrives
	held     []message     // kept by a silence
}

// message is a request (args), a reply or a push (bytes), or the end of its direction (end).
type message struct {
	args  []string
	bytes []byte
	end   error
}

// inbound is what has arrived at the client's end. Its mutex is taken with or without the cluster's, never the other
// way round.
type inbound struct {
	mu      sync.Mutex
	changed *sync.Cond
	bytes   []byte
	read    int // of bytes
	end     error
	closed  bool
	readBy  time.Time
	writeBy time.Time
}

func newConn(l *Link) *conn {
	l.dials++
	c := &conn{link: l, number: l.dials}
	c.requests.jitter = l.source(requesting, c.number)
	c.replies.jitter = l.source(replying, c.number)
	c.in.changed = sync.NewCond(&c.in.mu)
	c.session = l.node.server.Connect(c.reply)
	l.conns = append(l.conns, c)
	return c
}

var (
	_ net.Conn = (*conn)(nil)

	errReset = os.NewSyscallError("read", syscall.ECONNRESET)
	errPipe  = os.NewSyscallError("write", syscall.EPIPE)
)

// Read waits for bytes from the node.
func (c *conn) Read(b []byte) (int, error) {
	in := &c.in
	in.mu.Lock()
	defer in.mu.Unlock()
	for {
		switch {
		case in.closed:
			return 0, c.opError("read", net.ErrClosed)
		case in.read < len(in.bytes):
			n := copy(b, in.bytes[in.read:])
			if in.read += n; in.read == len(in.bytes) {
				in.bytes, in.read = in.bytes[:0], 0
			}
			return n, nil
		case in.end == io.EOF:
			return 0, io.EOF
		case in.end != nil:
			return 0, c.opError("read", in.end)
		case len(b) == 0:
			return 0, nil
		}
		if in.readBy.IsZero() {
			in.changed.Wait()
			continue
		}
		left := time.Until(in.readBy)
		if left <= 0 {
			return 0, c.opError("read", os.ErrDeadlineExceeded)
		}
		timer := time.AfterFunc(left, in.wake)
		in.changed.Wait()
		timer.Stop()
	}
}

func (in *inbound) wake() {
	in.mu.Lock()
	defer in.mu.Unlock()
	in.changed.Broadcast()
}

// Write sends requests. It never waits: the simulated socket buffer has no end.
func (c *conn) Write(b []byte) (int, error) {
	if err := c.writable(); err != nil {
		return 0, c.opError("write", err)
	}
	cluster := c.link.client.cluster
	cluster.mu.Lock()
	defer cluster.mu.Unlock()
	if c.left {
		return 0, c.opError("write", net.ErrClosed)
	}
	if cluster.closed {
		return 0, c.opError("write", errPipe)
	}
	pending := b
	if len(c.partial) > 0 {
		c.partial = append(c.partial, b...)
		pending = c.partial
	}
	for len(pending) > 0 {
		args, used, err := redissim.ParseRequest(pending)
		if err != nil {
			c.hangUpByServer(io.EOF)
			break
		}
		if used == 0 {
			break
		}
		pending = pending[used:]
		c.request(message{args: args})
	}
	c.partial = append(c.partial[:0], pending...)
	return len(b), nil
}

func (c *conn) writable() error {
	c.in.mu.Lock()
	defer c.in.mu.Unlock()
	switch {
	case c.in.closed:
		return net.ErrClosed
	case c.in.end != nil:
		return errPipe
	case !c.in.writeBy.IsZero() && time.Until(c.in.writeBy) <= 0:
		return os.ErrDeadlineExceeded
	}
	return nil
}

// Close hangs up. What was sent before is still executed, unless a silence holds it and SetLinger(0) was called;
// replies are lost.
func (c *conn) Close() error {
	c.link.client.cluster.mu.Lock()
	defer c.link.client.cluster.mu.Unlock()
	if c.left {
		return c.opError("close", net.ErrClosed)
	}
	c.hangUp()
	return nil
}

// SetLinger with 0 makes Close throw away what has not left the host, as of a TCP connection: here, what a silence
// holds.
func (c *conn) SetLinger(seconds int) error {
	c.link.client.cluster.mu.Lock()
	defer c.link.client.cluster.mu.Unlock()
	c.noWait = seconds == 0
	return nil
}

func (c *conn) LocalAddr() net.Addr  { return address(c.link.client.name) }
func (c *conn) RemoteAddr() net.Addr { return c.link.node.address() }

func (c *conn) SetDeadline(t time.Time) error {
	c.in.mu.Lock()
	defer c.in.mu.Unlock()
	c.in.readBy, c.in.writeBy = t, t
	c.in.changed.Broadcast()
	return nil
}

func (c *conn) SetReadDeadline(t time.Time) error {
	c.in.mu.Lock()
	defer c.in.mu.Unlock()
	c.in.readBy = t
	c.in.changed.Broadcast()
	return nil
}

func (c *conn) SetWriteDeadline(t time.Time) error {
	c.in.mu.Lock()
	defer c.in.mu.Unlock()
	c.in.writeBy = t
	return nil
}

func (c *conn) opError(op string, err error) error {
	return &net.OpError{Op: op, Net: "tcp", Source: c.LocalAddr(), Addr: c.RemoteAddr(), Err: err}
}

// Below this line the cluster's mutex is held.

// request puts a request, or the client's end, on its way.
func (c *conn) request(m message) {
	if c.link.requestsSilent() || len(c.requests.held) > 0 {
		c.requests.held = append(c.requests.held, m)
		return
	}
	c.ship(&c.requests, m, c.requestTime(m))
}

// requestTime is 0 for the client's end, which waits only for what is before it: it comes from another goroutine than
// the next dial, and the hooks of the link must not be called in an order that depends on which is first.
func (c *conn) requestTime(m message) time.Duration {
	if m.end != nil {
		return 0
	}
	return c.link.requestTime(c.requests.jitter)
}

// reply puts a reply or a push on its way. b is valid during the call only.
func (c *conn) reply(b []byte) {
	switch {
	case c.left || c.over:
	case c.link.repliesSilent() || len(c.replies.held) > 0:
		c.replies.held = append(c.replies.held, message{bytes: bytes.Clone(b)})
	default:
		took := c.link.replyTime(c.replies.jitter)
		if took > 0 || c.replies.underWay > 0 {
			b = bytes.Clone(b)
		}
		c.ship(&c.replies, message{bytes: b}, took)
	}
}

func (c *conn) ship(l *lane, m message, took time.Duration) {
	if took == 0 && l.underWay == 0 {
		c.arrive(l, m)
		return
	}
	network := &c.link.client.cluster.network
	last := l.last
	if l.jitter != nil {
		last++ // a reply and a push that one goroutine hands to two must not race
	}
	l.last = max(last, network.now()+took)
	l.underWay++
	r := rank{node: c.link.node.index, client: c.link.client.index, conn: c.number, reply: l == &c.replies}
	network.at(l.last, r, func() {
		l.underWay--
		c.arrive(l, m)
	})
}

func (c *conn) arrive(l *lane, m message) {
	switch {
	case l == &c.requests && !c.dropped:
		c.link.node.receive(c, m)
	case l == &c.replies && !c.over:
		c.receive(m)
	}
}

// receive hands m to the client.
func (c *conn) receive(m message) {
	if m.end != nil {
		c.end(m.end)
		return
	}
	if c.left {
		return
	}
	c.in.mu.Lock()
	defer c.in.mu.Unlock()
	c.in.bytes = append(c.in.bytes, m.bytes...)
	c.in.changed.Signal()
}

// end shows the client the end of the stream, behind what has arrived.
func (c *conn) end(err error) {
	c.over = true
	c.retire()
	c.in.mu.Lock()
	defer c.in.mu.Unlock()
	c.in.end = err
	c.in.changed.Broadcast()
}

// hangUp closes the client's end; the server learns of it behind the requests that were sent before.
func (c *conn) hangUp() {
	if c.left {
		return
	}
	c.left = true
	c.replies.held = nil
	if c.noWait {
		c.requests.held = nil
	}
	c.in.mu.Lock()
	c.in.closed = true
	c.in.changed.Broadcast()
	c.in.mu.Unlock()
	c.retire()
	if !c.dropped {
		c.request(message{end: io.EOF})
	}
}

// hangUpByServer closes the server's end; the client learns of it behind the replies that were sent before.
func (c *conn) hangUpByServer(err error) {
	if c.dropped {
		return
	}
	c.dropped = true
	c.session.Close()
	c.requests.held = nil
	c.retire()
	if c.left || c.over {
		return
	}
	m := message{end: err}
	if c.link.repliesSilent() || len(c.replies.held) > 0 {
		c.replies.held = append(c.replies.held, m)
		return
	}
	c.ship(&c.replies, m, c.link.replyTime(c.replies.jitter))
}

// cut ends the connection at both ends at once; what was under way is lost. What has arrived at a frozen node is not
// under way.
func (c *conn) cut() {
	c.requests.held, c.replies.held = nil, nil
	if !c.dropped {
		c.link.node.receive(c, message{end: io.EOF})
		c.dropped = true
	}
	if !c.over {
		c.end(errReset)
	}
}

// resume sends on, or drops, what a silence held.
func (c *conn) resume(losing bool) {
	requests, replies := !c.link.requestsSilent(), !c.link.repliesSilent()
	if losing && (requests && len(c.requests.held) > 0 || replies && len(c.replies.held) > 0) {
		c.cut() // there is no stream with a hole in it
		return
	}
	if requests {
		held := c.requests.held
		c.requests.held = nil
		for _, m := range held {
			c.ship(&c.requests, m, c.requestTime(m))
		}
	}
	if replies {
		held := c.replies.held
		c.replies.held = nil
		for _, m := range held {
			c.ship(&c.replies, m, c.link.replyTime(c.replies.jitter))
		}
	}
}

// retire takes the connection off its link when neither end needs it any more.
func (c *conn) retire() {
	if c.dropped && (c.left || c.over) {
		c.link.conns = slices.DeleteFunc(c.link.conns, func(x *conn) bool { return x == c })
	}
}

// address is the name of a host of the simulation.
type address string

func (a address) Network() string { return "tcp" }
func (a address) String() string  { return string(a) }
