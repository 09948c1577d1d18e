package node

import (
	"context"
	"errors"
	"log/slog"
	"strings"
	"time"

	"github.com/redis/rueidis"

	"github.com/redlock-go/redlock/internal/roster"
)

// What the Logger is told, each line once for a change and not for a try. docs/logging.md lists all of them. A line that
// comes from under a mutex, or from where answers are waited for, is logged by a goroutine of its own: a Logger may be
// slow.

// telling is what was logged of a node, to tell a change from a repetition; the keeper's own.
type telling struct {
	told       string        // its condition
	toldAt     time.Duration // when it was last found unable to vote; 0: it was not
	version    string
	policy     string // which eviction policy was warned of
	toldPushes bool   // that it refuses client tracking
	toldTill   int64  // the end of its quarantine, µs of node time; 0: it is in none
}

const (
	conditionUp   = "up"
	conditionDown = "down"
)

// condition says in a word what a check came to. The texts of errors do not do: they hold times and port numbers, and
// while a machine goes down a timeout, a reset and a refusal follow each other.
func condition(err error) string {
	if err == nil {
		return conditionUp
	}
	for _, kind := range []error{ErrUnsupportedNode, ErrDisagreement, ErrClockOff, ErrQuarantined, errRights} {
		if errors.Is(err, kind) {
			return kind.Error()
		}
	}
	if wrongTLS(err) {
		return errTLS.Error()
	}
	if re := (*rueidis.RedisError)(nil); errors.As(err, &re) {
		word, _, _ := strings.Cut(re.Error(), " ")
		return word
	}
	return conditionDown
}

// tell logs what a node's check came to, or that its connection is gone, if that is news.
func (n *Node) tell(err error) {
	now := condition(err)
	if now == n.told || n.set.option.Life.Err() != nil || errors.Is(err, errTracking) { // cancelled, or looked at again at once
		return
	}
	before := n.told
	n.told = now
	attrs := []slog.Attr{slog.String("node", n.addr)}
	if err == nil {
		attrs = append(attrs, slog.String("version", n.version))
		if n.toldAt != 0 {
			attrs = append(attrs, slog.String("after", Rounded(n.set.option.Clock.Now()-n.toldAt).String()))
			n.toldAt = 0
		}
		n.set.option.Log.LogAttrs(context.Background(), slog.LevelInfo, "redlock: node is up", attrs...)
		return
	}
	if n.toldAt == 0 && (before != "" || now != ErrQuarantined.Error()) { // at first every node's memory is looked into
		n.toldAt = n.set.option.Clock.Now()
	}
	what, level := "redlock: node cannot vote", slog.LevelWarn
	switch now {
	case conditionDown:
		what = "redlock: node is down"
	case ErrQuarantined.Error():
		level = slog.LevelInfo // it ends by itself
	}
	n.set.option.Log.LogAttrs(context.Background(), level, what, append(attrs, slog.String("error", err.Error()))...)
}

// tellQuarantine logs the begin and the end of a node's quarantine, and returns when to look again: 0 for not at all.
func (n *Node) tellQuarantine() time.Duration {
	n.mu.Lock()
	m := n.known.marker
	n.mu.Unlock()
	t, _ := n.Time(n.set.option.Clock.Now())
	left := time.Duration(m.until)*time.Microsecond - t
	switch {
	case left <= 0 && n.toldTill != 0:
		n.toldTill = 0
		n.set.option.Log.Info("redlock: node's quarantine is over", "node", n.addr)
	case left > 0 && n.toldTill != m.until:
		n.toldTill = m.until
		n.set.option.Log.Info("redlock: node is quarantined: it grants nothing yet", "node", n.addr, "left", Rounded(left).String())
	}
	if left <= 0 {
		return 0
	}
	return left + time.Millisecond
}

// tellMarked logs that this program has written a node's marker.
func (n *Node) tellMarked(was seen, c change) {
	switch {
	case was.adopted && c.roster != was.marker.roster: // what comes of it is told of the set
	case was.adopted:
		n.set.option.Log.Info("redlock: amended a node's marker", "node", n.addr, "from", was.marker.rest(), "to", c.rest())
	case c.first:
		n.set.option.Log.Info("redlock: adopted a brand-new node", "node", n.addr, "quarantine", c.quarantine.String())
	default:
		n.set.option.Log.Warn("redlock: adopted a node that lost its memory", "node", n.addr, "quarantine", c.quarantine.String(), "marker", was.marker.raw)
	}
}

// tellRoster logs who makes up the set from now on.
func (ns *Set) tellRoster(r *roster.Record) {
	ns.option.Log.Info("redlock: members of the set", "members", strings.Join(r.Members, ", "), "roster", r.Version, "longest", r.Longest.String())
}

// tellEviction warns of a server that may evict locks.
func (n *Node) tellEviction(info serverInfo) {
	policy := ""
	if info.maxMemory > 0 && info.policy != "noeviction" {
		policy = info.policy
	}
	if policy != n.policy && policy != "" {
		n.set.option.Log.Warn("redlock: node may evict locks: set maxmemory-policy noeviction", "node", n.addr, "policy", policy)
	}
	n.policy = policy
}

// tellPushes logs that a server which refused client tracking takes it again.
func (n *Node) tellPushes() {
	if n.toldPushes && !n.pushesOff {
		n.toldPushes = false
		n.set.option.Log.Info("redlock: node takes client tracking again", "node", n.addr)
	}
}

// tellClock logs that a node's clock is off by so much, or that its votes count again.
func (n *Node) tellClock(what string, off time.Duration) {
	if off == 0 {
		n.set.option.Log.Info("redlock: node's clock is right again: its votes count", "node", n.addr)
		return
	}
	n.set.option.Log.Warn(what, "node", n.addr, "off", Rounded(off).String(), "bound", n.set.option.ClockBound.String())
}
