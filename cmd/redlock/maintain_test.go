package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"strconv"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/redlock-go/redlock"
	"github.com/redlock-go/redlock/internal/redisproc"
	"github.com/redlock-go/redlock/internal/redisproc/redistest"
)

func TestInit(t *testing.T) {
	t.Parallel()
	nodes := redistest.StartSet(t, 3, redisproc.Options{})
	for range 2 { // it may be called again
		r := inProcess(t, nodes, "init", "--lease", "1h")
		require.Equal(t, result{0, "the nodes are past their first wait: they grant locks\n", ""}, r)
	}
	hourly, err := redlock.NewLocker(redlock.LockerOption{Nodes: redistest.Options(nodes), KeyValidity: testLease})
	require.NoError(t, err)
	defer hourly.Close()
	guard, err := hourly.TryAcquire(context.Background(), "x")
	require.NoError(t, err, "nobody waits for an hour")
	require.NoError(t, guard.Release(context.Background()))

	nodes = redistest.StartSet(t, 3, redisproc.Options{})
	_, err = nodes[1].Do("SET", "redlock:{x}", "mine")
	require.NoError(t, err)
	r := inProcess(t, nodes, "init")
	require.Equal(t, exitFailed, r.code, r)
	require.Contains(t, r.complaints, nodes[1].Addr()+`: it holds the lock key "redlock:{x}"`)

	// Programs that have the quarantine off are told apart by their marker.
	nodes = redistest.StartSet(t, 3, redisproc.Options{})
	require.Equal(t, exitOK, inProcess(t, nodes, "init", "--no-quarantine").code)
	r = inProcess(t, nodes, "init")
	require.Equal(t, exitNoQuorum, r.code, r)
	require.Contains(t, r.complaints, "RestartQuarantine is on here, the node's marker says off")
}

func TestRelease(t *testing.T) {
	t.Parallel()
	nodes := startNodes(t, 3)
	r := inProcess(t, nodes, "release", "x")
	require.Equal(t, result{0, "x is free: nothing to release\n", ""}, r)

	guard, err := newFarLocker(t, nodes).Acquire(context.Background(), "x")
	require.NoError(t, err)
	r = execute(t, processOn(t, nodes, "release", "x"))
	require.Equal(t, exitUsage, r.code, r)
	require.Contains(t, r.complaints, "x is held by ", "it shows whom it would end")
	require.Contains(t, r.complaints, "there is no terminal to ask on: --yes")
	require.NoError(t, guard.Err())

	r = inProcess(t, nodes, "release", "x", "--yes", "--lease", testLease.String())
	require.Equal(t, exitOK, r.code, r)
	require.Regexp(t, `^x is released; its holder had ended after \S+\n$`, r.out)
	require.ErrorIs(t, guard.Err(), redlock.ErrTakenOver, "when release returns its context has ended")
	require.Empty(t, statusOf(t, nodes, "x").Holder)

	guard = hold(t, nodes, "x")
	go func() {
		for changed, why := guard.Risk(); changed != nil; changed, why = guard.Risk() {
			if errors.Is(why, redlock.ErrAskedFor) {
				guard.Release(context.Background())
				return
			}
			<-changed
		}
	}()
	r = inProcess(t, nodes, "release", "x", "--yes", "--grace", "1m", "--lease", testLease.String())
	require.Equal(t, exitOK, r.code, r)
	require.ErrorIs(t, guard.Err(), redlock.ErrReleased, "it was asked, and has let go")

	for _, n := range nodes[1:] {
		require.NoError(t, n.Kill())
	}
	r = inProcess(t, nodes, "release", "x", "--yes", "--lease", testLease.String())
	require.Equal(t, exitNoQuorum, r.code, r)
}

