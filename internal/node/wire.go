package node

import (
	"errors"
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/redis/rueidis"

	"github.com/redlock-go/redlock/internal/roster"
)

// wire spells out what is sent in one call. A script gets "not after" in the node's own time, so that a step does nothing
// when it arrives late: no ghost votes.
type wire struct {
	set    *Set
	client rueidis.Client
	known  *identity
	off    Offset

	touched int // what touch has returned, or the compiler might leave the reads out
}

// texts holds the arguments of a script that are put together for it, one behind the other.
type texts struct{ strings.Builder }

func (t *texts) join(parts ...string) string {
	from := t.Len()
	for _, part := range parts {
		t.WriteString(part)
	}
	return t.String()[from:]
}

func (t *texts) number(n uint64) string {
	var digits [20]byte
	from := t.Len()
	t.Write(strconv.AppendUint(digits[:0], n, 10))
	return t.String()[from:]
}

func (t *texts) millis(d time.Duration) string { return t.number(uint64(d.Milliseconds())) }

// notAfter is the instant after which a step does nothing, in the node's time; "0" for no such limit.
func (w *wire) notAfter(t *texts, s *Delivery) string {
	if s.NotAfter == 0 {
		return "0"
	}
	return t.number(uint64(max(0, (s.NotAfter + w.off.Hi).Microseconds())))
}

func (w *wire) lockKey(t *texts, lock *Lock) string {
	switch lock.Slot {
	case 0:
		if lock.Key != "" {
			return lock.Key
		}
		return t.join(w.set.lockPrefix, lock.Name, "}")
	case Gate:
		return t.join(w.set.slotPrefix, lock.Name, "}", gate)
	case Writer:
		return t.join(w.set.rwPrefix, lock.Name, "}")
	case Reader:
		return t.join(w.set.rwPrefix, lock.Name, "}", lock.Claim[:idLength])
	}
	return t.join(w.set.slotPrefix, lock.Name, "}", strconv.Itoa(int(lock.Slot)))
}

func (w *wire) wakeKey(t *texts, lock *Lock) string { return t.join(w.set.wakePrefix, *lock.Waiter) }

// step is one step in a script of its own: lua/*_alone.lua.
func (w *wire) step(s *Delivery, verb, script string) rueidis.Completed {
	if s.Lock.Names != nil {
		return w.several(s, verb, script)
	}
	lock, ns := s.Lock, w.set
	var t texts
	t.Grow(3*len(ns.queuePrefix) + 2*len(lock.Name) + 96)
	key, notAfter, kind := w.lockKey(&t, lock), w.notAfter(&t, s), lock.kind()
	b := w.client.B().Arbitrary(verb).Args(script)
	waiter := "" // unless it stands in line there, or is to
	switch s.Script {
	case ScriptAcquire:
		if lock.Waiter != nil {
			waiter = *lock.Waiter
			b = b.Args("3", key, ns.markerKey, w.wakeKey(&t, lock))
		} else {
			b = b.Args("2", key, ns.markerKey)
		}
		b = b.Args(lock.Claim, t.millis(s.Keep), t.number(s.Token), notAfter, w.fenceKey(&t, lock), w.known.marker.raw, w.known.until,
			w.known.floor, w.known.longest, ns.boundMicros, w.queueKey(&t, lock), ns.wakePrefix)
		if waiter != "" || s.TakeOver || kind != "" {
			b = b.Args(takes(&t, s), waiter, ns.wakeMillis)
		}
		if kind != "" {
			b = b.Args(kind)
		}
		return b.Build()
	case ScriptExtend:
		b = b.Args("2", key, ns.markerKey, lock.Claim, t.millis(s.Keep), t.number(s.Token), notAfter, w.fenceKey(&t, lock),
			w.known.marker.raw, w.known.until, flag(s.MayWin)+from(s, s.Succeed))
		if kind != "" {
			b = b.Args(kind, w.known.longest)
		}
		return b.Build()
	default:
		ticket := ""
		if s.Stay || s.Leave {
			waiter = *lock.Waiter
			b = b.Args("2", key, w.wakeKey(&t, lock))
		} else {
			b = b.Args("1", key)
		}
		if s.Stay {
			ticket = ticketIn(lock.Claim)
		}
		b = b.Args(lock.Claim, w.queueKey(&t, lock), ns.wakePrefix)
		if whatOf(s) != "end" || kind != "" {
			b = b.Args(flag(s.Ended)+from(s, s.GiveBack), notAfter, waiter, ticket, ns.wakeMillis, t.millis(s.Keep))
		}
		if kind != "" {
			b = b.Args(kind)
		}
		return b.Build()
	}
}

