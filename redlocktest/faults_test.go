package redlocktest_test

import (
	"context"
	"io"
	"net"
	"slices"
	"strings"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"github.com/redis/rueidis"
	"github.com/stretchr/testify/require"

	"github.com/redlock-go/redlock"
	"github.com/redlock-go/redlock/redlocktest"
)

const ms = time.Millisecond

func TestDelay(t *testing.T) {
	inBubble(t, 2, func(t *testing.T, cluster *redlocktest.Cluster) {
		node := cluster.Node(1)
		a, b := link(cluster.Client("a").Link(1)).track(t), link(cluster.Client("b").Link(1)).track(t)
		require.Zero(t, took(func() { a.want(t, "PONG", "PING") }), "no delay, no time")
		node.Delay(3*ms, 5*ms)
		require.Equal(t, 8*ms, took(func() { a.want(t, "PONG", "PING") }))
		cluster.Client("a").Link(1).Delay(10*ms, 0)
		require.Equal(t, 18*ms, took(func() { a.want(t, "PONG", "PING") }), "link and node add up")
		require.Equal(t, 8*ms, took(func() { b.want(t, "PONG", "PING") }), "the other client's link has none")
		node.Delay(0, 0)
		require.Equal(t, 10*ms, took(func() { a.want(t, "(nil)", "GET", "k") }))
		cluster.Client("a").Link(1).Delay(0, 7*ms)
		b.want(t, "OK", "SET", "k", "1")
		require.Empty(t, b.pushed(t))
		start := time.Now()
		require.Equal(t, []string{"k"}, a.pushed(t), "a push takes what a reply takes")
		require.Equal(t, 7*ms, time.Since(start))
	})
}

func TestDelayKeepsOrder(t *testing.T) {
	inBubble(t, 1, func(t *testing.T, cluster *redlocktest.Cluster) {
		l := cluster.Client("a").Link(0)
		a := link(l).track(t)
		l.Delay(10*ms, 0)
		first := a.later("SET", "k", "first")
		synctest.Wait()
		l.Delay(0, 0)
		require.Equal(t, 10*ms, took(func() { a.want(t, "OK", "SET", "k", "second") }), "it may not overtake")
		require.Equal(t, "OK", <-first)
		value, _ := cluster.Node(0).Get("k")
		require.Equal(t, "second", value)

		draws := []time.Duration{9 * ms, 1 * ms, 4 * ms, 2 * ms}
		l.DelayFunc(func() time.Duration {
			if len(draws) == 0 {
				return 0 // rueidis' own PINGs
			}
			d := draws[0]
			draws = draws[1:]
			return d
		}, nil)
		for i := range 4 {
			reply := a.later("APPEND", "log", string(rune('0'+i)))
			synctest.Wait()
			defer func() { <-reply }()
		}
		time.Sleep(9 * ms)
		synctest.Wait()
		value, _ = cluster.Node(0).Get("log")
		require.Equal(t, "0123", value)
	})
}

func TestSilenceHealed(t *testing.T) {
	inBubble(t, 1, func(t *testing.T, cluster *redlocktest.Cluster) {
		node := cluster.Node(0)
		a, b := link(cluster.Client("a").Link(0)).track(t), link(cluster.Client("b").Link(0)).track(t)
		a.want(t, "(nil)", "GET", "seen")

		cluster.Client("a").Link(0).SilenceRequests()
		require.Equal(t, deadlineExceeded, a.within(50*ms, "SET", "k", "late"))
		require.Empty(t, node.Keys(), "the node never saw it")
		b.want(t, "OK", "SET", "seen", "1")
		synctest.Wait()
		a.mu.Lock()
		require.Equal(t, []string{"seen"}, a.pushes, "pushes still arrive")
		a.mu.Unlock()
		time.Sleep(50 * ms)
		cluster.Client("a").Link(0).Heal()
		a.want(t, "late", "GET", "k")
		require.Equal(t, []string{"k", "seen"}, node.Keys(), "held, then executed")

		node.SilenceReplies()
		require.Equal(t, deadlineExceeded, a.within(50*ms, "SET", "k", "unknown"))
		value, _ := node.Get("k")
		require.Equal(t, "unknown", value, "executed, but nobody knows")
		node.Delay(0, 3*ms)
		reply := a.later("GET", "k")
		synctest.Wait()
		node.Heal()
		require.Equal(t, 3*ms, took(func() { require.Equal(t, "unknown", <-reply) }), "with the delay of the day of its healing")
		require.Equal(t, 1, cluster.Client("a").Link(0).Dials(), "the connection lives on")

		node.Delay(0, 0)
		node.SilenceRequests()
		require.Equal(t, deadlineExceeded, a.within(50*ms, "SET", "k", "later"))
		value, _ = node.Get("k")
		require.Equal(t, "unknown", value)
		node.Heal()
		a.want(t, "later", "GET", "k")

		node.Silence()
		cluster.Client("a").Link(0).SilenceRequests()
		reply = a.later("PING")
		synctest.Wait()
		node.Heal()
		time.Sleep(ms)
		require.Empty(t, reply, "either silence is silence")
		cluster.Client("a").Link(0).Heal()
		require.Equal(t, "PONG", <-reply)
	})
}

