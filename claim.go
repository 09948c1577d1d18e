package redlock

import (
	"errors"
	"strconv"
	"strings"
	"time"
)

// claim is what a guard keeps about one node beside its vote: what is on its way there, and what is owed. This file
// is one vote's life: asked for, granted, extended, suspected, lost or won back, released.
//
// All of it runs under the guard's mutex and is told what time it is.
type claim struct {
	step        step          // the one step that may be on its way
	busy        bool          // it is; the next waits for its return, or the two could arrive the other way round
	look        bool          // ask again at once: a push doubts the answer on its way, or the vote, or the node was looked at
	late        bool          // the last answer was "arrived too late"; that is asked again once
	stale       bool          // its marker, or the scripts, were not as last read: to be asked when they have been read
	undo        bool          // what was won back does not count: give it back
	asks        int           // how often the node was asked for its vote
	taken       bool          // a question was granted: a taker does not take the lock from its own taker by asking again
	pushes      int           // pushes since the last regular renewal
	nextAt      time.Duration // when to ask again
	renewedAt   time.Duration // when the last step was sent that the node said yes to
	owedUntil   time.Duration // the node may store our owner until then: a release is owed; 0 for nothing
	ghost       time.Duration // a step was cut off on its way and may still be executed until then
	offset      offset        // of the node's clock, as it answered this attempt
	clocked     bool          // it did
	err         error         // why there is no vote
	rival       string        // who holds the lock there instead
	rivalTicket uint64        // since when they, or who is before us in line, have waited; 0: they have not
	first       bool          // we are first in line there
	again       bool          // woken by the node while it was being asked
	freeAt      time.Duration // when the node may vote again by itself
}

const (
	// looksPerRound bounds how often pushes can make a guard look at a node between two renewals: a server that
	// pushes our own writes back, or whose tracking table overflows, must not make it spin.
	looksPerRound = 4
	// leftoverAsks bounds how often a node is asked for its vote that answers with what our own Locker is releasing.
	leftoverAsks = 8
	// retriesPerRound is how often a renewal or release that failed is tried again within one interval.
	retriesPerRound = 8
)

// send hands the next step for node i over. Nothing may be on its way there.
func (g *Guard) send(i int, script script, now time.Duration) {
	g.hand(i, script, now, (*node).send)
}

func (g *Guard) hand(i int, script script, now time.Duration, by func(*node, *step) error) {
	c, n := &g.claims[i], g.l.nodes[i]
	c.step = step{guard: g, index: i, script: script}
	switch script {
	case scriptAcquire:
		c.step.token, c.step.notAfter = g.proposal, g.round
		c.step.takeOver = g.takeover != noTakeover && !c.taken
		c.asks++
		c.stale = false // or a look after its vote would have it asked again
		g.owe(i, c.step.notAfter)
	case scriptExtend:
		c.step.token, c.step.notAfter = g.token, now+g.l.option.NodeTimeout
		// Won back only where it is lost, and only while a quorum stands without it: judged now, and again when
		// the answer comes. Never at once after a push, only when a renewal is due: somebody who deletes a lock on
		// all nodes, one after the other, means it.
		regular := c.nextAt <= now+g.l.slack()
		if g.phase == held && regular && c.ghost <= now && !g.ballot[i].counts(now) && g.ballot.standing(now, i) >= g.ballot.quorum() {
			c.step.mayWin = true
			g.owe(i, c.step.notAfter)
		}
	case scriptRelease:
		c.step.stay = g.waiter.staysAs()
		if c.step.ended = g.phase == over; !c.step.ended { // it must not come late and delete what was won back since
			c.step.notAfter = now + g.l.option.NodeTimeout
		}
	}
	c.look = false
	c.busy = true
	if err := by(n, &c.step); err != nil {
		c.busy = false
		g.apply(i, answer{err: err, unsent: true, sentAt: now, at: now}, now)
	}
}

// owe notes that a step which stores our owner may be executed until notAfter.
func (g *Guard) owe(i int, notAfter time.Duration) {
	o, c := g.l.option, &g.claims[i]
	lease := o.KeyValidity
	if g.takeover != noTakeover {
		lease = g.l.nodes[i].longestLease() // a taker's lease is never shorter than the one it displaces
	}
	c.owedUntil = max(c.owedUntil, notAfter+goneAfter(lease, o.DriftFactor, 2*o.ClockBound))
}