// kind is what scripts are told of a lock that is no plain one: how many slots there are, or which side of a reader-writer lock it is.
func (l *Lock) kind() string {
	switch {
	case l.Slot == Writer:
		return "w"
	case l.Slot == Reader:
		return "r"
	case l.Slots != 0:
		return strconv.Itoa(int(l.Slots))
	}
	return ""
}

// touch reads something of what is sent of a lock.
func (l *Lock) touch() int { return int(l.Claim[0]) + int(l.Name[0]) }

func (l *Lock) isRW() bool { return l.Slot == Writer || l.Slot == Reader }

func (w *wire) queueKey(t *texts, lock *Lock) string {
	switch {
	case lock.Slots != 0:
		return t.join(w.set.slotPrefix, lock.Name, "}queue")
	case lock.isRW():
		return t.join(w.set.rwPrefix, lock.Name, "}queue")
	case lock.Slot == Gate: // as lua/batch.lua finds it
		return t.join(w.set.option.KeyPrefix, ":queue:slot:{", lock.Name, "}", gate)
	}
	return t.join(w.set.queuePrefix, lock.Name, "}")
}

func (w *wire) fenceKey(t *texts, lock *Lock) string {
	from := t.Len()
	t.WriteString(w.set.fencePrefix)
	t.number(uint64(lock.Bucket))
	return t.String()[from:]
}

// from is whose place a step takes, or gives back, if it does.
func from(s *Delivery, does bool) string {
	if !does {
		return ""
	}
	return s.Lock.From
}

// takes is how an acquire takes the lock from who holds it.
func takes(t *texts, s *Delivery) string {
	if s.TakeOver && s.Lock.Waiter != nil {
		return t.join("?", t.millis(s.Lock.Grace))
	}
	return flag(s.TakeOver)
}

func flag(set bool) string {
	if set {
		return "1"
	}
	return "0"
}

// batch is several steps in one script: lua/batch.lua. Room for its arguments is reused: rueidis takes a copy.
func (w *wire) batch(steps []Delivery, script string, sentAt time.Duration, room *[]string) rueidis.Completed {
	ns := w.set
	var t texts
	size := 64
	for i := range steps {
		if size += 48; steps[i].Script != ScriptExtend {
			size += len(ns.wakePrefix) + len(steps[i].Lock.Name)
		}
	}
	for i := range steps { // these, too, lie far apart: see tellEach
		w.touched += steps[i].Lock.touch()
	}
	t.Grow(size)
	list := append((*room)[:0], ns.markerKey) // what the script reads, and so tracks, comes first
	for i := range steps {
		switch s := &steps[i]; {
		case s.Script != ScriptRelease:
			list = append(list, w.lockKey(&t, s.Lock))
			if s.Script == ScriptAcquire && s.Lock.Waiter != nil {
				list = append(list, w.wakeKey(&t, s.Lock))
			}
		case s.Stay:
			list = append(list, w.wakeKey(&t, s.Lock))
		}
	}
	keys := len(list)
	list = append(list, w.known.marker.raw, w.known.until, w.known.floor, w.known.longest, ns.boundMicros, ns.option.KeyPrefix, ns.wakePrefix, ns.wakeMillis)
	usual := usualOf(steps)
	list = append(list, t.millis(usual.Keep), w.notAfter(&t, usual))
	for i := range steps {
		s := &steps[i]
		lock, what := s.Lock, whatOf(s)
		if s.Script != ScriptRelease && !s.passesFor(usual, sentAt) {
			list = append(list, "own", t.millis(s.Keep), w.notAfter(&t, s))
		}
		if lock.isRW() {
			list = append(list, "rw", lock.kind())
		} else if lock.Slots != 0 {
			list = append(list, "slot", lock.kind())
		}
		list = append(list, what, lock.Claim)
		switch {
		case s.Script != ScriptRelease:
			list = append(list, t.number(s.Token), w.fenceKey(&t, lock))
			switch what {
			case "ask":
				list = append(list, takes(&t, s))
			case "succeed":
				list = append(list, flag(s.MayWin)+from(s, s.Succeed))
			}
		case what == "end":
			list = append(list, w.lockKey(&t, lock))
		default:
			waiter := ""
			if s.Stay || s.Leave {
				waiter = *lock.Waiter
			}
			list = append(list, w.lockKey(&t, lock), flag(s.Ended)+from(s, s.GiveBack), w.notAfter(&t, s), waiter)
			if what == "keep" {
				list = append(list, t.millis(s.Keep))
			}
		}
	}
	command := w.client.B().Arbitrary("EVALSHA").Args(script, t.number(uint64(keys))).Args(list...).Build()
	clear(list)
	*room = list
	return command
}

