package node

import (
	"context"
	"errors"
	"fmt"
	"strings"

	"github.com/redis/rueidis"
)

// A server may refuse everybody: its memory is full, its last save failed, it is loading, or busy with a script. Then
// one refusal is enough. The node answers the next steps of that kind itself, and its keeper tries, ever more seldom,
// until the server is well again. Then the listener is told, and so everybody who is owed something there.

// What an error reply says about the step that it answers, and about others.
//
//	reply                                   the step                         other steps
//	LOADING, BUSY, MASTERDOWN, CLUSTERDOWN  refused before it ran            refused alike
//	NOAUTH                                  refused before it ran            refused alike, after a look
//	NOPERM                                  refused before it ran            perhaps, by command and key: after a look
//	MISCONF, READONLY, NOREPLICAS           refused at its first write       refused alike
//	OOM                                     refused at its first write,      acquire is refused; renewal and release
//	                                        which was to store something     write without memory, and go on
//	ACL refusal within a script             may have run in part             perhaps, as NOPERM
//	WRONGTYPE, any other                    may have run in part             nothing
//
// "At its first write" proves that nothing was stored: a server checks those four only until a script has written, and
// nothing of what they depend on changes while a script runs. What a command within a script may touch is checked
// for each command: the lock may have been set by then.
type errorReply struct {
	nothingRan bool   // the step has surely done nothing
	kinds      kindOf // which steps of everybody are refused alike
	rights     bool   // a right may be missing
}

type kindOf uint8

const (
	noKind kindOf = iota
	everyStep
	votesAlone
)

// errorReplyOf reads the text of an error reply, as it comes from a step or from the trial.
func errorReplyOf(text string) errorReply {
	inScript := strings.Contains(text, "user_script") || strings.Contains(text, "in script") || strings.Contains(text, "executing the script")
	if i := strings.LastIndex(text, ": -"); inScript && i >= 0 {
		text = text[i+len(": -"):] // before 7.0: ERR Error running script (call to f_…): @user_script:31: @user_script: 31: -OOM …
	}
	code, _, _ := strings.Cut(text, " ")
	switch {
	case code == "MISCONF", code == "READONLY", code == "NOREPLICAS":
		return errorReply{nothingRan: true, kinds: everyStep}
	case code == "OOM":
		return errorReply{nothingRan: true, kinds: votesAlone}
	case inScript:
		return errorReply{rights: lacksRights(text)}
	case code == "LOADING", code == "BUSY", code == "MASTERDOWN", code == "CLUSTERDOWN":
		return errorReply{nothingRan: true, kinds: everyStep}
	case code == "NOPERM", code == "NOAUTH":
		return errorReply{nothingRan: true, rights: true}
	}
	return errorReply{}
}

// lacksRights reports whether a text says that an ACL refuses a command, or a key, to our user.
func lacksRights(text string) bool {
	return strings.HasPrefix(text, "NOPERM") ||
		strings.Contains(text, "ACL failure in script") || // from 7.2 on, and Valkey
		strings.Contains(text, "user executing the script can't") // before
}

// errRights is why a node has no vote whose ACL refuses something that the scripts need.
var errRights = errors.New("missing rights")

// replyError is what a server said in a reply of the trial.
type replyError string

func (e replyError) Error() string { return string(e) }

// Replied reports whether an error is what a server said, or is like to say: asking again at once cannot help.
func Replied(err error) bool {
	var said replyError
	_, is := rueidis.IsRedisErr(err)
	return is || errors.As(err, &said) || errors.As(err, new(*rueidis.RedisError))
}

// noteRefusal takes an error reply of a step: what it says of everybody holds until the keeper finds otherwise.
func (n *Node) noteRefusal(err error) {
	r := errorReplyOf(err.Error())
	n.mu.Lock()
	defer n.mu.Unlock()
	switch {
	case r.kinds == everyStep:
		n.refusals = refuseAll(err)
	case r.kinds == votesAlone:
		n.refusals[ScriptAcquire] = err
	case !r.rights || n.unfit != nil || n.refusals[ScriptRelease] != nil:
		return // nothing new
	}
	n.doubted = true
	n.LookAgain()
}

