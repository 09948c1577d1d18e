package redlock

import (
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/redlock-go/redlock/internal/roster"
)

// A lock is held by the votes of a quorum of the set's members, whatever nodes a program lists. Which of them are members is told
// by the nodes. While some of them have accepted another record, and it may be in force by now, a lock stands by a quorum of each:
// else a lock that is renewed on members who are about to leave could be held beside one that is granted by those who join.

// electorate is by whose votes a life goes.
type electorate = roster.Electorate

// quorum returns how many members make a quorum.
func (f *life) quorum() int {
	if f.by == nil {
		return f.ballot.quorum()
	}
	return f.by.Quorum
}

// voters returns how many of the nodes that are asked are members.
func (f *life) voters() int {
	if f.by == nil {
		return len(f.ballot)
	}
	return f.by.Listed()
}

// size returns how many members there are.
func (f *life) size() int {
	if f.by == nil {
		return len(f.ballot)
	}
	return f.by.Size
}

// isVoter reports whether a node is known to give a member's votes.
func (f *life) isVoter(i int) bool {
	return f.by == nil || f.by.Record == nil || f.by.Record.Has(f.by.Names[i])
}

// unlisted names the members that the program does not list, and so cannot ask.
func unlisted(by *electorate) (errs []error) {
	if by != nil {
		for _, name := range by.Missing {
			errs = append(errs, &NodeError{Addr: name, Err: errUnlisted})
		}
	}
	return errs
}

// stands reports whether the votes that count make a quorum, of all who have to.
func (f *life) stands(now time.Duration) bool {
	return f.ballot.live(now) >= f.quorum() && f.standsAt(now, -1, false)
}

// standsAt looks at the records that were accepted, without the vote of one node (-1: with all), and where sure without those in
// doubt.
func (f *life) standsAt(now time.Duration, without int, sure bool) bool {
	if f.by == nil {
		return true
	}
	for i := range f.by.Pending {
		if p := &f.by.Pending[i]; f.votesOf(p, now, without, sure) < p.Quorum {
			return false
		}
	}
	return true
}

// votesOf counts the votes of a record's members, nil: of all nodes; without that of one node (-1: with all), and where sure
// without those in doubt.
func (f *life) votesOf(by *electorate, now time.Duration, without int, sure bool) (n int) {
	for i := range f.ballot {
		if v := &f.ballot[i]; (by == nil || by.Members[i]) && i != without && v.counts(now) && !(sure && v.state == doubted) {
			n++
		}
	}
	return n
}

// lacking returns the record by which there are too few votes: the one in force, or one that was accepted in its place.
func (f *life) lacking(now time.Duration) *electorate {
	if f.by != nil && f.ballot.live(now) >= f.by.Quorum {
		for i := range f.by.Pending {
			if p := &f.by.Pending[i]; f.votesOf(p, now, -1, false) < p.Quorum {
				return p
			}
		}
	}
	return f.by
}

// standsUntil returns the instant at which the votes stop making a quorum, if nothing renews them.
func (f *life) standsUntil() time.Duration {
	until := f.ballot.validUntil(f.quorum(), nil)
	if f.by != nil {
		for i := range f.by.Pending {
			until = min(until, f.ballot.validUntil(f.by.Pending[i].Quorum, f.by.Pending[i].Members))
		}
	}
	return until
}

// goesBy reports whether a node's answer counts: it is a member, and went by the same record as we do. Of a record that is in force
// somewhere all members have held at least the proposal.
func (f *life) goesBy(i int, a *answer) bool {
	switch {
	case f.by == nil:
		return true
	case f.by.Record == nil:
		return !a.InForce
	}
	return f.by.Members[i] && a.By.Is(f.by.Record)
}

// errOtherRoster is why the yes of a node does not count for now.
var errOtherRoster = errors.New("it goes by another record of the set's members, and is being looked at")

// errUnlisted is a member's part that the program does not list.
var errUnlisted = fmt.Errorf("%w: it is a member of the set, and is not among the Nodes listed here", ErrDisagreement)

// rostered has a life go by another electorate. A lock goes on if it stands by the old and by the new one; an attempt ends, and its
// caller asks once more.
func (f *life) rostered(by *electorate, now time.Duration) {
	was := f.by
	if f.by = by; f.phase == entered || f.phase == over {
		return
	}
	moved := was != nil && (by.Quorum != was.Quorum || !slices.Equal(by.Members, was.Members))
	for i := range f.ballot {
		if v := &f.ballot[i]; !by.Members[i] && v.state != failed {
			v.state = failed
			v.note(errNoMember)
		}
	}
	switch {
	case f.phase.alive() && by.Record != nil && f.lease > by.Record.Longest:
		f.end(f.report(now, ErrLost), now)
	case f.phase.alive():
		f.dieIfBelow(now)
	case moved:
		f.outdated = true
		f.fail(now)
	}
}

// errNoMember is a node's part that votes no more.
var errNoMember = fmt.Errorf("%w: it is not a member of the set any more", ErrDisagreement)
