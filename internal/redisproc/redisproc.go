// Package redisproc runs real redis-server processes: for the tests, and for the demo of the redlock command, hence on
// the standard library alone.
//
// A [Node] is a machine more than a process: it has an address, a disk and, if asked for, a wall clock of its own, and
// all three outlive the server that runs on it. So a test can kill the server and start it again empty, with its data,
// or with the data of an hour ago, under the address its clients know.
//
//	node, err := redisproc.Start(redisproc.Options{Clock: true})
//	if err != nil {
//		return err // carries the end of the server's log
//	}
//	defer node.Close()
//	node.Clock().Step(time.Hour)
//
// A Node is safe for concurrent use; the calls that end or start its server wait for each other. Servers die with the
// process that started them, also when that one is killed (on Linux; elsewhere only Close ends them). What a killed
// process does leave behind is the nodes' directories in the system's temp dir.
package redisproc

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"sync"
)

// EnvServer names the environment variable whose value, a path or a name in PATH, is run in place of redis-server:
// Valkey, KeyDB, or another version of Redis.
const EnvServer = "REDLOCK_REDIS_SERVER"

// Options says what kind of node to start. The zero value is an empty node without persistence on a unix socket.
type Options struct {
	// TCP makes the node listen on a free port of 127.0.0.1 and on nothing else. The default is a unix socket: no ports
	// to run out of, and nobody else's.
	TCP bool

	// AOF keeps every write on disk before it is acknowledged, which is what [Node.Restart] restarts from.
	AOF bool

	// Clock gives the node a wall clock that [Node.Clock] controls. It needs a C compiler; the demo, for one, should
	// run without.
	Clock bool

	// Args are passed to the server after the node's own and win over them: []string{"--maxmemory", "3mb"}. What only
	// later servers know, and older ones do without being told, is left out there: --enable-debug-command, and
	// --loading-process-events-interval-bytes, which is 2 MB there.
	Args []string

	// Env is added to the environment of the server: []string{"TZ=UTC"}. LD_PRELOAD is kept behind what Clock preloads.
	Env []string
}

// Find returns the path of the server to run. Where there is none the error says how to get one.
func Find() (string, error) {
	if name := os.Getenv(EnvServer); name != "" {
		path, err := exec.LookPath(name)
		if err != nil {
			return "", fmt.Errorf("redisproc: %s=%q cannot be run: %w", EnvServer, name, err)
		}
		return path, nil
	}
	for _, name := range []string{"redis-server", "valkey-server"} {
		if path, err := exec.LookPath(name); err == nil {
			return path, nil
		}
	}
	return "", fmt.Errorf("redisproc: no redis-server in PATH: install it "+
		"(apt-get install redis-server, dnf install redis, brew install redis) or let %s name one", EnvServer)
}

// StartSet starts n nodes of one kind, all at once. If one does not start, those that did are closed and the error
// joins everything that went wrong.
func StartSet(n int, options Options) ([]*Node, error) {
	nodes := make([]*Node, n)
	errs := make([]error, n)
	var wg sync.WaitGroup
	for i := range n {
		wg.Go(func() { nodes[i], errs[i] = Start(options) })
	}
	wg.Wait()
	err := errors.Join(errs...)
	if err == nil {
		return nodes, nil
	}
	for _, node := range nodes {
		if node != nil {
			err = errors.Join(err, node.Close())
		}
	}
	return nil, err
}
