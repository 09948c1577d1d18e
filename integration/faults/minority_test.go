package faults

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/redlock-go/redlock"
	"github.com/redlock-go/redlock/internal/netproxy"
)

// program is one of several that take something over and over.
type program struct {
	acquire func(context.Context, ...redlock.HoldOption) (*redlock.Guard, error)
	hold    func(*redlock.Guard) (release *redlock.Guard) // what is to be released may be another guard
}

// overAMinority has programs work for a while, and where the machine is busy until they have done enough, and waits for them: each must be
// served whenever it asks. Meanwhile nodes are killed, restarted empty, stopped and cut off, never more than a minority at a time.
func (r *rig) overAMinority(programs int, length, frozen time.Duration, enough func() bool, start func(i int, c *client) program) {
	r.t.Helper()
	var clients []*client
	for i := range programs {
		clients = append(clients, r.client(fmt.Sprint("c", i)))
	}
	end := time.Now().Add(length)
	var wg sync.WaitGroup
	for i, c := range clients {
		p := start(i, c)
		wg.Go(func() {
			for now := time.Now(); now.Before(end) || now.Before(end.Add(3*soon)) && !enough(); now = time.Now() {
				ctx, cancel := context.WithTimeout(context.Background(), 30*time.Second)
				g, err := p.acquire(ctx)
				cancel()
				if errors.Is(err, redlock.ErrNoQuorum) { // two of five are ill, and on a busy machine a third is slow: it asks again
					continue
				}
				if err != nil {
					r.t.Error(err)
					return
				}
				err = p.hold(g).Release(context.Background())
				if err != nil && !errors.Is(err, redlock.ErrLost) && !errors.Is(err, redlock.ErrNoQuorum) {
					r.t.Error(err)
				}
			}
		})
	}
	time.Sleep(time.Second)
	require.NoError(r.t, r.nodes[0].Kill())
	clients[0].silence(netproxy.Both, 1)
	time.Sleep(2 * time.Second)
	require.NoError(r.t, r.nodes[0].CrashEmpty())
	clients[0].heal()
	time.Sleep(3 * time.Second) // behind its quarantine
	require.NoError(r.t, r.nodes[1].Freeze())
	r.do(r.nodes[2], "FLUSHALL")
	time.Sleep(frozen)
	require.NoError(r.t, r.nodes[1].Thaw())
	wg.Wait()
}
