package client

import (
	"context"
	"crypto/rand"
	"errors"
	mrand "math/rand/v2"
	"strconv"
	"time"

	"github.com/redis/rueidis"
)

// slotter is a client that has a semaphore.
type slotter interface {
	// slot returns what waits for one of k slots of name and returns how to release it.
	slot(name string, k int) func(ctx context.Context) (release func(), err error)
}

var errNoSemaphore = errors.New("client: this peer has no semaphore")

// slot of redlock is its semaphore.
func (l redlockLocker) slot(name string, k int) func(context.Context) (func(), error) {
	semaphore := l.Semaphore(name, k)
	return releasing(semaphore.Acquire)
}

// slot of redsync is what people build of it: a mutex for each slot, tried in turn from one that chance says, and all of them again
// after 1 to 5 ms.
func (l redsyncLocker) slot(name string, k int) func(context.Context) (func(), error) {
	mutex := func(slot int) string { return name + ":" + strconv.Itoa(slot) }
	return func(ctx context.Context) (func(), error) {
		for {
			first := mrand.N(k)
			for i := range k {
				m := l.mutex(mutex((first + i) % k))
				if m.TryLockContext(ctx) == nil {
					return func() { _ = unlock(m) }, nil
				}
			}
			if err := soon(ctx); err != nil {
				return nil, err
			}
		}
	}
}

// slot of scripts is their form of a semaphore.
func (s scripts) slot(name string, k int) func(context.Context) (func(), error) {
	if s.semaphore == nil {
		return failing(errNoSemaphore)
	}
	return s.semaphore(s, s.prefix+":"+name, k)
}

// The form of distributed-lock-redis, and of madelson's DistributedLock: a sorted set of holders by the end of their leases, by the
// server's clock. Who finds it full asks again; here after 1 to 5 ms, there after 10 to 800 ms.
var (
	takeMember = rueidis.NewLuaScript(`
local time = redis.call('TIME')
local now = time[1] * 1000 + time[2] / 1000
redis.call('ZREMRANGEBYSCORE', KEYS[1], '-inf', now)
if redis.call('ZCARD', KEYS[1]) >= tonumber(ARGV[1]) then return 0 end
redis.call('ZADD', KEYS[1], now + ARGV[3], ARGV[2])
if redis.call('PTTL', KEYS[1]) < 3 * ARGV[3] then redis.call('PEXPIRE', KEYS[1], 3 * ARGV[3]) end
return 1`)
)

func memberOfSet(s scripts, key string, k int) func(context.Context) (func(), error) {
	return func(ctx context.Context) (func(), error) {
		holder := rand.Text()
		for {
			taken, err := takeMember.Exec(context.WithoutCancel(ctx), s.client, []string{key}, []string{strconv.Itoa(k), holder, leaseMillis}).AsInt64()
			if err != nil {
				return nil, err
			}
			if taken == 1 {
				return func() {
					s.client.Do(context.WithoutCancel(ctx), s.client.B().Zrem().Key(key).Member(holder).Build())
				}, nil
			}
			if err := soon(ctx); err != nil {
				return nil, err
			}
		}
	}
}

// The form of Redisson's RPermitExpirableSemaphore: a counter of free permits, and a sorted set of those given out by the end of
// their leases, by the client's clock. Who finds none waits until a release is published, and all that wait ask again; the counter
// is set once, which here is part of asking.
var (
	takePermit = rueidis.NewLuaScript(`
redis.call('SET', KEYS[1], ARGV[1], 'NX')
local over = redis.call('ZRANGEBYSCORE', KEYS[2], 0, ARGV[3], 'LIMIT', 0, 1)
if #over > 0 then
  redis.call('ZREM', KEYS[2], unpack(over))
  if redis.call('INCRBY', KEYS[1], #over) > 0 then redis.call('PUBLISH', KEYS[3], 1) end
end
if tonumber(redis.call('GET', KEYS[1])) < 1 then return 0 end
redis.call('DECRBY', KEYS[1], 1)
redis.call('ZADD', KEYS[2], ARGV[4], ARGV[2])
return 1`)
	givePermit = rueidis.NewLuaScript(`
if redis.call('ZREM', KEYS[2], ARGV[1]) ~= 1 then return 0 end
redis.call('PUBLISH', KEYS[3], redis.call('INCRBY', KEYS[1], 1))
return 1`)
)

func permitOfCounter(s scripts, key string, k int) func(context.Context) (func(), error) {
	keys := []string{key, key + ":timeout", key + ":channel"}
	woken, err := s.subscribe(keys[2])
	if err != nil {
		return failing(err)
	}
	return func(ctx context.Context) (func(), error) {
		permit := rand.Text()
		for {
			now := time.Now().UnixMilli()
			ends := strconv.FormatInt(now+Lease.Milliseconds(), 10)
			taken, err := takePermit.Exec(context.WithoutCancel(ctx), s.client, keys, []string{strconv.Itoa(k), permit, strconv.FormatInt(now, 10), ends}).AsInt64()
			if err != nil {
				return nil, err
			}
			if taken == 1 {
				return func() { givePermit.Exec(context.WithoutCancel(ctx), s.client, keys, []string{permit}) }, nil
			}
			select {
			case <-woken:
			case <-ctx.Done():
				return nil, ctx.Err()
			}
		}
	}
}
