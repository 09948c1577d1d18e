package redlock

import (
	"context"
	"time"

	"github.com/redlock-go/redlock/internal/node"
)

// Observer is told what becomes of calls, locks and questions to nodes, for metrics and traces; how a Locker and its nodes
// stand at the moment is what [Locker.Status] says. See docs/observability.md and package redlock/otel.
//
// Observe is called by many goroutines at the same time, by those of calls before they return, and should take no time to
// speak of. What happens at nearly one time may be told in another order. Close waits for it. Without an Observer nothing
// is measured.
type Observer interface {
	// Observe is told of an event. ctx has the values of the call's that the event belongs to, so that its trace is known;
	// that of an answer has none.
	Observe(ctx context.Context, e Event)
}

// EventKind is what has happened.
type EventKind uint8

// What an Observer is told of.
const (
	// EventGranted: a call got its lock, after Took. It may have waited, been refused and asked again meanwhile.
	EventGranted EventKind = iota + 1
	// EventRefused: a call did not get its lock, after Took. Err is what it returned.
	EventRefused
	// EventEnded: a lock that was held is held no more, after Took. Err is its guard's cause: ErrReleased, ErrLost, …
	EventEnded
	// EventAnswered: a node has answered a step of a lock, after Took, or has not; Err is then a *NodeError. That
	// somebody holds the lock is an answer and no error.
	EventAnswered
	// EventWaiting: a call did not get its lock at once, and waits for it. Once for each call, before what it comes to.
	EventWaiting
	// EventSplit: an attempt has failed after Took, and yet nobody has the lock, because several have split the nodes'
	// votes. Most calls make another attempt; whoever began first gets it then.
	EventSplit
	// EventExtended: a quorum has renewed a held lock. Took is its lag: how much later than due. A round trip is usual;
	// more says that nodes are slow or fail, or that this program did not run. At all of the validity the lock is lost.
	EventExtended
	// EventAtRisk: a held lock has come to be at risk, as Guard.AtRisk says it. Err matches ErrAtRisk and says why.
	EventAtRisk
	// EventRiskOver: a lock is at risk no more, after Took. Err is nil where it is well, its guard's cause where it has ended.
	EventRiskOver
	// EventReleased: a held lock was given back, which took Took. Err is what Release returned: nil where a quorum has
	// confirmed it.
	EventReleased
	// EventRoster: the record of who makes up the set of nodes was read, or is another one. Roster is its version; who they are
	// says [Locker.Status].
	EventRoster
)

var eventKinds = [...]string{
	EventGranted: "granted", EventRefused: "refused", EventEnded: "ended", EventAnswered: "answered", EventWaiting: "waiting",
	EventSplit: "split", EventExtended: "extended", EventAtRisk: "at risk", EventRiskOver: "risk over", EventReleased: "released",
	EventRoster: "roster",
}

func (k EventKind) String() string {
	if int(k) < len(eventKinds) && k != 0 {
		return eventKinds[k]
	}
	return "unknown"
}

// Event is what an Observer is told. Fields that say nothing about an event are empty.
type Event struct {
	Kind  EventKind
	Name  string        // the lock's; whatever people may make names of, so beware of it as a metric's label
	Token uint64        // the fencing token of a lock that is, or was, held
	Node  string        // as errors and the Logger name it
	Step  string        // that was answered: "acquire", "extend" or "release"
	Took  time.Duration // by a clock that counts the time this machine was suspended
	Err   error

	Roster int // version of the record of the set's members
}

// observed is what a guard keeps for an Observer.
type observed struct {
	began  time.Duration // when the attempt did
	sent   time.Duration // since when a quorum had been renewed, as of the last renewal
	due    time.Duration // and when it is to be renewed next
	told   time.Duration // sent, when an extension was told last
	riskAt time.Duration // since when it is at risk; 0: it is not
}

