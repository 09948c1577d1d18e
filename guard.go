package redlock

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/redlock-go/redlock/internal/node"
)

// Guard is a held lock. It is safe for concurrent use.
//
// It lives until it is released, until its quorum of votes is lost, or until the Locker is closed; it is extended
// in the background meanwhile. Once dead it stays dead.
//
// Inside it is the one door to its life (life.go): whatever happens comes in through on, which takes the mutex, tells the
// life, and carries out what it orders.
type Guard struct {
	// What every event reads comes first, and stands together: of a lock that is held nobody has looked at it since its last renewal.
	l        *Locker
	deadline atomic.Int64 // until when a held lock is alive, 0 once it has ended: what Err compares with the clock
	// mu comes first: who has the mutex of a waiter, of the Locker, of the extender, or one of internal/node but ownClock
	// (node.Set) may not wait for it.
	mu       sync.Mutex
	waiter   *waiter       // whose attempt this is; nil for one that does not wait, and of a lock that is held when it stands in no line any more
	alarm    *alarm        // nil: nobody watches
	observed *observed     // nil: there is no Observer
	wakeAt   time.Duration // the extender's: set under its mutex and mu
	inLater  int32         // the extender's, under its mutex: its index in the stretch it is due in, or unscheduled

	ended atomic.Bool // the life is over

	life     life
	lock     node.Lock
	base     context.Context              // whose values the guard's context carries
	ctx      atomic.Pointer[guardContext] // nil: nobody has asked for it; set under mu
	decided  chan struct{}                // closed when the attempt has come to something; nil after that
	freed    chan struct{}                // closed when it is free; nil while nobody waits for that
	isFree   bool                         // a quorum has confirmed that the key is gone, no node can have it, or time is up; under mu
	open     bool                         // nodes may still know of it: the Locker's, under its mutex
	trying   bool                         // the first attempt of a try that is under way and has no place: the Locker's, under its mutex
	parented bool                         // of Do and the rueidislock form: what base ends with ends the guard
	outlived bool                         // or its context alone
	awaited  bool                         // a tick comes at wakeAt, or before; under mu
}

// Name returns the lock's name; of several names all of them, in order, with ", " between them.
func (g *Guard) Name() string { return g.life.name }

// Context returns a context that carries the values of the context the lock was acquired with and is done when the
// guard ends; context.Cause then says why. Its Err looks at the clock, so it is never nil once the lock has run
// out, even where no timer could fire because the process was stopped. Done cannot promise that: look at Err, or
// have the resource check the fencing token, before what must not happen twice.
func (g *Guard) Context() context.Context {
	if c := g.ctx.Load(); c != nil {
		return c
	}
	g.mu.Lock()
	defer g.mu.Unlock()
	c := g.ctx.Load()
	if c == nil {
		c = newContext(g, g.base)
		if g.life.phase == over { // before anybody else can have it
			c.cancel(g.life.cause)
		}
		g.ctx.Store(c)
	}
	return c
}

// Done is closed when the guard ends.
func (g *Guard) Done() <-chan struct{} { return g.Context().Done() }

// Err returns nil while the lock is held, then the cause of its end: ErrReleased, ErrLockerClosed, an error that
// matches ErrLost and says which votes went and why, or one that matches ErrHeldTooLong. It compares the clock at every call.
func (g *Guard) Err() error {
	if d := g.deadline.Load(); d != 0 && g.l.clock.Now() < time.Duration(d) {
		return nil
	}
	_, cause := g.on(event{kind: clockRead})
	return cause
}

// FencingToken returns the lock's fencing token: larger than that of every earlier holder of this name. A resource
// that rejects smaller tokens than it has seen is safe even from a holder that does not know yet that it lost. Of several names it is
// one number, which is that of each name.
func (g *Guard) FencingToken() uint64 { return g.life.token }

// ValidUntil returns when the lock ends if nothing renews it from now on. It moves on with every extension.
func (g *Guard) ValidUntil() time.Time {
	g.mu.Lock()
	defer g.mu.Unlock()
	return g.l.clock.date(g.life.validUntil())
}

