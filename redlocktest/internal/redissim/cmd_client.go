package redissim

import (
	"fmt"
	"strconv"
	"strings"
)

func init() {
	register(
		command{"HELLO", -1, noScript | noAuth | noQueue, 0, 0, 0, hello},
		command{"AUTH", -2, noScript | noAuth, 0, 0, 0, func(s *Server, a []string) Value {
			user := "default"
			if len(a) > 3 {
				return errSyntax
			}
			if len(a) == 3 {
				user = a[1]
			}
			if s.Password == "" && len(a) == 2 {
				return errorReply("ERR AUTH <password> called without any password configured for the default user. Are you sure your configuration is correct?")
			}
			return s.auth(user, a[len(a)-1])
		}},
		command{"CLIENT", -2, noScript | container, 0, 0, 0, client},
		command{"QUIT", -1, noScript | noAuth | noQueue, 0, 0, 0, func(s *Server, a []string) Value {
			x := s.session
			if x.send != nil {
				x.send(appendValue(nil, replyOK, x.proto))
			}
			x.Close()
			return Value{}
		}},
		command{"RESET", 1, noScript | noAuth | noQueue, 0, 0, 0, func(s *Server, a []string) Value {
			x := s.session
			s.dropTracking(x)
			x.proto, x.db, x.name, x.multi, x.queue, x.authed = 2, 0, "", false, nil, false
			return simple("RESET")
		}},
		command{"MULTI", 1, noScript | noQueue, 0, 0, 0, func(s *Server, a []string) Value {
			x := s.session
			if x.multi {
				return errorReply("ERR MULTI calls can not be nested")
			}
			x.multi, x.aborted, x.queue = true, false, nil
			return replyOK
		}},
		command{"DISCARD", 1, noScript | noQueue, 0, 0, 0, func(s *Server, a []string) Value {
			x := s.session
			if !x.multi {
				return errorReply("ERR DISCARD without MULTI")
			}
			x.multi, x.queue = false, nil
			return replyOK
		}},
		command{"EXEC", 1, noScript | noQueue, 0, 0, 0, func(s *Server, a []string) Value {
			x := s.session
			if !x.multi {
				return errorReply("ERR EXEC without MULTI")
			}
			queue := x.queue
			x.multi, x.queue = false, nil
			if x.aborted {
				return errorReply("EXECABORT Transaction discarded because of previous errors.")
			}
			v := array()
			for _, args := range queue {
				v.elems = append(v.elems, s.call(lookup(args[0]), args))
			}
			return v
		}},
	)
}

func (s *Server) auth(user, password string) Value {
	if user != "default" || s.Password != "" && password != s.Password {
		return errorReply("WRONGPASS invalid username-password pair or user is disabled.")
	}
	s.session.authed = true
	return replyOK
}

func hello(s *Server, a []string) Value {
	x, proto := s.session, s.session.proto
	i := 1
	if len(a) > 1 {
		n, ok := parseInt(a[1])
		if !ok || n < 2 || n > 3 {
			return errorReply("NOPROTO unsupported protocol version")
		}
		proto, i = int(n), 2
	}
	name, named := "", false
	for ; i < len(a); i++ {
		switch opt := strings.ToUpper(a[i]); {
		case opt == "AUTH" && i+2 < len(a):
			if v := s.auth(a[i+1], a[i+2]); v.isError() {
				return v
			}
			i += 2
		case opt == "SETNAME" && i+1 < len(a):
			name, named = a[i+1], true
			i++
		default:
			return errorReply("ERR Syntax error in HELLO option '" + a[i] + "'")
		}
	}
	if s.Password != "" && !x.authed {
		return errorReply("NOAUTH HELLO must be called with the client already authenticated, otherwise the HELLO <proto> AUTH <user> <pass> option can be used to authenticate the client and select the RESP protocol version at the same time")
	}
	x.proto = proto
	if named {
		x.name = strings.Clone(name)
	}
	mode, role := s.field("redis_mode"), s.field("role")
	if role == "slave" {
		role = "replica"
	}
	return Value{kind: kindMap, elems: []Value{
		bulk("server"), bulk("redis"), bulk("version"), bulk(s.field("redis_version")), bulk("proto"), integer(int64(proto)),
		bulk("id"), integer(x.id), bulk("mode"), bulk(mode), bulk("role"), bulk(role), bulk("modules"), array(),
	}}
}

