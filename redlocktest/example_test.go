package redlocktest_test

import (
	"context"
	"errors"
	"fmt"
	"log"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/redlock-go/redlock"
	"github.com/redlock-go/redlock/redlocktest"
)

// A program's own tests need no Redis: five nodes in process, and what happens to them is one call.
func Example() {
	cluster := redlocktest.Start(5) // in a test: redlocktest.NewCluster(t, 5), which closes itself
	defer cluster.Close()
	locker, err := redlock.NewLocker(cluster.Option())
	if err != nil {
		log.Fatal(err)
	}
	defer locker.Close()

	guard, err := locker.Acquire(context.Background(), "cron:purge")
	if err != nil {
		log.Fatal(err)
	}
	cluster.Node(0).Stop()
	cluster.Node(1).Stop()
	fmt.Println("two of five nodes down:", guard.Err())

	for guard.Err() == nil { // a node that was not needed for the quorum may still be about to grant it
		for _, node := range cluster.Nodes() {
			node.Del("redlock:{cron:purge}") // as an operator would
		}
		time.Sleep(time.Millisecond)
	}
	<-guard.Done()
	fmt.Println("lost:", errors.Is(guard.Err(), redlock.ErrLost))
	// Output:
	// two of five nodes down: <nil>
	// lost: true
}

// purge is a worker as a program might have it: it stops when it loses its lock.
func purge(ctx context.Context, locker *redlock.Locker) error {
	ctx, cancel, err := locker.WithContext(ctx, "cron:purge")
	if err != nil {
		return err
	}
	defer cancel()
	for {
		select {
		case <-ctx.Done():
			return context.Cause(ctx)
		case <-time.After(time.Minute): // a batch
		}
	}
}

// In a synctest bubble hours pass in milliseconds, and exactly: a worker holds its lock for an hour, is cut off from
// all nodes, and must have stopped within one lease.
func TestExampleWorkerStopsWhenItIsCutOff(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		cluster := redlocktest.NewCluster(t, 5)
		locker, err := redlock.NewLocker(cluster.Client("worker").Option())
		require.NoError(t, err)
		defer locker.Close()

		stopped := make(chan error, 1)
		go func() { stopped <- purge(context.Background(), locker) }()
		time.Sleep(time.Hour)
		require.Empty(t, stopped, "an hour of extensions")

		for _, link := range cluster.Client("worker").Links() {
			link.Silence()
		}
		start := time.Now()
		require.ErrorIs(t, <-stopped, redlock.ErrLost)
		require.LessOrEqual(t, time.Since(start), 10*time.Second, "one lease, the default")
	})
}
