package redlock

import (
	"errors"
	"fmt"
	"time"
)

// life is one attempt at a lock and, if it is won, its hold, until no node can know of it any more. It is a plain value:
// it knows no Locker, no node, no mutex, no channel, no goroutine and no clock. Events come in, orders go out, and what
// an event needs to be told of the world travels in it. Its guard is the one door (guard.go).
//
//	entered ─▶ asking ─▶ raising ─▶ held ─▶ over
//	                        └─▶ clearing ─▶ confirming ─▶ held   takers alone
//
// From every phase a life can go over, and from there it never comes back: death is final because no event of a life
// that is over leads anywhere else, and because every event first finds out whether the life still is alive.
type life struct {
	*rules
	ballot ballot
	by     *electorate   // whose votes count; nil: those of all
	limit  time.Duration // when it is to end, whatever its votes say; 0: never
	watch  *watch        // nil: nobody has asked whether it is at risk
	out    *orders       // of the event under way

	phase    phase
	takeover takeover
	several  bool // of several names: a vote is one for all of them
	waits    bool // a waiter's attempt; else, with a ticket, a try's
	staying  bool // the waiter is to stay in line where this life lets go: told by the door
	woken    bool // the waiter was told that the lock is free
	outdated bool // it came to nothing because others are the set's members now
	movesOn  bool // the waiter asks for another slot at once, and stands in line by that
	split    bool // it came to nothing, and by the nodes' answers nobody else can have the lock

	handsBack bool  // it resumes, has failed at that, and what it got goes back
	slot      int16 // of a semaphore, from 1; 0 for a lock
	slots     int16 // how many the semaphore has

	pace  time.Duration // to the next renewal
	token uint64        // fencing token, from phase raising on
	poll  *poll         // in phase asking alone
	rare  *rarity       // what few lives have; nil: nothing of it

	owner  string // random, one per attempt: a late release of one attempt must not delete another's vote
	name   string
	ticket uint64 // since when the call wants the lock, in node time; 0 for a takeover

	round   time.Duration // when the nodes' time is over to answer: an attempt's round, or the release
	heldAt  time.Duration // when it was granted
	freedAt time.Duration // when it was released
	cause   error         // why it is over
}

// rarity is what few lives have.
type rarity struct {
	resumes   *resumption              // what it takes over from another process; nil for nothing
	askers    map[string]*asker        // who asks it to let go
	keptUntil time.Duration            // until when nodes are to keep it taken although it is over
	longest   time.Duration            // longest lease that a node may have stored for somebody: a taker's is never shorter
	displaced map[string]*displacement // by a taker
	confirmed time.Duration            // of a taker that waited: renewals sent from then on count
}

// rarely is the rarity of the life, to be read.
func (f *life) rarely() rarity {
	if f.rare == nil {
		return rarity{}
	}
	return *f.rare
}

// own is the same, to be written to.
func (f *life) own() *rarity {
	if f.rare == nil {
		f.rare = new(rarity)
	}
	return f.rare
}

// resumes is what the life takes over from another process; nil for nothing.
func (f *life) resumes() *resumption { return f.rarely().resumes }

// poll is what a life needs to know while the nodes are asked, and not any longer.
type poll struct {
	proposal uint64        // fencing token that nodes are asked to grant
	clocks   []clocked     // by node
	askOn    []int         // nodes on which the holder is asked to let go
	askAt    time.Duration // of a try that was refused somewhere: when it asks there again; 0: it was not
	pause    time.Duration // and the time after that to the next such question
	waited   bool          // it has asked again: who has not answered by then is not waited for
}

