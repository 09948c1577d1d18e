// Command mutants breaks the library in every way that mutations.txt lists, one at a time, and says whether the tests
// that are named there notice. The tree itself is never changed: each mutant is built from an overlay.
//
//	go run ./internal/mutants                      all of them; or: make mutants
//	go run ./internal/mutants -run 'takeover'      those whose names match
//	go run ./internal/mutants -tests 'TestSimulation$'   what do these tests catch alone? None must
//	go run ./internal/mutants -for 7m              as many as fit into so long, in an order drawn anew
//	go run ./internal/mutants -table               writes the table in docs/safety.md; or: make mutants-table
package main

import (
	"bytes"
	"context"
	_ "embed"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"math/rand/v2"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"regexp"
	"runtime"
	"slices"
	"strings"
	"sync"
	"syscall"
	"time"
)

//go:embed mutations.txt
var mutations string

// sound is a test that holds under every mutation: a mutant in which nothing works at all shows nothing, whatever
// fails in it.
const sound = "TestScheduleUndisturbed"

var (
	run     = flag.String("run", "", "only mutations whose names match this regular expression")
	tests   = flag.String("tests", "", "run the root's tests that match instead of those named, and only tell what they catch")
	table   = flag.Bool("table", false, "write the table in docs/safety.md, and run nothing")
	workers = flag.Int("workers", runtime.NumCPU(), "mutants at a time")
	limit   = flag.Duration("timeout", 2*time.Minute, "for one run of a test")
	budget  = flag.Duration("for", 0, "begin no mutant after so long, and take them in an order drawn anew each time; 0: all of them")
)

func main() {
	flag.Parse()
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	if err := mutate(ctx); err != nil {
		fmt.Fprintln(os.Stderr, "mutants:", err)
		os.Exit(1)
	}
}

func mutate(ctx context.Context) error {
	all, err := read(mutations)
	if err != nil {
		return err
	}
	root, err := rootOf(ctx)
	if err != nil {
		return err
	}
	if *table {
		return rewrite(filepath.Join(root, docs), all)
	}
	names, err := regexp.Compile(*run)
	if err != nil {
		return err
	}
	all = slices.DeleteFunc(all, func(m mutation) bool { return !names.MatchString(m.name) })
	if len(all) == 0 {
		return fmt.Errorf("no mutation is called %q", *run)
	}
	dir, err := os.MkdirTemp("", "mutants")
	if err != nil {
		return err
	}
	defer os.RemoveAll(dir)
	l := &lab{root: root, dir: dir}
	if *tests == "" {
		if err := l.sane(ctx, all); err != nil {
			return err
		}
	}
	return l.try(ctx, all)
}

func rootOf(ctx context.Context) (string, error) {
	out, err := exec.CommandContext(ctx, "go", "list", "-m", "-f", "{{.Dir}}").Output()
	return strings.TrimSpace(string(out)), err
}

// lab builds and runs.
type lab struct {
	root, dir string
}

// build compiles a package's tests with some files replaced.
func (l *lab) build(ctx context.Context, name, pkg string, files map[string]string) (binary string, err error) {
	dir := filepath.Join(l.dir, name)
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return "", err
	}
	overlay := struct{ Replace map[string]string }{map[string]string{}}
	for file, text := range files {
		replaced := filepath.Join(dir, strings.ReplaceAll(file, "/", "_"))
		if err := os.WriteFile(replaced, []byte(text), 0o644); err != nil {
			return "", err
		}
		overlay.Replace[filepath.Join(l.root, file)] = replaced
	}
	b, err := json.Marshal(overlay)
	if err != nil {
		return "", err
	}
	list := filepath.Join(dir, "overlay.json")
	if err := os.WriteFile(list, b, 0o644); err != nil {
		return "", err
	}
	binary = filepath.Join(dir, "tests")
	c := exec.CommandContext(ctx, "go", "test", "-c", "-vet=off", "-ldflags=-s -w", "-overlay", list, "-o", binary,
		"-gcflags=-N -l", pkg) // what is not optimized is compiled in half the time
	c.Dir = l.root
	if out, err := c.CombinedOutput(); err != nil {
		return "", fmt.Errorf("%w\n%s", err, out)
	}
	return binary, nil
}

// what a run of tests came to.
type result int

const (
	passed result = iota
	failed
	hung    // it says nothing: the machine may be slow
	missing // there is no such test
)

// test runs what matches of a binary.
func (l *lab) test(ctx context.Context, binary, pkg, pattern string) (result, string) {
	c := exec.CommandContext(ctx, binary, "-test.run", pattern, "-test.v", "-test.failfast", "-test.timeout", limit.String())
	c.Dir = filepath.Join(l.root, pkg)
	out, err := c.CombinedOutput()
	switch {
	case bytes.Contains(out, []byte("panic: test timed out after")):
		return hung, string(out)
	case !bytes.Contains(out, []byte("=== RUN")):
		return missing, string(out)
	case err != nil:
		return failed, string(out)
	case bytes.Contains(out, []byte("--- SKIP")):
		return missing, string(out)
	}
	return passed, string(out)
}

