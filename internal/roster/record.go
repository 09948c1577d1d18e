// Package roster is who makes up a set of nodes, and how that is changed: a record that the nodes keep, what one node
// remembers of it, and a change from one record to the next. It knows no server, no clock and no goroutine, so the protocol
// can be taken through every order of events. docs/roster.md says why it is like that.
package roster

import (
	"net/url"
	"slices"
	"strconv"
	"strings"
	"time"
)

// Record is who makes up a set, and what its members go by. It never changes: a change is another record.
type Record struct {
	Version int
	ID      string
	Base    string        // the ID of the one that it replaces; empty for the first
	Members []string      // their names, sorted
	Longest time.Duration // longest lease that anybody may have
	Wait    time.Duration // for how long a member that may have forgotten something grants nothing; 0 is off
	Off     []string      // members of the base that are off for good, so that nobody has to tell them

	text string
}

// New returns a record of these fields, as it is stored.
func New(r Record) *Record {
	r.Members, r.Off = sorted(r.Members), sorted(r.Off)
	r.text = strings.Join([]string{strconv.Itoa(r.Version), r.ID, r.Base, millis(r.Longest), millis(r.Wait), list(r.Members), list(r.Off)}, "/")
	return &r
}

// Parse reads what String has written.
func Parse(text string) (*Record, bool) {
	f := strings.Split(text, "/")
	if len(f) != 7 {
		return nil, false
	}
	version, err1 := strconv.Atoi(f[0])
	longest, err2 := strconv.ParseInt(f[3], 10, 64)
	wait, err3 := strconv.ParseInt(f[4], 10, 64)
	members, ok1 := unlist(f[5])
	off, ok2 := unlist(f[6])
	if err1 != nil || err2 != nil || err3 != nil || !ok1 || !ok2 || version < 1 || len(members) == 0 || f[1] == "" {
		return nil, false
	}
	if longest <= 0 || longest > maxMillis || wait < 0 || wait > maxMillis {
		return nil, false
	}
	r := New(Record{Version: version, ID: f[1], Base: f[2], Members: members, Off: off,
		Longest: time.Duration(longest) * time.Millisecond, Wait: time.Duration(wait) * time.Millisecond})
	return r, r.text == text // nothing but what we write: texts are compared
}

// maxMillis is the longest that an option may be: 90 days.
const maxMillis = 90 * 24 * 3600 * 1000

// String returns the record as it is stored. It holds no colon and no comma.
func (r *Record) String() string {
	if r == nil {
		return ""
	}
	return r.text
}

// Is reports whether two records are the same one; none is the same as none.
func (r *Record) Is(o *Record) bool { return r.String() == o.String() }

// Has reports whether a name is a member's.
func (r *Record) Has(name string) bool { return slices.Contains(r.Members, name) }

// Quorum returns how many members make a quorum.
func (r *Record) Quorum() int { return len(r.Members)/2 + 1 }

// Newer reports whether a record comes after another one; any comes after none.
func (r *Record) Newer(o *Record) bool { return r != nil && (o == nil || r.Version > o.Version) }

// Told returns the members of the base that have to take part in the change to this record: all that are not off.
func (r *Record) Told(base *Record) []string {
	return slices.DeleteFunc(slices.Clone(base.Members), func(name string) bool { return slices.Contains(r.Off, name) })
}

// Stays reports whether a member of the base goes on voting as a member of this record without a quarantine. One that joins
// may not: a claim on a member that left is counted for a lease. And nobody may where a quorum of the new members and one of
// the old need not meet.
func (r *Record) Stays(name string, base *Record) bool {
	return base != nil && base.ID == r.Base && base.Has(name) && r.Has(name) && r.Quorum()+base.Quorum() > len(base.Members)
}

func sorted(names []string) []string {
	names = slices.Clone(names)
	slices.Sort(names)
	return slices.Compact(names)
}

func millis(d time.Duration) string { return strconv.FormatInt(d.Milliseconds(), 10) }

// list puts names together, and keeps them free of what parts a marker's fields, a state's and a record's.
func list(names []string) string {
	escaped := make([]string, len(names))
	for i, name := range names {
		escaped[i] = url.QueryEscape(name)
	}
	return strings.Join(escaped, "&")
}

func unlist(text string) (names []string, ok bool) {
	if text == "" {
		return nil, true
	}
	for _, escaped := range strings.Split(text, "&") {
		name, err := url.QueryUnescape(escaped)
		if err != nil || name == "" {
			return nil, false
		}
		names = append(names, name)
	}
	return names, true
}
