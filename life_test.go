package redlock

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/redis/rueidis"
	"github.com/stretchr/testify/require"

	"github.com/redlock-go/redlock/internal/node"
)

// pausedGuard returns a guard that holds three votes until 850 ms from now, a renewal of each on its way, and the call
// that stops its process: nothing of the library runs but what the test calls, not even the extender.
func pausedGuard(t *testing.T) (g *Guard, pause func(time.Duration)) {
	t.Helper()
	o := LockerOption{KeyValidity: time.Second}
	for i := range 3 {
		o.Nodes = append(o.Nodes, rueidis.ClientOption{InitAddress: []string{fmt.Sprintf("node-%d:1", i)}})
	}
	o, err := o.resolve()
	require.NoError(t, err)
	l := newLocker(o)
	clock := time.Now()
	l.clock.read = func() time.Time { return clock }
	g = l.newGuard(context.Background(), "x", hold{})
	require.NoError(t, l.enter(g))
	now := l.clock.Now()
	g.life.phase, g.life.token = held, 1
	for i := range g.life.ballot {
		g.life.ballot[i] = vote{
			state: granted, until: g.life.claimUntil(now), token: 1, nextAt: now,
			away: true, step: gist{Script: scriptExtend, NotAfter: now + time.Minute},
		}
	}
	require.NoError(t, g.Err())
	return g, func(d time.Duration) { clock = clock.Add(d) }
}

// parkedLocker returns the Locker of a pausedGuard, whose nodes keep the steps that they are sent: the test answers them.
func parkedLocker(t *testing.T) (l *Locker, pause func(time.Duration)) {
	t.Helper()
	paused, pause := pausedGuard(t)
	for _, n := range paused.l.nodes {
		n.Park()
	}
	return paused.l, pause
}

// askingGuard returns a guard whose questions to three nodes are on their way, and the call that stops its process. The test
// answers them.
func askingGuard(t *testing.T) (g *Guard, pause func(time.Duration)) {
	t.Helper()
	l, pause := parkedLocker(t)
	g = l.newGuard(context.Background(), "y", hold{})
	require.NoError(t, l.enter(g))
	g.ask()
	return g, pause
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
	g.distrust(0, ErrClockOff)
	g.pushed(1)
	g.lookAgain(2)
	g.distrustAll(ErrClockOff)
	guards, _ := l.extender.take(l.clock.Now())
	require.Empty(t, guards)
	require.False(t, g.ended.Load())
}

// This machine's clock was off: no claim of before ends when it says, nor does one that is on its way.
func TestScheduleOwnClockOffTakesEveryVote(t *testing.T) {
	g, _ := pausedGuard(t)
	g.distrustAll(ErrClockOff)
	require.ErrorIs(t, g.Err(), ErrLost)
	require.ErrorIs(t, g.Err(), ErrClockOff)

	g, _ = askingGuard(t)
	now := g.l.clock.Now()
	g.answered(0, &answer{Code: codeOK, Number: 1, SentAt: now, At: now})
	g.distrustAll(ErrClockOff)
	g.answered(1, &answer{Code: codeOK, Number: 1, SentAt: now, At: now})
	require.ErrorIs(t, g.outcome(), ErrNoQuorum)
	require.ErrorIs(t, g.outcome(), ErrClockOff)
}

