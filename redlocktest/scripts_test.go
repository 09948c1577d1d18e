package redlocktest_test

import (
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// The library's own scripts, on the simulated node and on redis-server: what each answers, stores, tracks and pushes.

func init() {
	rules = append(rules, []struct {
		name string
		run  func(t *testing.T, s server)
	}{
		{"redlock/acquire grants, refuses, and is asked again", acquireScript},
		{"redlock/acquire and the marker", acquireMarker},
		{"redlock/fencing tokens", acquireTokens},
		{"redlock/the line", acquireLine},
		{"redlock/takeover", acquireTakeover},
		{"redlock/extend", extendScript},
		{"redlock/release", releaseScript},
		{"redlock/mark", markScript},
		{"redlock/what is tracked", scriptsTrack},
		{"redlock/full memory", scriptsMemory},
		{"redlock/inspect", inspectScript},
	}...)
}

const (
	lockOf   = "p:{n}"
	markerOf = "p:marker"
	fenceOf  = "p:fence:1"
	queueOf  = "p:queue:{n}"
	wakesOf  = "p:wake:"
	ownerA   = "AAAAAAAAAAAAAAAAAAAAAAAAAA"
	ownerB   = "BBBBBBBBBBBBBBBBBBBBBBBBBB"
	ownerC   = "CCCCCCCCCCCCCCCCCCCCCCCCCC"
	never    = "9007199254740991" // "not after" for those who are not late
)

func lua(t *testing.T, name string) string {
	t.Helper()
	source, err := os.ReadFile(filepath.Join("..", "lua", name+".lua"))
	require.NoError(t, err)
	return strings.Replace(string(source), "--IDENTITY--",
		"if not string.find(redis.call('INFO', 'server'), 'run_id:' .. string.sub(ARGV[6], 1, 40), 1, true) then return {-2, now} end", 1)
}

// peer is a client that speaks the scripts, by a marker that it has read.
type peer struct {
	*connection
	t      *testing.T
	marker string
}

// markedServer marks a server as adopted, without quarantine and floor, and returns clients of it.
func markedServer(t *testing.T, s server, n int) []peer {
	t.Helper()
	var peers []peer
	for range n {
		c := s.track(t)
		if peers == nil {
			c.want(t, "OK", "SET", markerOf, runIDOf(c)+":0:0:10000:3:SET:again:off")
		}
		peers = append(peers, peer{c, t, c.do("GET", markerOf)})
	}
	return peers
}

func runIDOf(c *connection) string {
	return regexp.MustCompile(`run_id:(\w{40})`).FindStringSubmatch(c.do("INFO", "server"))[1]
}

// now matches the time in an answer, which is cut out of it.
var now = regexp.MustCompile(`^\[(-?\d+) 1\d{15}`)

func timeless(answer string) string { return now.ReplaceAllString(answer, "[$1") }

type question struct {
	owner, token, notAfter, until, floor, bound, takeover, waiter, ticket string
	lease                                                                 int
}

func (p peer) acquire(q question) string {
	p.t.Helper()
	set := func(field *string, value string) {
		if *field == "" {
			*field = value
		}
	}
	set(&q.token, "100")
	set(&q.notAfter, never)
	set(&q.until, "0")
	set(&q.floor, "0")
	set(&q.bound, "500000")
	set(&q.takeover, "0")
	set(&q.ticket, "0")
	if q.lease == 0 {
		q.lease = 10000
	}
	keys := []string{lockOf, markerOf}
	claim := q.owner
	if q.waiter != "" {
		keys, claim = append(keys, wakesOf+q.waiter), q.owner+"#"+q.ticket
	}
	return timeless(p.eval(lua(p.t, "acquire"), keys, claim, strconv.Itoa(q.lease), q.token, q.notAfter, fenceOf, p.marker, q.until, q.floor,
		"10000", q.bound, q.takeover, queueOf, wakesOf, q.waiter, q.ticket, "1800"))
}

func (p peer) extend(owner, token, mayWin string) string {
	p.t.Helper()
	return timeless(p.eval(lua(p.t, "extend"), []string{lockOf, markerOf}, owner, "10000", token, never, fenceOf, p.marker, "0", mayWin))
}

func (p peer) release(owner, waiter, ticket, ended string) string {
	p.t.Helper()
	keys := []string{lockOf}
	if waiter != "" {
		keys = append(keys, wakesOf+waiter)
	}
	return p.eval(lua(p.t, "release"), keys, owner, wakesOf, "1800", waiter, ticket, ended, "0", queueOf)
}

// left asserts that an answer of the form [code left …] has a lease left that is sensible, and returns it without.
func left(t *testing.T, answer string, atMost int) string {
	t.Helper()
	var code, ms int
	_, err := fmt.Sscanf(answer, "[%d %d", &code, &ms)
	require.NoError(t, err, answer)
	require.Greater(t, ms, 0, answer)
	require.LessOrEqual(t, ms, atMost, answer)
	return strings.Replace(answer, fmt.Sprintf("[%d %d", code, ms), fmt.Sprintf("[%d", code), 1)
}

func acquireScript(t *testing.T, s server) {
	p := markedServer(t, s, 2)
	a, b := p[0], p[1]
	require.Equal(t, "[1 100]", a.acquire(question{owner: ownerA}))
	a.want(t, ownerA, "GET", lockOf)
	require.Equal(t, "[0 "+ownerA+" 0]", left(t, b.acquire(question{owner: ownerB}), 10000))
	b.want(t, "100", "GET", fenceOf) // a refusal does not touch the counter

	a.want(t, "1", "PEXPIRE", lockOf, "50")
	require.Equal(t, "[1 100  1]", a.acquire(question{owner: ownerA}), "asked again: the same token")
	ms, err := strconv.Atoi(a.do("PTTL", lockOf))
	require.NoError(t, err)
	require.Greater(t, ms, 5000, "a yes means that the lease was renewed")
	a.want(t, "1", "PEXPIRE", lockOf, "60000")
	require.Equal(t, "[1 100  1]", a.acquire(question{owner: ownerA, lease: 100}))
	ms, err = strconv.Atoi(a.do("PTTL", lockOf))
	require.NoError(t, err)
	require.Greater(t, ms, 50000, "a lease only ever grows")

	require.Equal(t, "[-3]", b.acquire(question{owner: ownerB, notAfter: "1"}), "too late")
	require.Equal(t, "[0 "+ownerA+" 0]", left(t, b.acquire(question{owner: ownerB}), 10000), "cut to the longest lease")
	a.want(t, "1", "PERSIST", lockOf)
	require.Equal(t, "[0 "+ownerA+" 0]", left(t, b.acquire(question{owner: ownerB}), 10000), "PERSIST is undone")

	a.want(t, "1", "DEL", lockOf)
	a.want(t, "1", "HSET", lockOf, "f", "v")
	require.Contains(t, b.acquire(question{owner: ownerB}), "WRONGTYPE")
}

func acquireMarker(t *testing.T, s server) {
	p := markedServer(t, s, 2)
	a, b := p[0], p[1]
	b.marker = strings.Replace(b.marker, ":3:", ":5:", 1)
	require.Equal(t, "[-2]", b.acquire(question{owner: ownerB}), "another marker than the node's")
	a.want(t, "(nil)", "GET", lockOf)
	a.want(t, "OK", "SET", markerOf, strings.Repeat("0", 40)+":0:0:10000:3:SET:again:off")
	a.marker = a.do("GET", markerOf)
	require.Equal(t, "[-2]", a.acquire(question{owner: ownerA}), "the marker of another process")
	a.want(t, "(nil)", "GET", lockOf)
	a.want(t, "1", "DEL", markerOf)
	require.Equal(t, "[-2]", a.acquire(question{owner: ownerA}), "no marker")

	a = markedServer(t, s, 1)[0]
	require.Equal(t, "[-1]", left(t, a.acquire(question{owner: ownerA, until: strconv.FormatInt(time.Now().Add(time.Hour).UnixMicro(), 10)}), 3_700_000), "quarantined")
	a.want(t, "(nil)", "GET", lockOf)
}

func acquireTokens(t *testing.T, s server) {
	a := markedServer(t, s, 1)[0]
	token := func(q question) int {
		t.Helper()
		q.owner = ownerA
		var got int
		answer := a.acquire(q)
		_, err := fmt.Sscanf(answer, "[1 %d]", &got)
		require.NoError(t, err, answer)
		a.want(t, strconv.Itoa(got), "GET", fenceOf)
		a.want(t, "1", "DEL", lockOf)
		return got
	}
	require.Equal(t, 100, token(question{token: "100"}), "the proposal")
	require.Equal(t, 101, token(question{token: "7"}), "or one more than the last")
	require.Equal(t, 5000, token(question{token: "300", floor: "5000"}), "or the floor")
	far := token(question{token: "4000000000000000"})
	require.InDelta(t, time.Now().UnixMicro(), far, 60e6, "no further ahead than the bound")
	a.want(t, "OK", "SET", fenceOf, "9007199254740000")
	require.Contains(t, a.acquire(question{owner: ownerA}), "exhausted")
	a.want(t, "(nil)", "GET", lockOf)
	a.want(t, "OK", "SET", fenceOf, "1732100000000001")
	require.Equal(t, 1732100000000002, token(question{token: "7"}), "no digit is lost")
}

func acquireLine(t *testing.T, s server) {
	p := markedServer(t, s, 4)
	holder, b, c, newcomer := p[0], p[1], p[2], p[3]
	require.Equal(t, "[1 100]", holder.acquire(question{owner: ownerA}))
	require.Equal(t, "[0 "+ownerA+" 1]", left(t, c.acquire(question{owner: ownerC, waiter: "wC", ticket: "30"}), 10000), "alone in line")
	require.Equal(t, "[0 "+ownerA+" 1]", left(t, b.acquire(question{owner: ownerB, waiter: "wB", ticket: "20"}), 10000), "an older ticket is first")
	require.Equal(t, "[0 "+ownerA+" 0]", left(t, c.acquire(question{owner: ownerC, waiter: "wC", ticket: "30"}), 10000))
	b.pushed(t)
	c.pushed(t)

	require.Equal(t, "[1  0]", strings.Replace(holder.extend(ownerA, "100", "0"), "[1 0 ]", "[1  0]", 1))
	for _, waiter := range []peer{b, c} {
		require.NotContains(t, waiter.pushed(t), wakesOf+"wB", "an extension wakes nobody")
	}
	require.Equal(t, "[1 wB]", holder.release(ownerA, "", "", "1"), "the first is woken")
	require.Contains(t, b.pushed(t), wakesOf+"wB")
	require.NotContains(t, c.pushed(t), wakesOf+"wC", "and it alone")

	require.Equal(t, "[-5 0 wB;20]", newcomer.acquire(question{owner: ownerA}), "nobody overtakes who waits")
	require.Equal(t, "[-5 0 wB;20]", c.acquire(question{owner: ownerC, waiter: "wC", ticket: "30"}))
	c.want(t, "(nil)", "GET", lockOf)
	require.Equal(t, "[1 101]", b.acquire(question{owner: ownerB, waiter: "wB", ticket: "20"}))
	b.want(t, ownerB+"#20", "GET", lockOf)
	b.want(t, "[wC]", "ZRANGE", queueOf, "0", "-1")
	b.want(t, "0", "EXISTS", wakesOf+"wB")

	require.Equal(t, "[0 ]", c.release(ownerC, "wC", "", "1"), "leaving the line")
	c.want(t, "0", "EXISTS", queueOf, wakesOf+"wC")
	require.Equal(t, "[1 ]", b.release(ownerB+"#20", "wB", "20", "1"), "letting go to somebody, and staying in line")
	b.want(t, "[wB]", "ZRANGE", queueOf, "0", "-1")

	b.want(t, "1", "DEL", wakesOf+"wB")
	require.Equal(t, "[1 102]", newcomer.acquire(question{owner: ownerA}), "the dead are dropped")
	b.want(t, "0", "EXISTS", queueOf)
}

func acquireTakeover(t *testing.T, s server) {
	p := markedServer(t, s, 3)
	a, b, c := p[0], p[1], p[2]
	require.Equal(t, "[1 100]", a.acquire(question{owner: ownerA}))
	answer := b.acquire(question{owner: ownerB, takeover: "1", lease: 100})
	require.Regexp(t, `^\[1 101 ;`+ownerA+`@1\d{15} 0\]$`, answer)
	ms, err := strconv.Atoi(b.do("PTTL", lockOf))
	require.NoError(t, err)
	require.Greater(t, ms, 5000, "never shorter than what it displaces")
	require.Regexp(t, `^\[0 `+ownerB+`;`+ownerA+`@\d+\]$`, left(t, a.extend(ownerA, "100", "1"), 10000), "the displaced one finds itself listed")
	require.Regexp(t, `^\[1 0 ;`+ownerA+`@\d+\]$`, b.extend(ownerB, "101", "0"), "the list is kept")

	require.Regexp(t, `^\[1 102 ;`+ownerA+`@\d+;`+ownerB+`@\d+ 0\]$`, c.acquire(question{owner: ownerC, takeover: "1"}), "a chain carries the list")
	c.pushed(t)
	require.Equal(t, "[0 ]", a.release(ownerA, "", "", "0"), "a live guard's release strikes nothing out")
	require.Contains(t, a.do("GET", lockOf), ownerA)
	require.Equal(t, "[0 ]", a.release(ownerA, "", "", "1"), "an ended one's does")
	require.Regexp(t, `^`+ownerC+`;`+ownerB+`@\d+$`, a.do("GET", lockOf))
	require.Equal(t, []string{lockOf}, c.pushed(t), "which pushes the taker")

	require.Equal(t, "[1 ]", c.release(ownerC, "", "", "1"))
	require.Regexp(t, `^~;`+ownerB+`@\d+$`, c.do("GET", lockOf), "a tombstone for who is left")
	require.Regexp(t, `^\[0 ~;`+ownerB+`@\d+ 0\]$`, left(t, a.acquire(question{owner: ownerA}), 10000))
	require.Equal(t, "[0 ]", b.release(ownerB, "", "", "1"))
	b.want(t, "(nil)", "GET", lockOf)
}

func extendScript(t *testing.T, s server) {
	p := markedServer(t, s, 2)
	a, b := p[0], p[1]
	require.Equal(t, "[1 100]", a.acquire(question{owner: ownerA}))
	a.want(t, "1", "PEXPIRE", lockOf, "50")
	require.Equal(t, "[1 0 ]", a.extend(ownerA, "500", "0"))
	a.want(t, "500", "GET", fenceOf) // the token is stored where it reaches
	require.Equal(t, "[1 0 ]", a.extend(ownerA, "7", "0"))
	a.want(t, "500", "GET", fenceOf) // and never lowered
	require.Equal(t, "[0 "+ownerA+"]", left(t, b.extend(ownerB, "900", "1"), 10000))
	a.want(t, "500", "GET", fenceOf) // nor raised by who does not hold it
	a.want(t, "1", "DEL", lockOf)
	require.Equal(t, "[-4]", a.extend(ownerA, "500", "0"), "gone")
	require.Equal(t, "[2]", a.extend(ownerA, "600", "1"), "won back")
	a.want(t, "600", "GET", fenceOf)
	a.want(t, "1", "DEL", lockOf)
	a.marker += "x"
	require.Equal(t, "[-2]", a.extend(ownerA, "600", "1"), "not on another memory")
	a.want(t, "(nil)", "GET", lockOf)
}

func releaseScript(t *testing.T, s server) {
	p := markedServer(t, s, 2)
	a, b := p[0], p[1]
	require.Equal(t, "[1 100]", a.acquire(question{owner: ownerA}))
	require.Equal(t, "[0 ]", b.release(ownerB, "", "", "1"), "somebody else's")
	require.Equal(t, "[0 ]", b.release(ownerA[:25], "", "", "1"), "a part of an owner is not an owner")
	a.want(t, ownerA, "GET", lockOf)
	require.Equal(t, "[1 ]", a.release(ownerA, "", "", "1"))
	require.Equal(t, "[0 ]", a.release(ownerA, "", "", "1"), "twice")
	a.want(t, "100", "GET", fenceOf) // the counter stays
	require.Equal(t, "[1 101]", a.acquire(question{owner: ownerA}))
	require.Equal(t, "[-3 ]", a.eval(lua(t, "release"), []string{lockOf}, ownerA, wakesOf, "1800", "", "", "0", "1", queueOf), "a live guard's comes too late")
	a.want(t, ownerA, "GET", lockOf)
}

func markScript(t *testing.T, s server) {
	a := s.track(t)
	mark := func(was, runID, quarantine, until, floor, raise string) string {
		return timeless(a.eval(lua(t, "mark"), []string{markerOf}, was, runID, quarantine, until, floor, raise, "rest"))
	}
	runID := runIDOf(a)
	require.Equal(t, "[0 ]", mark("", strings.Repeat("0", 40), "0", "0", "0", "0"), "another process")
	require.Equal(t, "[0 ]", mark("x", runID, "0", "0", "0", "0"), "another marker")
	require.Regexp(t, `^\[1 `+runID+`:1\d{15}:1\d{15}:rest\]$`, mark("", runID, "10000000", "0", "5", "10000000"))
	was := a.do("GET", markerOf)
	require.Equal(t, "[0 "+was+"]", mark("", runID, "0", "0", "0", "0"), "somebody was first")
	require.Equal(t, "[1 "+runID+":17:99:rest]", mark(was, runID, "-1", "17", "99", "-1"), "kept as told")
}

func scriptsTrack(t *testing.T, s server) {
	p := markedServer(t, s, 3)
	a, b, c := p[0], p[1], p[2]
	require.Equal(t, "[1 100]", a.acquire(question{owner: ownerA}))
	require.Contains(t, b.acquire(question{owner: ownerB}), ownerA)
	for _, p := range []peer{a, b, c} {
		p.pushed(t)
	}
	c.want(t, "1", "DEL", lockOf)
	require.Equal(t, []string{lockOf}, a.pushed(t), "a granted lock is tracked")
	require.Equal(t, []string{lockOf}, b.pushed(t), "and a refused one")

	require.Equal(t, "[1 101]", a.acquire(question{owner: ownerA}))
	require.Equal(t, "[1 0 ]", a.extend(ownerA, "101", "0"))
	require.Empty(t, a.pushed(t), "own writes do not push")
	c.want(t, "1", "PEXPIRE", lockOf, "9000")
	require.Equal(t, []string{lockOf}, a.pushed(t), "an extended lock is tracked still")

	require.Contains(t, b.acquire(question{owner: ownerB, waiter: "wB", ticket: "20"}), ownerA)
	b.pushed(t)
	c.want(t, "OK", "SET", wakesOf+"wB", "1", "KEEPTTL")
	require.Contains(t, b.pushed(t), wakesOf+"wB", "a waiter's wake key is tracked")
	c.want(t, "1", "ZADD", queueOf, "1", "else")
	c.want(t, "OK", "SET", fenceOf, "900")
	for _, p := range []peer{a, b} {
		require.NotContains(t, p.pushed(t), queueOf, "the line is not")
	}
	a.want(t, "OK", "SET", markerOf, "changed")
	require.Equal(t, []string{markerOf}, b.pushed(t), "the marker is")
}

func scriptsMemory(t *testing.T, s server) {
	p := markedServer(t, s, 2)
	a, b := p[0], p[1]
	require.Equal(t, "[1 100]", a.acquire(question{owner: ownerA}))
	a.want(t, "OK", "CONFIG", "SET", "maxmemory", "1")
	t.Cleanup(func() { a.do("CONFIG", "SET", "maxmemory", "0") })
	require.Contains(t, b.acquire(question{owner: ownerB}), "OOM")
	require.Equal(t, "[1 0 ]", a.extend(ownerA, "500", "0"), "a lock that is held is renewed")
	require.Equal(t, "[1 ]", a.release(ownerA, "", "", "1"), "and released")
	require.Contains(t, b.acquire(question{owner: ownerB}), "OOM")
	b.want(t, "(nil)", "GET", lockOf)
}

func inspectScript(t *testing.T, s server) {
	p := markedServer(t, s, 3)
	a, b, c := p[0], p[1], p[2]
	look := func() string {
		return regexp.MustCompile(` \d{4,5} `).ReplaceAllString(a.eval(lua(t, "inspect"), []string{lockOf, queueOf}, fenceOf, wakesOf), " ms ")
	}
	require.Equal(t, "[ -2 0]", look())
	require.Equal(t, "[1 100]", a.acquire(question{owner: ownerA}))
	b.acquire(question{owner: ownerB, waiter: "wB", ticket: "20"})
	c.acquire(question{owner: ownerC, waiter: "wC", ticket: "30"})
	require.Equal(t, "["+ownerA+" ms 100 wB wC]", look())
	a.want(t, "1", "DEL", wakesOf+"wB")
	require.Equal(t, "["+ownerA+" ms 100 wC]", look(), "the dead do not count")
}
