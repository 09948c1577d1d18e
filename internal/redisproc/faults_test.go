package redisproc_test

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/redlock-go/redlock/internal/redisproc"
	"github.com/redlock-go/redlock/internal/redisproc/redistest"
)

// longEnough is far above what anything here takes, for a machine busy with others.
const longEnough = 20 * time.Second

func TestFreezeIsSilenceAndThawExecutes(t *testing.T) {
	n := redistest.Start(t, redisproc.Options{})
	client := redistest.Client(t, n)
	ctx := context.Background()
	require.NoError(t, client.Do(ctx, client.B().Ping().Build()).Error())

	require.NoError(t, n.Freeze())
	require.True(t, n.Running())
	answered := make(chan error, 1)
	go func() { answered <- client.Do(ctx, client.B().Set().Key("late").Value("1").Build()).Error() }()
	select {
	case err := <-answered:
		t.Fatalf("a frozen server answered: %v", err)
	case <-time.After(200 * time.Millisecond):
	}

	require.NoError(t, n.Thaw())
	require.NoError(t, <-answered)
	require.Equal(t, "1", do(t, n, "GET", "late"))
}

func TestKillRefusesAndRestartIsEmpty(t *testing.T) {
	for _, tcp := range []bool{false, true} {
		n := redistest.Start(t, redisproc.Options{TCP: tcp})
		do(t, n, "SET", "k", "v")
		addr, pid := n.Addr(), n.PID()

		require.NoError(t, n.Freeze(), "the signal must reach a frozen server too")
		require.NoError(t, n.Kill())
		require.NoError(t, n.Kill(), "killing the dead does nothing")
		require.False(t, n.Running())
		_, err := n.Dial(context.Background())
		require.ErrorIs(t, err, syscall.ECONNREFUSED)
		require.Error(t, n.Freeze(), "there is nothing to freeze")

		require.NoError(t, n.CrashEmpty())
		require.Equal(t, addr, n.Addr())
		require.NotEqual(t, pid, n.PID())
		require.Equal(t, "0", do(t, n, "DBSIZE"))
	}
}

func TestKillCutsConnections(t *testing.T) {
	n := redistest.Start(t, redisproc.Options{})
	conn, err := n.Dial(context.Background())
	require.NoError(t, err)
	defer conn.Close()
	require.NoError(t, n.Kill())
	require.NoError(t, conn.SetReadDeadline(time.Now().Add(longEnough)))
	_, err = conn.Read(make([]byte, 1))
	require.Error(t, err)
	var timeout net.Error
	require.False(t, errors.As(err, &timeout) && timeout.Timeout(), "cut, not silent")
}

func TestStopIsGracefulAlsoWhenFrozen(t *testing.T) {
	n := redistest.Start(t, redisproc.Options{})
	require.NoError(t, n.Freeze())
	require.NoError(t, n.Stop())
	require.NoError(t, n.Stop(), "stopping the dead does nothing")
	require.False(t, n.Running())
	require.Contains(t, n.LogTail(5), "bye bye", "SIGTERM was heard, nobody had to kill")
}

func TestRestartKeepsEveryAcknowledgedWrite(t *testing.T) {
	n := redistest.Start(t, redisproc.Options{AOF: true})
	do(t, n, "SET", "k", "v")
	do(t, n, "INCR", "fence")
	require.NoError(t, n.Restart())
	require.Equal(t, "v", do(t, n, "GET", "k"))
	require.Equal(t, "2", do(t, n, "INCR", "fence"))

	require.NoError(t, n.CrashEmpty(), "also with an append-only file")
	require.Equal(t, "0", do(t, n, "DBSIZE"))

	_, err := n.SaveDump()
	require.NoError(t, err)
	require.ErrorContains(t, n.RestartFrom(redisproc.Dump{}), "Options.AOF")
	plain := redistest.Start(t, redisproc.Options{})
	require.ErrorContains(t, plain.Restart(), "Options.AOF")
}

func TestRestartFromOldDumpRollsBack(t *testing.T) {
	n := redistest.Start(t, redisproc.Options{})
	do(t, n, "SET", "old", "1")
	do(t, n, "SET", "counter", "7")
	dump, err := n.SaveDump()
	require.NoError(t, err)
	do(t, n, "DEL", "old")
	do(t, n, "SET", "counter", "9")
	do(t, n, "SET", "new", "1")

	require.NoError(t, n.RestartFrom(dump))
	require.Equal(t, "1", do(t, n, "GET", "old"))
	require.Equal(t, "7", do(t, n, "GET", "counter"))
	require.Equal(t, "", do(t, n, "GET", "new"))

	other := redistest.Start(t, redisproc.Options{})
	require.NoError(t, other.RestartFrom(dump), "a dump may come from another node")
	require.Equal(t, "7", do(t, other, "GET", "counter"))
}

func TestArgsWinAndErrorsCarryTheLog(t *testing.T) {
	n := redistest.Start(t, redisproc.Options{
		Args: []string{"--maxmemory", "3mb", "--requirepass", "secret"},
		Env:  []string{"TZ=UTC"},
	})
	_, err := n.Do("PING")
	var reply redisproc.ReplyError
	require.ErrorAs(t, err, &reply)
	require.Contains(t, string(reply), "NOAUTH", "a server that wants a password is ready")

	n = redistest.Start(t, redisproc.Options{AOF: true, Args: []string{"--maxmemory", "3mb", "--appendfsync", "no", "--user", "alice", "on", "nopass", "~a:*", "+get"}})
	require.Equal(t, "maxmemory\n3145728", do(t, n, "CONFIG", "GET", "maxmemory"))
	require.Equal(t, "appendfsync\nno", do(t, n, "CONFIG", "GET", "appendfsync"), "they win over the node's own")
	require.Contains(t, do(t, n, "ACL", "LIST"), "user alice on nopass")

	_, err = redisproc.Start(redisproc.Options{Args: []string{"--no-such-option", "1"}})
	require.ErrorContains(t, err, "no-such-option")
	require.ErrorContains(t, err, "ended at once")

	_, err = redisproc.StartSet(3, redisproc.Options{Args: []string{"--no-such-option", "1"}})
	require.Error(t, err)
}

// A server of 6.2 would end at once on a directive of 7.0.
func TestArgsOfLaterServersAreLeftOut(t *testing.T) {
	for version, want := range map[string]string{
		"Redis server v=6.2.16 sha=0":   "--maxmemory 3mb --maxclients 9\n",
		"Redis server v=7.0.15 sha=0":   "--maxmemory 3mb --enable-debug-command yes --maxclients 9\n",
		"Valkey server v=8.0.1 sha=0":   "--maxmemory 3mb --enable-debug-command yes --maxclients 9\n",
		"a server that does not say it": "--maxmemory 3mb --enable-debug-command yes --maxclients 9\n",
	} {
		told := filepath.Join(t.TempDir(), "told")
		server := filepath.Join(t.TempDir(), "server")
		script := fmt.Sprintf("#!/bin/sh\n[ \"$1\" = --version ] && echo '%s' && exit\necho \"$@\" >'%s'\n", version, told)
		require.NoError(t, os.WriteFile(server, []byte(script), 0o700))
		t.Setenv(redisproc.EnvServer, server)
		_, err := redisproc.Start(redisproc.Options{Args: []string{"--maxmemory", "3mb", "--enable-debug-command", "yes", "--maxclients", "9"}})
		require.ErrorContains(t, err, "ended at once")
		args, err := os.ReadFile(told)
		require.NoError(t, err)
		require.True(t, strings.HasSuffix(string(args), want), "%s: %s", version, args)
	}
}
