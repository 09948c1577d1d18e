package redissim

import (
	"crypto/sha1"
	"encoding/hex"
	"strings"
)

// script is one compiled script of one server.
type script struct {
	sha, body string
	program   *program
}

func init() {
	register(
		command{"EVAL", -3, noScript, 0, 0, 0, func(s *Server, a []string) Value { return s.eval(a, false) }},
		command{"EVAL_RO", -3, noScript, 0, 0, 0, func(s *Server, a []string) Value { return s.eval(a, true) }},
		command{"EVALSHA", -3, noScript, 0, 0, 0, func(s *Server, a []string) Value { return s.evalSHA(a, false) }},
		command{"EVALSHA_RO", -3, noScript, 0, 0, 0, func(s *Server, a []string) Value { return s.evalSHA(a, true) }},
		command{"SCRIPT", -2, noScript | container, 0, 0, 0, func(s *Server, a []string) Value {
			switch sub := strings.ToUpper(a[1]); {
			case sub == "LOAD" && len(a) == 3:
				sc, bad := s.load(a[2])
				if bad.isError() {
					return bad
				}
				return bulk(sc.sha)
			case sub == "EXISTS" && len(a) > 2:
				v := array()
				for _, sha := range a[2:] {
					v.elems = append(v.elems, truth(s.scripts[strings.ToLower(sha)] != nil))
				}
				return v
			case sub == "FLUSH" && len(a) <= 3:
				s.FlushScripts()
				return replyOK
			}
			return unknownSubcommand("SCRIPT", a[1])
		}},
	)
}

// load compiles body and keeps it under its digest.
func (s *Server) load(body string) (*script, Value) {
	sum := sha1.Sum([]byte(body))
	sha := hex.EncodeToString(sum[:])
	if sc := s.scripts[sha]; sc != nil {
		return sc, Value{}
	}
	body = strings.Clone(body)
	p, err := compile(body)
	if err != nil {
		return nil, errorReply("ERR Error compiling script (new function): " + err.Error())
	}
	sc := &script{sha: sha, body: body, program: p}
	s.scripts[sha] = sc
	return sc, Value{}
}

func (s *Server) eval(a []string, readOnly bool) Value {
	sc, bad := s.load(a[1])
	if bad.isError() {
		return bad
	}
	return s.runScript(sc, a, readOnly)
}

func (s *Server) evalSHA(a []string, readOnly bool) Value {
	sc := s.scripts[a[1]]
	if sc == nil {
		sc = s.scripts[strings.ToLower(a[1])]
	}
	if sc == nil {
		return errorReply("NOSCRIPT No matching script. Please use EVAL.")
	}
	return s.runScript(sc, a, readOnly)
}

func (s *Server) runScript(sc *script, a []string, readOnly bool) Value {
	keys, ok := parseInt(a[2])
	switch {
	case s.lua == nil:
		return errorReply("ERR the server is closed")
	case !ok:
		return errNotInteger
	case keys < 0:
		return errorReply("ERR Number of keys can't be negative")
	case keys > int64(len(a)-3):
		return errorReply("ERR Number of keys can't be greater than number of args")
	}
	db := s.db
	s.inScript, s.wrote = true, false
	v := s.lua.run(s, sc, a[3:3+keys], a[3+keys:], readOnly)
	s.inScript, s.db = false, db // a script's SELECT is its own
	return v
}

// callFromScript is redis.call.
func (s *Server) callFromScript(args []string, readOnly bool) Value {
	cmd := lookup(args[0])
	switch {
	case cmd == nil:
		return errorReply("ERR Unknown Redis command called from script")
	case !cmd.arityFits(len(args)):
		return errorReply("ERR Wrong number of args calling Redis command from script")
	case cmd.flags&noScript != 0:
		return errorReply("ERR This Redis command is not allowed from script")
	case readOnly && cmd.flags&writes != 0:
		return errorReply("ERR Write commands are not allowed from read-only scripts.")
	}
	if v := s.fault(cmd, cmd.name); v.kind != kindNone {
		return v
	}
	return s.call(cmd, args)
}
