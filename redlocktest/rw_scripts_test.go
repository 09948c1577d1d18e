package redlocktest_test

import (
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/redlock-go/redlock/internal/node"
)

// The scripts of reader-writer lock n: the keys of its writer, of readers, of the index of those and of the line.
const (
	writerOf   = "p:rw:{n}"
	indexOf    = "p:rw:{n}readers"
	rwQueue    = "p:rw:{n}queue"
	readFence  = "p:fence:9"
	writeFence = "p:fence:8"
	readerA    = "rHHHHHHHHHHHHHHHHHHHHHHHHH"
	readerB    = "rIIIIIIIIIIIIIIIIIIIIIIIII"
	readerC    = "rJJJJJJJJJJJJJJJJJJJJJJJJJ"
)

// sideOf returns the key of an owner, its counter, and which side it is.
func sideOf(owner string) (key, fence, side string) {
	if owner[0] == 'r' {
		return writerOf + owner[:26], readFence, "r"
	}
	return writerOf, writeFence, "w"
}

func (p peer) acquireSide(q question) string {
	p.t.Helper()
	key, fence, side := sideOf(q.owner)
	keys, claim := []string{key, markerOf}, q.owner
	if q.waiter != "" {
		keys = append(keys, wakesOf+q.waiter)
	}
	if q.ticket != "" {
		claim += "#" + q.ticket
	}
	if q.token == "" {
		q.token = "100"
	}
	if q.lease == 0 {
		q.lease = 10000
	}
	return times.ReplaceAllString(spelledOut(p.eval(p.lua(node.ScriptAcquire), keys, claim, strconv.Itoa(q.lease), q.token, never, fence, p.marker, "0", "0",
		"10000", "500000", rwQueue, wakesOf, "0", q.waiter, "1800", side), q.token), "t")
}

func (p peer) releaseSide(claim, waiter, ticket, keep string) string {
	p.t.Helper()
	key, _, side := sideOf(claim)
	keys := []string{key}
	if waiter != "" {
		keys = append(keys, wakesOf+waiter)
	}
	return p.eval(p.lua(node.ScriptRelease), keys, claim, rwQueue, wakesOf, "1", "0", waiter, ticket, "1800", keep, side)
}

func (p peer) extendSide(claim, token, mayWin string, lease int) string {
	p.t.Helper()
	key, fence, side := sideOf(claim)
	return times.ReplaceAllString(timeless(p.eval(p.lua(node.ScriptExtend), []string{key, markerOf}, claim, strconv.Itoa(lease), token, never, fence, p.marker, "0", mayWin, side, "10000")), "t")
}

