// Package image builds the container image of the integration tests out of the redis-server installed on this machine.
// build.sh is the whole of it; this
// package carries the script inside the test binary, so that `go test` alone
// works from any directory.
package image

import (
	"context"
	_ "embed"
	"fmt"
	"os/exec"
	"strings"
)

// Name is the image that [Build] makes when nobody asks for another name.
const Name = "redlock-test/redis"

//go:embed build.sh
var script string

// Build makes the image called name in the engine that the docker command talks to. The error carries what the script
// said: which program is missing, or what the engine refused.
func Build(ctx context.Context, name string) error {
	cmd := exec.CommandContext(ctx, "sh", "-s", "--", name)
	cmd.Stdin = strings.NewReader(script)
	if out, err := cmd.CombinedOutput(); err != nil {
		return fmt.Errorf("building the image %s: %w: %s", name, err, strings.TrimSpace(string(out)))
	}
	return nil
}

// CanBuild reports whether this machine has a redis-server to build from.
func CanBuild() bool {
	_, err := exec.LookPath("redis-server")
	return err == nil
}
