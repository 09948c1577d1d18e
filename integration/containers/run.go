package containers

import (
	"crypto/rand"
	"fmt"
	"os"
	"strings"
)

// Everything this package creates carries these labels, so that it can be found again by a process that knows nothing
// else.
const (
	labelRun   = "redlock.test.run"   // one test process
	labelSet   = "redlock.test.set"   // one Start
	labelOwner = "redlock.test.owner" // who must be alive for it to be wanted
)

var (
	thisRun   = strings.ToLower(rand.Text()[:12])
	thisOwner = owner{host: hostname(), boot: bootID(), pid: os.Getpid(), started: startedAt(os.Getpid())}
)

// owner names a test process for good: a process id alone is given out again.
type owner struct {
	host, boot string
	pid        int
	started    string // in ticks since boot, as the kernel counts them
}

func (o owner) String() string {
	return fmt.Sprintf("%s/%s/%d/%s", o.host, o.boot, o.pid, o.started)
}

// dead reports that the process which wrote label is known to be gone. The owner may live on another machine that uses
// the same engine: of that one nothing is known.
func dead(label string) bool {
	host, rest, _ := strings.Cut(label, "/")
	boot, rest, _ := strings.Cut(rest, "/")
	pid, started, ok := strings.Cut(rest, "/")
	if !ok || host != thisOwner.host {
		return false
	}
	var n int
	if _, err := fmt.Sscan(pid, &n); err != nil {
		return false
	}
	return boot != thisOwner.boot || startedAt(n) != started
}

func hostname() string {
	name, _ := os.Hostname()
	return strings.ReplaceAll(name, "/", "-")
}

func bootID() string {
	id, _ := os.ReadFile("/proc/sys/kernel/random/boot_id")
	return strings.TrimSpace(string(id))
}

// startedAt is the 22nd field of /proc/pid/stat, empty where there is no such process. The second field is the
// program's name in parentheses and may hold spaces.
func startedAt(pid int) string {
	stat, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	if err != nil {
		return ""
	}
	fields := strings.Fields(string(stat[strings.LastIndexByte(string(stat), ')')+1:]))
	if len(fields) < 20 {
		return ""
	}
	return fields[19]
}
