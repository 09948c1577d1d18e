package main

import (
	"context"
	"flag"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/redlock-go/redlock"
	"github.com/redlock-go/redlock/internal/redisproc"
	"github.com/redlock-go/redlock/internal/redisproc/redistest"
)

var update = flag.Bool("update", false, "write testdata/session.txt anew")

// varies is what no two sessions have in common, and what stands for it. Columns become narrower by that, so spaces do not
// count.
var varies = []struct {
	pattern *regexp.Regexp
	mask    string
}{
	{regexp.MustCompile(`\b[A-Z2-7]{26}\b`), "<id>"},
	{regexp.MustCompile(`\b17\d{14}|\b18\d{14}`), "<token>"},
	{regexp.MustCompile(`[+-]\d+\.\d ms ± \d+\.\d`), "<offset>"},
	{regexp.MustCompile(`[+-]\d+ ppm ± \d+`), "<rate>"},
	{regexp.MustCompile(`\b\d+ [KMG]iB`), "<size>"},
	{regexp.MustCompile(`\b(Redis|Valkey) \d+\.\d+\.\d+`), "<server>"},
	{regexp.MustCompile(`\b\d+ locks in \S+ \d+ a second`), "<rate of locks>"},
	{regexp.MustCompile(`\b(\d+m)?\d+(\.\d+)?(ms|µs|s)\b`), "<time>"},
	{regexp.MustCompile(`(?m)held by <id> \(\S+\[\d+\]@\S+\), lease ends in <time>|no answer yet when the other nodes had decided|not connected$`), "<what it said>"},
	{regexp.MustCompile(`: [01] of 3 nodes vote yes`), ": <votes> of 3 nodes vote yes"},
	{regexp.MustCompile(`\S+\[\d+\]@\S+`), "<label>"},
	{regexp.MustCompile(`roster 1: \S+, \S+, \S+;`), "roster 1: <members>;"}, // by name, which is of chance here
	{regexp.MustCompile(`dial unix \S+ connect: .*`), "<cannot connect>"},
	{regexp.MustCompile(`  +`), "  "},
	{regexp.MustCompile(`(?m) +$`), ""},
}

func masked(text string, nodes []*redisproc.Node) string {
	for i, n := range nodes {
		text = strings.ReplaceAll(text, n.Addr(), "node"+string(rune('1'+i))+":6379")
	}
	for _, v := range varies {
		text = v.pattern.ReplaceAllString(text, v.mask)
	}
	return text
}

// A whole session, as somebody at a shell sees it. In testdata/session.txt a line with $ is typed, one with # is done by
// the test, and the rest is what is shown.
func TestSession(t *testing.T) {
	t.Parallel()
	const file = "testdata/session.txt"
	want, err := os.ReadFile(file)
	require.NoError(t, err)
	bin := t.TempDir()
	self, err := filepath.Abs(os.Args[0])
	require.NoError(t, err)
	require.NoError(t, os.Symlink(self, filepath.Join(bin, "redlock")))
	nodes := redistest.StartSet(t, 3, redisproc.Options{})
	var another *redlock.Locker
	meanwhile := map[string]func(){
		"# another program takes cron:purge": func() {
			another = newLocker(t, nodes)
			_, err := another.Acquire(context.Background(), "cron:purge")
			require.NoError(t, err)
			awaitAllVotes(t, nodes, "cron:purge")
		},
		"# node 3 dies": func() { require.NoError(t, nodes[2].Kill()) },
		"# node 3 comes back without data": func() {
			another.Close() // or it would adopt the node, sooner or later than somebody looks
			require.NoError(t, nodes[2].CrashEmpty())
		},
		"# somebody sets another policy on node 1": func() {
			do(t, nodes[0], "CONFIG", "SET", "maxmemory", "1gb")
			do(t, nodes[0], "CONFIG", "SET", "maxmemory-policy", "allkeys-lru")
		},
	}

	var got strings.Builder
	for line := range strings.Lines(string(want)) {
		line = strings.TrimSuffix(line, "\n")
		typed, isTyped := strings.CutPrefix(line, "$ ")
		switch {
		case isTyped:
			if got.Len() > 0 {
				got.WriteString("\n")
			}
			got.WriteString(line + "\n")
			cmd := exec.Command("bash", "-c", typed)
			cmd.Env = append(os.Environ(), "PATH="+bin+":"+os.Getenv("PATH"), "REDLOCK_TEST_COMMAND=1",
				"REDLOCK_NODES="+listOf(nodes), "REDISCLI_AUTH=")
			out, _ := cmd.CombinedOutput() // an exit code is shown where the session asks for it
			got.WriteString(masked(string(out), nodes))
		case strings.HasPrefix(line, "# "):
			require.Contains(t, meanwhile, line)
			if got.Len() > 0 {
				got.WriteString("\n")
			}
			got.WriteString(line + "\n")
			meanwhile[line]()
		}
	}
	if *update {
		require.NoError(t, os.WriteFile(file, []byte(got.String()), 0o644))
	}
	require.Equal(t, string(want), got.String(), "go test -run TestSession -update writes it anew")
}