func TestSilenceLosing(t *testing.T) {
	inBubble(t, 1, func(t *testing.T, cluster *redlocktest.Cluster) {
		node := cluster.Node(0)
		a, b := link(cluster.Client("a").Link(0)).track(t), link(cluster.Client("b").Link(0)).track(t)
		node.Silence()
		reply := a.later("SET", "k", "lost")
		time.Sleep(50 * ms)
		node.HealLosing()
		require.Contains(t, <-reply, "connection reset")
		synctest.Wait()
		require.Empty(t, node.Keys(), "no stream has a hole in it: what was held is gone and so is the connection")
		require.Equal(t, []string{"everything"}, a.pushed(t))
		b.want(t, "PONG", "PING")
		require.Equal(t, 1, cluster.Client("b").Link(0).Dials(), "who lost nothing stays connected")
		require.Equal(t, 2, cluster.Client("a").Link(0).Dials())
	})
}

func TestSilenceHoldsDials(t *testing.T) {
	inBubble(t, 1, func(t *testing.T, cluster *redlocktest.Cluster) {
		l := cluster.Client("a").Link(0)
		l.SilenceReplies()
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		_, err := l.Dial(ctx)
		require.ErrorIs(t, err, context.DeadlineExceeded)
		require.Zero(t, l.Dials())
		done := make(chan error)
		go func() {
			conn, err := l.Dial(t.Context())
			if err == nil {
				err = conn.Close()
			}
			done <- err
		}()
		time.Sleep(time.Minute)
		require.Empty(t, done)
		l.Heal()
		require.NoError(t, <-done)
		require.Equal(t, 1, l.Dials())

		o := l.Option()
		o.Dialer.Timeout = 3 * time.Second
		l.Silence()
		require.Equal(t, 3*time.Second, took(func() {
			client, err := rueidis.NewClient(o)
			require.Error(t, err)
			client.Close()
		}), "rueidis gives up by its own bound")
	})
}

func TestRefuseAndCut(t *testing.T) {
	inBubble(t, 1, func(t *testing.T, cluster *redlocktest.Cluster) {
		node, l := cluster.Node(0), cluster.Client("a").Link(0)
		a, b := link(l).track(t), link(cluster.Client("b").Link(0)).track(t)
		node.Refuse()
		a.want(t, "PONG", "PING")
		_, err := l.Dial(t.Context())
		require.ErrorIs(t, err, syscall.ECONNREFUSED)
		var op *net.OpError
		require.ErrorAs(t, err, &op)
		node.Accept()

		l.Cut()
		synctest.Wait() // rueidis takes note
		require.Equal(t, []string{"everything"}, a.pushed(t))
		require.Equal(t, 2, l.Dials())
		b.want(t, "PONG", "PING")
		require.Equal(t, 1, cluster.Client("b").Link(0).Dials(), "one client's cut")

		l.Delay(5*ms, 5*ms)
		reply := a.later("SET", "k", "under way")
		synctest.Wait()
		l.Cut()
		require.Contains(t, <-reply, "connection reset")
		time.Sleep(time.Second)
		require.Empty(t, node.Keys(), "what was under way is lost")

		l.Delay(0, 0)
		a.want(t, "PONG", "PING")
		node.Cut()
		require.Zero(t, l.Connections()+cluster.Client("b").Link(0).Connections(), "everybody's cut")

		synctest.Wait()
		a.want(t, "PONG", "PING")
		node.Stop()
		synctest.Wait()
		require.Zero(t, l.Connections())
		require.Contains(t, a.do("PING"), "connection refused")
		node.Accept()
		require.Contains(t, a.do("PING"), "connection refused", "it is off")
		node.Refuse()
		node.Start()
		require.Contains(t, a.do("PING"), "connection refused", "it is on, and refuses")
		node.Accept()
		a.want(t, "PONG", "PING")
	})
}

