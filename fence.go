package redlock

import (
	"time"
)

// token returns the fencing token of a ballot, the largest any live claim was granted, and how many live claims
// carry exactly that value.
//
// The token is safe to hand out once a quorum of our own claims stores it: a later holder shares a node with that
// quorum, its vote there began after ours ended, and so it is granted more. That is why the largest over *all*
// live claims is taken and not over some quorum, and why a second round counts a node only where our vote stands
// and was granted no more than the token: a raise that any node may acknowledge hands out 13 and then 12.
func (b ballot) token(now time.Duration) (token uint64, agreed int) {
	for i := range b {
		switch v := &b[i]; {
		case !v.counts(now):
		case v.token > token:
			token, agreed = v.token, 1
		case v.token == token:
			agreed++
		}
	}
	return token, agreed
}
