package bench

import (
	"context"
	"crypto/rand"
	"errors"
	mrand "math/rand/v2"
	"os"
	"path/filepath"
	"runtime"
	"strconv"
	"time"

	"github.com/go-redsync/redsync/v4"
	"github.com/go-redsync/redsync/v4/redis"
	redsyncrueidis "github.com/go-redsync/redsync/v4/redis/rueidis"
	"github.com/redis/rueidis"
	"github.com/redis/rueidis/rueidiscompat"
	"github.com/redis/rueidis/rueidislock"

	"github.com/redlock-go/redlock"
)

// Lease and ExtendInterval are the same for every peer that knows them.
const (
	Lease          = 10 * time.Second
	ExtendInterval = Lease / 3
)

// Peer is a way to lock.
type Peer struct {
	Name      string
	OneServer bool // it knows no independent nodes
	New       func(nodes []rueidis.ClientOption) (Client, error)
}

// Client is one process's client of a peer.
type Client interface {
	// Pair returns what acquires name, which must be free, and releases it. It is
	// called by one goroutine at a time.
	Pair(name string) func() error
	// Lock returns what waits for name and returns how to release it. An error once
	// ctx has ended is the end of the benchmark.
	Lock(name string) func(ctx context.Context) (release func(), err error)
	Close()
}

// The peers. Redsync's constructor takes no ExtendInterval as it extends nothing by
// itself.
var (
	Redlock       = Peer{Name: "redlock", New: newRedlock}
	BareQuorum    = Peer{Name: "bare fan-out, quorum", New: newBare(plainWork(bareAcquire), false)}
	BareAll       = Peer{Name: "bare fan-out, all", New: newBare(plainWork(bareAcquire), true)}
	BareFenced    = Peer{Name: "bare fan-out, quorum, INCR", New: newBare(plainWork(bareFenced), false)}
	BareOurs      = Peer{Name: "bare fan-out, our scripts", New: newBare(ourWork, false)}
	Redsync       = Peer{Name: "redsync", New: newRedsync()}
	RedsyncFast   = Peer{Name: "redsync, WithFailFast", New: newRedsync(redsync.WithFailFast(true))}
	RedsyncEager  = Peer{Name: "redsync, delay 1–5 ms", New: newRedsync(redsync.WithRetryDelayFunc(eagerly))}
	Rueidislock   = Peer{Name: "rueidislock, 1 key", OneServer: true, New: newRueidislock(1)}
	Rueidislock2  = Peer{Name: "rueidislock, 3 keys (default)", OneServer: true, New: newRueidislock(2)}
	errNoQuorum   = errors.New("bench: no quorum")
	errNotOurs    = errors.New("bench: the key was not ours any more")
	unlockTimeout = Lease / 20 // what redsync gives its own acquisition
)

type redlockClient struct{ l *redlock.Locker }

// newRedlock makes a Locker with everything on but the quarantine of brand-new nodes.
func newRedlock(nodes []rueidis.ClientOption) (Client, error) {
	l, err := redlock.NewLocker(redlock.LockerOption{Nodes: nodes, KeyValidity: Lease, ExtendInterval: ExtendInterval, RestartQuarantine: -1})
	if err != nil {
		return nil, err
	}
	return redlockClient{l}, nil
}

func (c redlockClient) Pair(name string) func() error {
	ctx := context.Background()
	return func() error {
		g, err := c.l.TryAcquire(ctx, name)
		if err != nil {
			return err
		}
		return g.Release(ctx)
	}
}

func (c redlockClient) Lock(name string) func(context.Context) (func(), error) {
	return func(ctx context.Context) (func(), error) {
		g, err := c.l.Acquire(ctx, name)
		if err != nil {
			return nil, err
		}
		return func() { _ = g.Release(ctx) }, nil
	}
}

func (c redlockClient) Close() { c.l.Close() }

// bareClient is the least that rueidis can do: a goroutine per node that acquires, and
// releases when told to. It has no fencing, no validity, no extension, no pushes.
type bareClient struct {
	nodes            []rueidis.Client
	work             work
	acquire, release string // digests
	need             int    // answers to wait for
}

// work is what a fan-out has the nodes do: two scripts, and what they are told.
type work struct {
	acquire, release         string
	acquireArgs, releaseArgs func(name, owner string) []string // from the number of keys on
	prepare                  []string                          // a command for every node, first of all
	tracked                  bool                              // the nodes push what is written to the keys
}

