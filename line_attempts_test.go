package redlock

import (
	"context"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// attempts returns a waiter whose first attempt has failed and stays in line: its release is on its way to node 2, as are the questions
// of its second attempt to all nodes. The test answers them.
func attempts(t *testing.T) (first, second *Guard, pause func(time.Duration)) {
	t.Helper()
	l, pause := parkedLocker(t)
	w, err := l.lineUp([]subject{{name: "y"}}, &hold{}, nil)
	require.NoError(t, err)
	attempt := func() *Guard {
		g := l.newGuard(context.Background(), "y", hold{})
		w.begin(g, l.ticketFor(w))
		require.NoError(t, l.enter(g))
		g.ask()
		return g
	}
	first = attempt()
	for i := range l.nodes {
		answers(first, i, codeHeld, l.clock.Now())
	}
	require.Equal(t, over, first.life.phase)
	require.True(t, first.life.ballot[2].away && first.life.ballot[2].step.Stay, "it lets go and stays in line")
	pause(time.Millisecond)
	return first, attempt(), pause
}

// answers has a node answer the step that was sent at an instant.
func answers(g *Guard, i int, code int64, sentAt time.Duration) {
	a := &answer{Code: code, Number: 1, SentAt: sentAt, At: g.l.clock.Now()}
	if code == codeHeld {
		a.Text = "rival"
	}
	g.answered(i, a)
}

// Schedule: a waiter's first attempt lets go while its second is granted the lock by the same node, and which of the two steps the node
// did first is not known: their answers are heard in either order. The waiter is taken out of that line by the time that its lock is
// given back, or whoever came next would find it before them until its wake key had run out.
func TestScheduleWhoIsServedLeavesTheLineThatAnEarlierAttemptPutItIn(t *testing.T) {
	leaves := func(g *Guard) bool { return g.life.ballot[2].away && g.life.ballot[2].step.Leave }

	for what, script := range map[string]script{"release": scriptRelease, "late refusal": scriptAcquire} {
		t.Run("the "+what+" is heard first", func(t *testing.T) {
			first, second, pause := attempts(t)
			first.life.ballot[2].step.Script = script
			asked := second.l.clock.Now()
			pause(time.Millisecond)
			answers(first, 2, codeHeld, asked)
			for _, i := range []int{2, 0, 1} {
				answers(second, i, codeOK, asked)
			}
			require.NoError(t, second.end(ErrReleased))
			require.True(t, leaves(second))
		})
	}
	t.Run("the grant is heard first", func(t *testing.T) {
		first, second, pause := attempts(t)
		asked := second.l.clock.Now()
		pause(time.Millisecond)
		for _, i := range []int{2, 0, 1} {
			answers(second, i, codeOK, asked)
		}
		require.Equal(t, held, second.life.phase)
		answers(first, 2, codeHeld, asked)
		require.True(t, leaves(first))
	})
	t.Run("the release was heard before the grant was asked for", func(t *testing.T) {
		first, second, pause := attempts(t)
		answers(first, 2, codeHeld, first.l.clock.Now())
		pause(time.Millisecond)
		asked := second.l.clock.Now()
		for _, i := range []int{2, 0, 1} {
			answers(second, i, codeOK, asked)
		}
		require.Nil(t, second.waiter, "the grant took it out")
	})
}
