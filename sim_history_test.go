package redlock_test

import (
	"context"
	"errors"
	"fmt"
	"hash/fnv"
	"slices"
	"strings"
	"time"

	"github.com/redlock-go/redlock"
	"github.com/redlock-go/redlock/internal/node"
	"github.com/redlock-go/redlock/redlocktest"
)

// The history of a run, and what must be true of it. Everything is judged at the instant at which it happens; the
// order of what happens at one instant is the order in which it was written down.

// life is one guard, from the call that asked for it.
type life struct {
	id         int
	host       *simHost
	from       *simLocker
	locker     *redlock.Locker
	name, call string
	invoked    int // place in the history
	returned   int
	token      uint64
	guard      *redlock.Guard
	err        func() error // the guard's own, or its context's
	waits      bool
	began, at  time.Duration
	parent     context.Context // the trio's or Do's; nil for others
	released   bool            // Release was called
	terms      terms
	group      []*life // of several names: those of one guard
	cause      error
	ended      time.Duration
	acted      bool
	actedAt    int // of a reader-writer lock: when
}

// asked is a call for a lock that has not returned yet.
type asked struct {
	invoked  int
	began    time.Duration
	host     *simHost
	from     *simLocker
	call     string
	name     string
	waits    bool
	takeover bool
	terms    terms
	over     time.Duration // when it came to nothing
}

// lockHistory is what happened to one name.
type lockHistory struct {
	lives     []*life
	live      []*life // not known to have ended
	last      *life   // who acted last
	lastToken uint64  // largest token of an actor
	actedAt   int     // of a reader-writer lock: when anybody last acted
	takeovers int
	forcedAt  time.Duration // when a takeover last began, or came back
	refused   []*asked      // by a crowd's nodes in calm
	// The resource that checks tokens.
	stored uint64
	newest int // the latest invocation among those whose writes it took
}

// event is a line of the history.
type event struct {
	at         time.Duration
	host, name string
	what, text string
}

func (e event) String() string {
	return fmt.Sprintf("%14v %-6s %-5s %-9s %s", e.at, e.host, e.name, e.what, e.text)
}

// note writes a line down. Its place in the history is returned.
func (s *sim) note(host, name, what, text string) int {
	s.eventsMu.Lock()
	defer s.eventsMu.Unlock()
	s.events = append(s.events, event{time.Since(s.start), host, name, what, text})
	return len(s.events)
}

// violated notes a broken promise. The first is reported.
func (s *sim) violated(host, name, check, format string, args ...any) {
	text := fmt.Sprintf(format, args...)
	at := s.note(host, name, "VIOLATED", check+": "+text)
	if s.violation == nil {
		s.violation = &violation{check: check, text: text, name: name, at: at}
		close(s.broken)
	}
}

type violation struct {
	check, text, name string
	at                int
}

// invoke writes down that a call begins.
func (s *sim) invoke(from *simLocker, name, call string, waits, takeover bool) *asked {
	s.mu.Lock()
	defer s.mu.Unlock()
	a := &asked{began: time.Since(s.start), host: from.host, from: from, call: call, name: name, waits: waits, takeover: takeover}
	a.invoked = s.note(a.host.name, name, "ask", call)
	s.open = append(s.open, a)
	for n, h := range s.locks {
		if takeover && askedName(n) == name {
			h.takeovers++
		}
	}
	s.forced(a)
	return a
}

// forced notes that a call is under way that may be a takeover.
func (s *sim) forced(a *asked) {
	if a.takeover {
		s.locks[a.name].forcedAt = time.Since(s.start)
	}
}

