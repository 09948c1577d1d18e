package faults

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"

	"github.com/redlock-go/redlock"
	"github.com/redlock-go/redlock/integration/check"
	"github.com/redlock-go/redlock/internal/netproxy"
	"github.com/redlock-go/redlock/internal/redisproc"
)

// Row 40: 1 to 200 contenders, all served, one at a time. Not parallel: it needs the processors.
func TestRow40Contenders(t *testing.T) {
	for _, contenders := range []int{1, 10, 200} {
		t.Run(fmt.Sprint(contenders), func(t *testing.T) {
			r := newRig(t, 5, redisproc.Options{})
			var clients []*client
			for i := range min(contenders, 20) {
				clients = append(clients, r.client(fmt.Sprint("c", i)))
			}
			var register check.Register
			r.all("CONFIG", "RESETSTAT")
			start := time.Now()
			var wg sync.WaitGroup
			ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
			defer cancel()
			for i := range contenders {
				wg.Go(func() {
					c := clients[i%len(clients)]
					g, err := r.history.Acquire(ctx, c.name, c.Acquire, "held")
					if err != nil {
						t.Errorf("contender %d: %v", i, err)
						return
					}
					if g.Err() == nil && !register.Write(g.FencingToken()) {
						t.Error("a holder was refused")
					}
					// On a busy machine a lock may end, and a release stay unconfirmed; settle finds what is left behind.
					err = r.history.Release(context.Background(), g)
					if err != nil && !errors.Is(err, redlock.ErrLost) && !errors.Is(err, redlock.ErrNoQuorum) {
						t.Error(err)
					}
				})
			}
			wg.Wait()
			took := time.Since(start)
			calls := 0
			for _, n := range r.nodes {
				calls += commandCalls(t, n, "evalsha")
			}
			t.Logf("%d contenders in %v, %d scripts per acquisition", contenders, took, calls/contenders)
			require.Empty(t, register.Violations())
			r.settle("held")
		})
	}
}

func commandCalls(t *testing.T, n *redisproc.Node, command string) (calls int) {
	t.Helper()
	text := infoField(t, n, "commandstats", "cmdstat_"+command)
	_, err := fmt.Sscanf(text, "calls=%d,", &calls)
	require.NoError(t, err)
	return calls
}

// Row 40: who is first in line dies, waiting; and so does who holds. The others are served within a lease and the
// time in which the dead are passed over.
func TestRow40DyingHead(t *testing.T) {
	t.Parallel()
	r := newRig(t, 5, redisproc.Options{})
	holder, head := r.client("holder"), r.client("head")
	g := holder.mustTry("held")
	dying, die := context.WithCancel(context.Background())
	dead := make(chan struct{})
	go func() {
		defer close(dead)
		if g, err := head.take(dying, head.Acquire, "held"); err == nil {
			r.history.Release(context.Background(), g)
		}
	}()
	r.waiters(holder, "held", 1)
	var wg sync.WaitGroup
	var served atomic.Int32
	for i := range 6 {
		c := r.client(fmt.Sprint("c", i))
		wg.Go(func() {
			ctx, cancel := context.WithTimeout(context.Background(), 3*lease+soon)
			defer cancel()
			g, err := c.take(ctx, c.Acquire, "held")
			if err != nil {
				t.Errorf("%s: %v", c.name, err)
				return
			}
			served.Add(1)
			r.history.Release(context.Background(), g)
		})
	}
	r.waiters(holder, "held", 7)
	head.silence(netproxy.Both, 0, 1, 2, 3, 4)
	holder.silence(netproxy.Both, 0, 1, 2, 3, 4)
	start := time.Now()
	wg.Wait()
	t.Logf("all served %v after holder and head died", time.Since(start))
	require.EqualValues(t, 6, served.Load())
	require.Error(t, g.Err())
	die()
	<-dead
	head.heal()
	holder.heal()
	r.settle("held")
}

// Row 43: contexts that end at every point of an acquisition, over a network with some latency; no lock is left
// behind, and no goroutine.
func TestRow43CancelledAtEachPoint(t *testing.T) {
	running := goleak.IgnoreCurrent()
	t.Run("cancelled", func(t *testing.T) {
		r := newRig(t, 5, redisproc.Options{})
		a, b := r.client("a"), r.client("b")
		for i, l := range append(a.links, b.links...) {
			l.Delay(netproxy.Both, time.Duration(1+i%5)*time.Millisecond, nil)
		}
		random := rand.New(rand.NewPCG(1, 2))
		got, ended := 0, 0
		for i := range 150 {
			ctx, cancel := context.WithTimeout(context.Background(), time.Duration(random.Int64N(int64(25*time.Millisecond))))
			c := []*client{a, b}[i%2]
			acquire := []check.Acquirer{c.Acquire, c.TryAcquire, c.ForceAcquire}[i%3]
			g, err := c.take(ctx, acquire, "held")
			switch {
			case err == nil:
				got++
				if i%4 < 2 {
					r.history.Release(ctx, g) // on a context that may have ended
				} else {
					cancel() // the guard form outlives its context
					require.NoError(t, g.Err())
					r.release(g)
				}
			case errors.Is(err, context.DeadlineExceeded):
				ended++
			}
			cancel()
		}
		require.Positive(t, got)
		require.Positive(t, ended)
		t.Logf("%d got, %d ended by their context", got, ended)
		r.settle("held")
	})
	t.Run("parent of the trio", func(t *testing.T) {
		r := newRig(t, 5, redisproc.Options{})
		a := r.client("a")
		ctx, cancel := context.WithCancel(context.Background())
		held, release, err := a.WithContext(ctx, "held")
		require.NoError(t, err)
		cancel()
		require.ErrorIs(t, held.Err(), context.Canceled)
		r.eventually("released in the background", func() bool { return r.storing("held") == 0 })
		release()
		release()
		r.settle("held")
	})
	t.Run("Close", func(t *testing.T) {
		r := newRig(t, 5, redisproc.Options{})
		a, b := r.client("a"), r.client("b")
		g := a.mustTry("held")
		waiting := make(chan error)
		go func() {
			_, err := a.Acquire(context.Background(), "held")
			waiting <- err
		}()
		time.Sleep(lease / 20)
		start := time.Now()
		a.Close()
		t.Logf("closed in %v", time.Since(start))
		require.ErrorIs(t, <-waiting, redlock.ErrLockerClosed)
		require.ErrorIs(t, g.Err(), redlock.ErrLockerClosed)
		r.release(b.mustTry("held"))

		// With nobody there to hear it, Close is bounded and the leases do the rest.
		g = b.mustTry("held")
		b.silence(netproxy.Both, 0, 1, 2, 3, 4)
		start = time.Now()
		b.Close()
		require.Less(t, time.Since(start), soon)
		require.ErrorIs(t, g.Err(), redlock.ErrLockerClosed)
		r.settle("held")
	})
	goleak.VerifyNone(t, running)
}
