// Package ports reserves TCP ports of 127.0.0.1 for servers that tests start, stop and start again.
package ports

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"net"
	"strconv"
	"syscall"
)

// Ports are taken below the range from which systems take those of outgoing connections, 32768 and up on Linux. Inside
// it a port can be taken while its server is down, and, worse, a client that keeps dialing a dead server there can be
// given that very port and connect to itself.
const (
	first = 20000
	end   = 32768
)

// Port is a port that no other Reserve returns before Close, in this process or another, also while nobody listens on
// it. Two servers could otherwise find the same port free at the same time, and a test would talk to the one that
// belongs to another.
type Port struct {
	// Addr is host:port.
	Addr  string
	guard net.Listener
}

// Reserve finds an even port that nobody listens on. What reserves it is a listener on the odd one above it, which the
// kernel gives to one process alone and takes back when that dies.
//
// Whether somebody listens is found out by dialing, not by listening for a moment: a child that is just being forked
// would keep such a listener open until it executes.
func Reserve() (*Port, error) {
	err := errors.New("somebody listens on each that was tried")
	for range 100 {
		number := first + 2*rand.IntN((end-first)/2)
		guard, listenErr := net.Listen("tcp", addr(number+1))
		if listenErr != nil {
			err = listenErr
			continue
		}
		conn, dialErr := net.Dial("tcp", addr(number))
		if errors.Is(dialErr, syscall.ECONNREFUSED) {
			return &Port{Addr: addr(number), guard: guard}, nil
		}
		if dialErr == nil {
			_ = conn.Close()
		}
		_ = guard.Close() // only ever fails for one that is closed
	}
	return nil, fmt.Errorf("ports: none of 100 tried from %d to %d is free: %w", first, end-1, err)
}

// Close gives the port back. It may be called twice, and on nil.
func (p *Port) Close() {
	if p != nil {
		_ = p.guard.Close()
	}
}

func addr(number int) string { return net.JoinHostPort("127.0.0.1", strconv.Itoa(number)) }
