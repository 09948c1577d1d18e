package main

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/redlock-go/redlock"
	"github.com/redlock-go/redlock/internal/redisproc"
	"github.com/redlock-go/redlock/internal/redisproc/redistest"
)

func TestStatus(t *testing.T) {
	t.Parallel()
	nodes := startNodesFor(t, 3, longLease)
	guard := holdFor(t, nodes, "cron:purge", longLease)
	holdFor(t, nodes, "a}{b", longLease)
	holdFor(t, nodes, "bell\a", longLease)
	waiting, cancel := context.WithCancel(context.Background())
	defer cancel()
	waiter := newLockerFor(t, nodes, longLease)
	waited := make(chan struct{})
	go func() {
		defer close(waited)
		waiter.Acquire(waiting, "cron:purge")
	}()
	eventually(t, func() bool { return waitersFor(t, nodes, "cron:purge") == 1 }, "it stands in line")

	for _, name := range []string{"cron:purge", "a}{b", "bell\a"} {
		awaitAllVotes(t, nodes, name)
	}

	r := inProcess(t, nodes, "status")
	require.Equal(t, exitOK, r.code, r)
	require.Empty(t, r.complaints)
	require.Regexp(t, `^NAME +HOLDER +LABEL +TOKEN +LEFT +VOTES +WAITING
a}{b +\w{26} +\S+\[\d+\]@\S+ +\d{16} +[\d.]+m?s +3/3 +0
"bell\\a" +\w{26} +\S+\[\d+\]@\S+ +\d{16} +[\d.]+m?s +3/3 +0
cron:purge +\w{26} +\S+\[\d+\]@\S+ +\d{16} +[\d.]+m?s +3/3 +1
$`, r.out)

	lock := statusOf(t, nodes, "cron:purge")
	require.True(t, lock.Held)
	require.Equal(t, 3, lock.Votes)
	require.Equal(t, 1, lock.Waiters)
	require.Equal(t, guard.FencingToken(), lock.FencingToken)
	require.Positive(t, lock.LeftMillis)
	require.LessOrEqual(t, lock.LeftMillis, longLease.Milliseconds())

	r = inProcess(t, nodes, "status", "cron:purge")
	require.Contains(t, r.out, "cron:purge is held by "+lock.Holder+"\n")
	require.Contains(t, r.out, "votes          3 of 3, quorum is 2\n  waiting        1\n")
	r = inProcess(t, nodes, "status", "nobody's")
	require.Contains(t, r.out, "nobody's is free\n")

	// A minority is shown and does not matter; a majority does.
	_, err := nodes[1].Do("PERSIST", "redlock:{cron:purge}")
	require.NoError(t, err)
	require.NoError(t, nodes[0].Kill())
	r = inProcess(t, nodes, "status")
	require.Equal(t, exitOK, r.code, r)
	require.Contains(t, r.out, nodes[0].Addr()+": not connected")
	require.Contains(t, r.out, "2/3")
	require.NoError(t, nodes[1].Kill())
	r = inProcess(t, nodes, "status")
	require.Equal(t, exitNoQuorum, r.code, r)
	require.Contains(t, r.complaints, "1 of 3 nodes answered, quorum is 2")
	require.Contains(t, r.out, "1/3")
	r = inProcess(t, nodes, "status", "cron:purge")
	require.Contains(t, r.out, "has too few votes")
	cancel()
	<-waited
}

// awaitAllVotes waits until a lock that is held has all votes: a call returns at a quorum.
func awaitAllVotes(t *testing.T, nodes []*redisproc.Node, name string) {
	t.Helper()
	eventually(t, func() bool { return statusOf(t, nodes, name).Votes == len(nodes) }, "all nodes have voted")
}

