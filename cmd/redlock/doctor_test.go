package main

import (
	"context"
	"encoding/json"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/redis/rueidis"
	"github.com/stretchr/testify/require"

	"github.com/redlock-go/redlock"
	"github.com/redlock-go/redlock/internal/redisproc"
	"github.com/redlock-go/redlock/internal/redisproc/redistest"
	"github.com/redlock-go/redlock/internal/roster"
)

// examined runs the doctor, and returns its report beside the exit code.
func examined(t *testing.T, nodes []*redisproc.Node, args ...string) (checkup, int) {
	t.Helper()
	r := inProcess(t, nodes, append([]string{"doctor", "--json", "--for", "100ms"}, args...)...)
	var report checkup
	require.NoError(t, json.Unmarshal([]byte(r.out), &report), r)
	return report, r.code
}

// requireFinding looks for what matches says, a regular expression: what is measured is so only about.
func requireFinding(t *testing.T, r checkup, l level, node, says, advice string) {
	t.Helper()
	pattern := regexp.MustCompile(says)
	for _, f := range r.Findings {
		if f.Level == l && f.Node == node && pattern.MatchString(f.What) && strings.Contains(f.Advice, advice) {
			return
		}
	}
	require.Fail(t, "it is not found", "%s %s: %s -> %s\nbut: %+v", l, node, says, advice, r.Findings)
}

func do(t *testing.T, n *redisproc.Node, args ...string) string {
	t.Helper()
	answer, err := n.Do(args...)
	require.NoError(t, err)
	return answer
}

func TestDoctorFindsNothing(t *testing.T) {
	t.Parallel()
	nodes := startNodes(t, 3)
	r, code := examined(t, nodes)
	require.Equal(t, exitOK, code, r.Findings)
	require.Empty(t, r.Findings)
	require.Equal(t, fine, r.Verdict)
	require.Equal(t, 1, r.Roster.Version)
	require.ElementsMatch(t, addrsOf(nodes...), r.Roster.Members)
	require.Equal(t, 2, r.Roster.Quorum)
	require.Equal(t, testLease.Milliseconds(), r.Roster.LongestMillis)
	require.Empty(t, r.Roster.Unlisted)
	require.Empty(t, r.Roster.Pending)
	for _, v := range r.Nodes {
		require.Equal(t, v.Node, v.Member)
		require.Equal(t, 1, v.RosterVersion)
		require.True(t, v.Reachable)
		require.True(t, v.Tracking)
		require.Positive(t, v.RoundTripMicros)
		require.Len(t, v.RunID, 40)
		require.Equal(t, "master", v.Role)
		require.Equal(t, testLease.Milliseconds(), v.LongestMillis)
		require.Equal(t, r.Nodes[0].Set, v.Set)
	}
	text := inProcess(t, nodes, "doctor", "--for", "100ms")
	require.Contains(t, text.out, "3 nodes, quorum is 2: nothing is wrong\n")
	require.Contains(t, text.out, "\nroster 1: ")
	require.Contains(t, text.out, "; quorum is 2; longest lease 2s\n")
	require.Empty(t, text.complaints)
}

