package redlock_test

import (
	"context"
	"errors"
	"fmt"
	"log"
	"time"

	"github.com/redis/rueidis"

	"github.com/redlock-go/redlock"
	"github.com/redlock-go/redlock/redlocktest"
)

// A lock over three nodes, with every default.
func ExampleNewLocker() {
	locker, err := redlock.NewLocker(redlock.LockerOption{
		Nodes: []rueidis.ClientOption{
			{InitAddress: []string{"redis-a:6379"}},
			{InitAddress: []string{"redis-b:6379"}},
			{InitAddress: []string{"redis-c:6379"}},
		},
	})
	if err != nil {
		log.Fatal(err)
	}
	defer locker.Close()
}

// Options that cannot work are refused at once, with the value and the rule.
func ExampleNewLocker_invalidOption() {
	_, err := redlock.NewLocker(redlock.LockerOption{})
	fmt.Println(errors.Is(err, redlock.ErrInvalidOption))
	fmt.Println(err)
	// Output:
	// true
	// redlock: invalid option: Nodes is empty: a lock needs at least one node
}

// Wait for the lock, work while its context lasts, give it back.
func ExampleLocker_Acquire() {
	locker, stop := exampleLocker()
	defer stop()

	wait, cancel := context.WithTimeout(context.Background(), 5*time.Second) // bounds the wait, not the hold
	defer cancel()
	guard, err := locker.Acquire(wait, "cron:purge")
	if err != nil {
		log.Fatal(err)
	}
	fmt.Println("held:", guard.Name(), guard.Err())

	fmt.Println("released:", guard.Release(context.Background()))
	fmt.Println(guard.Err())
	// Output:
	// held: cron:purge <nil>
	// released: <nil>
	// redlock: lock released
}

// Do waits, runs a function with a context that ends with the lock, and releases.
func ExampleLocker_Do() {
	locker, stop := exampleLocker()
	defer stop()

	err := locker.Do(context.Background(), "cron:purge", func(ctx context.Context) error {
		_, fenced := redlock.FencingToken(ctx)
		fmt.Println("working, fenced:", fenced)
		return ctx.Err()
	})
	fmt.Println(err)
	// Output:
	// working, fenced: true
	// <nil>
}

// TryAcquire does not wait. ErrNotLocked says that somebody else holds the lock, ErrNoQuorum that too few nodes could
// vote.
func ExampleLocker_TryAcquire() {
	cluster := redlocktest.Start(5)
	defer cluster.Close()
	a, b := newExampleLocker(cluster), newExampleLocker(cluster)
	defer a.Close()
	defer b.Close()

	guard, err := a.TryAcquire(context.Background(), "cron:purge")
	if err != nil {
		log.Fatal(err)
	}
	defer guard.Release(context.Background())

	_, err = b.TryAcquire(context.Background(), "cron:purge")
	switch {
	case errors.Is(err, redlock.ErrNotLocked):
		fmt.Println("somebody else runs it, fine")
	case errors.Is(err, redlock.ErrNoQuorum):
		fmt.Println("the nodes are in trouble:", err)
	}
	if e, ok := errors.AsType[*redlock.QuorumError](err); ok {
		fmt.Printf("fewer than %d of %d nodes voted yes\n", e.Quorum, e.Nodes)
	}
	// Output:
	// somebody else runs it, fine
	// fewer than 3 of 5 nodes voted yes
}

// A lock can be lost while it is held: here somebody deletes it on all nodes. The context ends, and context.Cause says
// why.
func ExampleGuard_Context() {
	cluster := redlocktest.Start(3)
	defer cluster.Close()
	locker := newExampleLocker(cluster)
	defer locker.Close()

	guard, err := locker.Acquire(context.Background(), "cron:purge")
	if err != nil {
		log.Fatal(err)
	}
	ctx := guard.Context()

	for _, node := range cluster.Nodes() {
		node.Del("redlock:{cron:purge}")
	}
	<-ctx.Done()

	cause := context.Cause(ctx)
	fmt.Println("context:", ctx.Err())
	fmt.Println("lost:", errors.Is(cause, redlock.ErrLost))
	fmt.Println("taken over:", errors.Is(cause, redlock.ErrTakenOver))
	if e, ok := errors.AsType[*redlock.QuorumError](cause); ok {
		fmt.Printf("fewer than %d of %d votes are left\n", e.Quorum, e.Nodes)
	}
	// Output:
	// context: context canceled
	// lost: true
	// taken over: false
	// fewer than 2 of 3 votes are left
}

