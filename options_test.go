package redlock

import (
	"context"
	"crypto/tls"
	"math"
	"net"
	"strings"
	"testing"
	"time"

	"github.com/redis/rueidis"
	"github.com/stretchr/testify/require"
)

func threeNodes() []rueidis.ClientOption {
	return []rueidis.ClientOption{{InitAddress: []string{"a:1"}}, {InitAddress: []string{"b:1"}}, {InitAddress: []string{"c:1"}}}
}

func TestOptionsAreRefusedWithValueAndRule(t *testing.T) {
	node := func(change func(*rueidis.ClientOption)) func(*LockerOption) {
		return func(o *LockerOption) { change(&o.Nodes[1]) }
	}
	for _, row := range []struct {
		reason string
		change func(*LockerOption)
		says   []string
	}{
		{"no nodes", func(o *LockerOption) { o.Nodes = nil }, []string{"Nodes is empty"}},
		{"the same address twice", func(o *LockerOption) { o.Nodes[2].InitAddress = []string{"a:1"} }, []string{"Nodes[0]", "Nodes[2]", "a:1"}},
		{"a node without an address", node(func(n *rueidis.ClientOption) { n.InitAddress = nil }), []string{"Nodes[1].InitAddress"}},
		{"several addresses are a cluster, not a node", node(func(n *rueidis.ClientOption) { n.InitAddress = []string{"b:1", "b:2"} }), []string{"Nodes[1].InitAddress", "b:2"}},
		{"a replica cannot vote", node(func(n *rueidis.ClientOption) { n.ReplicaOnly = true }), []string{"Nodes[1].ReplicaOnly"}},
		{"nor be sent to", node(func(n *rueidis.ClientOption) { n.SendToReplicas = func(rueidis.Completed) bool { return false } }), []string{"Nodes[1].SendToReplicas"}},
		{"two connections have two orders", node(func(n *rueidis.ClientOption) { n.DisableAutoPipelining = true }), []string{"Nodes[1].DisableAutoPipelining"}},
		{"rueidis repeats writes at a connection's end", node(func(n *rueidis.ClientOption) { n.ConnLifetime = 7 * time.Minute }), []string{"Nodes[1].ConnLifetime", "7m0s"}},
		{"an opening brace in the prefix", func(o *LockerOption) { o.KeyPrefix = "a{b" }, []string{"KeyPrefix", "a{b"}},
		{"a closing brace in the prefix", func(o *LockerOption) { o.KeyPrefix = "a}b" }, []string{"KeyPrefix", "a}b"}},
		{"negative lease", func(o *LockerOption) { o.KeyValidity = -time.Second }, []string{"KeyValidity", "-1s"}},
		{"negative interval", func(o *LockerOption) { o.ExtendInterval = -2 * time.Second }, []string{"ExtendInterval", "-2s"}},
		{"negative timeout", func(o *LockerOption) { o.NodeTimeout = -3 * time.Second }, []string{"NodeTimeout", "-3s"}},
		{"negative longest lease", func(o *LockerOption) { o.MaxKeyValidity = -4 * time.Second }, []string{"MaxKeyValidity", "-4s"}},
		{"negative bound", func(o *LockerOption) { o.ClockBound = -5 * time.Second }, []string{"ClockBound", "-5s"}},
		{"negative drift", func(o *LockerOption) { o.DriftFactor = -0.25 }, []string{"DriftFactor", "-0.25"}},
		{"a drift that leaves nothing", func(o *LockerOption) { o.DriftFactor = 1 }, []string{"DriftFactor", "1"}},
		{"a drift that is no number", func(o *LockerOption) { o.DriftFactor = math.NaN() }, []string{"DriftFactor", "NaN"}},
		{"an interval as long as the lease", func(o *LockerOption) { o.ExtendInterval = 10 * time.Second }, []string{"ExtendInterval", "10s", "KeyValidity"}},
		{"interval + timeout just not below what counts of the lease", func(o *LockerOption) { o.ExtendInterval, o.NodeTimeout = 6500*time.Millisecond, 2*time.Second-1 }, []string{"ExtendInterval", "6.5s", "NodeTimeout", "8.499999999s"}},
		{"a bound that eats the lease", func(o *LockerOption) { o.ClockBound = 9 * time.Second }, []string{"ClockBound", "9s"}},
		{"a longest lease below the lease", func(o *LockerOption) { o.MaxKeyValidity = 9 * time.Second }, []string{"MaxKeyValidity", "9s", "KeyValidity", "10s"}},
		{"a quarantine that forgets leases", func(o *LockerOption) { o.RestartQuarantine = 9 * time.Second }, []string{"RestartQuarantine", "9s", "MaxKeyValidity", "10s"}},
		{"a lease below Redis' grain", func(o *LockerOption) { o.KeyValidity = time.Millisecond }, []string{"KeyValidity", "1ms"}},
		{"a longest lease no instant can hold", func(o *LockerOption) { o.MaxKeyValidity = math.MaxInt64 }, []string{"MaxKeyValidity"}},
	} {
		t.Run(row.reason, func(t *testing.T) {
			dialed := false
			option := LockerOption{
				Nodes: threeNodes(),
				ClientBuilder: func(rueidis.ClientOption) (rueidis.Client, error) {
					dialed = true
					return nil, nil
				},
			}
			row.change(&option)
			l, err := NewLocker(option)
			require.Nil(t, l)
			require.ErrorIs(t, err, ErrInvalidOption)
			require.False(t, dialed, "refused before anything is connected")
			for _, text := range row.says {
				require.ErrorContains(t, err, text)
			}
		})
	}
}

