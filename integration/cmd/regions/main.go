// Regions measures locks whose nodes stand in five regions: five real redis-server processes behind proxies with the
// round trips between regions, a client in the first of them and one in the fourth.
//
//	regions               some minutes; prints the tables of docs/multi-region.md
//	regions -tries 50     more of each
package main

import (
	"bytes"
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"os/exec"
	"os/signal"
	"runtime"
	"slices"
	"strings"
	"syscall"
	"time"

	"github.com/redlock-go/redlock"
	"github.com/redlock-go/redlock/internal/redisproc"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	err := run(ctx, os.Args[1:], os.Stdout)
	stop()
	if errors.Is(err, flag.ErrHelp) {
		os.Exit(2)
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, "regions:", err)
		os.Exit(1)
	}
}

func run(ctx context.Context, args []string, out io.Writer) error {
	flags := flag.NewFlagSet("regions", flag.ContinueOnError)
	tries := flags.Int("tries", 7, "of each measurement")
	lease := flags.Duration("lease", 10*time.Second, "KeyValidity")
	timeout := flags.Duration("timeout", 0, "NodeTimeout; 0: the default")
	if err := flags.Parse(args); err != nil {
		return err
	}
	fmt.Fprintf(out, "`regions -tries %d -lease %v -timeout %v` on %s\n\n", *tries, *lease, *timeout, machine())

	w, err := newWorld()
	if err != nil {
		return err
	}
	defer w.close()
	option := redlock.LockerOption{KeyValidity: *lease, NodeTimeout: *timeout}
	init, err := w.open(ctx, option)
	if err != nil {
		return err
	}
	fmt.Fprintf(out, "| client | round trips to regions 1 to 5 | third-fastest |\n| --- | --- | --- |\n")
	for _, c := range w.clients {
		fmt.Fprintf(out, "| %s | %s | %v |\n", c.name, list(c.trips), third(c.trips))
	}
	fmt.Fprintf(out, "\n`Init` from client A, the first thing it does: %v.\n\n", round(init))

	all, err := w.measure(ctx, *tries)
	if err != nil {
		return err
	}
	fmt.Fprintf(out, "All regions up, median (largest) of %d:\n\n| | A | B |\n| --- | --- | --- |\n", *tries)
	for _, f := range all {
		fmt.Fprintf(out, "| %s | %v | %v |\n", f.what, f.by[0], f.by[1])
	}

	fmt.Fprintf(out, "\nOne region lost (silent, both ways), median (largest) of %d:\n\n| lost |", *tries)
	for _, f := range w.short() {
		for _, c := range w.clients {
			fmt.Fprintf(out, " %s, %s |", f, c.name)
		}
	}
	fmt.Fprintf(out, "\n| --- |%s\n", strings.Repeat(" --- |", 2*len(w.short())))
	for region := range w.nodes {
		w.lose(region)
		figures, err := w.measureShort(ctx, *tries)
		w.restore(region)
		if err != nil {
			return fmt.Errorf("region %d lost: %w", region+1, err)
		}
		fmt.Fprintf(out, "| %d |", region+1)
		for _, f := range figures {
			fmt.Fprintf(out, " %v | %v |", f.by[0], f.by[1])
		}
		fmt.Fprintln(out)
		if err := w.settle(ctx); err != nil {
			return err
		}
	}

	p, err := w.partition(ctx)
	if err != nil {
		return err
	}
	fmt.Fprintf(out, "\nA partition, once: A holds the lock and waits for another, and is left with regions 1 and 2; B, which waits for the held one, keeps 3, 4 and 5.\n\n| | after the partition |\n| --- | --- |\n")
	for _, r := range p {
		fmt.Fprintf(out, "| %s | %v |\n", r.what, round(r.after))
	}
	return ctx.Err()
}

// samples are the measurements of one thing.
type samples []time.Duration

func (s samples) median() time.Duration { return slices.Sorted(slices.Values(s))[len(s)/2] }

func (s samples) String() string {
	if len(s) == 0 {
		return "–"
	}
	return fmt.Sprintf("%v (%v)", round(s.median()), round(slices.Max(s)))
}

func round(d time.Duration) time.Duration {
	if d > 10*time.Second {
		return d.Round(10 * time.Millisecond)
	}
	return d.Round(time.Millisecond)
}

func list(trips []time.Duration) string {
	words := make([]string, len(trips))
	for i, t := range trips {
		words[i] = fmt.Sprint(t.Milliseconds())
	}
	return strings.Join(words, ", ") + " ms"
}

func third(trips []time.Duration) time.Duration {
	return slices.Sorted(slices.Values(trips))[len(trips)/2]
}

// machine says what the figures were measured on.
func machine() string {
	cpu := "unknown processor"
	info, _ := os.ReadFile("/proc/cpuinfo")
	for line := range bytes.Lines(info) {
		if key, value, ok := strings.Cut(string(line), ":"); ok && strings.TrimSpace(key) == "model name" {
			cpu = strings.TrimSpace(value)
			break
		}
	}
	server := "unknown server"
	if path, err := redisproc.Find(); err == nil {
		if text, err := exec.Command(path, "--version").Output(); err == nil {
			if fields := strings.Fields(string(text)); len(fields) > 2 {
				server = fields[0] + " " + strings.TrimPrefix(fields[2], "v=")
			}
		}
	}
	return fmt.Sprintf("%s, %d CPUs, %s, %s, %s", cpu, runtime.NumCPU(), runtime.GOOS, runtime.Version(), server)
}
