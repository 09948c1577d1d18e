package main

import (
	"context"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"os/exec"
	"slices"
	"strings"

	"github.com/redlock-go/redlock"
)

// command is one of redlock's commands.
type command struct {
	name    string
	args    string // what follows the name in its usage line
	summary string // its line in the overview
	about   string // what its help says, flags and examples included
	nodes   bool   // it takes the flags that name nodes
	prepare func(*flag.FlagSet, *connection) action
}

// action does a command's work, with the flags that its prepare has defined.
type action func(ctx context.Context, c *call) error

// call is one command line that is being executed.
type call struct {
	command    *command
	nodes      *connection // of a command that takes the flags for it
	args       []string    // what is no flag
	given      given       // flags
	child      []string    // behind "--"
	out        io.Writer
	complaints io.Writer
	waiting    *progress
}

var commands []*command

func init() { // not where it is declared: completion lists the commands, and is one
	commands = []*command{
		runCommand, statusCommand, doctorCommand, nodesCommand, initCommand, releaseCommand, benchCommand,
		demoCommand, completionCommand, versionCommand,
	}
}

func commandNamed(name string) *command {
	if i := slices.IndexFunc(commands, func(c *command) bool { return c.name == name }); i >= 0 {
		return commands[i]
	}
	return nil
}

func overview() string {
	var b strings.Builder
	b.WriteString("usage: redlock <command> [flags]\n\n")
	for _, c := range commands {
		fmt.Fprintf(&b, "  %-11s %s\n", c.name, c.summary)
	}
	fmt.Fprintf(&b, "  %-11s %s\n", "help", "this text, or with a command's name all about that")
	b.WriteString(`
Nodes are named by --nodes, --nodes-file or $REDLOCK_NODES; see "redlock help status".

  redlock run cron:purge --nodes a:6379,b:6379,c:6379 -- ./purge.sh
  redlock status
  redlock doctor
`)
	return b.String()
}

// manual is a command's help.
func (c *command) manual() string {
	usage := strings.TrimSpace("usage: redlock " + c.name + " " + c.args)
	text := usage + "\n\n" + strings.Trim(c.about, "\n") + "\n"
	if c.nodes {
		text += "\n" + aboutNodes
	}
	return text
}

// usageError is a command line that is not understood.
type usageError struct{ error }

func wrongUsage(format string, args ...any) error { return usageError{fmt.Errorf(format, args...)} }

// exitError is an error with an exit code of its own.
type exitError struct {
	code int
	error
}

func (e exitError) Unwrap() error { return e.error }

// execute parses a command's flags, does its work, says what went wrong, and returns the exit code.
func (c *command) execute(ctx context.Context, args []string, out, complaints io.Writer) int {
	call := &call{command: c, out: out, complaints: complaints, waiting: newProgress(complaints)}
	flags := flag.NewFlagSet(c.name, flag.ContinueOnError)
	flags.SetOutput(io.Discard)
	if c.nodes {
		call.nodes = defineNodes(flags)
	}
	do := c.prepare(flags, call.nodes)
	err := call.parse(flags, args)
	if errors.Is(err, flag.ErrHelp) {
		fmt.Fprint(out, c.manual())
		return exitOK
	}
	if err != nil {
		return call.fail(ctx, usageError{err})
	}
	return call.fail(ctx, do(ctx, call))
}

// parse takes flags wherever they stand before "--": "run NAME --try -- cmd" is what people type.
func (c *call) parse(flags *flag.FlagSet, args []string) error {
	ours := args
	if i := slices.Index(args, "--"); i >= 0 {
		ours, c.child = args[:i], args[i+1:]
		if c.command.name != "run" {
			ours, c.child = append(slices.Clone(ours), c.child...), nil
		}
	}
	for {
		if err := flags.Parse(ours); errors.Is(err, flag.ErrHelp) {
			return err
		} else if err != nil {
			return readable(flags, err)
		}
		if flags.NArg() == 0 {
			break
		}
		c.args = append(c.args, flags.Arg(0))
		ours = flags.Args()[1:]
	}
	c.given = make(given)
	flags.Visit(func(f *flag.Flag) { c.given[f.Name] = true })
	if c.nodes != nil {
		c.nodes.given = c.given
	}
	return nil
}

// given is the flags that stand in a command line, by name.
type given map[string]bool

// showJSON writes what a command has found out as JSON for people.
func (c *call) showJSON(found any) error {
	encoder := json.NewEncoder(c.out)
	encoder.SetIndent("", "  ")
	return encoder.Encode(found)
}

// wantArgs refuses another number of arguments.
func (c *call) wantArgs(least, most int) error {
	switch {
	case len(c.args) > most:
		return wrongUsage("unexpected argument %q", c.args[most])
	case len(c.args) < least:
		return wrongUsage("it needs %s", c.command.args)
	}
	return nil
}

// fail says what went wrong and returns the exit code.
func (c *call) fail(ctx context.Context, err error) int {
	c.waiting.clear()
	var stopped interrupted
	var code exitError
	var usage usageError
	switch {
	case err == nil:
		return exitOK
	case errors.As(err, &code):
		if code.error != nil {
			fmt.Fprintf(c.complaints, "redlock %s: %v\n", c.command.name, code.error)
		}
		return code.code
	case errors.As(context.Cause(ctx), &stopped) && errors.Is(err, context.Canceled):
		fmt.Fprintf(c.complaints, "redlock %s: interrupted\n", c.command.name)
		return exitSignal + int(stopped.signal)
	case errors.As(err, &usage), errors.Is(err, redlock.ErrInvalidOption):
		text := inFlags(strings.TrimPrefix(err.Error(), "redlock: "))
		fmt.Fprintf(c.complaints, "redlock %s: %s\nusage: redlock %s %s\n\"redlock help %[1]s\" says more.\n", c.command.name, text, c.command.name, c.command.args)
		return exitUsage
	}
	fmt.Fprintf(c.complaints, "redlock %s: %s\n", c.command.name, explained(err))
	switch {
	case errors.Is(err, redlock.ErrNotLocked):
		return exitNotLocked
	case errors.Is(err, redlock.ErrNoQuorum):
		return exitNoQuorum
	case errors.Is(err, exec.ErrNotFound), errors.Is(err, os.ErrNotExist) && c.command.name == "run":
		return exitNotFound
	}
	return exitFailed
}

// explained is an error of the library as a text, with a line for each node that it names.
func explained(err error) string {
	var qe *redlock.QuorumError
	text := strings.TrimPrefix(err.Error(), "redlock: ")
	if !errors.As(err, &qe) || len(qe.Errs) == 0 {
		return inFlags(text)
	}
	var list []string
	for _, e := range qe.Errs {
		list = append(list, e.Error())
	}
	text = strings.Replace(text, " ("+strings.Join(list, "; ")+")", "", 1)
	return inFlags(text + "\n  " + strings.Join(list, "\n  "))
}
