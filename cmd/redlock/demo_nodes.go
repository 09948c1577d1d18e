package main

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"net"
	"strings"

	"github.com/redis/rueidis"

	"github.com/redlock-go/redlock/internal/redisproc"
	"github.com/redlock-go/redlock/redlocktest"
)

const nodeCount = 5

// cluster is the demo's five nodes: real servers, or embedded ones.
type cluster struct {
	nodes   []demoNode
	about   string // what they are
	hint    string // how to get better ones
	killing string // how one dies; a format of its number
	close   func() error
}

// demoNode is one Redis that can die and come back.
type demoNode interface {
	option(name string) rueidis.ClientOption
	kill() error
	crashEmpty() error
	get(key string) (string, error)
}

// startCluster starts redis-server processes, or embedded nodes if asked to or if there is no redis-server, and says
// which.
func startCluster(embedded bool) (*cluster, error) {
	if embedded {
		return startEmbedded("five embedded nodes, simulated in this process (-embedded)"), nil
	}
	if _, err := redisproc.Find(); err != nil {
		why := strings.TrimPrefix(strings.TrimPrefix(err.Error(), "redisproc: "), "no redis-server in PATH: ")
		c := startEmbedded("five embedded nodes, simulated in this process")
		c.hint = "No redis-server: " + why
		return c, nil
	}
	servers, err := redisproc.StartSet(nodeCount, redisproc.Options{})
	if err != nil {
		return nil, err
	}
	c := &cluster{about: "five processes of redis-server" + version(servers[0]), killing: "kills node %d (kill -9)"}
	for _, s := range servers {
		c.nodes = append(c.nodes, process{s})
	}
	c.close = func() error {
		for _, s := range servers {
			if closing := s.Close(); closing != nil {
				err = closing
			}
		}
		return err
	}
	return c, nil
}

func startEmbedded(about string) *cluster {
	simulated := redlocktest.Start(nodeCount)
	c := &cluster{about: about, killing: "switches node %d off", close: func() error { simulated.Close(); return nil }}
	for i := range nodeCount {
		c.nodes = append(c.nodes, &simulation{node: simulated.Node(i), dial: simulated.Option().Nodes[i]})
	}
	return c
}

// version returns " 7.0.15" as the server says it, nothing if it does not.
func version(s *redisproc.Node) string {
	info, err := s.Do("INFO", "server")
	_, rest, ok := strings.Cut(info, "redis_version:")
	if err != nil || !ok {
		return ""
	}
	number, _, _ := strings.Cut(rest, "\r\n")
	return " " + number
}

// process is a redis-server process.
type process struct{ *redisproc.Node }

// option reaches the process under a name that reads better in errors than a socket's path.
func (p process) option(name string) rueidis.ClientOption {
	return rueidis.ClientOption{
		InitAddress: []string{name},
		DialCtxFn: func(ctx context.Context, _ string, _ *net.Dialer, _ *tls.Config) (net.Conn, error) {
			conn, err := p.Dial(ctx)
			return conn, plain(err)
		},
	}
}

// plain takes the address out of a dial's error: it is not the name the demo uses.
func plain(err error) error {
	if oe := (*net.OpError)(nil); errors.As(err, &oe) {
		return oe.Err
	}
	return err
}

func (p process) kill() error                    { return p.Kill() }
func (p process) crashEmpty() error              { return p.CrashEmpty() }
func (p process) get(key string) (string, error) { return p.Do("GET", key) }

// simulation is an embedded node.
type simulation struct {
	node *redlocktest.Node
	dial rueidis.ClientOption
	dead bool
}

func (s *simulation) option(name string) rueidis.ClientOption {
	o := s.dial
	o.InitAddress = []string{name}
	dial := o.DialCtxFn
	o.DialCtxFn = func(ctx context.Context, to string, d *net.Dialer, c *tls.Config) (net.Conn, error) {
		conn, err := dial(ctx, to, d, c)
		return conn, plain(err)
	}
	return o
}

func (s *simulation) kill() error {
	s.dead = true
	s.node.Stop()
	return nil
}

func (s *simulation) crashEmpty() error {
	s.dead = false
	s.node.CrashEmpty()
	s.node.Start()
	return nil
}

func (s *simulation) get(key string) (string, error) {
	if s.dead {
		return "", fmt.Errorf("node is down")
	}
	value, _ := s.node.Get(key)
	return value, nil
}
