package main

import (
	"flag"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/redlock-go/redlock/internal/redisproc/redistest"
)

func TestUsage(t *testing.T) {
	t.Setenv("REDLOCK_NODES", "")
	for _, row := range []struct {
		args  string
		code  int
		onOut bool
		says  string
	}{
		{"", exitUsage, false, "usage: redlock"},
		{"help", exitOK, true, "usage: redlock"},
		{"-h", exitOK, true, "usage: redlock"},
		{"--help", exitOK, true, "usage: redlock"},
		{"help run", exitOK, true, "usage: redlock run NAME"},
		{"run --help", exitOK, true, "usage: redlock run NAME"},
		{"run x -h", exitOK, true, "usage: redlock run NAME"},
		{"demo -h", exitOK, true, "usage: redlock demo"},
		{"--version", exitOK, true, "redlock "},
		{"help dmeo", exitUsage, false, `unknown command "dmeo"`},
		{"dmeo", exitUsage, false, `unknown command "dmeo"`},
		{"demo -fast", exitUsage, false, "there is no flag --fast"},
		{"demo now", exitUsage, false, `unexpected argument "now"`},
		{"status", exitUsage, false, "no nodes: name them by --nodes"},
		{"status a b", exitUsage, false, `unexpected argument "b"`},
		{"status --every 1ms", exitUsage, false, "--every 1ms is less than 100ms"},
		{"status --nodes a,a", exitUsage, false, "node a:6379 is listed twice"},
		{"status --nodes a --nodes-file b", exitUsage, false, "--nodes and --nodes-file contradict each other"},
		{"status --nodes-file /there/is/none", exitUsage, false, "--nodes-file: open /there/is/none"},
		{"status --nodes redis://:geheim@a", exitUsage, false, "--nodes holds a password"},
		{"status --nodes user:geheim@a:1", exitUsage, false, "only a URL can name a user"},
		{"status --nodes http://geheim@a:1", exitUsage, false, "a URL begins with redis://"},
		{"status --nodes a --askpass", exitUsage, false, "--askpass needs a terminal"},
		{"status --nodes a --askpass --password-file b", exitUsage, false, "--askpass and --password-file contradict"},
		{"status --nodes a --password-file /there/is/none", exitUsage, false, "--password-file: open /there/is/none"},
		{"status --nodes a --cacert x", exitUsage, false, "need --tls"},
		{"status --nodes a --tls --cert x", exitUsage, false, "--cert and --key need each other"},
		{"status --nodes a --tls --cacert /there/is/none", exitUsage, false, "--cacert: open /there/is/none"},
		{"status --nodes a --tls --cert /there/is/none --key x", exitUsage, false, "--cert, --key: open /there/is/none"},
		{"status --nodes a --node-timeout x", exitUsage, false, `--node-timeout "x": it must be a duration, as 10s or 1m30s`},
		{"status --nodes", exitUsage, false, "--nodes needs a value"},
		{"run", exitUsage, false, "it needs NAME"},
		{"run x", exitUsage, false, "no command to run: it stands behind --"},
		{"run x --", exitUsage, false, "no command to run"},
		{"run -- true", exitUsage, false, "it needs NAME"},
		{"run x y -- true", exitUsage, false, `unexpected argument "y"`},
		{"run x --try --timeout 1s -- true", exitUsage, false, "--try and --timeout 1s contradict each other"},
		{"run x --timeout -1s -- true", exitUsage, false, "--timeout -1s is negative"},
		{"run x --timeout 0s -- true", exitUsage, false, "use --try, or leave it out"},
		{"run x --at-least -1s -- true", exitUsage, false, "--at-least -1s must be positive"},
		{"run x --at-least 0s -- true", exitUsage, false, "--at-least 0s must be positive"},
		{"run x --at-most -1s -- true", exitUsage, false, "--at-most -1s must be positive"},
		{"run x --at-most 0s -- true", exitUsage, false, "--at-most 0s must be positive"},
		{"run x --slots 0 -- true", exitUsage, false, "--slots 0 must be from 1 to 256"},
		{"run x --slots 257 -- true", exitUsage, false, "--slots 257 must be from 1 to 256"},
		{"release x --slot 0", exitUsage, false, "--slot 0 must be from 1 to 256"},
		{"release x --slot 1 --grace 1s", exitUsage, false, "--grace is for locks"},
		{"run x --nodes a --node-timeout 5s -- true", exitUsage, false, "--node-timeout 5s must be less than half the lease, which is 10s (--lease)"},
		{"run x --nodes a --node-timeout 1s --lease 2s -- true", exitUsage, false, "--node-timeout 1s must be less than half the lease, which is 2s"},
		{"run x --grace -1s -- true", exitUsage, false, "--grace -1s is negative"},
		{"run x --nodes a --lease 1ms -- true", exitUsage, false, "--lease 1ms must be from 20ms to 2160h0m0s"},
		{"release x --nodes a --grace -1s", exitUsage, false, "--grace -1s must be from 1ms to 2160h0m0s"},
		{"release x --nodes a --lease -1s", exitUsage, false, "--lease -1s must be from 20ms"},
		{"run x --nodes a --prefix {} -- true", exitUsage, false, `--prefix "{}" holds a brace`},
		{"run x --nodes /there/is/none --at-least 1ns -- true", exitUsage, false, "--at-least 1ns: it must be at least 1ms"},
		{"run x --nodes /there/is/none --at-most 1ns -- true", exitUsage, false, "--at-most 1ns: it must be at least 1ms"},
		{"run x --nodes /there/is/none --label " + strings.Repeat("x", 129) + " -- true", exitUsage, false, "the --label has 129 bytes"},
		{"bench --nodes a:b:c://", exitUsage, false, "--nodes: node 1: "},
		{"doctor --for 1ms", exitUsage, false, "--for 1ms must be from 100ms to 1h"},
		{"doctor --bound 0s", exitUsage, false, "--bound 0s must be positive"},
		{"doctor x", exitUsage, false, `unexpected argument "x"`},
		{"nodes --longest-lease 1s", exitUsage, false, "--longest-lease is for set"},
		{"nodes set --longest-lease 1ms", exitUsage, false, "--longest-lease 1ms must be from 20ms"},
		{"nodes recover --off a", exitUsage, false, "--off is for set and replace"},
		{"nodes replace a", exitUsage, false, "replace needs OLD and NEW"},
		{"nodes replace a b --nodes c", exitUsage, false, "a is not among the nodes that are listed"},
		{"nodes replace c:6379 d,e --nodes c", exitUsage, false, `"d,e" is not one node`},
		{"nodes set --nodes a", exitUsage, false, "set needs LIST, or - for"},
		{"nodes set , --nodes a", exitUsage, false, `"," lists no node`},
		{"nodes set redis://:geheim@b --nodes a", exitUsage, false, "may hold no password"},
		{"nodes recover --nodes a", exitUsage, false, "recover needs the names"},
		{"nodes x", exitUsage, false, `unexpected argument "x": replace, set or recover`},
		{"nodes --nodes /there/is/none", exitFailed, false, "none of these nodes says that it is of a set"},
		{"init x", exitUsage, false, `unexpected argument "x"`},
		{"release", exitUsage, false, "it needs NAME"},
		{"bench --callers 0", exitUsage, false, "--callers 0 must be from 1 to 10000"},
		{"bench --for 1ms", exitUsage, false, "--for 1ms must be from 100ms to 1h"},
		{"completion", exitUsage, false, "it needs bash|zsh|fish"},
		{"completion tcsh", exitUsage, false, `no completion for shell "tcsh"`},
		{"version 2", exitUsage, false, `unexpected argument "2"`},
	} {
		r := inProcess(t, nil, strings.Fields(row.args)...)
		require.Equal(t, row.code, r.code, "redlock %s: %s", row.args, r.complaints)
		said, silent := r.complaints, r.out
		if row.onOut {
			said, silent = silent, said
		}
		require.Contains(t, said, row.says, row.args)
		require.Empty(t, silent, row.args)
		require.NotContains(t, said, "geheim")
		if row.code == exitUsage {
			require.Contains(t, said, "usage: redlock", row.args)
		}
	}
}

