package bench

import (
	"errors"
	"strconv"
	"strings"
	"time"

	"github.com/redlock-go/redlock/bench/client"
	"github.com/redlock-go/redlock/internal/netproxy"
	"github.com/redlock-go/redlock/internal/redisproc"
)

// servers are redis-server processes, and proxies before those that are to be slow.
type servers struct {
	processes []*redisproc.Node
	proxies   []*netproxy.Proxy
	nodes     []client.Node // where clients find them
}

func startServers(n int, transport string) (*servers, error) {
	processes, err := redisproc.StartSet(n, redisproc.Options{TCP: transport == "tcp"})
	if err != nil {
		return nil, err
	}
	s := &servers{processes: processes}
	for _, p := range processes {
		s.nodes = append(s.nodes, client.Node{Network: p.Network(), Addr: p.Addr()})
	}
	return s, nil
}

// close ends what was started.
func (s *servers) close() {
	for _, p := range s.proxies {
		p.Close()
	}
	for _, p := range s.processes {
		_ = p.Close() // a benchmark has nothing to say about it
	}
}

// slowDown lets every byte to and from node i take oneWay, for clients that connect from now on.
func (s *servers) slowDown(i int, oneWay time.Duration) error {
	p := netproxy.New(s.processes[i].Network(), s.processes[i].Addr())
	s.proxies = append(s.proxies, p)
	p.Delay(netproxy.Both, oneWay, nil)
	link, err := p.Listen()
	if err != nil {
		return err
	}
	s.nodes[i] = client.Node{Network: "tcp", Addr: link.Addr()}
	return nil
}

// silence stops the last node with SIGSTOP: it takes bytes and answers nothing.
func (s *servers) silence() error { return s.processes[len(s.processes)-1].Freeze() }

// usage is what servers have done, all together.
type usage struct {
	cpu     time.Duration
	scripts float64 // EVALSHA commands
}

// usage must not be asked while a server is silent.
func (s *servers) usage() (u usage, err error) {
	for _, p := range s.processes {
		info, err := p.Do("INFO", "cpu", "commandstats")
		if err != nil {
			return u, err
		}
		for _, field := range []string{"used_cpu_user", "used_cpu_sys"} {
			seconds, err := strconv.ParseFloat(infoField(info, field), 64)
			if err != nil {
				return u, err
			}
			u.cpu += time.Duration(seconds * float64(time.Second))
		}
		calls, _, _ := strings.Cut(strings.TrimPrefix(infoField(info, "cmdstat_evalsha"), "calls="), ",")
		if calls != "" { // there were any
			n, err := strconv.ParseFloat(calls, 64)
			if err != nil {
				return u, err
			}
			u.scripts += n
		}
	}
	return u, nil
}

// ServerVersion is what the servers call themselves.
func ServerVersion() (string, error) {
	s, err := startServers(1, "unix")
	if err != nil {
		return "", err
	}
	defer s.close()
	info, err := s.processes[0].Do("INFO", "server")
	if err != nil {
		return "", err
	}
	for _, product := range []string{"valkey", "redis"} { // Valkey tells both
		if version := infoField(info, product+"_version"); version != "" {
			return product + " " + version, nil
		}
	}
	return "", errors.New("bench: the server does not tell its version")
}

func infoField(info, name string) string {
	for line := range strings.Lines(info) {
		if field, value, _ := strings.Cut(strings.TrimSpace(line), ":"); field == name {
			return value
		}
	}
	return ""
}
