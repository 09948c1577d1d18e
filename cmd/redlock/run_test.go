//go:build unix

package main

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/redlock-go/redlock/internal/redisproc"
	"github.com/redlock-go/redlock/internal/redisproc/redistest"
)

func TestRun(t *testing.T) {
	t.Parallel()
	nodes := startNodes(t, 3)
	r := execute(t, processOn(t, nodes, "run", "cron:purge", "--lease", "2s", "--", "sh", "-c", `echo "$REDLOCK_NAME $REDLOCK_FENCE"; exit 7`))
	require.Equal(t, 7, r.code, r)
	require.Regexp(t, `^cron:purge \d{16}\n$`, r.out)
	require.Empty(t, r.complaints)
	first := r.out

	r = execute(t, processOn(t, nodes, "run", "--lease", "2s", "cron:purge", "--", "sh", "-c", `echo "$REDLOCK_NAME $REDLOCK_FENCE"`))
	require.Equal(t, exitOK, r.code, r)
	require.Greater(t, r.out, first, "tokens grow")

	cmd := processOn(t, nodes, "run", "x", "--lease", "2s", "--", "cat")
	cmd.Stdin = strings.NewReader("through\n")
	r = execute(t, cmd)
	require.Equal(t, result{0, "through\n", ""}, r)

	r = execute(t, processOn(t, nodes, "run", "x", "--lease", "2s", "--", "sh", "-c", "kill -USR1 $$"))
	require.Equal(t, exitSignal+int(syscall.SIGUSR1), r.code, r)

	// A child that ignores SIGPIPE would not end in a pipe that nobody reads.
	r = execute(t, processOn(t, nodes, "run", "x", "--lease", "2s", "--", "bash", "-c", `yes | head -1; echo "${PIPESTATUS[0]}"`))
	require.Equal(t, result{0, "y\n141\n", ""}, r)

	r = execute(t, processOn(t, nodes, "run", "x", "--", "/there/is/none"))
	require.Equal(t, exitNotFound, r.code, r)
	r = execute(t, processOn(t, nodes, "run", "x", "--", "there-is-none"))
	require.Equal(t, exitNotFound, r.code, r)
	r = execute(t, processOn(t, nodes, "run", "x", "--", t.TempDir()))
	require.Equal(t, exitCannotRun, r.code, r)
	r = execute(t, processOn(t, nil, "run", "x", "--nodes-file", "/there/is/none", "--", "true"))
	require.Equal(t, exitUsage, r.code, r)

	status := inProcess(t, nodes, "status")
	require.Equal(t, "no locks on 3 of 3 nodes\n", status.out, "each released its lock")
}

// Where no lease was asked for, it is one that the set allows.
func TestRunGoesByTheSetsLongestLease(t *testing.T) {
	t.Parallel()
	nodes := startNodes(t, 3)
	r := execute(t, processOn(t, nodes, "run", "x", "--", "echo", "ran"))
	require.Equal(t, result{0, "ran\n", ""}, r)
	for _, args := range [][]string{{"release", "x"}, {"bench", "--for", "100ms"}, {"init"}} {
		require.Equal(t, exitOK, inProcess(t, nodes, args...).code, args)
	}
	r = execute(t, processOn(t, nodes, "run", "x", "--node-timeout", "1s", "--", "echo", "ran"))
	require.Equal(t, exitUsage, r.code, r)
	require.Contains(t, r.complaints, "--node-timeout 1s must be less than half the lease, which is 2s")
	r = execute(t, processOn(t, nodes, "run", "x", "--lease", "3s", "--", "echo", "ran"))
	require.Equal(t, exitNoQuorum, r.code, "one that was asked for is not made shorter")
	require.Contains(t, r.complaints, "--lease 3s is longer than 2s")
	require.Contains(t, r.complaints, "redlock nodes set - --longest-lease raises it")
	r = execute(t, processOn(t, nodes, "run", "x", "--no-quarantine", "--", "echo", "ran"))
	require.Equal(t, exitNoQuorum, r.code, r)
	require.Contains(t, r.complaints, "leave out --no-quarantine")

	for _, n := range nodes[1:] {
		require.NoError(t, n.Kill())
	}
	r = execute(t, processOn(t, nodes, "run", "x", "--try", "--", "echo", "ran"))
	require.Equal(t, exitNoQuorum, r.code, r)
	require.Contains(t, r.complaints, "not connected")
	require.NotContains(t, r.complaints, "longer", "also where the others are down for now")
}

