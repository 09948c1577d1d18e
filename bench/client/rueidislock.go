package client

import (
	"context"

	"github.com/redis/rueidis/rueidislock"
)

type rueidislockLocker struct{ rueidislock.Locker }

// openRueidislock makes a Locker of 2·majority − 1 keys on the one node.
func openRueidislock(majority int32) func(string, []Node, *meter) (locker, error) {
	return func(prefix string, nodes []Node, m *meter) (locker, error) {
		l, err := rueidislock.NewLocker(rueidislock.LockerOption{
			ClientOption: nodes[0].rueidis(m), KeyPrefix: prefix, KeyMajority: majority, NoLoopTracking: true,
			KeyValidity: Lease, ExtendInterval: ExtendInterval,
		})
		return rueidislockLocker{l}, err
	}
}

func (l rueidislockLocker) pair(name string) func() error {
	ctx := context.Background()
	return func() error {
		_, cancel, err := l.TryWithContext(ctx, name)
		if err != nil {
			return err
		}
		cancel()
		return nil
	}
}

func (l rueidislockLocker) lock(name string) func(context.Context) (func(), error) {
	return func(ctx context.Context) (func(), error) {
		_, cancel, err := l.WithContext(ctx, name)
		return cancel, err
	}
}
