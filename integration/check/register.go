package check

import (
	"fmt"
	"sync"
)

// Register is a resource that a fencing token protects: it refuses a token smaller than one it has seen. It notes
// what a resource without that check would have done.
type Register struct {
	mu       sync.Mutex
	highest  uint64
	writer   uint64 // token of the last accepted write
	left     map[uint64]bool
	accepted int
	refused  int
	broken   []string
}

// Write offers a write under a token and reports whether it was accepted.
func (r *Register) Write(token uint64) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	if token < r.highest {
		r.refused++
		return false
	}
	if r.left == nil {
		r.left = make(map[uint64]bool)
	}
	if token != r.writer {
		r.left[r.writer] = true
	}
	if r.left[token] {
		r.broken = append(r.broken, fmt.Sprintf("register: token %d wrote again after %d", token, r.writer))
	}
	r.highest, r.writer = token, token
	r.accepted++
	return true
}

// Accepted and Refused count the writes.
func (r *Register) Accepted() int {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.accepted
}

// Refused counts the stale writes that the fence kept out.
func (r *Register) Refused() int {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.refused
}

// Violations returns writers that came back after a later one had written.
func (r *Register) Violations() []string {
	r.mu.Lock()
	defer r.mu.Unlock()
	return append([]string(nil), r.broken...)
}
