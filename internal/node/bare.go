package node

import "math"

// Tests of who uses a set take nodes that nobody connects to. Here is what their keepers would do.

// Park has the node take steps as if it were connected, and keep them in its queue.
func (n *Node) Park() {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.down, n.collecting = nil, math.MaxInt32/maxBatch // more than a queue comes to, where an int has 32 bits, too
}

// ReachServer is what a keeper comes to that finds the process with this run id at its node.
func (ns *Set) ReachServer(node int, runID string) error {
	return ns.claimServer(ns.nodes[node], runID)
}

// LoseServer is what a keeper comes to that finds its node down.
func (ns *Set) LoseServer(node int) {
	ns.mu.Lock()
	defer ns.mu.Unlock()
	ns.leaveServers(ns.nodes[node], "")
}
