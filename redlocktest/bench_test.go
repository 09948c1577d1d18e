package redlocktest_test

import (
	"context"
	"testing"
	"testing/synctest"
	"time"

	"github.com/redis/rueidis"
	"github.com/stretchr/testify/require"

	"github.com/redlock-go/redlock/redlocktest"
)

// tenCalls is a script of the size of a granting one.
const tenCalls = `
local t = redis.call('TIME')
local now = t[1] * 1000000 + t[2]
local rid = string.match(redis.call('INFO', 'server'), 'run_id:(%w+)')
local m = redis.call('GET', KEYS[2])
if m ~= rid then redis.call('SET', KEYS[2], rid) end
local v = redis.call('GET', KEYS[1])
if v and v ~= ARGV[1] then return {0, v, redis.call('PTTL', KEYS[1])} end
if v then redis.call('PEXPIRE', KEYS[1], ARGV[2]) else redis.call('SET', KEYS[1], ARGV[1], 'PX', ARGV[2]) end
local f = redis.call('INCR', ARGV[3])
local p = tonumber(ARGV[4])
if p > now + 1000 then p = now + 1000 end
if f < p then f = p redis.call('SET', ARGV[3], string.format('%.0f', f)) end
redis.call('PTTL', KEYS[1])
redis.call('EXISTS', KEYS[1])
redis.call('GET', KEYS[1])
return {1, string.format('%.0f', f), t[1], t[2]}`

func BenchmarkScript(b *testing.B) {
	cluster := redlocktest.NewCluster(b, 1)
	c, err := rueidis.NewClient(cluster.Client("a").Link(0).Option())
	require.NoError(b, err)
	defer c.Close()
	s := rueidis.NewLuaScript(tenCalls)
	b.ReportAllocs()
	for b.Loop() {
		if err := s.Exec(context.Background(), c, []string{"lock", "marker"}, []string{"owner", "10000", "fence", "1732100000000001"}).Error(); err != nil {
			b.Fatal(err)
		}
	}
}

func BenchmarkDo(b *testing.B) {
	cluster := redlocktest.NewCluster(b, 1)
	script := []string{"EVAL", tenCalls, "2", "lock", "marker", "owner", "10000", "fence", "1732100000000001"}
	b.ReportAllocs()
	for b.Loop() {
		cluster.Node(0).Do(script...)
	}
}

func BenchmarkSetGet(b *testing.B) {
	cluster := redlocktest.NewCluster(b, 1)
	script := []string{"EVAL", "redis.call('SET', KEYS[1], ARGV[1], 'NX', 'PX', 10000) return redis.call('GET', KEYS[1])", "1", "lock", "owner"}
	b.ReportAllocs()
	for b.Loop() {
		cluster.Node(0).Do(script...)
	}
}

// BenchmarkBubble is the price of a cluster of 5 with 3 clients, in a bubble, start to end.
func BenchmarkBubble(b *testing.B) {
	b.ReportAllocs()
	for b.Loop() {
		synctest.Test(&testing.T{}, func(*testing.T) {
			cluster := redlocktest.Start(5, redlocktest.Jitter(time.Millisecond, 2*time.Millisecond))
			defer cluster.Close()
			for _, name := range []string{"a", "b", "c"} {
				for _, node := range cluster.Client(name).Option().Nodes {
					c, err := rueidis.NewClient(node)
					require.NoError(b, err)
					defer c.Close()
				}
			}
		})
	}
}
