package check

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/redlock-go/redlock"
	"github.com/redlock-go/redlock/internal/redisproc"
	"github.com/redlock-go/redlock/internal/redisproc/redistest"
)

// A real node's commands are understood, and nothing is wrong with them.
func TestAuditOfARealNode(t *testing.T) {
	node := redistest.StartSet(t, 1, redisproc.Options{})[0]
	audit := NewAudit(node.Network(), node.Addr())
	l, err := redlock.NewLocker(redlock.LockerOption{
		Nodes: redistest.Options([]*redisproc.Node{node}), KeyValidity: time.Second, ExtendInterval: 50 * time.Millisecond, RestartQuarantine: -1,
	})
	require.NoError(t, err)
	defer l.Close()
	for range 3 {
		g, err := l.Acquire(t.Context(), "a")
		require.NoError(t, err)
		time.Sleep(100 * time.Millisecond)
		taker, err := l.ForceAcquire(t.Context(), "a")
		require.NoError(t, err)
		require.Error(t, g.Err())
		require.NoError(t, taker.Release(t.Context()))
		all, err := l.AcquireAll(t.Context(), []string{"a", "b"})
		require.NoError(t, err)
		time.Sleep(100 * time.Millisecond)
		require.NoError(t, all.Release(t.Context()))
	}
	require.Empty(t, audit.Stop())
	require.Greater(t, audit.replay.judged, 10)
}

