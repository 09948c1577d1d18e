package redlock

import (
	"errors"
	"fmt"
	"slices"
	"time"
)

// vote is one node's part in a life: what the node said, what is on the wire, what is owed to it, and what is next.
//
// There are as many as held locks times nodes, so the small fields stand together. What every event of a life reads of all its votes
// comes first, in 64 bytes: nobody has looked at them since the last renewal.
type vote struct {
	// What the node said.
	until     time.Duration // granted, doubted: end of the claim on the local clock
	token     uint64        // granted, doubted: the fencing token stored there
	renewedAt time.Duration // when the last step was sent that the node said yes to
	// Owed.
	owedUntil time.Duration // the node may store our owner until then: a release is owed; 0 for nothing
	// Next.
	nextAt time.Duration // when to renew, or to give back, if nothing is due at once

	state voteState // what the node said

	away    bool // the step is on its way
	doubted bool // a push has named the key since it left: what it answers may be void already
	checked bool // the keeper has looked at the node since it left
	woken   bool // the node said since it left that the lock is free there

	freed  bool // a release after the end of the life may have been executed
	voided bool // what is stored there does not count: give it back, although the guard lives

	due      due
	taken    bool   // a question was granted: a taker does not take the lock from its own taker by asking again
	late     bool   // the last answer was "arrived too late"; that is asked again once
	inLine   bool   // the waiter stands in line there, as far as is known: told by the door
	asks     uint16 // how often the node was asked for its vote
	pushes   uint8  // pushes since the last regular renewal, up to those that count
	refusals uint8  // how many errors the node has answered since the last reply that was none, up to those that count

	owedBefore time.Duration // owedUntil before the step that is on its way: still true if that did nothing
	server     server        // that said yes last
	no         *denial       // what the node said that was no yes; nil: nothing. It is never written to: lives are copied
	// On the wire.
	step gist // the one step that may be on its way: a second one could arrive before it
}

// denial is what a node said, or came to, that was no yes. Few votes have one for long.
type denial struct {
	ghost       time.Duration   // a step was cut off on its way and may still be executed until then
	err         error           // why there is no vote
	rival       string          // refused: who holds the lock there instead
	rivalTicket uint64          // refused: since when they, or who is before us in line, have waited; 0: they have not
	first       bool            // refused: we are first in line there
	freeAt      time.Duration   // refused, failed: when the node may vote again by itself
	contenders  []contender     // refused several names: all who are in the way; it is never written to
	slots       []time.Duration // refused a semaphore's slot: from when on each may be had there; it is never written to
}

// said is what the node said that was no yes.
func (v *vote) said() denial {
	if v.no == nil {
		return denial{}
	}
	return *v.no
}

// hasAnswered reports whether the node has answered the last question but one: that somebody else has the lock or is before us in
// line, or yes, which is void.
func (v *vote) hasAnswered() bool {
	d := v.said()
	return d.rival != "" || d.err == errDoubted || errors.As(d.err, new(*HeldError))
}

// note notes why there is no vote, beside what else the node has said.
func (v *vote) note(err error) {
	d := v.said()
	d.err = err
	v.no = &d
}

// ghost is until when a step that was cut off on its way may still be executed; 0: there is none.
func (v *vote) ghost() time.Duration {
	if v.no == nil {
		return 0
	}
	return v.no.ghost
}

func (v *vote) noteGhost(until time.Duration) {
	if until != v.ghost() {
		d := v.said()
		d.ghost = until
		v.no = &d
	}
}

// forget forgets what the node said that was no yes, but for a step that may be executed after the one that left at sentAt.
func (v *vote) forget(sentAt time.Duration) {
	ghost := v.ghost()
	if v.no = nil; ghost > sentAt {
		v.no = &denial{ghost: ghost}
	}
}

// due is what a node is to be asked apart from regular renewals, as soon as nothing is on its way there.
type due uint8

const (
	nothing       due = iota
	question          // our question, or our renewal, once more
	whenItIsKnown     // our question, when the keeper has looked at the node: its scripts or its marker were not as last read
)

