package redlock_test

import (
	"context"
	"errors"
	"log/slog"
	"os"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/redlock-go/redlock"
	"github.com/redlock-go/redlock/internal/logtest"
	"github.com/redlock-go/redlock/redlocktest"
)

// Each line of docs/logging.md: once for a change, at its level, with its keys.

const (
	lineUp         = "redlock: node is up"
	lineDown       = "redlock: node is down"
	lineCannotVote = "redlock: node cannot vote"
	lineQuarantine = "redlock: node is quarantined"
	lineOver       = "redlock: node's quarantine is over"
	lineNew        = "redlock: adopted a brand-new node"
	lineForgot     = "redlock: adopted a node that lost its memory"
	lineAmended    = "redlock: amended a node's marker"
	lineMembers    = "redlock: members of the set"
	lineLost       = "redlock: lock lost"
	lineStepped    = "redlock: node's clock stepped or runs wrong"
	lineClockOff   = "redlock: node's clock is off the other nodes'"
	lineClockRight = "redlock: node's clock is right again"
	lineEvicts     = "redlock: node may evict locks"
	lineNoPushes   = "redlock: node refuses client tracking"
	linePushes     = "redlock: node takes client tracking again"
)

// requireLogged asserts that a message was logged so many times, each at its level and with its keys.
func requireLogged(t *testing.T, log *logtest.Log, times int, level slog.Level, message, keys string) []logtest.Line {
	t.Helper()
	var lines []logtest.Line
	for _, l := range log.Lines() {
		if strings.HasPrefix(l.Message, message) {
			lines = append(lines, l)
		}
	}
	require.Len(t, lines, times, "%q in\n%s", message, log)
	for _, l := range lines {
		require.Equal(t, level, l.Level, l.Text)
		require.Equal(t, keys, strings.Join(l.Keys, " "), l.Text)
	}
	return lines
}

// requireTidy asserts what holds for all lines: they are in the documentation, keys are words, durations are text.
func requireTidy(t *testing.T, log *logtest.Log) {
	t.Helper()
	docs, err := os.ReadFile("docs/logging.md")
	require.NoError(t, err)
	for _, l := range log.Lines() {
		require.Contains(t, string(docs), strings.TrimPrefix(l.Message, "redlock: "))
		for key, value := range l.Attrs {
			require.Regexp(t, regexp.MustCompile("^[a-z]+$"), key)
			require.NotEqual(t, slog.KindDuration, value.Kind(), key)
			require.Contains(t, string(docs), "`"+key+"`")
		}
	}
}

func settle() { time.Sleep(100 * time.Millisecond) }

// findOut has a Locker find out that its connections are gone, which nobody does who has nothing to say.
func findOut(t *testing.T, l *redlock.Locker) {
	t.Helper()
	if g, err := l.TryAcquire(context.Background(), time.Now().String()); err == nil {
		require.NoError(t, g.Release(context.Background()))
	}
}

func TestLogOfANodeThatHangs(t *testing.T) {
	simulated(t, 3, func(t *testing.T, c *redlocktest.Cluster, open opener) {
		var log logtest.Log
		l := open("a", logTo(&log))
		g := tryAcquire(t, l, "x")
		settle()
		requireLogged(t, &log, 3, slog.LevelInfo, lineUp, "node version")
		begun := len(log.Lines())
		for i := range 2 {
			c.Node(1).Freeze()
			time.Sleep(8 * time.Second)
			down := requireLogged(t, &log, i+1, slog.LevelWarn, lineDown, "node error")
			require.Equal(t, c.Node(1).Addr(), down[i].Attrs["node"].String())
			require.Contains(t, down[i].Text, redlock.ErrNodeTimeout.Error())
			c.Node(1).Thaw()
			time.Sleep(8 * time.Second)
			require.Equal(t, 3+i+1, log.Count(lineUp))
		}
		up := log.Lines(lineUp, "after=")
		require.Len(t, up, 2)
		require.Regexp(t, "^[5-9].*s$", up[0].Attrs["after"].String())
		require.NoError(t, g.Err())
		l.Close()
		require.Len(t, log.Lines(), begun+4, "nothing but down and up, twice:\n%s", &log)
		requireTidy(t, &log)
	})
}

func TestLogOfANodeThatIsDown(t *testing.T) {
	simulated(t, 3, func(t *testing.T, c *redlocktest.Cluster, open opener) {
		var log logtest.Log
		l := open("a", logTo(&log))
		g := tryAcquire(t, l, "x")
		settle()
		for range 5 { // every kind of failure that a machine shows while it goes down
			c.Node(1).Stop()
			time.Sleep(time.Second)
			c.Node(1).Silence()
			time.Sleep(7 * time.Second)
		}
		requireLogged(t, &log, 1, slog.LevelWarn, lineDown, "node error")
		c.Node(1).Heal()
		c.Node(1).Start()
		time.Sleep(8 * time.Second)
		require.Equal(t, 1, log.Count(lineUp, "after="))
		release(t, g)
		requireTidy(t, &log)
	})
}

