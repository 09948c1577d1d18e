package roster

import (
	"net/url"
	"strconv"
	"strings"
)

// State is what one node remembers of its set. It is stored as a whole, and each step compares and sets it as a whole.
type State struct {
	Name     string  // whose votes the node gives
	Active   *Record // what it goes by; nil for a node of a set that has none yet
	Founding bool    // Active is proposed as the set's first, and not in force
	Promised Ballot  // it takes part in no change by a smaller one
	Accepted Ballot  // the ballot by which it has accepted Value
	Value    *Record // what it has accepted; nil for nothing. A node that has accepted grants nothing until it is told more
}

// Ballot numbers the tries to change a record: no two are the same.
type Ballot struct {
	N  int
	By string // whose try it is
}

// Less reports whether a ballot is below another.
func (b Ballot) Less(o Ballot) bool { return b.N < o.N || b.N == o.N && b.By < o.By }

func (b Ballot) String() string {
	if b == (Ballot{}) {
		return ""
	}
	return strconv.Itoa(b.N) + "." + b.By
}

func parseBallot(text string) (Ballot, bool) {
	if text == "" {
		return Ballot{}, true
	}
	n, by, ok := strings.Cut(text, ".")
	number, err := strconv.Atoi(n)
	return Ballot{number, by}, ok && err == nil && number > 0
}

// String returns the state as it is stored. It holds no colon.
func (s State) String() string {
	founding := ""
	if s.Founding {
		founding = "founding"
	}
	return strings.Join([]string{url.QueryEscape(s.Name), founding, s.Active.String(), s.Promised.String(), s.Accepted.String(), s.Value.String()}, ",")
}

// ParseState reads what String has written.
func ParseState(text string) (s State, ok bool) {
	f := strings.Split(text, ",")
	if len(f) != 6 {
		return s, false
	}
	var err error
	if s.Name, err = url.QueryUnescape(f[0]); err != nil {
		return s, false
	}
	s.Founding = f[1] == "founding"
	var ok1, ok2 bool
	if s.Active, ok = Parse(f[2]); !ok {
		return s, false
	}
	if s.Promised, ok1 = parseBallot(f[3]); !ok1 {
		return s, false
	}
	if s.Accepted, ok2 = parseBallot(f[4]); !ok2 {
		return s, false
	}
	if f[5] != "" {
		if s.Value, ok = Parse(f[5]); !ok {
			return s, false
		}
	}
	return s, s.String() == text
}

// InForce returns the record that the node goes by, nil if there is none in force.
func (s State) InForce() *Record {
	if s.Founding {
		return nil
	}
	return s.Active
}

// Votes reports whether the node may give votes: it is a member, and has accepted nothing.
func (s State) Votes() bool { return s.Active != nil && s.Value == nil && s.Active.Has(s.Name) }

// takesPart reports whether the node is one whom a change of this record has to tell.
func (s State) takesPart(base *Record) bool {
	return !s.Founding && s.Active != nil && s.Active.Is(base) && base.Has(s.Name)
}

// Prepare promises a ballot, if it is above all promised before.
func (s State) Prepare(base *Record, b Ballot) (State, bool) {
	if !s.takesPart(base) || !s.Promised.Less(b) {
		return s, false
	}
	s.Promised = b
	return s, true
}

// Accept takes what a ballot has come to, if exactly that ballot was promised: one that has lost its memory since, and is back,
// has promised nothing.
func (s State) Accept(base *Record, b Ballot, value *Record) (State, bool) {
	if !s.takesPart(base) || s.Promised != b {
		return s, false
	}
	s.Accepted, s.Value = b, value
	return s, true
}

// Holds reports whether the node still holds what it has accepted by a ballot.
func (s State) Holds(base *Record, b Ballot, value *Record) bool {
	return s.takesPart(base) && s.Accepted == b && s.Value.Is(value)
}

// Return is what a member remembers that has forgotten its set, and is taken back by what others say. It has promised nothing. What
// one of them has accepted it may have accepted, too: it holds that, and grants nothing, until it is settled. The one of the largest
// ballot is what whoever finishes it finds, be it decided or not; were it not taken back before, nobody could finish it.
func Return(name string, r *Record, others []State) State {
	s := Activate(name, r)
	for _, o := range others {
		if o.Value != nil && o.Active.Is(r) && (s.Value == nil || s.Accepted.Less(o.Accepted)) {
			s.Accepted, s.Value = o.Accepted, o.Value
		}
	}
	return s
}

// Activate is what a node remembers that goes by a record from now on, whatever it has accepted before.
func Activate(name string, r *Record) State { return State{Name: name, Active: r} }