func TestReleaseOfASlot(t *testing.T) {
	t.Parallel()
	nodes := startNodes(t, 3)
	release := func(slot string) result {
		return inProcess(t, nodes, "release", "pool", "--slot", slot, "--yes")
	}
	require.Equal(t, result{0, "slot 1 of pool is free, as far as the nodes know of such a semaphore: nothing to release\n", ""}, release("1"))
	pool := newFarLocker(t, nodes).Semaphore("pool", 3)
	guards := make(map[int]*redlock.Guard)
	for range 2 {
		g, err := pool.Acquire(context.Background())
		require.NoError(t, err)
		guards[g.Slot()] = g
	}
	for slot := range 3 {
		slot++
		r := release(strconv.Itoa(slot))
		require.Equal(t, exitOK, r.code, r)
		if guards[slot] == nil {
			require.Equal(t, fmt.Sprintf("slot %d of pool is free: nothing to release\n", slot), r.out)
			continue
		}
		require.Regexp(t, `^slot \d of pool is released; its holder had ended after \S+\n$`, r.out)
		require.ErrorIs(t, guards[slot].Err(), redlock.ErrTakenOver)
		delete(guards, slot)
		for _, other := range guards {
			require.NoError(t, other.Err(), "it has another slot")
		}
	}
	r := release("4")
	require.Equal(t, exitUsage, r.code, r)
	require.Contains(t, r.complaints, "--slot 4: pool has 3 slots")
	for _, n := range nodes[1:] {
		require.NoError(t, n.Kill())
	}
	require.Equal(t, exitNoQuorum, release("1").code)
}

// Nobody takes over a reader-writer lock: release says so, and what to do. It leaves it as it is, also beside a lock of that name.
func TestReleaseOfAReaderWriterLock(t *testing.T) {
	t.Parallel()
	nodes := startNodes(t, 3)
	ctx := context.Background()
	reader, err := newLocker(t, nodes).RW("catalogue").Read(ctx, redlock.Label("page 1"))
	require.NoError(t, err)
	for _, flags := range [][]string{{"--yes"}, {}, {"--yes", "--grace", "1s"}} {
		r := inProcess(t, nodes, append([]string{"release", "catalogue"}, flags...)...)
		require.Equal(t, exitFailed, r.code, r)
		require.Empty(t, r.out)
		require.Contains(t, r.complaints, "catalogue is a reader-writer lock: 0 writers, 1 reader\n")
		require.Regexp(t, `reader +`+reader.ID()+` +page 1 `, r.complaints, "whom to end")
		require.Contains(t, r.complaints, "catalogue is a reader-writer lock, which cannot be taken over: end the programs that hold it")
	}
	guard := hold(t, nodes, "catalogue")
	r := inProcess(t, nodes, "release", "catalogue", "--yes", "--lease", testLease.String())
	require.Equal(t, exitOK, r.code, r)
	require.Contains(t, r.complaints, "catalogue is also a reader-writer lock, which is another thing and stays as it is\n")
	require.ErrorIs(t, guard.Err(), redlock.ErrTakenOver)
	require.NoError(t, reader.Err())
	require.Len(t, rwOf(t, nodes, "catalogue").Readers, 1)
}

func TestBench(t *testing.T) {
	t.Parallel()
	nodes := startNodes(t, 3)
	for _, args := range [][]string{{"--callers", "4"}, {"--callers", "2", "--contended"}} {
		r := inProcess(t, nodes, append([]string{"bench", "--for", "100ms", "--lease", testLease.String()}, args...)...)
		require.Equal(t, exitOK, r.code, r)
		require.Regexp(t, `^\d+ locks in \S+: \d+ a second\n\n +MEDIAN +99 % +LONGEST\nacquire( +[\d.]+[mµ]?s){3}\nrelease( +[\d.]+[mµ]?s){3}\n$`, r.out)
	}
	for _, n := range nodes[1:] {
		require.NoError(t, n.Kill())
	}
	r := inProcess(t, nodes, "bench", "--for", "100ms", "--lease", "300ms")
	require.Equal(t, exitNoQuorum, r.code, r)
}

func TestExitCodesOfErrors(t *testing.T) {
	for _, row := range []struct {
		err  error
		code int
	}{
		{nil, exitOK},
		{errors.New("any"), exitFailed},
		{redlock.ErrNotLocked, exitNotLocked},
		{redlock.ErrNoQuorum, exitNoQuorum},
		{redlock.ErrInvalidOption, exitUsage},
		{notStarted(errors.New("any")), exitNotStarted},
		{notStarted(redlock.ErrNoQuorum), exitNoQuorum},
		{cannotRun(errors.New("any")), exitCannotRun},
	} {
		c := &call{command: statusCommand, complaints: io.Discard, waiting: newProgress(io.Discard)}
		require.Equal(t, row.code, c.fail(context.Background(), row.err), "%v", row.err)
	}
}
