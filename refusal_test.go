package redlock_test

import (
	"bufio"
	"context"
	"fmt"
	"os"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/redlock-go/redlock"
	"github.com/redlock-go/redlock/internal/redisproc"
	"github.com/redlock-go/redlock/internal/redisproc/redistest"
)

// refusing is a fault that makes a server answer everybody with errors.
type refusing struct {
	says   string
	option redisproc.Options
	strike func(*testing.T, *redisproc.Node)
	heal   func(*testing.T, *redisproc.Node)
	frees  bool // releases are let through
}

var refusals = []refusing{
	{
		says: "OOM",
		strike: func(t *testing.T, n *redisproc.Node) {
			do(t, n, "CONFIG", "SET", "maxmemory-policy", "noeviction")
			do(t, n, "CONFIG", "SET", "maxmemory", "1")
		},
		heal:  func(t *testing.T, n *redisproc.Node) { do(t, n, "CONFIG", "SET", "maxmemory", "0") },
		frees: true,
	},
	{
		says:   "MISCONF",
		option: redisproc.Options{Args: []string{"--save", "3600 1"}},
		strike: failToSave,
		heal: func(t *testing.T, n *redisproc.Node) {
			do(t, n, "CONFIG", "SET", "stop-writes-on-bgsave-error", "no")
		},
	},
	{
		says:   "NOREPLICAS",
		strike: func(t *testing.T, n *redisproc.Node) { do(t, n, "CONFIG", "SET", "min-replicas-to-write", "1") },
		heal:   func(t *testing.T, n *redisproc.Node) { do(t, n, "CONFIG", "SET", "min-replicas-to-write", "0") },
	},
	{
		says:   "NOPERM",
		strike: func(t *testing.T, n *redisproc.Node) { do(t, n, "ACL", "SETUSER", "default", "-evalsha") },
		heal:   func(t *testing.T, n *redisproc.Node) { do(t, n, "ACL", "SETUSER", "default", "+evalsha") },
	},
	{
		says:   "a replica",
		option: redisproc.Options{TCP: true},
		strike: func(t *testing.T, n *redisproc.Node) { do(t, n, "REPLICAOF", "127.0.0.1", "1") },
		heal:   func(t *testing.T, n *redisproc.Node) { do(t, n, "REPLICAOF", "NO", "ONE") },
	},
	{
		says:   "BUSY",
		option: redisproc.Options{Args: []string{"--lua-time-limit", "5"}},
		strike: func(t *testing.T, n *redisproc.Node) {
			afterward(t, func() { n.Do("EVAL", "while true do end", "0") })
			require.Eventually(t, func() bool { _, err := n.Do("GET", "x"); return err != nil }, soon, tick)
		},
		heal: func(t *testing.T, n *redisproc.Node) {
			require.Eventually(t, func() bool { n.Do("SCRIPT", "KILL"); _, err := n.Do("GET", "x"); return err == nil }, soon, tick)
		},
	},
}

// failToSave has a node's background save fail, so that it refuses writes.
func failToSave(t *testing.T, n *redisproc.Node) {
	do(t, n, "SET", "unsaved", "")
	do(t, n, "CONFIG", "SET", "rdb-key-save-delay", "10000000")
	do(t, n, "BGSAVE")
	children, err := os.ReadFile(fmt.Sprintf("/proc/%d/task/%d/children", n.PID(), n.PID()))
	require.NoError(t, err)
	for child := range strings.FieldsSeq(string(children)) {
		pid, err := strconv.Atoi(child)
		require.NoError(t, err)
		require.NoError(t, syscall.Kill(pid, syscall.SIGKILL))
	}
	require.Eventually(t, func() bool { return strings.Contains(do(t, n, "INFO", "persistence"), "rdb_last_bgsave_status:err") }, soon, tick)
}

// scriptCalls returns how often a server was sent a script, refused or not.
func scriptCalls(t testing.TB, n *redisproc.Node) (count int) {
	s := bufio.NewScanner(strings.NewReader(do(t, n, "INFO", "commandstats")))
	for s.Scan() {
		if !strings.HasPrefix(s.Text(), "cmdstat_eval") {
			continue
		}
		for field := range strings.SplitSeq(s.Text(), ",") {
			name, number, _ := strings.Cut(field, "=")
			if name == "rejected_calls" || strings.HasSuffix(name, ":calls") {
				calls, err := strconv.Atoi(number)
				require.NoError(t, err)
				count += calls
			}
		}
	}
	return count
}

// A node that refuses everybody is not asked by everybody, and what it refused is not owed: no command for each guard,
// none is kept in memory, and all is well as soon as the server is.
func TestNodesThatAnswerErrors(t *testing.T) {
	t.Parallel()
	for _, f := range refusals {
		t.Run(f.says, func(t *testing.T) {
			t.Parallel()
			const guards = 200
			nodes := redistest.StartSet(t, 3, f.option)
			l := newLocker(t, redistest.Options(nodes), validity(time.Hour))
			release(t, acquireOnAll(t, l, nodes, "first"))
			require.Eventually(t, func() bool { return l.OpenGuards() == 0 }, soon, tick)
			for _, n := range nodes[:2] {
				f.strike(t, n)
			}
			for _, n := range nodes[:2] {
				if f.says != "BUSY" {
					do(t, n, "CONFIG", "RESETSTAT")
				}
			}
			said := 0
			for i := range guards {
				_, err := l.TryAcquire(t.Context(), "name"+strconv.Itoa(i))
				require.ErrorIs(t, err, redlock.ErrNoQuorum)
				said += strings.Count(err.Error(), f.says) + strings.Count(err.Error(), "READONLY")
			}
			require.Greater(t, said, guards/2, "the server's word is passed on")
			require.Eventually(t, func() bool { return l.OpenGuards() == 0 }, soon, tick, "nothing ran, nothing is owed")
			if f.says != "BUSY" {
				for _, n := range nodes[:2] {
					count := scriptCalls(t, n)
					t.Logf("%d scripts for %d guards", count, guards)
					require.Less(t, count, guards/2)
				}
			}
			for _, n := range nodes[:2] {
				f.heal(t, n)
			}
			var g *redlock.Guard
			require.Eventually(t, func() (locked bool) {
				var err error
				g, err = l.TryAcquire(context.Background(), "last")
				return err == nil
			}, soon, 10*tick)
			release(t, g)
			requireNoKeys(t, nodes, soon)
			require.Eventually(t, func() bool { return l.OpenGuards() == 0 }, soon, tick)
		})
	}
}

