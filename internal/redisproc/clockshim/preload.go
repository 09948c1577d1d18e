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

// newDriver prefers our own library: it is exact, at once, and costs less.
func newDriver(dir string) (driver, error) {
	compiler, err := findCompiler()
	if err == nil {
		return newOwn(dir, compiler)
	}
	library, faketimeErr := findFaketime()
	if faketimeErr == nil {
		return &faketime{library: library, path: filepath.Join(dir, "faketime")}, nil
	}
	return nil, fmt.Errorf("clockshim: a test that moves a server's clock needs a C compiler "+
		"(apt-get install gcc libc6-dev; dnf install gcc glibc-devel; apk add gcc musl-dev) "+
		"or libfaketime (apt-get install libfaketime): %w; %w", err, faketimeErr)
}

// own is the driver that uses the library in src, through a control file whose layout
// is described there.
type own struct {
	library string
	control *os.File
	turn    uint8
}

func newOwn(dir, compiler string) (*own, error) {
	code, err := compiled(compiler)
	if err != nil {
		return nil, err
	}
	d := &own{library: filepath.Join(dir, "clockshim.so")}
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

// put writes with pwrite what the servers have mapped: on Linux both are the same
// memory, and it spares us mmap and unsafe.
func (d *own) put(s slot) error {
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

func (d *own) environment(slot) (preload string, env []string, err error) {
	return d.library, []string{envControl + "=" + d.control.Name()}, nil
}

func (d *own) close() error { return d.control.Close() }

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
