package main

import (
	"cmp"
	"context"
	"flag"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/redlock-go/redlock/internal/node"
)

var doctorCommand = &command{
	name:    "doctor",
	args:    "[flags]",
	summary: "examine the nodes: what keeps a lock from being safe or available",
	nodes:   true,
	about: `Examines each node and all of them together: reachable, round trip, version, role, identity, the set's members
and changes of it under way, quarantine, persistence, eviction, memory, client tracking, the commands a lock needs
(run in forms that change nothing), and the clocks' offsets and rates. It writes nothing, and each
finding comes with advice.

  --for D               how long to watch the clocks; default 3s
  --bound D             ClockBound of your programs; default 500ms
  --json                as JSON

Exit code: 0 if nothing is wrong, 3 if there are warnings, 1 if there is a fault: a node that cannot vote,
a lock that may be lost or held twice. A fault of a minority of nodes is one, too: mend it while it is one.

Examples:

  redlock doctor --nodes a:6379,b:6379,c:6379
  redlock doctor --json | jq '.findings[] | select(.level == "fault")'
  redlock doctor --for 1m                       # measures the clocks' rates 20 times as exactly
`,
	prepare: func(f *flag.FlagSet, _ *connection) action {
		watch := f.Duration("for", 3*time.Second, "")
		bound := f.Duration("bound", 500*time.Millisecond, "")
		asJSON := f.Bool("json", false, "")
		return func(ctx context.Context, c *call) error { return c.doctor(ctx, *watch, *bound, *asJSON) }
	},
}

// checkup is what an examination found. Its JSON is what scripts rely on: fields are added, never changed.
type checkup struct {
	At       time.Time  `json:"at"`
	Quorum   int        `json:"quorum"`
	Roster   *setRecord `json:"roster,omitempty"` // none: nobody has written it yet
	Nodes    []*vitals  `json:"nodes"`
	Findings []finding  `json:"findings"`
	Verdict  level      `json:"verdict"`
}

// vitals is what is known of one node.
type vitals struct {
	Node            string  `json:"node"`
	Reachable       bool    `json:"reachable"`
	Error           string  `json:"error,omitempty"`
	RoundTripMicros int64   `json:"round_trip_us,omitempty"` // the best of several
	Product         string  `json:"product,omitempty"`
	Version         string  `json:"version,omitempty"`
	Role            string  `json:"role,omitempty"`
	RunID           string  `json:"run_id,omitempty"`
	UsedBytes       int64   `json:"used_memory,omitempty"`
	MaxBytes        int64   `json:"max_memory,omitempty"`
	Policy          string  `json:"maxmemory_policy,omitempty"`
	AOF             bool    `json:"aof"`
	Tracking        bool    `json:"tracking"`
	Set             string  `json:"set,omitempty"`
	Member          string  `json:"member,omitempty"` // whose votes it gives, as it says itself
	RosterVersion   int     `json:"roster,omitempty"` // of the record that it goes by
	LongestMillis   int64   `json:"longest_lease_ms,omitempty"`
	QuarantineLeft  int64   `json:"quarantine_left_ms,omitempty"`
	OffsetMicros    float64 `json:"clock_offset_us"`  // from the median of all nodes
	OffsetErrMicros float64 `json:"clock_error_us"`   // how exactly that is known
	RatePPM         float64 `json:"clock_rate_ppm"`   // how much faster than this machine's clock it runs
	RateErrPPM      float64 `json:"clock_rate_error"` // how exactly that is known

	exam        node.Exam
	first, last node.Offset
	measured    bool
	votes       bool // nothing known keeps it from voting
}

// level is how bad a finding is.
type level string

const (
	fine    level = "ok"
	note    level = "note"
	warning level = "warning"
	fault   level = "fault"
)

var levels = []level{fine, note, warning, fault}

type finding struct {
	Level  level  `json:"level"`
	Node   string `json:"node,omitempty"` // empty: of all nodes together
	What   string `json:"what"`
	Advice string `json:"advice"`
}

