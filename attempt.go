package redlock

import (
	"context"
	crand "crypto/rand"
	"errors"
	"fmt"
	"time"
)

// errTooLate is why a vote that was won back is given up again.
var errTooLate = errors.New("won back when no quorum stood any more")

// errNoAnswerYet is a node's part where the others decided before it answered.
var errNoAnswerYet = errors.New("had not answered when it was decided")

// errForgotten is what a node answers that does not know our scripts. Nothing was done.
var errForgotten = errors.New("it has forgotten the scripts, and is being looked at")

// errAbsent says that the key is gone and nobody else holds it.
var errAbsent = errors.New("key is gone")

// refusal says why a node gave no vote, by the code of its answer.
func refusal(code int64, left time.Duration) error {
	switch code {
	case codeQuarantined:
		return fmt.Errorf("%w: it grants nothing for %v more", ErrQuarantined, left)
	case codeOtherMarker:
		return fmt.Errorf("%w: its marker is not the one last read", ErrQuarantined)
	case codeLate:
		return fmt.Errorf("%w: the request arrived too late", ErrNodeTimeout)
	case codeAbsent:
		return errAbsent
	default:
		return fmt.Errorf("reply code %d is not one of ours", code)
	}
}

// newGuard returns a guard that has asked nobody yet. Its context carries ctx's values; with parent set it ends
// with ctx too.
func (l *Locker) newGuard(ctx context.Context, name string, h hold) *Guard {
	n := len(l.nodes)
	g := &Guard{
		l: l, name: name,
		key:      lockKey(l.option.KeyPrefix, name),
		fenceKey: fenceKey(l.option.KeyPrefix, name),
		queueKey: queueKey(l.option.KeyPrefix, name),
		owner:    crand.Text(),
		takeover: h.takeover,
		ballot:   make(ballot, n),
		claims:   make([]claim, n),
		decided:  make(chan struct{}),
		freed:    make(chan struct{}),
		pace:     l.pace(),
		heapAt:   -1,
	}
	g.claim = g.owner
	g.ctx.guard = g
	if h.parented {
		g.ctx.parent = ctx
	} else {
		ctx = context.WithoutCancel(ctx)
	}
	g.ctx.Context, g.cancel = context.WithCancelCause(ctx)
	return g
}

// lockKey returns the key of a lock. No other key of ours has a brace right behind the prefix.
func lockKey(prefix, name string) string { return prefix + ":{" + name + "}" }

// queueKey returns the key of the line of those who wait for a lock.
func queueKey(prefix, name string) string { return prefix + ":queue:{" + name + "}" }

// pace returns the time to a guard's next renewal: a tenth of jitter keeps guards from marching in step.
func (l *Locker) pace() time.Duration {
	return l.option.ExtendInterval - l.jitter(l.option.ExtendInterval/10)
}

// attempt asks every node once and returns the guard, or why there is none. The guard must be in its place
// already, so that no push for it can be missed: they may come before the answer they belong to.
func (l *Locker) attempt(ctx context.Context, g *Guard) error {
	g.ask()
	select {
	case <-g.decided: // by answers, by the extender when a round is over, or by Close
	case <-ctx.Done():
		g.waiter.stop()
		g.end(contextEnded(ctx, g.name))
	}
	return g.outcome()
}

// outcome returns nil if the attempt got the lock, or why not. A lock that was granted at the very moment in which
// ctx ended has been released by now.
func (g *Guard) outcome() error {
	g.mu.Lock()
	defer g.mu.Unlock()
	switch {
	case g.phase == held:
		return nil
	case g.takeover == noTakeover && errors.Is(g.cause, ErrLost): // won, and lost before anybody could be told
		now := g.l.clock.now()
		return g.report(now, g.notWon(now))
	}
	return g.cause
}

// ask sends the attempt's question to every node, all at once.
func (g *Guard) ask() {
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.phase == over { // closed, or taken over by a guard of this Locker, before it has asked anybody
		return
	}
	now := g.l.clock.now()
	g.round = now + g.l.option.NodeTimeout
	g.proposal = g.l.proposal(now)
	for i := range g.claims {
		g.send(i, scriptAcquire, now)
	}
	g.decide(now)
	g.rearm(now)
	g.settle(now)
}

// proposal returns the fencing token that nodes are asked to grant, so that all grant the same and no second round
// is needed: the median of their clocks, in µs. No client's clock has a say in it.
func (l *Locker) proposal(now time.Duration) uint64 {
	var buf [16]time.Duration
	times := buf[:0]
	for _, n := range l.nodes {
		if t, ok := n.nodeTime(now); ok {
			times = append(times, t)
		}
	}
	if len(times) == 0 {
		return 0
	}
	return uint64(median(times).Microseconds())
}

