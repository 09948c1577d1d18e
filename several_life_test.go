package redlock

import (
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// What a life of several names makes of a node's refusal, by who is in the way: of each name, and all of them.
func TestSeveralNamesByEvents(t *testing.T) {
	const now = time.Second
	held := func(name, owner string, ticket uint64, left time.Duration) obstacle {
		return obstacle{Name: name, Text: fmt.Sprintf("%s#%d=label", owner, ticket), Left: left}
	}
	before := func(name, who string, ticket uint64) obstacle {
		return obstacle{Name: name, Waiting: true, Text: fmt.Sprintf("%s;%d", who, ticket)}
	}
	refuse := func(f *life, i int, partial bool, obstacles ...obstacle) {
		f.ballot[i].owedUntil = now + time.Minute
		f.noteObstacles(i, &answer{Code: codeHeld, At: now, SentAt: now, First: true, Partial: partial, Obstacles: obstacles})
	}
	young := func(waits bool) *life {
		f := &life{rules: &rules{nodes: []string{"a", "b", "c"}, timeout: time.Second, line: lineTimesFor(time.Second)}, owner: "M", ticket: 50, several: true, waits: waits,
			ballot: make(ballot, 3), round: now + time.Second, phase: asking, poll: &poll{}}
		f.ballot[0].state, f.ballot[0].until = granted, now+time.Minute
		return f
	}
	for _, waits := range []bool{false, true} {
		f := young(waits)
		refuse(f, 1, false, held("x", "Y", 70, time.Second))
		refuse(f, 2, false, held("x", "Z", 80, time.Second))
		require.True(t, f.keepsVotes(now), "all who are in the way are younger")

		f = young(waits)
		refuse(f, 1, false, held("x", "Y", 70, time.Second), held("y", "O", 20, time.Second))
		refuse(f, 2, false, held("x", "Z", 80, time.Second))
		require.False(t, f.keepsVotes(now), "one has an older ticket, by another name than the first that is in the way")

		f = young(waits)
		refuse(f, 1, false, held("x", "Y", 70, time.Second), before("y", "wO", 20))
		refuse(f, 2, false, held("x", "Z", 80, time.Second))
		require.False(t, f.keepsVotes(now), "and so has one in line")

		f = young(waits)
		refuse(f, 1, false, held("x", "Y", 70, time.Second), held("y", "Y", 70, time.Second))
		refuse(f, 2, false, held("z", "Q", 90, time.Second))
		most, older, taken := f.contest()
		require.Equal(t, 1, most, "who has two names on a node is one there")
		require.False(t, older)
		require.False(t, taken)

		f = young(waits)
		f.woken = true
		refuse(f, 1, false, held("x", "Q", 90, time.Second), held("y", "Y", 70, time.Second))
		refuse(f, 2, false, held("y", "Y", 70, time.Second), held("z", "R", 90, time.Second))
		_, _, taken = f.contest()
		require.True(t, taken, "y is held by one on a quorum, whatever else is in the way")
		require.False(t, f.keepsVotes(now), "it may be another name that has been given back")
	}

	f := young(true)
	refuse(f, 1, false, held("x", "Y", 20, time.Second), held("y", "Q", 20, 3*time.Second))
	refuse(f, 2, true, held("x", "~", 0, 2*time.Second))
	require.Zero(t, f.ballot[1].owedUntil, "none is ours")
	require.NotZero(t, f.ballot[2].owedUntil, "some are")
	at, every := f.askIn(now)
	require.Equal(t, 2*time.Second+afterExpiry, at, "two are free by themselves when all in the way of one more have run out")
	require.Equal(t, f.line.every, every)
	e := f.report(now, ErrNotLocked)
	for _, text := range []string{`"x": held by Y (label), lease ends in 1s`, `"y": held by Q (label), lease ends in 3s`, `"x": kept free for a displaced holder`} {
		require.ErrorContains(t, e, text)
	}
	var one *HeldError
	require.ErrorAs(t, e, &one)
	require.Equal(t, "x", one.Name)

	refuse(f, 1, false, held("x", "Y", 20, time.Second), before("y", "wO", 20))
	_, every = f.askIn(now)
	require.Equal(t, f.line.behind, every, "somebody is before us in a line")
	require.Zero(t, f.ballot[1].said().freeAt, "and may have it then")

	// Displaced from one name by a taker, and from another by one who has gone: the first ends it.
	f = young(false)
	gone := obstacle{Name: "x", Text: "~;M@9000000", Left: time.Second}
	require.False(t, f.noteObstacles(1, &answer{Code: codeHeld, At: now, SentAt: now, Obstacles: []obstacle{gone}}))
	require.Equal(t, 9*time.Second, f.ballot[1].owedUntil, "our release is to strike us out")
	taker := obstacle{Name: "y", Text: "T;M@8000000", Left: time.Second}
	require.True(t, f.noteObstacles(1, &answer{Code: codeHeld, At: now, SentAt: now, Obstacles: []obstacle{gone, taker}}))
	require.Equal(t, "T", f.ballot[1].said().rival)
	require.False(t, errors.Is(f.ballot[1].said().err, ErrNotLocked))
}
