// Package readyz answers readiness probes by how the nodes of a redlock.Locker stand.
//
//	http.Handle("/readyz", readyz.Handler(locker))
//
// Use it for a program that can do nothing without locks. One that serves most of what it serves without them had better stay
// ready: while no quorum of nodes can be had, all programs would be taken out of service at once.
package readyz

import (
	"encoding/json"
	"net/http"
	"time"

	"github.com/redlock-go/redlock"
)

// Answer is what Handler answers, as JSON. Fields are added, never changed.
type Answer struct {
	Ready   bool   `json:"ready"`           // a quorum of nodes can be had
	Error   string `json:"error,omitempty"` // why not
	Quorum  int    `json:"quorum"`          // how many nodes must vote for a lock
	MayVote int    `json:"may_vote"`        // how many may do so now
	Held    int    `json:"held"`            // locks that this program holds
	Waiting int    `json:"waiting"`         // calls of this program that wait for one
	Nodes   []Node `json:"nodes"`
}

// Node is what the program knows of one node.
type Node struct {
	Addr              string `json:"addr"`
	Up                bool   `json:"up"` // connected, and has answered
	MayVote           bool   `json:"may_vote"`
	Error             string `json:"error,omitempty"` // why not
	RoundTripMicros   int64  `json:"round_trip_us"`
	ClockOffsetMicros int64  `json:"clock_offset_us"` // from the median of the nodes' clocks
}

// Handler answers 200 while a quorum of nodes can be had, and 503 while not, or after Close. It asks no node, and takes
// some microseconds, so it may be asked as often as one likes: see redlock's Status. The answer names the nodes and what is
// wrong with them, so keep it from the public. A program whose nodes are in quarantine is not ready: a new set of nodes
// takes one lease, or "redlock init".
func Handler(locker *redlock.Locker) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		status := locker.Status()
		w.Header().Set("Content-Type", "application/json")
		w.Header().Set("Cache-Control", "no-store")
		if status.Err != nil {
			w.WriteHeader(http.StatusServiceUnavailable)
		}
		json.NewEncoder(w).Encode(answer(status)) // who has hung up is not ready to hear why
	})
}

func answer(s redlock.Status) Answer {
	a := Answer{Ready: s.Err == nil, Error: text(s.Err), Quorum: s.Quorum, MayVote: s.MayVote, Held: s.Held, Waiting: s.Waiting, Nodes: []Node{}}
	for _, n := range s.Nodes {
		a.Nodes = append(a.Nodes, Node{
			Addr: n.Addr, Up: n.Up, MayVote: n.MayVote, Error: text(n.Err),
			RoundTripMicros: n.RoundTrip.Microseconds(), ClockOffsetMicros: n.ClockOffset.Round(time.Microsecond).Microseconds(),
		})
	}
	return a
}

func text(err error) string {
	if err == nil {
		return ""
	}
	return err.Error()
}
