package node

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/redlock-go/redlock/internal/roster"
)

// Who makes up the set is what its nodes remember, and not what a program lists: that only says where to look. Here is what one
// program knows of it, and what it makes of a node by that. docs/roster.md has the protocol.

// view is what a program knows of its set; the Set's, under its mutex.
type view struct {
	set     string           // id of the set that most of the nodes are of
	record  *roster.Record   // the newest in force that any node has shown; nil: none is
	pending []*roster.Record // what members have accepted in its place, and what may be in force by now
	names   []string         // by node: whose votes it gives, as it said last; empty if it has not
}

// Electorate returns by whose votes locks are taken now. It is never written to.
func (ns *Set) Electorate() *roster.Electorate { return ns.electorate.Load() }

// learn takes in what a node's marker says. Everybody who counts votes is told before the answer that it came with is handed
// out: a vote of a node that has accepted another record counts only for who knows of that.
func (ns *Set) learn(n *Node, m marker) {
	ns.mu.Lock()
	before := ns.electorate.Load()
	ns.takeIn(n, m)
	now := ns.electorate.Load()
	ns.mu.Unlock()
	moved := !now.Record.Is(before.Record) || !slices.EqualFunc(now.Pending, before.Pending, func(a, b roster.Electorate) bool { return a.Record.Is(b.Record) })
	if moved || !sameVotes(now, before) {
		ns.option.Listener.Rostered()
	}
	if !moved {
		return
	}
	if now.Record != nil && !now.Record.Is(before.Record) {
		ns.tellRoster(now.Record)
	}
	for _, o := range ns.nodes {
		if o != n {
			o.LookAgain()
		}
	}
}

// takeIn notes what a marker says, and by whose votes locks are taken by that. The caller holds the mutex.
func (ns *Set) takeIn(n *Node, m marker) {
	v := &ns.view
	if m.roster.Name != "" && (!m.roster.Founding || v.record == nil || v.record.Has(m.roster.Name)) {
		v.names[n.index] = m.roster.Name
	}
	if set := ns.ours(); set != v.set {
		v.set, v.record, v.pending = set, nil, nil
		for _, o := range ns.seen {
			if o.adopted {
				v.consider(o.marker)
			}
		}
	}
	v.consider(m)
	e := roster.Elect(v.record, ns.listed(v.record))
	for _, p := range v.pending {
		e.Pending = append(e.Pending, roster.Elect(p, ns.listed(p)))
	}
	if was := ns.electorate.Load(); !sameVotes(was, &e) || !slices.Equal(was.Names, e.Names) || !slices.Equal(was.Missing, e.Missing) {
		ns.electorate.Store(&e)
	}
}

// consider notes what a marker of our set says of its roster.
func (v *view) consider(m marker) {
	if m.set != v.set {
		return
	}
	if r := m.inForce(); r.Newer(v.record) {
		v.record = r
		v.pending = slices.DeleteFunc(v.pending, func(p *roster.Record) bool { return !p.Newer(r) })
	}
	if p := m.roster.Value; p.Newer(v.record) && !slices.ContainsFunc(v.pending, p.Is) {
		v.pending = append(v.pending, p)
	}
}

// sameVotes reports whether votes count alike.
func sameVotes(a, b *roster.Electorate) bool {
	return a.Record.Is(b.Record) && slices.Equal(a.Members, b.Members) &&
		slices.EqualFunc(a.Pending, b.Pending, func(a, b roster.Electorate) bool { return sameVotes(&a, &b) })
}

// ours returns the id of the set that we are of: that of most nodes, but for those that are of none for good yet; of a set that has
// no roster yet, the smallest, by which programs agree that have met it at the same time.
func (ns *Set) ours() string {
	count := make(map[string]int)
	smallest := ""
	for _, s := range ns.seen {
		if !s.adopted || s.marker.set == "" {
			continue
		}
		if smallest == "" || s.marker.set < smallest {
			smallest = s.marker.set
		}
		if !s.marker.unfounded() {
			count[s.marker.set]++
		}
	}
	founded := slices.ContainsFunc(ns.seen, func(s seen) bool { return s.adopted && s.marker.inForce() != nil })
	if !founded {
		return smallest
	}
	best := smallest
	for set, n := range count {
		if n > count[best] || n == count[best] && set < best {
			best = set
		}
	}
	return best
}

