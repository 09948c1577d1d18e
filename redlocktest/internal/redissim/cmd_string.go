package redissim

import (
	"math"
	"strconv"
	"strings"
)

func init() {
	register(
		command{"GET", 2, reads, 1, 1, 1, get},
		command{"MGET", -2, reads, 1, -1, 1, mget},
		command{"STRLEN", 2, reads, 1, 1, 1, strlen},
		command{"SET", -3, writes | denyOOM, 1, 1, 1, set},
		command{"SETNX", 3, writes | denyOOM, 1, 1, 1, func(s *Server, a []string) Value {
			if s.live(a[1]) != nil {
				return integer(0)
			}
			s.setString(a[1], a[2], 0)
			return integer(1)
		}},
		command{"SETEX", 4, writes | denyOOM, 1, 1, 1, func(s *Server, a []string) Value { return s.setFor(a, 1000) }},
		command{"PSETEX", 4, writes | denyOOM, 1, 1, 1, func(s *Server, a []string) Value { return s.setFor(a, 1) }},
		command{"GETSET", 3, writes | denyOOM, 1, 1, 1, func(s *Server, a []string) Value {
			old := get(s, a)
			if !old.isError() {
				s.setString(a[1], a[2], 0)
			}
			return old
		}},
		command{"GETEX", 2, writes, 1, 1, 1, get}, // without options: a GET that is a write command, and so tracks nothing
		command{"GETDEL", 2, writes, 1, 1, 1, func(s *Server, a []string) Value {
			old := get(s, a)
			if old.kind == kindBulk {
				s.remove(s.db, a[1])
				s.changed(a[1])
			}
			return old
		}},
		command{"MSET", -3, writes | denyOOM, 1, -1, 2, func(s *Server, a []string) Value {
			if len(a)%2 == 0 {
				return wrongArity("MSET")
			}
			for i := 1; i < len(a); i += 2 {
				s.setString(a[i], a[i+1], 0)
			}
			return replyOK
		}},
		command{"APPEND", 3, writes | denyOOM, 1, 1, 1, func(s *Server, a []string) Value {
			e, bad := s.typed(a[1], "string")
			if bad {
				return errWrongType
			}
			if e == nil {
				e = &entry{typ: "string"}
				s.put(a[1], e)
			}
			e.str += a[2]
			s.changed(a[1])
			return integer(int64(len(e.str)))
		}},
		command{"SETRANGE", 4, writes | denyOOM, 1, 1, 1, setRange},
		command{"INCR", 2, writes | denyOOM, 1, 1, 1, func(s *Server, a []string) Value { return s.incr(a[1], 1) }},
		command{"DECR", 2, writes | denyOOM, 1, 1, 1, func(s *Server, a []string) Value { return s.incr(a[1], -1) }},
		command{"INCRBY", 3, writes | denyOOM, 1, 1, 1, func(s *Server, a []string) Value {
			by, ok := parseInt(a[2])
			if !ok {
				return errNotInteger
			}
			return s.incr(a[1], by)
		}},
		command{"DECRBY", 3, writes | denyOOM, 1, 1, 1, func(s *Server, a []string) Value {
			by, ok := parseInt(a[2])
			if !ok {
				return errNotInteger
			}
			if by == math.MinInt64 {
				return errorReply("ERR decrement would overflow")
			}
			return s.incr(a[1], -by)
		}},
	)
}

func get(s *Server, a []string) Value {
	e, bad := s.typed(a[1], "string")
	switch {
	case bad:
		return errWrongType
	case e == nil:
		return replyNull
	}
	return bulk(e.str)
}

func mget(s *Server, a []string) Value {
	v := array()
	for _, key := range a[1:] {
		if e, bad := s.typed(key, "string"); e != nil && !bad {
			v.elems = append(v.elems, bulk(e.str))
		} else {
			v.elems = append(v.elems, replyNull)
		}
	}
	return v
}

func strlen(s *Server, a []string) Value {
	e, bad := s.typed(a[1], "string")
	switch {
	case bad:
		return errWrongType
	case e == nil:
		return integer(0)
	}
	return integer(int64(len(e.str)))
}

