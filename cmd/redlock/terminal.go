package main

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"strings"
)

// isTerminal reports whether somebody looks at it, or types into it.
func isTerminal(stream any) bool {
	if a, ok := stream.(*audience); ok {
		stream = a.out
	}
	f, ok := stream.(*os.File)
	if !ok {
		return false
	}
	info, err := f.Stat()
	if err != nil || info.Mode()&os.ModeCharDevice == 0 {
		return false
	}
	null, err := os.Stat(os.DevNull)
	return err != nil || !os.SameFile(info, null)
}

// askPassword asks on the terminal, which does not show what is typed.
func askPassword() (string, error) {
	if !isTerminal(os.Stdin) {
		return "", errors.New("--askpass needs a terminal; use --password-file or $REDISCLI_AUTH")
	}
	fmt.Fprint(os.Stderr, "Password: ")
	echo := func(mode string) {
		stty := exec.Command("stty", mode)
		stty.Stdin = os.Stdin
		stty.Run() // where there is no stty the password is shown to who types it, as they see
	}
	echo("-echo")
	line, err := readLine(os.Stdin)
	echo("echo")
	fmt.Fprintln(os.Stderr)
	return line, err
}

// confirm asks a question, and returns an error unless the answer is yes.
func confirm(c *call, question string) error {
	if !isTerminal(os.Stdin) {
		return wrongUsage("it asks before it acts, and there is no terminal to ask on: --yes")
	}
	fmt.Fprintf(c.complaints, "%s [y/N] ", question)
	line, err := readLine(os.Stdin)
	if err != nil && !errors.Is(err, io.EOF) {
		return err
	}
	switch strings.ToLower(strings.TrimSpace(line)) {
	case "y", "yes":
		return nil
	}
	return exitError{exitFailed, errors.New("nothing was done")}
}

func readLine(r io.Reader) (string, error) {
	line, err := bufio.NewReader(r).ReadString('\n')
	return strings.TrimRight(line, "\r\n"), err
}
