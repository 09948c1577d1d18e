package client

import (
	"context"
	"time"

	"github.com/redlock-go/redlock"
)

type redlockLocker struct{ *redlock.Locker }

// openRedlock makes a Locker with everything on but the quarantine of brand-new nodes.
func openRedlock(prefix string, nodes []Node, m *meter) (locker, error) {
	l, err := newRedlock(prefix, nodes, m, Lease)
	return redlockLocker{l}, err
}

func newRedlock(prefix string, nodes []Node, m *meter, lease time.Duration) (*redlock.Locker, error) {
	return redlock.NewLocker(redlock.LockerOption{
		Nodes: rueidisOptions(nodes, m), KeyPrefix: prefix,
		KeyValidity: lease, ExtendInterval: lease / 3, RestartQuarantine: -1,
	})
}

// prepareRedlock takes nodes through what redlock does once in a node's life: one that has just been adopted starts its
// fencing tokens a lease above its clock, and until that time has come each grant costs it a second write. A short lease
// makes that short; then the nodes are told of the real one.
func prepareRedlock(prefix string, nodes []Node) error {
	const short = 500 * time.Millisecond // long beside the round trip to the slowest node
	l, err := newRedlock(prefix, nodes, nil, short)
	if err != nil {
		return err
	}
	defer l.Close()
	ctx, cancel := context.WithTimeout(context.Background(), Lease)
	defer cancel()
	g, err := l.Acquire(ctx, "adopted")
	if err != nil {
		return err
	}
	_ = g.Release(ctx) // a busy machine may have lost it meanwhile, which does not matter
	time.Sleep(2 * short)
	return l.SetNodes(ctx, redlock.NodeSet{LongestLease: Lease})
}

func (l redlockLocker) pair(name string) func() error {
	ctx := context.Background()
	return func() error {
		g, err := l.TryAcquire(ctx, name)
		if err != nil {
			return err
		}
		return g.Release(ctx)
	}
}

// lock asks for the guard's context, too, as those who work with a lock do.
func (l redlockLocker) lock(name string) func(context.Context) (func(), error) {
	return releasing(func(ctx context.Context, opts ...redlock.HoldOption) (*redlock.Guard, error) {
		g, err := l.Acquire(ctx, name, opts...)
		if err == nil {
			g.Context()
		}
		return g, err
	})
}

// releasing returns what acquires, and returns how to release.
func releasing(acquire func(context.Context, ...redlock.HoldOption) (*redlock.Guard, error)) func(context.Context) (func(), error) {
	return func(ctx context.Context) (func(), error) {
		g, err := acquire(ctx)
		if err != nil {
			return nil, err
		}
		return func() { _ = g.Release(context.Background()) }, nil
	}
}

// plainRedlock has redlock's locks of one name, and nothing that is made of them.
type plainRedlock struct{ locker }

func openPlainRedlock(prefix string, nodes []Node, m *meter) (locker, error) {
	l, err := openRedlock(prefix, nodes, m)
	return plainRedlock{l}, err
}
