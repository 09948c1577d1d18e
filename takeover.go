package redlock

import "time"

// Taking over overwrites the lock on every node. That alone lets two run: the displaced holder does not know yet, or
// is cut off and counts on its lease. So a forced value carries every owner it displaced with the end of that owner's
// lease, in node time, the list of the value that it displaced included:
//
//	<owner>…;<displaced>@<until µs>;<displaced>@<until µs>
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
func (f *life) noteDisplaced(i int, a *answer) {
	displaced := f.rarely().displaced
	if f.takeover == noTakeover || a.Text == "" && displaced == nil {
		return
	}
	listed := displacedIn(a.Text)
	for owner, until := range listed {
		d := displaced[owner]
		if d == nil {
			d = &displacement{on: make(map[int]time.Duration)}
			if displaced == nil {
				displaced = make(map[string]*displacement)
				f.own().displaced = displaced
			}
			displaced[owner] = d
		}
		if d.on[i] == until {
			continue // counted once: a list that goes on naming it must not put its end off
		}
		d.on[i] = until
		f.out.displaced = append(f.out.displaced, owner)
		d.until = max(d.until, a.At+goneAfter(max(0, until-a.Offset.Lo-a.At), f.drift, f.bound))
	}
	for owner, d := range displaced {
		_, still := listed[owner]
		until, was := d.on[i]
		switch {
		case !was || still:
		case !a.Kept:
			delete(d.on, i) // the list is gone with the value that carried it, and tells nothing from now on
		case a.Offset.Hi+a.At < until:
			d.ended = true
		}
	}
}

// decideCleared looks whether every displaced holder has ended or run out.
func (f *life) decideCleared(now time.Duration) {
	waited := false
	wakeAt := time.Duration(0)
	for _, d := range f.rarely().displaced {
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
		f.round = wakeAt
	case !waited:
		f.hold(now)
	default:
		// A lease was waited out, not acknowledged: what our votes said may be as old as that. Ask them again.
		f.phase, f.own().confirmed, f.round = confirming, now, now+f.timeout
		for i := range f.ballot {
			f.ballot[i].due = question
		}
	}
}

// decideConfirmed looks whether a quorum was renewed after the wait.
func (f *life) decideConfirmed(now time.Duration) {
	confirmed, open := 0, 0
	for i := range f.ballot {
		switch v := &f.ballot[i]; {
		case v.counts(now) && v.renewedAt >= f.rarely().confirmed:
			confirmed++
		case v.away || v.due == question:
			open++
		}
	}
	switch q := f.quorum(); {
	case confirmed >= q:
		f.hold(now)
	case confirmed+open < q:
		f.end(f.loss(now, false), now)
	}
}
