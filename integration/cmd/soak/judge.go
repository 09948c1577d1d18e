package main

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/redlock-go/redlock/integration/check"
)

// verdict is what a run comes to.
type verdict struct {
	acquired, released      int
	takeovers, takeoversNow int
	failures                map[string]int // calls that got no lock, by kind of error
	lost                    map[string]int // guards that ended by themselves, by cause
	processesKilled         int            // guards that were held by a process when it was killed
	writes, refused         int
	refusedLooked           int // of the refused, those whose writer had just seen Err()==nil
	overlaps, staleAccepted int
	tokensOut               int
	slotsTaken, slotsAtOnce int   // guards of the semaphore, and the most of them that were seen alive at one instant
	reads, readsAtOnce      int   // guards that read, and the most of them that were seen alive at one instant
	byClock, byTakeover     worst // time from loss to context end
	unavailable, afterOut   worst // beyond one lease
	longestCall             worst
	violations              []string
	faults                  map[string]int
}

// worst is the largest of some durations, and where it was.
type worst struct {
	seen  int
	most  time.Duration
	where string
}

func (w *worst) add(d time.Duration, where string) {
	if w.seen++; w.seen == 1 || d > w.most {
		w.most, w.where = d, where
	}
}

func (w *worst) String() string {
	if w.seen == 0 {
		return "none seen"
	}
	return fmt.Sprintf("%v (of %d)", w.most.Round(100*time.Microsecond), w.seen)
}

func (v *verdict) violation(format string, args ...any) {
	v.violations = append(v.violations, fmt.Sprintf(format, args...))
}

// slack is what a call may take beyond its own bound on a machine that is busy with other things.
const slack = 5 * time.Second

// judge looks at everything that was recorded. Nothing may be recorded any more.
func judge(r *recorder, lease time.Duration) *verdict {
	v := &verdict{failures: make(map[string]int), lost: make(map[string]int), faults: r.faults}
	v.violations = slices.Clone(r.deaths)
	for _, g := range r.order {
		v.count(g, r)
	}
	v.judgeGuards(r)
	v.judgeTokens(r.order)
	v.judgeSlots(r.order)
	v.judgeReaders(r.order)
	v.judgeWrites(r)
	v.measureTakeovers(r)
	v.measureAvailability(r, lease)
	return v
}

// documented is what a call may come to, by the package's documentation, while the Locker is open and nobody
// misconfigures a node.
var documented = map[way][]string{
	acquire:  {"DeadlineExceeded", "ErrNoQuorum"},
	try:      {"DeadlineExceeded", "ErrNoQuorum", "ErrNotLocked"},
	force:    {"DeadlineExceeded", "ErrNoQuorum", "ErrNotLocked", "ErrTakenOver"},
	forceNow: {"DeadlineExceeded", "ErrNoQuorum", "ErrNotLocked", "ErrTakenOver"},

	read:       {"DeadlineExceeded", "ErrNoQuorum"},
	writing:    {"DeadlineExceeded", "ErrNoQuorum"},
	tryToRead:  {"DeadlineExceeded", "ErrNoQuorum", "ErrNotLocked"},
	tryToWrite: {"DeadlineExceeded", "ErrNoQuorum", "ErrNotLocked"},
}

// count counts one call and its guard.
func (v *verdict) count(g *record, r *recorder) {
	switch {
	case g.failed != "":
		v.failures[g.failed]++
		if !slices.Contains(documented[g.way], g.failed) {
			v.violation("undocumented error of %s of %s by %s: %s", g.way, g.lock, g.id, g.text)
		}
	case !g.held && g.lost == 0:
		v.violation("hang: %s of %s by %s has not returned", g.way, g.lock, g.id)
	}
	if g.returned != 0 {
		took := g.returned.sub(g.asked)
		for _, w := range r.windows {
			if w.stopped && w.process == nameOf(g.process) {
				took -= covered(g.asked, g.returned, w.from, w.to)
			}
		}
		v.longestCall.add(took-time.Duration(g.bound), g.id)
		if took > time.Duration(g.bound)+slack {
			v.violation("hang: %s of %s by %s took %v, its context ended after %v", g.way, g.lock, g.id, took, time.Duration(g.bound))
		}
	}
	if !g.held {
		return
	}
	v.acquired++
	switch g.way {
	case force:
		v.takeovers++
	case forceNow:
		v.takeoversNow++
	}
	switch {
	case !g.over && g.lost != 0:
		v.processesKilled++
	case !g.over:
		v.violation("hang: %s by %s was not released", g.lock, g.id)
	case g.life.Cause == "ErrReleased":
		v.released++
	default:
		v.lost[g.life.Cause]++
		v.measureLoss(g, r)
	}
	if g.life.Revived != 0 {
		v.violation("finality: %s by %s was alive again after it was seen dead", g.lock, g.id)
	}
	if g.over && g.life.ReleaseTook > slack {
		if took := r.withoutStops(g, g.life.ReleasedAt, g.life.ReleaseTook); took > slack {
			v.violation("hang: release of %s by %s took %v", g.lock, g.id, took)
		}
	}
	if g.life.LiveRefused != 0 && g.lock != nowLock {
		v.violation("fencing: the write of %s by %s was refused while its guard was alive, before and after", g.lock, g.id)
	}
}

