package redlock

import (
	"context"
	"sync"
	"sync/atomic"
	"time"
)

// Guard is a held lock. It is safe for concurrent use.
//
// It lives until it is released, until its quorum of votes is lost, or until the Locker is closed; it is extended
// in the background meanwhile. Once dead it stays dead.
type Guard struct {
	l        *Locker
	name     string
	key      string
	fenceKey string
	queueKey string
	owner    string // random, one per attempt: a late release of one attempt must not delete another's vote
	claim    string // the value that a node stores: owner, and a waiter's ticket
	takeover takeover
	waiter   *waiter // whose attempt this is; nil for one that does not wait
	woken    bool    // the waiter was told that the lock is free
	ctx      guardContext
	cancel   context.CancelCauseFunc

	ended    atomic.Bool  // phase over was reached
	deadline atomic.Int64 // the ballot's validUntil while held, 0 once ended: what Err compares with the clock

	mu        sync.Mutex
	phase     phase
	ballot    ballot
	claims    []claim
	proposal  uint64        // fencing token that nodes are asked to grant
	token     uint64        // fencing token, from phase raising on
	round     time.Duration // when the nodes' time is over to answer: an attempt's round, or the release
	pace      time.Duration // to the next renewal
	cause     error         // why it ended
	decided   chan struct{} // closed when the attempt has come to something
	freed     chan struct{} // closed when a quorum has confirmed that the key is gone, no node can have it, or time is up
	displaced map[string]*displacement
	confirmed time.Duration // of a taker that waited: renewals sent from then on count

	// The extender's, under its mutex.
	wakeAt time.Duration
	heapAt int // index in the heap, -1 when not in it
}

// phase is where a guard is in its life.
type phase uint8

const (
	asking     phase = iota // the nodes are asked for their vote
	raising                 // a quorum said yes, and is to store the fencing token
	clearing                // a taker waits for the holders it displaced
	confirming              // and asks its nodes once more after that
	held                    // the lock is ours
	over                    // it is not, or not any more; nodes may still have to be told
)

// Name returns the lock's name.
func (g *Guard) Name() string { return g.name }

// Context returns a context that carries the values of the context the lock was acquired with and is done when the
// guard ends; context.Cause then says why. Its Err looks at the clock, so it is never nil once the lock has run
// out, even where no timer could fire because the process was stopped. Done cannot promise that: look at Err, or
// have the resource check the fencing token, before what must not happen twice.
func (g *Guard) Context() context.Context { return &g.ctx }

// Done is closed when the guard ends.
func (g *Guard) Done() <-chan struct{} { return g.ctx.Done() }

// Err returns nil while the lock is held, then the cause of its end: ErrReleased, ErrLockerClosed, or an error that
// matches ErrLost and says which votes went and why. It compares the clock at every call.
func (g *Guard) Err() error {
	if d := g.deadline.Load(); d != 0 && g.l.clock.now() < time.Duration(d) {
		return nil
	}
	g.mu.Lock()
	defer g.mu.Unlock()
	g.checkAlive(g.l.clock.now())
	return g.cause
}

// FencingToken returns the lock's fencing token: larger than that of every earlier holder of this name. A resource
// that rejects smaller tokens than it has seen is safe even from a holder that does not know yet that it lost.
func (g *Guard) FencingToken() uint64 { return g.token }

// ValidUntil returns when the lock ends if nothing renews it from now on. It moves on with every extension.
func (g *Guard) ValidUntil() time.Time {
	g.mu.Lock()
	defer g.mu.Unlock()
	return g.l.clock.date(g.ballot.validUntil())
}

// Release gives the lock back. It returns nil once a quorum of nodes has confirmed that the key is gone; the cause,
// matching ErrLost, if the lock had been lost before; ErrNoQuorum if no quorum confirmed within NodeTimeout, and
// then the key stays for at most one lease on the nodes that did not, which are asked again when they answer. A
// repeat returns nil. A ctx that has ended does not keep the key: the release is sent and waited for regardless.
func (g *Guard) Release(context.Context) error {
	switch cause := g.end(ErrReleased); cause {
	case nil:
		return g.awaitFreed()
	case ErrReleased, ErrLockerClosed:
		return nil
	default:
		return cause
	}
}

// end ends the guard for a reason, unless it has ended already, and has all nodes asked to release. It returns nil,
// or the reason it had ended for before.
func (g *Guard) end(cause error) error {
	g.mu.Lock()
	defer g.mu.Unlock()
	now := g.l.clock.now()
	g.checkAlive(now)
	if g.phase == over {
		return g.cause
	}
	g.finish(now, cause)
	return nil
}

// awaitFreed waits until a quorum has confirmed that the key is gone, at most NodeTimeout.
func (g *Guard) awaitFreed() error {
	<-g.freed
	g.mu.Lock()
	defer g.mu.Unlock()
	return g.unconfirmed()
}

// abandon ends the wait for a release that nobody goes on with.
func (g *Guard) abandon() {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.free()
}

// guardContext is a guard's context. It embeds one of WithCancelCause, so that context.Cause finds the cause and
// derived contexts attach to it without goroutines; with a done channel of its own they could do neither.
type guardContext struct {
	context.Context
	guard  *Guard
	parent context.Context // in the rueidislock form; nil in the guard form
}

// Err looks at the clock, and where the time is up ends the inner context first, so that derived contexts follow.
// It asks the parent too, whose own Err may look at a clock: nested guards see every clock.
func (c *guardContext) Err() error {
	if c.guard.Err() == nil && c.parent != nil && c.parent.Err() != nil {
		c.guard.end(context.Cause(c.parent))
	}
	return c.Context.Err()
}

type guardKey struct{}

func (c *guardContext) Value(key any) any {
	if key == (guardKey{}) {
		return c.guard
	}
	return c.Context.Value(key)
}

// FencingToken returns the fencing token of the guard that ctx comes from, the innermost if there are several.
func FencingToken(ctx context.Context) (token uint64, ok bool) {
	g, ok := ctx.Value(guardKey{}).(*Guard)
	if !ok {
		return 0, false
	}
	return g.token, true
}
