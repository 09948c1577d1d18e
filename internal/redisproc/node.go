package redisproc

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"strings"
	"sync"

	"github.com/redlock-go/redlock/internal/ports"
	"github.com/redlock-go/redlock/internal/redisproc/clockshim"
)

// ErrClosed is returned for what cannot be done to a closed node.
var ErrClosed = errors.New("redisproc: node closed")

// Node is one redis-server with its address, its disk and its clock.
type Node struct {
	options Options
	server  string
	dir     string // everything below, removed by Close
	network string
	addr    string
	port    *ports.Port      // nil without Options.TCP
	clock   *clockshim.Clock // nil without Options.Clock

	mu     sync.Mutex // serialises what starts and ends servers
	closed bool

	// The server that runs or ran last. It has its own lock, so that PID and Freeze need not wait for a restart.
	lifeMu sync.Mutex
	life   *life
}

// Start starts a node and returns when its server answers. An error carries the end of the server's log, and nothing is
// left behind.
func Start(options Options) (*Node, error) {
	server, err := Find()
	if err != nil {
		return nil, err
	}
	dir, err := makeDir()
	if err != nil {
		return nil, err
	}
	n := &Node{options: options, server: server, dir: dir, network: "unix", addr: filepath.Join(dir, socketName)}
	err = n.firstStart()
	if err != nil {
		return nil, errors.Join(err, n.Close())
	}
	return n, nil
}

func (n *Node) firstStart() error {
	err := os.Mkdir(n.dataDir(), 0o700)
	if err != nil {
		return err
	}
	if n.options.Clock {
		n.clock, err = clockshim.New(n.dir)
		if err != nil {
			return err
		}
	}
	n.mu.Lock()
	defer n.mu.Unlock()
	if !n.options.TCP {
		return n.start()
	}
	// Another program may bind the port between our look and the server's bind.
	for range 20 {
		n.network = "tcp"
		n.port, err = ports.Reserve()
		if err != nil {
			return err
		}
		n.addr = n.port.Addr
		err = n.start()
		if err == nil || !bytes.Contains(n.log(), []byte("Address already in use")) {
			return err
		}
		n.port.Close()
	}
	return err
}

// Network is "unix" or "tcp", as net.Dial wants it.
func (n *Node) Network() string { return n.network }

// Addr is the path of the node's socket, or its host:port. It stays the same across restarts.
func (n *Node) Addr() string { return n.addr }

// Dial connects to the node.
func (n *Node) Dial(ctx context.Context) (net.Conn, error) {
	var d net.Dialer
	return d.DialContext(ctx, n.network, n.addr)
}

// PID is the process id of the running server, or of the last one if none runs.
func (n *Node) PID() int { return n.current().process.Pid }

// Running tells whether the server's process exists; a frozen one does.
func (n *Node) Running() bool {
	select {
	case <-n.current().exited:
		return false
	default:
		return true
	}
}

// Clock is the wall clock of the node. It panics if Options.Clock was not set: the server reads the host's clock then,
// and the test would test nothing.
func (n *Node) Clock() *clockshim.Clock {
	if n.clock == nil {
		panic("redisproc: Clock of a node that was started without Options.Clock")
	}
	return n.clock
}

// LogTail is the end of what the servers of this node have logged, at most that many lines. It is empty once the node
// is closed.
func (n *Node) LogTail(lines int) string {
	all := strings.Split(strings.TrimRight(string(n.log()), "\n"), "\n")
	return strings.Join(all[max(0, len(all)-lines):], "\n")
}

// Close kills the server, if it runs, and removes the node's directory. It may be called twice.
func (n *Node) Close() error {
	n.mu.Lock()
	defer n.mu.Unlock()
	if n.closed {
		return nil
	}
	n.closed = true
	err := n.kill()
	n.port.Close()
	if n.clock != nil {
		err = errors.Join(err, n.clock.Close())
	}
	return errors.Join(err, os.RemoveAll(n.dir))
}

func (n *Node) current() *life {
	n.lifeMu.Lock()
	defer n.lifeMu.Unlock()
	return n.life
}

// start runs a server on the node's address and disk as they are, and waits until it answers. n.mu is held.
func (n *Node) start() error {
	l, err := n.spawn()
	if err != nil {
		return fmt.Errorf("redisproc: %s does not start: %w", n.server, err)
	}
	n.lifeMu.Lock()
	n.life = l
	n.lifeMu.Unlock()
	err = n.awaitReady(l)
	if err != nil {
		return errors.Join(fmt.Errorf("%w; the end of its log:\n%s", err, n.LogTail(20)), n.kill())
	}
	return nil
}

func (n *Node) args() []string {
	args := []string{"--dir", n.dataDir(), "--dbfilename", dumpName, "--daemonize", "no", "--save", ""}
	if n.options.AOF {
		args = append(args, "--appendonly", "yes", "--appendfsync", "always")
	} else {
		args = append(args, "--appendonly", "no")
	}
	if n.network == "tcp" {
		host, port, _ := net.SplitHostPort(n.addr) // made by ports
		args = append(args, "--bind", host, "--port", port)
	} else {
		args = append(args, "--port", "0", "--unixsocket", n.addr, "--unixsocketperm", "700")
	}
	return append(args, n.known(n.options.Args)...)
}

func (n *Node) env() []string {
	env := append(os.Environ(), n.options.Env...)
	if n.clock == nil {
		return env
	}
	return n.clock.Environment(env)
}

const dumpName = "dump.rdb"

func (n *Node) dataDir() string { return filepath.Join(n.dir, "data") }
func (n *Node) logPath() string { return filepath.Join(n.dir, "log") }

func (n *Node) log() []byte {
	b, _ := os.ReadFile(n.logPath()) // no log yet, or none any more, is an empty log
	return b
}
