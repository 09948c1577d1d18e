package redissim

import (
	"math"
	"slices"
	"strconv"
	"strings"
)

// hash keeps its fields in the order of their arrival, as a small hash on a real server does.
type hash struct {
	order  []string
	fields map[string]string
}

func init() {
	register(
		command{"HSET", -4, writes | denyOOM, 1, 1, 1, hset},
		command{"HMSET", -4, writes | denyOOM, 1, 1, 1, func(s *Server, a []string) Value {
			if v := hset(s, a); v.isError() {
				return v
			}
			return replyOK
		}},
		command{"HSETNX", 4, writes | denyOOM, 1, 1, 1, func(s *Server, a []string) Value {
			if v := hget(s, a[:3]); v.kind != kindNull {
				if v.isError() {
					return v
				}
				return integer(0)
			}
			return hset(s, a)
		}},
		command{"HGET", 3, reads, 1, 1, 1, hget},
		command{"HMGET", -3, reads, 1, 1, 1, func(s *Server, a []string) Value {
			h, bad := s.hashAt(a[1])
			if bad {
				return errWrongType
			}
			v := array()
			for _, field := range a[2:] {
				v.elems = append(v.elems, h.get(field))
			}
			return v
		}},
		command{"HGETALL", 2, reads, 1, 1, 1, func(s *Server, a []string) Value {
			return hlist(s, a[1], kindMap, func(v *Value, field, value string) { v.elems = append(v.elems, bulk(field), bulk(value)) })
		}},
		command{"HKEYS", 2, reads, 1, 1, 1, func(s *Server, a []string) Value {
			return hlist(s, a[1], kindArray, func(v *Value, field, _ string) { v.elems = append(v.elems, bulk(field)) })
		}},
		command{"HVALS", 2, reads, 1, 1, 1, func(s *Server, a []string) Value {
			return hlist(s, a[1], kindArray, func(v *Value, _, value string) { v.elems = append(v.elems, bulk(value)) })
		}},
		command{"HLEN", 2, reads, 1, 1, 1, func(s *Server, a []string) Value {
			h, bad := s.hashAt(a[1])
			switch {
			case bad:
				return errWrongType
			case h == nil:
				return integer(0)
			}
			return integer(int64(len(h.order)))
		}},
		command{"HEXISTS", 3, reads, 1, 1, 1, func(s *Server, a []string) Value {
			v := hget(s, a)
			if v.isError() {
				return v
			}
			return truth(v.kind == kindBulk)
		}},
		command{"HDEL", -3, writes, 1, 1, 1, hdel},
		command{"HINCRBY", 4, writes | denyOOM, 1, 1, 1, func(s *Server, a []string) Value {
			by, ok := parseInt(a[3])
			if !ok {
				return errNotInteger
			}
			v := hget(s, a[:3])
			var n int64
			switch v.kind {
			case kindError:
				return v
			case kindBulk:
				if n, ok = parseInt(v.str); !ok {
					return errorReply("ERR hash value is not an integer")
				}
			}
			if by > 0 && n > math.MaxInt64-by || by < 0 && n < math.MinInt64-by {
				return errOverflow
			}
			hset(s, []string{a[0], a[1], a[2], strconv.FormatInt(n+by, 10)})
			return integer(n + by)
		}},
	)
}

func (s *Server) hashAt(key string) (h *hash, bad bool) {
	e, bad := s.typed(key, "hash")
	if e == nil || bad {
		return nil, bad
	}
	return e.hash, false
}

func (h *hash) get(field string) Value {
	if h != nil {
		if value, ok := h.fields[field]; ok {
			return bulk(value)
		}
	}
	return replyNull
}

func hget(s *Server, a []string) Value {
	h, bad := s.hashAt(a[1])
	if bad {
		return errWrongType
	}
	return h.get(a[2])
}

func hset(s *Server, a []string) Value {
	if len(a)%2 != 0 {
		return wrongArity(a[0])
	}
	h, bad := s.hashAt(a[1])
	if bad {
		return errWrongType
	}
	if h == nil {
		h = &hash{fields: map[string]string{}}
		s.put(a[1], &entry{typ: "hash", hash: h})
	}
	var added int64
	for i := 2; i < len(a); i += 2 {
		field := strings.Clone(a[i])
		if _, ok := h.fields[field]; !ok {
			h.order = append(h.order, field)
			added++
		}
		h.fields[field] = strings.Clone(a[i+1])
	}
	s.changed(a[1])
	return integer(added)
}

func hdel(s *Server, a []string) Value {
	h, bad := s.hashAt(a[1])
	if bad {
		return errWrongType
	}
	if h == nil {
		return integer(0)
	}
	var gone int64
	for _, field := range a[2:] {
		if _, ok := h.fields[field]; ok {
			delete(h.fields, field)
			h.order = slices.DeleteFunc(h.order, func(f string) bool { return f == field })
			gone++
		}
	}
	if gone > 0 {
		if len(h.order) == 0 {
			s.remove(s.db, a[1])
		}
		s.changed(a[1])
	}
	return integer(gone)
}

func hlist(s *Server, key string, k kind, add func(v *Value, field, value string)) Value {
	h, bad := s.hashAt(key)
	if bad {
		return errWrongType
	}
	v := Value{kind: k}
	if h != nil {
		for _, field := range h.order {
			add(&v, field, h.fields[field])
		}
	}
	return v
}