func TestRunWhereTheLockIsHeld(t *testing.T) {
	t.Parallel()
	nodes := startNodes(t, 3)
	guard := hold(t, nodes, "x")
	r := execute(t, processOn(t, nodes, "run", "x", "--lease", "2s", "--try", "--", "echo", "ran"))
	require.Equal(t, exitNotLocked, r.code, r)
	require.Empty(t, r.out)
	require.Regexp(t, `not locked: "x": [01] of 3 nodes vote yes, quorum is 2\n(?s:.*)  /\S+: held by \w{26} \(\S+\[\d+\]@\S+\), lease ends in `, r.complaints)

	r = execute(t, processOn(t, nodes, "run", "x", "--lease", "2s", "--timeout", "100ms", "--", "echo", "ran"))
	require.Equal(t, exitNotLocked, r.code, r)
	require.Contains(t, r.complaints, "not acquired within 100ms")

	// It waits, says so when that takes long, and runs when the lock is free.
	cmd := processOn(t, nodes, "run", "x", "--lease", "2s", "--", "echo", "ran")
	stderr, err := cmd.StderrPipe()
	require.NoError(t, err)
	var out bytes.Buffer
	cmd.Stdout = &out
	require.NoError(t, cmd.Start())
	line, err := bufio.NewReader(stderr).ReadString('\n')
	require.NoError(t, err)
	require.Regexp(t, `^redlock: waiting for x, held by \w{26}, at place 1 of 1 in line\n$`, line)
	require.NoError(t, guard.Release(context.Background()))
	require.NoError(t, cmd.Wait())
	require.Equal(t, "ran\n", out.String())
}

// New nodes grant nothing for a lease: who waits for that is told so, and for how long.
func TestRunOnNewNodesSaysWhatItWaitsFor(t *testing.T) {
	t.Parallel()
	nodes := redistest.StartSet(t, 3, redisproc.Options{})
	r := execute(t, processOn(t, nodes, "run", "x", "--lease", "4s", "--", "echo", "ran"))
	require.Equal(t, exitOK, r.code, r)
	require.Equal(t, "ran\n", r.out)
	require.Regexp(t, `^redlock: waiting for x.*; 3 nodes are quarantined for [1-4]s more\n$`, r.complaints)

	r = execute(t, processOn(t, nodes, "run", "x", "--lease", "4s", "--", "echo", "ran"))
	require.Equal(t, result{0, "ran\n", ""}, r)
}

func TestRunInterruptedWhileItWaits(t *testing.T) {
	t.Parallel()
	nodes := startNodes(t, 3)
	hold(t, nodes, "x")
	for _, s := range []syscall.Signal{syscall.SIGINT, syscall.SIGTERM} {
		cmd := processOn(t, nodes, "run", "x", "--lease", "2s", "--quiet", "--", "echo", "ran")
		var out, complaints bytes.Buffer
		cmd.Stdout, cmd.Stderr = &out, &complaints
		require.NoError(t, cmd.Start())
		eventually(t, func() bool { return waitersFor(t, nodes, "x") == 1 }, "it stands in line")
		require.NoError(t, cmd.Process.Signal(s))
		require.Error(t, cmd.Wait())
		require.Equal(t, exitSignal+int(s), cmd.ProcessState.ExitCode(), complaints.String())
		require.Equal(t, "redlock run: interrupted\n", complaints.String())
		require.Empty(t, out.String())
		eventually(t, func() bool { return waitersFor(t, nodes, "x") == 0 }, "it has left the line")
	}
}

// waitersFor is how many wait for a lock, as status says.
func waitersFor(t *testing.T, nodes []*redisproc.Node, name string) int {
	t.Helper()
	return statusOf(t, nodes, name).Waiters
}

func statusOf(t *testing.T, nodes []*redisproc.Node, name string) lockStatus {
	t.Helper()
	r := inProcess(t, nodes, "status", name, "--json")
	var s snapshot
	require.NoError(t, json.Unmarshal([]byte(r.out), &s), r)
	require.Len(t, s.Locks, 1)
	return s.Locks[0]
}

