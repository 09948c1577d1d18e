package redlock

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"hash/maphash"
	"os"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// The explorer takes the library's own lives through every order of events, up to a depth: two or three owners, three
// nodes, each message delivered, late or lost, pushes before and after the answers they belong to, a node that forgets, a
// process that stops, a takeover, a waiter. States are compared by value, and equal ones are gone on from once.
//
//	make explore DEPTH=2   two levels deeper than make test
//
// Real is the life (life.go, vote.go, takeover.go, line.go, quorum.go, drift.go). A model is the node (explore_node_test.go),
// which is checked against the scripts, and the door: here a guard's orders become messages.
//
// Every node's clock is as fast, and has stepped as far, as the assumptions allow, so that a claim that is counted a moment
// too long is one that is not covered.

const (
	exploreLease   = 100 * time.Millisecond
	exploreNodes   = 3
	exploreTimeout = 20 * time.Millisecond
)

// exploreShort is by how much less than a lease a node keeps a key: its clock is a tenth faster, and has stepped by the
// bound. It is written out, since a formula that is wrong must not move it.
const exploreShort = 15 * time.Millisecond

var exploreRules = rules{
	nodes: []string{"a", "b", "c"},
	lease: exploreLease, interval: 40 * time.Millisecond, timeout: exploreTimeout,
	drift: .1, bound: 5 * time.Millisecond, line: lineTimesFor(exploreLease),
}

// world is a state: what every owner, every node and every message is.
type world struct {
	now    time.Duration
	nodes  [exploreNodes]modelNode
	owners []*owner
	left   faults // what may still happen
	token  uint64 // highest that was handed out
	waiter waiterState
	trace  *footstep
}

// waiterState is what the attempts of the one waiter share.
type waiterState struct {
	inLine [exploreNodes]bool
	woken  bool // since its last attempt began
	served bool
	asks   int // how often it may still ask
}

// faults is how often each may happen.
type faults struct {
	lost   int // a question or an answer, and the connection with it
	late   int // a step is executed after its connection went
	slow   int // an answer comes later than what happens after the step, a push among it
	forget int // a node loses its memory
	pause  int // time passes although something is due
}

// owner is one life, and what is on its way between it and the nodes.
type owner struct {
	id      string
	life    *life
	wakeAt  time.Duration
	links   [exploreNodes]link
	left    calls
	alive   bool // it was, when last looked at
	dead    bool // it was alive, and is not any more
	decided bool
	forgot  bool
	ending  error // what its user ended it with
}

// waits has the last owner wait for the lock, and ask so often.
func (w *world) waits(asks int) *world {
	f := w.owners[len(w.owners)-1].life
	f.waits, f.ticket = true, 1
	w.waiter.asks = asks - 1
	return w
}

// asksAgain has the waiter make another attempt, with an owner of its own.
func (w *world) asksAgain(k int) {
	before := w.owners[k].life
	f := &life{rules: before.rules, name: "x", owner: before.owner + "'", ballot: make(ballot, exploreNodes), pace: before.pace,
		waits: true, ticket: before.ticket, woken: w.waiter.woken}
	w.waiter.woken = false
	o := &owner{id: f.owner, life: f, left: calls{release: 1}}
	w.owners = append(w.owners, o)
	w.tell(o, event{kind: asked, proposal: 1})
}

// mayAskAgain reports whether an owner is the waiter's last attempt, and came to nothing.
func (w *world) mayAskAgain(k int) bool {
	o := w.owners[k]
	return o.life.waits && !w.waiter.served && k == len(w.owners)-1 && o.life.phase == over && o.ending == nil
}

// calls are what an owner's user may still do.
type calls struct{ ask, release int }

// link is what is on its way between an owner and a node.
type link struct {
	asked  *flight // has left, and is to be executed
	answer *answer // is to be delivered
	ghosts []flight
	pushed bool
	looked bool
	free   bool
}

// flight is a step on its way to a node.
type flight struct {
	step
	sentAt time.Duration
}

// footstep is how a state was reached.
type footstep struct {
	before *footstep
	move   move
}