// rules are what a life goes by. They are the same for all lives of a Locker but those of locks with options of their own.
type rules struct {
	nodes    []string      // how errors name them
	lease    time.Duration // KeyValidity
	interval time.Duration // ExtendInterval
	timeout  time.Duration // NodeTimeout
	bound    time.Duration // ClockBound
	drift    float64       // DriftFactor
	line     lineTimes
	fixed    bool          // the lease is not extended
	atMost   time.Duration // how long a lock may be held; 0: for ever
	atLeast  time.Duration // how long a lock that was granted stays taken at least
	delay    time.Duration // and after an end that is no release

	label     string // who holds it, for people
	claimTail string // what a node's value has of all that behind owner and ticket
}

// phase is where a life is.
type phase uint8

const (
	entered    phase = iota // in its place, where pushes find it; nobody has been asked
	asking                  // the nodes are asked for their vote
	raising                 // a quorum said yes, and is to store the fencing token
	clearing                // a taker waits for the holders it displaced
	confirming              // and asks its nodes once more after that
	held                    // the lock is ours
	over                    // it is not, or not any more; nodes may still have to be told
)

// alive reports whether a life counts on a quorum of claims: below one it is dead.
func (p phase) alive() bool { return p == clearing || p == confirming || p == held }

// event is something that has happened.
type event struct {
	kind     eventKind
	node     int           // answered, pushed, looked, distrusted, free
	answer   *answer       // answered
	failed   []failedSend  // unsent
	within   time.Duration // pushed: how long the look may take
	proposal uint64        // asked
	askOn    []int         // asked: nodes on which the holder is to be asked to let go
	longest  time.Duration // asked
	pause    time.Duration // asked: after what time those who have split the nodes should have settled it
	pace     time.Duration // ticked
	cause    error         // ended, distrusted, clockOff
	owner    string        // acknowledged
	by       *electorate   // asked, rostered
}

type eventKind uint8

const (
	clockRead    eventKind = iota // somebody asks whether it is alive
	asked                         // the nodes are to be asked
	answered                      // a step has come back from a node
	unsent                        // steps could not be sent: all of one event's at once, or the first would decide for the rest
	pushed                        // a node names our key: a name, not a value
	looked                        // the keeper has looked at the node, which may be back; it doubts no vote
	distrusted                    // the node has no vote to give: its clock is off, or its server is another node's
	flushed                       // the node was flushed or disconnected: an answer on its way may be older than that
	clockOff                      // this machine's own clock was off
	free                          // the node says that the lock is free there
	ticked                        // something is due
	ended                         // by its user, or by the Locker
	takenOver                     // a taker of this Locker has displaced us
	acknowledged                  // a holder that we displaced has ended
	left                          // the waiter waits no longer
	watched                       // somebody wants to know when it is at risk
	handedOver                    // to whoever resumes it
	rostered                      // votes count by another electorate
)

// failedSend is why a node could not be sent the step of its vote.
type failedSend struct {
	node int
	err  error
}

// orders are what an event has made due. They are good until the next event.
type orders struct {
	send    []sending
	wakeAt  time.Duration // the next tick is due then, or before; 0: none is
	valid   time.Duration // until when a held lock is alive if nothing renews it; 0: it is not held
	ended   bool          // the context is done, with the cause
	lost    bool          // what was held, or it was held too long
	decided bool          // the attempt has come to something
	served  bool          // its waiter waits no longer
	placed  bool          // its waiter has its place in line
	leave   bool          // its place is free for others
	freed   bool          // a quorum has confirmed that the key is gone, no node can have it, or time is up
	forget  bool          // no node knows of it any more
	risked  bool          // whether it is at risk has changed

	struck     bool         // the node that has answered our release has another owner, who may wait for our end
	woke       string       // the waiter that our release has woken there
	displaced  []string     // owners that we have displaced
	mistrusted []clockOffBy // nodes whose clocks are off the others'
}

// sending is a step that is to be sent to a node.
type sending struct {
	node int
	step step
}

