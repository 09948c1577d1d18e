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
	}
	require.Empty(t, audit.Stop())
	require.Greater(t, audit.replay.judged, 10)
}

func TestAudit(t *testing.T) {
	const (
		acquire = `"EVALSHA" "x" "2" "redlock:{a}" "redlock:marker" "%s" "1000" "1" "1" "redlock:fence:1" "m" "0" "0" "1000" "1" "0" "q" "w" "" "0" "1800"`
		extend  = `"EVALSHA" "y" "2" "redlock:{a}" "redlock:marker" "%s" "1000" "1" "1" "redlock:fence:1" "m" "0" "0"`
		release = `"EVALSHA" "z" "1" "redlock:{a}" "%s" "w" "1800" "" "" "1" "0" "q"`
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
