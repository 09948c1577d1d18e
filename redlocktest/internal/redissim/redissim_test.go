package redissim

import (
	"errors"
	"fmt"
	"math"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// newServer starts a server whose clock the test sets.
func newServer(t *testing.T) (s *Server, now *time.Time) {
	at := time.UnixMilli(1_000_000)
	lua := GetInterpreter()
	t.Cleanup(lua.Put)
	return New(strings.Repeat("a", 40), func() time.Time { return at }, lua), &at
}

func (s *Server) do(line string) any { return s.Call(strings.Fields(line)...).Go() }

func TestRenewalsLeaveNoHeapBehind(t *testing.T) {
	s, now := newServer(t)
	for i := range 10_000 {
		key := fmt.Sprint("k", i%10)
		s.Call("SET", key, "v", "PX", fmt.Sprint(1000+i))
		s.Call("PEXPIRE", key, fmt.Sprint(2000+i))
	}
	require.Less(t, len(s.expiries), 200)
	require.Equal(t, 10, s.volatile)
	at, ok := s.NextExpiry()
	require.True(t, ok)
	require.Equal(t, now.UnixMilli()+2000+9990+1, at)
	*now = time.UnixMilli(at - 1)
	s.ExpireDue()
	require.Len(t, s.dbs[0].keys, 10, "a key stands in the very ms of its end")
	for i := range 10 {
		*now = time.UnixMilli(at + int64(i))
		s.ExpireDue()
		require.Len(t, s.dbs[0].keys, 9-i)
	}
	require.Zero(t, s.volatile)
	_, ok = s.NextExpiry()
	require.False(t, ok)
}

func TestScriptsDrawAlike(t *testing.T) {
	s, _ := newServer(t)
	const script = "return {math.random(1000000), math.random(1000000), math.random(7, 7)}"
	first := s.Call("EVAL", script, "0").Go()
	s.Call("EVAL", "math.randomseed(5) return math.random(10)", "0")
	require.Equal(t, first, s.Call("EVAL", script, "0").Go(), "Redis seeds for every script")
	require.Equal(t, int64(7), first.([]any)[2])
	require.NotEqual(t, first.([]any)[0], first.([]any)[1])
}

func TestScriptsLeaveNothingBehind(t *testing.T) {
	s, _ := newServer(t)
	s.Call("EVAL", "KEYS = 1 ARGV = 2 return 1", "0")
	require.Equal(t, "k", s.Call("EVAL", "return KEYS[1]", "1", "k").Go())
	require.IsType(t, ReplyError(""), s.Call("EVAL", "string.match = nil x = 1", "0").Go())
	require.IsType(t, ReplyError(""), s.Call("EVAL", "local function f() return f() + 1 end return f()", "0").Go(), "too deep a recursion")
	require.Equal(t, int64(3), s.Call("EVAL", "return 3", "0").Go())
	for range 1000 {
		s.Call("EVAL", "error('x')", "0")
	}
	require.Zero(t, s.lua.state.GetTop())
	require.Equal(t, int64(5000), s.Call("EVAL", "local t = {} for i = 1, 5000 do t[i] = i end return select('#', unpack(t))", "0").Go(), "room for long lists")
	require.NotNil(t, s.Call("EVAL", "local t = {} t[1] = t return t", "0").Go(), "a reply without an end is given one, as on a real server")
}

func TestReadOnlyTransactionKeepsQuiet(t *testing.T) {
	s, _ := newServer(t)
	var got strings.Builder
	x := s.Connect(func(b []byte) { got.Write(b) })
	for _, line := range []string{"HELLO 3", "CLIENT TRACKING ON OPTIN", "CLIENT CACHING YES", "MULTI", "GET a", "PTTL b", "EXEC", "GET c"} {
		s.Execute(x, strings.Fields(line))
	}
	require.Equal(t, []int{1, 1, 0}, []int{s.Tracked("a"), s.Tracked("b"), s.Tracked("c")}, "CACHING YES covers the transaction")
	x.Close()
	require.Zero(t, s.Tracked("a"))
	got.Reset()
	s.do("SET a 1")
	require.Empty(t, got.String(), "nothing is sent to who has gone")
}

func TestGlob(t *testing.T) {
	for pattern, want := range map[string][2][]string{ // match, no match
		"":           {{""}, {"a"}},
		"*":          {{"", "a", "a:{b}"}, nil},
		"a*c":        {{"ac", "abc", "abcbc"}, {"ab", "bac"}},
		"a**c":       {{"ac", "abc"}, {"a"}},
		"a?c":        {{"abc"}, {"ac", "abbc"}},
		"a[bc]d":     {{"abd", "acd"}, {"ad", "aed"}},
		"a[^bc]d":    {{"aed"}, {"abd", "ad"}},
		"a[b-d]":     {{"ab", "ac", "ad"}, {"aa", "ae"}},
		"a[d-b]":     {{"ab", "ac", "ad"}, {"ae"}},
		`a[\]]`:      {{"a]"}, {`a\`}},
		`\*\?\[\\`:   {{`*?[\`}, {"abc"}},
		`redlock:\{`: {{"redlock:{"}, {`redlock:\{`}},
		"a[b":        {{"ab"}, {"a[b", "ac"}},
		`a\`:         {{`a\`}, {"a"}},
	} {
		for _, s := range want[0] {
			require.True(t, globMatch(pattern, s), "%q matches %q", pattern, s)
		}
		for _, s := range want[1] {
			require.False(t, globMatch(pattern, s), "%q does not match %q", pattern, s)
		}
	}
}

func TestNumbers(t *testing.T) {
	for want, f := range map[string]float64{
		"0": 0, "-0": math.Copysign(0, -1), "1": 1, "-5": -5, "1e+14": 1e14, "99999999999999": 99999999999999, "1.7321e+15": 1732100000000001, "0.0001": 0.0001, "1e-05": 0.00001,
		"inf": math.Inf(1), "-inf": math.Inf(-1), "nan": math.NaN(), "1e+300": 1e300, "3.1415926535898": math.Pi,
	} {
		require.Equal(t, want, formatNumber(f))
	}
	for text, want := range map[string]float64{"1": 1, " 1 ": 1, "-0x10": -16, "0x": math.NaN(), "1e3": 1000, ".5": 0.5, "": math.NaN(), "1_0": math.NaN(), "a": math.NaN(), "0xg": math.NaN()} {
		got, ok := parseNumber(text)
		require.Equal(t, !math.IsNaN(want), ok, text)
		if ok {
			require.Equal(t, want, got, text)
		}
	}
}

// FuzzParseRequest: whatever comes, in whatever pieces, a command is taken whole or not at all, and never out of bytes
// that were not sent.
func FuzzParseRequest(f *testing.F) {
	f.Add([]byte("*2\r\n$3\r\nGET\r\n$1\r\nk\r\n*1\r\n$4\r\nPING\r\n"))
	f.Add([]byte("*0\r\n"))
	f.Add([]byte("*-1\r\n$"))
	f.Add([]byte("*1\r\n$99999999999999999999\r\n"))
	f.Add([]byte("*1\n$1\r\nx\r\n"))
	f.Fuzz(func(t *testing.T, data []byte) {
		args, used, err := ParseRequest(data)
		if err != nil {
			require.ErrorIs(t, err, ErrProtocol)
			require.Zero(t, used)
			return
		}
		require.LessOrEqual(t, used, len(data))
		if used == 0 {
			return
		}
		again, n, err := ParseRequest(slices.Clone(data[:used]))
		require.NoError(t, err)
		require.Equal(t, used, n)
		require.Equal(t, args, again)
		for cut := range used {
			_, n, err := ParseRequest(data[:cut])
			require.False(t, errors.Is(err, ErrProtocol), "a prefix of a good request is no error")
			require.Zero(t, n)
		}
	})
}

// FuzzScript: no script breaks the interpreter for the next one. (A script that never ends is not interrupted, so loops
// are left out.)
func FuzzScript(f *testing.F) {
	f.Add("return redis.call('GET', KEYS[1]) .. 1")
	f.Add("return string.format('%5.2f%q%c', 1, 'a', 65)")
	f.Add("return string.gsub('abc', '(%w)', '%1%1')")
	f.Add("return {1, {2, {err='x'}}, nil, 'z'}")
	f.Fuzz(func(t *testing.T, body string) {
		for _, endless := range []string{"while", "repeat", "for", "function", "rep", "goto", "load"} {
			if strings.Contains(body, endless) {
				t.Skip()
			}
		}
		s, _ := newServer(t)
		s.Call("EVAL", body, "1", "k", "a")
		require.Equal(t, int64(3), s.Call("EVAL", "return 1 + 2", "0").Go())
	})
}
