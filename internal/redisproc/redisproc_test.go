package redisproc_test

import (
	"os"
	"strconv"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"

	"github.com/redlock-go/redlock/internal/redisproc"
	"github.com/redlock-go/redlock/internal/redisproc/redistest"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// do runs a command that must succeed.
func do(t *testing.T, n *redisproc.Node, args ...string) string {
	t.Helper()
	answer, err := n.Do(args...)
	require.NoError(t, err, "%v", args)
	return answer
}

func TestFindNamesTheWayOut(t *testing.T) {
	t.Setenv(redisproc.EnvServer, "")
	t.Setenv("PATH", t.TempDir())
	_, err := redisproc.Find()
	require.ErrorContains(t, err, "apt-get install redis-server")

	t.Setenv(redisproc.EnvServer, "/no/such/server")
	_, err = redisproc.Start(redisproc.Options{})
	require.ErrorContains(t, err, `REDLOCK_REDIS_SERVER="/no/such/server"`)
	require.ErrorIs(t, err, os.ErrNotExist)
}

func TestStartAnswersAndCloseLeavesNothing(t *testing.T) {
	for _, tcp := range []bool{false, true} {
		n := redistest.Start(t, redisproc.Options{TCP: tcp})
		require.Equal(t, map[bool]string{false: "unix", true: "tcp"}[tcp], n.Network())
		require.True(t, n.Running())
		require.Equal(t, "0", do(t, n, "DBSIZE"))
		require.Contains(t, n.LogTail(5), "eady to accept connections")

		pid := n.PID()
		require.NoError(t, n.Close())
		require.NoError(t, n.Close(), "Close may be called twice")
		require.False(t, n.Running())
		require.NoFileExists(t, "/proc/"+itoa(pid)+"/stat")
		require.ErrorIs(t, n.CrashEmpty(), redisproc.ErrClosed)
		if !tcp {
			require.NoFileExists(t, n.Addr())
		}
	}
}

func TestStartSetIsFiveNodes(t *testing.T) {
	start := time.Now()
	nodes := redistest.StartSet(t, 5, redisproc.Options{})
	t.Logf("5 nodes answered after %v", time.Since(start))
	require.Len(t, nodes, 5)
	runs := map[string]bool{}
	for _, n := range nodes {
		runs[do(t, n, "INFO", "server")] = true
	}
	require.Len(t, runs, 5, "five servers, not one five times")
}

func itoa(i int) string { return strconv.Itoa(i) }