// Whatever flag has a bad value, it is named as it is written, with the value and the rule. Nothing is asked before that.
func TestBadValueNamesItsFlag(t *testing.T) {
	seen := make(map[string]bool)
	for _, c := range commands {
		flags := flag.NewFlagSet(c.name, flag.ContinueOnError)
		var nodes *connection
		if c.nodes {
			nodes = defineNodes(flags)
		}
		c.prepare(flags, nodes)
		refuses := func(flag string, values ...string) {
			line := []string{c.name, flag}
			if c.nodes {
				line = append(line, "--nodes", "/there/is/none")
			}
			if c.name == "run" || c.name == "release" {
				line = append(line, "x")
			}
			if c.name == "run" {
				line = append(line, "--", "true")
			}
			r := inProcess(t, nil, line...)
			require.Equal(t, exitUsage, r.code, "%v: %+v", line, r)
			first, _, _ := strings.Cut(r.complaints, "\n")
			name, _, _ := strings.Cut(flag, "=")
			require.True(t, strings.HasPrefix(first, "redlock "+c.name+": "+name+" "), "%v: %s", line, first)
			for _, value := range values {
				require.Contains(t, first, value, "%v", line)
			}
		}
		flags.VisitAll(func(f *flag.Flag) {
			kind := fmt.Sprintf("%T", f.Value.(flag.Getter).Get())
			seen[kind] = true
			switch kind {
			case "time.Duration":
				refuses("--"+f.Name+"=1", `"1": it must be a duration, as 10s or 1m30s`)
				refuses("--"+f.Name+"=-1s", "-1s")
			case "bool":
				refuses("--"+f.Name+"=ja", `"ja": it must be true or false`)
			case "int":
				refuses("--"+f.Name+"=1.5", `"1.5": it must be a whole number`)
				refuses("--"+f.Name+"=-1", "-1")
			}
		})
	}
	require.Len(t, seen, 4, "durations, truth values, numbers, texts")
}

