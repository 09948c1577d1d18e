package redlocktest_test

import (
	"regexp"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/redlock-go/redlock/internal/node"
)

// several is a step of a lock of several names, each with a counter of its own but z, which shares that of y.
type several struct {
	what, names, owner string
	waiter, ticket     string
	notAfter           string
	token              string
	how                string // acquire, extend: whether absent keys may be won back; release: whether the guard has ended
	keep               string
	stays              bool
}

var counters = map[string]string{"x": "1", "y": "2", "z": "2"}

func (p peer) several(s several) string {
	p.t.Helper()
	keys := []string{markerOf}
	for _, name := range strings.Fields(s.names) {
		keys = append(keys, named(name))
	}
	claim, waits := s.owner, s.what == "acquire" && s.waiter != ""
	if s.ticket != "" {
		claim += "#" + s.ticket
	}
	if waits || s.stays {
		keys = append(keys, wakesOf+s.waiter)
	}
	or := func(text, otherwise string) string {
		if text == "" {
			return otherwise
		}
		return text
	}
	number, how, keep := or(s.token, "100"), or(s.how, "0"), or(s.keep, "10000")
	if s.what == "release" {
		number, how, keep = "", or(s.how, "1"), or(s.keep, "0")
		s.notAfter = or(s.notAfter, "0")
		if s.stays {
			number = s.ticket
		}
	}
	args := []string{p.marker, "0", "0", "10000", "500000", "p", wakesOf, "1800", s.what + " all", claim, or(s.notAfter, never), s.waiter, keep, number, how}
	for _, name := range strings.Fields(s.names) {
		args = append(args, counters[name])
	}
	answer := regexp.MustCompile(`^\[(-?\d+) \d{16} `).ReplaceAllString(p.eval(p.lua(node.ScriptSeveral), keys, args...), "[$1 ")
	return regexp.MustCompile(` (99\d\d|10000) `).ReplaceAllString(answer, " t ")
}

// stores asserts which owner, or nobody, has each of x, y and z.
func (p peer) stores(want ...string) {
	p.t.Helper()
	var got []string
	for _, name := range []string{"x", "y", "z"} {
		owner, _, _ := strings.Cut(p.do("GET", named(name)), "#")
		got = append(got, owner)
	}
	require.Equal(p.t, want, got)
}

const nobody = "(nil)"

// All or none, whatever is in the way of one of them.
func severalNames(t *testing.T, s server) { severalNamesOf(t, markedServer(t, s, 3)) }

// The form for servers before 7.0 does the same.
func severalNamesBefore(t *testing.T, s server) { severalNamesOf(t, markedOldServer(t, s, 3)) }

