package redissim

import (
	"math"
	"slices"
	"strconv"
	"strings"
)

// zset is sorted by score, then by member.
type zset struct {
	list  []scored
	score map[string]float64
}

type scored struct {
	member string
	score  float64
}

func (z *zset) rank(m scored) (int, bool) {
	return slices.BinarySearchFunc(z.list, m, func(a, b scored) int {
		switch {
		case a.score < b.score:
			return -1
		case a.score > b.score:
			return 1
		}
		return strings.Compare(a.member, b.member)
	})
}

func (z *zset) set(member string, score float64) {
	z.drop(member)
	member = strings.Clone(member)
	z.score[member] = score
	at, _ := z.rank(scored{member, score})
	z.list = slices.Insert(z.list, at, scored{member, score})
}

func (z *zset) drop(member string) bool {
	score, ok := z.score[member]
	if !ok {
		return false
	}
	at, _ := z.rank(scored{member, score})
	z.list = slices.Delete(z.list, at, at+1)
	delete(z.score, member)
	return true
}

func init() {
	register(
		command{"ZADD", -4, writes | denyOOM, 1, 1, 1, zadd},
		command{"ZINCRBY", 4, writes | denyOOM, 1, 1, 1, func(s *Server, a []string) Value {
			return zadd(s, []string{"zadd", a[1], "INCR", a[2], a[3]})
		}},
		command{"ZREM", -3, writes, 1, 1, 1, func(s *Server, a []string) Value {
			return s.zdrop(a[1], func(z *zset) []string { return a[2:] })
		}},
		command{"ZREMRANGEBYSCORE", 4, writes, 1, 1, 1, func(s *Server, a []string) Value {
			low, high, ok := parseRange(a[2], a[3])
			if !ok {
				return errorReply("ERR min or max is not a float")
			}
			return s.zdrop(a[1], func(z *zset) []string { return membersOf(z.between(low, high)) })
		}},
		command{"ZREMRANGEBYRANK", 4, writes, 1, 1, 1, func(s *Server, a []string) Value {
			from, ok := parseInt(a[2])
			to, ok2 := parseInt(a[3])
			if !ok || !ok2 {
				return errNotInteger
			}
			return s.zdrop(a[1], func(z *zset) []string { return membersOf(slice(z.list, from, to)) })
		}},
		command{"ZPOPMIN", -2, writes, 1, 1, 1, func(s *Server, a []string) Value { return s.zpop(a, false) }},
		command{"ZPOPMAX", -2, writes, 1, 1, 1, func(s *Server, a []string) Value { return s.zpop(a, true) }},
		command{"ZCARD", 2, reads, 1, 1, 1, func(s *Server, a []string) Value {
			z, bad := s.zsetAt(a[1])
			if bad {
				return errWrongType
			}
			return integer(int64(len(z.list)))
		}},
		command{"ZSCORE", 3, reads, 1, 1, 1, func(s *Server, a []string) Value {
			z, bad := s.zsetAt(a[1])
			if bad {
				return errWrongType
			}
			return z.scoreOf(a[2])
		}},
		command{"ZMSCORE", -3, reads, 1, 1, 1, func(s *Server, a []string) Value {
			z, bad := s.zsetAt(a[1])
			if bad {
				return errWrongType
			}
			v := array()
			for _, m := range a[2:] {
				v.elems = append(v.elems, z.scoreOf(m))
			}
			return v
		}},
		command{"ZRANK", 3, reads, 1, 1, 1, func(s *Server, a []string) Value { return s.zrank(a, false) }},
		command{"ZREVRANK", 3, reads, 1, 1, 1, func(s *Server, a []string) Value { return s.zrank(a, true) }},
		command{"ZCOUNT", 4, reads, 1, 1, 1, func(s *Server, a []string) Value {
			low, high, ok := parseRange(a[2], a[3])
			if !ok {
				return errorReply("ERR min or max is not a float")
			}
			z, bad := s.zsetAt(a[1])
			if bad {
				return errWrongType
			}
			return integer(int64(len(z.between(low, high))))
		}},
		command{"ZRANGE", -4, reads, 1, 1, 1, func(s *Server, a []string) Value { return s.zrange(a, zquery{}) }},
		command{"ZREVRANGE", -4, reads, 1, 1, 1, func(s *Server, a []string) Value { return s.zrange(a, zquery{fixed: true, rev: true}) }},
		command{"ZRANGEBYSCORE", -4, reads, 1, 1, 1, func(s *Server, a []string) Value { return s.zrange(a, zquery{fixed: true, byScore: true}) }},
		command{"ZREVRANGEBYSCORE", -4, reads, 1, 1, 1, func(s *Server, a []string) Value {
			return s.zrange(a, zquery{fixed: true, byScore: true, rev: true})
		}},
	)
}

