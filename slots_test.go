package redlock

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// What a node's refusal says of each slot, at instant 1s: from when on it may be ours there.
func TestSlotTimes(t *testing.T) {
	const at = time.Second
	ms := func(n time.Duration) time.Duration { return at + n*time.Millisecond + afterExpiry }
	for _, row := range []struct {
		reason string
		answer answer
		waits  bool
		want   []time.Duration
	}{
		{"of a lock", answer{Code: codeHeld, At: at}, true, nil},
		{"a try goes where it is free", answer{Code: codeHeld, At: at, Lefts: "500,0,200"}, false, []time.Duration{ms(500), at, ms(200)}},
		{"but not past those in line", answer{Code: codeInLine, At: at, Lefts: "500,0,200"}, false, []time.Duration{never, never, never}},
		{"the first in line may have what is free", answer{Code: codeHeld, At: at, Lefts: "500,0,200", Place: 1}, true, []time.Duration{ms(500), at, ms(200)}},
		{"the second when two are", answer{Code: codeInLine, At: at, Lefts: "500,0,200", Place: 2}, true, []time.Duration{ms(500), ms(200), ms(200)}},
		{"the third when all are", answer{Code: codeInLine, At: at, Lefts: "500,0,200", Place: 3}, true, []time.Duration{ms(500), ms(500), ms(500)}},
		{"who is behind them all is told", answer{Code: codeHeld, At: at, Lefts: "500,0,200"}, true, []time.Duration{never, never, never}},
		{"what is no number is no free slot", answer{Code: codeHeld, At: at, Lefts: "x", Place: 1}, true, []time.Duration{ms(0)}},
	} {
		require.Equal(t, row.want, slotTimes(&row.answer, row.waits), row.reason)
	}
}

// Which slot a call goes on to at instant 10, by what five nodes have said of slots 1 to 3.
func TestSlotChoices(t *testing.T) {
	const now = 10
	no := func(at ...time.Duration) vote { return vote{state: refused, no: &denial{slots: at}} }
	unfit := func(at time.Duration) vote {
		return vote{state: failed, no: &denial{freeAt: at, slots: []time.Duration{now, now, now}}}
	}
	again := vote{state: pending, no: &denial{slots: []time.Duration{90, 90, 90}}}
	for _, row := range []struct {
		reason string
		votes  ballot
		slot   int
		at     time.Duration
		free   int
	}{
		{"free on most nodes", ballot{no(90, 5, 5), no(90, 5, 5), no(90, 5, 5), no(90, 90, 5), no(90, 90, 90)}, 3, now, 4},
		{"free on a quorum", ballot{no(5, 90, 90), no(5, 90, 90), no(5, 90, 90), no(90, 5, 5), no(90, 5, 5)}, 1, now, 3},
		{"none is: the first that will be", ballot{no(90, 70, 50), no(90, 20, 60), no(90, 30, 80), no(90, 5, 5), no(90, 90, 90)}, 2, 30, 1},
		{"a node that has not said may have any free", ballot{no(90, 5, 90), no(90, 5, 90), no(90, 90, 90), {}, {}}, 2, now, 2},
		{"so may one that is asked again", ballot{no(90, 5, 90), no(90, 5, 90), no(90, 90, 90), no(90, 90, 90), again}, 2, now, 2},
		{"a quarantined one when that is over", ballot{no(5, 90, 90), no(5, 90, 90), unfit(40), unfit(60), unfit(70)}, 1, 40, 2},
		{"one that is down never", ballot{no(5, 5, 5), no(5, 5, 5), unfit(0), unfit(0), unfit(0)}, 0, never, 2},
	} {
		f := life{slots: 3, ballot: row.votes}
		best := f.slotChoices(now, 1)[0]
		require.Equal(t, row.at, best.at, row.reason)
		require.Equal(t, row.free, best.free, row.reason)
		if row.slot != 0 {
			require.Equal(t, row.slot, best.slot, row.reason)
		}
	}
	require.Equal(t, 7, firstChoices(9, 7, 1)[0].slot, "the one that was used last")
	seen := map[int]bool{}
	for seed := range uint64(200) {
		first := firstChoices(9, 0, seed<<20)
		require.Len(t, first, 9)
		seen[first[0].slot] = true
	}
	require.Len(t, seen, 9, "clients begin at different slots")
}
