package redlock_test

import (
	"bufio"
	"context"
	"crypto/tls"
	"fmt"
	"net"
	"os"
	"os/exec"
	"runtime"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/redis/rueidis"
	"github.com/stretchr/testify/require"

	"github.com/redlock-go/redlock"
	"github.com/redlock-go/redlock/internal/redisproc"
)

// pausedEnv makes this test binary the child of TestPausedProcessSeesTheLossFirst: networks and addresses of the nodes,
// and which call looks first.
const pausedEnv = "REDLOCK_TEST_PAUSED_CHILD"

const pausedLease = 400 * time.Millisecond

// A process that was stopped for longer than its lock is valid learns of the loss by the first look that it takes, by
// whichever way: before any timer has fired, any answer was read, and also in contexts derived before.
func TestPausedProcessSeesTheLossFirst(t *testing.T) {
	if testing.Short() {
		t.Skip("it stops real processes for 15 s")
	}
	nodes := startNodes(t, 3)
	var addresses []string
	for _, n := range nodes {
		addresses = append(addresses, n.Network()+"="+n.Addr())
	}
	rival := newLocker(t, nodeOptions(nodes), validity(pausedLease))
	for trial := range 20 {
		procs, first := 1+trial%2, []string{"guard", "context", "do", "trio"}[trial/2%4]
		t.Run(fmt.Sprintf("%d: GOMAXPROCS %d, %s first", trial, procs, first), func(t *testing.T) {
			child := exec.Command(os.Args[0], "-test.run=^TestPausedChild$", "-test.v")
			child.Env = append(os.Environ(), pausedEnv+"="+first+" "+strings.Join(addresses, " "), "GOMAXPROCS="+strconv.Itoa(procs))
			out, err := child.StdoutPipe()
			require.NoError(t, err)
			require.NoError(t, child.Start())
			ended := false
			defer func() {
				if !ended {
					child.Process.Kill()
					child.Wait()
				}
			}()
			lines := bufio.NewScanner(out)
			said := func(what string) string {
				for lines.Scan() {
					if text, ok := strings.CutPrefix(lines.Text(), what+": "); ok {
						return text
					}
				}
				require.Fail(t, "the child did not say "+what)
				return ""
			}
			said("held")
			time.Sleep(time.Duration(trial) * 7 * time.Millisecond) // anywhere between two renewals
			require.NoError(t, child.Process.Signal(syscall.SIGSTOP))
			successor := acquire(t, rival, "paused") // its lease ran out
			require.NoError(t, successor.Err())
			time.Sleep(pausedLease)
			require.NoError(t, child.Process.Signal(syscall.SIGCONT))
			require.Equal(t, "lost lost lost", said("saw"))
			require.NoError(t, successor.Err())
			release(t, successor)
			for lines.Scan() {
			}
			require.NoError(t, child.Wait())
			ended = true
		})
	}
}

func dialUnix(addr string) func(context.Context, string, *net.Dialer, *tls.Config) (net.Conn, error) {
	return func(ctx context.Context, _ string, _ *net.Dialer, _ *tls.Config) (net.Conn, error) {
		var d net.Dialer
		return d.DialContext(ctx, "unix", addr)
	}
}

func nodeOptions(nodes []*redisproc.Node) (options []rueidis.ClientOption) {
	for _, n := range nodes {
		options = append(options, nodeOption(n.Network(), n.Addr()))
	}
	return options
}

// TestPausedChild is the process that is stopped. It does nothing by itself.
func TestPausedChild(t *testing.T) {
	env := os.Getenv(pausedEnv)
	if env == "" {
		t.Skip("a child of TestPausedProcessSeesTheLossFirst")
	}
	words := strings.Fields(env)
	var options []rueidis.ClientOption
	for _, word := range words[1:] {
		network, addr, _ := strings.Cut(word, "=")
		options = append(options, nodeOption(network, addr))
	}
	l := newLocker(t, options, validity(pausedLease))
	watch := func(ctx context.Context, looks ...func() error) {
		derived, cancel := context.WithTimeout(ctx, time.Hour)
		defer cancel()
		looks = append(looks, derived.Err)
		var saw []string
		last := time.Now()
		fmt.Println("held: ")
		for saw == nil {
			now := time.Now()
			if now.Sub(last) > pausedLease*3/4 {
				for _, look := range looks {
					state := "alive"
					if look() != nil {
						state = "lost"
					}
					saw = append(saw, state)
				}
			}
			last = now
			runtime.Gosched()
		}
		fmt.Println("saw: " + strings.Join(saw, " "))
	}
	switch words[0] {
	case "guard", "context":
		g, err := l.Acquire(context.Background(), "paused")
		require.NoError(t, err)
		looks := []func() error{g.Err, g.Context().Err}
		if words[0] == "context" {
			looks[0], looks[1] = looks[1], looks[0]
		}
		watch(g.Context(), looks...)
		require.ErrorIs(t, g.Release(context.Background()), redlock.ErrLost)
	case "do":
		err := l.Do(context.Background(), "paused", func(ctx context.Context) error {
			nested, cancel := context.WithCancel(ctx)
			defer cancel()
			watch(nested, ctx.Err, nested.Err)
			return nil
		})
		require.ErrorIs(t, err, redlock.ErrLost)
	case "trio":
		ctx, cancel, err := l.WithContext(context.Background(), "paused")
		require.NoError(t, err)
		nested, cancelNested := context.WithCancel(ctx)
		defer cancelNested()
		watch(nested, ctx.Err, nested.Err)
		require.ErrorIs(t, context.Cause(nested), redlock.ErrLost)
		cancel()
	}
}

// nodeOption is how rueidis reaches a node of another process.
func nodeOption(network, addr string) rueidis.ClientOption {
	option := rueidis.ClientOption{InitAddress: []string{addr}}
	if network == "unix" {
		option.DialCtxFn = dialUnix(addr)
	}
	return option
}
