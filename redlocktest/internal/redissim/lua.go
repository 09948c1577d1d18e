package redissim

import (
	"errors"
	"fmt"
	"math"
	"math/rand/v2"
	"strings"
	"sync"

	lua "github.com/yuin/gopher-lua"
	"github.com/yuin/gopher-lua/parse"
)

// Interpreter runs Lua scripts. One serves any number of servers, one script at a time.
type Interpreter struct {
	state   *lua.LState
	globals *lua.LTable // empty but for KEYS and ARGV; the rest is found behind it and cannot be written
	loaded  map[*lua.FunctionProto]*lua.LFunction
	random  *rand.Rand
	args    []string // scratch for redis.call

	// The script under way.
	server   *Server
	readOnly bool
	allowOOM bool
}

// interpreters keeps used ones: opening Lua's library costs more than a hundred scripts.
var interpreters = sync.Pool{New: func() any { return newInterpreter() }}

// GetInterpreter returns an interpreter that nobody else uses.
func GetInterpreter() *Interpreter { return interpreters.Get().(*Interpreter) }

// Put gives in back.
func (in *Interpreter) Put() { interpreters.Put(in) }

func newInterpreter() *Interpreter {
	in := &Interpreter{
		state:  lua.NewState(lua.Options{SkipOpenLibs: true, RegistrySize: 512, RegistryGrowStep: 512, RegistryMaxSize: 1 << 20, CallStackSize: 128}),
		loaded: map[*lua.FunctionProto]*lua.LFunction{},
	}
	in.library()
	L := in.state
	in.globals = L.NewTable()
	meta := L.NewTable()
	beyond := L.NewTable()
	beyond.RawSetString("__index", L.NewFunction(func(L *lua.LState) int {
		L.RaiseError("Script attempted to access nonexistent global variable '%s'", L.ToString(2))
		return 0
	}))
	L.G.Global.RawSetString("_G", in.globals)
	L.SetMetatable(L.G.Global, beyond)
	meta.RawSetString("__index", L.G.Global)
	meta.RawSetString("__newindex", L.NewFunction(func(L *lua.LState) int {
		L.RaiseError("Attempt to modify a readonly table")
		return 0
	}))
	L.SetMetatable(in.globals, meta)
	return in
}

// program is a compiled script. It is shared by all servers and interpreters.
type program struct {
	proto             *lua.FunctionProto
	noWrites, allowOM bool
}

// programs caches compilations across clusters: a simulation starts thousands of servers with the same few scripts.
var programs struct {
	sync.Mutex
	bySource map[string]*program
}

const maxPrograms = 1000 // far above what a test uses; a fuzzer would fill the memory

func compile(body string) (*program, error) {
	programs.Lock()
	defer programs.Unlock()
	source := body
	if comment, rest, ok := strings.Cut(body, "\n"); ok && strings.HasPrefix(comment, "-- ") {
		source = "\n" + rest // scripts that differ in their title alone are compiled once
	}
	if p := programs.bySource[source]; p != nil {
		return p, nil
	}
	p, key := &program{}, source
	if shebang, rest, ok := strings.Cut(body, "\n"); ok && strings.HasPrefix(shebang, "#!lua") {
		p.noWrites = strings.Contains(shebang, "no-writes")
		p.allowOM = strings.Contains(shebang, "allow-oom")
		source = "\n" + rest
	}
	chunk, err := parse.Parse(strings.NewReader(source), "user_script")
	if err != nil {
		return nil, compileError(err, source)
	}
	rewriteConcat(chunk)
	if p.proto, err = lua.Compile(chunk, "user_script"); err != nil {
		return nil, err
	}
	if programs.bySource == nil || len(programs.bySource) >= maxPrograms {
		programs.bySource = map[string]*program{}
	}
	programs.bySource[strings.Clone(key)] = p
	return p, nil
}

// compileError puts a syntax error as Lua does: "user_script:1: what near 'token'".
func compileError(err error, source string) error {
	var e *parse.Error
	if !errors.As(err, &e) {
		return err
	}
	line, near := e.Pos.Line, "'"+e.Token+"'"
	if line == parse.EOF {
		line, near = strings.Count(source, "\n")+1, "'<eof>'"
	}
	return fmt.Errorf("user_script:%d: %s near %s", line, strings.TrimSpace(e.Message), near)
}

// run runs one script on s and returns what it replies.
func (in *Interpreter) run(s *Server, sc *script, keys, argv []string, readOnly bool) Value {
	fn := in.loaded[sc.program.proto]
	if fn == nil {
		if len(in.loaded) >= maxPrograms {
			clear(in.loaded)
		}
		fn = in.state.NewFunctionFromProto(sc.program.proto)
		fn.Env = in.globals
		in.loaded[sc.program.proto] = fn
	}
	in.server, in.readOnly, in.allowOOM, in.random = s, readOnly || sc.program.noWrites, sc.program.allowOM, nil
	in.globals.RawSetString("KEYS", in.list(keys))
	in.globals.RawSetString("ARGV", in.list(argv))
	L := in.state
	L.Push(fn)
	err := L.PCall(0, 1, nil)
	in.server = nil
	if err != nil {
		L.SetTop(0)
		return scriptError(err, sc.sha)
	}
	v := in.reply(L.Get(-1), 0)
	L.SetTop(0)
	return v
}