// What status reads of a lock's value is what the library does, also where the label is no word, and of a lock that is kept.
func TestStatusSaysWhoItIs(t *testing.T) {
	t.Parallel()
	nodes := startNodes(t, 3)
	locker := newLocker(t, nodes)
	const label = "50 %; = # ! ~ @\n"
	held, err := locker.Acquire(context.Background(), "held", redlock.Label(label), redlock.AtLeast(time.Hour))
	require.NoError(t, err)
	kept, err := locker.Acquire(context.Background(), "kept", redlock.Label(label), redlock.AtLeast(time.Hour))
	require.NoError(t, err)
	require.NoError(t, kept.Release(context.Background()))
	for _, name := range []string{"held", "kept"} {
		line, err := locker.Inspect(context.Background(), name)
		require.NoError(t, err)
		lock := statusOf(t, nodes, name)
		require.Equal(t, label, lock.Label)
		require.Equal(t, line.Label, lock.Label)
		require.Equal(t, line.Holder, lock.Holder)
		require.Equal(t, line.Kept, lock.Kept)
		require.Equal(t, name == "kept", lock.Kept)
		require.Equal(t, name == "held", lock.Held)
		require.Contains(t, inProcess(t, nodes, "status", name).out, `"50 %; = # ! ~ @\n"`)
	}
	require.Equal(t, held.ID(), statusOf(t, nodes, "held").Holder)
	require.Contains(t, inProcess(t, nodes, "status").out, "nobody, kept")
}

// A semaphore is shown with all others, and by its name: each slot, who waits, and a slot that a smaller k has left.
func TestStatusOfSemaphores(t *testing.T) {
	t.Parallel()
	nodes := startNodes(t, 3)
	ctx := context.Background()
	locker := newLocker(t, nodes)
	licences := locker.Semaphore("licences", 2)
	var guards []*redlock.Guard
	for range 2 {
		g, err := licences.Acquire(ctx, redlock.Label("compiler"))
		require.NoError(t, err)
		guards = append(guards, g)
	}
	slices.SortFunc(guards, func(a, b *redlock.Guard) int { return a.Slot() - b.Slot() })
	waiting, cancel := context.WithCancel(ctx)
	defer cancel()
	waited := make(chan struct{})
	go func() {
		defer close(waited)
		newLocker(t, nodes).Semaphore("licences", 2).Acquire(waiting)
	}()
	eventually(t, func() bool { return semaphoreOf(t, nodes, "licences").Waiters == 1 }, "it stands in line")

	hasAll := func(l lockStatus) bool { return l.Votes == 3 }
	eventually(t, func() bool {
		slots := semaphoreOf(t, nodes, "licences").Slots
		return hasAll(slots[0]) && hasAll(slots[1])
	}, "all nodes have voted")

	s := semaphoreOf(t, nodes, "licences")
	require.Equal(t, 2, s.K)
	require.Equal(t, []int{2, 2, 2}, s.KByNode)
	require.Equal(t, 2, s.Held)
	require.Len(t, s.Slots, 2)
	for i, slot := range s.Slots {
		require.Equal(t, i+1, slot.Slot)
		require.True(t, slot.Held)
		require.Equal(t, guards[i].ID(), slot.Holder)
		require.Equal(t, guards[i].FencingToken(), slot.FencingToken)
		require.Equal(t, "compiler", slot.Label)
		require.Positive(t, slot.LeftMillis)
	}
	row := ` +\w{26} +compiler +\d{16} +[\d.]+m?s +3/3`
	require.Regexp(t, `^licences is a semaphore: 2 of 2 slots are held\n +waiting +1\n\nSLOT .*\n1`+row+`\n2`+row+`\n$`, inProcess(t, nodes, "status", "licences").out)
	all := `^SEMAPHORE .*\nlicences +1 of 2` + row + ` +1\nlicences +2 of 2` + row + ` +1\n$`
	require.Regexp(t, all, inProcess(t, nodes, "status").out)
	hold(t, nodes, "licences")
	awaitAllVotes(t, nodes, "licences")
	require.Regexp(t, `^NAME .*\nlicences .*\n\n`+all[1:], inProcess(t, nodes, "status").out, "a lock of that name is another thing")
	require.Regexp(t, `^licences is held by (?s:.*)\n\nlicences is a semaphore: `, inProcess(t, nodes, "status", "licences").out)
	cancel()
	<-waited

	resizing, cancel := context.WithCancel(ctx)
	resized := make(chan struct{})
	go func() {
		defer close(resized)
		licences.Resize(resizing, 1)
	}()
	eventually(t, func() bool { return semaphoreOf(t, nodes, "licences").K == 1 }, "it has one slot from now on")
	require.Len(t, semaphoreOf(t, nodes, "licences").Slots, 2, "the other is held all the same")
	require.Contains(t, inProcess(t, nodes, "status", "licences").out, "2 of 1 slots are held")
	cancel()
	<-resized
	for _, g := range guards {
		require.NoError(t, g.Release(ctx))
	}
	require.Empty(t, semaphoreOf(t, nodes, "licences").Held)
	eventually(t, func() bool { // Release returns at a quorum
		return !strings.Contains(inProcess(t, nodes, "status").out, "SEMAPHORE")
	}, "nobody has a slot, nobody waits")
}