// on takes what has happened into the life and returns what is to be done.
func (f *life) on(e event, now time.Duration) *orders {
	if f.out == nil {
		f.out = new(orders)
	}
	*f.out = orders{send: f.out.send[:0], displaced: f.out.displaced[:0], mistrusted: f.out.mistrusted[:0]}
	before := f.phase
	f.endIfTooLong(now)
	f.dieIfBelow(now) // the votes as they stood before this event decide
	switch e.kind {
	case asked:
		f.ask(e, now)
	case answered:
		f.answered(e.node, e.answer, now)
	case unsent:
		for _, s := range e.failed {
			f.answered(s.node, &answer{Err: s.err, Unsent: true, SentAt: now, At: now}, now)
		}
	case pushed:
		f.pushed(e.node, e.within, now)
	case looked:
		f.looked(e.node, now)
	case flushed:
		f.ballot[e.node].doubted = true
		f.looked(e.node, now)
	case clockOff:
		f.clockOff(e.cause, now)
	case distrusted:
		f.distrusted(e.node, e.cause)
		f.dieIfBelow(now)
	case free:
		f.free(e.node)
	case ticked:
		f.ticked(e.pace, now)
	case ended:
		f.end(e.cause, now)
	case handedOver:
		f.exported(now)
	case takenOver:
		if waiting := (f.phase <= raising) && f.takeover != noTakeover; !waiting && f.phase != over {
			f.end(f.loss(now, true), now) // takers that have not won yet do not end each other
		}
	case watched:
		if f.watch == nil {
			f.watch = &watch{}
			f.out.risked = f.phase == over
		}
	case rostered:
		f.rostered(e.by, now)
	case acknowledged:
		if d := f.rarely().displaced[e.owner]; d != nil {
			d.ended = true
		}
	}
	f.decide(now)
	if f.phase != before || !e.kind.ofNode() {
		for i := range f.ballot {
			f.next(i, now)
		}
	} else {
		f.next(e.node, now)
	}
	f.settle(now)
	f.lookOut(now)
	f.arm(now)
	f.out.placed = f.hasPlace(now)
	return f.out
}

// ofNode reports whether an event concerns one node alone.
func (k eventKind) ofNode() bool {
	return k == answered || k == pushed || k == looked || k == flushed || k == distrusted || k == free
}

// dieIfBelow ends a life whose votes no longer make a quorum.
func (f *life) dieIfBelow(now time.Duration) {
	if f.phase.alive() && !f.stands(now) {
		f.end(f.loss(now, false), now)
	}
}

// ask has every node asked, all at once.
func (f *life) ask(e event, now time.Duration) {
	if f.phase != entered { // closed, or taken over by a guard of this Locker, before it has asked anybody
		return
	}
	f.phase = asking
	f.by = e.by
	f.round = now + f.timeout
	if e.longest != 0 {
		f.own().longest = e.longest
	}
	f.poll = &poll{proposal: e.proposal, askOn: e.askOn, pause: e.pause, clocks: make([]clocked, len(f.ballot))}
	for i := range f.ballot {
		f.ballot[i].due = question
	}
}

// ticked ends a round whose time is over and renews what is due. What a dead life owes comes with next.
func (f *life) ticked(pace, now time.Duration) {
	if (f.phase == asking || f.phase == raising || f.phase == clearing || f.phase == confirming) && f.round <= now {
		f.roundOver(now)
	}
	f.askRefused(now)
	f.resumeAgain(now)
	if !f.phase.alive() {
		return
	}
	f.pace = pace
	for i := range f.ballot {
		v := &f.ballot[i]
		if v.away || v.nextAt > now+f.slack() {
			continue
		}
		v.pushes = 0
		if !v.voided {
			f.send(i, scriptExtend, now)
		}
	}
}

// slack is how much too early a renewal may be sent, so that the votes of one round are renewed in one round.
func (r *rules) slack() time.Duration { return r.interval / 16 }

