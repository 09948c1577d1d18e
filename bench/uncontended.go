package bench

import (
	"fmt"
	"time"
)

// names is how many names each caller of Uncontended goes round: a straggler of the last
// use of a name is home before its next.
const names = 4

// Uncontended is a load of callers that acquire and release names of their own.
type Uncontended struct {
	Nodes, Callers int
	Peers          []Peer
	OneWay         time.Duration // delay on the way to each node and back
	Silent         bool          // the last node answers nothing
	Rounds         int
	Each           time.Duration // of one peer in one round
}

// Run loads the peers in turn, round after round, and returns each one's median. Ratios
// are taken within a round, to the first peer: another process's burst then spoils one
// round and not the ratio.
func (u Uncontended) Run() ([]Sample, error) {
	nodes, err := StartNodes(u.Nodes)
	if err != nil {
		return nil, err
	}
	defer nodes.Close()
	if u.OneWay > 0 {
		if err := nodes.SlowDown(u.OneWay); err != nil {
			return nil, err
		}
	}
	loads := make([][]func() error, len(u.Peers))
	for i, p := range u.Peers {
		c, err := p.New(nodes.Options(nil))
		if err != nil {
			return nil, fmt.Errorf("%s: %w", p.Name, err)
		}
		defer c.Close()
		loads[i] = Callers(c, p.Name, u.Callers)
		// Connections, scripts, round-trip times; and a peer that does not work at all is no peer.
		if s := Load(u.Each/4, loads[i]); s.Done == 0 && s.Failed > 0 {
			return nil, fmt.Errorf("%s: all %d operations failed: %w", p.Name, s.Failed, s.Err)
		}
	}
	if u.Silent {
		time.Sleep(50 * time.Millisecond) // stragglers of the warm-up get home
		if err := nodes.Silence(); err != nil {
			return nil, err
		}
		defer nodes.Wake() // before the clients close
	}
	samples := make([][]Sample, len(u.Peers))
	for round := range u.Rounds {
		for i := range u.Peers {
			i = (i + round) % len(u.Peers)
			s, err := u.load(nodes, loads[i])
			if err != nil {
				return nil, err
			}
			samples[i] = append(samples[i], s)
		}
	}
	medians := make([]Sample, len(u.Peers))
	for i := range medians {
		for round := range samples[i] {
			samples[i][round].Ratio = samples[i][round].PerSecond / samples[0][round].PerSecond
		}
		medians[i] = medianSample(samples[i])
	}
	return medians, nil
}

// load adds the servers' part to a sample.
func (u Uncontended) load(nodes *Nodes, operations []func() error) (Sample, error) {
	if u.Silent {
		return Load(u.Each, operations), nil
	}
	before, err := nodes.CPUTime()
	if err != nil {
		return Sample{}, err
	}
	s := Load(u.Each, operations)
	after, err := nodes.CPUTime()
	if s.Done > 0 {
		s.NodeCPU = (after - before) / time.Duration(s.Done)
	}
	return s, err
}

// Callers returns n operations, each an acquisition and release of a name of its own.
func Callers(c Client, prefix string, n int) []func() error {
	callers := make([]func() error, n)
	for i := range callers {
		var pairs [names]func() error
		for j := range pairs {
			pairs[j] = c.Pair(fmt.Sprintf("%s-%d-%d", prefix, i, j))
		}
		next := 0
		callers[i] = func() error {
			next = (next + 1) % names
			return pairs[next]()
		}
	}
	return callers
}