// failed writes down that a call came to nothing, and judges why.
func (s *sim) failed(a *asked, from *simLocker, locker *redlock.Locker, ctx context.Context, err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.open = slices.DeleteFunc(s.open, func(o *asked) bool { return o == a })
	s.note(a.host.name, a.name, "refused", fmt.Sprintf("%s: %v", a.call, err))
	s.refusals++
	s.forced(a)
	if a.over = time.Since(s.start); s.profile.crowd && a.began > 3*s.longest && a.over < s.calm { // a brand-new set is quarantined once
		s.locks[a.name].refused = append(s.locks[a.name].refused, a)
	}
	notLocked, noQuorum := errors.Is(err, redlock.ErrNotLocked), errors.Is(err, redlock.ErrNoQuorum)
	switch {
	case errors.Is(err, redlock.ErrLockerClosed):
		if !from.wasClosed(locker) && !s.over {
			s.violated(a.host.name, a.name, "cause", "%s ended with %v, but nobody closed the Locker", a.call, err)
		}
	case errors.Is(err, context.Canceled), errors.Is(err, context.DeadlineExceeded):
		if ctx.Err() == nil {
			s.violated(a.host.name, a.name, "cause", "%s ended with %v, but its context has not", a.call, err)
		}
	case notLocked && noQuorum:
		s.violated(a.host.name, a.name, "cause", "%s: %v matches ErrNotLocked and ErrNoQuorum", a.call, err)
	case noQuorum:
		from.noteUnserved()
		steady := s.profile.steady && a.waits && from.listsAll(locker)
		if (s.profile.majority || steady) && time.Since(s.start) > 2*s.longest { // a brand-new set is quarantined once
			s.violated(a.host.name, a.name, "minority", "%s: %v although only a minority is ill", a.call, err)
		}
	case notLocked:
		if a.waits {
			s.violated(a.host.name, a.name, "cause", "%s waits, but came back with %v", a.call, err)
		}
	case errors.Is(err, redlock.ErrLost):
		if !a.takeover {
			s.violated(a.host.name, a.name, "cause", "%s was never held, but came back with %v", a.call, err)
		}
	default:
		s.violated(a.host.name, a.name, "cause", "%s: unexpected error %v", a.call, err)
	}
}

// forget notes that a call is under way no more.
func (s *sim) forget(a *asked) {
	s.open = slices.DeleteFunc(s.open, func(o *asked) bool { return o == a })
}

// granted writes down that a call got the lock.
func (s *sim) granted(a *asked, from *simLocker, locker *redlock.Locker, g *redlock.Guard, err func() error, parent context.Context) *life {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.grant(a, from, locker, g, err, parent)
}

func (s *sim) grant(a *asked, from *simLocker, locker *redlock.Locker, g *redlock.Guard, err func() error, parent context.Context) *life {
	s.forget(a)
	s.nextID++
	l := &life{
		id: s.nextID, host: a.host, from: from, locker: locker, name: slotName(a.name, g.Slot()), call: a.call,
		invoked: a.invoked, token: g.FencingToken(), guard: g, err: err, parent: parent, waits: a.waits, began: a.began, at: time.Since(s.start),
		terms: a.terms,
	}
	s.forced(a)
	l.returned = s.note(a.host.name, l.name, "granted", fmt.Sprintf("%s: guard %d, token %d, owner %.6s, %v", a.call, l.id, l.token, g.Owner(), a.host.option.KeyValidity))
	if s.profile.rw && g.Owner()[0] == 'r' {
		l.name = readsFor(a.name)
	}
	h := s.locks[l.name]
	for _, o := range h.lives {
		switch {
		case isReading(l.name): // readers may have the same
		case o.token == l.token:
			s.violated(a.host.name, l.name, "fence", "guards %d and %d both have token %d", o.id, l.id, l.token)
		case o.returned < l.invoked && o.token > l.token:
			s.violated(a.host.name, a.name, "fence", "guard %d has token %d, below %d of guard %d that came before it was asked for", l.id, l.token, o.token, o.id)
		}
	}
	if l.token == 0 || l.token >= 1<<53 {
		s.violated(a.host.name, a.name, "fence", "token %d", l.token)
	}
	switch {
	case s.profile.slots:
		s.judgeSlot(a, l)
	case s.profile.rw:
		s.judgeSides(a, l)
	case s.profile.quiet && a.waits:
		for _, o := range s.open {
			if o.name == a.name && o.waits && o.began > 2*s.longest && s.isBefore(h, o, a) {
				s.violated(a.host.name, a.name, "order", "guard %d began to wait at %v, served before %s of %s, which waits since %v", l.id, a.began, o.call, o.host.name, o.began)
			}
		}
	}
	s.judgeKept(h, l)
	h.lives = append(h.lives, l)
	h.live = append(h.live, l)
	return l
}

