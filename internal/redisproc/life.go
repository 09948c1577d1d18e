package redisproc

import (
	"errors"
	"os"
	"os/exec"
	"runtime"
)

// life is one server process from its start to its end.
type life struct {
	process *os.Process
	exited  chan struct{}    // closed when the process is gone and reaped
	state   *os.ProcessState // how it ended; valid once exited is closed
}

// spawn starts the server. One goroutine starts it and waits for its end, and keeps its OS thread from before the one
// until after the other: the kernel's "kill the child when its parent dies" (Pdeathsig) means the parent's thread.
func (n *Node) spawn() (*life, error) {
	log, err := os.OpenFile(n.logPath(), os.O_CREATE|os.O_WRONLY|os.O_APPEND, 0o600)
	if err != nil {
		return nil, err
	}
	defer log.Close() // the server has its own descriptor
	// A file, not a pipe: a saving child that outlives its server would keep a pipe, and whoever reads it, open.
	cmd := exec.Command(n.server, n.args()...)
	cmd.Env = n.env()
	cmd.Stdout, cmd.Stderr = log, log
	cmd.SysProcAttr = sysProcAttr()

	l := &life{exited: make(chan struct{})}
	started := make(chan error)
	go func() {
		runtime.LockOSThread()
		defer runtime.UnlockOSThread()
		err := cmd.Start()
		l.process = cmd.Process
		started <- err
		if err != nil {
			return
		}
		_ = cmd.Wait() // "signal: killed" is how most of them are meant to end
		l.state = cmd.ProcessState
		close(l.exited)
	}()
	return l, <-started
}

// kill ends the server with SIGKILL, frozen or not, and waits until it is gone. n.mu is held.
func (n *Node) kill() error {
	l := n.current()
	if l == nil {
		return nil
	}
	err := l.process.Kill()
	if err != nil && !errors.Is(err, os.ErrProcessDone) {
		return err
	}
	<-l.exited
	return nil
}
