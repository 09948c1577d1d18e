package main

import (
	"context"
	"flag"
	"fmt"
	"io"
	"slices"
	"strings"
)

var completionCommand = &command{
	name:    "completion",
	args:    "bash|zsh|fish",
	summary: "print a shell's completion script",
	about: `Prints what completes redlock's commands and flags in a shell.

  bash   source <(redlock completion bash)
  zsh    source <(redlock completion zsh)
  fish   redlock completion fish | source`,
	prepare: func(*flag.FlagSet, *connection) action {
		return func(_ context.Context, c *call) error {
			if err := c.wantArgs(1, 1); err != nil {
				return err
			}
			write, ok := map[string]func() string{"bash": bashCompletion, "zsh": zshCompletion, "fish": fishCompletion}[c.args[0]]
			if !ok {
				return wrongUsage("no completion for shell %q: bash, zsh or fish", c.args[0])
			}
			_, err := io.WriteString(c.out, write())
			return err
		}
	},
}

// flagsOf returns a command's flags as they are typed.
func flagsOf(c *command) (flags []string) {
	f := flag.NewFlagSet(c.name, flag.ContinueOnError)
	var nodes *connection
	if c.nodes {
		nodes = defineNodes(f)
	}
	c.prepare(f, nodes)
	f.VisitAll(func(one *flag.Flag) { flags = append(flags, "--"+one.Name) })
	return append(flags, "--help")
}

func commandNames() (names []string) {
	for _, c := range commands {
		names = append(names, c.name)
	}
	return append(names, "help")
}

func bashCompletion() string {
	var b strings.Builder
	b.WriteString(`_redlock() {
	local word=${COMP_WORDS[COMP_CWORD]} i
	for ((i = 1; i < COMP_CWORD; i++)); do
		if [[ ${COMP_WORDS[i]} == -- ]]; then
			COMPREPLY=($(compgen -c -- "$word"))
			return
		fi
	done
	if ((COMP_CWORD == 1)); then
`)
	fmt.Fprintf(&b, "\t\tCOMPREPLY=($(compgen -W %q -- \"$word\"))\n\t\treturn\n\tfi\n", strings.Join(commandNames(), " "))
	b.WriteString("\tcase ${COMP_WORDS[COMP_CWORD-1]} in\n\t--nodes-file | --password-file | --cacert | --cert | --key)\n" +
		"\t\tCOMPREPLY=($(compgen -f -- \"$word\"))\n\t\treturn\n\t\t;;\n\tesac\n\tcase ${COMP_WORDS[1]} in\n")
	for _, c := range commands {
		words := flagsOf(c)
		if c.name == "completion" {
			words = append(words, "bash", "zsh", "fish")
		}
		fmt.Fprintf(&b, "\t%s) COMPREPLY=($(compgen -W %q -- \"$word\")) ;;\n", c.name, strings.Join(words, " "))
	}
	fmt.Fprintf(&b, "\thelp) COMPREPLY=($(compgen -W %q -- \"$word\")) ;;\n\tesac\n}\ncomplete -F _redlock redlock\n", strings.Join(commandNames(), " "))
	return b.String()
}

// zshCompletion is bash's: zsh knows its builtins.
func zshCompletion() string {
	return "autoload -U +X compinit && compinit\nautoload -U +X bashcompinit && bashcompinit\n" + bashCompletion()
}

func fishCompletion() string {
	var b strings.Builder
	names := commandNames()
	b.WriteString("complete -c redlock -f\n")
	for _, c := range commands {
		fmt.Fprintf(&b, "complete -c redlock -n __fish_use_subcommand -a %s -d '%s'\n", c.name, strings.ReplaceAll(c.summary, "'", `\'`))
	}
	b.WriteString("complete -c redlock -n __fish_use_subcommand -a help\n")
	for _, c := range commands {
		for _, name := range flagsOf(c) {
			option := ""
			if slices.Contains([]string{"--nodes-file", "--password-file", "--cacert", "--cert", "--key"}, name) {
				option = " -r -F"
			}
			fmt.Fprintf(&b, "complete -c redlock -n '__fish_seen_subcommand_from %s' -l %s%s\n", c.name, strings.TrimPrefix(name, "--"), option)
		}
	}
	fmt.Fprintf(&b, "complete -c redlock -n '__fish_seen_subcommand_from help' -a '%s'\n", strings.Join(names, " "))
	b.WriteString("complete -c redlock -n '__fish_seen_subcommand_from completion' -a 'bash zsh fish'\n")
	return b.String()
}
