package containers

import (
	"os"
	"testing"

	tclog "github.com/testcontainers/testcontainers-go/log"
)

// Main runs the tests of a package that starts containers and returns the exit code. Call it from TestMain: it
// configures testcontainers before that reads its configuration, which it does once, and it is where the process that
// cleans up begins its life (see reaper.go).
func Main(m *testing.M) int {
	if run := os.Getenv(reapEnv); run != "" {
		return reap(run)
	}
	quiet()
	mainCalled = true
	code := m.Run()
	if err := stopReaper(); err != nil {
		os.Stderr.WriteString("containers: left behind: " + err.Error() + "\n")
		code = max(code, 1)
	}
	return code
}

// mainCalled is written before any test runs.
var mainCalled bool

// quiet turns off what testcontainers does by itself and this package does not want: its log, and its own cleaning
// container, whose image would have to be pulled. Someone who sets TESTCONTAINERS_RYUK_DISABLED=false gets that one as
// well.
func quiet() {
	const ryuk = "TESTCONTAINERS_RYUK_DISABLED"
	if os.Getenv(ryuk) == "" {
		os.Setenv(ryuk, "true")
	}
	tclog.SetDefault(tclog.NewNoopLogger())
}
