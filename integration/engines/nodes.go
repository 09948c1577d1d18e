package engines

import (
	"fmt"
	"net"
	"os"
	"slices"
	"strings"
	"testing"

	"github.com/redis/rueidis"

	"github.com/redlock-go/redlock/internal/redisproc"
	"github.com/redlock-go/redlock/internal/redisproc/redistest"
)

// EnvAddrs names the environment variable that names the servers to test against.
const EnvAddrs = "REDLOCK_TEST_ADDRS"

// Nodes returns how to reach n independent servers, in the form of LockerOption.Nodes: the first n of
// REDLOCK_TEST_ADDRS, or else n processes that live as long as the test. Too few addresses fail the test, as a missing
// redis-server does.
func Nodes(t testing.TB, n int) []rueidis.ClientOption {
	t.Helper()
	addrs, err := parseAddrs(os.Getenv(EnvAddrs))
	if err != nil {
		t.Fatal(err)
	}
	if len(addrs) == 0 {
		return redistest.Options(redistest.StartSet(t, n, redisproc.Options{}))
	}
	if len(addrs) < n {
		t.Fatalf("engines: %s names %d servers, this test needs %d", EnvAddrs, len(addrs), n)
	}
	options := make([]rueidis.ClientOption, n)
	for i, addr := range addrs[:n] {
		options[i] = rueidis.ClientOption{InitAddress: []string{addr}, ForceSingleClient: true}
	}
	return options
}

// parseAddrs refuses the same server twice: two votes of one server are one vote.
func parseAddrs(list string) ([]string, error) {
	var addrs []string
	for addr := range strings.SplitSeq(list, ",") {
		addr = strings.TrimSpace(addr)
		if addr == "" {
			continue
		}
		if _, _, err := net.SplitHostPort(addr); err != nil {
			return nil, fmt.Errorf("engines: %s: %w", EnvAddrs, err)
		}
		if slices.Contains(addrs, addr) {
			return nil, fmt.Errorf("engines: %s names %s twice", EnvAddrs, addr)
		}
		addrs = append(addrs, addr)
	}
	return addrs, nil
}
