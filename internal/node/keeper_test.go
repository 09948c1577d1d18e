package node

import (
	"context"
	"crypto/tls"
	"net"
	"strings"
	"testing"

	"github.com/redis/rueidis"
	"github.com/stretchr/testify/require"
)

func TestServersModeIsReadFromInfo(t *testing.T) {
	const rest = "run_id:0123456789012345678901234567890123456789\r\nredis_version:7.2.4\r\nrole:master\r\n"
	for _, row := range []struct{ product, info, refused string }{
		{"Redis", "redis_mode:standalone\r\ncluster_enabled:0\r\n", ""},
		{"Redis", "redis_mode:cluster\r\ncluster_enabled:1\r\n", "cluster mode"},
		{"Redis", "redis_mode:cluster\r\n", "cluster mode"}, // a proxy may show no section Cluster
		{"valkey", "server_name:valkey\r\nserver_mode:standalone\r\ncluster_enabled:0\r\n", ""},
		{"valkey", "server_name:valkey\r\nserver_mode:cluster\r\n", "cluster mode"},
	} {
		info := parseInfo(rest + row.info)
		require.Equal(t, row.product, info.product)
		if row.refused == "" {
			require.NoError(t, info.fault(), row.info)
			require.Equal(t, "standalone", info.mode)
			continue
		}
		require.ErrorIs(t, info.fault(), ErrUnsupportedNode, strings.TrimSpace(row.info))
		require.ErrorContains(t, info.fault(), row.refused)
	}
}

func TestPushOfNothingSaysThatTheNodeWasFlushed(t *testing.T) {
	n := idleSet().nodes[0]
	n.invalidated(nil)
	require.Len(t, n.recheck, 1, "the keeper looks at the marker")
}

func TestClientOptionIsOneConnectionWithOurTracking(t *testing.T) {
	n := idleSet().nodes[0]
	n.option.PipelineMultiplex, n.option.BlockingPipeline, n.option.ClientTrackingOptions = 4, 100, []string{"OPTIN"}
	seen := 0
	n.option.OnInvalidations = func([]rueidis.RedisMessage) { seen++ }
	n.option.RingScaleEachConn = 9
	o := n.clientOption()
	require.True(t, o.ForceSingleClient)
	require.True(t, o.DisableRetry)
	require.Equal(t, -1, o.PipelineMultiplex)
	require.Equal(t, -1, o.BlockingPipeline)
	require.Equal(t, []string{"OPTOUT", "NOLOOP"}, o.ClientTrackingOptions)
	require.Equal(t, 9, o.RingScaleEachConn, "the user's size is kept")
	o.OnInvalidations(nil)
	require.Equal(t, 1, seen, "a user's OnInvalidations is called after ours")
	require.Len(t, n.recheck, 1)

	for _, without := range []func(*rueidis.ClientOption){
		func(o *rueidis.ClientOption) { o.DisableCache = true },
		func(o *rueidis.ClientOption) { o.AlwaysRESP2 = true },
	} {
		n := idleSet().nodes[0]
		without(&n.option)
		o := n.clientOption()
		require.True(t, o.DisableCache)
		require.Empty(t, o.ClientTrackingOptions)
	}
}

func TestOnlyTheKeeperDials(t *testing.T) {
	n := idleSet().nodes[0]
	dialed := 0
	n.option.DialCtxFn = func(context.Context, string, *net.Dialer, *tls.Config) (net.Conn, error) {
		dialed++
		a, b := net.Pipe()
		t.Cleanup(func() { b.Close() })
		return a, nil
	}
	dial := n.clientOption().DialCtxFn
	_, err := dial(t.Context(), "a:1", &net.Dialer{}, nil)
	require.ErrorIs(t, err, errNotDialing)
	n.mayDial.Store(true)
	conn, err := dial(t.Context(), "a:1", &net.Dialer{}, nil)
	require.NoError(t, err)
	require.NoError(t, conn.Close())
	require.Equal(t, 1, dialed)
}
