package redlock

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/redlock-go/redlock/internal/roster"
)

// A held lock goes by the record of the set's members, and while a node answers one that it has accepted, by both.
func TestLockStandsByBothRecords(t *testing.T) {
	names := []string{"a", "b", "c", "d"}
	first := roster.New(roster.Record{Version: 1, ID: "1", Members: names[:3], Longest: time.Second})
	second := roster.New(roster.Record{Version: 2, ID: "2", Base: "1", Members: []string{"b", "c", "d"}, Longest: time.Second})
	other := roster.New(roster.Record{Version: 2, ID: "x", Base: "1", Members: []string{"a", "d"}, Longest: time.Second})
	short := roster.New(roster.Record{Version: 2, ID: "s", Base: "1", Members: names[:3], Longest: time.Second / 2})
	by := func(r *roster.Record, pending ...*roster.Record) *electorate {
		e := roster.Elect(r, names)
		for _, p := range pending {
			e.Pending = append(e.Pending, roster.Elect(p, names))
		}
		return &e
	}
	r := rules{nodes: names, lease: time.Second, interval: 333 * time.Millisecond, timeout: 250 * time.Millisecond, drift: .1, bound: 50 * time.Millisecond}
	now := time.Hour
	yes := func(f *life, i int, of *roster.Record) {
		f.on(event{kind: answered, node: i, answer: &answer{Code: codeOK, Number: 7, By: of, InForce: true, SentAt: now, At: now}}, now)
	}
	holds := func(nodes ...int) *life {
		f := &life{rules: &r, name: "x", owner: "us", ballot: make(ballot, 4), pace: r.interval, by: by(first)}
		f.on(event{kind: asked, proposal: 7, by: by(first)}, now)
		for _, i := range nodes {
			yes(f, i, first)
		}
		return f
	}
	require.Equal(t, held, holds(0, 1).phase)
	require.Equal(t, asking, holds(0, 3).phase, "d is no member")
	f := holds()
	yes(f, 0, first)
	yes(f, 1, second)
	require.Equal(t, asking, f.phase, "b goes by another record")

	for _, row := range []struct {
		says  string
		nodes []int
		then  *electorate
		phase phase
	}{
		{"it has a quorum of both", []int{1, 2}, by(first, second), held},
		{"it has no quorum of what may be in force", []int{0, 1}, by(first, second), over},
		{"nor where several may be", []int{1, 2}, by(first, second, other), over},
		{"it has a quorum of the new one", []int{1, 2}, by(second), held},
		{"and what is not a member's does not count", []int{0, 1}, by(second), over},
		{"its lease is longer than the set allows now", []int{0, 1}, by(short), over},
	} {
		f := holds(row.nodes...)
		f.on(event{kind: rostered, by: row.then}, now)
		require.Equal(t, row.phase, f.phase, row.says)
		if row.phase == over {
			require.ErrorIs(t, f.cause, ErrLost, row.says)
		}
	}

	f = holds(0, 1, 2)
	f.on(event{kind: rostered, by: by(first, second)}, now)
	require.Equal(t, held, f.phase)
	f.on(event{kind: distrusted, node: 2, cause: ErrClockOff}, now)
	require.Equal(t, over, f.phase, "two of the old members, and one of the new")

	f = holds(0)
	f.on(event{kind: rostered, by: by(second)}, now)
	require.Equal(t, over, f.phase)
	require.True(t, f.outdated, "the attempt ends, and its caller asks the members")
}
