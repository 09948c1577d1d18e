package bench

import (
	"context"
	"fmt"
	"runtime"
	"sync"
	"sync/atomic"
	"time"
)

// Holding is Locks locks held by one client that does nothing else.
type Holding struct {
	Nodes, Locks int
	Each         time.Duration // observed; ExtendInterval or a multiple says most
}

// HoldCost is what the locks cost while they are held.
type HoldCost struct {
	Goroutines int
	Memory     float64 // heap and stacks, bytes per lock
	Requests   float64 // per second and node
	CPU        float64 // of this process, share of one core
}

// Run holds the locks with one peer.
func (h Holding) Run(p Peer) (HoldCost, error) {
	nodes, err := StartNodes(h.Nodes)
	if err != nil {
		return HoldCost{}, err
	}
	defer nodes.Close()
	var meter Meter
	c, err := p.New(nodes.Options(&meter))
	if err != nil {
		return HoldCost{}, err
	}
	defer c.Close()
	if err := warmUp(c); err != nil {
		return HoldCost{}, err
	}

	goroutines, memory := runtime.NumGoroutine(), memoryInUse()
	releases, err := h.acquire(c)
	defer h.release(releases)
	if err != nil {
		return HoldCost{}, err
	}
	time.Sleep(200 * time.Millisecond) // what acquiring left behind ends
	cost := HoldCost{
		Goroutines: runtime.NumGoroutine() - goroutines,
		Memory:     float64(memoryInUse()-memory) / float64(h.Locks),
	}
	requests, cpu, start := meter.Requests(), CPUTime(), time.Now()
	time.Sleep(h.Each)
	seconds := time.Since(start).Seconds()
	cost.Requests = float64(meter.Requests()-requests) / seconds / float64(h.Nodes)
	cost.CPU = (CPUTime() - cpu).Seconds() / seconds
	return cost, nil
}

func warmUp(c Client) error {
	release, err := c.Lock("warm-up")(context.Background())
	if err == nil {
		release()
	}
	return err
}

const holders = 32 // goroutines that acquire and release the locks

// acquire takes all locks, and returns what releases those it got.
func (h Holding) acquire(c Client) ([]func(), error) {
	var next, failed atomic.Int64
	var firstErr atomic.Value
	releases := make([]func(), h.Locks)
	var wg sync.WaitGroup
	for range holders {
		wg.Go(func() {
			for i := next.Add(1) - 1; i < int64(h.Locks); i = next.Add(1) - 1 {
				release, err := c.Lock(fmt.Sprint("held-", i))(context.Background())
				if err != nil {
					failed.Add(1)
					firstErr.CompareAndSwap(nil, err.Error())
					continue
				}
				releases[i] = release
			}
		})
	}
	wg.Wait()
	if n := failed.Load(); n > 0 {
		return releases, fmt.Errorf("%d of %d locks could not be had, the first: %v", n, h.Locks, firstErr.Load())
	}
	return releases, nil
}

func (h Holding) release(releases []func()) {
	var next atomic.Int64
	var wg sync.WaitGroup
	for range holders {
		wg.Go(func() {
			for i := next.Add(1) - 1; i < int64(len(releases)); i = next.Add(1) - 1 {
				if releases[i] != nil {
					releases[i]()
				}
			}
		})
	}
	wg.Wait()
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
