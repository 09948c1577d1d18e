package node

import (
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/redlock-go/redlock/internal/roster"
)

// marker is what a node remembers of itself for one key prefix, in the key <prefix>:marker. Scripts compare it as
// a whole with what the client last read, so a client that has not read what the node says now gets no vote.
//
//	run_id : quarantined until µs : fence floor µs : longest lease ms : nodes : set id : first[,state of the roster] : quarantine
//
// Versions before the roster looked at the word alone that begins the seventh field, and at the number of nodes: where the node
// may give no vote that is 0, and they refuse it. They wrote the longest lease as announced/proven.
//
// It is the only witness of lost memory that holds: uptime is wall clock and jumps with it, and FLUSHALL, SWAPDB,
// a promoted replica and a stale dump change nothing that a client could see.
type marker struct {
	raw         string        // as stored; empty when there is none
	runID       string        // of the process that the data was adopted for
	until       int64         // µs of node time: no grants before
	floor       int64         // tokens start here
	longest     time.Duration // longest lease any client wants to use
	proven      time.Duration // longest lease that may be used: less only where an old version has announced a longer one
	nodes       int           // how many nodes the clients' set has
	set         string        // the set's id
	first       bool          // adopted as a brand-new node, whose quarantine Init may skip
	quarantined bool          // whether clients use the quarantine
	roster      roster.State  // who makes up the set; zero where nobody has written that yet
}

// parseMarker reads a stored marker. ok is false where there is none or it is not one of ours.
func parseMarker(raw string) (m marker, ok bool) {
	m.raw = raw
	f := strings.Split(raw, ":")
	if len(f) != 8 {
		return m, false
	}
	until, err1 := strconv.ParseInt(f[1], 10, 64)
	floor, err2 := strconv.ParseInt(f[2], 10, 64)
	announced, shorter, raised := strings.Cut(f[3], "/")
	if !raised {
		shorter = announced
	}
	longest, err3 := strconv.ParseInt(announced, 10, 64)
	proven, err5 := strconv.ParseInt(shorter, 10, 64)
	nodes, err4 := strconv.Atoi(f[4])
	if err1 != nil || err2 != nil || err3 != nil || err4 != nil || err5 != nil || len(f[0]) != runIDLen {
		return m, false
	}
	if proven <= 0 || proven > longest || longest > MaxDuration.Milliseconds() || until < 0 || until >= maxMicros || floor < 0 || floor >= maxMicros {
		return m, false // no client wrote that: it would overflow an instant, or quarantine for ever
	}
	m.runID, m.until, m.floor, m.nodes, m.set = f[0], until, floor, nodes, f[5]
	m.longest, m.proven = time.Duration(longest)*time.Millisecond, time.Duration(proven)*time.Millisecond
	word, state, has := strings.Cut(f[6], ",")
	if has {
		if m.roster, has = roster.ParseState(state); !has {
			return m, false
		}
	}
	m.first, m.quarantined = word == "first", f[7] == "on"
	return m, true
}

// inForce returns the record that the node goes by, nil where there is none yet.
func (m marker) inForce() *roster.Record { return m.roster.InForce() }

// unfounded reports whether the node was brand-new, and its set is not founded yet.
func (m marker) unfounded() bool { return m.first && m.roster.Founding }

// with returns a marker that says another thing about the set.
func (m marker) with(s roster.State) marker {
	m.roster = s
	m.nodes, m.quarantined = 0, s.Active.Wait > 0
	if s.Votes() {
		m.nodes = len(s.Active.Members)
	}
	m.longest = s.Active.Longest
	m.proven = m.longest
	return m
}

// rest returns the fields that the mark script stores behind the ones it computes.
func (m marker) rest() string {
	first, quarantine := "again", "off"
	if m.first {
		first = "first"
	}
	if m.quarantined {
		quarantine = "on"
	}
	longest := strconv.FormatInt(m.longest.Milliseconds(), 10)
	if m.proven != m.longest {
		longest += "/" + strconv.FormatInt(m.proven.Milliseconds(), 10)
	}
	if m.roster.Active != nil {
		first += "," + m.roster.String()
	}
	return fmt.Sprintf("%s:%d:%s:%s:%s", longest, m.nodes, m.set, first, quarantine)
}

// MaxDuration is the longest that any option may be: it leaves room for instants in nanoseconds, and for a quarantine's end
// in a marker.
const MaxDuration = 90 * 24 * time.Hour

const (
	runIDLen  = 40
	maxMicros = 1 << 53 // the year 2255, up to which Lua counts µs by ones
)
