package redlock

import (
	"errors"
	"fmt"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// Lives by what happens to them, on three nodes, without a node, a clock or a guard. A story is a list of happenings:
//
//	ask            all nodes are asked                       wait 300      so many milliseconds pass
//	1 yes          node 1 says yes; "1 yes 7" grants token 7  tick          what is due is done
//	1 held R       somebody called R holds it there          release       the user releases
//	1 absent       the key is gone there                     1 late        the step arrived too late
//	1 down         the connection went                       1 unsent      it could not be sent
//	1 push         the node names the key                    1 flush       the node was flushed or disconnected
//	1 look         the keeper has looked at the node         1 free        the node says that the lock is free
//	line           who asks waits, and stands in line where  1 behind      an earlier attempt of the same waiter has let go there,
//	               it is refused                                           and so stays in line
//	1 overtaken    node 1 had said yes before that, and is heard after it
//	slot           of a semaphore of two, the first is asked for     1 slots 9,0    it is not free there: for how many ms each is taken
//
// and it ends as a line says: the phase; each node's vote: p(ending), g(ranted), d(oubted), r(efused), f(ailed), in capitals
// while it counts; and what is on its way to each node: ?(question), +(renewal), w(ins back), -(release), l(eaves the line, and releases),
// s(tays in line, and releases), .(nothing).
// The lease is 1000 ms, a round 250, the interval 333; drift and bound are 0.
func TestLifeByEvents(t *testing.T) {
	for _, row := range []struct{ name, story, end string }{
		{"asked", "ask", "asking ppp ???"},
		{"a quorum is enough", "ask; 0 yes; 1 yes", "held GGp ..?"},
		{"the third is added", "ask; 0 yes; 1 yes; 2 yes", "held GGG ..."},
		{"a second round of fencing where tokens differ", "ask; 0 yes; 1 yes 7", "raising GGp +.?"},
		{"and is over when a quorum stores it", "ask; 0 yes; 1 yes 7; 0 yes", "held GGp ..?"},
		{"two refuse", "ask; 0 yes; 1 held R; 2 held R", "over Grr -.."},
		{"two cannot be sent to", "ask; 0 unsent; 1 unsent", "over ffp ..?"},
		{"all that cannot be sent to count", "ask; all unsent", "over fff ..."},
		{"nothing within a round", "ask; 0 yes; wait 250; tick", "over Gff -??"},
		{"who was asked once more too late to answer has refused", "ask; 0 held R; 0 free; wait 250; tick", "over rff ???"},
		{"or has said yes, which a push has made void", "ask; 0 push; 0 yes; wait 250; tick", "over rff ???"},
		{"before its answer, or after it", "ask; 0 yes; 0 push; wait 250; tick", "over rff ???"},
		{"a straggler that says yes is given back", "ask; 0 held R; 1 held R; 2 yes", "over rrp ..-"},
		{"a push before the answer: asked again", "ask; 0 push; 0 yes; 1 yes", "asking pGp ?.?"},
		{"a look before the answer: it counts", "ask; 0 look; 0 yes; 1 yes", "held GGp ..?"},
		{"a flush before the answer: asked again", "ask; 0 flush; 0 yes; 1 yes", "asking pGp ?.?"},

		{"renewed", "HELD; wait 334; tick", "held GGG +++"},
		{"and counts from then", "HELD; wait 334; tick; 0 yes; 1 yes; 2 yes; wait 700; clock", "held GGG ..."},
		{"not renewed, it ends by the clock", "HELD; wait 1000; clock", "over ggg ---"},
		{"whatever comes after that", "HELD; wait 334; tick; wait 700; 0 yes; 1 yes; 2 yes", "over ggg ---"},
		{"a push doubts, and is looked into", "HELD; 0 push", "held DGG +.."},
		{"it stands", "HELD; 0 push; 0 yes", "held GGG ..."},
		{"it is gone: not won back at once", "HELD; 0 push; 0 absent", "held rGG ..."},
		{"but at the next renewal", "HELD; 0 push; 0 absent; wait 334; tick", "held rGG w++"},
		{"and won", "HELD; 0 push; 0 absent; wait 334; tick; 0 won", "held GGG .++"},
		{"not when the next in doubt has ended meanwhile", "HELD; 0 push; 0 absent; 1 push; wait 334; tick", "over rdG .+-"},
		{"pushed while it is won back: looked at again", "HELD; 0 push; 0 absent; wait 334; tick; 0 push; 0 won", "held rGG w++"},
		{"two gone: lost", "HELD; 0 push; 1 push; 0 absent; 1 absent; clock", "over rrG ..-"},
		{"errors lose nothing for now", "HELD; wait 334; tick; 0 err; 1 err; 2 err", "held GGG ..."},
		{"a connection that went: the release goes out twice", "HELD; wait 334; tick; 0 down; release", "over GGG -++"},

		{"released", "HELD; release", "over GGG ---"},
		{"and confirmed", "HELD; release; 0 gone; 1 gone; 2 gone", "over GGG ..."},
		{"a release that was sent before a question on its way had run out: once more", "ask; 0 down; 1 held R; wait 260; 0 gone", "over frp -.?"},
		{"and that is enough", "ask; 0 down; 1 held R; wait 260; 0 gone; 0 gone", "over frp ..?"},
		{"a renewal on its way may have prolonged the lease: released, however late", "HELD; wait 334; tick; 1 yes; 2 yes; wait 950; release; 0 yes", "over gGG ---"},
		{"found not to be ours: it was lost before", "HELD; release; 0 notours; 1 notours", "over rrG ..-"},

		{"a taker waits for whom it displaced", "take; 0 yes ;A@1000; 1 yes ;A@1000", "clearing GGp ..?"},
		{"and holds when they are struck out", "take; 0 yes ;A@1000; 1 yes ;A@1000; 1 push; 1 kept", "held GGp ..?"},
		{"or asks again when they have run out", "take; 0 yes ;A@1000; 1 yes ;A@1000; wait 400; tick; 0 kept ;A@1000; 1 kept ;A@1000; wait 601; tick", "confirming GGp ++?"},
		{"who got the lock leaves the line with it, where it stands in one", "line; ask; 0 held R; 1 yes; 2 yes; release", "over rGG l--"},
		{"who waits is not asked again because the key has changed", "line; ask; 0 held R; 0 push", "asking rpp .??"},
		{"nor by a refusal that comes after that", "line; ask; 0 push; 0 held R", "asking rpp .??"},
		{"but where it is free for it", "line; ask; 0 held R; 0 push; 0 free", "asking ppp ???"},
		{"or where it has the vote", "line; ask; 0 yes; 0 push", "asking ppp ???"},
		{"or is told yes after that", "line; ask; 0 push; 0 yes", "asking ppp ???"},
		{"and no more where it was served", "line; ask; 0 held R; 0 free; 0 yes; 1 yes; release", "over GGp --?"},
		{"but where it had been granted already and lined up anew", "line; ask; 0 yes; 0 behind; 0 push; 0 kept; 1 yes; release", "over GGp l-?"},
		{"or is heard of only now that it was granted before it lined up anew", "line; ask; 0 behind; 0 overtaken; 1 yes; release", "over GGp l-?"},
		{"and where it is renewed", "line; ask; 0 yes; 1 yes 7; 0 behind; 0 yes; release", "over GGp l-?"},
		{"who is refused lets go, and stays in line", "line; ask; 0 yes; 1 held R; 2 held R", "over Grr s.."},
		{"so does who is refused a slot while all are taken", "line; slot; ask; 0 yes; 1 slots 300,300; 2 slots 300,300", "over Grr s.."},
		{"not who goes on to another slot: it may have it before the release comes", "line; slot; ask; 0 yes; 1 slots 300,0; 2 slots 300,0", "over Grr -.."},
		{"a try lets go to an older one", "try 5; 0 yes; 1 held R#3; 2 held S#9", "over Grr -.."},
		{"and keeps its votes among younger ones", "try 5; 0 yes; 1 held R#8; 2 held S#9", "asking Grr ..."},
		{"and asks those again", "try 5; 0 yes; 1 held R#8; 2 held S#9; wait 4; tick", "asking Gpp .??"},
	} {
		t.Run(row.name, func(t *testing.T) {
			s := &story{t: t, f: &life{
				rules: &rules{nodes: []string{"a", "b", "c"}, lease: time.Second, interval: 333 * time.Millisecond, timeout: 250 * time.Millisecond},
				name:  "x", owner: "us", ballot: make(ballot, 3), pace: 333 * time.Millisecond,
			}}
			s.tell(strings.Replace(row.story, "HELD", "ask; 0 yes; 1 yes; 2 yes", 1))
			require.Equal(t, row.end, s.end(), row.story)
		})
	}
}

// story is a life and the time it is.
type story struct {
	t      *testing.T
	f      *life
	now    time.Duration
	sentAt [3]time.Duration // the step that node was sent last
}

func (s *story) tell(text string) {
	for _, what := range strings.Split(text, "; ") {
		words := strings.Fields(what)
		if node, err := strconv.Atoi(words[0]); err == nil {
			s.ofNode(node, words[1], strings.Join(words[2:], " "))
			continue
		}
		number := func() int {
			n, err := strconv.Atoi(words[1])
			require.NoError(s.t, err, what)
			return n
		}
		switch words[0] {
		case "all": // that fail at once decide together: each has its own reason in the error
			s.on(event{kind: unsent, failed: []failedSend{{0, ErrNodeDown}, {1, ErrNodeDown}, {2, ErrUnsupportedNode}}})
			require.ErrorIs(s.t, s.f.cause, ErrUnsupportedNode)
		case "line":
			s.f.waits, s.f.staying = true, true
		case "slot":
			s.f.slot, s.f.slots = 1, 2
		case "ask":
			s.on(event{kind: asked, proposal: 1})
		case "take":
			s.f.takeover = takeoverSafely
			s.on(event{kind: asked, proposal: 1, longest: time.Second})
		case "try":
			s.f.ticket = uint64(number())
			s.on(event{kind: asked, proposal: 1, pause: 4 * time.Millisecond})
		case "wait":
			s.now += time.Duration(number()) * time.Millisecond
		case "tick":
			s.on(event{kind: ticked, pace: s.f.interval})
		case "clock":
			s.on(event{kind: clockRead})
		case "release":
			s.on(event{kind: ended, cause: ErrReleased})
		default:
			require.Fail(s.t, "no happening", what)
		}
	}
}

func (s *story) ofNode(i int, what, rest string) {
	a := answer{SentAt: s.sentAt[i], At: s.now, Within: 50 * time.Millisecond, Offset: offset{At: s.now}, HasClock: true}
	e := event{kind: answered, node: i}
	switch what {
	case "push":
		e = event{kind: pushed, node: i, within: 50 * time.Millisecond}
	case "behind":
		s.f.ballot[i].inLine = true
		return
	case "flush":
		e.kind = flushed
	case "look":
		e.kind = looked
	case "free":
		e.kind = free
	case "unsent":
		e = event{kind: unsent, failed: []failedSend{{i, ErrNodeDown}}}
	case "yes", "kept", "overtaken":
		a.Code, a.Number, a.Kept, a.LinedUp = codeOK, 1, what == "kept", what == "overtaken"
		if token, err := strconv.ParseInt(rest, 10, 64); err == nil {
			a.Number = token
		} else if rest != "" { // a list, in milliseconds of the story
			owner, until, _ := strings.Cut(rest, "@")
			a.Text = fmt.Sprintf("%s@%s000", owner, until)
		}
	case "won":
		a.Code = codeWonBack
	case "held":
		a.Code, a.Text, a.Number = codeHeld, rest, 500
	case "slots":
		a.Code, a.Text, a.Number, a.Lefts, a.Place = codeHeld, "R", 500, rest, 1
	case "absent":
		a.Code = codeAbsent
	case "gone":
		a.Code = codeOK
	case "notours":
		a.Code = codeHeld
	case "down":
		a.Err = ErrNodeDown
	case "err":
		a.Err = errors.New("BUSY")
	default:
		require.Fail(s.t, "no happening", what)
	}
	e.answer = &a
	s.on(e)
}

func (s *story) on(e event) {
	for _, sent := range s.f.on(e, s.now).send {
		s.sentAt[sent.node] = s.now
	}
}

func (s *story) end() string {
	phases := map[phase]string{entered: "entered", asking: "asking", raising: "raising", clearing: "clearing", confirming: "confirming", held: "held", over: "over"}
	var votes, wire strings.Builder
	for i := range s.f.ballot {
		v := &s.f.ballot[i]
		letter := string("pgdrf"[v.state])
		if v.counts(s.now) {
			letter = strings.ToUpper(letter)
		}
		votes.WriteString(letter)
		switch {
		case !v.away:
			wire.WriteString(".")
		case v.step.MayWin:
			wire.WriteString("w")
		case v.step.Leave:
			wire.WriteString("l")
		case v.step.Stay:
			wire.WriteString("s")
		default:
			wire.WriteByte("?+-"[v.step.Script])
		}
	}
	return phases[s.f.phase] + " " + votes.String() + " " + wire.String()
}