func (c *call) doctor(ctx context.Context, watch, bound time.Duration, asJSON bool) error {
	if err := c.wantArgs(0, 0); err != nil {
		return err
	}
	if watch < 100*time.Millisecond || watch > time.Hour {
		return wrongUsage("--for %v must be from 100ms to 1h", watch)
	}
	if bound <= 0 {
		return wrongUsage("--bound %v must be positive", bound)
	}
	lookers, hangUp, err := c.lookers()
	if err != nil {
		return err
	}
	defer hangUp()
	end := time.Now().Add(watch)
	stop := c.waiting.during(ctx, func(context.Context) string {
		left := time.Until(end).Round(time.Second)
		if left <= 0 {
			return ""
		}
		return fmt.Sprintf("watching the clocks of %d nodes for %v more", len(lookers), left)
	})
	checkup := c.examine(ctx, lookers, watch)
	stop()
	if ctx.Err() != nil {
		return ctx.Err()
	}
	checkup.judge(bound)
	if asJSON {
		err = c.showJSON(checkup)
	} else {
		_, err = c.out.Write([]byte(checkup.text()))
	}
	switch {
	case err != nil:
		return err
	case checkup.Verdict == fault:
		return exitError{code: exitFailed}
	case checkup.Verdict == warning:
		return exitError{code: exitWarnings}
	}
	return nil
}

// localClock is this process' clock, counted from its start.
type localClock time.Time

func (c localClock) Now() time.Duration                 { return time.Since(time.Time(c)) }
func (c localClock) Wait(d time.Duration) time.Duration { return d }

// examine examines all nodes at once, and watches their clocks meanwhile.
func (c *call) examine(ctx context.Context, lookers []*looker, watch time.Duration) *checkup {
	result := &checkup{At: time.Now().UTC().Truncate(time.Millisecond), Quorum: len(lookers)/2 + 1, Findings: []finding{}}
	clock := localClock(time.Now())
	for _, l := range lookers {
		result.Nodes = append(result.Nodes, &vitals{Node: l.name})
	}
	eachOf(lookers, func(i int, l *looker) {
		v := result.Nodes[i]
		err := l.err
		if err == nil {
			err = c.examineNode(ctx, l, v, clock, watch)
		}
		v.Error = errorText(err)
	})
	return result
}

// samples is how often a clock is asked at each end of the watch: the answer with the shortest round trip says most.
const samples = 8

func (c *call) examineNode(ctx context.Context, l *looker, v *vitals, clock localClock, watch time.Duration) error {
	asking, cancel := context.WithTimeout(ctx, 4*c.nodes.timeout)
	defer cancel()
	exam, err := node.Examine(asking, l.client, c.nodes.prefix)
	v.exam = exam
	v.describe()
	if err != nil || exam.Info["redis_mode"] == "sentinel" || exam.Info["server_mode"] == "sentinel" {
		return err
	}
	v.Reachable = true
	began := clock.Now()
	if v.first, err = c.bestTime(ctx, l, clock); err != nil {
		v.Reachable = false
		return err
	}
	select {
	case <-time.After(max(0, began+watch-clock.Now())):
	case <-ctx.Done():
		return ctx.Err()
	}
	if v.last, err = c.bestTime(ctx, l, clock); err != nil {
		v.Reachable = false
		return fmt.Errorf("it answered at first: %w", err)
	}
	v.measured = true
	v.RoundTripMicros = min(v.first.Hi-v.first.Lo, v.last.Hi-v.last.Lo).Microseconds()
	nodeNow := clock.Now() + v.last.Mid()
	if m := exam.Marker; m.Adopted && m.Until > nodeNow {
		v.QuarantineLeft = (m.Until - nodeNow).Milliseconds()
	}
	v.rate()
	return nil
}

// bestTime asks for a node's clock several times, and returns what the quickest answer says.
func (c *call) bestTime(ctx context.Context, l *looker, clock localClock) (best node.Offset, err error) {
	for i := range samples {
		asking, cancel := context.WithTimeout(ctx, c.nodes.timeout)
		o, err := node.AskTime(asking, l.client, clock)
		cancel()
		if err != nil {
			return best, err
		}
		if i == 0 || o.Hi-o.Lo < best.Hi-best.Lo {
			best = o
		}
	}
	return best, nil
}