// usualOf is the step whose lease and "not after" a batch is told once: the first that has any.
func usualOf(steps []Delivery) *Delivery {
	for i := range steps {
		if steps[i].Script != ScriptRelease {
			return &steps[i]
		}
	}
	return &steps[0]
}

// passesFor reports whether a step may be told the lease and "not after" of another. It is never done after its own, but may be
// done an eighth of what it has left before it.
func (s *Delivery) passesFor(usual *Delivery, sentAt time.Duration) bool {
	later := s.NotAfter - usual.NotAfter
	return s.Keep.Milliseconds() == usual.Keep.Milliseconds() && later >= 0 && later <= (s.NotAfter-sentAt)/8
}

// whatOf names a step as lua/batch.lua does.
func whatOf(s *Delivery) string {
	switch {
	case s.Script == ScriptAcquire && s.TakeOver && s.Lock.Waiter != nil:
		return "ask"
	case s.Script == ScriptAcquire && s.TakeOver:
		return "take"
	case s.Script == ScriptAcquire && s.Lock.Waiter != nil:
		return "wait"
	case s.Script == ScriptAcquire:
		return "acquire"
	case s.Script == ScriptExtend && s.Succeed:
		return "succeed"
	case s.Script == ScriptExtend && s.MayWin:
		return "regain"
	case s.Script == ScriptExtend:
		return "extend"
	case s.Stay:
		return "stay"
	case s.Keep >= time.Millisecond:
		return "keep"
	case s.Ended && s.NotAfter == 0 && !s.Leave && !s.GiveBack:
		return "end"
	}
	return "release"
}

// read turns the reply to one step into an answer, and hands it out. Only a well-formed reply is an answer; anything else is an
// error, never a grant.
func (c *caller) read(s *Delivery, r rueidis.RedisResult, base *Answer) {
	c.answer = *base
	c.node.read(&c.answer, s, r)
	c.tell(s)
}

// read adds to an answer what the reply to one step says.
func (n *Node) read(a *Answer, s *Delivery, r rueidis.RedisResult) {
	if err := r.NonRedisError(); err != nil {
		a.Err = n.broken(err)
		return
	}
	values, err := r.ToArray()
	if err != nil {
		a.refuse(err)
		return
	}
	n.readValues(a, s, values)
}

// readValues does that with a reply that is no error.
func (n *Node) readValues(a *Answer, s *Delivery, values []rueidis.RedisMessage) {
	if s.Lock.Names != nil {
		n.severalOf(a, s, values)
		return
	}
	if s.Script == ScriptRelease {
		n.answerOf(a, s, values)
		return
	}
	if len(values) < 2 {
		a.disown(nil)
		return
	}
	now, err := values[1].AsInt64()
	if err != nil {
		a.disown(err)
		return
	}
	values[1] = values[0]
	n.clocked(a, now)
	if code, err := values[1].AsInt64(); err == nil && code == asUsual && s.Script == ScriptAcquire {
		a.usual(s)
		return
	}
	n.answerOf(a, s, values[1:])
}

// readBatch reads the reply to several steps and hands out an answer for each.
func (c *caller) readBatch(steps []Delivery, r rueidis.RedisResult, base *Answer) {
	a := *base
	if err := r.NonRedisError(); err != nil {
		a.Err = c.node.broken(err)
		c.tellAll(steps, &a)
		return
	}
	values, err := r.ToArray()
	if err != nil {
		a.refuse(err)
		c.node.noteRefusal(a.Err)
		c.tellAll(steps, &a)
		return
	}
	c.tellEach(steps, values, base)
}

// tellAll hands out the same answer to all.
func (c *caller) tellAll(steps []Delivery, same *Answer) {
	for i := range steps {
		c.answer = *same
		steps[i].To.Answered(c.node.index, &c.answer)
	}
}

