package client

import (
	"context"
	"crypto/rand"
	"errors"
	"hash/fnv"
	"runtime"
	"slices"
	"strconv"
	"sync"
	"time"

	"github.com/redis/rueidis"
)

// bareBatch is the least that a lock with pushes can do in batches: one script for what leaves a client together, of SET NX PX,
// of GETEX, which tracks nothing, and DEL, and of one read of all keys, which has them tracked. It has no fencing, line, marker,
// validity or renewal by name: held keys are renewed in the order in which they were taken, so many to a script, and nobody looks
// at the clock. What it costs no lock can save.
//
// Fenced, it is the least that a lock with redlock's promises can do: a fencing token that rises, a node that has lost its memory or is
// another process refuses, what arrives late does nothing, a bad key fails its own step alone, and whoever waits is before us.
type bareBatch struct {
	prefix string
	fenced bool
	nodes  []*bareNode
	quorum int

	mu   sync.Mutex
	held []bareStep
}

type bareNode struct {
	of     *bareBatch
	client rueidis.Client
	steps  chan bareStep
}

type bareStep struct {
	kind, key, owner, fence string
	answer                  chan<- error
}

// marker is as long as redlock's.
const marker = "0123456789012345678901234567890123456789:0:0:10000:5:0123456789:again:off"

// atOnce is how many steps a script has at the most, as redlock's.
const atOnce = 64

var bareScript = rueidis.NewLuaScript(`
local answers, k = {}, 1
for a = 2, #ARGV, 2 do
  local kind, owner, key = ARGV[a], ARGV[a + 1], KEYS[k]
  if kind == 'set' then
    answers[k] = redis.call('SET', key, owner, 'NX', 'PX', ARGV[1]) and 1 or 0
  elseif redis.call('GETEX', key) ~= owner then
    answers[k] = 0
  elseif kind == 'del' then
    answers[k] = redis.call('DEL', key)
  else
    answers[k] = redis.call('PEXPIRE', key, ARGV[1])
  end
  k = k + 1
end
redis.call('EXISTS', unpack(KEYS))
return answers`)

var fencedScript = rueidis.NewLuaScript(`
local t = redis.call('TIME')
local now = t[1] * 1000000 + t[2]
local same = redis.call('GETEX', KEYS[1]) == ARGV[1]
local waiting = redis.call('SETRANGE', ARGV[2], 0, '') > 0
local lease = ARGV[3]

local function set(key, owner, token, notAfter, fence)
  if not same or now > tonumber(notAfter) or waiting then return 0 end
  if not redis.call('SET', key, owner, 'NX', 'PX', lease) then return 0 end
  local last = redis.call('SET', fence, token, 'GET')
  if last and tonumber(last) >= tonumber(token) then
    token = string.format('%.0f', last + 1)
    redis.call('SET', fence, token)
  end
  return token
end

local function del(key, owner)
  if redis.call('GETEX', key) ~= owner then return 0 end
  return redis.call('DEL', key)
end

local answers, n, a, k = {}, 1, 4, 2
while a < #ARGV do
  local done, answer
  if ARGV[a] == 'set' then
    done, answer = pcall(set, KEYS[k], ARGV[a + 1], ARGV[a + 2], ARGV[a + 3], ARGV[a + 4])
    k, a = k + 1, a + 5
  else
    done, answer = pcall(del, ARGV[a + 2], ARGV[a + 1])
    a = a + 3
  end
  answers[n] = done and answer or 0
  n = n + 1
end
redis.call('EXISTS', unpack(KEYS))
return answers`)

// fence is which of its counters fences a name, as redlock's are: by hash.
func (b *bareBatch) fence(name string) string {
	h := fnv.New32a()
	h.Write([]byte(name))
	return b.prefix + ":fence:" + strconv.Itoa(int(h.Sum32()&0xffff))
}

func openBareBatch(fenced bool) func(string, []Node, *meter) (locker, error) {
	return func(prefix string, nodes []Node, m *meter) (locker, error) {
		return newBareBatch(prefix, fenced, nodes, m)
	}
}

func newBareBatch(prefix string, fenced bool, nodes []Node, m *meter) (locker, error) {
	b := &bareBatch{prefix: prefix, fenced: fenced, quorum: len(nodes)/2 + 1}
	for _, option := range rueidisOptions(nodes, m) {
		option.AlwaysPipelining = true
		option.ClientTrackingOptions = []string{"NOLOOP"}
		option.OnInvalidations = func([]rueidis.RedisMessage) {}
		client, err := rueidis.NewClient(option)
		if err != nil {
			return nil, err
		}
		n := &bareNode{b, client, make(chan bareStep, 4*atOnce)}
		if err := client.Do(context.Background(), client.B().Set().Key(prefix+":marker").Value(marker).Build()).Error(); err != nil {
			return nil, err
		}
		b.nodes = append(b.nodes, n)
		go n.serve()
	}
	if !fenced {
		go b.renew()
	}
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
	if len(batch) == 0 { // nothing is held
		return
	}
	if n.of.fenced {
		n.sendFenced(batch)
		return
	}
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

func (n *bareNode) sendFenced(batch []bareStep) {
	now := time.Now()
	notAfter := strconv.FormatInt(now.Add(time.Second).UnixMicro(), 10)
	keys := append(make([]string, 0, 1+len(batch)), n.of.prefix+":marker")
	args := append(make([]string, 0, 3+5*len(batch)), marker, n.of.prefix+":wake", leaseMillis)
	for _, s := range batch {
		if s.kind == "set" {
			keys = append(keys, s.key)
			args = append(args, s.kind, s.owner, strconv.FormatInt(now.UnixMicro(), 10), notAfter, s.fence)
		} else {
			args = append(args, s.kind, s.owner, s.key)
		}
	}
	answers, err := fencedScript.Exec(context.Background(), n.client, keys, args).ToArray()
	for i, s := range batch {
		e := err
		if e == nil {
			if token, bad := answers[i].AsInt64(); bad != nil || token == 0 {
				e = errNotOurs
			}
		}
		s.answer <- e
	}
}

// do has all nodes do a step, and returns at the quorum.
func (b *bareBatch) do(kind, key, owner string) error {
	answers := make(chan error, len(b.nodes))
	fence := ""
	if b.fenced && kind == "set" {
		fence = b.fence(key)
	}
	for _, n := range b.nodes {
		n.steps <- bareStep{kind, key, owner, fence, answers}
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
		if b.fenced {
			return nil, errors.New("client: bare/fenced renews nothing")
		}
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