// listed returns whose votes the nodes give, by all that is known. A server that was not read yet, or remembers nothing, may be any
// member, under another address; and so may one that another set is being founded with. The caller holds the mutex.
func (ns *Set) listed(r *roster.Record) []string {
	names := slices.Clone(ns.view.names)
	if r == nil {
		return names
	}
	for i, n := range ns.nodes {
		m := ns.seen[i].marker
		if m.roster.Founding && !r.Has(names[i]) {
			names[i] = ""
		}
		if names[i] == "" && (r.Has(n.addr) || m.raw != "" && !m.roster.Founding) {
			names[i] = n.addr
		}
	}
	return names
}

// nameOf returns whose votes a node gives, or would. A server says so itself. One that has lost its memory is whom it was before,
// as far as we know, or whom its address names.
//
// What one of several that found a set has called it is no name, unless that record came to be.
func (ns *Set) nameOf(n *Node, m marker, r *roster.Record) string {
	if name := m.roster.Name; name != "" && (!m.roster.Founding || r.Has(name)) {
		return name
	}
	if name := ns.view.names[n.index]; r.Has(name) {
		return name
	}
	return n.addr
}

// strangerError says that a server is not a member of its set, which no other try can change.
type strangerError struct{ text string }

func (e *strangerError) Error() string        { return e.text }
func (e *strangerError) Is(target error) bool { return target == ErrDisagreement }

// IsStranger reports whether a node has no vote because it is not a member of the set.
func IsStranger(err error) bool { return errors.As(err, new(*strangerError)) }

// stranger names a server that is no member, and how it may become one. The caller holds the mutex.
func (ns *Set) stranger(n *Node, name string, r *roster.Record) error {
	who := name
	if name != n.addr {
		who += " (listed as " + n.addr + ")"
	}
	how := "to add it"
	names := ns.listed(r)
	if missing := slices.DeleteFunc(slices.Clone(r.Members), func(m string) bool { return slices.Contains(names, m) }); len(missing) > 0 {
		how = fmt.Sprintf("to replace %s by it", strings.Join(missing, " or "))
	}
	return &strangerError{fmt.Sprintf("%v: %s is not a member of this set (%s), and has no vote; %s: SetNodes", ErrDisagreement, who, describe(r), how)}
}

// describe is a record for people.
func describe(r *roster.Record) string {
	return fmt.Sprintf("%s; roster %d", strings.Join(r.Members, ", "), r.Version)
}

// errErased says that a program of an old version has written a node's marker anew, without what it remembered of the roster.
var errErased = fmt.Errorf("%w: it has forgotten what it knew of the set's members", ErrQuarantined)

// errFoundable says that all nodes may be about to hold the same first record.
var errFoundable = fmt.Errorf("%w: its set is being founded", ErrQuarantined)

// dueInForce is due in a set that has a record in force. The caller holds the mutex.
func (ns *Set) dueInForce(n *Node, m marker) (*change, error) {
	r := ns.view.record
	name := ns.nameOf(n, m, r)
	switch in := m.inForce(); {
	case in.Is(r):
	case in == nil && m.roster.Active == nil && r.Has(name):
		return nil, errErased
	case m.roster.Founding && !r.Has(name): // who knows it by its name tells it
		return nil, fmt.Errorf("%w: its set (%s) is being founded, and it is told by who lists it by a member's name", ErrQuarantined, describe(r))
	case r.Newer(in):
		return ns.activation(m, name, r), nil
	default:
		return nil, fmt.Errorf("%w: the node's record of the members is (%s; %s), another's is (%s; %s)", ErrDisagreement, describe(in), in.ID, describe(r), r.ID)
	}
	switch {
	case !r.Has(name):
		return nil, ns.stranger(n, name, r)
	case (ns.quarantine > 0) != (r.Wait > 0):
		return nil, quarantineDiffers(ns.quarantine > 0)
	case ns.option.KeyValidity > r.Longest:
		return nil, ns.tooLong(ns.option.KeyValidity, r)
	case m.roster.Value != nil:
		ns.finish()
		return nil, fmt.Errorf("%w: it is told of a change of the set (%s, to %s) that is under way, and grants nothing until that is settled", ErrQuarantined, describe(r), describe(m.roster.Value))
	}
	for i, o := range ns.seen {
		if i != n.index && o.adopted && o.fault == nil && o.marker.roster.Name == name && o.marker.set == m.set && ns.nodes[i].isUp() && ns.nodes[i].unfitNow() == nil {
			return nil, fmt.Errorf("%w: it gives the votes of %s, as %s does", ErrUnsupportedNode, name, ns.nodes[i].addr)
		}
	}
	return nil, nil
}

