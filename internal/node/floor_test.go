package node

import (
	"context"
	"fmt"
	"regexp"
	"strconv"
	"testing"
	"time"

	"github.com/redis/rueidis"
	"github.com/stretchr/testify/require"

	"github.com/redlock-go/redlock/internal/redisproc"
	"github.com/redlock-go/redlock/internal/redisproc/redistest"
)

// barePairs is the least that a script can do for pairs: no fencing, no line, no marker, no "not after". It takes the
// arguments of lua/batch.lua.
const barePairs = `
local a, k = 11, 2
while a <= #ARGV do
  if ARGV[a] == 'end' then
    if redis.call('GET', ARGV[a + 2]) == ARGV[a + 1] then redis.call('DEL', ARGV[a + 2]) end
    a = a + 3
  else
    redis.call('SET', KEYS[k], ARGV[a + 1], 'NX', 'PX', ARGV[9])
    k, a = k + 1, a + 4
  end
end`

// BenchmarkServer is what a pair of an acquire and a release costs a server where twelve of each come in one script, as from
// 64 callers: CPU of the server alone, whatever else the machine does. Below the bare ones no script of ours can be.
func BenchmarkServer(b *testing.B) {
	for _, row := range []struct {
		name    string
		script  func(runID string) string
		tracked bool
	}{
		{"script=batch/tracking=on", func(runID string) string { return SourcesFor(runID, true)[ScriptBatch] }, true},
		{"script=bare/tracking=on", func(string) string { return barePairs }, true},
		{"script=bare/tracking=off", func(string) string { return barePairs }, false},
	} {
		b.Run(row.name, func(b *testing.B) {
			s := startServer(b, row.tracked)
			digest, err := s.client.Do(context.Background(), s.client.B().ScriptLoad().Script(row.script(s.runID)).Build()).ToString()
			require.NoError(b, err)
			s.pairs(b, digest, 100) // warms up
			before := s.cpu(b)
			b.ResetTimer()
			s.pairs(b, digest, b.N)
			b.StopTimer()
			b.ReportMetric(float64((s.cpu(b)-before).Nanoseconds())/1e3/float64(b.N*pairsTogether), "server-µs/pair")
		})
	}
}

const pairsTogether = 12

type loadedServer struct {
	client        rueidis.Client
	runID, marker string
}

func startServer(b *testing.B, tracked bool) *loadedServer {
	option := redistest.Option(redistest.Start(b, redisproc.Options{}))
	option.DisableCache = !tracked
	if tracked {
		option.ClientTrackingOptions = []string{"NOLOOP"}
		option.OnInvalidations = func([]rueidis.RedisMessage) {}
	}
	client, err := rueidis.NewClient(option)
	require.NoError(b, err)
	b.Cleanup(client.Close)
	s := &loadedServer{client: client}
	s.runID = regexp.MustCompile(`run_id:(\w+)`).FindStringSubmatch(s.info(b))[1]
	s.marker = s.runID + ":0:0:" + marker{longest: 10 * time.Second, proven: 10 * time.Second, nodes: 1, set: "set"}.rest()
	require.NoError(b, client.Do(context.Background(), client.B().Set().Key("redlock:marker").Value(s.marker).Build()).Error())
	return s
}

func (s *loadedServer) info(b *testing.B) string {
	info, err := s.client.Do(context.Background(), s.client.B().Info().Build()).ToString()
	require.NoError(b, err)
	return info
}

func (s *loadedServer) cpu(b *testing.B) (spent time.Duration) {
	for _, m := range regexp.MustCompile(`used_cpu_(?:user|sys):([\d.]+)`).FindAllStringSubmatch(s.info(b), -1) {
		seconds, err := strconv.ParseFloat(m[1], 64)
		require.NoError(b, err)
		spent += time.Duration(seconds * 1e9)
	}
	return spent
}

// pairs sends n scripts, ten at a time. Each acquires one half of the names and releases the other.
func (s *loadedServer) pairs(b *testing.B, digest string, n int) {
	micros := func(t time.Time) string { return strconv.FormatInt(t.UnixMicro(), 10) }
	for sent := 0; sent < n; {
		var commands []rueidis.Completed
		for ; sent < n && len(commands) < 10; sent++ {
			now := time.Now()
			keys, args := []string{"redlock:marker"}, []string{s.marker, "0", "0", "10000", "500000", "redlock", "redlock:wake:", "1800", "10000", micros(now.Add(time.Minute))}
			for i := range pairsTogether {
				key := func(round int) string { return fmt.Sprintf("redlock:{lock-%d-%d}", round%2, i) }
				claim := func(round int) string { return fmt.Sprintf("%026d~worker:12345@host", round*pairsTogether+i) }
				keys = append(keys, key(sent))
				args = append(args, "acquire", claim(sent+1), micros(now), "redlock:fence:"+strconv.Itoa(i))
				args = append(args, "end", claim(sent), key(sent+1))
			}
			commands = append(commands, s.client.B().Arbitrary("EVALSHA").Args(digest, strconv.Itoa(len(keys))).Args(keys...).Args(args...).Build())
		}
		for _, r := range s.client.DoMulti(context.Background(), commands...) {
			if err := r.Error(); err != nil && !rueidis.IsRedisNil(err) {
				require.NoError(b, err)
			}
		}
	}
}
