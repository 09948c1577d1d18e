package client

import (
	"net"
	"sync/atomic"
)

// meter counts the requests that clients send. The servers' own statistics cannot tell them from the commands inside a
// script.
type meter struct{ requests atomic.Int64 }

// Requests returns how many have left so far.
func (m *meter) sent() int64 { return m.requests.Load() }

// meteredConn counts the requests written to one connection. A request is an array of bulk strings; rueidis cuts them
// anywhere.
type meteredConn struct {
	net.Conn
	meter *meter

	skip   int  // bytes of a bulk string, and its CRLF, still to come
	number int  // of the header under way
	inHead bool // between '*' or '$' and LF
	array  bool // that header is of a request
}

func (c *meteredConn) Write(p []byte) (int, error) {
	n, err := c.Conn.Write(p)
	c.scan(p[:n])
	return n, err
}

func (c *meteredConn) scan(p []byte) {
	for i := 0; i < len(p); i++ {
		b := p[i]
		switch {
		case c.skip > 0:
			jump := min(c.skip, len(p)-i)
			c.skip -= jump
			i += jump - 1
		case !c.inHead:
			c.inHead, c.array, c.number = true, b == '*', 0
		case b == '\n':
			c.inHead = false
			if c.array {
				c.meter.requests.Add(1)
			} else {
				c.skip = c.number + len("\r\n")
			}
		case b != '\r':
			c.number = c.number*10 + int(b-'0')
		}
	}
}