// rate computes how fast a node's clock runs by our own. What a round trip hides bounds how exactly that is known.
func (v *vitals) rate() {
	over := float64(v.last.At - v.first.At)
	if over <= 0 {
		return
	}
	v.RatePPM = float64(v.last.Mid()-v.first.Mid()) / over * 1e6
	v.RateErrPPM = float64((v.last.Hi-v.last.Lo)+(v.first.Hi-v.first.Lo)) / 2 / over * 1e6
}

// describe copies what INFO says.
func (v *vitals) describe() {
	info := v.exam.Info
	number := func(field string) int64 {
		n, _ := strconv.ParseInt(info[field], 10, 64)
		return n
	}
	v.Product, v.Version, v.Role, v.RunID = v.exam.Product, v.exam.Version, info["role"], v.exam.RunID
	v.UsedBytes, v.MaxBytes, v.Policy = number("used_memory"), number("maxmemory"), info["maxmemory_policy"]
	v.AOF = info["aof_enabled"] == "1"
	v.Tracking = info != nil && v.exam.Unsupported == nil && v.exam.NoTracking == nil && !v.exam.PushesLoop
	v.Set, v.LongestMillis = v.exam.Marker.Set, v.exam.Marker.Longest.Milliseconds()
	v.Member = v.exam.Marker.Roster.Name
	if record := v.exam.Marker.Roster.InForce(); record != nil {
		v.RosterVersion = record.Version
	}
}

// judge finds what is wrong.
func (r *checkup) judge(bound time.Duration) {
	for _, v := range r.Nodes {
		for _, f := range v.judge() {
			r.add(f.Level, v.Node, f.What, f.Advice)
		}
	}
	r.compareClocks(bound)
	r.judgeRoster()
	r.judgeSet()
	slices.SortStableFunc(r.Findings, func(a, b finding) int {
		return cmp.Compare(slices.Index(levels, b.Level), slices.Index(levels, a.Level))
	})
	r.Verdict = fine
	if len(r.Findings) > 0 {
		r.Verdict = r.Findings[0].Level
	}
}

func (r *checkup) add(l level, node, what, advice string) {
	r.Findings = append(r.Findings, finding{l, node, what, advice})
}

// compareClocks compares each clock with the median of those that could be measured.
func (r *checkup) compareClocks(bound time.Duration) {
	var all []node.Offset
	for _, v := range r.Nodes {
		if v.measured {
			all = append(all, v.last)
		}
	}
	if len(all) < 2 {
		return
	}
	median := node.MedianOffset(all)
	for _, v := range r.Nodes {
		if !v.measured {
			continue
		}
		v.OffsetMicros = float64((v.last.Mid() - median.Mid()).Microseconds())
		v.OffsetErrMicros = float64(((v.last.Hi - v.last.Lo) + (median.Hi - median.Lo)).Microseconds()) / 2
		off := node.Rounded(v.last.Mid() - median.Mid())
		switch gap := v.last.Gap(median); {
		case gap > bound:
			v.votes = false
			r.add(fault, v.Node, fmt.Sprintf("its clock is %v from the median of the nodes; ClockBound is %v, so it has no vote", off, bound), "run NTP on it (chrony, slewing), and wait a lease")
		case gap > bound/4:
			r.add(warning, v.Node, fmt.Sprintf("its clock is %v from the median of the nodes; at %v its votes stop to count", off, bound), "run NTP on it (chrony, slewing)")
		}
		const tenPercent, suspicious = 100_000, 1_000 // ppm; a quartz is within 100
		switch rate := max(v.RatePPM, -v.RatePPM) - v.RateErrPPM; {
		case rate > tenPercent/2:
			r.add(fault, v.Node, fmt.Sprintf("its clock ran %+.1f %% against this machine's; DriftFactor allows 10 %%", v.RatePPM/1e4), "find out what sets it: two time services at once, or a virtual machine whose host is overloaded")
		case rate > suspicious:
			r.add(warning, v.Node, fmt.Sprintf("its clock ran %+.0f ppm against this machine's while it was watched", v.RatePPM), "watch it for longer (--for 1m); it may be slewed by NTP at the moment, or this machine may be")
		}
	}
}

