package containers

import (
	"context"
	"fmt"
	"io"
	"os"
	"os/exec"
	"sync"
	"syscall"

	"github.com/moby/moby/client"
)

// The reaper is this test binary once more, in a session of its own. It holds the read end of a pipe whose write end
// only the test process has, so that it hears of that process's end whatever the reason: a panic in some goroutine, the
// timeout of go test, Ctrl-C, kill -9. Then it removes everything the run still has. It does what testcontainers' Ryuk
// does, without an image that has to be pulled.

const reapEnv = "REDLOCK_TEST_REAP"

var reaper struct {
	once sync.Once
	err  error // why it could not start
	cmd  *exec.Cmd
	pipe io.Closer
}

// startReaper starts it with the first set of a run: a run that has no engine, or no test that wants one, has nothing
// to clean up.
func startReaper(engine client.APIClient) error {
	reaper.once.Do(func() {
		self, err := os.Executable()
		if err != nil {
			reaper.err = err
			return
		}
		// No output: go test waits for whoever still holds its standard output.
		cmd := exec.Command(self)
		cmd.Env = append(os.Environ(), reapEnv+"="+thisRun, "DOCKER_HOST="+engine.DaemonHost())
		cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true} // Ctrl-C is for the tests alone
		pipe, err := cmd.StdinPipe()
		if err == nil {
			err = cmd.Start()
		}
		if err != nil {
			reaper.err = fmt.Errorf("starting the process that cleans up: %w", err)
			return
		}
		reaper.cmd, reaper.pipe = cmd, pipe
	})
	return reaper.err
}

// stopReaper ends the reaper as the end of this process would, and waits for it, so that nothing is left when go test
// returns.
func stopReaper() error {
	if reaper.cmd == nil {
		return nil
	}
	reaper.pipe.Close()
	if err := reaper.cmd.Wait(); err != nil {
		return fmt.Errorf("the process that cleans up failed (docker ps -a --filter label=%s=%s): %w", labelRun, thisRun, err)
	}
	return nil
}

// reap is the whole life of the reaper.
func reap(run string) int {
	io.Copy(io.Discard, os.Stdin)
	ctx, cancel := context.WithTimeout(context.Background(), removeTimeout)
	defer cancel()
	engine, err := client.New(client.FromEnv)
	if err == nil {
		// Twice: a request that the test process had sent when it ended may be carried out after the first look.
		err = removeLabeled(ctx, engine, labelRun, run)
		if err == nil {
			err = removeLabeled(ctx, engine, labelRun, run)
		}
	}
	if err != nil {
		return 1
	}
	return 0
}
