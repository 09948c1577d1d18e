package main

import "github.com/redlock-go/redlock/internal/node"

// holding is who has a lock on one node, by the value that is stored there.
type holding struct {
	id, label string
	kept      bool // nobody holds it any more, and it is kept from others: AtLeast, or LockDelay
}

// holderIn reads a lock's value. What a takeover left behind to keep a lock free is no holder.
func holderIn(value string) holding {
	h := holding{id: node.OwnerOf(value), label: node.LabelOf(value), kept: node.IsKept(value)}
	if h.id == node.Tombstone {
		h.id = ""
	}
	return h
}
