package redlock_test

import (
	"errors"
	"time"

	"github.com/redlock-go/redlock"
)

// Some calls of the simulation give their lock options of its own, drawn from a stream of their own. What follows from
// those is judged here; exclusion, continuity and tokens are what they are without.

// terms are the options of one lock, as far as something follows from them; 0 is not given.
type terms struct{ fixed, atMost, atLeast time.Duration }

// ends returns how long after its grant a lock has ended by itself; 0 is never.
func (t terms) ends() time.Duration {
	if t.fixed != 0 && (t.atMost == 0 || t.fixed < t.atMost) {
		return t.fixed
	}
	return t.atMost
}

// options draws the options of a call. Who waits keeps nothing for longer: one after the other would take more time than a
// wait may. Nobody keeps a lock for longer than the longest lease, which is what all else here reckons with.
func (a *actor) options(ask *asked) (options []redlock.HoldOption) {
	s, r := a.sim, a.opts
	if !chance(r, s.profile.holds) {
		return nil
	}
	lease := a.host.option.KeyValidity
	own := (lease * time.Duration(60+r.IntN(41)) / 100).Truncate(time.Millisecond)
	what := ""
	switch p := r.Float64(); {
	case p < .2:
		what, options = "Lease", append(options, redlock.Lease(own))
	case p < .4:
		ask.terms.fixed = own
		what, options = "FixedLease", append(options, redlock.FixedLease(own))
	case p < .6:
		ask.terms.atMost = time.Millisecond + upTo(r, 2*lease)
		what, options = "AtMost", append(options, redlock.AtMost(ask.terms.atMost))
	case !ask.waits:
		ask.terms.atLeast = time.Millisecond + upTo(r, s.longest-time.Millisecond)
		what, options = "AtLeast", append(options, redlock.AtLeast(ask.terms.atLeast))
	}
	if ask.call == "ForceAcquire" && chance(r, .7) {
		what, options = what+" Grace", append(options, redlock.Grace(time.Millisecond+upTo(r, 2*lease)))
	}
	s.note(a.host.name, ask.name, "options", what)
	return options
}

// letsGo reports whether a holder that minds it is asked to let go.
func (l *life) letsGo() bool {
	_, why := l.guard.Risk()
	return errors.Is(why, redlock.ErrAskedFor)
}

// judgeKept looks whether a lock was granted that is kept for another. Takers get past that, what they leave behind is not
// kept, and so it is with what a node has forgotten. A node counts from when it was asked, by its own clock.
func (s *sim) judgeKept(h *lockHistory, l *life) {
	now := time.Since(s.start)
	for _, o := range h.lives {
		d := o.terms.atLeast
		if d == 0 || !s.exclusive(l.name) || o.began <= s.forgotAt || o.began <= h.forcedAt+4*s.longest {
			continue
		}
		if until := o.began + d - d/10 - 2*s.bound; now < until {
			s.violated(l.host.name, l.name, "kept", "guard %d is granted %v before the %v of guard %d are over", l.id, until-now, d, o.id)
		}
	}
}

// judgeTerm looks whether a guard that is alive has to have ended.
func (s *sim) judgeTerm(l *life) {
	if d := l.terms.ends(); d != 0 && !s.profile.outside && time.Since(s.start) > l.at+d {
		s.violated(l.host.name, l.name, "term", "guard %d is alive %v after it was granted for %v", l.id, time.Since(s.start)-l.at, d)
	}
}
