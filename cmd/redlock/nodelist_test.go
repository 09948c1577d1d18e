package main

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

func TestNodeList(t *testing.T) {
	for _, row := range []struct{ list, names string }{
		{"a:1,b:2,c:3", "a:1 b:2 c:3"},
		{" a , b\n", "a:6379 b:6379"},
		{"::1", "[::1]:6379"},
		{"[::1]", "[::1]:6379"},
		{"[::1]:7", "[::1]:7"},
		{"/run/redis.sock", "/run/redis.sock"},
		{"unix:///run/redis.sock", "/run/redis.sock"},
		{"redis://user:secret@a:1", "a:1"},
		{"rediss://a", "a:6379"},
		{"redis://s1:26379?addr=s2:26379&master_set=lock", "lock@s1:26379,s2:26379"},
	} {
		nodes, err := parseNodeList(row.list)
		require.NoError(t, err, row.list)
		var names []string
		for _, n := range nodes {
			names = append(names, nodeName(n))
		}
		require.Equal(t, row.names, strings.Join(names, " "), row.list)
	}
	nodes, err := readNodeFile(strings.NewReader("a # b\n\n# c\nd, e\r\n"))
	require.NoError(t, err)
	require.Len(t, nodes, 3)
	_, err = parseNodeList(strings.Repeat("a ", maxNodes+1))
	require.ErrorContains(t, err, "at most 64")
}

// No text is shown that a password may stand in, and nothing panics.
func FuzzNodeFile(f *testing.F) {
	f.Add("a:1 # x\nredis://u:p@b:2")
	f.Add("unix://:p@/s?db=1")
	f.Add("[::1]:1,::1")
	f.Add("redis://s1?addr=s2&master_set=m")
	f.Add("redis://\x00:secret@")
	f.Fuzz(func(t *testing.T, text string) {
		nodes, err := readNodeFile(strings.NewReader(text))
		if err == nil && (len(nodes) == 0 || len(nodes) > maxNodes) {
			t.Fatalf("%d nodes", len(nodes))
		}
		_, err = parseNodeList("redis://user:hunter2secret@" + text)
		if err != nil && strings.Contains(err.Error(), "hunter2secret") {
			t.Fatalf("it shows a password: %v", err)
		}
	})
}