func TestFreeze(t *testing.T) {
	inBubble(t, 1, func(t *testing.T, cluster *redlocktest.Cluster) {
		node := cluster.Node(0)
		a, b := link(cluster.Client("a").Link(0)).track(t), link(cluster.Client("b").Link(0)).track(t)
		node.Set("short", "v", 10*ms)
		a.want(t, "v", "GET", "short")
		node.Freeze()
		require.Equal(t, deadlineExceeded, a.within(50*ms, "SET", "k", "a"))
		b.later("APPEND", "k", "b")
		synctest.Wait()
		conn, err := cluster.Client("c").Link(0).Dial(t.Context())
		require.NoError(t, err, "the kernel still accepts")
		_, err = conn.Write([]byte("*3\r\n$6\r\nAPPEND\r\n$1\r\nk\r\n$1\r\nc\r\n"))
		require.NoError(t, err)
		require.NoError(t, conn.Close())
		time.Sleep(time.Second)
		value, ok := node.Get("k")
		require.False(t, ok, value)
		a.mu.Lock()
		require.Empty(t, a.pushes, "nothing expires")
		a.mu.Unlock()
		node.Thaw()
		synctest.Wait()
		value, _ = node.Get("k")
		require.Equal(t, "abc", value, "in the order of arrival, also for who has hung up")
		time.Sleep(100 * ms)
		require.Equal(t, []string{"short"}, a.pushed(t))
	})
}

func TestFreezeThenCrash(t *testing.T) {
	inBubble(t, 1, func(t *testing.T, cluster *redlocktest.Cluster) {
		node := cluster.Node(0)
		a := link(cluster.Client("a").Link(0)).track(t)
		node.Freeze()
		reply := a.later("SET", "k", "a")
		synctest.Wait()
		node.Restart()
		require.Contains(t, <-reply, "connection reset")
		a.want(t, "(nil)", "GET", "k")
	})
}

func TestRestartAndCrash(t *testing.T) {
	inBubble(t, 2, func(t *testing.T, cluster *redlocktest.Cluster) {
		node := cluster.Node(0)
		a := link(cluster.Client("a").Link(0)).track(t)
		ids := map[string]bool{cluster.Node(1).RunID(): true, node.RunID(): true}
		a.want(t, "OK", "SET", "k", "v", "PX", "5000")
		require.Equal(t, "1", a.eval("return 1", nil))
		time.Sleep(time.Second)

		node.Restart()
		synctest.Wait()
		require.Equal(t, []string{"everything"}, a.pushed(t))
		a.want(t, "v", "GET", "k")
		a.want(t, "4000", "PTTL", "k")
		require.Contains(t, a.do("EVALSHA", "e0e1f9fabfc9d4800c877a703b823ac0578ff8db", "0"), "NOSCRIPT")
		require.Contains(t, a.do("INFO", "server"), "run_id:"+node.RunID()+"\r\n")
		require.Contains(t, a.do("INFO", "server"), "uptime_in_seconds:0\r\n")
		ids[node.RunID()] = true

		node.CrashEmpty()
		synctest.Wait()
		require.Equal(t, []string{"everything"}, a.pushed(t))
		a.want(t, "(nil)", "GET", "k")
		ids[node.RunID()] = true
		require.Len(t, ids, 4, "every process has its own run id")

		cluster.Client("a").Link(0).Delay(0, 6*ms)
		reply := a.later("SET", "k", "w")
		time.Sleep(ms)
		node.CrashEmpty()
		require.Equal(t, "OK", <-reply, "an answer on its way arrives before the reset")
		require.Empty(t, node.Keys())
	})
}

