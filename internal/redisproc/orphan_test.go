//go:build linux

package redisproc_test

import (
	"bufio"
	"context"
	"fmt"
	"os"
	"os/exec"
	"runtime"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/redlock-go/redlock/internal/redisproc"
	"github.com/redlock-go/redlock/internal/redisproc/redistest"
)

const envStarter = "REDISPROC_TEST_STARTER"

// TestStarter is no test: it is the process that TestServersDieWithTheirStarter kills.
func TestStarter(t *testing.T) {
	if os.Getenv(envStarter) == "" {
		return
	}
	nodes, err := redisproc.StartSet(2, redisproc.Options{})
	require.NoError(t, err)
	fmt.Println("pids", nodes[0].PID(), nodes[1].PID())
	select {}
}

func TestServersDieWithTheirStarter(t *testing.T) {
	ctx, cancel := context.WithTimeout(context.Background(), longEnough)
	defer cancel()
	starter := exec.CommandContext(ctx, os.Args[0], "-test.run=^TestStarter$")
	starter.Env = append(os.Environ(), envStarter+"=1", "TMPDIR="+t.TempDir())
	out, err := starter.StdoutPipe()
	require.NoError(t, err)
	require.NoError(t, starter.Start())
	line, err := bufio.NewReader(out).ReadString('\n')
	require.NoError(t, err)
	fields := strings.Fields(line)
	require.Len(t, fields, 3, line)

	require.NoError(t, starter.Process.Kill())
	require.Error(t, starter.Wait())
	for _, field := range fields[1:] {
		pid, err := strconv.Atoi(field)
		require.NoError(t, err)
		require.Eventually(t, func() bool { return dead(pid) }, longEnough, time.Millisecond)
	}
}

// dead also takes a zombie for dead: in a container nobody may reap it.
func dead(pid int) bool {
	stat, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	return err != nil || strings.Contains(string(stat), ") Z") || syscall.Kill(pid, 0) != nil
}

func TestServerOutlivesTheThreadThatAskedForIt(t *testing.T) {
	started := make(chan *redisproc.Node)
	go func() {
		runtime.LockOSThread() // and never unlock: the thread ends with the goroutine
		n, err := redisproc.Start(redisproc.Options{})
		if err != nil {
			t.Error(err)
		}
		started <- n
	}()
	n := <-started
	require.NotNil(t, n)
	defer n.Close()
	time.Sleep(100 * time.Millisecond) // a signal at the thread's death would be here by now
	require.True(t, n.Running())
	require.Equal(t, "PONG", do(t, n, "PING"))
}

func TestFrozenServerRunsNoInstruction(t *testing.T) {
	n := redistest.Start(t, redisproc.Options{})
	for range 20 {
		require.NoError(t, n.Freeze())
		stat, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", n.PID()))
		require.NoError(t, err)
		require.Contains(t, string(stat), ") T")
		require.NoError(t, n.Thaw())
	}
}
