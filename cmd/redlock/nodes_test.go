package main

import (
	"context"
	"encoding/json"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/redlock-go/redlock"
	"github.com/redlock-go/redlock/internal/redisproc"
	"github.com/redlock-go/redlock/internal/redisproc/redistest"
)

func membersOf(t *testing.T, nodes []*redisproc.Node, args ...string) (m membership) {
	t.Helper()
	r := inProcess(t, nodes, append([]string{"nodes", "--json"}, args...)...)
	require.Equal(t, exitOK, r.code, r)
	require.NoError(t, json.Unmarshal([]byte(r.out), &m), r.out)
	return m
}

func addrsOf(nodes ...*redisproc.Node) (addrs []string) {
	for _, n := range nodes {
		addrs = append(addrs, n.Addr())
	}
	return addrs
}

// The members are shown, one is replaced while a program of the old list holds a lock, the set grows, and its longest lease does.
func TestNodes(t *testing.T) {
	t.Parallel()
	all := redistest.StartSet(t, 6, redisproc.Options{})
	a, b, c, d, e, f := all[0], all[1], all[2], all[3], all[4], all[5]
	old := []*redisproc.Node{a, b, c}
	require.Equal(t, exitOK, inProcess(t, old, "init", "--lease", testLease.String()).code)
	guard := hold(t, old, "x")
	awaitAllVotes(t, old, "x") // or it may stand on the one that goes

	was := membersOf(t, old)
	require.ElementsMatch(t, addrsOf(old...), was.Members)
	require.Equal(t, 2, was.Quorum)
	require.Len(t, was.Nodes, 3)
	for _, n := range was.Nodes {
		require.True(t, n.Up && n.MayVote, n)
	}
	require.Contains(t, inProcess(t, old, "nodes").out, "; quorum is 2\n"+a.Addr()+" ")

	r := execute(t, processOn(t, old, "nodes", "replace", c.Addr(), d.Addr()))
	require.Equal(t, exitUsage, r.code, r)
	require.Contains(t, r.complaints, "there is no terminal to ask on: --yes")
	require.Equal(t, was.Members, membersOf(t, old).Members, "nothing is changed before it is confirmed")

	m := membersOf(t, old, "replace", c.Addr(), d.Addr(), "--yes")
	require.ElementsMatch(t, addrsOf(a, b, d), m.Members)
	require.Greater(t, m.Roster, was.Roster)
	require.False(t, m.Nodes[2].MayVote)
	require.Contains(t, m.Nodes[2].Why, "not a member")
	require.Contains(t, m.Nodes[2].Why, "to replace "+d.Addr()+" by it: redlock nodes replace")
	require.NoError(t, guard.Err(), "it was held all the while")
	require.NoError(t, guard.Release(context.Background()))

	now := []*redisproc.Node{a, b, d}
	five := []*redisproc.Node{a, b, d, e, f}
	m = membersOf(t, now, "set", listOf(five), "--yes")
	require.ElementsMatch(t, addrsOf(five...), m.Members)
	require.Equal(t, 3, m.Quorum)

	m = membersOf(t, five, "set", "-", "--longest-lease", "1h", "--yes")
	require.ElementsMatch(t, addrsOf(five...), m.Members)
	hourly, err := redlock.NewLocker(redlock.LockerOption{Nodes: redistest.Options(five), KeyValidity: time.Hour})
	require.NoError(t, err, "its lease is allowed now")
	hourly.Close()
}

// A node is gone for good: the set goes on without it when its owner says so, and not before.
func TestNodesRecover(t *testing.T) {
	t.Parallel()
	nodes := startNodes(t, 3)
	membersOf(t, nodes)
	require.NoError(t, nodes[2].Kill())
	r := inProcess(t, nodes, "nodes", "set", listOf(nodes[:2]), "--yes")
	require.NotEqual(t, exitOK, r.code, r)
	require.Contains(t, r.complaints, nodes[2].Addr(), "who is not there to be told")
	m := membersOf(t, nodes, "recover", nodes[2].Addr(), "--yes")
	require.ElementsMatch(t, addrsOf(nodes[:2]...), m.Members)
	require.Equal(t, 2, m.Quorum)
}