// String describes the guard for people: name, fencing token, owner, and until when it is valid or why it ended. It takes
// none of the guard's locks, and asks and ends nothing.
func (g *Guard) String() string {
	if g == nil {
		return "no lock"
	}
	until, cause := g.standing()
	text := fmt.Sprintf("lock %q, ", g.life.name)
	if g.life.slot > 0 {
		text += fmt.Sprintf("slot %d, ", g.life.slot)
	}
	text += fmt.Sprintf("fencing token %d, owner %s, ", g.life.token, named(g.life.owner, g.life.label))
	if until.IsZero() {
		return text + "ended: " + cause
	}
	return text + "valid until " + until.Format("2006-01-02T15:04:05.000Z07:00")
}

// LogValue is what slog shows of the guard: the same as String, in fields.
func (g *Guard) LogValue() slog.Value {
	if g == nil {
		return slog.StringValue(g.String())
	}
	until, cause := g.standing()
	state := slog.Time("valid_until", until)
	if until.IsZero() {
		state = slog.String("ended", cause)
	}
	attrs := []slog.Attr{slog.String("name", g.life.name), slog.Uint64("fencing_token", g.life.token), slog.String("owner", g.life.owner), state}
	if g.life.label != "" {
		attrs = slices.Insert(attrs, 3, slog.String("label", g.life.label))
	}
	if g.life.slot > 0 {
		attrs = slices.Insert(attrs, 1, slog.Int("slot", int(g.life.slot)))
	}
	return slog.GroupValue(attrs...)
}

// standing returns until when the guard is valid; or the zero time, and why it has ended, as far as is known.
func (g *Guard) standing() (until time.Time, cause string) {
	deadline := time.Duration(g.deadline.Load())
	switch {
	case deadline > g.l.clock.Now():
		return g.l.clock.date(deadline).Truncate(time.Millisecond), ""
	case deadline != 0:
		return time.Time{}, "its validity is over"
	}
	if g.ended.Load() { // and nothing writes to the cause any more
		err := g.life.cause
		if c := g.ctx.Load(); c != nil {
			err = cmp.Or(context.Cause(c.Context), err)
		}
		return time.Time{}, err.Error()
	}
	return time.Time{}, "not held yet"
}

