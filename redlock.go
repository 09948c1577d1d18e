package redlock

import (
	"context"
	crand "crypto/rand"
	"encoding/binary"
	"errors"
	"log/slog"
	"maps"
	"math/rand/v2"
	"net"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/redis/rueidis"
	"github.com/redis/rueidis/rueidislock"
)

// Locker takes locks for one program. It is safe for concurrent use. It owns one connection and one keeper
// goroutine per node, one extender for all guards, and the calls on their way; Close ends and waits for all.
type Locker struct {
	option      LockerOption
	log         *slog.Logger
	quarantine  time.Duration // how long a node that lost its memory grants nothing; 0 is off
	markerKey   string
	newSet      string // id for a set of nodes that has none yet
	wakePrefix  string
	leaseMillis string
	boundMicros string
	hangAfter   time.Duration // a node that answers nothing for so long is hung up
	clock       *clock
	nodes       []*node
	extender    *extender

	life       context.Context // of connections and calls; ends last
	end        context.CancelFunc
	keepers    sync.WaitGroup
	background crew

	randMu sync.Mutex
	rand   *rand.Rand

	mu         sync.Mutex
	closed     chan struct{} // closed by Close: no new work
	places     map[string]*place
	waiters    map[string]*waiter // by wake key
	open       map[string]*Guard  // by owner: guards that nodes may still know of
	drained    chan struct{}      // set by Close: closed when open is empty
	seen       []seen
	firsts     []error       // what each node's first check came to
	firstCheck chan struct{} // 1-buffered: firsts has grown
	knownFrom  time.Duration // since when every node has shown the longest lease of all; 0: not all do
}

var _ rueidislock.Locker = (*Locker)(nil)

// NewLocker connects to the nodes and returns a Locker.
//
// A minority of nodes that is down neither fails nor delays it: they join by themselves. It waits for the first
// look at a quorum of nodes, at most NodeTimeout, and returns the permanent faults seen by then as a *NodeError:
// a Redis Cluster, a replica, the same server twice, a wrong password, clients that disagree. Later ones come
// from the calls and the log. Bad options match ErrInvalidOption; nothing was connected then.
func NewLocker(option LockerOption) (*Locker, error) {
	option, err := option.resolve()
	if err != nil {
		return nil, err
	}
	l := newLocker(option)
	l.keepers.Go(l.extender.run)
	for _, n := range l.nodes {
		l.keepers.Go(n.keep)
	}
	if err := l.awaitFirstChecks(); err != nil {
		l.Close()
		return nil, err
	}
	return l, nil
}

func newLocker(option LockerOption) *Locker {
	var seed [16]byte
	crand.Read(seed[:]) // cannot fail
	l := &Locker{
		option:      option,
		log:         option.Logger,
		quarantine:  max(0, option.RestartQuarantine),
		markerKey:   option.KeyPrefix + ":marker",
		newSet:      crand.Text(),
		wakePrefix:  option.KeyPrefix + ":wake:",
		leaseMillis: strconv.FormatInt(option.KeyValidity.Milliseconds(), 10),
		boundMicros: strconv.FormatInt(option.ClockBound.Microseconds(), 10),
		hangAfter:   max(option.NodeTimeout, time.Second),
		clock:       newClock(),
		rand:        rand.New(rand.NewPCG(binary.LittleEndian.Uint64(seed[:8]), binary.LittleEndian.Uint64(seed[8:]))),
		closed:      make(chan struct{}),
		places:      make(map[string]*place),
		waiters:     make(map[string]*waiter),
		open:        make(map[string]*Guard),
		seen:        make([]seen, len(option.Nodes)),
		firsts:      make([]error, len(option.Nodes)),
		firstCheck:  make(chan struct{}, 1),
	}
	if option.RestartQuarantine == 0 {
		l.quarantine = option.MaxKeyValidity
	}
	l.extender = newExtender(l)
	l.life, l.end = context.WithCancel(context.Background())
	for i, o := range option.Nodes {
		l.firsts[i] = errUnchecked
		l.nodes = append(l.nodes, &node{
			l: l, index: i, addr: nodeAddr(o), option: o,
			recheck: make(chan struct{}, 1),
			down:    ErrNodeDown,
			conns:   make(map[string]net.Conn),
		})
	}
	return l
}

// errUnchecked is what a node's first check came to before there was one.
var errUnchecked = errors.New("not looked at yet")