// Each finding, on a node that has it.
func TestDoctorFindings(t *testing.T) {
	t.Parallel()
	nodes := redistest.StartSet(t, 5, redisproc.Options{Clock: true})
	require.Equal(t, exitOK, inProcess(t, nodes, "init", "--lease", longLease.String()).code) // as long a quarantine lasts
	addr := func(i int) string { return nodes[i].Addr() }
	for _, row := range []struct {
		reason       string
		spoil, mend  func()
		level        level
		says, advice string
		exit         int
		args         []string
	}{
		{reason: "eviction", level: fault, says: "maxmemory-policy is allkeys-lru", advice: "noeviction", exit: exitFailed,
			spoil: func() {
				do(t, nodes[0], "CONFIG", "SET", "maxmemory", "100mb")
				do(t, nodes[0], "CONFIG", "SET", "maxmemory-policy", "allkeys-lru")
			},
			mend: func() {
				do(t, nodes[0], "CONFIG", "SET", "maxmemory-policy", "noeviction")
				do(t, nodes[0], "CONFIG", "SET", "maxmemory", "0")
			}},
		{reason: "full", level: fault, says: "it refuses writes: OOM", advice: "raise maxmemory", exit: exitFailed,
			spoil: func() { do(t, nodes[0], "CONFIG", "SET", "maxmemory", "1mb") },
			mend:  func() { do(t, nodes[0], "CONFIG", "SET", "maxmemory", "0") }},
		{reason: "nearly full", level: warning, says: "% of its maxmemory", advice: "raise maxmemory", exit: exitFailed,
			spoil: func() { do(t, nodes[0], "CONFIG", "SET", "maxmemory", "1mb") },
			mend:  func() { do(t, nodes[0], "CONFIG", "SET", "maxmemory", "0") }},
		{reason: "replica", level: fault, says: "it is a replica", advice: "independent primary", exit: exitFailed,
			spoil: func() { do(t, nodes[0], "REPLICAOF", "127.0.0.1", "1") },
			mend:  func() { do(t, nodes[0], "REPLICAOF", "NO", "ONE") }},
		{reason: "replicas wanted", level: fault, says: "NOREPLICAS", advice: "min-replicas-to-write", exit: exitFailed,
			spoil: func() { do(t, nodes[0], "CONFIG", "SET", "min-replicas-to-write", "1") },
			mend:  func() { do(t, nodes[0], "CONFIG", "SET", "min-replicas-to-write", "0") }},
		{reason: "clock", level: fault, says: `its clock is (2|1\.99|2\.0)\d*s from the median`, advice: "run NTP", exit: exitFailed,
			spoil: func() { nodes[0].Clock().Step(2 * time.Second) },
			mend:  func() { nodes[0].Clock().Reset() }},
		{reason: "clock, soon", level: warning, says: `its clock is (29|30|31)\d(\.\d+)?ms from the median`, advice: "run NTP", exit: exitWarnings,
			spoil: func() { nodes[0].Clock().Step(300 * time.Millisecond) },
			mend:  func() { nodes[0].Clock().Reset() }},
		{reason: "rate", level: fault, says: `its clock ran \+(29|30|31)\.\d %`, advice: "what sets it", exit: exitFailed,
			args:  []string{"--for", "2s"}, // beside which a round trip on a busy machine is short
			spoil: func() { nodes[0].Clock().SetRate(1.3) },
			mend:  func() { nodes[0].Clock().SetRate(1); nodes[0].Clock().Reset() }},
		{reason: "password", level: fault, says: "NOAUTH", advice: "REDISCLI_AUTH", exit: exitFailed,
			spoil: func() { do(t, nodes[0], "CONFIG", "SET", "requirepass", "geheim") },
			mend: func() {
				client := redistest.Option(nodes[0])
				client.Password = "geheim"
				mendPassword(t, client)
			}},
		{reason: "tracking", level: warning, says: "it refuses client tracking", advice: "CLIENT TRACKING", exit: exitWarnings,
			spoil: func() { do(t, nodes[0], "ACL", "SETUSER", "default", "-client|tracking") },
			mend:  func() { do(t, nodes[0], "ACL", "SETUSER", "default", "+@all") }},
		{reason: "rights", level: fault, says: "missing rights: PEXPIRE", advice: "ACL", exit: exitFailed,
			spoil: func() { do(t, nodes[0], "ACL", "SETUSER", "default", "-pexpire") },
			mend:  func() { do(t, nodes[0], "ACL", "SETUSER", "default", "+@all") }},
		{reason: "restarted", level: note, says: "it was restarted", advice: "the next program", exit: exitOK,
			spoil: func() {
				marker := do(t, nodes[0], "GET", "redlock:marker")
				require.NoError(t, nodes[0].CrashEmpty())
				do(t, nodes[0], "SET", "redlock:marker", marker)
			}},
		{reason: "not ours", level: fault, says: "its marker is not one of ours", advice: "delete the key", exit: exitFailed,
			spoil: func() { do(t, nodes[0], "SET", "redlock:marker", "mine") },
			mend:  func() { do(t, nodes[0], "DEL", "redlock:marker") }},
		{reason: "flushed", level: note, says: "no program has used it yet", advice: "redlock init", exit: exitOK,
			spoil: func() { do(t, nodes[0], "FLUSHALL") }},
		{reason: "quarantined", level: note, says: "it is quarantined for", advice: "wait", exit: exitOK,
			spoil: func() { newLocker(t, nodes); awaitMarker(t, nodes[0]) }},
		{reason: "frozen", level: fault, says: "it cannot be asked", advice: "reached from here", exit: exitFailed,
			spoil: func() { require.NoError(t, nodes[0].Freeze()) },
			mend:  func() { require.NoError(t, nodes[0].Thaw()) }},
		{reason: "dead", level: fault, says: "it cannot be asked", advice: "is the server running", exit: exitFailed,
			spoil: func() { require.NoError(t, nodes[0].Kill()) }},
	} {
		row.spoil()
		r, code := examined(t, nodes, append(row.args, "--node-timeout", "500ms")...)
		requireFinding(t, r, row.level, addr(0), row.says, row.advice)
		require.Equal(t, row.exit, code, row.reason)
		for _, f := range r.Findings {
			require.Contains(t, []string{addr(0), ""}, f.Node, "%s: the others are well: %+v", row.reason, f)
		}
		if row.mend != nil {
			row.mend()
		}
	}

	r, _ := examined(t, nodes)
	require.NotContains(t, r.text(), "not one more may fail")
	require.NoError(t, nodes[1].Kill())
	r, _ = examined(t, nodes)
	requireFinding(t, r, fault, "", "3 of 5 nodes can vote, quorum is 3: not one more may fail", "mend")
	require.NoError(t, nodes[2].Kill())
	r, _ = examined(t, nodes)
	requireFinding(t, r, fault, "", "2 of 5 nodes can vote, quorum is 3: nobody can take a lock", "mend")
}

