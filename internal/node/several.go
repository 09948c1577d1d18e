package node

import (
	"time"

	"github.com/redis/rueidis"
)

// Obstacle is one of several names that a node does not give.
type Obstacle struct {
	Name    string
	Waiting bool // it is free, and somebody is before us in line
	Left    time.Duration
	Text    string // the value found, or who is before us
}

// severalHeader is how many values come before the obstacles in an answer of lua/several.lua.
const severalHeader = 7

// several is one step of a lock of several names: lua/several.lua.
func (w *wire) several(s *Delivery, verb, script string) rueidis.Completed {
	lock, ns := s.Lock, w.set
	var t texts
	t.Grow((len(ns.lockPrefix)+8)*len(lock.Names) + len(lock.Name) + 96)
	keys := make([]string, 0, len(lock.Names)+2)
	keys = append(keys, ns.markerKey)
	for _, name := range lock.Names {
		keys = append(keys, LockKey(ns.option.KeyPrefix, name))
	}
	args := make([]string, 0, len(lock.Names)+15)
	args = append(args, w.known.marker.raw, w.known.until, w.known.floor, w.known.longest, ns.boundMicros, ns.option.KeyPrefix, ns.wakePrefix, ns.wakeMillis)
	waiter := ""
	waits := s.Script == ScriptAcquire && lock.Waiter != nil
	if waits || s.Stay || s.Leave {
		waiter = *lock.Waiter
	}
	if waits || s.Stay {
		keys = append(keys, w.wakeKey(&t, lock))
	}
	notAfter, keep, token := w.notAfter(&t, s), t.millis(s.Keep), t.number(s.Token)
	switch s.Script {
	case ScriptAcquire:
		args = append(args, "acquire all", lock.Claim, notAfter, waiter, keep, token, "")
	case ScriptExtend:
		args = append(args, "extend all", lock.Claim, notAfter, waiter, keep, token, flag(s.MayWin))
	default:
		ticket := ""
		if s.Stay {
			ticket = ticketIn(lock.Claim)
		}
		args = append(args, "release all", lock.Claim, notAfter, waiter, keep, ticket, flag(s.Ended))
	}
	for _, name := range lock.Names {
		args = append(args, t.number(uint64(FenceBucket(name))))
	}
	return w.client.B().Arbitrary(verb).Args(script, t.number(uint64(len(keys)))).Args(keys...).Args(args...).Build()
}

// severalOf reads what a step of several names has returned.
func (n *Node) severalOf(a *Answer, s *Delivery, values []rueidis.RedisMessage) {
	if len(values) < severalHeader || (len(values)-severalHeader)%4 != 0 {
		a.disown(nil)
		return
	}
	own := []rueidis.RedisMessage{values[0], values[2], values[3]}
	switch s.Script {
	case ScriptAcquire:
		own = append(own, values[4])
	case ScriptRelease:
		own = []rueidis.RedisMessage{values[0], values[3]}
	case ScriptExtend:
		if differs, _ := values[5].ToString(); differs != "" {
			own = append(own, values[5])
		}
	}
	now, err := values[1].AsInt64()
	if err != nil {
		a.disown(err)
		return
	}
	ours, err := values[6].AsInt64()
	if err != nil {
		a.disown(err)
		return
	}
	if s.Script != ScriptRelease {
		n.clocked(a, now)
	}
	n.answerOf(a, s, own)
	a.Partial = ours > 0
	for rest := values[severalHeader:]; len(rest) > 0 && a.Code != CodeOK; rest = rest[4:] {
		name, err1 := rest[0].AsInt64()
		code, err2 := rest[1].AsInt64()
		left, err3 := rest[2].AsInt64()
		text, err4 := rest[3].ToString()
		if err1 != nil || err2 != nil || err3 != nil || err4 != nil || name < 1 || name > int64(len(s.Lock.Names)) {
			a.disown(nil)
			return
		}
		a.Obstacles = append(a.Obstacles, Obstacle{
			Name: s.Lock.Names[name-1], Waiting: code == CodeInLine, Left: time.Duration(left) * time.Millisecond, Text: text,
		})
	}
	if (a.Code == CodeHeld || a.Code == CodeInLine) && s.Script != ScriptRelease && len(a.Obstacles) == 0 && a.Err == nil {
		a.disown(nil)
	}
}
