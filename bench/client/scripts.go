package client

import (
	"context"
	"errors"
	mrand "math/rand/v2"
	"time"

	"github.com/redis/rueidis"
)

// scripts are primitives of one server, as bare as their scripts: nothing is renewed, nobody is told of a loss. Commands are not
// ended with the run: rueidis would take the end of its time for a lost connection.
type scripts struct {
	client rueidis.Client
	prefix string
	forms
}

// forms are the primitives that somebody's scripts have; nil for what they have not.
type forms struct {
	semaphore func(s scripts, key string, k int) func(context.Context) (func(), error)
	readWrite func(s scripts, key string) (read, write func(context.Context) (func(), error))
	several   func(s scripts, keys []string) func(context.Context) (func(), error)
}

func openScripts(f forms) func(string, []Node, *meter) (locker, error) {
	return func(prefix string, nodes []Node, m *meter) (locker, error) {
		client, err := rueidis.NewClient(nodes[0].rueidis(m))
		return scripts{client, prefix, f}, err
	}
}

var errNoLock = errors.New("client: these scripts have no plain lock")

func (s scripts) pair(string) func() error { return func() error { return errNoLock } }

func (s scripts) lock(string) func(context.Context) (func(), error) { return failing(errNoLock) }

func failing(err error) func(context.Context) (func(), error) {
	return func(context.Context) (func(), error) { return nil, err }
}

// subscribe returns what is signalled by each message of a channel, for as long as the process lives.
func (s scripts) subscribe(channel string) (woken chan struct{}, err error) {
	woken = make(chan struct{}, 1)
	subscribed, _ := s.client.Dedicate()
	subscribed.SetPubSubHooks(rueidis.PubSubHooks{OnMessage: func(rueidis.PubSubMessage) {
		select {
		case woken <- struct{}{}:
		default:
		}
	}})
	return woken, subscribed.Do(context.Background(), subscribed.B().Subscribe().Channel(channel).Build()).Error()
}

// soon waits for 1 to 5 ms.
func soon(ctx context.Context) error {
	select {
	case <-ctx.Done():
		return ctx.Err()
	case <-time.After(time.Millisecond + mrand.N(4*time.Millisecond)):
		return nil
	}
}
