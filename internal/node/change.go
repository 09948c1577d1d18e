package node

import (
	"context"
	crand "crypto/rand"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/redis/rueidis"

	"github.com/redlock-go/redlock/internal/roster"
)

// A change of the set goes from marker to marker, each of which is compared and set as a whole in one process. What it goes by
// is in internal/roster; here is who asks the servers.

// Change is what is to become of a set.
type Change struct {
	Nodes   []rueidis.ClientOption // the members; nil: as they are
	Addrs   []string               // of Nodes
	Longest time.Duration          // longest lease; 0: as it is
	Wait    time.Duration          // restart quarantine; 0: as it follows from Longest
	Off     []string               // members that need not be told
}

// member is a server that a change speaks to.
type member struct {
	addr   string
	client rueidis.Client
	runID  string
	marker marker // as last read; of another process or none: empty but for what is stored
	fresh  bool   // it remembers nothing of any set
	own    bool   // the client is to be closed
}

// errNothing says that the set is as it is to be.
var errNothing = errors.New("the set is like that already")

// Change makes the set what it is to be. An error says what is in the way, and that nothing has changed, unless it says otherwise.
//
// A longest lease is lowered in two versions: first it is no more to be had, and when the last claim on it is over it need not be
// waited for by who has lost its memory.
func (ns *Set) Change(ctx context.Context, c Change) error {
	r, err := ns.change(ctx, c)
	if err != nil || c.Longest == 0 || r.Wait <= ns.waitFor(r.Longest) {
		return err
	}
	select {
	case <-ctx.Done():
		return fmt.Errorf("the longest lease is %v now, but a node that loses its memory still grants nothing for %v, until the call is repeated: %w", r.Longest, r.Wait, context.Cause(ctx))
	case <-ns.option.Life.Done():
		return ns.option.Closed
	case <-time.After(ns.option.Clock.Wait(GoneAfter(r.Wait, ns.option.DriftFactor, ns.option.ClockBound))):
	}
	_, err = ns.change(ctx, Change{Wait: ns.waitFor(r.Longest), Off: c.Off})
	return err
}

// waitFor is how long a node that lost its memory grants nothing by this program's options, where the longest lease is another.
func (ns *Set) waitFor(longest time.Duration) time.Duration {
	return longest + ns.quarantine - ns.option.MaxKeyValidity
}

// change takes a set through one version.
func (ns *Set) change(ctx context.Context, c Change) (*roster.Record, error) {
	ours, err := ns.awaitFounded(ctx)
	if err != nil {
		return nil, err
	}
	for _, name := range c.Off {
		if !ours.Has(name) && !slices.Contains(c.Addrs, name) && !slices.Contains(ns.option.Addrs, name) { // it may have left already
			return nil, fmt.Errorf("%w: %s is named Off, and is not a member of this set (%s)", ErrDisagreement, name, describe(ours))
		}
	}
	ns.awaitConnected(ctx, c)
	ns.awaitInForce(ctx, ours)
	members := ns.reach(c)
	defer func() {
		for _, m := range members {
			if m.own {
				m.client.Close()
			}
		}
	}()
	for {
		byName := make(map[string]*member)
		newNames, err := ns.inspectAll(ctx, members, c, byName)
		if err != nil {
			return nil, err
		}
		base := ours
		for _, m := range byName {
			if r := m.marker.inForce(); r.Newer(base) {
				base = r
			}
		}
		want, err := wanted(base, newNames, c)
		if err == errNothing {
			return base, ns.activateAll(ctx, byName, base)
		}
		if err != nil {
			return nil, err
		}
		if pending := accepted(byName, base); pending != nil {
			want = pending // whoever sees one finishes it, and then looks again
		}
		if err := ns.possible(base, want, c.Off, byName); err != nil {
			return nil, err
		}
		decided, err := ns.decide(ctx, base, want, c.Off, byName)
		if err != nil {
			return nil, fmt.Errorf("%w; it may have begun: whoever sees it finishes it, or repeat the call", err)
		}
		ours = decided
	}
}

// awaitFounded waits until the set has a record in force, as long as ctx lasts.
func (ns *Set) awaitFounded(ctx context.Context) (*roster.Record, error) {
	for {
		if r := ns.Electorate().Record; r != nil {
			return r, nil
		}
		if err := ns.pause(ctx); err != nil {
			if ctx.Err() != nil {
				err = fmt.Errorf("the set has no record of its members yet: that comes when all nodes of it are reached by a program that lists them: %w", err)
			}
			return nil, err
		}
	}
}

// awaitConnected gives the nodes that are to be told the time of an answer to be connected: the Locker may have been made just now.
func (ns *Set) awaitConnected(ctx context.Context, c Change) {
	ns.await(ctx, ns.option.NodeTimeout, func(n *Node) bool { return n.Client() != nil || slices.Contains(c.Off, n.addr) })
}