// withoutStops returns how much of a call's time its process was not stopped.
func (r *recorder) withoutStops(g *record, from instant, took time.Duration) time.Duration {
	for _, w := range r.windows {
		if w.stopped && w.process == nameOf(g.process) {
			took -= covered(from, from.add(took), w.from, w.to)
		}
	}
	return took
}

// nameOf returns the process of process.life.
func nameOf(id string) string {
	name, _, _ := strings.Cut(id, ".")
	return name
}

// covered returns how long two stretches of time overlap.
func covered(a, b, from, to instant) time.Duration {
	return max(0, min(b, to).sub(max(a, from)))
}

// measureLoss measures how late a context ended whose guard had run out: counted from then, or from when its process
// ran again.
func (v *verdict) measureLoss(g *record, r *recorder) {
	l := g.life
	if l.Cause != "ErrLost" || !l.Quiet || l.Done == 0 || l.ValidUntil == 0 {
		return
	}
	lostAt := l.ValidUntil
	for _, w := range r.windows {
		if w.stopped && w.process == nameOf(g.process) && w.from <= lostAt && lostAt < w.to {
			lostAt = w.to
		}
	}
	if l.Done < lostAt { // not by the clock: its votes were refused
		return
	}
	v.byClock.add(l.Done.sub(lostAt), g.id)
}

// batch is how many guards of one lock are judged at a time. Every part of a lock's history is the history of a lock,
// so no long one is needed, and porcupine's memory grows with the square.
const batch = 400

// judgeGuards has package check judge the guards: exclusion, tokens, and porcupine's opinion.
func (v *verdict) judgeGuards(r *recorder) {
	byLock := make(map[string][]check.Hold)
	for _, g := range r.order {
		if g.held && g.life.First != 0 { // one that was never seen alive excludes nobody
			byLock[g.lock] = append(byLock[g.lock], g.hold())
		}
	}
	seen := make(map[string]bool)
	for _, holds := range byLock {
		slices.SortFunc(holds, func(a, b check.Hold) int { return a.Returned.Compare(b.Returned) })
		for from := 0; from < len(holds); from += batch - batch/8 {
			for _, broken := range check.Judge(holds[from:min(from+batch, len(holds))]) {
				if seen[broken] {
					continue
				}
				seen[broken] = true
				switch {
				case strings.HasPrefix(broken, "exclusion:"):
					v.overlaps++
				case strings.HasPrefix(broken, "fencing:"):
					continue // counted below, over all
				}
				v.violations = append(v.violations, broken)
			}
		}
	}
}

// hold is a guard as package check knows it.
func (g *record) hold() check.Hold {
	date := func(i instant) time.Time {
		if i == 0 {
			return time.Time{}
		}
		return time.Unix(0, int64(i))
	}
	h := check.Hold{
		Lock: g.lock, Client: g.id, Token: g.token, Invoked: date(g.asked), Returned: date(g.returned),
		First: date(g.life.First), Last: date(g.life.Last), LetGo: date(g.life.ReleasedAt), Ended: date(g.life.Ended),
		MayOverlap: g.lock == nowLock,
	}
	if g.life.Cause != "" {
		h.Cause = fmt.Errorf("%s", g.life.Text)
	}
	for _, c := range g.life.Checks {
		h.Checks = append(h.Checks, check.Check{From: date(c[0]), To: date(c[1])})
	}
	return h
}

// judgeTokens sees to it that tokens are all different, and that who asked after another had got the lock has the
// larger one. That holds for takeovers too.
func (v *verdict) judgeTokens(order []*record) {
	byLock := make(map[string][]*record)
	for _, g := range order {
		if g.held {
			byLock[g.lock] = append(byLock[g.lock], g)
		}
	}
	for _, guards := range byLock {
		owner := make(map[uint64]string)
		for _, g := range guards {
			if other := owner[g.token]; other != "" {
				v.tokensOut++
				v.violation("fencing: %s and %s both have token %d of %s", other, g.id, g.token, g.lock)
			}
			owner[g.token] = g.id
		}
		byReturn := slices.SortedFunc(slices.Values(guards), func(a, b *record) int { return cmp.Compare(a.returned, b.returned) })
		byAsk := slices.SortedFunc(slices.Values(guards), func(a, b *record) int { return cmp.Compare(a.asked, b.asked) })
		var largest *record // of those that had returned
		next := 0
		for _, g := range byAsk {
			for ; next < len(byReturn) && byReturn[next].returned < g.asked; next++ {
				if largest == nil || byReturn[next].token > largest.token {
					largest = byReturn[next]
				}
			}
			if largest != nil && largest.token > g.token {
				v.tokensOut++
				v.violation("fencing: %s asked for %s after %s had got it, and has token %d after %d", g.id, g.lock, largest.id, g.token, largest.token)
			}
		}
	}
}

