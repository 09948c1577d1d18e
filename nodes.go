package redlock

import (
	"time"
	"unique"

	"github.com/redlock-go/redlock/internal/node"
)

// Everything about servers is in internal/node, which knows no lock and no guard. Here is all that goes through the wall:
// the plain values that a life and a node hand each other, under the names that the life's files have for them, and who
// hears of what nodes answer, push and come to.

type (
	step     = node.Step
	gist     = node.Gist
	script   = node.Script
	answer   = node.Answer
	offset   = node.Offset
	obstacle = node.Obstacle
)

const (
	scriptAcquire = node.ScriptAcquire
	scriptExtend  = node.ScriptExtend
	scriptRelease = node.ScriptRelease

	codeWonBack     = node.CodeWonBack
	codeOK          = node.CodeOK
	codeHeld        = node.CodeHeld
	codeQuarantined = node.CodeQuarantined
	codeOtherMarker = node.CodeOtherMarker
	codeLate        = node.CodeLate
	codeAbsent      = node.CodeAbsent
	codeInLine      = node.CodeInLine
	codeOtherSize   = node.CodeOtherSize
)

// server is the run_id of a process. All votes of one share the text.
type server struct{ id unique.Handle[string] }

func (s *server) note(id string) {
	if s.runID() != id {
		s.id = unique.Make(id)
	}
}

func (s *server) runID() string {
	if *s == (server{}) {
		return ""
	}
	return s.id.Value()
}

var errForgotten = node.ErrForgotten

func replied(err error) bool { return node.Replied(err) }

// What a node stores under a lock's key.
const (
	tombstone  = node.Tombstone
	askMark    = node.AskMark
	readerMark = string(node.ReaderMark)
)

func ownerOf(value string) string { return node.OwnerOf(value) }

func ticketOf(value string) uint64 { return node.TicketOf(value) }

func labelOf(value string) string { return node.LabelOf(value) }

func isKept(value string) bool { return node.IsKept(value) }

func displacedIn(value string) map[string]time.Duration { return node.DisplacedIn(value) }

func askersIn(value string) map[string]time.Duration { return node.AskersIn(value) }

func claimTail(longest time.Duration, label string) string { return node.ClaimTail(longest, label) }

func rounded(d time.Duration) time.Duration { return node.Rounded(d) }

func driftOver(d time.Duration, drift float64) time.Duration { return node.DriftOver(d, drift) }

func goneAfter(left time.Duration, drift float64, bound time.Duration) time.Duration {
	return node.GoneAfter(left, drift, bound)
}

func medianOffset(offsets []offset) offset { return node.MedianOffset(offsets) }

// receiver is a guard as nodes know it.
type receiver Guard

func (r *receiver) Answered(i int, a *answer) { (*Guard)(r).answered(i, a) }

func (r *receiver) Touch() int {
	return int(r.deadline.Load()) + int(r.life.rules.lease) + r.life.ballot.touch()
}

// listener is a Locker as nodes know it.
type listener Locker

func (s *listener) Pushed(i int, key string) { (*Locker)(s).pushed(i, key) }

func (s *listener) Forgotten(i int) { (*Locker)(s).flushed(i) }

// Checked has every guard look at a node that its keeper has looked at: it may be back, and then nothing there is tracked
// any more.
func (s *listener) Checked(i int) {
	for _, g := range (*Locker)(s).openGuards() {
		g.lookAgain(i)
	}
}

// Distrusted takes the votes of a node from every guard: its clock is off, or its server is another node's.
func (s *listener) Distrusted(i int, why error) {
	for _, g := range (*Locker)(s).openGuards() {
		g.distrust(i, why)
	}
}

// OwnClockOff ends every guard, and attempts with votes.
func (s *listener) OwnClockOff(why error) {
	for _, g := range (*Locker)(s).openGuards() {
		g.distrustAll(why)
	}
}

// Rostered has every guard go by the set's members as they are now.
func (s *listener) Rostered() {
	l := (*Locker)(s)
	by := l.set.Electorate()
	l.observeRoster(by)
	for _, g := range l.openGuards() {
		g.on(event{kind: rostered, by: by})
	}
}

func (s *listener) Hopeful() { (*Locker)(s).tellWaiters() }

// nodeError names the node that a fault is of.
func (l *Locker) nodeError(f node.Fault) *NodeError {
	return &NodeError{l.nodes[f.Node].Addr(), f.Err}
}
