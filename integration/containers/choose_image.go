package containers

import (
	"context"
	"fmt"
	"os"
	"sync"

	"github.com/containerd/errdefs"
	"github.com/moby/moby/client"

	"github.com/redlock-go/redlock/integration/image"
)

// registryImage is what machines without a redis-server run.
const registryImage = "redis:8"

var imageMu sync.Mutex

// chooseImage returns the image to run and makes sure that it exists, where that can
// be done without a registry. An image it does not find is left to testcontainers,
// which pulls it.
func chooseImage(ctx context.Context, engine client.APIClient) (string, error) {
	if name := os.Getenv("REDLOCK_TEST_IMAGE"); name != "" {
		return name, nil
	}
	imageMu.Lock() // parallel tests build once
	defer imageMu.Unlock()
	_, err := engine.ImageInspect(ctx, image.Name)
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
