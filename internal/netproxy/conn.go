package netproxy

import (
	"context"
	"errors"
	"io"
	"net"
	"sync"
)

// conn is one connection of a client, with the one to the node that belongs to it.
type conn struct {
	requests, replies *lane

	ctx context.Context // ends the dial
	end context.CancelFunc

	mu           sync.Mutex
	client, node net.Conn // node is nil until it is dialed
	ended        bool
}

func newConn(client net.Conn, f faults) *conn {
	c := &conn{requests: newLane(f.requests), replies: newLane(f.replies), client: client}
	c.ctx, c.end = context.WithCancel(context.Background())
	return c
}

// run connects to the node and moves bytes until both directions have ended or the connection is ended from outside.
// When it returns, both sockets are closed.
func (c *conn) run(to target) {
	defer c.cut()
	var d net.Dialer
	node, err := d.DialContext(c.ctx, to.network, to.addr)
	if err != nil {
		// The client learns it the way it learns everything from the node: not while replies are silent.
		c.replies.push(chunk{end: err})
		c.replies.write(c.client)
		return
	}
	if !c.join(node) {
		return
	}
	var wg sync.WaitGroup
	wg.Go(func() { c.requests.read(c.client) })
	wg.Go(func() { c.replies.read(node) })
	for lane, to := range map[*lane]net.Conn{c.requests: node, c.replies: c.client} {
		wg.Go(func() {
			if lane.write(to) {
				c.reset()
			}
		})
	}
	wg.Wait()
}

// join takes the node's side in, or closes it if the connection has ended meanwhile.
func (c *conn) join(node net.Conn) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.ended {
		_ = node.Close()
		return false
	}
	c.node = node
	return true
}

func (c *conn) reset() { c.finish(resetConn) }
func (c *conn) cut()   { c.finish(cutConn) }

func (c *conn) set(f faults) {
	c.requests.set(f.requests)
	c.replies.set(f.replies)
}

// lose is set at the end of a silence that loses what it kept. A connection that lost something is cut.
func (c *conn) lose(f faults) {
	requests, replies := c.requests.lose(f.requests), c.replies.lose(f.replies)
	if requests || replies {
		c.cut()
	}
}

// finish ends the connection now, once, whatever waits in its lanes.
func (c *conn) finish(how func(net.Conn)) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.ended {
		return
	}
	c.ended = true
	c.end()
	c.requests.stop()
	c.replies.stop()
	how(c.client)
	if c.node != nil {
		how(c.node)
	}
}

// resetConn closes with a RST. On a unix socket there is none, but a peer that reads finds the end.
func resetConn(nc net.Conn) {
	if tcp, ok := nc.(*net.TCPConn); ok {
		_ = tcp.SetLinger(0)
	}
	_ = nc.Close() // its peer may have closed it before; either way it is gone
}

// cutConn says the end before it closes: a plain close with bytes still unread is a reset.
func cutConn(nc net.Conn) {
	closeWrite(nc)
	_ = nc.Close()
}

func closeWrite(nc net.Conn) {
	if half, ok := nc.(interface{ CloseWrite() error }); ok {
		_ = half.CloseWrite() // fails where the peer is gone, which says as much
	}
}

// passEnd hands the end of one side on to the other: an ordinary end as the end of this direction alone, anything else
// as a reset.
func passEnd(nc net.Conn, end error) {
	if errors.Is(end, io.EOF) {
		closeWrite(nc)
		return
	}
	resetConn(nc)
}
