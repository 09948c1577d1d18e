package redissim

import (
	"crypto/sha1"
	"encoding/hex"
	"math/rand/v2"
	"strings"

	lua "github.com/yuin/gopher-lua"
)

// library opens what Redis gives a script of Lua's own library, with numbers printed as Lua 5.1 prints them. cjson,
// cmsgpack, struct and bit are not simulated. Patterns are gopher-lua's own: it gets %f wrong, the ^ of gmatch, and
// references to captures that there are not, which no script of the library has.
func (in *Interpreter) library() {
	L := in.state
	for _, lib := range []struct {
		name string
		open lua.LGFunction
	}{{"", lua.OpenBase}, {"table", lua.OpenTable}, {"string", lua.OpenString}, {"math", lua.OpenMath}, {"coroutine", lua.OpenCoroutine}} {
		L.Push(L.NewFunction(lib.open))
		L.Push(lua.LString(lib.name))
		L.Call(1, 0)
	}
	g := L.G.Global
	for _, name := range []string{"dofile", "loadfile", "load", "print", "module", "require", "newproxy", "_printregs", "getfenv", "setfenv"} {
		g.RawSetString(name, lua.LNil)
	}
	g.RawSetString(textOf, L.NewFunction(luaText))
	g.RawSetString("tostring", L.NewFunction(luaToString))
	g.RawSetString("tonumber", L.NewFunction(luaToNumber(g.RawGetString("tonumber").(*lua.LFunction).GFunction)))
	g.RawSetString("pcall", L.NewFunction(luaPcall(g.RawGetString("pcall").(*lua.LFunction).GFunction)))
	g.RawSetString("loadstring", L.NewFunction(in.luaLoadString))

	str := g.RawGetString("string").(*lua.LTable)
	for _, name := range []string{"byte", "find", "gsub", "len", "lower", "match", "rep", "reverse", "sub", "upper"} {
		str.RawSetString(name, L.NewFunction(takingText(str.RawGetString(name).(*lua.LFunction).GFunction)))
	}
	str.RawSetString("dump", lua.LNil)
	str.RawSetString("gfind", lua.LNil)
	str.RawSetString("format", L.NewFunction(luaFormat))
	tab := g.RawGetString("table").(*lua.LTable)
	tab.RawSetString("concat", L.NewFunction(luaConcat))
	maths := g.RawGetString("math").(*lua.LTable)
	maths.RawSetString("random", L.NewFunction(in.luaRandom))
	maths.RawSetString("randomseed", L.NewFunction(func(L *lua.LState) int {
		in.random = rand.New(rand.NewPCG(uint64(L.CheckNumber(1)), 0))
		return 0
	}))
	g.RawSetString("redis", in.redisTable())
}

// luaText is the hidden textOf.
func luaText(L *lua.LState) int {
	if n, ok := L.Get(1).(lua.LNumber); ok {
		L.Push(lua.LString(formatNumber(float64(n))))
		return 1
	}
	L.SetTop(1) // the argument itself; a call for an argument may have brought more, or none
	switch v := L.Get(1); v.(type) {
	case lua.LString:
	default:
		if L.GetMetaField(v, "__concat") == lua.LNil {
			L.RaiseError("attempt to concatenate a %s value", v.Type())
		}
	}
	return 1
}

func luaToString(L *lua.LState) int {
	if n, ok := L.CheckAny(1).(lua.LNumber); ok {
		L.Push(lua.LString(formatNumber(float64(n))))
		return 1
	}
	L.Push(L.ToStringMeta(L.Get(1)))
	return 1
}

// luaToNumber reads a text as C's strtod does: spaces around it, hexadecimal, exponents.
func luaToNumber(other lua.LGFunction) lua.LGFunction {
	return func(L *lua.LState) int {
		text, ok := L.Get(1).(lua.LString)
		if !ok || L.GetTop() > 1 && L.OptInt(2, 10) != 10 {
			return other(L)
		}
		L.Push(lua.LNil)
		if n, ok := parseNumber(string(text)); ok {
			L.Push(lua.LNumber(n))
		}
		return 1
	}
}

// luaPcall hands out the text of an error reply that redis.call raised, not the table: Redis keeps to what it did
// before 7.0.
func luaPcall(pcall lua.LGFunction) lua.LGFunction {
	return func(L *lua.LState) int {
		n := pcall(L)
		if n == 2 && L.Get(-2) == lua.LFalse {
			if t, ok := L.Get(-1).(*lua.LTable); ok {
				if msg, ok := t.RawGetString("err").(lua.LString); ok {
					L.Pop(1)
					L.Push(msg)
				}
			}
		}
		return n
	}
}

// takingText lets a function of the string library take a number for its first argument, as text.
func takingText(fn lua.LGFunction) lua.LGFunction {
	return func(L *lua.LState) int {
		if n, ok := L.Get(1).(lua.LNumber); ok {
			L.Replace(1, lua.LString(formatNumber(float64(n))))
		}
		return fn(L)
	}
}

