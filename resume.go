package redlock

import (
	"errors"
	"fmt"
	"time"
)

// A lock is handed to another process in two steps that need not know of each other. The exporter ends, and from then on
// asks nobody for anything. Whoever resumes has the nodes replace the owner that they store by one of its own, each in one
// step and only where they find the exporter's. So of two that resume one export at most one gets a quorum.
//
// Between the two nobody watches the votes. Those count for the successor that stood at the export, if they are given by
// the same process, which has had the exporter's owner since: nothing could put it back there. A vote that was not there,
// or that a step on its way might still restore, does not; a quorum of those that do proves that nobody else held the lock
// in between. The others are won back later, as any vote is.
//
// Of an owner the first part stays the same from hand to hand. It says that who holds a lock has resumed the same export.

// resumption is what a life goes by that takes a lock over from an exporter.
type resumption struct {
	owner string                   // the exporter's
	votes map[string]time.Duration // by process: the end of the lease there, in node time
}

// identityLen is how much of an owner stays the same when its lock is resumed: 80 random bits of it, and 50 new ones.
const identityLen = 16

// errNotExported is why a node's vote does not count for a lock that is being resumed.
var errNotExported = errors.New("its vote was not among those that were exported, or it has restarted since")

// exportable returns the nodes whose votes may be exported: that count, and that no step on its way can bring back once
// they are gone.
func (f *life) exportable(now time.Duration) (nodes []int) {
	for i := range f.ballot {
		v := &f.ballot[i]
		restores := v.away && (v.step.Script != scriptExtend || v.step.MayWin)
		if v.counts(now) && !v.voided && v.ghost() <= now && !restores {
			nodes = append(nodes, i)
		}
	}
	return nodes
}

// exported ends a life whose nodes are to keep the lock: nothing is owed to them, and nothing is sent from now on.
func (f *life) exported(now time.Duration) {
	f.end(ErrExported, now)
	for i := range f.ballot {
		v := &f.ballot[i]
		v.owedUntil, v.owedBefore, v.voided = 0, 0, false
		v.noteGhost(0)
	}
}

// resumed takes a node's answer to whether it has put our owner in the exporter's place.
func (f *life) resumed(i int, a *answer, now time.Duration) {
	v := &f.ballot[i]
	v.forget(a.SentAt)
	if a.Err != nil {
		v.note(a.Err)
	}
	v.nextAt = a.At + f.poll.pause
	_, counted := f.resumes().votes[a.Server]
	switch {
	case a.Err == errForgotten || a.Err == nil && a.Code == codeOtherMarker:
		v.note(refusal(codeOtherMarker, 0))
		f.askWhenKnown(v)
	case a.Err != nil: // it may be on its way up: asked again until the round is over
		if a.Unsent {
			v.owedUntil = v.owedBefore
		}
	case a.Code == codeOK && !f.goesBy(i, a):
		v.note(errOtherRoster)
		f.askWhenKnown(v)
	case a.Code == codeOK && v.doubted:
		v.due = question
		v.note(errDoubted)
	case a.Code == codeOK && !counted:
		v.state = failed
		v.note(errNotExported)
	case a.Code == codeOK:
		v.state, v.until, v.token = granted, f.claimUntil(a.SentAt), f.token
		v.server.note(a.Server)
		v.renewedAt, v.nextAt = a.SentAt, a.SentAt+f.pace
		f.owe(v)
	case a.Code == codeHeld:
		f.noteHeld(i, a, now)
	case a.Code == codeLate && !v.late:
		v.late, v.due = true, question
	case a.Code == codeAbsent:
		v.state = refused
		v.note(errAbsent)
		if until, known := f.resumes().votes[a.Server]; known && a.At+a.Offset.Hi < until {
			v.note(errGoneEarly)
		}
		f.settleOwed(v, a.SentAt)
	default:
		v.state = failed
		v.note(refusal(a.Code, a.Left()))
	}
}

// errGoneEarly is a node's part where the key of an exported lock is gone although its lease had not run out.
var errGoneEarly = fmt.Errorf("%w, before its lease was over", errAbsent)

// resumeAgain asks those again that could not be asked, if it is time.
func (f *life) resumeAgain(now time.Duration) {
	if f.resumes() == nil || f.phase != asking {
		return
	}
	for i := range f.ballot {
		if v := &f.ballot[i]; v.state == pending && !v.away && v.due == nothing && v.nextAt <= now {
			v.due = question
		}
	}
}

// isFellow reports whether an owner has resumed the same export, or is about to.
func (f *life) isFellow(owner string) bool {
	return len(owner) == ownerLen && owner[:identityLen] == f.owner[:identityLen] && owner != f.resumes().owner
}

// returns reports whether whoever tries again may still resume the lock, now or once all who failed at it have given back
// what they got: by what is known that may be a quorum.
func (f *life) returns() bool {
	n := 0
	for i := range f.ballot {
		if v := &f.ballot[i]; (v.state != refused || f.isFellow(v.said().rival)) && v.said().err != errNotExported {
			n++
		}
	}
	return n >= f.quorum()
}

// notResumed is what has become of a lock that cannot be resumed.
func (f *life) notResumed() error {
	unknown, early := 0, false
	for i := range f.ballot {
		v := &f.ballot[i]
		switch {
		case v.state != refused && v.said().err != errNotExported:
			unknown++ // or ours
		case f.isFellow(v.said().rival), v.said().err == errGoneEarly:
			early = true
		}
	}
	switch {
	case unknown >= f.quorum():
		return ErrNoQuorum
	case early:
		return ErrExportUsed
	}
	return ErrExportExpired
}

// resumesAt returns when the next node that could not be asked is asked again, or the round is over.
func (f *life) resumesAt() time.Duration {
	at := f.round
	for i := range f.ballot {
		if v := &f.ballot[i]; v.state == pending && !v.away && v.due == nothing {
			at = min(at, v.nextAt)
		}
	}
	return at
}