// roundOver ends a round: who has not answered by now has no say in it.
func (f *life) roundOver(now time.Duration) {
	silent := fmt.Errorf("%w: nothing within %v", ErrNodeTimeout, rounded(f.timeout))
	switch f.phase {
	case asking:
		for i := range f.ballot {
			if v := &f.ballot[i]; v.state == pending {
				if v.hasAnswered() && f.resumes() == nil { // and was asked once more, for which there was no time
					v.state = refused
					continue
				}
				v.state = failed
				if v.due != whenItIsKnown && (v.said().err == nil || f.resumes() == nil) {
					v.note(silent)
				}
			}
		}
	case raising, confirming:
		for i := range f.ballot {
			if v := &f.ballot[i]; v.away {
				v.state = failed
				v.note(silent)
			}
		}
		f.fail(now)
	}
}

// decide takes the attempt as far as the votes allow.
func (f *life) decide(now time.Duration) {
	if f.phase == asking {
		f.decideVote(now)
	}
	if f.phase == raising {
		f.decideToken(now)
	}
	if f.phase == clearing {
		f.decideCleared(now)
	}
	if f.phase == confirming {
		f.decideConfirmed(now)
	}
}

// verdict is what the votes say. Those that make a quorum, and none of what was accepted in the place of its members, can only be
// waited for.
func (f *life) verdict(now time.Duration) verdict {
	b := f.trusted(now)
	said := b.verdict(now, f.quorum())
	if said == won && !f.standsAt(now, -1, false) {
		if said = undecided; b.silent() == 0 {
			said = unreachable
		}
	}
	return said
}

// decideVote looks whether a quorum said yes.
func (f *life) decideVote(now time.Duration) {
	switch f.verdict(now) {
	case undecided:
		if f.poll.waited { // it hangs on a node that is silent: whoever sees somebody before it lets them have it
			if _, older, _ := f.contest(); older {
				f.fail(now)
			}
		}
	case won:
		f.dropMistrusted(now)
		f.phase, f.poll = raising, nil
		var agreed int
		if f.token, agreed = f.ballot.token(now); agreed >= f.quorum() {
			return // usual: all granted the proposal, no second round
		}
		f.round = now + f.timeout
		for i := range f.ballot {
			if v := &f.ballot[i]; v.counts(now) && v.token < f.token {
				v.due = question
			}
		}
	default:
		if !f.keepsVotes(now) {
			f.dropMistrusted(now)
			f.fail(now)
		}
	}
}

// decideToken looks whether a quorum of our votes stores the fencing token.
func (f *life) decideToken(now time.Duration) {
	agreed, open := 0, 0
	for i := range f.ballot {
		switch v := &f.ballot[i]; {
		case v.counts(now) && v.token == f.token:
			agreed++
		case v.away || v.due == question:
			open++
		}
	}
	switch q := f.quorum(); {
	case agreed >= q && f.takeover == takeoverSafely:
		f.phase = clearing
	case agreed >= q:
		f.hold(now)
	case agreed+open < q:
		f.fail(now)
	}
}

// hold makes the attempt a held lock. The votes were counted at this same instant: after any wait they are counted
// anew.
func (f *life) hold(now time.Duration) {
	if !f.stands(now) {
		f.fail(now)
		return
	}
	f.phase, f.heldAt = held, now
	f.limitHold()
	f.staying = false
	f.out.decided, f.out.served = true, true
}

// fail ends an attempt that cannot be won.
func (f *life) fail(now time.Duration) {
	e := f.report(now, f.notWon(now))
	if f.ticket != 0 && e.kind == ErrNotLocked {
		_, _, taken := f.contest()
		f.split = !taken
	}
	e.takenOver = f.takeover != noTakeover && f.rivals() > 0
	if f.resumes() != nil {
		e.kind = f.notResumed()
	}
	f.movesOn = f.slots != 0 && f.slotChoices(now, 0)[0].at == now
	f.end(e, now)
}

