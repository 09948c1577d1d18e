package main

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

const testLease = time.Second

// history is made up: guards a, b, … of one lock, each with times in milliseconds.
func history(guards ...*record) *recorder {
	r := newRecorder()
	for i, g := range guards {
		g.id = fmt.Sprintf("p%d.1/0/%d", i, i)
		g.process = processOf(g.id)
		if g.lock == "" {
			g.lock = "lock-0"
		}
		if g.way == "" {
			g.way = acquire
		}
		g.bound = int64(6 * testLease)
		r.guards[g.id] = g
		r.order = append(r.order, g)
	}
	return r
}

func msec(n int) instant { return instant(n) * instant(time.Millisecond) }

// guard was asked for, got, last seen alive and released at these times.
func guard(token uint64, asked, got, last, released int) *record {
	return &record{
		asked: msec(asked), returned: msec(got), token: token, held: true, over: true,
		life: life{
			First: msec(got) + 1, Last: msec(last), Ended: msec(released) + 1, ReleasedAt: msec(released), Done: msec(released) + 1,
			Checks: [][2]instant{{msec(got) + 1, msec(got) + 2}, {msec(last), msec(last) + 1}}, Cause: "ErrReleased",
		},
	}
}

// wrote adds a write of guard i.
func (r *recorder) wrote(i, at int, accepted bool) *recorder {
	g := r.order[i]
	r.writes = append(r.writes, attempt{at: msec(at), guard: g.id, lock: g.lock, token: g.token, alive: true, accepted: accepted})
	return r
}

func violations(v *verdict, about string) (n int) {
	for _, violation := range v.violations {
		if strings.HasPrefix(violation, about) {
			n++
		}
	}
	return n
}

func TestJudgePassesAGoodHistory(t *testing.T) {
	r := history(guard(5, 10, 20, 50, 60), guard(6, 30, 70, 90, 100), guard(9, 35, 110, 120, 121))
	r.wrote(0, 30, true).wrote(0, 40, true).wrote(1, 75, true).wrote(0, 80, false).wrote(1, 85, true).wrote(2, 115, true)
	v := judge(r, testLease)
	require.Empty(t, v.violations)
	require.Equal(t, 3, v.acquired)
	require.Equal(t, 6, v.writes)
	require.Equal(t, 1, v.refused)
	require.Equal(t, 1, v.refusedLooked)
}

func TestJudgeSeesAnOverlap(t *testing.T) {
	v := judge(history(guard(5, 10, 20, 50, 60), guard(6, 30, 45, 90, 100)), testLease)
	require.Equal(t, 1, v.overlaps)
	require.Equal(t, 1, violations(v, "exclusion"))
	require.NotZero(t, violations(v, "history of"), "porcupine sees it too")
}

func TestJudgeAllowsAnOverlapOfForceAcquireNow(t *testing.T) {
	a, b := guard(5, 10, 20, 50, 60), guard(6, 30, 45, 90, 100)
	a.lock, b.lock, b.way = nowLock, nowLock, forceNow
	require.Empty(t, judge(history(a, b), testLease).violations)
}

// slot makes a guard one of the semaphore.
func (g *record) slotted(slot int) *record {
	g.lock, g.slot = slotOf(slot), slot
	return g
}

func TestJudgeSeesTooManySlots(t *testing.T) {
	all := func(last int) *recorder {
		return history(guard(5, 10, 20, 90, 95).slotted(1), guard(3, 12, 22, 90, 95).slotted(2), guard(4, 14, 24, 50, 60).slotted(3), guard(6, 30, last, 90, 95).slotted(3))
	}
	v := judge(all(60), testLease)
	require.Empty(t, v.violations)
	require.Equal(t, 4, v.slotsTaken)
	require.Equal(t, 3, v.slotsAtOnce)
	v = judge(all(45), testLease)
	require.Equal(t, 4, v.slotsAtOnce)
	require.Equal(t, 1, violations(v, "semaphore: 4 guards of 3 slots"))
	require.Equal(t, 1, v.overlaps, "they have the same slot")

	// A fourth one beside three others, where slots tell nothing.
	v = judge(history(guard(5, 10, 20, 90, 95).slotted(1), guard(3, 12, 22, 90, 95).slotted(2), guard(4, 14, 24, 90, 95).slotted(3), guard(6, 30, 45, 90, 95).slotted(4)), testLease)
	require.Equal(t, 1, violations(v, "semaphore: 4 guards of 3 slots"))
	require.Equal(t, 1, violations(v, "semaphore: p3.1/0/3 has slot 4 of 3"))
}

