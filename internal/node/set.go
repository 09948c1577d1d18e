// Package node is everything about one server and about all of them together: the queue and the window of each, its
// connection and keeper, scripts and their replies, its clock, its marker, and whether it may vote. It knows no lock and
// no guard: it is told to send steps, answers each to its Receiver, and tells one Listener what else has happened.
package node

import (
	"context"
	crand "crypto/rand"
	"errors"
	"log/slog"
	"net"
	"strconv"
	"sync"
	"sync/atomic"
	"time"

	"github.com/redis/rueidis"

	"github.com/redlock-go/redlock/internal/roster"
)

// Option is what a set of nodes is made of. The rules for the values are the Locker's.
type Option struct {
	Nodes         []rueidis.ClientOption
	Addrs         []string // how errors and logs name them
	ClientBuilder func(rueidis.ClientOption) (rueidis.Client, error)

	Quorum         int
	KeyPrefix      string
	WakePrefix     string // begins the keys that wake a waiter
	KeyValidity    time.Duration
	NodeTimeout    time.Duration
	MaxKeyValidity time.Duration
	Quarantine     time.Duration // how long a node that lost its memory grants nothing; 0 is off
	Place          time.Duration // how long a waiter that does not ask keeps its place
	DriftFactor    float64
	ClockBound     time.Duration

	Log      *slog.Logger
	Listener Listener
	Clock    Clock
	Life     context.Context                   // of connections and calls; ends last
	Closed   error                             // what calls come to after that
	Go       func(func()) bool                 // runs a function on a goroutine, unless all are being waited for, which it reports
	Jitter   func(time.Duration) time.Duration // a random duration below the one given
}

// Clock is the program's own clock: it never goes back, and counts the time the machine was suspended.
type Clock interface {
	Now() time.Duration
	Wait(time.Duration) time.Duration // how long to set a timer for what is due in so long
}

// Listener is told what nodes say or come to that is no answer. No mutex of this package is held then, but for the one
// by which OwnClockOff comes to one at a time. Pushed and Forgotten come from the reader of a connection, and may not wait.
type Listener interface {
	Pushed(node int, key string)    // a tracked key has changed, or gone
	Forgotten(node int)             // the node was flushed, or the connection went: nothing there is tracked any more
	Checked(node int)               // the keeper has looked at the node, which is up and may be back
	Distrusted(node int, why error) // no vote of the node counts: its clock ran off, or its server is another node's
	OwnClockOff(why error)          // it is this machine's clock that was off: no vote from before counts
	Hopeful()                       // a quorum may have become possible
	Rostered()                      // votes count by another Electorate now; it comes before any answer that counts by it
}

// Set is all nodes of one Locker, and what they must have in common.
type Set struct {
	option      Option
	quarantine  time.Duration
	markerKey   string
	newSet      string // id for a set of nodes that has none yet
	wakePrefix  string
	fencePrefix string
	lockPrefix  string
	queuePrefix string
	slotPrefix  string
	rwPrefix    string
	boundMicros string
	wakeMillis  string
	hangAfter   time.Duration // a node that answers nothing for so long is hung up
	nodes       []*Node

	// Who holds several mutexes has taken them in this order: ownClock, a guard's, mu, a node's. A Receiver and a Listener
	// take a guard's, so neither is called by who holds mu or a node's.
	ownClock sync.Mutex // held while it is decided whether our own clock is off, by one at a time

	mu         sync.Mutex
	seen       []seen
	servers    map[string]server // by run_id
	firsts     []error           // what each node's first check came to
	firstCheck chan struct{}     // 1-buffered: firsts has grown
	view       view              // who makes up the set
	finishing  bool              // a change that somebody has begun is being finished

	electorate atomic.Pointer[roster.Electorate] // by the view; written under mu

	// Callers is how many of the program wait for answers: while that is one, nobody else is about to ask.
	Callers atomic.Int32
}

