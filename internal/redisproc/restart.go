package redisproc

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
)

// Dump is the data of a node at one moment, in the form of Redis' own RDB file.
type Dump struct{ rdb []byte }

// CrashEmpty kills the server, if it runs, and starts one with nothing on its disk at the same address: the node that
// lost its memory. It returns when the new server answers.
func (n *Node) CrashEmpty() error {
	return n.restart(n.wipe)
}

// Restart kills the server, if it runs, and starts one from its append-only file at the same address, with every write
// that was acknowledged. It is an error on a node without Options.AOF, whose server keeps nothing.
func (n *Node) Restart() error {
	if !n.options.AOF {
		return errors.New("redisproc: Restart wants a node with Options.AOF: this one has nothing on its disk")
	}
	return n.restart(func() error { return nil })
}

// RestartFrom kills the server, if it runs, and starts one from an old dump, of this node or of another, at the same
// address: the backup put back, or the snapshot that was all the crash left. It is an error on a node with Options.AOF,
// whose server would not look at a dump.
func (n *Node) RestartFrom(dump Dump) error {
	if n.options.AOF {
		return errors.New("redisproc: RestartFrom wants a node without Options.AOF: a server that has an append-only file ignores a dump")
	}
	return n.restart(func() error {
		err := n.wipe()
		if err != nil {
			return err
		}
		return os.WriteFile(filepath.Join(n.dataDir(), dumpName), dump.rdb, 0o600)
	})
}

// SaveDump saves the node's data as it is now. The server serves nobody meanwhile. Its user must be allowed to SAVE
// without a password.
func (n *Node) SaveDump() (Dump, error) {
	n.mu.Lock()
	defer n.mu.Unlock()
	_, err := n.Do("SAVE")
	if err != nil {
		return Dump{}, fmt.Errorf("redisproc: save: %w", err)
	}
	rdb, err := os.ReadFile(filepath.Join(n.dataDir(), dumpName))
	return Dump{rdb}, err
}

func (n *Node) restart(prepareDisk func() error) error {
	n.mu.Lock()
	defer n.mu.Unlock()
	if n.closed {
		return ErrClosed
	}
	err := n.kill()
	if err != nil {
		return err
	}
	err = prepareDisk()
	if err != nil {
		return fmt.Errorf("redisproc: restart: %w", err)
	}
	return n.start()
}

func (n *Node) wipe() error {
	err := os.RemoveAll(n.dataDir())
	if err != nil {
		return err
	}
	return os.Mkdir(n.dataDir(), 0o700)
}