// story tells how a state was reached, from the first one on.
func (w *world) story(from *world) string {
	var moves []move
	for f := w.trace; f != nil; f = f.before {
		moves = append(moves, f.move)
	}
	var lines []string
	at := from.clone()
	for _, m := range slices.Backward(moves) {
		if m.kind == timePasses {
			at.do(m)
			lines = append(lines, at.tellOf(m))
			continue
		}
		lines = append(lines, at.tellOf(m))
		at.do(m)
	}
	return strings.Join(lines, "\n")
}

func newExplored(takeovers ...takeover) *world {
	w := &world{now: time.Hour}
	for i := range w.nodes {
		w.nodes[i].short = exploreShort
	}
	for i, t := range takeovers {
		id := string(rune('A' + i))
		w.owners = append(w.owners, &owner{
			id:   id,
			life: &life{rules: &exploreRules, name: "x", owner: id, takeover: t, ballot: make(ballot, exploreNodes), pace: exploreRules.interval},
			left: calls{ask: 1, release: 1},
		})
	}
	return w
}

// fenced has each node store a token of its own.
func (w *world) fenced(tokens ...uint64) *world {
	for i, token := range tokens {
		w.nodes[i].fence = token
	}
	return w
}

// held has the first owner hold the lock on all nodes, so that what follows begins there.
func (w *world) held() *world {
	w.do(move{kind: asks})
	for i := range w.nodes {
		w.do(move{kind: roundTrip, i: i})
	}
	if err := w.judge(); err != nil {
		panic(err)
	}
	return w
}

func (w *world) clone() *world {
	c := *w
	for i := range c.nodes {
		c.nodes[i] = w.nodes[i].clone()
	}
	c.owners = make([]*owner, len(w.owners))
	for i, o := range w.owners {
		copied := *o
		copied.life = o.life.clone()
		for j := range copied.links {
			copied.links[j].ghosts = slices.Clone(o.links[j].ghosts)
		}
		c.owners[i] = &copied
	}
	return &c
}

func (f *life) clone() *life {
	c := *f
	c.ballot = slices.Clone(f.ballot)
	c.out = nil
	if f.poll != nil {
		copied := *f.poll
		copied.clocks = slices.Clone(f.poll.clocks)
		c.poll = &copied
	}
	if f.rare != nil {
		copied := *f.rare
		c.rare = &copied
	}
	if displaced := f.rarely().displaced; displaced != nil {
		c.rare.displaced = make(map[string]*displacement, len(displaced))
		for owner, d := range displaced {
			copied := *d
			copied.on = make(map[int]time.Duration, len(d.on))
			for i, until := range d.on {
				copied.on[i] = until
			}
			c.rare.displaced[owner] = &copied
		}
	}
	return &c
}

// tell tells a life what has happened, and makes messages of its orders.
func (w *world) tell(o *owner, e event) {
	if e.kind == ticked {
		e.pace = exploreRules.interval
		o.wakeAt = 0
	}
	if f := o.life; f.waits {
		f.staying = !w.waiter.served
		for i := range f.ballot {
			f.ballot[i].inLine = w.waiter.inLine[i]
		}
	}
	out := o.life.on(e, w.now)
	if f := o.life; f.waits {
		for i := range f.ballot {
			w.waiter.inLine[i] = f.ballot[i].inLine
		}
		w.waiter.served = w.waiter.served || out.served
	}
	for _, s := range out.send {
		o.links[s.node].asked = &flight{step: s.step, sentAt: w.now}
	}
	if out.wakeAt != 0 && (o.wakeAt == 0 || out.wakeAt < o.wakeAt) {
		o.wakeAt = out.wakeAt
	}
	if out.decided {
		o.decided = true
	}
	if out.forget {
		o.forgot, o.wakeAt = true, 0
	}
	if out.woke != "" {
		w.wake(out.woke, e.node)
	}
	for _, displaced := range out.displaced {
		_ = displaced // of another program: it is told by its nodes
	}
}

// wake tells the waiter that the lock is free on a node.
func (w *world) wake(id string, node int) {
	for _, o := range slices.Backward(w.owners) {
		if waiterOf(o.life) == id {
			o.links[node].free = true
			return
		}
	}
}

// move is one thing that can happen next: to owner k, on node i, to its ghost j.
type move struct {
	kind    moveKind
	k, i, j int
}