func rwScripts(t *testing.T, s server) {
	p := markedServer(t, s, 2)
	a, b := p[0], p[1]
	require.Equal(t, "[1 100]", a.acquireSide(question{owner: readerA}))
	require.Equal(t, "[1 100]", b.acquireSide(question{owner: readerB}), "readers do not mind each other")
	a.want(t, readerA, "GET", writerOf+readerA)
	require.Equal(t, "[1 100  1]", a.acquireSide(question{owner: readerA}), "asked again")
	either := func(answer string) string { return strings.ReplaceAll(answer, readerB, readerA) }
	require.Equal(t, "[0 t "+readerA+" 0]", either(b.acquireSide(question{owner: ownerC})), "a writer minds them")
	a.want(t, "0", "EXISTS", writerOf)
	require.Equal(t, "[1 0 ]", a.extendSide(readerA, "100", "0", 10000))
	require.Equal(t, "[0 t "+readerA+"]", either(b.extendSide(ownerC, "100", "1", 10000)), "nor does it win anything back")
	a.want(t, "0", "EXISTS", writerOf)
	require.Equal(t, "[1 ]", a.releaseSide(readerA, "", "", "0"))
	require.Equal(t, "[0 t "+readerB+" 0]", b.acquireSide(question{owner: ownerC}))
	require.Equal(t, "[1 ]", b.releaseSide(readerB, "", "", "0"))
	a.want(t, "0", "EXISTS", writerOf+readerA, writerOf+readerB, indexOf, rwQueue)

	require.Equal(t, "[1 101]", b.acquireSide(question{owner: ownerC}))
	a.want(t, ownerC, "GET", writerOf)
	require.Equal(t, "[1 101  1]", b.acquireSide(question{owner: ownerC}), "asked again")
	require.Equal(t, "[0 t "+ownerC+" 0]", a.acquireSide(question{owner: readerA}))
	require.Equal(t, "[0 t "+ownerC+" 0]", a.acquireSide(question{owner: ownerD}))
	require.Equal(t, "[-4]", a.extendSide(readerA, "100", "0", 10000))
	require.Equal(t, "[0 t "+ownerC+"]", a.extendSide(readerA, "100", "1", 10000), "a reader wins nothing back beside a writer")
	a.want(t, "0", "EXISTS", writerOf+readerA, indexOf)

	// A reader of the writer's party comes in beside it, and past the line; others do not.
	require.Equal(t, "[0 t "+ownerC+" 1]", a.acquireSide(question{owner: ownerD, waiter: "wD", ticket: "30"}))
	party := "r" + ownerC[1:16] + "AAAAAAAAAA"
	require.Equal(t, "[1 102]", b.acquireSide(question{owner: party, ticket: "1"}))
	require.Equal(t, "[1 0 #1]", b.extendSide(party, "102", "0", 10000), "and is renewed beside it")
	require.Equal(t, "[0 t "+ownerC+" 0]", a.acquireSide(question{owner: "r" + ownerC[1:15] + "AAAAAAAAAAA"}))
	require.Equal(t, "[1 ]", b.releaseSide(ownerC, "", "", "0"), "the writer in line is not woken while it reads")
	require.Equal(t, "[0 t "+party+"#1 1]", a.acquireSide(question{owner: ownerD, waiter: "wD", ticket: "30"}))
	require.Equal(t, "[1 wD]", b.releaseSide(party+"#1", "", "", "0"))

	// What is kept is kept from the other side.
	require.Equal(t, "[1 103]", a.acquireSide(question{owner: ownerD, waiter: "wD", ticket: "30"}))
	require.Equal(t, "[1 ]", a.releaseSide(ownerD+"#30", "", "", "9995"))
	require.Equal(t, "[0 t ~!t 0]", a.acquireSide(question{owner: readerA}))
	a.want(t, "1", "DEL", writerOf)
	require.Equal(t, "[1 104]", a.acquireSide(question{owner: readerA}))
	require.Equal(t, "[1 ]", a.releaseSide(readerA, "", "", "9995"))
	require.Equal(t, "[1 104]", a.acquireSide(question{owner: readerB}))
	require.Equal(t, "[1 ]", a.releaseSide(readerB, "", "", "0"))
	require.Equal(t, "[0 t ~!t 0]", a.acquireSide(question{owner: ownerD}))
}

