package bench

import (
	"fmt"
	"slices"
	"strings"
)

// Condition is under what something is measured. Zero fields do not apply.
type Condition struct {
	Section    string `json:"section"`
	Transport  string `json:"transport,omitempty"`
	Nodes      int    `json:"nodes"`
	Callers    int    `json:"callers,omitempty"`
	Locks      int    `json:"locks,omitempty"`
	Contenders int    `json:"contenders,omitempty"`
	Slots      int    `json:"slots,omitempty"` // of a semaphore
	Reads      int    `json:"reads,omitempty"` // of ten acquisitions of a reader-writer lock
	Names      int    `json:"names,omitempty"` // taken as one lock
	State      string `json:"state,omitempty"` // of the nodes: what ails them
}

// String is the condition's name, which -run matches.
func (c Condition) String() string {
	name := []string{c.Section}
	for _, word := range []string{c.Transport, strings.ReplaceAll(c.State, " ", "-")} {
		if word != "" {
			name = append(name, word)
		}
	}
	for _, count := range []struct {
		of string
		n  int
	}{{"nodes", c.Nodes}, {"callers", c.Callers}, {"locks", c.Locks}, {"contenders", c.Contenders}, {"slots", c.Slots}, {"reads", c.Reads}, {"names", c.Names}} {
		if count.n != 0 {
			name = append(name, fmt.Sprintf("%s=%d", count.of, count.n))
		}
	}
	return strings.Join(name, "/")
}

// Figures are what one measurement came to, by name and unit.
type Figures map[string]float64

// Spread is a figure over the rounds.
type Spread struct {
	Low    float64 `json:"q1"`
	Median float64 `json:"median"`
	High   float64 `json:"q3"`
}

// Row is what one peer came to under one condition.
type Row struct {
	Condition
	Peer    string            `json:"peer"`
	Rounds  int               `json:"rounds"`
	Figures map[string]Spread `json:"figures"`
}

func newRow(c Condition, peer string, rounds []Figures) Row {
	r := Row{Condition: c, Peer: peer, Rounds: len(rounds), Figures: map[string]Spread{}}
	for figure := range rounds[0] {
		var values []float64
		for _, round := range rounds {
			if v, ok := round[figure]; ok {
				values = append(values, v)
			}
		}
		r.Figures[figure] = spread(values)
	}
	return r
}

// spread is the median and quartiles of values.
func spread(values []float64) Spread {
	slices.Sort(values)
	at := func(quarter int) float64 {
		whole, part := (len(values)-1)*quarter/4, float64((len(values)-1)*quarter%4)/4
		if part == 0 {
			return values[whole]
		}
		return values[whole]*(1-part) + values[whole+1]*part
	}
	return Spread{at(1), at(2), at(3)}
}

// MarshalJSON keeps four digits.
func (s Spread) MarshalJSON() ([]byte, error) {
	return fmt.Appendf(nil, `{"q1":%.4g,"median":%.4g,"q3":%.4g}`, s.Low, s.Median, s.High), nil
}
