package redlock

import (
	"context"
	"crypto/rand"
	"crypto/tls"
	"math"
	"net"
	"strings"
	"testing"
	"time"

	"github.com/redis/rueidis"
	"github.com/stretchr/testify/require"

	"github.com/redlock-go/redlock/internal/node"
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
		{"a longest lease no instant can hold", func(o *LockerOption) { o.MaxKeyValidity = math.MaxInt64 }, []string{"MaxKeyValidity is 2562047h47m16.854775807s", "at most 2160h0m0s"}},
		{"a lease no instant can hold", func(o *LockerOption) { o.KeyValidity = math.MaxInt64 }, []string{"KeyValidity is 2562047h47m16.854775807s", "at most 2160h0m0s"}},
		{"an interval whose sum overflows", func(o *LockerOption) { o.ExtendInterval = math.MaxInt64 }, []string{"ExtendInterval is 2562047h47m16.854775807s", "at most 2160h0m0s"}},
		{"a timeout whose sum overflows", func(o *LockerOption) { o.NodeTimeout = math.MaxInt64 }, []string{"NodeTimeout is 2562047h47m16.854775807s", "at most 2160h0m0s"}},
		{"a bound whose difference overflows", func(o *LockerOption) { o.ClockBound = math.MaxInt64 }, []string{"ClockBound is 2562047h47m16.854775807s", "at most 2160h0m0s"}},
		{"a quarantine no marker can hold", func(o *LockerOption) { o.RestartQuarantine = math.MaxInt64 }, []string{"RestartQuarantine is 2562047h47m16.854775807s", "at most 2160h0m0s"}},
		{"a quarantine just too long", func(o *LockerOption) { o.RestartQuarantine = 2160*time.Hour + 1 }, []string{"RestartQuarantine is 2160h0m0.000000001s", "at most 2160h0m0s"}},
		{"a lease of nothing", func(o *LockerOption) { o.KeyValidity = 1 }, []string{"KeyValidity is 1ns", "at least 20ms"}},
		{"an interval of nothing", func(o *LockerOption) { o.ExtendInterval = 1 }, []string{"ExtendInterval is 1ns", "at least 1ms"}},
		{"a timeout of nothing", func(o *LockerOption) { o.NodeTimeout = 1 }, []string{"NodeTimeout is 1ns", "at least 1ms"}},
		{"a bound of nothing", func(o *LockerOption) { o.ClockBound = 1 }, []string{"ClockBound is 1ns", "at least 1ms"}},
		{"a longest lease of nothing", func(o *LockerOption) { o.MaxKeyValidity = 1 }, []string{"MaxKeyValidity is 1ns", "at least 20ms"}},
		{"a quarantine of nothing", func(o *LockerOption) { o.RestartQuarantine = 1 }, []string{"RestartQuarantine is 1ns", "at least 20ms"}},
		{"a URL for an address", node(func(n *rueidis.ClientOption) { n.InitAddress = []string{"redis://:secret@b:1"} }), []string{"Nodes[1].InitAddress", "host:port", "rueidis.ParseURL"}},
		{"a user in an address", node(func(n *rueidis.ClientOption) { n.InitAddress = []string{"me:secret@b:1"} }), []string{"Nodes[1].InitAddress", "host:port"}},
		{"an address without a port", node(func(n *rueidis.ClientOption) { n.InitAddress = []string{"b"} }), []string{"Nodes[1].InitAddress", `"b"`, "host:port"}},
		{"an address with an empty port", node(func(n *rueidis.ClientOption) { n.InitAddress = []string{"b:"} }), []string{"Nodes[1].InitAddress", `"b:"`, "65535"}},
		{"a port that is none", node(func(n *rueidis.ClientOption) { n.InitAddress = []string{"b:65536"} }), []string{"Nodes[1].InitAddress", `"65536"`, "65535"}},
		{"an IPv6 address without brackets", node(func(n *rueidis.ClientOption) { n.InitAddress = []string{"::1:6379"} }), []string{"Nodes[1].InitAddress", `"::1:6379"`, "host:port"}},
		{"a Sentinel's address without a port", node(func(n *rueidis.ClientOption) {
			n.InitAddress, n.Sentinel.MasterSet = []string{"s1:26379", "s2"}, "m"
		}), []string{"Nodes[1].InitAddress", `"s2"`, "host:port"}},
		{"a prefix that makes another's queues", func(o *LockerOption) { o.KeyPrefix = "redlock:queue" }, []string{"KeyPrefix", `"redlock:queue"`, `belong to prefix "redlock"`}},
		{"a prefix that looks like another's marker", func(o *LockerOption) { o.KeyPrefix = "a:marker" }, []string{"KeyPrefix", `"a:marker"`}},
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
			require.NotContains(t, err.Error(), "secret")
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
		{"the longest lease and quarantine", func(o *LockerOption) {
			o.KeyValidity, o.RestartQuarantine = 90*24*time.Hour, 90*24*time.Hour
		}},
		{"addresses of IPv6, of this machine, of a DNS name", func(o *LockerOption) {
			o.Nodes[0].InitAddress, o.Nodes[1].InitAddress, o.Nodes[2].InitAddress = []string{"[::1]:6379"}, []string{":6379"}, []string{"redis-0.redis.svc:6379"}
		}},
		{"whatever a dialer of one's own understands", func(o *LockerOption) {
			o.Nodes[0].InitAddress = []string{"/run/redis.sock"}
			o.Nodes[0].DialCtxFn = func(context.Context, string, *net.Dialer, *tls.Config) (net.Conn, error) { return nil, nil }
			o.Nodes[1].InitAddress = []string{"unix://redis.sock"}
			o.Nodes[1].DialFn = func(string, *net.Dialer, *tls.Config) (net.Conn, error) { return nil, nil }
		}},
		{"a word of ours that is not behind a colon", func(o *LockerOption) { o.KeyPrefix = "queue" }},
		{"any bytes but braces in the prefix", func(o *LockerOption) { o.KeyPrefix = "a:b c\x00\xff*?[" }},
	} {
		option := LockerOption{Nodes: threeNodes()}
		row.change(&option)
		_, err := option.resolve()
		require.NoError(t, err, row.reason)
	}
}

