package roster

import "slices"

// Electorate is by whose votes a program takes locks, of the nodes that it lists.
type Electorate struct {
	Record  *Record      // nil: the set has none yet, and every node listed is a member
	Size    int          // how many members there are, listed or not
	Quorum  int          // how many of them make a quorum
	Names   []string     // by node of the program: whose votes it gives; empty while that is not known
	Members []bool       // by node of the program: it gives a member's, or may do so
	Missing []string     // members that the program does not list, by what is known of the nodes
	Pending []Electorate // records that a member has accepted, and that may be in force: a lock is held by a quorum of each of them, too
}

// Elect returns the electorate of a record among nodes with these names. Without a record it is all of them.
func Elect(r *Record, names []string) Electorate {
	e := Electorate{Record: r, Size: len(names), Names: slices.Clone(names), Members: make([]bool, len(names))}
	if r == nil {
		for i := range names {
			e.Members[i] = true
		}
		e.Quorum = e.Size/2 + 1
		return e
	}
	e.Size, e.Quorum = len(r.Members), r.Quorum()
	unknown := 0
	for i, name := range names {
		e.Members[i] = name == "" || r.Has(name)
		if name == "" {
			unknown++
		}
	}
	for _, name := range r.Members {
		if !slices.Contains(names, name) {
			e.Missing = append(e.Missing, name)
		}
	}
	if len(e.Missing) <= unknown { // it may be them
		e.Missing = nil
	}
	return e
}

// Listed returns how many members the program lists.
func (e *Electorate) Listed() int { return e.Size - len(e.Missing) }
