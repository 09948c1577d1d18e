package main

import (
	"fmt"
	"io"
	"os"
	"os/exec"
	"runtime"
	"sync"
	"syscall"
	"time"

	"github.com/redlock-go/redlock/internal/netproxy"
)

// process is a worker process. It can be killed and started again; its links stay.
type process struct {
	name  string
	links []*netproxy.Link // one for each node
	start func(p *process) *exec.Cmd

	mu      sync.Mutex
	lives   int
	running *os.Process
	exited  chan struct{}
	killed  bool // the end that comes is wanted
	err     error
}

// spawn starts the process. Its thread is kept until it has ended: the kernel's "kill it when its parent dies" means
// the thread.
func (p *process) spawn(unexpected func(string)) error {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.lives++
	p.killed = false
	cmd := p.start(p)
	cmd.SysProcAttr = sysProcAttr()
	exited, started := make(chan struct{}), make(chan error)
	go func() {
		runtime.LockOSThread()
		defer runtime.UnlockOSThread()
		err := cmd.Start()
		started <- err
		if err != nil {
			return
		}
		err = cmd.Wait()
		p.mu.Lock()
		if p.err = err; err != nil && !p.killed {
			unexpected(fmt.Sprintf("worker process %s ended: %v", p.name, err))
		}
		p.mu.Unlock()
		close(exited)
	}()
	if err := <-started; err != nil {
		return err
	}
	p.running, p.exited = cmd.Process, exited
	return nil
}

// id is the process and its present life.
func (p *process) id() string { return fmt.Sprintf("%s.%d", p.name, p.lives) }

func (p *process) current() (running *os.Process, id string, exited chan struct{}) {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.running, p.id(), p.exited
}

func (p *process) signal(s syscall.Signal) {
	running, _, _ := p.current()
	if running != nil {
		_ = running.Signal(s) // it may have ended
	}
}

// kill ends the process with SIGKILL, stopped or not, and returns when it is gone.
func (p *process) kill() {
	p.mu.Lock()
	running, exited := p.running, p.exited
	p.killed = true
	p.mu.Unlock()
	if running == nil {
		return
	}
	_ = running.Kill() // it may have ended
	<-exited
}

// finish waits for the process to end by itself. One that does not is made to show its goroutines, and false returned.
func (p *process) finish(within time.Duration) bool {
	_, _, exited := p.current()
	if exited == nil {
		return true
	}
	select {
	case <-exited:
		return true
	case <-time.After(within):
	}
	p.mu.Lock()
	p.killed = true
	p.mu.Unlock()
	p.signal(syscall.SIGQUIT)
	select {
	case <-exited:
	case <-time.After(2 * time.Second):
		p.kill()
	}
	return false
}

// syncWriter lets processes share an output.
type syncWriter struct {
	mu sync.Mutex
	w  io.Writer
}

func (s *syncWriter) Write(b []byte) (int, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.w.Write(b)
}
