package node

import (
	"context"
	"encoding/binary"
	"log/slog"
	"strings"
	"testing"
	"time"

	"github.com/redis/rueidis"
	"github.com/stretchr/testify/require"
)

// What servers answer, whatever they are: a reply that is none of ours is an error, and never a panic or a vote.

// messages makes reply values of a text: a line each, numbers as integers.
func messages(t *testing.T, text string) (values []rueidis.RedisMessage) {
	t.Helper()
	for line := range strings.Lines(text) {
		line = strings.TrimSuffix(line, "\n")
		var m rueidis.RedisMessage
		require.NoError(t, m.CacheUnmarshalView(serialized(line)))
		values = append(values, m)
	}
	return values
}

// serialized is one value as rueidis stores it: seven bytes of TTL, its kind, its size or number, its text.
func serialized(line string) []byte {
	number, isNumber := int64(0), len(line) > 0 && len(line) < 18
	for i, c := range []byte(line) {
		switch {
		case i == 0 && c == '-' && len(line) > 1:
		case c >= '0' && c <= '9':
			number = 10*number + int64(c-'0')
		default:
			isNumber = false
		}
	}
	if isNumber && line[0] == '-' {
		number = -number
	}
	switch {
	case isNumber:
		return binary.BigEndian.AppendUint64(append(make([]byte, 7), ':'), uint64(number))
	case strings.HasPrefix(line, "-"):
		return append(binary.BigEndian.AppendUint64(append(make([]byte, 7), '-'), uint64(len(line)-1)), line[1:]...)
	case line == "_":
		return binary.BigEndian.AppendUint64(append(make([]byte, 7), '_'), 0)
	}
	return append(binary.BigEndian.AppendUint64(append(make([]byte, 7), '$'), uint64(len(line))), line...)
}

// someNode is a node that nobody has connected to.
func someNode(t testing.TB) *Node {
	ctx, cancel := context.WithCancel(context.Background())
	t.Cleanup(cancel)
	return NewSet(Option{
		Nodes: []rueidis.ClientOption{{}}, Addrs: []string{"a"}, Quorum: 1, KeyPrefix: "redlock", Quarantine: time.Second,
		NodeTimeout: time.Second, KeyValidity: time.Second, MaxKeyValidity: time.Second, Log: slog.New(slog.DiscardHandler), Life: ctx,
	}).Nodes()[0]
}

func FuzzAnswer(f *testing.F) {
	f.Add("1\n1763000000000000\n1\n1", uint8(0))
	f.Add("0\n9000\nowner#1\n1", uint8(0))
	f.Add("-5\n0\nowner;1", uint8(1))
	f.Add("-1\n9223372036854775", uint8(0))
	f.Add("1\nowner", uint8(2))
	f.Add("-ERR\n_\n\n-", uint8(2))
	f.Fuzz(func(t *testing.T, text string, script uint8) {
		values := messages(t, text)
		var a Answer
		someNode(t).answerOf(&a, &Delivery{Step: Step{Gist: Gist{Script: Script(script % uint8(scriptCount))}}}, values)
		if len(values) == 0 {
			require.Error(t, a.Err)
		}
		if a.Err == nil {
			want, err := values[0].AsInt64()
			require.NoError(t, err)
			require.Equal(t, want, a.Code)
		}
	})
}

func FuzzView(f *testing.F) {
	f.Add("owner#1;other@2\n9000\n1763000000000000\nid\nid")
	f.Add("\n-2\n0")
	f.Add("_\n1\nx")
	f.Fuzz(func(t *testing.T, text string) {
		values := messages(t, text)
		v, err := viewOf(values)
		if err == nil {
			require.Len(t, v.Waiters, len(values)-3)
		}
	})
}

func FuzzRWView(f *testing.F) {
	f.Add("\n-2\n7\nid", "rA\nrA#1=label\n9000\n8\nrB\n~!60000\n59000\n8")
	f.Add("owner\n9000\n7", "rA\nrA#1\n9000")
	f.Fuzz(func(t *testing.T, writer, readers string) {
		values := messages(t, readers)
		v, err := rwViewOf(messages(t, writer), values)
		if err == nil {
			require.Zero(t, len(values)%4)
			require.LessOrEqual(t, len(v.Readers), len(values)/4)
		}
	})
}

func FuzzInfo(f *testing.F) {
	f.Add("# Server\r\nredis_version:7.0.15\r\nrun_id:" + strings.Repeat("a", runIDLen) + "\r\nrole:master\r\n")
	f.Add("redis_version:6.2\nmaxmemory:99999999999999999999\nredis_mode:cluster")
	f.Fuzz(func(t *testing.T, text string) {
		info := parseInfo(text)
		info.loopsScripts()
		if info.fault() == nil {
			require.Len(t, info.runID, runIDLen)
			require.Equal(t, "master", info.role)
		}
		for name := range infoFields(text) {
			require.NotContains(t, name, "\n")
		}
	})
}

// Whatever a server says in an error, what is taken to have done nothing is known to have done nothing.
func FuzzErrorReply(f *testing.F) {
	f.Add("ERR Error running script (call to f_1): @user_script:31: @user_script: 31: -OOM command not allowed")
	f.Add("NOPERM this user has no permissions")
	f.Add("BUSY Redis is busy running a script")
	f.Fuzz(func(t *testing.T, text string) {
		r := errorReplyOf(text)
		if r.nothingRan && r.kinds == noKind {
			require.True(t, r.rights)
		}
		told := strings.Split(text, "\n")
		if len(told) >= 2 {
			_, err := tried(told)
			if err != nil {
				require.ErrorIs(t, err, errRights)
			}
		}
	})
}

// told keeps what receivers are told.
type told struct{ answers []Answer }

func (r *told) Answered(_ int, a *Answer) { r.answers = append(r.answers, *a) }

func (r *told) Touch() int { return 0 }

// FuzzBatch reads replies to a batch of an acquire, a renewal and a release: each step is answered once, and only what says so is a yes.
func FuzzBatch(f *testing.F) {
	const usual = "1763000000000000\n-100\n-100\n-100"
	f.Add(usual)
	f.Add("1763000000000000\n2\n1\n7\n3\n1\n0\n\n2\n1\nwoken")
	f.Add("1763000000000000\n0\n0\n0")
	f.Add("1763000000000000\n-WRONGTYPE\n9\n1\n1\n1")
	f.Add("")
	f.Fuzz(func(t *testing.T, text string) {
		values := messages(t, text)
		heard := &told{}
		lock := &Lock{Name: "x", Rarity: Usual}
		c := &caller{node: someNode(t)}
		c.tellEach([]Delivery{
			{To: heard, Lock: lock, Step: Step{Gist: Gist{Script: ScriptAcquire}, Token: 5}},
			{To: heard, Lock: lock, Step: Step{Gist: Gist{Script: ScriptExtend}}},
			{To: heard, Lock: lock, Step: Step{Gist: Gist{Script: ScriptRelease}}},
		}, values, &Answer{})
		require.Len(t, heard.answers, 3)
		if text == usual {
			require.EqualValues(t, 5, heard.answers[0].Number)
			require.True(t, heard.answers[1].Kept)
		}
		for _, a := range heard.answers {
			if a.Err == nil && a.Code == CodeOK {
				require.Regexp(t, `(?m)^(1|-100)$`, text, "a yes that nobody has said")
			}
		}
	})
}