func TestAudit(t *testing.T) {
	const (
		acquire = `"EVALSHA" "x" "2" "redlock:{a}" "redlock:marker" "%s" "1000" "1" "1" "redlock:fence:1" "m" "0" "0" "1000" "1" "q" "w" "0" "" "1800"`
		extend  = `"EVALSHA" "y" "2" "redlock:{a}" "redlock:marker" "%s" "1000" "1" "1" "redlock:fence:1" "m" "0" "0"`
		release = `"EVALSHA" "z" "1" "redlock:{a}" "%s" "q" "w" "1" "0" "" "" "1800" "0"`
	)
	type step struct {
		at       int64  // ms
		by       string // a script call, or
		owner    string
		commands []string
	}
	grant := func(at int64, owner string) step {
		return step{at, acquire, owner, []string{`"SET" "redlock:{a}" "` + owner + `" "NX" "PX" "1000"`, `"ZPOPMIN" "q"`, `"MGET" "redlock:{a}" "redlock:marker"`}}
	}
	grant2 := func(at int64, owner string) step {
		s := grant(at, owner)
		s.by = strings.ReplaceAll(s.by, "{a}", "{b}")
		for i := range s.commands {
			s.commands[i] = strings.ReplaceAll(s.commands[i], "{a}", "{b}")
		}
		return s
	}
	// B asks for a, C is renewed on b, A lets go of a.
	const batch = `"EVALSHA" "w" "3" "redlock:marker" "redlock:{a}" "redlock:{b}" "m" "0" "0" "1000" "1" "redlock" "redlock:wake:" "1800" "1000" "9" ` +
		`"acquire" "%s" "1" "redlock:fence:1" "own" "2000" "9" "extend" "C" "1" "redlock:fence:1" "end" "A" "redlock:{a}"`
	// B asks for a, so does C, too late, and so does a renewal of D's; then A lets go.
	const lateBatch = `"EVALSHA" "w" "4" "redlock:marker" "redlock:{a}" "redlock:{a}" "redlock:{a}" "m" "0" "0" "1000" "1" "redlock" "redlock:wake:" "1800" "1000" "9" ` +
		`"acquire" "%s" "1" "redlock:fence:1" "own" "1000" "0" "acquire" "C" "1" "redlock:fence:1" "own" "1000" "0" "extend" "D" "1" "redlock:fence:1" "end" "A" "redlock:{a}"`
	for _, row := range []struct {
		name  string
		steps []step
		wrong string
	}{
		{"a life", []step{
			grant(0, "A"), {500, extend, "A", []string{`"PEXPIRE" "redlock:{a}" "1000"`}}, {600, release, "A", []string{`"DEL" "redlock:{a}"`}}, grant(601, "B"),
		}, ""},
		{"run out", []step{grant(0, "A"), grant(1010, "B")}, ""},
		{"granted twice", []step{grant(0, "A"), grant(500, "B")}, `set although "A" stands`},
		{"refused", []step{grant(0, "A"), {500, acquire, "B", []string{`"SET" "redlock:{a}" "B" "NX" "PX" "1000"`, `"GETEX" "redlock:marker"`}}}, ""},
		{"another's is deleted", []step{grant(0, "A"), {500, release, "B", []string{`"DEL" "redlock:{a}"`}}}, `deletes "A", of another owner`},
		{"lease shortened", []step{grant(0, "A"), {500, extend, "A", []string{`"PEXPIRE" "redlock:{a}" "200"`}}}, "lease shortened"},
		{"takeover", []step{
			grant(0, "A"), {500, acquire, "B", []string{`"SET" "redlock:{a}" "B;A@1000000" "PX" "1000"`}},
			{600, release, "A", []string{`"SET" "redlock:{a}" "B" "KEEPTTL"`}}, {700, release, "B", []string{`"DEL" "redlock:{a}"`}},
		}, ""},
		{"takeover that tells of nobody", []step{grant(0, "A"), {500, acquire, "B", []string{`"SET" "redlock:{a}" "B" "PX" "1000"`}}}, `"B" forgets A`},
		{"takeover that shortens the lease", []step{grant(0, "A"), {100, acquire, "B", []string{`"SET" "redlock:{a}" "B;A@1000000" "PX" "500"`}}}, "lease shortened"},
		{"a list is forgotten", []step{
			grant(0, "A"), {500, acquire, "B", []string{`"SET" "redlock:{a}" "B;A@1000000" "PX" "1000"`}}, {600, release, "B", []string{`"DEL" "redlock:{a}"`}},
		}, "and with it A"},
		{"a tombstone", []step{
			grant(0, "A"), {500, acquire, "B", []string{`"SET" "redlock:{a}" "B;A@1000000" "PX" "1000"`}}, {600, release, "B", []string{`"SET" "redlock:{a}" "~;A@1000000" "PX" "400"`}},
			{700, release, "A", []string{`"DEL" "redlock:{a}"`}},
		}, ""},
		{"granted in quarantine", []step{{0, `"EVAL" "mark" "1" "redlock:marker" "m"`, "", []string{`"SET" "redlock:marker" "id:2000000:0:x"`}}, grant(1000, "A"), grant(3000, "A")}, "granted in quarantine"},
		{"taken back", []step{
			{0, `"EVAL" "mark" "1" "redlock:marker" "m"`, "", []string{`"SET" "redlock:marker" "id:2000000:0:x"`}},
			{1000, acquire, "A", []string{`"SET" "redlock:{a}" "A" "NX" "PX" "1000"`, `"ZPOPMIN" "q"`, `"DEL" "redlock:{a}"`}},
		}, ""},
		{"a batch", []step{grant(0, "A"), grant2(1, "C"), {500, batch, "B", []string{
			`"SET" "redlock:{a}" "B" "NX" "PX" "1000"`, `"GETEX" "redlock:{a}"`, `"GETEX" "redlock:{b}"`, `"PEXPIRE" "redlock:{b}" "1000" "GT"`,
			`"GETEX" "redlock:{a}"`, `"DEL" "redlock:{a}"`, `"EXISTS" "redlock:marker" "redlock:{a}"`,
		}}, grant(600, "D")}, ""},
		{"a batch with steps that are late", []step{grant(0, "A"), {500, lateBatch, "B", []string{
			`"SET" "redlock:{a}" "B" "NX" "PX" "1000"`, `"GETEX" "redlock:{a}"`, `"GETEX" "redlock:{a}"`, `"DEL" "redlock:{a}"`,
		}}, grant(600, "E")}, ""},
		{"a batch that deletes another's", []step{grant(0, "A"), grant2(1, "C"), {500, batch, "B", []string{
			`"SET" "redlock:{a}" "B" "NX" "PX" "1000"`, `"GETEX" "redlock:{a}"`, `"DEL" "redlock:{a}"`,
			`"GETEX" "redlock:{b}"`, `"PEXPIRE" "redlock:{b}" "1000" "GT"`, `"EXISTS" "redlock:marker" "redlock:{a}"`,
		}}}, `acquire of B to redlock:{a}: deletes "A", of another owner`},
		{"handed over, and on", []step{grant(0, "A"),
			{500, strings.Replace(extend, `"m" "0" "0"`, `"m" "0" "0A"`, 1), "B", []string{`"PEXPIRE" "redlock:{a}" "1000" "GT"`, `"SET" "redlock:{a}" "B" "KEEPTTL"`}},
			{600, release, "B", []string{`"DEL" "redlock:{a}"`}},
		}, ""},
		{"handed over by who does not hold it", []step{grant(0, "A"),
			{500, strings.Replace(extend, `"m" "0" "0"`, `"m" "0" "0C"`, 1), "B", []string{`"SET" "redlock:{a}" "B" "KEEPTTL"`}},
		}, `"B" forgets A`},
		{"others' writes are not judged", []step{grant(0, "A"), {500, `"DEL" "redlock:{a}"`, "", nil}, grant(501, "B")}, ""},
	} {
		t.Run(row.name, func(t *testing.T) {
			var r replay
			r.forget()
			line := func(at int64, source, text string) {
				r.line(fmt.Sprintf("%d.%06d [0 %s] %s", at/1000, at%1000*1000, source, text))
			}
			r.line("+OK")
			for _, s := range row.steps {
				by := s.by
				if strings.Contains(by, "%s") {
					by = fmt.Sprintf(by, s.owner)
				}
				line(s.at, "127.0.0.1:5", by)
				for _, command := range s.commands {
					line(s.at, "lua", command)
				}
			}
			line(9999, "127.0.0.1:5", `"PING"`)
			if row.wrong == "" {
				require.Empty(t, r.violations)
				return
			}
			require.Len(t, r.violations, 1)
			require.Contains(t, r.violations[0], row.wrong)
		})
	}
}
