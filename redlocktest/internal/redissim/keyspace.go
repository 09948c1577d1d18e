package redissim

import (
	"cmp"
	"hash/fnv"
	"slices"
	"strings"
)

// entry is the value of one key. Either str or zset is in use, as typ says.
type entry struct {
	typ      string // "string" or "zset": what TYPE answers
	str      string
	zset     *zset
	expireAt int64 // node clock, ms; 0 is never
}

// database is one of the numbered key spaces.
type database struct {
	keys map[string]*entry
}

// live returns the entry of key, or nil. A key past its time is deleted here, as a real server does on access, and its
// trackers are told.
func (s *Server) live(key string) *entry {
	e := s.db.keys[key]
	if e == nil {
		return nil
	}
	if e.expireAt != 0 && s.nowMs > e.expireAt {
		s.remove(s.db, key)
		s.signalExpired(key)
		return nil
	}
	return e
}

func (s *Server) remove(db *database, key string) {
	if e := db.keys[key]; e != nil && e.expireAt != 0 {
		s.volatile--
	}
	delete(db.keys, key)
}

// put stores e under key. The key's name is copied: it is a slice of a whole request.
func (s *Server) put(key string, e *entry) {
	if old := s.db.keys[key]; old != nil {
		if old.expireAt != 0 {
			s.volatile--
		}
		s.db.keys[key] = e
	} else {
		s.db.keys[strings.Clone(key)] = e
	}
	if e.expireAt != 0 {
		at := e.expireAt
		e.expireAt = 0
		s.setExpiry(key, e, at)
	}
}

// setExpiry makes e expire at the node's ms at, 0 for never.
func (s *Server) setExpiry(key string, e *entry, at int64) {
	if e.expireAt != 0 {
		s.volatile--
	}
	e.expireAt = at
	if at != 0 {
		s.volatile++
		s.expiries.add(deadline{at: at, db: s.db, key: key})
		if len(s.expiries) > 2*s.volatile+64 {
			s.expiries.compact()
		}
	}
}

// sortedKeys returns the live keys of db that match pattern, in the order of their hashes: stable, and as arbitrary as
// a real server's.
func (s *Server) sortedKeys(db *database, pattern string) []scanned {
	list := make([]scanned, 0, len(db.keys))
	for key, e := range db.keys {
		if (e.expireAt == 0 || s.nowMs <= e.expireAt) && (pattern == "*" || globMatch(pattern, key)) {
			list = append(list, scanned{hash: keyHash(key), key: key})
		}
	}
	slices.SortFunc(list, func(a, b scanned) int {
		return cmp.Or(cmp.Compare(a.hash, b.hash), strings.Compare(a.key, b.key))
	})
	return list
}

type scanned struct {
	hash uint64
	key  string
}

// keyHash is never 0, which is SCAN's first and last cursor, and fits the cursors of every client.
func keyHash(key string) uint64 {
	h := fnv.New64a()
	_, _ = h.Write([]byte(key))
	return h.Sum64()>>16 | 1
}

// deadline is an entry of the expiry heap. It is stale when the key has since got another time, or is gone.
type deadline struct {
	at  int64
	db  *database
	key string
}

func (d deadline) stale() bool {
	e := d.db.keys[d.key]
	return e == nil || e.expireAt != d.at
}

// expiryHeap is a binary heap by time, then by name, so that keys that end at one instant are deleted in the same order
// in every run.
type expiryHeap []deadline

func (h expiryHeap) less(i, j int) bool {
	if h[i].at != h[j].at {
		return h[i].at < h[j].at
	}
	return h[i].key < h[j].key
}

func (h *expiryHeap) add(d deadline) {
	*h = append(*h, d)
	list := *h
	for i := len(list) - 1; i > 0; {
		up := (i - 1) / 2
		if !list.less(i, up) {
			return
		}
		list[i], list[up] = list[up], list[i]
		i = up
	}
}

func (h *expiryHeap) pop() {
	list := *h
	last := len(list) - 1
	list[0] = list[last]
	list[last] = deadline{}
	*h = list[:last]
	h.down(0)
}

func (h *expiryHeap) down(i int) {
	list := *h
	for {
		child := 2*i + 1
		if child >= len(list) {
			return
		}
		if child+1 < len(list) && list.less(child+1, child) {
			child++
		}
		if !list.less(child, i) {
			return
		}
		list[i], list[child] = list[child], list[i]
		i = child
	}
}

// compact drops stale deadlines: each renewal of a lease leaves one behind.
func (h *expiryHeap) compact() {
	*h = slices.DeleteFunc(*h, deadline.stale)
	for i := len(*h)/2 - 1; i >= 0; i-- {
		h.down(i)
	}
}

// NextExpiry returns the earliest time of the node's clock, in ms, at which a key is past its lease. ok is false where
// no key has one.
func (s *Server) NextExpiry() (ms int64, ok bool) {
	for len(s.expiries) > 0 {
		if top := s.expiries[0]; !top.stale() {
			return top.at + 1, true // a key still stands in the very ms of its end
		}
		s.expiries.pop()
	}
	return 0, false
}

// ExpireDue is the server's own cycle: it deletes every key that is past its lease and tells who tracks it.
func (s *Server) ExpireDue() {
	s.nowMs = s.clock().UnixMilli()
	for len(s.expiries) > 0 {
		top := s.expiries[0]
		if top.at >= s.nowMs && !top.stale() {
			break
		}
		s.expiries.pop()
		if !top.stale() {
			s.remove(top.db, top.key)
			s.signalExpired(top.key)
		}
	}
	s.flushBroadcast()
}
