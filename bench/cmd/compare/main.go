// Command compare measures redlock beside other libraries on redis-server processes of
// its own, and prints what docs/benchmarks.md shows. It takes four minutes at most.
package main

import (
	"errors"
	"flag"
	"fmt"
	"os"
	"os/exec"
	"runtime"
	"runtime/debug"
	"strings"
	"text/tabwriter"
	"time"

	"github.com/redlock-go/redlock/bench"
)

var (
	only  = flag.String("only", "", "parts to run, by name, separated by commas; default all: pairs, slow, silent, hold, contention")
	short = flag.Bool("short", false, "one round of a tenth of the time: to see that it works, not for figures")
)

func main() {
	flag.Parse()
	if err := run(); err != nil {
		fmt.Fprintln(os.Stderr, "compare:", err)
		os.Exit(1)
	}
}

func run() error {
	if err := machine(); err != nil {
		return err
	}
	parts := []struct {
		name string
		run  func() error
	}{{"pairs", pairs}, {"slow", slow}, {"silent", silent}, {"hold", hold}, {"contention", contention}}
	var errs error
	for _, p := range parts {
		if *only == "" || strings.Contains(","+*only+",", ","+p.name+",") {
			if err := p.run(); err != nil {
				errs = errors.Join(errs, fmt.Errorf("%s: %w", p.name, err))
			}
		}
	}
	return errs
}

// machine prints what the figures depend on.
func machine() error {
	nodes, err := bench.StartNodes(1)
	if err != nil {
		return err
	}
	defer nodes.Close()
	command := strings.Join(append([]string{"go run ./cmd/compare"}, os.Args[1:]...), " ")
	fmt.Printf("Command: `cd bench && %s`, %s.\n\n", command, time.Now().UTC().Format("2006-01-02 15:04 MST"))
	fmt.Printf("Machine: %d × %s, %s/%s%s, shared by the client and all servers; %s; %s.\n\n",
		runtime.NumCPU(), processor(), runtime.GOOS, runtime.GOARCH, kernel(), runtime.Version(), nodes.Version())
	if info, ok := debug.ReadBuildInfo(); ok {
		var versions []string
		for _, m := range info.Deps {
			switch m.Path {
			case "github.com/redis/rueidis", "github.com/go-redsync/redsync/v4":
				versions = append(versions, m.Path+" "+m.Version)
			}
		}
		fmt.Printf("Peers: %s. All on rueidis, over unix sockets, persistence off.\n", strings.Join(versions, ", "))
	}
	return nil
}

func processor() string {
	cpus, _ := os.ReadFile("/proc/cpuinfo") // elsewhere: unknown
	for line := range strings.Lines(string(cpus)) {
		if name, value, ok := strings.Cut(line, ":"); ok && strings.TrimSpace(name) == "model name" {
			return strings.TrimSpace(value)
		}
	}
	return "unknown CPU"
}

func kernel() string {
	out, err := exec.Command("uname", "-r").Output()
	if err != nil {
		return ""
	}
	return " " + strings.TrimSpace(string(out))
}

// scaled is rounds and their length, or less where -short is given.
func scaled(rounds int, each time.Duration) (int, time.Duration) {
	if *short {
		return 1, each / 10
	}
	return rounds, each
}

func pairs() error {
	heading("Acquire and release, uncontended",
		"An operation is one acquisition and one release of a name that nobody else wants. Ratio is operations per second beside the bare fan-out that waits for a quorum, taken within a round. CPU is per operation: of this process, and of all servers together; where they share cores, as here, the sum bounds the rate. The bare fan-out is a goroutine per node with SET NX PX in a script and nothing else: no validity, fencing, extension or pushes; INCR adds a counter, TIME and a read, still without what makes tokens rise.")
	t := newTable("nodes", "callers", "peer", "ops/s", "ratio", "p50", "p99", "CPU client", "CPU servers", "allocs", "failed")
	defer t.print()
	rounds, each := scaled(9, 100*time.Millisecond)
	for _, n := range []int{1, 3, 5} {
		for _, callers := range []int{1, 16, 64} {
			peers := []bench.Peer{bench.BareQuorum, bench.Redlock, bench.BareAll, bench.BareFenced, bench.BareOurs, bench.Redsync}
			if n == 1 {
				peers = append(peers, bench.Rueidislock)
			}
			u := bench.Uncontended{Nodes: n, Callers: callers, Peers: peers, Rounds: rounds, Each: each}
			if err := t.uncontended(u); err != nil {
				return err
			}
		}
	}
	return nil
}

func slow() error {
	heading("The same over a slow network",
		"Every node is behind a proxy in this process that delays each direction by 1 ms: its CPU is not told apart, so none is shown. At 64 callers the two cores are busy proxying.")
	t := newTable("nodes", "callers", "peer", "ops/s", "ratio", "p50", "p99", "allocs", "failed")
	defer t.print()
	rounds, each := scaled(5, 200*time.Millisecond)
	for _, n := range []int{3, 5} {
		for _, callers := range []int{1, 16, 64} {
			peers := []bench.Peer{bench.BareQuorum, bench.Redlock, bench.BareAll, bench.Redsync}
			u := bench.Uncontended{Nodes: n, Callers: callers, Peers: peers, OneWay: time.Millisecond, Rounds: rounds, Each: each}
			if err := t.uncontended(u); err != nil {
				return err
			}
		}
	}
	return nil
}

