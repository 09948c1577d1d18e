package redlock_test

import (
	"context"
	"errors"
	"fmt"
	"log"
	"net/http"
	"net/http/httptest"
	"sync"

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

// Of two programs one leads. When it is to end it winds down, and the other one leads.
func ExampleLocker_Lead() {
	cluster := redlocktest.Start(5)
	defer cluster.Close()

	program := func() {
		locker := newExampleLocker(cluster)
		defer locker.Close()
		ctx, cancel := context.WithCancel(context.Background())
		defer cancel()
		err := locker.Lead(ctx, "scheduler", func(ctx context.Context) error {
			fmt.Println("leading")
			cancel() // SIGTERM, in a program that is replaced
			<-ctx.Done()
			fmt.Println("winding down")
			return nil
		})
		if !errors.Is(err, context.Canceled) {
			log.Fatal(err)
		}
	}
	var programs sync.WaitGroup
	programs.Go(program)
	programs.Go(program)
	programs.Wait()
	// Output:
	// leading
	// winding down
	// leading
	// winding down
}

// A request that is handled while a lock is held ends with the lock, or when its client goes away.
func ExampleGuard_Join() {
	locker, stop := exampleLocker()
	defer stop()
	guard, err := locker.Acquire(context.Background(), "scheduler")
	if err != nil {
		log.Fatal(err)
	}
	defer guard.Release(context.Background())

	request, goAway := context.WithCancelCause(context.Background())
	ctx, cancel := guard.Join(request)
	defer cancel()
	fmt.Println(ctx.Err())
	goAway(errors.New("the client went away"))
	<-ctx.Done()
	fmt.Println(context.Cause(ctx))
	fmt.Println("the lock:", guard.Err())
	// Output:
	// <nil>
	// the client went away
	// the lock: <nil>
}

// A readiness probe: ready while a quorum can be had. It asks no node.
func ExampleLocker_Status() {
	cluster := redlocktest.Start(3)
	defer cluster.Close()
	locker := newExampleLocker(cluster)
	defer locker.Close()

	ready := func(w http.ResponseWriter, _ *http.Request) {
		status := locker.Status()
		if status.Err != nil {
			http.Error(w, status.Err.Error(), http.StatusServiceUnavailable)
			return
		}
		fmt.Fprintf(w, "%d of %d nodes may vote, quorum is %d\n", status.MayVote, len(status.Nodes), status.Quorum)
	}
	probe := func() *httptest.ResponseRecorder {
		w := httptest.NewRecorder()
		ready(w, httptest.NewRequest("GET", "/ready", nil))
		return w
	}
	for locker.Status().MayVote < 3 { // NewLocker waits for a quorum alone
		time.Sleep(time.Millisecond)
	}
	fmt.Print(probe().Body)

	cluster.Node(0).Stop()
	cluster.Node(1).Stop()
	for locker.Status().MayVote > 1 {
		time.Sleep(time.Millisecond)
	}
	fmt.Println(probe().Code)
	// Output:
	// 3 of 3 nodes may vote, quorum is 2
	// 503
}

// A process that is replaced hands its lock to the next one. The text could travel in a file or an environment variable.
func ExampleGuard_Export() {
	cluster := redlocktest.Start(5)
	defer cluster.Close()
	before, after := newExampleLocker(cluster), newExampleLocker(cluster)
	defer before.Close()
	defer after.Close()
	ctx := context.Background()

	guard, err := before.Acquire(ctx, "cron:purge")
	if err != nil {
		log.Fatal(err)
	}
	exported, err := guard.Export()
	if err != nil {
		log.Fatal(err)
	}
	fmt.Println(guard.Err())

	resumed, err := after.Resume(ctx, exported)
	if err != nil {
		log.Fatal(err)
	}
	defer resumed.Release(ctx)
	fmt.Println("the same token:", resumed.FencingToken() == guard.FencingToken())

	_, err = after.Resume(ctx, exported)
	fmt.Println("once:", errors.Is(err, redlock.ErrExportUsed))
	// Output:
	// redlock: lock exported
	// the same token: true
	// once: true
}

// A cron job of several programs is to run once per tick, and not once after another: the lock stays taken for longer than
// their clocks and schedulers differ.
func ExampleLocker_TryDo() {
	cluster := redlocktest.Start(5)
	defer cluster.Close()
	programs := []*redlock.Locker{newExampleLocker(cluster), newExampleLocker(cluster)}
	defer programs[0].Close()
	defer programs[1].Close()

	purge := func(locker *redlock.Locker) error {
		err := locker.TryDo(context.Background(), "cron:purge", func(ctx context.Context) error {
			fmt.Println("purging")
			return nil
		}, redlock.AtLeast(30*time.Minute)) // of an hourly job
		if errors.Is(err, redlock.ErrNotLocked) {
			err = nil // another program has this tick
		}
		return err
	}
	for _, locker := range programs {
		if err := purge(locker); err != nil {
			log.Fatal(err)
		}
		time.Sleep(50 * time.Millisecond) // the second program's scheduler is late
	}
	// Output: purging
}

// A worker that hangs does not hold for ever.
func ExampleAtMost() {
	locker, stop := exampleLocker()
	defer stop()

	err := locker.Do(context.Background(), "report", func(ctx context.Context) error {
		<-ctx.Done() // hangs, but minds its context
		return nil
	}, redlock.AtMost(50*time.Millisecond))
	fmt.Println(errors.Is(err, redlock.ErrHeldTooLong), errors.Is(err, redlock.ErrLost))
	// Output: true false
}

// Who needs a lock asks its holder to let go, and takes it only if that does nothing for too long.
func ExampleGrace() {
	cluster := redlocktest.Start(5)
	defer cluster.Close()
	worker, operator := newExampleLocker(cluster), newExampleLocker(cluster)
	defer worker.Close()
	defer operator.Close()

	guard, err := worker.Acquire(context.Background(), "batch")
	if err != nil {
		log.Fatal(err)
	}
	go func() {
		for changed, why := guard.Risk(); changed != nil; changed, why = guard.Risk() {
			if errors.Is(why, redlock.ErrAskedFor) {
				fmt.Println("worker: asked for, finishes what it has begun")
				guard.Release(context.Background())
				return
			}
			<-changed
		}
	}()

	taken, err := operator.ForceAcquire(context.Background(), "batch", redlock.Grace(time.Minute))
	if err != nil {
		log.Fatal(err)
	}
	defer taken.Release(context.Background())
	fmt.Println("operator: has it;", guard.Err())
	// Output:
	// worker: asked for, finishes what it has begun
	// operator: has it; redlock: lock released
}

// A job that must not outlive its slot holds its lock for that long at most, be its program alive or not.
func ExampleFixedLease() {
	locker, stop := exampleLocker()
	defer stop()

	guard, err := locker.Acquire(context.Background(), "slot:nightly", redlock.FixedLease(5*time.Second))
	if err != nil {
		log.Fatal(err)
	}
	fmt.Println(time.Until(guard.ValidUntil()).Round(time.Second), guard.Err()) // less than 5 s: the rest is for winding down
	fmt.Println(guard.Release(context.Background()))
	// Output:
	// 4s <nil>
	// <nil>
}

// Who holds the lock says so, to those who are refused and to those who look.
func ExampleLabel() {
	locker, stop := exampleLocker()
	defer stop()

	guard, err := locker.Acquire(context.Background(), "deploy", redlock.Label("alice, release 42"))
	if err != nil {
		log.Fatal(err)
	}
	line, err := locker.Inspect(context.Background(), "deploy")
	fmt.Println(line.Holder == guard.ID(), line.Label, err)
	fmt.Println(guard.Release(context.Background()))
	// Output:
	// true alice, release 42 <nil>
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
	if e := (*redlock.QuorumError)(nil); errors.As(err, &e) {
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
	if e := (*redlock.QuorumError)(nil); errors.As(cause, &e) {
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

// A pool of licences: five programs, or callers, use two of them.
func ExampleSemaphore() {
	locker, stop := exampleLocker()
	defer stop()

	licences := locker.Semaphore("licences", 2) // 2 in every program
	var mu sync.Mutex
	used, most, runs := map[int]bool{}, 0, 0
	var wg sync.WaitGroup
	for range 5 {
		wg.Go(func() {
			guard, err := licences.Acquire(context.Background())
			if err != nil {
				log.Fatal(err)
			}
			defer guard.Release(context.Background())
			mu.Lock()
			used[guard.Slot()] = true // licence 1 or 2, which nobody else has now
			most, runs = max(most, len(used)), runs+1
			mu.Unlock()
			time.Sleep(20 * time.Millisecond) // the work
			mu.Lock()
			delete(used, guard.Slot())
			mu.Unlock()
		})
	}
	wg.Wait()
	fmt.Println(runs, "runs,", most, "at a time")
	// Output: 5 runs, 2 at a time
}

// A catalogue is read all the time, by many, and rebuilt now and then by one, who goes on reading what it has built.
func ExampleRW() {
	locker, stop := exampleLocker()
	defer stop()
	ctx := context.Background()

	catalogue := locker.RW("catalogue")
	edition, readers, most := 1, 0, 0
	var mu sync.Mutex
	count := func(n int) int {
		mu.Lock()
		defer mu.Unlock()
		readers += n
		most = max(most, readers)
		return readers
	}
	begun := make(chan struct{})
	read := func(context.Context) error {
		count(1)
		defer count(-1)
		begun <- struct{}{}
		time.Sleep(50 * time.Millisecond) // the work
		return nil
	}
	var wg sync.WaitGroup
	for range 3 {
		wg.Go(func() {
			if err := catalogue.ReadDo(ctx, read); err != nil {
				log.Fatal(err)
			}
		})
	}
	for range 3 {
		<-begun
	}
	writer, err := catalogue.Write(ctx) // waits until the three have read
	if err != nil {
		log.Fatal(err)
	}
	fmt.Println("at most", most, "readers at a time,", count(0), "while the catalogue is rebuilt")
	edition++

	reader, err := writer.Downgrade(ctx) // nobody else has written in between
	if err != nil {
		log.Fatal(err)
	}
	defer reader.Release(ctx)
	if _, err := catalogue.Write(reader.Context()); errors.Is(err, redlock.ErrUpgrade) {
		fmt.Println("edition", edition, "is read, and not written")
	}
	wg.Wait()
	// Output:
	// at most 3 readers at a time, 0 while the catalogue is rebuilt
	// edition 2 is read, and not written
}

// A transfer between two accounts holds both. Transfers that go the other way, at the same time, do not block each other.
func ExampleLocker_AcquireAll() {
	locker, stop := exampleLocker()
	defer stop()

	balance := map[string]int{"account:1": 100, "account:2": 100}
	transfer := func(from, to string, amount int) error {
		guard, err := locker.AcquireAll(context.Background(), []string{from, to})
		if err != nil {
			return err
		}
		defer guard.Release(context.Background())
		if guard.Err() != nil || balance[from] < amount { // a real store checks guard.FencingToken(), too, of each account
			return guard.Err()
		}
		balance[from] -= amount
		balance[to] += amount
		return nil
	}
	var wg sync.WaitGroup
	for i := range 10 {
		wg.Go(func() {
			from, to := "account:1", "account:2"
			if i%2 == 1 {
				from, to = to, from
			}
			if err := transfer(from, to, 10*(1+i%2)); err != nil {
				log.Fatal(err)
			}
		})
	}
	wg.Wait()
	fmt.Println(balance["account:1"], balance["account:2"])
	// Output: 150 50
}

// A worker that knows before it loses its lock takes on no more work, and goes on when the lock is well again.
func ExampleGuard_Risk() {
	cluster := redlocktest.Start(5)
	defer cluster.Close()
	option := cluster.Option()
	option.KeyValidity = time.Second
	locker, err := redlock.NewLocker(option)
	if err != nil {
		log.Fatal(err)
	}
	defer locker.Close()
	guard, err := locker.Acquire(context.Background(), "crawl")
	if err != nil {
		log.Fatal(err)
	}

	cluster.Node(0).Silence() // two of five nodes hang
	cluster.Node(1).Silence()
	<-guard.AtRisk()
	changed, why := guard.Risk()
	fmt.Println("pause:", errors.Is(why, redlock.ErrAtRisk), guard.Err())

	cluster.Node(0).Heal()
	<-changed
	_, why = guard.Risk()
	fmt.Println("go on:", why)
	// Output:
	// pause: true <nil>
	// go on: <nil>
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
