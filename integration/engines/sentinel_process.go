package engines

import (
	"errors"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"testing"
	"time"

	"github.com/redlock-go/redlock/internal/ports"
	"github.com/redlock-go/redlock/internal/redisproc"
)

// sentinelConf is the file a sentinel cannot do without: it keeps its state there. A server is called down after a
// second of silence.
const sentinelConf = `port %s
bind 127.0.0.1
dir %s
sentinel monitor %[3]s %[4]s %[5]s %[6]d
sentinel down-after-milliseconds %[3]s 1000
sentinel failover-timeout %[3]s 10000
`

// watched runs "$@" until its standard input ends, which it does when the test closes it or when the test process is no
// more: no sentinel outlives a killed test.
const watched = `"$@" </dev/null & cat >/dev/null; kill -9 $!`

// startSentinel starts a sentinel of the primary at host:port on a free port, and returns its address when it answers.
// It ends with the test.
func startSentinel(t testing.TB, host, port string, quorum int) string {
	t.Helper()
	program, err := redisproc.Find()
	if err != nil {
		t.Fatal(err)
	}
	own, err := ports.Reserve()
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(own.Close)
	if err := runSentinel(t, program, own.Addr, host, port, quorum); err != nil {
		t.Fatalf("engines: no sentinel starts: %v", err)
	}
	return own.Addr
}

func runSentinel(t testing.TB, program, addr, host, port string, quorum int) error {
	_, own, _ := net.SplitHostPort(addr)
	dir := t.TempDir()
	conf := filepath.Join(dir, "sentinel.conf")
	if err := os.WriteFile(conf, fmt.Appendf(nil, sentinelConf, own, dir, masterSet, host, port, quorum), 0o600); err != nil {
		return err
	}
	log, err := os.Create(filepath.Join(dir, "log"))
	if err != nil {
		return err
	}
	defer log.Close()
	cmd := exec.Command("sh", "-c", watched, "sh", program, conf, "--sentinel")
	cmd.Stdout, cmd.Stderr = log, log
	stdin, err := cmd.StdinPipe()
	if err != nil {
		return err
	}
	if err := cmd.Start(); err != nil {
		return err
	}
	stop := func() {
		stdin.Close()
		_ = cmd.Wait() // the shell's last command is a kill, and the kill its child's end
	}
	// "sentinel myid" is answered by our sentinel and by nobody's ordinary server.
	for end := time.Now().Add(10 * time.Second); ; time.Sleep(10 * time.Millisecond) {
		_, err := server(addr).Do("SENTINEL", "MYID")
		if err == nil {
			t.Cleanup(stop)
			return nil
		}
		if time.Now().After(end) {
			stop()
			said, _ := os.ReadFile(log.Name())
			return errors.Join(err, fmt.Errorf("its log:\n%s", said))
		}
	}
}