// tellEach hands out to each what a batch has returned of it.
func (c *caller) tellEach(steps []Delivery, values []rueidis.RedisMessage, base *Answer) {
	n, a, timed := c.node, &c.answer, *base
	var now int64
	var err error
	if len(values) > 0 {
		now, err = values[0].AsInt64()
		values = values[1:]
	}
	if err != nil {
		timed.disown(err)
		c.tellAll(steps, &timed)
		return
	}
	n.clocked(&timed, now)
	for i := range steps { // they lie far apart, and few have been read since the batch left: to wait for all at once costs less than one by one
		c.touched += steps[i].To.Touch()
	}
	for i := range steps {
		s := &steps[i]
		if *a = timed; s.Script == ScriptRelease {
			*a = *base
		}
		var own []rueidis.RedisMessage
		if len(values) > 0 {
			if err := values[0].Error(); err != nil {
				values = values[1:]
				a.refuse(fmt.Errorf("%w, in script", err))
				c.tell(s)
				continue
			}
			size, err := values[0].AsInt64()
			switch {
			case err == nil && size == asUsual:
				values = values[1:]
				a.usual(s)
				c.tell(s)
				continue
			case err == nil && size > 0 && size < int64(len(values)):
				own, values = values[1:1+size], values[1+size:]
			default:
				values = nil // nor is what follows ours
			}
		}
		n.answerOf(a, s, own)
		c.tell(s)
	}
}

// clocked adds what the node's time says to an answer.
func (n *Node) clocked(a *Answer, now int64) {
	a.Offset = OffsetOf(time.Duration(now)*time.Microsecond, a.SentAt, a.At)
	a.HasClock = true
	a.Err = n.watch(a.Offset)
	a.Within = n.LookWithin()
}

// answerOf adds to an answer what a step has returned.
func (n *Node) answerOf(a *Answer, s *Delivery, values []rueidis.RedisMessage) {
	var err error
	number := func(i int) (v int64) {
		if i < len(values) && err == nil {
			v, err = values[i].AsInt64()
		}
		return v
	}
	text := func(i int) (v string) {
		if i < len(values) && err == nil {
			v, err = values[i].ToString()
		}
		return v
	}
	a.Code = number(0)
	if s.Script == ScriptRelease {
		a.Text = text(1)
	} else {
		a.Number, a.Text = number(1), text(2)
	}
	switch last := text(3); {
	case s.Script == ScriptAcquire:
		a.First, a.Lefts = last == "1", text(4)
		if a.Lefts != "" {
			a.Place, _ = strconv.Atoi(last)
		}
		a.Kept = a.First && a.Code == CodeOK
	case s.Script == ScriptExtend:
		if a.Kept = true; len(values) > 3 && err == nil {
			a.By, a.InForce = n.otherMarker(last, a.Server)
		}
	}
	if err != nil || len(values) == 0 || s.Script == ScriptRelease && len(values) < 2 {
		a.disown(err)
		return
	}
	switch {
	case a.Code == CodeOtherMarker:
		n.LookAgain()
	case a.Code == CodeQuarantined && a.Left() > n.longestQuarantine():
		n.LookAgain() // the clock has gone back: it is to be adopted again, not waited out
	}
}

// asUsual stands in place of a count or a code, and is nothing else that our scripts return.
const asUsual = -100

// usual makes of an answer what a step usually comes to.
func (a *Answer) usual(s *Delivery) {
	a.Code = CodeOK
	switch s.Script {
	case ScriptAcquire:
		a.Number = int64(s.Token)
	case ScriptExtend:
		a.Kept = true
	}
}

// otherMarker takes in the marker that a renewal was answered with, which is not the one that it named, and returns by what
// the node goes. Whoever counts votes has been told of it when this returns.
func (n *Node) otherMarker(raw, server string) (by *roster.Record, inForce bool) {
	n.LookAgain()
	m, ok := parseMarker(raw)
	if !ok || m.runID != server {
		return nil, true // by none that anybody knows
	}
	n.set.learn(n, m)
	return m.roster.Active, m.inForce() != nil
}

// disown makes of an answer what a reply is that no script of ours gives.
func (a *Answer) disown(err error) {
	*a = Answer{Err: fmt.Errorf("reply is not one of ours: %v", err), SentAt: a.SentAt, At: a.At}
}

// refuse makes of an answer what an error reply is.
func (a *Answer) refuse(err error) {
	*a = Answer{Err: err, Unsent: errorReplyOf(err.Error()).nothingRan, Server: a.Server, SentAt: a.SentAt, At: a.At}
}

// isRefusedRight reports whether a server refused a whole script for want of a right, to a key for one.
func isRefusedRight(err error) bool {
	r := errorReplyOf(err.Error())
	return r.rights && r.nothingRan && errors.As(err, new(*rueidis.RedisError))
}
