package main

import (
	"bytes"
	"context"
	"fmt"
	"os"
	"os/exec"
	"strings"
	"sync"
	"syscall"
	"testing"

	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"

	"github.com/redlock-go/redlock/internal/redisproc"
	"github.com/redlock-go/redlock/internal/redisproc/redistest"
)

// terminal is a pseudo-terminal with a process on it.
type terminal struct {
	cmd    *exec.Cmd
	master *os.File
	read   chan struct{} // closed when nobody writes any more

	mu   sync.Mutex
	seen bytes.Buffer
}

// onTerminal starts a process whose stdin, stdout and stderr are a terminal, as its session's own.
func onTerminal(t *testing.T, cmd *exec.Cmd) *terminal {
	t.Helper()
	master, err := os.OpenFile("/dev/ptmx", os.O_RDWR|unix.O_NOCTTY, 0)
	require.NoError(t, err)
	t.Cleanup(func() { master.Close() })
	var number int
	raw, err := master.SyscallConn()
	require.NoError(t, err)
	require.NoError(t, raw.Control(func(fd uintptr) {
		if err = unix.IoctlSetPointerInt(int(fd), unix.TIOCSPTLCK, 0); err == nil {
			number, err = unix.IoctlGetInt(int(fd), unix.TIOCGPTN)
		}
	}))
	require.NoError(t, err)
	slave, err := os.OpenFile(fmt.Sprintf("/dev/pts/%d", number), os.O_RDWR|unix.O_NOCTTY, 0)
	require.NoError(t, err)
	cmd.Stdin, cmd.Stdout, cmd.Stderr = slave, slave, slave
	cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true, Setctty: true}
	require.NoError(t, cmd.Start())
	slave.Close()
	term := &terminal{cmd: cmd, master: master, read: make(chan struct{})}
	go func() {
		defer close(term.read)
		for part := make([]byte, 4096); ; {
			n, err := master.Read(part)
			term.mu.Lock()
			term.seen.Write(part[:n])
			term.mu.Unlock()
			if err != nil {
				return // EIO: the last one has closed it
			}
		}
	}()
	return term
}

func (term *terminal) text() string {
	term.mu.Lock()
	defer term.mu.Unlock()
	return term.seen.String()
}

func (term *terminal) await(t *testing.T, text string) {
	t.Helper()
	defer func() {
		if t.Failed() {
			t.Logf("on the terminal: %q", term.text())
		}
	}()
	eventually(t, func() bool { return strings.Contains(term.text(), text) }, text)
}

func (term *terminal) types(t *testing.T, text string) {
	t.Helper()
	_, err := term.master.WriteString(text)
	require.NoError(t, err)
}

// ends waits for the process and returns its exit code.
func (term *terminal) ends(t *testing.T) int {
	t.Helper()
	term.cmd.Wait()
	<-term.read
	return term.cmd.ProcessState.ExitCode()
}

func TestStatusRedrawsOnATerminal(t *testing.T) {
	t.Parallel()
	nodes := startNodes(t, 3)
	term := onTerminal(t, processOn(t, nodes, "status", "--watch", "--every", "100ms"))
	term.await(t, "no locks on 3 of 3 nodes")
	hold(t, nodes, "x")
	term.await(t, "\x1b[H\x1b[2JNAME")
	term.types(t, "\x03") // Ctrl-C
	require.Equal(t, exitOK, term.ends(t), term.text())
}

func TestRunShowsItsPlaceInLineOnATerminal(t *testing.T) {
	t.Parallel()
	nodes := startNodes(t, 3)
	guard := hold(t, nodes, "x")
	term := onTerminal(t, processOn(t, nodes, "run", "x", "--lease", "2s", "--", "sh", "-c", "read line; echo got $line"))
	term.await(t, "\r\x1b[Kwaiting for x, held by ")
	term.await(t, "at place 1 of 1 in line")
	require.NoError(t, guard.Release(context.Background()))
	eventually(t, func() bool { l := statusOf(t, nodes, "x"); return l.Held && l.Waiters == 0 }, "it has the lock")
	eventually(t, func() bool { return strings.HasSuffix(term.text(), "\r\x1b[K") }, "the line is taken away")
	term.types(t, "a line\n") // the command reads from the terminal
	term.await(t, "got a line")
	require.Equal(t, exitOK, term.ends(t))
}

// Ctrl-C reaches the command by itself, and once.
func TestRunAndCtrlC(t *testing.T) {
	t.Parallel()
	nodes := startNodes(t, 3)
	term := onTerminal(t, processOn(t, nodes, "run", "x", "--lease", "2s", "--", "bash", "-c",
		`trap 'n=$((n + 1)); echo "INT $n"' INT; trap 'echo TERM; exit 9' TERM; echo ready; while :; do sleep 0.01; done`))
	term.await(t, "ready")
	term.types(t, "\x03")
	term.await(t, "INT 1")
	term.types(t, "\x03")
	term.await(t, "INT 2")
	require.NoError(t, term.cmd.Process.Signal(syscall.SIGTERM))
	require.Equal(t, 9, term.ends(t), term.text())
	require.NotContains(t, term.text(), "INT 3")
	require.Empty(t, statusOf(t, nodes, "x").Holder)
}

func TestReleaseAsks(t *testing.T) {
	t.Parallel()
	nodes := startNodes(t, 3)
	guard := hold(t, nodes, "x")
	for _, answer := range []string{"n\n", "\n", "yess\n"} {
		term := onTerminal(t, processOn(t, nodes, "release", "x", "--lease", "2s"))
		term.await(t, "Take x from its holder, and release it? [y/N] ")
		term.types(t, answer)
		require.Equal(t, exitFailed, term.ends(t), term.text())
		require.Contains(t, term.text(), "nothing was done")
		require.NoError(t, guard.Err())
	}
	term := onTerminal(t, processOn(t, nodes, "release", "x", "--lease", "2s"))
	term.await(t, "[y/N] ")
	term.types(t, "y\n")
	require.Equal(t, exitOK, term.ends(t), term.text())
	require.Error(t, guard.Err())
}

func TestAskPassShowsNoPassword(t *testing.T) {
	t.Parallel()
	nodes := redistest.StartSet(t, 1, redisproc.Options{})
	do(t, nodes[0], "CONFIG", "SET", "requirepass", "geheim")
	term := onTerminal(t, processOn(t, nodes, "status", "--askpass"))
	term.await(t, "Password: ")
	eventually(t, func() bool { return !echoes(t, term.master) }, "the terminal shows nothing that is typed")
	term.types(t, "geheim\n")
	require.Equal(t, exitOK, term.ends(t), term.text())
	require.Contains(t, term.text(), "no locks on 1 of 1 nodes")
	require.NotContains(t, term.text(), "geheim")
}

func echoes(t *testing.T, f *os.File) bool {
	t.Helper()
	raw, err := f.SyscallConn()
	require.NoError(t, err)
	var mode *unix.Termios
	require.NoError(t, raw.Control(func(fd uintptr) { mode, err = unix.IoctlGetTermios(int(fd), unix.TCGETS) }))
	require.NoError(t, err)
	return mode.Lflag&unix.ECHO != 0
}