// notWon is what an attempt has come to that cannot be won.
func (f *life) notWon(now time.Duration) error {
	if f.ballot.reachable(now, f.quorum()) && f.voters() >= f.quorum() && !f.outdated {
		return ErrNotLocked
	}
	return ErrNoQuorum
}

// end ends the life, if it has not ended: every node that may store its owner is asked to release.
func (f *life) end(cause error, now time.Duration) {
	if f.phase == over {
		return
	}
	attempted := f.phase != held
	f.handsBack = attempted && f.resumes() != nil && f.returns()
	if !attempted {
		f.keepAtEnd(cause, now)
	}
	f.phase, f.cause, f.poll = over, cause, nil
	f.out.ended, f.out.lost = true, !attempted && (errors.Is(cause, ErrLost) || errors.Is(cause, ErrHeldTooLong))
	f.out.decided, f.out.risked = attempted, f.watch != nil
	if f.out.leave = attempted || cause != ErrReleased; !f.out.leave {
		f.round, f.freedAt = now+f.timeout, now // in its place until a quorum has confirmed, or time is up: a new attempt would meet our own key
	}
	for i := range f.ballot {
		v := &f.ballot[i]
		v.due, v.nextAt = nothing, 0
	}
}

// arm orders to be woken when the votes end, when the next is to be renewed, or when a round is over; once the life is
// over settle has done so.
func (f *life) arm(now time.Duration) {
	if f.phase == held {
		f.out.valid = f.validUntil()
	}
	var at time.Duration
	switch f.phase {
	case entered, over:
		return
	case asking, raising:
		f.out.wakeAt = f.round
		if f.phase == asking && f.poll.askAt != 0 {
			f.out.wakeAt = min(f.round, f.poll.askAt)
		}
		if f.resumes() != nil {
			f.out.wakeAt = f.resumesAt()
		}
		return
	case clearing, confirming: // that may take as long as a lease: votes are renewed
		at = min(f.round, f.standsUntil())
	case held:
		at = f.out.valid
		if f.watch != nil {
			at = min(at, f.riskDue(now))
		}
	}
	for i := range f.ballot {
		if v := &f.ballot[i]; !v.away {
			at = min(at, v.nextAt)
		}
	}
	f.out.wakeAt = max(at, now)
}

// settle looks how far the end of a life has got: whether a quorum has confirmed that the key is gone, and whether no
// node can know of it any more.
func (f *life) settle(now time.Duration) {
	if f.phase != over {
		return
	}
	gone, open := 0, 0
	wakeAt := time.Duration(0)
	for i := range f.ballot {
		v := &f.ballot[i]
		if v.owedUntil != 0 && v.owedUntil <= now && !v.away {
			v.owedUntil = 0 // the lease has run out
			v.noteGhost(0)
		}
		switch {
		case v.away:
		case v.owedUntil == 0:
			if f.isVoter(i) {
				gone++
			}
			continue
		default:
			if at := min(v.nextAt, v.owedUntil); wakeAt == 0 || at < wakeAt {
				wakeAt = at
			}
		}
		open++
	}
	if gone >= f.quorum() && !f.unproven() || open == 0 || f.round <= now { // nodes that come back are asked again
		f.out.freed = true
	} else if wakeAt == 0 || f.round < wakeAt {
		wakeAt = f.round
	}
	switch {
	case open == 0:
		f.out.forget = true
	case wakeAt != 0:
		f.out.wakeAt = max(wakeAt, now)
	}
}

// unproven reports whether a released lock may still turn out to have been lost before: the nodes whose votes counted when
// it was released say whether the key was ours until then.
func (f *life) unproven() bool {
	if f.cause != ErrReleased {
		return false
	}
	ours, open := f.ballot.live(f.freedAt), 0
	for i := range f.ballot {
		if v := &f.ballot[i]; v.counts(f.freedAt) && (v.away || v.owedUntil != 0) {
			open++
		}
	}
	return ours >= f.quorum() && ours-open < f.quorum()
}