// set is SET with NX, XX, GET, KEEPTTL and the four ways to say when it ends.
func set(s *Server, a []string) Value {
	var nx, xx, getOld, keepTTL, expires bool
	var expireAt int64
	for i := 3; i < len(a); i++ {
		switch opt := strings.ToUpper(a[i]); opt {
		case "NX":
			nx = true
		case "XX":
			xx = true
		case "GET":
			getOld = true
		case "KEEPTTL":
			keepTTL = true
		case "EX", "PX", "EXAT", "PXAT":
			if i++; i == len(a) || expires {
				return errSyntax
			}
			var bad Value
			if expireAt, bad = s.setEnd(opt, a[i]); bad.isError() {
				return bad
			}
			expires = true
		default:
			return errSyntax
		}
	}
	if nx && xx || keepTTL && expires {
		return errSyntax
	}
	key, old := a[1], s.live(a[1]) // EXAT and PXAT may lie in the past: OK, and the next look finds nothing
	reply := replyOK
	if getOld {
		if reply = get(s, a); reply.isError() {
			return reply
		}
	}
	if nx && old != nil || xx && old == nil {
		if getOld {
			return reply
		}
		return replyNull
	}
	if keepTTL && old != nil {
		expireAt = old.expireAt
	}
	s.setString(key, a[2], expireAt)
	return reply
}

// setEnd turns SET's EX, PX, EXAT or PXAT into a time of the node's clock.
func (s *Server) setEnd(opt, arg string) (at int64, bad Value) {
	n, ok := parseInt(arg)
	if !ok {
		return 0, errNotInteger
	}
	scale := int64(1)
	if opt[0] == 'E' {
		scale = 1000
	}
	if n <= 0 || n > (math.MaxInt64-s.nowMs)/scale {
		return 0, errorReply("ERR invalid expire time in 'set' command")
	}
	at = n * scale
	if opt == "EX" || opt == "PX" {
		at += s.nowMs
	}
	return at, Value{}
}

// setFor is SETEX and PSETEX.
func (s *Server) setFor(a []string, scale int64) Value {
	n, ok := parseInt(a[2])
	if !ok {
		return errNotInteger
	}
	if n <= 0 || n > (math.MaxInt64-s.nowMs)/scale {
		return errorReply("ERR invalid expire time in '" + strings.ToLower(a[0]) + "' command")
	}
	s.setString(a[1], a[3], s.nowMs+n*scale)
	return replyOK
}

// setString stores a copy of value: the argument is a slice of a whole request.
func (s *Server) setString(key, value string, expireAt int64) {
	s.put(key, &entry{typ: "string", str: strings.Clone(value), expireAt: expireAt})
	s.changed(key)
}

func (s *Server) incr(key string, by int64) Value {
	e, bad := s.typed(key, "string")
	if bad {
		return errWrongType
	}
	var n int64
	if e != nil {
		var ok bool
		if n, ok = parseInt(e.str); !ok {
			return errNotInteger
		}
	}
	if by > 0 && n > math.MaxInt64-by || by < 0 && n < math.MinInt64-by {
		return errOverflow
	}
	n += by
	if e == nil {
		e = &entry{typ: "string"}
		s.put(key, e)
	}
	e.str = strconv.FormatInt(n, 10)
	s.changed(key)
	return integer(n)
}

// setRange overwrites part of a string. With nothing to write it changes nothing, makes no key, and tells the length.
func setRange(s *Server, a []string) Value {
	at, ok := parseInt(a[2])
	if !ok {
		return errNotInteger
	}
	if at < 0 {
		return errorReply("ERR offset is out of range")
	}
	e, bad := s.typed(a[1], "string")
	if bad {
		return errWrongType
	}
	have := ""
	if e != nil {
		have = e.str
	}
	if a[3] == "" {
		return integer(int64(len(have)))
	}
	end := int(at) + len(a[3])
	if end > 512<<20 {
		return errorReply("ERR string exceeds maximum allowed size (proto-max-bulk-len)")
	}
	b := make([]byte, max(end, len(have)))
	copy(b, have)
	copy(b[at:], a[3])
	if e == nil {
		e = &entry{typ: "string"}
		s.put(a[1], e)
	}
	e.str = string(b)
	s.changed(a[1])
	return integer(int64(len(b)))
}
