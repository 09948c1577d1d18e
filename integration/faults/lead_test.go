package faults

import (
	"context"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/redlock-go/redlock"
	"github.com/redlock-go/redlock/integration/check"
	"github.com/redlock-go/redlock/internal/netproxy"
	"github.com/redlock-go/redlock/internal/redisproc"
)

// Three programs lead in turn, for ever, while the leader is cut off from its nodes again and again. Somebody leads soon
// after, never two at once by their own Err, and tokens rise. Told to end they hand over, and nothing is left behind.
func TestLeadersComeAndGo(t *testing.T) {
	t.Parallel()
	r := newRig(t, 5, redisproc.Options{})
	ctx, stop := context.WithCancel(context.Background())
	defer stop()
	type lead struct {
		*client
		ctx context.Context
	}
	leads := make(chan lead)
	var register check.Register
	var campaigns sync.WaitGroup
	for _, name := range []string{"a", "b", "c"} {
		c := r.client(name)
		campaigns.Go(func() {
			err := c.Lead(ctx, "lead", func(held context.Context) error {
				token, _ := redlock.FencingToken(held)
				register.Write(token)
				select {
				case leads <- lead{c, held}:
				case <-held.Done():
				}
				<-held.Done()
				return context.Cause(held)
			})
			assert.ErrorIs(t, err, context.Canceled)
			assert.NotErrorIs(t, err, redlock.ErrLost)
			assert.NotErrorIs(t, err, redlock.ErrNotReleased)
		})
	}
	next := func() lead {
		select {
		case l := <-leads:
			return l
		case <-time.After(lease + soon):
			require.FailNow(t, "nobody leads")
			return lead{}
		}
	}
	leader := next()
	for range 3 {
		leader.silence(netproxy.Both, 0, 1, 2, 3, 4)
		after := next()
		require.Error(t, leader.ctx.Err(), "two lead at once")
		require.ErrorIs(t, context.Cause(leader.ctx), redlock.ErrLost)
		leader.heal()
		leader = after
	}
	stop()
	campaigns.Wait()
	require.Empty(t, register.Violations())
	r.settle("lead")
}
