package netproxy_test

import (
	"context"
	"math/rand/v2"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/redis/rueidis"
	"github.com/stretchr/testify/require"

	"github.com/redlock-go/redlock/internal/netproxy"
	"github.com/redlock-go/redlock/internal/redisproc"
	"github.com/redlock-go/redlock/internal/redisproc/redistest"
)

func TestProxyPerNode(t *testing.T) {
	for _, node := range redistest.StartSet(t, 3, redisproc.Options{TCP: true}) {
		proxy := netproxy.New(node.Network(), node.Addr())
		t.Cleanup(proxy.Close)
		link := listen(t, proxy)
		require.NoError(t, try(open(t, link), longEnough, "SET", "here", link.Addr()))
		require.Equal(t, link.Addr(), get(t, node, "here"))
	}
}

func TestDelayWithJitter(t *testing.T) {
	_, proxy := proxied(t)
	link := listen(t, proxy)
	rc := open(t, link)
	const jitter = 20 * time.Millisecond
	link.Delay(netproxy.Requests, 100*time.Millisecond, func() time.Duration { return rand.N(2*jitter) - jitter })
	link.Delay(netproxy.Replies, 50*time.Millisecond, nil)
	require.GreaterOrEqual(t, took(t, rc, "PING"), 130*time.Millisecond)
}

// 20 kB at 100 kB/s.
func TestBandwidth(t *testing.T) {
	node, proxy := proxied(t)
	link := listen(t, proxy)
	rc := open(t, link)
	link.Bandwidth(netproxy.Requests, 100_000)
	require.GreaterOrEqual(t, took(t, rc, "SET", "big", strings.Repeat("x", 20_000)), 150*time.Millisecond)
	require.Equal(t, strings.Repeat("x", 20_000), get(t, node, "big"))
	link.Clear()
	require.NoError(t, try(rc, longEnough, "STRLEN", "big"))
}

// An answer of 200 bytes in pieces of 10, a millisecond apart.
func TestSlice(t *testing.T) {
	_, proxy := proxied(t)
	link := listen(t, proxy)
	rc := open(t, link)
	require.NoError(t, try(rc, longEnough, "SET", "key", strings.Repeat("x", 200)))
	link.Slice(netproxy.Replies, 10, 10, time.Millisecond)
	require.GreaterOrEqual(t, took(t, rc, "GET", "key"), 10*time.Millisecond)
	link.Slice(netproxy.Replies, 0, 0, 0)
	require.NoError(t, try(rc, longEnough, "GET", "key"))
	require.Panics(t, func() { link.Slice(netproxy.Replies, 0, 10, 0) })
	require.Panics(t, func() { link.Slice(netproxy.Replies, 10, 9, 0) })
}

// What is read together was not sent together: the pieces are no longer than they are said to be, and nothing is lost.
func TestSlicesHaveTheirSizes(t *testing.T) {
	_, proxy := proxied(t)
	link := listen(t, proxy)
	c := dial(t, link)
	c.send("SET key " + strings.Repeat("x", 10))
	c.want("+OK")
	link.Slice(netproxy.Replies, 3, 7, 500*time.Millisecond)
	c.send("GET key")
	require.NoError(t, c.conn.SetReadDeadline(time.Now().Add(longEnough)))
	whole := 0
	for n, b := 0, make([]byte, 200); whole < len("$10\r\n")+10+len("\r\n"); whole += n {
		var err error
		n, err = c.conn.Read(b)
		require.NoError(t, err)
		if whole == 0 { // later ones may have met where this machine is slow
			require.GreaterOrEqual(t, n, 3)
			require.LessOrEqual(t, n, 7)
		}
	}
	require.Equal(t, len("$10\r\n")+10+len("\r\n"), whole)
}

func TestResetAfter(t *testing.T) {
	node, proxy := proxied(t)
	link := listen(t, proxy)
	rc := open(t, link)
	link.ResetAfter(netproxy.Replies, 0)
	err := try(rc, longEnough, "SET", "key", "value")
	require.Error(t, err)
	require.NotErrorIs(t, err, context.DeadlineExceeded, "a broken connection is heard of at once")
	link.Clear()
	requireAnswers(t, rc)
	require.NoError(t, try(rc, longEnough, "GET", "key"), "only the answer was lost")
	require.Equal(t, "value", get(t, node, "key"))
}