// At most so many commands run at a time, each with a slot of its own; who comes beyond that waits, or does not.
func TestRunSlots(t *testing.T) {
	t.Parallel()
	nodes := startNodesFor(t, 3, longLease) // for so long after the last holder they know how many slots there are
	run := func(flags ...string) []string {
		return append([]string{"run", "pool", "--slots", "2", "--lease", "2s"}, flags...)
	}
	const say = `echo "$REDLOCK_NAME $REDLOCK_SLOT $REDLOCK_FENCE"; `
	taken := make(map[string]bool)
	var ends []io.Closer
	var running []*exec.Cmd
	for range 2 {
		cmd := processOn(t, nodes, run("--", "sh", "-c", say+"cat")...)
		stdin, err := cmd.StdinPipe()
		require.NoError(t, err)
		stdout, err := cmd.StdoutPipe()
		require.NoError(t, err)
		require.NoError(t, cmd.Start())
		line, err := bufio.NewReader(stdout).ReadString('\n')
		require.NoError(t, err)
		require.Regexp(t, `^pool [12] \d{16}\n$`, line)
		taken[strings.Fields(line)[1]] = true
		ends, running = append(ends, stdin), append(running, cmd)
	}
	require.Len(t, taken, 2, "each has another slot")

	r := execute(t, processOn(t, nodes, run("--try", "--", "echo", "ran")...))
	require.Equal(t, exitNotLocked, r.code, r)
	r = execute(t, processOn(t, nodes, run("--timeout", "100ms", "--", "echo", "ran")...))
	require.Equal(t, exitNotLocked, r.code, r)
	r = execute(t, processOn(t, nodes, "run", "pool", "--slots", "3", "--lease", "2s", "--", "echo", "ran"))
	require.Equal(t, exitNoQuorum, r.code, r)
	require.Contains(t, r.complaints, "the semaphore has 2 slots there, not 3")
	r = execute(t, processOn(t, nodes, "run", "pool", "--lease", "2s", "--", "sh", "-c", `echo "${REDLOCK_SLOT-none}"`))
	require.Equal(t, result{0, "none\n", ""}, r, "the lock of that name is another thing")

	waiting := processOn(t, nodes, run("--", "sh", "-c", say)...)
	stderr, err := waiting.StderrPipe()
	require.NoError(t, err)
	var out bytes.Buffer
	waiting.Stdout = &out
	require.NoError(t, waiting.Start())
	line, err := bufio.NewReader(stderr).ReadString('\n')
	require.NoError(t, err)
	require.Equal(t, "redlock: waiting for a slot of pool, 2 of 2 are taken, at place 1 of 1 in line\n", line)
	require.NoError(t, ends[0].Close())
	require.NoError(t, running[0].Wait())
	require.NoError(t, waiting.Wait())
	require.Regexp(t, `^pool [12] \d{16}\n$`, out.String())
	require.NoError(t, ends[1].Close())
	require.NoError(t, running[1].Wait())

	// Per tick: a slot is kept when its command ends early.
	for range 2 {
		r = execute(t, processOn(t, nodes, run("--at-least", "1m", "--", "true")...))
		require.Equal(t, exitOK, r.code, r)
	}
	r = execute(t, processOn(t, nodes, run("--try", "--", "echo", "ran")...))
	require.Equal(t, exitNotLocked, r.code, r)
	require.Contains(t, inProcess(t, nodes, "status", "pool").out, "pool is a semaphore: 0 of 2 slots are held\n")
}

func TestRunWithoutAQuorum(t *testing.T) {
	t.Parallel()
	nodes := startNodes(t, 3)
	require.NoError(t, nodes[0].Kill())
	r := execute(t, processOn(t, nodes, "run", "x", "--lease", "2s", "--", "echo", "ran"))
	require.Equal(t, result{0, "ran\n", ""}, r, "a minority is not noticed")
	require.NoError(t, nodes[1].Kill())
	r = execute(t, processOn(t, nodes, "run", "x", "--lease", "2s", "--try", "--", "echo", "ran"))
	require.Equal(t, exitNoQuorum, r.code, r)
	require.Empty(t, r.out)
	require.Regexp(t, `no quorum: "x": [01] of 3 nodes vote yes, quorum is 2\n`, r.complaints)
	require.Contains(t, r.complaints, "\n  "+nodes[0].Addr()+": not connected")
}

func TestRunSaysThatNewNodesAreQuarantined(t *testing.T) {
	t.Parallel()
	nodes := redistest.StartSet(t, 3, redisproc.Options{})
	r := execute(t, processOn(t, nodes, "run", "x", "--lease", "4500ms", "--", "echo", "ran"))
	require.Equal(t, exitOK, r.code, r)
	require.Equal(t, "ran\n", r.out)
	require.Contains(t, r.complaints, "redlock: waiting for x")
	require.Contains(t, r.complaints, "3 nodes are quarantined")
}

