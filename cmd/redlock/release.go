package main

import (
	"context"
	"flag"
	"fmt"
	"io"
	"strings"
	"time"

	"github.com/redlock-go/redlock"
	"github.com/redlock-go/redlock/internal/node"
)

var releaseCommand = &command{
	name:    "release",
	args:    "NAME [flags]",
	summary: "take a lock or a slot from its holder, safely, and release it",
	nodes:   true,
	about: `For a lock whose holder hangs. It takes the lock over, which ends the holder's context, waits until that has
happened or the holder's lease has run out, and releases the lock for the next in line. It shows who holds the lock
and asks you first. Whatever the holder does that looks at nothing goes on: end that as well.
A reader-writer lock is not taken over: end the programs that hold it, which status names.

  --slot N              slot N of the semaphore NAME, as status shows it
  --grace D             ask the holder, too, and take the lock over if it has not let go in that time; default 0;
                        not for a slot
  --yes                 do not ask you
` + aboutLease + `
Exit code: 0 if the lock was released or nobody held it, 1 if NAME is a reader-writer lock, 122 if too few nodes
could vote.

Examples:

  redlock release cron:purge
  redlock release cron:purge --yes --grace 30s
  redlock release licences --slot 2
`,
	prepare: func(f *flag.FlagSet, nodes *connection) action {
		nodes.defineLease(f)
		yes, grace := f.Bool("yes", false, ""), f.Duration("grace", 0, "")
		slot := f.Int("slot", 0, "")
		return func(ctx context.Context, c *call) error { return c.release(ctx, *yes, *grace, *slot) }
	},
}

func (c *call) release(ctx context.Context, yes bool, grace time.Duration, slot int) error {
	if err := c.wantArgs(1, 1); err != nil {
		return err
	}
	var hold []redlock.HoldOption
	switch {
	case c.given["slot"] && (slot < 1 || slot > node.MaxSlots):
		return wrongUsage("--slot %d must be from 1 to %d", slot, node.MaxSlots)
	case slot > 0 && grace != 0:
		return wrongUsage("--grace is for locks: nobody asks who holds a slot")
	case grace == 0:
	case grace < time.Millisecond || grace > mostLease:
		return wrongUsage("--grace %v must be from 1ms to %v", grace, mostLease)
	default:
		hold = append(hold, redlock.Grace(grace))
	}
	name := c.args[0]
	what, k, err := c.showHolder(ctx, slot)
	if err != nil || what == "" {
		return err
	}
	if !yes {
		if err := confirm(c, "Take "+what+" from its holder, and release it?"); err != nil {
			return err
		}
	}
	locker, err := c.locker(ctx)
	if err != nil {
		return err
	}
	defer locker.Close()
	start := time.Now()
	stop := c.waiting.during(ctx, func(context.Context) string {
		if grace > 0 {
			return fmt.Sprintf("waiting until the holder lets go, for %v; then until it has noticed, or its lease has run out", grace)
		}
		return "waiting until the holder has noticed, or its lease has run out"
	})
	take := func() (*redlock.Guard, error) { return locker.ForceAcquire(ctx, name, hold...) }
	if slot > 0 {
		take = func() (*redlock.Guard, error) { return locker.Semaphore(name, k).ForceAcquire(ctx, slot) }
	}
	guard, err := take()
	stop()
	if err != nil {
		return err
	}
	if err := guard.Release(ctx); err != nil {
		return err
	}
	_, err = fmt.Fprintf(c.out, "%s is released; its holder had ended after %v\n", what, short(time.Since(start)))
	return err
}

// showHolder shows the lock, or the slot of a semaphore of k, and returns what it is called; nothing if there is nothing to release.
func (c *call) showHolder(ctx context.Context, slot int) (what string, k int, err error) {
	lookers, hangUp, err := c.lookers()
	if err != nil {
		return "", 0, err
	}
	defer hangUp()
	s := c.snapshot(ctx, lookers)
	if ctx.Err() != nil {
		return "", 0, ctx.Err()
	}
	what = shownName(c.args[0])
	lock := s.Locks[0]
	if slot > 0 {
		what = fmt.Sprintf("slot %d of %s", slot, what)
		switch {
		case len(s.Semaphores) == 0 && s.answered() < s.Quorum:
			return "", 0, tooFewAnswered(s)
		case len(s.Semaphores) == 0:
			_, err := fmt.Fprintf(c.out, "%s is free, as far as the nodes know of such a semaphore: nothing to release\n", what)
			return "", 0, err
		}
		k = s.Semaphores[0].K
		if slot > k {
			return "", 0, wrongUsage("--slot %d: %s has %d slots", slot, shownName(c.args[0]), k)
		}
		lock = s.Semaphores[0].Slots[slot-1]
	}
	if slot == 0 && len(s.RWLocks) > 0 {
		rw := s.RWLocks[0]
		if lock.Votes == 0 {
			return "", 0, c.refuseRW(rw, s.Quorum)
		}
		fmt.Fprintf(c.complaints, "%s is also a reader-writer lock, which is another thing and stays as it is\n", what)
	}
	if lock.Votes == 0 && s.answered() == len(s.Nodes) {
		_, err := fmt.Fprintf(c.out, "%s is free: nothing to release\n", what)
		return "", 0, err
	}
	var text strings.Builder
	lock.detail(&text, s.Quorum)
	_, err = io.WriteString(c.complaints, text.String()+"\n")
	return what, k, err
}

// refuseRW shows a reader-writer lock, and says what is to be done about it: nobody can take it over.
func (c *call) refuseRW(rw rwStatus, quorum int) error {
	var text strings.Builder
	rw.detail(&text, quorum)
	fmt.Fprintln(c.complaints, text.String())
	return fmt.Errorf("%s is a reader-writer lock, which cannot be taken over: end the programs that hold it, and it is free when their leases have run out",
		shownName(rw.Name))
}
