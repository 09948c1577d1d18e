package redlock

import (
	"strings"

	"github.com/redis/rueidis"
)

// invalidated takes what a node pushed. It runs on the reader of that node's connection: it hands the keys over,
// never waits, and takes any bytes for a key. A push names a key and not its value, and may come before the answer it
// belongs to; nil means that the node was flushed or the connection went.
func (l *Locker) invalidated(n *node, keys []rueidis.RedisMessage) {
	if keys == nil {
		n.lookAgain()
		l.lookEverywhere(n)
		return
	}
	for i := range keys {
		key, err := keys[i].ToString()
		switch {
		case err != nil:
		case key == l.markerKey:
			n.lookAgain()
		case strings.HasPrefix(key, l.wakePrefix):
			l.wake(key[len(l.wakePrefix):], n.index)
		default:
			l.keyPushed(n, key)
		}
	}
}

// keyPushed hands a pushed key to the guards it concerns. Who waits is not woken by it, but by a key of its own.
func (l *Locker) keyPushed(n *node, key string) {
	name, ok := l.nameOf(key)
	if !ok {
		return
	}
	for _, g := range l.guardsOf(name) {
		g.pushed(n.index)
	}
}

// nameOf returns the name whose lock key is key.
func (l *Locker) nameOf(key string) (string, bool) {
	head := len(l.option.KeyPrefix) + len(":{")
	if len(key) <= head+1 || key[:head] != l.option.KeyPrefix+":{" || key[len(key)-1] != '}' {
		return "", false
	}
	return key[head : len(key)-1], true
}

// lookEverywhere has every guard look at a node that was flushed, disconnected, or is back: votes there are unknown,
// and nothing there is tracked any more.
func (l *Locker) lookEverywhere(n *node) {
	for _, g := range l.openGuards() {
		g.lookAgain(n.index)
	}
}

// distrust takes the votes of a node whose clock is off from every guard.
func (l *Locker) distrust(node int) {
	for _, g := range l.openGuards() {
		g.distrust(node)
	}
}