func severalNamesOf(t *testing.T, p []peer) {
	a, b, c := p[0], p[1], p[2]
	a.want(t, "OK", "SET", "p:fence:1", "150")
	require.Equal(t, "[1 151  0  0]", a.several(several{what: "acquire", names: "x y", owner: ownerA}), "one token above both counters")
	a.want(t, "151", "GET", "p:fence:1")
	a.want(t, "151", "GET", "p:fence:2")
	a.stores(ownerA, ownerA, nobody)
	require.Equal(t, "[1 151  0  0]", a.several(several{what: "acquire", names: "x y", owner: ownerA}), "asked again")

	require.Equal(t, "[0 0  0  0 1 0 t "+ownerA+"]", b.several(several{what: "acquire", names: "y z", owner: ownerB}))
	require.Equal(t, "[0 0  0  0 1 0 t "+ownerA+" 2 0 t "+ownerA+"]", b.several(several{what: "acquire", names: "x y z", owner: ownerB}), "all that is in the way")
	a.stores(ownerA, ownerA, nobody)
	require.Equal(t, "[1 152  0  0]", b.several(several{what: "acquire", names: "z", owner: ownerB}))
	require.Equal(t, "[1 0  0  0]", b.several(several{what: "release", names: "z", owner: ownerB}))

	// A key of another kind, or a counter that is none: nothing is written.
	for _, bad := range [][]string{{"ZADD", named("z"), "1", "x"}, {"SET", "p:fence:2", "none"}} {
		require.Equal(t, "[1 0  0  0]", a.several(several{what: "release", names: "x y", owner: ownerA}))
		a.do(bad...)
		require.Regexp(t, `WRONGTYPE|not an integer`, a.several(several{what: "acquire", names: "x y z", owner: ownerA}))
		a.want(t, "0", "EXISTS", named("x"), named("y"))
		a.want(t, "1", "DEL", bad[1])
		require.Regexp(t, `^\[1 `, a.several(several{what: "acquire", names: "x y", owner: ownerA}))
	}

	a.want(t, "OK", "SET", "p:fence:2", "500")
	require.Equal(t, "[1 0  0  0]", a.several(several{what: "release", names: "x y", owner: ownerA}))
	require.Equal(t, "[1 501  0  0]", a.several(several{what: "acquire", names: "x y", owner: ownerA}))

	// Renewals: all or none, and a name that is somebody else's takes none of the others from us.
	a.want(t, "1", "PEXPIRE", named("x"), "5000")
	require.Equal(t, "[1 0  0  0]", a.several(several{what: "extend", names: "x y", owner: ownerA, token: "7000"}))
	a.want(t, "7000", "GET", "p:fence:1")
	a.want(t, "7000", "GET", "p:fence:2")
	require.Regexp(t, `^99\d\d|10000$`, a.do("PTTL", named("x")))
	require.Equal(t, "[1 7001  0  0]", c.several(several{what: "acquire", names: "z", owner: ownerC}))
	a.want(t, "1", "PEXPIRE", named("x"), "5000")
	require.Equal(t, "[0 0  0  2 3 0 t "+ownerC+"]", a.several(several{what: "extend", names: "x y z", owner: ownerA, how: "1"}), "and two are still ours")
	a.stores(ownerA, ownerA, ownerC)
	require.Regexp(t, `^[34]\d\d\d|5000$`, a.do("PTTL", named("x")), "not renewed")
	a.want(t, "1", "DEL", named("z"))
	require.Equal(t, "[-4 0  0  2]", a.several(several{what: "extend", names: "x y z", owner: ownerA}))
	a.stores(ownerA, ownerA, nobody)
	require.Regexp(t, `^[34]\d\d\d|5000$`, a.do("PTTL", named("x")), "not renewed")
	require.Equal(t, "[2 0  0  0]", a.several(several{what: "extend", names: "x y z", owner: ownerA, how: "1"}), "won back")
	a.stores(ownerA, ownerA, ownerA)
	require.Equal(t, "[-3 0  0  0]", a.several(several{what: "extend", names: "x y z", owner: ownerA, notAfter: "1"}))
	require.Equal(t, "[-3 0  0  0]", a.several(several{what: "acquire", names: "x y z", owner: ownerB, notAfter: "1"}))
	require.Equal(t, "[-3 0  0  0]", a.several(several{what: "release", names: "x y z", owner: ownerA, notAfter: "1"}))

	// A marker that is another: a renewal says so, nothing is won.
	a.want(t, "1", "DEL", named("z"))
	a.want(t, "OK", "SET", markerOf, "another")
	require.Equal(t, "[-2 0  0 another 2]", a.several(several{what: "extend", names: "x y z", owner: ownerA, how: "1"}))
	require.Equal(t, "[1 0  0 another 0]", a.several(several{what: "extend", names: "x y", owner: ownerA}))
	require.Equal(t, "[-2 0  0  0]", b.several(several{what: "acquire", names: "z", owner: ownerB}))
	a.stores(ownerA, ownerA, nobody)
	a.want(t, "OK", "SET", markerOf, a.marker)

	// Who takes one over carries us in its list, and our release strikes us out, and gives back what is ours.
	require.Regexp(t, `^\[1 \d+ ;`+ownerA+`@1\d{15} 0\]$`, b.batch(asks("take", "x", ownerB, "4", "1"))[0])
	require.Regexp(t, `^\[0 0  0  1 1 0 t `+ownerB+`;`+ownerA+`@1\d{15}\]$`, a.several(several{what: "extend", names: "x y", owner: ownerA}))
	require.Equal(t, "[0 0  0  0]", a.several(several{what: "release", names: "x y", owner: ownerA}), "not all were ours")
	a.want(t, ownerB, "GET", named("x"))
	a.stores(ownerB, nobody, nobody)

	// An error at one name keeps none of the others; what is to be kept is kept, all of it.
	require.Regexp(t, `^\[1 `, a.several(several{what: "acquire", names: "y z", owner: ownerA}))
	a.want(t, "1", "DEL", named("x"))
	a.want(t, "1", "ZADD", named("x"), "1", "of another kind")
	require.Contains(t, a.several(several{what: "release", names: "x y z", owner: ownerA}), "WRONGTYPE")
	a.want(t, "0", "EXISTS", named("y"), named("z"))
	require.Regexp(t, `^\[1 `, a.several(several{what: "acquire", names: "y z", owner: ownerA}))
	require.Equal(t, "[1 0  0  0]", a.several(several{what: "release", names: "y z", owner: ownerA, keep: "9990"}))
	a.want(t, "~!9990", "GET", named("y"))
	a.want(t, "~!9990", "GET", named("z"))
}