// NewSet returns a set whose nodes nobody has looked at yet: their keepers do.
func NewSet(o Option) *Set {
	ns := &Set{
		option:      o,
		quarantine:  o.Quarantine,
		markerKey:   MarkerKey(o.KeyPrefix),
		newSet:      crand.Text(),
		wakePrefix:  o.WakePrefix,
		fencePrefix: fencePrefix(o.KeyPrefix),
		lockPrefix:  o.KeyPrefix + ":{",
		queuePrefix: o.KeyPrefix + ":queue:{",
		slotPrefix:  o.KeyPrefix + ":slot:{",
		rwPrefix:    o.KeyPrefix + ":rw:{",
		boundMicros: strconv.FormatInt(o.ClockBound.Microseconds(), 10),
		wakeMillis:  strconv.FormatInt(o.Place.Milliseconds(), 10),
		hangAfter:   max(o.NodeTimeout, time.Second),
		seen:        make([]seen, len(o.Nodes)),
		servers:     make(map[string]server),
		firsts:      make([]error, len(o.Nodes)),
		firstCheck:  make(chan struct{}, 1),
	}
	ns.view.names = make([]string, len(o.Nodes))
	all := roster.Elect(nil, ns.view.names)
	ns.electorate.Store(&all)
	for i, option := range o.Nodes {
		ns.firsts[i] = errUnchecked
		n := &Node{
			set: ns, index: i, addr: o.Addrs[i], option: option,
			recheck: make(chan struct{}, 1),
			scripts: &loaded{},
			known:   &identity{},
			down:    ErrNodeDown,
			conns:   make(map[string]net.Conn),
		}
		n.server.Store(new(string))
		ns.nodes = append(ns.nodes, n)
	}
	return ns
}

// Nodes returns the nodes, in the order of their options.
func (ns *Set) Nodes() []*Node { return ns.nodes }

// HangUp ends all connections at once. It is for a set whose life has ended: a handshake with a hung server takes no
// context.
func (ns *Set) HangUp() {
	for _, n := range ns.nodes {
		n.hangUpFor(ns.option.Closed)
		n.dismiss()
	}
}

// Fault is what is wrong with one node.
type Fault struct {
	Node int
	Err  error
}

// FirstCheck is signalled when the first check of another node has come to something.
func (ns *Set) FirstCheck() <-chan struct{} { return ns.firstCheck }

// errUnchecked is what a node's first check came to before there was one.
var errUnchecked = errors.New("not looked at yet")

// TallyFirsts counts what the nodes' first checks came to, and returns the permanent faults.
func (ns *Set) TallyFirsts() (fit, unchecked int, faults []Fault) {
	ns.mu.Lock()
	defer ns.mu.Unlock()
	for i, err := range ns.firsts {
		switch {
		case err == nil:
			fit++
		case err == errUnchecked, errors.Is(err, ErrQuarantined), errors.Is(err, errTracking): // looked at again at once
			unchecked++
		case Permanent(err):
			faults = append(faults, Fault{i, err})
		}
	}
	return fit, unchecked, faults
}

// Settled reports whether the set's members are known, or will not be soon: a set is founded when all nodes have been reached.
func (ns *Set) Settled() bool {
	ns.mu.Lock()
	defer ns.mu.Unlock()
	for i, s := range ns.seen {
		out := !s.read || s.fault != nil || !s.adopted || !ns.nodes[i].isUp() || Permanent(ns.firsts[i])
		switch {
		case out && ns.view.record == nil:
			return true
		case !out && !s.marker.inForce().Is(ns.view.record):
			return false
		}
	}
	return ns.view.record != nil
}

// checked notes what a keeper's check came to, and tells everybody who is waiting for that node, if there is news: one
// that refuses what it refused before has none.
func (ns *Set) checked(n *Node, err error, news bool) {
	if err == nil {
		err = n.unfitNow()
	}
	ns.mu.Lock()
	was := ns.firsts[n.index]
	ns.firsts[n.index] = err
	ns.mu.Unlock()
	n.tell(err)
	select {
	case ns.firstCheck <- struct{}{}:
	default:
	}
	if n.isUp() && news {
		ns.option.Listener.Checked(n.index)
	}
	if err == nil && was != nil {
		ns.option.Listener.Hopeful() // a quorum may have become possible
	}
}

func (n *Node) isUp() bool {
	n.mu.Lock()
	defer n.mu.Unlock()
	return n.down == nil
}
