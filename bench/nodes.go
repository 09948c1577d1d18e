package bench

import (
	"context"
	"crypto/tls"
	"net"
	"strconv"
	"strings"
	"time"

	"github.com/redis/rueidis"

	"github.com/redlock-go/redlock"
	"github.com/redlock-go/redlock/internal/netproxy"
	"github.com/redlock-go/redlock/internal/redisproc"
)

// Nodes are redis-server processes on unix sockets, and if asked for a slow way to each.
type Nodes struct {
	servers []*redisproc.Node
	proxies []*netproxy.Proxy
	links   []*netproxy.Link
}

// StartNodes starts n servers, and takes them through what redlock does once in a node's life: a node that has just been
// adopted starts its fencing tokens a lease above its clock, and until that time has come each grant costs it a second
// write. A short lease makes that short.
func StartNodes(n int) (*Nodes, error) {
	servers, err := redisproc.StartSet(n, redisproc.Options{})
	if err != nil {
		return nil, err
	}
	nodes := &Nodes{servers: servers}
	for _, lease := range []time.Duration{100 * time.Millisecond, Lease} {
		if err := nodes.settle(lease); err != nil {
			nodes.Close()
			return nil, err
		}
	}
	return nodes, nil
}

// settle adopts nodes for a lease, or waits until they know of a longer one.
func (n *Nodes) settle(lease time.Duration) error {
	l, err := redlock.NewLocker(redlock.LockerOption{Nodes: n.Options(nil), KeyValidity: lease, RestartQuarantine: -1})
	if err != nil {
		return err
	}
	defer l.Close()
	ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
	defer cancel()
	g, err := l.Acquire(ctx, "settled")
	if err != nil {
		return err
	}
	time.Sleep(150 * time.Millisecond)
	return g.Release(ctx)
}

// Close ends what was started.
func (n *Nodes) Close() {
	for _, p := range n.proxies {
		p.Close()
	}
	for _, s := range n.servers {
		_ = s.Close() // a benchmark has nothing to say about it
	}
}

// SlowDown lets every byte to and from the nodes take oneWay, for connections made from
// now on.
func (n *Nodes) SlowDown(oneWay time.Duration) error {
	for _, s := range n.servers {
		p := netproxy.New(s.Network(), s.Addr())
		n.proxies = append(n.proxies, p)
		p.Delay(netproxy.Both, oneWay, nil)
		link, err := p.Listen()
		if err != nil {
			return err
		}
		n.links = append(n.links, link)
	}
	return nil
}

// Options is how rueidis reaches the nodes. A meter, if there is one, counts the
// requests that leave. A write or read of rueidis' own is given up after 2 s, not 10, or a
// silent node would hold the benchmark up for so long.
func (n *Nodes) Options(m *Meter) []rueidis.ClientOption {
	options := make([]rueidis.ClientOption, len(n.servers))
	for i, s := range n.servers {
		address := s.Addr()
		dial := s.Dial
		if n.links != nil {
			address = n.links[i].Addr()
			dial = func(ctx context.Context) (net.Conn, error) {
				return new(net.Dialer).DialContext(ctx, "tcp", address)
			}
		}
		options[i] = rueidis.ClientOption{
			InitAddress:      []string{address},
			ConnWriteTimeout: 2 * time.Second,
			DialCtxFn: func(ctx context.Context, _ string, _ *net.Dialer, _ *tls.Config) (net.Conn, error) {
				conn, err := dial(ctx)
				if err == nil && m != nil {
					conn = &meteredConn{Conn: conn, meter: m}
				}
				return conn, err
			},
		}
	}
	return options
}

// CPUTime is what the servers have used, all together. It must not be asked while one is
// silenced.
func (n *Nodes) CPUTime() (sum time.Duration, err error) {
	for _, s := range n.servers {
		info, err := s.Do("INFO", "cpu")
		if err != nil {
			return 0, err
		}
		for line := range strings.Lines(info) {
			field, value, _ := strings.Cut(strings.TrimSpace(line), ":")
			if field == "used_cpu_user" || field == "used_cpu_sys" {
				seconds, err := strconv.ParseFloat(value, 64)
				if err != nil {
					return 0, err
				}
				sum += time.Duration(seconds * float64(time.Second))
			}
		}
	}
	return sum, nil
}

// Version is what the servers call themselves.
func (n *Nodes) Version() string {
	info, err := n.servers[0].Do("INFO", "server")
	if err != nil {
		return err.Error()
	}
	version := "redis"
	for line := range strings.Lines(info) {
		switch field, value, _ := strings.Cut(strings.TrimSpace(line), ":"); field {
		case "redis_version", "valkey_version":
			version = strings.TrimSuffix(field, "_version") + " " + value
		}
	}
	return version
}

// Silence stops the last node with SIGSTOP: it takes bytes and answers nothing.
func (n *Nodes) Silence() error { return n.servers[len(n.servers)-1].Pause() }

// Wake lets the silenced node go on.
func (n *Nodes) Wake() error { return n.servers[len(n.servers)-1].Resume() }
