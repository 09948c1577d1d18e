package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"os"
	"os/exec"
	"runtime"
	"strconv"
	"syscall"
	"time"

	"github.com/redlock-go/redlock"
	"github.com/redlock-go/redlock/internal/node"
)

var runCommand = &command{
	name:    "run",
	args:    "NAME [flags] -- COMMAND [ARG...]",
	summary: "run a command while holding a lock, or a slot of a semaphore",
	nodes:   true,
	about: `Takes the lock, runs the command, and releases the lock when the command has ended. Whoever comes
meanwhile waits in line. The command finds REDLOCK_NAME and REDLOCK_FENCE, the fencing token, in its
environment, and REDLOCK_SLOT with --slots. If the lock is lost the command gets SIGTERM, and SIGKILL after the
grace.

  --try                 do not wait: exit with 121 if somebody else has the lock
  --timeout D           wait at most so long for the lock, then exit with 121; default for ever
  --slots K             take one of K slots, 1 to 256, of the semaphore NAME: at most K commands run at a time.
                        All must give the same K. The other flags are about that slot, and so is the token.
  --label TEXT          what others see of the holder; default this machine and process
  --at-least D          the lock stays taken for so long from the grant, also when the command ends before
  --at-most D           end the command when it has held the lock for so long, as if it were lost
  --grace D             time between SIGTERM and SIGKILL when the lock is lost; default 5s
  --quiet               say nothing while waiting
` + aboutLease + `
Exit code: the command's own, or 128 and the number of the signal that ended it. Of redlock itself:

    2  the command line is not understood         121  the lock was not acquired
  120  the lock was lost while the command ran    122  too few nodes could vote
  124  --at-most was over                         126  the command cannot be executed
  125  another failure before the command ran     127  the command was not found

Signals are passed on. Where stdin is no terminal the command is the leader of a process group, and
signals and the end are for the whole group; on a terminal Ctrl-C reaches it by itself. On Linux the
command is killed if redlock itself dies, because nothing would renew the lock any more.

Examples:

  export REDLOCK_NODES=a:6379,b:6379,c:6379
  redlock run cron:purge -- ./purge.sh
  redlock run cron:purge --try -- ./purge.sh || [ $? -eq 121 ]   # another machine does it
  redlock run licences --slots 3 -- sh -c 'compile --licence "$REDLOCK_SLOT"'     # 1, 2 or 3
  redlock run deploy --timeout 10m -- sh -c 'deploy --fence "$REDLOCK_FENCE"'
`,
	prepare: func(f *flag.FlagSet, nodes *connection) action {
		var o runOptions
		nodes.defineLease(f)
		f.BoolVar(&o.try, "try", false, "")
		f.DurationVar(&o.timeout, "timeout", 0, "")
		f.IntVar(&o.slots, "slots", 0, "")
		f.StringVar(&o.label, "label", "", "")
		f.DurationVar(&o.atLeast, "at-least", 0, "")
		f.DurationVar(&o.atMost, "at-most", 0, "")
		f.DurationVar(&o.grace, "grace", 5*time.Second, "")
		f.BoolVar(&o.quiet, "quiet", false, "")
		return func(ctx context.Context, c *call) error { return c.run(ctx, o) }
	},
}

type runOptions struct {
	try, quiet                      bool
	slots                           int // 0: it is a lock
	label                           string
	timeout, atLeast, atMost, grace time.Duration
}

func (o runOptions) check(given given) error {
	switch {
	case o.try && o.timeout != 0:
		return wrongUsage("--try and --timeout %v contradict each other: one does not wait, the other does", o.timeout)
	case o.timeout < 0:
		return wrongUsage("--timeout %v is negative", o.timeout)
	case o.timeout == 0 && given["timeout"]:
		return wrongUsage("--timeout %v is \"do not wait\" for some commands and \"wait for ever\" for others: use --try, or leave it out", o.timeout)
	case o.atLeast < 0 || o.atLeast == 0 && given["at-least"]:
		return wrongUsage("--at-least %v must be positive", o.atLeast)
	case o.atMost < 0 || o.atMost == 0 && given["at-most"]:
		return wrongUsage("--at-most %v must be positive", o.atMost)
	case o.grace < 0:
		return wrongUsage("--grace %v is negative", o.grace)
	case given["slots"] && (o.slots < 1 || o.slots > node.MaxSlots):
		return wrongUsage("--slots %d must be from 1 to %d", o.slots, node.MaxSlots)
	}
	return nil
}

func (c *call) run(ctx context.Context, o runOptions) error {
	if err := errors.Join(c.wantArgs(1, 1), o.check(c.given)); err != nil {
		return err
	}
	if len(c.child) == 0 {
		return wrongUsage("no command to run: it stands behind --, as in redlock run %s -- ./purge.sh", c.args[0])
	}
	if _, err := exec.LookPath(c.child[0]); err != nil { // found out before anybody waits for a lock
		return cannotRun(err)
	}
	child := exec.Command(c.child[0], c.child[1:]...)
	locker, err := c.locker(ctx)
	if err != nil {
		return notStarted(err)
	}
	defer locker.Close()
	guard, err := c.acquire(ctx, locker, c.args[0], o)
	if err != nil {
		return notStarted(err)
	}
	err = c.runHolding(ctx, guard, child, o.grace)
	releasing, cancel := context.WithTimeout(context.Background(), c.nodes.timeout)
	defer cancel()
	if late := guard.Release(releasing); late != nil && !errors.Is(late, redlock.ErrLost) && !errors.Is(late, redlock.ErrHeldTooLong) {
		fmt.Fprintf(c.complaints, "redlock run: the release is not confirmed, others may wait for at most one lease: %s\n", explained(late))
	}
	return err
}

