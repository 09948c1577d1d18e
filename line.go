package redlock

import (
	"slices"
	"strconv"
	"strings"
	"time"
)

// What a waiter makes of the answers to its attempt: whether it keeps the votes it has, when it asks again, and when the
// wait is hopeless. wait.go does the waiting; docs/waiting.md says why it cannot deadlock.

// lineTimes is how often a waiter asks, and how long it keeps its place without: by its lease, so that a dead waiter costs
// no more than a dead holder.
type lineTimes struct {
	// every is how often a waiter asks again when nothing tells it to. It keeps its place in line alive, and a lost
	// push costs no more than this.
	every time.Duration
	// behind is how often it asks where the lock is free and somebody is before it in line: they take it within a round
	// trip, or they are dead.
	behind time.Duration
	// place is how long a waiter that does not ask keeps its place: long enough for one lost question.
	place time.Duration
}

const (
	// longestPlace bounds how long a dead waiter keeps its place: the scripts keep a line for twice as long.
	longestPlace = 1800 * time.Millisecond
	// shortestPlace leaves room for a round trip and a busy machine, whatever the lease.
	shortestPlace = 180 * time.Millisecond
	// afterExpiry is how long after a lease's end it is surely gone: Redis counts whole milliseconds.
	afterExpiry = 2 * time.Millisecond
)

func lineTimesFor(lease time.Duration) lineTimes {
	place := min(max(lease, shortestPlace), longestPlace)
	return lineTimes{every: place * 19 / 36, behind: place / 12, place: place}
}

// inLine says why a node gave no vote whose lock is free and has somebody before us in line, and since when they wait.
func inLine(text string) (ticket uint64, err *HeldError) {
	who, since, _ := strings.Cut(text, ";")
	ticket, _ = strconv.ParseUint(since, 10, 64)
	return ticket, &HeldError{Owner: who, Waiting: true}
}

// noteLine notes from the answer to a question whether the waiter stands in line on that node. A grant takes it out, but an earlier attempt
// that let go there meanwhile may have had it put in line again. A grant of what was ours already looks at no line, nor does a renewal.
func (f *life) noteLine(v *vote, a *answer) {
	if !f.waits || a.Err != nil || v.step.Script != scriptAcquire {
		return
	}
	switch a.Code {
	case codeHeld, codeInLine:
		v.inLine = true
	case codeOK:
		v.inLine = v.inLine && (a.Kept || a.LinedUp)
	}
}

// mustLeave reports whether the waiter is to be taken out of line on a node.
func (f *life) mustLeave(v *vote) bool { return f.waits && !f.staying && v.inLine }

// outOfLine reports whether a lock is held whose waiter stands in no line any more, and cannot come to by what is on its way: it is
// done with. Should an earlier attempt be put in line yet, by a late answer, that one leaves by itself.
func (f *life) outOfLine() bool {
	if f.phase != held {
		return false
	}
	for i := range f.ballot {
		if v := &f.ballot[i]; v.inLine || v.away {
			return false
		}
	}
	return true
}

// hasPlace reports whether the waiter stands in line, or has the vote, on so many nodes that no quorum can do without one of
// them: nobody with a later ticket is served before it.
func (f *life) hasPlace(now time.Duration) bool {
	n := 0
	for i := range f.ballot {
		if v := &f.ballot[i]; v.inLine || v.counts(now) {
			n++
		}
	}
	return f.waits && f.staying && n > f.size()-f.quorum()
}

// keepsVotes reports whether an attempt that cannot win by the answers so far goes on with the votes it has.
//
// If nobody has a quorum, the contenders have split the nodes: the one with the oldest ticket keeps its votes, the
// others see that ticket and let go at once, and their releases wake it. If somebody has a quorum they hold the lock;
// then votes are kept only by one who was woken, because they are just being given back, node by node.
func (f *life) keepsVotes(now time.Duration) bool {
	if f.ticket == 0 || f.round <= now || !f.ballot.reachable(now, f.quorum()) {
		return false
	}
	most, older, _ := f.contest()
	live, q := f.ballot.live(now), f.quorum()
	switch {
	case !f.waits:
		// A try goes on, too, while a node has still to say who has it there: that may tell a holder from a contender.
		return most < q && (live > 0 && !older || !f.poll.waited && f.ballot.silent() > 0)
	case live == 0:
		return false
	case most >= q:
		return f.woken && f.slots == 0 && !f.several // else it may be another slot, or name, that is being given back
	}
	return !older
}

