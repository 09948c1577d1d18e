package redlock_test

import (
	"context"
	"crypto/tls"
	"fmt"
	"io"
	"log/slog"
	"maps"
	"math/rand/v2"
	"net"
	"sync"
	"time"

	"github.com/redis/rueidis"

	"github.com/redlock-go/redlock"
	"github.com/redlock-go/redlock/redlocktest"
)

// simHost is a client host that can be stopped as by SIGSTOP: while it is, its clock stands still, nothing that
// arrives is read, nothing is sent, and the program does not act. What then runs first, the program or the bytes that
// wait in its sockets, is drawn.
type simHost struct {
	sim     *sim
	name    string
	index   int
	links   []*redlocktest.Link // by the place in its list
	servers []int               // of which node each is: one may be listed twice
	nodes   []rueidis.ClientOption
	option  redlock.LockerOption

	mu      sync.Mutex
	stopped chan struct{} // closed when it goes on; nil while it runs
	frozen  time.Time
	behind  time.Duration // its clock, after its machine stood still
	dead    bool          // for good: its sockets are gone
	lockers []*simLocker
}

// simLocker is a Locker of a host, which may be closed and replaced.
type simLocker struct {
	host   *simHost
	number int

	mu     sync.Mutex
	locker *redlock.Locker
	closed map[*redlock.Locker]bool
	whole  map[*redlock.Locker]bool // it lists all nodes
	lists  *rand.Rand               // of what the next one lists

	unserved bool // the last call met no quorum
}

func (h *simHost) now() time.Time {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.stopped != nil {
		return h.frozen
	}
	return time.Now().Add(-h.behind)
}

// apart lengthens a timer so that no other fires at its instant.
func (s *sim) apart(d time.Duration) time.Duration {
	s.takenMu.Lock()
	defer s.takenMu.Unlock()
	now := time.Since(s.start)
	if len(s.taken) > s.takenLimit {
		maps.DeleteFunc(s.taken, func(at time.Duration, _ bool) bool { return at < now })
		s.takenLimit = max(10000, 2*len(s.taken))
	}
	at := now + max(1, d)
	for s.taken[at] {
		at++
	}
	s.taken[at] = true
	return at - now
}

func (h *simHost) isStopped() bool {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.stopped != nil
}

func (h *simHost) stop() {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.stopped == nil {
		h.stopped, h.frozen = make(chan struct{}), time.Now().Add(-h.behind)
	}
}

func (h *simHost) resume() {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.goOn()
}

// resumeBehind is resume where the clock stood still, too, and knows nothing of it.
func (h *simHost) resumeBehind() {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.stopped != nil {
		h.behind = time.Since(h.frozen)
		h.goOn()
	}
}

func (h *simHost) goOn() {
	if h.stopped != nil {
		close(h.stopped)
		h.stopped = nil
	}
}

// die ends the host: a stopped one never goes on. What its Lockers do in their goroutines from now on reaches nobody.
func (h *simHost) die() {
	h.mu.Lock()
	h.dead = true
	h.mu.Unlock()
	for _, l := range h.links {
		l.Silence()
		l.Cut()
	}
}

// gate waits while the host is stopped. wake is how long it takes to run again, so that not everybody does at once.
func (h *simHost) gate(wake func() time.Duration) (alive bool) { return h.gateUnless(nil, wake) }

// gateUnless is gate for one who gives up when closed is.
func (h *simHost) gateUnless(closed chan struct{}, wake func() time.Duration) (alive bool) {
	for {
		h.mu.Lock()
		stopped, dead := h.stopped, h.dead
		h.mu.Unlock()
		if dead {
			return false
		}
		if stopped == nil {
			return true
		}
		select {
		case <-stopped:
		case <-closed:
			return false
		}
		select {
		case <-time.After(wake()):
		case <-closed:
			return false
		}
	}
}

// simConn is a socket of a host.
type simConn struct {
	net.Conn
	host    *simHost
	node    int
	in, out *rand.Rand
	once    sync.Once
	closed  chan struct{}
}

func (c *simConn) Read(b []byte) (int, error) {
	n, err := c.Conn.Read(b)
	if !c.host.gateUnless(c.closed, func() time.Duration { return upTo(c.in, time.Millisecond) }) {
		return 0, net.ErrClosed
	}
	c.host.sim.wire(c.host, c.node, "<", b[:n])
	return n, err
}

func (c *simConn) Write(b []byte) (int, error) {
	if !c.host.gateUnless(c.closed, func() time.Duration { return upTo(c.out, time.Millisecond) }) {
		return 0, net.ErrClosed
	}
	c.host.sim.wire(c.host, c.node, ">", b)
	return c.Conn.Write(b)
}