func luaFormat(L *lua.LState) int {
	format, arg := L.CheckString(1), 1
	var b strings.Builder
	for {
		at := strings.IndexByte(format, '%')
		if at < 0 {
			b.WriteString(format)
			break
		}
		b.WriteString(format[:at])
		format = format[at+1:]
		if strings.HasPrefix(format, "%") {
			b.WriteByte('%')
			format = format[1:]
			continue
		}
		spec, rest, ok := parseSpec(format)
		if !ok {
			L.RaiseError("invalid option '%%' to 'format'")
		}
		format = rest
		arg++
		switch {
		case strings.IndexByte("diucxXoeEfgG", spec.verb) >= 0:
			b.WriteString(spec.number(float64(L.CheckNumber(arg))))
		case spec.verb == 's':
			b.WriteString(spec.text(checkText(L, arg)))
		case spec.verb == 'q':
			b.WriteString(quote(checkText(L, arg)))
		default:
			L.RaiseError("invalid option '%%%c' to 'format'", spec.verb)
		}
	}
	L.Push(lua.LString(b.String()))
	return 1
}

func checkText(L *lua.LState, arg int) string {
	switch v := L.Get(arg).(type) {
	case lua.LString:
		return string(v)
	case lua.LNumber:
		return formatNumber(float64(v))
	}
	return L.CheckString(arg) // raises
}

var quoter = strings.NewReplacer(`"`, `\"`, `\`, `\\`, "\n", "\\\n", "\r", `\r`, "\x00", `\000`)

func quote(s string) string { return `"` + quoter.Replace(s) + `"` }

func luaConcat(L *lua.LState) int {
	t, sep := L.CheckTable(1), ""
	if L.Get(2) != lua.LNil {
		sep = checkText(L, 2)
	}
	var b strings.Builder
	from, to := L.OptInt(3, 1), L.OptInt(4, t.Len())
	for i := from; i <= to; i++ {
		switch v := t.RawGetInt(i).(type) {
		case lua.LString:
			b.WriteString(string(v))
		case lua.LNumber:
			b.WriteString(formatNumber(float64(v)))
		default:
			L.RaiseError("invalid value (%s) at index %d in table for 'concat'", v.Type(), i)
		}
		if i < to {
			b.WriteString(sep)
		}
	}
	L.Push(lua.LString(b.String()))
	return 1
}

func (in *Interpreter) luaLoadString(L *lua.LState) int {
	p, err := compile(L.CheckString(1))
	if err != nil {
		L.Push(lua.LNil)
		L.Push(lua.LString(err.Error()))
		return 2
	}
	fn := L.NewFunctionFromProto(p.proto)
	fn.Env = in.globals
	L.Push(fn)
	return 1
}

// luaRandom is math.random: Redis seeds it anew for every script, so that equal scripts draw equal numbers. The numbers
// are not Redis' own.
func (in *Interpreter) luaRandom(L *lua.LState) int {
	if in.random == nil {
		in.random = rand.New(rand.NewPCG(0, 0))
	}
	if L.GetTop() == 0 {
		L.Push(lua.LNumber(in.random.Float64()))
		return 1
	}
	low, high := 1, L.CheckInt(1)
	if L.GetTop() > 1 {
		low, high = high, L.CheckInt(2)
	}
	if low > high {
		L.RaiseError("bad argument to 'random' (interval is empty)")
	}
	L.Push(lua.LNumber(low + in.random.IntN(high-low+1)))
	return 1
}

// redisTable is the table `redis` that scripts see.
func (in *Interpreter) redisTable() *lua.LTable {
	L := in.state
	t := L.NewTable()
	for name, fn := range map[string]lua.LGFunction{
		"call":  func(L *lua.LState) int { return in.redisCall(L, true) },
		"pcall": func(L *lua.LState) int { return in.redisCall(L, false) },
		"error_reply": func(L *lua.LState) int {
			L.Push(in.errorTable(normalError(L.CheckString(1))))
			return 1
		},
		"status_reply": func(L *lua.LState) int {
			t := L.CreateTable(0, 1)
			t.RawSetString("ok", lua.LString(L.CheckString(1)))
			L.Push(t)
			return 1
		},
		"sha1hex": func(L *lua.LState) int {
			sum := sha1.Sum([]byte(checkText(L, 1)))
			L.Push(lua.LString(hex.EncodeToString(sum[:])))
			return 1
		},
		"log":      func(L *lua.LState) int { return 0 },
		"set_repl": func(L *lua.LState) int { return 0 },
		"replicate_commands": func(L *lua.LState) int {
			L.Push(lua.LTrue)
			return 1
		},
		"setresp": func(L *lua.LState) int {
			if L.CheckInt(1) != 2 {
				L.RaiseError("RESP version must be 2: redissim has no RESP3 inside scripts")
			}
			return 0
		},
	} {
		t.RawSetString(name, L.NewFunction(fn))
	}
	for i, name := range []string{"LOG_DEBUG", "LOG_VERBOSE", "LOG_NOTICE", "LOG_WARNING", "REPL_NONE", "REPL_AOF", "REPL_SLAVE", "REPL_ALL"} {
		t.RawSetString(name, lua.LNumber(i%4))
	}
	t.RawSetString("REPL_REPLICA", lua.LNumber(2))
	t.RawSetString("REDIS_VERSION", lua.LString(Version))
	return t
}

// normalError is how redis.error_reply reads its text: the first word is the code, with or without '-'; a single word
// has none.
func normalError(s string) string {
	s = strings.TrimPrefix(s, "-")
	if !strings.Contains(s, " ") {
		return "ERR " + s
	}
	return s
}