// awaitInForce gives the members that hold a set's first record the time to be told that it is in force, which may have been found out
// just now, from the last of them.
func (ns *Set) awaitInForce(ctx context.Context, first *roster.Record) {
	ns.await(ctx, max(ns.option.NodeTimeout, DialWithin), func(n *Node) bool {
		if n.Client() == nil {
			return true
		}
		ns.mu.Lock()
		defer ns.mu.Unlock()
		r := ns.seen[n.index].marker.roster
		return !r.Founding || !r.Active.Is(first)
	})
}

// await waits until something is so of each node, for so long at most.
func (ns *Set) await(ctx context.Context, atMost time.Duration, so func(*Node) bool) {
	not := func(n *Node) bool { return !so(n) }
	for until := ns.option.Clock.Now() + atMost; slices.ContainsFunc(ns.nodes, not) && ns.option.Clock.Now() < until; {
		if ns.pause(ctx) != nil {
			return
		}
	}
}

// pause is between two looks at what the keepers have found out. The error says that ctx, or the Locker, has ended.
func (ns *Set) pause(ctx context.Context) error {
	select {
	case <-ctx.Done():
		return context.Cause(ctx)
	case <-ns.option.Life.Done():
		return ns.option.Closed
	case <-time.After(ns.option.Clock.Wait(time.Millisecond)):
		return nil
	}
}

// reach returns all servers that are listed here, and those of a change that are not.
func (ns *Set) reach(c Change) []*member {
	var members []*member
	listed := make(map[string]bool)
	for _, n := range ns.nodes {
		listed[n.addr] = true
		members = append(members, &member{addr: n.addr, client: n.Client()})
	}
	for i, o := range c.Nodes {
		if listed[c.Addrs[i]] {
			continue
		}
		m := &member{addr: c.Addrs[i], own: true}
		o.ForceSingleClient, o.DisableRetry, o.DisableCache, o.PipelineMultiplex = true, true, true, -1
		var err error
		if m.client, err = ns.option.ClientBuilder(o); err != nil || m.client == nil {
			if m.client != nil {
				m.client.Close()
			}
			m.client, m.own = nil, false
		}
		members = append(members, m)
	}
	return members
}

// read reads what a server is and remembers.
func (ns *Set) read(ctx context.Context, m *member) error {
	if m.client == nil {
		return ErrNodeDown
	}
	ctx, cancel := context.WithTimeout(ctx, ns.option.Clock.Wait(max(ns.option.NodeTimeout, DialWithin)))
	defer cancel()
	b := m.client.B()
	results := m.client.DoMulti(ctx, b.Info().Build(), b.Get().Key(ns.markerKey).Build())
	text, err := results[0].ToString()
	if err != nil {
		return seenFromOutside(err)
	}
	info := parseInfo(text)
	if err := info.fault(); err != nil {
		return err
	}
	raw, err := results[1].ToString()
	if err != nil && !rueidis.IsRedisNil(err) {
		return seenFromOutside(err)
	}
	m.runID = info.runID
	parsed, ok := parseMarker(raw)
	m.marker, m.fresh = parsed, raw == ""
	if !ok || parsed.runID != info.runID {
		m.marker = marker{raw: raw, set: parsed.set, floor: parsed.floor, roster: roster.State{Name: parsed.roster.Name}}
		m.fresh = raw == "" || ok
	}
	return nil
}

// inspectAll reads all servers, puts them under the names that they have, and returns the names of the members to be.
func (ns *Set) inspectAll(ctx context.Context, members []*member, c Change, byName map[string]*member) (newNames []string, err error) {
	errs := make([]error, len(members))
	var wg sync.WaitGroup
	for i, m := range members {
		wg.Go(func() { errs[i] = ns.read(ctx, m) })
	}
	wg.Wait()
	ns.mu.Lock()
	ours := ns.view.set
	ns.mu.Unlock()
	processes := make(map[string]string)
	for i, m := range members {
		wanted := slices.Contains(c.Addrs, m.addr)
		if errs[i] != nil {
			if wanted {
				return nil, fmt.Errorf("%s, which is to be a member: %w", m.addr, errs[i])
			}
			continue
		}
		if other, twice := processes[m.runID]; twice {
			if wanted {
				return nil, fmt.Errorf("%w: %s and %s are the same server", ErrUnsupportedNode, other, m.addr)
			}
			continue
		}
		processes[m.runID] = m.addr
		if m.marker.set != "" && m.marker.set != ours && m.marker.inForce() != nil {
			if wanted {
				return nil, fmt.Errorf("%w: %s belongs to another set (%s); delete %s there if that set is not used any more", ErrDisagreement, m.addr, describe(m.marker.inForce()), ns.markerKey)
			}
			continue
		}
		name := m.marker.roster.Name
		if name == "" {
			name = m.addr
		}
		byName[name] = m
		if wanted {
			newNames = append(newNames, name)
		}
	}
	return newNames, nil
}

