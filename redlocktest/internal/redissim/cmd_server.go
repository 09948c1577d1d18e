package redissim

import (
	"fmt"
	"slices"
	"strconv"
	"strings"
)

func init() {
	register(
		command{"PING", -1, 0, 0, 0, 0, func(s *Server, a []string) Value {
			if len(a) > 1 {
				return bulk(a[1])
			}
			return simple("PONG")
		}},
		command{"ECHO", 2, 0, 0, 0, 0, func(s *Server, a []string) Value { return bulk(a[1]) }},
		command{"TIME", 1, 0, 0, 0, 0, func(s *Server, a []string) Value {
			sec, usec := s.micros()
			return array(bulk(strconv.FormatInt(sec, 10)), bulk(strconv.FormatInt(usec, 10)))
		}},
		command{"INFO", -1, 0, 0, 0, 0, func(s *Server, a []string) Value { return Value{kind: kindVerbatim, str: s.infoText(a[1:])} }},
		command{"ROLE", 1, noScript, 0, 0, 0, func(s *Server, a []string) Value {
			if s.field("role") != "master" {
				return array(bulk("slave"), bulk("127.0.0.1"), integer(6379), bulk("connected"), integer(0))
			}
			return array(bulk("master"), integer(0), array())
		}},
		command{"WAIT", 3, noScript, 0, 0, 0, func(s *Server, a []string) Value { return integer(0) }},
		command{"CLUSTER", -2, container, 0, 0, 0, func(s *Server, a []string) Value {
			return errorReply("ERR This instance has cluster support disabled")
		}},
		command{"CONFIG", -2, noScript | container, 0, 0, 0, configCommand},
		command{"COMMAND", -1, container, 0, 0, 0, func(s *Server, a []string) Value { return array() }},
	)
}

// usedMemory is what every server claims to use, in bytes: CONFIG SET maxmemory below it makes the memory full.
const usedMemory = 1 << 20

func configCommand(s *Server, a []string) Value {
	switch strings.ToUpper(a[1]) {
	case "GET":
		v := Value{kind: kindMap}
		for _, name := range s.configNames() {
			if slices.ContainsFunc(a[2:], func(p string) bool { return globMatch(strings.ToLower(p), name) }) {
				v.elems = append(v.elems, bulk(name), bulk(s.configValue(name)))
			}
		}
		return v
	case "SET":
		if len(a)%2 != 0 || len(a) == 2 {
			return wrongArity("config|set")
		}
		for i := 2; i < len(a); i += 2 {
			if _, ok := s.config[strings.ToLower(a[i])]; !ok {
				return errorReply("ERR Unknown option or number of arguments for CONFIG SET - '" + a[i] + "'")
			}
			s.config[strings.ToLower(a[i])] = strings.Clone(a[i+1])
			if strings.EqualFold(a[i], "maxmemory") {
				n, _ := parseInt(a[i+1])
				s.FullMemory = n > 0 && n < usedMemory
			}
		}
		return replyOK
	case "RESETSTAT":
		return replyOK
	}
	return unknownSubcommand("CONFIG", a[1])
}

func (s *Server) configNames() []string {
	names := make([]string, 0, len(s.config))
	for name := range s.config {
		names = append(names, name)
	}
	slices.Sort(names)
	return names
}

func (s *Server) configValue(name string) string {
	if name == "maxmemory-policy" {
		return s.field("maxmemory_policy")
	}
	return s.config[name]
}

// field is one field of INFO that can be set from outside.
func (s *Server) field(name string) string {
	if v, ok := s.info[name]; ok {
		return v
	}
	switch name {
	case "redis_version":
		return Version
	case "redis_mode":
		return "standalone"
	case "run_id":
		return s.runID
	case "role":
		return "master"
	case "maxmemory_policy":
		return s.config["maxmemory-policy"]
	case "cluster_enabled":
		return "0"
	}
	return ""
}

var infoSections = []string{"server", "clients", "memory", "persistence", "stats", "replication", "cluster", "keyspace"}

// infoText is INFO: the sections asked for, or all of them, with the fields that a lock cares for.
func (s *Server) infoText(sections []string) string {
	var b strings.Builder
	wanted := func(section string) bool {
		return len(sections) == 0 || slices.ContainsFunc(sections, func(x string) bool {
			x = strings.ToLower(x)
			return x == section || x == "all" || x == "default" || x == "everything"
		})
	}
	for _, section := range infoSections {
		if !wanted(section) {
			continue
		}
		if b.Len() > 0 {
			b.WriteString("\r\n")
		}
		b.WriteString("# " + strings.ToUpper(section[:1]) + section[1:] + "\r\n")
		set := func(name, value string) {
			if v, ok := s.info[name]; ok {
				value = v
			}
			b.WriteString(name)
			b.WriteByte(':')
			b.WriteString(value)
			b.WriteString("\r\n")
		}
		switch section {
		case "server":
			up := s.now.Unix() - s.started.Unix() // wall clock, as in Redis: it jumps with the clock
			set("redis_version", s.field("redis_version"))
			set("redis_mode", s.field("redis_mode"))
			set("os", "redissim")
			set("arch_bits", "64")
			set("process_id", "1")
			set("run_id", s.field("run_id"))
			set("tcp_port", "6379")
			set("server_time_usec", strconv.FormatInt(s.now.UnixMicro(), 10))
			set("uptime_in_seconds", strconv.FormatInt(up, 10))
			set("uptime_in_days", strconv.FormatInt(up/86400, 10))
			set("hz", "10")
		case "clients":
			n := len(s.sessions)
			tracking := 0
			for _, x := range s.sessions {
				if x.tracking.on {
					tracking++
				}
			}
			set("connected_clients", strconv.Itoa(n))
			set("tracking_clients", strconv.Itoa(tracking))
		case "memory":
			set("used_memory", strconv.Itoa(usedMemory))
			set("maxmemory", s.config["maxmemory"])
			set("maxmemory_policy", s.field("maxmemory_policy"))
		case "persistence":
			set("loading", "0")
			set("aof_enabled", "0")
		case "stats":
			set("tracking_total_keys", strconv.Itoa(len(s.tracked)))
		case "replication":
			set("role", s.field("role"))
			set("connected_slaves", "0")
		case "cluster":
			set("cluster_enabled", s.field("cluster_enabled"))
		case "keyspace":
			for i, db := range s.dbs {
				if len(db.keys) > 0 {
					volatile := 0
					for _, e := range db.keys {
						if e.expireAt != 0 {
							volatile++
						}
					}
					set(fmt.Sprintf("db%d", i), fmt.Sprintf("keys=%d,expires=%d,avg_ttl=0", len(db.keys), volatile))
				}
			}
		}
	}
	return b.String()
}