// One line for both: a writer keeps out the readers behind it, readers next to each other are woken together.
func rwLine(t *testing.T, s server) {
	p := markedServer(t, s, 4)
	holder, a, b, c := p[0], p[1], p[2], p[3]
	wait := func(p peer, owner, who, ticket string) string {
		return p.acquireSide(question{owner: owner, waiter: who, ticket: ticket})
	}
	require.Equal(t, "[1 100]", holder.acquireSide(question{owner: readerC}))
	require.Equal(t, "[0 t "+readerC+" 1]", wait(a, ownerA, "wA", "20"))
	require.Equal(t, "[-5 0 wA;20]", wait(b, readerB, "rB", "30"), "a reader behind a writer waits")
	require.Equal(t, "[-5 0 wA;20]", b.acquireSide(question{owner: readerB, ticket: "30"}), "or is refused")
	require.Regexp(t, `^\[-5 0 wA;20\b`, wait(b, readerA, "rA", "31"))
	require.Regexp(t, `^\[0 t `+readerC, wait(c, ownerC, "wC", "40"))
	require.Regexp(t, `^\[-5 0 wA;20\b`, wait(b, readerB, "rD", "50"))
	require.Equal(t, "[1 100]", wait(c, "rKKKKKKKKKKKKKKKKKKKKKKKKK", "rE", "10"), "an older one is not kept out")
	holder.want(t, "[wA rB rA wC rD]", "ZRANGE", rwQueue, "0", "-1")
	for _, waiter := range []peer{a, b, c} {
		waiter.pushed(t)
	}
	require.Equal(t, "[1 ]", holder.releaseSide(readerC, "", "", "0"), "one of them still reads")
	require.Equal(t, "[1 wA]", c.releaseSide("rKKKKKKKKKKKKKKKKKKKKKKKKK#10", "", "", "0"))
	require.Contains(t, a.pushed(t), wakesOf+"wA")
	require.Empty(t, b.pushed(t))
	require.Regexp(t, `^\[1 `, wait(a, ownerA, "wA", "20"))
	require.Equal(t, "[1 rB,rA]", a.releaseSide(ownerA+"#20", "", "", "0"), "the readers up to the next writer")
	require.ElementsMatch(t, []string{wakesOf + "rB", wakesOf + "rA"}, b.pushed(t))
	require.Regexp(t, `^\[-5 0 wC;40\b`, wait(b, readerB, "rD", "50"))
	require.Regexp(t, `^\[-5 0 rB;30\b`, wait(c, ownerC, "wC", "40"), "a writer waits for readers before it in line, too")
	require.Regexp(t, `^\[1 `, wait(b, readerA, "rA", "31"), "of which none waits for another")
	require.Regexp(t, `^\[1 `, wait(b, readerB, "rB", "30"))
	require.Equal(t, "[0 rD]", c.releaseSide(ownerC+"#40", "wC", "", "0"), "a writer that leaves the line makes room for the readers behind it")
	holder.want(t, "[rD]", "ZRANGE", rwQueue, "0", "-1")
	holder.want(t, "1", "DEL", wakesOf+"rD")
	require.Equal(t, "[1 ]", b.releaseSide(readerA+"#31", "", "", "0"))
	holder.want(t, "0", "EXISTS", rwQueue)

	// One that lets go of its vote and stays is not woken itself, and those next to it are.
	require.Equal(t, "[1 ]", b.releaseSide(readerB+"#30", "", "", "0"))
	require.Regexp(t, `^\[1 `, a.acquireSide(question{owner: ownerA}))
	require.Regexp(t, `^\[0 `, wait(b, readerB, "rB", "30"))
	require.Regexp(t, `^\[0 `, wait(b, readerA, "rA", "31"))
	require.Equal(t, "[1 rB,rA]", a.releaseSide(ownerA, "", "", "0"))
	require.Regexp(t, `^\[1 `, wait(b, readerB, "rB", "30"))
	require.Equal(t, "[1 rA]", b.releaseSide(readerB+"#30", "rB", "30", "0"))
	holder.want(t, "[rB rA]", "ZRANGE", rwQueue, "0", "-1")
}

// The index names whoever may be there, does not end before any of their keys, and keeps nobody out by itself.
func rwIndex(t *testing.T, s server) { rwIndexOf(t, markedServer(t, s, 2)) }

// The same by the scripts for servers before 7.0, which know no GT.
func rwOldIndex(t *testing.T, s server) { rwIndexOf(t, markedOldServer(t, s, 2)) }

