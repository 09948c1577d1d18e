package netproxy

import (
	"errors"
	"fmt"
	"net"
	"sync"
	"time"

	"github.com/redlock-go/redlock/internal/ports"
)

// Link is one client's way to the node of its proxy, over any number of connections. It is safe for concurrent use.
type Link struct {
	proxy *Proxy
	port  *ports.Port

	mu       sync.Mutex
	target   target
	faults   faults
	listener net.Listener // nil while connections are refused
	conns    map[*conn]struct{}
	closed   bool
}

// Addr is the host:port that the client dials. It stays the same over Refuse and Accept.
func (l *Link) Addr() string { return l.port.Addr }

// Conns is the number of connections that are not closed on both sides yet.
func (l *Link) Conns() int {
	l.mu.Lock()
	defer l.mu.Unlock()
	return len(l.conns)
}

// SetTarget sends the connections that this client makes from now on to another server: two servers behind one address.
// Those there are stay.
func (l *Link) SetTarget(network, addr string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.target = target{network, addr}
}

// Silence keeps bytes, and the ends of connections, until Heal lets them out in their order: a network that drops
// packets for a while, whose TCP repeats them. After some MiB per connection the sender is kept waiting instead, as by
// a TCP whose peer is gone.
func (l *Link) Silence(d Direction) { l.change(d, silence) }

// Heal ends Silence. What was kept goes out on the connections it was sent on, at today's delay and rate.
func (l *Link) Heal(d Direction) { l.change(d, heal) }

// HealLosing ends Silence as a TCP does that gave up meanwhile: what was kept is lost, and each connection that lost
// something is cut.
func (l *Link) HealLosing(d Direction) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.faults.change(d, heal)
	for c := range l.conns {
		c.lose(l.faults)
	}
}

// Delay passes bytes fixed + jitter() after they came, but never before bytes that came earlier. jitter may be nil; it
// is called for each piece of data, one call at a time within a proxy, and must not call the proxy. A negative delay
// counts as none; Delay(d, 0, nil) ends it, but bytes that it has caught come when they are due.
func (l *Link) Delay(d Direction, fixed time.Duration, jitter func() time.Duration) {
	l.change(d, l.proxy.delay(fixed, jitter))
}

// Bandwidth lets at most so many bytes per second through on each connection, 0 for no limit.
func (l *Link) Bandwidth(d Direction, bytesPerSecond int) { l.change(d, bandwidth(bytesPerSecond)) }

// Slice lets data out in pieces of shortest to longest bytes, drawn anew for each, with a pause after each piece: what
// is read together was not sent together. Slice(d, 0, 0, 0) ends it.
func (l *Link) Slice(d Direction, shortest, longest int, pause time.Duration) {
	l.change(d, sliced(newSlice(shortest, longest, pause)))
}

// ResetAfter lets the next data in that direction be its connection's last: it is swallowed, and after that time the
// connection is reset, see Reset. Each connection that sends something has it so, until Clear.
func (l *Link) ResetAfter(d Direction, after time.Duration) { l.change(d, resetAfter(after)) }

// Clear ends Silence, Delay, Bandwidth, Slice and ResetAfter, but saves no connection that ResetAfter has caught.
func (l *Link) Clear() { l.change(Both, well) }

// Reset ends every connection with a reset on both sides, also through a Silence: the client's next read or write fails
// with ECONNRESET or EPIPE. New ones are accepted.
func (l *Link) Reset() { l.end((*conn).reset) }

// Cut ends every connection on both sides, also through a Silence, with an ordinary close: who reads finds the end (or
// a reset, if it was sending at that moment). New ones are accepted.
func (l *Link) Cut() { l.end((*conn).cut) }

// Refuse lets the kernel refuse new connections, until Accept. Connections that there are stay: follow it with Cut or
// Reset.
func (l *Link) Refuse() {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.listener != nil {
		_ = l.listener.Close() // only ever fails for one that is closed
		l.listener = nil
	}
}

// Accept ends Refuse: it listens again at the same address. It fails if another program has taken the port.
func (l *Link) Accept() error {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.closed {
		return ErrClosed
	}
	if l.listener != nil {
		return nil
	}
	return l.listen()
}

func (l *Link) change(d Direction, change func(*fault)) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.faults.change(d, change)
	for c := range l.conns {
		c.set(l.faults)
	}
}

func (l *Link) end(how func(*conn)) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for c := range l.conns {
		how(c)
	}
}

func (l *Link) close() {
	l.mu.Lock()
	l.closed = true // first, or Accept could listen again behind our back
	l.mu.Unlock()
	l.Refuse()
	l.Reset()
	l.port.Close()
}

// listen opens the listener and starts its goroutine. Nobody else has the link yet, or l.mu is held.
func (l *Link) listen() error {
	listener, err := net.Listen("tcp", l.port.Addr)
	if err != nil {
		return fmt.Errorf("netproxy: %w", err)
	}
	l.listener = listener
	l.proxy.wg.Go(func() { l.acceptFrom(listener) })
	return nil
}

func (l *Link) acceptFrom(listener net.Listener) {
	for {
		client, err := listener.Accept()
		if err != nil {
			if !errors.Is(err, net.ErrClosed) {
				time.Sleep(10 * time.Millisecond) // out of descriptors, say
				continue
			}
			return
		}
		l.adopt(client)
	}
}

// adopt makes the link's newest connection, unless the link was closed meanwhile.
func (l *Link) adopt(client net.Conn) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.closed {
		_ = client.Close()
		return
	}
	c := newConn(client, l.faults)
	l.conns[c] = struct{}{}
	to := l.target
	l.proxy.wg.Go(func() {
		c.run(to)
		l.mu.Lock()
		defer l.mu.Unlock()
		delete(l.conns, c)
	})
}