// ledger is a resource that fences: it rejects writes whose token is smaller than the largest it has seen. In SQL it is
// one more condition: UPDATE ... WHERE fence <= $token.
type ledger struct{ fence uint64 }

func (l *ledger) write(token uint64, line string) error {
	if token < l.fence {
		return fmt.Errorf("%s: rejected, the lock has a newer holder", line)
	}
	l.fence = token
	return nil
}

// The fencing token protects a resource from a holder that does not know yet that it has lost the lock.
func ExampleGuard_FencingToken() {
	cluster := redlocktest.Start(5)
	defer cluster.Close()
	a, b := newExampleLocker(cluster), newExampleLocker(cluster)
	defer a.Close()
	defer b.Close()
	ctx := context.Background()
	var ledger ledger

	old, err := a.Acquire(ctx, "ledger")
	if err != nil {
		log.Fatal(err)
	}
	fmt.Println(ledger.write(old.FencingToken(), "first holder"))

	// The first holder sleeps; the second takes over, and writes.
	taken, err := b.ForceAcquire(ctx, "ledger")
	if err != nil {
		log.Fatal(err)
	}
	defer taken.Release(ctx)
	fmt.Println(ledger.write(taken.FencingToken(), "second holder"))

	// The first holder wakes up, and writes before it looks at its context.
	fmt.Println(ledger.write(old.FencingToken(), "first holder"))
	// Output:
	// <nil>
	// <nil>
	// first holder: rejected, the lock has a newer holder
}

// ForceAcquire takes the lock from whoever holds it, and returns when their guard has ended.
func ExampleLocker_ForceAcquire() {
	cluster := redlocktest.Start(5)
	defer cluster.Close()
	a, b := newExampleLocker(cluster), newExampleLocker(cluster)
	defer a.Close()
	defer b.Close()
	ctx := context.Background()

	displaced, err := a.Acquire(ctx, "cron:purge")
	if err != nil {
		log.Fatal(err)
	}
	guard, err := b.ForceAcquire(ctx, "cron:purge")
	if err != nil {
		log.Fatal(err)
	}
	defer guard.Release(ctx)

	fmt.Println("ours:", guard.Err() == nil)
	fmt.Println("theirs was taken over:", errors.Is(displaced.Err(), redlock.ErrTakenOver))
	fmt.Println("our token is larger:", guard.FencingToken() > displaced.FencingToken())
	// Output:
	// ours: true
	// theirs was taken over: true
	// our token is larger: true
}

// The three methods of rueidislock: only the constructor changes at a call site.
func ExampleLocker_WithContext() {
	locker, stop := exampleLocker()
	defer stop()

	ctx, cancel, err := locker.WithContext(context.Background(), "cron:purge")
	if err != nil {
		log.Fatal(err)
	}
	fmt.Println("held:", ctx.Err() == nil)
	cancel()
	fmt.Println(context.Cause(ctx))
	// Output:
	// held: true
	// redlock: lock released
}

// exampleLocker returns a Locker on simulated nodes, so that the examples run anywhere.
func exampleLocker() (locker *redlock.Locker, stop func()) {
	cluster := redlocktest.Start(5)
	locker = newExampleLocker(cluster)
	return locker, func() {
		locker.Close()
		cluster.Close()
	}
}

func newExampleLocker(cluster *redlocktest.Cluster) *redlock.Locker {
	locker, err := redlock.NewLocker(cluster.Option())
	if err != nil {
		log.Fatal(err)
	}
	return locker
}