// Schedule: the process is stopped until its votes have run out, and what runs first when it goes on is one event,
// whichever. It must find the guard dead, by the votes as they stood, before it changes any of them: nobody knows what
// happened on the nodes meanwhile, and the event may bring good news.
func TestScheduleFirstEventAfterAPauseFindsTheGuardDead(t *testing.T) {
	for name, event := range map[string]func(g *Guard, now time.Duration){
		"renewed": func(g *Guard, now time.Duration) {
			for i := range g.life.ballot { // sent just before the pause ended, as far as the answer can tell
				g.answered(i, &answer{Code: codeOK, SentAt: now, At: now})
				require.True(t, g.ended.Load(), "answer %d", i)
			}
		},
		"won back": func(g *Guard, now time.Duration) {
			for i := range g.life.ballot {
				g.answered(i, &answer{Code: codeWonBack, SentAt: now, At: now})
				require.True(t, g.ended.Load(), "answer %d", i)
			}
		},
		"refused":       func(g *Guard, now time.Duration) { g.answered(1, &answer{Code: codeHeld, Text: "rival", At: now}) },
		"no answer":     func(g *Guard, now time.Duration) { g.answered(2, &answer{Err: ErrNodeDown, At: now}) },
		"push":          func(g *Guard, _ time.Duration) { g.pushed(0) },
		"node is back":  func(g *Guard, _ time.Duration) { g.lookAgain(0) },
		"clock is off":  func(g *Guard, _ time.Duration) { g.distrust(0, ErrClockOff) },
		"renewal due":   func(g *Guard, _ time.Duration) { g.tick() },
		"Err":           func(g *Guard, _ time.Duration) { require.Error(t, g.Err()) },
		"context's Err": func(g *Guard, _ time.Duration) { require.Error(t, g.Context().Err()) },
		"Release":       func(g *Guard, _ time.Duration) { require.ErrorIs(t, g.end(ErrReleased), ErrLost) },
	} {
		t.Run(name, func(t *testing.T) {
			g, pause := pausedGuard(t)
			pause(900 * time.Millisecond)
			event(g, g.l.clock.Now())
			require.True(t, g.ended.Load())
			require.Error(t, g.Context().Err())
			require.ErrorIs(t, g.Err(), ErrLost)
			require.Zero(t, g.life.ballot.live(g.l.clock.Now()), "dead, and votes for nobody")
		})
	}
}

// Schedule: node 0's clock is 60 ms off the others', the bound is 50 ms. So it stays however long the attempt waits for the
// last answer: the comparison is of what was measured.
func TestScheduleClocksAreComparedAsMeasured(t *testing.T) {
	g, pause := askingGuard(t)
	answers := func(i int, code int64, step time.Duration) {
		now := g.l.clock.Now()
		g.answered(i, &answer{Code: code, Number: 1, SentAt: now, At: now, Offset: offset{Lo: step, Hi: step, At: now}, HasClock: true})
	}
	answers(0, codeOK, 60*time.Millisecond)
	answers(1, codeOK, 0)
	require.Equal(t, asking, g.life.phase, "of two that disagree it is not known which is off")
	pause(240 * time.Millisecond)
	answers(2, codeHeld, 0)
	require.Equal(t, over, g.life.phase)
	require.ErrorIs(t, g.life.ballot[0].said().err, ErrClockOff)
}

// Schedule: the release comes so late that the lease has run out. That the key is not ours any more is no loss then.
func TestScheduleReleaseOfAVoteThatRanOutIsNoLoss(t *testing.T) {
	for late, lost := range map[time.Duration]bool{800 * time.Millisecond: true, 900 * time.Millisecond: false} {
		g, pause := pausedGuard(t)
		now := g.l.clock.Now()
		for i, n := range g.l.nodes {
			n.Park() // steps stay in their queues, and the test answers them
			g.answered(i, &answer{Code: codeOK, SentAt: now, At: now})
		}
		require.NoError(t, g.end(ErrReleased))
		pause(late)
		for i := range g.l.nodes {
			g.answered(i, &answer{Code: codeHeld, SentAt: now, At: g.l.clock.Now()})
		}
		require.Equal(t, lost, errors.Is(g.awaitFreed(), ErrLost))
	}
}

// Schedule: two takers of one Locker. Both are granted the lock by all nodes, the second after the first; the first comes
// back last. It must not end the second, and the second must end it: neither is pushed what their own connection wrote.
func TestScheduleTakersOfOneLockerEndOnlyWhomTheyDisplaced(t *testing.T) {
	for name, late := range map[string]bool{"first has won": false, "first hears late of its votes": true} {
		t.Run(name, func(t *testing.T) {
			first, _ := askingGuard(t)
			first.life.takeover = takeoverNow
			l := first.l
			second := l.newGuard(context.Background(), "y", hold{takeover: takeoverNow})
			require.NoError(t, l.enter(second))
			second.ask()
			now := l.clock.Now()
			answers := func(g *Guard, list string) {
				for i := range g.life.ballot {
					g.answered(i, &answer{Code: codeOK, Number: 1, Text: list, SentAt: now, At: now})
				}
			}
			if !late {
				answers(first, "")
			}
			answers(second, fmt.Sprintf(";%s@%d", first.life.owner, (now+time.Second).Microseconds()))
			l.endDisplaced(second)
			l.background.stop()
			answers(first, "")
			l.endDisplaced(first)
			require.NoError(t, second.Err())
			require.NotEqual(t, held, first.life.phase)
		})
	}
}