// child is a redlock run whose command says what happens to it.
func startChild(t *testing.T, nodes []*redisproc.Node, script string, flags ...string) (cmd *exec.Cmd, out *bufio.Reader, complaints *bytes.Buffer) {
	t.Helper()
	args := append([]string{"run", "x", "--lease", "2s"}, flags...)
	cmd = processOn(t, nodes, append(args, "--", "bash", "-c", script)...)
	complaints = new(bytes.Buffer)
	cmd.Stderr = complaints
	stdout, err := cmd.StdoutPipe()
	require.NoError(t, err)
	require.NoError(t, cmd.Start())
	return cmd, bufio.NewReader(stdout), complaints
}

func requireLine(t *testing.T, r *bufio.Reader, want string) {
	t.Helper()
	line, err := r.ReadString('\n')
	require.NoError(t, err)
	require.Equal(t, want+"\n", line)
}

func TestRunPassesSignalsOn(t *testing.T) {
	t.Parallel()
	nodes := startNodes(t, 3)
	cmd, out, complaints := startChild(t, nodes, `
		for s in HUP INT QUIT USR1 USR2; do trap "echo $s" $s; done
		trap 'echo TERM; exit 42' TERM
		echo ready; while :; do sleep 0.01; done`)
	requireLine(t, out, "ready")
	for _, s := range []syscall.Signal{syscall.SIGHUP, syscall.SIGINT, syscall.SIGQUIT, syscall.SIGUSR1, syscall.SIGUSR2, syscall.SIGTERM} {
		require.NoError(t, cmd.Process.Signal(s))
		requireLine(t, out, map[syscall.Signal]string{syscall.SIGHUP: "HUP", syscall.SIGINT: "INT", syscall.SIGQUIT: "QUIT",
			syscall.SIGUSR1: "USR1", syscall.SIGUSR2: "USR2", syscall.SIGTERM: "TERM"}[s])
	}
	require.Error(t, cmd.Wait())
	require.Equal(t, 42, cmd.ProcessState.ExitCode(), complaints.String())
	require.Empty(t, statusOf(t, nodes, "x").Holder, "it was released")
}

// A lost lock ends the command: politely, and what does not listen is killed, with what it has started.
func TestRunEndsTheCommandWithTheLock(t *testing.T) {
	t.Parallel()
	nodes := startNodesFor(t, 3, longLease)
	// The lock is on all nodes before it is deleted on two, and no renewal between the two wins the first one's vote back:
	// else it would still have a quorum, and rightly.
	lose := func() {
		awaitKeys(t, nodes, "x")
		for _, n := range nodes[:2] {
			do(t, n, "DEL", "redlock:{x}")
		}
	}
	long := []string{"--lease", longLease.String()}
	cmd, out, complaints := startChild(t, nodes, `trap 'echo TERM; exit 0' TERM; echo ready; while :; do sleep 0.01; done`, long...)
	requireLine(t, out, "ready")
	lose()
	requireLine(t, out, "TERM")
	require.Error(t, cmd.Wait())
	require.Equal(t, exitLost, cmd.ProcessState.ExitCode())
	require.Contains(t, complaints.String(), "lock lost: \"x\": 1 of 3 nodes were left, quorum is 2")
	require.Contains(t, complaints.String(), "SIGTERM to the command, SIGKILL in 5s")

	pids := filepath.Join(t.TempDir(), "pids")
	cmd, out, _ = startChild(t, nodes, `trap '' TERM; (trap '' TERM; while :; do sleep 0.01; done) & echo $$ $! > `+pids+`; echo ready; while :; do sleep 0.01; done`, append(long, "--grace", "100ms")...)
	requireLine(t, out, "ready")
	lose()
	_, err := io.ReadAll(out) // ends when nobody can write any more
	require.NoError(t, err)
	require.Error(t, cmd.Wait())
	require.Equal(t, exitLost, cmd.ProcessState.ExitCode())
	requireGone(t, pids)

	// The leader listens, what it started does not.
	cmd, out, _ = startChild(t, nodes, `(trap '' TERM; while :; do sleep 0.01; done) & echo $! > `+pids+`; echo ready; wait`, append(long, "--grace", "100ms")...)
	requireLine(t, out, "ready")
	lose()
	_, err = io.ReadAll(out)
	require.NoError(t, err)
	require.Error(t, cmd.Wait())
	require.Equal(t, exitLost, cmd.ProcessState.ExitCode())
	requireGone(t, pids)
}

