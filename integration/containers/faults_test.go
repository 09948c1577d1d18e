package containers_test

import (
	"context"
	"os"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/redis/rueidis"
	"github.com/stretchr/testify/require"

	"github.com/redlock-go/redlock/integration/containers"
)

func TestMain(m *testing.M) { os.Exit(containers.Main(m)) }

// silence is how long a node has to be silent to be called silent. A node that answers, answers within milliseconds;
// the bound it is given for that is patience.
const (
	silence  = time.Second
	patience = 30 * time.Second
)

// A client that has seen the node before the fault is the one that must see it.
func TestFaults(t *testing.T) {
	set := containers.Start(t, containers.Options{})
	require.Len(t, set.Nodes, 5)
	for _, addr := range set.Addrs(containers.West) {
		require.Equal(t, "0", do(t, dial(t, addr), "DBSIZE"))
	}

	// Each fault gets a node to itself, so that they can run at once.
	faults := []struct {
		name string
		test func(*testing.T, *containers.Node, rueidis.Client)
	}{
		{"freeze is silence and loses nothing", testFreeze},
		{"stop and start lose the memory", testStop},
		{"kill and start lose the memory", testKill},
		{"crash loses the memory", testCrashEmpty},
		{"silence heals and loses nothing", testSilence},
	}
	for i, fault := range faults {
		t.Run(fault.name, func(t *testing.T) {
			t.Parallel()
			client := dial(t, set.Nodes[i].Addr(containers.West))
			require.Equal(t, "OK", do(t, client, "SET", "key", "before"))
			fault.test(t, set.Nodes[i], client)
		})
	}
}

func testFreeze(t *testing.T, node *containers.Node, client rueidis.Client) {
	require.NoError(t, node.Freeze(t.Context()))
	requireSilent(t, client)
	require.NoError(t, node.Thaw(t.Context()))
	requireAnswers(t, client)
	require.Equal(t, "before", do(t, client, "GET", "key"))
}

func testStop(t *testing.T, node *containers.Node, client rueidis.Client) {
	addr, run := node.Addr(containers.West), runID(t, client)
	require.NoError(t, node.Stop(t.Context()))
	requireGone(t, client)
	require.NoError(t, node.Start(t.Context()))
	requireForgotten(t, node, addr, run, client)
}

func testKill(t *testing.T, node *containers.Node, client rueidis.Client) {
	addr, run := node.Addr(containers.West), runID(t, client)
	require.NoError(t, node.Kill(t.Context()))
	requireGone(t, client)
	require.NoError(t, node.Start(t.Context()))
	requireForgotten(t, node, addr, run, client)
}

func testCrashEmpty(t *testing.T, node *containers.Node, client rueidis.Client) {
	addr, run := node.Addr(containers.West), runID(t, client)
	require.NoError(t, node.CrashEmpty(t.Context()))
	requireForgotten(t, node, addr, run, client)
}

func testSilence(t *testing.T, node *containers.Node, client rueidis.Client) {
	addr, run := node.Addr(containers.West), runID(t, client)
	require.NoError(t, node.Silence(t.Context(), containers.West))
	requireSilent(t, client)
	_, err := rueidis.NewClient(option(addr))
	require.Error(t, err, "a dial to a silent node")
	require.NoError(t, node.Heal(t.Context(), containers.West))
	require.Equal(t, addr, node.Addr(containers.West))
	requireAnswers(t, client)
	require.Equal(t, run, runID(t, client))
	require.Equal(t, "before", do(t, client, "GET", "key"))
}

func requireForgotten(t *testing.T, node *containers.Node, addr, run string, client rueidis.Client) {
	t.Helper()
	require.Equal(t, addr, node.Addr(containers.West))
	requireAnswers(t, client)
	require.Equal(t, "0", do(t, client, "DBSIZE"))
	require.NotEqual(t, run, runID(t, client))
}

// option is a client as the library has it: one connection, no hidden retries.
func option(addr string) rueidis.ClientOption {
	return rueidis.ClientOption{
		InitAddress:       []string{addr},
		ForceSingleClient: true,
		DisableRetry:      true,
		PipelineMultiplex: -1,
		DisableCache:      true,
		ConnWriteTimeout:  silence,
	}
}

func dial(t *testing.T, addr string) rueidis.Client {
	t.Helper()
	client, err := rueidis.NewClient(option(addr))
	require.NoError(t, err)
	t.Cleanup(client.Close)
	return client
}

// do runs a command that must be answered, and gives the answer as text.
func do(t *testing.T, client rueidis.Client, args ...string) string {
	t.Helper()
	answer, err := try(client, patience, args...)
	require.NoError(t, err, "%s", args)
	return answer
}

func try(client rueidis.Client, within time.Duration, args ...string) (string, error) {
	ctx, cancel := context.WithTimeout(context.Background(), within)
	defer cancel()
	message, err := client.Do(ctx, client.B().Arbitrary(args...).Build()).ToMessage()
	if err != nil {
		return "", err
	}
	if n, err := message.AsInt64(); err == nil {
		return strconv.FormatInt(n, 10), nil
	}
	return message.ToString()
}

func requireSilent(t *testing.T, client rueidis.Client) {
	t.Helper()
	_, err := try(client, silence, "PING")
	require.ErrorIs(t, err, context.DeadlineExceeded)
}

// requireGone wants an error and does not care which: a closed connection, a refused or a lost dial.
func requireGone(t *testing.T, client rueidis.Client) {
	t.Helper()
	_, err := try(client, silence, "PING")
	require.Error(t, err)
}

func requireAnswers(t *testing.T, client rueidis.Client) {
	t.Helper()
	require.Eventually(t, func() bool {
		_, err := try(client, silence, "PING")
		return err == nil
	}, patience, 10*time.Millisecond)
}

func runID(t *testing.T, client rueidis.Client) string {
	t.Helper()
	for line := range strings.Lines(do(t, client, "INFO", "server")) {
		if id, ok := strings.CutPrefix(strings.TrimSpace(line), "run_id:"); ok {
			return id
		}
	}
	t.Fatal("INFO server has no run_id")
	return ""
}