// What is owed to a node that answers errors is asked for again within a second of its recovery, not by the interval.
func TestReleaseThatMetAnErrorIsNotForgotten(t *testing.T) {
	t.Parallel()
	for _, f := range refusals {
		t.Run(f.says, func(t *testing.T) {
			t.Parallel()
			const guards = 50
			nodes := redistest.StartSet(t, 3, f.option)
			l := newLocker(t, redistest.Options(nodes), validity(24*time.Hour))
			var held []*redlock.Guard
			for i := range guards {
				held = append(held, acquireOnAll(t, l, nodes, "name"+strconv.Itoa(i)))
			}
			f.strike(t, nodes[0])
			if f.says != "BUSY" {
				do(t, nodes[0], "CONFIG", "RESETSTAT")
			}
			for _, g := range held {
				release(t, g) // two of three confirm
			}
			requireNoKeys(t, nodes[1:], soon)
			if f.frees {
				requireNoKeys(t, nodes, soon)
			} else {
				time.Sleep(2 * time.Second) // in which it may be asked again and again
				if f.says != "BUSY" {
					count := scriptCalls(t, nodes[0])
					t.Logf("%d scripts for %d guards", count, guards)
					require.Less(t, count, 2*guards)
				}
				require.NotZero(t, l.OpenGuards())
			}
			f.heal(t, nodes[0])
			requireNoKeys(t, nodes, soon)
			require.Eventually(t, func() bool { return l.OpenGuards() == 0 }, soon, tick)
		})
	}
}

// A right that the README's line gives and a server does not is found at the first look, and named.
func TestMissingRightsAreFoundAtTheFirstLook(t *testing.T) {
	t.Parallel()
	nodes := startNodes(t, 1)
	line := strings.Fields(strings.NewReplacer("\\\n", " ", "'", "").Replace(block(t, "```sh\nredis-cli ACL SETUSER")))
	unneeded := map[string]string{
		"client|tracking": "votes all the same, without pushes",
		"ping":            "rueidis' own, when idle",
		"scan":            "Init alone",
		"exists":          "Inspect alone",
		"zrange":          "Inspect alone",
	}
	tried := 0
	for _, word := range line {
		right, is := strings.CutPrefix(word, "+")
		if _, spared := unneeded[right]; !is || spared {
			continue
		}
		tried++
		do(t, nodes[0], "ACL", "SETUSER", "default", "-"+right)
		_, err := redlock.NewLocker(lockerOption(redistest.Options(nodes)))
		do(t, nodes[0], "ACL", "SETUSER", "default", "+"+right)
		require.Error(t, err, right)
		require.Contains(t, err.Error(), nodes[0].Addr())
		command, _, _ := strings.Cut(right, "|")
		require.Contains(t, strings.ToLower(err.Error()), command)
	}
	require.Greater(t, tried, 10)

	for _, row := range []struct{ key, names string }{
		{"~redlock:{*", "redlock:{}"},
		{"~redlock:fence:*", "redlock:fence:"},
		{"~redlock:queue:*", "redlock:queue:"},
		{"~redlock:wake:*", "redlock:wake:"},
		{"~redlock:marker", "NOPERM"}, // the first command that a Locker sends
	} {
		rules := []string{"ACL", "SETUSER", "default", "resetkeys"}
		for _, key := range []string{"~redlock:{*", "~redlock:fence:*", "~redlock:queue:*", "~redlock:wake:*", "~redlock:marker"} {
			if key != row.key {
				rules = append(rules, key)
			}
		}
		do(t, nodes[0], rules...)
		_, err := redlock.NewLocker(lockerOption(redistest.Options(nodes)))
		do(t, nodes[0], "ACL", "SETUSER", "default", "allkeys")
		require.ErrorContains(t, err, row.names)
	}
	l, err := redlock.NewLocker(lockerOption(redistest.Options(nodes)))
	require.NoError(t, err)
	defer l.Close()
	release(t, acquire(t, l, "a"))

	// One that is taken away later takes the node's vote, until it is given back.
	do(t, nodes[0], "SET", "redlock:wake:", "*") // somebody stands in some line, or none is looked at
	do(t, nodes[0], "ACL", "SETUSER", "default", "-zpopmin")
	_, err = l.TryAcquire(t.Context(), "a")
	require.ErrorContains(t, err, "user executing the script can't")
	require.Eventually(t, func() bool {
		_, err := l.TryAcquire(context.Background(), "a")
		return err != nil && strings.Contains(err.Error(), "missing rights: ZPOPMIN redlock:queue:{}")
	}, soon, tick)
	do(t, nodes[0], "ACL", "SETUSER", "default", "+zpopmin")
	require.Eventually(t, func() bool {
		g, err := l.TryAcquire(context.Background(), "a")
		if err == nil {
			g.Release(context.Background())
		}
		return err == nil
	}, soon, tick)
	requireNoKeys(t, nodes, soon)
}
