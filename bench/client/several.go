package client

import (
	"context"
	"crypto/rand"
	"errors"

	"github.com/redis/rueidis"

	"github.com/redlock-go/redlock"
)

// several is a client that takes several names as one lock.
type several interface {
	// several returns what waits for all the names, which are sorted, and returns how to release them.
	several(names []string) func(ctx context.Context) (release func(), err error)
}

var errNoSeveral = errors.New("client: this peer has no lock of several names")

// several of redlock is its own.
func (l redlockLocker) several(names []string) func(context.Context) (func(), error) {
	return releasing(func(ctx context.Context, opts ...redlock.HoldOption) (*redlock.Guard, error) {
		return l.AcquireAll(ctx, names, opts...)
	})
}

// several of those that have locks of one name alone is one after the other, in order: callers that hold and wait would else block
// each other.
func (l plainRedlock) several(names []string) func(context.Context) (func(), error) {
	return oneByOne(l, names)
}

func (l redsyncLocker) several(names []string) func(context.Context) (func(), error) {
	return oneByOne(l, names)
}

func oneByOne(l locker, names []string) func(context.Context) (func(), error) {
	var locks []func(context.Context) (func(), error)
	for _, name := range names {
		locks = append(locks, l.lock(name))
	}
	return func(ctx context.Context) (func(), error) {
		var releases []func()
		releaseAll := func() {
			for _, release := range releases {
				release()
			}
		}
		for _, lock := range locks {
			release, err := lock(ctx)
			if err != nil {
				releaseAll()
				return nil, err
			}
			releases = append(releases, release)
		}
		return releaseAll, nil
	}
}

func (s scripts) several(names []string) func(context.Context) (func(), error) {
	if s.forms.several == nil {
		return failing(errNoSeveral)
	}
	keys := make([]string, len(names))
	for i, name := range names {
		keys[i] = s.prefix + ":" + name
	}
	return s.forms.several(s, keys)
}

// The barest form: one script that sets all keys or none. Who is refused asks again after 1 to 5 ms.
var (
	takeAll = rueidis.NewLuaScript(`
if redis.call('EXISTS', unpack(KEYS)) > 0 then return 0 end
for i = 1, #KEYS do redis.call('SET', KEYS[i], ARGV[1], 'PX', ARGV[2]) end
return 1`)
	giveAll = rueidis.NewLuaScript(`
for i = 1, #KEYS do
  if redis.call('GET', KEYS[i]) == ARGV[1] then redis.call('DEL', KEYS[i]) end
end
return 1`)
)

func keysAtOnce(s scripts, keys []string) func(context.Context) (func(), error) {
	return func(ctx context.Context) (func(), error) {
		holder := rand.Text()
		for {
			taken, err := takeAll.Exec(context.WithoutCancel(ctx), s.client, keys, []string{holder, leaseMillis}).AsInt64()
			if err != nil {
				return nil, err
			}
			if taken == 1 {
				return func() { giveAll.Exec(context.WithoutCancel(ctx), s.client, keys, []string{holder}) }, nil
			}
			if err := soon(ctx); err != nil {
				return nil, err
			}
		}
	}
}
