package client

import (
	"context"
	"crypto/rand"
	"errors"
	"strconv"

	"github.com/redis/rueidis"
)

// fanOut is the least that rueidis can do: a goroutine per node sends SET NX PX, and deletes when told to; the call
// returns at the quorum. It has no fencing, no validity, no extension, no pushes.
type fanOut struct {
	nodes  []rueidis.Client
	prefix string
	quorum int
}

var (
	fanOutDelete = rueidis.NewLuaScript(`if redis.call('GET', KEYS[1]) == ARGV[1] then return redis.call('DEL', KEYS[1]) end return 0`)
	leaseMillis  = strconv.FormatInt(Lease.Milliseconds(), 10)
	errNoQuorum  = errors.New("client: no quorum")
	errNotOurs   = errors.New("client: the key was not ours any more")
)

func openFanOut(prefix string, nodes []Node, m *meter) (locker, error) {
	f := fanOut{prefix: prefix, quorum: len(nodes)/2 + 1}
	for _, option := range rueidisOptions(nodes, m) {
		option.AlwaysPipelining = true
		node, err := rueidis.NewClient(option)
		if err != nil {
			return nil, err
		}
		f.nodes = append(f.nodes, node)
	}
	return f, nil
}

func (f fanOut) pair(name string) func() error {
	ctx, key := context.Background(), []string{f.prefix + ":" + name}
	return func() error {
		owner := rand.Text()
		votes := make(chan error, len(f.nodes))
		gone := make(chan error, len(f.nodes))
		over := make(chan struct{})
		for _, node := range f.nodes {
			go func() { // one for both steps: they must not arrive the other way round
				votes <- node.Do(ctx, node.B().Set().Key(key[0]).Value(owner).Nx().Px(Lease).Build()).Error()
				<-over
				n, err := fanOutDelete.Exec(ctx, node, key, []string{owner}).AsInt64()
				if err == nil && n == 0 {
					err = errNotOurs
				}
				gone <- err
			}()
		}
		err := quorumOf(votes, f.quorum, len(f.nodes))
		close(over)
		return errors.Join(err, quorumOf(gone, f.quorum, len(f.nodes)))
	}
}

// quorumOf waits until a quorum of n has agreed, or cannot any more.
func quorumOf(answers <-chan error, quorum, n int) error {
	yes, no := 0, 0
	for {
		if <-answers == nil {
			yes++
		} else {
			no++
		}
		switch {
		case yes == quorum:
			return nil
		case no > n-quorum:
			return errNoQuorum
		}
	}
}

func (f fanOut) lock(string) func(context.Context) (func(), error) {
	return func(context.Context) (func(), error) { return nil, errors.New("client: a fan-out cannot wait") }
}