// wanted returns the record that a change asks for.
func wanted(base *roster.Record, names []string, c Change) (*roster.Record, error) {
	r := roster.Record{Version: base.Version + 1, ID: crand.Text(), Base: base.ID, Members: base.Members, Longest: base.Longest, Wait: base.Wait}
	for _, name := range c.Off {
		if base.Has(name) { // else it has left by the version before
			r.Off = append(r.Off, name)
		}
	}
	if c.Nodes != nil {
		r.Members = names
	}
	if c.Longest != 0 {
		r.Longest = c.Longest
		if base.Wait != 0 { // as much more than the longest lease as it was; or less than that, where it is yet to be lowered
			r.Wait = c.Longest + max(0, base.Wait-base.Longest)
		}
	}
	if c.Wait != 0 {
		r.Wait = c.Wait
	}
	if r.Longest < base.Longest && base.Wait == 0 {
		return nil, fmt.Errorf("%w: the longest lease of this set is %v, and with the restart quarantine off it is not lowered to %v: only members that join wait for it, and they have to", ErrDisagreement, base.Longest, r.Longest)
	}
	if r.Longest < base.Longest { // claims of before are waited for as before: a second change follows
		r.Wait = max(r.Wait, base.Wait)
	}
	want := roster.New(r)
	if slices.Equal(want.Members, base.Members) && want.Longest == base.Longest && want.Wait == base.Wait {
		return nil, errNothing
	}
	return want, nil
}

// accepted returns a change of a record that a member has accepted, nil if there is none.
func accepted(byName map[string]*member, base *roster.Record) *roster.Record {
	for _, m := range byName {
		if s := m.marker.roster; s.Value != nil && s.Active.Is(base) {
			return s.Value
		}
	}
	return nil
}

// possible looks before anything is accepted whether a change can be finished: all who are to take part are there.
// One that somebody left may have to be finished without members that have gone since.
func (ns *Set) possible(base, want *roster.Record, off []string, byName map[string]*member) error {
	told := slices.DeleteFunc(want.Told(base), func(name string) bool { return slices.Contains(off, name) })
	if len(told) == 0 {
		return fmt.Errorf("%w: every member of (%s) is named Off: nobody could say what is in force", ErrDisagreement, describe(base))
	}
	var away []string
	for _, name := range told {
		if m := byName[name]; m == nil || !m.marker.inForce().Is(base) {
			away = append(away, name)
		}
	}
	if len(away) > 0 {
		return fmt.Errorf("%w: %s cannot be told of the change, or has lost its memory of (%s): list it, so that it is reached, or name it Off if it is off for good", ErrNodeDown, strings.Join(away, ", "), describe(base))
	}
	return nil
}

// decide takes a change through its phases, with as many ballots as it takes.
func (ns *Set) decide(ctx context.Context, base, want *roster.Record, off []string, byName map[string]*member) (*roster.Record, error) {
	ballot := roster.Ballot{N: 1, By: crand.Text()[:8]}
	for _, m := range byName {
		if p := m.marker.roster.Promised; ballot.N <= p.N {
			ballot.N = p.N + 1
		}
	}
	for pause := 10 * time.Millisecond; ; pause = min(2*pause, time.Second) {
		c := roster.NewChange(base, want, ballot, off...)
		for c.Phase <= roster.Confirming {
			if err := ns.phase(ctx, c, byName); err != nil {
				return nil, err
			}
		}
		switch c.Phase {
		case roster.Decided:
			return c.Value, ns.activateAll(ctx, byName, c.Value)
		case roster.Superseded:
			return c.Newer, nil
		}
		ballot.N = c.Ahead.N + 1
		select {
		case <-ctx.Done():
			return nil, fmt.Errorf("another program changes the set at the same time: %w", context.Cause(ctx))
		case <-time.After(ns.option.Clock.Wait(pause + ns.option.Jitter(pause))):
		}
	}
}

// phase asks everybody who is due in a phase of a change, all at once.
func (ns *Set) phase(ctx context.Context, c *roster.Change, byName map[string]*member) error {
	due := c.Due()
	yes := make([]bool, len(due))
	errs := make([]error, len(due))
	asked := *c // no answer changes what the others are asked
	var wg sync.WaitGroup
	for i, name := range due {
		m := byName[name]
		if m == nil {
			return fmt.Errorf("%w: %s, which has to be told of the change", ErrNodeDown, name)
		}
		wg.Go(func() {
			yes[i], errs[i] = ns.step(ctx, m, func(s roster.State) (roster.State, bool) { return asked.Step(s) })
		})
	}
	wg.Wait()
	for i, name := range due {
		if errs[i] != nil {
			return fmt.Errorf("%s: %w", name, errs[i])
		}
		c.Answer(name, byName[name].runID, byName[name].marker.roster, yes[i])
	}
	return nil
}

