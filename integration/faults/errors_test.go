package faults

import (
	"fmt"
	"net"
	"os"
	"strconv"
	"strings"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/redlock-go/redlock"
	"github.com/redlock-go/redlock/internal/redisproc"
	"github.com/redlock-go/redlock/internal/redisproc/redistest"
)

// Row 28 and its kin: a node that answers with an error, or for a while not at all. Never a grant; on a minority
// nothing is lost; on a majority calls fail and say what each node answered, and all is well when it is over.
func TestRow28NodeErrors(t *testing.T) {
	type fault struct {
		name    string
		options redisproc.Options
		strike  func(*rig, *redisproc.Node)
		heal    func(*rig, *redisproc.Node)
		want    []string // one of them is what the error says of the node
		keeps   bool     // a guard keeps its lock under it on a majority too: extensions are let through
	}
	away := []string{"not connected", "no answer in time", "when it was decided"}
	faults := []fault{
		{
			name:    "MISCONF",
			options: redisproc.Options{Args: []string{"--save", "3600", "1"}},
			strike:  (*rig).failToSave,
			heal: func(r *rig, n *redisproc.Node) {
				r.do(n, "CONFIG", "SET", "stop-writes-on-bgsave-error", "no")
			},
			want: []string{"MISCONF"},
		},
		{
			name:    "READONLY",
			options: redisproc.Options{TCP: true},
			strike:  func(r *rig, n *redisproc.Node) { r.do(n, "REPLICAOF", "127.0.0.1", "1") },
			heal:    func(r *rig, n *redisproc.Node) { r.do(n, "REPLICAOF", "NO", "ONE") },
			want:    []string{"READONLY", "MASTERDOWN", "it is a replica"},
		},
		{
			name: "BUSY",
			strike: func(r *rig, n *redisproc.Node) {
				r.do(n, "CONFIG", "SET", "lua-time-limit", "20")
				go n.Do("EVAL", "while true do end", "0")
				r.eventually("busy", func() bool { _, err := n.Do("PING"); return err != nil && strings.HasPrefix(err.Error(), "BUSY") })
			},
			heal: func(r *rig, n *redisproc.Node) { r.do(n, "SCRIPT", "KILL") },
			want: append([]string{"BUSY"}, away...),
		},
		{
			name:   "NOPERM",
			strike: func(r *rig, n *redisproc.Node) { r.do(n, "ACL", "SETUSER", "default", "-evalsha", "-eval") },
			heal:   func(r *rig, n *redisproc.Node) { r.do(n, "ACL", "SETUSER", "default", "+@all") },
			want:   []string{"NOPERM"},
		},
		{
			name:   "NOPERM within scripts",
			strike: func(r *rig, n *redisproc.Node) { r.do(n, "ACL", "SETUSER", "default", "-set", "-pexpire") },
			heal:   func(r *rig, n *redisproc.Node) { r.do(n, "ACL", "SETUSER", "default", "+@all") },
			want:   []string{"NOPERM", "ACL failure in script", "can't run this command"},
		},
		{
			name:   "NOREPLICAS",
			strike: func(r *rig, n *redisproc.Node) { r.do(n, "CONFIG", "SET", "min-replicas-to-write", "1") },
			heal:   func(r *rig, n *redisproc.Node) { r.do(n, "CONFIG", "SET", "min-replicas-to-write", "0") },
			want:   []string{"NOREPLICAS"},
		},
		{
			name:   "CLIENT PAUSE",
			strike: func(r *rig, n *redisproc.Node) { r.do(n, "CLIENT", "PAUSE", "9000", "ALL") }, // what comes before the third is struck takes a busy machine some seconds
			heal:   func(r *rig, n *redisproc.Node) { r.do(n, "PING") },                           // waits; CLIENT UNPAUSE would too
			want:   away,
		},
		{
			name:   "CLIENT PAUSE WRITE",
			strike: func(r *rig, n *redisproc.Node) { r.do(n, "CLIENT", "PAUSE", "60000", "WRITE") },
			heal:   func(r *rig, n *redisproc.Node) { r.do(n, "CLIENT", "UNPAUSE") },
			want:   away,
		},
		{
			name:    "DEBUG SLEEP",
			options: redisproc.Options{Args: []string{"--enable-debug-command", "yes"}},
			strike: func(r *rig, n *redisproc.Node) {
				conn, err := net.Dial(n.Network(), n.Addr())
				require.NoError(r.t, err)
				r.t.Cleanup(func() { conn.Close() })
				// The server knows the connection, so that it reads from it before what comes later by others.
				_, err = conn.Write([]byte("PING\r\n"))
				require.NoError(r.t, err)
				_, err = conn.Read(make([]byte, len("+PONG\r\n")))
				require.NoError(r.t, err)
				_, err = conn.Write([]byte("DEBUG SLEEP 9\r\n"))
				require.NoError(r.t, err)
			},
			heal: func(r *rig, n *redisproc.Node) { r.do(n, "PING") },
			want: away,
		},
		{
			name: "WRONGTYPE",
			strike: func(r *rig, n *redisproc.Node) {
				r.do(n, "DEL", lockKey("failing"))
				r.do(n, "LPUSH", lockKey("failing"), "by hand")
			},
			heal:  func(r *rig, n *redisproc.Node) { r.do(n, "DEL", lockKey("failing")) },
			want:  []string{"WRONGTYPE"},
			keeps: true, // it is another name's key
		},
	}
	for _, f := range faults {
		t.Run(f.name, func(t *testing.T) {
			if f.name != "BUSY" { // which keeps three processors busy
				t.Parallel()
			}
			r := newRig(t, 5, f.options)
			a, b := r.client("a"), r.client("b")
			g := a.mustTry("held")
			for _, n := range r.nodes[:2] {
				f.strike(r, n)
			}
			r.release(b.mustTry("failing"))
			_, err := b.try("held")
			require.ErrorIs(t, err, redlock.ErrNotLocked)
			r.requireHeldFor(g, lease+lease/4)

			f.strike(r, r.nodes[2])
			r.eventually("each node says what it has", func() bool {
				var g *redlock.Guard
				g, err = b.try("failing")
				require.Nil(t, g)
				require.ErrorIs(t, err, redlock.ErrNoQuorum)
				named := 0
				for _, want := range f.want {
					named += reasonsWith(err, want)
				}
				return named >= 3
			})
			t.Log(err)
			if f.keeps {
				r.requireHeldFor(g, lease)
			}
			for _, n := range r.nodes[:3] {
				f.heal(r, n)
			}
			r.settle("held", "failing")
		})
	}
}

