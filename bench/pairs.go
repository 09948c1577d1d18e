package bench

import (
	"fmt"
	"os"
	"time"

	"github.com/redlock-go/redlock/bench/client"
)

// What ails nodes.
const (
	network1ms = "network 1 ms"
	lastSlow   = "last node 50 ms"
	lastSilent = "last node silent"
	allWell    = "all well"
)

// pairsSession has all contestants connected to the same nodes.
type pairsSession struct {
	servers *servers
	workers map[string]*worker
	state   string
}

func openPairs(g Group, contestants []Contestant, profile string) (session, error) {
	first := g.Conditions[0]
	nodes, err := startServers(first.Nodes, first.Transport)
	if err != nil {
		return nil, err
	}
	s := &pairsSession{nodes, map[string]*worker{}, first.State}
	if err := s.prepare(g, contestants, profile); err != nil {
		s.close()
		return nil, err
	}
	return s, nil
}

func (s *pairsSession) prepare(g Group, contestants []Contestant, profile string) error {
	last := len(s.servers.nodes) - 1
	switch s.state {
	case network1ms:
		for i := range s.servers.nodes {
			if err := s.servers.slowDown(i, time.Millisecond); err != nil {
				return err
			}
		}
	case lastSlow:
		if err := s.servers.slowDown(last, 50*time.Millisecond); err != nil {
			return err
		}
	}
	for _, c := range contestants {
		w, err := c.start(s.servers.nodes, false, profile)
		if err != nil {
			return err
		}
		s.workers[c.Label] = w
		for _, condition := range g.Conditions { // connections, scripts, pools
			if _, err := s.measure(condition, c, time.Millisecond); err != nil {
				return err
			}
		}
	}
	if s.state == lastSilent { // now: a node that took connections before is the worst kind
		time.Sleep(50 * time.Millisecond) // stragglers of the warm-up get home
		return s.servers.silence()
	}
	return nil
}

func (s *pairsSession) close() {
	for _, w := range s.workers {
		w.end()
	}
	s.servers.close()
}

func (s *pairsSession) measure(c Condition, who Contestant, each time.Duration) (Figures, error) {
	time.Sleep(2 * time.Millisecond) // stragglers of the one before get home
	before, err := s.usage()
	if err != nil {
		return nil, err
	}
	var p client.Pairs
	if err := s.workers[who.Label].Call("Worker.Pairs", client.Load{Callers: c.Callers, For: lengthen(each, c.Callers)}, &p); err != nil {
		return nil, fmt.Errorf("%v: %s: %w", c, who.Label, err)
	}
	after, err := s.usage()
	if err != nil {
		return nil, err
	}
	if p.Done == 0 {
		fmt.Fprintf(os.Stderr, "%v: %s: all %d failed, with %s\n", c, who.Label, p.Failed, p.Err)
	}
	figures := Figures{
		"pairs/s": float64(p.Done) / p.Elapsed.Seconds(),
		"p50 µs":  micros(p.P50), "p99 µs": micros(p.P99), "max µs": micros(p.Max),
		"failed": float64(p.Failed),
	}
	if done := float64(p.Done); done > 0 {
		figures["client µs"] = micros(p.CPU) / done
		figures["allocs"] = float64(p.Allocs) / done
		if s.state != lastSilent {
			figures["server µs"] = micros(after.cpu-before.cpu) / done / float64(c.Nodes)
			figures["scripts"] = (after.scripts - before.scripts) / done / float64(c.Nodes)
		}
	}
	return figures, nil
}

// lengthen gives many callers, each of whom waits for the others, the time to come round several times.
func lengthen(each time.Duration, callers int) time.Duration {
	switch {
	case callers >= 256:
		return 4 * each
	case callers >= 64:
		return 2 * each
	}
	return each
}

func (s *pairsSession) usage() (usage, error) {
	if s.state == lastSilent {
		return usage{}, nil // it cannot be asked
	}
	return s.servers.usage()
}

func micros(d time.Duration) float64 { return float64(d) / float64(time.Microsecond) }
