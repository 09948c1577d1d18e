package redlocktest_test

import (
	"fmt"
	"regexp"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// rules are what a node must do, as Redis does. A rule is one function in this list; it finds an empty server. Where
// versions of Redis differ in what the library builds on (a script tracks declared keys up to 7.0 and read keys from
// 7.2 on) the rules keep to what all do: the lock is declared in KEYS and read last. Where they differ otherwise a rule
// says from which version on.
var rules = []struct {
	name string
	run  func(t *testing.T, s server)
}{
	{"tracking/a write by another pushes once", trackingOnce},
	{"tracking/what writes and what does not", trackingWrites},
	{"tracking/own write untracks in silence", trackingOwnWrite},
	{"tracking/own script ends with a read", trackingOwnScript},
	{"tracking/another's script", trackingOtherScript},
	{"tracking/reads that track", trackingReads},
	{"tracking/expiry", trackingExpiry},
	{"tracking/flush of any database is everything", trackingFlush},
	{"tracking/SWAPDB says nothing", trackingSwap},
	{"tracking/names know no database", trackingDatabases},
	{"tracking/own push comes behind the reply", trackingOrder},
	{"tracking/BCAST", trackingBroadcast},
	{"tracking/OPTIN", trackingOptin},
	{"tracking/options that do not go together", trackingOptions},
	{"tracking/a new connection tracks nothing", trackingReconnect},
	{"tracking/MULTI", trackingMulti},
	{"expiry/PTTL, PEXPIRE, PERSIST", expiryCommands},
	{"expiry/a key lives to the end of its lease", expiryLife},
	{"expiry/a time in the past", expiryPast},
	{"strings/SET options", setOptions},
	{"strings/INCR", increments},
	{"keys", keyCommands},
	{"keys/SCAN", scanning},
	{"databases", databasesRule},
	{"errors", errorReplies},
	{"sorted sets", sortedSets},
	{"encoding", encoding},
	{"INFO and TIME", infoAndTime},
	{"CLIENT", clientCommands},
	{"scripts/loaded and not", scriptCache},
	{"scripts/numbers", scriptNumbers},
	{"scripts/replies", scriptReplies},
	{"scripts/errors", scriptErrors},
	{"scripts/calls", scriptCalls},
	{"scripts/library", scriptLibrary},
	{"scripts/full memory", scriptFullMemory},
}

func TestConformance(t *testing.T) {
	for name, s := range servers(t) {
		t.Run(name, func(t *testing.T) {
			for _, rule := range rules {
				t.Run(rule.name, func(t *testing.T) {
					s.clear(t)
					rule.run(t, s)
				})
			}
		})
	}
}

var key = []string{"k"}

func trackingOnce(t *testing.T, s server) {
	a, b := s.track(t), s.track(t)
	a.want(t, "(nil)", "GET", "k")
	b.want(t, "OK", "SET", "k", "1")
	require.Equal(t, []string{"k"}, a.pushed(t), "GET of a missing key that another creates")
	b.want(t, "OK", "SET", "k", "2")
	require.Empty(t, a.pushed(t), "not read since")
	a.want(t, "2", "GET", "k")
	b.want(t, "1", "DEL", "k")
	require.Equal(t, []string{"k"}, a.pushed(t))
}

func trackingWrites(t *testing.T, s server) {
	a, b := s.track(t), s.track(t)
	type row struct {
		push  bool
		reply string
		write []string
	}
	rows := []row{
		{true, "OK", []string{"SET", "k", "w"}},
		{true, "OK", []string{"SET", "k", "w", "XX", "KEEPTTL"}},
		{true, "1", []string{"DEL", "k"}},
		{true, "1", []string{"PEXPIRE", "k", "50000"}},
		{true, "1", []string{"PERSIST", "k"}},
		{true, "OK", []string{"RENAME", "k", "other"}},
		{true, "OK", []string{"RENAME", "else", "k"}},
		{true, "1", []string{"MOVE", "k", "5"}},
		{true, "1", []string{"INCRBY", "k", "0"}},
		{true, "1", []string{"PEXPIRE", "k", "-1"}},
		{true, "1", []string{"GETDEL", "k"}},
		{false, "(nil)", []string{"SET", "k", "w", "NX"}},
		{false, "0", []string{"DEL", "missing"}},
		{false, "0", []string{"PEXPIRE", "missing", "1000"}},
		{false, "1", []string{"GET", "k"}},
		{false, "(error) value is not an integer or out of range", []string{"INCRBY", "k", "x"}},
	}
	if s.atLeast(t, 7, 0) {
		rows = append(rows, row{false, "1", []string{"SET", "k", "w", "NX", "GET"}})
	}
	for _, row := range rows {
		for _, setup := range [][]string{{"SELECT", "5"}, {"DEL", "k"}, {"SELECT", "0"}, {"SET", "k", "1", "PX", "100000"}, {"SET", "else", "1"}} {
			require.NotContains(t, b.do(setup...), "error")
		}
		a.pushed(t)
		a.want(t, "1", "GET", "k")
		b.want(t, row.reply, row.write...)
		want := []string(nil)
		if row.push {
			want = []string{"k"}
		}
		require.Equal(t, want, a.pushed(t), "%q", row.write)
		b.want(t, "OK", "SET", "k", "again")
		if row.push {
			want = nil
		} else {
			want = []string{"k"}
		}
		require.Equal(t, want, a.pushed(t), "tracked after %q", row.write)
	}
}

func trackingOwnWrite(t *testing.T, s server) {
	a, b := s.track(t), s.track(t)
	for _, write := range [][]string{{"PEXPIRE", "k", "50000"}, {"SET", "k", "w"}, {"DEL", "k"}, {"EVAL", "return redis.call('PEXPIRE', KEYS[1], 50000)", "1", "k"}} {
		b.want(t, "OK", "SET", "k", "1")
		a.want(t, "1", "GET", "k")
		a.do(write...)
		require.Empty(t, a.pushed(t), "NOLOOP: %q", write)
		b.want(t, "OK", "SET", "k", "2")
		require.Empty(t, a.pushed(t), "untracked by %q", write)
	}
	loop := s.connect(t, "OPTOUT")
	loop.want(t, "2", "GET", "k")
	loop.want(t, "OK", "SET", "k", "3")
	require.Equal(t, []string{"k"}, loop.pushed(t), "without NOLOOP the own write is pushed")
	b.want(t, "OK", "SET", "k", "4")
	require.Empty(t, loop.pushed(t), "and untracks as well")
}

func trackingOwnScript(t *testing.T, s server) {
	a, b := s.track(t), s.track(t)
	for _, row := range []struct {
		tracked bool
		script  string
	}{
		{true, "redis.call('PEXPIRE', KEYS[1], 9000) return redis.call('GET', KEYS[1])"},
		{true, "redis.call('SET', KEYS[1], 'w', 'PX', 9000) redis.call('GET', KEYS[1]) redis.call('TIME') return redis.call('INFO', 'server')"},
		{true, "return redis.call('PTTL', KEYS[1])"},
		{true, "return redis.call('EXISTS', KEYS[1])"},
		{false, "redis.call('GET', KEYS[1]) return redis.call('SET', KEYS[1], 'w')"},
		{false, "return redis.call('SET', KEYS[1], 'w', 'PX', 9000)"},
		{false, "return redis.call('TIME')"},
		{false, "return KEYS[1]"},
	} {
		b.want(t, "OK", "SET", "k", "1")
		a.pushed(t)
		require.NotContains(t, a.eval(row.script, key), "error")
		require.Empty(t, a.pushed(t), "own writes do not push: %s", row.script)
		b.want(t, "OK", "SET", "k", "2")
		require.Equal(t, row.tracked, a.pushed(t) != nil, "tracked after %s", row.script)
	}
	b.want(t, "OK", "SET", "k", "3")
	a.want(t, "(nil)", "SET", "k", "w", "NX", "PX", "1000")
	if s.atLeast(t, 7, 0) {
		a.want(t, "3", "SET", "k", "w", "NX", "GET", "PX", "1000")
	}
	b.want(t, "OK", "SET", "k", "4")
	require.Empty(t, a.pushed(t), "SET is no read, not even with GET")
}

func trackingOtherScript(t *testing.T, s server) {
	a, b := s.track(t), s.track(t)
	for _, keys := range [][]string{key, {"unrelated"}, nil} {
		b.want(t, "OK", "SET", "k", "1")
		a.pushed(t)
		a.want(t, "1", "GET", "k")
		require.Equal(t, "1", b.eval("return redis.call('DEL', 'k')", keys))
		require.Equal(t, []string{"k"}, a.pushed(t), "declared: %v", keys)
	}
	a.want(t, "[(nil) (nil)]", "MGET", "x", "y")
	require.Equal(t, "OK", b.eval("redis.call('SET', KEYS[1], 1) redis.call('SET', KEYS[1], 2) return redis.call('SET', KEYS[2], 1)", []string{"x", "y"}))
	require.Equal(t, []string{"x", "y"}, a.pushed(t), "one message for each key")
}

func trackingReads(t *testing.T, s server) {
	a, b := s.track(t), s.track(t)
	for _, read := range [][]string{{"GET", "k"}, {"PTTL", "k"}, {"TTL", "k"}, {"EXISTS", "k"}, {"TYPE", "k"}, {"STRLEN", "k"}, {"MGET", "z", "k"}, {"ZCARD", "k"}, {"ZSCORE", "k", "m"}, {"ZRANGE", "k", "0", "-1"}} {
		b.do("DEL", "k")
		a.pushed(t)
		a.do(read...)
		b.want(t, "OK", "SET", "k", "1")
		require.Equal(t, []string{"k"}, a.pushed(t), "%q", read)
	}
	for _, read := range [][]string{{"KEYS", "*"}, {"SCAN", "0"}, {"DBSIZE"}, {"TIME"}, {"INFO"}} {
		a.do(read...)
		b.want(t, "OK", "SET", "k", "1")
		require.Empty(t, a.pushed(t), "%q", read)
	}
}

func trackingExpiry(t *testing.T, s server) {
	a, b := s.track(t), s.track(t)
	b.want(t, "OK", "SET", "k", "1", "PX", "1000")
	a.want(t, "1", "GET", "k")
	require.Equal(t, []string{"k"}, a.waitPush(t, soon), "nobody touches it: the server's own cycle finds it")

	const script = "redis.call('SET', KEYS[1], 'v', 'PX', 1) return redis.call('GET', KEYS[1])" // so short that the cycle mostly comes second
	quiet := 0
	for end := time.Now().Add(soon); quiet < 10 && time.Now().Before(end); {
		require.Equal(t, "v", a.eval(script, key))
		time.Sleep(3 * time.Millisecond)
		a.want(t, "(nil)", "GET", "k")
		if a.pushed(t) == nil {
			quiet++
		}
	}
	require.Equal(t, 10, quiet, "found by the own GET: no push with NOLOOP")
	b.want(t, "OK", "SET", "k", "2")
	require.Equal(t, []string{"k"}, a.pushed(t), "but the GET that found it gone tracks")

	require.Equal(t, "v", a.eval(script, key))
	time.Sleep(3 * time.Millisecond)
	b.want(t, "(nil)", "GET", "k")
	require.Equal(t, []string{"k"}, a.pushed(t), "found by another's GET")
}

func trackingFlush(t *testing.T, s server) {
	a, b := s.track(t), s.track(t)
	for _, flush := range [][]string{{"FLUSHALL"}, {"FLUSHDB"}} {
		b.want(t, "OK", "SET", "k", "1")
		a.pushed(t)
		a.want(t, "1", "GET", "k")
		b.want(t, "OK", "SELECT", "3")
		b.want(t, "OK", flush...)
		b.want(t, "OK", "SELECT", "0")
		require.Equal(t, []string{"everything"}, a.pushed(t), "%q in another database", flush)
		require.Equal(t, []string{"everything"}, b.pushed(t), "also for who did it, NOLOOP or not")
		b.want(t, "OK", "SET", "k", "2")
		require.Empty(t, a.pushed(t), "all tracking of all databases is gone")
	}
	a.want(t, "2", "GET", "k")
	require.Equal(t, "OK", b.eval("return redis.call('FLUSHALL')", nil))
	require.Equal(t, []string{"everything"}, a.pushed(t), "by a script")
}

func trackingSwap(t *testing.T, s server) {
	a, b := s.track(t), s.track(t)
	b.want(t, "OK", "SET", "k", "1")
	a.want(t, "1", "GET", "k")
	b.want(t, "OK", "SWAPDB", "0", "4")
	require.Empty(t, a.pushed(t))
	b.want(t, "(nil)", "GET", "k")
	b.want(t, "OK", "SET", "k", "2")
	require.Equal(t, []string{"k"}, a.pushed(t), "still tracked")
}

func trackingDatabases(t *testing.T, s server) {
	a, b := s.track(t), s.track(t)
	b.want(t, "OK", "SET", "k", "1")
	a.want(t, "1", "GET", "k")
	b.want(t, "OK", "SELECT", "7")
	b.want(t, "OK", "SET", "k", "2")
	require.Equal(t, []string{"k"}, a.pushed(t), "a false alarm")
}

func trackingOrder(t *testing.T, s server) {
	const push = ">2 $10 invalidate *1 $1 k"
	r := s.raw(t, "3")
	r.want(t, "+OK", "CLIENT", "TRACKING", "ON", "OPTOUT")
	r.want(t, "_", "GET", "k")
	r.want(t, "+OK", "SET", "k", "1")
	require.Equal(t, push, r.read(t), "behind the reply")
	r.want(t, "$1 1", "EVAL", "redis.call('SET', KEYS[1], '1') return redis.call('GET', KEYS[1])", "1", "k")
	r.want(t, "$1 2", "EVAL", "redis.call('SET', KEYS[1], '2') return redis.call('GET', KEYS[1])", "1", "k")
	require.Equal(t, push, r.read(t), "behind the script's reply")
	r.send(t, "FLUSHALL")
	first, second := "+OK", ">2 $10 invalidate _"
	if s.atLeast(t, 7, 4) {
		first, second = second, first // another thread frees the memory, and the caller is answered when it has
	}
	require.Equal(t, first, r.read(t), "a flush, too")
	require.Equal(t, second, r.read(t), "a flush, too")
	r.want(t, "+OK", "CLIENT", "TRACKING", "OFF")

	// What another's write owes is in the stream before that write is answered: a later reply cannot overtake it.
	other := s.raw(t, "3")
	r.want(t, "+OK", "CLIENT", "TRACKING", "ON", "OPTOUT", "NOLOOP")
	r.want(t, "_", "GET", "k")
	other.want(t, "+OK", "SET", "k", "1")
	r.send(t, "PING")
	require.Equal(t, push, r.read(t))
	require.Equal(t, "+PONG", r.read(t))

	old := s.raw(t, "2")
	old.want(t, "+OK", "CLIENT", "TRACKING", "ON", "OPTOUT")
	old.want(t, "$1 1", "GET", "k")
	other.want(t, "+OK", "SET", "k", "2")
	old.want(t, "+PONG", "PING")
}

func trackingBroadcast(t *testing.T, s server) {
	a, b := s.connect(t, "BCAST", "PREFIX", "x:", "PREFIX", "y:"), s.track(t)
	b.want(t, "OK", "SET", "x:1", "v")
	b.want(t, "OK", "SET", "z:1", "v")
	require.Equal(t, []string{"x:1"}, a.pushed(t), "every write to the prefix, read or not")
	b.want(t, "OK", "SET", "x:1", "v")
	require.Equal(t, []string{"x:1"}, a.pushed(t), "every time")
	require.Equal(t, "OK", b.eval("redis.call('SET', 'x:3', 1) redis.call('SET', 'x:2', 1) return redis.call('SET', 'y:1', 1)", nil))
	require.ElementsMatch(t, []string{"x:2", "x:3", "y:1"}, a.pushed(t), "one message for each prefix")
	a.want(t, "OK", "SET", "x:1", "w")
	require.Equal(t, []string{"x:1"}, a.pushed(t), "also the own ones")
	b.want(t, "OK", "FLUSHALL")
	require.Equal(t, []string{"everything"}, a.pushed(t))

	quiet := s.connect(t, "BCAST", "PREFIX", "x:", "NOLOOP")
	quiet.want(t, "OK", "SET", "x:1", "v")
	require.Empty(t, quiet.pushed(t), "NOLOOP hides plain own writes")
	require.Equal(t, "OK", quiet.eval("return redis.call('SET', 'x:1', 1)", nil))
	require.Equal(t, []string{"x:1"}, quiet.pushed(t), "but no script's")
}

func trackingOptin(t *testing.T, s server) {
	a, b := s.connect(t), s.track(t) // rueidis' default is OPTIN
	a.want(t, "(nil)", "GET", "k")
	b.want(t, "OK", "SET", "k", "1")
	require.Empty(t, a.pushed(t), "no CACHING, no tracking")
	a.want(t, "OK", "CLIENT", "CACHING", "YES")
	a.want(t, "1", "GET", "k")
	a.want(t, "(nil)", "GET", "later")
	b.want(t, "OK", "SET", "later", "1")
	b.want(t, "OK", "SET", "k", "2")
	require.Equal(t, []string{"k"}, a.pushed(t), "only the command behind CACHING YES")
	c := s.track(t)
	c.want(t, "OK", "CLIENT", "CACHING", "NO")
	c.want(t, "2", "GET", "k")
	b.want(t, "OK", "SET", "k", "3")
	require.Empty(t, c.pushed(t), "OPTOUT: CACHING NO")
	require.Contains(t, c.do("CLIENT", "CACHING", "YES"), "(error) CLIENT CACHING YES is only valid when tracking is enabled in OPTIN mode")
}

func trackingOptions(t *testing.T, s server) {
	r := s.raw(t, "3")
	for _, bad := range []string{"BCAST OPTIN", "BCAST OPTOUT", "PREFIX x", "OPTIN OPTOUT", "BCAST PREFIX a PREFIX ab", "SOMETIMES", "BCAST PREFIX"} {
		r.send(t, append([]string{"CLIENT", "TRACKING", "ON"}, strings.Fields(bad)...)...)
		require.True(t, strings.HasPrefix(r.read(t), "-ERR "), bad)
	}
	r.want(t, "+OK", "CLIENT", "TRACKING", "ON", "OPTOUT", "NOLOOP")
	r.send(t, "CLIENT", "TRACKING", "ON", "BCAST")
	require.True(t, strings.HasPrefix(r.read(t), "-ERR You can't switch BCAST mode on/off"), "while it is on")
	r.want(t, "%3 $5 flags ~3 $2 on $6 optout $6 noloop $8 redirect :0 $8 prefixes *0", "CLIENT", "TRACKINGINFO")
	r.want(t, "+OK", "CLIENT", "TRACKING", "OFF")
	r.want(t, "%3 $5 flags ~1 $3 off $8 redirect :-1 $8 prefixes *0", "CLIENT", "TRACKINGINFO")
}

func trackingReconnect(t *testing.T, s server) {
	a, b := s.track(t), s.track(t)
	a.want(t, "(nil)", "GET", "k")
	id := a.do("CLIENT", "ID")
	b.want(t, "1", "CLIENT", "KILL", "ID", id)
	require.Eventually(t, func() bool {
		a.mu.Lock()
		defer a.mu.Unlock()
		return len(a.pushes) > 0
	}, 5*time.Second, time.Millisecond, "rueidis says nil at a disconnect")
	require.Equal(t, []string{"everything"}, a.pushed(t))
	require.NotEqual(t, id, a.do("CLIENT", "ID"))
	b.want(t, "OK", "SET", "k", "1")
	require.Empty(t, a.pushed(t), "read on the old connection")
	a.want(t, "1", "GET", "k")
	b.want(t, "OK", "SET", "k", "2")
	require.Equal(t, []string{"k"}, a.pushed(t))
}

func trackingMulti(t *testing.T, s server) {
	r, b := s.raw(t, "3"), s.track(t)
	r.want(t, "+OK", "CLIENT", "TRACKING", "ON", "OPTOUT", "NOLOOP")
	r.want(t, "+OK", "MULTI")
	r.want(t, "+QUEUED", "GET", "k")
	r.want(t, "+QUEUED", "SET", "k", "1")
	r.want(t, "*2 _ +OK", "EXEC")
	b.want(t, "OK", "SET", "k", "2")
	r.want(t, "+PONG", "PING")
	r.want(t, "+OK", "MULTI")
	r.want(t, "+QUEUED", "GET", "k")
	r.want(t, "*1 $1 2", "EXEC")
	b.want(t, "OK", "SET", "k", "3")
	require.Equal(t, ">2 $10 invalidate *1 $1 k", r.read(t))
	r.want(t, "+OK", "MULTI")
	r.send(t, "NOSUCH")
	require.True(t, strings.HasPrefix(r.read(t), "-ERR unknown command"))
	r.want(t, "-EXECABORT Transaction discarded because of previous errors.", "EXEC")
	r.want(t, "-ERR EXEC without MULTI", "EXEC")
}

func expiryCommands(t *testing.T, s server) {
	c := s.track(t)
	c.want(t, "-2", "PTTL", "k")
	c.want(t, "-2", "TTL", "k")
	c.want(t, "OK", "SET", "k", "v")
	c.want(t, "-1", "PTTL", "k")
	c.want(t, "-1", "TTL", "k")
	c.want(t, "0", "PERSIST", "k")
	c.want(t, "1", "PEXPIRE", "k", "60000")
	ms, err := strconv.Atoi(c.do("PTTL", "k"))
	require.NoError(t, err)
	require.LessOrEqual(t, ms, 60000)
	require.Greater(t, ms, 59000)
	require.Equal(t, "60", c.eval("redis.call('PEXPIRE', KEYS[1], 60000) return redis.call('TTL', KEYS[1])", key))
	c.want(t, "1", "PERSIST", "k")
	c.want(t, "-1", "PTTL", "k")
	if s.atLeast(t, 7, 0) {
		c.want(t, "0", "PEXPIRE", "k", "1000", "XX")
		c.want(t, "0", "PEXPIRE", "k", "1000", "GT")
		c.want(t, "1", "PEXPIRE", "k", "50000", "NX")
		c.want(t, "0", "PEXPIRE", "k", "60000", "NX")
		c.want(t, "0", "PEXPIRE", "k", "40000", "GT")
		c.want(t, "1", "PEXPIRE", "k", "60000", "GT")
		c.want(t, "0", "PEXPIRE", "k", "99000", "LT")
		c.want(t, "1", "PEXPIRE", "k", "30000", "LT")
		c.want(t, "(error) NX and XX, GT or LT options at the same time are not compatible", "PEXPIRE", "k", "1", "NX", "GT")
	}
	c.want(t, "1", "PEXPIRE", "k", "30000")
	c.want(t, "OK", "SET", "k", "w", "KEEPTTL")
	require.NotEqual(t, "-1", c.do("PTTL", "k"))
	c.want(t, "OK", "SET", "k", "w")
	c.want(t, "-1", "PTTL", "k")
	c.want(t, "(error) value is not an integer or out of range", "PEXPIRE", "k", "1.5")
	// Inside a script time stands still: no ms is lost between SET and PTTL.
	require.Equal(t, "1234", c.eval("redis.call('SET', KEYS[1], 'v', 'PX', 1234) return redis.call('PTTL', KEYS[1])", key))
	require.Equal(t, "1", c.eval("redis.call('SET', KEYS[1], 'v', 'PX', 1) return redis.call('EXISTS', KEYS[1])", key))
	require.Equal(t, "500", c.eval("redis.call('SET', KEYS[1], 'v') redis.call('PEXPIRE', KEYS[1], '500') return redis.call('PTTL', KEYS[1])", key))
}

func expiryLife(t *testing.T, s server) {
	c := s.track(t)
	for range 20 {
		sent := time.Now()
		c.want(t, "OK", "SET", "k", "v", "PX", "5")
		for c.do("GET", "k") == "v" {
		}
		require.GreaterOrEqual(t, time.Since(sent), 5*time.Millisecond, "never shorter, counted from the sending")
		require.Less(t, time.Since(sent), soon)
	}
}

func expiryPast(t *testing.T, s server) {
	c := s.track(t)
	c.want(t, "OK", "SET", "k", "v", "PXAT", "1000")
	c.want(t, "0", "EXISTS", "k")
	c.want(t, "OK", "SET", "k", "v")
	c.want(t, "OK", "SET", "k", "w", "PXAT", "1000")
	c.want(t, "(nil)", "GET", "k")
	c.want(t, "OK", "SET", "k", "v")
	c.want(t, "1", "PEXPIRE", "k", "0")
	c.want(t, "0", "EXISTS", "k")
	refused := "(error) invalid expire time in '%s' command"
	if !s.atLeast(t, 7, 0) {
		refused = "(error) invalid expire time in %s"
	}
	for _, px := range []string{"0", "-5", "9223372036854775807"} {
		c.want(t, fmt.Sprintf(refused, "set"), "SET", "k", "v", "PX", px)
	}
	c.want(t, fmt.Sprintf(refused, "psetex"), "PSETEX", "k", "0", "v")
	c.want(t, "0", "EXISTS", "k")
}

func setOptions(t *testing.T, s server) {
	c := s.track(t)
	c.want(t, "OK", "SET", "k", "1", "NX", "PX", "90000")
	c.want(t, "(nil)", "SET", "k", "2", "NX", "PX", "1")
	if s.atLeast(t, 7, 0) {
		c.want(t, "1", "SET", "k", "2", "NX", "GET", "PX", "1")
	}
	c.want(t, "1", "GET", "k")
	require.Greater(t, len(c.do("PTTL", "k")), 4, "a refused SET leaves the lease")
	c.want(t, "1", "SET", "k", "2", "XX", "GET")
	c.want(t, "-1", "PTTL", "k")
	c.want(t, "(nil)", "SET", "other", "2", "XX")
	c.want(t, "(nil)", "SET", "other", "2", "XX", "GET")
	if s.atLeast(t, 7, 0) {
		c.want(t, "(nil)", "SET", "new", "2", "NX", "GET")
		c.want(t, "2", "GET", "new")
	}
	c.want(t, "OK", "set", "k", "3", "ex", "100")
	require.Regexp(t, "^(100|9[0-9])$", c.do("TTL", "k"))
	for _, bad := range []string{"NX XX", "PX", "PX 1 EX 1", "KEEPTTL PX 1", "WAT"} {
		c.want(t, "(error) syntax error", append([]string{"SET", "k", "v"}, strings.Fields(bad)...)...)
	}
	c.want(t, "(error) value is not an integer or out of range", "SET", "k", "v", "PX", "1.5")
	c.want(t, "0", "SETNX", "k", "v")
	c.want(t, "3", "GETSET", "k", "4")
	c.want(t, "4", "GETDEL", "k")
	c.want(t, "(nil)", "GETDEL", "k")
	c.want(t, "OK", "MSET", "a", "1", "b", "2")
	c.want(t, "[1 (nil) 2]", "MGET", "a", "x", "b")
	c.want(t, "3", "APPEND", "a", "23")
	c.want(t, "3", "STRLEN", "a")
	long := strings.Repeat("x\r\n\x00", 5000)
	c.want(t, "OK", "SET", "k", long)
	c.want(t, long, "GET", "k")
}

func increments(t *testing.T, s server) {
	c := s.track(t)
	c.want(t, "1", "INCR", "n")
	c.want(t, "1", "INCRBY", "n", "0")
	c.want(t, "0", "INCRBY", "new", "0")
	c.want(t, "0", "GET", "new")
	c.want(t, "1732100000000001", "INCRBY", "n", "1732100000000000")
	c.want(t, "1732100000000000", "DECR", "n")
	c.want(t, "OK", "SET", "n", "9223372036854775807")
	c.want(t, "(error) increment or decrement would overflow", "INCR", "n")
	c.want(t, "(error) value is not an integer or out of range", "INCRBY", "n", "9223372036854775808")
	for _, text := range []string{"x", "1.0", " 1", "+1", "01", "", "-0"} {
		c.want(t, "OK", "SET", "n", text)
		c.want(t, "(error) value is not an integer or out of range", "INCR", "n")
	}
	c.want(t, "OK", "SET", "n", "-3", "PX", "90000")
	c.want(t, "-2", "INCR", "n")
	require.NotEqual(t, "-1", c.do("PTTL", "n"), "the lease stays")
}

func keyCommands(t *testing.T, s server) {
	c := s.track(t)
	c.want(t, "OK", "SET", "a", "1")
	c.want(t, "2", "EXISTS", "a", "a", "b")
	c.want(t, "string", "TYPE", "a")
	c.want(t, "none", "TYPE", "b")
	c.want(t, "1", "DEL", "a", "a", "b")
	c.want(t, "(error) no such key", "RENAME", "a", "b")
	c.want(t, "OK", "SET", "a", "1", "PX", "90000")
	c.want(t, "OK", "SET", "b", "2")
	c.want(t, "OK", "RENAME", "a", "b")
	c.want(t, "1", "GET", "b")
	require.NotEqual(t, "-1", c.do("PTTL", "b"), "the lease goes along")
	c.want(t, "1", "DBSIZE")
	c.want(t, "[b]", "KEYS", "*")
	c.want(t, "1", "UNLINK", "b")
	c.want(t, "0", "DBSIZE")
	c.want(t, "hello", "ECHO", "hello")
	c.want(t, "hello", "PING", "hello")
}

func scanning(t *testing.T, s server) {
	c := s.track(t)
	want := []string{}
	for i := range 300 {
		c.want(t, "OK", "SET", fmt.Sprintf("p:{%d}", i), "v")
		want = append(want, fmt.Sprintf("p:{%d}", i))
	}
	for _, other := range []string{"q:{1}", "px{1}", "p:", "p*:{1}", "p[a]:{1}"} {
		c.want(t, "OK", "SET", other, "v")
	}
	scan := func(args ...string) (found []string) {
		cursor := "0"
		for {
			list, err := c.Do(t.Context(), c.B().Arbitrary(append([]string{"SCAN", cursor}, args...)...).Build()).ToArray()
			require.NoError(t, err)
			page, _ := list[1].AsStrSlice()
			found = append(found, page...)
			if cursor, _ = list[0].ToString(); cursor == "0" {
				return found
			}
		}
	}
	unique := func(list []string) []string {
		seen := map[string]bool{}
		for _, key := range list {
			seen[key] = true
		}
		out := []string{}
		for key := range seen {
			out = append(out, key)
		}
		return out
	}
	require.ElementsMatch(t, want, unique(scan("MATCH", "p:{*}")), "braces mean nothing")
	require.Len(t, unique(scan("COUNT", "7")), 305)
	require.ElementsMatch(t, []string{"p*:{1}"}, unique(scan("MATCH", `p\*:*`, "COUNT", "1000")), "an escaped star")
	require.ElementsMatch(t, []string{"p[a]:{1}"}, unique(scan("MATCH", `p\[a\]:*`)), "escaped brackets")
	require.ElementsMatch(t, []string{"p:{1}", "p:{2}", "p:{3}"}, unique(scan("MATCH", "p:{[1-3]}")))
	require.ElementsMatch(t, []string{"q:{1}"}, unique(scan("MATCH", "[^p]*")))
	require.ElementsMatch(t, []string{"p:{1}", "px{1}"}, unique(scan("MATCH", "p?{1}")))
	require.Empty(t, scan("TYPE", "zset", "COUNT", "1000"))
	c.want(t, "(error) invalid cursor", "SCAN", "x")
	c.want(t, "(error) syntax error", "SCAN", "0", "MATCH")
	c.want(t, "(error) syntax error", "SCAN", "0", "COUNT", "0")
}

func databasesRule(t *testing.T, s server) {
	c := s.track(t)
	c.want(t, "OK", "SET", "k", "0")
	c.want(t, "OK", "SELECT", "15")
	c.want(t, "(nil)", "GET", "k")
	c.want(t, "OK", "SET", "k", "15", "PX", "90000")
	c.want(t, "OK", "SWAPDB", "0", "15")
	c.want(t, "0", "GET", "k")
	c.want(t, "OK", "FLUSHDB")
	c.want(t, "OK", "SELECT", "0")
	c.want(t, "15", "GET", "k")
	require.NotEqual(t, "-1", c.do("PTTL", "k"))
	require.Equal(t, []string{"everything"}, c.pushed(t))
	c.want(t, "OK", "SET", "short", "v", "PX", "1000")
	c.want(t, "v", "GET", "short")
	c.want(t, "OK", "SWAPDB", "0", "9")
	c.want(t, "OK", "SWAPDB", "9", "11")
	require.Equal(t, []string{"short"}, c.waitPush(t, soon), "expires where it is now")
	c.want(t, "OK", "SWAPDB", "0", "11")
	require.Equal(t, "(nil)", c.eval("redis.call('SELECT', 3) return redis.call('GET', KEYS[1])", key))
	c.want(t, "15", "GET", "k")
	r := s.raw(t, "3")
	r.want(t, "+OK", "MULTI")
	r.want(t, "+QUEUED", "EVAL", "return redis.call('SELECT', 3)", "0")
	r.want(t, "+QUEUED", "GET", "k")
	r.want(t, "*2 +OK $2 15", "EXEC")
	c.want(t, "(error) DB index is out of range", "SELECT", "16")
	c.want(t, "(error) DB index is out of range", "SWAPDB", "0", "16")
}

func errorReplies(t *testing.T, s server) {
	c := s.track(t)
	const wrong = "(error) WRONGTYPE Operation against a key holding the wrong kind of value"
	c.want(t, "1", "ZADD", "y", "1", "m")
	c.want(t, "1", "ZADD", "z", "1", "m")
	c.want(t, "OK", "SET", "s", "v")
	for _, cmd := range []string{"GET y", "INCR z", "ZSCORE s m", "ZADD s 1 m", "ZREM s m", "ZCARD s", "SET y v GET", "ZPOPMIN s", "ZRANGE s 0 -1", "APPEND y x", "GETDEL z", "STRLEN y"} {
		c.want(t, wrong, strings.Fields(cmd)...)
	}
	c.want(t, "[(nil) v]", "MGET", "y", "s")
	c.want(t, "OK", "SET", "y", "v")
	c.want(t, "(error) wrong number of arguments for 'get' command", "GET")
	c.want(t, "(error) wrong number of arguments for 'set' command", "SET", "k")
	require.Regexp(t, "^\\(error\\) unknown command ['`]NOSUCH['`]", c.do("NOSUCH", "a", "b")) // 6.2 quotes with backticks
	require.Contains(t, c.do("CLIENT", "NOSUCH"), "(error) ")
	c.want(t, "(error) This instance has cluster support disabled", "CLUSTER", "SLOTS")
}

func sortedSets(t *testing.T, s server) {
	c, r := s.track(t), s.raw(t, "3")
	c.want(t, "4", "ZADD", "z", "2", "b", "1", "a", "2", "ab", "1732100000000001", "late")
	c.want(t, "0", "ZADD", "z", "NX", "9", "a")
	c.want(t, "0", "ZADD", "z", "2.5", "b")
	c.want(t, "1", "ZADD", "z", "CH", "2", "b")
	c.want(t, "0", "ZADD", "z", "XX", "1", "new")
	c.want(t, "(nil)", "ZADD", "z", "NX", "INCR", "1", "a")
	c.want(t, "1.5", "ZINCRBY", "z", "0.5", "a")
	c.want(t, "0", "ZADD", "z", "GT", "CH", "1", "a")
	c.want(t, "1", "ZADD", "z", "LT", "CH", "1", "a")
	c.want(t, "4", "ZCARD", "z")
	c.want(t, "[a ab b late]", "ZRANGE", "z", "0", "-1")
	c.want(t, "[late b]", "ZREVRANGE", "z", "0", "1")
	c.want(t, "[late b]", "ZRANGE", "z", "0", "1", "REV")
	c.want(t, "[ab b]", "ZRANGEBYSCORE", "z", "(1", "2")
	c.want(t, "[b]", "ZRANGEBYSCORE", "z", "-inf", "+inf", "LIMIT", "2", "1")
	c.want(t, "[ab b late]", "ZRANGE", "z", "2", "inf", "BYSCORE")
	c.want(t, "[b ab]", "ZREVRANGEBYSCORE", "z", "2", "2")
	c.want(t, "3", "ZCOUNT", "z", "1", "2")
	c.want(t, "2", "ZRANK", "z", "b")
	c.want(t, "1", "ZREVRANK", "z", "b")
	c.want(t, "(nil)", "ZRANK", "z", "x")
	r.want(t, ",1732100000000001", "ZSCORE", "z", "late")
	r.want(t, "*2 ,1 _", "ZMSCORE", "z", "a", "x")
	r.want(t, "*2 *2 $1 a ,1 *2 $2 ab ,2", "ZRANGE", "z", "0", "1", "WITHSCORES")
	require.Equal(t, "[a 1 ab 2]", c.eval("return redis.call('ZRANGE', KEYS[1], 0, 1, 'WITHSCORES')", []string{"z"}), "flat texts inside a script")
	require.Equal(t, "1732100000000001", c.eval("return redis.call('ZSCORE', KEYS[1], 'late')", []string{"z"}))
	r.want(t, "*2 $1 a ,1", "ZPOPMIN", "z")
	r.want(t, "*1 *2 $4 late ,1732100000000001", "ZPOPMAX", "z", "1")
	c.want(t, "1", "ZREM", "z", "ab", "x")
	c.want(t, "1", "ZREMRANGEBYSCORE", "z", "-inf", "5")
	c.want(t, "0", "EXISTS", "z")
	r.want(t, "*0", "ZPOPMIN", "z")
	r.want(t, "*0", "ZRANGE", "z", "0", "-1", "WITHSCORES")
	require.Equal(t, "[]", c.eval("return redis.call('ZPOPMIN', KEYS[1])", []string{"z"}))
	c.want(t, "3", "ZADD", "z", "1", "a", "2", "b", "3", "c")
	c.want(t, "2", "ZREMRANGEBYRANK", "z", "-2", "-1")
	c.want(t, "(error) value is not a valid float", "ZADD", "z", "x", "m")
	c.want(t, "(error) syntax error", "ZADD", "z", "1", "m", "2")
	c.want(t, "(error) XX and NX options at the same time are not compatible", "ZADD", "z", "NX", "XX", "1", "m")
	c.want(t, "(error) min or max is not a float", "ZRANGEBYSCORE", "z", "a", "b")
}

func encoding(t *testing.T, s server) {
	for proto, null := range map[string]string{"2": "$-1", "3": "_"} {
		r := s.raw(t, proto)
		r.want(t, "+OK", "SET", "k", "v")
		r.want(t, "$1 v", "GET", "k")
		r.want(t, null, "GET", "missing")
		r.want(t, "*2 $1 v "+null, "MGET", "k", "missing")
		r.want(t, null, "EVAL", "return false", "0")
		r.want(t, null, "EVAL", "return nil", "0")
		r.want(t, ":1", "EVAL", "return true", "0")
		r.want(t, "*3 :1 "+null+" *0", "EVAL", "return {1, false, {}}", "0")
		r.want(t, "+fine", "EVAL", "return redis.status_reply('fine')", "0")
		r.want(t, "+OK", "EVAL", "return redis.call('SET', 'k', 'v')", "0")
		r.want(t, "+fine", "EVAL", "return {ok='fine'}", "0")
	}
	r := s.raw(t, "2")
	r.want(t, ":1", "ZADD", "z", "1.5", "m")
	r.want(t, "*2 $1 m $3 1.5", "ZRANGE", "z", "0", "-1", "WITHSCORES")
	r.want(t, "$3 1.5", "ZSCORE", "z", "m")
}

func infoAndTime(t *testing.T, s server) {
	c := s.track(t)
	id := regexp.MustCompile(`run_id:([0-9a-f]{40})\r\n`)
	server := c.do("INFO", "server")
	run := id.FindStringSubmatch(server)
	require.NotNil(t, run, server)
	require.True(t, strings.HasPrefix(server, "# Server\r\nredis_version:"), server)
	require.Regexp(t, "(redis|server)_mode:standalone\r\n", server) // Valkey calls it server_mode
	require.Regexp(t, `uptime_in_seconds:\d+\r\n`, server)
	require.NotContains(t, server, "role:")
	require.Equal(t, run[1], c.eval("return string.match(redis.call('INFO', 'server'), 'run_id:(%w+)')", nil))
	require.Contains(t, c.do("INFO", "replication"), "role:master\r\n")
	require.Contains(t, c.do("INFO", "memory"), "maxmemory_policy:noeviction\r\n")
	all := c.do("INFO")
	for _, field := range []string{"redis_version:", "role:master", "maxmemory:0", "maxmemory_policy:noeviction", "cluster_enabled:0", "run_id:" + run[1]} {
		require.Contains(t, all, field)
	}
	c.want(t, "{maxmemory-policy:noeviction}", "CONFIG", "GET", "maxmemory-policy")

	before := time.Now().UnixMicro()
	parts := strings.Fields(strings.Trim(c.do("TIME"), "[]"))
	after := time.Now().UnixMicro()
	sec, _ := strconv.ParseInt(parts[0], 10, 64)
	usec, _ := strconv.ParseInt(parts[1], 10, 64)
	require.GreaterOrEqual(t, sec*1e6+usec, before)
	require.LessOrEqual(t, sec*1e6+usec, after)
	require.Equal(t, "string string", c.eval("local t = redis.call('TIME') return type(t[1]) .. ' ' .. type(t[2])", nil))
	at, err := strconv.ParseInt(c.eval("local t = redis.call('TIME') return t[1] * 1000000 + t[2]", nil), 10, 64)
	require.NoError(t, err)
	require.InDelta(t, time.Now().UnixMicro(), at, 1e6)
}

func clientCommands(t *testing.T, s server) {
	a, b := s.track(t), s.track(t)
	first, err := strconv.Atoi(a.do("CLIENT", "ID"))
	require.NoError(t, err)
	second, err := strconv.Atoi(b.do("CLIENT", "ID"))
	require.NoError(t, err)
	require.Greater(t, second, first, "ids rise")
	a.want(t, "OK", "CLIENT", "SETNAME", "me")
	a.want(t, "me", "CLIENT", "GETNAME")
	b.want(t, "(nil)", "CLIENT", "GETNAME")
	if s.atLeast(t, 7, 0) {
		a.want(t, "OK", "CLIENT", "NO-EVICT", "ON")
	}
	require.Contains(t, a.do("CLIENT", "LIST"), fmt.Sprintf("id=%d ", first))
	a.want(t, "0", "WAIT", "0", "1")
	r := s.raw(t, "3")
	r.send(t, "HELLO", "4")
	require.True(t, strings.HasPrefix(r.read(t), "-NOPROTO"))
	r.send(t, "HELLO", "3", "SETNAME", "x")
	require.Contains(t, r.read(t), "$5 proto :3 ")
	r.want(t, "$1 x", "CLIENT", "GETNAME")
}

func scriptCache(t *testing.T, s server) {
	c := s.track(t)
	const body, sha = "return 1", "e0e1f9fabfc9d4800c877a703b823ac0578ff8db"
	c.want(t, s.text("(error) NOSCRIPT No matching script. Please use EVAL."), "EVALSHA", sha, "0")
	c.want(t, sha, "SCRIPT", "LOAD", body)
	c.want(t, "1", "EVALSHA", sha, "0")
	c.want(t, "1", "EVALSHA", strings.ToUpper(sha), "0")
	if s.atLeast(t, 7, 0) {
		c.want(t, "1", "EVALSHA_RO", sha, "0")
		require.Contains(t, c.do("EVAL_RO", "return redis.call('SET', 'k', 1)", "0"), "(error) Write commands are not allowed from read-only scripts")
	}
	c.want(t, "[1 0]", "SCRIPT", "EXISTS", sha, strings.Repeat("0", 40))
	c.want(t, "OK", "SCRIPT", "FLUSH")
	c.want(t, s.text("(error) NOSCRIPT No matching script. Please use EVAL."), "EVALSHA", sha, "0")
	require.Equal(t, "1", c.eval(body, nil))
	c.want(t, "1", "EVALSHA", sha, "0")
	require.Contains(t, c.do("SCRIPT", "LOAD", "return ("), "(error) Error compiling script (new function): user_script:1:")
	require.Contains(t, c.do("EVAL", "return (", "0"), "(error) Error compiling script (new function): user_script:1:")
	c.want(t, "(error) value is not an integer or out of range", "EVAL", body, "x")
	c.want(t, "(error) Number of keys can't be greater than number of args", "EVAL", body, "1")
	c.want(t, "(error) Number of keys can't be negative", "EVAL", body, "-1")
	require.Equal(t, "[a b x y]", c.eval("return {KEYS[1], KEYS[2], ARGV[1], ARGV[2]}", []string{"a", "b"}, "x", "y"))
	require.Equal(t, "[2 1 (nil)]", c.eval("return {#KEYS, #ARGV, ARGV[2] or false}", []string{"a", "b"}, "x"))
}

// run compares what scripts return, each on a missing key k and with the arguments 5 and text.
func run(t *testing.T, s server, scripts map[string]string) {
	c := s.track(t)
	for script, want := range scripts {
		c.do("DEL", "k")
		require.Equal(t, want, c.eval(script, key, "5", "text"), script)
	}
}

func scriptNumbers(t *testing.T, s server) {
	run(t, s, map[string]string{
		"return tostring(1732100000000001)":                                                       "1.7321e+15",
		"return 'x' .. 1732100000000001":                                                          "x1.7321e+15",
		"return 1732100000000001 .. ''":                                                           "1.7321e+15",
		"local n = 1732100000000001 return n .. ':' .. n + 1 .. ':' .. 5":                         "1.7321e+15:1.7321e+15:5",
		"return string.format('%.0f', 1732100000000001)":                                          "1732100000000001",
		"return string.format('%d', 1732100000000001)":                                            "1732100000000001",
		"return string.format('%s %s %s', 1732100000000001, 0.1, 12)":                             "1.7321e+15 0.1 12",
		"return string.format('%5d|%-5d|%05d|%+d|% d|%x|%X|%o', 42, 42, 42, 42, 42, 255, 255, 8)": "   42|42   |00042|+42| 42|ff|FF|10",
		"return string.format('%g %g %g %g', 0.1, 100000, 1000000, 1e20)":                         "0.1 100000 1e+06 1e+20",
		"return string.format('%e %.2f %5.1f|%-8.3f|', 12345.678, 2.005, 3.14159, 2.5)":           "1.234568e+04 2.00   3.1|2.500   |",
		"return string.format('%5s|%-5s|%.2s|%q|%c%%', 'ab', 'ab', 'abc', 'a\"b\\n', 65)":         "   ab|ab   |ab|\"a\\\"b\\\n\"|A%",
		"return tostring(100000000000000)":                                                        "1e+14",
		"return tostring(99999999999999)":                                                         "99999999999999",
		"return tostring(123456789012345)":                                                        "1.2345678901234e+14",
		"return tostring(0.1) .. ' ' .. 1/3 .. ' ' .. -2.5e-7 .. ' ' .. 3.0":                      "0.1 0.33333333333333 -2.5e-07 3",
		"return tostring(1/0) .. ' ' .. tostring(-1/0)":                                           "inf -inf",
		"return 3.99":                             "3",
		"return -3.99":                            "-3",
		"return 1732100000000001.75":              "1732100000000001",
		"return 9007199254740993":                 "9007199254740992",
		"return 2^53 + 1 == 2^53":                 "1",
		"return 5 % 3 + -5 % 3":                   "3",
		"return tonumber('1732100000000001') + 1": "1732100000000002",
		"return tonumber('0x10') + tonumber(' 5 ') + tonumber('1e2')":                                                                "121",
		"return {tonumber('') or 'nil', tonumber('x') or 'nil', tonumber('5x') or 'nil', tonumber(nil) or 'nil', tonumber('z', 36)}": "[nil nil nil nil 35]",
		"return ARGV[1] + 1":  "6",
		"return ARGV[1] .. 1": "51",
		"return math.floor(-2.5) .. math.ceil(-2.5) .. math.max(1, 3, 2) .. math.min(4, 2)":                        "-3-232",
		"return math.floor(1732100000000001 / 1000)":                                                               "1732100000000",
		"return math.ceil((1732100000001001 - 1732100000000000) / 1000)":                                           "2",
		"return table.concat({1, 'a', 1732100000000001, 2.5}, ',')":                                                "1,a,1.7321e+15,2.5",
		"return string.len(1732100000000001)":                                                                      "10",
		"redis.call('SET', KEYS[1], 1732100000000001) return redis.call('GET', KEYS[1])":                           "1732100000000001",
		"redis.call('SET', KEYS[1], 9007199254740991) return redis.call('GET', KEYS[1])":                           "9007199254740991",
		"redis.call('SET', KEYS[1], -5) return redis.call('GET', KEYS[1])":                                         "-5",
		"redis.call('SET', KEYS[1], 0.5) return redis.call('GET', KEYS[1])":                                        "0.5",
		"redis.call('SET', KEYS[1], 'v', 'PX', 1500) return math.ceil(redis.call('PTTL', KEYS[1]) / 100)":          "15",
		"redis.call('SET', KEYS[1], 7) return redis.call('INCRBY', KEYS[1], 1732100000000001) == 1732100000000008": "1",
	})
}

func scriptReplies(t *testing.T, s server) {
	run(t, s, map[string]string{
		"return":                "(nil)",
		"return nil":            "(nil)",
		"return false":          "(nil)",
		"return true":           "1",
		"return 'text'":         "text",
		"return ''":             "",
		"return {}":             "[]",
		"return {1, 2, nil, 4}": "[1 2]",
		"return {1, 'a', {2, {3.7}}, false, true}":             "[1 a [2 [3]] (nil) 1]",
		"return {1, x = 5}":                                    "[1]",
		"return function() end":                                "(nil)",
		"return redis.call('GET', KEYS[1])":                    "(nil)",
		"return redis.call('GET', KEYS[1]) == false":           "1",
		"return type(redis.call('GET', KEYS[1]))":              "boolean",
		"return redis.call('SET', KEYS[1], 1).ok":              "OK",
		"return type(redis.call('SET', KEYS[1], 1))":           "table",
		"return redis.call('SET', KEYS[1], 1, 'NX') == false":  "(nil)",
		"return redis.call('SET', KEYS[1], 1, 'XX')":           "(nil)",
		"return type(redis.call('PTTL', KEYS[1]))":             "number",
		"return redis.call('MGET', KEYS[1], 'no')[2] == false": "1",
		"return #redis.call('MGET', 'no', 'no')":               "2",
		"return redis.call('PING')":                            "PONG",
		"return redis.status_reply('fine')":                    "fine",
		"return redis.sha1hex('')":                             "da39a3ee5e6b4b0d3255bfef95601890afd80709",
		"return {redis.LOG_WARNING, redis.REPL_ALL}":           "[3 3]",
	})
}

func scriptErrors(t *testing.T, s server) {
	c := s.track(t)
	c.want(t, "OK", "SET", "s", "text")
	for script, want := range map[string]string{
		"return redis.error_reply('My problem')":     "My problem",
		"return redis.error_reply('-MYERR problem')": "MYERR problem",
		"return {err='MYERR problem'}":               "MYERR problem",
		"return redis.call('INCR', KEYS[1])":         "ERR value is not an integer or out of range script: ",
		"return redis.call('ZSCORE', KEYS[1], 'm')":  "WRONGTYPE Operation against a key holding the wrong kind of value script: ",
		"return redis.pcall('ZSCORE', KEYS[1], 'm')": "WRONGTYPE Operation against a key holding the wrong kind of value",
		"error('boom')":                              "user_script:1: boom script: ",
		"\n\nerror('boom')":                          "user_script:3: boom script: ",
		"error({err='MYERR problem'})":               "MYERR problem script: ",
		"return nothing":                             "user_script:1: Script attempted to access nonexistent global variable 'nothing' script: ",
		"x = 1":                                      "user_script:1: Attempt to modify a readonly table script: ",
		"tostring = 1":                               "user_script:1: Attempt to modify a readonly table script: ",
		"function f() end":                           "user_script:1: Attempt to modify a readonly table script: ",
		"return redis.call('NOSUCH')":                "ERR Unknown Redis command called from script script: ",
		"return redis.call('GET')":                   "ERR Wrong number of args calling Redis command from script script: ",
		"return redis.call()":                        "ERR Please specify at least one argument for this redis lib call script: ",
		"return redis.call('GET', {})":               "ERR Lua redis lib command arguments must be strings or integers script: ",
		"return redis.call('EVAL', 'return 1', 0)":   "ERR This Redis command is not allowed from script script: ",
		"return redis.call('CLIENT', 'ID')":          "ERR This Redis command is not allowed from script script: ",
		"return redis.call('CONFIG', 'GET', 'save')": "ERR This Redis command is not allowed from script script: ",
		"return 'a' .. nil":                          "user_script:1: attempt to concatenate a nil value script: ",
		"return 'a' .. {}":                           "user_script:1: attempt to concatenate a table value script: ",
		"local t = {} return t.x.y":                  "user_script:1: attempt to index ",
		"return 1 < 'x'":                             "user_script:1: attempt to compare number with string script: ",
		"return {} + 1":                              "user_script:1: ",
	} {
		got := c.eval(script, []string{"s"})
		got, isError := strings.CutPrefix(got, "(error) ")
		require.True(t, isError, "%s: %s", script, got)
		if !s.atLeast(t, 7, 0) {
			continue // "ERR Error running script (call to f_…): @user_script:1: WRONGTYPE …"
		}
		got = strings.TrimPrefix(got, "ERR ")
		want = strings.TrimPrefix(s.text(want), "ERR ")
		require.True(t, strings.HasPrefix(got, want), "%s\n got %s\nwant %s", script, got, want)
		if head, tail, ok := strings.Cut(want, " script: "); ok && tail == "" && head != "" {
			require.Regexp(t, ` script: [0-9a-f]{40}, on @user_script:\d+\.$`, got, script)
		}
	}
	run(t, s, map[string]string{
		"local ok, e = pcall(redis.call, 'INCR', 's') return {tostring(ok), type(e), e}":                     "[false string ERR value is not an integer or out of range]",
		"local e = redis.pcall('INCR', 's') return e.err":                                                    "ERR value is not an integer or out of range",
		"local ok, e = pcall(function() error('x', 0) end) return {tostring(ok), e}":                         "[false x]",
		"local ok, e = pcall(function() error({code = 7}) end) return e.code":                                "7",
		"return redis.error_reply('My problem').err":                                                         "My problem",
		"redis.call('SET', KEYS[1], 1) local e = redis.pcall('INCR', 's') return redis.call('GET', KEYS[1])": "1",
	})
	if s.atLeast(t, 7, 0) {
		run(t, s, map[string]string{
			"return redis.pcall('NOSUCH').err":                s.text("ERR Unknown Redis command called from script"),
			"return redis.error_reply('oops').err":            "ERR oops",
			"return redis.error_reply('-MYERR problem').err":  "MYERR problem",
			"return {1, redis.error_reply('-MYERR problem')}": "[1 (error) MYERR problem]",
		})
	}
	require.Contains(t, c.eval("redis.call('SET', 'w', 1) error('x')", nil), "(error)")
	c.want(t, "1", "GET", "w")
}

func scriptCalls(t *testing.T, s server) {
	run(t, s, map[string]string{
		"return redis.call('set', KEYS[1], 'v')":                                                                      "OK",
		"return redis.call('SeT', KEYS[1], 'v')":                                                                      "OK",
		"local call = redis.call call('SET', KEYS[1], 'x') return call('GET', KEYS[1])":                               "x",
		"redis.call('DEL', KEYS[1]) return redis.call('INCRBY', KEYS[1], 0)":                                          "0",
		"return redis.call('EXISTS', unpack({'a', 'b', 'c'}))":                                                        "0",
		"redis.call('SET', KEYS[1], 'v') return redis.call('KEYS', '*')[1] and 1":                                     "1",
		"return redis.call('ECHO', KEYS[1])":                                                                          "k",
		"redis.call('DEL', 'z') redis.call('ZADD', 'z', 1732100000000001, 'm') return redis.call('ZSCORE', 'z', 'm')": "1732100000000001",
	})
}

func scriptLibrary(t *testing.T, s server) {
	run(t, s, map[string]string{
		"return {string.match('abc:123:x', '^(%w+):(%d+):(.*)$')}":                                          "[abc 123 x]",
		"return {string.find('hello world', 'o w')}":                                                        "[5 7]",
		"return {string.find('a.b', '.', 1, true)}":                                                         "[2 2]",
		"return {string.find('abc', 'b()')}":                                                                "[2 2 3]",
		"return {string.find('', '')}":                                                                      "[1 0]",
		"return {string.find('abc', 'x') or 'none'}":                                                        "[none]",
		"return string.match('  trim  ', '^%s*(.-)%s*$')":                                                   "trim",
		"return string.match('key = value', '(%a+)%s*=%s*(%a+)')":                                           "key",
		"return string.match('f(a(b)c)d', '%b()')":                                                          "(a(b)c)",
		"return string.match('aXb', '%u') .. string.match('a1', '[^%a]') .. string.match('x-y', '[x%-]+')":  "X1x-",
		"return string.match('abcabc', '(abc)%1')":                                                          "abc",
		"return string.match('2024', '^%d%d?%d?$') or 'no'":                                                 "no",
		"return {string.gsub('hello', 'l', 'L')}":                                                           "[heLLo 2]",
		"return {string.gsub('hello', 'l', 'L', 1)}":                                                        "[heLlo 1]",
		"return {string.gsub('abc', '%w', '%0%0')}":                                                         "[aabbcc 3]",
		"return {string.gsub('a b', '(%w) (%w)', '%2 %1')}":                                                 "[b a 1]",
		"return {string.gsub('$x $y', '%$(%w)', {x = 1})}":                                                  "[1 $y 2]",
		"return {string.gsub('abc', '', '-')}":                                                              "[-a-b-c- 4]",
		"return {string.gsub('abc', 'b', function(c) return c:upper() end)}":                                "[aBc 1]",
		"local t = {} for k, v in string.gmatch('a=1,b=2', '(%w)=(%w)') do t[#t + 1] = k .. v end return t": "[a1 b2]",
		"local t = {} for n in ('1:22:333'):gmatch('%d+') do t[#t + 1] = tonumber(n) end return t":          "[1 22 333]",
		"return ('abc'):sub(2) .. ('abc'):sub(-2, -2) .. ('abc'):upper() .. ('abc'):reverse() .. #'abc'":    "bcbABCcba3",
		"return {('A'):byte(), string.char(66, 67)}":                                                        "[65 BC]",
		"local t = {3, 1, 2} table.sort(t) return t":                                                        "[1 2 3]",
		"local t = {3, 1, 2} table.sort(t, function(a, b) return a > b end) return t":                       "[3 2 1]",
		"local t = {1, 2} table.insert(t, 3) table.insert(t, 1, 0) table.remove(t, 2) return t":             "[0 2 3]",
		"local n = 0 for i, v in ipairs({5, 6, nil, 7}) do n = n + i * v end return n":                      "17",
		"local n = 0 for k, v in pairs({a = 1, b = 2}) do n = n + v end return n":                           "3",
		"local n = 0 for i = 10, 1, -3 do n = n + i end return n":                                           "22",
		"return select('#', 1, nil, nil) .. select(2, 'a', 'b')":                                            "3b",
		"local f = loadstring('return 1732100000000001 .. \"\"') return f()":                                "1.7321e+15",
		"local s = '' for i = 1, 3 do s = s .. i .. ',' end return s":                                       "1,2,3,",
		"local function two() return 'a', 'b' end return two() .. two()":                                    "aa",
		"local function two() return 1, 2 end return two() .. ''":                                           "1",
		"local function two() return 1, 2 end return '' .. two()":                                           "1",
		"if ARGV[2] == 'text' and not (ARGV[1] ~= '5') then return 'yes' end":                               "yes",
		"repeat local x = 1 until x == 1 while true do break end do return 'end' end":                       "end",
		"return #{1, 2, 3} .. #'four'":                                                                      "34",
		"return ({'a', 'b'})[2] .. ({x = 'c'}).x":                                                           "bc",
		"return tostring(nil) .. tostring(true)":                                                            "niltrue",
		"return assert('fine')":                                                                             "fine",
		"return next({}) == nil and rawequal(1, 1)":                                                         "1",
		"local t = setmetatable({}, {__index = function(t, k) return k end}) return t.x":                    "x",
	})
}

func scriptFullMemory(t *testing.T, s server) {
	c := s.track(t)
	c.want(t, "OK", "SET", "k", "v")
	c.want(t, "OK", "CONFIG", "SET", "maxmemory", "1")
	defer c.do("CONFIG", "SET", "maxmemory", "0")
	const oom = "(error) OOM command not allowed when used memory > 'maxmemory'."
	c.want(t, oom, "SET", "x", "v")
	c.want(t, oom, "INCR", "n")
	c.want(t, "v", "GET", "k")
	c.want(t, "1", "PEXPIRE", "k", "90000")
	first := c.eval("return redis.call('SET', KEYS[1], 'w')", key)
	caught := c.eval("return redis.pcall('SET', KEYS[1], 'x')", key)
	if s.atLeast(t, 7, 0) {
		require.True(t, strings.HasPrefix(first, oom), "the first write decides")
		require.Equal(t, oom, caught)
	} else { // in a wrapping of its own
		require.Contains(t, first, strings.TrimPrefix(oom, "(error) "))
		require.Contains(t, caught, strings.TrimPrefix(oom, "(error) "))
	}
	require.Equal(t, "OK", c.eval("redis.call('PEXPIRE', KEYS[1], 80000) return redis.call('SET', KEYS[1], 'w')", key), "a script that has written may go on")
	require.Equal(t, "w", c.eval("return redis.call('GET', KEYS[1])", key))
	c.want(t, "1", "DEL", "k")
}