type refusals [scriptCount]error

func refuseAll(err error) (r refusals) {
	for i := range r {
		r[i] = err
	}
	return r
}

// isDoubted reports whether a step was refused since the last look began.
func (n *Node) isDoubted() bool {
	n.mu.Lock()
	defer n.mu.Unlock()
	return n.doubted
}

// takeDoubt is isDoubted of a look that begins now.
func (n *Node) takeDoubt() bool {
	n.mu.Lock()
	defer n.mu.Unlock()
	doubted := n.doubted
	n.doubted = false
	return doubted
}

// refused returns how many kinds of steps the node is known to refuse; none while it is not connected.
func (n *Node) refused() (kinds int) {
	n.mu.Lock()
	defer n.mu.Unlock()
	for _, err := range n.refusals {
		if err != nil && n.down == nil {
			kinds++
		}
	}
	return kinds
}

// try finds out what a server refuses: steps of everybody, or commands that our user has no right to. EVALSHA is tried on
// the first look, and where a step was refused.
func (n *Node) try(ctx context.Context, client rueidis.Client) (refusals, error) {
	n.mu.Lock()
	sha := n.scripts.digests[ScriptAcquire] == "" || n.thorough || n.refusals[ScriptAcquire] != nil || errors.Is(n.unfit, errRights)
	n.mu.Unlock()
	return trial(ctx, client, n.set.option.KeyPrefix, sha)
}

// nobody is the id of no waiter. It is not the empty one, whose wake key tells a batch that somebody stands in a line.
const nobody = "-"

// trial asks a server, through any client, what it refuses. It changes nothing.
func trial(ctx context.Context, client rueidis.Client, prefix string, sha bool) (refusals, error) {
	b := client.B()
	commands := []rueidis.Completed{b.Eval().Script(luaTrial).Numkeys(0).
		Arg(LockKey(prefix, ""), MarkerKey(prefix), FenceKey(prefix, ""), QueueKey(prefix, ""), WakePrefix(prefix)+nobody).Build()}
	if sha {
		commands = append(commands, b.Evalsha().Sha1(noDigest).Numkeys(0).Build())
	}
	results := client.DoMulti(ctx, commands...)
	if err := results[0].NonRedisError(); err != nil {
		return refusals{}, ConnectionFault(err)
	}
	if sha {
		if err := results[1].Error(); err != nil && !isNoScript(err) {
			return refuseAll(err), nil
		}
	}
	told, err := results[0].AsStrSlice()
	switch {
	case err != nil && errorReplyOf(err.Error()).kinds == everyStep:
		return refuseAll(err), nil
	case err != nil:
		return refusals{}, fmt.Errorf("%w: EVAL: %w", errRights, err)
	case len(told) < 2:
		return refusals{}, fmt.Errorf("trial answered %d values", len(told))
	}
	return tried(told)
}

// noDigest is the digest of no script of ours: who may run EVALSHA is told NOSCRIPT.
const noDigest = "0000000000000000000000000000000000000000"

// tried reads the answer of the trial.
func tried(told []string) (r refusals, rights error) {
	if errorReplyOf(told[0]).kinds != noKind {
		r[ScriptAcquire] = replyError(told[0])
	}
	if errorReplyOf(told[1]).kinds == everyStep {
		r = refuseAll(replyError(told[1]))
	}
	var missing []string
	for i := 2; i+1 < len(told); i += 2 {
		if lacksRights(told[i+1]) {
			missing = append(missing, told[i])
			rights = replyError(told[i+1])
		}
	}
	if len(missing) > 0 {
		return r, fmt.Errorf("%w: %s (%w); the README has what an ACL must allow", errRights, strings.Join(missing, ", "), rights)
	}
	return r, nil
}