// emptyZset answers for a key that does not exist.
var emptyZset = &zset{}

func (s *Server) zsetAt(key string) (z *zset, bad bool) {
	e, bad := s.typed(key, "zset")
	if e == nil || bad {
		return emptyZset, bad
	}
	return e.zset, false
}

func (z *zset) scoreOf(member string) Value {
	if score, ok := z.score[member]; ok {
		return double(score)
	}
	return replyNull
}

func zadd(s *Server, a []string) Value {
	var nx, xx, gt, lt, ch, incr bool
	i := 2
options:
	for ; i < len(a); i++ {
		switch strings.ToUpper(a[i]) {
		case "NX":
			nx = true
		case "XX":
			xx = true
		case "GT":
			gt = true
		case "LT":
			lt = true
		case "CH":
			ch = true
		case "INCR":
			incr = true
		default:
			break options
		}
	}
	pairs := a[i:]
	switch {
	case len(pairs) == 0 || len(pairs)%2 != 0:
		return errSyntax
	case nx && xx:
		return errorReply("ERR XX and NX options at the same time are not compatible")
	case gt && nx || lt && nx || gt && lt:
		return errorReply("ERR GT, LT, and/or NX options at the same time are not compatible")
	case incr && len(pairs) > 2:
		return errorReply("ERR INCR option supports a single increment-element pair")
	}
	scores := make([]float64, len(pairs)/2)
	for j := range scores {
		var ok bool
		if scores[j], ok = parseFloat(pairs[2*j]); !ok {
			return errNotFloat
		}
	}
	e, bad := s.typed(a[1], "zset")
	if bad {
		return errWrongType
	}
	if e == nil {
		if xx {
			if incr {
				return replyNull
			}
			return integer(0)
		}
		e = &entry{typ: "zset", zset: &zset{score: map[string]float64{}}}
		s.put(a[1], e)
	}
	var added, updated int64
	result := replyNull
	for j, score := range scores {
		member := pairs[2*j+1]
		old, exists := e.zset.score[member]
		if exists && nx || !exists && xx {
			continue
		}
		if incr {
			score += old
			if math.IsNaN(score) {
				return errorReply("ERR resulting score is not a number (NaN)")
			}
		}
		if exists && (gt && score <= old || lt && score >= old) {
			continue
		}
		result = double(score)
		switch {
		case !exists:
			added++
		case score != old:
			updated++
		default:
			continue
		}
		e.zset.set(member, score)
	}
	if added+updated > 0 {
		s.changed(a[1])
	}
	switch {
	case incr:
		return result
	case ch:
		return integer(added + updated)
	}
	return integer(added)
}

// zdrop removes the members that pick names.
func (s *Server) zdrop(key string, pick func(*zset) []string) Value {
	e, bad := s.typed(key, "zset")
	switch {
	case bad:
		return errWrongType
	case e == nil:
		return integer(0)
	}
	var n int64
	for _, member := range pick(e.zset) {
		if e.zset.drop(member) {
			n++
		}
	}
	if n > 0 {
		if len(e.zset.list) == 0 {
			s.remove(s.db, key)
		}
		s.changed(key)
	}
	return integer(n)
}

func (s *Server) zpop(a []string, high bool) Value {
	count, counted := int64(1), len(a) > 2
	if counted {
		var ok bool
		if count, ok = parseInt(a[2]); !ok || count < 0 || len(a) > 3 {
			return errorReply("ERR value is out of range, must be positive")
		}
	}
	z, bad := s.zsetAt(a[1])
	if bad {
		return errWrongType
	}
	list := slices.Clone(z.list)
	if high {
		slices.Reverse(list)
	}
	list = list[:min(count, int64(len(list)))]
	s.zdrop(a[1], func(*zset) []string { return membersOf(list) })
	v := withScores(list)
	if !counted {
		v.kind = kindArray // one pair is flat in both protocols
	}
	return v
}