// A command's help has each of its flags, and no other.
func TestManualsListEachFlag(t *testing.T) {
	listed := regexp.MustCompile(`(?m)(?:^  |; |, )(--[a-z-]+)`)
	for _, c := range commands {
		flags := flag.NewFlagSet(c.name, flag.ContinueOnError)
		var nodes *connection
		if c.nodes {
			nodes = defineNodes(flags)
		}
		c.prepare(flags, nodes)
		var want, got []string
		flags.VisitAll(func(f *flag.Flag) { want = append(want, "--"+f.Name) })
		for _, m := range listed.FindAllStringSubmatch(c.manual(), -1) {
			got = append(got, m[1])
		}
		require.ElementsMatch(t, want, got, c.name)
		for line := range strings.Lines(c.manual()) {
			require.LessOrEqual(t, len(line), 120, line)
		}
	}
}

// docs/command.md has every command, every flag and every exit code.
func TestCommandIsDocumented(t *testing.T) {
	text, err := os.ReadFile("../../docs/command.md")
	require.NoError(t, err)
	for _, c := range commands {
		require.Contains(t, string(text), "redlock "+c.name, c.name)
		for _, f := range flagsOf(c) {
			if f != "--help" {
				require.Contains(t, string(text), "`"+f, "%s %s", c.name, f)
			}
		}
	}
	for _, code := range []string{"0", "1", "2", "3", "120", "121", "122", "124", "125", "126", "127", "128 + n"} {
		require.Contains(t, string(text), "| "+code+" |")
	}
}

func TestVersion(t *testing.T) {
	r := inProcess(t, nil, "version")
	require.Equal(t, exitOK, r.code)
	require.Regexp(t, `^redlock \S+.*, go\d\S* \w+/\w+(, rueidis v\S+)?\n$`, r.out)
}

func TestBashCompletes(t *testing.T) {
	script := inProcess(t, nil, "completion", "bash")
	require.Equal(t, exitOK, script.code)
	for _, row := range []struct{ typed, want string }{
		{"redlock st", "status"},
		{"redlock run x --tr", "--try"},
		{"redlock doctor --jso", "--json"},
		{"redlock completion fi", "fish"},
		{"redlock help bench", "bench"},
		{"redlock run x -- tru", "true"},
	} {
		words := strings.Fields(row.typed)
		cmd := exec.Command("bash", "-c", script.out+`
COMP_WORDS=("$@"); COMP_CWORD=$(($# - 1)); _redlock; printf '%s\n' "${COMPREPLY[@]}"`, "bash")
		cmd.Args = append(cmd.Args, words...)
		out, err := cmd.CombinedOutput()
		require.NoError(t, err, "%s", out)
		require.Contains(t, strings.Fields(string(out)), row.want, row.typed)
	}
	require.Contains(t, inProcess(t, nil, "completion", "zsh").out, "bashcompinit")
	fish := inProcess(t, nil, "completion", "fish").out
	require.Contains(t, fish, "-a status -d 'show who holds")
	require.Contains(t, fish, "'__fish_seen_subcommand_from run' -l try")
}