func rwIndexOf(t *testing.T, p []peer) {
	a, b := p[0], p[1]
	lasts := func(key string) int {
		ms, err := strconv.Atoi(a.do("PTTL", key))
		require.NoError(t, err)
		return ms
	}
	require.Regexp(t, `^\[1 `, a.acquireSide(question{owner: readerA, lease: 5000}))
	require.Regexp(t, `^\[1 `, a.acquireSide(question{owner: readerB, lease: 1000}))
	a.want(t, "["+readerB+" "+readerA+" ]", "ZRANGE", indexOf, "0", "-1")
	require.GreaterOrEqual(t, lasts(indexOf), lasts(writerOf+readerA)-1, "not shortened")
	require.Equal(t, "[1 0 ]", a.extendSide(readerB, "100", "0", 9000))
	require.Greater(t, lasts(indexOf), 8000, "put off")
	a.want(t, "["+readerA+" "+readerB+" ]", "ZRANGE", indexOf, "0", "-1")

	// Whose key has gone is dropped, and the end stays.
	a.want(t, "1", "DEL", writerOf+readerA)
	require.Regexp(t, `^\[0 \w+ `+readerB+` 0\]$`, b.acquireSide(question{owner: ownerC}))
	a.want(t, "["+readerB+" ]", "ZRANGE", indexOf, "0", "-1")
	require.Greater(t, lasts(indexOf), 8000)
	a.want(t, "1", "DEL", writerOf+readerB)
	require.Regexp(t, `^\[1 `, b.acquireSide(question{owner: ownerC}))
	a.want(t, "0", "EXISTS", indexOf)

	// One that was dropped by somebody else is put back by a renewal; where a writer has come in it is refused.
	require.Equal(t, "[1 ]", b.releaseSide(ownerC, "", "", "0"))
	require.Regexp(t, `^\[1 `, a.acquireSide(question{owner: readerA}))
	a.want(t, "1", "DEL", indexOf)
	require.Equal(t, "[1 0 ]", a.extendSide(readerA, "100", "0", 10000))
	require.Regexp(t, `^\[0 t `+readerA, b.acquireSide(question{owner: ownerC}))
	a.want(t, "1", "DEL", indexOf)
	require.Regexp(t, `^\[1 `, b.acquireSide(question{owner: ownerC}))
	require.Equal(t, "[0 t "+ownerC+"]", a.extendSide(readerA, "100", "0", 10000))
	require.Equal(t, "[1 ]", b.releaseSide(ownerC, "", "", "0"))

	// A vote that is won back is in it. PERSIST makes nobody wait for ever.
	a.want(t, "1", "DEL", writerOf+readerA)
	require.Equal(t, "[2]", a.extendSide(readerA, "100", "1", 10000))
	a.want(t, "1", "PERSIST", indexOf)
	a.want(t, "1", "PERSIST", writerOf+readerA)
	require.Regexp(t, `^\[0 t `+readerA, b.acquireSide(question{owner: ownerC}))
	require.Less(t, lasts(writerOf+readerA), 10001)
	require.Regexp(t, `^\[1 `, a.acquireSide(question{owner: readerB}))
	require.Equal(t, -1, lasts(indexOf))
	require.Equal(t, "[1 ]", a.releaseSide(readerB, "", "", "0"))
	require.Equal(t, "[1 ]", a.releaseSide(readerA, "", "", "0"))
	a.want(t, "0", "EXISTS", indexOf)

	// A reader that dies.
	require.Regexp(t, `^\[1 `, a.acquireSide(question{owner: readerA, lease: 50}))
	require.Regexp(t, `^\[1 `, a.acquireSide(question{owner: readerB}))
	require.Eventually(t, func() bool { return a.do("EXISTS", writerOf+readerA) == "0" }, 10*time.Second, 5*time.Millisecond)
	require.Equal(t, "[1 ]", a.releaseSide(readerB, "", "", "0"))
	a.want(t, "0", "EXISTS", indexOf)
}

// A writer's token is above all before it, a reader's above the writers' before it; readers may have the same.
func rwTokens(t *testing.T, s server) {
	a := markedServer(t, s, 1)[0]
	take := func(owner, proposed, want string) {
		t.Helper()
		require.Equal(t, "[1 "+want+"]", a.acquireSide(question{owner: owner, token: proposed}))
	}
	take(readerA, "200", "200")
	take(readerB, "150", "150")
	take(readerC, "200", "200")
	a.want(t, "200", "GET", readFence)
	for _, r := range []string{readerA, readerB, readerC} {
		a.releaseSide(r, "", "", "0")
	}
	take(ownerA, "150", "201")
	a.releaseSide(ownerA, "", "", "0")
	take(ownerB, "150", "202")
	require.Equal(t, "[1 0 ]", a.extendSide(ownerB, "300", "0", 10000), "raised")
	a.releaseSide(ownerB, "", "", "0")
	take(readerA, "150", "301")
	require.Equal(t, "[1 0 ]", a.extendSide(readerA, "400", "0", 10000))
	a.releaseSide(readerA, "", "", "0")
	a.want(t, "300", "GET", writeFence)
	take(ownerA, "150", "401")
}

