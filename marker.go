package redlock

import (
	"fmt"
	"strconv"
	"strings"
	"time"
)

// marker is what a node remembers of itself for one key prefix, in the key <prefix>:marker. Scripts compare it as
// a whole with what the client last read, so a client that has not read what the node says now gets no vote.
//
//	run_id : quarantined until µs : fence floor µs : longest lease ms[/proven ms] : nodes : set id : first : quarantine
//
// It is the only witness of lost memory that holds: uptime is wall clock and jumps with it, and FLUSHALL, SWAPDB,
// a promoted replica and a stale dump change nothing that a client could see.
type marker struct {
	raw         string        // as stored; empty when there is none
	runID       string        // of the process that the data was adopted for
	until       int64         // µs of node time: no grants before
	floor       int64         // tokens start here
	longest     time.Duration // longest lease any client wants to use
	proven      time.Duration // longest lease that may be used: every node has known it for as long as an old one lasts
	nodes       int           // how many nodes the clients' set has
	set         string        // the set's id
	first       bool          // adopted as a brand-new node, whose quarantine Init may skip
	quarantined bool          // whether clients use the quarantine
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
	if proven <= 0 || proven > longest || longest > maxKeyValidity.Milliseconds() || until < 0 || until >= maxMicros || floor < 0 || floor >= maxMicros {
		return m, false // no client wrote that: it would overflow an instant, or quarantine for ever
	}
	m.runID, m.until, m.floor, m.nodes, m.set = f[0], until, floor, nodes, f[5]
	m.longest, m.proven = time.Duration(longest)*time.Millisecond, time.Duration(proven)*time.Millisecond
	m.first, m.quarantined = f[6] == "first", f[7] == "on"
	return m, true
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
	return fmt.Sprintf("%s:%d:%s:%s:%s", longest, m.nodes, m.set, first, quarantine)
}

const (
	runIDLen  = 40
	maxMicros = 1 << 53 // the year 2255, up to which Lua counts µs by ones
)
