package redlock

import (
	"fmt"
	"time"
)

// watch is what a life knows of its risk. It looks out for it only where somebody has asked for that.
type watch struct {
	risk  risk
	asked time.Duration // when somebody who has asked for the lock takes it over; 0: nobody has
	why   error         // nil: it is well
}

// risk is what may end a lock before long.
type risk uint8

const (
	well       risk = iota
	hanging         // one more vote that goes ends it, and there are nodes to spare
	runningOut      // no renewal has come through for too long
	nearlyOver      // it is to end, whatever its votes say
)

// lookOut notes whether a held lock is at risk, and orders that to be told if it has changed.
func (f *life) lookOut(now time.Duration) {
	if f.watch == nil || f.phase != held {
		return
	}
	w := f.watch
	was := *w
	if w.risk, w.asked = f.riskAt(now), f.askedUntil(now); w.risk == was.risk && w.asked == was.asked {
		return
	}
	f.out.risked = true
	w.why = f.whyAtRisk(now)
}

// whyAtRisk says what puts a held lock at risk, nil where nothing does.
func (f *life) whyAtRisk(now time.Duration) error {
	var why error
	switch left := rounded(f.validUntil() - now); f.watch.risk {
	case hanging:
		why = fmt.Errorf("%w, it hangs by one vote", ErrAtRisk)
	case runningOut:
		why = fmt.Errorf("%w, it ends in %v unless it is renewed", ErrAtRisk, left)
	case nearlyOver:
		why = fmt.Errorf("%w, it has been held for nearly as long as it may be and ends in %v", ErrAtRisk, left)
	}
	if f.watch.asked != 0 {
		asked := fmt.Errorf("%w, it is taken over in %v unless it is released", ErrAskedFor, rounded(max(0, f.watch.asked-now)))
		if why == nil {
			why = asked
		} else {
			why = fmt.Errorf("%w; %w", asked, why)
		}
	}
	if why == nil {
		return nil
	}
	return f.report(now, why)
}

// riskAt returns the gravest risk of a held lock.
func (f *life) riskAt(now time.Duration) risk {
	margin := f.margin()
	if f.limit != 0 && f.limit-now <= f.warning() {
		return nearlyOver
	}
	if until := f.standsUntil(); (f.limit == 0 || until < f.limit) && until-now <= margin {
		return runningOut
	}
	coming := 0 // votes that were not waited for, and may still be a yes
	for i := range f.ballot {
		if v := &f.ballot[i]; v.state == pending && v.away {
			coming++
		}
	}
	if q := f.quorum(); q < f.voters() && f.ballot.live(now)+coming <= q {
		return hanging
	}
	return well
}

// margin is how much validity must be left: half of what a lease counts for, but less where a renewal that is not late
// leaves less.
func (r *rules) margin() time.Duration {
	counted := r.claimUntil(0)
	return min(counted/2, counted-r.interval-r.timeout)
}

// warning is how long before its limit a lock is at risk.
func (f *life) warning() time.Duration { return min(f.margin(), (f.limit-f.heldAt)/4) }

// riskDue returns when a held lock that is watched may be at risk by the passing of time alone.
func (f *life) riskDue(now time.Duration) time.Duration {
	due := []time.Duration{f.standsUntil() - f.margin()}
	if f.limit != 0 {
		due = append(due, f.limit-f.warning())
	}
	for i := range f.ballot {
		if v := &f.ballot[i]; v.counts(now) {
			due = append(due, v.until)
		}
	}
	for _, k := range f.rarely().askers {
		due = append(due, k.until+f.timeout)
	}
	next := time.Duration(0)
	for _, at := range due {
		if at > now && (next == 0 || at < next) {
			next = at
		}
	}
	return next
}