type moveKind uint8

const (
	asks        moveKind = iota // the owner asks all nodes
	releases                    // its user releases
	ticks                       // what is due is done
	roundTrip                   // a step comes to its node, and the answer back
	arrives                     // a step comes to its node
	returns                     // an answer comes back
	isLost                      // a step is lost, and the connection with it
	answerLost                  // an answer is
	cutOff                      // a step is taken for lost
	arrivesLate                 // and comes to its node all the same
	pushes                      // a push comes to the owner
	checks                      // its keeper has looked at the node
	wakes                       // the node's word that the lock is free comes to the owner
	forgets                     // the node loses its memory
	timePasses                  // until something is due by the clock
	asksOnce                    // the waiter makes another attempt
)

func (w *world) tellOf(m move) string {
	what := [...]string{"asks", "is released", "ticks", "and node %d: there and back", "and node %d: there", "and node %d: back", "and node %d: lost on the way there",
		"and node %d: lost on the way back", "and node %d: cut off", "and node %d: what was cut off arrives", "is pushed by node %d", "has looked at node %d", "is woken by node %d",
		"node %d forgets", "time passes, to %v", "asks again"}[m.kind]
	switch m.kind {
	case forgets:
		return fmt.Sprintf(what, m.i)
	case timePasses:
		return fmt.Sprintf(what, w.now-time.Hour)
	case asks, releases, ticks, asksOnce:
		return w.owners[m.k].id + " " + what
	}
	o := w.owners[m.k]
	script := [...]string{"question", "renewal", "release"}[o.life.ballot[m.i].step.Script]
	return fmt.Sprintf(o.id+" "+what+" (%s)", m.i, script)
}

// moves appends all that can happen next.
func (w *world) moves(ms []move) []move {
	late := false
	for k, o := range w.owners {
		if o.left.ask > 0 {
			ms = append(ms, move{kind: asks, k: k})
		}
		if w.waiter.asks > 0 && w.mayAskAgain(k) {
			ms = append(ms, move{kind: asksOnce, k: k})
		}
		if o.left.release > 0 && o.life.phase == held {
			ms = append(ms, move{kind: releases, k: k})
		}
		if o.wakeAt != 0 && o.wakeAt <= w.now {
			late = true
			ms = append(ms, move{kind: ticks, k: k})
		}
		for i := range o.links {
			l := &o.links[i]
			one := func(kind moveKind, may bool) {
				if may {
					ms = append(ms, move{kind: kind, k: k, i: i})
				}
			}
			one(roundTrip, l.asked != nil)
			one(arrives, l.asked != nil && w.left.slow > 0)
			one(isLost, l.asked != nil && w.left.lost > 0)
			one(cutOff, l.asked != nil && w.left.late > 0)
			one(returns, l.answer != nil)
			one(answerLost, l.answer != nil && w.left.lost > 0)
			one(pushes, l.pushed)
			one(checks, l.looked)
			one(wakes, l.free)
			for j := range l.ghosts {
				ms = append(ms, move{kind: arrivesLate, k: k, i: i, j: j})
			}
		}
	}
	if w.left.forget > 0 {
		for i := range w.nodes {
			ms = append(ms, move{kind: forgets, i: i})
		}
	}
	if (!late || w.left.pause > 0) && w.nextInstant() != 0 {
		ms = append(ms, move{kind: timePasses})
	}
	return ms
}

