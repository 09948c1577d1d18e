package redlock

import "time"

// NewLockerOn is NewLocker on a host whose clock the test holds in its hands: a simulated pause stops it.
func NewLockerOn(option LockerOption, now func() time.Time, apart func(time.Duration) time.Duration) (*Locker, error) {
	option, err := option.resolve()
	if err != nil {
		return nil, err
	}
	l := newLocker(option)
	l.clock.read, l.clock.apart = now, apart
	l.keepers.Go(l.extender.run)
	for _, n := range l.nodes {
		l.keepers.Go(n.Keep)
	}
	if err := l.awaitFirstChecks(); err != nil {
		l.Close()
		return nil, err
	}
	return l, nil
}

// Owner returns what nodes store for a guard.
func (g *Guard) Owner() string { return g.life.owner }

// Waiting returns how many calls of this Locker stand in line for a name here: only the first ones speak to the nodes.
func (l *Locker) Waiting(name string) int {
	l.mu.Lock()
	defer l.mu.Unlock()
	return len(l.placeOf(subject{name: name}).waiters())
}

// Votes returns how many votes a guard counts at this moment and has no doubt about.
func (g *Guard) Votes() int {
	g.mu.Lock()
	defer g.mu.Unlock()
	return g.life.ballot.standing(g.l.clock.Now(), -1)
}

// WhenCanceled has f called at the instant at which the guard's context becomes done, with whether Err would go by the
// clock still.
func (g *Guard) WhenCanceled(f func(counts bool)) {
	g.Context() // else nothing is canceled
	g.mu.Lock()
	defer g.mu.Unlock()
	c := g.ctx.Load()
	cancel := c.cancel
	c.cancel = func(cause error) {
		cancel(cause)
		f(g.deadline.Load() != 0)
	}
}

// GuardOf returns the guard that a context comes from, however it was derived.
func GuardOf(ctx interface{ Value(any) any }) *Guard {
	g, _ := ctx.Value(guardKey{}).(*Guard)
	return g
}

// OpenGuards returns how many guards are kept in memory, because a node may still know of them.
func (l *Locker) OpenGuards() int {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.open
}

// ModelNode is the explorer's model of a node.
type ModelNode = modelNode

// Execute has the model do what a script does: "acquire", "extend" or "release", for one owner.
func (n *modelNode) Execute(script, owner string, token, ticket uint64, lease, now time.Duration, flags map[string]bool) (code, number int64, text string, first bool) {
	s := step{
		Gist: gist{
			Script: map[string]redlockScript{"acquire": scriptAcquire, "extend": scriptExtend, "release": scriptRelease}[script],
			MayWin: flags["mayWin"], TakeOver: flags["takeOver"], Ended: flags["ended"], Stay: flags["stay"], Leave: flags["leave"],
		},
		Token: token,
	}
	a, _, woke := n.execute(s, &life{rules: &rules{lease: lease}, owner: owner, ticket: ticket, waits: flags["waits"]}, now)
	if s.Script == scriptRelease {
		a.Text = woke
	}
	return a.Code, a.Number, a.Text, a.First
}

type redlockScript = script

// Stored returns the value of the lock's key, what is left of its lease, and the fence.
func (n *modelNode) Stored(now time.Duration) (value string, left time.Duration, fence uint64) {
	if n.holder(now) == "" {
		return "", 0, n.fence
	}
	return n.value(), n.ends - now, n.fence
}
