package main

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
)

// docs is where the table stands, between these two lines.
const (
	docs       = "docs/safety.md"
	tableBegin = "<!-- mutations: written by make mutants-table -->"
	tableEnd   = "<!-- /mutations -->"
)

// rewrite brings the table in a document up to date.
func rewrite(path string, all []mutation) error {
	b, err := os.ReadFile(path)
	if err != nil {
		return err
	}
	text, err := withTable(string(b), all)
	if err != nil {
		return fmt.Errorf("%s: %w", filepath.Base(path), err)
	}
	return os.WriteFile(path, []byte(text), 0o644)
}

// withTable returns a document with the table as it must be.
func withTable(text string, all []mutation) (string, error) {
	head, rest, begun := strings.Cut(text, tableBegin)
	_, tail, ended := strings.Cut(rest, tableEnd)
	if !begun || !ended {
		return "", fmt.Errorf("there is no %q with %q behind it", tableBegin, tableEnd)
	}
	var b strings.Builder
	b.WriteString("| mutation | change | caught by | simulation |\n| --- | --- | --- | --- |\n")
	for _, m := range all {
		var changes, tests []string
		for _, e := range m.edits {
			changes = append(changes, e.String())
		}
		for _, test := range m.tests {
			tests = append(tests, strings.Replace(test, "TestSchedule", "…", 1))
		}
		fmt.Fprintf(&b, "| %s | %s | %s | %s |\n", m.name, strings.Join(changes, "; "), strings.Join(tests, ", "), m.simulation)
	}
	return head + tableBegin + "\n" + b.String() + tableEnd + tail, nil
}

func (e edit) String() string {
	if e.new == "" {
		return fmt.Sprintf("%s: remove %s", e.file, code(e.old))
	}
	if more, ok := strings.CutPrefix(e.new, e.old); ok {
		return fmt.Sprintf("%s: after %s insert %s", e.file, code(e.old), code(more))
	}
	return fmt.Sprintf("%s: %s → %s", e.file, code(e.old), code(e.new))
}

// code puts a text on one line of a table.
func code(text string) string {
	return "`" + strings.ReplaceAll(strings.Join(strings.Fields(text), " "), "|", `\|`) + "`"
}
