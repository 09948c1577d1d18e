package redisproc

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"
)

// Bounds on waiting. They are generous because they end a test that would otherwise hang, on machines that are busy
// with other tests; nothing usual comes near them.
const (
	readyTimeout = 20 * time.Second // start to first answer; 30 ms on an idle machine
	stopTimeout  = 5 * time.Second  // SIGTERM to SIGKILL; Redis looks for SIGTERM every 100 ms
)

// awaitReady waits for any answer but LOADING. A server that wants a password, say, answers NOAUTH and is ready.
func (n *Node) awaitReady(l *life) error {
	ctx, cancel := context.WithTimeout(context.Background(), readyTimeout)
	defer cancel()
	for pause := time.Millisecond; ; pause = min(2*pause, 20*time.Millisecond) {
		_, err := n.do(ctx, "PING")
		var reply ReplyError
		if err == nil || errors.As(err, &reply) && !strings.HasPrefix(string(reply), "LOADING") {
			return nil
		}
		select {
		case <-l.exited:
			return fmt.Errorf("redisproc: %s ended at once (%s)", n.server, l.state)
		case <-ctx.Done():
			return fmt.Errorf("redisproc: %s gave no answer at %s in %v: %w", n.server, n.addr, readyTimeout, err)
		case <-time.After(pause):
		}
	}
}
