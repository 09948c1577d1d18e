package redlock_test

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/redlock-go/redlock"
)

// Tokens of one name rise strictly from holder to holder: over outages of random minorities, so that each quorum is
// another one and counters stay behind, and over takeovers.
func TestFencingTokensRiseOver10000Acquisitions(t *testing.T) {
	t.Parallel()
	const clients, names, want = 4, 16, 10_000
	nodes := startNodes(t, 5)
	seed := uint64(time.Now().UnixNano())
	t.Logf("seed %d", seed)

	type client struct {
		l       *redlock.Locker
		outages func(*rand.Rand)
	}
	var all []client
	for range clients {
		options, links := proxied(t, nodes)
		all = append(all, client{
			l: newLocker(t, options, validity(time.Second), nodeTimeout(250*time.Millisecond)),
			outages: func(r *rand.Rand) {
				for _, link := range links {
					link.Accept()
				}
				for _, i := range r.Perm(5)[:r.IntN(3)] {
					links[i].Refuse()
					links[i].Reset()
				}
			},
		})
	}

	var mu sync.Mutex
	acquired, forced := 0, 0
	last := make(map[string]uint64)
	failures := make(map[bool]int) // by whether somebody else held it
	handedOut := make(map[string]map[uint64]bool)
	deadline := time.Now().Add(60 * time.Second)
	var wg sync.WaitGroup
	for i, c := range all {
		wg.Go(func() {
			random := rand.New(rand.NewPCG(seed, uint64(i)))
			for round := 0; ; round++ {
				if round%100 == 0 {
					c.outages(random)
				}
				name := fmt.Sprint("name ", random.IntN(names))
				acquire, force := c.l.TryAcquire, random.IntN(20) == 0
				switch {
				case !force:
				case random.IntN(4) == 0:
					acquire = c.l.ForceAcquire
				default:
					acquire = c.l.ForceAcquireNow
				}
				mu.Lock()
				before := last[name] // of everybody who held it before this call began
				mu.Unlock()
				g, err := acquire(context.Background(), name)
				if err != nil {
					mu.Lock()
					failures[errors.Is(err, redlock.ErrNotLocked)]++
					mu.Unlock()
					if !errors.Is(err, redlock.ErrNotLocked) {
						time.Sleep(10 * time.Millisecond) // until the nodes are back
					}
					round--
					if time.Now().After(deadline) {
						return
					}
					continue
				}
				mu.Lock()
				token := g.FencingToken()
				if token <= before || handedOut[name][token] {
					t.Errorf("%s: token %d after %d", name, token, before)
				}
				if handedOut[name] == nil {
					handedOut[name] = make(map[uint64]bool)
				}
				handedOut[name][token] = true
				last[name] = max(last[name], token)
				acquired++
				if force {
					forced++
				}
				enough := acquired >= want || t.Failed() || time.Now().After(deadline)
				mu.Unlock()
				if random.IntN(4) > 0 { // else it is taken over, or lost
					g.Release(context.Background())
				} else {
					go g.Release(context.Background())
				}
				if enough {
					return
				}
			}
		})
	}
	wg.Wait()
	t.Logf("%d acquisitions, %d of them by force; failures: %v", acquired, forced, failures)
	require.GreaterOrEqual(t, acquired, want)
	require.Positive(t, forced)
}