// roundOver ends a round: who has not answered by now has no say in it.
func (g *Guard) roundOver(now time.Duration) {
	switch g.phase {
	case asking:
		for i := range g.ballot {
			if g.ballot[i].state != pending {
				continue
			}
			g.ballot[i].state = failed
			if c := &g.claims[i]; !c.stale {
				c.err = fmt.Errorf("%w: nothing within %v", ErrNodeTimeout, g.l.option.NodeTimeout)
			}
		}
	case raising, confirming:
		for i := range g.ballot {
			if g.claims[i].busy {
				g.ballot[i].state = failed
				g.claims[i].err = fmt.Errorf("%w: nothing within %v", ErrNodeTimeout, g.l.option.NodeTimeout)
			}
		}
		g.fail(now)
	}
	g.decide(now)
}

// decide takes the attempt as far as the votes allow.
func (g *Guard) decide(now time.Duration) {
	if g.phase == asking {
		g.decideVote(now)
	}
	if g.phase == raising {
		g.decideToken(now)
	}
	if g.phase == clearing {
		g.decideCleared(now)
	}
	if g.phase == confirming {
		g.decideConfirmed(now)
	}
}

// decideVote looks whether a quorum said yes.
func (g *Guard) decideVote(now time.Duration) {
	switch g.trusted(now).verdict(now) {
	case undecided:
	case won:
		g.dropMistrusted(now)
		g.phase = raising
		g.token, _ = g.ballot.token(now)
		if _, agreed := g.ballot.token(now); agreed >= g.ballot.quorum() {
			return // usual: all granted the proposal, no second round
		}
		g.round = now + g.l.option.NodeTimeout
		for i := range g.ballot {
			if g.ballot[i].counts(now) && g.ballot[i].token < g.token {
				g.claims[i].look = true
				g.next(i, now)
			}
		}
	default:
		if g.keepsVotes(now) {
			return
		}
		g.dropMistrusted(now)
		g.fail(now)
	}
}

// decideToken looks whether a quorum of our votes stores the fencing token.
func (g *Guard) decideToken(now time.Duration) {
	agreed, open := 0, 0
	for i, v := range g.ballot {
		switch c := g.claims[i]; {
		case v.counts(now) && v.token == g.token:
			agreed++
		case c.busy || c.look:
			open++
		}
	}
	switch q := g.ballot.quorum(); {
	case agreed >= q && g.takeover == takeoverSafely:
		g.phase = clearing
	case agreed >= q:
		g.hold(now)
	case agreed+open < q:
		g.fail(now)
	}
}

// hold makes the attempt a held lock. The votes were counted at this same instant: after any wait they are counted
// anew.
func (g *Guard) hold(now time.Duration) {
	if g.ballot.live(now) < g.ballot.quorum() {
		g.fail(now)
		return
	}
	g.phase = held
	g.waiter.stop()
	for i := range g.claims {
		g.next(i, now) // leave the line where we still stand in it
	}
	g.rearm(now)
	close(g.decided)
}

// fail ends an attempt that cannot be won.
func (g *Guard) fail(now time.Duration) {
	e := g.report(now, g.notWon(now))
	e.takenOver = g.takeover != noTakeover && g.rivals() > 0
	g.finish(now, e)
}

// notWon is what an attempt has come to that cannot be won.
func (g *Guard) notWon(now time.Duration) error {
	if g.ballot.reachable(now) {
		return ErrNotLocked
	}
	return ErrNoQuorum
}

// finish ends the guard: its context is done, and every node that may store its owner is asked to release.
func (g *Guard) finish(now time.Duration, cause error) {
	attempted := g.phase != held
	g.phase, g.cause = over, cause
	g.ended.Store(true)
	g.deadline.Store(0)
	g.cancel(cause)
	switch {
	case attempted:
		close(g.decided)
		g.l.leave(g)
	case cause != ErrReleased:
		g.l.leave(g)
	default: // when a quorum has confirmed, or its time is up: a new attempt would meet our own key
		g.round = now + g.l.option.NodeTimeout
	}
	for i := range g.claims {
		c := &g.claims[i]
		c.look, c.nextAt = false, 0
		g.next(i, now)
	}
	g.settle(now)
}

// checkAlive ends a guard whose votes no longer make a quorum.
func (g *Guard) checkAlive(now time.Duration) {
	if (g.phase == held || g.phase == clearing || g.phase == confirming) && g.ballot.live(now) < g.ballot.quorum() {
		g.finish(now, g.loss(now, false))
	}
}

