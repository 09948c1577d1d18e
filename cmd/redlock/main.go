// Redlock is the command of package redlock: it runs commands under a lock, shows who holds what, and examines nodes.
//
//	redlock help        what there is
//	redlock help run    one command, with examples
//	redlock demo        the library at work on nodes of its own
//
// docs/command.md has all of it.
package main

import (
	"context"
	"fmt"
	"io"
	"os"
	"os/signal"
	"sync/atomic"
	"syscall"
)

// Exit codes. They are part of what scripts rely on: docs/command.md lists them.
const (
	exitOK         = 0
	exitFailed     = 1   // something did not happen as it should; doctor: a fault
	exitUsage      = 2   // a command line that is not understood
	exitWarnings   = 3   // doctor: nothing worse than warnings
	exitLost       = 120 // run: the lock was lost while the command ran
	exitNotLocked  = 121 // somebody else has the lock, or had it until the time was up
	exitNoQuorum   = 122 // too few nodes could vote
	exitTooLong    = 124 // run: the command held the lock for longer than --at-most; as timeout says it
	exitNotStarted = 125 // run: redlock itself failed before the command was started
	exitCannotRun  = 126 // run: the command cannot be executed
	exitNotFound   = 127 // run: the command is not there
	exitSignal     = 128 // and the signal's number: 130 is Ctrl-C
)

// interrupted is why a context of ours ended: a signal.
type interrupted struct{ signal syscall.Signal }

func (i interrupted) Error() string { return "interrupted: " + i.signal.String() }

// passingOn is set while signals are for the command that runs, and end nothing here.
var passingOn atomic.Bool

func main() {
	// Notified and not ignored, which children would inherit: "redlock demo | head" must not kill it before it has
	// cleaned up, and a broken stderr must not end it while a command runs under its lock.
	signal.Notify(make(chan os.Signal, 1), syscall.SIGPIPE)
	ctx, cancel := context.WithCancelCause(context.Background())
	signals := make(chan os.Signal, 1)
	signal.Notify(signals, os.Interrupt, syscall.SIGTERM, syscall.SIGHUP)
	go func() {
		for s := range signals {
			if ctx.Err() != nil && !passingOn.Load() {
				os.Exit(exitSignal + int(s.(syscall.Signal))) // the second one does not wait for the cleaning up
			}
			cancel(interrupted{s.(syscall.Signal)})
		}
	}()
	os.Exit(run(ctx, os.Args[1:], os.Stdout, os.Stderr))
}

// run executes one command line and returns its exit code.
func run(ctx context.Context, args []string, out, complaints io.Writer) int {
	if len(args) == 0 {
		fmt.Fprint(complaints, overview())
		return exitUsage
	}
	switch name := args[0]; name {
	case "help", "-h", "-help", "--help":
		return help(args[1:], out, complaints)
	case "-version", "--version":
		name = "version"
		fallthrough
	default:
		c := commandNamed(name)
		if c == nil {
			fmt.Fprintf(complaints, "redlock: unknown command %q\n\n%s", name, overview())
			return exitUsage
		}
		ctx, cancel := context.WithCancelCause(ctx)
		defer cancel(nil)
		return c.execute(ctx, args[1:], &audience{out, cancel}, complaints)
	}
}

func help(args []string, out, complaints io.Writer) int {
	if len(args) == 0 {
		fmt.Fprint(out, overview())
		return exitOK
	}
	c := commandNamed(args[0])
	if c == nil {
		fmt.Fprintf(complaints, "redlock: unknown command %q\n\n%s", args[0], overview())
		return exitUsage
	}
	fmt.Fprint(out, c.manual())
	return exitOK
}

// audience is where output goes. When nobody reads it any more the command ends.
type audience struct {
	out   io.Writer
	leave context.CancelCauseFunc
}

func (a *audience) Write(p []byte) (int, error) {
	n, err := a.out.Write(p)
	if err != nil {
		a.leave(interrupted{syscall.SIGPIPE})
	}
	return n, err
}
