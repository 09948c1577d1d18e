package node

import (
	"strconv"
	"strings"
)

// MarkerKey returns the key of a node's marker.
func MarkerKey(prefix string) string { return prefix + ":marker" }

// LockKey returns the key of a lock. No other key of ours has a brace right behind the prefix.
func LockKey(prefix, name string) string { return prefix + ":{" + name + "}" }

// QueueKey returns the key of the line of those who wait for a lock.
func QueueKey(prefix, name string) string { return prefix + ":queue:{" + name + "}" }

// A semaphore's keys share the beginning, and with it the hash tag, so that a script on one of them finds the others: behind the
// last brace, which ends the name, stand a slot's number, "queue", or nothing.

// SizeKey returns the key that says how many slots a semaphore has, for as long as anybody uses it.
func SizeKey(prefix, name string) string { return prefix + ":slot:{" + name + "}" }

// SlotKey returns the key of a slot, an ordinary lock. Slots count from 1.
func SlotKey(prefix, name string, slot int) string { return SizeKey(prefix, name) + strconv.Itoa(slot) }

// GateKey returns the key of the lock that whoever wants several slots of a semaphore holds while it gets them.
func GateKey(prefix, name string) string { return SizeKey(prefix, name) + gate }

const gate = "gate"

// MaxSlots bounds how many slots a refusal has to look at.
const MaxSlots = 256

// SlotFence returns the name by which a slot's counter is found. A counter for all slots would number those that are taken at the
// same time differently on each node, and cost them a second round.
func SlotFence(name string, slot int) string { return name + "}" + strconv.Itoa(slot) }

// SlotQueueKey returns the key of the line of those who wait for any slot of a semaphore.
func SlotQueueKey(prefix, name string) string { return SizeKey(prefix, name) + "queue" }

// The keys of a reader-writer lock are alike: behind the brace stand nothing for the writer, a reader's owner, "queue", or
// "readers". Ids of those who read, and of those who wait to, begin with an r, which no other id does.

// WriterKey returns the key of a writer, an ordinary lock.
func WriterKey(prefix, name string) string { return prefix + ":rw:{" + name + "}" }

// ReaderKey returns the key of a reader, an ordinary lock, too.
func ReaderKey(prefix, name, owner string) string { return WriterKey(prefix, name) + owner }

// ReadersKey returns the key of the index of readers.
func ReadersKey(prefix, name string) string { return WriterKey(prefix, name) + "readers" }

// WaitersKey returns the key of the line of those who wait to read or to write.
func WaitersKey(prefix, name string) string { return WriterKey(prefix, name) + "queue" }

// ReaderMark begins the owner of a reader, and the id of one who waits to read; no other does.
const ReaderMark = 'r'

// ReaderID makes a random id that of one who reads.
func ReaderID(id string) string { return string(ReaderMark) + id[1:] }

// idLength is that of all ids.
const idLength = 26

// RWBucket returns the number of the counter of those who write, or of those who read: a pair, of which scripts find the other one.
func RWBucket(name string, side int) uint16 {
	pair := FenceBucket(name+"}rw") &^ 1
	if side == Reader {
		return pair + 1
	}
	return pair
}

// parseRW takes the key of a writer or a reader apart behind "rw:".
func parseRW(rest string) (name string, side int, ok bool) {
	end := strings.LastIndexByte(rest, '}')
	if end < 2 || rest[0] != '{' {
		return "", 0, false
	}
	switch owner := rest[end+1:]; {
	case owner == "":
		return rest[1:end], Writer, true
	case len(owner) == idLength && owner[0] == ReaderMark:
		return rest[1:end], Reader, true
	}
	return "", 0, false
}

// ParseLock takes the key of a lock or a slot apart; slot is 0 for a lock, Gate for a semaphore's gate, Writer or Reader for one of a
// reader-writer lock.
func ParseLock(prefix, key string) (name string, slot int, ok bool) {
	rest, ok := strings.CutPrefix(key, prefix+":")
	if !ok {
		return "", 0, false
	}
	if sides, isRW := strings.CutPrefix(rest, "rw:"); isRW {
		return parseRW(sides)
	}
	rest, isSlot := strings.CutPrefix(rest, "slot:")
	end := strings.LastIndexByte(rest, '}')
	if end < 2 || rest[0] != '{' { // no name, or none in braces
		return "", 0, false
	}
	name, number := rest[1:end], rest[end+1:]
	if isSlot && number == gate {
		return name, Gate, true
	}
	if isSlot {
		slot, _ = strconv.Atoi(number)
	}
	if isSlot != (slot > 0) || number != "" && number != strconv.Itoa(slot) {
		return "", 0, false
	}
	return name, slot, true
}

// What stands in the place of a slot for what is none.
const (
	Gate   = -1 // of a semaphore
	Writer = -2 // of a reader-writer lock
	Reader = -3
)

// WakePrefix returns what begins the keys by which waiters are woken.
func WakePrefix(prefix string) string { return prefix + ":wake:" }

// fenceBuckets is how many counters a node keeps for all names together. Counters never expire: 100,000
// volatile keys delay Redis' own expiry of lock keys by seconds, and a counter that expires forgets. Names that
// share one only get larger tokens.
const fenceBuckets = 65536

// FenceKey returns the key of the counter that fences name.
func FenceKey(prefix, name string) string {
	return fencePrefix(prefix) + strconv.Itoa(int(FenceBucket(name)))
}

func fencePrefix(prefix string) string { return prefix + ":fence:" }

// FenceBucket returns the number of the counter that fences name: FNV-1a of the name, by which all clients agree.
func FenceBucket(name string) uint16 {
	h := uint32(2166136261)
	for i := range len(name) {
		h = (h ^ uint32(name[i])) * 16777619
	}
	return uint16(h % fenceBuckets)
}
