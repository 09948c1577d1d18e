package main

import (
	"bytes"
	"cmp"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"time"

	"github.com/redlock-go/redlock/bench"
)

// report is what one run came to, or several, as it is kept.
type report struct {
	Runs []machine   `json:"runs"`
	Rows []bench.Row `json:"rows"`
}

// machine is what a run's figures depend on.
type machine struct {
	Command string   `json:"command"`
	At      string   `json:"at"`
	Commit  string   `json:"commit"`
	CPU     string   `json:"cpu"`
	System  string   `json:"system"`
	Go      string   `json:"go"`
	Server  string   `json:"server"`
	Peers   []string `json:"peers"`
}

func describeMachine() (machine, error) {
	server, err := bench.ServerVersion()
	m := machine{
		Command: strings.Join(append([]string{"go run ./cmd/compare"}, os.Args[1:]...), " "),
		At:      time.Now().UTC().Format("2006-01-02 15:04 MST"),
		Commit:  output("git", "describe", "--always", "--dirty"),
		CPU:     fmt.Sprintf("%d × %s", runtime.NumCPU(), processor()),
		System:  fmt.Sprintf("%s/%s %s", runtime.GOOS, runtime.GOARCH, output("uname", "-r")),
		Go:      runtime.Version(),
		Server:  server,
	}
	for _, p := range bench.PeerModules {
		m.Peers = append(m.Peers, p+" "+output("go", "list", "-m", "-f", "{{.Version}}", p))
	}
	return m, err
}

func (m machine) String() string {
	return fmt.Sprintf("`%s`, %s, redlock %s; %s, %s, shared by the clients and all servers; %s; %s, persistence off; %s.\n",
		m.Command, m.At, m.Commit, m.CPU, m.System, m.Go, m.Server, strings.Join(m.Peers, ", "))
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

// output is what a command says, "" where it cannot run.
func output(name string, args ...string) string {
	out, _ := exec.Command(name, args...).Output()
	return strings.TrimSpace(string(out))
}

// print writes the tables of sections to w.
func (r *report) print(w io.Writer, sections []bench.Section) error {
	var text bytes.Buffer
	for _, m := range r.Runs {
		fmt.Fprintln(&text, m)
	}
	for _, s := range sections {
		printSection(&text, s, r.Rows)
	}
	_, err := w.Write(text.Bytes())
	return err
}

// tables keeps what print writes, in dir.
func (r *report) tables(dir string, sections []bench.Section) error {
	var text bytes.Buffer
	fmt.Fprint(&text, "# Figures of the benchmarks\n\nWritten by bench/cmd/compare; [benchmarks.md](../benchmarks.md) says what they are.\n\n")
	if err := r.print(&text, sections); err != nil {
		return err
	}
	return os.WriteFile(filepath.Join(dir, "tables.md"), text.Bytes(), 0o644)
}

// keep writes the report to dir, with a row in each line so that two can be compared.
func (r *report) keep(dir string) error {
	runs, err := json.MarshalIndent(r.Runs, " ", " ")
	if err != nil {
		return err
	}
	lines := make([]string, len(r.Rows))
	for i, row := range r.Rows {
		line, err := json.Marshal(row)
		if err != nil {
			return err
		}
		lines[i] = string(line)
	}
	text := fmt.Sprintf("{\n \"runs\": %s,\n \"rows\": [\n%s\n ]\n}\n", runs, strings.Join(lines, ",\n"))
	return os.WriteFile(filepath.Join(dir, "figures.json"), []byte(text), 0o644)
}

// readReports puts the reports of several files into one.
func readReports(files []string) (*report, error) {
	all := new(report)
	for _, file := range files {
		text, err := os.ReadFile(file)
		if err != nil {
			return nil, err
		}
		var r report
		if err := json.Unmarshal(text, &r); err != nil {
			return nil, fmt.Errorf("%s: %w", file, err)
		}
		all.Runs, all.Rows = append(all.Runs, r.Runs...), append(all.Rows, r.Rows...)
	}
	slices.SortStableFunc(all.Rows, func(a, b bench.Row) int {
		return cmp.Or(cmp.Compare(a.Transport, b.Transport), cmp.Compare(a.Nodes, b.Nodes))
	})
	return all, nil
}
