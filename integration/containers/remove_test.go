package containers

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"os"
	"os/exec"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/moby/moby/client"
	"github.com/stretchr/testify/require"
)

const victimEnv = "REDLOCK_TEST_VICTIM"

// A test process that does not get to its own cleanup leaves nothing behind.
func TestReaperCleansUpAfterDeath(t *testing.T) {
	engine := engineOf(t)
	for _, death := range []string{"panic", "kill"} {
		t.Run(death, func(t *testing.T) {
			t.Parallel()
			self, err := os.Executable()
			require.NoError(t, err)
			victim := exec.Command(self, "-test.run=^TestVictim$")
			victim.Env = append(os.Environ(), victimEnv+"=1")
			stdout, err := victim.StdoutPipe()
			require.NoError(t, err)
			stdin, err := victim.StdinPipe()
			require.NoError(t, err)
			require.NoError(t, victim.Start())
			t.Cleanup(func() { victim.Process.Kill(); victim.Wait() })

			// The victim says which run it is, lives while it is looked at, and dies when it is told to.
			line, err := bufio.NewReader(stdout).ReadString('\n')
			require.NoError(t, err)
			run := strings.TrimSpace(line)
			require.Equal(t, 3, count(t, engine, labelRun, run), "a container and two networks")
			if death == "kill" {
				require.NoError(t, victim.Process.Kill())
			} else {
				require.NoError(t, stdin.Close())
			}
			require.Eventually(t, func() bool { return count(t, engine, labelRun, run) == 0 }, removeTimeout, 50*time.Millisecond)
		})
	}
}

// TestVictim is no test: TestReaperCleansUpAfterDeath runs it in a process of its own.
func TestVictim(t *testing.T) {
	if os.Getenv(victimEnv) == "" {
		t.Skip("runs in a process of its own")
	}
	Start(t, Options{Nodes: 1, Sides: 2})
	fmt.Println(thisRun)
	go func() {
		io.Copy(io.Discard, os.Stdin) // ends when it is told to, or when who runs it ends
		panic("as told: no cleanup runs for a panic outside the test's goroutine")
	}()
	select {}
}

// What a dead process left is removed by the next run; what a living one has, and what belongs to another machine, is
// not.
func TestRemoveDead(t *testing.T) {
	engine := engineOf(t)
	ctx, cancel := context.WithTimeout(context.Background(), removeTimeout)
	defer cancel()
	gone := thisOwner
	gone.started += "0" // our process id in another life
	rebooted := thisOwner
	rebooted.boot = "an earlier one"
	elsewhere := gone
	elsewhere.host = "another"
	owners := []owner{thisOwner, gone, rebooted, elsewhere}
	sets := make([]string, len(owners))
	for i, o := range owners {
		sets[i] = thisRun + "-dead-" + strconv.Itoa(i)
		t.Cleanup(func() { require.NoError(t, removeLabeled(context.Background(), engine, labelSet, sets[i])) })
		_, _, err := newNetwork(ctx, map[string]string{labelRun: thisRun, labelSet: sets[i], labelOwner: o.String()})
		require.NoError(t, err)
	}

	require.NoError(t, removeDead(ctx, engine))

	var left []int
	for _, set := range sets {
		left = append(left, count(t, engine, labelSet, set))
	}
	require.Equal(t, []int{1, 0, 0, 1}, left)
}

// count is how many containers and networks carry a label.
func count(t *testing.T, engine client.APIClient, label, value string) int {
	filter := make(client.Filters).Add("label", label+"="+value)
	containers, err := engine.ContainerList(context.Background(), client.ContainerListOptions{All: true, Filters: filter})
	require.NoError(t, err)
	networks, err := engine.NetworkList(context.Background(), client.NetworkListOptions{Filters: filter})
	require.NoError(t, err)
	return len(containers.Items) + len(networks.Items)
}
