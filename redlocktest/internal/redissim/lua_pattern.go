package redissim

import (
	"strings"

	lua "github.com/yuin/gopher-lua"
)

// The pattern matching of Lua 5.1's lstrlib.c. gopher-lua's own compiles a pattern at every call and allocates at every position: two thirds of the time of a script that matches INFO.

const (
	maxCaptures     = 32
	captureOpen     = -1
	capturePosition = -2
	deepestMatch    = 200 // as in lstrlib.c
)

type capture struct {
	from, size int
}

// matcher is one match of pattern pat against src.
type matcher struct {
	state    *lua.LState
	src, pat string
	level    int
	depth    int
	captures [maxCaptures]capture
}

// match matches pat[p:] at src[s:] and returns where the match ends, or -1.
func (m *matcher) match(s, p int) int {
	if m.depth++; m.depth > deepestMatch {
		m.state.RaiseError("pattern too complex")
	}
	defer func() { m.depth-- }()
	for {
		if p == len(m.pat) {
			return s
		}
		switch m.pat[p] {
		case '(':
			if p+1 < len(m.pat) && m.pat[p+1] == ')' {
				return m.open(s, p+2, capturePosition)
			}
			return m.open(s, p+1, captureOpen)
		case ')':
			return m.close(s, p+1)
		case '$':
			if p+1 == len(m.pat) {
				if s == len(m.src) {
					return s
				}
				return -1
			}
		case '%':
			if p+1 < len(m.pat) {
				switch next := m.pat[p+1]; {
				case next == 'b':
					if s = m.balance(s, p+2); s < 0 {
						return -1
					}
					p += 4
					continue
				case next == 'f':
					p += 2
					if p >= len(m.pat) || m.pat[p] != '[' {
						m.state.RaiseError("missing '[' after '%%f' in pattern")
					}
					end := m.classEnd(p)
					before, after := byte(0), byte(0)
					if s > 0 {
						before = m.src[s-1]
					}
					if s < len(m.src) {
						after = m.src[s]
					}
					if m.inSet(before, p, end-1) || !m.inSet(after, p, end-1) {
						return -1
					}
					p = end
					continue
				case next >= '0' && next <= '9':
					if s = m.backReference(s, next); s < 0 {
						return -1
					}
					p += 2
					continue
				}
			}
		}
		end := m.classEnd(p)
		more := byte(0)
		if end < len(m.pat) {
			more = m.pat[end]
		}
		switch more {
		case '?':
			if m.single(s, p, end) {
				if r := m.match(s+1, end+1); r >= 0 {
					return r
				}
			}
			p = end + 1
		case '*':
			return m.expand(s, p, end)
		case '+':
			if !m.single(s, p, end) {
				return -1
			}
			return m.expand(s+1, p, end)
		case '-':
			for {
				if r := m.match(s, end+1); r >= 0 {
					return r
				}
				if !m.single(s, p, end) {
					return -1
				}
				s++
			}
		default:
			if !m.single(s, p, end) {
				return -1
			}
			s, p = s+1, end
		}
	}
}

func (m *matcher) expand(s, p, end int) int {
	n := 0
	for m.single(s+n, p, end) {
		n++
	}
	for ; n >= 0; n-- {
		if r := m.match(s+n, end+1); r >= 0 {
			return r
		}
	}
	return -1
}

func (m *matcher) open(s, p, size int) int {
	if m.level == maxCaptures {
		m.state.RaiseError("too many captures")
	}
	m.captures[m.level] = capture{s, size}
	m.level++
	r := m.match(s, p)
	if r < 0 {
		m.level--
	}
	return r
}

func (m *matcher) close(s, p int) int {
	for i := m.level - 1; i >= 0; i-- {
		if m.captures[i].size == captureOpen {
			m.captures[i].size = s - m.captures[i].from
			r := m.match(s, p)
			if r < 0 {
				m.captures[i].size = captureOpen
			}
			return r
		}
	}
	m.state.RaiseError("invalid pattern capture")
	return -1
}

func (m *matcher) balance(s, p int) int {
	if p+1 >= len(m.pat) {
		m.state.RaiseError("unbalanced pattern")
	}
	if s >= len(m.src) || m.src[s] != m.pat[p] {
		return -1
	}
	open, shut, depth := m.pat[p], m.pat[p+1], 1
	for s++; s < len(m.src); s++ {
		switch m.src[s] {
		case shut:
			if depth--; depth == 0 {
				return s + 1
			}
		case open:
			depth++
		}
	}
	return -1
}