// isBefore reports whether o began so long before a that it is to be served first: inside one Locker at all, else by more
// than the slack, and as the first of its host.
func (s *sim) isBefore(h *lockHistory, o, a *asked) bool {
	if o.from == a.from {
		return o.began < a.began
	}
	return o.began+s.orderSlack < a.began && !stoodBehind(h, o)
}

// stoodBehind reports whether a waiter had another of its own host before it since it asked: only the first of a Locker
// stands in line on the nodes, so the next may get there too late.
func stoodBehind(h *lockHistory, o *asked) bool {
	return slices.ContainsFunc(h.lives, func(l *life) bool { return l.host == o.host && l.at >= o.began })
}

// act is the program doing what the lock protects: it asks its guard and, if that is alive, acts. It reports whether
// the guard is alive.
func (s *sim) act(l *life, look bool) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	h := s.locks[l.name]
	if !s.judge(l) {
		return false
	}
	s.judgeTerm(l)
	s.acts++
	s.note(l.host.name, l.name, "act", fmt.Sprintf("guard %d", l.id))
	if s.profile.rw {
		s.actRW(l, look)
	}
	if s.exclusive(l.name) {
		if look { // looking at a guard can end it, so it is not always done: the order of acts shows as much
			for _, o := range slices.Clone(h.live) {
				if o != l && !o.host.isStopped() && s.judge(o) {
					s.violated(l.host.name, l.name, "overlap", "guards %d and %d are both alive", o.id, l.id)
				}
			}
		}
		if h.last != l && l.acted {
			s.violated(l.host.name, l.name, "continuity", "guard %d acts again after guard %d acted", l.id, h.last.id)
		}
		if !l.acted && l.token < h.lastToken {
			s.violated(l.host.name, l.name, "fence", "guard %d with token %d acts after one with token %d", l.id, l.token, h.lastToken)
		}
	}
	h.last, l.acted = l, true
	h.lastToken = max(h.lastToken, l.token)
	if !isReading(l.name) {
		s.write(l)
	}
	return true
}

// write is the same write to a resource that checks tokens.
func (s *sim) write(l *life) {
	h := s.locks[l.name]
	if l.token < h.stored {
		return // rejected
	}
	h.stored = l.token
	if l.returned < h.newest {
		s.violated(l.host.name, l.name, "register", "took a write of guard %d, token %d, after one of a later holder", l.id, l.token)
	}
	h.newest = max(h.newest, l.invoked)
}

// exclusive reports whether a name is promised to have one guard alive at a time.
func (s *sim) exclusive(name string) bool {
	return !s.profile.outside && (name != forcedName || s.profile.rw) && !isReading(name)
}

// judge asks a guard whether it is alive, and judges its end.
func (s *sim) judge(l *life) bool {
	err := l.err()
	switch {
	case err == nil && l.cause == nil:
		return true
	case err == nil:
		s.violated(l.host.name, l.name, "lost stays lost", "guard %d is alive again, it had ended: %v", l.id, l.cause)
		return false
	case l.cause != nil:
		if err.Error() != l.cause.Error() {
			s.violated(l.host.name, l.name, "lost stays lost", "guard %d ended with %v, and now says %v", l.id, l.cause, err)
		}
		return false
	}
	h := s.locks[l.name]
	l.cause, l.ended = err, time.Since(s.start)
	h.live = slices.DeleteFunc(h.live, func(o *life) bool { return o == l })
	s.note(l.host.name, l.name, "end", fmt.Sprintf("guard %d: %v", l.id, err))
	s.judgeCause(h, l, err)
	return false
}

