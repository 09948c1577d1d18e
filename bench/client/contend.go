package client

import (
	"context"
	"fmt"
	"math/rand/v2"
	"slices"
	"sync"
	"sync/atomic"
	"time"
)

// Contend is what Contend is told: contenders, each a client of its own, pass one lock among themselves. Each holds for
// Hold and asks again at once.
type Contend struct {
	Contenders int
	Slots      int // of a semaphore that they pass among themselves; 0 for a lock
	Reads      int // how many of ten acquisitions are of one who reads; 0 for a lock
	Names      int // that are taken as one; 0 for a lock
	Hold, For  time.Duration
}

// Contended is what that came to.
type Contended struct {
	P50, P99, Max time.Duration // from the call of a release to the return of the next acquisition
	WorstWait     time.Duration // of one acquisition, also of one that never got the lock
	Shares        []int         // acquisitions of each contender
	Requests      int64         // of all contenders to all nodes
	Elapsed       time.Duration
	Failed        int // waits that ended with an error
}

// contention is what the contenders see.
type contention struct {
	releasedAt atomic.Int64 // Unix time in ns

	mu        sync.Mutex
	handOvers histogram
	seen      Contended
}

func contend(lockers []locker, m *meter, c Contend) (Contended, error) {
	waits := make([]func(context.Context) (func(), error), len(lockers))
	for i, l := range lockers {
		var err error
		if waits[i], err = waiting(l, c); err != nil {
			return Contended{}, err
		}
	}
	ctx, cancel := context.WithTimeout(context.Background(), c.For)
	defer cancel()
	run := &contention{seen: Contended{Shares: make([]int, len(lockers))}}
	before, start := m.sent(), time.Now()
	var wg sync.WaitGroup
	for i, lock := range waits {
		wg.Go(func() { run.contend(ctx, i, lock, c.Hold) })
	}
	<-ctx.Done()
	elapsed, requests := time.Since(start), m.sent()-before
	wg.Wait()
	seen := run.seen
	seen.Elapsed, seen.Requests = elapsed, requests
	seen.P50, seen.P99, seen.Max = run.handOvers.quantile(0.5), run.handOvers.quantile(0.99), run.handOvers.quantile(1)
	slices.Sort(seen.Shares)
	return seen, nil
}

// waiting returns how one client waits for what is passed on.
func waiting(l locker, c Contend) (func(context.Context) (func(), error), error) {
	const name = "contended"
	switch {
	case c.Slots > 0:
		s, has := l.(slotter)
		if !has {
			return nil, errNoSemaphore
		}
		return s.slot(name, c.Slots), nil
	case c.Reads > 0:
		s, has := l.(readWriter)
		if !has {
			return nil, errNoReadWrite
		}
		read, write := s.readWrite(name)
		return func(ctx context.Context) (func(), error) {
			if rand.N(10) < c.Reads {
				return read(ctx)
			}
			return write(ctx)
		}, nil
	case c.Names > 0:
		s, has := l.(several)
		if !has {
			return nil, errNoSeveral
		}
		names := make([]string, c.Names)
		for i := range names {
			names[i] = fmt.Sprintf("%s:%02d", name, i)
		}
		return s.several(names), nil
	}
	return l.lock(name), nil
}

// contend takes the lock over and over until ctx ends.
func (run *contention) contend(ctx context.Context, i int, lock func(context.Context) (func(), error), hold time.Duration) {
	for ctx.Err() == nil {
		askedAt := time.Now()
		release, err := lock(ctx)
		now := time.Now()
		run.note(i, ctx, err, now, now.Sub(askedAt))
		if err != nil {
			continue
		}
		time.Sleep(hold)
		run.releasedAt.Store(time.Now().UnixNano())
		release()
	}
}

func (run *contention) note(i int, ctx context.Context, err error, now time.Time, waited time.Duration) {
	run.mu.Lock()
	defer run.mu.Unlock()
	run.seen.WorstWait = max(run.seen.WorstWait, waited)
	switch {
	case ctx.Err() != nil: // the end of the run
	case err != nil:
		run.seen.Failed++
	default:
		run.seen.Shares[i]++
		if at := run.releasedAt.Load(); at != 0 {
			run.handOvers.add(now.Sub(time.Unix(0, at)))
		}
	}
}
