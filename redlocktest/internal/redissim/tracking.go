package redissim

import (
	"maps"
	"slices"
	"strings"
)

// tracking is one session's CLIENT TRACKING state.
type tracking struct {
	on, optin, optout, bcast, noloop bool
	caching                          caching
	prefixes                         []string // BCAST only; [""] is every key
}

// caching is what CLIENT CACHING said about the next command.
type caching byte

const (
	cachingUnset caching = iota
	cachingYes
	cachingNo
)

// remember notes that the calling session has read keys: exactly those a read command names, also inside a script
// (Redis 7.2 and later; 7.0 takes every key that the script declares).
func (s *Server) remember(keys []string) {
	t := &s.session.tracking
	if !t.on || t.bcast || t.optin && t.caching != cachingYes || t.optout && t.caching == cachingNo {
		return
	}
	for _, key := range keys {
		list := s.tracked[key]
		at, found := slices.BinarySearchFunc(list, s.session.id, func(x *Session, id int64) int { return int(x.id - id) })
		if found {
			continue
		}
		if list == nil {
			key = strings.Clone(key)
		}
		s.tracked[key] = slices.Insert(list, at, s.session)
	}
}

// signal tells who tracks key that it was written. Each tracker hears of it once and must read again to hear more.
//
// The table knows names and no databases, so a key of the same name elsewhere is a false alarm. A NOLOOP session is
// silently untracked by its own write.
func (s *Server) signal(key string) {
	if s.inScript {
		s.signalFrom(key, nil) // BCAST: Redis takes a script's writes for nobody's, so that NOLOOP does not hide them
		return
	}
	s.signalFrom(key, s.session)
}

func (s *Server) signalExpired(key string) { s.signalFrom(key, nil) }

func (s *Server) signalFrom(key string, writer *Session) {
	if s.broadcasts > 0 {
		s.written[key] = writer
	}
	list := s.tracked[key]
	if list == nil {
		return
	}
	delete(s.tracked, key)
	for _, x := range list {
		if x.closed || !x.tracking.on || x.tracking.bcast {
			continue
		}
		if x == s.session {
			if !x.tracking.noloop {
				s.ownPushes = append(s.ownPushes, []string{key})
			}
			continue
		}
		x.push([]string{key})
	}
}

// signalFlush tells every tracking session that everything may have changed, whatever it had read, and forgets all
// tracking of all databases.
func (s *Server) signalFlush() {
	clear(s.tracked)
	for _, x := range s.sessions {
		if !x.tracking.on {
			continue
		}
		if x == s.session {
			s.ownPushes = append(s.ownPushes, nil)
			continue
		}
		x.push(nil)
	}
}

// flushOwnPushes sends what a command owes its own session. It comes behind the reply.
func (s *Server) flushOwnPushes() {
	if len(s.ownPushes) == 0 {
		return
	}
	for _, keys := range s.ownPushes {
		s.session.push(keys)
	}
	s.ownPushes = s.ownPushes[:0]
}

// flushBroadcast sends one push per prefix with every key written since the last time.
func (s *Server) flushBroadcast() {
	if len(s.written) == 0 {
		return
	}
	keys := slices.Sorted(maps.Keys(s.written))
	for _, x := range s.sessions {
		if !x.tracking.on || !x.tracking.bcast {
			continue
		}
		for _, prefix := range x.tracking.prefixes {
			var hit []string
			for _, key := range keys {
				if strings.HasPrefix(key, prefix) && !(x.tracking.noloop && s.written[key] == x) {
					hit = append(hit, key)
				}
			}
			if hit != nil {
				x.push(hit)
			}
		}
	}
	clear(s.written)
}

// Untrack tells every session that tracks key that it changed, although it did not: what a full tracking table does.
func (s *Server) Untrack(key string) {
	s.session = nil
	s.signalFrom(key, nil)
	s.flushBroadcast()
}

// Tracked reports how many sessions would hear of a write to key.
func (s *Server) Tracked(key string) int {
	n := 0
	for _, x := range s.tracked[key] {
		if !x.closed && x.tracking.on && !x.tracking.bcast {
			n++
		}
	}
	return n
}

// setTracking is CLIENT TRACKING ON|OFF with its options.
func (s *Server) setTracking(args []string) Value {
	x := s.session
	var t tracking
	on := strings.EqualFold(args[0], "ON")
	if !on && !strings.EqualFold(args[0], "OFF") {
		return errSyntax
	}
	for i := 1; i < len(args); i++ {
		switch strings.ToUpper(args[i]) {
		case "BCAST":
			t.bcast = true
		case "OPTIN":
			t.optin = true
		case "OPTOUT":
			t.optout = true
		case "NOLOOP":
			t.noloop = true
		case "PREFIX":
			if i++; i == len(args) {
				return errSyntax
			}
			t.prefixes = append(t.prefixes, strings.Clone(args[i]))
		default: // REDIRECT is for RESP2 and not simulated
			return errSyntax
		}
	}
	if !on {
		s.dropTracking(x)
		return replyOK
	}
	switch {
	case len(t.prefixes) > 0 && !t.bcast:
		return errorReply("ERR PREFIX option requires BCAST mode to be enabled")
	case x.tracking.on && x.tracking.bcast != t.bcast:
		return errorReply("ERR You can't switch BCAST mode on/off before disabling tracking for this client, and then re-enabling it with a different mode.")
	case t.bcast && (t.optin || t.optout):
		return errorReply("ERR OPTIN and OPTOUT are not compatible with BCAST")
	case t.optin && t.optout:
		return errorReply("ERR You can't use both OPTIN and OPTOUT at the same time")
	case x.tracking.on && (t.optin && x.tracking.optout || t.optout && x.tracking.optin):
		return errorReply("ERR You can't switch OPTIN/OPTOUT mode before disabling tracking for this client, and then re-enabling it with a different mode.")
	}
	all := slices.Concat(x.tracking.prefixes, t.prefixes)
	for i, a := range all {
		for _, b := range all[i+1:] {
			if a != b && (strings.HasPrefix(a, b) || strings.HasPrefix(b, a)) {
				return errorReply("ERR Prefix '" + b + "' overlaps with an existing prefix '" + a + "'. Prefixes for a single client must not overlap.")
			}
		}
	}
	slices.Sort(all)
	t.prefixes = slices.Compact(all)
	if t.bcast && len(t.prefixes) == 0 {
		t.prefixes = []string{""}
	}
	s.dropTracking(x)
	t.on = true
	x.tracking = t
	if t.bcast {
		s.broadcasts++
	}
	return replyOK
}

// dropTracking ends x's tracking. Its entries in the table stay, as on a real server, and come to nothing.
func (s *Server) dropTracking(x *Session) {
	if x.tracking.on && x.tracking.bcast {
		s.broadcasts--
	}
	x.tracking = tracking{}
}
