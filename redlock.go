package redlock

import (
	"cmp"
	"context"
	crand "crypto/rand"
	"encoding/binary"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"math/rand/v2"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/redis/rueidis"
	"github.com/redis/rueidis/rueidislock"

	"github.com/redlock-go/redlock/internal/node"
)

// Locker takes locks for one program. It is safe for concurrent use. A nil one, which NewLocker returns beside an error,
// behaves as one that was closed. It owns one connection and one keeper
// goroutine per node, one extender for all guards, and the calls on their way; Close ends and waits for all.
type Locker struct {
	option     LockerOption
	rules      rules
	log        *slog.Logger
	wakePrefix string
	clock      *clock
	set        *node.Set
	nodes      []*node.Node
	extender   *extender

	life       context.Context // of connections and calls; ends last
	end        context.CancelFunc
	keepers    sync.WaitGroup
	background crew
	rosterTold atomic.Int64 // version that the Observer was told of

	randMu sync.Mutex
	rand   *rand.Rand

	mu      sync.Mutex
	closed  chan struct{} // closed by Close: no new work
	places  map[subject]*place
	alone   map[string]*Guard  // by name: locks about which nothing else goes on
	waiters map[string]*waiter // by wake key
	open    int                // how many guards nodes may still know of
	left    map[string]*Guard  // by owner: those of them that have left their places
	drained chan struct{}      // set by Close: closed when there are none
}

var _ rueidislock.Locker = (*Locker)(nil)

// NewLocker connects to the nodes and returns a Locker.
//
// A minority of nodes that is down or has a permanent fault neither fails nor delays it: they join by themselves when
// that is mended. Permanent faults are a Redis Cluster, a replica, a Sentinel, the same server twice, a wrong password,
// TLS that does not come about, an unknown Sentinel master, rights that an ACL does not give, clients that disagree. It waits for the first look at a
// quorum of nodes, at most NodeTimeout. If permanent faults seen by then leave no quorum the error is a *QuorumError
// with all of them, which matches ErrNoQuorum; other faults come from the calls and the log. Bad options match
// ErrInvalidOption; nothing was connected then. Beside an error the Locker is nil.
func NewLocker(option LockerOption) (*Locker, error) {
	option, err := option.resolve()
	if err != nil {
		return nil, err
	}
	l := newLocker(option)
	l.keepers.Go(l.extender.run)
	for _, n := range l.nodes {
		l.keepers.Go(n.Keep)
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
		option:     option,
		log:        option.Logger,
		wakePrefix: node.WakePrefix(option.KeyPrefix),
		clock:      newClock(),
		rand:       rand.New(rand.NewPCG(binary.LittleEndian.Uint64(seed[:8]), binary.LittleEndian.Uint64(seed[8:]))),
		closed:     make(chan struct{}),
		places:     make(map[subject]*place),
		alone:      make(map[string]*Guard),
		waiters:    make(map[string]*waiter),
		left:       make(map[string]*Guard),
	}
	l.rules = rules{lease: option.KeyValidity, interval: option.ExtendInterval, timeout: option.NodeTimeout,
		bound: option.ClockBound, drift: option.DriftFactor, line: lineTimesFor(option.KeyValidity)}
	if !option.NoLabel {
		l.rules.label = programLabel()
		l.rules.claimTail = claimTail(0, l.rules.label)
	}
	l.extender = newExtender(l)
	l.life, l.end = context.WithCancel(context.Background())
	for _, o := range option.Nodes {
		l.rules.nodes = append(l.rules.nodes, nodeAddr(o))
	}
	l.set = node.NewSet(node.Option{
		Nodes: option.Nodes, Addrs: l.rules.nodes, ClientBuilder: option.ClientBuilder,
		Quorum: quorumOf(len(option.Nodes)), KeyPrefix: option.KeyPrefix, WakePrefix: l.wakePrefix,
		KeyValidity: option.KeyValidity, NodeTimeout: option.NodeTimeout, MaxKeyValidity: option.MaxKeyValidity,
		Quarantine: option.quarantine(), Place: l.rules.line.place, DriftFactor: option.DriftFactor, ClockBound: option.ClockBound,
		Log: l.log, Listener: (*listener)(l), Clock: l.clock, Life: l.life, Closed: ErrLockerClosed,
		Go: l.background.Go, Jitter: l.jitter,
	})
	l.nodes = l.set.Nodes()
	return l
}

