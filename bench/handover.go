package bench

import (
	"context"
	"fmt"
	"sync"
	"sync/atomic"
	"time"
)

// Contention is a lock that processes pass among themselves: each contender is a client
// of its own, holds for Hold, and asks again at once.
type Contention struct {
	Nodes, Contenders int
	Hold              time.Duration
	Peers             []Peer
	Rounds            int
	Each              time.Duration // of one peer in one round
}

// HandOver is what one contention came to.
type HandOver struct {
	PerSecond     float64
	P50, P99, Max time.Duration // from the call of a release to the return of the next acquisition
	WorstWait     time.Duration // of one acquisition, also of one that never got the lock
	Fairness      float64       // fewest acquisitions of a contender / most
	Requests      float64       // sent by all contenders to all nodes, per hand-over
	Failed        int           // waits that ended with an error
}

// Run lets the peers contend in turn, round after round, and returns each one's median.
func (c Contention) Run() ([]HandOver, error) {
	results := make([][]HandOver, len(c.Peers))
	for round := range c.Rounds {
		for i := range c.Peers {
			i = (i + round) % len(c.Peers)
			h, err := c.once(c.Peers[i])
			if err != nil {
				return nil, fmt.Errorf("%s: %w", c.Peers[i].Name, err)
			}
			results[i] = append(results[i], h)
		}
	}
	medians := make([]HandOver, len(c.Peers))
	for i, r := range results {
		medians[i] = HandOver{
			PerSecond: medianOf(r, func(h HandOver) float64 { return h.PerSecond }),
			P50:       medianOf(r, func(h HandOver) time.Duration { return h.P50 }),
			P99:       medianOf(r, func(h HandOver) time.Duration { return h.P99 }),
			Max:       medianOf(r, func(h HandOver) time.Duration { return h.Max }),
			WorstWait: medianOf(r, func(h HandOver) time.Duration { return h.WorstWait }),
			Fairness:  medianOf(r, func(h HandOver) float64 { return h.Fairness }),
			Requests:  medianOf(r, func(h HandOver) float64 { return h.Requests }),
			Failed:    medianOf(r, func(h HandOver) int { return h.Failed }),
		}
	}
	return medians, nil
}

// once runs one peer on nodes of its own.
func (c Contention) once(p Peer) (HandOver, error) {
	nodes, err := StartNodes(c.Nodes)
	if err != nil {
		return HandOver{}, err
	}
	defer nodes.Close()
	var meter Meter
	locks := make([]func(context.Context) (func(), error), c.Contenders)
	for i := range locks {
		client, err := p.New(nodes.Options(&meter))
		if err != nil {
			return HandOver{}, err
		}
		defer client.Close()
		locks[i] = client.Lock("contended")
	}
	ctx, cancel := context.WithTimeout(context.Background(), c.Each)
	defer cancel()
	before, start := meter.Requests(), time.Now()
	var run contention
	run.shares = make([]int, c.Contenders)
	var wg sync.WaitGroup
	for i, lock := range locks {
		wg.Go(func() { run.contend(ctx, i, lock, c.Hold) })
	}
	<-ctx.Done()
	elapsed, requests := time.Since(start), meter.Requests()-before
	wg.Wait()
	return run.result(elapsed, requests), nil
}

// contention is what the contenders of one run see.
type contention struct {
	releasedAt atomic.Int64 // Unix time in ns

	mu        sync.Mutex
	handOvers Histogram
	worstWait time.Duration
	shares    []int
	failed    int
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
	run.worstWait = max(run.worstWait, waited)
	switch {
	case ctx.Err() != nil: // the end of the run
	case err != nil:
		run.failed++
	default:
		run.shares[i]++
		if at := run.releasedAt.Load(); at != 0 {
			run.handOvers.Add(now.Sub(time.Unix(0, at)))
		}
	}
}

func (run *contention) result(elapsed time.Duration, requests int64) HandOver {
	least, most, sum := run.shares[0], run.shares[0], 0
	for _, share := range run.shares {
		least, most, sum = min(least, share), max(most, share), sum+share
	}
	h := HandOver{
		PerSecond: float64(sum) / elapsed.Seconds(),
		P50:       run.handOvers.Quantile(0.5), P99: run.handOvers.Quantile(0.99), Max: run.handOvers.Quantile(1),
		WorstWait: run.worstWait,
		Failed:    run.failed,
	}
	if sum > 0 {
		h.Fairness = float64(least) / float64(most)
		h.Requests = float64(requests) / float64(sum)
	}
	return h
}
