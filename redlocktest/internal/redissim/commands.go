package redissim

import (
	"strconv"
	"strings"
)

type flags uint16

const (
	writes    flags = 1 << iota // refused to EVAL_RO
	reads                       // its keys are tracked
	denyOOM                     // may need memory
	noScript                    // refused inside scripts
	noAuth                      // allowed before AUTH
	noQueue                     // runs at once inside MULTI
	container                   // has subcommands
)

// command is a row of Redis' own command table: arity and key positions mean what they mean there.
type command struct {
	name              string
	arity             int // negative: at least
	flags             flags
	first, last, step int
	run               func(s *Server, args []string) Value
}

func (c *command) arityFits(n int) bool {
	return n == c.arity || c.arity < 0 && n >= -c.arity
}

func (c *command) keys(args []string) []string {
	if c.first == 0 {
		return nil
	}
	last := c.last
	if last < 0 {
		last += len(args)
	}
	if last == c.first {
		return args[c.first : c.first+1]
	}
	var keys []string
	for i := c.first; i <= last; i += c.step {
		keys = append(keys, args[i])
	}
	return keys
}

// table finds a command by its name in capitals or in small letters; lookup does the rest.
var table = map[string]*command{}

func lookup(name string) *command {
	if c := table[name]; c != nil {
		return c
	}
	return table[strings.ToUpper(name)]
}

func register(list ...command) {
	for _, c := range list {
		table[c.name] = &c
		table[strings.ToLower(c.name)] = &c
	}
}

var (
	errSyntax     = errorReply("ERR syntax error")
	errWrongType  = errorReply("WRONGTYPE Operation against a key holding the wrong kind of value")
	errNotInteger = errorReply("ERR value is not an integer or out of range")
	errNotFloat   = errorReply("ERR value is not a valid float")
	errOverflow   = errorReply("ERR increment or decrement would overflow")
)

func wrongArity(name string) Value {
	return errorReply("ERR wrong number of arguments for '" + strings.ToLower(name) + "' command")
}

func unknownCommand(args []string) Value {
	msg := "ERR unknown command '" + args[0] + "', with args beginning with: "
	for _, arg := range args[1:] {
		msg += "'" + arg + "' "
	}
	return errorReply(msg)
}

func unknownSubcommand(name, sub string) Value {
	return errorReply("ERR unknown subcommand '" + sub + "'. Try " + name + " HELP.")
}

// parseInt accepts what Redis' string2ll accepts: no plus sign, no leading zeros, no spaces.
func parseInt(s string) (int64, bool) {
	n, err := strconv.ParseInt(s, 10, 64)
	if err != nil || s[0] == '+' || len(s) > 1 && s[0] == '0' || len(s) > 1 && s[0] == '-' && s[1] == '0' {
		return 0, false
	}
	return n, true
}

// typed returns the live entry of key if it has the type; bad is the WRONGTYPE reply where it has another.
func (s *Server) typed(key, typ string) (e *entry, bad bool) {
	e = s.live(key)
	return e, e != nil && e.typ != typ
}

// changed notes a write to key.
func (s *Server) changed(key string) {
	if s.inScript {
		s.wrote = true
	}
	s.signal(key)
}
