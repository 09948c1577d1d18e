package main

import (
	"context"
	"encoding/json"
	"flag"
	"fmt"
	"io"
	"time"

	"github.com/redlock-go/redlock/internal/node"
)

var statusCommand = &command{
	name:    "status",
	args:    "[NAME] [flags]",
	summary: "show who holds a lock, a semaphore or a reader-writer lock, and who waits; or all of them",
	nodes:   true,
	about: `Shows what each node says of a lock, of a semaphore, of a reader-writer lock, of each of these where they have one
name, or of all that any node has. A semaphore is known while somebody uses it, and for the longest lease after that.
It only looks: it takes no lock, and writes nothing. What it shows may be out of date a moment later.

  --json                as JSON, one document; with --watch one in each line
  --watch               again every --every, in place on a terminal
  --every D             default 2s

Exit code: 0, or 122 if fewer than a quorum of the nodes answered; the others are shown all the same.

Examples:

  redlock status --nodes a:6379,b:6379,c:6379
  redlock status cron:purge --watch
  redlock status licences                       # a semaphore: each slot
  redlock status catalogue                      # a reader-writer lock: who writes, who reads
  redlock status --json | jq -r '.locks[] | select(.votes < 3) | .name'
`,
	prepare: func(f *flag.FlagSet, _ *connection) action {
		asJSON := f.Bool("json", false, "")
		watch := f.Bool("watch", false, "")
		every := f.Duration("every", 2*time.Second, "")
		return func(ctx context.Context, c *call) error { return c.status(ctx, *asJSON, *watch, *every) }
	},
}

func (c *call) status(ctx context.Context, asJSON, watch bool, every time.Duration) error {
	if err := c.wantArgs(0, 1); err != nil {
		return err
	}
	if every < 100*time.Millisecond {
		return wrongUsage("--every %v is less than 100ms: looking costs the nodes something, too", every)
	}
	lookers, hangUp, err := c.lookers()
	if err != nil {
		return err
	}
	defer hangUp()
	show := func() (*snapshot, error) {
		stop := c.waiting.during(ctx, func(context.Context) string { return "looking at the locks of all nodes" })
		s := c.snapshot(ctx, lookers)
		stop()
		if err := context.Cause(ctx); err != nil {
			return nil, ctx.Err()
		}
		text := s.text(len(c.args) == 1)
		if asJSON {
			encoded, err := json.Marshal(s)
			if err != nil {
				return nil, err
			}
			text = string(encoded) + "\n"
		}
		if watch && !asJSON && isTerminal(c.out) {
			text = "\x1b[H\x1b[2J" + text
		} else if watch && !asJSON {
			text += "\n"
		}
		_, err := io.WriteString(c.out, text)
		return s, err
	}
	s, err := show()
	for watch && err == nil {
		select {
		case <-ctx.Done():
			return nil // that is how a watch ends
		case <-time.After(every):
		}
		c.reconnect(lookers)
		s, err = show()
	}
	if watch && ctx.Err() != nil {
		return nil
	}
	if err == nil && s.answered() < s.Quorum {
		err = tooFewAnswered(s)
	}
	return err
}

func tooFewAnswered(s *snapshot) error {
	return exitError{exitNoQuorum, fmt.Errorf("%d of %d nodes answered, quorum is %d", s.answered(), len(s.Nodes), s.Quorum)}
}

// reconnect connects again to nodes that were not there.
func (c *call) reconnect(lookers []*looker) {
	nodes, err := c.nodes.options()
	if err != nil {
		return // it was the same list before
	}
	eachOf(lookers, func(i int, l *looker) {
		if l.client == nil {
			if l.client, l.err = c.nodes.client(nodes[i]); l.err != nil {
				l.client, l.err = nil, node.ConnectionFault(l.err)
			}
		}
	})
}
