package netproxy

import "time"

// kind is what happens to bytes that are ready to leave the proxy.
type kind int

const (
	pass kind = iota
	hold
	drop
)

// fault is how one direction fails. The zero value is a network that works.
type fault struct {
	kind  kind
	delay func() time.Duration // nil for none; only with pass
}

// faults are those of both directions.
type faults struct{ requests, replies fault }

func (f *faults) set(d Direction, value fault) {
	if d&Requests != 0 {
		f.requests = value
	}
	if d&Replies != 0 {
		f.replies = value
	}
}