// judgeCause looks whether what a guard says it ended for is true.
func (s *sim) judgeCause(h *lockHistory, l *life, err error) {
	wrong := func(why string) {
		s.violated(l.host.name, l.name, "cause", "guard %d ended with %v, but %s", l.id, err, why)
	}
	var qe *redlock.QuorumError
	switch {
	case errors.Is(err, redlock.ErrLost):
		// One that got just a quorum has nobody to spare until it has won the others at its first renewals.
		young := (l.ended-l.at < l.host.option.KeyValidity*3/2 || strings.Contains(err.Error(), "held by"))
		steady := s.profile.steady && l.from.listsAll(l.locker)
		if (s.profile.quiet || (s.profile.majority || steady) && !young) && h.takeovers == 0 && !s.over {
			s.violated(l.host.name, l.name, "minority", "guard %d was lost although nothing, or a minority, is ill: %v", l.id, err)
		}
		taken := errors.Is(err, redlock.ErrTakenOver)
		switch {
		case !errors.As(err, &qe):
			wrong("that is no QuorumError")
		case !taken && qe.Votes >= qe.Quorum:
			wrong("it had a quorum")
		case !taken && len(qe.Errs) < qe.Nodes-qe.Quorum+1:
			wrong("that does not say why a quorum is missing")
		case taken && h.takeovers == 0 && !s.hadRival(h, l) && !s.hadRivals(l):
			wrong("there was no rival")
		}
		s.losses++
	case errors.Is(err, redlock.ErrReleased):
		if !l.released {
			wrong("nobody released it")
		}
	case errors.Is(err, redlock.ErrLockerClosed):
		if !l.from.wasClosed(l.locker) && !s.over {
			wrong("nobody closed the Locker")
		}
	case errors.Is(err, redlock.ErrHeldTooLong):
		if d := l.terms.atMost; l.terms.ends() == 0 || l.terms.fixed == 0 && l.ended-l.began < d && !s.profile.outside {
			wrong("it was not held for so long")
		}
	case l.parent != nil && l.parent.Err() != nil && errors.Is(err, errParentGone):
	default:
		wrong("that is no cause")
	}
}

// hadRival reports whether anybody else asked for the name in a guard's life.
func (s *sim) hadRival(h *lockHistory, l *life) bool {
	s.eventsMu.Lock()
	since := s.events[l.invoked:]
	s.eventsMu.Unlock()
	for _, e := range since {
		if e.name == askedName(l.name) && e.what == "ask" {
			return true
		}
	}
	for _, o := range s.open {
		if o.name == askedName(l.name) {
			return true
		}
	}
	for _, o := range h.lives {
		if o != l && (o.ended == 0 || o.ended > l.began) {
			return true
		}
	}
	return false
}

// releasing notes that Release is called, and returns the cause of a guard that had ended before, nil if it was alive.
func (s *sim) releasing(l *life) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.judge(l)
	l.released = true
	s.note(l.host.name, l.name, "release", fmt.Sprintf("guard %d", l.id))
	return l.cause
}

// releasedAs judges what Release came to.
func (s *sim) releasedAs(l *life, before, err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.note(l.host.name, l.name, "released", fmt.Sprintf("guard %d: %v", l.id, err))
	s.judge(l)
	switch {
	case before != nil && errors.Is(before, redlock.ErrLost):
		if !errors.Is(err, redlock.ErrLost) {
			s.violated(l.host.name, l.name, "cause", "guard %d was lost (%v), but Release said %v", l.id, before, err)
		}
	case err == nil && before == nil && errors.Is(l.cause, redlock.ErrReleased):
		kept, n := 0, 0
		for _, node := range s.cluster.Nodes() {
			if s.profile.members && !s.roster().Has(node.Addr()) {
				continue
			}
			n++
			if value, _ := node.Get(s.keyOf(l)); strings.HasPrefix(value, l.guard.Owner()) {
				kept++
			}
		}
		if s.profile.members && (s.moving > 0 || time.Since(s.start) < s.moved+s.longest) {
			break // by an earlier roster
		}
		if kept > n-(n/2+1) {
			s.violated(l.host.name, l.name, "release", "guard %d is released, but %d of %d nodes store it", l.id, kept, n)
		}
	case errors.Is(err, redlock.ErrHeldTooLong) && l.terms.ends() != 0:
	case err != nil && !errors.Is(err, redlock.ErrNoQuorum) && !errors.Is(err, redlock.ErrLost) && !errors.Is(err, redlock.ErrTakenOver):
		s.violated(l.host.name, l.name, "cause", "Release of guard %d said %v", l.id, err)
	case err != nil && s.profile.majority && !errors.Is(err, redlock.ErrLost):
		s.violated(l.host.name, l.name, "minority", "Release of guard %d said %v", l.id, err)
	}
}

