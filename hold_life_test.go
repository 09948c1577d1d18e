package redlock

import (
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// Lives of locks with options of their own, by what happens to them: the language is that of TestLifeByEvents.
func TestLifeOfAHoldByEvents(t *testing.T) {
	atMost := func(d time.Duration) func(*rules) { return func(r *rules) { r.atMost = d * time.Millisecond } }
	fixed := func(r *rules) { r.fixed = true }
	for _, row := range []struct {
		name  string
		own   func(*rules)
		story string
		end   string
		cause error
	}{
		{"just not held too long", atMost(500), "HELD; wait 334; tick; 0 yes; 1 yes; 2 yes; wait 165; clock", "held GGG ...", nil},
		{"held too long: released", atMost(500), "HELD; wait 334; tick; 0 yes; 1 yes; 2 yes; wait 166; tick", "over GGG ---", ErrHeldTooLong},
		{"counted from the grant, not from the question", atMost(500), "ask; wait 200; 0 yes; 1 yes; 2 yes; wait 499; clock", "held GGG ...", nil},
		{"a process that stood still until long after that: its votes stood then", atMost(500), "HELD; wait 5000; clock", "over ggg ...", ErrHeldTooLong},
		{"a quorum that was gone before that is a loss", atMost(2000), "HELD; wait 2500; clock", "over ggg ...", ErrLost},
		{"gone a moment later: held until then", atMost(999), "HELD; wait 1000; clock", "over ggg ---", ErrHeldTooLong},
		{"whatever comes after that", atMost(500), "HELD; wait 334; tick; wait 166; 0 yes; 1 yes; 2 yes", "over GGG ---", ErrHeldTooLong},

		{"a fixed lease is renewed, for what is left of it", fixed, "HELD; wait 334; tick; 0 yes; 1 yes; 2 yes; wait 665; clock", "held GGG ...", nil},
		{"and is not prolonged", fixed, "HELD; wait 334; tick; 0 yes; 1 yes; 2 yes; wait 666; tick", "over ggg ---", ErrHeldTooLong},
		{"it ends without any renewal", fixed, "HELD; wait 1000; clock", "over ggg ---", ErrHeldTooLong},
		{"with the claims that it was granted with", fixed, "ask; 0 yes; wait 100; 1 yes; wait 10; 2 yes; wait 890; tick", "over ggg ---", ErrHeldTooLong},
		{"a vote is won back", fixed, "HELD; 0 push; 0 absent; wait 334; tick; 0 won; 1 yes; 2 yes; wait 600; clock", "held GGG ...", nil},
		{"a quorum that is gone is a loss", fixed, "HELD; 0 push; 1 push; 0 absent; 1 absent; clock", "over rrG ..-", ErrLost},
		{"in doubt at its end, too", fixed, "HELD; wait 940; 0 push; 1 push; wait 60; clock", "over ddg ++-", ErrLost},
		{"a shorter AtMost comes first", func(r *rules) { r.fixed, r.atMost = true, 500*time.Millisecond }, "HELD; wait 334; tick; 0 yes; 1 yes; 2 yes; wait 166; clock", "over GGG ---", ErrHeldTooLong},
	} {
		t.Run(row.name, func(t *testing.T) {
			r := rules{nodes: []string{"a", "b", "c"}, lease: time.Second, interval: 333 * time.Millisecond, timeout: 250 * time.Millisecond}
			row.own(&r)
			s := &story{t: t, f: &life{rules: &r, name: "x", owner: "us", ballot: make(ballot, 3), pace: 333 * time.Millisecond}}
			s.tell(strings.Replace(row.story, "HELD", "ask; 0 yes; 1 yes; 2 yes", 1))
			require.Equal(t, row.end, s.end(), row.story)
			for _, cause := range []error{ErrLost, ErrHeldTooLong} {
				if row.cause == cause {
					require.ErrorIs(t, s.f.cause, cause)
				} else {
					require.NotErrorIs(t, s.f.cause, cause)
				}
			}
		})
	}
}
