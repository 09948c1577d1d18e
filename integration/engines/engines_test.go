package engines_test

import (
	"context"
	"fmt"
	"testing"
	"time"

	"github.com/redis/rueidis"
	"github.com/stretchr/testify/require"

	"github.com/redlock-go/redlock/integration/engines"
	"github.com/redlock-go/redlock/internal/redisproc"
	"github.com/redlock-go/redlock/internal/redisproc/redistest"
)

const patience = time.Minute

func TestNodes(t *testing.T) {
	options := engines.Nodes(t, 3)
	require.Len(t, options, 3)
	seen := map[string]bool{}
	for _, option := range options {
		client := dial(t, option)
		info, err := engines.Info(t.Context(), client, "server")
		require.NoError(t, err)
		require.NotEmpty(t, info["run_id"])
		require.False(t, seen[info["run_id"]], "two nodes are one server")
		seen[info["run_id"]] = true
		engine, err := engines.Describe(t.Context(), client)
		require.NoError(t, err)
		require.Regexp(t, `^\w+ \d+\.\d+\.\d+`, engine)
	}
}

func TestNodesFromOutside(t *testing.T) {
	nodes := redistest.StartSet(t, 3, redisproc.Options{TCP: true})
	t.Setenv(engines.EnvAddrs, nodes[0].Addr()+", "+nodes[1].Addr()+","+nodes[2].Addr())
	options := engines.Nodes(t, 2)
	require.Len(t, options, 2)
	for i, option := range options {
		require.Equal(t, []string{nodes[i].Addr()}, option.InitAddress)
		require.NoError(t, do(dial(t, option), "PING"))
	}
}

// A client that follows the sentinels writes to whichever server is the primary.
func TestSentinelFailover(t *testing.T) {
	for _, sentinels := range []int{1, 3} {
		t.Run(fmt.Sprintf("%d sentinels", sentinels), func(t *testing.T) {
			t.Parallel()
			s := engines.StartSentinel(t, sentinels)
			client := dial(t, s.ClientOption())
			before, err := engines.Info(t.Context(), client, "server")
			require.NoError(t, err)
			old, err := s.Primary()
			require.NoError(t, err)
			require.Equal(t, s.Servers[0].Addr(), old)
			require.NoError(t, do(client, "SET", "key", "before"))

			now := s.Failover(t)

			require.Equal(t, s.Servers[1].Addr(), now)
			require.Eventually(t, func() bool {
				after, err := engines.Info(context.Background(), client, "server")
				return err == nil && after["run_id"] != before["run_id"]
			}, patience, 20*time.Millisecond, "the client follows")
			require.NoError(t, do(client, "SET", "key", "after"))
			value, err := s.Servers[1].Do("GET", "key")
			require.NoError(t, err)
			require.Equal(t, "after", value)
		})
	}
}

// There and back again: the second failover has to wait until the old primary, which went on as one, is a replica.
func TestSentinelFailsBack(t *testing.T) {
	t.Parallel()
	s := engines.StartSentinel(t, 1)
	client := dial(t, s.ClientOption())
	require.Equal(t, s.Servers[1].Addr(), s.Failover(t))
	require.Equal(t, s.Servers[0].Addr(), s.Failover(t))
	require.Eventually(t, func() bool {
		if do(client, "SET", "key", "back") != nil { // what the old primary is told meanwhile is lost
			return false
		}
		value, err := s.Servers[0].Do("GET", "key")
		return err == nil && value == "back"
	}, patience, 20*time.Millisecond, "the client follows")
}

// A dead primary needs nobody's word.
func TestSentinelReplacesDeadPrimary(t *testing.T) {
	t.Parallel()
	s := engines.StartSentinel(t, 1)
	client := dial(t, s.ClientOption())
	require.NoError(t, s.Servers[0].Kill())
	require.Eventually(t, func() bool {
		now, err := s.Primary()
		return err == nil && now == s.Servers[1].Addr()
	}, patience, 20*time.Millisecond)
	require.Eventually(t, func() bool { return do(client, "SET", "key", "after") == nil }, patience, 20*time.Millisecond)
}

func TestCluster(t *testing.T) {
	t.Parallel()
	node := engines.StartCluster(t)
	client := dial(t, redistest.Option(node))
	info, err := engines.Info(t.Context(), client, "server")
	require.NoError(t, err)
	require.Equal(t, "cluster", info["redis_mode"]+info["server_mode"], "Valkey calls it so")
	require.NoError(t, do(client, "SET", "{a}", "1"))
	require.ErrorContains(t, do(client, "MSET", "{a}", "1", "{b}", "1"), "CROSSSLOT")
}

func dial(t *testing.T, option rueidis.ClientOption) rueidis.Client {
	t.Helper()
	client, err := rueidis.NewClient(option)
	require.NoError(t, err)
	t.Cleanup(client.Close)
	return client
}

func do(client rueidis.Client, command ...string) error {
	ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
	defer cancel()
	return client.Do(ctx, client.B().Arbitrary(command...).Build()).Error()
}