// ticks asserts of a crowd on healthy nodes that who was refused was refused for somebody: one who held the lock, or one of
// those that tried at the same moment, who got it.
func (s *sim) ticks() {
	for _, name := range s.names {
		h := s.locks[name]
		for _, a := range h.refused {
			settled := a.over + s.longest/4 // NodeTimeout
			if !slices.ContainsFunc(h.lives, func(l *life) bool {
				return l.at <= settled && (l.cause == nil || l.ended >= a.began-8*s.latency)
			}) {
				s.violated(a.host.name, name, "tick", "%s at %v was refused at %v, and nobody had or got the lock", a.call, a.began, a.over)
			}
		}
	}
}

// audit looks at what nodes store: no lease is longer than the longest, and no dead owner's key outlives its own.
func (s *sim) audit() {
	s.mu.Lock()
	defer s.mu.Unlock()
	now := time.Since(s.start)
	for i, n := range s.cluster.Nodes() {
		if s.ill[i] > 0 { // stopped: nothing expires there, and what it missed is still to come
			continue
		}
		s.auditEnds(i, n)
		if s.profile.rw {
			s.auditReaders(i, now)
		}
		for _, name := range s.histories() {
			h := s.locks[name]
			key := lockKeyOf(name)
			if s.profile.rw {
				key = node.WriterKey(simPrefix, name)
			}
			value, ok := n.Get(key)
			if !ok {
				continue
			}
			left, leased := n.PTTL(key)
			if !s.profile.outside && (!leased || left > s.longest+2*s.bound) {
				s.violated("", name, "lease", "node %d keeps the lock for %v (%v), the longest lease is %v", i, left, leased, s.longest)
			}
			if s.profile.outside {
				continue
			}
			for _, l := range h.lives {
				if l.cause != nil && strings.HasPrefix(value, l.guard.Owner()) && now > l.ended+s.outlives && s.healthy[i]+s.outlives < now {
					s.violated(l.host.name, name, "lease", "node %d still stores guard %d, which ended %v ago, for %v more", i, l.id, now-l.ended, left)
				}
			}
		}
	}
}

// auditEnds asserts that every key of a node ends by itself, whatever becomes of those who made it.
func (s *sim) auditEnds(i int, n *redlocktest.Node) {
	for _, key := range lastingKeys(n, simPrefix) {
		value, _ := n.Get(key)
		s.violated("", "", "lease", "node %d keeps %s = %q for ever", i, key, value)
	}
}

// fingerprint is a hash of the whole history.
func (s *sim) fingerprint() uint64 {
	h := fnv.New64a()
	for _, e := range s.events {
		fmt.Fprintln(h, e)
	}
	return h.Sum64()
}

// story is the part of the history that leads to a violation: what concerns the name, and the faults.
func (s *sim) story(lines int) string {
	v := s.violation
	var b strings.Builder
	var picked []string
	for i := v.at - 1; i >= 0 && len(picked) < lines; i-- {
		e := s.events[i]
		if e.name == v.name || e.name == askedName(v.name) || e.name == "" {
			picked = append(picked, e.String())
		}
	}
	slices.Reverse(picked)
	for _, line := range picked {
		b.WriteString(line)
		b.WriteByte('\n')
	}
	return b.String()
}