// plainWork sets a key and deletes it.
func plainWork(acquire string) func() (work, error) {
	return func() (work, error) {
		return work{
			acquire: acquire, release: bareRelease,
			acquireArgs: func(name, owner string) []string { return []string{"1", name, owner, bareLease} },
			releaseArgs: func(name, owner string) []string { return []string{"1", name, owner} },
		}, nil
	}
}

// ourWork runs redlock's own scripts, fencing, tracking and all, so that the two differ in how the nodes are spoken to
// and in what the client does, and in nothing that the servers do.
func ourWork() (work, error) {
	_, file, _, _ := runtime.Caller(0)
	lua := filepath.Join(filepath.Dir(file), "..", "lua")
	acquire, err := os.ReadFile(filepath.Join(lua, "acquire.lua"))
	if err != nil {
		return work{}, err
	}
	release, err := os.ReadFile(filepath.Join(lua, "release.lua"))
	if err != nil {
		return work{}, err
	}
	const marker = "0123456789abcdef0123456789abcdef01234567:0:0:10000:3:X:again:off"
	return work{
		acquire: string(acquire), release: string(release),
		prepare: []string{"SET", "ours:marker", marker}, tracked: true,
		acquireArgs: func(name, owner string) []string {
			return []string{"2", "ours:{" + name + "}", "ours:marker",
				owner, bareLease, strconv.FormatInt(time.Now().UnixMicro(), 10), "9007199254740991", "ours:fence:" + name,
				marker, "0", "0", "10000", "500000", "0", "ours:queue:{" + name + "}", "ours:wake:", "", "0", "1800"}
		},
		releaseArgs: func(name, owner string) []string {
			return []string{"1", "ours:{" + name + "}", owner, "ours:wake:", "1800", "", "", "1", "0", "ours:queue:{" + name + "}"}
		},
	}, nil
}

const (
	bareAcquire = `return redis.call('SET', KEYS[1], ARGV[1], 'NX', 'PX', ARGV[2])`
	// bareFenced does what fencing and pushes need at least: a counter, the node's clock
	// and a last read. As it stands it hands out tokens twice.
	bareFenced = `
local now = redis.call('TIME')
local token = redis.call('INCR', 'fence:' .. KEYS[1])
local granted = redis.call('SET', KEYS[1], ARGV[1], 'NX', 'PX', ARGV[2])
redis.call('GET', KEYS[1])
return granted and {token, now[1], now[2]}`
	bareRelease = `if redis.call('GET', KEYS[1]) == ARGV[1] then return redis.call('DEL', KEYS[1]) end return 0`
)

func newBare(newWork func() (work, error), waitForAll bool) func([]rueidis.ClientOption) (Client, error) {
	return func(nodes []rueidis.ClientOption) (Client, error) {
		c := &bareClient{need: len(nodes)/2 + 1}
		var err error
		if c.work, err = newWork(); err != nil {
			return nil, err
		}
		if waitForAll {
			c.need = len(nodes)
		}
		ctx := context.Background()
		for _, option := range nodes {
			option.AlwaysPipelining = true
			if c.work.tracked {
				option.ClientTrackingOptions = []string{"OPTOUT", "NOLOOP"}
			}
			node, err := rueidis.NewClient(option)
			if err != nil {
				c.Close()
				return nil, err
			}
			c.nodes = append(c.nodes, node)
			c.acquire, err = node.Do(ctx, node.B().ScriptLoad().Script(c.work.acquire).Build()).ToString()
			if err == nil {
				c.release, err = node.Do(ctx, node.B().ScriptLoad().Script(c.work.release).Build()).ToString()
			}
			if err == nil && c.work.prepare != nil {
				err = node.Do(ctx, node.B().Arbitrary(c.work.prepare...).Build()).Error()
			}
			if err != nil {
				c.Close()
				return nil, err
			}
		}
		return c, nil
	}
}

var bareLease = strconv.FormatInt(Lease.Milliseconds(), 10)

func (c *bareClient) Pair(name string) func() error {
	ctx := context.Background()
	return func() error {
		owner := rand.Text()
		votes := make(chan error, len(c.nodes))
		gone := make(chan error, len(c.nodes))
		over := make(chan struct{})
		for _, node := range c.nodes {
			go func() { // one for both steps: they must not arrive the other way round
				votes <- granted(node.Do(ctx, node.B().Arbitrary("EVALSHA", c.acquire).Args(c.work.acquireArgs(name, owner)...).Build()))
				<-over
				gone <- granted(node.Do(ctx, node.B().Arbitrary("EVALSHA", c.release).Args(c.work.releaseArgs(name, owner)...).Build()))
			}()
		}
		err := c.await(votes)
		close(over)
		return errors.Join(err, c.await(gone))
	}
}