// judge finds what is wrong with one node, and whether it can vote.
func (v *vitals) judge() (found []finding) {
	add := func(l level, what, advice string) {
		found = append(found, finding{Level: l, What: what, Advice: advice})
	}
	e, info := v.exam, v.exam.Info
	if e.Unsupported != nil {
		add(fault, e.Unsupported.Error(), "list an independent primary in its place")
		return found
	}
	if !v.Reachable {
		add(fault, "it cannot be asked: "+cmp.Or(v.Error, "no answer"), adviceFor(v.Error))
		return found
	}
	v.votes = true
	if e.NoRights != nil {
		v.votes = false
		add(fault, e.NoRights.Error(), "allow what the README's ACL line lists")
	}
	if e.Refuses != nil {
		v.votes = false
		add(fault, "it refuses writes: "+errorText(e.Refuses), adviceFor(e.Refuses.Error()))
	}
	switch m := e.Marker; {
	case m.Raw == "":
		add(note, "no program has used it yet: it is brand-new, or it was flushed", "nothing; for a new set of nodes \"redlock init\" skips the first wait")
	case !m.Valid:
		add(fault, fmt.Sprintf("its marker is not one of ours: %.80q", m.Raw), "delete the key, after which the node waits one lease; find out who wrote it")
	case !m.Adopted:
		add(note, "it was restarted, and no program has looked at it since", "nothing: the next program that connects adopts it, and it grants nothing for "+node.Rounded(m.Longest).String())
	case v.QuarantineLeft > 0:
		add(note, fmt.Sprintf("it is quarantined for %v more: it lost its memory, or is new", shownLeft(v.QuarantineLeft)), "wait; if nobody knows why, look at its uptime and at who may FLUSHALL")
	case !m.Quarantine && info["aof_enabled"] != "1":
		add(fault, "programs have the restart quarantine off, and this node keeps nothing: after a restart it may vote for a second holder", "leave RestartQuarantine on, or run it with appendonly yes and appendfsync always")
	}
	if v.MaxBytes > 0 && v.Policy != "noeviction" {
		add(fault, fmt.Sprintf("maxmemory-policy is %s: it may evict locks, and an evicted key is a lost vote", v.Policy), "CONFIG SET maxmemory-policy noeviction, and in its configuration file")
	}
	if v.MaxBytes > 0 && v.UsedBytes > v.MaxBytes/10*9 {
		add(warning, fmt.Sprintf("it uses %d %% of its maxmemory; when that is full it grants nothing", v.UsedBytes*100/v.MaxBytes), "raise maxmemory, or give locks a server of their own")
	}
	if info["rdb_last_bgsave_status"] == "err" || info["aof_last_write_status"] == "err" {
		add(warning, "its last save failed", "look at its disk and log; with stop-writes-on-bgsave-error it grants nothing")
	}
	switch {
	case e.PushesLoop:
		add(warning, fmt.Sprintf("%s %s pushes our own writes back (redis#11052), and is used without pushes: a loss there is seen at the next extension", v.Product, v.Version), "Redis from 6.2.8 or 7.0.5 on, or any Valkey")
	case e.NoTracking != nil:
		add(warning, "it refuses client tracking: a loss there is seen at the next extension, and waiters are not woken: "+errorText(e.NoTracking), "allow CLIENT TRACKING")
	}
	if n, _ := strconv.Atoi(info["connected_slaves"]); n > 0 {
		add(note, fmt.Sprintf("it has %d replicas", n), "locks need none; with a failover set min-replicas-to-write, see the README, \"The nodes\"")
	}
	if rtt := time.Duration(v.RoundTripMicros) * time.Microsecond; rtt > 100*time.Millisecond {
		add(warning, fmt.Sprintf("a round trip takes %v", node.Rounded(rtt)), "place programs and nodes closer together, or see docs/multi-region.md")
	}
	return found
}

