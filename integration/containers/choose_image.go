package containers

import (
	"context"
	"fmt"
	"os"
	"syscall"

	"github.com/containerd/errdefs"
	"github.com/moby/moby/client"

	"github.com/redlock-go/redlock/integration/image"
)

// registryImage is what machines without a redis-server run.
const registryImage = "redis:8"

// chooseImage returns the image to run and makes sure that it exists, where that can be done without a registry. An
// image it does not find is left to testcontainers, which pulls it.
func chooseImage(ctx context.Context, engine client.APIClient) (string, error) {
	if name := os.Getenv("REDLOCK_TEST_IMAGE"); name != "" {
		return name, nil
	}
	unlock, err := lockBuilds()
	if err != nil {
		return "", err
	}
	defer unlock()
	_, err = engine.ImageInspect(ctx, image.Name)
	switch {
	case err == nil:
		return image.Name, nil
	case !errdefs.IsNotFound(err):
		return "", fmt.Errorf("looking for the image %s: %w", image.Name, err)
	case image.CanBuild():
		return image.Name, image.Build(ctx, image.Name)
	}
	return registryImage, nil
}

// lockBuilds makes test processes, which go test runs side by side, build one after the other: two at once would leave
// an image without a name. The lock is on the directory for temporary files itself, so that no file stays behind for
// it.
func lockBuilds() (unlock func() error, err error) {
	dir, err := os.Open(os.TempDir())
	if err != nil {
		return nil, err
	}
	if err := syscall.Flock(int(dir.Fd()), syscall.LOCK_EX); err != nil {
		dir.Close()
		return nil, fmt.Errorf("locking %s: %w", dir.Name(), err)
	}
	return dir.Close, nil // closing unlocks
}
