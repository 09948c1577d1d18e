package main

import (
	"flag"
	"fmt"
	"regexp"
	"time"
)

// What package flag says of a command line it does not take.
var (
	saysBadValue   = regexp.MustCompile(`^invalid (?:boolean )?value ("(?:[^"\\]|\\.)*") for (?:flag )?-([^:]+): `)
	saysNoArgument = regexp.MustCompile(`^flag needs an argument: -(.+)$`)
	saysNoFlag     = regexp.MustCompile(`^flag provided but not defined: -(.+)$`)
)

// readable is that with flags as people write them, and the rule that a value breaks.
func readable(flags *flag.FlagSet, err error) error {
	text := err.Error()
	if m := saysBadValue.FindStringSubmatch(text); m != nil {
		return fmt.Errorf("--%s %s: it must be %s", m[2], m[1], ruleOf(flags.Lookup(m[2])))
	}
	if m := saysNoArgument.FindStringSubmatch(text); m != nil {
		return fmt.Errorf("--%s needs a value", m[1])
	}
	if m := saysNoFlag.FindStringSubmatch(text); m != nil {
		return fmt.Errorf("there is no flag --%s", m[1])
	}
	return err
}

// ruleOf says what a flag's value must be.
func ruleOf(f *flag.Flag) string {
	switch value := f.Value.(flag.Getter).Get().(type) {
	case time.Duration:
		return "a duration, as 10s or 1m30s"
	case bool:
		return "true or false, or left out"
	case int:
		return "a whole number"
	default:
		return fmt.Sprintf("a %T", value)
	}
}

// fields are what the library calls that which is set by flags here.
var fields = []struct {
	pattern *regexp.Regexp
	flag    string
}{
	{regexp.MustCompile(`\bKeyPrefix\b`), "--prefix"},
	{regexp.MustCompile(`\bAtLeast\(([^)]*)\)`), "--at-least $1"},
	{regexp.MustCompile(`\bAtMost\(([^)]*)\)`), "--at-most $1"},
	{regexp.MustCompile(`\bthe Label\b`), "the --label"},
	{regexp.MustCompile(`\ba lease of (\S+) is longer\b`), "--lease $1 is longer"},
	{regexp.MustCompile(`\bSetNodes with LongestLease raises it\b`), "redlock nodes set - --longest-lease raises it"},
	{regexp.MustCompile(`\bby it: SetNodes\b`), "by it: redlock nodes replace"},
	{regexp.MustCompile(`\bto add it: SetNodes\b`), "to add it: redlock nodes set"},
	{regexp.MustCompile(`^SetNodes: `), ""},
	{regexp.MustCompile(`\bRestartQuarantine is on here, the node's marker says off\b`), "$0: --no-quarantine"},
	{regexp.MustCompile(`\bRestartQuarantine is off here, the node's marker says on\b`), "$0: leave out --no-quarantine"},
}

// inFlags is what the library says, with flags for its fields.
func inFlags(text string) string {
	for _, f := range fields {
		text = f.pattern.ReplaceAllString(text, f.flag)
	}
	return text
}

// Bounds of the lease, as the library has them: said before anything is asked, or done.
const (
	leastLease = 20 * time.Millisecond
	mostLease  = 90 * 24 * time.Hour
)

// check refuses durations that nothing can be done with.
func (c *connection) check() error {
	switch {
	case c.timeout < time.Millisecond || c.timeout > time.Hour:
		return fmt.Errorf("--node-timeout %v must be from 1ms to 1h", c.timeout)
	case c.locks && (c.lease < leastLease || c.lease > mostLease):
		return fmt.Errorf("--lease %v must be from %v to %v", c.lease, leastLease, mostLease)
	case c.given["node-timeout"] && c.lease != 0 && c.timeout >= c.lease/2:
		return fmt.Errorf("--node-timeout %v must be less than half the lease, which is %v (--lease): a lock is renewed in time while nodes are silent", c.timeout, c.lease)
	}
	return nil
}
