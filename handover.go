package redlock

import (
	"context"
	crand "crypto/rand"
	"fmt"
	"time"
)

// Export ends the guard, with the cause [ErrExported], and returns what [Locker.Resume] makes a guard of in another
// process, or in this one. The nodes keep the lock meanwhile for as long as the lease lasts, a KeyValidity from its last
// renewal, so that nobody else gets it; this guard asks nothing of them any more, and releases nothing.
//
// The text is printable. Whoever has it can resume the lock, once; if nobody does the lock is free when its lease is over.
//
// The error is the guard's cause if it has ended; it matches ErrInvalidOption, and the guard goes on, where the lock has
// AtLeast or LockDelay, or is a semaphore's slot, of a reader-writer lock or of several names, which cannot be handed over. It matches ErrNoQuorum where at this moment fewer votes than a quorum can be
// handed over, because steps are on their way that may still change the others: then the guard goes on, and Export may
// be tried again after NodeTimeout.
func (g *Guard) Export() ([]byte, error) {
	median := time.Duration(g.l.proposal(g.l.clock.Now())) * time.Microsecond
	g.mu.Lock()
	defer g.mu.Unlock()
	g.handle(event{kind: clockRead})
	if g.life.phase == over {
		return nil, g.life.cause
	}
	if g.life.slots != 0 || g.life.slot != 0 {
		return nil, invalid("the slot of a semaphore, or one side of a reader-writer lock, cannot be exported")
	}
	if g.life.several {
		return nil, invalid("a lock of several names cannot be exported")
	}
	if g.life.atLeast != 0 || g.life.delay != 0 {
		return nil, invalid("a lock with AtLeast(%v), LockDelay(%v) cannot be exported: it counts from a grant that whoever resumes has not seen", g.life.atLeast, g.life.delay)
	}
	now := g.l.clock.Now()
	nodes := g.life.exportable(now)
	if len(nodes) < g.life.quorum() {
		e := g.life.report(now, ErrNoQuorum)
		e.Votes, e.verb = len(nodes), "can hand their vote over"
		return nil, e
	}
	x := exportedLock{
		prefix: g.l.option.KeyPrefix, set: g.l.set.ID(), nodes: g.life.size(),
		name: g.life.name, claim: g.lock.Claim, token: g.life.token,
	}
	if at := g.life.limit; at != 0 {
		x.until = median + at - now
	}
	if g.life.lease != g.l.rules.lease {
		x.lease = g.life.lease
	}
	for _, i := range nodes {
		v := &g.life.ballot[i]
		t, _ := g.l.nodes[i].Time(now)
		x.votes = append(x.votes, exportedVote{v.server.runID(), max(0, t-now+v.renewedAt+g.life.lease)})
	}
	g.handle(event{kind: handedOver})
	return x.encode(), nil
}

// Resume makes a guard of an exported lock: of the same name and fencing token, as if it had never changed hands. It returns
// when a quorum of nodes has put this guard in the exporter's place, each where it has kept the lock for the exporter
// since; so nobody else has held it in between, and the lease counts from now. Another try of the same export finds the
// exporter gone. The first 16 characters of the id stay the same, the others are new.
//
// It takes at most NodeTimeout, in which nodes that are just coming up are asked again. The error matches
//   - ErrExportInvalid: it is no exported lock, or not all of it; ErrExportForeign: it is of other nodes or another
//     KeyPrefix. Nothing was asked;
//   - ErrExportUsed: it was resumed before. Whoever has done that goes on undisturbed;
//   - ErrExportExpired: its lease ran out before, or it was taken over;
//   - ErrHeldTooLong: its AtMost was over before;
//   - ErrNoQuorum: too few nodes have answered. ctx.Err() and context.Cause(ctx): ctx ended first. What was asked is taken
//     back, and the lock can be resumed as long as its lease lasts;
//   - ErrLockerClosed.
//
// AtMost and FixedLease count from the first grant on, Lease and Label stay.
func (l *Locker) Resume(ctx context.Context, exported []byte) (guard *Guard, err error) {
	x, err := decodeExport(exported)
	if err != nil {
		return nil, err
	}
	if err := l.ready(ctx, x.name); err != nil {
		return nil, err
	}
	if err := l.owns(x); err != nil {
		return nil, err
	}
	if l.option.Observer != nil {
		began := l.clock.Now()
		defer func() { l.observeCall(ctx, x.name, began, guard, err) }()
	}
	h := hold{}
	if x.lease != 0 {
		h.lease = term{"Lease", x.lease}
	}
	if x.until != 0 {
		now := time.Duration(l.proposal(l.clock.Now())) * time.Microsecond
		if h.atMost = (term{"AtMost", x.until - now}); h.atMost.d <= 0 {
			return nil, fmt.Errorf("%w: %q: AtMost was over %v ago", ErrHeldTooLong, x.name, rounded(-h.atMost.d))
		}
	}
	if err := h.settle(l); err != nil {
		return nil, err
	}
	g := l.newGuard(ctx, x.name, h)
	g.resume(x)
	if err := l.enter(g); err != nil {
		g.cancel(err)
		return nil, err
	}
	if err := l.attempt(ctx, g); err != nil {
		return nil, err
	}
	return g, nil
}

// owns returns an error if an exported lock is not of this Locker's nodes. Servers come and go, and the id of a set may
// change while it is new: either of them will do.
func (l *Locker) owns(x *exportedLock) error {
	switch id := l.set.ID(); {
	case x.prefix != l.option.KeyPrefix:
		return fmt.Errorf("%w: its KeyPrefix is %q, the Locker's is %q", ErrExportForeign, x.prefix, l.option.KeyPrefix)
	case x.nodes != l.set.Electorate().Size:
		return fmt.Errorf("%w: it is of %d nodes, the Locker has %d", ErrExportForeign, x.nodes, l.set.Electorate().Size)
	case id != "" && id != x.set && !l.knowsOneOf(x.votes):
		return fmt.Errorf("%w: it is of set %s, the Locker's is set %s", ErrExportForeign, x.set, id)
	}
	return nil
}

func (l *Locker) knowsOneOf(votes []exportedVote) bool {
	for _, v := range votes {
		if l.set.Has(v.process) {
			return true
		}
	}
	return false
}

// resume makes an attempt one that takes an exported lock over.
func (g *Guard) resume(x *exportedLock) {
	f := &g.life
	exporter := &resumption{owner: ownerOf(x.claim), votes: make(map[string]time.Duration, len(x.votes))}
	for _, v := range x.votes {
		exporter.votes[v.process] = v.until
	}
	f.own().resumes = exporter
	f.owner = exporter.owner[:identityLen] + crand.Text()[identityLen:]
	f.token, g.lock.Own().From = x.token, exporter.owner
	g.lock.Claim = f.owner + x.claim[ownerLen:]
}
