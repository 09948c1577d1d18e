package redlocktest_test

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"net"
	"regexp"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/redis/rueidis"
	"github.com/stretchr/testify/require"

	"github.com/redlock-go/redlock/internal/redisproc"
	"github.com/redlock-go/redlock/internal/redisproc/redistest"
	"github.com/redlock-go/redlock/redlocktest"
)

// server is what a rule runs against: a simulated node or a redis-server process.
type server struct {
	option         rueidis.ClientOption
	version, texts string // redis_version of INFO; whose error texts it has: "redis" or "valkey"
}

// servers returns a simulated node and a real one, each used by one rule at a time. The real one has to be installed,
// or named by REDLOCK_REDIS_SERVER: a simulator that nobody compares with the real thing may lie.
func servers(t *testing.T) map[string]server {
	cluster := redlocktest.NewCluster(t, 1)
	return map[string]server{
		"simulated": asked(t, cluster.Client("client").Link(0).Option()),
		"redis":     asked(t, redistest.Option(redistest.Start(t, redisproc.Options{}))),
	}
}

// asked returns a server that has told its version.
func asked(t *testing.T, option rueidis.ClientOption) server {
	t.Helper()
	s := server{option: option, texts: "redis"}
	c := s.connect(t)
	defer c.close()
	info := c.do("INFO", "server")
	s.version = regexp.MustCompile(`redis_version:(\S+)`).FindStringSubmatch(info)[1]
	if strings.Contains(info, "valkey_version:") {
		s.texts = "valkey" // whose redis_version is that of the Redis it has come from
	}
	return s
}

// atLeast reports whether the server is of that version or a later one. The rules are those of 7.2, as the simulated
// node's are; what an older version lacks or a newer one does otherwise is left out there, or said beside it.
func (s server) atLeast(t *testing.T, major, minor int) bool {
	t.Helper()
	var isMajor, isMinor int
	_, err := fmt.Sscanf(s.version, "%d.%d", &isMajor, &isMinor)
	require.NoError(t, err, s.version)
	return isMajor > major || isMajor == major && isMinor >= minor
}

// text is an error text of Redis as this server writes it.
func (s server) text(redis string) string {
	if s.texts == "valkey" {
		return valkeyTexts.Replace(redis)
	}
	return redis
}

var valkeyTexts = strings.NewReplacer(
	" Please use EVAL.", "",
	"Unknown Redis command called", "Unknown command called",
	"args calling Redis command", "args calling command",
	"for this redis lib call", "for this call",
	"Lua redis lib command arguments", "Command arguments",
)

// clear empties the server between rules.
func (s server) clear(t *testing.T) {
	c := s.connect(t, "OPTOUT")
	c.want(t, "OK", "FLUSHALL")
	c.want(t, "OK", "SCRIPT", "FLUSH")
	c.close()
}

// connection is a rueidis client with one connection, as the library uses it, and the pushes it got.
type connection struct {
	rueidis.Client
	mu     sync.Mutex
	pushes []string
	close  func()
}

// connect makes a connection with CLIENT TRACKING ON and the given options.
func (s server) connect(t *testing.T, tracking ...string) *connection {
	t.Helper()
	c := &connection{}
	o := s.option
	o.ForceSingleClient, o.PipelineMultiplex, o.DisableRetry = true, -1, true
	o.ClientTrackingOptions = tracking
	o.OnInvalidations = c.invalidated
	client, err := rueidis.NewClient(o)
	require.NoError(t, err)
	c.Client = client
	c.close = sync.OnceFunc(client.Close)
	t.Cleanup(c.close)
	return c
}

// track makes a connection as the library's.
func (s server) track(t *testing.T) *connection { return s.connect(t, "OPTOUT", "NOLOOP") }

func (c *connection) invalidated(keys []rueidis.RedisMessage) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if keys == nil {
		c.pushes = append(c.pushes, "everything")
		return
	}
	for _, key := range keys {
		name, _ := key.ToString()
		c.pushes = append(c.pushes, name)
	}
}

// do runs a command and shows its reply: (error) …, (nil), a number, a text, [a list]. rueidis takes "ERR " off an
// error: raw shows it.
func (c *connection) do(args ...string) string {
	return show(c.Do(context.Background(), c.B().Arbitrary(args...).Build()).ToMessage())
}

func (c *connection) want(t *testing.T, want string, args ...string) {
	t.Helper()
	require.Equal(t, want, c.do(args...), "%q", args)
}