// do makes a move.
func (w *world) do(m move) {
	var o *owner
	var l *link
	if m.kind != forgets && m.kind != timePasses {
		o = w.owners[m.k]
		l = &o.links[m.i]
	}
	take := func() flight {
		f := *l.asked
		l.asked = nil
		return f
	}
	switch m.kind {
	case asks:
		o.left.ask--
		w.tell(o, event{kind: asked, proposal: 1, longest: exploreLease})
	case asksOnce:
		w.waiter.asks--
		w.asksAgain(m.k)
	case releases:
		o.left.release--
		w.release(o)
	case ticks:
		w.tell(o, event{kind: ticked})
	case roundTrip:
		w.deliver(o, m.i, w.execute(m.k, m.i, take()))
	case arrives:
		w.left.slow--
		a := w.execute(m.k, m.i, take())
		l.answer = &a
	case returns:
		a := *l.answer
		l.answer = nil
		w.deliver(o, m.i, a)
	case isLost:
		w.left.lost--
		l.asked = nil
		w.deliver(o, m.i, answer{Err: ErrNodeDown})
	case answerLost:
		w.left.lost--
		l.answer = nil
		w.deliver(o, m.i, answer{Err: ErrNodeDown})
	case cutOff:
		w.left.late--
		l.ghosts = append(l.ghosts, take())
		w.deliver(o, m.i, answer{Err: ErrNodeDown})
	case arrivesLate:
		f := l.ghosts[m.j]
		l.ghosts = slices.Delete(l.ghosts, m.j, m.j+1)
		w.execute(m.k, m.i, f)
	case pushes:
		l.pushed = false
		w.tell(o, event{kind: pushed, node: m.i, within: time.Millisecond})
	case checks:
		l.looked = false
		w.tell(o, event{kind: looked, node: m.i})
	case wakes:
		l.free = false
		if o.life.phase == over {
			w.waiter.woken = true
		}
		w.tell(o, event{kind: free, node: m.i})
	case forgets:
		w.left.forget--
		w.forget(m.i)
	case timePasses:
		for _, o := range w.owners {
			if o.wakeAt != 0 && o.wakeAt <= w.now {
				w.left.pause--
				break
			}
		}
		w.now = w.nextInstant()
	}
}

// release is what Guard.Release does.
func (w *world) release(o *owner) {
	if w.tell(o, event{kind: clockRead}); o.life.phase != over {
		o.ending = ErrReleased
		w.tell(o, event{kind: ended, cause: ErrReleased})
	}
}

// deliver brings an answer to its owner, by the clock that all nodes share.
func (w *world) deliver(o *owner, i int, a answer) {
	a.At, a.Within = w.now, time.Millisecond
	if a.HasClock {
		a.Offset = offset{Lo: a.SentAt - w.now, At: w.now}
	}
	w.tell(o, event{kind: answered, node: i, answer: &a})
}

// execute has node i execute a step, and makes messages of what it pushes.
func (w *world) execute(k, i int, f flight) answer {
	o := w.owners[k]
	a, changed, woke := w.nodes[i].execute(f.step, o.life, w.now)
	a.SentAt = f.sentAt
	if changed {
		w.push(i, o)
	}
	if f.Script != scriptRelease || f.Stay {
		w.nodes[i].tracked |= 1 << k
	}
	if woke != "" && woke != o.id {
		w.wake(woke, i)
	}
	return a
}

// push tells all who track the key of node i that it has changed, but for the one who did it.
func (w *world) push(i int, by *owner) {
	for k, o := range w.owners {
		if o != by && w.nodes[i].tracked&(1<<k) != 0 {
			o.links[i].pushed = true
		}
	}
	w.nodes[i].tracked = 0
}

// forget has a node lose its memory: it is adopted at once, and grants nothing for a lease.
func (w *world) forget(i int) {
	w.nodes[i] = modelNode{short: exploreShort, grantsFrom: w.now + exploreLease, fence: w.nodes[i].fence + 100}
	for _, o := range w.owners {
		o.links[i].looked = true
	}
}

// nextInstant returns when something is next due by the clock, 0 for never.
func (w *world) nextInstant() time.Duration {
	next := time.Duration(0)
	at := func(d time.Duration) {
		if d > w.now && (next == 0 || d < next) {
			next = d
		}
	}
	for i := range w.nodes {
		at(w.nodes[i].ends + 1)
		at(w.nodes[i].grantsFrom)
	}
	for _, o := range w.owners {
		if o.wakeAt != 0 {
			at(o.wakeAt)
		}
		if o.life.phase.alive() {
			at(o.life.standsUntil())
		}
		for i := range o.links {
			for _, g := range o.links[i].ghosts {
				at(g.NotAfter)
			}
		}
	}
	return next
}

