package bench

import (
	"fmt"
	"io"
	"net/rpc"
	"os"
	"os/exec"
	"path/filepath"
	"strings"

	"github.com/redlock-go/redlock/bench/client"
)

// Contestant is a peer as it is measured: which one, built from what.
type Contestant struct {
	Label  string // what rows call it
	Peer   string // what client calls it
	binary string
}

// worker is a process that locks with one peer.
type worker struct {
	*rpc.Client
	process *exec.Cmd
}

// start runs a contestant's worker and connects it to nodes.
func (c Contestant) start(nodes []client.Node, meter bool, profile string) (*worker, error) {
	process := exec.Command(c.binary)
	process.Stderr = os.Stderr
	stdin, err := process.StdinPipe()
	if err != nil {
		return nil, err
	}
	stdout, err := process.StdoutPipe()
	if err != nil {
		return nil, err
	}
	if err := process.Start(); err != nil {
		return nil, err
	}
	conn := struct {
		io.Reader
		io.WriteCloser
	}{stdout, stdin}
	w := &worker{rpc.NewClient(conn), process}
	file := strings.NewReplacer("/", "-", "@", "-").Replace(c.Label)
	setup := client.Setup{Peer: c.Peer, Prefix: file, Nodes: nodes, Meter: meter}
	if profile != "" {
		setup.Profile = filepath.Join(profile, file+".pprof") // of its last worker
	}
	if err := w.Call("Worker.Open", setup, nil); err != nil {
		w.end()
		return nil, fmt.Errorf("%s: %w", c.Label, err)
	}
	return w, nil
}

// end closes the worker's input, which ends it, whatever it holds.
func (w *worker) end() {
	_ = w.Close()
	_ = w.process.Wait()
}
