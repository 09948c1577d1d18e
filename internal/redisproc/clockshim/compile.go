package clockshim

import (
	_ "embed"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
)

//go:embed src/clockshim.c
var source []byte

var built struct {
	once sync.Once
	code []byte
	err  error
}

// compiled returns our library, which is compiled at the first call. It is kept in memory, and each clock writes its
// own copy: so nobody has to remove the last file.
func compiled(compiler string) ([]byte, error) {
	built.once.Do(func() { built.code, built.err = compile(compiler) })
	return built.code, built.err
}

func compile(compiler string) ([]byte, error) {
	dir, err := os.MkdirTemp("", "clockshim")
	if err != nil {
		return nil, fmt.Errorf("clockshim: %w", err)
	}
	defer os.RemoveAll(dir)
	in, out := filepath.Join(dir, "clockshim.c"), filepath.Join(dir, "clockshim.so")
	err = os.WriteFile(in, source, 0o600)
	if err != nil {
		return nil, fmt.Errorf("clockshim: %w", err)
	}
	words := append(strings.Fields(compiler), "-O2", "-Wall", "-Wextra", "-Werror", "-fPIC", "-shared", "-o", out, in)
	said, err := exec.Command(words[0], words[1:]...).CombinedOutput()
	if err != nil {
		return nil, fmt.Errorf("clockshim: %s: %w (a compiler without its C library? apt-get install libc6-dev)\n%s",
			strings.Join(words, " "), err, said)
	}
	return os.ReadFile(out)
}

// findCompiler returns $CC, which may carry flags, or the usual names.
func findCompiler() (string, error) {
	names := []string{"cc", "gcc", "clang"}
	if cc := strings.Fields(os.Getenv("CC")); len(cc) > 0 {
		_, err := exec.LookPath(cc[0])
		return strings.Join(cc, " "), err
	}
	for _, name := range names {
		if path, err := exec.LookPath(name); err == nil {
			return path, nil
		}
	}
	return "", fmt.Errorf("none of %s in PATH", strings.Join(names, ", "))
}