// failToSave has a node's background save fail, so that it refuses writes.
func (r *rig) failToSave(n *redisproc.Node) {
	r.t.Helper()
	r.do(n, "SET", "unsaved", "")
	r.do(n, "CONFIG", "SET", "rdb-key-save-delay", "10000000")
	r.do(n, "BGSAVE")
	children, err := os.ReadFile(fmt.Sprintf("/proc/%d/task/%d/children", n.PID(), n.PID()))
	require.NoError(r.t, err)
	for _, child := range strings.Fields(string(children)) {
		pid, err := strconv.Atoi(child)
		require.NoError(r.t, err)
		require.NoError(r.t, syscall.Kill(pid, syscall.SIGKILL))
	}
	r.eventually("the save has failed", func() bool {
		return infoField(r.t, n, "persistence", "rdb_last_bgsave_status") == "err"
	})
}

// Row 28, LOADING: a node that reads a large file after its restart answers nothing else for a while.
func TestRow28Loading(t *testing.T) {
	t.Parallel()
	// The files are of 5 MB: before 7.0 a server that loads answers every 2 MB, and cannot be told otherwise.
	r := newRig(t, 5, redisproc.Options{Args: []string{"--rdbcompression", "no", "--key-load-delay", "150000", "--loading-process-events-interval-bytes", "1024"}})
	a, b := r.client("a"), r.client("b")
	g := a.mustTry("held")
	for _, n := range r.nodes[:2] {
		for i := range 20 {
			r.do(n, "SET", "filler"+strconv.Itoa(i), strings.Repeat("x", 250_000))
		}
		dump, err := n.SaveDump()
		require.NoError(t, err)
		restarted := make(chan error, 1)
		go func() { restarted <- n.RestartFrom(dump) }()
		t.Cleanup(func() { require.NoError(t, <-restarted) })
	}
	loading := 0
	for end := time.Now().Add(lease); time.Now().Before(end); time.Sleep(lease / 20) {
		if _, err := r.nodes[0].Do("PING"); err != nil && strings.HasPrefix(err.Error(), "LOADING") {
			loading++
		}
		r.release(b.mustTry("other"))
		require.NoError(t, g.Err())
	}
	require.Positive(t, loading)
	r.eventually("loaded", func() bool { _, err := r.nodes[0].Do("PING"); return err == nil })
	r.eventually("loaded", func() bool { _, err := r.nodes[1].Do("PING"); return err == nil })
	r.settle("held", "other")
}

// Row 31: scripts are forgotten all the time. Nobody notices, and acquire and release keep their order.
func TestRow31ScriptFlush(t *testing.T) {
	t.Parallel()
	r := newRig(t, 5, redisproc.Options{})
	a, b := r.client("a"), r.client("b")
	// Flushed in bursts, the next when something has been had again: on a busy machine nothing would ever be loaded and run
	// between two flushes.
	var had, flushed atomic.Int64
	var flushes []func()
	for _, n := range r.nodes {
		c := redistest.Client(t, n)
		seen := int64(-1)
		flushes = append(flushes, r.background(func() {
			if had.Load() == seen {
				time.Sleep(tick)
				return
			}
			seen = had.Load()
			for end := time.Now().Add(lease / 50); time.Now().Before(end); time.Sleep(time.Millisecond) {
				c.Do(t.Context(), c.B().ScriptFlush().Build())
				flushed.Add(1)
			}
		}))
	}
	g := a.mustTry("held")
	for end := time.Now().Add(lease + lease/2); time.Now().Before(end); {
		for _, c := range []*client{a, b} {
			r.release(c.wait("busy", soon))
			had.Add(1)
		}
	}
	t.Logf("had %d times, with %d flushes", had.Load(), flushed.Load())
	require.NoError(t, g.Err())
	for _, stop := range flushes {
		stop()
	}
	r.settle("held", "busy")
}
