package client

import (
	"context"
	"crypto/rand"
	"errors"
	"runtime"
	"slices"
	"sync"
	"time"

	"github.com/redis/rueidis"
)

// bareBatch is the least that a lock with pushes can do in batches: one script for what leaves a client together, of SET NX PX
// and of GET and DEL, with key tracking on. It has no fencing, line, marker, validity or renewal by name: held keys are renewed
// in the order in which they were taken, so many to a script, and nobody looks at the clock. What it costs no lock can save.
type bareBatch struct {
	prefix string
	nodes  []*bareNode
	quorum int

	mu   sync.Mutex
	held []bareStep
}

type bareNode struct {
	client rueidis.Client
	steps  chan bareStep
}

type bareStep struct {
	kind, key, owner string
	answer           chan<- error
}

// atOnce is how many steps a script has at the most, as redlock's.
const atOnce = 64

var bareScript = rueidis.NewLuaScript(`
local answers, k = {}, 1
for a = 2, #ARGV, 2 do
  local kind, owner, key = ARGV[a], ARGV[a + 1], KEYS[k]
  if kind == 'set' then
    answers[k] = redis.call('SET', key, owner, 'NX', 'PX', ARGV[1]) and 1 or 0
  elseif redis.call('GET', key) ~= owner then
    answers[k] = 0
  elseif kind == 'del' then
    answers[k] = redis.call('DEL', key)
  else
    answers[k] = redis.call('PEXPIRE', key, ARGV[1])
  end
  k = k + 1
end
return answers`)

func openBareBatch(prefix string, nodes []Node, m *meter) (locker, error) {
	b := &bareBatch{prefix: prefix, quorum: len(nodes)/2 + 1}
	for _, option := range rueidisOptions(nodes, m) {
		option.AlwaysPipelining = true
		option.ClientTrackingOptions = []string{"NOLOOP"}
		option.OnInvalidations = func([]rueidis.RedisMessage) {}
		client, err := rueidis.NewClient(option)
		if err != nil {
			return nil, err
		}
		n := &bareNode{client, make(chan bareStep, 4*atOnce)}
		b.nodes = append(b.nodes, n)
		go n.serve()
	}
	go b.renew()
	return b, nil
}

// serve sends what has come up meanwhile, whenever the answer to what came before is here.
func (n *bareNode) serve() {
	var batch []bareStep
	for first := range n.steps {
		batch = append(batch[:0], first)
		runtime.Gosched() // whoever is about to ask may
		for more := true; more && len(batch) < atOnce; {
			select {
			case s := <-n.steps:
				batch = append(batch, s)
			default:
				more = false
			}
		}
		n.send(batch)
	}
}

func (n *bareNode) send(batch []bareStep) {
	keys := make([]string, 0, len(batch))
	args := append(make([]string, 0, 1+2*len(batch)), leaseMillis)
	for _, s := range batch {
		keys = append(keys, s.key)
		args = append(args, s.kind, s.owner)
	}
	answers, err := bareScript.Exec(context.Background(), n.client, keys, args).AsIntSlice()
	for i, s := range batch {
		switch {
		case s.answer == nil: // a renewal
		case err == nil && answers[i] == 0:
			s.answer <- errNotOurs
		default:
			s.answer <- err
		}
	}
}

// do has all nodes do a step, and returns at the quorum.
func (b *bareBatch) do(kind, key, owner string) error {
	answers := make(chan error, len(b.nodes))
	for _, n := range b.nodes {
		n.steps <- bareStep{kind, key, owner, answers}
	}
	return quorumOf(answers, b.quorum, len(b.nodes))
}

func (b *bareBatch) pair(name string) func() error {
	key := b.prefix + ":" + name
	return func() error {
		owner := rand.Text()
		return errors.Join(b.do("set", key, owner), b.do("del", key, owner))
	}
}

func (b *bareBatch) lock(name string) func(context.Context) (func(), error) {
	key := b.prefix + ":" + name
	return func(context.Context) (func(), error) {
		owner := rand.Text()
		if err := b.do("set", key, owner); err != nil {
			return nil, errors.Join(err, b.do("del", key, owner))
		}
		b.mu.Lock()
		defer b.mu.Unlock()
		b.held = append(b.held, bareStep{kind: "pexpire", key: key, owner: owner})
		return func() { _ = b.do("del", key, owner) }, nil
	}
}

// renew renews all that is held once in an ExtendInterval, evenly spread.
func (b *bareBatch) renew() {
	for {
		b.mu.Lock()
		held := slices.Clip(b.held)
		b.mu.Unlock()
		scripts := len(held)/atOnce + 1
		start := time.Now()
		for i := range scripts {
			time.Sleep(time.Until(start.Add(ExtendInterval * time.Duration(i+1) / time.Duration(scripts))))
			for _, n := range b.nodes {
				n.send(held[i*atOnce : min(len(held), (i+1)*atOnce)])
			}
		}
	}
}
