// Package redissim is one simulated Redis server: commands in, replies and pushes out. It knows no network, no
// goroutine and no clock of its own, and it draws nothing at random: equal calls at equal times give equal answers.
// Nothing in it is safe for concurrent use; package redlocktest calls it under one mutex.
package redissim

import (
	"slices"
	"strings"
	"time"
)

const databases = 16

// Version is the redis_version that a server reports. Where versions differ, its rules are those of 7.2.
const Version = "7.2.5"

// Server is one Redis process and its data.
type Server struct {
	clock   func() time.Time
	runID   string
	started time.Time
	lua     *Interpreter

	// FullMemory makes commands that may need memory fail with OOM, as with maxmemory reached under noeviction.
	FullMemory bool
	// Password, if not empty, is asked for as requirepass does.
	Password string

	dbs      [databases]*database
	expiries expiryHeap
	volatile int // keys with an expiry
	scripts  map[string]*script
	sessions []*Session // by id
	lastID   int64
	tracked  map[string][]*Session // by id
	faults   map[string]string     // command name, or "" for all, to error reply
	info     map[string]string     // fields of INFO set from outside
	config   map[string]string

	// The command under way.
	session   *Session // nil: the server itself
	db        *database
	nowMs     int64 // the node's clock, frozen while a command or a script runs, as in 7.2
	now       time.Time
	inScript  bool
	wrote     bool // the script under way has written
	ownPushes [][]string

	written    map[string]*Session // BCAST: keys written since the last flush, and by whom
	broadcasts int                 // sessions in BCAST mode

	reply []byte // scratch
}

// New starts an empty server. clock is its wall clock.
func New(runID string, clock func() time.Time, lua *Interpreter) *Server {
	s := &Server{
		clock:   clock,
		lua:     lua,
		faults:  map[string]string{},
		info:    map[string]string{},
		config:  map[string]string{"maxmemory": "0", "maxmemory-policy": "noeviction", "save": "", "appendonly": "no", "databases": "16", "timeout": "0"},
		written: map[string]*Session{},
	}
	for i := range s.dbs {
		s.dbs[i] = &database{keys: map[string]*entry{}}
	}
	s.boot(runID)
	return s
}

// Reboot is a new process on the same data: a new run id, no sessions, no scripts, no tracking. The caller has closed
// the connections.
func (s *Server) Reboot(runID string) { s.boot(runID) }

// RebootEmpty is a new process whose memory is gone.
func (s *Server) RebootEmpty(runID string) {
	s.wipe()
	s.boot(runID)
}

func (s *Server) boot(runID string) {
	for _, x := range s.sessions {
		x.closed = true
	}
	s.runID = runID
	s.started = s.clock()
	s.scripts = map[string]*script{}
	s.sessions = nil
	s.lastID = 2 // a real server's first client is often number 3
	s.tracked = map[string][]*Session{}
	s.broadcasts = 0
	s.session = nil
}

func (s *Server) wipe() {
	for _, db := range s.dbs {
		clear(db.keys)
	}
	s.expiries = nil
	s.volatile = 0
}

// Retire takes the interpreter away, which others may use from now on: scripts answer an error.
func (s *Server) Retire() { s.lua = nil }

// RunID returns the 40 hex digits by which the process is known.
func (s *Server) RunID() string {
	if id, ok := s.info["run_id"]; ok {
		return id
	}
	return s.runID
}

// SetInfo overrides one field of INFO, in whatever section it stands.
func (s *Server) SetInfo(field, value string) { s.info[field] = value }

// Fail makes every later call of a command answer message; command "" is every command, "CLIENT TRACKING" a subcommand.
// An empty message ends it.
func (s *Server) Fail(command, message string) {
	command = strings.ToUpper(command)
	if message == "" {
		delete(s.faults, command)
		return
	}
	s.faults[command] = message
}

// FlushScripts empties the script cache.
func (s *Server) FlushScripts() { s.scripts = map[string]*script{} }

// Session is one connection as the server sees it.
type Session struct {
	id       int64
	server   *Server
	send     func([]byte)
	closed   bool
	proto    int
	authed   bool
	name     string
	db       int
	tracking tracking
	multi    bool
	aborted  bool
	queue    [][]string
}

