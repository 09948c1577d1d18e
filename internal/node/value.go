package node

import (
	"fmt"
	"net/url"
	"strconv"
	"strings"
	"time"
)

// A node stores under a lock's key
//
//	<owner>[#<ticket>][!<ms>][=<label>]{;<displaced>@<until µs>}{;?<waiter>@<until µs>}
//
// the owner being random, one for each attempt. The ticket is since when the call wanted the lock; a takeover has none. Where
// the key may last longer than a lease (AtLeast, LockDelay), behind the ! is for how long at most: a node cuts down any other that
// does. The label is for people. The list is that of a takeover, and of those who ask the holder to let go: the root package's
// takeover.go and ask.go. In place of an owner stands a tombstone where nobody holds the lock any more and nobody is to have it yet:
// until the displaced holders that are listed have run out, or, with a !, because it is kept.

// Tombstone is the owner of a value that keeps a lock from others although nobody holds it.
const Tombstone = "~"

// OwnerOf returns the owner in a lock's value.
func OwnerOf(value string) string {
	if end := strings.IndexAny(value, ";#!="); end >= 0 {
		return value[:end]
	}
	return value
}

// TicketOf returns since when the owner in a lock's value had waited for it, 0 if it had not.
func TicketOf(value string) uint64 {
	n, _ := strconv.ParseUint(ticketIn(claimIn(value)), 10, 64)
	return n
}

// ticketIn returns the ticket in a claim.
func ticketIn(claim string) string {
	_, ticket, _ := strings.Cut(claim, "#")
	if end := strings.IndexAny(ticket, "!="); end >= 0 {
		ticket = ticket[:end]
	}
	return ticket
}

// LabelOf returns the label in a lock's value, "" for none.
func LabelOf(value string) string {
	_, escaped, _ := strings.Cut(claimIn(value), "=")
	label, err := url.PathUnescape(escaped)
	if err != nil {
		return escaped
	}
	return label
}

// IsKept reports whether a lock's value says that nobody holds the lock, and that it is kept from others all the same.
func IsKept(value string) bool { return strings.HasPrefix(value, Tombstone+"!") }

// claimIn returns a lock's value without the list of displaced owners.
func claimIn(value string) string {
	claim, _, _ := strings.Cut(value, ";")
	return claim
}

// AskMark begins an entry in a value's list that is no displaced owner.
const AskMark = "?"

// DisplacedIn returns the owners listed in a lock's value, with the end of each one's lease there in node time.
func DisplacedIn(value string) map[string]time.Duration { return listIn(value, "") }

// AskersIn returns who asks for a lock by its value, with the instant in node time at which each takes it over.
func AskersIn(value string) map[string]time.Duration { return listIn(value, AskMark) }

// listIn returns those entries in a value's list that begin with a mark, without it, each with its instant; the others for
// no mark.
func listIn(value, mark string) (listed map[string]time.Duration) {
	for i, entry := range strings.Split(value, ";") {
		who, until, ok := strings.Cut(entry, "@")
		micros, err := strconv.ParseInt(until, 10, 64)
		if i == 0 || !ok || err != nil || strings.HasPrefix(who, AskMark) != (mark == AskMark) {
			continue
		}
		if listed == nil {
			listed = make(map[string]time.Duration)
		}
		listed[who[len(mark):]] = time.Duration(micros) * time.Microsecond
	}
	return listed
}

// ClaimTail returns what follows owner and ticket in the value of a lock that is kept for so long at most, 0 for no longer
// than leases, and has this label.
func ClaimTail(longest time.Duration, label string) string {
	tail := ""
	if longest != 0 {
		tail = "!" + strconv.FormatInt(longest.Milliseconds(), 10)
	}
	if label != "" {
		tail += "=" + escape(label)
	}
	return tail
}

// escape keeps a label readable for who looks at a node, and free of what ends it there.
func escape(label string) string {
	var s strings.Builder
	for _, c := range []byte(label) {
		if c <= ' ' || c >= 0x7f || c == ';' || c == '%' {
			fmt.Fprintf(&s, "%%%02X", c)
		} else {
			s.WriteByte(c)
		}
	}
	return s.String()
}
