package redlock

import (
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// Who asks, by what nodes say: the language is that of TestLifeByEvents, instants are milliseconds of the story. A round is 250.
func TestAskedByEvents(t *testing.T) {
	for _, row := range []struct {
		name, story string
		until       int // 0: nobody asks
	}{
		{"nobody", "HELD; 0 push; 0 yes", 0},
		{"somebody, by one node", "HELD; 0 push; 0 yes ;?W@900", 900},
		{"what another node says of the same one changes nothing", "HELD; 0 push; 0 yes ;?W@900; 1 push; 1 yes ;?W@880", 900},
		{"nor what the same says again", "HELD; 0 push; 0 yes ;?W@900; 0 push; 0 yes ;?W@700", 900},
		{"not any more", "HELD; 0 push; 0 yes ;?W@900; 0 push; 0 yes", 0},
		{"not there, but elsewhere", "HELD; 0 push; 0 yes ;?W@900; 1 push; 1 yes ;?W@900; 0 push; 0 yes", 900},
		{"nowhere", "HELD; 0 push; 0 yes ;?W@900; 1 push; 1 yes ;?W@900; 0 push; 0 yes; 1 push; 1 yes", 0},
		{"the earlier of two", "HELD; 0 push; 0 yes ;?W@900; 1 push; 1 yes ;?V@600", 600},
		{"an error says nothing", "HELD; 0 push; 0 yes ;?W@900; 0 push; 0 err", 900},
		{"nor does another's value", "HELD; 0 push; 0 held R;?W@900", 0},
		{"a key that was won back does", "HELD; 0 push; 0 yes ;?W@900; 0 push; 0 absent; wait 333; tick; 0 won; 1 yes; 2 yes", 0},
		{"a round after its time it has gone", "HELD; 0 push; 0 yes ;?W@600; wait 600; clock", 600},
		{"then", "HELD; 0 push; 0 yes ;?W@600; wait 333; tick; 0 yes ;?W@600; 1 yes; 2 yes; wait 518; clock", 0},
		{"and is not noted anew", "HELD; wait 333; tick; 0 yes; 1 yes; 2 yes; wait 518; 0 push; 0 yes ;?W@600", 0},
		{"asked before it was won", "ask; 0 yes ;?W@600; 1 yes", 600},
	} {
		t.Run(row.name, func(t *testing.T) {
			r := rules{nodes: []string{"a", "b", "c"}, lease: time.Second, interval: 333 * time.Millisecond, timeout: 250 * time.Millisecond}
			s := &story{t: t, f: &life{rules: &r, name: "x", owner: "us", ballot: make(ballot, 3), pace: 333 * time.Millisecond}}
			s.on(event{kind: watched})
			s.tell(strings.Replace(row.story, "HELD", "ask; 0 yes; 1 yes; 2 yes", 1))
			require.Equal(t, held, s.f.phase)
			require.Equal(t, time.Duration(row.until)*time.Millisecond, s.f.watch.asked)
			if row.until != 0 {
				require.ErrorIs(t, s.f.watch.why, ErrAskedFor)
				require.ErrorIs(t, s.f.watch.why, ErrAtRisk)
			} else {
				require.NotErrorIs(t, s.f.watch.why, ErrAskedFor)
			}
		})
	}
}

// A lock that is asked for may be at risk otherwise, too: both are said.
func TestAskedAndHanging(t *testing.T) {
	r := rules{nodes: []string{"a", "b", "c"}, lease: time.Second, interval: 333 * time.Millisecond, timeout: 250 * time.Millisecond}
	s := &story{t: t, f: &life{rules: &r, name: "x", owner: "us", ballot: make(ballot, 3), pace: 333 * time.Millisecond}}
	s.on(event{kind: watched})
	s.tell("ask; 0 yes; 1 yes; 2 err; 0 push; 0 yes ;?W@900")
	require.ErrorContains(t, s.f.watch.why, `redlock: lock asked for, it is taken over in 900ms unless it is released; redlock: lock at risk, it hangs by one vote: "x": 2 of 3 nodes vote yes`)
	s.tell("0 push; 0 yes")
	require.ErrorIs(t, s.f.watch.why, ErrAtRisk)
	require.NotErrorIs(t, s.f.watch.why, ErrAskedFor)
}

// Whom a waiter asks next, by what it has heard of the nodes.
func TestWhomToAsk(t *testing.T) {
	A, asked, tried := holding{owner: "A"}, holding{owner: "A", asked: true}, holding{owner: "A", tried: 1}
	B, rest := holding{owner: "B"}, holding{}
	for _, row := range []struct {
		reason string
		heard  []holding // by node; nothing of the rest
		nodes  []int
	}{
		{"one, where it has one to spare", []holding{A, A, A}, []int{0}},
		{"two of five", []holding{A, A, A, A, A}, []int{0, 1}},
		{"then the next", []holding{asked, asked, A, A, A}, []int{2, 3}},
		{"and the last", []holding{asked, asked, asked, asked, A}, []int{4}},
		{"one, where it has none to spare", []holding{A, rest, A}, []int{0}},
		{"of four that are known, one", []holding{asked, A, rest, A, A}, []int{1}},
		{"nobody twice", []holding{asked, asked, asked}, nil},
		{"one that did not answer is tried again, behind the others", []holding{tried, A, tried}, []int{1}},
		{"when it is its turn", []holding{tried, asked, asked}, []int{0}},
		{"one node, one vote", []holding{A}, []int{0}},
		{"who has most", []holding{B, A, A}, []int{1}},
		{"nobody is known", []holding{rest, rest, rest}, nil},
	} {
		heard := make(map[int]holding)
		for i, h := range row.heard {
			if h != rest {
				heard[i] = h
			}
		}
		require.ElementsMatch(t, row.nodes, toAsk(heard, quorumOf(len(row.heard))), row.reason)
	}
}

// When nobody can hold a lock, so that there is nobody to ask.
func TestOnlyKept(t *testing.T) {
	kept, held := vote{state: refused, no: &denial{rival: tombstone}}, vote{state: refused, no: &denial{rival: "A"}}
	for _, row := range []struct {
		reason string
		ballot ballot
		kept   bool
	}{
		{"kept by a quorum", ballot{kept, kept, held}, true},
		{"kept and free make a quorum", ballot{kept, {state: granted}, held}, true},
		{"kept by fewer", ballot{kept, held, {state: failed}}, false},
		{"held by a quorum", ballot{kept, held, held}, false},
		{"nobody holds it, and nobody keeps it", ballot{{state: granted}, {state: granted}, {state: failed}}, false},
		{"unknown", ballot{kept, {}, {state: failed}}, false},
	} {
		require.Equal(t, row.kept, (&life{ballot: row.ballot}).onlyKept(), row.reason)
	}
}