func TestLogOfClose(t *testing.T) {
	simulated(t, 3, func(t *testing.T, c *redlocktest.Cluster, open opener) {
		var log logtest.Log
		l := open("a", logTo(&log))
		g := tryAcquire(t, l, "x")
		settle()
		before := log.String()
		c.Node(0).Silence()
		l.Close()
		require.ErrorIs(t, g.Err(), redlock.ErrLockerClosed)
		require.Equal(t, before, log.String(), "who was only cancelled is not told of, nor a lock that was given back")
	})
}

func TestLogOfALostLock(t *testing.T) {
	simulated(t, 3, func(t *testing.T, c *redlocktest.Cluster, open opener) {
		var log logtest.Log
		l := open("a", logTo(&log))
		release(t, tryAcquire(t, l, "x"))
		g := tryAcquire(t, l, "x")
		_, err := l.TryAcquire(context.Background(), "x")
		require.ErrorIs(t, err, redlock.ErrNotLocked)
		settle()
		require.Zero(t, log.Count(lineLost), "neither a release nor a refusal is a loss")
		c.Node(0).Stop()
		c.Node(1).Stop()
		time.Sleep(5 * time.Second)
		require.ErrorIs(t, g.Err(), redlock.ErrLost)
		line := requireLogged(t, &log, 1, slog.LevelWarn, lineLost, "lock token error")[0]
		require.Equal(t, "x", line.Attrs["lock"].String())
		require.Equal(t, g.FencingToken(), line.Attrs["token"].Uint64())
		require.Equal(t, g.Err().Error(), line.Attrs["error"].String())

		c.Node(0).Start()
		c.Node(1).Start()
		time.Sleep(2 * time.Second)
		g = tryAcquire(t, l, "y")
		other, err := open("b").ForceAcquire(context.Background(), "y")
		require.NoError(t, err)
		require.ErrorIs(t, g.Err(), redlock.ErrTakenOver)
		settle()
		require.Contains(t, requireLogged(t, &log, 2, slog.LevelWarn, lineLost, "lock token error")[1].Text, "lost to another holder")
		release(t, other)
		requireTidy(t, &log)
	})
}

// A Logger that does not return holds up neither the guard's end nor its release.
func TestSlowLoggerHoldsUpNoGuard(t *testing.T) {
	simulated(t, 3, func(t *testing.T, c *redlocktest.Cluster, open opener) {
		let := make(chan struct{})
		l := open("a", func(o *redlock.LockerOption) { o.Logger = slog.New(stuck{slog.DiscardHandler, let}) })
		g := tryAcquire(t, l, "x")
		for _, n := range c.Nodes() {
			n.Del("redlock:{x}")
		}
		settle()
		require.ErrorIs(t, g.Err(), redlock.ErrLost)
		require.ErrorIs(t, g.Release(context.Background()), redlock.ErrLost)
		release(t, tryAcquire(t, l, "x"))
		close(let)
	})
}

// stuck is a handler that waits where a lost lock is logged.
type stuck struct {
	slog.Handler
	let chan struct{}
}

func (s stuck) Enabled(context.Context, slog.Level) bool { return true }
func (s stuck) Handle(_ context.Context, r slog.Record) error {
	if r.Message == lineLost {
		<-s.let
	}
	return errors.ErrUnsupported
}

func TestLogOfClocks(t *testing.T) {
	simulated(t, 3, func(t *testing.T, c *redlocktest.Cluster, open opener) {
		var log, newcomers logtest.Log
		l := open("a", logTo(&log))
		g := tryAcquire(t, l, "x")
		c.Node(0).StepClock(time.Second)
		time.Sleep(300 * time.Millisecond)
		for range 20 { // looked at again and again
			release(t, tryAcquire(t, l, "y"))
		}
		line := requireLogged(t, &log, 1, slog.LevelWarn, lineStepped, "node off bound")[0]
		require.Equal(t, c.Node(0).Addr(), line.Attrs["node"].String())
		require.Regexp(t, `^(9\d\dms|1(\.\d+)?s)$`, line.Attrs["off"].String())
		require.Equal(t, "50ms", line.Attrs["bound"].String())

		newcomer := open("b", logTo(&newcomers))
		for range 20 {
			release(t, tryAcquire(t, newcomer, "z"))
		}
		settle()
		line = requireLogged(t, &newcomers, 1, slog.LevelWarn, lineClockOff, "node off bound")[0]
		require.Regexp(t, `^(9\d\dms|1(\.\d+)?s)$`, line.Attrs["off"].String())
		require.Equal(t, "50ms", line.Attrs["bound"].String())

		c.Node(0).SkewClock(0)
		time.Sleep(3 * time.Second)
		requireLogged(t, &log, 1, slog.LevelWarn, lineStepped, "node off bound")
		requireLogged(t, &log, 1, slog.LevelInfo, lineClockRight, "node")
		require.NoError(t, g.Err())
		release(t, g)
		requireTidy(t, &log)
		requireTidy(t, &newcomers)
	})
}