func TestResetAfterAWhileWhateverComesBetween(t *testing.T) {
	node, proxy := proxied(t)
	link := listen(t, proxy)
	c, idle := dial(t, link), dial(t, link)
	for _, c := range []*client{c, idle} {
		c.send("SET key 1")
		c.want("+OK")
	}
	link.ResetAfter(netproxy.Requests, 2*silence)
	start := time.Now()
	c.send("SET key 2")
	c.wantSilence()
	link.Silence(netproxy.Both)
	link.Clear()
	_, err := c.line(longEnough)
	require.ErrorIs(t, err, syscall.ECONNRESET)
	require.GreaterOrEqual(t, time.Since(start), 2*silence)
	require.Equal(t, "1", get(t, node, "key"))
	idle.send("PING")
	idle.want("+PONG")
}

// Answers vanish while requests arrive: the vote that is unknown.
func TestSilentRepliesThatAreLost(t *testing.T) {
	_, proxy := proxied(t)
	link := listen(t, proxy)
	rc := open(t, link)
	link.Silence(netproxy.Replies)
	require.ErrorIs(t, try(rc, 300*time.Millisecond, "SET", "key", "value"), context.DeadlineExceeded)
	link.HealLosing(netproxy.Replies)
	requireAnswers(t, rc)
	require.NoError(t, try(rc, longEnough, "GET", "key"))
}

func TestRefusedAndCut(t *testing.T) {
	_, proxy := proxied(t)
	link := listen(t, proxy)
	rc := open(t, link)
	addr := link.Addr()
	link.Refuse()
	link.Cut()
	require.Error(t, try(rc, longEnough, "PING"))
	require.NoError(t, link.Accept())
	require.Equal(t, addr, link.Addr())
	requireAnswers(t, rc)
}

func TestOneFaultOfAKindInADirection(t *testing.T) {
	_, proxy := proxied(t)
	link := listen(t, proxy)
	c := dial(t, link)
	link.Delay(netproxy.Requests, time.Hour, nil)
	link.Delay(netproxy.Replies, 50*time.Millisecond, nil)
	link.Delay(netproxy.Requests, 0, nil) // in place of the hour
	start := time.Now()
	c.send("PING")
	c.want("+PONG")
	require.GreaterOrEqual(t, time.Since(start), 50*time.Millisecond, "the other direction's is its own")
}

func TestFaultsOfDifferentKindsAddUp(t *testing.T) {
	_, proxy := proxied(t)
	link := listen(t, proxy)
	c := dial(t, link)
	proxy.Bandwidth(netproxy.Replies, 1_000)
	proxy.Slice(netproxy.Replies, 1, 1, 0)
	link.Delay(netproxy.Replies, 100*time.Millisecond, nil)
	start := time.Now()
	c.send("ECHO " + strings.Repeat("x", 92)) // 100 bytes with what frames it
	c.want("$92")
	c.want(strings.Repeat("x", 92))
	require.GreaterOrEqual(t, time.Since(start), 190*time.Millisecond)
	proxy.ResetAfter(netproxy.Replies, 0)
	c.send("PING")
	_, err := c.line(longEnough)
	require.ErrorIs(t, err, syscall.ECONNRESET)
}

func open(t *testing.T, link *netproxy.Link) rueidis.Client {
	t.Helper()
	rc, err := rueidis.NewClient(rueidis.ClientOption{
		InitAddress:       []string{link.Addr()},
		ForceSingleClient: true,
		DisableRetry:      true,
		DisableCache:      true,
		PipelineMultiplex: -1,
	})
	require.NoError(t, err)
	t.Cleanup(rc.Close)
	return rc
}

func try(rc rueidis.Client, within time.Duration, command ...string) error {
	ctx, cancel := context.WithTimeout(context.Background(), within)
	defer cancel()
	return rc.Do(ctx, rc.B().Arbitrary(command...).Build()).Error()
}

func took(t *testing.T, rc rueidis.Client, command ...string) time.Duration {
	t.Helper()
	sent := time.Now()
	require.NoError(t, try(rc, longEnough, command...))
	return time.Since(sent)
}

func requireAnswers(t *testing.T, rc rueidis.Client) {
	t.Helper()
	require.Eventually(t, func() bool { return try(rc, time.Second, "PING") == nil }, longEnough, 10*time.Millisecond)
}