func TestClocks(t *testing.T) {
	inBubble(t, 1, func(t *testing.T, cluster *redlocktest.Cluster) {
		node := cluster.Node(0)
		a := link(cluster.Client("a").Link(0)).track(t)
		off := func() time.Duration { return time.Until(node.Now()) }
		require.Zero(t, off())
		node.SkewClock(-time.Hour)
		node.SkewClock(time.Minute)
		require.Equal(t, time.Minute, off(), "from the true time")
		node.StepClock(-time.Second)
		require.Equal(t, 59*time.Second, off(), "from what it shows")
		node.SkewClock(0)

		node.Set("k", "v", time.Minute)
		a.want(t, "v", "GET", "k")
		node.StepClock(-time.Hour)
		left, ok := node.PTTL("k")
		require.True(t, ok)
		require.Equal(t, time.Hour+time.Minute, left, "back: the lease grows")
		node.StepClock(2*time.Hour + time.Minute)
		require.LessOrEqual(t, took(func() { require.Equal(t, []string{"k"}, a.waitPush(t, time.Second)) }), 100*ms, "forward: it is over, and the cycle says so")
		node.SkewClock(0)

		node.SetClockRate(1.25)
		node.Set("k", "v", time.Second)
		time.Sleep(800 * ms)
		_, ok = node.Get("k")
		require.True(t, ok, "a key stands in the very ms of its end")
		time.Sleep(ms)
		_, ok = node.Get("k")
		require.False(t, ok, "a fast clock ends a lease of 1s after 800ms")
		require.Equal(t, time.Duration(801*0.25*float64(ms)), off())

		node.Set("k", "v", time.Second)
		a.want(t, "v", "GET", "k")
		waited := took(func() { require.Equal(t, []string{"k"}, a.waitPush(t, 2*time.Second)) })
		require.Greater(t, waited, 800*ms)
		require.LessOrEqual(t, waited, 902*ms, "the cycle goes by the fast clock, too")

		node.SetClockRate(1)
		node.SkewClock(0)
		node.StopClock()
		node.Set("k", "v", time.Second)
		a.want(t, "v", "GET", "k")
		time.Sleep(time.Hour)
		a.want(t, "v", "GET", "k")
		require.Equal(t, -time.Hour, off())
		node.SetClockRate(1)
		time.Sleep(1101 * ms)
		require.Equal(t, []string{"k"}, a.pushed(t))
	})
}

func TestExpiryIsPushedLate(t *testing.T) {
	inBubble(t, 1, func(t *testing.T, cluster *redlocktest.Cluster) {
		node := cluster.Node(0)
		a := link(cluster.Client("a").Link(0)).track(t)
		latest := time.Duration(0)
		for range 50 {
			node.Set("k", "v", 37*ms)
			a.want(t, "v", "GET", "k")
			waited := took(func() { require.Equal(t, []string{"k"}, a.waitPush(t, time.Second)) })
			require.Greater(t, waited, 37*ms)
			latest = max(latest, waited)
		}
		require.LessOrEqual(t, latest, 138*ms)
		require.Greater(t, latest, 100*ms, "up to a whole cycle")

		node.SetActiveExpiry(false)
		node.Set("k", "v", 37*ms)
		a.want(t, "v", "GET", "k")
		require.Nil(t, a.waitPush(t, time.Minute))
		require.Equal(t, 1, node.Tracked("k"))
		_, ok := node.Get("k")
		require.False(t, ok)
		require.Equal(t, []string{"k"}, a.pushed(t), "until somebody touches it")
		node.Set("k", "v", 37*ms)
		a.want(t, "v", "GET", "k")
		node.SetActiveExpiry(true)
		require.Equal(t, []string{"k"}, a.waitPush(t, time.Second))
	})
}

