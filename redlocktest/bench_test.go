package redlocktest_test

import (
	"context"
	"crypto/tls"
	"net"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/redis/rueidis"
	"github.com/stretchr/testify/require"

	"github.com/redlock-go/redlock"
	"github.com/redlock-go/redlock/redlocktest"
)

// tenCalls is a script of the size of a granting one.
const tenCalls = `
local t = redis.call('TIME')
local now = t[1] * 1000000 + t[2]
local m = redis.call('GET', KEYS[2]) or '?'
if not string.find(redis.call('INFO', 'server'), 'run_id:' .. m, 1, true) then redis.call('SET', KEYS[2], '0') end
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

// What the default label costs a lock that is taken and given back, on one node.
func BenchmarkLabel(b *testing.B) {
	for name, off := range map[string]bool{"default": false, "off": true} {
		b.Run(name, func(b *testing.B) {
			o := redlocktest.NewCluster(b, 1).Option()
			o.NoLabel = off
			var sent, got atomic.Int64
			for i := range o.Nodes {
				dial := o.Nodes[i].DialCtxFn
				o.Nodes[i].DialCtxFn = func(ctx context.Context, address string, d *net.Dialer, t *tls.Config) (net.Conn, error) {
					conn, err := dial(ctx, address, d, t)
					return &counted{conn, &sent, &got}, err
				}
			}
			l, err := redlock.NewLocker(o)
			require.NoError(b, err)
			defer l.Close()
			g, err := l.Acquire(context.Background(), "cron:purge")
			require.NoError(b, err)
			line, err := l.Inspect(context.Background(), "cron:purge")
			require.NoError(b, err)
			require.NoError(b, g.Release(context.Background()))
			b.ReportAllocs()
			sent.Store(0)
			got.Store(0)
			for b.Loop() {
				g, err := l.Acquire(context.Background(), "cron:purge")
				if err != nil {
					b.Fatal(err)
				}
				if err := g.Release(context.Background()); err != nil {
					b.Fatal(err)
				}
			}
			b.ReportMetric(float64(len(line.Label)), "label-B")
			b.ReportMetric(float64(sent.Load())/float64(b.N), "sent-B/op")
			b.ReportMetric(float64(got.Load())/float64(b.N), "got-B/op")
		})
	}
}

// counted counts the bytes of a connection.
type counted struct {
	net.Conn
	sent, got *atomic.Int64
}

func (c *counted) Write(b []byte) (int, error) {
	n, err := c.Conn.Write(b)
	c.sent.Add(int64(n))
	return n, err
}

func (c *counted) Read(b []byte) (int, error) {
	n, err := c.Conn.Read(b)
	c.got.Add(int64(n))
	return n, err
}