func TestLogOfMemory(t *testing.T) {
	simulated(t, 3, func(t *testing.T, c *redlocktest.Cluster, open opener) {
		var log logtest.Log // of all programs: who adopts is one of them
		open("a", logTo(&log), quarantineOn)
		open("b", logTo(&log), quarantineOn)
		time.Sleep(3 * time.Second)
		require.Equal(t, 3, log.Count(lineNew))
		for _, line := range requireLogged(t, &log, 3, slog.LevelInfo, lineNew, "node quarantine") {
			require.Equal(t, "1s", line.Attrs["quarantine"].String())
		}
		requireLogged(t, &log, 6, slog.LevelInfo, lineQuarantine, "node left")
		requireLogged(t, &log, 6, slog.LevelInfo, lineOver, "node")

		c.Node(1).CrashEmpty() // of an established set: it is not new
		time.Sleep(5 * time.Second)
		requireLogged(t, &log, 3, slog.LevelInfo, lineNew, "node quarantine")
		line := requireLogged(t, &log, 1, slog.LevelWarn, lineForgot, "node quarantine marker")[0]
		require.Equal(t, c.Node(1).Addr(), line.Attrs["node"].String())
		requireLogged(t, &log, 8, slog.LevelInfo, lineQuarantine, "node left")
		requireLogged(t, &log, 8, slog.LevelInfo, lineOver, "node")

		before := log.Count(lineMembers)
		require.NoError(t, open("c", quarantineOn, logTo(&log)).SetNodes(context.Background(), redlock.NodeSet{LongestLease: 2 * time.Second}))
		time.Sleep(time.Second)
		require.Equal(t, before+4, log.Count(lineMembers), "each program says once which version it goes by, and the new one the old one first")
		for _, line := range requireLogged(t, &log, before+4, slog.LevelInfo, lineMembers, "members roster longest")[before+1:] {
			require.Equal(t, "node-0:6379, node-1:6379, node-2:6379", line.Attrs["members"].String())
			require.Equal(t, int64(2), line.Attrs["roster"].Int64())
			require.Equal(t, "2s", line.Attrs["longest"].String())
		}
		requireTidy(t, &log)
	})
}

func TestLogOfServersThatAreSetUpBadly(t *testing.T) {
	simulated(t, 3, func(t *testing.T, c *redlocktest.Cluster, open opener) {
		c.Node(0).SetInfo("maxmemory", "1000000")
		c.Node(0).SetInfo("maxmemory_policy", "allkeys-lru")
		c.Node(1).RefuseTracking()
		c.Node(2).SetInfo("role", "slave")
		var log logtest.Log
		l := open("a", logTo(&log))
		restart := func() {
			for _, n := range c.Nodes()[:2] {
				n.Stop()
			}
			settle()
			findOut(t, l)
			settle()
			for _, n := range c.Nodes()[:2] {
				n.Start()
			}
			time.Sleep(2 * time.Second)
		}
		for range 5 {
			restart()
		}
		require.Equal(t, "allkeys-lru", requireLogged(t, &log, 1, slog.LevelWarn, lineEvicts, "node policy")[0].Attrs["policy"].String())
		requireLogged(t, &log, 1, slog.LevelWarn, lineNoPushes, "node error")
		require.Contains(t, log.String(), "replica")
		c.Node(1).AllowTracking()
		restart()
		requireLogged(t, &log, 1, slog.LevelInfo, linePushes, "node")
		requireTidy(t, &log)
	})
	simulated(t, 3, func(t *testing.T, c *redlocktest.Cluster, open opener) {
		c.Node(2).SetInfo("role", "slave")
		var log logtest.Log
		open("a", logTo(&log))
		time.Sleep(20 * time.Second) // looked at every second
		var warned []logtest.Line
		for _, line := range log.Lines(lineCannotVote) {
			require.Equal(t, []string{"node", "error"}, line.Keys)
			if line.Level == slog.LevelWarn { // while a set is adopted it may be told that a node waits for the others
				warned = append(warned, line)
			}
		}
		require.Len(t, warned, 1, &log)
		c.Node(2).SetInfo("role", "master")
		time.Sleep(2 * time.Second)
		require.Equal(t, 1, log.Count(lineUp, c.Node(2).Addr(), "after="))
		requireTidy(t, &log)
	})
}