func TestNodesOfAFileWithUserAndPassword(t *testing.T) {
	t.Parallel()
	nodes := startNodes(t, 3)
	for _, n := range nodes {
		_, err := n.Do("CONFIG", "SET", "requirepass", "geheim")
		require.NoError(t, err)
	}
	dir := t.TempDir()
	file := func(name, text string) string {
		path := filepath.Join(dir, name)
		require.NoError(t, os.WriteFile(path, []byte(text), 0o600))
		return path
	}
	list := "# three servers\n"
	withPasswords := ""
	for _, n := range nodes {
		list += n.Addr() + "   # one of them\n"
		withPasswords += "unix://:geheim@" + n.Addr() + "\n"
	}
	plain, full := file("nodes", list), file("full", withPasswords)
	good, bad := file("good", "geheim\n"), file("bad", "falsch\n")
	for _, row := range []struct {
		args []string
		code int
		says string
	}{
		{[]string{"--nodes-file", full}, exitOK, "no locks on 3 of 3 nodes"},
		{[]string{"--nodes-file", plain, "--password-file", good}, exitOK, "no locks on 3 of 3 nodes"},
		{[]string{"--nodes-file", plain, "--password-file", good, "--user", "default"}, exitOK, "no locks on 3 of 3 nodes"},
		{[]string{"--nodes-file", plain}, exitNoQuorum, "NOAUTH"},
		{[]string{"--nodes-file", plain, "--password-file", bad}, exitNoQuorum, "WRONGPASS"},
		{[]string{"--nodes-file", plain, "--password-file", good, "--user", "nobody"}, exitNoQuorum, "WRONGPASS"},
		{[]string{"--nodes-file", file("empty", "# none\n")}, exitUsage, "it lists no node"},
		{[]string{"--nodes-file", plain, "--password-file", file("blank", "\n")}, exitUsage, "its first line is empty"},
	} {
		r := inProcess(t, nil, append([]string{"status"}, row.args...)...)
		require.Equal(t, row.code, r.code, r)
		require.Contains(t, r.out+r.complaints, row.says)
		require.NotContains(t, r.out+r.complaints, "geheim")
		require.NotContains(t, r.out+r.complaints, "falsch")
	}

	cmd := processOn(t, nodes, "run", "--lease", testLease.String(), "x", "--", "true")
	cmd.Env = append(cmd.Env, "REDISCLI_AUTH=geheim")
	r := execute(t, cmd)
	require.Equal(t, exitOK, r.code, r)
	r = execute(t, processOn(t, nodes, "run", "x", "--", "true"))
	require.Equal(t, exitNoQuorum, r.code, r)
	require.Contains(t, r.complaints, "NOAUTH")
}

func TestTLS(t *testing.T) {
	t.Parallel()
	_, addresses, certificate := redistest.StartTLS(t, 3)
	list := strings.Join(addresses, ",")
	r := inProcess(t, nil, "init", "--nodes", list, "--tls", "--cacert", certificate)
	require.Equal(t, exitOK, r.code, r)
	r = inProcess(t, nil, "status", "--nodes", list, "--tls", "--insecure")
	require.Equal(t, exitOK, r.code, r)
	// All roots that the system trusts are read for this, which takes a busy machine seconds.
	r = inProcess(t, nil, "status", "--nodes", list, "--tls", "--node-timeout", "20s")
	require.Equal(t, exitNoQuorum, r.code, r)
	require.Contains(t, r.out, "certificate")
	r = inProcess(t, nil, "doctor", "--nodes", list, "--tls", "--cacert", certificate, "--sni", "elsewhere", "--for", "100ms")
	require.Equal(t, exitFailed, r.code, r)
	require.Contains(t, r.out, "look at --cacert and --sni")
	r = inProcess(t, nil, "doctor", "--nodes", list, "--for", "100ms")
	require.Equal(t, exitFailed, r.code, r)
	require.Contains(t, r.out, "does it want TLS")
}
