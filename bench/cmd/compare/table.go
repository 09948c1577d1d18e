package main

import (
	"fmt"
	"io"
	"math"
	"slices"
	"strconv"
	"strings"
	"text/tabwriter"

	"github.com/redlock-go/redlock/bench"
)

// printSection prints a section's table, one for each number of nodes, transport and state, so that a table can be read
// at once.
func printSection(w io.Writer, s bench.Section, rows []bench.Row) {
	rows = slices.DeleteFunc(slices.Clone(rows), func(r bench.Row) bool { return r.Section != s.Name })
	s.Columns = slices.DeleteFunc(slices.Clone(s.Columns), func(figure string) bool {
		return !slices.ContainsFunc(rows, func(r bench.Row) bool { _, ok := r.Figures[figure]; return ok })
	})
	var t *table
	before := ""
	for _, r := range rows {
		if t == nil {
			fmt.Fprintf(w, "\n## %s\n\n%s\n", s.Title, s.Text)
		}
		if group := groupOf(r.Condition); group != before {
			t.flush()
			fmt.Fprintf(w, "\n### %s\n\n", group)
			t, before = newTable(w, s, r.Condition), group
		}
		t.row(r)
	}
	t.flush()
}

// groupOf is the title of the table that a row belongs to.
func groupOf(c bench.Condition) string {
	words := []string{fmt.Sprintf("%d nodes", c.Nodes)}
	if c.Nodes == 1 {
		words[0] = "1 node"
	}
	switch c.Transport {
	case "unix":
		words = append(words, "unix sockets")
	case "tcp":
		words = append(words, "TCP")
	}
	if c.State != "" {
		words = append(words, c.State)
	}
	return strings.Join(words, ", ")
}

// table is a markdown table whose columns stand below each other also in plain text.
type table struct {
	w       *tabwriter.Writer
	columns []string
	size    func(bench.Condition) int
}

func newTable(w io.Writer, s bench.Section, c bench.Condition) *table {
	t := &table{w: tabwriter.NewWriter(w, 0, 0, 1, ' ', 0), columns: s.Columns}
	var title string
	switch {
	case c.Callers > 0:
		title, t.size = "callers", func(c bench.Condition) int { return c.Callers }
	case c.Locks > 0:
		title, t.size = "locks", func(c bench.Condition) int { return c.Locks }
	default:
		title, t.size = "contenders", func(c bench.Condition) int { return c.Contenders }
	}
	titles := append([]string{title, "peer"}, t.columns...)
	t.line(titles)
	rule := make([]string, len(titles))
	for i := range rule {
		rule[i] = "---"
	}
	t.line(rule)
	return t
}

func (t *table) row(r bench.Row) {
	cells := []string{strconv.Itoa(t.size(r.Condition)), r.Peer}
	for i, column := range t.columns {
		figure, ok := r.Figures[column]
		switch {
		case !ok:
			cells = append(cells, "–")
		case i == 0 || column == bench.Ratio:
			cells = append(cells, withSpread(figure))
		default:
			cells = append(cells, short(figure.Median))
		}
	}
	t.line(cells)
}

func (t *table) line(cells []string) {
	fmt.Fprintf(t.w, "| %s\t|\n", strings.Join(cells, "\t| "))
}

func (t *table) flush() {
	if t != nil {
		t.w.Flush()
	}
}

// withSpread is the median, and by how much of it the quartiles lie around it.
func withSpread(s bench.Spread) string {
	if s.Median == 0 {
		return "0"
	}
	return fmt.Sprintf("%s ±%.0f %%", short(s.Median), 50*(s.High-s.Low)/s.Median)
}

// short writes three digits, or all before the point.
func short(v float64) string {
	switch size := math.Abs(v); {
	case size >= 100 || v == math.Trunc(v):
		return strconv.FormatFloat(v, 'f', 0, 64)
	case size >= 10:
		return strconv.FormatFloat(v, 'f', 1, 64)
	}
	return strconv.FormatFloat(v, 'f', 2, 64)
}