func silent() error {
	heading("One node silent",
		"The last node is stopped with SIGSTOP before the first round and stays so. It is a node that took connections before, the worst kind: redlock hangs up on it after a second. Redsync's Unlock is given a context of 500 ms, as it has no bound of its own.")
	t := newTable("nodes", "callers", "peer", "ops/s", "ratio", "p50", "p99", "max", "failed")
	defer t.print()
	rounds, each := scaled(3, 400*time.Millisecond)
	for _, n := range []int{3, 5} {
		for _, callers := range []int{1, 16} {
			peers := []bench.Peer{bench.BareQuorum, bench.Redlock, bench.Redsync, bench.RedsyncFast}
			u := bench.Uncontended{Nodes: n, Callers: callers, Peers: peers, Silent: true, Rounds: rounds, Each: each}
			if err := t.uncontended(u); err != nil {
				return err
			}
		}
	}
	return nil
}

func hold() error {
	heading("Locks held idle",
		fmt.Sprintf("One client holds the locks and does nothing else; lease %v, extended every %v (redsync does not extend). Memory is live heap and stacks.", bench.Lease, bench.ExtendInterval.Round(time.Millisecond)))
	t := newTable("locks", "nodes", "peer", "goroutines", "memory per lock", "requests per s and node", "CPU client")
	defer t.print()
	_, each := scaled(1, bench.ExtendInterval)
	for _, locks := range []int{1000, 10000} {
		for _, run := range []struct {
			nodes int
			peer  bench.Peer
		}{{1, bench.Redlock}, {3, bench.Redlock}, {1, bench.Rueidislock}} {
			h := bench.Holding{Nodes: run.nodes, Locks: locks, Each: each}
			cost, err := h.Run(run.peer)
			if err != nil {
				return err
			}
			t.row(locks, run.nodes, run.peer.Name, cost.Goroutines, fmt.Sprintf("%.0f B", cost.Memory),
				fmt.Sprintf("%.0f", cost.Requests), fmt.Sprintf("%.1f %%", 100*cost.CPU))
		}
	}
	return nil
}

func contention() error {
	heading("Contention: hand-over of one lock",
		"Each contender is a client of its own, holds for 1 ms and asks again at once. Hand-over is from the call of a release to the return of the next acquisition; worst wait is of one acquisition, also of one that got nothing by the end of the round (1 s); fair is the smallest share over the largest; requests are those of all clients to all nodes per hand-over.")
	t := newTable("nodes", "contenders", "peer", "hand-overs/s", "p50", "p99", "max", "worst wait", "fair", "requests", "failed")
	defer t.print()
	rounds, each := scaled(3, time.Second)
	for _, n := range []int{1, 5} {
		for _, contenders := range []int{2, 8, 32} {
			peers := []bench.Peer{bench.Redlock, bench.Redsync, bench.RedsyncEager}
			if n == 1 {
				peers = append(peers, bench.Rueidislock)
			}
			c := bench.Contention{Nodes: n, Contenders: contenders, Hold: time.Millisecond, Peers: peers, Rounds: rounds, Each: each}
			results, err := c.Run()
			if err != nil {
				return err
			}
			for i, h := range results {
				t.row(n, contenders, peers[i].Name, fmt.Sprintf("%.0f", h.PerSecond), h.P50, h.P99, h.Max, h.WorstWait,
					fmt.Sprintf("%.2f", h.Fairness), fmt.Sprintf("%.1f", h.Requests), h.Failed)
			}
		}
	}
	return nil
}

func heading(title, text string) { fmt.Printf("\n## %s\n\n%s\n\n", title, text) }

// table is a markdown table whose columns stand below each other also in plain text.
type table struct {
	w      *tabwriter.Writer
	titles []string
}

func newTable(titles ...string) *table {
	t := &table{w: tabwriter.NewWriter(os.Stdout, 0, 0, 1, ' ', 0), titles: titles}
	t.line(titles)
	rule := make([]string, len(titles))
	for i := range rule {
		rule[i] = "---"
	}
	t.line(rule)
	return t
}

func (t *table) line(cells []string) {
	fmt.Fprintf(t.w, "| %s\t|\n", strings.Join(cells, "\t| "))
}

func (t *table) row(cells ...any) {
	texts := make([]string, len(cells))
	for i, c := range cells {
		if d, ok := c.(time.Duration); ok {
			texts[i] = span(d)
		} else {
			texts[i] = fmt.Sprint(c)
		}
	}
	t.line(texts)
}

// span writes a duration with three digits.
func span(d time.Duration) string {
	switch {
	case d >= time.Second:
		return d.Round(10 * time.Millisecond).String()
	case d >= time.Millisecond:
		return d.Round(10 * time.Microsecond).String()
	}
	return d.Round(100 * time.Nanosecond).String()
}

func (t *table) print() { t.w.Flush() }

// uncontended runs a load and adds a row per peer, the first of which the ratios are to.
func (t *table) uncontended(u bench.Uncontended) error {
	samples, err := u.Run()
	if err != nil {
		return err
	}
	for i, s := range samples {
		all := map[string]any{
			"nodes": u.Nodes, "callers": u.Callers, "peer": u.Peers[i].Name,
			"ops/s": fmt.Sprintf("%.0f", s.PerSecond), "ratio": fmt.Sprintf("%.2f", s.Ratio),
			"p50": s.P50, "p99": s.P99, "max": s.Max,
			"CPU client": s.CPU, "CPU servers": s.NodeCPU, "allocs": fmt.Sprintf("%.0f", s.Allocs), "failed": s.Failed,
		}
		cells := make([]any, len(t.titles))
		for i, title := range t.titles {
			cells[i] = all[title]
		}
		t.row(cells...)
	}
	return nil
}