// observeCall tells what a call that began then has come to.
func (l *Locker) observeCall(ctx context.Context, name string, began time.Duration, g *Guard, err error) {
	e := Event{Kind: EventGranted, Name: name, Took: l.clock.Now() - began}
	if err != nil {
		e.Kind, e.Err = EventRefused, err
	} else {
		e.Token = g.FencingToken()
	}
	l.option.Observer.Observe(ctx, e)
}

// observeWaiting tells that a call waits for its lock.
func (l *Locker) observeWaiting(ctx context.Context, name string, w *waiter) {
	l.option.Observer.Observe(ctx, Event{Kind: EventWaiting, Name: name, Took: l.clock.Now() - w.began})
}

// observeRelease tells what a release has come to.
func (g *Guard) observeRelease(ctx context.Context, err error) {
	e := Event{Kind: EventReleased, Name: g.life.name, Token: g.life.token, Took: g.l.clock.Now() - g.life.freedAt, Err: err}
	g.l.option.Observer.Observe(ctx, e)
}

// observe tells what an event has made of a lock, from goroutines of their own: its guard's mutex is held.
func (g *Guard) observe(o *orders, now time.Duration) {
	f, own := &g.life, g.observed
	switch {
	case o.ended && f.heldAt != 0:
		g.tellObserver(Event{Kind: EventEnded, Took: now - f.heldAt, Err: f.cause})
	case o.ended && f.split && f.rivals() > 0:
		g.tellObserver(Event{Kind: EventSplit, Took: now - own.began, Err: f.cause})
	case f.phase == held && !f.fixed:
		sent := f.standsUntil() - f.claimUntil(0)
		if sent <= own.sent {
			break
		}
		// Where the votes of a round are renewed at different times, several move it on: that is one extension.
		if own.sent == 0 {
			own.told = sent
		} else if sent-own.told >= f.pace/2 {
			g.tellObserver(Event{Kind: EventExtended, Took: max(0, now-own.due)})
			own.told = sent
		}
		own.sent, own.due = sent, sent+f.pace
	}
	switch atRisk := f.phase == held && f.watch.why != nil; {
	case atRisk && own.riskAt == 0:
		own.riskAt = now
		g.tellObserver(Event{Kind: EventAtRisk, Err: f.watch.why})
	case !atRisk && own.riskAt != 0:
		g.tellObserver(Event{Kind: EventRiskOver, Took: now - own.riskAt, Err: f.cause})
		own.riskAt = 0
	}
}

// tellObserver tells of a guard's lock.
func (g *Guard) tellObserver(e Event) {
	e.Name, e.Token = g.life.name, g.life.token
	g.l.background.Go(func() { g.l.option.Observer.Observe(context.WithoutCancel(g.base), e) })
}

// observeRoster tells that the set's members are those of another record.
func (l *Locker) observeRoster(by *electorate) {
	if l.option.Observer == nil || by.Record == nil || l.rosterTold.Swap(int64(by.Record.Version)) == int64(by.Record.Version) {
		return
	}
	e := Event{Kind: EventRoster, Roster: by.Record.Version}
	l.background.Go(func() { l.option.Observer.Observe(context.Background(), e) })
}

// observeAnswer tells what a step has come to on a node. What failed before it was sent is no answer.
func (g *Guard) observeAnswer(i int, a *answer, s script) {
	if a.SentAt == 0 || a.Unsent && a.Server == "" {
		return
	}
	e := Event{Kind: EventAnswered, Name: g.life.name, Node: g.l.nodes[i].Addr(), Step: "acquire", Took: a.At - a.SentAt}
	switch s {
	case scriptExtend:
		e.Step = "extend"
	case scriptRelease:
		e.Step = "release"
	}
	if a.Err != nil {
		e.Err = g.l.nodeError(node.Fault{Node: i, Err: a.Err})
	}
	g.l.background.Go(func() { g.l.option.Observer.Observe(context.Background(), e) })
}