// loss builds the cause of a lock that is lost. It was taken over where a takeover displaced us, or where others
// hold so many nodes that no quorum is left for us.
func (f *life) loss(now time.Duration, forced bool) error {
	if f.phase != held && f.takeover == noTakeover {
		return f.report(now, ErrNotLocked) // displaced before it was won: nothing was held that could be lost
	}
	e := f.report(now, ErrLost)
	rivals, suspects := f.rivals(), 0
	for _, v := range f.ballot {
		if v.state == doubted {
			suspects++ // pushed, and the look did not come back in time
		}
	}
	if f.phase != held {
		suspects = len(f.ballot) // a taker had them all: whoever it lost them to is the next taker
	}
	e.takenOver = forced || rivals > 0 && rivals+suspects > f.voters()-f.quorum()
	if f.phase != held && !e.takenOver {
		e.kind = f.notWon(now) // a taker that nodes failed while it waited: it held nothing that could be lost
	}
	return e
}

// rivals returns on how many nodes somebody else was found in our place.
func (f *life) rivals() int {
	n := 0
	for i := range f.ballot {
		if r := f.ballot[i].said().rival; r != "" && r != tombstone {
			n++
		}
	}
	return n
}

// outcome returns nil if the attempt got the lock, or why not.
func (f *life) outcome(now time.Duration) error {
	switch {
	case f.phase == held:
		return nil
	case f.takeover == noTakeover && errors.Is(f.cause, ErrLost): // won, and lost before anybody could be told
		return f.report(now, f.notWon(now))
	}
	return f.cause
}

// report says how the votes stand.
func (f *life) report(now time.Duration, kind error) *QuorumError {
	by := f.lacking(now)
	e := &QuorumError{Name: f.name, Votes: f.votesOf(by, now, -1, false), Quorum: f.quorum(), Nodes: f.size(), kind: kind, slot: int(f.slot)}
	if by != nil {
		e.Quorum, e.Nodes = by.Quorum, by.Size
	}
	for i := range f.ballot {
		v := &f.ballot[i]
		if v.counts(now) {
			continue
		}
		err := v.said().err
		switch {
		case err != nil:
		case v.state == doubted:
			err = fmt.Errorf("it pushed that the key had changed, a look was not answered in time: vote ended %v ago", rounded(now-v.until))
		case v.state == granted:
			err = fmt.Errorf("vote ran out %v ago", rounded(now-v.until))
		default:
			err = errNoAnswerYet
		}
		e.Errs = append(e.Errs, &NodeError{Addr: f.nodes[i], Err: err})
	}
	e.Errs = append(e.Errs, unlisted(by)...)
	return e
}

// unconfirmed returns nil if a quorum has confirmed that the key is gone; or that the lock was lost before it was released,
// of which nobody had been told; or says which nodes have not confirmed.
func (f *life) unconfirmed() error {
	if f.ballot.live(f.freedAt) < f.quorum() {
		return f.report(f.freedAt, ErrLost)
	}
	confirmed := 0
	for i := range f.ballot {
		if v := &f.ballot[i]; !v.away && v.owedUntil == 0 && f.isVoter(i) {
			confirmed++
		}
	}
	if confirmed >= f.quorum() {
		return nil
	}
	e := &QuorumError{Name: f.name, Votes: confirmed, Quorum: f.quorum(), Nodes: f.size(), kind: ErrNoQuorum, freed: true, slot: int(f.slot)}
	for i := range f.ballot {
		v := &f.ballot[i]
		if !v.away && v.owedUntil == 0 || !f.isVoter(i) {
			continue
		}
		err := v.said().err
		if v.away || err == nil {
			err = fmt.Errorf("%w: release not confirmed", ErrNodeTimeout)
		}
		e.Errs = append(e.Errs, &NodeError{Addr: f.nodes[i], Err: err})
	}
	return e
}
