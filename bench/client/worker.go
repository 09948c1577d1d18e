package client

import (
	"errors"
	"io"
	"net/rpc"
	"os"
	"runtime/pprof"
	"time"
)

// Worker is one process's service: a peer's clients, told over RPC what to do.
type Worker struct {
	setup   Setup
	peer    peer
	meter   *meter
	lockers []locker
	loads   map[int][]func() error // by the number of callers
}

// Serve does what it is told over conn until that ends.
func Serve(conn io.ReadWriteCloser) error {
	server := rpc.NewServer()
	if err := server.Register(&Worker{loads: map[int][]func() error{}}); err != nil {
		return err
	}
	server.ServeConn(conn)
	pprof.StopCPUProfile()
	return nil
}

// Open connects one client. It is called first, and once.
func (w *Worker) Open(s Setup, _ *struct{}) error {
	p, err := peerNamed(s.Peer)
	if err != nil {
		return err
	}
	w.setup, w.peer = s, p
	if s.Meter {
		w.meter = new(meter)
	}
	if p.prepare != nil {
		if err := p.prepare(s.Prefix, s.Nodes); err != nil {
			return err
		}
	}
	if s.Profile != "" {
		file, err := os.Create(s.Profile)
		if err != nil {
			return err
		}
		if err := pprof.StartCPUProfile(file); err != nil {
			return err
		}
	}
	return w.connect(1)
}

// connect makes clients until there are n.
func (w *Worker) connect(n int) error {
	for len(w.lockers) < n {
		l, err := w.peer.open(w.setup.Prefix, w.setup.Nodes, w.meter)
		if err != nil {
			return err
		}
		w.lockers = append(w.lockers, l)
	}
	return nil
}

const warmUp = 50 * time.Millisecond

// Pairs has callers acquire and release. The first time for so many callers it warms up: connections, scripts, pools.
func (w *Worker) Pairs(l Load, p *Pairs) error {
	operations, ok := w.loads[l.Callers]
	if !ok {
		operations = callers(w.lockers[0], l.Callers)
		w.loads[l.Callers] = operations
		pairs(warmUp, operations)
	}
	*p = pairs(l.For, operations)
	return nil
}

// Hold takes locks and holds them. They are held until the process ends.
func (w *Worker) Hold(h Hold, held *Held) (err error) {
	if w.meter == nil {
		return errors.New("client: Hold needs a meter")
	}
	*held, err = hold(w.lockers[0], w.meter, h)
	return err
}

// Contend has clients pass a lock among themselves.
func (w *Worker) Contend(c Contend, seen *Contended) error {
	if w.meter == nil {
		return errors.New("client: Contend needs a meter")
	}
	if err := w.connect(c.Contenders); err != nil {
		return err
	}
	var err error
	*seen, err = contend(w.lockers, w.meter, c)
	return err
}
