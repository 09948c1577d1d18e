package redlock

import (
	"context"
	"fmt"
	"testing"
	"time"

	"github.com/redis/rueidis"
	"github.com/stretchr/testify/require"
)

// pausedGuard returns a guard that holds three votes until 850 ms from now, a renewal of each on its way, and the call
// that stops its process: nothing of the library runs but what the test calls, not even the extender.
func pausedGuard(t *testing.T) (g *Guard, pause func(time.Duration)) {
	t.Helper()
	o := LockerOption{KeyValidity: time.Second}
	for i := range 3 {
		o.Nodes = append(o.Nodes, rueidis.ClientOption{InitAddress: []string{fmt.Sprint("node-", i)}})
	}
	o, err := o.resolve()
	require.NoError(t, err)
	l := newLocker(o)
	clock := time.Now()
	l.clock.read = func() time.Time { return clock }
	g = l.newGuard(context.Background(), "x", hold{})
	require.NoError(t, l.enter(g))
	now := l.clock.now()
	g.phase, g.token = held, 1
	for i := range g.claims {
		g.ballot[i] = vote{state: granted, until: g.claimUntil(now), token: 1}
		g.claims[i] = claim{busy: true, nextAt: now, step: step{guard: g, index: i, script: scriptExtend, notAfter: now + time.Minute}}
	}
	g.rearm(now)
	require.NoError(t, g.Err())
	return g, func(d time.Duration) { clock = clock.Add(d) }
}

// A lock that is won, and taken over before the call that asked for it has come back, was not got.
func TestWonAndLostAtOnceIsNotLocked(t *testing.T) {
	g, _ := pausedGuard(t)
	require.NoError(t, g.outcome())
	require.True(t, g.takenOver())
	err := g.outcome()
	require.ErrorIs(t, err, ErrNotLocked)
	require.NotErrorIs(t, err, ErrLost)
	require.ErrorIs(t, g.Err(), ErrTakenOver)
}

// A guard is in its place, where a node's clock or a push finds it, before it asks. Nobody's time is over then.
func TestNothingEndsAnAttemptThatHasNotAsked(t *testing.T) {
	paused, _ := pausedGuard(t)
	l := paused.l
	l.extender.drop(paused)
	g := l.newGuard(context.Background(), "y", hold{})
	require.NoError(t, l.enter(g))
	g.distrust(0)
	g.pushed(1)
	g.lookAgain(2)
	guards, _ := l.extender.take(l.clock.now())
	require.Empty(t, guards)
	require.False(t, g.ended.Load())
}

// Schedule: the process is stopped until its votes have run out, and what runs first when it goes on is one event,
// whichever. It must find the guard dead, by the votes as they stood, before it changes any of them: nobody knows what
// happened on the nodes meanwhile, and the event may bring good news.
func TestScheduleFirstEventAfterAPauseFindsTheGuardDead(t *testing.T) {
	for name, event := range map[string]func(g *Guard, now time.Duration){
		"renewed": func(g *Guard, now time.Duration) {
			for i := range g.claims { // sent just before the pause ended, as far as the answer can tell
				g.answered(i, answer{code: codeOK, sentAt: now, at: now})
				require.True(t, g.ended.Load(), "answer %d", i)
			}
		},
		"won back": func(g *Guard, now time.Duration) {
			for i := range g.claims {
				g.answered(i, answer{code: codeWonBack, sentAt: now, at: now})
				require.True(t, g.ended.Load(), "answer %d", i)
			}
		},
		"refused":       func(g *Guard, now time.Duration) { g.answered(1, answer{code: codeHeld, text: "rival", at: now}) },
		"no answer":     func(g *Guard, now time.Duration) { g.answered(2, answer{err: ErrNodeDown, at: now}) },
		"push":          func(g *Guard, _ time.Duration) { g.pushed(0) },
		"node is back":  func(g *Guard, _ time.Duration) { g.lookAgain(0) },
		"clock is off":  func(g *Guard, _ time.Duration) { g.distrust(0) },
		"renewal due":   func(g *Guard, now time.Duration) { g.tick(now) },
		"Err":           func(g *Guard, _ time.Duration) { require.Error(t, g.Err()) },
		"context's Err": func(g *Guard, _ time.Duration) { require.Error(t, g.Context().Err()) },
		"Release":       func(g *Guard, _ time.Duration) { require.ErrorIs(t, g.end(ErrReleased), ErrLost) },
	} {
		t.Run(name, func(t *testing.T) {
			g, pause := pausedGuard(t)
			pause(900 * time.Millisecond)
			event(g, g.l.clock.now())
			require.True(t, g.ended.Load())
			require.Error(t, g.Context().Err())
			require.ErrorIs(t, g.Err(), ErrLost)
			require.Zero(t, g.ballot.live(g.l.clock.now()), "dead, and votes for nobody")
		})
	}
}