// A reader-writer lock is shown with all others, and by its name: who writes or reads, what each node keeps of it, who waits.
func TestStatusOfReaderWriterLocks(t *testing.T) {
	t.Parallel()
	nodes := startNodes(t, 3)
	ctx := context.Background()
	waiting, cancel := context.WithCancel(ctx)
	defer cancel()
	type take func(context.Context, ...redlock.HoldOption) (*redlock.Guard, error)
	wait := func(acquire take, label string) <-chan *redlock.Guard {
		came := make(chan *redlock.Guard, 1)
		go func() {
			g, _ := acquire(waiting, redlock.Label(label))
			came <- g
		}()
		return came
	}
	catalogue := newLocker(t, nodes).RW("catalogue")
	require.Equal(t, "no locks on 3 of 3 nodes\n", inProcess(t, nodes, "status").out)
	require.Contains(t, inProcess(t, nodes, "status", "catalogue").out, "catalogue is free\n")

	writer, err := catalogue.Write(ctx, redlock.Label("indexer"))
	require.NoError(t, err)
	page := wait(newLocker(t, nodes).RW("catalogue").Read, "page 1")
	eventually(t, func() bool {
		rw := rwOf(t, nodes, "catalogue")
		return rw.Waiters == 1 && rw.Writer.Votes == 3
	}, "all nodes have voted, and one stands in line")
	rw := rwOf(t, nodes, "catalogue")
	line, err := catalogue.Inspect(ctx)
	require.NoError(t, err)
	require.Empty(t, rw.Readers)
	require.True(t, rw.Writer.Held)
	require.Equal(t, "writer", rw.Writer.Side)
	require.Equal(t, writer.ID(), rw.Writer.Holder)
	require.Equal(t, line.Holder, rw.Writer.Holder)
	require.Equal(t, line.Label, rw.Writer.Label)
	require.Equal(t, line.FencingToken, rw.Writer.FencingToken)
	require.Equal(t, line.Waiters, rw.Waiters)
	require.Len(t, rw.Writer.Nodes, 3)
	for _, n := range rw.Writer.Nodes {
		require.Equal(t, writer.ID(), n.Holder)
		require.Positive(t, n.LeftMillis)
		require.LessOrEqual(t, n.LeftMillis, testLease.Milliseconds())
	}
	row := func(holder, label, votes string) string {
		return holder + ` +` + label + ` +\d{16} +[\d.]+m?s +` + votes
	}
	require.Regexp(t, `^READER-WRITER +SIDE +HOLDER +LABEL +TOKEN +LEFT +VOTES +WAITING
catalogue +writer +`+row(writer.ID(), "indexer", "3/3")+` +1\n$`, inProcess(t, nodes, "status").out)
	require.Regexp(t, `^catalogue is a reader-writer lock: 1 writer, 0 readers
  quorum         2 of 3
  waiting        1

SIDE .*
writer +`+row(writer.ID(), "indexer", "3/3")+`

NODE +SIDE +HOLDER +LEFT +WAITING
(\S+ +writer +`+writer.ID()+` +[\d.]+m?s +1\n){3}$`, inProcess(t, nodes, "status", "catalogue").out)

	require.NoError(t, writer.Release(ctx))
	one := <-page
	two, err := catalogue.Read(ctx, redlock.Label("page 2"))
	require.NoError(t, err)
	next := wait(newLocker(t, nodes).RW("catalogue").Write, "indexer")
	eventually(t, func() bool {
		rw := rwOf(t, nodes, "catalogue")
		return rw.Waiters == 1 && rw.Writer.Votes == 0 && len(rw.Readers) == 2 && rw.Readers[0].Votes == 3 && rw.Readers[1].Votes == 3
	}, "both read by all nodes, and a writer stands in line")
	rw = rwOf(t, nodes, "catalogue")
	line, err = catalogue.Inspect(ctx)
	require.NoError(t, err)
	require.Empty(t, rw.Writer.Holder)
	require.Len(t, line.Readers, 2)
	labels := map[string]string{one.ID(): "page 1", two.ID(): "page 2"}
	for i, reader := range rw.Readers {
		require.True(t, reader.Held)
		require.Equal(t, "reader", reader.Side)
		require.Equal(t, labels[reader.Holder], reader.Label)
		require.Equal(t, 1, reader.Waiters, "there is one line")
		require.True(t, slices.ContainsFunc(line.Readers, func(l redlock.Line) bool {
			return l.Holder == reader.Holder && l.Label == reader.Label && l.FencingToken == reader.FencingToken
		}), "reader %d is one that Inspect knows", i)
	}
	reader := `reader +` + row(`r\w{25}`, `page [12]`, "3/3")
	all := `READER-WRITER .*\n(catalogue +` + reader + ` +1\n){2}$`
	require.Regexp(t, `^`+all, inProcess(t, nodes, "status").out)
	r := inProcess(t, nodes, "status", "catalogue")
	require.Regexp(t, `^catalogue is a reader-writer lock: 0 writers, 2 readers\n(?s:.*)\nSIDE .*\n(`+reader+`\n){2}\nNODE .*\n(\S+ +reader +r\w{25} +[\d.]+m?s +1\n){6}$`, r.out)

	cmd := processOn(t, nodes, "status", "--watch", "--every", "100ms")
	shown, err := cmd.StdoutPipe()
	require.NoError(t, err)
	require.NoError(t, cmd.Start())
	for lines, n := bufio.NewScanner(shown), 0; n < 2; { // again and again
		require.True(t, lines.Scan())
		if strings.HasPrefix(lines.Text(), "READER-WRITER ") {
			n++
		}
	}
	require.NoError(t, cmd.Process.Signal(syscall.SIGINT))
	require.NoError(t, cmd.Wait())

	// A lock and a semaphore of that name are other things.
	hold(t, nodes, "catalogue")
	awaitAllVotes(t, nodes, "catalogue")
	_, err = newLocker(t, nodes).Semaphore("catalogue", 1).Acquire(ctx)
	require.NoError(t, err)
	r = inProcess(t, nodes, "status")
	require.Regexp(t, `^NAME .*\ncatalogue .*\n\nSEMAPHORE .*\ncatalogue +1 of 1 .*\n\n`+all, r.out)
	r = inProcess(t, nodes, "status", "catalogue")
	require.Regexp(t, `^catalogue is held by (?s:.*)\n\ncatalogue is a semaphore: (?s:.*)\n\ncatalogue is a reader-writer lock: 0 writers, 2 readers\n`, r.out)

	require.NoError(t, nodes[2].Kill())
	r = inProcess(t, nodes, "status")
	require.Equal(t, exitOK, r.code, r)
	require.Contains(t, r.out, nodes[2].Addr()+": not connected")
	require.Regexp(t, `(catalogue +reader +`+row(`r\w{25}`, `page [12]`, "2/3")+` +\d\n){2}$`, r.out)
	r = inProcess(t, nodes, "status", "catalogue")
	require.Regexp(t, `catalogue is a reader-writer lock: 0 writers, 2 readers\n(?s:.*)\n(\S+ +reader +r\w{25} +[\d.]+m?s +\d\n){4}\S+ +not connected: .*\n$`, r.out)

	for _, g := range []*redlock.Guard{one, two} {
		require.NoError(t, g.Release(ctx))
	}
	writer = <-next
	require.NotNil(t, writer)
	require.NoError(t, writer.Release(ctx))
	eventually(t, func() bool { return !strings.Contains(inProcess(t, nodes, "status").out, "READER-WRITER") }, "nobody reads, writes or waits")

	require.NoError(t, nodes[1].Kill())
	r = inProcess(t, nodes, "status", "catalogue")
	require.Equal(t, exitNoQuorum, r.code, r)
}

