package node

import (
	"fmt"
	"math"
	"time"
)

// Mistrust makes a node's votes worthless for the longest lease: an attempt found its clock off, by so much.
func (n *Node) Mistrust(now, gap time.Duration) {
	n.mu.Lock()
	fresh := now >= n.offTill
	n.offTill = now + max(n.known.marker.longest, n.set.option.MaxKeyValidity)
	n.toldOff = true
	n.mu.Unlock()
	if !fresh {
		return
	}
	n.set.option.Go(func() { // the caller holds a guard's mutex, and a Logger may be slow
		n.set.option.Listener.Distrusted(n.index, ErrClockOff)
		n.tellClock("redlock: node's clock is off the other nodes': its votes do not count for a lease; run NTP on nodes", gap)
	})
}

// ownClockOff looks, when a node's clock has been seen to step, whether all did by the same amount: then it is this
// machine's clock that is off, which stood still with the machine (nothing inside sees a hypervisor stop it) or jumped.
// Claims from before end too late then, so every guard ends, and attempts with votes fail; what is sent from now on is
// measured by the clock as it goes now, so the nodes' votes count again.
//
// All, not a quorum: of two nodes that step together while a third is silent, both may be wrong, and have let others'
// leases expire. One node alone cannot be told from this machine. In both cases no vote counts for a lease, as ever.
// Until the guards have ended the nodes' clocks count as off, so that nothing which is on its way is counted.
func (ns *Set) ownClockOff(at time.Duration) {
	if len(ns.nodes) < 2 {
		return
	}
	ns.ownClock.Lock()
	defer ns.ownClock.Unlock()
	least, most := time.Duration(math.MinInt64), time.Duration(math.MaxInt64)
	all := true
	for _, n := range ns.nodes {
		n.mu.Lock()
		if n.step.At == 0 || n.step.At < at-max(ns.option.NodeTimeout, DialWithin) {
			all = false
			n.LookAgain() // its clock is to be measured, too
		}
		least, most = max(least, n.step.Lo), min(most, n.step.Hi)
		n.mu.Unlock()
	}
	if !all || least-most > ns.option.ClockBound {
		return
	}
	why := fmt.Errorf("%w: all nodes' are %v from where they were by it: this machine's clock stood still, or jumped", ErrClockOff, least)
	ns.option.Log.Warn("redlock: this machine's clock stood still, or jumped: its locks end, and it goes on", "off", Rounded(least).String())
	ns.option.Listener.OwnClockOff(why)
	for _, n := range ns.nodes {
		n.mu.Lock()
		n.offTill, n.step = n.offBefore, Offset{}
		n.mu.Unlock()
	}
	ns.option.Listener.Hopeful()
}