// Whoever comes second to a server is refused, wherever it is listed, and finding and noting are one step: of many
// keepers that come at once one gets it.
func TestOneServerIsOneNode(t *testing.T) {
	g, _ := pausedGuard(t)
	l := g.l
	var won atomic.Int64
	var keepers sync.WaitGroup
	for i := range l.nodes {
		keepers.Go(func() {
			if err := l.set.ReachServer(i, "one"); err == nil {
				won.Add(1)
			} else if !errors.Is(err, ErrUnsupportedNode) {
				t.Error(err)
			}
		})
	}
	keepers.Wait()
	require.EqualValues(t, 1, won.Load())

	g, _ = pausedGuard(t)
	l = g.l
	require.NoError(t, l.set.ReachServer(2, "two"))
	for range 3 { // each comes back again and again
		require.ErrorContains(t, l.set.ReachServer(0, "two"), l.nodes[2].Addr())
		require.NoError(t, l.set.ReachServer(2, "two"))
	}
	require.NoError(t, l.set.ReachServer(2, "three")) // the address leads elsewhere now
	require.NoError(t, l.set.ReachServer(0, "two"))
	require.Error(t, l.set.ReachServer(2, "two"))
}

// Schedule: node 0 turns out to be node 1's server, under another address. Its vote does not count from then on, nor does
// the answer that is on its way.
func TestScheduleVotesOfOneServerCountOnce(t *testing.T) {
	for name, event := range map[string]func(l *Locker){
		"second": func(l *Locker) { require.Error(t, l.set.ReachServer(0, "b")) },
		"first, and down since": func(l *Locker) {
			l.set.LoseServer(0)
			require.NoError(t, l.set.ReachServer(2, "a"))
		},
		"first, and another server since": func(l *Locker) {
			require.NoError(t, l.set.ReachServer(0, "d"))
			require.NoError(t, l.set.ReachServer(2, "a"))
		},
	} {
		t.Run(name, func(t *testing.T) {
			g, _ := pausedGuard(t)
			for i := range g.l.nodes {
				require.NoError(t, g.l.set.ReachServer(i, string(rune('a'+i))))
			}
			event(g.l)
			now := g.l.clock.Now()
			require.Equal(t, 2, g.life.ballot.live(now))
			require.ErrorIs(t, g.life.ballot[0].said().err, ErrUnsupportedNode)
			g.answered(0, &answer{Code: codeOK, Server: "a", SentAt: now, At: now})
			require.Equal(t, 2, g.life.ballot.live(now))
			g.answered(1, &answer{Code: codeOK, Server: "b", SentAt: now, At: now})
			require.Equal(t, 2, g.life.ballot.live(now))
		})
	}
}

// Schedule: a renewal is on its way when the node is to be looked at once more, and its answer says yes. What doubts the
// vote is a push; a keeper that has looked at its node, as it does again and again where somebody flushes the scripts
// all the time, takes nothing away from it, however long the next look takes. Nor does a flush or a lost connection, which may be
// younger than the yes: the vote keeps the end that it has.
func TestScheduleYesCountsWhileTheNodeIsLookedAtAgain(t *testing.T) {
	for name, tc := range map[string]struct {
		event  func(*Guard, int)
		doubts bool
		keeps  bool
	}{
		"flush, or the connection is lost": {event: (*Guard).flushed, keeps: true},
		"node is back":                     {event: (*Guard).lookAgain},
		"push":                             {event: (*Guard).pushed, doubts: true},
		"push, and node is back": {event: func(g *Guard, i int) {
			g.pushed(i)
			g.lookAgain(i)
		}, doubts: true},
	} {
		t.Run(name, func(t *testing.T) {
			g, pause := pausedGuard(t)
			pause(100 * time.Millisecond)
			sentAt := g.l.clock.Now()
			for i := range g.life.ballot {
				tc.event(g, i)
			}
			pause(time.Millisecond)
			now := g.l.clock.Now()
			for i := range g.life.ballot {
				want := g.life.claimUntil(sentAt)
				switch {
				case tc.doubts:
					want = now + g.l.nodes[i].LookWithin()
				case tc.keeps:
					want = g.life.ballot[i].until
				}
				g.answered(i, &answer{Code: codeOK, SentAt: sentAt, At: now, Within: g.l.nodes[i].LookWithin()})
				require.Equal(t, want, g.life.ballot[i].until)
			}
			pause(2 * node.MinLook)
			require.Equal(t, tc.doubts, g.Err() != nil)
		})
	}
}