// granted reads a script's answer: OK, a number, or an array that begins with a code or a token; nil and anything below
// 1 are a no.
func granted(r rueidis.RedisResult) error {
	m, err := r.ToMessage()
	if err != nil {
		return err
	}
	if m.IsArray() {
		values, err := m.ToArray()
		if err != nil {
			return err
		}
		m = values[0]
	}
	if m.IsInt64() {
		if n, err := m.AsInt64(); err != nil || n < 1 {
			return errors.Join(err, errNotOurs)
		}
	}
	return nil
}

func (c *bareClient) await(answers <-chan error) error {
	yes, no := 0, 0
	for range c.nodes {
		if <-answers == nil {
			yes++
		} else {
			no++
		}
		switch {
		case yes == c.need:
			return nil
		case no > len(c.nodes)/2:
			return errNoQuorum
		}
	}
	if yes <= len(c.nodes)/2 {
		return errNoQuorum
	}
	return nil
}

func (c *bareClient) Lock(string) func(context.Context) (func(), error) {
	panic("bench: the bare fan-out does not wait")
}

func (c *bareClient) Close() {
	for _, node := range c.nodes {
		node.Close()
	}
}

type redsyncClient struct {
	nodes   []rueidis.Client
	rs      *redsync.Redsync
	options []redsync.Option
}

func newRedsync(options ...redsync.Option) func([]rueidis.ClientOption) (Client, error) {
	return func(nodes []rueidis.ClientOption) (Client, error) {
		c := &redsyncClient{options: append([]redsync.Option{redsync.WithExpiry(Lease), redsync.WithTries(1 << 30)}, options...)}
		var pools []redis.Pool
		for _, option := range nodes {
			node, err := rueidis.NewClient(option)
			if err != nil {
				c.Close()
				return nil, err
			}
			c.nodes = append(c.nodes, node)
			pools = append(pools, redsyncrueidis.NewPool(rueidiscompat.NewAdapter(node)))
		}
		c.rs = redsync.New(pools...)
		return c, nil
	}
}

func eagerly(int) time.Duration { return time.Millisecond + mrand.N(4*time.Millisecond) }

func (c *redsyncClient) Pair(name string) func() error {
	mutex := c.rs.NewMutex(name, c.options...)
	return func() error {
		if err := mutex.TryLock(); err != nil {
			return err
		}
		return unlock(mutex)
	}
}

func (c *redsyncClient) Lock(name string) func(context.Context) (func(), error) {
	mutex := c.rs.NewMutex(name, c.options...)
	return func(ctx context.Context) (func(), error) {
		if err := mutex.LockContext(ctx); err != nil {
			return nil, err
		}
		return func() { _ = unlock(mutex) }, nil
	}
}

// unlock bounds what Unlock leaves to the client's own timeout: 10 s with a silent node.
func unlock(mutex *redsync.Mutex) error {
	ctx, cancel := context.WithTimeout(context.Background(), unlockTimeout)
	defer cancel()
	_, err := mutex.UnlockContext(ctx)
	return err
}

func (c *redsyncClient) Close() {
	for _, node := range c.nodes {
		node.Close()
	}
}

type rueidislockClient struct{ l rueidislock.Locker }

func newRueidislock(majority int32) func([]rueidis.ClientOption) (Client, error) {
	return func(nodes []rueidis.ClientOption) (Client, error) {
		l, err := rueidislock.NewLocker(rueidislock.LockerOption{
			ClientOption: nodes[0], KeyMajority: majority, NoLoopTracking: true,
			KeyValidity: Lease, ExtendInterval: ExtendInterval,
		})
		if err != nil {
			return nil, err
		}
		return rueidislockClient{l}, nil
	}
}

func (c rueidislockClient) Pair(name string) func() error {
	ctx := context.Background()
	return func() error {
		_, cancel, err := c.l.TryWithContext(ctx, name)
		if err != nil {
			return err
		}
		cancel()
		return nil
	}
}

func (c rueidislockClient) Lock(name string) func(context.Context) (func(), error) {
	return func(ctx context.Context) (func(), error) {
		_, cancel, err := c.l.WithContext(ctx, name)
		return cancel, err
	}
}

func (c rueidislockClient) Close() { c.l.Close() }
