package netproxy_test

import (
	"bufio"
	"fmt"
	"io"
	"net"
	"os"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/redis/rueidis"
	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"

	"github.com/redlock-go/redlock/internal/netproxy"
	"github.com/redlock-go/redlock/internal/redisproc"
	"github.com/redlock-go/redlock/internal/redisproc/redistest"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

const (
	longEnough = 20 * time.Second       // for what must come
	silence    = 150 * time.Millisecond // for what must not
)

// proxied is a real server behind a proxy that ends with the test.
func proxied(t *testing.T) (*redisproc.Node, *netproxy.Proxy) {
	t.Helper()
	node := redistest.Start(t, redisproc.Options{})
	proxy := netproxy.New(node.Network(), node.Addr())
	t.Cleanup(proxy.Close)
	return node, proxy
}

func listen(t *testing.T, proxy *netproxy.Proxy) *netproxy.Link {
	t.Helper()
	link, err := proxy.Listen()
	require.NoError(t, err)
	return link
}

// client speaks inline commands and reads lines: what is on the wire and when, without a library's retries and
// reconnections.
type client struct {
	t    *testing.T
	conn net.Conn
	r    *bufio.Reader
}

func dial(t *testing.T, link *netproxy.Link) *client {
	t.Helper()
	conn, err := net.Dial("tcp", link.Addr())
	require.NoError(t, err)
	t.Cleanup(func() { _ = conn.Close() })
	return &client{t, conn, bufio.NewReader(conn)}
}

func (c *client) send(command string) {
	c.t.Helper()
	_, err := io.WriteString(c.conn, command+"\r\n")
	require.NoError(c.t, err)
}

func (c *client) line(within time.Duration) (string, error) {
	err := c.conn.SetReadDeadline(time.Now().Add(within))
	require.NoError(c.t, err)
	line, err := c.r.ReadString('\n')
	return strings.TrimSuffix(line, "\r\n"), err
}

func (c *client) want(line string) {
	c.t.Helper()
	got, err := c.line(longEnough)
	require.NoError(c.t, err)
	require.Equal(c.t, line, got)
}

func (c *client) wantSilence() {
	c.t.Helper()
	got, err := c.line(silence)
	require.ErrorIs(c.t, err, errTimeout, "got %q", got)
	require.Empty(c.t, got)
}

func get(t *testing.T, node *redisproc.Node, key string) string {
	t.Helper()
	value, err := node.Do("GET", key)
	require.NoError(t, err)
	return value
}

func eventuallyGet(t *testing.T, node *redisproc.Node, key, want string) {
	t.Helper()
	require.Eventually(t, func() bool { return get(t, node, key) == want }, longEnough, time.Millisecond)
}

func TestWellIsTheNode(t *testing.T) {
	node, proxy := proxied(t)
	link := listen(t, proxy)
	rc, err := rueidis.NewClient(rueidis.ClientOption{InitAddress: []string{link.Addr()}, ForceSingleClient: true})
	require.NoError(t, err)
	big := strings.Repeat("x", 3<<20) // more than any buffer on the way
	require.NoError(t, rc.Do(t.Context(), rc.B().Set().Key("big").Value(big).Build()).Error())
	got, err := rc.Do(t.Context(), rc.B().Get().Key("big").Build()).ToString()
	require.NoError(t, err)
	require.True(t, got == big)
	require.Equal(t, big, get(t, node, "big"))
	rc.Close()
	require.Eventually(t, func() bool { return link.Conns() == 0 }, longEnough, time.Millisecond, "the client's close reaches the end")
}

func TestSilenceRepliesLetsRequestsThroughAndHeals(t *testing.T) {
	node, proxy := proxied(t)
	link := listen(t, proxy)
	c := dial(t, link)
	c.send("SET k 1")
	c.want("+OK")

	link.Silence(netproxy.Replies)
	c.send("INCR k")
	c.send("INCR k")
	eventuallyGet(t, node, "k", "3")
	c.wantSilence()

	link.Heal(netproxy.Replies)
	c.want(":2")
	c.want(":3")
	c.send("INCR k")
	c.want(":4")
}

func TestSilenceRequestsKeepsThemFromTheNodeAndHeals(t *testing.T) {
	node, proxy := proxied(t)
	link := listen(t, proxy)
	c := dial(t, link)
	link.Silence(netproxy.Requests)
	for i := range 100 {
		c.send(fmt.Sprintf("RPUSH order %d", i))
	}
	c.wantSilence()
	n, err := node.Do("EXISTS", "order")
	require.NoError(t, err)
	require.Equal(t, "0", n)

	link.Heal(netproxy.Both)
	for i := range 100 {
		c.want(fmt.Sprintf(":%d", i+1))
	}
	var want []string
	for i := range 100 {
		want = append(want, fmt.Sprint(i))
	}
	order, err := node.Do("LRANGE", "order", "0", "-1")
	require.NoError(t, err)
	require.Equal(t, strings.Join(want, "\n"), order)
}

func TestSilenceHidesTheDeathOfTheNode(t *testing.T) {
	node, proxy := proxied(t)
	link := listen(t, proxy)
	c := dial(t, link)
	c.send("PING")
	c.want("+PONG")
	link.Silence(netproxy.Replies)
	require.NoError(t, node.Kill())
	c.wantSilence()
	late := dial(t, link) // a connection that the dead node cannot take
	late.wantSilence()
	link.Heal(netproxy.Replies)
	_, err := c.line(longEnough)
	requireEnded(t, err)
	_, err = late.line(longEnough)
	require.ErrorIs(t, err, syscall.ECONNRESET)
}

func TestSilenceMakesTheSenderWaitInTheEnd(t *testing.T) {
	_, proxy := proxied(t)
	link := listen(t, proxy)
	c := dial(t, link)
	link.Silence(netproxy.Requests)
	require.NoError(t, c.conn.SetWriteDeadline(time.Now().Add(longEnough)))
	var sent int
	ping := []byte(strings.Repeat("PING\r\n", 10_000))
	for sent < 1<<30 {
		require.NoError(t, c.conn.SetWriteDeadline(time.Now().Add(time.Second)))
		n, err := c.conn.Write(ping)
		sent += n
		if err != nil {
			require.ErrorIs(t, err, errTimeout)
			break
		}
	}
	require.Less(t, sent, 1<<30, "a silent link took everything")

	link.Heal(netproxy.Requests)
	require.NoError(t, c.conn.SetReadDeadline(time.Now().Add(longEnough)))
	answers, err := io.ReadAll(io.LimitReader(c.r, int64(sent/len("PING\r\n")*len("+PONG\r\n"))))
	require.NoError(t, err)
	require.Equal(t, sent/len("PING\r\n"), strings.Count(string(answers), "+PONG\r\n"), "nothing was lost")
}

func TestHealLosingLosesWhatWasKeptAndTheConnection(t *testing.T) {
	node, proxy := proxied(t)
	link := listen(t, proxy)
	c, idle := dial(t, link), dial(t, link)
	for _, c := range []*client{c, idle} {
		c.send("SET k 1")
		c.want("+OK")
	}

	link.Silence(netproxy.Requests)
	c.send("SET k 2")
	c.wantSilence()
	link.HealLosing(netproxy.Requests)
	_, err := c.line(longEnough)
	requireEnded(t, err)
	require.Equal(t, "1", get(t, node, "k"), "gone for good")
	idle.send("INCR k") // it has lost nothing
	idle.want(":2")

	c = dial(t, link)
	link.Silence(netproxy.Both)
	c.send("SET k 3")
	c.wantSilence()
	link.HealLosing(netproxy.Replies)
	c.wantSilence()
	link.Heal(netproxy.Requests)
	c.want("+OK") // no reply was there to be lost, and the request was not the replies' to lose

	link.Silence(netproxy.Replies)
	c.send("SET k 4")
	eventuallyGet(t, node, "k", "4")
	c.wantSilence()
	link.HealLosing(netproxy.Replies)
	_, err = c.line(longEnough)
	requireEnded(t, err)
	require.Equal(t, "4", get(t, node, "k"), "only the answer was lost")
}

func TestSilenceKeepsTheEnd(t *testing.T) {
	node, proxy := proxied(t)
	for _, heal := range []func(*netproxy.Link, netproxy.Direction){(*netproxy.Link).Heal, (*netproxy.Link).HealLosing} {
		link := listen(t, proxy)
		c := dial(t, link)
		c.send("SET k 1")
		c.want("+OK")
		link.Silence(netproxy.Requests)
		require.NoError(t, c.conn.Close())
		time.Sleep(silence)
		require.Equal(t, 1, link.Conns(), "the client's end is not known to the node yet")
		heal(link, netproxy.Requests)
		require.Eventually(t, func() bool { return link.Conns() == 0 }, longEnough, time.Millisecond)
	}
	require.Equal(t, "1", get(t, node, "k"))
}

func TestDelayIsPerDirectionAndKeepsOrder(t *testing.T) {
	_, proxy := proxied(t)
	link := listen(t, proxy)
	c := dial(t, link)
	const fixed = 100 * time.Millisecond
	for _, d := range []netproxy.Direction{netproxy.Requests, netproxy.Replies} {
		link.Delay(d, fixed, nil)
		start := time.Now()
		c.send("PING")
		c.want("+PONG")
		require.GreaterOrEqual(t, time.Since(start), fixed)
		link.Clear()
	}

	// The first piece gets the longest delay, and the others wait behind it.
	jitter := []time.Duration{200 * time.Millisecond, 0, -time.Hour}
	link.Delay(netproxy.Requests, fixed, func() time.Duration {
		j := jitter[0]
		jitter = append(jitter[1:], 0)
		return j
	})
	start := time.Now()
	for i := range 3 {
		c.send(fmt.Sprintf("ECHO %d", i))
		time.Sleep(5 * time.Millisecond) // pieces of their own
	}
	for i := range 3 {
		c.want("$1")
		c.want(fmt.Sprint(i))
	}
	require.GreaterOrEqual(t, time.Since(start), 300*time.Millisecond)
}

func TestResetIsAReset(t *testing.T) {
	_, proxy := proxied(t)
	link := listen(t, proxy)
	c := dial(t, link)
	c.send("PING")
	c.want("+PONG")
	link.Silence(netproxy.Both)
	link.Reset()
	_, err := c.line(longEnough)
	require.ErrorIs(t, err, syscall.ECONNRESET)

	link.Heal(netproxy.Both)
	c = dial(t, link)
	c.send("PING")
	c.want("+PONG")
}

func TestCutIsAnEndOnBothSides(t *testing.T) {
	node, proxy := proxied(t)
	link := listen(t, proxy)
	c := dial(t, link)
	c.send("CLIENT SETNAME cut-me")
	c.want("+OK")
	link.Cut()
	_, err := c.line(longEnough)
	require.ErrorIs(t, err, io.EOF)
	require.Eventually(t, func() bool {
		list, err := node.Do("CLIENT", "LIST")
		require.NoError(t, err)
		return !strings.Contains(list, "cut-me")
	}, longEnough, time.Millisecond)
	require.Eventually(t, func() bool { return link.Conns() == 0 }, longEnough, time.Millisecond)
}

func TestRefuseAndAccept(t *testing.T) {
	_, proxy := proxied(t)
	link := listen(t, proxy)
	addr := link.Addr()
	there := dial(t, link)
	there.send("PING")
	there.want("+PONG")

	link.Refuse()
	link.Refuse()
	_, err := net.Dial("tcp", addr)
	require.ErrorIs(t, err, syscall.ECONNREFUSED)
	there.send("PING")
	there.want("+PONG")

	require.NoError(t, link.Accept())
	require.NoError(t, link.Accept())
	require.Equal(t, addr, link.Addr())
	c := dial(t, link)
	c.send("PING")
	c.want("+PONG")
}

func TestDeadNodeResetsAndComesBack(t *testing.T) {
	node, proxy := proxied(t)
	link := listen(t, proxy)
	c := dial(t, link)
	c.send("PING")
	c.want("+PONG")
	require.NoError(t, node.Kill())
	_, err := c.line(longEnough)
	requireEnded(t, err)
	conn, err := net.Dial("tcp", link.Addr()) // the reset may come within the dial
	if err == nil {
		defer conn.Close()
		require.NoError(t, conn.SetReadDeadline(time.Now().Add(longEnough)))
		_, err = conn.Read(make([]byte, 1))
	}
	require.ErrorIs(t, err, syscall.ECONNRESET)

	require.NoError(t, node.CrashEmpty())
	c = dial(t, link)
	c.send("PING")
	c.want("+PONG")
}

func TestFaultsOfOneClientAndOfAll(t *testing.T) {
	_, proxy := proxied(t)
	a, b := listen(t, proxy), listen(t, proxy)
	ca, cb := dial(t, a), dial(t, b)
	ping := func(c *client) { c.send("PING"); c.want("+PONG") }
	ping(ca)
	ping(cb)

	a.Silence(netproxy.Both)
	ca.send("PING")
	ca.wantSilence()
	ping(cb)

	proxy.Silence(netproxy.Requests)
	cb.send("PING")
	cb.wantSilence()
	c := listen(t, proxy)
	cc := dial(t, c) // a later link has the fault as well
	cc.send("PING")
	cc.wantSilence()

	proxy.Heal(netproxy.Both)
	for _, client := range []*client{ca, cb, cc} {
		client.want("+PONG")
	}

	proxy.Delay(netproxy.Replies, 50*time.Millisecond, nil)
	start := time.Now()
	ping(ca)
	require.GreaterOrEqual(t, time.Since(start), 50*time.Millisecond)
	proxy.Silence(netproxy.Requests)
	ca.send("PING")
	ca.wantSilence()
	proxy.HealLosing(netproxy.Requests)
	_, err := ca.line(longEnough)
	requireEnded(t, err)
	ca = dial(t, a)
	start = time.Now()
	ping(ca)
	require.GreaterOrEqual(t, time.Since(start), 50*time.Millisecond, "a silence takes nothing else back")
	proxy.Clear()

	proxy.Refuse()
	for _, l := range []*netproxy.Link{a, b, c} {
		_, err := net.Dial("tcp", l.Addr())
		require.ErrorIs(t, err, syscall.ECONNREFUSED)
	}
	require.NoError(t, proxy.Accept())
	ping(dial(t, b))

	a.Cut()
	_, err = ca.line(longEnough)
	require.ErrorIs(t, err, io.EOF)
	ping(cb)
	proxy.Reset()
	_, err = cb.line(longEnough)
	require.ErrorIs(t, err, syscall.ECONNRESET)
	ping(dial(t, a))
	proxy.Cut()
}

func TestSetTargetMovesNewConnections(t *testing.T) {
	one, proxy := proxied(t)
	two := redistest.Start(t, redisproc.Options{TCP: true})
	a, b := listen(t, proxy), listen(t, proxy)
	old := dial(t, b)
	old.send("SET here 0")
	old.want("+OK")

	b.SetTarget(two.Network(), two.Addr())
	for link, value := range map[*netproxy.Link]string{a: "1", b: "2"} {
		c := dial(t, link)
		c.send("SET here " + value)
		c.want("+OK")
	}
	require.Equal(t, "1", get(t, one, "here"))
	require.Equal(t, "2", get(t, two, "here"))
	old.send("SET old 1")
	old.want("+OK")
	require.Equal(t, "1", get(t, one, "old"))

	proxy.SetTarget(two.Network(), two.Addr())
	for _, link := range []*netproxy.Link{a, listen(t, proxy)} {
		c := dial(t, link)
		c.send("INCR here")
		_, err := c.line(longEnough)
		require.NoError(t, err)
	}
	require.Equal(t, "4", get(t, two, "here"))
}

func TestCloseLeavesNothingWhateverIsGoingOn(t *testing.T) {
	node := redistest.Start(t, redisproc.Options{})
	before := goleak.IgnoreCurrent()
	proxy := netproxy.New(node.Network(), node.Addr())
	held, delayed, refused := listen(t, proxy), listen(t, proxy), listen(t, proxy)
	require.NoError(t, node.Freeze()) // replies will not come
	held.Silence(netproxy.Both)
	delayed.Delay(netproxy.Both, time.Hour, nil)
	refused.Refuse()
	for _, link := range []*netproxy.Link{held, delayed} {
		for range 5 {
			dial(t, link).send("PING")
		}
	}
	require.Error(t, goleak.Find(before), "a busy proxy has goroutines")
	proxy.Close()
	for _, link := range []*netproxy.Link{held, delayed, refused} {
		require.Equal(t, 0, link.Conns(), "Close waits")
	}
	proxy.Close()
	require.NoError(t, goleak.Find(before))
	for _, link := range []*netproxy.Link{held, delayed, refused} {
		require.ErrorIs(t, link.Accept(), netproxy.ErrClosed)
	}
	_, err := proxy.Listen()
	require.ErrorIs(t, err, netproxy.ErrClosed)
	require.NoError(t, node.Thaw())
}

// requireEnded takes an end or a reset: which of them a killed server's kernel sends depends on what it had read.
func requireEnded(t *testing.T, err error) {
	t.Helper()
	require.Error(t, err)
	require.NotErrorIs(t, err, errTimeout)
}

var errTimeout = os.ErrDeadlineExceeded