func exactly(test string) string { return "^" + test + "$" }

// sane looks whether everything passes in the tree as it is, without which a failure in a mutant would mean nothing.
func (l *lab) sane(ctx context.Context, all []mutation) error {
	byPackage := map[string][]string{".": {sound}}
	for _, m := range all {
		for _, test := range m.tests {
			if !slices.Contains(byPackage[m.pkg], test) {
				byPackage[m.pkg] = append(byPackage[m.pkg], test)
			}
		}
	}
	n := 0
	for pkg, tests := range byPackage {
		binary, err := l.build(ctx, "sane", pkg, nil)
		if err != nil {
			return err
		}
		result, out := l.test(ctx, binary, pkg, "^("+strings.Join(tests, "|")+")$")
		if result != passed {
			return fmt.Errorf("without any mutation a test does not pass in %s:\n%s", pkg, out)
		}
		for _, test := range tests {
			if !strings.Contains(out, "--- PASS: "+test+" ") {
				return fmt.Errorf("there is no %s in %s, or it skips", test, pkg)
			}
		}
		n += len(tests)
	}
	fmt.Printf("without a mutation: %d tests pass\n", n)
	return nil
}

// try makes every mutant and says what became of it.
func (l *lab) try(ctx context.Context, all []mutation) error {
	began := time.Now()
	verdicts := make([]error, len(all))
	var group sync.WaitGroup
	next := make(chan int)
	for range max(1, *workers) {
		group.Go(func() {
			for i := range next {
				verdicts[i] = l.mutant(ctx, i, all[i])
				os.RemoveAll(filepath.Join(l.dir, fmt.Sprint(i)))
				if verdicts[i] == nil {
					fmt.Printf("caught   %s\n", all[i].name)
				} else {
					fmt.Printf("%-8s %s: %v\n", kindOf(verdicts[i]), all[i].name, verdicts[i])
				}
			}
		})
	}
	if *budget > 0 {
		rand.Shuffle(len(all), func(i, j int) { all[i], all[j] = all[j], all[i] })
	}
	total := len(all)
	for i := range all {
		if ctx.Err() != nil {
			break
		}
		if *budget > 0 && time.Since(began) > *budget {
			all = all[:i]
			break
		}
		next <- i
	}
	close(next)
	group.Wait()
	if ctx.Err() != nil {
		return context.Cause(ctx)
	}

	caught, broken := 0, 0
	for _, err := range verdicts[:len(all)] {
		switch {
		case err == nil:
			caught++
		case !errors.As(err, new(escaped)):
			broken++
		}
	}
	fmt.Printf("%d mutations, %d caught, in %v; %d were not tried\n", len(all), caught, time.Since(began).Round(time.Second), total-len(all))
	if broken > 0 || *tests == "" && caught < len(all) {
		return fmt.Errorf("%d escaped, %d could not be tried", len(all)-caught-broken, broken)
	}
	return nil
}

// escaped is the verdict on a mutant that a test let pass.
type escaped string

func (e escaped) Error() string { return string(e) }

func kindOf(err error) string {
	if errors.As(err, new(escaped)) {
		return "ESCAPED"
	}
	return "BROKEN"
}

// mutant makes one mutant and has it tested: nil if it was caught.
func (l *lab) mutant(ctx context.Context, number int, m mutation) error {
	files, err := m.apply(l.root)
	if err != nil {
		return fmt.Errorf("an edit does not apply (mutations.txt:%d): %w", m.line, err)
	}
	if err := compiles(files); err != nil {
		return fmt.Errorf("it does not compile: %w", err)
	}
	pkg, patterns := m.pkg, m.tests
	if *tests != "" {
		pkg, patterns = ".", []string{*tests}
	}
	binary, err := l.build(ctx, fmt.Sprint(number), pkg, files)
	if err != nil {
		return fmt.Errorf("it does not compile: %w", err)
	}
	if pkg == "." {
		if result, out := l.test(ctx, binary, pkg, exactly(sound)); result != passed {
			return fmt.Errorf("nothing works in it, %s fails:\n%s", sound, out)
		}
	}
	for _, pattern := range patterns {
		if *tests == "" {
			pattern = exactly(pattern)
		}
		switch result, out := l.test(ctx, binary, pkg, pattern); result {
		case passed:
			return escaped(pattern + " passes")
		case hung:
			return fmt.Errorf("%s did not end within %v:\n%s", pattern, *limit, out)
		case missing:
			return fmt.Errorf("%s does not run:\n%s", pattern, out)
		}
	}
	return nil
}