func TestErrors(t *testing.T) {
	inBubble(t, 1, func(t *testing.T, cluster *redlocktest.Cluster) {
		node, s := cluster.Node(0), link(cluster.Client("a").Link(0))
		a := s.track(t)
		node.RefuseTracking()
		o := s.option
		o.ClientTrackingOptions = []string{"OPTOUT", "NOLOOP"}
		client, err := rueidis.NewClient(o)
		require.ErrorContains(t, err, "NOPERM")
		client.Close()
		o.DisableCache = true
		client, err = rueidis.NewClient(o)
		require.NoError(t, err)
		client.Close()
		a.want(t, "PONG", "PING")
		node.AllowTracking()
		s.track(t)

		node.Fail("evalsha", "BUSY Redis is busy running a script. You can only call SCRIPT KILL or SHUTDOWN NOSAVE.")
		require.Contains(t, a.do("EVALSHA", "x", "0"), "(error) BUSY ")
		a.want(t, "PONG", "PING")
		node.Recover("EVALSHA")
		require.Contains(t, a.do("EVALSHA", "x", "0"), "(error) NOSCRIPT ")
		node.Fail("*", "LOADING Redis is loading the dataset in memory")
		a.want(t, "(error) LOADING Redis is loading the dataset in memory", "GET", "k")
		node.Recover("*")
		node.Fail("SET", "WRONGTYPE no")
		require.Contains(t, a.eval("return redis.call('SET', 'k', 1)", nil), "(error) WRONGTYPE no script: ")
		require.Empty(t, node.Keys(), "a failing command is not executed")
		node.Recover("SET")

		node.FillMemory()
		require.Contains(t, a.do("SET", "k", "v"), "(error) OOM ")
		node.FreeMemory()
		a.want(t, "OK", "SET", "k", "v")

		node.RequirePassword("secret")
		a.want(t, "(error) NOAUTH Authentication required.", "GET", "k")
		a.want(t, "(error) WRONGPASS invalid username-password pair or user is disabled.", "AUTH", "wrong")
		a.want(t, "OK", "AUTH", "secret")
		a.want(t, "v", "GET", "k")
		o.Password = "secret"
		client, err = rueidis.NewClient(o)
		require.NoError(t, err)
		client.Close()
		o.Password = "other"
		client, err = rueidis.NewClient(o)
		require.ErrorContains(t, err, "WRONGPASS")
		client.Close()
		node.RequirePassword("")

		node.SetInfo("role", "slave")
		node.SetInfo("redis_version", "6.0.16")
		node.SetInfo("maxmemory_policy", "allkeys-lru")
		node.SetInfo("redis_mode", "cluster")
		info := a.do("INFO")
		for _, line := range []string{"role:slave", "redis_version:6.0.16", "maxmemory_policy:allkeys-lru", "redis_mode:cluster"} {
			require.Contains(t, info, line+"\r\n")
		}
		require.Contains(t, a.do("ROLE"), "[slave ")
		a.want(t, "{maxmemory-policy:allkeys-lru}", "CONFIG", "GET", "maxmemory-policy")
	})
}

func TestFromOutside(t *testing.T) {
	inBubble(t, 1, func(t *testing.T, cluster *redlocktest.Cluster) {
		node := cluster.Node(0)
		a, b := link(cluster.Client("a").Link(0)).track(t), link(cluster.Client("b").Link(0)).track(t)
		a.want(t, "(nil)", "GET", "k")
		b.want(t, "(nil)", "GET", "k")
		require.Equal(t, 2, node.Tracked("k"))
		node.Set("k", "v", time.Minute)
		require.Equal(t, []string{"k"}, a.pushed(t))
		value, ok := node.Get("k")
		require.True(t, ok)
		require.Equal(t, "v", value)
		left, ok := node.PTTL("k")
		require.True(t, ok)
		require.Equal(t, time.Minute, left)
		a.want(t, "v", "GET", "k")
		require.True(t, node.Del("k"))
		require.False(t, node.Del("k"))
		require.Equal(t, []string{"k"}, a.pushed(t))
		_, ok = node.PTTL("k")
		require.False(t, ok)

		a.want(t, "(nil)", "GET", "k")
		node.Untrack("k")
		require.Equal(t, []string{"k"}, a.pushed(t), "a false push")
		node.Set("k", "v", 0)
		require.Empty(t, a.pushed(t), "and silence after it")

		require.Equal(t, "1", a.eval("return 1", nil))
		node.FlushScripts()
		require.Contains(t, a.do("EVALSHA", "e0e1f9fabfc9d4800c877a703b823ac0578ff8db", "0"), "NOSCRIPT")

		require.Equal(t, map[string]int{"GET": 3, "EVAL": 1, "EVALSHA": 1}, commandsOf(cluster.Client("a").Link(0).Commands()))
		require.Equal(t, map[string]int{"GET": 4, "EVAL": 1, "EVALSHA": 1}, commandsOf(node.Commands()))
		require.Equal(t, 1, node.Commands()["CLIENT TRACKING"]-1)
		require.Equal(t, []any{"a", nil}, node.Do("EVAL", "return {'a', false}", "0"))
		require.EqualError(t, node.Do("INCR", "k").(error), "ERR value is not an integer or out of range")
		require.Equal(t, "node-0:6379", node.Addr())
	})
}