func rwMemory(t *testing.T, s server) {
	p := markedServer(t, s, 2)
	a, b := p[0], p[1]
	require.Regexp(t, `^\[1 `, a.acquireSide(question{owner: readerA}))
	a.want(t, "OK", "CONFIG", "SET", "maxmemory", "1")
	defer a.want(t, "OK", "CONFIG", "SET", "maxmemory", "0")
	require.Contains(t, b.acquireSide(question{owner: readerB}), "OOM")
	require.Contains(t, b.acquireSide(question{owner: ownerC}), "OOM")
	a.want(t, "0", "EXISTS", writerOf+readerB, writerOf)
	require.Equal(t, "[1 0 ]", a.extendSide(readerA, "100", "0", 10000), "a renewal is let through")
	a.want(t, "["+readerA+" ]", "ZRANGE", indexOf, "0", "-1")
	require.Equal(t, "[1 ]", a.releaseSide(readerA, "", "", "0"))
	a.want(t, "0", "EXISTS", writerOf+readerA, indexOf)
}

func rwTracks(t *testing.T, s server) {
	p := markedServer(t, s, 3)
	a, b, c := p[0], p[1], p[2]
	require.Regexp(t, `^\[1 `, a.acquireSide(question{owner: readerA}))
	require.Regexp(t, `^\[1 `, b.acquireSide(question{owner: readerB}))
	require.Equal(t, "[1 0 ]", b.extendSide(readerB, "100", "0", 10000))
	require.Empty(t, a.pushed(t), "a reader is not told of another's renewals")
	require.Equal(t, "[1 ]", b.releaseSide(readerB, "", "", "0"))
	require.Empty(t, a.pushed(t), "nor of its end")
	c.want(t, "1", "DEL", writerOf+readerA)
	require.Equal(t, []string{writerOf + readerA}, a.pushed(t), "but of what becomes of its own key")
	require.Regexp(t, `^\[1 `, c.acquireSide(question{owner: ownerC}))
	a.want(t, "1", "DEL", writerOf)
	require.Equal(t, []string{writerOf}, c.pushed(t))
}

// A batch does with readers and writers what their steps do alone, beside those of locks and slots.
func rwBatch(t *testing.T, s server) {
	a := markedServer(t, s, 1)[0]
	side := func(s step) step {
		s.slot, _, s.slots = sideOf(s.args[0])
		if s.what != "end" && s.what != "release" && s.what != "stay" && s.what != "keep" {
			s.args[4] = map[string]string{"r": "9", "w": "8"}[s.slots]
		}
		return s
	}
	key := func(owner string) string { k, _, _ := sideOf(owner); return k }
	gone := func(owner string) step { return side(step{what: "end", args: []string{owner, key(owner)}}) }
	answers := a.batch(side(asks("acquire", "", readerA)), side(asks("acquire", "", readerB)), side(asks("acquire", "", ownerC)), asks("acquire", "n", ownerC),
		side(asks("wait", "", ownerD+"#30")), side(asks("acquire", "", readerC+"#40")), side(asks("extend", "", readerA)), side(asks("regain", "", ownerC)),
		gone(readerA), gone(readerB), side(asks("wait", "", ownerD+"#30")), side(asks("regain", "", readerA)), gone(ownerD+"#30"),
		side(step{what: "keep", args: []string{ownerD, writerOf, "1", "0", "", "9990"}}), side(asks("acquire", "", readerC)),
		side(step{what: "stay", args: []string{readerC + "#40", key(readerC), "1", "0", "rC"}}))
	for i := range answers {
		answers[i] = times.ReplaceAllString(answers[i], "t")
	}
	require.Equal(t, []string{"[1 100]", "[1 100]", "[0 t " + readerA + " 0]", "[1 100]", "[0 t " + readerA + " 1]", "[-5 0 wD;30]", "[1 0 ]", "[0 t " + readerA + "]",
		"[1 ]", "[1 wD]", "[1 101]", "[0 t " + ownerD + "#30]", "[1 ]", "[0 ]", "[1 102]", "[1 ]"}, replaceReader(answers))
	a.want(t, "[rC]", "ZRANGE", rwQueue, "0", "-1")
	a.want(t, "0", "EXISTS", queueOf)
}

// replaceReader names one of two readers by the other: which of them a writer is refused by is not said.
func replaceReader(answers []string) []string {
	for i := range answers {
		answers[i] = strings.ReplaceAll(answers[i], readerB, readerA)
	}
	return answers
}
