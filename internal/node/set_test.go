package node

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"testing"
	"time"

	"github.com/redis/rueidis"
	"github.com/stretchr/testify/require"

	"github.com/redlock-go/redlock/internal/roster"
)

// deaf is a listener whom nothing concerns.
type deaf struct{}

func (deaf) Pushed(int, string)    {}
func (deaf) Forgotten(int)         {}
func (deaf) Checked(int)           {}
func (deaf) Distrusted(int, error) {}
func (deaf) OwnClockOff(error)     {}
func (deaf) Hopeful()              {}
func (deaf) Rostered()             {}

type wallClock struct{}

func (wallClock) Now() time.Duration                 { return time.Duration(time.Now().UnixNano()) }
func (wallClock) Wait(d time.Duration) time.Duration { return d }

// idleSet returns three nodes that have not connected to anything and run nothing.
func idleSet() *Set {
	o := Option{
		ClientBuilder: rueidis.NewClient, Quorum: 2, KeyPrefix: "redlock", WakePrefix: "redlock:wake:",
		KeyValidity: 10 * time.Second, NodeTimeout: time.Second, MaxKeyValidity: 10 * time.Second, Quarantine: 10 * time.Second,
		Place: time.Second, DriftFactor: 0.1, ClockBound: 500 * time.Millisecond,
		Log: slog.New(slog.DiscardHandler), Listener: deaf{}, Clock: wallClock{}, Life: context.Background(), Closed: errors.New("closed"),
		Go: func(func()) bool { return false }, Jitter: func(time.Duration) time.Duration { return 0 },
	}
	for i := range 3 {
		o.Addrs = append(o.Addrs, fmt.Sprintf("node-%d:1", i))
		o.Nodes = append(o.Nodes, rueidis.ClientOption{InitAddress: []string{o.Addrs[i]}})
	}
	return NewSet(o)
}

// A member that all have forgotten is taken back by whoever has read all of them, but not where some have gone into another set: a
// quorum of them may stand by that, and this one may have been found for it.
func TestNobodyReturnsToASetThatOthersHaveLeft(t *testing.T) {
	ns := idleSet()
	record := func(id string) *roster.Record {
		return roster.New(roster.Record{Version: 1, ID: id, Members: ns.option.Addrs, Longest: 10 * time.Second, Wait: 10 * time.Second})
	}
	ours, other := record("ours"), record("other")
	ns.view.set, ns.view.record = "ours", ours
	in := func(i int, set string, r *roster.Record, founding bool) *marker {
		m := marker{set: set, first: founding, runID: someRunID}.with(roster.State{Name: ns.option.Addrs[i], Active: r, Founding: founding})
		m.raw = stored(m)
		ns.seen[i].runID = someRunID
		return &m
	}
	const back = 0
	name := ns.option.Addrs[back]
	for _, row := range []struct {
		others [3]*marker
		may    bool
	}{
		{[3]*marker{nil, {}, {}}, true},
		{[3]*marker{nil, {}, nil}, false},
		{[3]*marker{nil, in(1, "ours", ours, false), nil}, true},
		{[3]*marker{nil, in(1, "other", other, true), {}}, true},
		{[3]*marker{nil, in(1, "other", other, false), {}}, false},
		{[3]*marker{nil, in(1, "other", other, false), in(2, "other", other, false)}, false},
	} {
		_, err := ns.mayReturn(ns.nodes[back], name, ours, row.others[:])
		require.Equal(t, row.may, err == nil, "%v", err)
	}
}

// A member that is back while a change is under way waits for leases that the change allows: it may be in force, and may have been
// when this member granted one.
func TestWaitIsThatOfWhatMayBeInForce(t *testing.T) {
	record := func(longest time.Duration) *roster.Record {
		return roster.New(roster.Record{Version: 1, ID: longest.String(), Members: []string{"a"}, Longest: longest, Wait: longest})
	}
	require.Equal(t, time.Minute, waitOf(roster.State{Active: record(time.Second), Value: record(time.Minute)}))
	require.Equal(t, time.Minute, waitOf(roster.State{Active: record(time.Minute), Value: record(time.Second)}))
	require.Zero(t, waitOf(roster.State{}))
}
