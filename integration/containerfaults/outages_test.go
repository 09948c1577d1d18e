package containerfaults

import (
	"context"
	"os"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/redlock-go/redlock"
	"github.com/redlock-go/redlock/integration/check"
	"github.com/redlock-go/redlock/integration/containers"
)

func TestMain(m *testing.M) { os.Exit(containers.Main(m)) }

const (
	// lease is longer than with processes: the engine takes its time for each fault.
	lease = 3 * time.Second
	soon  = 20 * time.Second
	tick  = 10 * time.Millisecond
)

// rig is a set of containers and what guards did on it.
type rig struct {
	t       *testing.T
	set     *containers.Set
	history *check.History
}

func newRig(t *testing.T, options containers.Options) *rig {
	t.Helper()
	r := &rig{t: t, set: containers.Start(t, options), history: check.New()}
	t.Cleanup(func() {
		r.history.Stop()
		for _, v := range r.history.Violations() {
			t.Error(v)
		}
	})
	founder := r.locker(containers.West)
	require.Eventually(t, func() bool { return founder.Init(context.Background()) == nil }, soon, tick, "Init")
	return r
}

func (r *rig) locker(side containers.Side) *redlock.Locker {
	r.t.Helper()
	l, err := redlock.NewLocker(redlock.LockerOption{Nodes: r.set.ClientOptions(side), KeyValidity: lease})
	require.NoError(r.t, err)
	r.t.Cleanup(l.Close)
	return l
}

func (r *rig) try(l *redlock.Locker, name string) (*redlock.Guard, error) {
	return r.history.Acquire(context.Background(), "client", l.TryAcquire, name)
}

// tryFor tries until it gets the lock.
func (r *rig) tryFor(l *redlock.Locker, name string, within time.Duration) *redlock.Guard {
	r.t.Helper()
	for deadline := time.Now().Add(within); ; time.Sleep(tick) {
		g, err := r.try(l, name)
		if err == nil {
			return g
		}
		if time.Now().After(deadline) {
			require.NoError(r.t, err, "did not get %q within %v", name, within)
		}
	}
}

func (r *rig) release(g *redlock.Guard) {
	r.t.Helper()
	require.NoError(r.t, r.history.Release(context.Background(), g))
}

func (r *rig) requireHeldFor(g *redlock.Guard, d time.Duration) {
	r.t.Helper()
	select {
	case <-g.Done():
		require.NoError(r.t, g.Err(), "guard has ended")
	case <-time.After(d):
	}
	require.NoError(r.t, g.Err())
}

// requireEndsInTime waits for the end of a guard that nothing renews any more: no later than it said.
func (r *rig) requireEndsInTime(g *redlock.Guard) {
	r.t.Helper()
	until := g.ValidUntil()
	for g.Err() == nil {
		until = g.ValidUntil()
		time.Sleep(time.Millisecond)
	}
	require.ErrorIs(r.t, g.Err(), redlock.ErrLost)
	require.Less(r.t, r.history.Of(g).Last.Sub(until), 50*time.Millisecond, "it was alive after its end")
}

// A minority of nodes is frozen, killed, stopped and started again empty, silent and healed, one fault
// after the other, while a lock is held all the time and others come and go.
func TestMinorityOutages(t *testing.T) {
	r := newRig(t, containers.Options{})
	ctx := t.Context()
	a, b := r.locker(containers.West), r.locker(containers.West)
	g := r.tryFor(a, "held", soon)
	during := func(what string) {
		t.Helper()
		r.release(r.tryFor(b, "other", soon))
		_, err := r.try(b, "held")
		require.Error(t, err, what)
		r.requireHeldFor(g, lease/2)
	}
	// A node that comes back empty grants nothing for a lease, and no two faults may overlap by that: as with anything
	// that survives a minority, the next fault waits.
	recovered := func() {
		require.NoError(t, r.set.Clear(ctx))
		r.requireHeldFor(g, lease)
	}
	for i, fault := range []struct {
		name   string
		strike func(*containers.Node) error
	}{
		{"freeze", func(n *containers.Node) error { return n.Freeze(ctx) }},
		{"kill", func(n *containers.Node) error { return n.Kill(ctx) }},
		{"stop", func(n *containers.Node) error { return n.Stop(ctx) }},
		{"silence", func(n *containers.Node) error { return n.Silence(ctx, containers.West) }},
	} {
		for _, n := range []*containers.Node{r.set.Nodes[i], r.set.Nodes[i+1]} {
			require.NoError(t, fault.strike(n))
		}
		during(fault.name)
		recovered()
		t.Logf("%s of two nodes: held", fault.name)
	}
	r.release(g)
	r.release(r.tryFor(b, "held", soon))
}