// reading makes a guard one that reads, or that writes what is read.
func (g *record) reading(reads bool) *record {
	g.lock, g.way = shelf, writing
	if reads {
		g.lock, g.way = readOf(fmt.Sprint(g.asked)), read
	}
	return g
}

func TestJudgeSeesWhoReadsAndWritesAtOnce(t *testing.T) {
	all := func(written int, token uint64) *recorder {
		return history(guard(5, 10, 20, 50, 60).reading(true), guard(5, 11, 21, 70, 80).reading(true), guard(token, 85, written, 95, 96).reading(false), guard(9, 97, 98, 99, 100).reading(true))
	}
	v := judge(all(90, 7), testLease)
	require.Empty(t, v.violations)
	require.Equal(t, 3, v.reads)
	require.Equal(t, 2, v.readsAtOnce)
	v = judge(all(65, 7), testLease)
	require.Equal(t, 1, v.overlaps)
	require.Equal(t, 1, violations(v, "readers: p2.1/0/2 (Write)"))
	require.Equal(t, 1, violations(judge(all(90, 5), testLease), "fencing: p2.1/0/2 (Write)"), "as those who read had")
	require.Equal(t, 1, violations(judge(all(90, 9), testLease), "fencing: p3.1/0/3 (Read)"), "as who wrote had")
}

func TestRegisterFencesEachSlot(t *testing.T) {
	r := newRecorder()
	for i, e := range []event{{Slot: 1, Token: 7}, {Slot: 2, Token: 5}, {Slot: 1, Token: 6}} {
		e.Kind, e.Guard, e.Returned = got, fmt.Sprintf("p0.1/%d/0", i), 2
		r.take(event{Kind: asked, Guard: e.Guard, Lock: pool, Way: acquire, At: 1})
		r.take(e)
		require.Equal(t, i < 2, r.take(event{Kind: write, Guard: e.Guard, Looked: 3}).Accepted, "slot %d, token %d", e.Slot, e.Token)
	}
	require.NotContains(t, r.unserved(1), pool)
	require.Contains(t, r.unserved(2), pool)
}

func TestJudgeEndsAStoppedGuardAtItsLastLook(t *testing.T) {
	a := guard(5, 10, 20, 25, 3000) // its process was stopped at 26, and it saw at 3000 that it was dead
	a.life.Cause = "ErrLost"
	require.Empty(t, judge(history(a, guard(6, 30, 1500, 1600, 1700)), testLease).violations)
}

func TestJudgeSeesAnAcceptedStaleWrite(t *testing.T) {
	r := history(guard(5, 10, 20, 50, 60), guard(6, 30, 70, 90, 100))
	r.wrote(0, 30, true).wrote(1, 75, true).wrote(0, 80, true)
	v := judge(r, testLease)
	require.Equal(t, 1, v.staleAccepted)
	require.Equal(t, 1, violations(v, "register"))
}

func TestJudgeSeesAStaleWriteThatTokensWouldExcuse(t *testing.T) {
	// The later holder has the smaller token: the register refuses the later one and accepts the stale one.
	r := history(guard(9, 10, 20, 50, 60), guard(6, 65, 70, 90, 100))
	r.wrote(1, 75, true).wrote(0, 80, true)
	v := judge(r, testLease)
	require.Equal(t, 1, v.staleAccepted)
	require.Equal(t, 1, v.tokensOut)
}

func TestJudgeSeesTokensOutOfOrder(t *testing.T) {
	v := judge(history(guard(7, 10, 20, 50, 60), guard(6, 65, 70, 90, 100)), testLease)
	require.Equal(t, 1, v.tokensOut)
	v = judge(history(guard(7, 10, 20, 50, 60), guard(7, 65, 70, 90, 100)), testLease)
	require.NotZero(t, v.tokensOut, "one token twice")
}

