package redlock

import (
	"cmp"
	"slices"
	"strings"
	"time"
)

// Who waits for a lock by Grace asks its holder to let go. On a node the question is a mark in the holder's own value, with the
// instant in node time at which the lock is taken over:
//
//	<owner>…;?<waiter>@<until µs>
//
// The holder reads it in what its renewals return, and at once where the node pushes it the change.

// asker is what a holder knows of one who asks it to let go.
type asker struct {
	until time.Duration // then the lock is taken over; once noted it stays, or every node would say another
	on    map[int]bool  // nodes that say so
}

// noteAskers takes who asks for the lock by what node i has said of our own value.
func (f *life) noteAskers(i int, a *answer, now time.Duration) {
	askers := f.rarely().askers
	if a.Err != nil || a.Code != codeOK && a.Code != codeWonBack || askers == nil && !strings.Contains(a.Text, ";"+askMark) {
		return
	}
	listed := askersIn(a.Text)
	for id, at := range listed {
		at -= a.Offset.Hi
		if askers[id] == nil && at+f.timeout > now {
			if askers == nil {
				askers = make(map[string]*asker)
				f.own().askers = askers
			}
			askers[id] = &asker{until: at, on: make(map[int]bool)}
		}
		if k := askers[id]; k != nil {
			k.on[i] = true
		}
	}
	for id, k := range askers {
		if listed[id] == 0 {
			delete(k.on, i)
		}
		if len(k.on) == 0 || k.until+f.timeout <= now {
			delete(askers, id)
		}
	}
}

// askedUntil returns when the first of those who ask for the lock takes it over; 0 where nobody asks. One that has not done so
// within the time of a round has gone.
func (f *life) askedUntil(now time.Duration) time.Duration {
	first := time.Duration(0)
	for _, k := range f.rarely().askers {
		if k.until+f.timeout > now && (first == 0 || k.until < first) {
			first = k.until
		}
	}
	return first
}

// onlyKept reports whether nobody can hold the lock that an attempt did not get, because so many nodes say that it is kept.
func (f *life) onlyKept() bool {
	kept, free := 0, 0
	for i := range f.ballot {
		switch v := &f.ballot[i]; {
		case v.state == refused && v.said().rival == tombstone:
			kept++
		case v.claims():
			free++
		}
	}
	return kept > 0 && kept+free >= f.quorum()
}

// holding is what one who asks has last heard of a node: who holds the lock there, and whether that one is asked there to let go.
type holding struct {
	owner string
	asked bool
	tried int // how often it was to be
}

// toAsk returns on which nodes the holder, who has most of them, is to be asked next: where it is not, those first where that was
// tried least.
//
// What tells a holder is a push, and it puts the vote in doubt until the holder has looked. So it is asked on no more nodes
// at a time than it has votes to spare, as far as those can be seen from here; where it has none, on one.
func toAsk(heard map[int]holding, quorum int) []int {
	on := make(map[string][]int)
	var most []int
	for i, h := range heard {
		if on[h.owner] = append(on[h.owner], i); len(on[h.owner]) > len(most) {
			most = on[h.owner]
		}
	}
	spare := max(1, len(most)-quorum)
	most = slices.DeleteFunc(most, func(i int) bool { return heard[i].asked })
	slices.SortFunc(most, func(i, j int) int { return cmp.Or(cmp.Compare(heard[i].tried, heard[j].tried), cmp.Compare(i, j)) })
	return most[:min(spare, len(most))]
}
