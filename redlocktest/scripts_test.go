package redlocktest_test

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/redlock-go/redlock/internal/node"
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
		{"redlock/asked to let go", acquireAsks},
		{"redlock/extend", extendScript},
		{"redlock/release", releaseScript},
		{"redlock/hand-over", handOver},
		{"redlock/mark", markScript},
		{"redlock/what is tracked", scriptsTrack},
		{"redlock/full memory", scriptsMemory},
		{"redlock/inspect", inspectScript},
		{"redlock/batch does what its steps do alone", batchSteps},
		{"redlock/batch: where anybody waits", batchLooksAtLines},
		{"redlock/batch: a bad step is alone", batchErrors},
		{"redlock/batch in full memory", batchMemory},
		{"redlock/batch and the marker", batchMarker},
		{"redlock/batch: what is tracked", batchTracks},
		{"redlock/several names", severalNames},
		{"redlock/several names, before 7.0", severalNamesBefore},
		{"redlock/several names: the lines", severalLines},
		{"redlock/several names: full memory, and what is tracked", severalTracks},
		{"redlock/slots", slotScripts},
		{"redlock/slots: the line", slotLine},
		{"redlock/slots: their number", slotNumber},
		{"redlock/slots in a batch", slotBatch},
		{"redlock/readers and writers", rwScripts},
		{"redlock/readers and writers: the line", rwLine},
		{"redlock/readers and writers: the index", rwIndex},
		{"redlock/readers and writers: the index before 7.0", rwOldIndex},
		{"redlock/readers and writers: tokens", rwTokens},
		{"redlock/readers and writers in full memory", rwMemory},
		{"redlock/readers and writers: what is tracked", rwTracks},
		{"redlock/readers and writers in a batch", rwBatch},
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
	ownerD   = "DDDDDDDDDDDDDDDDDDDDDDDDDD"
	never    = "9007199254740991" // "not after" for those who are not late
)

// lua is a script as the library loads it into such a server.
func (s server) lua(t *testing.T) func(node.Script) string {
	sources := node.SourcesFor("", s.atLeast(t, 7, 0))
	return func(script node.Script) string { return sources[script] }
}

// oldLua is a script as it is for servers before 7.0: it asks for the process itself.
func oldLua(script node.Script) string { return node.SourcesFor("", false)[script] }

// file is a script that is sent as it is.
func file(t *testing.T, name string) string {
	t.Helper()
	source, err := os.ReadFile(filepath.Join("..", "internal", "node", "lua", name+".lua"))
	require.NoError(t, err)
	return string(source)
}

// peer is a client that speaks the scripts, by a marker that it has read.
type peer struct {
	*connection
	t      *testing.T
	marker string
	lua    func(node.Script) string
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
		peers = append(peers, peer{c, t, c.do("GET", markerOf), s.lua(t)})
	}
	return peers
}

// markedOldServer is the same for clients with the scripts for servers before 7.0.
func markedOldServer(t *testing.T, s server, n int) []peer {
	t.Helper()
	peers := markedServer(t, s, n)
	for i := range peers {
		peers[i].lua = oldLua
	}
	return peers
}

func runIDOf(c *connection) string {
	return regexp.MustCompile(`run_id:(\w{40})`).FindStringSubmatch(c.do("INFO", "server"))[1]
}

// now matches the time in an answer, which is cut out of it.
var now = regexp.MustCompile(`^\[(-?\d+) 1\d{15}`)

func timeless(answer string) string { return now.ReplaceAllString(answer, "[$1") }

// spelledOut is what an acquire answers, without the time; a grant with its token also where that is the one that was proposed.
func spelledOut(answer, proposed string) string {
	return strings.Replace(timeless(answer), "[-100]", "[1 "+proposed+"]", 1)
}

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
	if q.lease == 0 {
		q.lease = 10000
	}
	keys := []string{lockOf, markerOf}
	claim := q.owner
	if q.waiter != "" {
		keys, claim = append(keys, wakesOf+q.waiter), q.owner+"#"+q.ticket
	}
	return spelledOut(p.eval(p.lua(node.ScriptAcquire), keys, claim, strconv.Itoa(q.lease), q.token, q.notAfter, fenceOf, p.marker, q.until, q.floor,
		"10000", q.bound, queueOf, wakesOf, q.takeover, q.waiter, "1800"), q.token)
}

func (p peer) extend(owner, token, mayWin string) string {
	p.t.Helper()
	return timeless(p.eval(p.lua(node.ScriptExtend), []string{lockOf, markerOf}, owner, "10000", token, never, fenceOf, p.marker, "0", mayWin))
}

func (p peer) release(owner, waiter, ticket, ended string) string {
	p.t.Helper()
	keys := []string{lockOf}
	if waiter != "" {
		keys = append(keys, wakesOf+waiter)
	}
	return p.eval(p.lua(node.ScriptRelease), keys, owner, queueOf, wakesOf, ended, "0", waiter, ticket, "1800")
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
	a.want(t, "1", "ZADD", lockOf, "1", "v")
	require.Contains(t, b.acquire(question{owner: ownerB}), "WRONGTYPE")
}