// eval runs a script on keys named k, as many as the script declares.
func (c *connection) eval(script string, keys []string, args ...string) string {
	cmd := append([]string{"EVAL", script, strconv.Itoa(len(keys))}, keys...)
	return c.do(append(cmd, args...)...)
}

// pushed returns the pushes that came since the last call. The PING behind them on the same connection proves that no
// more are under way, given that what causes them has been answered.
func (c *connection) pushed(t *testing.T) []string {
	t.Helper()
	c.want(t, "PONG", "PING")
	c.mu.Lock()
	defer c.mu.Unlock()
	got := c.pushes
	c.pushes = nil
	return got
}

// soon is far above what anything takes on a busy machine.
const soon = 10 * time.Second

// waitPush waits until something was pushed.
func (c *connection) waitPush(t *testing.T, atMost time.Duration) []string {
	t.Helper()
	for end := time.Now().Add(atMost); time.Now().Before(end); time.Sleep(time.Millisecond) {
		if got := c.pushed(t); got != nil {
			return got
		}
	}
	return nil
}

func show(m rueidis.RedisMessage, err error) string {
	if rueidis.IsRedisNil(err) {
		return "(nil)"
	}
	if e, ok := rueidis.IsRedisErr(err); ok {
		return "(error) " + e.Error()
	}
	if err != nil {
		return "(failed) " + err.Error()
	}
	switch {
	case m.IsNil():
		return "(nil)"
	case m.Error() != nil:
		return "(error) " + m.Error().Error()
	case m.IsInt64():
		n, _ := m.ToInt64()
		return strconv.FormatInt(n, 10)
	case m.IsFloat64():
		f, _ := m.ToFloat64()
		return strconv.FormatFloat(f, 'g', -1, 64)
	case m.IsBool():
		b, _ := m.ToBool()
		return strconv.FormatBool(b)
	case m.IsMap():
		list, _ := m.ToMap()
		var parts []string
		for key, value := range list {
			parts = append(parts, key+":"+show(value, nil))
		}
		if len(parts) > 1 {
			return fmt.Sprintf("{%d}", len(parts)) // a Go map has no order: look at it with raw
		}
		return "{" + strings.Join(parts, " ") + "}"
	case m.IsArray():
		list, _ := m.ToArray()
		parts := make([]string, len(list))
		for i, e := range list {
			parts[i] = show(e, nil)
		}
		return "[" + strings.Join(parts, " ") + "]"
	}
	s, _ := m.ToString()
	return strings.TrimPrefix(s, "txt:") // rueidis leaves the type of a verbatim string in
}

// raw is a connection without a client: what comes is seen in its order and its encoding.
type raw struct {
	conn net.Conn
	r    *bufio.Reader
}

func (s server) raw(t *testing.T, proto string) *raw {
	t.Helper()
	conn, err := s.option.DialCtxFn(context.Background(), s.option.InitAddress[0], &net.Dialer{}, nil)
	require.NoError(t, err)
	t.Cleanup(func() { _ = conn.Close() })
	require.NoError(t, conn.SetDeadline(time.Now().Add(10*time.Second)))
	r := &raw{conn: conn, r: bufio.NewReader(conn)}
	r.send(t, "HELLO", proto)
	r.read(t)
	return r
}

func (r *raw) send(t *testing.T, args ...string) {
	t.Helper()
	b := fmt.Appendf(nil, "*%d\r\n", len(args))
	for _, arg := range args {
		b = fmt.Appendf(b, "$%d\r\n%s\r\n", len(arg), arg)
	}
	_, err := r.conn.Write(b)
	require.NoError(t, err)
}

// read returns the next value as it came, with line ends shown as spaces.
func (r *raw) read(t *testing.T) string {
	t.Helper()
	line, err := r.r.ReadString('\n')
	require.NoError(t, err)
	line = strings.TrimSuffix(line, "\r\n")
	n, _ := strconv.Atoi(line[1:])
	switch line[0] {
	case '$', '=':
		if n < 0 {
			return line
		}
		text := make([]byte, n+2)
		_, err := io.ReadFull(r.r, text)
		require.NoError(t, err)
		return line + " " + string(text[:n])
	case '%':
		n *= 2
	case '*', '~', '>':
	default:
		return line
	}
	for range n {
		line += " " + r.read(t)
	}
	return line
}

func (r *raw) want(t *testing.T, want string, args ...string) {
	t.Helper()
	r.send(t, args...)
	require.Equal(t, want, r.read(t), "%q", args)
}