func (in *Interpreter) list(items []string) *lua.LTable {
	t := in.state.CreateTable(len(items), 0)
	for _, item := range items {
		t.Append(lua.LString(item))
	}
	return t
}

// scriptError is the reply to a script that raised: the text of the error, then which script and where.
func scriptError(err error, sha string) Value {
	var api *lua.ApiError
	if !errors.As(err, &api) {
		return errorReply("ERR " + err.Error())
	}
	text, line := "", ""
	switch obj := api.Object.(type) {
	case *lua.LTable:
		if msg, ok := obj.RawGetString("err").(lua.LString); ok {
			text = string(msg)
			if n, ok := obj.RawGetString("line").(lua.LString); ok {
				line = string(n)
			}
		} else {
			text = "ERR unknown error"
		}
	case nil:
		text = "ERR " + err.Error()
	default:
		text = "ERR " + lua.LVAsString(obj)
		if rest, ok := strings.CutPrefix(lua.LVAsString(obj), "user_script:"); ok {
			line, _, _ = strings.Cut(rest, ":")
		}
	}
	if _, at, ok := strings.Cut(api.StackTrace, "user_script:"); ok && line == "" {
		line, _, _ = strings.Cut(at, ":")
	}
	return errorReply(fmt.Sprintf("%s script: %s, on @user_script:%s.", text, sha, line))
}

// redisCall is redis.call, which raises an error reply, and redis.pcall, which returns it as a table.
func (in *Interpreter) redisCall(L *lua.LState, raise bool) int {
	n := L.GetTop()
	if n == 0 {
		return in.fail(L, raise, "ERR Please specify at least one argument for this redis lib call")
	}
	args := in.args[:0]
	for i := 1; i <= n; i++ {
		switch v := L.Get(i).(type) {
		case lua.LString:
			args = append(args, string(v))
		case lua.LNumber:
			args = append(args, formatArg(float64(v)))
		default:
			return in.fail(L, raise, "ERR Lua redis lib command arguments must be strings or integers")
		}
	}
	in.args = args
	v := in.server.callFromScript(args, in.readOnly)
	if v.isError() {
		return in.fail(L, raise, v.str)
	}
	L.Push(in.toLua(v))
	return 1
}

func (in *Interpreter) fail(L *lua.LState, raise bool, msg string) int {
	t := in.errorTable(msg)
	where := L.Where(1) // "user_script:<line>:"
	if _, line, ok := strings.Cut(strings.TrimSuffix(strings.TrimSpace(where), ":"), ":"); ok {
		t.RawSetString("source", lua.LString("@user_script"))
		t.RawSetString("line", lua.LString(line))
	}
	if raise {
		L.Error(t, 0)
	}
	L.Push(t)
	return 1
}

func (in *Interpreter) errorTable(msg string) *lua.LTable {
	t := in.state.CreateTable(0, 4)
	t.RawSetString("err", lua.LString(msg))
	return t
}

// toLua is Redis' conversion of a RESP2 reply: null becomes false, a status {ok=...}, maps and scores flat lists of
// strings.
func (in *Interpreter) toLua(v Value) lua.LValue {
	switch v.kind {
	case kindInt:
		return lua.LNumber(v.num)
	case kindBulk, kindVerbatim:
		return lua.LString(v.str)
	case kindDouble:
		return lua.LString(formatDouble(v.float))
	case kindSimple:
		t := in.state.CreateTable(0, 1)
		t.RawSetString("ok", lua.LString(v.str))
		return t
	case kindError:
		return in.errorTable(v.str)
	case kindArray, kindMap, kindSet, kindPairs:
		t := in.state.CreateTable(len(v.elems), 0)
		for i, e := range v.elems {
			t.RawSetInt(i+1, in.toLua(e))
		}
		return t
	}
	return lua.LFalse
}

const deepestReply = 7500 // beyond it Redis, too, gives up

// reply is Redis' conversion of what a script returns: numbers lose their fraction, a list ends at its first nil.
func (in *Interpreter) reply(v lua.LValue, depth int) Value {
	switch v := v.(type) {
	case lua.LString:
		return bulk(string(v))
	case lua.LNumber:
		return integer(truncate(float64(v)))
	case lua.LBool:
		if v {
			return integer(1)
		}
		return replyNull
	case *lua.LTable:
		if depth > deepestReply {
			return errorReply("ERR reached lua stack limit")
		}
		if msg, ok := v.RawGetString("err").(lua.LString); ok {
			return errorReply(strings.TrimPrefix(string(msg), "-"))
		}
		if msg, ok := v.RawGetString("ok").(lua.LString); ok {
			return simple(string(msg))
		}
		out := array()
		for i := 1; ; i++ {
			e := v.RawGetInt(i)
			if e == lua.LNil {
				return out
			}
			out.elems = append(out.elems, in.reply(e, depth+1))
		}
	}
	return replyNull
}

// truncate is C's conversion of a double to a long long, on amd64.
func truncate(f float64) int64 {
	if math.IsNaN(f) || f >= math.MaxInt64 || f < math.MinInt64 {
		return math.MinInt64
	}
	return int64(f)
}