// Close unblocks Read and Write, as of every connection.
func (c *simConn) Close() error {
	c.once.Do(func() { close(c.closed) })
	return c.Conn.Close()
}

func (s *sim) newHost(name string, index int) *simHost {
	client := s.cluster.Client(name)
	h := &simHost{sim: s, name: name, index: index, links: client.Links()}
	o := client.Option()
	for i := range o.Nodes {
		h.servers = append(h.servers, i)
	}
	if last := len(h.links) - 1; s.profile.twice && index%2 == 1 {
		h.links[last], h.servers[last] = s.cluster.Client(name+"'").Link(0), 0
		o.Nodes[last].InitAddress = []string{"again:6379"}
		h.links[0].Delay(4*s.latency, 4*s.latency) // who is listed last is found first
	}
	for i, link := range h.links {
		dials := uint64(0)
		o.Nodes[i].DialCtxFn = func(ctx context.Context, _ string, _ *net.Dialer, _ *tls.Config) (net.Conn, error) {
			h.mu.Lock()
			dials++
			number := dials
			h.mu.Unlock()
			draw := s.source(7, uint64(index), uint64(i), number)
			if !h.gate(func() time.Duration { return 1 + time.Duration(draw.Int64N(int64(time.Millisecond))) }) {
				return nil, io.EOF
			}
			ctx, cancel := context.WithTimeout(ctx, 2*time.Second)
			defer cancel()
			conn, err := link.Dial(ctx)
			if err != nil {
				return nil, err
			}
			return &simConn{Conn: conn, host: h, node: i, in: draw, out: s.source(8, uint64(index), uint64(i), number), closed: make(chan struct{})}, nil
		}
	}
	o.KeyPrefix = simPrefix
	o.KeyValidity = s.leases[index%len(s.leases)]
	if !s.profile.rollout {
		o.MaxKeyValidity = s.longest
	}
	o.ClockBound = s.bound
	o.RestartQuarantine = 0
	if s.profile.quarantineOff {
		o.RestartQuarantine = -1
	}
	o.Logger = slog.New(simLog{s, h.name})
	h.nodes = o.Nodes
	h.option = o
	return h
}

func (h *simHost) newLocker(number int) *simLocker {
	l := &simLocker{host: h, number: number, closed: map[*redlock.Locker]bool{}, whole: map[*redlock.Locker]bool{}}
	l.lists = h.sim.source(9, uint64(h.index), uint64(number))
	h.lockers = append(h.lockers, l)
	return l
}

// get returns the Locker, making one where there is none.
func (l *simLocker) get() (*redlock.Locker, error) {
	if locker := l.opened(); locker != nil {
		return locker, nil
	}
	option, whole := l.host.option, true
	if s := l.host.sim; s.profile.members {
		list := s.listOf(l.lists)
		option.Nodes, whole = l.host.listing(list), len(list) == s.cluster.Len()
		s.note(l.host.name, "", "lists", fmt.Sprint(list))
	}
	made, err := redlock.NewLockerOn(option, l.host.now, l.host.sim.apart)
	if err != nil {
		return nil, err
	}
	l.mu.Lock()
	l.whole[made] = whole
	locker := l.locker
	if locker == nil {
		l.locker = made
	}
	l.mu.Unlock()
	if locker != nil { // somebody else was faster
		made.Close()
		return locker, nil
	}
	return made, nil
}

// opened returns the Locker, nil where there is none.
func (l *simLocker) opened() *redlock.Locker {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.locker
}

// close closes the Locker; the next get makes another.
func (l *simLocker) close() {
	l.mu.Lock()
	locker := l.locker
	l.locker = nil
	if locker != nil {
		l.closed[locker] = true
	}
	l.mu.Unlock()
	if locker != nil {
		locker.Close()
	}
}

func (l *simLocker) noteUnserved() {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.unserved = true
}

// takeUnserved reports whether a call has met no quorum since it was asked last.
func (l *simLocker) takeUnserved() (was bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	was, l.unserved = l.unserved, false
	return was
}

// listsAll reports whether a Locker lists all nodes.
func (l *simLocker) listsAll(locker *redlock.Locker) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.whole[locker]
}

func (l *simLocker) wasClosed(locker *redlock.Locker) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.closed[locker]
}

// simLog puts what the library logs into the trace.
type simLog struct {
	sim  *sim
	host string
}

func (l simLog) Enabled(context.Context, slog.Level) bool { return l.sim.tracing }
func (l simLog) WithAttrs([]slog.Attr) slog.Handler       { return l }
func (l simLog) WithGroup(string) slog.Handler            { return l }

func (l simLog) Handle(_ context.Context, r slog.Record) error {
	text := r.Message
	r.Attrs(func(a slog.Attr) bool {
		text += " " + a.String()
		return true
	})
	l.sim.note(l.host, "", "log", text)
	return nil
}
