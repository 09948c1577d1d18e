package redlock_test

import (
	"bytes"
	"context"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/redlock-go/redlock"
	"github.com/redlock-go/redlock/internal/redisproc"
	"github.com/redlock-go/redlock/internal/redisproc/redistest"
)

// block returns the first code block of the README that begins with start.
func block(t *testing.T, start string) string {
	t.Helper()
	text, err := os.ReadFile("README.md")
	require.NoError(t, err)
	_, rest, found := strings.Cut(string(text), "\n"+start)
	require.True(t, found, "the README has no %q", start)
	code, _, found := strings.Cut(start[strings.Index(start, "\n")+1:]+rest, "\n```")
	require.True(t, found)
	return code
}

// initNodes ends the first quarantine of new nodes, as soon as all have been found.
func initNodes(t *testing.T, locker *redlock.Locker) {
	t.Helper()
	require.EventuallyWithT(t, func(t *assert.CollectT) { require.NoError(t, locker.Init(context.Background())) },
		5*time.Second, 10*time.Millisecond)
}

// The README's program compiles, and does on real servers what the README says.
func TestReadmeProgramRuns(t *testing.T) {
	program := block(t, "```go\npackage main\n")
	nodes := redistest.StartSet(t, 3, redisproc.Options{TCP: true})
	for i, address := range []string{"127.0.0.1:7001", "127.0.0.1:7002", "127.0.0.1:7003"} {
		require.Contains(t, program, address)
		program = strings.ReplaceAll(program, address, nodes[i].Addr())
	}
	locker, err := redlock.NewLocker(redlock.LockerOption{Nodes: redistest.Options(nodes)})
	require.NoError(t, err)
	defer locker.Close()
	initNodes(t, locker) // or the program would wait for a lease

	dir := t.TempDir()
	source, binary := filepath.Join(dir, "main.go"), filepath.Join(dir, "program")
	require.NoError(t, os.WriteFile(source, []byte(program+"\n"), 0o600))
	out, err := exec.Command("gofmt", "-l", source).CombinedOutput()
	if err == nil { // where gofmt is not in PATH, make check looks at the rest
		assert.Empty(t, string(out), "the README's program is not gofmt'ed")
	}
	out, err = exec.Command("go", "build", "-o", binary, source).CombinedOutput()
	require.NoError(t, err, "%s", out)
	var log bytes.Buffer
	run := exec.Command(binary)
	run.Stderr = &log
	out, err = run.Output()
	require.NoError(t, err, "%s", &log)
	assert.Contains(t, log.String(), "redlock: node is up")
	assert.Regexp(t, `^purging, fencing token \d{16}\ndone: <nil>\n$`, string(out))
}

// The README's fragments compile.
func TestReadmeFragmentsCompile(t *testing.T) {
	dir := t.TempDir()
	for name, fragment := range map[string]string{
		"guard": block(t, "```go\nguard, err :="),
		"tick":  block(t, "```go\nerr := locker.TryDo(ctx, \"cron:purge\", purge") + "\nreturn err",
		"lead":  block(t, "```go\nerr := locker.Lead") + "\nreturn err",
		"init":  block(t, "```go\nerr := locker.Init") + "\nreturn err",
	} {
		source := `package main

import (
	"context"
	"errors"
	"time"

	"github.com/redlock-go/redlock"
)

var _ = errors.New
var _ = time.Now

func main() {}

func fragment(ctx context.Context, locker *redlock.Locker) error {
` + fragment + "\n"
		if name == "guard" {
			source += "\t_ = rows\n\treturn err\n}\n\nfunc purge(context.Context, uint64) (int, error) { return 0, nil }\n"
		} else {
			source += "}\n\nfunc purge(context.Context) error { return nil }\n\nfunc schedule(context.Context) error { return nil }\n"
		}
		file := filepath.Join(dir, name+".go")
		require.NoError(t, os.WriteFile(file, []byte(source), 0o600))
		out, err := exec.Command("go", "vet", file).CombinedOutput()
		require.NoError(t, err, "%s\n%s", out, source)
	}
}