func TestDoctorFindingsOfTheSet(t *testing.T) {
	t.Parallel()
	nodes := startNodes(t, 3)
	r, code := examined(t, nodes[:2])
	require.Equal(t, exitFailed, code)
	requireFinding(t, r, fault, "", "member "+nodes[2].Addr()+" is not listed", "list it")
	requireFinding(t, r, fault, "", "2 of 3 nodes can vote, quorum is 2: not one more may fail", "mend")
	require.Equal(t, []string{nodes[2].Addr()}, r.Roster.Unlisted)

	others := startNodes(t, 3)
	r, _ = examined(t, []*redisproc.Node{nodes[0], nodes[1], others[0]})
	requireFinding(t, r, fault, "", "the nodes carry the ids of 2 sets", "one set's nodes")
	requireFinding(t, r, fault, others[0].Addr(), "it is no member of the set", "list "+nodes[2].Addr())

	r, _ = examined(t, startNodes(t, 2))
	requireFinding(t, r, note, "", "2 nodes survive the loss of 0, as 1 would", "odd")
	r, _ = examined(t, startNodes(t, 1))
	requireFinding(t, r, note, "", "one node", "three or five")

	twice := redistest.StartSet(t, 1, redisproc.Options{TCP: true})
	report := inProcess(t, nil, "doctor", "--for", "100ms", "--nodes", twice[0].Addr()+",localhost"+portOf(twice[0]))
	require.Contains(t, report.out, "it is the same server as "+twice[0].Addr())

	off, err := redlock.NewLocker(redlock.LockerOption{Nodes: redistest.Options(twice), RestartQuarantine: -1})
	require.NoError(t, err)
	defer off.Close()
	awaitMarker(t, twice[0])
	r, _ = examined(t, twice)
	requireFinding(t, r, fault, twice[0].Addr(), "quarantine off, and this node keeps nothing", "appendfsync always")
	r, _ = examined(t, []*redisproc.Node{twice[0], nodes[0], nodes[1]})
	requireFinding(t, r, fault, "", "some nodes were used with the restart quarantine on, and some with it off", "alike")
}