// notStarted gives an error the code of what failed before the command ran, unless it has one of its own.
func notStarted(err error) error {
	var usage usageError
	switch {
	case errors.Is(err, redlock.ErrNotLocked), errors.Is(err, redlock.ErrNoQuorum), errors.Is(err, redlock.ErrInvalidOption),
		errors.Is(err, context.Canceled), errors.As(err, &usage), errors.As(err, new(exitError)):
		return err
	}
	return exitError{exitNotStarted, err}
}

func cannotRun(err error) error {
	if errors.Is(err, exec.ErrNotFound) || errors.Is(err, os.ErrNotExist) {
		return exitError{exitNotFound, err}
	}
	return exitError{exitCannotRun, err}
}

// acquire takes the lock as the flags say, and shows whom it waits for.
func (c *call) acquire(ctx context.Context, locker *redlock.Locker, name string, o runOptions) (*redlock.Guard, error) {
	try, wait := locker.TryAcquire, locker.Acquire
	look := func(ctx context.Context) string {
		line, err := locker.Inspect(ctx, name)
		return "waiting for " + shownName(name) + whoHolds(line, err)
	}
	if o.slots > 0 {
		semaphore := locker.Semaphore(name, o.slots)
		try = func(ctx context.Context, _ string, hold ...redlock.HoldOption) (*redlock.Guard, error) {
			return semaphore.TryAcquire(ctx, hold...)
		}
		wait = func(ctx context.Context, _ string, hold ...redlock.HoldOption) (*redlock.Guard, error) {
			return semaphore.Acquire(ctx, hold...)
		}
		look = func(ctx context.Context) string {
			lines, err := semaphore.Inspect(ctx)
			return "waiting for a slot of " + shownName(name) + howManyHold(lines, err)
		}
	}
	if !o.quiet {
		defer c.waiting.during(ctx, look)()
	}
	var hold []redlock.HoldOption
	if o.label != "" {
		hold = append(hold, redlock.Label(o.label))
	}
	if o.atLeast != 0 {
		hold = append(hold, redlock.AtLeast(o.atLeast))
	}
	if o.atMost != 0 {
		hold = append(hold, redlock.AtMost(o.atMost))
	}
	if o.try {
		return try(ctx, name, hold...)
	}
	if o.timeout == 0 {
		return wait(ctx, name, hold...)
	}
	waiting, cancel := context.WithTimeout(ctx, o.timeout)
	defer cancel()
	guard, err := wait(waiting, name, hold...)
	if err != nil && ctx.Err() == nil && waiting.Err() != nil {
		return nil, exitError{exitNotLocked, fmt.Errorf("not acquired within %v: %s", o.timeout, explained(err))}
	}
	return guard, err
}

func whoHolds(line redlock.Line, err error) string {
	if err != nil {
		return ""
	}
	text := ""
	if line.Holder != "" {
		text = ", held by " + line.Holder
	}
	return text + place(line)
}

func howManyHold(lines []redlock.Line, err error) string {
	if err != nil {
		return ""
	}
	taken := 0
	for _, line := range lines {
		if line.Holder != "" || line.Kept {
			taken++
		}
	}
	return fmt.Sprintf(", %d of %d are taken", taken, len(lines)) + place(lines[0])
}

// place is where we stand in line, if we do.
func place(line redlock.Line) string {
	if line.Position == 0 {
		return ""
	}
	return fmt.Sprintf(", at place %d of %d in line", line.Position, max(line.Position, line.Waiters))
}

// runHolding runs the command and returns what it came to. Whatever happens, it returns only when the command has ended:
// until then the lock is its.
func (c *call) runHolding(ctx context.Context, guard *redlock.Guard, child *exec.Cmd, grace time.Duration) error {
	child.Stdin, child.Stdout, child.Stderr = os.Stdin, os.Stdout, os.Stderr
	child.Env = append(os.Environ(), "REDLOCK_NAME="+guard.Name(), "REDLOCK_FENCE="+strconv.FormatUint(guard.FencingToken(), 10))
	if slot := guard.Slot(); slot > 0 {
		child.Env = append(child.Env, "REDLOCK_SLOT="+strconv.Itoa(slot))
	}
	family := newFamily(child)
	passingOn.Store(true)
	stopPassing := family.passSignals()
	defer stopPassing()
	if err := context.Cause(ctx); err != nil { // a signal that came before there was anybody to pass it to
		return context.Canceled
	}
	runtime.LockOSThread() // the kernel ends the child with the thread that started it
	defer runtime.UnlockOSThread()
	if err := child.Start(); err != nil {
		return cannotRun(err)
	}
	family.started()
	ended := make(chan error, 1)
	go func() { ended <- child.Wait() }()
	select {
	case err := <-ended:
		return childCode(err)
	case <-guard.Done():
	}
	fmt.Fprintf(c.complaints, "redlock run: %s\nredlock run: SIGTERM to the command, SIGKILL in %v\n", explained(guard.Err()), grace)
	family.end(ended, grace)
	if errors.Is(guard.Err(), redlock.ErrHeldTooLong) {
		return exitError{code: exitTooLong}
	}
	return exitError{code: exitLost}
}

// childCode returns the command's own exit code as an error, nil for 0.
func childCode(err error) error {
	var exit *exec.ExitError
	switch {
	case err == nil:
		return nil
	case !errors.As(err, &exit):
		return exitError{exitFailed, err}
	}
	if status, ok := exit.Sys().(syscall.WaitStatus); ok && status.Signaled() {
		return exitError{code: exitSignal + int(status.Signal())}
	}
	return exitError{code: exit.ExitCode()}
}
