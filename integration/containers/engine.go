package containers

import (
	"context"
	"fmt"
	"os"
	"sync"
	"testing"
	"time"

	"github.com/moby/moby/client"
	"github.com/testcontainers/testcontainers-go"
)

// engineOf returns the engine, or ends the test: with a skip where there is none, with a failure where
// REDLOCK_NEED_DOCKER=1 says that there must be one.
func engineOf(t testing.TB) client.APIClient {
	t.Helper()
	if !mainCalled {
		t.Fatal("containers: TestMain must be: func TestMain(m *testing.M) { os.Exit(containers.Main(m)) }")
	}
	engine, err := findEngine()
	if err == nil {
		return engine
	}
	missing := fmt.Sprintf("NO CONTAINER ENGINE: %v\n"+
		"Start one (docker, or set DOCKER_HOST) to run this test; REDLOCK_NEED_DOCKER=1 makes this a failure.", err)
	if os.Getenv("REDLOCK_NEED_DOCKER") == "1" {
		t.Fatal(missing)
	}
	// Not only t.Skip: its text is shown with -v alone.
	fmt.Fprintf(os.Stderr, "\n*** %s SKIPPED ***\n%s\n\n", t.Name(), missing)
	t.Skip(missing)
	return nil
}

// findEngine looks once per process, and removes what dead runs left when it finds one.
var findEngine = sync.OnceValues(func() (engine client.APIClient, err error) {
	defer func() {
		// testcontainers panics where it finds neither a docker socket nor a host.
		if p := recover(); p != nil {
			err = fmt.Errorf("%v", p)
		}
	}()
	ctx, cancel := context.WithTimeout(context.Background(), removeTimeout)
	defer cancel()
	// testcontainers goes on looking where DOCKER_HOST names an engine that does not answer, and would run the tests on
	// another one than was asked for.
	if host := os.Getenv("DOCKER_HOST"); host != "" {
		if err := pingHost(ctx); err != nil {
			return nil, fmt.Errorf("DOCKER_HOST=%s: %w", host, err)
		}
	}
	provider, err := testcontainers.NewDockerProvider()
	if err != nil {
		return nil, err
	}
	if err := ping(ctx, provider.Client()); err != nil {
		return nil, err
	}
	// Another run's leftovers are no reason to do without the engine.
	if err := removeDead(ctx, provider.Client()); err != nil {
		fmt.Fprintf(os.Stderr, "containers: what dead runs left behind is still there: %v\n", err)
	}
	return provider.Client(), nil
})

func pingHost(ctx context.Context) error {
	engine, err := client.New(client.FromEnv)
	if err != nil {
		return err
	}
	defer engine.Close()
	return ping(ctx, engine)
}

// ping gives up early: an engine that is there answers in milliseconds.
func ping(ctx context.Context, engine client.APIClient) error {
	ctx, cancel := context.WithTimeout(ctx, 10*time.Second)
	defer cancel()
	_, err := engine.Ping(ctx, client.PingOptions{})
	return err
}
