package main

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"

	"github.com/redlock-go/redlock/internal/redisproc"
)

// TestMain is the command itself where a test has started it as a process of its own.
func TestMain(m *testing.M) {
	if os.Getenv("REDLOCK_TEST_COMMAND") != "" {
		main()
	}
	goleak.VerifyTestMain(m)
}

// program returns the redlock command as a process whose nodes keep their files in a directory of the test's.
func program(t *testing.T, args ...string) (cmd *exec.Cmd, files string) {
	files, err := os.MkdirTemp("", "rl") // t.TempDir's are too long for a socket's path
	require.NoError(t, err)
	t.Cleanup(func() { os.RemoveAll(files) })
	cmd = exec.Command(os.Args[0], args...)
	cmd.Env = append(os.Environ(), "REDLOCK_TEST_COMMAND=1", "TMPDIR="+files)
	return cmd, files
}

// story is what every demo has to tell, in this order.
var story = []string{
	"quarantine is OFF",
	"A     HOLDS the lock, fencing token",
	"B     TryAcquire: refused",
	"of 5 nodes vote yes, quorum is 3",
	"B     Acquire: waits",
	"A     releases",
	"B     HOLDS the lock",
	"B     has been extended",
	"nodes x B B B B",
	"nodes x x B B B",
	"B     has won both back",
	"nodes B B B B B",
	"B     context ended",
	"redlock: lock lost",
	"A     HOLDS the lock",
	"rejected, its token is smaller",
	"nodes x x x A A",
	"A     context ended",
	"redlock: lock lost: ",
	"2 of 5 nodes were left, quorum is 3",
	"redlock: no quorum: ",
	"B     HOLDS the lock",
	"B     releases",
	"nothing is left behind",
}

func checkStory(t *testing.T, text string) {
	t.Helper()
	rest := text
	for _, line := range story {
		_, after, found := strings.Cut(rest, line)
		if !found {
			t.Fatalf("%q is missing, or not in its place, in:\n%s", line, text)
		}
		rest = after
	}
	for line := range strings.Lines(text) {
		assert.LessOrEqual(t, len(line), 101, "a long line: %s", line)
	}
}

func TestDemoTellsItsStory(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		name, says string
		args       []string
	}{
		{"processes", "five processes of redis-server", []string{"demo"}},
		{"embedded", "five embedded nodes", []string{"demo", "-embedded"}},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			cmd, files := program(t, c.args...)
			var out, complaints bytes.Buffer
			cmd.Stdout, cmd.Stderr = &out, &complaints
			start := time.Now()
			err := cmd.Run()
			require.NoError(t, err, "%s%s", out.String(), complaints.String())
			assert.Less(t, time.Since(start), 20*time.Second)
			assert.Empty(t, complaints.String())
			assert.Contains(t, out.String(), c.says)
			checkStory(t, out.String())
			assertEmpty(t, files)
		})
	}
}

func TestDemoWithoutRedisServerRunsOnEmbeddedNodes(t *testing.T) {
	t.Setenv(redisproc.EnvServer, "/there/is/none")
	nodes, err := startCluster(false)
	require.NoError(t, err)
	defer nodes.close()
	var out bytes.Buffer
	(&show{cluster: nodes, out: &out}).introduce()
	assert.Contains(t, out.String(), "five embedded nodes")
	assert.Contains(t, out.String(), "No redis-server: "+redisproc.EnvServer+`="/there/is/none" cannot be run`)

	t.Setenv(redisproc.EnvServer, "")
	t.Setenv("PATH", t.TempDir())
	nodes, err = startCluster(false)
	require.NoError(t, err)
	defer nodes.close()
	assert.Contains(t, nodes.hint, "No redis-server: install it (apt-get install redis-server")
}

func TestDemoCleansUp(t *testing.T) {
	if runtime.GOOS == "windows" {
		t.Skip("no signals to send on Windows")
	}
	t.Parallel()
	for _, c := range []struct {
		name string
		code int
		end  func(demo *os.Process, itsOutput io.Closer) error
	}{
		{"Ctrl-C", exitSignal + int(syscall.SIGINT), func(demo *os.Process, _ io.Closer) error { return demo.Signal(os.Interrupt) }},
		{"nobody reads on", exitSignal + int(syscall.SIGPIPE), func(_ *os.Process, itsOutput io.Closer) error { return itsOutput.Close() }},
	} {
		t.Run(c.name, func(t *testing.T) {
			cmd, files := program(t, "demo")
			stdout, err := cmd.StdoutPipe()
			require.NoError(t, err)
			require.NoError(t, cmd.Start())
			defer cmd.Process.Kill()
			out := bufio.NewReader(stdout)
			told := ""
			for !strings.Contains(told, "HOLDS") {
				line, err := out.ReadString('\n')
				told += line
				require.NoError(t, err, told)
			}
			servers := childrenOf(t, cmd.Process.Pid)
			if runtime.GOOS == "linux" {
				require.Len(t, servers, nodeCount, "the demo's redis-server processes")
			}

			require.NoError(t, c.end(cmd.Process, stdout))
			ended := time.Now()
			rest, _ := io.ReadAll(out) // fails where it was closed
			var exit *exec.ExitError
			if err := cmd.Wait(); !errors.As(err, &exit) {
				t.Fatalf("exit: %v, want code %d\n%s%s", err, c.code, told, rest)
			}
			assert.Equal(t, c.code, exit.ExitCode(), "%s%s", told, rest)
			assert.Less(t, time.Since(ended), 5*time.Second)
			for _, pid := range servers {
				_, err := os.Stat(filepath.Join("/proc", strconv.Itoa(pid)))
				assert.ErrorIs(t, err, os.ErrNotExist, "redis-server %d is still there", pid)
			}
			assertEmpty(t, files)
		})
	}
}

func assertEmpty(t *testing.T, dir string) {
	t.Helper()
	left, err := os.ReadDir(dir)
	require.NoError(t, err)
	assert.Empty(t, left, "files are left behind")
}

// childrenOf returns a process's children as /proc knows them, none where there is no /proc.
func childrenOf(t *testing.T, parent int) (pids []int) {
	t.Helper()
	stats, err := filepath.Glob("/proc/[0-9]*/stat")
	require.NoError(t, err)
	for _, path := range stats {
		stat, err := os.ReadFile(path)
		if err != nil {
			continue // gone meanwhile
		}
		// "pid (name) state ppid ..." where the name may hold spaces and parentheses.
		fields := strings.Fields(string(stat[bytes.LastIndexByte(stat, ')')+1:]))
		if len(fields) < 2 || fields[1] != strconv.Itoa(parent) {
			continue
		}
		pid, err := strconv.Atoi(filepath.Base(filepath.Dir(path)))
		require.NoError(t, err)
		pids = append(pids, pid)
	}
	return pids
}

// A step that does not happen must fail the demo, not be told as if it had.
func TestDemoThatDoesNotGoAsToldFails(t *testing.T) {
	s := &show{cluster: startEmbedded(""), out: io.Discard, dead: make([]bool, nodeCount), owners: make(map[string]string)}
	defer s.close()
	a, err := s.worker("A")
	require.NoError(t, err)
	defer a.locker.Close()
	b, err := s.worker("B")
	require.NoError(t, err)
	defer b.locker.Close()
	for i := range 3 {
		require.NoError(t, s.nodes[i].kill())
	}
	assert.ErrorContains(t, s.contend(context.Background(), a, b), "worker A did not get the lock")
}
