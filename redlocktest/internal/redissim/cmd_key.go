package redissim

import (
	"math"
	"strconv"
	"strings"
)

func init() {
	register(
		command{"DEL", -2, writes, 1, -1, 1, del},
		command{"UNLINK", -2, writes, 1, -1, 1, del},
		command{"EXISTS", -2, reads, 1, -1, 1, func(s *Server, a []string) Value {
			var n int64
			for _, key := range a[1:] {
				if s.live(key) != nil {
					n++
				}
			}
			return integer(n)
		}},
		command{"TYPE", 2, reads, 1, 1, 1, func(s *Server, a []string) Value {
			if e := s.live(a[1]); e != nil {
				return simple(e.typ)
			}
			return simple("none")
		}},
		command{"PTTL", 2, reads, 1, 1, 1, func(s *Server, a []string) Value { return s.ttl(a[1], 1) }},
		command{"TTL", 2, reads, 1, 1, 1, func(s *Server, a []string) Value { return s.ttl(a[1], 1000) }},
		command{"PEXPIRETIME", 2, reads, 1, 1, 1, func(s *Server, a []string) Value { return s.expireTime(a[1], 1) }},
		command{"EXPIRETIME", 2, reads, 1, 1, 1, func(s *Server, a []string) Value { return s.expireTime(a[1], 1000) }},
		command{"PEXPIRE", -3, writes, 1, 1, 1, func(s *Server, a []string) Value { return s.expire(a, s.nowMs, 1) }},
		command{"EXPIRE", -3, writes, 1, 1, 1, func(s *Server, a []string) Value { return s.expire(a, s.nowMs, 1000) }},
		command{"PEXPIREAT", -3, writes, 1, 1, 1, func(s *Server, a []string) Value { return s.expire(a, 0, 1) }},
		command{"EXPIREAT", -3, writes, 1, 1, 1, func(s *Server, a []string) Value { return s.expire(a, 0, 1000) }},
		command{"PERSIST", 2, writes, 1, 1, 1, func(s *Server, a []string) Value {
			e := s.live(a[1])
			if e == nil || e.expireAt == 0 {
				return integer(0)
			}
			s.setExpiry(a[1], e, 0)
			s.changed(a[1])
			return integer(1)
		}},
		command{"RENAME", 3, writes, 1, 2, 1, func(s *Server, a []string) Value {
			e := s.live(a[1])
			if e == nil {
				return errorReply("ERR no such key")
			}
			if a[1] == a[2] {
				return replyOK
			}
			s.live(a[2])
			s.moveTo(s.db, a[1], a[2], e)
			s.changed(a[1])
			s.changed(a[2])
			return replyOK
		}},
		command{"MOVE", 3, writes, 1, 1, 1, func(s *Server, a []string) Value {
			n, ok := parseInt(a[2])
			if !ok {
				return errNotInteger
			}
			if n < 0 || n >= databases {
				return errorReply("ERR DB index is out of range")
			}
			to := s.dbs[n]
			if to == s.db {
				return errorReply("ERR source and destination objects are the same")
			}
			e := s.live(a[1])
			if e == nil || to.keys[a[1]] != nil {
				return integer(0)
			}
			s.moveTo(to, a[1], a[1], e)
			s.changed(a[1])
			return integer(1)
		}},
		command{"KEYS", 2, reads, 0, 0, 0, func(s *Server, a []string) Value {
			v := array()
			for _, found := range s.sortedKeys(s.db, a[1]) {
				v.elems = append(v.elems, bulk(found.key))
			}
			return v
		}},
		command{"SCAN", -2, reads, 0, 0, 0, scan},
		command{"DBSIZE", 1, reads, 0, 0, 0, func(s *Server, a []string) Value { return integer(int64(len(s.db.keys))) }},
		command{"FLUSHALL", -1, writes, 0, 0, 0, func(s *Server, a []string) Value {
			s.wipe()
			s.signalFlush()
			return replyOK
		}},
		command{"FLUSHDB", -1, writes, 0, 0, 0, func(s *Server, a []string) Value {
			for key := range s.db.keys {
				s.remove(s.db, key)
			}
			s.signalFlush()
			return replyOK
		}},
		command{"SELECT", 2, 0, 0, 0, 0, func(s *Server, a []string) Value {
			n, ok := parseInt(a[1])
			if !ok {
				return errNotInteger
			}
			if n < 0 || n >= databases {
				return errorReply("ERR DB index is out of range")
			}
			s.db = s.dbs[n]
			if !s.inScript {
				s.session.db = int(n)
			}
			return replyOK
		}},
		command{"SWAPDB", 3, writes, 0, 0, 0, func(s *Server, a []string) Value {
			i, ok := parseInt(a[1])
			j, ok2 := parseInt(a[2])
			if !ok || !ok2 {
				return errorReply("ERR invalid first or second DB index")
			}
			if min(i, j) < 0 || max(i, j) >= databases {
				return errorReply("ERR DB index is out of range")
			}
			// Contents change places, so that every session sees the other's; nobody is told.
			s.dbs[i].keys, s.dbs[j].keys = s.dbs[j].keys, s.dbs[i].keys
			for k, d := range s.expiries {
				switch d.db {
				case s.dbs[i]:
					s.expiries[k].db = s.dbs[j]
				case s.dbs[j]:
					s.expiries[k].db = s.dbs[i]
				}
			}
			return replyOK
		}},
	)
}

