package redlock

import (
	"cmp"
	"context"
	crand "crypto/rand"
	"time"

	"github.com/redlock-go/redlock/internal/node"
)

// newGuard returns a guard that has asked nobody yet. Its context carries ctx's values; where the hold is parented it
// ends with ctx too.
func (l *Locker) newGuard(ctx context.Context, name string, h hold) *Guard {
	rules := cmp.Or(h.rules, &l.rules)
	g := &Guard{
		l:    l,
		lock: node.Lock{Name: name, Bucket: node.FenceBucket(name), Lease: rules.lease, Slots: int16(h.slots), Slot: int16(h.slot), Rarity: node.Usual},
		life: life{
			rules: rules, name: name, owner: crand.Text(), takeover: h.takeover, several: h.names != nil, slots: int16(h.slots), slot: int16(h.slot),
			ballot: make(ballot, len(l.nodes)), by: l.set.Electorate(), pace: l.pace(rules),
		},
		decided: make(chan struct{}),
		inLater: unscheduled,
	}
	if h.names != nil {
		g.lock.Own().Names = h.names
	}
	switch h.slot {
	case node.Writer, node.Reader:
		g.lock.Bucket = node.RWBucket(name, h.slot)
	}
	if h.slot == node.Reader {
		g.life.owner = node.ReaderID(g.life.owner)
	}
	if l.option.Observer != nil {
		g.observed, g.life.watch = &observed{began: l.clock.Now()}, new(watch)
	}
	g.lock.Claim = g.life.owner // and more, where it competes
	if h.takeover != noTakeover {
		g.lock.Claim += rules.claimTail
	}
	g.base = ctx
	if h.parented {
		g.parented, g.outlived = true, h.outlives
		g.ctx.Store(newContext(g, ctx))
	} else if _, ends := ctx.Deadline(); ends || ctx.Done() != nil {
		g.base = context.WithoutCancel(ctx)
	}
	return g
}

// pace returns the time to a guard's next renewal: some jitter keeps guards from marching in step, round after round.
func (l *Locker) pace(r *rules) time.Duration { return r.interval - l.jitter(r.interval/32) }

// attempt asks every node once and returns the guard, or why there is none. The guard must be in its place
// already, so that no push for it can be missed: they may come before the answer they belong to.
func (l *Locker) attempt(ctx context.Context, g *Guard) error {
	l.set.Callers.Add(1)
	defer l.set.Callers.Add(-1)
	g.ask()
	select {
	case <-g.decided: // by answers, by the extender when a round is over, or by Close
	case <-ctx.Done():
		g.giveUp(ctx)
	}
	return g.outcome()
}

// giveUp ends an attempt, or the lock that it has just got, because its caller's context has ended.
func (g *Guard) giveUp(ctx context.Context) {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.waiter.stop()
	if g.handle(event{kind: clockRead}); g.life.phase != over {
		g.handle(event{kind: ended, cause: waitEnded(ctx, g.life.name, g.life.report(g.l.clock.Now(), ErrNotLocked))})
	}
}

// ask has the attempt ask every node.
func (g *Guard) ask() {
	e := event{kind: asked, proposal: g.l.proposal(g.l.clock.Now()), by: g.l.set.Electorate()} // in its place by now: a newer one is told
	if r := g.request(); r != nil {
		e.askOn = r.join(g)
	}
	if g.life.takeover == noTakeover {
		e.pause = g.l.splitPause(g.life.rules)
	} else {
		for _, n := range g.l.nodes {
			e.longest = max(e.longest, n.LongestLease())
		}
	}
	g.on(e)
}

// outcome returns nil if the attempt got the lock, or why not. A lock that was granted at the very moment in which
// ctx ended has been released by now.
func (g *Guard) outcome() error {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.decided = nil
	return g.life.outcome(g.l.clock.Now())
}

// proposal returns the fencing token that nodes are asked to grant, so that all grant the same and no second round
// is needed: the median of their clocks, in µs. No client's clock has a say in it.
func (l *Locker) proposal(now time.Duration) uint64 {
	var buf [16]time.Duration
	times := buf[:0]
	for _, n := range l.nodes {
		if t, ok := n.Time(now); ok {
			times = append(times, t)
		}
	}
	if len(times) == 0 {
		return 0
	}
	return uint64(node.Median(times).Microseconds())
}
