// Command compare measures redlock beside other libraries, and beside itself in other commits, on redis-server processes
// of its own. Package bench says how to use it.
package main

import (
	"errors"
	"flag"
	"fmt"
	"os"
	"regexp"
	"strings"
	"time"

	"github.com/redlock-go/redlock/bench"
)

var (
	conditions = flag.String("run", "", "regexp of the conditions to measure; -list has their names")
	peers      = flag.String("peers", "", "regexp of the peers to measure beside redlock")
	list       = flag.Bool("list", false, "list the conditions and their peers, and measure nothing")
	against    = flag.String("against", "", "commits of redlock, separated by commas, to measure beside the working tree")
	rounds     = flag.Int("rounds", 0, "rounds, in place of each section's own number")
	each       = flag.Duration("each", 0, "length of one measurement, in place of each section's own")
	profile    = flag.String("profile", "", "directory for a CPU profile of each peer")
	out        = flag.String("out", "", "directory for figures.json, tables.md and SVG plots")
	from       = flag.String("from", "", "files of figures, separated by commas: show those, and measure nothing")
)

func main() {
	flag.Parse()
	if err := run(); err != nil {
		fmt.Fprintln(os.Stderr, "compare:", err)
		os.Exit(1)
	}
}

func run() error {
	sections, err := selected()
	if err != nil || *list {
		return err
	}
	if *out != "" {
		if err := os.MkdirAll(*out, 0o755); err != nil {
			return err
		}
	}
	var r *report
	if *from != "" {
		r, err = readReports(strings.Split(*from, ","))
	} else {
		r, err = measure(sections)
	}
	if r == nil {
		return err
	}
	err = errors.Join(err, r.print(os.Stdout, sections))
	if *out != "" {
		err = errors.Join(err, r.keep(*out), r.tables(*out, sections), drawAll(*out, r.Rows))
	}
	return err
}

// selected is the sections, without what the flags leave out.
func selected() ([]bench.Section, error) {
	condition, err := regexp.Compile(*conditions)
	if err != nil {
		return nil, err
	}
	peer, err := regexp.Compile(*peers)
	if err != nil {
		return nil, err
	}
	sections := bench.Sections()
	for i := range sections {
		groups := sections[i].Groups
		sections[i].Groups = nil
		for _, g := range groups {
			g = g.Only(condition.MatchString, peer.MatchString)
			if *rounds > 0 {
				g.Rounds = *rounds
			}
			if *each > 0 {
				g.Each = *each
			}
			if len(g.Conditions) > 0 {
				sections[i].Groups = append(sections[i].Groups, g)
			}
			if *list {
				for _, c := range g.Conditions {
					fmt.Println(c, g.Peers)
				}
			}
		}
	}
	return sections, nil
}

// measure goes on after a group that failed: what the others took is not lost.
func measure(sections []bench.Section) (*report, error) {
	builder, err := bench.NewBuilder()
	if err != nil {
		return nil, err
	}
	defer builder.Close()
	var older []bench.Contestant
	for _, commit := range strings.FieldsFunc(*against, func(r rune) bool { return r == ',' }) {
		c, err := builder.Redlock(commit)
		if err != nil {
			return nil, err
		}
		older = append(older, c)
	}
	m, err := describeMachine()
	if err != nil {
		return nil, err
	}
	r := &report{Runs: []machine{m}}
	var errs error
	for _, s := range sections {
		for _, g := range s.Groups {
			start := time.Now()
			rows, err := g.Run(append(builder.Contestants(g.Peers), older...), *profile)
			fmt.Fprintf(os.Stderr, "%v and %d more: %v\n", g.Conditions[0], len(g.Conditions)-1, time.Since(start).Round(time.Second/10))
			r.Rows = append(r.Rows, rows...)
			errs = errors.Join(errs, err)
			if *out != "" {
				errs = errors.Join(errs, r.keep(*out)) // so far: a run that is cut short leaves what it had
			}
		}
	}
	return r, errs
}
