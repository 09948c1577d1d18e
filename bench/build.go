package bench

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
)

const redlockModule = "github.com/redlock-go/redlock"

// Builder builds workers, in a directory of its own.
type Builder struct{ dir, worker string }

// NewBuilder builds the worker of the working tree. It must be called in this module's directory or below.
func NewBuilder() (*Builder, error) {
	dir, err := os.MkdirTemp("", "redlock-bench")
	if err != nil {
		return nil, err
	}
	b := &Builder{dir, filepath.Join(dir, "worker")}
	if err := build(b.worker); err != nil {
		b.Close()
		return nil, err
	}
	return b, nil
}

// Close removes what was built.
func (b *Builder) Close() { _ = os.RemoveAll(b.dir) }

// Contestants are the peers named, as the working tree has them.
func (b *Builder) Contestants(peers []string) []Contestant {
	contestants := make([]Contestant, len(peers))
	for i, p := range peers {
		contestants[i] = Contestant{Label: p, Peer: p, binary: b.worker}
	}
	return contestants
}

// Redlock is redlock as it was in a commit: today's worker, linked with that library.
func (b *Builder) Redlock(commit string) (Contestant, error) {
	c := Contestant{Label: "redlock@" + commit, Peer: "redlock"}
	dir := filepath.Join(b.dir, strings.ReplaceAll(c.Label, "/", "-"))
	c.binary = dir + ".worker"
	if err := checkOut(commit, dir); err != nil {
		return c, err
	}
	modfile := filepath.Join(dir, "bench.mod")
	for _, suffix := range []string{".mod", ".sum"} {
		text, err := os.ReadFile(filepath.Join(moduleDir(), "go"+suffix))
		if err == nil {
			err = os.WriteFile(filepath.Join(dir, "bench"+suffix), text, 0o600)
		}
		if err != nil {
			return c, err
		}
	}
	if err := run("go", "mod", "edit", "-replace", redlockModule+"="+dir, modfile); err != nil {
		return c, err
	}
	return c, build(c.binary, "-mod=mod", "-modfile", modfile)
}

func build(binary string, flags ...string) error {
	args := append([]string{"build", "-o", binary}, flags...)
	return run("go", append(args, redlockModule+"/bench/cmd/worker")...)
}

// checkOut writes the files of a commit to dir.
func checkOut(commit, dir string) error {
	if err := os.Mkdir(dir, 0o700); err != nil {
		return err
	}
	archive := dir + ".tar"
	top := filepath.Dir(moduleDir())
	if err := run("git", "-C", top, "archive", "--output", archive, commit); err != nil {
		return err
	}
	return run("tar", "-x", "-f", archive, "-C", dir)
}

// moduleDir is where this module is.
func moduleDir() string {
	out, err := exec.Command("go", "list", "-m", "-f", "{{.Dir}}", redlockModule+"/bench").Output()
	if err != nil {
		return "."
	}
	return strings.TrimSpace(string(out))
}

func run(name string, args ...string) error {
	out, err := exec.Command(name, args...).CombinedOutput()
	if err != nil {
		return fmt.Errorf("%s %s: %w\n%s", name, strings.Join(args, " "), err, out)
	}
	return nil
}