// The README's ACL line allows all that a Locker does, and nothing that it does not.
func TestReadmeACL(t *testing.T) {
	line := block(t, "```sh\nredis-cli ACL SETUSER")
	line = strings.NewReplacer("\\\n", " ", "'", "").Replace(line)
	setUser := strings.Fields(line)[1:]
	ctx := t.Context()

	nodes := redistest.StartSet(t, 3, redisproc.Options{})
	option := redlock.LockerOption{Nodes: redistest.Options(nodes), KeyValidity: 2 * time.Second}
	for i, n := range nodes {
		_, err := n.Do(setUser...)
		require.NoError(t, err)
		option.Nodes[i].Username, option.Nodes[i].Password = "redlock", "secret"
		_, err = n.Do("CONFIG", "RESETSTAT")
		require.NoError(t, err)
	}
	a, err := redlock.NewLocker(option)
	require.NoError(t, err)
	defer a.Close()
	b, err := redlock.NewLocker(option)
	require.NoError(t, err)
	defer b.Close()

	initNodes(t, a)
	awaitAllNodes(t, b) // it hears of that when it looks next
	held, err := a.Acquire(ctx, "cron:purge")
	require.NoError(t, err)
	_, err = b.TryAcquire(ctx, "cron:purge")
	require.ErrorIs(t, err, redlock.ErrNotLocked)
	_, err = b.Inspect(ctx, "cron:purge")
	require.NoError(t, err)
	inLine := func(n int) {
		t.Helper()
		require.Eventually(t, func() bool {
			line, err := a.Inspect(context.Background(), "cron:purge")
			return err == nil && line.Waiters == n
		}, soon, tick, "%d in line", n)
	}
	impatient, giveUp := context.WithCancel(ctx)
	gaveUp := make(chan error, 1)
	go func() {
		_, err := b.Acquire(impatient, "cron:purge")
		gaveUp <- err
	}()
	inLine(1)
	giveUp()
	require.ErrorIs(t, <-gaveUp, context.Canceled)
	inLine(0)
	served := make(chan *redlock.Guard, 1)
	go func() {
		waited, err := b.Acquire(ctx, "cron:purge")
		assert.NoError(t, err)
		served <- waited
	}()
	inLine(1)
	until := held.ValidUntil().Add(option.KeyValidity / 4) // a late vote moves it, too, but less
	require.Eventually(t, func() bool { return held.ValidUntil().After(until) }, soon, tick, "a renewal")
	require.NoError(t, held.Release(ctx))
	waited := <-served
	require.NotNil(t, waited)
	taken, err := a.ForceAcquire(ctx, "cron:purge")
	require.NoError(t, err)
	require.ErrorIs(t, waited.Err(), redlock.ErrLost)
	require.NoError(t, taken.Release(ctx))

	used := make(map[string]bool)
	for _, n := range nodes {
		client := redistest.Client(t, n)
		denied, err := client.Do(ctx, client.B().Arbitrary("ACL", "LOG").Build()).ToArray()
		require.NoError(t, err)
		for _, d := range denied {
			entry, err := d.AsMap()
			require.NoError(t, err)
			object := entry["object"]
			what, err := object.ToString()
			require.NoError(t, err)
			setinfo := strings.HasPrefix(what, "client|setinfo") || what == "client" && !n.AtLeast(7, 0) // 6.2 logs no subcommands
			if !setinfo {
				t.Errorf("denied: %s", what)
			}
		}
		stats, err := n.Do("INFO", "commandstats")
		require.NoError(t, err)
		for stat := range strings.Lines(stats) {
			name, _, _ := strings.Cut(strings.TrimPrefix(stat, "cmdstat_"), ":")
			used[name] = true
		}
	}
	for _, word := range setUser {
		if name, ok := strings.CutPrefix(word, "+"); ok {
			command, _, _ := strings.Cut(name, "|") // Redis 6.2 counts no subcommands
			idle := name == "ping"                  // rueidis sends it on a connection that has been idle for a while
			assert.True(t, used[name] || used[command] || idle, "%s is allowed, and not used", name)
		}
	}
}
