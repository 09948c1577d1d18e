//go:build unix

package main

import (
	"os"
	"os/exec"
	"os/signal"
	"sync"
	"syscall"
	"time"
)

// family is the command that runs under a lock, with what it has started itself. On a terminal it shares our process
// group, so that the shell's job control goes on working, and signals are for the command alone. Elsewhere it has a group
// of its own, and what it has started ends with it.
type family struct {
	child    *exec.Cmd
	terminal bool

	mu      sync.Mutex
	running bool
	early   []syscall.Signal // came before it was started
}

func newFamily(child *exec.Cmd) *family {
	f := &family{child: child, terminal: isTerminal(os.Stdin)}
	child.SysProcAttr = &syscall.SysProcAttr{Setpgid: !f.terminal}
	dieWithUs(child.SysProcAttr)
	return f
}

// passSignals passes signals on to the command until stop. On a terminal Ctrl-C and Ctrl-\ reach it by themselves.
func (f *family) passSignals() (stop func()) {
	list := []os.Signal{syscall.SIGTERM, syscall.SIGHUP, syscall.SIGUSR1, syscall.SIGUSR2, syscall.SIGINT, syscall.SIGQUIT}
	signals := make(chan os.Signal, 8)
	signal.Notify(signals, list...)
	done := make(chan struct{})
	var wg sync.WaitGroup
	wg.Go(func() {
		for {
			select {
			case s := <-signals:
				f.pass(s.(syscall.Signal))
			case <-done:
				return
			}
		}
	})
	return func() {
		signal.Stop(signals)
		close(done)
		wg.Wait()
	}
}

// pass passes one signal on, now or when the command has been started.
func (f *family) pass(s syscall.Signal) {
	f.mu.Lock()
	running := f.running
	if !running {
		f.early = append(f.early, s)
	}
	f.mu.Unlock()
	if running && (!f.terminal || s != syscall.SIGINT && s != syscall.SIGQUIT) {
		f.signal(s)
	}
}

func (f *family) started() {
	f.mu.Lock()
	f.running = true
	early := f.early
	f.mu.Unlock()
	for _, s := range early {
		f.signal(s)
	}
}

func (f *family) signal(s syscall.Signal) {
	if f.terminal {
		f.child.Process.Signal(s) // knows whether the child has been waited for
		return
	}
	syscall.Kill(-f.child.Process.Pid, s)
}

// end ends the command, and returns when it has ended.
func (f *family) end(ended <-chan error, grace time.Duration) {
	f.signal(syscall.SIGTERM)
	f.signal(syscall.SIGCONT) // one that is stopped would not hear it
	kill := time.After(grace)
	select {
	case <-ended:
	case <-kill:
		f.signal(syscall.SIGKILL)
		<-ended
		return
	}
	for f.survives() { // what the command has started may take longer
		select {
		case <-kill:
			f.signal(syscall.SIGKILL)
			return
		case <-time.After(10 * time.Millisecond):
		}
	}
}

// survives reports whether anybody of the command's group is left.
func (f *family) survives() bool {
	return !f.terminal && syscall.Kill(-f.child.Process.Pid, 0) == nil
}