// settleOwed notes that the node does not store our owner, unless a step that was cut off can still put it there.
func (g *Guard) settleOwed(c *claim, now time.Duration) {
	if c.ghost > now {
		c.nextAt = c.ghost // to be released again once it cannot
		return
	}
	c.owedUntil, c.ghost = 0, 0
}

// answered takes the answer of the step that was on its way to node i. Nodes call it, each on its own goroutine.
func (g *Guard) answered(i int, a answer) {
	g.mu.Lock()
	defer g.mu.Unlock()
	now := g.l.clock.now()
	g.checkAlive(now) // death is final: the votes as they stood before this answer decide
	g.claims[i].busy = false
	g.apply(i, a, now)
	g.moved(i, now)
}

// moved does what an answer, a push or a look at node i made due.
func (g *Guard) moved(i int, now time.Duration) {
	g.decide(now)
	g.next(i, now)
	g.settle(now)
}

// next sends what is due on node i, if nothing is on its way.
func (g *Guard) next(i int, now time.Duration) {
	c := &g.claims[i]
	switch {
	case c.busy:
	case g.phase == asking && g.round == 0: // pushed before it has asked anybody, which it will do now
	case c.undo && c.owedUntil <= now: // the lease has run out by itself
		c.undo, c.owedUntil, c.ghost = false, 0, 0
		c.nextAt = now + g.pace
	case g.phase == over || c.undo:
		if c.owedUntil > now && c.nextAt <= now || g.waiter.mustLeave(i) {
			g.send(i, scriptRelease, now)
		}
	case g.phase == held && !g.ballot[i].counts(now) && g.waiter.mustLeave(i):
		g.send(i, scriptRelease, now)
	case c.look && g.phase == asking:
		g.send(i, scriptAcquire, now)
	case c.look:
		g.send(i, scriptExtend, now)
	}
}

// apply takes one answer into the ballot.
func (g *Guard) apply(i int, a answer, now time.Duration) {
	c := &g.claims[i]
	script := c.step.script
	if lostOnTheWay(a) && c.step.notAfter != 0 {
		c.ghost = c.step.notAfter + 2*g.l.option.ClockBound // its "not after" may be a bound too late, and so may its clock
	}
	if script == scriptRelease {
		g.applyRelease(i, a, now)
		return
	}
	c.offset, c.clocked = a.offset, a.hasClock
	g.waiter.noteLine(i, a)
	switch {
	case g.phase == over: // whatever it says, a release follows
		c.nextAt = 0
		if a.unsent && c.asks == 1 && script == scriptAcquire {
			c.owedUntil = 0
		}
		if a.err != nil && lostOnTheWay(a) {
			c.err = a.err
		}
	case script == scriptAcquire:
		g.applyAcquire(i, a, now)
	default:
		g.applyExtend(i, a, now)
	}
	g.rearm(now)
}

// lostOnTheWay reports whether a step left and its connection went before the answer came. Bytes of a closed
// connection may still be executed.
func lostOnTheWay(a answer) bool {
	return !a.unsent && (errors.Is(a.err, ErrNodeDown) || errors.Is(a.err, ErrNodeTimeout))
}