func TestConnection(t *testing.T) {
	inBubble(t, 1, func(t *testing.T, cluster *redlocktest.Cluster) {
		l := cluster.Client("a").Link(0)
		dial := func() net.Conn {
			conn, err := l.Dial(t.Context())
			require.NoError(t, err)
			return conn
		}
		conn := dial()
		for _, b := range []byte("*2\r\n$4\r\nECHO\r\n$3\r\nabc\r\n") {
			_, err := conn.Write([]byte{b})
			require.NoError(t, err)
		}
		got := make([]byte, 4)
		_, err := io.ReadFull(conn, got)
		require.NoError(t, err)
		require.Equal(t, "$3\r\n", string(got))
		_, err = io.ReadFull(conn, got)
		require.NoError(t, err)
		require.Equal(t, "abc\r", string(got))
		_, err = conn.Read(got)
		require.NoError(t, err)

		require.NoError(t, conn.SetReadDeadline(time.Now().Add(time.Second)))
		require.Equal(t, time.Second, took(func() {
			_, err = conn.Read(got)
			var timeout net.Error
			require.ErrorAs(t, err, &timeout)
			require.True(t, timeout.Timeout())
		}))
		require.NoError(t, conn.SetDeadline(time.Time{}))
		read := make(chan error)
		go func() {
			_, err := conn.Read(make([]byte, 1))
			read <- err
		}()
		synctest.Wait()
		require.NoError(t, conn.SetDeadline(time.Now()))
		require.Error(t, <-read, "a deadline set meanwhile ends a read that waits")
		_, err = conn.Write([]byte("x"))
		require.Error(t, err)
		require.NoError(t, conn.SetDeadline(time.Time{}))

		go func() {
			_, err := conn.Read(make([]byte, 1))
			read <- err
		}()
		synctest.Wait()
		require.NoError(t, conn.Close())
		require.ErrorIs(t, <-read, net.ErrClosed)
		require.ErrorIs(t, conn.Close(), net.ErrClosed)

		conn = dial()
		_, err = conn.Write([]byte("GET / HTTP/1.1\r\n"))
		require.NoError(t, err)
		_, err = conn.Read(got)
		require.ErrorIs(t, err, io.EOF, "no RESP: the server hangs up")

		conn = dial()
		_, err = conn.Write([]byte("*1\r\n$4\r\nQUIT\r\n"))
		require.NoError(t, err)
		all, err := io.ReadAll(conn)
		require.Equal(t, "+OK\r\n", string(all))
		require.ErrorIs(t, err, syscall.ECONNRESET)
		require.NoError(t, conn.Close())

		draws := 0
		l.DelayFunc(func() time.Duration { draws++; return 0 }, nil)
		conn = dial()
		require.Equal(t, 1, draws, "the dial")
		require.NoError(t, conn.Close())
		require.Equal(t, 1, draws, "the end of a connection is no message")

		for linger, want := range map[int][]string{0: {}, -1: {"k"}} {
			conn = dial()
			l.SilenceRequests()
			_, err = conn.Write([]byte("*3\r\n$3\r\nSET\r\n$1\r\nk\r\n$1\r\nv\r\n"))
			require.NoError(t, err)
			require.NoError(t, conn.(interface{ SetLinger(int) error }).SetLinger(linger))
			require.NoError(t, conn.Close())
			l.Heal()
			require.Equal(t, want, cluster.Node(0).Keys(), "SetLinger(%d)", linger)
			cluster.Node(0).Del("k")
		}
		require.Zero(t, l.Connections())
	})
}

