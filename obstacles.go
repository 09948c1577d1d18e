package redlock

import (
	"errors"
	"strings"
)

// A node that refuses several names says of each that is in the way why. A waiter, or a try, has to know all of them: whom it must give way
// to it may meet at one name alone, while another is in its way at the next.

// contender is somebody who is in the way.
type contender struct {
	owner   string
	ticket  uint64 // since when they have wanted it; 0: they have not waited
	waiting bool   // they do not have it either, and are before us in line
}

// inTheWay is why a node does not give several names: a *HeldError for each that is in the way, those that are held first.
type inTheWay []error

func (e inTheWay) Error() string {
	texts := make([]string, len(e))
	for i, err := range e {
		texts[i] = err.Error()
	}
	return strings.Join(texts, ", ")
}

func (e inTheWay) Unwrap() []error { return e }

// eachContender yields who is in the way on a node that has refused us.
func (d *denial) eachContender(yield func(contender) bool) {
	if d.contenders != nil {
		for _, c := range d.contenders {
			if !yield(c) {
				return
			}
		}
		return
	}
	c := contender{owner: d.rival, ticket: d.rivalTicket}
	if held := (*HeldError)(nil); errors.As(d.err, &held) && held.Waiting {
		c.owner, c.waiting = held.Owner, true
	}
	yield(c)
}

// noteObstacles notes what is in the way of several names on node i, and reports whether a taker displaced us there.
func (f *life) noteObstacles(i int, a *answer) (displaced bool) {
	v := &f.ballot[i]
	v.state = refused
	if !a.Partial { // else a release is owed for what is still ours
		f.settleOwed(v, a.SentAt)
	}
	d := denial{ghost: v.ghost(), first: a.First}
	var held, waiting []error
	seen := make(map[string]bool, len(a.Obstacles))
	for _, o := range a.Obstacles {
		c := contender{waiting: o.Waiting}
		if o.Waiting {
			var err *HeldError
			c.ticket, err = inLine(o.Text)
			c.owner, err.Name = err.Owner, o.Name
			waiting = append(waiting, err)
		} else {
			c.owner, c.ticket = ownerOf(o.Text), ticketOf(o.Text)
			held = append(held, &HeldError{Name: o.Name, Owner: c.owner, Label: labelOf(o.Text), Left: o.Left, Kept: isKept(o.Text)})
			d.freeAt = max(d.freeAt, a.At+o.Left)
			if d.rival == "" || d.rival == tombstone {
				d.rival = c.owner
			}
			if until, listed := displacedIn(o.Text)[f.owner]; listed {
				v.owedUntil = max(v.owedUntil, until-a.Offset.Lo) // as in noteHeld
				displaced = displaced || c.owner != tombstone
			}
		}
		if !seen[c.owner] { // who has several is one
			seen[c.owner] = true
			d.contenders = append(d.contenders, c)
		}
	}
	if len(waiting) > 0 {
		d.freeAt = 0 // those before us in line free nothing by themselves
	}
	d.err = inTheWay(append(held, waiting...))
	v.no = &d
	return displaced
}
