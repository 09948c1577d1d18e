package redlock

import (
	"fmt"
	"time"
)

// A clock that jumped forward has let leases expire that others still count on, so its vote is worth nothing. Looked
// at from one attempt, the nodes' clocks tell: all answered within one round. This is stateless, so it also protects a
// client that never saw the node before; node.watch sees a clock run off between two looks.

// trusted returns the ballot without the votes of nodes whose clocks are off. Two answers that disagree do not say
// which one is wrong: until a third comes neither counts.
func (g *Guard) trusted(now time.Duration) ballot {
	off, undecided := g.clocksOff(now)
	if off == nil {
		return g.ballot
	}
	b := append(ballot(nil), g.ballot...)
	for i := range b {
		switch {
		case !off[i]:
		case undecided && g.round > now:
			b[i].state = pending
		default:
			b[i].state = failed
		}
	}
	return b
}

// dropMistrusted takes the votes that the verdict did not count out of the ballot. Their nodes are told only where a
// quorum of clocks agrees: of fewer answers the median depends on who was first to answer, and where clocks are split
// three to two, each half would have the other mistrusted for ever.
func (g *Guard) dropMistrusted(now time.Duration) {
	off, _ := g.clocksOff(now)
	if off == nil {
		return
	}
	agree := 0
	for i := range off {
		if g.claims[i].clocked && !off[i] {
			agree++
		}
	}
	for i := range off {
		if !off[i] {
			continue
		}
		g.ballot[i].state = failed
		g.claims[i].err = fmt.Errorf("%w: more than %v from the other nodes'", ErrClockOff, g.l.option.ClockBound)
		if agree >= g.ballot.quorum() {
			g.l.nodes[i].mistrust(now)
		}
	}
}

// clocksOff returns which nodes' clocks, as they answered this attempt, are further than the bound from the median;
// nil if none. undecided says that there were only two, which disagree.
func (g *Guard) clocksOff(now time.Duration) (off []bool, undecided bool) {
	var buf [16]offset
	offsets := buf[:0]
	for i := range g.claims {
		if c := &g.claims[i]; c.clocked {
			offsets = append(offsets, c.offset.aged(now, g.l.option.DriftFactor))
		}
	}
	if len(offsets) < 2 {
		return nil, false
	}
	bound := g.l.option.ClockBound
	if len(offsets) == 2 {
		if offsets[0].gap(offsets[1]) <= bound {
			return nil, false
		}
		undecided = true
	}
	middle := medianOffset(offsets)
	for i := range g.claims {
		c := &g.claims[i]
		if c.clocked && (undecided || c.offset.aged(now, g.l.option.DriftFactor).gap(middle) > bound) {
			if off == nil {
				off = make([]bool, len(g.claims))
			}
			off[i] = true
		}
	}
	return off, undecided
}

// mistrust makes a node's votes worthless for the longest lease: an attempt found its clock off.
func (n *node) mistrust(now time.Duration) {
	n.mu.Lock()
	fresh := now >= n.offTill
	n.offTill = now + max(n.known.marker.longest, n.l.option.MaxKeyValidity)
	n.mu.Unlock()
	if !fresh {
		return
	}
	n.l.background.Go(func() { // the caller holds a guard's mutex, and a Logger may be slow
		n.l.distrust(n.index)
		n.l.log.Warn("redlock: node's clock is off the other nodes': its votes do not count for a lease; run NTP on nodes", "node", n.addr)
	})
}