const (
	// looksPerRound bounds how often pushes can make a guard look at a node between two renewals: a server that
	// pushes our own writes back, or whose tracking table overflows, must not make it spin.
	looksPerRound = 4
	// leftoverAsks bounds how often a node is asked for its vote that answers with what our own Locker is releasing.
	leftoverAsks = 8
	// retriesPerRound is how often a renewal or release that failed is tried again within one interval, until the node
	// answers errors.
	retriesPerRound = 8
	// retryWithin is how soon a release that failed is tried again at first, however long the interval.
	retryWithin = time.Second
)

// errTooLate is why a vote that was lost does not count again although the node stores our owner.
var errTooLate = errors.New("its vote came back when no quorum stood without it")

// errStraggler is why the yes of a node that was not waited for does not count.
var errStraggler = errors.New("it voted yes when no quorum stood without it any more")

// errDoubted is a node's part that voted yes while its key was changed, and has not answered since what that has come to.
var errDoubted = errors.New("it voted yes, but its key may have changed since: it was asked once more, and has not answered yet")

// errNoAnswerYet is a node's part where the others decided before it answered.
var errNoAnswerYet = errors.New("no answer yet when the other nodes had decided")

// errAbsent says that the key is gone and nobody else holds it.
var errAbsent = errors.New("key is gone")

// errNotOurs says that the key of a vote that was counted was gone, or somebody else's.
var errNotOurs = errors.New("it was not ours any more when it was released")

