package client

import (
	"context"
	"crypto/rand"
	"errors"

	"github.com/redis/rueidis"
)

// readWriter is a client that has a reader-writer lock.
type readWriter interface {
	// readWrite returns what waits to read and what waits to write name; both return how to release it.
	readWrite(name string) (read, write func(ctx context.Context) (release func(), err error))
}

var errNoReadWrite = errors.New("client: this peer has no reader-writer lock")

// readWrite of redlock is its own.
func (l redlockLocker) readWrite(name string) (read, write func(context.Context) (func(), error)) {
	rw := l.RW(name)
	return releasing(rw.Read), releasing(rw.Write)
}

// readWrite of those that have locks alone is a lock: readers keep each other out.
func (l plainRedlock) readWrite(name string) (read, write func(context.Context) (func(), error)) {
	return l.lock(name), l.lock(name)
}

func (l redsyncLocker) readWrite(name string) (read, write func(context.Context) (func(), error)) {
	return l.lock(name), l.lock(name)
}

func (s scripts) readWrite(name string) (read, write func(context.Context) (func(), error)) {
	if s.forms.readWrite == nil {
		return failing(errNoReadWrite), failing(errNoReadWrite)
	}
	return s.forms.readWrite(s, s.prefix+":"+name)
}

// The form of Redisson's RReadWriteLock: a hash of the mode and of who holds it. Who is refused waits until a release is published,
// and all that wait ask again; nobody is in line, and writers wait for as long as readers come.
var (
	takeToRead = rueidis.NewLuaScript(`
local mode = redis.call('HGET', KEYS[1], 'mode')
if mode and mode ~= 'read' then return 0 end
redis.call('HSET', KEYS[1], 'mode', 'read', ARGV[1], 1)
redis.call('SET', KEYS[1] .. ':' .. ARGV[1], 1, 'PX', ARGV[2])
redis.call('PEXPIRE', KEYS[1], ARGV[2])
return 1`)
	takeToWrite = rueidis.NewLuaScript(`
if redis.call('EXISTS', KEYS[1]) == 1 then return 0 end
redis.call('HSET', KEYS[1], 'mode', 'write', ARGV[1], 1)
redis.call('PEXPIRE', KEYS[1], ARGV[2])
return 1`)
	giveBack = rueidis.NewLuaScript(`
if redis.call('HDEL', KEYS[1], ARGV[1]) == 0 then return 0 end
redis.call('DEL', KEYS[1] .. ':' .. ARGV[1])
if redis.call('HLEN', KEYS[1]) == 1 then
  redis.call('DEL', KEYS[1])
  redis.call('PUBLISH', KEYS[2], 0)
end
return 1`)
)

func modeOfHash(s scripts, key string) (read, write func(context.Context) (func(), error)) {
	keys := []string{key, key + ":channel"}
	woken, err := s.subscribe(keys[1])
	if err != nil {
		return failing(err), failing(err)
	}
	by := func(script *rueidis.Lua) func(context.Context) (func(), error) {
		return func(ctx context.Context) (func(), error) {
			holder := rand.Text()
			for {
				taken, err := script.Exec(context.WithoutCancel(ctx), s.client, keys, []string{holder, leaseMillis}).AsInt64()
				if err != nil {
					return nil, err
				}
				if taken == 1 {
					return func() { giveBack.Exec(context.WithoutCancel(ctx), s.client, keys, []string{holder}) }, nil
				}
				select {
				case <-woken:
				case <-ctx.Done():
					return nil, ctx.Err()
				}
			}
		}
	}
	return by(takeToRead), by(takeToWrite)
}