// One ticket in all the lines.
func severalLines(t *testing.T, s server) {
	p := markedServer(t, s, 4)
	holder, b, c, d := p[0], p[1], p[2], p[3]
	require.Equal(t, "[1 100  0  0]", holder.several(several{what: "acquire", names: "y", owner: ownerA}))
	wait := func(p peer, names, owner, who, ticket string) string {
		return p.several(several{what: "acquire", names: names, owner: owner, waiter: who, ticket: ticket})
	}
	line := func(name, want string) {
		t.Helper()
		holder.want(t, want, "ZRANGE", "p:queue:"+"{"+name+"}", "0", "-1")
	}
	require.Equal(t, "[0 0  1  0 2 0 t "+ownerA+"]", wait(b, "x y", ownerB, "wB", "20"))
	line("x", "[wB]")
	line("y", "[wB]")
	require.Equal(t, "[-5 0  0  0 1 -5 0 wB;20]", wait(c, "x z", ownerC, "wC", "30"), "x is free, and z, and somebody is before us")
	line("x", "[wB wC]")
	line("z", "[wC]")
	require.Equal(t, "[-5 0 wC;30]", d.batch(asks("acquire", "z", ownerD+"#40"))[0], "a lock of one name stands in the same line")
	require.Equal(t, "[-5 0  0  0 1 -5 0 wC;30]", d.several(several{what: "acquire", names: "z", owner: ownerD, ticket: "40"}))
	require.Equal(t, "[0 0  0  0 1 -5 0 wB;20 2 0 t "+ownerA+"]", wait(d, "x y", ownerD, "wD", "40"), "held, and behind somebody")

	for _, waiter := range []peer{b, c, d} {
		waiter.pushed(t)
	}
	require.Equal(t, "[1 0 wB 0  0]", holder.several(several{what: "release", names: "y", owner: ownerA}), "the first is woken")
	require.Contains(t, b.pushed(t), wakesOf+"wB")
	require.Equal(t, "[1 101  0  0]", wait(b, "x y", ownerB, "wB", "20"))
	line("x", "[wC wD]")
	line("y", "[wD]")
	b.want(t, "0", "EXISTS", wakesOf+"wB")

	// Who lets go stays in all lines, who leaves is in none; for each name the first is woken.
	require.Equal(t, "[1 0 wC,wD 0  0]", b.several(several{what: "release", names: "x y", owner: ownerB, waiter: "wB", ticket: "20", stays: true, how: "0"}))
	line("x", "[wB wC wD]")
	line("y", "[wB wD]")
	require.Equal(t, "[0 0 wC,wD 0  0]", b.several(several{what: "release", names: "x y", owner: ownerB, waiter: "wB"}))
	line("x", "[wC wD]")
	line("y", "[wD]")
	b.want(t, "0", "EXISTS", wakesOf+"wB")

	// The dead are dropped, and an older ticket goes before.
	c.want(t, "1", "DEL", wakesOf+"wC")
	require.Regexp(t, `^\[1 `, wait(b, "z x", ownerB, "wB", "35"))
	line("x", "[wD]")
	line("z", "[]")
	require.Regexp(t, `^\[1 `, wait(d, "y", ownerD, "wD", "40"))
	require.Equal(t, "[0 0  1  1 1 0 t "+ownerB+"#35]", wait(d, "x y", ownerD, "wD", "40"), "of what is ours already some is told")
	line("x", "[wD]")
	line("y", "[wD]")
}

// An acquire is refused by a full memory before it does anything, and a renewal is not; of a grant all keys are tracked, and the marker, and of a
// refusal what is held, and the waiter's own key.
func severalTracks(t *testing.T, s server) {
	p := markedServer(t, s, 3)
	a, b, c := p[0], p[1], p[2]
	require.Equal(t, "[1 100  0  0]", a.several(several{what: "acquire", names: "x y", owner: ownerA}))
	for _, key := range []string{named("x"), named("y"), markerOf} {
		value := c.do("GET", key)
		a.pushed(t)
		require.Regexp(t, `^\[1 `, a.several(several{what: "extend", names: "x y", owner: ownerA}))
		c.want(t, "OK", "SET", key, value, "KEEPTTL")
		require.Equal(t, []string{key}, a.pushed(t))
	}
	b.several(several{what: "acquire", names: "y z", owner: ownerB, waiter: "wB", ticket: "20"})
	for _, key := range []string{named("y"), wakesOf + "wB"} {
		b.pushed(t)
		b.several(several{what: "acquire", names: "y z", owner: ownerB, waiter: "wB", ticket: "20"})
		c.want(t, "OK", "SET", key, c.do("GET", key), "KEEPTTL")
		require.Equal(t, []string{key}, b.pushed(t))
	}

	a.want(t, "OK", "CONFIG", "SET", "maxmemory", "1")
	t.Cleanup(func() { a.do("CONFIG", "SET", "maxmemory", "0") })
	require.Contains(t, c.several(several{what: "acquire", names: "z", owner: ownerC}), "OOM")
	require.Regexp(t, `^\[1 `, a.several(several{what: "extend", names: "x y", owner: ownerA}))
	require.Equal(t, "[1 0 wB 0  0]", a.several(several{what: "release", names: "x y", owner: ownerA}))
	require.Contains(t, c.several(several{what: "acquire", names: "x y", owner: ownerC}), "OOM")
	a.stores(nobody, nobody, nobody)
}