func (m *matcher) backReference(s int, digit byte) int {
	i := int(digit - '1')
	if i < 0 || i >= m.level || m.captures[i].size == captureOpen {
		m.state.RaiseError("invalid capture index")
	}
	text := m.src[m.captures[i].from:][:max(m.captures[i].size, 0)]
	if strings.HasPrefix(m.src[s:], text) {
		return s + len(text)
	}
	return -1
}

// classEnd returns the position behind the single-character class at p.
func (m *matcher) classEnd(p int) int {
	c := m.pat[p]
	p++
	switch c {
	case '%':
		if p == len(m.pat) {
			m.state.RaiseError("malformed pattern (ends with '%%')")
		}
		return p + 1
	case '[':
		if p < len(m.pat) && m.pat[p] == '^' {
			p++
		}
		for first := true; first || p >= len(m.pat) || m.pat[p] != ']'; first = false {
			if p >= len(m.pat) {
				m.state.RaiseError("malformed pattern (missing ']')")
			}
			if m.pat[p] == '%' {
				p++
			}
			p++
		}
		return p + 1
	}
	return p
}

func (m *matcher) single(s, p, end int) bool {
	if s >= len(m.src) {
		return false
	}
	c := m.src[s]
	switch m.pat[p] {
	case '.':
		return true
	case '%':
		return inClass(c, m.pat[p+1])
	case '[':
		return m.inSet(c, p, end-1)
	}
	return m.pat[p] == c
}

// inSet matches c against the set that begins at p ('[') and ends at last (']').
func (m *matcher) inSet(c byte, p, last int) bool {
	in := true
	p++
	if m.pat[p] == '^' {
		in = false
		p++
	}
	for ; p < last; p++ {
		switch {
		case m.pat[p] == '%':
			p++
			if inClass(c, m.pat[p]) {
				return in
			}
		case p+2 < last && m.pat[p+1] == '-':
			if m.pat[p] <= c && c <= m.pat[p+2] {
				return in
			}
			p += 2
		case m.pat[p] == c:
			return in
		}
	}
	return !in
}

// inClass is %a, %d and so on; a capital is the complement.
func inClass(c, class byte) bool {
	letter := c|0x20 >= 'a' && c|0x20 <= 'z'
	digit := c >= '0' && c <= '9'
	var in bool
	switch class | 0x20 {
	case 'a':
		in = letter
	case 'd':
		in = digit
	case 'l':
		in = c >= 'a' && c <= 'z'
	case 's':
		in = c == ' ' || c >= '\t' && c <= '\r'
	case 'u':
		in = c >= 'A' && c <= 'Z'
	case 'w':
		in = letter || digit
	case 'x':
		in = digit || c|0x20 >= 'a' && c|0x20 <= 'f'
	case 'p':
		in = c > ' ' && c < 0x7f && !letter && !digit
	case 'c':
		in = c < ' ' || c == 0x7f
	case 'z':
		in = c == 0
	default:
		return class == c
	}
	if class >= 'a' && class <= 'z' {
		return in
	}
	if class >= 'A' && class <= 'Z' {
		return !in
	}
	return class == c
}

// capture returns capture i of a match of src[s:e]; without captures the whole match is number 0.
func (m *matcher) capture(i, s, e int) lua.LValue {
	if i >= m.level {
		if i != 0 {
			m.state.RaiseError("invalid capture index")
		}
		return lua.LString(m.src[s:e])
	}
	switch c := m.captures[i]; c.size {
	case captureOpen:
		m.state.RaiseError("unfinished capture")
		return nil
	case capturePosition:
		return lua.LNumber(c.from + 1)
	default:
		return lua.LString(m.src[c.from : c.from+c.size])
	}
}

// pushCaptures pushes all captures, or the whole match where there are none.
func (m *matcher) pushCaptures(s, e int) int {
	n := max(m.level, 1)
	for i := range n {
		m.state.Push(m.capture(i, s, e))
	}
	return n
}

// next finds the first match at or behind s.
func (m *matcher) next(s int) (from, to int) {
	pat, anchored := strings.CutPrefix(m.pat, "^")
	whole := m.pat
	m.pat = pat
	defer func() { m.pat = whole }()
	literal := pat != "" && !anchored && strings.IndexByte("^$*+?.([%-", pat[0]) < 0 && (len(pat) == 1 || strings.IndexByte("*?-", pat[1]) < 0)
	for ; s <= len(m.src); s++ {
		if literal { // nothing can begin elsewhere
			ahead := strings.IndexByte(m.src[s:], pat[0])
			if ahead < 0 {
				break
			}
			s += ahead
		}
		m.level = 0
		if e := m.match(s, 0); e >= 0 {
			return s, e
		}
		if anchored {
			break
		}
	}
	return -1, -1
}