func acquireMarker(t *testing.T, s server) {
	p := markedOldServer(t, s, 2)
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

func acquireAsks(t *testing.T, s server) {
	p := markedServer(t, s, 3)
	a, b, c := p[0], p[1], p[2]
	const mark = `\d{16}`
	require.Equal(t, "[1 100]", b.acquire(question{owner: ownerB, takeover: "?5000", waiter: "wB", ticket: "2"}), "a free lock is had, and nobody asked")
	b.want(t, ownerB+"#2", "GET", lockOf)
	require.Equal(t, "[1 ]", b.release(ownerB+"#2", "", "", "1"))

	require.Equal(t, "[1 101]", a.acquire(question{owner: ownerA}))
	a.pushed(t)
	require.Equal(t, "[0 "+ownerA+" 1]", left(t, b.acquire(question{owner: ownerB, takeover: "?5000", waiter: "wB", ticket: "2"}), 10000))
	require.Contains(t, a.pushed(t), lockOf, "the holder is told")
	require.Regexp(t, `^\[1 0 ;\?wB@`+mark+`\]$`, a.extend(ownerA, "100", "0"), "and reads it")
	require.Regexp(t, `^\[1 101 ;\?wB@`+mark+` 1\]$`, a.acquire(question{owner: ownerA}), "also by asking again")
	value := a.do("GET", lockOf)
	ms, err := strconv.Atoi(a.do("PTTL", lockOf))
	require.NoError(t, err)
	require.Greater(t, ms, 5000, "the lease is as it was")
	require.Equal(t, "[0 "+value+" 1]", left(t, b.acquire(question{owner: ownerB, takeover: "?9000", waiter: "wB", ticket: "2"}), 10000))
	a.want(t, value, "GET", lockOf)
	require.Empty(t, a.pushed(t), "asked once")

	require.Equal(t, "[0 "+value+" 0]", left(t, c.acquire(question{owner: ownerC, takeover: "?1", waiter: "wC", ticket: "3"}), 10000))
	require.Regexp(t, `^`+ownerA+`;\?wB@`+mark+`;\?wC@`+mark+`$`, a.do("GET", lockOf))
	time.Sleep(5 * time.Millisecond)
	c.acquire(question{owner: ownerC, takeover: "?5000", waiter: "wD", ticket: "4"})
	require.Regexp(t, `^`+ownerA+`;\?wB@`+mark+`;\?wD@`+mark+`$`, a.do("GET", lockOf), "the question that is over is dropped, and no other")

	a.pushed(t)
	require.Equal(t, "[0 ]", b.release(ownerB, "wB", "", "1"), "who leaves the line asks no more")
	require.Contains(t, a.pushed(t), lockOf)
	require.Regexp(t, `^`+ownerA+`;\?wD@`+mark+`$`, a.do("GET", lockOf))
	ms, err = strconv.Atoi(a.do("PTTL", lockOf))
	require.NoError(t, err)
	require.Greater(t, ms, 5000, "the lease is as it was")
	require.Equal(t, "[0 ]", b.release(ownerB, "wB", "", "1"))
	require.Equal(t, "[1 wC]", a.release(ownerA, "", "", "1"), "the first in line is woken")
	a.want(t, "(nil)", "GET", lockOf)
	for _, waiter := range []string{"wC", "wD"} {
		c.release(ownerC, waiter, "", "1")
	}

	// What is kept has no holder to ask, and whoever is first in line is told that it is only kept.
	require.Equal(t, "[1 102]", a.acquire(question{owner: ownerA}))
	b.acquire(question{owner: ownerB, takeover: "?5000", waiter: "wB", ticket: "2"})
	require.Equal(t, "[1 wB]", a.eval(a.lua(node.ScriptRelease), []string{lockOf}, ownerA, queueOf, wakesOf, "1", "0", "", "", "1800", "60000"))
	a.want(t, "~!60000", "GET", lockOf)
	b.acquire(question{owner: ownerB, takeover: "?5000", waiter: "wB", ticket: "2"})
	a.want(t, "~!60000", "GET", lockOf)
	require.Equal(t, "[0 ]", b.release(ownerB, "wB", "", "1"))

	// A takeover carries the list of the displaced, and no question.
	require.Equal(t, "[1 103]", a.acquire(question{owner: ownerA, takeover: "1"}))
	b.acquire(question{owner: ownerB, takeover: "?5000", waiter: "wB", ticket: "2"})
	require.Regexp(t, `^\[1 104 ;`+ownerA+`@\d+ 0\]$`, c.acquire(question{owner: ownerC, takeover: "1"}))
	b.acquire(question{owner: ownerB, takeover: "?5000", waiter: "wB", ticket: "2"})
	require.Regexp(t, `^`+ownerC+`;`+ownerA+`@\d+;\?wB@`+mark+`$`, a.do("GET", lockOf))
	require.Equal(t, "[0 ]", b.release(ownerB, "wB", "", "1"))
	require.Regexp(t, `^`+ownerC+`;`+ownerA+`@\d+$`, a.do("GET", lockOf))

	// In full memory nobody is asked, and a question is taken back all the same.
	b.acquire(question{owner: ownerB, takeover: "?5000", waiter: "wB", ticket: "2"})
	a.want(t, "OK", "CONFIG", "SET", "maxmemory", "1")
	require.Contains(t, c.acquire(question{owner: ownerB, takeover: "?5000", waiter: "wC", ticket: "2"}), "OOM")
	require.Equal(t, "[0 ]", b.release(ownerB, "wB", "", "1"))
	a.want(t, "OK", "CONFIG", "SET", "maxmemory", "0")
	require.Regexp(t, `^`+ownerC+`;`+ownerA+`@\d+$`, a.do("GET", lockOf))
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
	marker := a.marker
	a.marker += "x"
	require.Equal(t, "[-2 0  "+marker+"]", a.extend(ownerA, "600", "1"), "not on another memory, and which that is")
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
	require.Equal(t, "[-3 ]", a.eval(a.lua(node.ScriptRelease), []string{lockOf}, ownerA, queueOf, wakesOf, "0", "1"), "a live guard's comes too late")
	a.want(t, ownerA, "GET", lockOf)
}

// One owner takes the place of another, alone and in a batch, and gives it back; the rest of the value and its end stay.
func handOver(t *testing.T, s server) {
	p := markedServer(t, s, 2)
	a, b := p[0], p[1]
	rest := "#7;" + ownerC + "@9000000000000000"
	a.want(t, "OK", "SET", lockOf, ownerA+rest, "PX", "5000")
	require.Equal(t, "[0 "+ownerA+rest+"]", left(t, b.extend(ownerB, "5", "0"+ownerC), 5000), "not the one that it names")
	require.Equal(t, "[0 "+ownerA+rest+"]", left(t, b.extend(ownerB, "5", "0"), 5000))
	require.Equal(t, "[1 0 "+rest+"]", b.extend(ownerB, "5", "0"+ownerA))
	b.want(t, ownerB+rest, "GET", lockOf)
	b.want(t, "5", "GET", fenceOf)
	ms, err := strconv.Atoi(b.do("PTTL", lockOf))
	require.NoError(t, err)
	require.Greater(t, ms, 5000, "renewed")
	require.Equal(t, "[1 0 "+rest+"]", b.extend(ownerB, "5", "0"+ownerA), "twice")
	require.Equal(t, "[0 "+ownerB+rest+"]", left(t, a.extend(ownerA, "5", "1"+ownerC), 10000))
	require.Equal(t, "[1 ]", b.release(ownerB, "", "", "1"+ownerA))
	a.want(t, ownerA+rest, "GET", lockOf)
	require.Equal(t, "[0 ]", b.release(ownerB, "", "", "1"+ownerA), "twice")
	a.want(t, ownerA+rest, "GET", lockOf)

	succeed := func(owner, mayWin string) step {
		s := asks("succeed", "n", owner)
		s.args = append(s.args, mayWin)
		return s
	}
	require.Equal(t, []string{"[1 0 " + rest + "]", "[1 0 " + rest + "]", "[1 ]"}, b.batch(
		succeed(ownerB, "0"+ownerA), asks("extend", "n", ownerB), step{what: "release", lock: "n", args: []string{ownerB, lockOf, "1" + ownerA, "0", ""}}))
	a.want(t, ownerA+rest, "GET", lockOf)
	a.want(t, "1", "DEL", lockOf)
	require.Equal(t, "[-4]", b.extend(ownerB, "5", "0"+ownerA), "gone")
	require.Equal(t, "[2]", b.extend(ownerB, "5", "1"+ownerA), "won back")
}

func markScript(t *testing.T, s server) {
	a := s.track(t)
	mark := func(was, runID, quarantine, until, floor, raise string) string {
		return timeless(a.eval(file(t, "mark"), []string{markerOf}, was, runID, quarantine, until, floor, raise, "rest"))
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
		return regexp.MustCompile(` \d{4,5} `).ReplaceAllString(a.eval(file(t, "inspect"), []string{lockOf, queueOf}, fenceOf, wakesOf), " ms ")
	}
	require.Equal(t, "[ -2 0]", look())
	require.Equal(t, "[1 100]", a.acquire(question{owner: ownerA}))
	b.acquire(question{owner: ownerB, waiter: "wB", ticket: "20"})
	c.acquire(question{owner: ownerC, waiter: "wC", ticket: "30"})
	require.Equal(t, "["+ownerA+" ms 100 wB wC]", look())
	a.want(t, "1", "DEL", wakesOf+"wB")
	require.Equal(t, "["+ownerA+" ms 100 wC]", look(), "the dead do not count")
}

// step is one of a batch: what it does, of which lock, and its arguments.
type step struct {
	what, lock  string
	args        []string
	slot, slots string // of a semaphore: its key, and how many there are; of a reader-writer lock: which side
}

func named(lock string) string { return "p:{" + lock + "}" }

func asks(what, lock, claim string, more ...string) step {
	args := []string{claim, "10000", "100", never, "1"}
	for i := 0; i+1 < len(more); i += 2 {
		at, _ := strconv.Atoi(more[i])
		args[at] = more[i+1]
	}
	return step{what: what, lock: lock, args: args}
}

func gives(lock, claim string) step {
	return step{what: "end", lock: lock, args: []string{claim, named(lock)}}
}

// told is a step as a batch is told it: its lease and "not after" only where they are not those of most, and how its kind is.
func (s step) told(kind ...string) (args []string) {
	switch s.what {
	case "end", "release", "stay", "keep":
		return append(append(kind, s.what), s.args...)
	}
	if s.args[1] != "10000" || s.args[3] != never {
		args = []string{"own", s.args[1], s.args[3]}
	}
	args = append(append(args, kind...), s.what, s.args[0], s.args[2], "p:fence:"+s.args[4])
	return append(args, s.args[5:]...)
}

// batchHeader is what a batch is told first.
func batchHeader(marker, until string) []string {
	return []string{marker, until, "0", "10000", "500000", "p", wakesOf, "1800", "10000", never}
}

// batch sends steps in one script and shows what each comes to.
func (p peer) batch(steps ...step) (answers []string) {
	p.t.Helper()
	keys := []string{markerOf}
	args := batchHeader(p.marker, "0")
	for _, s := range steps {
		key, kind := named(s.lock), []string(nil)
		if s.slots != "" {
			key, kind = s.slot, []string{"slot", s.slots}
			if s.slots == "r" || s.slots == "w" {
				kind[0] = "rw"
			}
		}
		switch s.what {
		case "wait", "ask":
			keys = append(keys, key, wakesOf+"w"+s.args[0][:1])
		case "stay":
			keys = append(keys, wakesOf+s.args[4])
		case "end", "release", "keep":
		default:
			keys = append(keys, key)
		}
		args = append(args, s.told(kind...)...)
	}
	cmd := append(append([]string{"EVAL", p.lua(node.ScriptBatch), strconv.Itoa(len(keys))}, keys...), args...)
	reply, err := p.Do(context.Background(), p.B().Arbitrary(cmd...).Build()).ToArray()
	require.NoError(p.t, err)
	require.Regexp(p.t, `^1\d{15}$`, show(reply[0], nil))
	for rest := reply[1:]; len(rest) > 0; {
		require.Less(p.t, len(answers), len(steps))
		s := steps[len(answers)]
		if rest[0].Error() != nil {
			answers, rest = append(answers, show(rest[0], nil)), rest[1:]
			continue
		}
		n, err := rest[0].AsInt64()
		require.NoError(p.t, err)
		if n == -100 { // what the step usually returns
			switch s.what {
			case "extend", "regain", "succeed":
				answers = append(answers, "[1 0 ]")
			case "end", "release", "stay", "keep":
				answers = append(answers, "[1 ]")
			default:
				answers = append(answers, "[1 "+s.args[2]+"]")
			}
			rest = rest[1:]
			continue
		}
		var parts []string
		for _, v := range rest[1 : 1+n] {
			parts = append(parts, show(v, nil))
		}
		answers, rest = append(answers, "["+strings.Join(parts, " ")+"]"), rest[1+n:]
	}
	require.Len(p.t, answers, len(steps))
	return answers
}

func batchSteps(t *testing.T, s server) {
	p := markedServer(t, s, 2)
	a, b := p[0], p[1]
	require.Equal(t, []string{"[1 100]", "[1 101]", "[1 100]"}, a.batch(asks("acquire", "x", ownerA), asks("acquire", "y", ownerA), asks("take", "z", ownerA, "4", "2")))
	a.want(t, "101", "GET", "p:fence:1")
	a.want(t, "100", "GET", "p:fence:2")

	answers := b.batch(asks("acquire", "x", ownerB), asks("wait", "x", ownerB+"#20"), asks("wait", "x", ownerC+"#30"), asks("take", "y", ownerB, "1", "100"))
	require.Equal(t, "[0 "+ownerA+" 0]", left(t, answers[0], 10000))
	require.Equal(t, "[0 "+ownerA+" 1]", left(t, answers[1], 10000))
	require.Equal(t, "[0 "+ownerA+" 0]", left(t, answers[2], 10000))
	require.Regexp(t, `^\[1 102 ;`+ownerA+`@1\d{15} 0\]$`, answers[3])
	b.want(t, "[wB wC]", "ZRANGE", "p:queue:{x}", "0", "-1")
	for _, key := range []string{"p:queue:{x}", wakesOf} { // the line, and that there is one
		ms, err := strconv.Atoi(b.do("PTTL", key))
		require.NoError(t, err)
		require.InDelta(t, 3000, ms, 600, key)
	}

	a.want(t, "1", "PEXPIRE", named("x"), "50")
	answers = a.batch(asks("extend", "x", ownerA, "2", "7000"), asks("extend", "y", ownerA), asks("regain", "y", ownerA), asks("extend", "none", ownerA), asks("regain", "none", ownerA), asks("acquire", "x", ownerA))
	require.Equal(t, "[1 0 ]", answers[0])
	require.Regexp(t, `^\[0 `+ownerB+`;`+ownerA+`@\d+\]$`, left(t, answers[1], 10000))
	require.Regexp(t, `^\[0 `+ownerB+`;`+ownerA+`@\d+\]$`, left(t, answers[2], 10000))
	require.Equal(t, []string{"[-4]", "[2]", "[1 7000  1]"}, answers[3:])
	ms, err := strconv.Atoi(a.do("PTTL", named("x")))
	require.NoError(t, err)
	require.Greater(t, ms, 5000, "renewed")
	a.want(t, "1", "PEXPIRE", named("x"), "60000")
	require.Equal(t, []string{"[1 0 ]"}, a.batch(asks("extend", "x", ownerA)))
	ms, err = strconv.Atoi(a.do("PTTL", named("x")))
	require.NoError(t, err)
	require.Greater(t, ms, 50000, "a lease only ever grows")
	a.want(t, "1", "PERSIST", named("x"))
	require.Equal(t, []string{"[1 0 ]"}, a.batch(asks("extend", "x", ownerA)))
	require.Greater(t, a.do("PTTL", named("x")), "1", "PERSIST is undone")

	require.Equal(t, "[0 "+ownerA+" 1]", left(t, b.batch(step{what: "ask", lock: "x", args: append(asks("", "x", ownerB+"#20").args, "?5000")})[0], 10000))
	require.Regexp(t, `^\[1 0 ;\?wB@\d{16}\]$`, a.batch(asks("extend", "x", ownerA))[0])

	// In the order of the queue: who is released is free for the next.
	require.Equal(t, []string{"[1 wB]", "[-5 0 wB;20]", "[1 7001]"}, a.batch(gives("x", ownerA), asks("acquire", "x", ownerC), asks("wait", "x", ownerB+"#20")))
	require.Equal(t, []string{"[0 ]", "[1 ]", "[1 wC]", "[0 wB]", "[-3 ]"}, a.batch(
		step{what: "release", lock: "y", args: []string{ownerA, named("y"), "1", "0", ""}},
		gives("y", ownerB),
		step{what: "stay", lock: "x", args: []string{ownerB + "#20", named("x"), "1", "0", "wB"}},
		step{what: "release", lock: "x", args: []string{ownerC + "#30", named("x"), "1", never, "wC"}},
		step{what: "release", lock: "z", args: []string{ownerA, named("z"), "0", "1", ""}},
	))
	a.want(t, "[wB]", "ZRANGE", "p:queue:{x}", "0", "-1")
	a.want(t, "0", "EXISTS", named("x"), named("y"), wakesOf+"wC")
	a.want(t, ownerA, "GET", named("z"))
}

// A batch looks at lines where anybody stands in one, and there alone. Whoever has begun to wait counts, in the batch or before it.
func batchLooksAtLines(t *testing.T, s server) {
	a := markedServer(t, s, 1)[0]
	in := func(wait func()) {
		t.Helper()
		a.do("DEL", queueOf, wakesOf, wakesOf+"wB", wakesOf+"wC")
		require.Equal(t, "[1 100]", a.acquire(question{owner: ownerA}))
		wait()
		a.want(t, queueOf, "GET", wakesOf)
		require.Equal(t, []string{"[1 wC]", "[-5 0 wC;30]"}, a.batch(gives("n", ownerA), asks("acquire", "n", ownerB)))
		a.want(t, "1", "DEL", "p:fence:1", fenceOf)
	}
	in(func() { a.acquire(question{owner: ownerC, waiter: "wC", ticket: "30"}) })
	in(func() { a.batch(asks("wait", "n", ownerC+"#30")) })

	// It is taken back with the last line, where there was one. Of several it stays for as long as any may last.
	leave := step{what: "release", lock: "n", args: []string{ownerC + "#30", named("n"), "1", "0", "wC"}}
	a.batch(leave)
	a.want(t, "0", "EXISTS", wakesOf, queueOf)
	a.batch(asks("acquire", "n", ownerA), asks("acquire", "m", ownerA), asks("wait", "n", ownerC+"#30"), asks("wait", "m", ownerB+"#20"))
	require.Equal(t, []string{"[0 ]", "[1 ]"}, a.batch(leave, gives("n", ownerA)))
	a.want(t, "*", "GET", wakesOf)
	require.Equal(t, []string{"[1 wB]"}, a.batch(gives("m", ownerA)))

	a.do("DEL", queueOf, wakesOf, "p:fence:1", "p:fence:2", "p:fence:3")
	a.want(t, "1", "ZADD", queueOf, "20", "wB")
	a.want(t, "OK", "SET", wakesOf+"wB", "0")
	require.Equal(t, []string{"[1 100]", "[1 ]"}, a.batch(asks("acquire", "n", ownerA), gives("n", ownerA)), "as if nobody stood there")
	answers := a.batch(asks("acquire", "n", ownerA), asks("wait", "n", ownerC+"#30"), gives("n", ownerA), asks("acquire", "n", ownerA))
	require.Equal(t, []string{"[1 101]", "[1 wB]", "[-5 0 wB;20]"}, append(answers[:1], answers[2:]...))
}

func batchErrors(t *testing.T, s server) {
	a := markedServer(t, s, 1)[0]
	a.want(t, "1", "ZADD", named("set"), "1", "v")
	a.want(t, "1", "ZADD", "p:fence:2", "1", "v")
	a.want(t, "OK", "SET", "p:fence:3", "9007199254740000")
	a.want(t, "OK", "SET", "p:queue:{line}", "text")
	a.want(t, "OK", "SET", wakesOf, "1") // somebody waits: lines are looked at
	require.Equal(t, []string{"[1 100]", "[1 101]"}, a.batch(asks("acquire", "held", ownerA), asks("acquire", "gone", ownerA)))

	bad := []step{
		asks("acquire", "set", ownerB), asks("extend", "set", ownerB), gives("set", ownerB), // not a lock
		asks("acquire", "b", ownerB, "4", "2"), // a counter that is none
		asks("acquire", "c", ownerB, "4", "3"), // a counter at its end
		asks("acquire", "line", ownerB),        // a line that is none
		asks("acquire", "d", ownerB, "2", "x"), // a proposal that is no number
		asks("acquire", "late", ownerB, "3", "1"), asks("extend", "held", ownerA, "3", "1"),
		asks("acquire", "held", ownerB), asks("extend", "held", ownerB), gives("held", ownerB), // somebody else's
	}
	wrong := []string{"WRONGTYPE", "WRONGTYPE", "WRONGTYPE", "WRONGTYPE", "exhausted", "WRONGTYPE", "nil", "[-3]", "[-3]", "[0 ", "[0 ", "[0 ]"}
	for i := range bad {
		for _, at := range []int{0, 1, 2} {
			name := fmt.Sprint("n", i, at)
			good := []step{asks("acquire", name, ownerA), asks("extend", "held", ownerA), asks("acquire", name+"'", ownerA)}
			answers := a.batch(append(append(append([]step{}, good[:at]...), bad[i]), good[at:]...)...)
			require.Contains(t, answers[at], wrong[i], "%d", i)
			answers = append(answers[:at], answers[at+1:]...)
			require.Regexp(t, `^\[1 \d+\]$`, answers[0])
			require.Equal(t, "[1 0 ]", answers[1])
			require.Regexp(t, `^\[1 \d+\]$`, answers[2])
			require.Equal(t, []string{"[1 ]", "[1 ]"}, a.batch(gives(name, ownerA), gives(name+"'", ownerA)))
			a.do("DEL", named("b"), named("line"), named("d")) // what a step has done before its error stays, as it does alone
		}
	}
	require.Equal(t, "[-1 1]", a.quarantined(asks("acquire", "q", ownerA), asks("extend", "held", ownerA)))
}

// quarantined sends a batch of two to a node in quarantine: the second is not the worse for it.
func (p peer) quarantined(refused, renewed step) string {
	p.t.Helper()
	keys := []string{markerOf, named(refused.lock), named(renewed.lock)}
	args := batchHeader(p.marker, strconv.FormatInt(time.Now().Add(time.Hour).UnixMicro(), 10))
	args = append(append(args, refused.told()...), renewed.told()...)
	reply := regexp.MustCompile(`^\[1\d{15} 2 -1 \d+ -100\]$`).MatchString(p.eval(p.lua(node.ScriptBatch), keys, args...))
	if !reply {
		return p.eval(p.lua(node.ScriptBatch), keys, args...)
	}
	return "[-1 1]"
}

func batchMemory(t *testing.T, s server) {
	a := markedServer(t, s, 1)[0]
	require.Equal(t, []string{"[1 100]", "[1 101]"}, a.batch(asks("acquire", "x", ownerA), asks("acquire", "y", ownerA)))
	a.want(t, "OK", "CONFIG", "SET", "maxmemory", "1")
	t.Cleanup(func() { a.do("CONFIG", "SET", "maxmemory", "0") })
	// Behind a write a server refuses a script nothing for want of memory: an acquire is refused all the same.
	answers := a.batch(asks("extend", "x", ownerA), asks("acquire", "z", ownerB), gives("y", ownerA), asks("wait", "x", ownerB+"#20"), asks("extend", "x", ownerA, "2", "900"))
	require.Equal(t, "[1 0 ]", answers[0])
	require.Contains(t, answers[1], "OOM")
	require.Equal(t, "[1 ]", answers[2])
	require.Contains(t, answers[3], "OOM")
	require.Equal(t, "[1 0 ]", answers[4])
	a.want(t, "0", "EXISTS", named("z"), "p:queue:{x}")
	a.want(t, "900", "GET", "p:fence:1")
}

func batchMarker(t *testing.T, s server) {
	a := markedServer(t, s, 1)[0]
	require.Equal(t, []string{"[1 100]", "[1 101]"}, a.batch(asks("acquire", "x", ownerA), asks("acquire", "y", ownerA)))
	refused := func(why string, tells ...string) {
		t.Helper()
		renewed, lost := "[1 0 ]", "[-2]"
		for _, marker := range tells {
			renewed, lost = "[1 0  "+marker+"]", "[-2 0  "+marker+"]"
		}
		require.Equal(t, []string{"[-2]", renewed, lost, "[-2]", "[0 ]"}, a.batch(
			asks("acquire", "z", ownerA), asks("extend", "x", ownerA), asks("regain", "gone", ownerA), asks("take", "y", ownerB), gives("z", ownerA)), why)
		a.want(t, "0", "EXISTS", named("z"), named("gone"))
	}
	marker := a.marker
	a.marker += "x"
	refused("another marker than the node's", marker)
	a.want(t, "1", "DEL", markerOf)
	refused("no marker", "")
	a.want(t, "1", "ZADD", markerOf, "1", "v")
	refused("a marker that is none", "")
	a.want(t, "1", "DEL", markerOf)
	a.lua, a.marker = oldLua, strings.Repeat("0", 40)+marker[40:]
	a.want(t, "OK", "SET", markerOf, a.marker)
	refused("the marker of another process")
}

func batchTracks(t *testing.T, s server) {
	p := markedServer(t, s, 3)
	a, b, c := p[0], p[1], p[2]
	a.batch(asks("acquire", "x", ownerA), asks("acquire", "y", ownerA))
	b.batch(asks("acquire", "x", ownerB), asks("wait", "y", ownerB+"#20"), asks("extend", "none", ownerB))
	require.Empty(t, a.pushed(t))
	b.pushed(t)
	c.want(t, "2", "DEL", named("x"), named("y"))
	c.want(t, "OK", "SET", named("none"), "v")
	c.want(t, "OK", "SET", wakesOf+"wB", "1", "KEEPTTL")
	require.ElementsMatch(t, []string{named("x"), named("y")}, a.pushed(t), "granted locks are tracked")
	require.ElementsMatch(t, []string{named("x"), named("y"), named("none"), wakesOf + "wB"}, b.pushed(t), "refused ones, an absent one, and the wake key of a waiter")

	a.batch(asks("acquire", "x", ownerA), asks("regain", "z", ownerA))
	a.batch(asks("extend", "x", ownerA), asks("extend", "z", ownerA))
	require.Empty(t, a.pushed(t), "own writes do not push")
	c.want(t, "2", "DEL", named("x"), named("z"))
	require.ElementsMatch(t, []string{named("x"), named("z")}, a.pushed(t), "extended locks are tracked still")
	c.want(t, "OK", "SET", "p:fence:1", "900")
	c.want(t, "1", "ZADD", "p:queue:{x}", "1", "else")
	require.Empty(t, a.pushed(t), "counters and lines are not")
	c.want(t, "1", "DEL", "p:queue:{x}")
	a.batch(step{what: "stay", lock: "x", args: []string{ownerA + "#20", named("x"), "1", "0", "wA"}})
	c.want(t, "OK", "SET", wakesOf+"wA", "1")
	require.Equal(t, []string{wakesOf + "wA"}, a.pushed(t), "the wake key of one who stays in line is")
	c.want(t, "OK", "SET", markerOf, "changed")
	require.Equal(t, []string{markerOf}, a.pushed(t), "and so is the marker")
}

// slot keys of semaphore n, which has three.
func slotOf(i string) string { return "p:slot:{n}" + i }

const slotQueue = "p:slot:{n}queue"

func (p peer) acquireSlot(slot, slots string, q question) string {
	p.t.Helper()
	keys, claim := []string{slotOf(slot), markerOf}, q.owner
	if q.waiter != "" {
		keys, claim = append(keys, wakesOf+q.waiter), q.owner+"#"+q.ticket
	}
	if q.takeover == "" {
		q.takeover = "0"
	}
	return spelledOut(p.eval(p.lua(node.ScriptAcquire), keys, claim, "10000", "100", never, fenceOf, p.marker, "0", "0",
		"10000", "500000", slotQueue, wakesOf, q.takeover, q.waiter, "1800", slots), "100")
}

func (p peer) releaseSlot(slot, claim, waiter, ticket string) string {
	p.t.Helper()
	keys := []string{slotOf(slot)}
	if waiter != "" {
		keys = append(keys, wakesOf+waiter)
	}
	return p.eval(p.lua(node.ScriptRelease), keys, claim, slotQueue, wakesOf, "1", "0", waiter, ticket, "1800", "0", "3")
}

func (p peer) extendSlot(slot, claim, slots, mayWin string) string {
	p.t.Helper()
	return timeless(p.eval(p.lua(node.ScriptExtend), []string{slotOf(slot), markerOf}, claim, "10000", "100", never, fenceOf, p.marker, "0", mayWin, slots, "10000"))
}

// times matches how long slots are taken, in an answer.
var times = regexp.MustCompile(`\b(99\d\d|10000)\b`)

// taken replaces each time by "t".
func taken(answer string) string { return times.ReplaceAllString(answer, "t") }

func slotScripts(t *testing.T, s server) {
	p := markedServer(t, s, 2)
	a, b := p[0], p[1]
	require.Equal(t, "[1 100]", a.acquireSlot("2", "3", question{owner: ownerA}))
	a.want(t, ownerA, "GET", slotOf("2"))
	a.want(t, "3", "GET", "p:slot:{n}")
	a.want(t, "0", "EXISTS", slotQueue)
	require.Equal(t, "[0 t "+ownerA+" 0 0,t,0]", taken(b.acquireSlot("2", "3", question{owner: ownerB})), "refused, and told how the slots stand")
	require.Equal(t, "[1 101]", b.acquireSlot("1", "3", question{owner: ownerB}))
	require.Equal(t, "[0 t "+ownerB+" 0 t,t,0]", taken(a.acquireSlot("1", "3", question{owner: ownerA})))
	require.Equal(t, "[1 101  1]", b.acquireSlot("1", "3", question{owner: ownerB}), "asked again")
	require.Regexp(t, `^\[1 102 ;`+ownerB+`@1\d{15} 0\]$`, a.acquireSlot("1", "3", question{owner: ownerC, takeover: "1"}))
	a.want(t, "OK", "SET", slotOf("3"), "x")
	require.Equal(t, "[0 t "+ownerA+" 0 t,t,t]", taken(b.acquireSlot("2", "3", question{owner: ownerB})), "without an end is taken for the longest lease")
	require.Equal(t, "[1 ]", a.releaseSlot("2", ownerA, "", ""))
	a.want(t, "0", "EXISTS", slotOf("2"))
	a.want(t, "1", "DEL", slotOf("3"))
	a.want(t, "1", "ZADD", slotOf("3"), "1", "of another kind")
	require.Equal(t, "[1 103]", b.acquireSlot("2", "3", question{owner: ownerB}), "one slot's key is no other's matter")
}

// The i-th in line may have a slot where i are free, and as many are woken.
func slotLine(t *testing.T, s server) {
	p := markedServer(t, s, 4)
	holder, b, c, d := p[0], p[1], p[2], p[3]
	for _, slot := range []string{"1", "2", "3"} {
		require.Regexp(t, `^\[1 `, holder.acquireSlot(slot, "3", question{owner: ownerA}))
	}
	wait := func(p peer, slot, owner, who, ticket string) string {
		return taken(p.acquireSlot(slot, "3", question{owner: owner, waiter: who, ticket: ticket}))
	}
	require.Equal(t, "[0 t "+ownerA+" 1 t,t,t]", wait(c, "1", ownerC, "wC", "30"))
	require.Equal(t, "[0 t "+ownerA+" 1 t,t,t]", wait(b, "1", ownerB, "wB", "20"))
	require.Equal(t, "[0 t "+ownerA+" 2 t,t,t]", wait(c, "1", ownerC, "wC", "30"))
	require.Equal(t, "[0 t "+ownerA+" 3 t,t,t]", wait(d, "2", ownerD, "wD", "40"))
	require.Equal(t, "[0 t "+ownerA+" 0 t,t,t]", wait(d, "2", ownerD, "wE", "50"), "behind as many as there are slots")

	for _, waiter := range []peer{b, c} {
		waiter.pushed(t)
	}
	require.Equal(t, "[1 wB]", holder.releaseSlot("2", ownerA, "", ""), "one is free: the first is woken")
	require.Contains(t, b.pushed(t), wakesOf+"wB")
	require.NotContains(t, c.pushed(t), wakesOf+"wC")
	require.Equal(t, "[-5 0 wB;20 2 t,0,t]", wait(c, "2", ownerC, "wC", "30"), "the second may not have it")
	require.Equal(t, "[-5 0 wB;20 0 t,0,t]", taken(d.acquireSlot("2", "3", question{owner: ownerD})), "nor whoever does not wait")
	require.Equal(t, "[1 wC]", holder.releaseSlot("1", ownerA, "", ""), "two are free: the second is woken, the first has been")
	require.Contains(t, c.pushed(t), wakesOf+"wC")
	require.Equal(t, "[1 103]", wait(c, "2", ownerC, "wC", "30"), "and may have one before the first has asked")
	c.want(t, "[wB wD wE]", "ZRANGE", slotQueue, "0", "-1")
	require.Equal(t, "[-5 0 wB;20 2 0,t,t]", wait(d, "1", ownerD, "wD", "40"))
	require.Equal(t, "[0 wD]", b.releaseSlot("2", ownerB, "wB", ""), "who leaves the line makes room for the next where a slot is free")
	require.Equal(t, "[1 104]", wait(d, "1", ownerD, "wD", "40"))
	require.Equal(t, "[0 ]", b.releaseSlot("1", ownerB, "", ""), "nothing is free: nobody is woken")
	d.want(t, "[wE]", "ZRANGE", slotQueue, "0", "-1")
	d.want(t, "1", "DEL", wakesOf+"wE")
	require.Equal(t, "[1 ]", d.releaseSlot("1", ownerD+"#40", "", ""), "the dead are dropped")
	d.want(t, "0", "EXISTS", slotQueue)
}

func slotNumber(t *testing.T, s server) {
	p := markedServer(t, s, 2)
	a, b := p[0], p[1]
	require.Equal(t, "[1 100]", a.acquireSlot("2", "3", question{owner: ownerA}))
	for _, slot := range []string{"2", "5"} {
		require.Equal(t, "[-6 3]", b.acquireSlot(slot, "5", question{owner: ownerB}))
		require.Equal(t, "[-6 3]", b.acquireSlot(slot, "5", question{owner: ownerB, takeover: "1"}))
	}
	a.want(t, ownerA, "GET", slotOf("2"))
	a.want(t, "0", "EXISTS", slotOf("5"))
	a.want(t, "1", "PEXPIRE", slotOf(""), "50")
	require.Equal(t, "[1 0 ]", a.extendSlot("2", ownerA, "3", "0"))
	left, err := strconv.Atoi(a.do("PTTL", slotOf("")))
	require.NoError(t, err)
	require.Greater(t, left, 5000, "kept in mind while somebody holds one")
	a.want(t, "1", "DEL", slotOf(""))
	require.Equal(t, "[1 0 ]", a.extendSlot("2", ownerA, "3", "0"))
	a.want(t, "3", "GET", slotOf(""))
	require.Equal(t, "[-4]", a.extendSlot("1", ownerA, "3", "0"))
	a.want(t, "1", "DEL", slotOf(""))
	require.Equal(t, "[2]", a.extendSlot("1", ownerA, "3", "1"))
	a.want(t, "3", "GET", slotOf(""))

	resize := func(from, to string) string {
		return a.eval(file(t, "resize"), []string{slotOf("")}, from, to, "10000")
	}
	require.Equal(t, "3", resize("4", "5"))
	require.Equal(t, "2", resize("3", "2"))
	require.Equal(t, "2", resize("3", "2"), "again")
	require.Equal(t, "[1 0 ]", a.extendSlot("2", ownerA, "3", "0"))
	a.want(t, "2", "GET", slotOf(""))
	require.Equal(t, "[-6 2]", a.acquireSlot("3", "3", question{owner: ownerA}))
	a.want(t, "1", "DEL", slotOf(""))
	require.Equal(t, "7", resize("3", "7"))

	// A slot that is no more is taken past the line, by who sees to it that nobody has it.
	require.Equal(t, "[1 101]", b.acquireSlot("9", "7", question{owner: ownerB}))
	require.Regexp(t, `^\[0 `, b.acquireSlot("2", "7", question{owner: ownerC, waiter: "wC", ticket: "30"}))
	require.Equal(t, "[1 wC]", b.releaseSlot("9", ownerB, "", ""))
	require.Equal(t, "[1 102]", b.acquireSlot("9", "7", question{owner: ownerB}))
}

// A batch does with slots what their steps do alone, beside those of locks.
func slotBatch(t *testing.T, s server) {
	a := markedServer(t, s, 1)[0]
	slot := func(i, slots string, s step) step {
		s.slot, s.slots = slotOf(i), slots
		return s
	}
	require.Equal(t, []string{"[1 100]", "[1 101]", "[1 102]", "[-6 2]"}, a.batch(asks("acquire", "n", ownerA),
		slot("1", "2", asks("acquire", "", ownerA)), slot("2", "2", asks("acquire", "", ownerB)), slot("2", "3", asks("acquire", "", ownerB))))
	answers := a.batch(slot("1", "2", asks("wait", "", ownerC+"#30")), slot("1", "2", asks("extend", "", ownerA)), asks("extend", "n", ownerA),
		slot("1", "2", step{what: "end", lock: "", args: []string{ownerA, slotOf("1")}}), slot("1", "2", asks("acquire", "", ownerA)),
		slot("1", "2", asks("wait", "", ownerC+"#30")),
		slot("2", "2", step{what: "keep", lock: "", args: []string{ownerB, slotOf("2"), "1", "0", "", "9990"}}),
		slot("1", "2", step{what: "stay", lock: "", args: []string{ownerC + "#30", slotOf("1"), "1", "0", "wC"}}), slot("2", "2", asks("regain", "", ownerB)))
	for i := range answers {
		answers[i] = taken(answers[i])
	}
	require.Equal(t, []string{"[0 t " + ownerA + " 1 t,t]", "[1 0 ]", "[1 0 ]", "[1 wC]", "[-5 0 wC;30 0 0,t]", "[1 103]", "[1 ]", "[1 ]", "[0 t ~!t]"}, answers)
	a.want(t, "[wC]", "ZRANGE", slotQueue, "0", "-1")
	a.want(t, "0", "EXISTS", queueOf)
}
