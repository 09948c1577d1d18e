package main

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

const (
	header = "== integration: go test -race -count=1 -timeout 20m ./...\n"
	failed = `--- FAIL: TestRow31ScriptFlush (6.37s)
    errors_test.go:215: b waited for "busy"
    redistest.go:40: redis at 127.0.0.1:20001 has logged last:
        28513:C # Redis is starting
`
	end = "FAIL\nFAIL\texample.org/integration/faults\t230.1s\nok  \texample.org/integration/check\t1.2s\nFAIL\n"
)

func TestWhatFailedOnServersIsRunAgain(t *testing.T) {
	other := strings.ReplaceAll(failed, "TestRow31ScriptFlush", "TestRow30ClientKill")
	got, err := read(strings.NewReader("== .: go test\nok  \texample.org\t1s\n" + header + failed + other + failed + end +
		"== otel: go test\n" + failed + "FAIL\nFAIL\texample.org/otel\t2s\n"))
	require.NoError(t, err)
	require.Equal(t, []tests{
		{"integration", "example.org/integration/faults", []string{"TestRow30ClientKill", "TestRow31ScriptFlush"}},
		{"otel", "example.org/otel", []string{"TestRow31ScriptFlush"}},
	}, got)
}

func TestWhatMayNotBeRunAgain(t *testing.T) {
	pure := "--- FAIL: TestLife (0.00s)\n    life_test.go:1: Not equal\n"
	for _, row := range []struct{ name, log, want string }{
		{"without servers", pure, "TestLife failed, and uses no real servers"},
		{"without servers, before one with", pure + failed, "TestLife failed, and uses no real servers"},
		{"without servers, behind one with", failed + pure, "TestLife failed, and uses no real servers"},
		{"two holders", failed + "    rig_test.go:84: exclusion: both alive for 3ms:\n", "for good"},
		{"a token that fell", failed + "    rig_test.go:84: fencing: token fell:\n", "for good"},
		{"a late writer", failed + "        \tregister: token 3 wrote again after 4\n", "for good"},
		{"a key that nobody may write", failed + "    rig_test.go:92: audit of 127.0.0.1:20001: a key went\n", "for good"},
		{"a race", "WARNING: DATA RACE\n" + failed, "for good"},
		{"a panic", failed + "panic: boom\n", "for good"},
		{"a leak", "goleak: Errors on successful test run\n", "for good"},
		{"a build", "", "not by a test"},
	} {
		_, err := read(strings.NewReader(header + row.log + end))
		require.ErrorContains(t, err, row.want, row.name)
	}
	_, err := read(strings.NewReader("make: nothing ran\n"))
	require.ErrorContains(t, err, "no test that failed")
}