func client(s *Server, a []string) Value {
	x, sub := s.session, strings.ToUpper(a[1])
	argc := len(a) - 2
	switch {
	case sub == "ID" && argc == 0:
		return integer(x.id)
	case sub == "GETNAME" && argc == 0:
		if x.name == "" {
			return replyNull
		}
		return bulk(x.name)
	case sub == "SETNAME" && argc == 1:
		x.name = strings.Clone(a[2])
		return replyOK
	case sub == "SETINFO" && argc == 2:
		switch strings.ToUpper(a[2]) {
		case "LIB-NAME", "LIB-VER":
			return replyOK
		}
		return errorReply("ERR Unrecognized option '" + a[2] + "'")
	case (sub == "NO-EVICT" || sub == "NO-TOUCH") && argc == 1:
		switch strings.ToUpper(a[2]) {
		case "ON", "OFF":
			return replyOK
		}
		return errSyntax
	case sub == "TRACKING" && argc >= 1:
		return s.setTracking(a[2:])
	case sub == "CACHING" && argc == 1:
		return setCaching(x, strings.ToUpper(a[2]))
	case sub == "GETREDIR" && argc == 0:
		if x.tracking.on {
			return integer(0)
		}
		return integer(-1)
	case sub == "TRACKINGINFO" && argc == 0:
		return x.trackingInfo()
	case sub == "INFO" && argc == 0:
		return Value{kind: kindVerbatim, str: x.line() + "\n"}
	case sub == "LIST" && argc == 0:
		var b strings.Builder
		for _, y := range s.sessions {
			b.WriteString(y.line() + "\n")
		}
		return Value{kind: kindVerbatim, str: b.String()}
	case sub == "KILL" && argc >= 2 && argc%2 == 0:
		return s.kill(a[2:])
	}
	return unknownSubcommand("CLIENT", a[1])
}

func setCaching(x *Session, answer string) Value {
	switch {
	case !x.tracking.on:
		return errorReply("ERR CLIENT CACHING can be called only when the client is in tracking mode with OPTIN or OPTOUT mode enabled")
	case answer == "YES" && x.tracking.optin:
		x.tracking.caching = cachingYes
	case answer == "YES":
		return errorReply("ERR CLIENT CACHING YES is only valid when tracking is enabled in OPTIN mode.")
	case answer == "NO" && x.tracking.optout:
		x.tracking.caching = cachingNo
	case answer == "NO":
		return errorReply("ERR CLIENT CACHING NO is only valid when tracking is enabled in OPTOUT mode.")
	default:
		return errSyntax
	}
	return replyOK
}

func (x *Session) trackingInfo() Value {
	t := x.tracking
	flags := Value{kind: kindSet}
	for _, f := range []struct {
		on   bool
		name string
	}{{!t.on, "off"}, {t.on, "on"}, {t.bcast, "bcast"}, {t.optin, "optin"}, {t.optout, "optout"}, {t.noloop, "noloop"}} {
		if f.on {
			flags.elems = append(flags.elems, bulk(f.name))
		}
	}
	redirect := int64(-1)
	if t.on {
		redirect = 0
	}
	return Value{kind: kindMap, elems: []Value{bulk("flags"), flags, bulk("redirect"), integer(redirect), bulk("prefixes"), bulks(t.prefixes)}}
}

func (x *Session) line() string {
	return fmt.Sprintf("id=%d name=%s db=%d resp=%d", x.id, x.name, x.db, x.proto)
}

// kill is CLIENT KILL with ID, TYPE normal and SKIPME. Whom it ends, the caller of Execute finds Closed.
func (s *Server) kill(filter []string) Value {
	id, skipMe := int64(0), true
	for i := 0; i < len(filter); i += 2 {
		switch opt, value := strings.ToUpper(filter[i]), filter[i+1]; opt {
		case "ID":
			n, err := strconv.ParseInt(value, 10, 64)
			if err != nil || n < 1 {
				return errorReply("ERR client-id should be greater than 0")
			}
			id = n
		case "TYPE":
			if !strings.EqualFold(value, "normal") {
				return errorReply("ERR Unknown client type '" + value + "'")
			}
		case "SKIPME":
			skipMe = !strings.EqualFold(value, "no")
		default:
			return errSyntax
		}
	}
	var n int64
	for _, x := range append([]*Session(nil), s.sessions...) {
		if (id == 0 || x.id == id) && !(skipMe && x == s.session) {
			x.Close()
			n++
		}
	}
	return integer(n)
}
