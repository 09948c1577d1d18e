package client

import (
	"context"
	"time"

	"github.com/bsm/redislock"
)

type redislockLocker struct {
	*redislock.Client
	prefix string
}

// openRedislock makes a client of bsm/redislock, over go-redis.
func openRedislock(prefix string, nodes []Node, m *meter) (locker, error) {
	return redislockLocker{redislock.New(nodes[0].goRedis(m)), prefix}, nil
}

func (l redislockLocker) pair(name string) func() error {
	ctx, key := context.Background(), l.prefix+":"+name
	return func() error {
		lock, err := l.Obtain(ctx, key, Lease, nil)
		if err != nil {
			return err
		}
		return lock.Release(ctx)
	}
}

func (l redislockLocker) lock(name string) func(context.Context) (func(), error) {
	key := l.prefix + ":" + name
	return func(ctx context.Context) (func(), error) {
		lock, err := l.Obtain(ctx, key, Lease, &redislock.Options{RetryStrategy: redislock.LinearBackoff(3 * time.Millisecond)})
		if err != nil {
			return nil, err
		}
		return func() { _ = lock.Release(context.WithoutCancel(ctx)) }, nil
	}
}
