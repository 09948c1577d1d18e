package main

import (
	"bytes"
	"os"
	"strconv"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"
)

// The soak starts its worker processes from its own executable, which here is the test.
func TestMain(m *testing.M) {
	if len(os.Args) > 1 && os.Args[1] == workerCommand {
		os.Exit(beWorker(os.Args[2:]))
	}
	goleak.VerifyTestMain(m)
}

// soakFor runs the soak and returns its exit code and its table.
func soakFor(t *testing.T, args ...string) (code int, table map[string]string) {
	t.Helper()
	var out, complaints bytes.Buffer
	code = run(t.Context(), args, &out, &complaints)
	t.Logf("%s\n%s", &out, &complaints)
	table = make(map[string]string)
	for line := range strings.Lines(out.String()) {
		cells := strings.Split(line, "|")
		if len(cells) == 4 {
			table[strings.TrimSpace(cells[1])] = strings.TrimSpace(cells[2])
		}
	}
	return code, table
}

func number(t *testing.T, table map[string]string, row string) int {
	t.Helper()
	n, err := strconv.Atoi(table[row])
	require.NoError(t, err, "row %q is %q", row, table[row])
	return n
}

func TestSoak(t *testing.T) {
	duration := "60s"
	if testing.Short() {
		duration = "5s"
	}
	code, table := soakFor(t, "-duration", duration)
	require.Equal(t, exitOK, code)
	for _, never := range []string{"stale writes accepted", "overlaps seen", "tokens out of order", "violations"} {
		require.Zero(t, number(t, table, never), never)
	}
	// That it did something: not how fast, which is the machine's.
	for _, some := range []string{"acquisitions", "faults injected", "writes to the register", "guards released while alive", "slots of the semaphore taken", "guards that read"} {
		require.Positive(t, number(t, table, some), some)
	}
	if !testing.Short() {
		require.Equal(t, "3 of 3", table["most slots held at once"])
		require.Positive(t, number(t, table, "takeovers (ForceAcquire)"))
		require.Positive(t, number(t, table, "lost guards"))
	}
}

// A stale write takes a process that is stopped between its look and its write: not every few seconds see one.
func TestSoakSeesARegisterWithoutAFence(t *testing.T) {
	for seed := range 8 {
		code, table := soakFor(t, "-duration", "6s", "-break", "fence", "-seed", strconv.Itoa(seed))
		if code == exitViolated {
			require.Positive(t, number(t, table, "stale writes accepted"))
			return
		}
	}
	require.Fail(t, "no stale write was accepted in any run")
}

func TestSoakSeesLocksThatExcludeNobody(t *testing.T) {
	code, table := soakFor(t, "-duration", "2s", "-break", "lock", "-seed", "1")
	require.Equal(t, exitViolated, code)
	require.Positive(t, number(t, table, "overlaps seen"))
}

func TestSoakRefusesACommandLine(t *testing.T) {
	var out, complaints bytes.Buffer
	require.Equal(t, exitUnable, run(t.Context(), []string{"-break", "everything"}, &out, &complaints))
	require.Contains(t, complaints.String(), "not understood")
}