// step reads what a member remembers, and writes what becomes of it, if it says yes.
func (ns *Set) step(ctx context.Context, m *member, next func(roster.State) (roster.State, bool)) (yes bool, err error) {
	for range markTries {
		if err := ns.read(ctx, m); err != nil {
			return false, err
		}
		was := m.marker.roster
		s, yes := next(was)
		if !yes || s.String() == was.String() {
			return yes, nil
		}
		written, err := ns.rewrite(ctx, m, change{marker: m.marker.with(s), quarantine: -1, raise: -1})
		if err != nil || written {
			return written, err
		}
	}
	return false, fmt.Errorf("%w: its marker keeps changing", ErrQuarantined)
}

// rewrite writes a member's marker if nobody else was first, and notes what is stored after that.
func (ns *Set) rewrite(ctx context.Context, m *member, c change) (written bool, err error) {
	raw, written, err := ns.mark(ctx, m.client, m.runID, m.marker, c)
	if err != nil {
		return false, err
	}
	if parsed, ok := parseMarker(raw); ok {
		m.marker = parsed
	}
	return written, nil
}

// activateAll tells everybody who is reached that a record is in force. Who is not is told by whoever reaches it.
func (ns *Set) activateAll(ctx context.Context, byName map[string]*member, r *roster.Record) error {
	names := slices.Sorted(maps.Keys(byName))
	floor := int64(0)
	for _, m := range byName {
		floor = max(floor, m.marker.floor)
	}
	var wg sync.WaitGroup
	for _, name := range names {
		m := byName[name]
		if s := m.marker.roster; s.Active == nil && !r.Has(name) {
			continue // no member, and never was
		}
		wg.Go(func() {
			for range markTries {
				if ns.read(ctx, m) != nil || !r.Newer(m.marker.inForce()) {
					return
				}
				ns.mu.Lock()
				c := ns.activation(m.marker, name, r)
				c.set = ns.view.set
				if c.quarantine >= 0 {
					c.floor = max(c.floor, floor+c.spread)
				}
				ns.mu.Unlock()
				if written, err := ns.rewrite(ctx, m, *c); err != nil || written {
					return
				}
			}
		})
	}
	wg.Wait()
	ns.awaitTold(ctx, r)
	return nil
}

// awaitTold waits until our own keepers have seen what is in force, for a NodeTimeout at most.
func (ns *Set) awaitTold(ctx context.Context, r *roster.Record) {
	for _, n := range ns.nodes {
		n.LookAgain()
	}
	for end := ns.option.Clock.Now() + ns.option.NodeTimeout; ns.option.Clock.Now() < end && ctx.Err() == nil && ns.option.Life.Err() == nil; {
		told := !r.Newer(ns.Electorate().Record)
		for i, member := range ns.Electorate().Members {
			told = told && (!member || !ns.nodes[i].isUp() || ns.nodes[i].unfitNow() == nil)
		}
		if told {
			return
		}
		time.Sleep(ns.option.Clock.Wait(time.Millisecond))
	}
}

// finish finishes a change that a member has accepted, if all who have to take part are listed here: whoever began it may be
// gone, and until then those who have accepted grant nothing. The caller holds the mutex.
func (ns *Set) finish() {
	if ns.finishing {
		return
	}
	ns.finishing = ns.option.Go(func() {
		defer func() {
			ns.mu.Lock()
			ns.finishing = false
			ns.mu.Unlock()
		}()
		pause := ns.option.NodeTimeout / 4 // whoever began it is likely to be at it
		select {
		case <-ns.option.Life.Done():
			return
		case <-time.After(ns.option.Clock.Wait(pause + ns.option.Jitter(pause))):
		}
		ctx, cancel := context.WithTimeout(ns.option.Life, ns.option.Clock.Wait(max(4*ns.option.NodeTimeout, DialWithin)))
		defer cancel()
		byName := make(map[string]*member)
		if _, err := ns.inspectAll(ctx, ns.reach(Change{}), Change{}, byName); err != nil {
			return
		}
		base := ns.Electorate().Record
		x := accepted(byName, base)
		if x != nil && ns.possible(base, x, nil, byName) == nil {
			_, _ = ns.decide(ctx, base, x, nil, byName)
		}
		for _, n := range ns.nodes {
			n.LookAgain()
		}
	})
}
