package roster

import "slices"

// Phase is how far a change has come.
type Phase uint8

const (
	Preparing  Phase = iota // every old member is to promise the ballot
	Accepting               // and to accept the record
	Confirming              // and is looked at once more: it still holds it, and is the same process
	Decided                 // the record is in force: members, old and new, are to be told
	Beaten                  // another ballot is ahead: try a larger one
	Superseded              // another record is in force
)

// Change is one try to replace a record. Whoever is to take part is asked in each phase, all at once, and a phase begins when
// all have said yes in the one before; so a member that forgets in between is found out.
type Change struct {
	Base, Value *Record // what is replaced, and by what: what was asked for, or what a node had accepted before
	Ballot      Ballot
	Phase       Phase
	Newer       *Record // Superseded: by what
	Ahead       Ballot  // the largest ballot met

	off   []string // old members that are off for good, and need not say anything, whatever the record says
	said  []said
	found Ballot // by which Value was accepted, where it was found
}

// said is what an old member has said in this phase.
type said struct {
	name, process string
	yes           bool
}

// NewChange begins a try, in which those that are off for good need not take part.
func NewChange(base, value *Record, b Ballot, off ...string) *Change {
	c := &Change{Base: base, Value: value, Ballot: b, Ahead: b, off: off}
	c.involve()
	return c
}

// involve has all take part who have to by the record that is to be decided.
func (c *Change) involve() {
	for _, name := range c.Value.Told(c.Base) {
		if !slices.Contains(c.off, name) && !slices.ContainsFunc(c.said, func(s said) bool { return s.name == name }) {
			c.said = append(c.said, said{name: name})
		}
	}
}

// Due returns who is to be asked in this phase and has not said yes.
func (c *Change) Due() []string {
	var due []string
	if c.Phase <= Confirming {
		for _, s := range c.said {
			if !s.yes {
				due = append(due, s.name)
			}
		}
	}
	return due
}

// Step returns what a member's state is to become in this phase, and whether it says yes.
func (c *Change) Step(s State) (State, bool) {
	switch c.Phase {
	case Preparing:
		if s.takesPart(c.Base) && s.Promised == c.Ballot {
			return s, true // by us, and the answer was lost
		}
		return s.Prepare(c.Base, c.Ballot)
	case Accepting:
		return s.Accept(c.Base, c.Ballot, c.Value)
	}
	return s, s.Holds(c.Base, c.Ballot, c.Value)
}

// Answer takes what a member has come to: the process that it is, its state as it is stored now, and whether it has said yes.
func (c *Change) Answer(name, process string, s State, yes bool) {
	if c.Phase > Confirming {
		return
	}
	i := slices.IndexFunc(c.said, func(s said) bool { return s.name == name })
	if i < 0 {
		return
	}
	if c.Ahead.Less(s.Promised) {
		c.Ahead = s.Promised
	}
	switch r := s.InForce(); {
	case r.Newer(c.Base) && r.Is(c.Value):
		c.Phase = Decided // by somebody else
		return
	case r.Newer(c.Base):
		c.Phase, c.Newer = Superseded, r
		return
	case yes && c.Phase == Confirming && c.said[i].process != process:
		yes = false // it has forgotten, is back, and was made to accept again: what it has granted meanwhile is unknown
	}
	if !yes {
		c.Phase = Beaten
		return
	}
	c.said[i].yes, c.said[i].process = true, process
	if c.Phase == Preparing && s.Value != nil && c.found.Less(s.Accepted) {
		c.Value, c.found = s.Value, s.Accepted
		c.involve()
	}
	if len(c.Due()) == 0 {
		c.Phase++
		for i := range c.said {
			c.said[i].yes = false
		}
	}
}
