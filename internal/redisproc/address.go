package redisproc

import (
	"fmt"
	"os"
	"path/filepath"
)

// socketName is short because of maxSocketPath.
const socketName = "s"

// maxSocketPath is what fits into sockaddr_un with its final NUL: 108 bytes on Linux, 104 on the BSDs and macOS, whose
// TMPDIR alone takes some 50.
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
