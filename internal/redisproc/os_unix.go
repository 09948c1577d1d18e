//go:build unix && !linux

package redisproc

import (
	"os"
	"syscall"
	"time"
)

const (
	stopSignal     = syscall.SIGSTOP
	continueSignal = syscall.SIGCONT
)

// sysProcAttr leaves the server in our process group, so that Ctrl-C ends it too: here nothing else would, if we were
// to die of it.
func sysProcAttr() *syscall.SysProcAttr { return nil }

func signal(p *os.Process, s syscall.Signal) error { return p.Signal(s) }

// awaitStopped gives the signal the moment it needs; there is no portable way to look.
func awaitStopped(*life) error {
	time.Sleep(10 * time.Millisecond)
	return nil
}