// A set that changes: who is told to be no member, who is not listed, who lags behind, and a change that nobody has finished.
func TestDoctorJudgesTheRoster(t *testing.T) {
	t.Parallel()
	all := startNodes(t, 3)
	a, b, c := all[0], all[1], all[2]
	d := redistest.StartSet(t, 1, redisproc.Options{})[0]
	old, now := []*redisproc.Node{a, b, c}, []*redisproc.Node{a, b, d}
	before := do(t, a, "GET", "redlock:marker")

	r, code := examined(t, now)
	require.Equal(t, exitFailed, code)
	requireFinding(t, r, fault, d.Addr(), "it is no member of the set .*; roster 1", "redlock nodes replace")
	requireFinding(t, r, fault, "", "member "+c.Addr()+" is not listed", "redlock nodes replace")
	requireFinding(t, r, fault, "", "2 of 3 nodes can vote", "mend")

	membersOf(t, old, "replace", c.Addr(), d.Addr(), "--yes")
	r, code = examined(t, now)
	require.Equal(t, exitOK, code, r.Findings)
	require.Equal(t, 2, r.Roster.Version)
	require.ElementsMatch(t, addrsOf(now...), r.Roster.Members)
	r, code = examined(t, old)
	require.Equal(t, exitFailed, code)
	requireFinding(t, r, fault, c.Addr(), "it is no member of the set .*; roster 2", "list "+d.Addr())
	require.Equal(t, []string{d.Addr()}, r.Roster.Unlisted)
	r, code = examined(t, []*redisproc.Node{a, b, c, d})
	require.Equal(t, exitFailed, code)
	requireFinding(t, r, fault, c.Addr(), "it is no member", "take it out of the lists")
	require.NotContains(t, r.text(), "can vote, quorum", "all members are there")

	require.NoError(t, c.Kill())
	r, _ = examined(t, old, "--node-timeout", "500ms")
	requireFinding(t, r, note, "", "member "+d.Addr()+" is not listed, unless it is a node that cannot be asked", "mend")

	do(t, a, "SET", "redlock:marker", before)
	r, code = examined(t, now)
	require.Equal(t, exitOK, code, r.Findings)
	requireFinding(t, r, note, a.Addr(), "it goes by roster 1, and the set by 2", "nothing")

	// Two of three have accepted another longest lease, and whoever asked them to is gone.
	for _, n := range []*redisproc.Node{a, b} {
		fields := strings.Split(do(t, b, "GET", "redlock:marker"), ":")
		word, text, _ := strings.Cut(fields[6], ",")
		state, ok := roster.ParseState(text)
		require.True(t, ok, text)
		state.Name, state.Promised = n.Addr(), roster.Ballot{N: 9, By: "x"}
		state.Accepted = state.Promised
		state.Value = roster.New(roster.Record{Version: 3, ID: "y", Base: state.Active.ID, Members: state.Active.Members, Longest: time.Hour, Wait: time.Hour})
		run := regexp.MustCompile(`run_id:(\w+)`).FindStringSubmatch(do(t, n, "INFO", "server"))[1]
		fields[0], fields[6] = run, word+","+state.String()
		do(t, n, "SET", "redlock:marker", strings.Join(fields, ":"))
	}
	r, code = examined(t, now)
	require.Equal(t, exitFailed, code)
	requireFinding(t, r, warning, "", "a change to roster 3 .*longest lease 1h0m0s.* is not finished: "+regexp.QuoteMeta(a.Addr()+", "+b.Addr())+" grant nothing", "finishes it")
	requireFinding(t, r, fault, "", "1 of 3 nodes can vote, quorum is 2: nobody can take a lock", "mend")
	require.Equal(t, addrsOf(a, b), r.Roster.Pending[0].AcceptedBy)
	eventually(t, func() bool {
		membersOf(t, now)
		r, code = examined(t, now)
		return code == exitOK
	}, "a program that looks at the members finishes it")
	require.Equal(t, time.Hour.Milliseconds(), r.Roster.LongestMillis)
}

func portOf(n *redisproc.Node) string { return n.Addr()[strings.LastIndexByte(n.Addr(), ':'):] }

func awaitMarker(t *testing.T, n *redisproc.Node) {
	t.Helper()
	eventually(t, func() bool { return do(t, n, "GET", "redlock:marker") != "" }, "a program adopts it")
}

func mendPassword(t *testing.T, option rueidis.ClientOption) {
	t.Helper()
	option.DisableCache = true
	client, err := rueidis.NewClient(option)
	require.NoError(t, err)
	defer client.Close()
	require.NoError(t, client.Do(context.Background(), client.B().Arbitrary("CONFIG", "SET", "requirepass", "").Build()).Error())
}
