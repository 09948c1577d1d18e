package main

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"

	"github.com/yuin/gopher-lua/parse"
)

// mutation is one way to break the library, and who must notice.
type mutation struct {
	name       string
	tests      []string // each of them must fail
	pkg        string   // where they are
	simulation string   // what TestSimulation alone said, for the table
	edits      []edit
	line       int // of the table
}

// edit replaces a text wherever it stands in a file, which must be exactly so often.
type edit struct {
	file     string
	times    int
	old, new string
}

// read parses the table; mutations.txt says how it is written.
func read(text string) ([]mutation, error) {
	var all []mutation
	var m *mutation
	lines := strings.Split(text, "\n")
	for i := 0; i < len(lines); i++ {
		line := lines[i]
		fail := func(format string, args ...any) ([]mutation, error) {
			return nil, fmt.Errorf("mutations.txt:%d: "+format, append([]any{i + 1}, args...)...)
		}
		if head, ok := strings.CutPrefix(line, "<<<< "); ok {
			if m == nil {
				return fail("an edit before the first mutation")
			}
			begin := i
			e := edit{times: 1}
			e.file, _, _ = strings.Cut(head, ", ")
			if _, n, ok := strings.Cut(head, ", "); ok {
				if _, err := fmt.Sscanf(n, "%d times", &e.times); err != nil || e.times < 1 {
					return fail("%q is not a number of times", n)
				}
			}
			var part [2][]string
			for side := 0; side < 2; side++ {
				end := []string{"====", ">>>>"}[side]
				for i++; i < len(lines) && lines[i] != end; i++ {
					part[side] = append(part[side], lines[i])
				}
			}
			if i >= len(lines) {
				i = begin
				return fail("the edit has no end")
			}
			e.old, e.new = strings.Join(part[0], "\n"), strings.Join(part[1], "\n")
			if e.old == "" || e.old == e.new {
				i = begin
				return fail("the edit changes nothing")
			}
			m.edits = append(m.edits, e)
			continue
		}
		key, value, ok := strings.Cut(line, ": ")
		switch {
		case strings.TrimSpace(line) == "" || strings.HasPrefix(line, "#"):
		case !ok:
			return fail("%q is neither a field nor an edit", line)
		case key == "mutation":
			all = append(all, mutation{name: value, pkg: ".", simulation: "–", line: i + 1})
			m = &all[len(all)-1]
		case m == nil:
			return fail("%q before the first mutation", key)
		case key == "caught by":
			m.tests = strings.Split(value, ", ")
		case key == "package":
			m.pkg = value
		case key == "simulation":
			m.simulation = value
		default:
			return fail("no field is called %q", key)
		}
	}
	seen := map[string]bool{}
	for _, m := range all {
		var err error
		switch {
		case len(m.tests) == 0:
			err = errors.New("names no test")
		case len(m.edits) == 0:
			err = errors.New("has no edit")
		case seen[m.name]:
			err = errors.New("is there twice")
		}
		if err != nil {
			return nil, fmt.Errorf("mutations.txt:%d: %q %w", m.line, m.name, err)
		}
		seen[m.name] = true
	}
	return all, nil
}

// apply returns the files that m changes, as they are then.
func (m mutation) apply(root string) (map[string]string, error) {
	files := map[string]string{}
	for _, e := range m.edits {
		text, ok := files[e.file]
		if !ok {
			b, err := os.ReadFile(filepath.Join(root, e.file))
			if err != nil {
				return nil, err
			}
			text = string(b)
		}
		if n := strings.Count(text, e.old); n != e.times {
			return nil, fmt.Errorf("this stands %d times in %s, not %d times:\n%s", n, e.file, e.times, e.old)
		}
		files[e.file] = strings.ReplaceAll(text, e.old, e.new)
	}
	return files, nil
}

// compiles looks whether changed scripts are Lua at all: on nodes that refuse them every test would fail. Go's
// compiler looks at the rest.
func compiles(files map[string]string) error {
	for name, text := range files {
		if filepath.Ext(name) != ".lua" {
			continue
		}
		if _, err := parse.Parse(strings.NewReader(text), name); err != nil {
			return err
		}
	}
	return nil
}
