package toxics_test

import (
	"context"
	"strings"
	"testing"
	"time"

	"github.com/redis/rueidis"
	"github.com/stretchr/testify/require"

	"github.com/redlock-go/redlock/integration/toxics"
	"github.com/redlock-go/redlock/internal/redisproc"
	"github.com/redlock-go/redlock/internal/redisproc/redistest"
)

const patience = 30 * time.Second

func TestProxyPerNode(t *testing.T) {
	nodes := redistest.StartSet(t, 3, redisproc.Options{TCP: true})
	proxies := toxics.Start(t, nodes[0].Addr(), nodes[1].Addr(), nodes[2].Addr())
	for i, p := range proxies {
		client := dial(t, p)
		require.NoError(t, do(client, patience, "SET", "here", p.Addr()))
		here, err := nodes[i].Do("GET", "here")
		require.NoError(t, err)
		require.Equal(t, p.Addr(), here)
	}
}

func TestLatency(t *testing.T) {
	p := start(t)
	client := dial(t, p)
	require.NoError(t, p.Add(toxics.ToNode, toxics.Latency(100*time.Millisecond, 20*time.Millisecond)))
	require.NoError(t, p.Add(toxics.ToClient, toxics.Latency(50*time.Millisecond, 0)))
	require.GreaterOrEqual(t, took(t, client, "PING"), 130*time.Millisecond)
}

// 20 kB at 100 kB/s.
func TestBandwidth(t *testing.T) {
	p := start(t)
	client := dial(t, p)
	require.NoError(t, p.Add(toxics.ToNode, toxics.Bandwidth(100)))
	require.GreaterOrEqual(t, took(t, client, "SET", "big", strings.Repeat("x", 20_000)), 150*time.Millisecond)
	p.Clear()
	require.NoError(t, do(client, patience, "STRLEN", "big"))
}

// An answer of 200 bytes in pieces of 10, a millisecond apart.
func TestSlice(t *testing.T) {
	p := start(t)
	client := dial(t, p)
	require.NoError(t, do(client, patience, "SET", "key", strings.Repeat("x", 200)))
	require.NoError(t, p.Add(toxics.ToClient, toxics.Slice(10, 0, time.Millisecond)))
	require.GreaterOrEqual(t, took(t, client, "GET", "key"), 10*time.Millisecond)
}

func TestResetPeer(t *testing.T) {
	p := start(t)
	client := dial(t, p)
	require.NoError(t, p.Add(toxics.ToClient, toxics.ResetPeer(0)))
	err := do(client, patience, "SET", "key", "value")
	require.Error(t, err)
	require.NotErrorIs(t, err, context.DeadlineExceeded, "a broken connection is heard of at once")
	p.Clear()
	requireAnswers(t, client)
	require.NoError(t, do(client, patience, "GET", "key"), "only the answer was lost")
}

// Answers vanish while requests arrive: the vote that is unknown.
func TestTimeout(t *testing.T) {
	p := start(t)
	client := dial(t, p)
	require.NoError(t, p.Add(toxics.ToClient, toxics.Timeout(0)))
	require.ErrorIs(t, do(client, 300*time.Millisecond, "SET", "key", "value"), context.DeadlineExceeded)
	p.Clear()
	requireAnswers(t, client)
	require.NoError(t, do(client, patience, "GET", "key"))
}

func TestDown(t *testing.T) {
	p := start(t)
	client := dial(t, p)
	addr := p.Addr()
	p.Down()
	require.Error(t, do(client, patience, "PING"))
	require.NoError(t, p.Up())
	require.Equal(t, addr, p.Addr())
	requireAnswers(t, client)
	require.Error(t, p.Up(), "it is up")
}

func TestOneToxicOfAKind(t *testing.T) {
	p := start(t)
	require.NoError(t, p.Add(toxics.ToNode, toxics.Latency(0, 0)))
	require.NoError(t, p.Add(toxics.ToClient, toxics.Latency(0, 0)))
	require.Error(t, p.Add(toxics.ToNode, toxics.Latency(0, 0)))
}

func start(t *testing.T) *toxics.Proxy {
	t.Helper()
	t.Parallel()
	return toxics.Start(t, redistest.Start(t, redisproc.Options{TCP: true}).Addr())[0]
}

func dial(t *testing.T, p *toxics.Proxy) rueidis.Client {
	t.Helper()
	client, err := rueidis.NewClient(rueidis.ClientOption{
		InitAddress:       []string{p.Addr()},
		ForceSingleClient: true,
		DisableRetry:      true,
		DisableCache:      true,
		PipelineMultiplex: -1,
	})
	require.NoError(t, err)
	t.Cleanup(client.Close)
	return client
}

func do(client rueidis.Client, within time.Duration, command ...string) error {
	ctx, cancel := context.WithTimeout(context.Background(), within)
	defer cancel()
	return client.Do(ctx, client.B().Arbitrary(command...).Build()).Error()
}

func took(t *testing.T, client rueidis.Client, command ...string) time.Duration {
	t.Helper()
	sent := time.Now()
	require.NoError(t, do(client, patience, command...))
	return time.Since(sent)
}

func requireAnswers(t *testing.T, client rueidis.Client) {
	t.Helper()
	require.Eventually(t, func() bool { return do(client, time.Second, "PING") == nil }, patience, 10*time.Millisecond)
}