// step is where a guard begins or ends to be seen alive.
type step struct {
	at    instant
	alive int // +1: seen alive from here on; -1: last seen alive
	guard *record
}

func (g *record) addSteps(steps []step) []step {
	if g.life.First == 0 || g.life.First >= g.life.Last {
		return steps
	}
	return append(steps, step{g.life.First, +1, g}, step{g.life.Last, -1, g})
}

// inOrder sorts steps; of those at one instant an end comes before a beginning.
func inOrder(steps []step) []step {
	slices.SortFunc(steps, func(a, b step) int { return cmp.Or(cmp.Compare(a.at, b.at), cmp.Compare(a.alive, b.alive)) })
	return steps
}

// judgeReaders sees to it that nobody reads and writes at once, and that a token of either side is larger than that of whoever
// of the other side had returned before it was asked for. Two who write are judged as with locks.
func (v *verdict) judgeReaders(order []*record) {
	var steps []step
	var sides [2][]*record // who reads, who writes
	for _, g := range order {
		if g.lock != shelf && !g.way.reads() || !g.held {
			continue
		}
		side := 1
		if g.way.reads() {
			side = 0
			v.reads++
		}
		sides[side] = append(sides[side], g)
		steps = g.addSteps(steps)
	}
	reading, writes := make(map[*record]bool), make(map[*record]bool)
	for _, s := range inOrder(steps) {
		mine, others := writes, reading
		if s.guard.way.reads() {
			mine, others = reading, writes
		}
		if s.alive < 0 {
			delete(mine, s.guard)
			continue
		}
		mine[s.guard] = true
		v.readsAtOnce = max(v.readsAtOnce, len(reading))
		for other := range others {
			v.overlaps++
			v.violation("readers: %s (%s) was alive at %v beside %s (%s)", s.guard.id, s.guard.way, time.Duration(s.at), other.id, other.way)
		}
	}
	for side, guards := range sides {
		before := slices.SortedFunc(slices.Values(sides[1-side]), func(a, b *record) int { return cmp.Compare(a.returned, b.returned) })
		slices.SortFunc(guards, func(a, b *record) int { return cmp.Compare(a.asked, b.asked) })
		var largest *record
		for _, g := range guards {
			for ; len(before) > 0 && before[0].returned < g.asked; before = before[1:] {
				if largest == nil || before[0].token > largest.token {
					largest = before[0]
				}
			}
			if largest != nil && largest.token >= g.token {
				v.tokensOut++
				v.violation("fencing: %s (%s) asked after %s (%s) had got it, and has token %d after %d", g.id, g.way, largest.id, largest.way, g.token, largest.token)
			}
		}
	}
}

// judgeSlots sees to it that no more guards of the semaphore are alive at once than it has slots. That no two have the same slot
// is judged as with locks; this does not look at slots.
func (v *verdict) judgeSlots(order []*record) {
	var steps []step
	for _, g := range order {
		if !strings.HasPrefix(g.lock, pool+"/") || !g.held {
			continue
		}
		v.slotsTaken++
		if g.slot < 1 || g.slot > poolSlots {
			v.violation("semaphore: %s has slot %d of %d", g.id, g.slot, poolSlots)
		}
		steps = g.addSteps(steps)
	}
	alive := 0
	for _, s := range inOrder(steps) {
		if alive += s.alive; alive > v.slotsAtOnce {
			if v.slotsAtOnce = alive; alive > poolSlots {
				v.violation("semaphore: %d guards of %d slots were alive at %v", alive, poolSlots, time.Duration(s.at))
			}
		}
	}
}

// later reports whether b was surely granted after a: asked for after a was got, or seen alive after a was last seen
// so and before a was released, by a lock that only one can hold.
func later(a, b *record) bool {
	if b.asked > a.returned {
		return true
	}
	return a.lock != nowLock && a.life.First != 0 && b.life.First != 0 && b.life.First > a.life.Last
}

