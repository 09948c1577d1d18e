package redlock

import (
	"slices"
	"time"
)

// voteState is what is known of one node's vote.
type voteState uint8

const (
	pending voteState = iota // no answer yet
	granted                  // the node said yes: a claim until vote.until
	doubted                  // it did, and has pushed the key since: the claim may be void, a look is on its way
	refused                  // the node said no: somebody else holds the lock there, or nobody does any more
	failed                   // no vote to be had: an error, silence, a node known to be down, or quarantined
)

// ballot holds the votes of all nodes for one owner, indexed by node. It decides who holds a lock, and knows
// nothing of Redis, goroutines or clocks: what time it is, it is told.
type ballot []vote

// touch has the memory of the votes fetched, both ends of each, while that of others is: a look at it costs more than all that is done to it.
// It takes no mutex, for behind an atomic instruction no read begins before those in front of it are done. So it may come upon a vote
// while that is written to: what it reads goes nowhere.
//
//go:norace
func (b ballot) touch() (sum int) {
	for i := range b {
		sum += int(b[i].until) + int(b[i].step.Script)
	}
	return sum
}

// quorumOf returns how many of n nodes make a quorum: any two quorums share a node, and one node never
// stores two owners.
func quorumOf(n int) int { return n/2 + 1 }

func (b ballot) quorum() int { return quorumOf(len(b)) }

// claims reports whether v is a claim: "this node stores our owner until then". Each claim bounds its own key, so it does
// not matter in which round or in which order the votes came.
func (v *vote) claims() bool { return v.state == granted || v.state == doubted }

// counts reports whether v is a claim that has not ended at now.
func (v *vote) counts(now time.Duration) bool { return v.claims() && v.until > now }

// live returns how many claims are unexpired at now.
func (b ballot) live(now time.Duration) int {
	n := 0
	for i := range b {
		if b[i].counts(now) {
			n++
		}
	}
	return n
}

// standing returns how many nodes other than i hold a claim that nothing speaks against. A lost vote may be
// won back only while a quorum stands without it: otherwise a guard that was dead could come back to life
// after somebody else had held the lock in between.
func (b ballot) standing(now time.Duration, i int) int {
	n := 0
	for j := range b {
		if j != i && b[j].counts(now) && b[j].state != doubted {
			n++
		}
	}
	return n
}

// validUntil returns the instant at which the ballot stops having a quorum of claims: the q-th latest end of
// them, the zero instant if there are fewer than q. Redis' page takes one minimum over the votes of one round
// (https://redis.io/docs/latest/develop/clients/patterns/distributed-locks/); per-node ends are as safe and
// longer, because the guard lives as long as any q keys do.
//
// Only votes of these members are looked at; nil is all.
func (b ballot) validUntil(q int, members []bool) time.Duration {
	var buf [16]time.Duration
	ends := buf[:0]
	for i := range b {
		if b[i].claims() && (members == nil || members[i]) {
			ends = append(ends, b[i].until)
		}
	}
	if len(ends) < q {
		return 0
	}
	slices.Sort(ends)
	return ends[len(ends)-q]
}

// verdict is what a ballot says.
type verdict uint8

const (
	undecided   verdict = iota
	won                 // a quorum of claims is live
	notLocked           // a quorum was reachable, and too few said yes
	unreachable         // too few nodes could vote at all
)

// reachable reports whether a quorum of nodes could vote, whatever they said. A node still within its time counts.
func (b ballot) reachable(now time.Duration, q int) bool {
	unfit := 0
	for i := range b {
		if v := &b[i]; !v.counts(now) && v.state != pending && v.state != refused { // failed, or granted too slowly to be of use
			unfit++
		}
	}
	return len(b)-unfit >= q
}

// silent returns how many nodes have still to answer.
func (b ballot) silent() int {
	n := 0
	for i := range b {
		if b[i].state == pending {
			n++
		}
	}
	return n
}

// verdict decides as early as it can be known: won at q live claims, lost as soon as q is out of reach even if
// every node still silent says yes.
func (b ballot) verdict(now time.Duration, q int) verdict {
	yes, silent := 0, 0
	for i := range b {
		switch v := &b[i]; {
		case v.counts(now):
			yes++
		case v.state == pending:
			silent++
		}
	}
	switch {
	case yes >= q:
		return won
	case yes+silent >= q:
		return undecided
	case b.reachable(now, q):
		return notLocked
	default:
		return unreachable
	}
}
