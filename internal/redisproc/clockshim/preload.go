package clockshim

import (
	"encoding/binary"
	"fmt"
	"os"
	"path/filepath"
	"strings"
)

// envControl names the control file to the library in src/clockshim.c.
const envControl = "REDLOCK_CLOCKSHIM"

// shim is the library in src and the control file through which a clock is told, whose layout is described there.
type shim struct {
	library string
	control *os.File
	turn    uint8
}

func newShim(dir string) (*shim, error) {
	compiler, err := findCompiler()
	if err != nil {
		return nil, fmt.Errorf("clockshim: a test that moves a server's clock needs a C compiler "+
			"(apt-get install gcc libc6-dev; dnf install gcc glibc-devel; apk add gcc musl-dev): %w", err)
	}
	code, err := compiled(compiler)
	if err != nil {
		return nil, err
	}
	d := &shim{library: filepath.Join(dir, "clockshim.so")}
	err = os.WriteFile(d.library, code, 0o700)
	if err != nil {
		return nil, fmt.Errorf("clockshim: %w", err)
	}
	d.control, err = os.Create(filepath.Join(dir, "clock"))
	if err != nil {
		return nil, fmt.Errorf("clockshim: %w", err)
	}
	return d, nil
}

// slotsAt and slotSize are the layout of struct control.
const (
	slotsAt  = 8
	slotSize = 3 * 8
)

// put writes with pwrite what the servers have mapped: on Linux both are the same memory, and it spares us mmap and
// unsafe.
func (d *shim) put(s slot) error {
	next := d.turn + 1
	var b []byte
	for _, v := range []int64{s.base, s.shown, s.ppm} {
		b = binary.NativeEndian.AppendUint64(b, uint64(v))
	}
	_, err := d.control.WriteAt(b, slotsAt+int64(next&1)*slotSize)
	if err != nil {
		return err
	}
	// The map must not reach beyond the file's end, where a read is a SIGBUS.
	if d.turn == 0 {
		err = d.control.Truncate(slotsAt + 2*slotSize)
		if err != nil {
			return err
		}
	}
	_, err = d.control.WriteAt([]byte{next}, 0)
	d.turn = next
	return err
}

func (d *shim) close() error { return d.control.Close() }

// withPreload returns env with library first in LD_PRELOAD.
func withPreload(env []string, library string) []string {
	const key = "LD_PRELOAD="
	var kept []string
	for _, v := range env {
		if other, found := strings.CutPrefix(v, key); found {
			if other != "" {
				library += ":" + other
			}
			continue
		}
		kept = append(kept, v)
	}
	return append(kept, key+library)
}
