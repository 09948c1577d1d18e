package redisproc

import (
	"fmt"
	"math/rand/v2"
	"net"
	"os"
	"path/filepath"
	"strconv"
)

// socketName is short because of maxSocketPath.
const socketName = "s"

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
		l, err = net.Listen("tcp", net.JoinHostPort("127.0.0.1", strconv.Itoa(20000+rand.IntN(12768))))
		if err == nil {
			return l.Addr().String(), l.Close()
		}
	}
	return "", fmt.Errorf("redisproc: no free port: %w", err)
}