// judge returns what is wrong with a state, nil if nothing is.
func (w *world) judge() error {
	var alive []string
	for _, o := range w.owners {
		f := o.life
		now := f.phase == held && f.stands(w.now)
		switch {
		case now && o.dead:
			return fmt.Errorf("%s was dead and is alive", o.id)
		case now && !o.alive && f.token <= w.token:
			return fmt.Errorf("%s is granted token %d after %d", o.id, f.token, w.token)
		case now && !o.alive:
			w.token = f.token
			o.alive = true
		case !now && o.alive:
			o.dead = true
		}
		if now {
			alive = append(alive, o.id)
			if truthful := w.truthful(o); truthful < f.quorum() {
				return fmt.Errorf("%s is alive, and %d nodes keep the lock for it", o.id, truthful)
			}
		}
		if f.phase == over {
			if err := w.judgeEnd(o); err != nil {
				return err
			}
		}
		for i := range w.nodes {
			if o.forgot && w.nodes[i].holder(w.now) == o.id {
				return fmt.Errorf("%s is forgotten, and node %d stores it", o.id, i)
			}
		}
	}
	safe := !slices.ContainsFunc(w.owners, func(o *owner) bool { return o.life.takeover == takeoverNow })
	if len(alive) > 1 && safe {
		return fmt.Errorf("%v are alive", alive)
	}
	return nil
}

// judgeEnd returns what is wrong with the end of a life: its cause must be true.
func (w *world) judgeEnd(o *owner) error {
	f := o.life
	switch {
	case f.cause == nil:
		return fmt.Errorf("%s has ended, and nothing says why", o.id)
	case errors.Is(f.cause, ErrReleased) && o.ending != ErrReleased:
		return fmt.Errorf("%s was not released, and its end says so", o.id)
	case errors.Is(f.cause, ErrLost) && !o.alive && f.takeover == noTakeover && !o.dead && !o.decided:
		return fmt.Errorf("%s never held what it says it has lost", o.id)
	case errors.Is(f.cause, ErrTakenOver) && len(w.owners) == 1:
		return fmt.Errorf("%s is alone, and its end says that it was taken over", o.id)
	}
	return nil
}

// truthful returns how many nodes can give nobody else their vote: they store the owner, or list it as displaced, or
// grant nothing.
func (w *world) truthful(o *owner) int {
	n := 0
	for i := range w.nodes {
		if w.nodes[i].keepsFor(o.id, w.now) {
			n++
		}
	}
	return n
}

// settles takes a state to its end without any more faults, every lock released, and returns what is owed for ever. It
// goes on from no state that known has: those have come to their end before.
func (w *world) settles(known func(*world) bool) error {
	w = w.clone()
	w.left = faults{}
	for _, o := range w.owners {
		o.left = calls{}
	}
	var ms []move
	var last []string
	for range 1000 {
		for _, o := range w.owners {
			if o.life.phase == held {
				w.release(o)
			}
		}
		if known(w) {
			return nil
		}
		ms = w.moves(ms[:0])
		if k := len(w.owners) - 1; len(ms) == 0 && w.mayAskAgain(k) && len(w.owners) < 8 {
			ms = append(ms, move{kind: asksOnce, k: k})
		}
		if len(ms) == 0 {
			break
		}
		last = append(last, w.tellOf(ms[0]))
		w.do(ms[0])
		if err := w.judge(); err != nil {
			return fmt.Errorf("%w, after %s", err, strings.Join(last, "; "))
		}
	}
	for _, o := range w.owners {
		if o.life.phase != entered && !o.forgot {
			return fmt.Errorf("%s owes for ever: phase %d, after %s", o.id, o.life.phase, strings.Join(last, "; "))
		}
	}
	if k := len(w.owners) - 1; w.mayAskAgain(k) {
		return fmt.Errorf("the waiter is never served, after %s", strings.Join(last, "; "))
	}
	for i := range w.nodes {
		if holder := w.nodes[i].holder(w.now); holder != "" {
			return fmt.Errorf("node %d keeps %q for ever, after %s", i, holder, strings.Join(last, "; "))
		}
	}
	return nil
}

