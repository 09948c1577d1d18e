package containers

import (
	"os"
	"os/exec"
	"testing"

	"github.com/stretchr/testify/require"
)

// Where there is no engine the suite says so: it skips, or fails where it was told that one is needed. No engine
// answers at an address that nothing listens on.
func TestNoEngine(t *testing.T) {
	self, err := os.Executable()
	require.NoError(t, err)
	without := func(need string) (string, error) {
		cmd := exec.CommandContext(t.Context(), self, "-test.run=^TestVictim$", "-test.v")
		cmd.Env = append(os.Environ(), victimEnv+"=1", "REDLOCK_NEED_DOCKER="+need, "DOCKER_HOST=tcp://127.0.0.1:1")
		out, err := cmd.CombinedOutput()
		return string(out), err
	}

	out, err := without("")
	require.NoError(t, err, out)
	require.Contains(t, out, "*** TestVictim SKIPPED ***")
	require.Contains(t, out, "NO CONTAINER ENGINE")
	require.Contains(t, out, "--- SKIP: TestVictim")

	out, err = without("1")
	require.Error(t, err, out)
	require.Contains(t, out, "NO CONTAINER ENGINE")
	require.Contains(t, out, "--- FAIL: TestVictim")
}
