package main

import (
	"bytes"
	"cmp"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strconv"

	"gonum.org/v1/plot"
	"gonum.org/v1/plot/plotter"
	"gonum.org/v1/plot/plotutil"
	"gonum.org/v1/plot/vg"

	"github.com/redlock-go/redlock/bench"
)

// chart is one plot: a line for each peer, over one size of the condition.
type chart struct {
	file, title string
	over        string // what size is
	size        func(bench.Condition) int
	figure      string
	has         func(bench.Condition) bool
}

func charts() []chart {
	callers := func(c bench.Condition) int { return c.Callers }
	nodes := func(c bench.Condition) int { return c.Nodes }
	locks := func(c bench.Condition) int { return c.Locks }
	var all []chart
	for _, transport := range []string{"tcp", "unix"} {
		for _, n := range []int{1, 5} {
			has := func(c bench.Condition) bool { return c.Section == "pairs" && c.Transport == transport && c.Nodes == n }
			all = append(all, chart{fmt.Sprintf("callers-%d-%s", n, transport), fmt.Sprintf("Acquire and release (nodes: %d, %s)", n, transport), "callers", callers, "pairs/s", has})
		}
		has := func(c bench.Condition) bool {
			return c.Section == "pairs" && c.Transport == transport && c.Callers == 64
		}
		all = append(all,
			chart{"nodes-" + transport, "Acquire and release (64 callers, " + transport + ")", "nodes", nodes, "pairs/s", has},
			chart{"nodes-client-" + transport, "Client CPU of a pair (64 callers, " + transport + ")", "nodes", nodes, "client µs", has})
	}
	five := func(c bench.Condition) bool { return c.Section == "pairs" && c.Transport == "unix" && c.Nodes == 5 }
	held := func(c bench.Condition) bool { return c.Section == "hold" && c.Nodes == 3 }
	return append(all,
		chart{"server", "Server CPU of a pair and node (5 nodes, unix)", "callers", callers, "server µs", five},
		chart{"held-cpu", "Client CPU of locks held (3 nodes)", "locks", locks, "client %", held},
		chart{"held-taken", "Locks taken a second by 256 callers (3 nodes)", "locks", locks, "taken/s", held})
}

// drawAll draws what there are rows for.
func drawAll(dir string, rows []bench.Row) error {
	var err error
	for _, c := range charts() {
		err = errors.Join(err, c.draw(dir, rows))
	}
	return err
}

// points are one peer's medians, with the quartiles around them.
type points struct {
	plotter.XYs
	plotter.YErrors
}

func (c chart) draw(dir string, rows []bench.Row) error {
	rows = slices.SortedStableFunc(slices.Values(rows), func(a, b bench.Row) int { return cmp.Compare(c.size(a.Condition), c.size(b.Condition)) })
	lines := map[string]*points{}
	var peers []string
	var sizes []int
	for _, r := range rows {
		figure, ok := r.Figures[c.figure]
		if !ok || !c.has(r.Condition) {
			continue
		}
		if lines[r.Peer] == nil {
			lines[r.Peer] = new(points)
			peers = append(peers, r.Peer)
		}
		line, size := lines[r.Peer], c.size(r.Condition)
		line.XYs = append(line.XYs, plotter.XY{X: float64(size), Y: figure.Median})
		line.YErrors = append(line.YErrors, struct{ Low, High float64 }{figure.Median - figure.Low, figure.High - figure.Median})
		sizes = append(sizes, size)
	}
	if len(peers) == 0 {
		return nil
	}
	plot.DefaultFont.Variant = "Sans"
	p := plot.New()
	p.Title.Text, p.X.Label.Text, p.Y.Label.Text = c.title, c.over, c.figure
	p.Title.Padding = vg.Points(6)
	p.Add(plotter.NewGrid())
	for i, name := range peers {
		if err := addLine(p, i, name, lines[name]); err != nil {
			return err
		}
	}
	p.Y.Min, p.Y.Max = 0, 1.35*p.Y.Max // room for the legend
	p.X.Tick.Marker = ticksAt(sizes)
	if c.over != "nodes" {
		p.X.Scale = plot.LogScale{}
	}
	first := lines[peers[0]].XYs
	p.Legend.Top, p.Legend.Left = true, first[len(first)-1].Y > first[0].Y
	p.Legend.Padding = vg.Points(2)
	return save(p, filepath.Join(dir, c.file+".svg"))
}

// save writes an SVG that is legible also where Liberation Sans, whose widths the layout is made with, is missing.
func save(p *plot.Plot, file string) error {
	drawing, err := p.WriterTo(7*vg.Inch, 4.5*vg.Inch, "svg")
	if err != nil {
		return err
	}
	var svg bytes.Buffer
	if _, err := drawing.WriteTo(&svg); err != nil {
		return err
	}
	text := bytes.ReplaceAll(svg.Bytes(), []byte("font-family:Liberation Sans;"), []byte("font-family:Liberation Sans,Arial,sans-serif;"))
	return os.WriteFile(file, text, 0o644)
}

func addLine(p *plot.Plot, i int, name string, at *points) error {
	line, dots, err := plotter.NewLinePoints(at)
	if err != nil {
		return err
	}
	bars, err := plotter.NewYErrorBars(at)
	if err != nil {
		return err
	}
	color := plotutil.DarkColors[i%len(plotutil.DarkColors)]
	line.Color, dots.Color, bars.Color = color, color, color
	line.Dashes, dots.Shape = plotutil.Dashes(i), plotutil.Shape(i)
	if i == 0 {
		line.Width = vg.Points(2.5)
	}
	p.Add(line, dots, bars)
	p.Legend.Add(name, line, dots)
	return nil
}

func ticksAt(sizes []int) plot.ConstantTicks {
	slices.Sort(sizes)
	var ticks plot.ConstantTicks
	for _, size := range slices.Compact(sizes) {
		ticks = append(ticks, plot.Tick{Value: float64(size), Label: strconv.Itoa(size)})
	}
	return ticks
}