// key is a state in bytes, the same for states that differ only in which node is which and what time it is.
func (w *world) key(b *bytes.Buffer) {
	b.Reset()
	number := func(b *bytes.Buffer, n int64) {
		var buf [binary.MaxVarintLen64]byte
		b.Write(buf[:binary.PutVarint(buf[:], n)])
	}
	instant := func(b *bytes.Buffer, d time.Duration) { // one that has passed is one that has passed
		if d == 0 {
			number(b, -1)
			return
		}
		number(b, int64(max(0, d-w.now)))
	}
	flag := func(b *bytes.Buffer, flags ...bool) {
		n := int64(0)
		for i, f := range flags {
			if f {
				n |= 1 << i
			}
		}
		number(b, n)
	}
	text := func(b *bytes.Buffer, s string) { b.WriteString(s); b.WriteByte(0) }
	putGist := func(b *bytes.Buffer, s gist) {
		number(b, int64(s.Script))
		instant(b, s.NotAfter)
		flag(b, s.MayWin, s.TakeOver, s.Ended, s.Leave, s.Stay)
	}
	putStep := func(b *bytes.Buffer, s step) {
		putGist(b, s.Gist)
		number(b, int64(s.Token))
	}
	flag(b, w.waiter.woken, w.waiter.served)
	for _, n := range []int{len(w.owners), w.waiter.asks, w.left.lost, w.left.late, w.left.slow, w.left.forget, w.left.pause, int(w.token)} {
		number(b, int64(n))
	}
	for _, o := range w.owners {
		f := o.life
		for _, n := range []int{o.left.ask, o.left.release, int(f.phase), int(f.token)} {
			number(b, int64(n))
		}
		flag(b, o.alive, o.dead, o.decided, o.forgot, o.ending != nil, f.cause != nil, f.staying, f.woken)
		instant(b, o.wakeAt)
		instant(b, f.round)
		instant(b, f.rarely().confirmed)
	}
	var columns [exploreNodes]string
	var column bytes.Buffer
	for i := range w.nodes {
		column.Reset()
		n := &w.nodes[i]
		text(&column, n.holder(w.now))
		if n.holder(w.now) != "" {
			instant(&column, n.ends)
		}
		instant(&column, n.grantsFrom)
		number(&column, int64(n.fence))
		number(&column, int64(n.tracked))
		for _, p := range n.line {
			text(&column, p.id)
		}
		for _, e := range n.list {
			if e.until > w.now {
				text(&column, e.owner)
				instant(&column, e.until)
			}
		}
		for _, o := range w.owners {
			v, l := &o.life.ballot[i], &o.links[i]
			number(&column, int64(v.state))
			if v.claims() {
				instant(&column, v.until)
				number(&column, int64(v.token))
			}
			text(&column, v.said().rival)
			number(&column, int64(v.due))
			number(&column, int64(min(v.asks, leftoverAsks)))
			number(&column, int64(min(v.pushes, looksPerRound)))
			instant(&column, v.nextAt)
			instant(&column, v.owedUntil)
			instant(&column, v.ghost())
			flag(&column, v.away, v.doubted, v.checked, v.woken, v.voided, v.taken, v.late, v.inLine, v.said().err != nil,
				v.renewedAt >= o.life.rarely().confirmed, v.said().first, l.pushed, l.looked, l.free)
			if v.away {
				putGist(&column, v.step)
			}
			if l.asked != nil {
				putStep(&column, l.asked.step)
				number(&column, int64(w.now-l.asked.sentAt))
			}
			if l.answer != nil {
				a := l.answer
				number(&column, a.Code)
				number(&column, a.Number)
				text(&column, a.Text)
				flag(&column, a.First, a.Kept)
				number(&column, int64(w.now-a.SentAt))
			}
			for _, g := range l.ghosts {
				putStep(&column, g.step)
			}
			for owner, d := range o.life.rarely().displaced {
				text(&column, owner)
				flag(&column, d.ended)
				instant(&column, d.until)
				instant(&column, d.on[i])
			}
		}
		columns[i] = column.String()
	}
	slices.Sort(columns[:])
	for _, c := range columns {
		b.WriteString(strconv.Itoa(len(c)))
		b.WriteString(c)
	}
}

// explored is what an exploration has come to.
type explored struct {
	states, transitions, depth int
	err                        error
	story                      string
}

