package redlock

import (
	"strconv"
	"strings"
	"time"
)

// Taking over overwrites the lock on every node. That alone lets two run: the displaced holder does not know yet, or
// is cut off and counts on its lease. So a forced value carries every owner it displaced with the end of that owner's
// lease, in node time, the list of the value that it displaced included:
//
//	<owner>[#<ticket>];<displaced>@<until µs>;<displaced>@<until µs>
//
// A displaced holder that finds itself listed ends its guard. The release that follows every end strikes its entry
// out wherever it stands, which pushes the taker. The taker returns once each owner it displaced has been struck out
// on some node or its lease has run out. See docs/safety.md, "Takeover".

// takeover is whether and how an attempt takes the lock from whoever holds it.
type takeover uint8

const (
	noTakeover     takeover = iota
	takeoverSafely          // and waits until the displaced holders have ended
	takeoverNow             // and does not: the fencing token must do
)

// tombstone is the owner of a value that keeps a lock free for displaced holders after their taker has gone.
const tombstone = "~"

// ownerOf returns the owner in a lock's value.
func ownerOf(value string) string {
	if end := strings.IndexAny(value, ";#"); end >= 0 {
		return value[:end]
	}
	return value
}

// ticketOf returns since when the owner in a lock's value had waited for it, 0 if it had not.
func ticketOf(value string) uint64 {
	claim, _, _ := strings.Cut(value, ";")
	_, ticket, _ := strings.Cut(claim, "#")
	n, _ := strconv.ParseUint(ticket, 10, 64)
	return n
}

// displacedIn returns the owners listed in a lock's value, with the end of each one's lease there in node time.
func displacedIn(value string) map[string]time.Duration {
	var listed map[string]time.Duration
	for i, entry := range strings.Split(value, ";") {
		owner, until, ok := strings.Cut(entry, "@")
		micros, err := strconv.ParseInt(until, 10, 64)
		if i == 0 || !ok || err != nil {
			continue
		}
		if listed == nil {
			listed = make(map[string]time.Duration)
		}
		listed[owner] = time.Duration(micros) * time.Microsecond
	}
	return listed
}

// displacement is what a taker knows of one holder that it displaced.
type displacement struct {
	until time.Duration         // its leases have run out by then
	ended bool                  // it was struck out: its guard has ended
	on    map[int]time.Duration // nodes whose list had it, with the end of its lease there in node time
}

// noteDisplaced takes the list that node i's yes carried.
//
// An owner that was listed there and is not any more was struck out by its own release, which is sent only after its
// guard has ended, or its entry was dropped by somebody else because it had run out there. So absence means "ended" only
// while the node's own clock says that the entry had not run out; and only where the value was ours already: one that is
// granted anew, after somebody deleted the key, comes with no list at all.
func (g *Guard) noteDisplaced(i int, a answer) {
	if g.takeover != takeoverSafely || a.text == "" && g.displaced == nil {
		return
	}
	o := g.l.option
	listed := displacedIn(a.text)
	for owner, until := range listed {
		d := g.displaced[owner]
		if d == nil {
			d = &displacement{on: make(map[int]time.Duration)}
			if g.displaced == nil {
				g.displaced = make(map[string]*displacement)
			}
			g.displaced[owner] = d
			g.l.background.Go(func() { g.l.endLocally(g, owner) })
		}
		if d.on[i] == until {
			continue // counted once: a list that goes on naming it must not put its end off
		}
		d.on[i] = until
		d.until = max(d.until, a.at+goneAfter(max(0, until-a.offset.lo-a.at), o.DriftFactor, o.ClockBound))
	}
	for owner, d := range g.displaced {
		_, still := listed[owner]
		until, was := d.on[i]
		switch {
		case !was || still:
		case !a.kept:
			delete(d.on, i) // the list is gone with the value that carried it, and tells nothing from now on
		case a.offset.hi+a.at < until:
			d.ended = true
		}
	}
}

// decideCleared looks whether every displaced holder has ended or run out.
func (g *Guard) decideCleared(now time.Duration) {
	waited := false
	wakeAt := time.Duration(0)
	for _, d := range g.displaced {
		switch {
		case d.ended:
		case d.until <= now:
			waited = true
		case wakeAt == 0 || d.until < wakeAt:
			wakeAt = d.until
		}
	}
	switch {
	case wakeAt != 0:
		g.round = wakeAt
		g.rearm(now)
	case !waited:
		g.hold(now)
	default:
		// A lease was waited out, not acknowledged: what our votes said may be as old as that. Ask them again.
		g.phase, g.confirmed, g.round = confirming, now, now+g.l.option.NodeTimeout
		for i := range g.claims {
			g.claims[i].look = true
			g.next(i, now)
		}
		g.rearm(now)
	}
}

// decideConfirmed looks whether a quorum was renewed after the wait.
func (g *Guard) decideConfirmed(now time.Duration) {
	confirmed, open := 0, 0
	for i, v := range g.ballot {
		switch c := &g.claims[i]; {
		case v.counts(now) && c.renewedAt >= g.confirmed:
			confirmed++
		case c.busy || c.look:
			open++
		}
	}
	switch q := g.ballot.quorum(); {
	case confirmed >= q:
		g.hold(now)
	case confirmed+open < q:
		g.finish(now, g.loss(now, false))
	}
}

// endLocally ends a displaced guard of this same Locker: it is not pushed what its own connection wrote.
func (l *Locker) endLocally(taker *Guard, owner string) {
	for _, g := range l.guardsOf(taker.name) {
		if g == taker || g.owner != owner {
			continue
		}
		if !g.takenOver() {
			continue // it may still win: its end will be told like anybody's
		}
		taker.mu.Lock()
		now := l.clock.now()
		taker.displaced[owner].ended = true
		taker.decide(now)
		taker.settle(now)
		taker.mu.Unlock()
	}
}

// tellTakers has the takers of this same Locker look at node i, where the release of g came after they did.
func (l *Locker) tellTakers(g *Guard, i int) {
	for _, other := range l.guardsOf(g.name) {
		if other != g && other.takeover == takeoverSafely {
			other.pushed(i)
		}
	}
}

// takenOver ends a guard that a takeover displaced, and reports whether it has ended. A taker that has not won yet goes
// on: takers do not end each other.
func (g *Guard) takenOver() (ended bool) {
	g.mu.Lock()
	defer g.mu.Unlock()
	waiting := (g.phase == asking || g.phase == raising) && g.takeover != noTakeover
	if g.phase != over && !waiting {
		now := g.l.clock.now()
		g.finish(now, g.loss(now, true))
	}
	return g.phase == over
}
