package gocronlock

import (
	"context"
	"errors"
	"fmt"
	"sync/atomic"

	"github.com/go-co-op/gocron/v2"

	"github.com/redlock-go/redlock"
)

// ErrNotLeader is why a job is not run here.
var ErrNotLeader = errors.New("gocronlock: this program does not lead")

// Elector is a gocron.Elector: of the programs with one name for theirs, one leads, and runs all jobs. It campaigns until Close.
type Elector struct {
	lead atomic.Pointer[context.Context] // of the lead, nil while there is none
	stop context.CancelFunc
	done chan struct{}
}

var _ gocron.Elector = (*Elector)(nil)

// NewElector begins to campaign under a lock's name, for gocron.WithDistributedElector. After the loss of the lead, by a
// network that is cut off or by redlock's ForceAcquire, it campaigns again.
func NewElector(locker *redlock.Locker, name string, options ...redlock.HoldOption) *Elector {
	ctx, stop := context.WithCancel(context.Background())
	e := &Elector{stop: stop, done: make(chan struct{})}
	go func() {
		defer close(e.done)
		locker.Lead(ctx, name, func(lead context.Context) error { // ends with ctx, or with the Locker
			e.lead.Store(&lead)
			defer e.lead.Store(nil)
			<-lead.Done()
			return nil
		}, options...)
	}()
	return e
}

// IsLeader returns nil while this program leads, or an error that matches ErrNotLeader. It asks nobody, and looks at the
// clock: a program that was paused for longer than its lease finds that out by itself.
func (e *Elector) IsLeader(context.Context) error {
	lead := e.Context()
	if lead.Err() == nil {
		return nil
	}
	if cause := context.Cause(lead); !errors.Is(cause, ErrNotLeader) {
		return fmt.Errorf("%w: %w", ErrNotLeader, cause)
	}
	return ErrNotLeader
}

// Context returns the context of this program's lead: it ends with that, and redlock.FencingToken finds the lead's token in
// it. While this program does not lead it has ended already.
func (e *Elector) Context() context.Context {
	if lead := e.lead.Load(); lead != nil {
		return *lead
	}
	ended, cancel := context.WithCancelCause(context.Background())
	cancel(ErrNotLeader)
	return ended
}

// Close ends the campaign, and the lead where this program has it: the next in line leads at once. So shut the scheduler
// down before, which waits for its jobs. It may be called more than once.
func (e *Elector) Close() {
	e.stop()
	<-e.done
}