// luaFind is string.find and, without positions, string.match.
func luaFind(find bool) lua.LGFunction {
	return func(L *lua.LState) int {
		src, pat := checkText(L, 1), checkText(L, 2)
		init := L.OptInt(3, 1)
		if init < 0 {
			init = max(len(src)+init+1, 1)
		}
		init = max(init, 1) - 1
		if init > len(src) {
			init = len(src)
		}
		if find && (lua.LVAsBool(L.Get(4)) || !strings.ContainsAny(pat, "^$*+?.([%-")) {
			at := strings.Index(src[init:], pat)
			if at < 0 {
				L.Push(lua.LNil)
				return 1
			}
			L.Push(lua.LNumber(init + at + 1))
			L.Push(lua.LNumber(init + at + len(pat)))
			return 2
		}
		m := matcher{state: L, src: src, pat: pat}
		s, e := m.next(init)
		if s < 0 {
			L.Push(lua.LNil)
			return 1
		}
		if !find {
			return m.pushCaptures(s, e)
		}
		L.Push(lua.LNumber(s + 1))
		L.Push(lua.LNumber(e))
		if m.level == 0 {
			return 2
		}
		return 2 + m.pushCaptures(s, e)
	}
}

func luaGmatch(L *lua.LState) int {
	m := &matcher{src: checkText(L, 1), pat: checkText(L, 2)}
	at := 0
	L.Push(L.NewFunction(func(L *lua.LState) int {
		m.state = L
		for s := at; s <= len(m.src); s++ {
			m.level = 0
			e := m.match(s, 0) // in 5.1 '^' has no meaning here
			if e < 0 {
				continue
			}
			at = e
			if e == s {
				at++
			}
			return m.pushCaptures(s, e)
		}
		at = len(m.src) + 1
		L.Push(lua.LNil)
		return 1
	}))
	return 1
}

func luaGsub(L *lua.LState) int {
	src, pat := checkText(L, 1), checkText(L, 2)
	repl := L.Get(3)
	switch repl.(type) {
	case lua.LString, lua.LNumber, *lua.LTable, *lua.LFunction:
	default:
		L.ArgError(3, "string/function/table expected")
	}
	limit := L.OptInt(4, len(src)+1)
	pat, anchored := strings.CutPrefix(pat, "^")
	m := matcher{state: L, src: src, pat: pat}
	var b strings.Builder
	s, n := 0, 0
	for n < limit {
		m.level = 0
		e := m.match(s, 0)
		if e >= 0 {
			n++
			b.WriteString(m.replacement(repl, s, e))
		}
		switch {
		case e > s:
			s = e
		case s < len(src):
			b.WriteByte(src[s])
			s++
		default:
			s++
		}
		if s > len(src) || anchored {
			break
		}
	}
	if s < len(src) {
		b.WriteString(src[s:])
	}
	L.Push(lua.LString(b.String()))
	L.Push(lua.LNumber(n))
	return 2
}

// replacement is what gsub puts in place of src[s:e].
func (m *matcher) replacement(repl lua.LValue, s, e int) string {
	L := m.state
	var v lua.LValue
	switch r := repl.(type) {
	case *lua.LTable:
		v = L.GetTable(r, m.capture(0, s, e))
	case *lua.LFunction:
		L.Push(r)
		n := m.pushCaptures(s, e)
		L.Call(n, 1)
		v = L.Get(-1)
		L.Pop(1)
	case lua.LNumber:
		return formatNumber(float64(r))
	default:
		return m.template(string(repl.(lua.LString)), s, e)
	}
	switch v := v.(type) {
	case lua.LString:
		return string(v)
	case lua.LNumber:
		return formatNumber(float64(v))
	}
	if lua.LVAsBool(v) {
		L.RaiseError("invalid replacement value (a %s)", v.Type())
	}
	return m.src[s:e] // nil and false keep the text
}

// template fills %0 to %9 into a replacement string.
func (m *matcher) template(t string, s, e int) string {
	if !strings.Contains(t, "%") {
		return t
	}
	var b strings.Builder
	for i := 0; i < len(t); i++ {
		if t[i] != '%' || i+1 == len(t) {
			b.WriteByte(t[i])
			continue
		}
		i++
		switch c := t[i]; {
		case c == '0':
			b.WriteString(m.src[s:e])
		case c >= '1' && c <= '9':
			b.WriteString(lua.LVAsString(m.capture(int(c-'1'), s, e)))
		default:
			b.WriteByte(c)
		}
	}
	return b.String()
}