// contest looks at who refused an attempt: on how many nodes the one did that refused it on most, whether somebody before
// us did, and whether one rival has the lock, or may have it by what is known. That one is before us: a holder always
// is, but for clocks that were estimated wrongly.
//
// Of two contenders that see each other exactly one is before the other, by ticket, then by owner.
func (f *life) contest() (most int, older, taken bool) {
	type rival struct {
		nodes int
		older bool
	}
	rivals := make(map[string]rival, len(f.ballot))
	unknown := 0
	for i := range f.ballot {
		v := &f.ballot[i]
		if v.state != refused {
			if v.state == failed {
				unknown++
			}
			continue
		}
		no := v.said()
		for c := range no.eachContender {
			r := rival{}
			switch {
			case c.waiting:
				r.older = true // the node has compared
				if f.waits {
					older = true
					continue
				}
			case c.ticket == 0: // a taker, or what a taker left
				r.older = !f.waits
			default:
				r.older = c.ticket < f.ticket || c.ticket == f.ticket && c.owner < f.owner
			}
			if strings.HasPrefix(c.owner, readerMark) { // readers let each other in: to a writer they are one
				c.owner = ""
			}
			r.nodes, r.older = rivals[c.owner].nodes+1, r.older || rivals[c.owner].older
			rivals[c.owner] = r
			most, older = max(most, r.nodes), older || r.older
		}
	}
	q := f.quorum()
	for _, r := range rivals {
		taken = taken || r.nodes >= q || r.older && r.nodes+unknown >= q
	}
	return most, older, taken
}

// askLater has a try that was refused ask again in time: a push may be lost, or never come.
func (f *life) askLater(now time.Duration) {
	if f.phase == asking && f.ticket != 0 && !f.waits && f.poll.askAt == 0 {
		f.poll.askAt = now + f.poll.pause
	}
}

// askRefused asks again where a try was refused, if it is time.
func (f *life) askRefused(now time.Duration) {
	if f.phase != asking || f.poll.askAt == 0 || f.poll.askAt > now {
		return
	}
	if now+f.poll.pause >= f.round { // they could not answer in time
		f.poll.askAt = 0
		return
	}
	f.poll.pause *= 2
	f.poll.askAt = now + f.poll.pause
	if len(f.ballot)-f.ballot.silent() < f.quorum() {
		return // far nodes: who is asked again has yet to answer, and a holder would go unrecognised
	}
	f.poll.waited = true
	for i := range f.ballot {
		if v := &f.ballot[i]; !v.away && v.state == refused {
			v.due, v.state = question, pending
		}
	}
}

// askIn returns when a waiter asks again if nobody wakes it: when so many of the nodes where it is first in line are
// free by themselves that a quorum is possible, for a dead holder releases nothing; else every so often, to keep its place.
func (f *life) askIn(now time.Duration) (at, every time.Duration) {
	every = f.line.every
	var frees []time.Duration
	for i := range f.ballot {
		v := &f.ballot[i]
		no := v.said()
		for c := range no.eachContender {
			if c.waiting {
				every = f.line.behind
			}
		}
		switch {
		case v.state == granted:
			frees = append(frees, 0)
		case no.freeAt > now && (no.first || v.state == failed):
			frees = append(frees, no.freeAt+afterExpiry-now)
		}
	}
	slices.Sort(frees)
	if q := f.quorum(); len(frees) >= q && frees[q-1] > 0 {
		return frees[q-1], every
	}
	return every, every
}