func TestOptionsThatAreAllowed(t *testing.T) {
	for _, row := range []struct {
		reason string
		change func(*LockerOption)
	}{
		{"nothing but nodes", func(*LockerOption) {}},
		{"one node", func(o *LockerOption) { o.Nodes = o.Nodes[:1] }},
		{"two nodes", func(o *LockerOption) { o.Nodes = o.Nodes[:2] }},
		{"interval + timeout just below what counts of the lease", func(o *LockerOption) { o.ExtendInterval, o.NodeTimeout = 6500*time.Millisecond, 2*time.Second-2 }},
		{"quarantine off", func(o *LockerOption) { o.RestartQuarantine = -1 }},
		{"a quarantine of one longest lease", func(o *LockerOption) { o.RestartQuarantine = 10 * time.Second }},
		{"several addresses of one Sentinel set", func(o *LockerOption) {
			o.Nodes[1] = rueidis.ClientOption{InitAddress: []string{"s:1", "s:2"}, Sentinel: rueidis.SentinelOption{MasterSet: "m"}}
		}},
		{"two sets behind the same Sentinels", func(o *LockerOption) {
			o.Nodes[1] = rueidis.ClientOption{InitAddress: []string{"s:1"}, Sentinel: rueidis.SentinelOption{MasterSet: "m1"}}
			o.Nodes[2] = rueidis.ClientOption{InitAddress: []string{"s:1"}, Sentinel: rueidis.SentinelOption{MasterSet: "m2"}}
		}},
		{"no pushes", func(o *LockerOption) { o.Nodes[1].DisableCache, o.Nodes[2].AlwaysRESP2 = true, true }},
		{"what is ours to set is overruled, not refused", func(o *LockerOption) {
			o.Nodes[1].PipelineMultiplex, o.Nodes[1].BlockingPipeline, o.Nodes[1].ClientTrackingOptions = 4, 100, []string{"OPTIN"}
		}},
		{"any bytes but braces in the prefix", func(o *LockerOption) { o.KeyPrefix = "a:b c\x00\xff*?[" }},
	} {
		option := LockerOption{Nodes: threeNodes()}
		row.change(&option)
		_, err := option.resolve()
		require.NoError(t, err, row.reason)
	}
}

func TestOptionDefaults(t *testing.T) {
	o, err := LockerOption{Nodes: threeNodes()}.resolve()
	require.NoError(t, err)
	require.Equal(t, "redlock", o.KeyPrefix)
	require.Equal(t, 10*time.Second, o.KeyValidity)
	require.Equal(t, 10*time.Second/3, o.ExtendInterval)
	require.Equal(t, time.Second, o.NodeTimeout)
	require.Equal(t, 10*time.Second, o.MaxKeyValidity)
	require.Equal(t, 0.1, o.DriftFactor)
	require.Equal(t, 500*time.Millisecond, o.ClockBound)
	require.NotNil(t, o.Logger)
	require.Equal(t, 10*time.Second, newLocker(o).quarantine, "default on, for the longest lease")

	o, err = LockerOption{Nodes: threeNodes(), KeyValidity: 2 * time.Second, RestartQuarantine: -1}.resolve()
	require.NoError(t, err)
	require.Equal(t, 500*time.Millisecond, o.NodeTimeout, "a quarter of a short lease")
	require.Equal(t, 100*time.Millisecond, o.ClockBound)
	require.Zero(t, newLocker(o).quarantine)
}

func TestEveryDefaultLeaseLeavesTimeToRenew(t *testing.T) {
	for lease := minKeyValidity; lease < time.Hour; lease = lease * 3 / 2 {
		_, err := LockerOption{Nodes: threeNodes(), KeyValidity: lease}.resolve()
		require.NoError(t, err, lease)
	}
}

func TestNames(t *testing.T) {
	require.ErrorIs(t, checkName(""), ErrInvalidOption)
	require.ErrorIs(t, checkName(strings.Repeat("x", maxName+1)), ErrInvalidOption)
	require.NoError(t, checkName(strings.Repeat("x", maxName)))
	require.NoError(t, checkName("\x00\xff{}\n"))
}

func TestClientOptionIsOneConnectionWithOurTracking(t *testing.T) {
	l := idleLocker(t, "redlock")
	n := l.nodes[0]
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
		n := idleLocker(t, "redlock").nodes[0]
		without(&n.option)
		o := n.clientOption()
		require.True(t, o.DisableCache)
		require.Empty(t, o.ClientTrackingOptions)
	}
}

func TestOnlyTheKeeperDials(t *testing.T) {
	n := idleLocker(t, "redlock").nodes[0]
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