// applyAcquire takes a vote, in time or as a straggler: added if it is a yes.
func (g *Guard) applyAcquire(i int, a answer, now time.Duration) {
	c, v := &g.claims[i], &g.ballot[i]
	c.err, c.rival = a.err, ""
	c.nextAt = a.sentAt + g.pace
	switch {
	case a.err == errForgotten && g.phase == asking:
		c.stale = true
	case a.err != nil:
		v.state = failed
		if a.unsent && c.asks == 1 {
			c.owedUntil = 0
		}
	case a.code == codeOK && c.look:
		// Pushed while it was on its way: it may be void already. The answer to the next question counts.
	case a.code == codeOK && g.phase == held && g.ballot.standing(now, i) < g.ballot.quorum():
		g.giveBack(i) // a straggler is added only while a quorum stands without it
	case a.code == codeOK:
		*v = vote{state: granted, until: g.claimUntil(a.sentAt), token: uint64(a.number)}
		c.renewedAt, c.taken = a.sentAt, true
		c.look = g.phase == raising && v.token < g.token
		g.noteDisplaced(i, a)
	case a.code == codeHeld:
		g.noteHeld(i, a, now)
		c.rivalTicket, c.first = ticketOf(a.text), a.first
		if g.phase == asking && c.asks < leftoverAsks && g.l.isLeftover(c.rival) {
			c.again = true // released already, but this question came first: it must not block us
		}
		g.askAgain(i)
	case a.code == codeInLine:
		v.state = refused
		who, ticket, _ := strings.Cut(a.text, ";")
		c.err = &HeldError{Owner: who, Waiting: true}
		c.rivalTicket, _ = strconv.ParseUint(ticket, 10, 64)
		g.settleOwed(c, now)
		g.askAgain(i)
	case a.err == nil && a.code == codeOtherMarker && g.phase == asking:
		c.stale, c.err = true, refusal(a.code, 0) // the keeper looks at the node, and then it is asked again
	case a.code == codeLate && !c.late && g.phase == asking:
		c.late, c.look = true, true // the node's clock was not where it was taken to be; now it is known
	default:
		v.state = failed
		c.err = refusal(a.code, a.left())
		c.freeAt = a.at + a.left()
		if c.asks == 1 { // an earlier question may have been granted
			g.settleOwed(c, now)
		}
	}
}

// applyExtend takes the answer to a renewal, a look or the second round of fencing.
func (g *Guard) applyExtend(i int, a answer, now time.Duration) {
	c, v := &g.claims[i], &g.ballot[i]
	retryAt := a.at + g.pace/retriesPerRound
	// A vote of a held lock that does not count already may count again only while a quorum stands without it. Before
	// the lock is held there is nothing to be continuous with.
	standing := g.phase != held || g.ballot.standing(now, i) >= g.ballot.quorum()
	continuous := v.counts(now) || standing && c.ghost <= now
	switch {
	case a.err != nil: // for now: the vote keeps its end, and is lost then if this goes on
		c.err, c.look, c.nextAt = a.err, false, retryAt
		if errors.Is(a.err, ErrClockOff) {
			v.state, c.nextAt = failed, a.at+g.pace
		}
	case (a.code == codeOK || a.code == codeWonBack) && c.look && (v.suspect || !v.counts(now)):
		// In doubt since it was sent: look again, the vote stays as it was. But it stood a moment ago: the next look has
		// as long as the first had, or a server that pushes on and on would end it. A look that nothing doubted (lookAgain)
		// is no reason to turn a yes down.
		if a.code == codeOK && v.counts(now) {
			v.until = min(g.claimUntil(a.sentAt), now+g.l.nodes[i].lookWithin())
		}
	case a.code == codeOK && continuous || a.code == codeWonBack && standing:
		*v = vote{state: granted, until: g.claimUntil(a.sentAt), token: max(v.token, c.step.token)}
		c.err, c.rival, c.late = nil, "", false
		c.renewedAt, c.nextAt = a.sentAt, a.sentAt+g.pace
		g.owe(i, c.step.notAfter)
		g.noteDisplaced(i, a)
	case a.code == codeOK || a.code == codeWonBack: // too late to be continuous with what we had
		g.giveBack(i)
	case a.code == codeHeld:
		c.nextAt = a.at + g.pace
		// A takeover that displaced us ends us; an ordinary rival costs this vote alone, and so does the tombstone of a
		// taker that has gone. A taker that waits goes on while it has a quorum elsewhere, or two would end each other.
		if g.noteHeld(i, a, now) && c.rival != tombstone && g.phase == held {
			g.finish(now, g.loss(now, true))
		}
	case a.code == codeLate:
		c.look, c.late = !c.late, true
		c.nextAt = max(c.nextAt, retryAt)
	default: // gone, and not to be had back at once
		v.state, v.suspect = failed, false
		if a.code == codeAbsent {
			v.state = refused // it could vote, and has no vote for us
		}
		c.err, c.look = refusal(a.code, a.left()), false
		if c.nextAt <= a.at+g.l.slack() { // a look between two renewals does not put the next one off
			c.nextAt = a.at + g.pace
		}
		g.settleOwed(c, now)
	}
}