// A majority is frozen: the guard ends by its clock, nobody else gets the lock, and what the nodes find waiting for
// them when they go on does nothing.
func TestMajorityFrozen(t *testing.T) {
	r := newRig(t, containers.Options{})
	ctx := t.Context()
	a, b := r.locker(containers.West), r.locker(containers.West)
	g := r.tryFor(a, "held", soon)
	for _, n := range r.set.Nodes[:3] {
		require.NoError(t, n.Freeze(ctx))
	}
	r.requireEndsInTime(g)
	_, err := r.try(b, "held")
	require.ErrorIs(t, err, redlock.ErrNoQuorum)
	require.NoError(t, r.set.Clear(ctx))
	next := r.tryFor(b, "held", lease+soon)
	require.Greater(t, next.FencingToken(), g.FencingToken())
	r.requireHeldFor(next, lease)
	r.release(next)
}

// All containers are killed and come back empty, under the same addresses: nothing is granted for a lease.
func TestAllRestartEmpty(t *testing.T) {
	r := newRig(t, containers.Options{})
	ctx := t.Context()
	a, b := r.locker(containers.West), r.locker(containers.West)
	g := r.tryFor(a, "held", soon)
	for _, n := range r.set.Nodes {
		require.NoError(t, n.Kill(ctx))
	}
	killed := time.Now()
	for _, n := range r.set.Nodes {
		require.NoError(t, n.Start(ctx))
	}
	next := r.tryFor(b, "held", lease+soon)
	require.Greater(t, time.Since(killed), lease)
	require.ErrorIs(t, g.Err(), redlock.ErrLost)
	require.Greater(t, next.FencingToken(), g.FencingToken())
	r.release(next)
}

// West sees nodes 0, 1, 2 and east sees 2, 3, 4: two majorities, which share node 2. There are never two holders: the
// side that has lost its majority of votes ends in time, the other gets the lock then, and healing brings nobody back.
func TestTwoMajorities(t *testing.T) {
	r := newRig(t, containers.Options{Sides: 2})
	ctx := t.Context()
	west, east := r.locker(containers.West), r.locker(containers.East)
	g := r.tryFor(west, "held", soon)
	require.NoError(t, r.set.Silence(ctx, containers.West, 3, 4))
	require.NoError(t, r.set.Silence(ctx, containers.East, 0, 1))

	// West still has a quorum: 0, 1, 2. East has one to ask, and is refused by the node they share.
	_, err := r.try(east, "held")
	require.Error(t, err)
	r.requireHeldFor(g, 2*lease)
	_, err = r.try(east, "held")
	require.Error(t, err)

	// Now it loses the shared one.
	require.NoError(t, r.set.Silence(ctx, containers.West, 2))
	r.requireEndsInTime(g)
	next := r.tryFor(east, "held", lease+soon)
	require.Greater(t, next.FencingToken(), g.FencingToken())
	_, err = r.try(west, "held")
	require.ErrorIs(t, err, redlock.ErrNoQuorum)

	require.NoError(t, r.set.Clear(ctx))
	r.requireHeldFor(next, lease)
	_, err = r.try(west, "held")
	require.ErrorIs(t, err, redlock.ErrNotLocked)
	r.release(next)
	r.release(r.tryFor(west, "held", lease+soon))
}
