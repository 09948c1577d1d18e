package node

import (
	"time"

	"github.com/redlock-go/redlock/internal/roster"
)

// Step is what a script is to do on one node.
type Step struct {
	Gist
	Keep  time.Duration // how long the node keeps the key; release: how long the lock stays taken although it is over
	Token uint64        // acquire: proposed; extend: to be stored
}

// Gist is that of a step by which its answer is judged.
type Gist struct {
	NotAfter time.Duration // local instant after which it does nothing
	Script   Script
	MayWin   bool // extend: an absent key may be won back
	TakeOver bool // acquire: from whoever holds it; of a waiter: who is asked to let go
	Succeed  bool // extend: take the place of Lock.From, where it is found
	GiveBack bool // release: give the place back to Lock.From
	Ended    bool // release: the guard has ended, strike it out of displaced lists
	Leave    bool // release: the waiter leaves the line
	Stay     bool // release: the waiter stays in line
}

// Answer is what came of a step.
type Answer struct {
	Err      error          // set: no answer, or an error reply; what was asked may have been done unless unsent
	Unsent   bool           // surely nothing was done: it was not sent, or refused before it did anything
	Server   string         // run_id of the process it came from
	By       *roster.Record // that the node went by, or that it proposed; nil where there is none yet
	InForce  bool           // By was in force there
	Code     int64
	Number   int64  // fencing token, or milliseconds left
	Text     string // value found, list of displaced owners, or who is before us or was woken
	First    bool   // refused, but first in line
	Place    int    // refused a semaphore's slot: our place in line, 0 if it is behind as many as there are slots
	Lefts    string // refused a semaphore's slot: ms left of each, 0 if it is free
	Kept     bool   // granted, and it was ours already
	SentAt   time.Duration
	At       time.Duration
	Offset   Offset
	HasClock bool
	Within   time.Duration // how long a look at the node may take
	Partial  bool          // refused a lock of several names, and some are ours there all the same
	// Obstacles say of a refused lock of several names which are in the way, and why.
	Obstacles []Obstacle
	// For who is answered to note: refused by an owner of its own that is being released; and an earlier attempt of the same waiter has been
	// put in line there since this was sent, or may have been.
	Leftover, LinedUp bool
}

// Left returns how long a refusal will stand by itself.
func (a Answer) Left() time.Duration { return time.Duration(a.Number) * time.Millisecond }
