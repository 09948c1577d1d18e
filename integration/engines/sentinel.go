package engines

import (
	"context"
	"errors"
	"fmt"
	"net"
	"strconv"
	"strings"
	"testing"

	"github.com/redis/rueidis"

	"github.com/redlock-go/redlock/internal/redisproc"
	"github.com/redlock-go/redlock/internal/redisproc/redistest"
)

// masterSet is the name under which the sentinels know the primary.
const masterSet = "redlock"

// Sentinel is one node in the library's sense that consists of several servers: a primary and a replica, and sentinels
// that say which of the two is the primary.
type Sentinel struct {
	// Servers are the two servers, the one that was the primary first. They can be killed, frozen and started again;
	// the sentinels need a second to call one down.
	Servers []*redisproc.Node

	sentinels []string // host:port
}

// StartSentinel starts a primary, a replica and so many sentinels, and returns when all sentinels know all of them, so
// that a failover is possible.
func StartSentinel(t testing.TB, sentinels int) *Sentinel {
	t.Helper()
	if sentinels < 1 {
		t.Fatalf("engines: %d sentinels: there must be one", sentinels)
	}
	// By default a primary waits for more replicas for 5 s before it feeds the first.
	feed := []string{"--repl-diskless-sync-delay", "0"}
	primary := redistest.Start(t, redisproc.Options{TCP: true, Args: feed})
	host, port, _ := net.SplitHostPort(primary.Addr())
	replica := redistest.Start(t, redisproc.Options{TCP: true, Args: append([]string{"--replicaof", host, port}, feed...)})
	// The sentinels must meet a replica that is ready: they look again after 10 s.
	await(t, "the replica follows the primary", func() error {
		return wantInfo(replica, "replication", "master_link_status:up")
	})
	s := &Sentinel{Servers: []*redisproc.Node{primary, replica}}
	for range sentinels {
		s.sentinels = append(s.sentinels, startSentinel(t, host, port, sentinels/2+1))
	}
	for _, addr := range s.sentinels {
		await(t, "the sentinels know each other and the replica", func() error {
			return wantInfo(server(addr), "sentinel", fmt.Sprintf("status=ok,address=%s,slaves=1,sentinels=%d", primary.Addr(), sentinels))
		})
	}
	return s
}

// ClientOption is how rueidis reaches the primary of the moment, in the form of one element of LockerOption.Nodes.
func (s *Sentinel) ClientOption() rueidis.ClientOption {
	return rueidis.ClientOption{
		InitAddress: s.sentinels,
		Sentinel:    rueidis.SentinelOption{MasterSet: masterSet},
	}
}

// Primary is the host:port that the sentinels call the primary.
func (s *Sentinel) Primary() (string, error) {
	lines, err := server(s.sentinels[0]).Do("SENTINEL", "GET-MASTER-ADDR-BY-NAME", masterSet)
	if err != nil {
		return "", err
	}
	host, port, _ := strings.Cut(lines, "\n")
	return net.JoinHostPort(host, port), nil
}

// Failover makes the replica the primary and returns its address when every sentinel names it and it takes writes. The
// old primary is not stopped: it goes on as a primary, too, until the sentinels make it a replica, about a second
// later. A failover back waits for that.
func (s *Sentinel) Failover(t testing.TB) string {
	t.Helper()
	old, err := s.Primary()
	if err != nil {
		t.Fatal(err)
	}
	// NOGOODSLAVE or INPROG: the failover before this one is not over.
	await(t, "a failover is possible", func() error {
		_, err := server(s.sentinels[0]).Do("SENTINEL", "FAILOVER", masterSet)
		return err
	})
	var now string
	await(t, "another server is the primary", func() error {
		now, err = s.Primary()
		if err == nil && now == old {
			err = errors.New("it is still " + old)
		}
		return err
	})
	for _, addr := range s.sentinels {
		await(t, "every sentinel names the new primary", func() error {
			return wantInfo(server(addr), "sentinel", "address="+now+",")
		})
	}
	await(t, "the new primary takes writes", func() error {
		return wantInfo(server(now), "replication", "role:master")
	})
	return now
}

func wantInfo(to doer, section, want string) error {
	info, err := to.Do("INFO", section)
	if err == nil && !strings.Contains(info, want) {
		err = fmt.Errorf("no %q in INFO %s:\n%s", want, section, info)
	}
	return err
}

// doer is what a redisproc.Node does with one command.
type doer interface {
	Do(args ...string) (string, error)
}

// server is a doer that knows no more than a host:port.
type server string

func (addr server) Do(args ...string) (string, error) {
	ctx, cancel := context.WithTimeout(context.Background(), settleTimeout)
	defer cancel()
	client, err := rueidis.NewClient(rueidis.ClientOption{
		InitAddress: []string{string(addr)}, ForceSingleClient: true, DisableCache: true, DisableRetry: true,
	})
	if err != nil {
		return "", err
	}
	defer client.Close()
	message, err := client.Do(ctx, client.B().Arbitrary(args...).Build()).ToMessage()
	if err != nil {
		return "", err
	}
	if message.IsArray() {
		lines, err := message.AsStrSlice()
		return strings.Join(lines, "\n"), err
	}
	if message.IsInt64() {
		n, err := message.AsInt64()
		return strconv.FormatInt(n, 10), err
	}
	return message.ToString()
}