// Schedule: the first question is on its way when the node is to be looked at once more, and its answer says yes. A push, a
// flush or a lost connection may be younger than the yes, and has the node asked again; a look of its keeper is no news of
// the lock.
func TestScheduleFirstYesCountsWhileTheNodeIsLookedAt(t *testing.T) {
	for name, tc := range map[string]struct {
		event  func(*Guard, int)
		doubts bool
	}{
		"looked at": {event: (*Guard).lookAgain},
		"push":      {event: (*Guard).pushed, doubts: true},
		"flush":     {event: (*Guard).flushed, doubts: true},
		"flush, and looked at": {event: func(g *Guard, i int) {
			g.flushed(i)
			g.lookAgain(i)
		}, doubts: true},
	} {
		t.Run(name, func(t *testing.T) {
			g, _ := askingGuard(t)
			now := g.l.clock.Now()
			yes := answer{Code: codeOK, Number: 1, SentAt: now, At: now}
			tc.event(g, 0)
			g.answered(0, told(yes))
			require.Equal(t, tc.doubts, g.life.ballot[0].away, "asked again")
			require.Equal(t, !tc.doubts, g.life.ballot[0].counts(now))
			g.answered(1, told(yes))
			require.Equal(t, !tc.doubts, g.life.phase == held)
			if tc.doubts {
				g.answered(0, told(yes))
				require.Equal(t, held, g.life.phase)
			}
		})
	}
}

// Schedule: a lost vote is being won back when a keeper's look has it asked once more. What was won is won.
func TestScheduleVoteWonBackCountsWhileTheNodeIsLookedAt(t *testing.T) {
	g, _ := pausedGuard(t)
	g.life.ballot[0].state = failed
	g.lookAgain(0)
	now := g.l.clock.Now()
	g.answered(0, &answer{Code: codeWonBack, SentAt: now, At: now})
	require.Equal(t, 3, g.life.ballot.live(now))
}

// Schedule: a lost vote is being won back when a push names the key: somebody has deleted or taken what was just won.
// The answer says "won", and is older than the push; the next look decides.
func TestScheduleVotePushedWhileItIsWonBackDoesNotCount(t *testing.T) {
	g, _ := pausedGuard(t)
	g.life.ballot[0].state = failed
	g.pushed(0)
	now := g.l.clock.Now()
	g.answered(0, &answer{Code: codeWonBack, SentAt: now, At: now})
	require.Equal(t, 2, g.life.ballot.live(now))
	require.NoError(t, g.Err())
}

// Schedule: a node has forgotten the scripts when it is asked for its vote, and again and again after that. It is asked
// once more after each look of its keeper, until it has voted, and not after: the answer to a question too many would
// take back a vote that stands.
func TestScheduleWhoHasVotedIsNotAskedAgain(t *testing.T) {
	g, _ := askingGuard(t)
	now := g.l.clock.Now()
	forgotten := answer{Err: errForgotten, Unsent: true, SentAt: now, At: now}
	yes := answer{Code: codeOK, Number: 1, SentAt: now, At: now}
	g.lookAgain(0)
	g.answered(0, told(forgotten))
	require.True(t, g.life.ballot[0].away, "the keeper looked meanwhile")
	g.answered(0, told(forgotten))
	require.False(t, g.life.ballot[0].away, "the keeper is still to look")
	g.lookAgain(0)
	require.True(t, g.life.ballot[0].away)
	g.lookAgain(0)
	g.answered(0, told(forgotten))
	require.True(t, g.life.ballot[0].away)
	g.answered(0, told(yes))
	g.lookAgain(0)
	require.False(t, g.life.ballot[0].away, "it has voted")
	g.answered(1, told(yes))
	require.NoError(t, g.Err())
	require.Equal(t, held, g.life.phase)
}

// told is an answer of its own: whoever is told of one may write to it.
func told(a answer) *answer { return &a }

// A yes says nothing of a step that was cut off on its way and may be executed after the one that was answered.
func TestAYesForgetsNoGhost(t *testing.T) {
	var v vote
	v.noteGhost(10 * time.Second)
	v.note(errAbsent)
	require.Equal(t, 10*time.Second, v.ghost())
	v.forget(9 * time.Second)
	require.NoError(t, v.said().err)
	require.Equal(t, 10*time.Second, v.ghost())
	v.forget(10 * time.Second)
	require.Nil(t, v.no)
}