// Readers that only keep writers out are told apart, and a reader of too few nodes is none.
func TestStatusOfReadersThatAreNone(t *testing.T) {
	t.Parallel()
	nodes := startNodes(t, 3)
	rw := newLocker(t, nodes).RW("a}{b")
	for i, label := range []string{"one", "two"} {
		g, err := rw.Read(context.Background(), redlock.Label(label), redlock.AtLeast(time.Hour))
		require.NoError(t, err)
		eventually(t, func() bool { // a node that is asked after the release keeps nothing
			readers := rwOf(t, nodes, "a}{b").Readers
			return len(readers) == i+1 && readers[0].Votes == 3 && readers[i].Votes == 3
		}, "all nodes have voted")
		require.NoError(t, g.Release(context.Background()))
	}
	eventually(t, func() bool {
		kept := rwOf(t, nodes, "a}{b").Readers
		return len(kept) == 2 && kept[0].Votes == 3 && kept[1].Votes == 3
	}, "all nodes keep both")
	require.Regexp(t, `^READER-WRITER .*\n(a}{b +reader +nobody, kept +(one|two) +\d{16} +\d\S+ +3/3 +0\n){2}$`, inProcess(t, nodes, "status").out)
	labels := make(map[string]bool)
	for _, reader := range rwOf(t, nodes, "a}{b").Readers {
		require.True(t, reader.Kept)
		require.False(t, reader.Held)
		labels[reader.Label] = true
	}
	require.Len(t, labels, 2)

	const lone = "rAAAAAAAAAAAAAAAAAAAAAAAAA"
	do(t, nodes[0], "SET", "redlock:rw:{c}"+lone, lone+"#1=lone", "PX", "60000")
	do(t, nodes[0], "ZADD", "redlock:rw:{c}readers", "1", lone)
	require.Regexp(t, `c +reader +`+lone+` +lone +- +- +1/3 +0\n`, inProcess(t, nodes, "status").out)
	r := inProcess(t, nodes, "status", "c")
	require.Contains(t, r.out, "c is a reader-writer lock: 0 writers, 0 readers\n")
	require.Regexp(t, nodes[0].Addr()+` +reader +`+lone+` +\S+ +0\n`+nodes[1].Addr()+` +- +- +- +0\n`, r.out)

	// One who waits where nobody is any more.
	do(t, nodes[0], "ZADD", "redlock:rw:{d}queue", "1", "W")
	do(t, nodes[0], "SET", "redlock:wake:W", "0", "PX", "60000")
	require.Regexp(t, `\nd +- +- +- +- +- +0/3 +1\n`, inProcess(t, nodes, "status").out)
	require.Contains(t, inProcess(t, nodes, "status", "d").out, "d is a reader-writer lock: 0 writers, 0 readers\n  quorum         2 of 3\n  waiting        1\n\nNODE ")
}

