package check

import (
	"fmt"
	"math"
	"time"

	"github.com/anishathalye/porcupine"
)

// The lock as porcupine knows it: who holds it, by token, and the largest token so far.
type (
	lockState struct{ holder, highest uint64 }
	lockCall  struct {
		kind  callKind
		token uint64
	}
	callKind uint8
)

const (
	got   callKind = iota // the lock was got with this token: legal if nobody holds it and the token is the largest
	alive                 // a look found it held: legal if it is
	ended                 // it was released or lost: legal if it was held
)

var lockModel = porcupine.Model{
	Init: func() any { return lockState{} },
	Step: func(state, input, _ any) (bool, any) {
		s, c := state.(lockState), input.(lockCall)
		switch c.kind {
		case got:
			return s.holder == 0 && c.token > s.highest, lockState{holder: c.token, highest: c.token}
		case alive:
			return s.holder == c.token, s
		default:
			return s.holder == c.token, lockState{highest: s.highest}
		}
	},
	DescribeOperation: func(input, _ any) string {
		c := input.(lockCall)
		return fmt.Sprintf("%s %d", [...]string{"got", "alive", "ended"}[c.kind], c.token)
	},
}

// patience bounds porcupine's search. Its answer is Unknown after that, which is reported: a suite whose judge gives
// up is not green.
const patience = 30 * time.Second

func judgeLinearizable(name string, lives []Hold) []string {
	var ops []porcupine.Operation
	for i, h := range lives {
		add := func(kind callKind, from, to int64) {
			ops = append(ops, porcupine.Operation{ClientId: i, Input: lockCall{kind, h.Token}, Call: from, Return: to})
		}
		add(got, h.Invoked.UnixNano(), h.Returned.UnixNano())
		last := h.Returned
		for _, c := range h.Checks {
			add(alive, c.From.UnixNano(), c.To.UnixNano())
			last = c.To
		}
		// The end lies after the last good look, and before the first bad one if there was any.
		until := int64(math.MaxInt64)
		if !h.Ended.IsZero() {
			until = max(h.Ended.UnixNano(), last.UnixNano())
		}
		add(ended, last.UnixNano(), until)
	}
	switch porcupine.CheckOperationsTimeout(lockModel, ops, patience) {
	case porcupine.Ok:
		return nil
	case porcupine.Illegal:
		return []string{fmt.Sprintf("history of %s is not that of a lock: %d guards, %d operations", name, len(lives), len(ops))}
	default:
		return []string{fmt.Sprintf("history of %s: no verdict within %v on %d operations", name, patience, len(ops))}
	}
}