// tooLong refuses a lease that the set does not allow.
func (ns *Set) tooLong(lease time.Duration, r *roster.Record) error {
	return fmt.Errorf("%w: a lease of %v is longer than %v, the longest that this set allows (%s); SetNodes with LongestLease raises it", ErrDisagreement, lease, r.Longest, describe(r))
}

// activation is what tells a node that remembers another record which one is in force. One that joins grants nothing for the
// longest lease: so long a claim on a member that has left may be counted. With the quarantine off, too: that is about memory.
func (ns *Set) activation(m marker, name string, r *roster.Record) *change {
	c := &change{marker: m.with(roster.Activate(name, r)), quarantine: -1, raise: -1}
	founded := m.roster.Founding && m.roster.Active.Is(r)
	if !founded && r.Has(name) && !r.Stays(name, m.inForce()) {
		c.first = false
		c.quarantine = max(r.Wait, r.Longest)
		ns.lift(c, m.floor, true)
		for _, o := range ns.seen {
			c.floor = max(c.floor, o.marker.floor+c.spread)
		}
	}
	return c
}

// dueFounding is due in a set that has no record in force: of a version before the roster, or brand-new. The first one is
// written by whoever finds all nodes that it lists, and is in force when all have held it at one moment. Until then the nodes of
// an old set vote as ever. The caller holds the mutex.
func (ns *Set) dueFounding(n *Node, m marker) (*change, error) {
	if err := ns.disagreement(m); err != nil {
		return nil, err
	}
	if m.proven < ns.option.KeyValidity {
		return nil, fmt.Errorf("%w: KeyValidity %v is longer than %v, the longest lease of this set", ErrDisagreement, ns.option.KeyValidity, m.proven)
	}
	x := m.roster.Active
	if want := ns.firstRecord(n); want != nil && (x == nil || want.String() < x.String()) {
		return &change{marker: m.with(roster.State{Name: n.addr, Active: want, Founding: true}).firstly(m), quarantine: -1, raise: -1}, nil
	}
	if x != nil && ns.allHold(x) {
		return nil, errFoundable
	}
	if x != nil && m.first && m.quarantined {
		return nil, fmt.Errorf("%w: its set (%s) is founded when all members have been reached", ErrQuarantined, describe(x))
	}
	return nil, nil
}

// yields returns why a node that a new set was being founded with is taken into one that is in force. It was brand-new to whoever
// began that, who has not seen that the other set remembers: all had forgotten it, and some were taken back meanwhile. Both sets take
// as many nodes for a quorum, and no node votes for two, so it does no harm should the new one be decided at the same moment.
func (ns *Set) yields(n *Node, m marker, r *roster.Record) error {
	if name := ns.nameOf(n, m, r); !r.Has(name) { // who knows it by its name does it
		return fmt.Errorf("%w: its set (%s) is being founded, and it is taken back by who lists it by a member's name", ErrQuarantined, describe(r))
	}
	return errErased
}

// firstly keeps what a node of an old set allows until its first record is in force.
func (m marker) firstly(was marker) marker {
	m.proven = was.proven
	return m
}

// firstRecord returns the record that a node of an unfounded set should propose, or hold that others propose: of several the
// smallest, so that programs which met the set at the same time come to one. nil: not all nodes have been found yet.
func (ns *Set) firstRecord(n *Node) *roster.Record {
	var x *roster.Record
	longest := ns.option.MaxKeyValidity
	all := true
	for _, s := range ns.seen {
		if !s.read || s.fault != nil || !s.adopted || s.marker.set != ns.view.set {
			all = false
			continue
		}
		longest = max(longest, s.marker.longest)
		if o := s.marker.roster; o.Founding {
			all = false // somebody has proposed one
			if o.Active.Has(n.addr) && (x == nil || o.Active.String() < x.String()) {
				x = o.Active
			}
		}
	}
	if x != nil || !all {
		return x
	}
	return ns.newRecord(ns.view.set, longest)
}

// newRecord is the first record of a set of the nodes that we list.
func (ns *Set) newRecord(set string, longest time.Duration) *roster.Record {
	r := roster.Record{Version: 1, ID: set, Members: ns.option.Addrs, Longest: longest}
	if ns.quarantine > 0 {
		r.Wait = max(ns.quarantine, longest)
	}
	return roster.New(r)
}

// allHold reports whether all members of a record that is to be the first hold it, as far as is known, and are listed here.
func (ns *Set) allHold(x *roster.Record) bool {
	n := 0
	for _, s := range ns.seen {
		if s.adopted && s.fault == nil && s.marker.roster.Active.Is(x) && x.Has(s.marker.roster.Name) {
			n++
		}
	}
	return n >= len(x.Members)
}