// explore goes through all states that can be reached in depth moves, level by level, so that the first story that breaks
// a rule is one of the shortest.
func explore(from *world, depth int) explored {
	fresh, settled := newStates(), newStates()
	fresh.add(from)
	level := []*world{from}
	e := explored{states: 1}
	var ms []move
	for ; e.depth < depth && len(level) > 0; e.depth++ {
		var next []*world
		for _, w := range level {
			ms = w.moves(ms[:0])
			for _, m := range ms {
				after := w.clone()
				after.trace = &footstep{w.trace, m}
				after.do(m)
				e.transitions++
				err := after.judge()
				if err == nil && fresh.add(after) {
					next = append(next, after)
					err = after.settles(func(w *world) bool { return !settled.add(w) })
				}
				if err != nil {
					e.err, e.story = err, after.story(from)
					return e
				}
			}
		}
		level = next
	}
	e.states = len(fresh.known)
	return e
}

// states is a set of states, of which it keeps digests: two of 64 bits, so that none is taken for another.
type states struct {
	seeds [2]maphash.Seed
	known map[[2]uint64]struct{}
	key   bytes.Buffer
}

func newStates() *states {
	return &states{seeds: [2]maphash.Seed{maphash.MakeSeed(), maphash.MakeSeed()}, known: make(map[[2]uint64]struct{})}
}

// add adds a state and reports whether it is new.
func (s *states) add(w *world) bool {
	w.key(&s.key)
	digest := [2]uint64{maphash.Bytes(s.seeds[0], s.key.Bytes()), maphash.Bytes(s.seeds[1], s.key.Bytes())}
	before := len(s.known)
	s.known[digest] = struct{}{}
	return len(s.known) > before
}

func TestExplore(t *testing.T) {
	extra := 0 // `make explore`, and CI by it, goes deeper
	if d := os.Getenv("REDLOCK_EXPLORE_DEPTH"); d != "" {
		n, err := strconv.Atoi(d)
		require.NoError(t, err)
		extra = n
	}
	if testing.Short() || RaceDetector {
		extra -= 2
	}
	for _, tc := range []struct {
		name   string
		depth  int
		world  *world
		faults faults
	}{
		{"alone", 12, newExplored(noTakeover), faults{slow: 3, pause: 1}},
		{"held, alone", 13, newExplored(noTakeover).held(), faults{slow: 3, pause: 1}},
		{"two owners", 9, newExplored(noTakeover, noTakeover), faults{slow: 1}},
		{"two owners, and tokens differ", 7, newExplored(noTakeover, noTakeover).fenced(10, 12, 4), faults{lost: 1}},
		{"three owners", 8, newExplored(noTakeover, noTakeover, noTakeover), faults{}},
		{"held", 11, newExplored(noTakeover, noTakeover).held(), faults{slow: 1}},
		{"held, and the process stops", 10, newExplored(noTakeover, noTakeover).held(), faults{pause: 2}},
		{"held, and a message is lost", 9, newExplored(noTakeover, noTakeover).held(), faults{lost: 1, slow: 1}},
		{"held, and a message is late", 9, newExplored(noTakeover, noTakeover).held(), faults{late: 1, slow: 1}},
		{"held, and a node forgets", 8, newExplored(noTakeover, noTakeover).held(), faults{forget: 1, slow: 1}},
		{"taken over", 9, newExplored(noTakeover, takeoverSafely).held(), faults{slow: 1}},
		{"taken over twice", 8, newExplored(noTakeover, takeoverSafely, takeoverSafely).held(), faults{}},
		{"taken over, late and stopped", 9, newExplored(noTakeover, takeoverSafely).held(), faults{late: 1, pause: 1}},
		{"waited for", 10, newExplored(noTakeover, noTakeover).waits(3).held(), faults{slow: 1}},
		{"waited for, among others", 9, newExplored(noTakeover, noTakeover, noTakeover).waits(2).held(), faults{}},
	} {
		t.Run(tc.name, func(t *testing.T) {
			tc.world.left = tc.faults
			start := time.Now()
			e := explore(tc.world, max(1, tc.depth+extra))
			t.Logf("%d states, %d transitions, depth %d, %v", e.states, e.transitions, e.depth, time.Since(start).Round(time.Millisecond))
			require.NoError(t, e.err, e.story)
		})
	}
}