// Release gives the lock back. It returns nil once a quorum of nodes has confirmed that the key is gone; the cause,
// matching ErrLost, if the lock had been lost before, also where nobody knew: if the nodes say that so many of the votes
// that counted were not ours any more that there was no quorum; the cause, matching ErrHeldTooLong, if it had ended by
// AtMost; ErrNoQuorum if no quorum confirmed within NodeTimeout, and
// then the key stays for at most one lease on the nodes that did not, which are asked again when they answer. A
// repeat returns nil. A ctx that has ended does not keep the key: the release is sent and waited for regardless.
func (g *Guard) Release(ctx context.Context) error {
	g.l.set.Callers.Add(1)
	defer g.l.set.Callers.Add(-1)
	switch cause := g.end(ErrReleased); cause {
	case nil:
		err := g.awaitFreed()
		if g.observed != nil {
			g.observeRelease(ctx, err)
		}
		return err
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
	g.handle(event{kind: clockRead})
	if g.life.phase == over {
		return g.life.cause
	}
	g.handle(event{kind: ended, cause: cause})
	return nil
}

// awaitFreed waits until a quorum has confirmed that the key is gone, at most NodeTimeout. What it finds out about a loss is
// its caller's to know: the guard has ended as released by then.
func (g *Guard) awaitFreed() error {
	g.mu.Lock()
	defer g.mu.Unlock()
	if !g.isFree {
		if g.freed == nil {
			g.freed = make(chan struct{})
		}
		freed := g.freed
		g.mu.Unlock()
		<-freed
		g.mu.Lock()
	}
	return g.life.unconfirmed()
}

// abandon ends the wait for a release that nobody goes on with.
func (g *Guard) abandon() {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.free()
}

// free ends the wait for a release, and lets the next attempt of this Locker ask.
func (g *Guard) free() {
	if g.isFree {
		return
	}
	g.isFree = true
	if g.freed != nil {
		close(g.freed)
	}
	g.l.leave(g)
}

// on tells the life what has happened and carries out what it orders. It returns the phase the life is in after that,
// and why it is over if it is.
func (g *Guard) on(e event) (phase, error) {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.handle(e)
	return g.life.phase, g.life.cause
}

// handle is on for who has the mutex. That steps could not be sent is the next event, and no re-entry.
func (g *Guard) handle(e event) {
	now := g.l.clock.Now()
	g.life.out = noOrders.Get().(*orders)
	for {
		failed := g.carryOut(g.tell(e, now), e.kind == ticked, e.node, now)
		if len(failed) == 0 {
			break
		}
		e = event{kind: unsent, failed: failed}
	}
	noOrders.Put(g.life.out)
	g.life.out = nil
	if g.waiter != nil && g.life.outOfLine() { // it would stay in memory as long as the lock is held, and be read at each event
		g.waiter, g.lock.Waiter, g.life.waits = nil, nil, false
	}
}

// noOrders keeps what orders are written to, which no guard needs between two events.
var noOrders = sync.Pool{New: func() any { return new(orders) }}

// carryOut does what the life orders after an event, of this node if it is one of a node. What ends goes before what begins:
// by the time that a release is sent, the context is done. Steps may leave together where the extender is at work. It
// returns what could not be sent.
func (g *Guard) carryOut(o *orders, together bool, node int, now time.Duration) (failed []failedSend) {
	g.deadline.Store(int64(o.valid)) // first: whoever is woken by Done and looks at Err must not read "held"
	if o.ended {
		g.ended.Store(true)
		g.cancel(g.life.cause)
	}
	if g.observed != nil {
		g.observe(o, now)
	}
	if o.risked && g.alarm != nil {
		g.alarm.ring(g.life.phase == over || g.life.watch.why != nil)
	}
	if o.placed {
		g.l.placed(g.waiter)
	}
	if o.decided {
		close(g.decided)
	}
	if o.leave {
		g.l.leave(g)
	}
	for _, s := range o.send {
		if err := g.send(s, together); err != nil {
			failed = append(failed, failedSend{s.node, err})
		}
	}
	if o.forget { // before it leaves its place: it need not be kept for what it is still to say
		g.l.forget(g)
	}
	if o.freed {
		g.free()
	}
	if at := o.wakeAt; at != 0 && !o.forget {
		if together && g.life.phase == held { // the renewal after this one: else the first answer would put its end forward to that
			at = min(at, now+g.life.pace)
		}
		g.l.extender.schedule(g, at)
	}
	for _, off := range o.mistrusted {
		g.l.nodes[off.node].Mistrust(now, off.gap)
	}
	if o.lost || len(o.displaced) > 0 || o.struck || o.woke != "" {
		g.tellOthers(*o, node)
	}
	return failed
}

// tellOthers tells who else has to know: by goroutines, since here the guard's mutex is held, and a Logger may be slow.
func (g *Guard) tellOthers(o orders, node int) {
	if cause := g.life.cause; o.lost {
		g.l.background.Go(func() { g.tellLost(cause) })
	}
	for _, owner := range o.displaced {
		g.l.background.Go(func() { g.l.endLocally(g, owner, node) })
	}
	if o.struck { // our own write pushes nobody here
		g.l.background.Go(func() { g.l.tellTakers(g, node) })
	}
	if o.woke != "" { // nor whom it woke, who may be one of us
		g.l.background.Go(func() {
			for id := range strings.SplitSeq(o.woke, ",") { // readers, and of several names those who wait, may be several
				g.l.wake(id, node)
			}
		})
	}
}

// send hands a node a step. What is due at one time leaves in one batch: the extender sees to that.
func (g *Guard) send(s sending, together bool) error {
	n, d := g.l.nodes[s.node], node.Delivery{To: (*receiver)(g), Lock: &g.lock, Step: s.step}
	if together {
		return n.Enqueue(d)
	}
	return n.Send(d)
}

// answered takes what a step has come to. Nodes call it, each on its own goroutine.
func (g *Guard) answered(i int, a *answer) {
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.observed != nil {
		g.observeAnswer(i, a, g.life.ballot[i].step.Script)
	}
	if a.Err == nil && g.life.ballot[i].step.Script != scriptRelease { // that the key is gone is true whoever says it
		if a.Err = g.l.nodes[i].Disowns(a.Server); a.Err != nil {
			a.HasClock = false
		}
	}
	a.Leftover = a.Err == nil && a.Code == codeHeld && g.isLeftover(a)
	g.noteRequest(i, a)
	g.handle(event{kind: answered, node: i, answer: a})
}

// isLeftover reports whether a node refused us for nothing but what is left of attempts of this Locker.
func (g *Guard) isLeftover(a *answer) bool {
	if a.Obstacles == nil {
		return g.l.isLeftover(g.subject(), ownerOf(a.Text))
	}
	for _, o := range a.Obstacles {
		if o.Waiting || !g.l.isLeftover(subject{name: o.Name}, ownerOf(o.Text)) {
			return false
		}
	}
	return true
}

// pushed takes an invalidation of our key on node i.
func (g *Guard) pushed(i int) {
	g.on(event{kind: pushed, node: i, within: g.l.nodes[i].LookWithin()})
}

// lookAgain looks at node i without doubting the vote: its keeper has looked, and it may be back.
func (g *Guard) lookAgain(i int) { g.on(event{kind: looked, node: i}) }

// flushed looks at node i, which was flushed or disconnected.
func (g *Guard) flushed(i int) { g.on(event{kind: flushed, node: i}) }

// distrust takes the vote of node i.
func (g *Guard) distrust(i int, why error) { g.on(event{kind: distrusted, node: i, cause: why}) }

// distrustAll takes the votes of all nodes.
func (g *Guard) distrustAll(why error) { g.on(event{kind: clockOff, cause: why}) }

// tick does what is due.
func (g *Guard) tick() {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.awaited = false
	g.handle(event{kind: ticked, pace: g.l.pace(g.life.rules)})
}

// takenOver ends a guard that a takeover displaced, and reports whether it has ended. A taker that has not won yet goes
// on: takers do not end each other.
func (g *Guard) takenOver() (ended bool) {
	phase, _ := g.on(event{kind: takenOver})
	return phase == over
}

// freeOn takes a node's word that the lock is free there into an attempt, and reports whether there was one.
func (g *Guard) freeOn(i int) bool {
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.life.phase == over {
		return false
	}
	g.handle(event{kind: free, node: i})
	return true
}

// leaveLines takes the waiter of an attempt that is over, or of a held lock, out of the lines it still stands in.
func (g *Guard) leaveLines() { g.on(event{kind: left}) }

// endLocally ends a guard of this same Locker that was displaced on node i: it is not pushed what its own connection wrote.
func (l *Locker) endLocally(taker *Guard, owner string, i int) {
	for _, g := range l.guardsOf(taker.subject()) {
		switch {
		case g == taker || g.life.owner != owner:
		case g.takenOver():
			taker.on(event{kind: acknowledged, owner: owner})
		default:
			g.pushed(i) // it may still win elsewhere: it is told like anybody
		}
	}
}

// tellTakers has the takers of this same Locker look at node i, where the release of g came after they did: a write of our
// own pushes nobody here, and untracks what it writes.
func (l *Locker) tellTakers(g *Guard, i int) {
	for of := range g.subjects {
		for _, other := range l.guardsOf(of) {
			if other != g && other.life.takeover != noTakeover {
				other.pushed(i)
			}
		}
	}
}

// guardContext is a guard's context. It embeds one of WithCancelCause, so that context.Cause finds the cause and
// derived contexts attach to it without goroutines; with a done channel of its own they could do neither.
type guardContext struct {
	context.Context
	guard  *Guard
	cancel context.CancelCauseFunc
}

// newContext returns a guard's context. It weighs 128 bytes, so a guard that nobody asks for it has none; only one with a parent, whose
// end it is to see, has it from the start.
func newContext(g *Guard, base context.Context) *guardContext {
	c := &guardContext{guard: g}
	c.Context, c.cancel = context.WithCancelCause(base)
	return c
}

// cancel ends the guard's context, if it has one.
func (g *Guard) cancel(cause error) {
	if c := g.ctx.Load(); c != nil {
		c.cancel(cause)
	}
}

// Err looks at the clock, and where the time is up ends the inner context first, so that derived contexts follow.
// It asks the parent too, whose own Err may look at a clock: nested guards see every clock.
func (c *guardContext) Err() error {
	if g := c.guard; g.Err() == nil && g.parented && g.base.Err() != nil {
		if cause := context.Cause(g.base); g.outlived {
			c.guard.cancel(cause)
		} else {
			c.guard.end(cause)
		}
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
	return g.life.token, true
}

// tellLost logs that a held lock was lost, or held too long.
func (g *Guard) tellLost(cause error) {
	what := "redlock: lock lost"
	if errors.Is(cause, ErrHeldTooLong) {
		what = "redlock: lock held too long"
	}
	attrs := []any{"lock", g.life.name, "token", g.life.token, "error", cause.Error()}
	if g.life.slot > 0 {
		attrs = append(attrs, "slot", g.life.slot)
	}
	g.l.log.Warn(what, attrs...)
}