// No key of one prefix is a possible key of another: all of them, over prefixes and names made of whatever could be
// mistaken for a part of a key.
func TestPrefixesShareNoKey(t *testing.T) {
	parts := []string{"a", "", "queue", "wake", "fence", "marker", "7"}
	joined := func(parts []string, depth int) []string {
		all, last := parts, parts
		for range depth - 1 {
			var next []string
			for _, x := range last {
				for _, y := range parts {
					next = append(next, x+":"+y)
				}
			}
			all, last = append(all, next...), next
		}
		return all
	}
	candidates, names := joined(parts, 3), joined(append(parts, "{", "}", "{a}"), 2)
	owner := make(map[string]string)
	prefixes := 0
	for _, prefix := range candidates {
		o := LockerOption{Nodes: threeNodes(), KeyPrefix: prefix}
		o, err := o.resolve()
		if err != nil || prefix == "" {
			continue
		}
		prefixes++
		l := newLocker(o)
		keys := []string{node.MarkerKey(prefix), prefix + ":fence:7", l.wakePrefix + rand.Text()}
		for _, name := range names {
			keys = append(keys, node.LockKey(prefix, name), node.QueueKey(prefix, name), node.FenceKey(prefix, name))
		}
		for _, key := range keys {
			if other, taken := owner[key]; taken && other != prefix {
				require.Fail(t, "a key of two prefixes", "%q of %q and %q", key, prefix, other)
			}
			owner[key] = prefix
		}
	}
	require.Greater(t, prefixes, 100)
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
	require.Equal(t, 10*time.Second, o.quarantine(), "default on, for the longest lease")

	o, err = LockerOption{Nodes: threeNodes(), KeyValidity: 2 * time.Second, RestartQuarantine: -1}.resolve()
	require.NoError(t, err)
	require.Equal(t, 500*time.Millisecond, o.NodeTimeout, "a quarter of a short lease")
	require.Equal(t, 100*time.Millisecond, o.ClockBound)
	require.Zero(t, o.quarantine())
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
