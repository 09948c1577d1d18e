// Command again runs once more what failed on real servers. What a test there does goes by real time, and a machine that it shares
// with others may stand still for longer than a lease; a test that waited for everything would show nothing any more.
//
//	make test | tee log; go run ./internal/again log
//
// Each such test is run alone, three times, and must pass each time. Its first failure stays in the log. Anything else is a failure at
// once: a test without real servers, a broken promise of a lock (integration/check), a data race, a panic, a leak, a build that fails.
package main

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"regexp"
	"slices"
	"strings"
)

func main() {
	if err := run(os.Args[1:]); err != nil {
		fmt.Fprintln(os.Stderr, "again:", err)
		os.Exit(1)
	}
}

func run(args []string) error {
	if len(args) != 1 {
		return errors.New("usage: again LOG, which is what make test printed")
	}
	log, err := os.Open(args[0])
	if err != nil {
		return err
	}
	defer log.Close()
	failed, err := read(log)
	if err != nil {
		return err
	}
	for _, p := range failed {
		fmt.Printf("== %s: again, alone: %s of %s\n", p.module, strings.Join(p.tests, ", "), p.path)
		cmd := exec.Command("go", "test", "-race", "-count=3", "-parallel=1", "-run", "^("+strings.Join(p.tests, "|")+")$", p.path)
		cmd.Dir, cmd.Stdout, cmd.Stderr = p.module, os.Stdout, os.Stderr
		err = errors.Join(err, cmd.Run())
	}
	return err
}

// tests are those of one package that failed.
type tests struct {
	module string // its directory
	path   string
	tests  []string
}

var (
	beginsModule = regexp.MustCompile(`^== (\S+): `)
	failsTest    = regexp.MustCompile(`^--- FAIL: (\S+) \(`)
	endsPackage  = regexp.MustCompile(`^(?:(FAIL)|ok  |\?   )\t(\S+)`)
	// onServers is printed of a test that failed by internal/redisproc/redistest, for each of its servers.
	onServers = regexp.MustCompile(`redis at \S+ has logged last:`)
	// final is what no second run makes good: promises that integration/check saw broken, and what the Go runtime says.
	final = regexp.MustCompile(`(?:exclusion|finality|fencing|register|audit of \S+|history of .*): |DATA RACE|^panic: |^fatal error: |^goleak: `)
)

// read returns what failed and may be run again, or why nothing may.
func read(log io.Reader) ([]tests, error) {
	var all []tests
	var errs []error
	p := tests{module: "."}
	servers, ends := true, ""
	endTest := func() {
		if !servers {
			errs = append(errs, fmt.Errorf("%s failed, and uses no real servers", p.tests[len(p.tests)-1]))
		}
		servers = true
	}
	lines := bufio.NewScanner(log)
	lines.Buffer(nil, 1<<24)
	for lines.Scan() {
		line := lines.Text()
		if m := beginsModule.FindStringSubmatch(line); m != nil {
			p.module = m[1]
			continue
		}
		if m := failsTest.FindStringSubmatch(line); m != nil {
			endTest()
			p.tests = append(p.tests, m[1])
			servers = false
			continue
		}
		m := endsPackage.FindStringSubmatch(line)
		if m == nil {
			servers = servers || onServers.MatchString(line)
			if ends == "" {
				ends = final.FindString(line)
			}
			continue
		}
		endTest()
		switch {
		case m[1] == "":
		case ends != "":
			errs = append(errs, fmt.Errorf("%s failed for good: %q", m[2], strings.TrimSpace(ends)))
		case len(p.tests) == 0:
			errs = append(errs, fmt.Errorf("%s failed, and not by a test", m[2]))
		default:
			slices.Sort(p.tests)
			all = append(all, tests{p.module, m[2], slices.Compact(p.tests)})
		}
		p.tests, ends = nil, ""
	}
	switch err := errors.Join(append(errs, lines.Err())...); {
	case err != nil:
		return nil, err
	case len(all) == 0:
		return nil, errors.New("the log names no test that failed")
	}
	return all, nil
}