// adviceFor is what helps against an error.
func adviceFor(text string) string {
	for _, row := range []struct{ contains, advice string }{
		{"NOAUTH", "give --user and a password ($REDISCLI_AUTH or --password-file)"},
		{"WRONGPASS", "the user or the password is wrong"},
		{"NOPERM", "allow what the README's ACL line lists"},
		{"OOM", "it is full: raise maxmemory, or find what fills it"},
		{"MISCONF", "its last save failed: look at its disk and log"},
		{"NOREPLICAS", "it wants more replicas (min-replicas-to-write) than it has"},
		{"READONLY", "it is a replica: list its primary"},
		{"LOADING", "it is starting: wait"},
		{"BUSY", "a script keeps it busy: SCRIPT KILL"},
		{"certificate", "look at --cacert and --sni, and at the server's certificate"},
		{"refused", "is the server running, and is it this port?"},
		{"no such host", "is the name right?"},
		{"no such file", "is the socket's path right, and is the server running?"},
		{"EOF", "it hung up: does it want TLS (--tls)?"},
		{"reset by peer", "it hung up: does it want TLS (--tls)?"},
		{"first record", "it does not speak TLS on this port"},
	} {
		if strings.Contains(text, row.contains) {
			return row.advice
		}
	}
	return "is the server running, can it be reached from here, does one side alone speak TLS?"
}

// text is a checkup for people.
func (r *checkup) text() string {
	var b strings.Builder
	table := newTable(&b)
	fmt.Fprintln(table, "NODE\tSERVER\tROLE\tROUND TRIP\tCLOCK\tRATE\tMEMORY\tPUSHES\tQUARANTINE")
	for _, v := range r.Nodes {
		if !v.Reachable {
			fmt.Fprintf(table, "%s\tcannot be asked\n", v.Node)
			continue
		}
		clock, rate := "-", "-"
		if v.measured {
			clock = fmt.Sprintf("%+.1f ms ± %.1f", v.OffsetMicros/1e3, v.OffsetErrMicros/1e3)
			rate = fmt.Sprintf("%+.0f ppm ± %.0f", v.RatePPM, v.RateErrPPM)
		}
		memory := shownBytes(v.UsedBytes)
		if v.MaxBytes > 0 {
			memory += " of " + shownBytes(v.MaxBytes)
		}
		pushes, quarantine := "yes", "-"
		if !v.Tracking {
			pushes = "no"
		}
		if v.QuarantineLeft > 0 {
			quarantine = shownLeft(v.QuarantineLeft)
		}
		fmt.Fprintf(table, "%s\t%s %s\t%s\t%v\t%s\t%s\t%s\t%s\t%s\n", v.Node, v.Product, v.Version, v.Role,
			node.Rounded(time.Duration(v.RoundTripMicros)*time.Microsecond), clock, rate, memory, pushes, quarantine)
	}
	table.Flush()
	if s := r.Roster; s != nil {
		fmt.Fprintf(&b, "\nroster %d: %s; quorum is %d; longest lease %s\n", s.Version, strings.Join(s.Members, ", "), s.Quorum, shownLeft(s.LongestMillis))
	}
	b.WriteString("\n")
	for _, f := range r.Findings {
		subject := f.What
		if f.Node != "" {
			subject = f.Node + ": " + f.What
		}
		fmt.Fprintf(&b, "%-8s %s\n         -> %s\n", f.Level, subject, f.Advice)
	}
	switch r.Verdict {
	case fine, note:
		fmt.Fprintf(&b, "%d nodes, quorum is %d: nothing is wrong\n", len(r.Nodes), r.Quorum)
	case warning:
		fmt.Fprintf(&b, "%d nodes, quorum is %d: there are warnings\n", len(r.Nodes), r.Quorum)
	case fault:
		fmt.Fprintf(&b, "%d nodes, quorum is %d: there are faults\n", len(r.Nodes), r.Quorum)
	}
	return b.String()
}

func shownBytes(n int64) string {
	switch {
	case n >= 10<<30:
		return fmt.Sprintf("%d GiB", n>>30)
	case n >= 10<<20:
		return fmt.Sprintf("%d MiB", n>>20)
	}
	return fmt.Sprintf("%d KiB", n>>10)
}