func rwOf(t *testing.T, nodes []*redisproc.Node, name string) rwStatus {
	t.Helper()
	r := inProcess(t, nodes, "status", name, "--json")
	var s snapshot
	require.NoError(t, json.Unmarshal([]byte(r.out), &s), r)
	if len(s.RWLocks) == 0 {
		return rwStatus{}
	}
	return s.RWLocks[0]
}

func semaphoreOf(t *testing.T, nodes []*redisproc.Node, name string) semaphoreStatus {
	t.Helper()
	r := inProcess(t, nodes, "status", name, "--json")
	var s snapshot
	require.NoError(t, json.Unmarshal([]byte(r.out), &s), r)
	require.Len(t, s.Semaphores, 1)
	return s.Semaphores[0]
}

func TestMostCommon(t *testing.T) {
	require.Equal(t, 0, mostCommon([]int{0, 0}))
	require.Equal(t, 3, mostCommon([]int{0, 0, 3}), "who knows of none says nothing")
	require.Equal(t, 2, mostCommon([]int{3, 2, 2}))
	require.Equal(t, 3, mostCommon([]int{2, 3, 0}), "of equals the largest")
}

// Looking writes nothing: a marker would tell programs that the node is in use, and of a lease that nobody has.
func TestStatusAndDoctorWriteNothing(t *testing.T) {
	t.Parallel()
	nodes := redistest.StartSet(t, 3, redisproc.Options{})
	require.Equal(t, exitOK, inProcess(t, nodes, "status").code)
	require.Equal(t, exitOK, inProcess(t, nodes, "status", "x").code)
	require.Equal(t, exitOK, inProcess(t, nodes, "doctor", "--for", "100ms").code)
	for _, n := range nodes {
		size, err := n.Do("DBSIZE")
		require.NoError(t, err)
		require.Equal(t, "0", size)
		info, err := n.Do("INFO", "stats")
		require.NoError(t, err)
		require.Contains(t, info, "expired_keys:0\r\n")
	}
}