// awaitFirstChecks waits until a quorum of nodes has been looked at and can vote, or every node has been looked at, or
// NodeTimeout has passed. It returns an error if permanent faults leave no quorum: nothing that may come to pass by
// itself would help then. A minority with such faults is like one that is down: NewLocker must not fail for it, or one
// bad password would keep a whole fleet from being restarted.
func (l *Locker) awaitFirstChecks() error {
	start := l.clock.Now()
	timer := time.NewTimer(l.clock.Wait(l.option.NodeTimeout))
	defer timer.Stop()
	lingering := false
	for {
		fit, unchecked, faults := l.set.TallyFirsts()
		settled := l.set.Settled()
		if unchecked == 0 && settled {
			return l.unableToStart(faults)
		}
		if (l.unableToStart(faults) != nil || fit >= l.set.Electorate().Quorum && settled) && !lingering {
			// The others are likely to be a moment behind; a fault of theirs is better said now than later.
			lingering = true
			timer.Reset(min(l.option.NodeTimeout, max(5*time.Millisecond, l.clock.Now()-start)))
		}
		select {
		case <-l.set.FirstCheck():
		case <-timer.C:
			if left := start + l.option.NodeTimeout - l.clock.Now(); left > 0 && !l.set.Settled() {
				timer.Reset(left) // the last node was found a moment ago: what they write now would be in the way of the first locks
				continue
			}
			_, _, faults := l.set.TallyFirsts()
			return l.unableToStart(faults)
		}
	}
}

// unableToStart returns the error of a Locker that so many faults leave no quorum, nil if they leave one.
func (l *Locker) unableToStart(faults []node.Fault) error {
	by := l.set.Electorate()
	e := &QuorumError{Quorum: by.Quorum, Nodes: by.Size, kind: ErrNoQuorum, verb: "are left without a permanent fault"}
	faulty := make([]bool, len(l.nodes))
	for _, f := range faults {
		faulty[f.Node] = by.Names[f.Node] != "" || !node.IsStranger(f.Err) // else a member that forgot its name, as far as is known
		e.Errs = append(e.Errs, l.nodeError(f))
	}
	left := make(map[string]bool) // members: one may be listed twice
	for i, member := range by.Members {
		if member && !faulty[i] {
			left[cmp.Or(by.Names[i], l.nodes[i].Addr())] = true
		}
	}
	e.Votes = len(left)
	if e.Votes >= e.Quorum {
		return nil
	}
	for _, name := range by.Missing {
		e.Errs = append(e.Errs, &NodeError{name, errUnlisted})
	}
	return e
}

// Init ends the quarantine of a brand-new set of nodes, which otherwise waits one lease before the first grant. It
// acts only if every node answers, none holds a lock of this prefix, and none is past its first quarantine: then
// nobody can have been granted anything. Fence floors stay. Init on a set that is not quarantined does nothing.
//
// Call it once, where a set of nodes is made, and not whenever a program starts. A set all of whose nodes were wiped
// (FLUSHALL everywhere) looks like a brand-new one, and Init would skip the quarantine while locks of before may still be
// held.
//
// It waits for nodes that are just starting, five seconds at most or one NodeTimeout if that is longer, and returns an
// error that names the nodes in the way; the nodes whose quarantine it ended stay so.
func (l *Locker) Init(ctx context.Context) error {
	if l == nil {
		return errNoLocker
	}
	faults, err := l.set.Init(ctx)
	errs := make([]error, len(faults))
	for i, f := range faults {
		errs[i] = fmt.Errorf("redlock: Init: %w", l.nodeError(f))
	}
	return cmp.Or(errors.Join(errs...), err)
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
	if l == nil {
		return nil
	}
	for _, n := range l.nodes {
		if client := n.Client(); client != nil {
			return client
		}
	}
	return nil
}

// Close releases every lock that is held, ends all waits with ErrLockerClosed, and returns when every goroutine
// and connection of the Locker is gone. Guards end with cause ErrLockerClosed. A node that does not answer within
// NodeTimeout keeps its keys for at most one lease. Close may be called more than once.
func (l *Locker) Close() {
	if l == nil {
		return
	}
	l.mu.Lock()
	first := l.drained == nil
	if first {
		close(l.closed)
		l.drained = make(chan struct{})
		if l.open == 0 {
			close(l.drained)
		}
	}
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
	timer := time.NewTimer(l.clock.Wait(l.option.NodeTimeout))
	defer timer.Stop()
	l.mu.Lock()
	drained := l.drained
	l.mu.Unlock()
	select {
	case <-drained:
	case <-timer.C:
	}
	l.end()
	for _, g := range l.openGuards() {
		g.abandon()
	}
	l.set.HangUp()
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