func TestClose(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		cluster := redlocktest.Start(1)
		l := cluster.Client("a").Link(0)
		a := link(l).track(t)
		l.Delay(time.Hour, 0)
		under := a.later("PING")
		synctest.Wait()
		dialed := make(chan error)
		go func() {
			_, err := l.Dial(context.Background())
			dialed <- err
		}()
		synctest.Wait()
		cluster.Node(0).Set("k", "v", 0)
		cluster.Close()
		cluster.Close()
		value, _ := cluster.Node(0).Get("k")
		require.Equal(t, "v", value, "one may still look")
		require.Error(t, cluster.Node(0).Do("EVAL", "return 1", "0").(error), "the interpreter is another cluster's by now")
		require.ErrorContains(t, <-dialed, "closed")
		require.Contains(t, <-under, "(failed)")
		_, err := l.Dial(t.Context())
		require.ErrorContains(t, err, "closed")
	})
}

func TestOutsideBubble(t *testing.T) {
	cluster := redlocktest.Start(3)
	s := link(cluster.Client("a").Link(2))
	a, b := s.track(t), link(cluster.Client("b").Link(2)).track(t)
	a.want(t, "(nil)", "GET", "k")
	cluster.Node(2).Delay(2*ms, 2*ms)
	require.GreaterOrEqual(t, took(func() { b.want(t, "OK", "SET", "k", "v", "PX", "1000") }), 4*ms)
	require.Equal(t, []string{"k"}, a.pushed(t))
	a.close()
	b.close()
	cluster.Close()
}

func TestOption(t *testing.T) {
	cluster := redlocktest.NewCluster(t, 5)
	option := cluster.Option()
	require.Len(t, option.Nodes, 5)
	require.Negative(t, option.RestartQuarantine)
	require.Same(t, cluster.Client("client"), cluster.Client("client"))
	addresses := map[string]bool{}
	for _, node := range option.Nodes {
		addresses[strings.Join(node.InitAddress, ",")] = true
	}
	require.Len(t, addresses, 5)
	require.Equal(t, 5, cluster.Len())
	require.Len(t, cluster.Nodes(), 5)
	require.Len(t, cluster.Client("x").Links(), 5)
	require.Equal(t, "x", cluster.Client("x").Name())
}

// A node is gone for good, another takes its place: one call of a program that reaches both sets of members.
func TestAddedNodeTakesTheOthersPlace(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		cluster := redlocktest.NewCluster(t, 3)
		old, err := redlock.NewLocker(cluster.Client("old").Option())
		require.NoError(t, err)
		defer old.Close()
		guard, err := old.Acquire(t.Context(), "held")
		require.NoError(t, err)
		cluster.Node(2).Stop()
		added := cluster.Add()
		require.Equal(t, 4, cluster.Len())
		require.Equal(t, "node-3:6379", added.Addr())
		require.Same(t, added, cluster.Node(3))

		option := cluster.Client("new").Option()
		require.Len(t, option.Nodes, 4)
		option.Nodes = slices.Delete(option.Nodes, 2, 3)
		require.NoError(t, old.SetNodes(t.Context(), redlock.NodeSet{
			Nodes: []rueidis.ClientOption{cluster.Client("old").Link(0).Option(), cluster.Client("old").Link(1).Option(), cluster.Client("old").Link(3).Option()},
			Off:   []string{cluster.Node(2).Addr()},
		}))
		locker, err := redlock.NewLocker(option)
		require.NoError(t, err)
		defer locker.Close()
		require.Equal(t, []string{"node-0:6379", "node-1:6379", "node-3:6379"}, locker.Status().Members)
		require.NoError(t, guard.Err())
		require.NoError(t, guard.Release(t.Context()))
		time.Sleep(time.Minute) // it joins: until a lease has passed the two others have to be a quorum
		cluster.Node(0).Stop()
		guard, err = locker.Acquire(t.Context(), "held")
		require.NoError(t, err, "by one of the old and the new one")
		require.NoError(t, guard.Release(t.Context()))
	})
}