// Schedule: a renewal is on its way when the node is to be looked at once more, and its answer says yes. What doubts the
// vote is a push; a keeper that has looked at its node, as it does again and again where somebody flushes the scripts
// all the time, takes nothing away from it, however long the next look takes.
func TestScheduleYesCountsWhileTheNodeIsLookedAtAgain(t *testing.T) {
	for name, tc := range map[string]struct {
		event  func(*Guard, int)
		doubts bool
	}{
		"node is back": {event: (*Guard).lookAgain},
		"push":         {event: (*Guard).pushed, doubts: true},
		"push, and node is back": {event: func(g *Guard, i int) {
			g.pushed(i)
			g.lookAgain(i)
		}, doubts: true},
	} {
		t.Run(name, func(t *testing.T) {
			g, pause := pausedGuard(t)
			pause(100 * time.Millisecond)
			sentAt := g.l.clock.now()
			for i := range g.claims {
				tc.event(g, i)
			}
			pause(time.Millisecond)
			now := g.l.clock.now()
			for i := range g.claims {
				g.answered(i, answer{code: codeOK, sentAt: sentAt, at: now})
				want := g.claimUntil(sentAt)
				if tc.doubts {
					want = now + g.l.nodes[i].lookWithin()
				}
				require.Equal(t, want, g.ballot[i].until)
			}
			pause(2 * minLook)
			require.Equal(t, tc.doubts, g.Err() != nil)
		})
	}
}

// Schedule: a lost vote is being won back when a push names the key: somebody has deleted or taken what was just won.
// The answer says "won", and is older than the push; the next look decides.
func TestScheduleVotePushedWhileItIsWonBackDoesNotCount(t *testing.T) {
	g, _ := pausedGuard(t)
	g.ballot[0].state = failed
	g.pushed(0)
	now := g.l.clock.now()
	g.answered(0, answer{code: codeWonBack, sentAt: now, at: now})
	require.Equal(t, 2, g.ballot.live(now))
	require.NoError(t, g.Err())
}

// Schedule: a node has forgotten the scripts when it is asked for its vote, and again and again after that. It is asked
// once more after each look of its keeper, until it has voted, and not after: the answer to a question too many would
// take back a vote that stands.
func TestScheduleWhoHasVotedIsNotAskedAgain(t *testing.T) {
	paused, _ := pausedGuard(t)
	l := paused.l
	for _, n := range l.nodes {
		n.down, n.collecting = nil, true // steps stay in their queues, and the test answers them
	}
	g := l.newGuard(context.Background(), "y", hold{})
	require.NoError(t, l.enter(g))
	g.ask()
	now := l.clock.now()
	forgotten := answer{err: errForgotten, unsent: true, sentAt: now, at: now}
	yes := answer{code: codeOK, number: 1, sentAt: now, at: now}
	g.lookAgain(0)
	g.answered(0, forgotten)
	require.True(t, g.claims[0].busy, "the keeper looked meanwhile")
	g.answered(0, forgotten)
	require.False(t, g.claims[0].busy, "the keeper is still to look")
	g.lookAgain(0)
	require.True(t, g.claims[0].busy)
	g.lookAgain(0)
	g.answered(0, forgotten)
	require.True(t, g.claims[0].busy)
	g.answered(0, yes)
	g.lookAgain(0)
	require.False(t, g.claims[0].busy, "it has voted")
	g.answered(1, yes)
	require.NoError(t, g.Err())
	require.Equal(t, held, g.phase)
}
