package redlocktest_test

import (
	"context"
	"fmt"
	"math/rand/v2"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/redis/rueidis"
	"github.com/stretchr/testify/require"

	"github.com/redlock-go/redlock/redlocktest"
)

// TestVirtualHour renews a lease on each of five nodes every 3 s for an hour.
func TestVirtualHour(t *testing.T) {
	start := time.Now()
	inBubble(t, 5, func(t *testing.T, cluster *redlocktest.Cluster) {
		for _, l := range cluster.Client("a").Links() {
			l.Delay(ms, ms)
			c := link(l).track(t)
			go func() {
				for range 1200 {
					require.Equal(t, "v", c.eval("redis.call('SET', KEYS[1], 'v', 'PX', 10000) return redis.call('GET', KEYS[1])", key))
					time.Sleep(3*time.Second - 2*ms)
				}
			}()
		}
		time.Sleep(time.Hour)
		for _, node := range cluster.Nodes() {
			require.Equal(t, 1200, node.Commands()["EVAL"])
		}
	})
	real := time.Since(start)
	t.Log(real)
	require.Less(t, real, 5*time.Second, "far below, but for the race detector on a busy machine")
}

// history runs three contending clients with random delays and faults and writes down what each of them saw, and when.
func history(seed uint64) (lines []string) {
	synctest.Test(&testing.T{}, func(*testing.T) {
		cluster := redlocktest.Start(3, redlocktest.Seed(seed), redlocktest.Jitter(100*time.Microsecond, 3*ms))
		defer cluster.Close()
		start := time.Now()
		var mu sync.Mutex
		note := func(client string, what ...any) {
			mu.Lock()
			defer mu.Unlock()
			lines = append(lines, fmt.Sprint(time.Since(start), " ", client, " ", what))
		}
		script := rueidis.NewLuaScript("if redis.call('SET', KEYS[1], ARGV[1], 'NX', 'PX', 20) then return {1, redis.call('GET', KEYS[1])} end return {0, redis.call('GET', KEYS[1]), redis.call('PTTL', KEYS[1]), redis.call('TIME')[2]}")
		var wg sync.WaitGroup
		for number, name := range []string{"a", "b", "c"} {
			for i, o := range cluster.Client(name).Option().Nodes {
				o.PipelineMultiplex, o.DisableRetry = -1, true
				o.ClientTrackingOptions = []string{"OPTOUT", "NOLOOP"}
				who := fmt.Sprint(name, i)
				o.OnInvalidations = func(keys []rueidis.RedisMessage) { note(who, "push", len(keys)) }
				draw := rand.New(rand.NewPCG(seed, uint64(number*10+i)))
				wg.Go(func() {
					c, err := rueidis.NewClient(o)
					note(who, "connected", err)
					if err != nil {
						return
					}
					defer c.Close()
					for range 60 {
						m, err := script.Exec(context.Background(), c, key, []string{who}).ToMessage()
						note(who, show(m, err))
						time.Sleep(time.Duration(draw.Int64N(int64(10 * ms))))
					}
				})
			}
		}
		wg.Go(func() {
			draw := rand.New(rand.NewPCG(seed, 99))
			for range 40 {
				time.Sleep(time.Duration(draw.Int64N(int64(20 * ms))))
				node, l := cluster.Node(draw.IntN(3)), cluster.Client("b").Link(draw.IntN(3))
				note("fault", node.RunID())
				switch draw.IntN(6) {
				case 0:
					node.CrashEmpty()
				case 1:
					node.StepClock(7 * ms)
				case 2:
					l.SilenceReplies()
				case 3:
					l.HealLosing()
				case 4:
					l.Heal()
				case 5:
					node.Freeze()
					time.Sleep(5 * ms)
					node.Thaw()
				}
			}
			for _, l := range cluster.Client("b").Links() {
				l.Heal()
			}
		})
		wg.Wait()
	})
	return lines
}

func TestEqualSeedsEqualHistories(t *testing.T) {
	for seed := range uint64(5) {
		want := history(seed)
		require.Greater(t, len(want), 500)
		for range 5 {
			got := history(seed)
			for i, line := range want {
				require.Equal(t, line, got[i], "seed %d, line %d", seed, i)
			}
			require.Len(t, got, len(want))
		}
		require.False(t, slices.Equal(want, history(seed+100)), "another seed, another history")
	}
}

// Messages of one instant are delivered in the order of their clients, however the goroutines ran.
func TestSameInstant(t *testing.T) {
	for range 20 {
		inBubble(t, 1, func(t *testing.T, cluster *redlocktest.Cluster) {
			cluster.Node(0).Delay(1, 1)
			var wg sync.WaitGroup
			for i := range 8 {
				c := link(cluster.Client(string(rune('a' + i))).Link(0)).track(t)
				wg.Go(func() {
					time.Sleep(time.Second - time.Duration(time.Now().UnixNano()%int64(time.Second)))
					c.do("APPEND", "k", string(rune('a'+i)))
				})
			}
			wg.Wait()
			value, _ := cluster.Node(0).Get("k")
			require.Equal(t, "abcdefgh", value)
		})
	}
}
