package redlock_test

import (
	"context"
	"errors"
	"fmt"
	"log"
	"sync"

	"github.com/redlock-go/redlock"
	"github.com/redlock-go/redlock/redlocktest"
)

// What came of each node is in the error: who holds the lock there, or what is wrong with it.
func ExampleQuorumError() {
	cluster := redlocktest.Start(3)
	defer cluster.Close()
	a, b := newExampleLocker(cluster), newExampleLocker(cluster)
	defer a.Close()
	defer b.Close()
	guard, err := a.Acquire(context.Background(), "cron:purge", redlock.Label("web-1"))
	if err != nil {
		log.Fatal(err)
	}
	defer guard.Release(context.Background())

	_, err = b.TryAcquire(context.Background(), "cron:purge")
	holders := make(map[string]bool)
	if e := (*redlock.QuorumError)(nil); errors.As(err, &e) {
		for _, one := range e.Errs {
			var node *redlock.NodeError
			var held *redlock.HeldError
			if errors.As(one, &node) && errors.As(node.Err, &held) {
				holders[held.Label] = true
			}
		}
		fmt.Printf("quorum is %d of %d, held by %v\n", e.Quorum, e.Nodes, holders)
	}
	// Output: quorum is 2 of 3, held by map[web-1:true]
}

// Who holds a lock, and who waits: asked of all nodes, as a quorum says.
func ExampleLocker_Inspect() {
	locker, stop := exampleLocker()
	defer stop()
	guard, err := locker.Acquire(context.Background(), "cron:purge", redlock.Label("web-1"))
	if err != nil {
		log.Fatal(err)
	}
	line, err := locker.Inspect(context.Background(), "cron:purge")
	if err != nil {
		log.Fatal(err)
	}
	fmt.Println(line.Holder == guard.ID(), line.Label, line.Waiters)

	if err := guard.Release(context.Background()); err != nil {
		log.Fatal(err)
	}
	line, err = locker.Inspect(context.Background(), "cron:purge")
	fmt.Printf("%q %v\n", line.Holder, err)
	// Output:
	// true web-1 0
	// "" <nil>
}

// eventCounts is an Observer that counts what it is told of calls and locks. It is told by many goroutines at the same time.
type eventCounts struct {
	mu sync.Mutex
	of map[redlock.EventKind]int
}

func (c *eventCounts) Observe(_ context.Context, e redlock.Event) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.of[e.Kind]++
}

// An Observer is told of each call, lock and answer. Package otel has one for OpenTelemetry.
func ExampleObserver() {
	cluster := redlocktest.Start(3)
	defer cluster.Close()
	observer := &eventCounts{of: make(map[redlock.EventKind]int)}
	option := cluster.Option()
	option.Observer, option.RestartQuarantine = observer, -1
	locker, err := redlock.NewLocker(option)
	if err != nil {
		log.Fatal(err)
	}
	for range 3 {
		if err := locker.Do(context.Background(), "cron:purge", func(context.Context) error { return nil }); err != nil {
			log.Fatal(err)
		}
	}
	locker.Close() // waits for what is still to be told
	for _, kind := range []redlock.EventKind{redlock.EventGranted, redlock.EventReleased, redlock.EventEnded} {
		fmt.Println(kind, observer.of[kind])
	}
	// Output:
	// granted 3
	// released 3
	// ended 3
}
