package client

import (
	"context"
	mrand "math/rand/v2"
	"time"

	"github.com/go-redsync/redsync/v4"
	"github.com/go-redsync/redsync/v4/redis"
	redsyncgoredis "github.com/go-redsync/redsync/v4/redis/goredis/v9"
	redsyncrueidis "github.com/go-redsync/redsync/v4/redis/rueidis"
	"github.com/redis/rueidis"
	"github.com/redis/rueidis/rueidiscompat"
)

// redsyncLocker extends nothing by itself, so it is told no ExtendInterval.
type redsyncLocker struct {
	rs      *redsync.Redsync
	prefix  string
	options []redsync.Option
}

// eagerly has a waiter ask again soon.
var eagerly = redsync.WithRetryDelayFunc(func(int) time.Duration { return time.Millisecond + mrand.N(4*time.Millisecond) })

func rueidisPool(n Node, m *meter) (redis.Pool, error) {
	node, err := rueidis.NewClient(n.rueidis(m))
	if err != nil {
		return nil, err
	}
	return redsyncrueidis.NewPool(rueidiscompat.NewAdapter(node)), nil
}

func goRedisPool(n Node, m *meter) (redis.Pool, error) {
	return redsyncgoredis.NewPool(n.goRedis(m)), nil
}

func openRedsync(pool func(Node, *meter) (redis.Pool, error), options ...redsync.Option) func(string, []Node, *meter) (locker, error) {
	return func(prefix string, nodes []Node, m *meter) (locker, error) {
		var pools []redis.Pool
		for _, n := range nodes {
			p, err := pool(n, m)
			if err != nil {
				return nil, err
			}
			pools = append(pools, p)
		}
		options := append([]redsync.Option{redsync.WithExpiry(Lease), redsync.WithTries(1 << 30)}, options...)
		return redsyncLocker{redsync.New(pools...), prefix, options}, nil
	}
}

func (l redsyncLocker) mutex(name string) *redsync.Mutex {
	return l.rs.NewMutex(l.prefix+":"+name, l.options...)
}

func (l redsyncLocker) pair(name string) func() error {
	mutex := l.mutex(name)
	return func() error {
		if err := mutex.TryLock(); err != nil {
			return err
		}
		return unlock(mutex)
	}
}

func (l redsyncLocker) lock(name string) func(context.Context) (func(), error) {
	mutex := l.mutex(name)
	return func(ctx context.Context) (func(), error) {
		if err := mutex.LockContext(ctx); err != nil {
			return nil, err
		}
		return func() { _ = unlock(mutex) }, nil
	}
}

// unlock bounds what Unlock leaves to the client's own timeout, by what redsync gives its own acquisition.
func unlock(mutex *redsync.Mutex) error {
	ctx, cancel := context.WithTimeout(context.Background(), Lease/20)
	defer cancel()
	_, err := mutex.UnlockContext(ctx)
	return err
}
