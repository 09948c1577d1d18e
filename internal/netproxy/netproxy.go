// Package netproxy breaks the network between clients and one node, in process. A [Proxy] stands in front of the node,
// a [Link] is one client's way to it, and each of the two directions of a link fails on its own:
//
//	proxy := netproxy.New("unix", node.Addr())
//	defer proxy.Close()
//	link, err := proxy.Listen() // the client dials link.Addr()
//	...
//	link.Silence(netproxy.Replies) // requests arrive, no answer comes back
//	link.Heal(netproxy.Replies)    // the late answers come, on the same connection
//	proxy.Silence(netproxy.Both)   // nobody reaches the node any more
//
// Faults of different kinds add up, and of each kind the last call counts: a way that is slow stays so through a
// silence. What a fault does to bytes is decided when they would leave the proxy: those that come in after Silence has
// returned do not pass, nor do those that wait inside. The order of bytes in a direction never changes, and none is
// missing in their midst: what is lost takes the connection with it, as TCP has it.
//
// A proxy accepts connections before it knows whether the node does. So a node that refuses shows as a connection that
// is reset at once, now and then within the dial, and a client's dial succeeds through a silence; [Link.Refuse] is the
// fault that a dial itself is sure to see.
package netproxy

import (
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/redlock-go/redlock/internal/ports"
)

// ErrClosed is returned for what a closed proxy cannot do.
var ErrClosed = errors.New("netproxy: closed")

// Direction is one way through a link, or both.
type Direction int

const (
	Requests Direction = 1 << iota // from the client to the node
	Replies                        // from the node to the client, pushes too
	Both     = Requests | Replies
)

// Proxy is every client's way to one node. Its faults are those of all its links, also of links and connections made
// later; where a link was told otherwise, the last call wins. It is safe for concurrent use, and its goroutines end
// with Close.
type Proxy struct {
	wg sync.WaitGroup // every goroutine of the proxy

	jitterMu sync.Mutex // serialises the calls of jitter functions

	mu     sync.Mutex
	target target
	faults faults // what a new link starts with
	links  []*Link
	closed bool
}

type target struct{ network, addr string }

// New makes a proxy in front of the node at that address, "unix" or "tcp". It connects to it once for each connection
// that a client makes.
func New(network, addr string) *Proxy {
	return &Proxy{target: target{network, addr}}
}

// Listen makes a link: a free TCP port of 127.0.0.1 for one client, so that its faults are its own. TCP also where the
// node is on a unix socket, as only TCP knows a reset.
func (p *Proxy) Listen() (*Link, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.closed {
		return nil, ErrClosed
	}
	port, err := ports.Reserve()
	if err != nil {
		return nil, fmt.Errorf("netproxy: %w", err)
	}
	l := &Link{proxy: p, port: port, target: p.target, faults: p.faults, conns: map[*conn]struct{}{}}
	err = l.listen()
	if err != nil {
		port.Close()
		return nil, err
	}
	p.links = append(p.links, l)
	return l, nil
}

// SetTarget sends the connections made from now on, on all links, to another server: the one that was promoted under
// the node's address. Those there are stay.
func (p *Proxy) SetTarget(network, addr string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.target = target{network, addr}
	for _, l := range p.links {
		l.SetTarget(network, addr)
	}
}

// Silence silences all links; see [Link.Silence].
func (p *Proxy) Silence(d Direction) { p.change(d, silence) }

// Heal ends the silence of all links; see [Link.Heal].
func (p *Proxy) Heal(d Direction) { p.change(d, heal) }

// HealLosing ends the silence of all links, and what was kept is lost; see [Link.HealLosing].
func (p *Proxy) HealLosing(d Direction) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.faults.change(d, heal)
	for _, l := range p.links {
		l.HealLosing(d)
	}
}

// Delay slows all links down; see [Link.Delay].
func (p *Proxy) Delay(d Direction, fixed time.Duration, jitter func() time.Duration) {
	p.change(d, p.delay(fixed, jitter))
}

// Bandwidth narrows all links; see [Link.Bandwidth].
func (p *Proxy) Bandwidth(d Direction, bytesPerSecond int) { p.change(d, bandwidth(bytesPerSecond)) }

// Slice lets data out in pieces on all links; see [Link.Slice].
func (p *Proxy) Slice(d Direction, shortest, longest int, pause time.Duration) {
	p.change(d, sliced(newSlice(shortest, longest, pause)))
}

// ResetAfter resets what sends something, on all links; see [Link.ResetAfter].
func (p *Proxy) ResetAfter(d Direction, after time.Duration) { p.change(d, resetAfter(after)) }

// Clear ends what the calls above began, on all links; see [Link.Clear].
func (p *Proxy) Clear() { p.change(Both, well) }

// Reset resets every connection of every link; see [Link.Reset].
func (p *Proxy) Reset() { p.each((*Link).Reset) }

// Cut closes every connection of every link; see [Link.Cut].
func (p *Proxy) Cut() { p.each((*Link).Cut) }

// Refuse refuses connections on all links there are; see [Link.Refuse].
func (p *Proxy) Refuse() { p.each((*Link).Refuse) }

// Accept ends Refuse on all links; see [Link.Accept]. The error joins those of the links.
func (p *Proxy) Accept() error {
	var errs []error
	p.each(func(l *Link) { errs = append(errs, l.Accept()) })
	return errors.Join(errs...)
}

// Close resets every connection, refuses new ones and returns when no goroutine of the proxy is left. It may be called
// twice.
func (p *Proxy) Close() {
	p.mu.Lock()
	p.closed = true
	p.mu.Unlock()
	p.each((*Link).close)
	p.wg.Wait()
}

func (p *Proxy) change(d Direction, change func(*fault)) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.faults.change(d, change)
	for _, l := range p.links {
		l.change(d, change)
	}
}

func (p *Proxy) each(f func(*Link)) {
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, l := range p.links {
		f(l)
	}
}

func (p *Proxy) delay(fixed time.Duration, jitter func() time.Duration) func(*fault) {
	drawn := func() time.Duration { return fixed }
	if jitter != nil {
		drawn = func() time.Duration {
			p.jitterMu.Lock()
			defer p.jitterMu.Unlock()
			return fixed + jitter()
		}
	}
	return func(f *fault) { f.delay = drawn }
}
