package redlock

import (
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// When a held lock is at risk, by what happens to it: the language is that of TestLifeByEvents. A claim counts for 1000 ms,
// so that the margin is 417: a round is 250 and the interval 333.
func TestRiskByEvents(t *testing.T) {
	const renewed = "; wait 333; tick; 0 yes; 1 yes; 2 yes"
	for _, row := range []struct {
		name  string
		own   rules
		story string
		risk  risk
	}{
		{"three of three votes", rules{}, "HELD", well},
		{"a vote that may still come", rules{}, "ask; 0 yes; 1 yes", well},
		{"a node that could not be asked", rules{}, "ask; 0 yes; 1 yes; 2 err", hanging},
		{"a node where somebody else has it", rules{}, "ask; 0 yes; 1 yes; 2 held R", hanging},
		{"a straggler", rules{}, "ask; 0 yes; 1 yes; wait 300; clock; 2 yes", well},
		{"a push is no news yet", rules{}, "HELD; 0 push", well},
		{"the key is gone there", rules{}, "HELD; 0 push; 0 absent", hanging},
		{"and is won back", rules{}, "HELD; 0 push; 0 absent; wait 333; tick; 0 won; 1 yes; 2 yes", well},
		{"renewals on their way", rules{}, "HELD; wait 333; tick; wait 249; clock", well},
		{"renewals that are late", rules{}, "HELD; wait 333; tick; wait 251; clock", runningOut},
		{"and come after all", rules{}, "HELD; wait 333; tick; wait 251; clock; 0 yes; 1 yes", well},
		{"a minority of them comes", rules{}, "HELD; wait 333; tick; wait 251; clock; 0 yes", runningOut},
		{"one that does not: nothing while its claim stands", rules{}, "HELD; wait 333; tick; 0 yes; 1 yes; 2 err; wait 100; clock", well},
		{"and then", rules{}, "HELD; wait 333; tick; 0 yes; 1 yes; 2 err; wait 333; tick; 0 yes; 1 yes; wait 335; clock", hanging},
		{"AtMost is far", rules{atMost: 2 * time.Second}, "HELD" + strings.Repeat(renewed, 4), well},
		{"AtMost is near", rules{atMost: 2 * time.Second}, "HELD" + strings.Repeat(renewed, 5), nearlyOver},
		{"a short AtMost is near in its last quarter", rules{atMost: 400 * time.Millisecond}, "HELD; wait 299; clock", well},
		{"and not before", rules{atMost: 400 * time.Millisecond}, "HELD; wait 300; clock", nearlyOver},
	} {
		t.Run(row.name, func(t *testing.T) {
			r := row.own
			r.nodes, r.lease, r.interval, r.timeout = []string{"a", "b", "c"}, time.Second, 333*time.Millisecond, 250*time.Millisecond
			s := &story{t: t, f: &life{rules: &r, name: "x", owner: "us", ballot: make(ballot, 3), pace: 333 * time.Millisecond}}
			s.on(event{kind: watched})
			s.tell(strings.Replace(row.story, "HELD", "ask; 0 yes; 1 yes; 2 yes", 1))
			require.Equal(t, held, s.f.phase)
			require.Equal(t, row.risk, s.f.watch.risk)
			if row.risk == well {
				require.NoError(t, s.f.watch.why)
			} else {
				require.ErrorIs(t, s.f.watch.why, ErrAtRisk)
				require.NotErrorIs(t, s.f.watch.why, ErrLost)
			}
		})
	}
}

// One node, or two, have none to spare: that they are as they are is no risk.
func TestNoNodeToSpareIsNoRisk(t *testing.T) {
	for n := 1; n <= 2; n++ {
		f := &life{rules: &rules{nodes: []string{"a", "b"}, lease: time.Second, interval: 333 * time.Millisecond, timeout: 250 * time.Millisecond}, ballot: make(ballot, n)}
		f.on(event{kind: asked}, 0)
		for i := range n {
			f.on(event{kind: answered, node: i, answer: &answer{Code: codeOK, Number: 1}}, 0)
		}
		require.Equal(t, held, f.phase)
		f.on(event{kind: watched}, 0)
		require.Equal(t, well, f.watch.risk)
	}
}
