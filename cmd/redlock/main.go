// Redlock shows what package redlock does, on Redis nodes that it starts itself.
//
//	redlock demo             five redis-server processes, or embedded nodes where there is no redis-server
//	redlock demo -embedded   embedded nodes
//	redlock help             this
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"os/signal"
	"syscall"
)

const usage = `usage: redlock <command>

  demo [-embedded]   a distributed lock over five Redis nodes, told in ten seconds:
                     two workers contend, nodes die, the lock is taken over and lost.
                     It starts redis-server processes of its own and ends them.
                     -embedded (or no redis-server): simulated nodes in this process.
  help               this text
`

// Exit codes.
const (
	exitOK          = 0
	exitFailed      = 1   // something did not happen as it should
	exitUsage       = 2   // help, or a command line that is not understood
	exitInterrupted = 130 // Ctrl-C, as a shell reports it
)

func main() {
	signal.Ignore(syscall.SIGPIPE) // "redlock demo | head" must not kill it before it has cleaned up
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM, syscall.SIGHUP)
	context.AfterFunc(ctx, func() {
		signal.Reset(os.Interrupt) // a second Ctrl-C does not wait for the cleaning up
	})
	code := run(ctx, os.Args[1:], os.Stdout, os.Stderr)
	stop()
	os.Exit(code)
}

// run executes one command line and returns its exit code.
func run(ctx context.Context, args []string, out, complaints io.Writer) int {
	if len(args) == 0 {
		fmt.Fprint(complaints, usage)
		return exitUsage
	}
	switch args[0] {
	case "demo":
		return runDemo(ctx, args[1:], out, complaints)
	case "help", "-h", "-help", "--help":
		fmt.Fprint(out, usage)
		return exitUsage
	default:
		fmt.Fprintf(complaints, "redlock: unknown command %q\n\n%s", args[0], usage)
		return exitUsage
	}
}

func runDemo(ctx context.Context, args []string, out, complaints io.Writer) int {
	flags := flag.NewFlagSet("demo", flag.ContinueOnError)
	flags.SetOutput(io.Discard)
	embedded := flags.Bool("embedded", false, "")
	err := flags.Parse(args)
	if err == nil && flags.NArg() > 0 {
		err = fmt.Errorf("unexpected argument %q", flags.Arg(0))
	}
	if err != nil {
		if !errors.Is(err, flag.ErrHelp) {
			fmt.Fprintf(complaints, "redlock demo: %v\n\n", err)
		}
		fmt.Fprint(complaints, usage)
		return exitUsage
	}

	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	err = demo(ctx, &audience{out, cancel}, *embedded)
	switch {
	case err == nil:
		return exitOK
	case errors.Is(err, context.Canceled) && ctx.Err() != nil:
		fmt.Fprintln(complaints, "redlock demo: interrupted")
		return exitInterrupted
	default:
		fmt.Fprintf(complaints, "redlock demo: %v\n", err)
		return exitFailed
	}
}

// audience is where the demo's output goes. When nobody reads it any more the demo ends.
type audience struct {
	out   io.Writer
	leave func()
}

func (a *audience) Write(p []byte) (int, error) {
	n, err := a.out.Write(p)
	if err != nil {
		a.leave()
	}
	return n, err
}
