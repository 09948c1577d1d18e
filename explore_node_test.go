package redlock

import (
	"cmp"
	"slices"
	"strconv"
	"time"
)

// modelNode is what a node does with a lock's key, as the scripts in internal/node/lua do it. Its clock is everybody's.
type modelNode struct {
	owner      string        // whose value the key has; "" for none, "~" for a tombstone
	ticket     string        // "#ticket" behind it
	ends       time.Duration // of the lease
	list       []displacedAt // behind it
	fence      uint64
	grantsFrom time.Duration // quarantined until then
	short      time.Duration // by how much a lease ends early here: its clock is fast, and has made a step
	tracked    uint8         // owners that are pushed the next change
	line       []waiting     // who waits, by ticket
}

// waiting is a waiter in line.
type waiting struct {
	id     string
	ticket uint64
}

// stand puts a waiter in line.
func (n *modelNode) stand(id string, ticket uint64) {
	n.leave(id)
	n.line = append(n.line, waiting{id, ticket})
	slices.SortFunc(n.line, func(a, b waiting) int { return cmp.Compare(a.ticket, b.ticket) })
}

func (n *modelNode) leave(id string) {
	n.line = slices.DeleteFunc(n.line, func(w waiting) bool { return w.id == id })
}

// waiterOf returns the id of the waiter whose attempt a life is, "" for none.
func waiterOf(f *life) string {
	if !f.waits {
		return ""
	}
	return f.owner[:1]
}

// displacedAt is an entry in a value's list.
type displacedAt struct {
	owner string
	until time.Duration
}

func (n *modelNode) clone() modelNode {
	c := *n
	c.list = slices.Clone(n.list)
	c.line = slices.Clone(n.line)
	return c
}

// holder returns the owner of the value that is stored at now.
func (n *modelNode) holder(now time.Duration) string {
	if n.owner == "" || now > n.ends { // Redis: a key that ends now is still there
		return ""
	}
	return n.owner
}

// keepsFor reports whether no newcomer can have the node's vote before the owner has ended or run out there.
func (n *modelNode) keepsFor(owner string, now time.Duration) bool {
	if now < n.grantsFrom {
		return true
	}
	h := n.holder(now)
	return h == owner || h != "" && slices.ContainsFunc(n.list, func(d displacedAt) bool { return d.owner == owner })
}

func (n *modelNode) value() string {
	s := n.owner + n.ticket
	for _, d := range n.list {
		s += ";" + d.owner + "@" + strconv.FormatInt(d.until.Microseconds(), 10)
	}
	return s
}

// displacedText is a value's list alone.
func (n *modelNode) displacedText() string { return n.value()[len(n.owner):] }

// execute does what the script of a step does. changed says that the key's value or end has changed, which is pushed.
func (n *modelNode) execute(s step, f *life, now time.Duration) (a answer, changed bool, woke string) {
	a.HasClock = s.Script != scriptRelease
	left := func(d time.Duration) int64 { return int64((d + time.Millisecond - 1) / time.Millisecond) }
	if s.NotAfter != 0 && now > s.NotAfter {
		a.Code = codeLate
		return a, false, ""
	}
	h, me := n.holder(now), waiterOf(f)
	if h == "" {
		n.owner, n.ticket, n.list = "", "", nil
	}
	switch s.Script {
	case scriptAcquire:
		switch {
		case now < n.grantsFrom:
			a.Code, a.Number = codeQuarantined, left(n.grantsFrom-now)
		case h == "" && !s.TakeOver && len(n.line) > 0 && n.line[0].id != me && (f.ticket == 0 || n.line[0].ticket < f.ticket):
			a.Code, a.Text = codeInLine, n.line[0].id+";"+strconv.FormatUint(n.line[0].ticket, 10)
			if me != "" {
				n.stand(me, f.ticket)
			}
		case h == "":
			if !s.TakeOver {
				n.leave(me)
			}
			n.store(f, now)
			n.grant(s, &a)
			changed = true
		case h == f.owner:
			n.ends = max(n.ends, now+f.lease-n.short)
			a.Code, a.Number, a.Text, a.Kept = codeOK, int64(n.fence), n.displacedText(), true
			changed = true
		case !s.TakeOver:
			a.Code, a.Number, a.Text = codeHeld, left(n.ends-now), n.value()
			if me != "" {
				n.stand(me, f.ticket)
				a.First = n.line[0].id == me
			}
		default:
			n.list = slices.DeleteFunc(n.list, func(d displacedAt) bool { return d.owner == f.owner || d.until <= now })
			if h != tombstone {
				n.list = append(n.list, displacedAt{h, n.ends})
			}
			n.owner, n.ticket, n.ends = f.owner, "", max(n.ends, now+f.lease-n.short)
			n.grant(s, &a)
			a.Text = n.displacedText()
			changed = true
		}
	case scriptExtend:
		switch {
		case h == f.owner:
			n.ends = max(n.ends, now+f.lease-n.short)
			n.fence = max(n.fence, s.Token)
			if a.Code, a.Kept = codeOK, true; n.value() != claimOf(f) {
				a.Text = n.displacedText()
			}
			changed = true
		case h != "":
			a.Code, a.Number, a.Text = codeHeld, left(n.ends-now), n.value()
		case !s.MayWin:
			a.Code = codeAbsent
		case now < n.grantsFrom:
			a.Code, a.Number = codeQuarantined, left(n.grantsFrom-now)
		default:
			n.store(f, now)
			n.fence = max(n.fence, s.Token)
			a.Code = codeWonBack
			changed = true
		}
		if a.Code == codeWonBack {
			a.Kept = true
		}
	case scriptRelease:
		listed := slices.ContainsFunc(n.list, func(d displacedAt) bool { return d.owner == f.owner })
		switch {
		case h == f.owner || s.Ended && h != "" && listed:
			n.list = slices.DeleteFunc(n.list, func(d displacedAt) bool { return d.owner == f.owner || d.until <= now })
			changed = true
			if h == f.owner {
				a.Code = codeOK
			}
			switch {
			case h != f.owner && h != tombstone: // the taker's value stays
			case len(n.list) > 0:
				n.owner, n.ticket, n.ends = tombstone, "", slices.MaxFunc(n.list, func(a, b displacedAt) int { return int(a.until - b.until) }).until
			default:
				n.owner = ""
			}
		}
		if s.Leave && !s.Stay {
			n.leave(me)
		}
		if n.holder(now) == "" && len(n.line) > 0 && n.line[0].id != me {
			woke = n.line[0].id
		}
		if s.Stay {
			n.stand(me, f.ticket)
		}
	}
	return a, changed, woke
}

func (n *modelNode) store(f *life, now time.Duration) {
	n.owner, n.ticket, n.ends = f.owner, claimOf(f)[len(f.owner):], now+f.lease-n.short
}

// claimOf is what a node stores for a life.
func claimOf(f *life) string {
	if f.ticket == 0 {
		return f.owner
	}
	return f.owner + "#" + strconv.FormatUint(f.ticket, 10)
}

func (n *modelNode) grant(s step, a *answer) {
	n.fence = max(n.fence+1, s.Token)
	a.Code, a.Number = codeOK, int64(n.fence)
}
