package bench

import (
	"context"
	"crypto/rand"
	"errors"
	mrand "math/rand/v2"
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
	BareQuorum    = Peer{Name: "bare fan-out, quorum", New: newBare(bareAcquire, false)}
	BareAll       = Peer{Name: "bare fan-out, all", New: newBare(bareAcquire, true)}
	BareFenced    = Peer{Name: "bare fan-out, quorum, INCR", New: newBare(bareFenced, false)}
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
	acquire, release string // digests
	need             int    // answers to wait for
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

func newBare(script string, waitForAll bool) func([]rueidis.ClientOption) (Client, error) {
	return func(nodes []rueidis.ClientOption) (Client, error) {
		c := &bareClient{need: len(nodes)/2 + 1}
		if waitForAll {
			c.need = len(nodes)
		}
		ctx := context.Background()
		for _, option := range nodes {
			option.AlwaysPipelining = true
			node, err := rueidis.NewClient(option)
			if err != nil {
				c.Close()
				return nil, err
			}
			c.nodes = append(c.nodes, node)
			c.acquire, err = node.Do(ctx, node.B().ScriptLoad().Script(script).Build()).ToString()
			if err == nil {
				c.release, err = node.Do(ctx, node.B().ScriptLoad().Script(bareRelease).Build()).ToString()
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
				votes <- node.Do(ctx, node.B().Evalsha().Sha1(c.acquire).Numkeys(1).Key(name).Arg(owner, bareLease).Build()).Error()
				<-over
				n, err := node.Do(ctx, node.B().Evalsha().Sha1(c.release).Numkeys(1).Key(name).Arg(owner).Build()).AsInt64()
				if err == nil && n == 0 {
					err = errNotOurs
				}
				gone <- err
			}()
		}
		err := c.await(votes)
		close(over)
		return errors.Join(err, c.await(gone))
	}
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
