package main

import (
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/redlock-go/redlock/internal/roster"
)

// setRecord is who makes up the set, by the nodes' own record.
type setRecord struct {
	Version       int          `json:"version"`
	Members       []string     `json:"members"`
	Quorum        int          `json:"quorum"`
	LongestMillis int64        `json:"longest_lease_ms"`
	WaitMillis    int64        `json:"quarantine_ms"`
	Unlisted      []string     `json:"unlisted,omitempty"` // members that none of the listed nodes is, as far as is known
	Pending       []pendingSet `json:"pending,omitempty"`

	record *roster.Record
}

// pendingSet is a change of the set that some nodes have accepted and nobody has finished.
type pendingSet struct {
	Version       int      `json:"version"`
	Members       []string `json:"members"`
	LongestMillis int64    `json:"longest_lease_ms"`
	AcceptedBy    []string `json:"accepted_by"`
}

// judgeRoster finds out who the members are, and what is wrong with that.
func (r *checkup) judgeRoster() {
	set := r.commonSet()
	var record *roster.Record
	founding := false
	for _, v := range r.Nodes {
		if m := v.exam.Marker; m.Valid && m.Set == set {
			founding = founding || m.Roster.Founding
			if in := m.Roster.InForce(); in.Newer(record) {
				record = in
			}
		}
	}
	switch {
	case record != nil:
	case founding:
		r.add(note, "", "the set is being founded: its record is in force when all nodes that a program lists have answered", "see to it that all nodes can be reached")
		return
	default:
		return // brand-new, or of a version before the roster
	}
	r.Quorum = record.Quorum()
	r.Roster = &setRecord{Version: record.Version, Members: record.Members, Quorum: record.Quorum(),
		LongestMillis: record.Longest.Milliseconds(), WaitMillis: record.Wait.Milliseconds(), record: record}

	found, anybody := make(map[string]bool), false
	var strangers []*vitals
	for _, v := range r.Nodes {
		name := v.member(set)
		switch {
		case record.Has(name):
			found[name] = true
			r.judgeMember(v)
		case !v.Reachable:
			anybody = true // it may be any member, under another address
		default:
			v.votes = false
			strangers = append(strangers, v)
		}
	}
	missing := slices.DeleteFunc(slices.Clone(record.Members), func(name string) bool { return found[name] })
	r.Roster.Unlisted = missing
	for _, v := range strangers {
		advice := "take it out of the lists, or make it a member: redlock nodes set with all members, old and new"
		if len(missing) > 0 {
			advice = fmt.Sprintf("list %s; or to have it take that place: redlock nodes replace, with the old members as --nodes", strings.Join(missing, " and "))
		}
		r.add(fault, v.Node, "it is no member of the set ("+strings.Join(record.Members, ", ")+"; roster "+strconv.Itoa(record.Version)+"): it has no vote", advice)
	}
	for _, name := range missing {
		if anybody {
			r.add(note, "", "member "+name+" is not listed, unless it is a node that cannot be asked", "mend those first")
			continue
		}
		r.add(fault, "", "member "+name+" is not listed: programs with this list cannot have its vote", "list it; if it is gone, have another take its place: redlock nodes replace")
	}
	for _, p := range r.Roster.Pending {
		r.add(warning, "", fmt.Sprintf("a change to roster %d (%s; longest lease %v) is not finished: %s grant nothing until it is", p.Version,
			strings.Join(p.Members, ", "), time.Duration(p.LongestMillis)*time.Millisecond, strings.Join(p.AcceptedBy, ", ")),
			"a program that reaches all members finishes it (redlock nodes is one); else mend the members that cannot be reached")
	}
}

// commonSet returns the id of the set that most nodes are of, of equals the first.
func (r *checkup) commonSet() (set string) {
	count := make(map[string]int)
	for _, v := range r.Nodes {
		if m := v.exam.Marker; m.Valid {
			if count[m.Set]++; count[m.Set] > count[set] {
				set = m.Set
			}
		}
	}
	return set
}