func TestStatusOfManyLocks(t *testing.T) {
	t.Parallel()
	nodes := redistest.StartSet(t, 1, redisproc.Options{})
	_, err := nodes[0].Do("EVAL", `for i = 1, 3000 do redis.call('SET', 'redlock:{n' .. i .. '}', 'OWNER#1', 'PX', 60000); redis.call('SET', 'other' .. i, 1) end`, "0")
	require.NoError(t, err)
	_, err = nodes[0].Do("SET", "redlock:{taken}", "~;OLD@1", "PX", "60000")
	require.NoError(t, err)
	r := inProcess(t, nodes, "status", "--json")
	var s snapshot
	require.NoError(t, json.Unmarshal([]byte(r.out), &s))
	require.Len(t, s.Locks, 3000, "what keeps a lock free after a takeover is no holder")
	require.Equal(t, "OWNER", s.Locks[0].Holder)
}

func TestStatusWatchesInAPipe(t *testing.T) {
	t.Parallel()
	nodes := startNodes(t, 3)
	cmd := processOn(t, nodes, "status", "--watch", "--json", "--every", "100ms")
	stdout, err := cmd.StdoutPipe()
	require.NoError(t, err)
	var complaints bytes.Buffer
	cmd.Stderr = &complaints
	require.NoError(t, cmd.Start())
	lines := bufio.NewReader(stdout)
	next := func() (s snapshot) {
		line, err := lines.ReadString('\n')
		require.NoError(t, err)
		require.NoError(t, json.Unmarshal([]byte(line), &s))
		return s
	}
	require.Empty(t, next().Locks)
	hold(t, nodes, "x")
	eventually(t, func() bool { return len(next().Locks) == 1 }, "the lock appears")
	require.NoError(t, nodes[0].CrashEmpty()) // its connection is gone, the watch goes on
	eventually(t, func() bool { s := next(); return s.answered() == 3 }, "the node is back")
	require.NoError(t, cmd.Process.Signal(syscall.SIGINT))
	require.NoError(t, cmd.Wait(), "that is how a watch ends")
	require.Empty(t, complaints.String())

	r := execute(t, processOn(t, nodes, "status", "--watch", "--nodes", "a", "--every", "1ms"))
	require.Equal(t, exitUsage, r.code)
	require.False(t, strings.Contains(r.out, "\x1b"), "no terminal")
}