func TestRunEndsACommandThatHoldsForTooLong(t *testing.T) {
	t.Parallel()
	nodes := startNodes(t, 3)
	cmd, out, complaints := startChild(t, nodes, `trap 'echo TERM; exit 0' TERM; echo ready; while :; do sleep 0.01; done`, "--at-most", "3s") // by then it listens
	requireLine(t, out, "ready")
	requireLine(t, out, "TERM")
	require.Error(t, cmd.Wait())
	require.Equal(t, exitTooLong, cmd.ProcessState.ExitCode(), complaints.String())
	require.Contains(t, complaints.String(), "AtMost is 3s")
	require.NotContains(t, complaints.String(), "not confirmed")
	require.Empty(t, statusOf(t, nodes, "x").Holder, "it was released")
}

// The lock of a command that ends early is taken until the time is up, and says whose it is.
func TestRunHoldsForAtLeastSoLong(t *testing.T) {
	t.Parallel()
	nodes := startNodes(t, 3)
	r := execute(t, processOn(t, nodes, "run", "x", "--lease", "2s", "--at-least", "1m", "--label", "the-purger", "--", "true"))
	require.Equal(t, exitOK, r.code, r)
	r = execute(t, processOn(t, nodes, "run", "x", "--lease", "2s", "--try", "--", "echo", "ran"))
	require.Equal(t, exitNotLocked, r.code, r)
	require.Empty(t, r.out)
	status := inProcess(t, nodes, "status", "x")
	require.Contains(t, status.out, "the-purger")
}

// requireGone asserts that the processes whose ids a file lists have ended.
func requireGone(t *testing.T, file string) {
	t.Helper()
	text, err := os.ReadFile(file)
	require.NoError(t, err)
	for _, word := range strings.Fields(string(text)) {
		pid, err := strconv.Atoi(word)
		require.NoError(t, err)
		eventually(t, func() bool { return !alive(pid) }, "process "+word+" is gone")
	}
}

// alive reports whether a process exists and is no zombie that its parent, which may be no good one, has yet to wait for.
func alive(pid int) bool {
	stat, err := os.ReadFile("/proc/" + strconv.Itoa(pid) + "/stat")
	if err != nil {
		return false
	}
	fields := strings.Fields(string(stat[bytes.LastIndexByte(stat, ')')+1:]))
	return len(fields) > 0 && fields[0] != "Z" && fields[0] != "X"
}

// Without redlock nobody renews the lock, so the command must not go on.
func TestRunTakesTheCommandAlongWhenItIsKilled(t *testing.T) {
	t.Parallel()
	nodes := startNodes(t, 3)
	pids := filepath.Join(t.TempDir(), "pids")
	cmd, out, _ := startChild(t, nodes, `echo $$ > `+pids+`; echo ready; exec sleep 60`)
	requireLine(t, out, "ready")
	require.NoError(t, cmd.Process.Kill())
	require.Error(t, cmd.Wait())
	requireGone(t, pids)
}

func TestRunSaysThatItsReleaseIsNotConfirmed(t *testing.T) {
	t.Parallel()
	nodes := startNodesFor(t, 3, longLease)
	end := filepath.Join(t.TempDir(), "end")
	cmd, out, complaints := startChild(t, nodes, `echo ready; while [ ! -e `+end+` ]; do sleep 0.01; done; exit 3`, "--node-timeout", "300ms", "--lease", longLease.String())
	requireLine(t, out, "ready")
	awaitKeys(t, nodes, "x") // a node that was never asked has nothing to confirm
	for _, n := range nodes[:2] {
		require.NoError(t, n.Kill())
	}
	require.NoError(t, os.WriteFile(end, nil, 0o600))
	require.Error(t, cmd.Wait())
	assert.Equal(t, 3, cmd.ProcessState.ExitCode(), "the command's own code")
	assert.Contains(t, complaints.String(), "the release is not confirmed")
}

func TestChildCodeOfOtherErrors(t *testing.T) {
	var code exitError
	require.ErrorAs(t, childCode(os.ErrClosed), &code)
	require.Equal(t, exitFailed, code.code)
	require.NoError(t, childCode(nil))
}