// refusal says why a node gave no vote, by the code of its answer.
func refusal(code int64, left time.Duration) error {
	switch code {
	case codeQuarantined:
		return fmt.Errorf("%w: it is new or lost its memory, and grants nothing for %v more", ErrQuarantined, rounded(left))
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

// lostOnTheWay reports whether a step left and its connection went before the answer came. Bytes of a closed
// connection may still be executed.
func lostOnTheWay(a *answer) bool {
	return !a.Unsent && (errors.Is(a.Err, ErrNodeDown) || errors.Is(a.Err, ErrNodeTimeout))
}

// send puts the next step for node i on the wire, where nothing is.
func (f *life) send(i int, script script, now time.Duration) {
	v := &f.ballot[i]
	v.step = gist{Script: script, NotAfter: now + f.timeout}
	keep, token := f.keepFor(now), uint64(0)
	v.owedBefore = v.owedUntil
	switch script {
	case scriptAcquire:
		token, v.step.NotAfter = f.poll.proposal, f.round
		v.step.TakeOver = f.takeover != noTakeover && !v.taken || slices.Contains(f.poll.askOn, i)
		v.asks++
		if v.state == refused {
			v.state = pending
		}
		f.owe(v)
	case scriptExtend:
		token = f.token
		// Won back only where it is lost, and never at once after a push, only when a renewal is due: somebody who
		// deletes a lock on all nodes, one after the other, means it. A vote that was never had nobody can delete: it is taken as soon as
		// a push says that it may be free, or those who wait would have it each time before we ask.
		regular := v.nextAt <= now+f.slack() || v.token == 0
		if f.phase == held && regular && !v.counts(now) && f.mayCountAgain(i, now) {
			v.step.MayWin = true
			f.owe(v)
		} else if f.phase == asking {
			v.step.NotAfter = f.round
			f.owe(v)
		} else if v.owedUntil > now { // what may be stored is prolonged, and its answer may come when we are over
			f.owe(v)
		}
		if f.resumes() != nil && (f.phase == asking || v.step.MayWin) {
			v.step.Succeed = true
		}
	case scriptRelease:
		v.step.GiveBack = f.handsBack
		v.step.Stay, v.step.Leave = f.staying && !f.movesOn, f.mustLeave(v)
		keep = f.keptFor(now)
		if v.step.Ended = f.phase == over; v.step.Ended { // else it must not come late and delete what was won back since
			v.step.NotAfter = 0
		}
	}
	v.due, v.away, v.doubted, v.checked = nothing, true, false, false
	f.out.send = append(f.out.send, sending{i, step{Gist: v.step, Keep: keep, Token: token}})
}

// mayCountAgain reports whether a vote of a held lock that does not count may count again: only while a quorum stands
// without it, and only if no step that was cut off can still change it. Otherwise a guard that was dead could come back
// to life after somebody else had held the lock in between. It is judged when the step is sent and again when the answer
// comes. Before a lock is held there is nothing to be continuous with.
func (f *life) mayCountAgain(i int, now time.Duration) bool {
	return f.standsWithout(i, now) && f.ballot[i].ghost() <= now
}

func (f *life) standsWithout(i int, now time.Duration) bool {
	return f.phase != held || f.ballot.standing(now, i) >= f.quorum() && f.standsAt(now, i, true)
}

// owe notes that the step of a vote, which stores our owner, may be executed until its "not after".
func (f *life) owe(v *vote) {
	lease := max(f.lease+f.delay, f.atLeast)
	if f.takeover != noTakeover {
		lease = max(lease, f.rarely().longest)
	}
	v.owedUntil = max(v.owedUntil, v.step.NotAfter+goneAfter(lease, f.drift, 2*f.bound))
}

// settleOwed notes that by its answer to a step that was sent at sentAt the node does not store our owner, unless a step
// that was cut off could still put it there then: the answer may be older than that, however late it comes.
func (f *life) settleOwed(v *vote, sentAt time.Duration) {
	if v.ghost() > sentAt {
		v.nextAt = v.ghost() // to be released again once it cannot
		return
	}
	v.owedUntil = 0
	v.noteGhost(0)
}

// next sends what is due on node i, if nothing is on its way.
func (f *life) next(i int, now time.Duration) {
	v := &f.ballot[i]
	if v.away || f.phase == entered || f.cause == ErrExported {
		return
	}
	if v.voided && v.owedUntil <= now { // the lease has run out by itself
		v.voided, v.owedUntil = false, 0
		v.noteGhost(0)
		v.nextAt = now + f.pace
		return
	}
	switch {
	case f.phase == over || v.voided:
		if v.owedUntil > now && v.nextAt <= now || f.mustLeave(v) {
			f.send(i, scriptRelease, now)
		}
	case f.phase == held && !v.counts(now) && f.mustLeave(v):
		f.send(i, scriptRelease, now)
	case v.due == question && f.phase == asking && f.resumes() == nil:
		f.send(i, scriptAcquire, now)
	case v.due == question:
		f.send(i, scriptExtend, now)
	}
}

// answered takes what a step has come to.
func (f *life) answered(i int, a *answer, now time.Duration) {
	v := &f.ballot[i]
	v.away = false
	if lostOnTheWay(a) && v.step.NotAfter != 0 {
		v.noteGhost(v.step.NotAfter + 2*f.bound) // its "not after" may be a bound too late, and so may its clock
	}
	if v.step.Script == scriptRelease {
		f.released(v, a, now)
		return
	}
	if f.poll != nil {
		f.poll.clocks[i] = clocked{a.Offset, a.HasClock}
	}
	f.noteLine(v, a)
	f.noteAskers(i, a, now)
	switch {
	case f.phase == over: // whatever it says, a release follows
		v.nextAt = 0
		if a.Unsent {
			v.owedUntil = v.owedBefore
		}
		if a.Err != nil && lostOnTheWay(a) {
			v.note(a.Err)
		}
	case v.step.Script == scriptAcquire:
		f.voted(i, a, now)
	case f.phase == asking: // no other life renews before it has a vote
		f.resumed(i, a, now)
	default:
		f.renewed(i, a, now)
	}
}

// voted takes a vote, in time or as a straggler: added if it is a yes.
func (f *life) voted(i int, a *answer, now time.Duration) {
	v := &f.ballot[i]
	if d := v.said(); a.Err != nil || d.err != nil || d.rival != "" {
		d.err, d.rival, d.contenders = a.Err, "", nil
		v.no = &d
	}
	v.nextAt = a.SentAt + f.pace
	switch {
	case a.Err == errForgotten && f.phase == asking:
		f.askWhenKnown(v)
	case a.Err != nil:
		v.state = failed
		if a.Unsent {
			v.owedUntil = v.owedBefore
		}
	case a.Code == codeOK && !f.goesBy(i, a):
		v.note(errOtherRoster)
		f.askWhenKnown(v)
	case a.Code == codeOK && v.doubted: // it may be void already: the answer to the next question counts
		v.due = question
		v.note(errDoubted)
	case a.Code == codeOK && !f.standsWithout(i, now):
		f.giveBack(v, errStraggler) // a straggler is added only while a quorum stands without it
	case a.Code == codeOK:
		v.state, v.until, v.token = granted, f.claimUntil(a.SentAt), uint64(a.Number)
		v.renewedAt, v.taken = a.SentAt, true
		v.server.note(a.Server)
		v.due = nothing
		if f.phase == raising && v.token < f.token {
			v.due = question
		}
		f.noteDisplaced(i, a)
	case len(a.Obstacles) > 0:
		f.noteObstacles(i, a)
		f.askLater(now)
		v.woken = v.woken || a.Leftover && v.asks < leftoverAsks
		f.askAgain(v)
	case a.Code == codeHeld:
		f.noteHeld(i, a, now)
		f.askLater(now)
		d := v.said()
		d.rivalTicket, d.first, d.slots = ticketOf(a.Text), a.First, slotTimes(a, f.waits)
		v.no = &d
		if a.Leftover && v.asks < leftoverAsks {
			v.woken = true // released already, but this question came first: it must not block us
		}
		f.askAgain(v)
	case a.Code == codeInLine:
		v.state = refused
		d := v.said()
		ticket, before := inLine(a.Text)
		d.rivalTicket, d.err = ticket, before
		d.slots = slotTimes(a, f.waits)
		v.no = &d
		f.settleOwed(v, a.SentAt)
		f.askLater(now)
		f.askAgain(v)
	case a.Code == codeOtherMarker && f.phase == asking:
		v.note(refusal(a.Code, 0))
		f.askWhenKnown(v)
	case a.Code == codeOtherSize:
		v.state = failed
		v.note(otherSize(a.Number, int(f.slots)))
		f.settleOwed(v, a.SentAt)
	case a.Code == codeLate && !v.late && f.phase == asking:
		v.late, v.due = true, question // the node's clock was not where it was taken to be; now it is known
	default:
		v.state = failed
		d := v.said()
		d.err, d.freeAt = refusal(a.Code, a.Left()), a.At+a.Left()
		v.no = &d
		if v.asks == 1 { // an earlier question may have been granted
			f.settleOwed(v, a.SentAt)
		}
		if a.Code == codeOtherMarker { // it is looked at
			v.nextAt = a.At + f.pace/retriesPerRound
		}
	}
}

// askWhenKnown has the node asked again when its keeper has looked at it, at once if it has done so meanwhile.
func (f *life) askWhenKnown(v *vote) {
	v.due = whenItIsKnown
	if v.checked {
		v.due = question
	}
}

// askAgain has a refusing node asked once more if it woke us since it was asked.
func (f *life) askAgain(v *vote) {
	if v.woken && f.phase == asking {
		v.woken, v.due = false, question
		v.state = pending
	}
}

// renewed takes the answer to a renewal, a look or the second round of fencing.
func (f *life) renewed(i int, a *answer, now time.Duration) {
	v := &f.ballot[i]
	retryAt := a.At + f.retryIn(v, a, f.pace/retriesPerRound)
	yes := a.Err == nil && (a.Code == codeOK || a.Code == codeWonBack)
	switch {
	case a.Err != nil: // for now: the vote keeps its end, and is lost then if this goes on
		v.note(a.Err)
		v.due, v.nextAt = nothing, retryAt
		if a.Unsent {
			v.owedUntil = v.owedBefore
		}
		if errors.Is(a.Err, ErrClockOff) || errors.Is(a.Err, ErrUnsupportedNode) {
			v.state, v.nextAt = failed, a.At+f.pace
		}
	case yes && !f.goesBy(i, a): // the vote keeps its end until it is known who the members are
		v.note(errOtherRoster)
		v.due, v.nextAt = nothing, retryAt
	case yes && v.doubted:
		// In doubt since it was sent: look again, the vote stays as it was. But it stood a moment ago: where a push doubts it the
		// next look has as long as the first had, or a server that pushes on and on would end it.
		if a.Code == codeOK && v.state == doubted && v.counts(now) {
			v.until = min(f.claimUntil(a.SentAt), now+a.Within)
		}
	case yes && (a.Code == codeOK && v.counts(now) || a.Code == codeWonBack && f.standsWithout(i, now) || f.mayCountAgain(i, now)):
		v.state, v.until, v.token = granted, f.claimUntil(a.SentAt), max(v.token, f.token)
		v.forget(a.SentAt)
		v.late, v.renewedAt, v.nextAt = false, a.SentAt, a.SentAt+f.pace
		v.server.note(a.Server)
		f.owe(v)
		f.noteDisplaced(i, a)
	case yes: // too late to be continuous with what we had
		f.giveBack(v, errTooLate)
	case a.Code == codeHeld:
		v.nextAt = a.At + f.pace
		// A takeover that displaced us ends us; an ordinary rival costs this vote alone, and so does the tombstone of a
		// taker that has gone. A taker that waits goes on while it has a quorum elsewhere, or two would end each other.
		if f.noteHeld(i, a, now) && v.said().rival != tombstone && f.phase == held {
			f.end(f.loss(now, true), now)
		}
	case a.Code == codeLate:
		v.due = nothing
		if !v.late {
			v.due = question
		}
		v.late = true
		v.nextAt = max(v.nextAt, retryAt)
	default: // gone, and not to be had back at once
		v.state = failed
		if a.Code == codeAbsent {
			v.state = refused // it could vote, and has no vote for us
		}
		v.note(refusal(a.Code, a.Left()))
		v.due = nothing
		if v.nextAt <= a.At+f.slack() { // a look between two renewals does not put the next one off
			v.nextAt = a.At + f.pace
		}
		if !a.Partial { // of several names some may still be ours: they are owed a release
			f.settleOwed(v, a.SentAt)
		}
	}
}

// noteHeld notes that somebody else holds the lock on node i, and reports whether they displaced us there.
func (f *life) noteHeld(i int, a *answer, now time.Duration) (displaced bool) {
	if len(a.Obstacles) > 0 {
		return f.noteObstacles(i, a)
	}
	v := &f.ballot[i]
	v.state = refused
	d := v.said()
	d.rival, d.freeAt = ownerOf(a.Text), a.At+a.Left()
	d.err = &HeldError{Owner: d.rival, Label: labelOf(a.Text), Left: a.Left(), Kept: isKept(a.Text)}
	v.no = &d
	f.settleOwed(v, a.SentAt)
	until, displaced := displacedIn(a.Text)[f.owner]
	if displaced {
		v.owedUntil = max(v.owedUntil, until-a.Offset.Lo) // our release strikes us out, which the taker waits for
	}
	return displaced
}

// giveBack notes that a node stores our owner and that it must not count.
func (f *life) giveBack(v *vote, why error) {
	v.state = failed
	v.note(why)
	v.voided, v.nextAt = true, 0
}

// released takes the answer to a release.
func (f *life) released(v *vote, a *answer, now time.Duration) {
	v.inLine = v.step.Stay && a.Err == nil // one that failed is not repeated: the node drops who does not ask
	if a.Err == nil && a.Code == codeHeld && v.step.Ended && !v.freed && v.counts(a.At) {
		// We counted on the vote, its lease cannot have run out, and no release of ours can have come before this one.
		v.state = refused
		v.note(errNotOurs)
	}
	v.freed = v.freed || v.step.Ended && !a.Unsent
	retryAt := a.At + f.retryIn(v, a, min(f.pace/retriesPerRound, retryWithin))
	switch {
	case a.Err != nil:
		v.note(a.Err)
		v.nextAt = retryAt
		return
	case a.Code == codeLate:
		v.nextAt = retryAt
		return
	}
	if v.voided = false; f.phase != over {
		v.nextAt = a.At + f.pace
	}
	if v.step.Ended || a.Code == codeOK {
		f.settleOwed(v, a.SentAt)
	} // else a taker may have displaced us there meanwhile: one release after our end still has to strike us out
	f.out.struck = a.Code == codeHeld // not ours, and we may have been struck out there
	f.out.woke = a.Text
}

// retryIn returns when a step that failed is tried again, which is later and later where the node answers errors. Once it
// is well again the keeper tells everybody (looked).
func (f *life) retryIn(v *vote, a *answer, in time.Duration) time.Duration {
	if a.Err == nil || !replied(a.Err) {
		v.refusals = 0
		return in
	}
	in = min(in<<min(v.refusals, 16), max(in, f.pace))
	v.refusals = min(v.refusals, 16) + 1
	return in
}

// claimUntil returns when a claim on a whole lease ends that was asked for at sentAt.
func (r *rules) claimUntil(sentAt time.Duration) time.Duration {
	return claimUntil(sentAt, r.lease, r.drift, r.bound)
}

// pushed has the node asked again. Until the look says otherwise its vote counts only for as long as the look may take.
//
// Not where somebody waits who has no vote there: that is woken when the lock is free for it. Each change of the key is pushed to all who
// wait, and if all asked whose attempts are under way, a slow hand-over would make more work for everybody than a quick one.
func (f *life) pushed(i int, within, now time.Duration) {
	v := &f.ballot[i]
	if f.phase == asking && f.waits && f.slots == 0 && v.state != granted {
		v.doubted = true // what is on its way may be a yes
		return
	}
	if f.phase == over || v.pushes == looksPerRound {
		return
	}
	v.pushes++
	v.due, v.doubted = question, true
	switch {
	case f.phase <= asking && v.state == granted:
		v.state = pending
		v.note(errDoubted)
	case f.phase > asking && v.counts(now):
		v.state = doubted
		v.until = min(v.until, now+within)
	}
}

// looked has the node asked again, too, but takes nothing from its vote: its keeper has looked at it, and it may be back.
func (f *life) looked(i int, now time.Duration) {
	v := &f.ballot[i]
	v.checked = true
	if v.refusals > 0 && f.phase == held { // what was refused may be done now, a vote be won back, too
		v.refusals = 0
		v.nextAt = min(v.nextAt, now+f.pace/retriesPerRound)
	}
	switch {
	case f.phase == over:
		v.nextAt = min(v.nextAt, now)
		if v.ghost() > now && v.said().err == nil {
			v.nextAt = v.ghost()
		}
	case f.phase > asking || v.due == whenItIsKnown || f.resumes() != nil && v.state == pending:
		v.due = question
	}
}

// distrusted takes the vote of a node that has none to give: its clock is off, so that its lease may end at any time, or
// another node has the same server, so that one server would have two votes.
func (f *life) distrusted(i int, why error) {
	if f.phase != over {
		f.ballot[i].state = failed
		f.ballot[i].note(why)
	}
}

// clockOff takes the votes of all nodes: this machine's own clock is off, and no claim ends when it says.
func (f *life) clockOff(why error, now time.Duration) {
	if f.phase == over || f.phase == entered { // dead, or nothing was sent
		return
	}
	for i := range f.ballot {
		f.ballot[i].state = failed
		f.ballot[i].note(why)
	}
	if f.dieIfBelow(now); f.phase != over {
		f.fail(now)
	}
}

// free takes a node's word that the lock is free there.
func (f *life) free(i int) {
	if f.phase == over {
		return
	}
	v := &f.ballot[i]
	f.woken, v.woken = true, true
	if !v.away && v.state == refused {
		f.askAgain(v)
	}
}
