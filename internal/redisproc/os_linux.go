package redisproc

import (
	"bytes"
	"fmt"
	"os"
	"syscall"
	"time"
)

const (
	stopSignal     = syscall.SIGSTOP
	continueSignal = syscall.SIGCONT
)

// sysProcAttr lets the kernel kill the server when the thread that started it dies, and keeps the terminal's Ctrl-C,
// meant for the demo or the test, away from it.
func sysProcAttr() *syscall.SysProcAttr {
	return &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL, Setpgid: true}
}

func signal(p *os.Process, s syscall.Signal) error { return p.Signal(s) }

// awaitStopped waits until SIGSTOP has stopped the server's main thread, the one that executes commands: kill(2)
// returns before.
func awaitStopped(l *life) error {
	path := fmt.Sprintf("/proc/%d/stat", l.process.Pid)
	for deadline := time.Now().Add(stopTimeout); time.Now().Before(deadline); time.Sleep(time.Millisecond) {
		stat, err := os.ReadFile(path)
		if err != nil {
			return fmt.Errorf("redisproc: freeze: %w", err)
		}
		// "pid (name) S ..." where the name may contain spaces and parentheses.
		rest := stat[bytes.LastIndexByte(stat, ')')+1:]
		if bytes.HasPrefix(rest, []byte(" T")) {
			return nil
		}
	}
	return fmt.Errorf("redisproc: process %d does not stop", l.process.Pid)
}
