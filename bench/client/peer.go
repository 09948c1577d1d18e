// Package client is what a worker process does: it locks with one peer, and says what that took. It knows nothing of
// redlock but what every user knows, so that it can be built with any commit of it.
package client

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"time"
)

// Lease and ExtendInterval are the same for every peer that knows them.
const (
	Lease          = 10 * time.Second
	ExtendInterval = Lease / 3
)

// Setup says who locks where.
type Setup struct {
	Peer    string // one of Peers
	Prefix  string // of the keys; peers that take turns on the same nodes do not meet
	Nodes   []Node
	Meter   bool   // count requests
	Profile string // file for a CPU profile of the whole life; "" for none
}

// peer is a way to lock.
type peer struct {
	// prepare does once what a set of nodes needs before its first client; nil for nothing.
	prepare func(prefix string, nodes []Node) error
	open    func(prefix string, nodes []Node, m *meter) (locker, error)
}

// locker is one program's client of a peer.
type locker interface {
	// pair returns what acquires name, which must be free, and releases it. It is called by one goroutine at a time.
	pair(name string) func() error
	// lock returns what waits for name and returns how to release it. An error once ctx has ended is the end of the
	// benchmark.
	lock(name string) func(ctx context.Context) (release func(), err error)
}

// The peers. Those of redsync are named by the driver; "eager" asks again after 1 to 5 ms, not 50 to 250.
var peers = map[string]peer{
	"redlock":         {prepareRedlock, openRedlock},
	"fan-out":         {nil, openFanOut},
	"bare/batch":      {nil, openBareBatch(false)},
	"bare/fenced":     {nil, openBareBatch(true)},
	"redsync/rueidis": {nil, openRedsync(rueidisPool)},
	"redsync/goredis": {nil, openRedsync(goRedisPool)},
	"redsync/eager":   {nil, openRedsync(rueidisPool, eagerly)},
	"rueidislock/1":   {nil, openRueidislock(1)},
	"rueidislock/5":   {nil, openRueidislock(3)},
	"bsm/redislock":   {nil, openRedislock},
	"redlock/plain":   {prepareRedlock, openPlainRedlock},
	"redisson/script": {nil, openScripts(forms{semaphore: permitOfCounter, readWrite: modeOfHash})},
	"madelson/script": {nil, openScripts(forms{semaphore: memberOfSet})},
	"bare/script":     {nil, openScripts(forms{several: keysAtOnce})},
}

func peerNamed(name string) (peer, error) {
	p, ok := peers[name]
	if !ok {
		return p, fmt.Errorf("client: no peer %q, there are %q", name, slices.Sorted(maps.Keys(peers)))
	}
	return p, nil
}
