package clockshim

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"time"
)

// faketime is the driver that uses libfaketime, which is told by the text of a file.
// It shows start + (host-start)·rate + offset, where start is when its process started:
// close to, not exactly, the time environment was asked for, so that a clock whose rate
// is not 1 is off by that rate times some milliseconds.
type faketime struct {
	library string
	path    string
	start   int64 // ns since 1970
}

func (d *faketime) environment(s slot) (preload string, env []string, err error) {
	libc, err := findLibrary("libc.so.6")
	if err != nil {
		return "", nil, err
	}
	d.start = time.Now().UnixNano()
	err = d.put(s)
	// libc is preloaded too, for its malloc: jemalloc, which Redis is built with, asks
	// for the time while it sets itself up, and libfaketime allocates to answer.
	return d.library + ":" + libc, []string{
		"FAKETIME_TIMESTAMP_FILE=" + d.path,
		"FAKETIME_NO_CACHE=1", // read the file at every question: a change counts at once
		"FAKETIME_DONT_FAKE_MONOTONIC=1",
		"FAKETIME_DONT_RESET=1",
	}, err
}

// put replaces the file, so that no reader sees one half written.
func (d *faketime) put(s slot) error {
	next := d.path + ".new"
	err := os.WriteFile(next, []byte(d.text(s)), 0o600)
	if err != nil {
		return err
	}
	return os.Rename(next, d.path)
}

// text solves start + (host-start)·rate + offset = shown + (host-base)·rate for offset.
func (d *faketime) text(s slot) string {
	offset := s.shown - s.base + int64(float64(d.start-s.base)*float64(s.ppm)/1e6)
	return fmt.Sprintf("%+.6f x%.6f\n", float64(offset)/1e9, 1+float64(s.ppm)/1e6)
}

func (*faketime) close() error { return nil }

func findFaketime() (string, error) {
	return findLibrary("faketime/libfaketime.so.1", "libfaketime.so.1")
}

// findLibrary looks where the distributions put libraries.
func findLibrary(names ...string) (string, error) {
	for _, dir := range []string{"/usr/lib/*-linux-gnu*", "/lib/*-linux-gnu*", "/usr/lib64", "/lib64", "/usr/lib", "/usr/local/lib"} {
		for _, name := range names {
			found, err := filepath.Glob(filepath.Join(dir, name))
			if err != nil {
				return "", err
			}
			if len(found) > 0 {
				return found[0], nil
			}
		}
	}
	return "", errors.New("no " + names[0] + " in the usual places")
}