func del(s *Server, a []string) Value {
	var n int64
	for _, key := range a[1:] {
		if s.live(key) != nil {
			s.remove(s.db, key)
			s.changed(key)
			n++
		}
	}
	return integer(n)
}

func (s *Server) moveTo(to *database, from, key string, e *entry) {
	at := e.expireAt
	s.remove(s.db, from)
	here := s.db
	s.db = to
	s.put(key, &entry{typ: e.typ, str: e.str, zset: e.zset, expireAt: at})
	s.db = here
}

// ttl is PTTL and TTL; the latter rounds to the nearest second.
func (s *Server) ttl(key string, scale int64) Value {
	e := s.live(key)
	switch {
	case e == nil:
		return integer(-2)
	case e.expireAt == 0:
		return integer(-1)
	}
	return integer((max(e.expireAt-s.nowMs, 0) + scale/2) / scale)
}

func (s *Server) expireTime(key string, scale int64) Value {
	e := s.live(key)
	switch {
	case e == nil:
		return integer(-2)
	case e.expireAt == 0:
		return integer(-1)
	}
	return integer((e.expireAt + scale/2) / scale)
}

// expire is the four EXPIREs: a[2] counts from base in units of scale ms. A time in the past deletes the key.
func (s *Server) expire(a []string, base, scale int64) Value {
	n, ok := parseInt(a[2])
	if !ok {
		return errNotInteger
	}
	if n > (math.MaxInt64-base)/scale || n < (math.MinInt64+base)/scale {
		return errorReply("ERR invalid expire time in '" + strings.ToLower(a[0]) + "' command")
	}
	var nx, xx, gt, lt bool
	for _, opt := range a[3:] {
		switch strings.ToUpper(opt) {
		case "NX":
			nx = true
		case "XX":
			xx = true
		case "GT":
			gt = true
		case "LT":
			lt = true
		default:
			return errorReply("ERR Unsupported option " + opt)
		}
	}
	if nx && (xx || gt || lt) {
		return errorReply("ERR NX and XX, GT or LT options at the same time are not compatible")
	}
	if gt && lt {
		return errorReply("ERR GT and LT options at the same time are not compatible")
	}
	e := s.live(a[1])
	if e == nil {
		return integer(0)
	}
	at, never := base+n*scale, e.expireAt == 0
	if nx && !never || xx && never || gt && (never || at <= e.expireAt) || lt && !never && at >= e.expireAt {
		return integer(0)
	}
	if at <= s.nowMs {
		s.remove(s.db, a[1])
	} else {
		s.setExpiry(strings.Clone(a[1]), e, at)
	}
	s.changed(a[1])
	return integer(1)
}

// scan walks the keys by hash, so that a key that stays is met whatever comes and goes meanwhile.
func scan(s *Server, a []string) Value {
	cursor, err := strconv.ParseUint(a[1], 10, 64)
	if err != nil {
		return errorReply("ERR invalid cursor")
	}
	pattern, count, typ := "*", int64(10), ""
	for i := 2; i < len(a); i += 2 {
		if i+1 == len(a) {
			return errSyntax
		}
		switch strings.ToUpper(a[i]) {
		case "MATCH":
			pattern = a[i+1]
		case "COUNT":
			var ok bool
			if count, ok = parseInt(a[i+1]); !ok {
				return errNotInteger
			}
			if count < 1 {
				return errSyntax
			}
		case "TYPE":
			typ = strings.ToLower(a[i+1])
		default:
			return errSyntax
		}
	}
	next, page, seen, last := uint64(0), array(), int64(0), uint64(0)
	for _, k := range s.sortedKeys(s.db, "*") {
		if k.hash < cursor {
			continue
		}
		if seen >= count && k.hash != last {
			next = k.hash
			break
		}
		seen, last = seen+1, k.hash
		if globMatch(pattern, k.key) && (typ == "" || s.db.keys[k.key].typ == typ) {
			page.elems = append(page.elems, bulk(k.key))
		}
	}
	return array(bulk(strconv.FormatUint(next, 10)), page)
}