func TestJudgeSeesTokensOutOfOrderFarApart(t *testing.T) {
	var guards []*record
	for i := range 3 * batch {
		guards = append(guards, guard(uint64(i+1), 10*i+1, 10*i+2, 10*i+5, 10*i+6))
	}
	guards[0].token = uint64(10 * batch)
	guards[2*batch].life.Last = msec(20*batch + 13) // into the life of the next
	v := judge(history(guards...), testLease)
	require.Equal(t, len(guards)-1, v.tokensOut)
	require.Equal(t, 1, v.overlaps)
}

func TestJudgeSeesARevivalAndALiveHolderRefused(t *testing.T) {
	a, b := guard(5, 10, 20, 50, 60), guard(6, 65, 70, 90, 100)
	a.life.Revived, b.life.LiveRefused = msec(61), msec(80)
	v := judge(history(a, b), testLease)
	require.NotZero(t, violations(v, "finality"))
	require.Equal(t, 1, violations(v, "fencing: the write"))
}

func TestJudgeSeesHangs(t *testing.T) {
	late := guard(5, 10, 20, 50, 60)
	late.asked, late.returned = msec(1), msec(20_000)
	late.life.First, late.life.Last = 0, 0
	silent := &record{asked: msec(30)}
	killed := &record{asked: msec(30), lost: msec(40)}
	kept := guard(6, 25_000, 25_001, 25_002, 25_003)
	kept.over = false
	r := history(late, silent, killed, kept)
	v := judge(r, testLease)
	require.Equal(t, 3, violations(v, "hang"), "%v", v.violations)

	// Its process was stopped for most of that.
	r = history(late)
	r.windows = []window{{from: msec(100), to: msec(15_000), process: "p0", stopped: true}}
	require.Zero(t, violations(judge(r, testLease), "hang"))
}

func TestJudgeSeesAnUndocumentedError(t *testing.T) {
	r := history(&record{asked: msec(1), returned: msec(2), failed: undocumented, text: "what"}, &record{asked: msec(1), returned: msec(2), failed: "ErrNotLocked", way: acquire})
	require.Equal(t, 2, violations(judge(r, testLease), "undocumented"))
}

func TestUnavailabilityIsWhatSomebodyWhoCouldBeServedWaited(t *testing.T) {
	// The first holder was last seen alive at 100, the waiter was there from 50 on and was served at 1400.
	a, b := guard(5, 10, 20, 100, 2000), guard(6, 50, 1400, 1450, 1460)
	a.life.Cause = "ErrLost"
	v := judge(history(a, b), testLease)
	require.InDelta(t, 300, float64(v.unavailable.most.Milliseconds()), 1)

	r := history(a, b) // whose process was stopped from 200 to 1300
	r.windows = []window{{from: msec(200), to: msec(1300), process: "p1", stopped: true}}
	require.InDelta(t, -900, float64(judge(r, testLease).unavailable.most.Milliseconds()), 1)

	r = history(a, b)
	r.windows = []window{{from: msec(200), to: msec(300)}}
	v = judge(r, testLease)
	require.Zero(t, v.unavailable.seen)
	require.InDelta(t, 100, float64(v.afterOut.most.Milliseconds()), 1)
}

func TestRegisterRefusesSmallerTokens(t *testing.T) {
	r := newRecorder()
	for i, token := range []uint64{5, 7} {
		id := fmt.Sprintf("p0.1/%d/0", i)
		r.take(event{Kind: asked, Guard: id, Lock: "lock-0", Way: acquire, At: 1})
		r.take(event{Kind: got, Guard: id, Token: token, Returned: 2})
	}
	offer := func(i int) bool {
		return r.take(event{Kind: write, Guard: fmt.Sprintf("p0.1/%d/0", i), Looked: 3}).Accepted
	}
	require.True(t, offer(0))
	require.True(t, offer(1))
	require.False(t, offer(0))
	require.True(t, offer(1))
}
