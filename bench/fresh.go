package bench

import (
	"fmt"
	"time"

	"github.com/redlock-go/redlock/bench/client"
)

// freshSession gives every measurement nodes and a worker of its own: what the one before has left, in whose memory ever,
// is gone.
type freshSession struct {
	profile string
	ask     func(w *worker, c Condition, each time.Duration) (Figures, error)
}

func (s freshSession) close() {}

func (s freshSession) measure(c Condition, who Contestant, each time.Duration) (Figures, error) {
	nodes, err := startServers(c.Nodes, c.Transport)
	if err != nil {
		return nil, err
	}
	defer nodes.close()
	w, err := who.start(nodes.nodes, true, s.profile)
	if err != nil {
		return nil, err
	}
	defer w.end()
	figures, err := s.ask(w, c, each)
	if err != nil {
		err = fmt.Errorf("%v: %s: %w", c, who.Label, err)
	}
	return figures, err
}

const takers = 256 // callers that take the locks that are to be held

func openHold(_ Group, _ []Contestant, profile string) (session, error) {
	return freshSession{profile, askHold}, nil
}

func askHold(w *worker, c Condition, each time.Duration) (Figures, error) {
	var h client.Held
	if err := w.Call("Worker.Hold", client.Hold{Locks: c.Locks, Callers: takers, For: each}, &h); err != nil {
		return nil, err
	}
	locks, seconds := float64(c.Locks), h.Elapsed.Seconds()
	return Figures{
		"taken/s":          locks / h.Taking.Seconds(),
		"taking client µs": micros(h.TakingCPU) / locks,
		"goroutines":       float64(h.Goroutines),
		"B/lock":           float64(h.Memory) / locks,
		"requests/s":       float64(h.Requests) / seconds / float64(c.Nodes),
		"client %":         100 * h.CPU.Seconds() / seconds,
		"failed":           float64(h.Failed),
	}, nil
}

const holdTime = time.Millisecond // of each contender

func openContend(_ Group, _ []Contestant, profile string) (session, error) {
	return freshSession{profile, askContend}, nil
}

func askContend(w *worker, c Condition, each time.Duration) (Figures, error) {
	var seen client.Contended
	if err := w.Call("Worker.Contend", client.Contend{Contenders: c.Contenders, Slots: c.Slots, Reads: c.Reads, Names: c.Names, Hold: holdTime, For: each}, &seen); err != nil {
		return nil, err
	}
	sum := 0
	for _, share := range seen.Shares {
		sum += share
	}
	figures := Figures{
		"hand-overs/s": float64(sum) / seen.Elapsed.Seconds(),
		"p50 µs":       micros(seen.P50), "p99 µs": micros(seen.P99), "max µs": micros(seen.Max),
		"worst wait ms":  micros(seen.WorstWait) / 1000,
		"smallest share": float64(seen.Shares[0]) / seen.Elapsed.Seconds(), "largest share": float64(seen.Shares[len(seen.Shares)-1]) / seen.Elapsed.Seconds(),
		"failed": float64(seen.Failed),
	}
	if sum > 0 {
		figures["requests"] = float64(seen.Requests) / float64(sum)
	}
	return figures, nil
}
