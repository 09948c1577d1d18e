package redisproc

import (
	"fmt"
	"syscall"
	"time"
)

// Freeze stops the server with SIGSTOP. When it returns, no instruction of the server runs until Thaw, while its clock,
// its keys' expiry and its connections go on; the kernel keeps answering for it and takes connections and bytes up to
// its buffers.
func (n *Node) Freeze() error {
	l := n.current()
	err := signal(l.process, stopSignal)
	if err != nil {
		return fmt.Errorf("redisproc: freeze: %w", err)
	}
	return awaitStopped(l)
}

// Thaw lets a frozen server go on with SIGCONT; what reached it meanwhile is executed now. On a server that is not
// frozen it does nothing.
func (n *Node) Thaw() error {
	err := signal(n.current().process, continueSignal)
	if err != nil {
		return fmt.Errorf("redisproc: thaw: %w", err)
	}
	return nil
}

// Kill ends the server with SIGKILL and returns when it is gone: connections are reset, new ones refused, and unwritten
// data is lost. [Node.CrashEmpty] and its like start another. Killing a dead server does nothing.
func (n *Node) Kill() error {
	n.mu.Lock()
	defer n.mu.Unlock()
	return n.kill()
}

// Stop ends the server the way an administrator does, with SIGTERM, and returns when it is gone. One that does not end
// within 5 s is killed. A frozen one is thawed first. [Node.CrashEmpty] and its like start another. Stopping a dead
// server does nothing.
func (n *Node) Stop() error {
	n.mu.Lock()
	defer n.mu.Unlock()
	l := n.current()
	if !n.Running() {
		return nil
	}
	for _, s := range []syscall.Signal{syscall.SIGTERM, continueSignal} {
		err := signal(l.process, s)
		if err != nil && n.Running() {
			return fmt.Errorf("redisproc: stop: %w", err)
		}
	}
	select {
	case <-l.exited:
		return nil
	case <-time.After(stopTimeout):
		return n.kill()
	}
}
