package redlock

import (
	"fmt"
	"math/rand/v2"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// What a vote can be at the moment of the verdict.
const (
	votedYes = iota
	votedNo
	votedUnknown // failed, timed out, known down or quarantined
	withinTime   // no answer yet, and its time is not over
	votedTooLate // said yes, and the claim has ended by now
	kindsOfVote
)

const voteNow = 100 * time.Second

func voteOf(kind int) vote {
	switch kind {
	case votedYes:
		return vote{state: granted, until: voteNow + 1}
	case votedNo:
		return vote{state: refused}
	case votedUnknown:
		return vote{state: failed}
	case withinTime:
		return vote{state: pending}
	default:
		return vote{state: granted, until: voteNow}
	}
}

// patterns calls f with every row of n votes out of so many kinds.
func patterns(n, kinds int, f func(votes []int)) {
	votes := make([]int, n)
	for {
		f(votes)
		i := 0
		for ; i < n; i++ {
			if votes[i]++; votes[i] < kinds {
				break
			}
			votes[i] = 0
		}
		if i == n {
			return
		}
	}
}

// define is the definition, in other words than the code's: a lock is won when more than half of all nodes said yes;
// a verdict is due as soon as no answer still to come can change it.
func define(votes []int) verdict {
	for i, v := range votes {
		if v != withinTime {
			continue
		}
		if 2*count(votes, votedYes) > len(votes) {
			return won
		}
		// Whatever this one says: if a yes makes a difference to a no, it is too early.
		yes, no := append([]int(nil), votes...), append([]int(nil), votes...)
		yes[i], no[i] = votedYes, votedNo
		if a, b := define(yes), define(no); (a == won) != (b == won) || a == undecided || b == undecided {
			return undecided
		}
	}
	if 2*count(votes, votedYes) > len(votes) {
		return won
	}
	u := count(votes, votedUnknown) + count(votes, votedTooLate)
	if 2*(len(votes)-u) > len(votes) {
		return notLocked
	}
	return unreachable
}

func count(votes []int, kind int) int {
	n := 0
	for _, v := range votes {
		if v == kind {
			n++
		}
	}
	return n
}

func ballotOf(votes []int) ballot {
	b := make(ballot, len(votes))
	for i, v := range votes {
		b[i] = voteOf(v)
	}
	return b
}

func TestVerdictOfAllVotePatterns(t *testing.T) {
	for _, alphabet := range []struct {
		name  string
		kinds int
	}{
		{"3^N: all answers are in", withinTime},
		{"4^N: verdicts while nodes are silent", votedTooLate},
		{"5^N: votes that ended before the verdict", kindsOfVote},
	} {
		t.Run(alphabet.name, func(t *testing.T) {
			for n := 1; n <= 5; n++ {
				tried := 0
				patterns(n, alphabet.kinds, func(votes []int) {
					tried++
					require.Equal(t, define(votes), ballotOf(votes).verdict(voteNow, quorumOf(n)), "votes %v", votes)
				})
				want := 1
				for range n {
					want *= alphabet.kinds
				}
				require.Equal(t, want, tried)
			}
		})
	}
}

func TestVerdictWithAllAnswersIsNeverUndecided(t *testing.T) {
	for n := 1; n <= 5; n++ {
		patterns(n, withinTime, func(votes []int) {
			require.NotEqual(t, undecided, ballotOf(votes).verdict(voteNow, quorumOf(n)), "votes %v", votes)
		})
	}
}

func TestVerdictIsFinal(t *testing.T) {
	for n := 1; n <= 5; n++ {
		patterns(n, votedTooLate, func(votes []int) {
			early := ballotOf(votes).verdict(voteNow, quorumOf(n))
			if early == undecided {
				return
			}
			for i, v := range votes {
				if v != withinTime {
					continue
				}
				for answer := votedYes; answer <= votedUnknown; answer++ {
					later := ballotOf(votes)
					later[i] = voteOf(answer)
					require.Equal(t, early == won, later.verdict(voteNow, quorumOf(n)) == won, "votes %v, then %d from node %d", votes, answer, i)
				}
			}
		})
	}
}

func TestQuorumOf(t *testing.T) {
	for n, want := range map[int]int{1: 1, 2: 2, 3: 2, 4: 3, 5: 3, 6: 4, 7: 4, 9: 5} {
		require.Equal(t, want, quorumOf(n), "n = %d", n)
		require.Greater(t, 2*want, n, "two quorums share a node")
	}
}

func TestValidUntilIsTheQthLargestDeadline(t *testing.T) {
	random := rand.New(rand.NewPCG(1, 2))
	for range 20_000 {
		b := make(ballot, 1+random.IntN(7))
		claims := 0
		for i := range b {
			b[i] = vote{state: voteState(random.IntN(5)), until: time.Duration(1 + random.IntN(10))}
			if b[i].state == granted || b[i].state == doubted {
				claims++
			}
		}
		until := b.validUntil(b.quorum(), nil)
		if claims < b.quorum() {
			require.Zero(t, until, "%v", b)
			continue
		}
		require.GreaterOrEqual(t, b.live(until-1), b.quorum(), "one nanosecond before, a quorum: %v, %v", b, until)
		require.Less(t, b.live(until), b.quorum(), "at the instant, none: %v, %v", b, until)
	}
}

func TestValidUntilExamples(t *testing.T) {
	at := func(deadlines ...time.Duration) ballot {
		b := make(ballot, len(deadlines))
		for i, d := range deadlines {
			if d != 0 {
				b[i] = vote{state: granted, until: d}
			}
		}
		return b
	}
	for _, row := range []struct {
		reason string
		ballot ballot
		want   time.Duration
	}{
		{"one node: its own", at(7), 7},
		{"two nodes: both are needed, the earlier", at(7, 3), 3},
		{"three: the second latest", at(9, 1, 5), 5},
		{"four: the third latest", at(9, 1, 5, 7), 5},
		{"five, two without a vote: the earliest of three", at(0, 9, 4, 0, 6), 4},
		{"five, three without a vote: none", at(0, 9, 0, 0, 6), 0},
	} {
		require.Equal(t, row.want, row.ballot.validUntil(row.ballot.quorum(), nil), row.reason)
	}
}

func TestStandingLeavesOutItselfTheSuspectAndTheExpired(t *testing.T) {
	for n := 1; n <= 5; n++ {
		patterns(n, kindsOfVote, func(votes []int) {
			for suspects := range 1 << n {
				b := ballotOf(votes)
				for i := range b {
					if b[i].state == granted && suspects>>i&1 == 1 {
						b[i].state = doubted
					}
				}
				for i := range b {
					want := 0
					for j, v := range votes {
						if v == votedYes && suspects>>j&1 == 0 && j != i {
							want++
						}
					}
					require.Equal(t, want, b.standing(voteNow, i), "votes %v, suspects %b, without %d", votes, suspects, i)
				}
			}
		})
	}
}

func TestTokenIsTheLargestOverAllLiveClaims(t *testing.T) {
	live, ended := voteOf(votedYes), voteOf(votedTooLate)
	with := func(v vote, token uint64) vote {
		v.token = token
		return v
	}
	for _, row := range []struct {
		reason string
		ballot ballot
		token  uint64
		agreed int
	}{
		{"no claim", ballot{voteOf(votedNo), voteOf(withinTime), voteOf(votedUnknown)}, 0, 0},
		{"usual: all grant the proposal", ballot{with(live, 5), with(live, 5), with(live, 5)}, 5, 3},
		{"one node is ahead", ballot{with(live, 5), with(live, 9), with(live, 5)}, 9, 1},
		{"the largest first", ballot{with(live, 9), with(live, 5), with(live, 9)}, 9, 2},
		{"an ended claim has no say", ballot{with(live, 5), with(ended, 9), with(live, 5)}, 5, 2},
		{"a lost vote has no say", ballot{with(live, 5), with(voteOf(votedNo), 9), with(voteOf(votedUnknown), 9)}, 5, 1},
	} {
		token, agreed := row.ballot.token(voteNow)
		require.Equal(t, row.token, token, row.reason)
		require.Equal(t, row.agreed, agreed, row.reason)
	}
}

func TestClaimCountsUpToItsEndAndNotAtIt(t *testing.T) {
	v := vote{state: granted, until: voteNow}
	require.True(t, v.counts(voteNow-1))
	require.False(t, v.counts(voteNow))
	for _, s := range []voteState{pending, refused, failed} {
		v := vote{state: s, until: voteNow}
		require.False(t, v.counts(0), fmt.Sprint(s))
	}
}

// A waiter has its place if those who came later find no quorum of nodes without it: on any other node they may be granted.
func TestAPlaceInLineLeavesNoQuorumToOthers(t *testing.T) {
	const inLine = kindsOfVote // refused, and put in line
	for n := 1; n <= 5; n++ {
		patterns(n, kindsOfVote+1, func(votes []int) {
			f := life{waits: true, staying: true, ballot: make(ballot, n)}
			others := 0
			for i, kind := range votes {
				if kind == inLine {
					f.ballot[i] = vote{state: refused, inLine: true}
					continue
				}
				f.ballot[i] = voteOf(kind)
				if kind != votedYes {
					others++
				}
			}
			require.Equal(t, 2*others <= n, f.hasPlace(voteNow), "%v", votes)
			f.staying = false
			require.False(t, f.hasPlace(voteNow), "it is to leave: %v", votes)
		})
	}
}

// The waiter of a lock that is held is let go of when it stands in no line, and nothing is on its way that could put it in one: who
// forgot it before would leave its place to hold up others.
func TestAWaiterIsLetGoOfWhenItIsInNoLine(t *testing.T) {
	f := life{phase: held, waits: true, ballot: make(ballot, 3)}
	require.True(t, f.outOfLine())
	f.ballot[1].inLine = true
	require.False(t, f.outOfLine())
	f.ballot[1] = vote{away: true}
	require.False(t, f.outOfLine())
	for f.phase = entered; f.phase < held; f.phase++ {
		require.False(t, (&life{phase: f.phase, ballot: make(ballot, 3)}).outOfLine())
	}
	require.False(t, (&life{phase: over, ballot: make(ballot, 3)}).outOfLine(), "it may have to leave yet")
}