// member returns whose votes a node gives: as it says itself, or by its address where it remembers nothing or cannot be asked; empty
// for one of another set.
func (v *vitals) member(set string) string {
	m := v.exam.Marker
	switch {
	case m.Valid && m.Set != set:
		return ""
	case m.Valid && m.Roster.Name != "":
		return m.Roster.Name
	}
	return v.Node
}

// judgeMember finds out whether a member goes by the set's record, and has accepted another.
func (r *checkup) judgeMember(v *vitals) {
	state := v.exam.Marker.Roster
	if in := state.InForce(); in != nil && r.Roster.record.Newer(in) {
		r.add(note, v.Node, fmt.Sprintf("it goes by roster %d, and the set by %d", in.Version, r.Roster.Version), "nothing: the next program that looks at both tells it")
	}
	value := state.Value
	if !value.Newer(r.Roster.record) {
		return
	}
	v.votes = false
	i := slices.IndexFunc(r.Roster.Pending, func(p pendingSet) bool { return p.Version == value.Version && slices.Equal(p.Members, value.Members) })
	if i < 0 {
		i = len(r.Roster.Pending)
		r.Roster.Pending = append(r.Roster.Pending, pendingSet{Version: value.Version, Members: value.Members, LongestMillis: value.Longest.Milliseconds()})
	}
	p := &r.Roster.Pending[i]
	p.AcceptedBy = append(p.AcceptedBy, v.Node)
}

// judgeSet finds what is wrong with all nodes together.
func (r *checkup) judgeSet() {
	votes, voters := 0, make(map[string]bool) // a server that is listed twice has one vote
	byRun, versions, sets := make(map[string]string), make(map[string]bool), make(map[string]bool)
	longest, quarantines := make(map[time.Duration]bool), make(map[bool]bool)
	for _, v := range r.Nodes {
		if name := v.member(r.commonSet()); v.votes && !voters[name] {
			voters[name] = true
			votes++
		}
		if v.RunID != "" {
			if first, twice := byRun[v.RunID]; twice {
				r.add(fault, v.Node, "it is the same server as "+first+": it has one vote", "list each server once")
			} else {
				byRun[v.RunID] = v.Node
			}
			versions[v.Product+" "+v.Version] = true
		}
		if m := v.exam.Marker; m.Valid {
			if r.Roster == nil && m.Nodes != len(r.Nodes) {
				r.add(fault, v.Node, fmt.Sprintf("%d nodes are listed here, and the programs that use it list %d", len(r.Nodes), m.Nodes), "list the same nodes everywhere")
			}
			sets[m.Set], longest[m.Longest], quarantines[m.Quarantine] = true, true, true
		}
	}
	n := len(r.Nodes)
	if r.Roster != nil {
		n = len(r.Roster.Members)
	}
	switch {
	case votes < r.Quorum:
		r.add(fault, "", fmt.Sprintf("%d of %d nodes can vote, quorum is %d: nobody can take a lock", votes, n, r.Quorum), "mend the nodes above")
	case votes == r.Quorum && votes < n:
		r.add(fault, "", fmt.Sprintf("%d of %d nodes can vote, quorum is %d: not one more may fail", votes, n, r.Quorum), "mend the nodes above")
	case n == 1:
		r.add(note, "", "one node: a plain lock without redundancy", "three or five nodes survive the loss of one or two")
	case n%2 == 0:
		r.add(note, "", fmt.Sprintf("%d nodes survive the loss of %d, as %d would", n, (n-1)/2, n-1), "use an odd number")
	}
	if len(sets) > 1 {
		r.add(fault, "", "the nodes carry the ids of "+strconv.Itoa(len(sets))+" sets: nodes of different sets were mixed", "list one set's nodes; if they are one set that was split when it lost its memory, delete the marker on the nodes of one half")
	}
	if len(quarantines) > 1 {
		r.add(fault, "", "some nodes were used with the restart quarantine on, and some with it off", "set RestartQuarantine alike in every program")
	}
	if r.Roster == nil && len(longest) > 1 {
		r.add(note, "", "not every node knows the longest lease yet", "nothing: it is being changed, or a node was away when it was")
	}
	if len(versions) > 1 {
		r.add(note, "", "the nodes run different versions", "fine during an upgrade")
	}
}