// rearm tells Err and the extender until when the votes are good, when the next is to be renewed, and when a round of an
// attempt is over.
func (g *Guard) rearm(now time.Duration) {
	at := g.round
	switch g.phase {
	case over:
		return
	case asking, raising:
		if at > 0 { // it has asked
			g.l.extender.schedule(g, at)
		}
		return
	case clearing, confirming: // that may take as long as a lease: votes are renewed
		at = min(at, g.ballot.validUntil())
	case held:
		at = g.ballot.validUntil()
		g.deadline.Store(int64(at))
	}
	for i := range g.claims {
		if c := &g.claims[i]; !c.busy {
			at = min(at, c.nextAt)
		}
	}
	g.l.extender.schedule(g, max(at, now))
}

// loss builds the cause of a lock that is lost. It was taken over where a takeover displaced us, or where others
// hold so many nodes that no quorum is left for us.
func (g *Guard) loss(now time.Duration, forced bool) error {
	if g.phase != held && g.takeover == noTakeover {
		return g.report(now, ErrNotLocked) // displaced before it was won: nothing was held that could be lost
	}
	e := g.report(now, ErrLost)
	rivals, suspects := g.rivals(), 0
	for _, v := range g.ballot {
		if v.suspect {
			suspects++ // pushed, and the look did not come back in time
		}
	}
	if g.phase != held {
		suspects = len(g.ballot) // a taker had them all: whoever it lost them to is the next taker
	}
	e.takenOver = forced || rivals > 0 && rivals+suspects > len(g.ballot)-g.ballot.quorum()
	if g.phase != held && !e.takenOver {
		e.kind = g.notWon(now) // a taker that nodes failed while it waited: it held nothing that could be lost
	}
	return e
}

// rivals returns on how many nodes somebody else was found in our place.
func (g *Guard) rivals() int {
	n := 0
	for i := range g.claims {
		if r := g.claims[i].rival; r != "" && r != tombstone {
			n++
		}
	}
	return n
}

// report says how the votes stand.
func (g *Guard) report(now time.Duration, kind error) *QuorumError {
	e := &QuorumError{Name: g.name, Votes: g.ballot.live(now), Quorum: g.ballot.quorum(), Nodes: len(g.ballot), kind: kind}
	for i, v := range g.ballot {
		if v.counts(now) {
			continue
		}
		err := g.claims[i].err
		switch {
		case err != nil:
		case v.state == granted:
			err = fmt.Errorf("vote ran out %v ago", now-v.until)
		default:
			err = errNoAnswerYet
		}
		e.Errs = append(e.Errs, &NodeError{Addr: g.l.nodes[i].addr, Err: err})
	}
	return e
}

// settle looks how far the end of a guard has got: whether a quorum has confirmed that the key is gone, and whether
// no node can know of it any more.
func (g *Guard) settle(now time.Duration) {
	if g.phase != over {
		return
	}
	gone, open := 0, 0
	wakeAt := time.Duration(0)
	for i := range g.claims {
		c := &g.claims[i]
		if c.owedUntil != 0 && c.owedUntil <= now && !c.busy {
			c.owedUntil, c.ghost = 0, 0 // the lease has run out
		}
		switch {
		case c.busy:
		case c.owedUntil == 0:
			gone++
			continue
		default:
			if at := min(c.nextAt, c.owedUntil); wakeAt == 0 || at < wakeAt {
				wakeAt = at
			}
		}
		open++
	}
	if gone >= g.ballot.quorum() || open == 0 || g.round <= now { // nodes that come back are asked again
		g.free()
	} else if wakeAt == 0 || g.round < wakeAt {
		wakeAt = g.round
	}
	switch {
	case open == 0:
		g.l.forget(g)
	case wakeAt != 0:
		g.l.extender.schedule(g, max(wakeAt, now))
	}
}

// unconfirmed returns nil if a quorum has confirmed that the key is gone, or says which nodes have not.
func (g *Guard) unconfirmed() error {
	gone := 0
	for i := range g.claims {
		if c := &g.claims[i]; !c.busy && c.owedUntil == 0 {
			gone++
		}
	}
	if gone >= g.ballot.quorum() {
		return nil
	}
	e := &QuorumError{Name: g.name, Quorum: g.ballot.quorum(), Nodes: len(g.ballot), kind: ErrNoQuorum, freed: true}
	for i := range g.claims {
		c := &g.claims[i]
		if !c.busy && c.owedUntil == 0 {
			e.Votes++
			continue
		}
		err := c.err
		if c.busy || err == nil {
			err = fmt.Errorf("%w: release not confirmed", ErrNodeTimeout)
		}
		e.Errs = append(e.Errs, &NodeError{Addr: g.l.nodes[i].addr, Err: err})
	}
	return e
}

// free ends the wait for a release, and lets the next attempt of this Locker ask.
func (g *Guard) free() {
	select {
	case <-g.freed:
	default:
		close(g.freed)
		g.l.leave(g)
	}
}