func (s *Server) zrank(a []string, rev bool) Value {
	z, bad := s.zsetAt(a[1])
	if bad {
		return errWrongType
	}
	score, ok := z.score[a[2]]
	if !ok {
		return replyNull
	}
	at, _ := z.rank(scored{a[2], score})
	if rev {
		at = len(z.list) - 1 - at
	}
	return integer(int64(at))
}

// zquery is what ZRANGE and its older sisters ask for.
type zquery struct {
	fixed, byScore, rev, scores bool // fixed: the command's name says byScore and rev
}

func (s *Server) zrange(a []string, q zquery) Value {
	offset, count := int64(0), int64(-1)
	limited := false
	for i := 4; i < len(a); i++ {
		switch opt := strings.ToUpper(a[i]); {
		case opt == "WITHSCORES":
			q.scores = true
		case opt == "LIMIT" && i+2 < len(a):
			var ok, ok2 bool
			offset, ok = parseInt(a[i+1])
			count, ok2 = parseInt(a[i+2])
			if !ok || !ok2 {
				return errNotInteger
			}
			i, limited = i+2, true
		case opt == "BYSCORE" && !q.fixed:
			q.byScore = true
		case opt == "REV" && !q.fixed:
			q.rev = true
		default: // BYLEX is not simulated
			return errSyntax
		}
	}
	if limited && !q.byScore {
		return errorReply("ERR syntax error, LIMIT is only supported in combination with either BYSCORE or BYLEX")
	}
	from, to := a[2], a[3]
	var list []scored
	if q.byScore {
		if q.rev {
			from, to = to, from
		}
		low, high, ok := parseRange(from, to)
		if !ok {
			return errorReply("ERR min or max is not a float")
		}
		z, bad := s.zsetAt(a[1])
		if bad {
			return errWrongType
		}
		list = z.between(low, high)
		if q.rev {
			list = slices.Clone(list)
			slices.Reverse(list)
		}
		if offset < 0 || offset > int64(len(list)) {
			offset = int64(len(list))
		}
		list = list[offset:]
		if count >= 0 {
			list = list[:min(count, int64(len(list)))]
		}
	} else {
		i, ok := parseInt(from)
		j, ok2 := parseInt(to)
		if !ok || !ok2 {
			return errNotInteger
		}
		z, bad := s.zsetAt(a[1])
		if bad {
			return errWrongType
		}
		list = z.list
		if q.rev {
			list = slices.Clone(list)
			slices.Reverse(list)
		}
		list = slice(list, i, j)
	}
	if q.scores {
		return withScores(list)
	}
	return bulks(membersOf(list))
}

func withScores(list []scored) Value {
	v := Value{kind: kindPairs}
	for _, m := range list {
		v.elems = append(v.elems, bulk(m.member), double(m.score))
	}
	return v
}

func membersOf(list []scored) []string {
	names := make([]string, len(list))
	for i, m := range list {
		names[i] = m.member
	}
	return names
}

// slice is list[from..to] with Redis' negative positions.
func slice(list []scored, from, to int64) []scored {
	n := int64(len(list))
	if from < 0 {
		from = max(from+n, 0)
	}
	if to < 0 {
		to += n
	}
	to = min(to, n-1)
	if from > to {
		return nil
	}
	return list[from : to+1]
}

// bound is one end of a score range.
type bound struct {
	score float64
	open  bool // "(": the score itself is outside
}

func (z *zset) between(low, high bound) []scored {
	from := len(z.list)
	for i, m := range z.list {
		if m.score > low.score || m.score == low.score && !low.open {
			from = i
			break
		}
	}
	to := from
	for to < len(z.list) && (z.list[to].score < high.score || z.list[to].score == high.score && !high.open) {
		to++
	}
	return z.list[from:to]
}

func parseRange(from, to string) (low, high bound, ok bool) {
	low, ok = parseBound(from)
	high, ok2 := parseBound(to)
	return low, high, ok && ok2
}

func parseBound(s string) (b bound, ok bool) {
	s, b.open = strings.CutPrefix(s, "(")
	b.score, ok = parseFloat(s)
	return b, ok
}

func parseFloat(s string) (float64, bool) {
	f, err := strconv.ParseFloat(s, 64)
	return f, err == nil && !math.IsNaN(f) && !strings.Contains(s, "_")
}
