package bench

import "time"

// Group is what is measured in turns: every contestant under every condition, round after round.
type Group struct {
	Conditions []Condition
	Peers      []string // names of client's; the ratios are of the first
	Rounds     int
	Each       time.Duration // of one measurement
	open       func(g Group, contestants []Contestant, profile string) (session, error)
	rate       string // the figure that ratios are of
}

// Only leaves out conditions and peers by name; the first peer stays.
func (g Group) Only(condition, peer func(name string) bool) Group {
	conditions, peers := g.Conditions, g.Peers
	g.Conditions, g.Peers = nil, peers[:1:1]
	for _, c := range conditions {
		if condition(c.String()) {
			g.Conditions = append(g.Conditions, c)
		}
	}
	for _, p := range peers[1:] {
		if peer(p) {
			g.Peers = append(g.Peers, p)
		}
	}
	return g
}

// session is a group under way.
type session interface {
	measure(c Condition, who Contestant, each time.Duration) (Figures, error)
	close()
}

// Ratio is the figure that says how often the first contestant's rate is that of a row.
const Ratio = "redlock ×"

// Run measures a group.
func (g Group) Run(contestants []Contestant, profile string) ([]Row, error) {
	s, err := g.open(g, contestants, profile)
	if err != nil {
		return nil, err
	}
	defer s.close()
	type key struct{ condition, contestant int }
	seen := map[key][]Figures{}
	for round := range g.Rounds {
		for i, condition := range g.Conditions {
			for turn := range contestants {
				j := (turn + round) % len(contestants)
				figures, err := s.measure(condition, contestants[j], g.Each)
				if err != nil {
					return nil, err
				}
				seen[key{i, j}] = append(seen[key{i, j}], figures)
			}
			first := seen[key{i, 0}][round][g.rate]
			for j := 1; j < len(contestants); j++ {
				if figures := seen[key{i, j}][round]; figures[g.rate] > 0 {
					figures[Ratio] = first / figures[g.rate]
				}
			}
		}
	}
	var rows []Row
	for i, condition := range g.Conditions {
		for j, c := range contestants {
			rows = append(rows, newRow(condition, c.Label, seen[key{i, j}]))
		}
	}
	return rows, nil
}