// awaitFirstChecks waits until a quorum of nodes has been looked at and can vote, or every node has been looked
// at, or NodeTimeout has passed.
func (l *Locker) awaitFirstChecks() error {
	start := l.clock.now()
	timer := time.NewTimer(l.clock.wait(l.option.NodeTimeout))
	defer timer.Stop()
	lingering := false
	for {
		fit, unchecked, fault := l.tallyFirsts()
		if fault != nil || unchecked == 0 {
			return fault
		}
		if fit >= quorumOf(len(l.nodes)) && !lingering {
			// The others are likely to be a moment behind; a fault of theirs is better said now than later.
			lingering = true
			timer.Reset(min(l.option.NodeTimeout, max(5*time.Millisecond, l.clock.now()-start)))
		}
		select {
		case <-l.firstCheck:
		case <-timer.C:
			_, _, fault := l.tallyFirsts()
			return fault
		}
	}
}

func (l *Locker) tallyFirsts() (fit, unchecked int, fault error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for i, err := range l.firsts {
		switch {
		case err == nil:
			fit++
		case err == errUnchecked, errors.Is(err, ErrQuarantined), errors.Is(err, errTracking): // looked at again at once
			unchecked++
		case permanent(err) && fault == nil:
			fault = &NodeError{l.nodes[i].addr, err}
		}
	}
	return fit, unchecked, fault
}

// checked notes what a keeper's check came to, and tells everybody who is waiting for that node.
func (l *Locker) checked(n *node, err error) {
	if err == nil {
		err = n.unfitNow()
	}
	l.mu.Lock()
	was := l.firsts[n.index]
	l.firsts[n.index] = err
	l.mu.Unlock()
	if err != nil && (was == nil || was.Error() != err.Error()) {
		level := slog.LevelWarn
		if errors.Is(err, ErrQuarantined) {
			level = slog.LevelInfo
		}
		l.log.Log(l.life, level, "redlock: node cannot vote", "node", n.addr, "error", err)
	}
	select {
	case l.firstCheck <- struct{}{}:
	default:
	}
	if n.isUp() {
		l.lookEverywhere(n)
	}
	if err == nil && was != nil {
		l.tellWaiters() // a quorum may have become possible
	}
}

func (n *node) isUp() bool {
	n.mu.Lock()
	defer n.mu.Unlock()
	return n.down == nil
}

// jitter returns a random duration below d, 0 for d of 0.
func (l *Locker) jitter(d time.Duration) time.Duration {
	if d <= 0 {
		return 0
	}
	l.randMu.Lock()
	defer l.randMu.Unlock()
	return time.Duration(l.rand.Int64N(int64(d)))
}

// Client returns the rueidis client of the first listed node reached so far, nil if none was. It is the Locker's
// own connection: do not close it, and do not block it.
func (l *Locker) Client() rueidis.Client {
	for _, n := range l.nodes {
		n.mu.Lock()
		client, up := n.client, n.down == nil
		n.mu.Unlock()
		if client != nil && up {
			return client
		}
	}
	return nil
}

// Close releases every lock that is held, ends all waits with ErrLockerClosed, and returns when every goroutine
// and connection of the Locker is gone. Guards end with cause ErrLockerClosed. A node that does not answer within
// NodeTimeout keeps its keys for at most one lease. Close may be called more than once.
func (l *Locker) Close() {
	l.mu.Lock()
	first := l.drained == nil
	if first {
		close(l.closed)
		l.drained = make(chan struct{})
		if len(l.open) == 0 {
			close(l.drained)
		}
	}
	drained := l.drained
	guards := l.openGuardsLocked()
	waiters := slices.SortedFunc(maps.Values(l.waiters), func(a, b *waiter) int { return strings.Compare(a.id, b.id) })
	l.mu.Unlock()

	for _, w := range waiters {
		w.stop() // so that what ends its attempt takes it out of line as well
	}
	for _, g := range guards {
		g.end(ErrLockerClosed)
	}
	for _, w := range waiters {
		w.leave()
	}
	timer := time.NewTimer(l.clock.wait(l.option.NodeTimeout))
	defer timer.Stop()
	select {
	case <-drained:
	case <-timer.C:
	}
	l.end()
	for _, g := range l.openGuards() {
		g.abandon()
	}
	for _, n := range l.nodes {
		n.hangUpFor(ErrLockerClosed) // a handshake with a hung server takes no context
	}
	l.keepers.Wait()
	l.background.stop()
}

// isClosed reports whether Close has begun.
func (l *Locker) isClosed() bool {
	select {
	case <-l.closed:
		return true
	default:
		return false
	}
}

// crew is a group of goroutines that takes nobody on once it has been stopped: calls may be started by whoever
// holds a guard, up to the moment in which Close waits for them.
type crew struct {
	mu      sync.Mutex
	stopped bool
	wg      sync.WaitGroup
}

// Go runs f unless the crew was stopped, which it reports.
func (c *crew) Go(f func()) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.stopped {
		return false
	}
	c.wg.Go(f)
	return true
}

// stop takes nobody on any more and waits for those at work.
func (c *crew) stop() {
	c.mu.Lock()
	c.stopped = true
	c.mu.Unlock()
	c.wg.Wait()
}
