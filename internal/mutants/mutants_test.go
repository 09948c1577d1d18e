package main

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"
)

const root = "../.."

func listed(t *testing.T) []mutation {
	t.Helper()
	all, err := read(mutations)
	require.NoError(t, err)
	return all
}

// Every edit finds its text, so that a refactoring takes the mutations along. What they do `make mutants` tells.
func TestMutationsApply(t *testing.T) {
	for _, m := range listed(t) {
		t.Run(m.name, func(t *testing.T) {
			files, err := m.apply(root)
			require.NoError(t, err, "mutations.txt:%d", m.line)
			require.NoError(t, compiles(files))
		})
	}
}

func TestTableIsUpToDate(t *testing.T) {
	b, err := os.ReadFile(filepath.Join(root, docs))
	require.NoError(t, err)
	want, err := withTable(string(b), listed(t))
	require.NoError(t, err)
	require.Equal(t, want, string(b), "make mutants-table")
}

func TestRead(t *testing.T) {
	all, err := read(`# a comment
mutation: one: with a colon
caught by: TestA, TestB
package: ./redlocktest
simulation: overlap, seed 1
<<<< a.go, 2 times
# not a comment
	old: text
====
new

text
>>>>
<<<< b.go
gone
====
>>>>

mutation: two
caught by: TestC
<<<< c.lua
-- x
====
-- y
>>>>
`)
	require.NoError(t, err)
	require.Equal(t, []mutation{
		{name: "one: with a colon", tests: []string{"TestA", "TestB"}, pkg: "./redlocktest", simulation: "overlap, seed 1", line: 2, edits: []edit{
			{file: "a.go", times: 2, old: "# not a comment\n\told: text", new: "new\n\ntext"},
			{file: "b.go", times: 1, old: "gone"},
		}},
		{name: "two", tests: []string{"TestC"}, pkg: ".", simulation: "–", line: 19, edits: []edit{{file: "c.lua", times: 1, old: "-- x", new: "-- y"}}},
	}, all)
}

func TestReadRefuses(t *testing.T) {
	const whole = "mutation: a\ncaught by: TestA\n<<<< a.go\nold\n====\nnew\n>>>>\n"
	for text, want := range map[string]string{
		"caught by: TestA\n":                                               `mutations.txt:1: "caught by" before the first mutation`,
		"<<<< a.go\nold\n====\nnew\n>>>>\n":                                "mutations.txt:1: an edit before the first mutation",
		"mutation: a\n<<<< a.go\nold\n====\nnew\n>>>>\n":                   `mutations.txt:1: "a" names no test`,
		"mutation: a\ncaught by: TestA\n":                                  `mutations.txt:1: "a" has no edit`,
		"mutation: a\ncaught by: TestA\n<<<< a.go\nold\n====\nnew\n":       "mutations.txt:3: the edit has no end",
		"mutation: a\ncaught by: TestA\n<<<< a.go\nold\n====\nold\n>>>>\n": "mutations.txt:3: the edit changes nothing",
		"mutation: a\n<<<< a.go, often\nold\n====\nnew\n>>>>\n":            `mutations.txt:2: "often" is not a number of times`,
		"mutation: a\nwhat: ever\n":                                        `mutations.txt:2: no field is called "what"`,
		"mutation: a\nwhatever\n":                                          `mutations.txt:2: "whatever" is neither a field nor an edit`,
		whole + whole:                                                      `mutations.txt:8: "a" is there twice`,
	} {
		_, err := read(text)
		require.EqualError(t, err, want)
	}
}

func TestApply(t *testing.T) {
	dir := t.TempDir()
	require.NoError(t, os.WriteFile(filepath.Join(dir, "a.go"), []byte("one two two"), 0o600))
	try := func(edits ...edit) (map[string]string, error) { return mutation{edits: edits}.apply(dir) }

	files, err := try(edit{"a.go", 2, "two", "three"}, edit{"a.go", 1, "one", ""})
	require.NoError(t, err)
	require.Equal(t, map[string]string{"a.go": " three three"}, files)
	_, err = try(edit{"a.go", 1, "two", "three"})
	require.ErrorContains(t, err, "this stands 2 times in a.go, not 1 times:\ntwo")
	_, err = try(edit{"a.go", 1, "four", "three"})
	require.ErrorContains(t, err, "this stands 0 times in a.go")
	_, err = try(edit{"b.go", 1, "four", "three"})
	require.ErrorIs(t, err, os.ErrNotExist)
}

func TestScriptsThatAreNoLua(t *testing.T) {
	require.NoError(t, compiles(map[string]string{"a.lua": "return 1", "b.go": "not Lua"}))
	require.Error(t, compiles(map[string]string{"a.lua": "return return"}))
}
