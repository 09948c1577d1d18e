package redisproc

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/redlock-go/redlock/internal/redisproc/clockshim"
)

// Bounds on waiting. They are generous because they end a test that would otherwise
// hang, on machines that are busy with other tests; nothing usual comes near them.
const (
	readyTimeout = 20 * time.Second // start to first answer; 30 ms on an idle machine
	stopTimeout  = 5 * time.Second  // SIGTERM to SIGKILL; Redis looks for SIGTERM every 100 ms
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
	clock   *clockshim.Clock // nil without Options.Clock

	mu     sync.Mutex // serialises what starts and ends servers
	closed bool

	// The server that runs or ran last. It has its own lock, so that PID and Pause
	// need not wait for a restart.
	lifeMu sync.Mutex
	life   *life
}

// Start starts a node and returns when its server answers. An error carries the end
// of the server's log, and nothing is left behind.
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
	// Another process may bind the port between our look and the server's bind.
	for range 20 {
		n.network = "tcp"
		n.addr, err = freeAddr()
		if err != nil {
			return err
		}
		err = n.start()
		if err == nil || !bytes.Contains(n.log(), []byte("Address already in use")) {
			return err
		}
	}
	return err
}

// Network is "unix" or "tcp", as net.Dial wants it.
func (n *Node) Network() string { return n.network }

// Addr is the path of the node's socket, or its host:port. It stays the same across
// restarts.
func (n *Node) Addr() string { return n.addr }

// Dial connects to the node.
func (n *Node) Dial(ctx context.Context) (net.Conn, error) {
	var d net.Dialer
	return d.DialContext(ctx, n.network, n.addr)
}

// PID is the process id of the running server, or of the last one if none runs.
func (n *Node) PID() int { return n.current().process.Pid }

// Running tells whether the server's process exists; a paused one does.
func (n *Node) Running() bool {
	select {
	case <-n.current().exited:
		return false
	default:
		return true
	}
}

// Clock is the wall clock of the node. It panics if Options.Clock was not set: the
// server reads the host's clock then, and the test would test nothing.
func (n *Node) Clock() *clockshim.Clock {
	if n.clock == nil {
		panic("redisproc: Clock of a node that was started without Options.Clock")
	}
	return n.clock
}

// LogTail is the end of what the servers of this node have logged, at most that many
// lines. It is empty once the node is closed.
func (n *Node) LogTail(lines int) string {
	all := strings.Split(strings.TrimRight(string(n.log()), "\n"), "\n")
	return strings.Join(all[max(0, len(all)-lines):], "\n")
}

// Close kills the server, if it runs, and removes the node's directory. It may be
// called twice.
func (n *Node) Close() error {
	n.mu.Lock()
	defer n.mu.Unlock()
	if n.closed {
		return nil
	}
	n.closed = true
	err := n.kill()
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

// start runs a server on the node's address and disk as they are, and waits until it
// answers. n.mu is held.
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
		host, port, _ := net.SplitHostPort(n.addr) // made by freeAddr
		args = append(args, "--bind", host, "--port", port)
	} else {
		args = append(args, "--port", "0", "--unixsocket", n.addr, "--unixsocketperm", "700")
	}
	return append(args, n.options.Args...)
}

func (n *Node) env() ([]string, error) {
	env := append(os.Environ(), n.options.Env...)
	if n.clock == nil {
		return env, nil
	}
	return n.clock.Environment(env)
}

func (n *Node) dataDir() string { return filepath.Join(n.dir, "data") }
func (n *Node) logPath() string { return filepath.Join(n.dir, "log") }

func (n *Node) log() []byte {
	b, _ := os.ReadFile(n.logPath()) // no log yet, or none any more, is an empty log
	return b
}

// awaitReady waits for any answer but LOADING. A server that wants a password, say,
// answers NOAUTH and is ready.
func (n *Node) awaitReady(l *life) error {
	ctx, cancel := context.WithTimeout(context.Background(), readyTimeout)
	defer cancel()
	for pause := time.Millisecond; ; pause = min(2*pause, 20*time.Millisecond) {
		_, err := n.do(ctx, "PING")
		var reply ReplyError
		if err == nil || errors.As(err, &reply) && !strings.HasPrefix(string(reply), "LOADING") {
			return nil
		}
		select {
		case <-l.exited:
			return fmt.Errorf("redisproc: %s ended at once (%s)", n.server, l.state)
		case <-ctx.Done():
			return fmt.Errorf("redisproc: %s gave no answer at %s in %v: %w", n.server, n.addr, readyTimeout, err)
		case <-time.After(pause):
		}
	}
}

// Names in a node's directory. The socket's is short because of maxSocketPath.
const (
	socketName = "s"
	dumpName   = "dump.rdb"
)

// maxSocketPath is what fits into sockaddr_un with its final NUL: 108 bytes on Linux,
// 104 on the BSDs and macOS, whose TMPDIR alone takes some 50.
const maxSocketPath = 103

func makeDir() (string, error) {
	dir, err := os.MkdirTemp("", "rl")
	if err == nil && len(filepath.Join(dir, socketName)) > maxSocketPath {
		err = os.Remove(dir)
		if err == nil {
			dir, err = os.MkdirTemp("/tmp", "rl")
		}
	}
	if err != nil {
		return "", fmt.Errorf("redisproc: no directory for a node: %w", err)
	}
	return dir, nil
}

// freeAddr finds a port of 127.0.0.1 that nobody listens on. It looks below the range
// from which systems take the ports of outgoing connections (32768 and up on Linux):
// inside it a port can be taken while its node is down, and, worse, a client that keeps
// dialing a dead node there can be given that very port and connect to itself.
func freeAddr() (string, error) {
	var err error
	for range 100 {
		var l net.Listener
		l, err = net.Listen("tcp", net.JoinHostPort("127.0.0.1", strconv.Itoa(randomPort())))
		if err == nil {
			return l.Addr().String(), l.Close()
		}
	}
	return "", fmt.Errorf("redisproc: no free port: %w", err)
}
