package client

import (
	"context"
	"errors"
	"fmt"
	"runtime"
	"sync/atomic"
	"time"
)

// Hold is what Hold is told: so many callers take the locks, which are then held for a while by a client that does
// nothing else.
type Hold struct {
	Locks, Callers int
	For            time.Duration // ExtendInterval or a multiple says most
}

// Held is what that came to.
type Held struct {
	Taking     time.Duration // of all locks, while those taken are renewed
	TakingCPU  time.Duration // of this process
	Failed     int           // acquisitions that were then tried again
	Goroutines int
	Memory     int64 // heap and stacks
	Elapsed    time.Duration
	CPU        time.Duration // of this process, while it only held
	Requests   int64         // sent to all nodes, while it only held
}

func hold(l locker, m *meter, h Hold) (Held, error) {
	if _, err := l.lock("warm-up")(context.Background()); err != nil {
		return Held{}, err
	}
	goroutines, memory := runtime.NumGoroutine(), memoryInUse()
	cpu, start := cpuTime(), time.Now()
	guards, failed, err := take(l, h)
	if err != nil {
		return Held{}, err
	}
	held := Held{Taking: time.Since(start), TakingCPU: cpuTime() - cpu, Failed: failed}
	time.Sleep(200 * time.Millisecond) // what taking left behind ends
	held.Goroutines, held.Memory = runtime.NumGoroutine()-goroutines, memoryInUse()-memory

	requests, cpu, start := m.sent(), cpuTime(), time.Now()
	time.Sleep(h.For)
	held.Elapsed, held.CPU, held.Requests = time.Since(start), cpuTime()-cpu, m.sent()-requests
	runtime.KeepAlive(guards)
	return held, nil
}

// patience is for how long locks that cannot be had are tried again.
const patience = 2 * time.Minute

// take takes all locks and returns what releases them, and how many tries failed.
func take(l locker, h Hold) ([]func(), int, error) {
	until := time.Now().Add(patience)
	releases := make([]func(), h.Locks)
	errs := make(chan error, h.Callers)
	var next, failed atomic.Int64
	for range h.Callers {
		go func() {
			for i := next.Add(1) - 1; i < int64(h.Locks); i = next.Add(1) - 1 {
				lock := l.lock(fmt.Sprint("held-", i))
				if _, mayHang := l.(rueidislockLocker); mayHang {
					lock = inTime(lock)
				}
				release, err := lock(context.Background())
				for ; err != nil; release, err = lock(context.Background()) {
					failed.Add(1)
					if time.Now().After(until) {
						errs <- err
						return
					}
				}
				releases[i] = release
			}
			errs <- nil
		}()
	}
	var err error
	for range h.Callers {
		err = errors.Join(err, <-errs)
	}
	return releases, int(failed.Load()), err
}

// inTime gives up a try that takes too long: a wait of rueidislock may go on for ever on a free lock. A lock that was had is not
// ended with it.
func inTime(lock func(context.Context) (func(), error)) func(context.Context) (func(), error) {
	return func(ctx context.Context) (func(), error) {
		ctx, cancel := context.WithCancel(ctx)
		defer time.AfterFunc(Lease, cancel).Stop()
		return lock(ctx)
	}
}

// memoryInUse is the live heap and the goroutines' stacks.
func memoryInUse() int64 {
	for range 3 { // the first frees no pools, and stacks of ended goroutines go one cycle later
		runtime.GC()
		time.Sleep(20 * time.Millisecond)
	}
	var mem runtime.MemStats
	runtime.ReadMemStats(&mem)
	return int64(mem.HeapAlloc + mem.StackInuse)
}