// Connect opens a session. send is called for each reply and each push, in order; the bytes are valid during the call
// only.
func (s *Server) Connect(send func([]byte)) *Session {
	s.lastID++
	x := &Session{id: s.lastID, server: s, send: send, proto: 2}
	s.sessions = append(s.sessions, x)
	return x
}

// Close ends x: nothing is sent to it any more.
func (x *Session) Close() {
	if x.closed {
		return
	}
	x.closed = true
	x.server.dropTracking(x)
	x.server.sessions = slices.DeleteFunc(x.server.sessions, func(y *Session) bool { return x == y })
}

// Closed reports whether the server itself has ended x, as CLIENT KILL and QUIT do.
func (x *Session) Closed() bool { return x.closed }

func (x *Session) push(keys []string) {
	if x.proto != 3 || x.closed {
		return // RESP2 has no pushes
	}
	x.send(appendInvalidation(nil, keys))
}

// Execute runs one command of session x and sends its reply, then the pushes that the command owes x itself; what it
// owes others has gone before. It returns the command's name in capitals, with the subcommand where it has one.
func (s *Server) Execute(x *Session, args []string) (name string) {
	if len(args) == 0 {
		return ""
	}
	name, v := s.perform(x, args)
	if v.kind != kindNone && x.send != nil {
		s.reply = appendValue(s.reply[:0], v, x.proto)
		x.send(s.reply)
	}
	s.flushOwnPushes()
	s.flushBroadcast()
	s.session = nil
	return name
}

// Call runs one command as a foreign client would, on database 0.
func (s *Server) Call(args ...string) Value {
	x := &Session{server: s, proto: 3, authed: true}
	_, v := s.perform(x, args)
	s.ownPushes = s.ownPushes[:0]
	s.flushBroadcast()
	s.session = nil
	return v
}

func (s *Server) perform(x *Session, args []string) (string, Value) {
	s.session = x
	s.now = s.clock()
	s.nowMs = s.now.UnixMilli()
	s.db = s.dbs[x.db]
	cmd := lookup(args[0])
	name := strings.ToUpper(args[0])
	if cmd != nil {
		name = cmd.name
		if cmd.flags&container != 0 && len(args) > 1 {
			name += " " + strings.ToUpper(args[1])
		}
	}
	v := s.admit(x, cmd, name, args)
	if v.kind == kindNone {
		v = s.call(cmd, args)
	}
	// CLIENT CACHING speaks of the next command, or of the whole next transaction.
	if name != "CLIENT CACHING" && !x.multi {
		x.tracking.caching = cachingUnset
	}
	return name, v
}

// admit answers what Redis answers before a command runs; no answer means that it may.
func (s *Server) admit(x *Session, cmd *command, name string, args []string) Value {
	var refused Value
	switch {
	case cmd == nil:
		refused = unknownCommand(args)
	case !cmd.arityFits(len(args)):
		refused = wrongArity(cmd.name)
	case s.Password != "" && !x.authed && cmd.flags&noAuth == 0:
		refused = errorReply("NOAUTH Authentication required.")
	default:
		refused = s.fault(cmd, name)
	}
	if refused.kind != kindNone {
		x.aborted = x.aborted || x.multi
		return refused
	}
	if x.multi && cmd.flags&noQueue == 0 {
		x.queue = append(x.queue, args)
		return simple("QUEUED")
	}
	return Value{}
}

// fault returns the error that was ordered for a command, or that a full memory gives.
func (s *Server) fault(cmd *command, name string) Value {
	if len(s.faults) > 0 {
		for _, key := range [...]string{name, cmd.name, ""} {
			if msg, ok := s.faults[key]; ok {
				return errorReply(msg)
			}
		}
	}
	// A script that has written once may go on, lest it be left half done.
	if s.FullMemory && cmd.flags&denyOOM != 0 && !(s.inScript && (s.wrote || s.lua.allowOOM)) {
		return errorReply("OOM command not allowed when used memory > 'maxmemory'.")
	}
	return Value{}
}

// call runs cmd, at the top or for a script, and remembers what it read.
func (s *Server) call(cmd *command, args []string) Value {
	v := cmd.run(s, args)
	if cmd.flags&reads != 0 && s.session.tracking.on {
		s.remember(cmd.keys(args))
	}
	return v
}

// micros is the clock as TIME shows it.
func (s *Server) micros() (sec, usec int64) {
	return s.now.Unix(), int64(s.now.Nanosecond() / 1000)
}