// noteHeld notes that somebody else holds the lock on node i, and reports whether they displaced us there.
func (g *Guard) noteHeld(i int, a answer, now time.Duration) (displaced bool) {
	c, v := &g.claims[i], &g.ballot[i]
	v.state, v.suspect = refused, false
	c.rival = ownerOf(a.text)
	c.err = &HeldError{Owner: c.rival, Left: a.left()}
	c.freeAt = a.at + a.left()
	g.settleOwed(c, now)
	until, displaced := displacedIn(a.text)[g.owner]
	if displaced {
		c.owedUntil = max(c.owedUntil, until-a.offset.lo) // our release strikes us out, which the taker waits for
	}
	return displaced
}

// giveBack notes that node i stores our owner and that it must not count.
func (g *Guard) giveBack(i int) {
	c := &g.claims[i]
	g.ballot[i].state = failed
	c.err = errTooLate
	c.undo, c.nextAt = true, 0
}

func (g *Guard) applyRelease(i int, a answer, now time.Duration) {
	c := &g.claims[i]
	g.waiter.noteReleased(i, c.step.stay != "" && a.err == nil)
	if a.err != nil {
		c.err = a.err
		c.nextAt = a.at + g.pace/retriesPerRound
		return
	}
	if a.code == codeLate {
		c.nextAt = a.at + g.pace/retriesPerRound
		return
	}
	if c.undo = false; g.phase != over {
		c.nextAt = a.at + g.pace
	}
	if c.step.ended || a.code == codeOK {
		g.settleOwed(c, now)
	} // else a taker may have displaced us there meanwhile: one release after our end still has to strike us out
	if a.code == codeHeld { // not ours, and we may have been struck out there: our own write pushes nobody here
		g.l.background.Go(func() { g.l.tellTakers(g, i) })
	}
	if a.text != "" { // nor whom it woke, who may be one of us
		g.l.background.Go(func() { g.l.wake(a.text, i) })
	}
}

func (g *Guard) claimUntil(sentAt time.Duration) time.Duration {
	o := g.l.option
	return claimUntil(sentAt, o.KeyValidity, o.DriftFactor, o.ClockBound)
}

// pushed takes an invalidation of our key on node i: a name, not a value, so look again. Until the look says
// otherwise the vote counts only for as long as the look may take.
func (g *Guard) pushed(i int) {
	g.mu.Lock()
	defer g.mu.Unlock()
	c, v := &g.claims[i], &g.ballot[i]
	now := g.l.clock.now()
	g.checkAlive(now)
	if g.phase == over {
		return
	}
	if c.pushes++; c.pushes > looksPerRound {
		return
	}
	c.look = true
	switch {
	case g.phase == asking && v.state == granted:
		v.state = pending
	case g.phase != asking && v.counts(now):
		v.suspect = true
		v.until = min(v.until, now+g.l.nodes[i].lookWithin())
		g.rearm(now)
	}
	g.moved(i, now)
}

// lookAgain looks at node i without doubting the vote: it was flushed or disconnected, or it is back.
func (g *Guard) lookAgain(i int) {
	g.mu.Lock()
	defer g.mu.Unlock()
	now := g.l.clock.now()
	g.checkAlive(now)
	c := &g.claims[i]
	switch {
	case g.phase == over:
		c.nextAt = min(c.nextAt, now)
		if c.ghost > now && c.err == nil {
			c.nextAt = c.ghost
		}
	case g.phase != asking || c.busy || c.stale:
		c.look = true
	}
	g.moved(i, now)
}

// distrust takes the vote of a node whose clock is off: its lease may end at any time.
func (g *Guard) distrust(i int) {
	g.mu.Lock()
	defer g.mu.Unlock()
	now := g.l.clock.now()
	g.checkAlive(now)
	if g.phase == over {
		return
	}
	g.ballot[i].state = failed
	g.claims[i].err = ErrClockOff
	g.rearm(now)
	g.checkAlive(now)
	g.moved(i, now)
}
