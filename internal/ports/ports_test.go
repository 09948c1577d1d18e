package ports

import (
	"context"
	"net"
	"os/exec"
	"sync"
	"testing"

	"github.com/stretchr/testify/require"
)

// Every port is reserved while nobody listens on any, and no two are the same: with a thousand of some six thousand,
// drawn at random, about a tenth would be.
func TestReservedPortsAreNotGivenTwice(t *testing.T) {
	const many = 1000
	var mu sync.Mutex
	addrs := map[string]bool{}
	var all sync.WaitGroup
	for range many {
		all.Go(func() {
			p, err := Reserve()
			mu.Lock()
			defer mu.Unlock()
			if err == nil {
				addrs[p.Addr] = true
				t.Cleanup(p.Close)
			}
		})
	}
	all.Wait()
	require.Equal(t, many, len(addrs))
}

func TestReservedPortIsFree(t *testing.T) {
	p, err := Reserve()
	require.NoError(t, err)
	for range 2 { // and stays so
		l, err := net.Listen("tcp", p.Addr)
		require.NoError(t, err)
		require.NoError(t, l.Close())
	}
	p.Close()
	l, err := net.Listen("tcp", p.Addr)
	require.NoError(t, err)
	require.NoError(t, l.Close())
}

// While processes are started, as they are all the time where servers are.
func TestReservedPortIsFreeWhileProcessesStart(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	var starts sync.WaitGroup
	for range 4 {
		starts.Go(func() {
			for ctx.Err() == nil {
				_ = exec.Command("true").Run()
			}
		})
	}
	for range 200 {
		p, err := Reserve()
		require.NoError(t, err)
		l, err := net.Listen("tcp", p.Addr)
		require.NoError(t, err)
		require.NoError(t, l.Close())
		p.Close()
	}
	cancel()
	starts.Wait()
}
