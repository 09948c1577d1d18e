package redlocktest_test

import (
	"context"
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	"github.com/redis/rueidis"
	"github.com/stretchr/testify/require"

	"github.com/redlock-go/redlock/redlocktest"
)

func connect(t *testing.T, o rueidis.ClientOption, on func([]rueidis.RedisMessage)) rueidis.Client {
	o.ForceSingleClient = true
	o.PipelineMultiplex = -1
	o.DisableRetry = true
	o.OnInvalidations = on
	o.ClientTrackingOptions = []string{"OPTOUT", "NOLOOP"}
	c, err := rueidis.NewClient(o)
	require.NoError(t, err)
	t.Cleanup(c.Close)
	return c
}

func TestSmoke(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ctx := context.Background()
		cluster := redlocktest.NewCluster(t, 3)
		a := connect(t, cluster.Client("a").Link(0).Option(), func(m []rueidis.RedisMessage) { fmt.Println(m) })
		b := connect(t, cluster.Client("b").Link(0).Option(), nil)
		s := rueidis.NewLuaScript(`redis.call('SET', KEYS[1], ARGV[1], 'PX', 1000) local t = redis.call('TIME') redis.call('GET', KEYS[1]) return {t[1]*1000000+t[2], tostring(1732100000000001), 'x' .. 1732100000000001, string.format('%.0f', 1732100000000001), redis.call('INFO','server'):match('run_id:(%w+)')}`)
		fmt.Println(s.Exec(ctx, a, []string{"k"}, []string{"v"}).ToArray())
		require.NoError(t, b.Do(ctx, b.B().Set().Key("k").Value("w").Build()).Error())
		synctest.Wait()
		time.Sleep(time.Hour)
		fmt.Println(cluster.Node(0).Commands())
	})
}