// judgeWrites looks for a write that was accepted after one of a later holder, which is what the fence is for. It does
// not look at the tokens: they are judged by this.
func (v *verdict) judgeWrites(r *recorder) {
	type seen struct {
		latest *record // the accepted writer that was granted last
	}
	locks := make(map[string]*seen)
	for _, w := range r.writes {
		v.writes++
		if !w.accepted {
			v.refused++
			if w.alive {
				v.refusedLooked++
			}
			continue
		}
		s, g := locks[w.lock], r.guards[w.guard]
		if s == nil {
			s = &seen{}
			locks[w.lock] = s
		}
		switch {
		case s.latest == nil || s.latest == g:
			s.latest = g
		case later(g, s.latest) && !later(s.latest, g):
			v.staleAccepted++
			v.violation("register: a stale write to %s by %s (token %d) was accepted after one by %s (token %d), a later holder", w.lock, g.id, g.token, s.latest.id, s.latest.token)
		default:
			s.latest = g
		}
	}
}

// measureTakeovers measures how long after a takeover was asked for the displaced holder's context had ended.
func (v *verdict) measureTakeovers(r *recorder) {
	byLock := make(map[string][]*record)
	for _, g := range r.order {
		if g.held {
			byLock[g.lock] = append(byLock[g.lock], g)
		}
	}
	for _, guards := range byLock {
		slices.SortFunc(guards, func(a, b *record) int { return cmp.Compare(a.token, b.token) })
		for i, g := range guards {
			if g.life.Cause != "ErrTakenOver" || g.life.Done == 0 || i+1 == len(guards) {
				continue
			}
			taker := guards[i+1]
			if taker.way != force && taker.way != forceNow || g.life.Done < taker.asked {
				continue // by a taker that gave up, or was killed
			}
			from := max(taker.asked, g.returned)
			v.byTakeover.add(r.withoutStops(g, from, g.life.Done.sub(from)), g.id)
		}
	}
}

// measureAvailability measures how long somebody waited for a lock that nobody held, and was not out of reach
// themselves.
func (v *verdict) measureAvailability(r *recorder, lease time.Duration) {
	held, waits := make(map[string][]*record), make(map[string][]*record)
	for _, g := range r.order {
		if g.held && g.life.First != 0 {
			held[g.lock] = append(held[g.lock], g)
		}
		if g.way == acquire && g.returned != 0 {
			waits[g.lock] = append(waits[g.lock], g)
		}
	}
	for lock, guards := range held {
		slices.SortFunc(guards, func(a, b *record) int { return cmp.Compare(a.life.First, b.life.First) })
		free := instant(0)
		for _, g := range guards {
			if free != 0 && g.life.First > free {
				longest, from := r.longestWait(waits[lock], free, g.life.First)
				where := fmt.Sprintf("%s free from %v to %v, then %s; waited for since %v", lock, time.Duration(free), time.Duration(g.life.First), g.id, time.Duration(from))
				switch out := r.lastOutage(free, g.life.First, lease); {
				case longest == 0: // nobody who could be served wanted it
				case out != 0:
					v.afterOut.add(min(longest, max(0, g.life.First.sub(max(out, from))))-lease, where)
				default:
					v.unavailable.add(longest-lease, where)
				}
			}
			free = max(free, g.life.Last)
		}
	}
}

// lastOutage returns when the last phase without a majority ended that a stretch of time has to do with, 0 for none.
// What happened in a phase has consequences for a lease.
func (r *recorder) lastOutage(from, to instant, lease time.Duration) (end instant) {
	for _, w := range r.windows {
		if w.process == "" && w.from < to && w.to.add(2*lease) > from {
			end = max(end, w.to)
		}
	}
	return end
}

// longestWait returns the longest stretch between from and to in which somebody waited whose process and network were
// whole.
func (r *recorder) longestWait(waits []*record, from, to instant) (longest time.Duration, since instant) {
	type stretch struct{ from, to instant }
	var waited []stretch
	for _, g := range waits {
		parts := []stretch{{max(g.asked, from), min(g.returned, to)}}
		for _, w := range r.windows {
			if w.process != nameOf(g.process) {
				continue
			}
			var left []stretch
			for _, p := range parts {
				if w.to <= p.from || p.to <= w.from {
					left = append(left, p)
					continue
				}
				left = append(left, stretch{p.from, w.from}, stretch{w.to, p.to})
			}
			parts = left
		}
		for _, p := range parts {
			if p.from < p.to {
				waited = append(waited, p)
			}
		}
	}
	slices.SortFunc(waited, func(a, b stretch) int { return cmp.Compare(a.from, b.from) })
	var run stretch
	for _, p := range waited {
		if run.to == 0 || p.from > run.to {
			run = p
		}
		run.to = max(run.to, p.to)
		if d := run.to.sub(run.from); d > longest {
			longest, since = d, run.from
		}
	}
	return longest, since
}
