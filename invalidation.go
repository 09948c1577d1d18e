package redlock

import (
	"strings"

	"github.com/redlock-go/redlock/internal/node"
)

// pushed takes a key that a node pushed. It runs on the reader of that node's connection, as flushed does: it hands the key
// over and never waits. A push names a key and not its value, and may come before the answer it belongs to.
func (l *Locker) pushed(node int, key string) {
	if strings.HasPrefix(key, l.wakePrefix) {
		l.wake(key[len(l.wakePrefix):], node)
		return
	}
	l.keyPushed(node, key)
}

// flushed takes that a node was flushed, or its connection went.
func (l *Locker) flushed(node int) {
	for _, g := range l.openGuards() {
		g.flushed(node)
	}
}

// keyPushed hands a pushed key to the guards it concerns. Who waits is not woken by it, but by a key of its own.
func (l *Locker) keyPushed(i int, key string) {
	name, slot, ok := node.ParseLock(l.option.KeyPrefix, key)
	if !ok {
		return
	}
	for _, g := range l.guardsOf(subjectOf(name, 0, slot)) {
		if int(g.life.slot) == slot && (slot != node.Reader || strings.HasSuffix(key, g.life.owner)) || g.isHinderedBy(slot) {
			g.pushed(i)
		}
	}
}
