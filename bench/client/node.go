package client

import (
	"context"
	"crypto/tls"
	"net"
	"time"

	goredis "github.com/redis/go-redis/v9"
	"github.com/redis/rueidis"
)

// Node is where a node listens, as net.Dial wants it.
type Node struct{ Network, Addr string }

// silence is after how long a client gives up a write or read by itself, where it would be 10 s or 3 s by default: a
// silent node must not hold the benchmark up for so long.
const silence = 2 * time.Second

func (n Node) dial(ctx context.Context, m *meter) (net.Conn, error) {
	conn, err := new(net.Dialer).DialContext(ctx, n.Network, n.Addr)
	if err == nil && m != nil {
		conn = &meteredConn{Conn: conn, meter: m}
	}
	return conn, err
}

// rueidis is how rueidis reaches the node.
func (n Node) rueidis(m *meter) rueidis.ClientOption {
	return rueidis.ClientOption{
		InitAddress:      []string{n.Addr},
		ConnWriteTimeout: silence,
		DialCtxFn: func(ctx context.Context, _ string, _ *net.Dialer, _ *tls.Config) (net.Conn, error) {
			return n.dial(ctx, m)
		},
	}
}

func rueidisOptions(nodes []Node, m *meter) []rueidis.ClientOption {
	options := make([]rueidis.ClientOption, len(nodes))
	for i, n := range nodes {
		options[i] = n.rueidis(m)
	}
	return options
}

// goRedis is a client of go-redis for the node.
func (n Node) goRedis(m *meter) *goredis.Client {
	return goredis.NewClient(&goredis.Options{
		Network: n.Network, Addr: n.Addr,
		ReadTimeout: silence, WriteTimeout: silence,
		Dialer: func(ctx context.Context, _, _ string) (net.Conn, error) { return n.dial(ctx, m) },
	})
}
