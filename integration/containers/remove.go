package containers

import (
	"context"
	"errors"
	"sync"
	"time"

	"github.com/containerd/errdefs"
	"github.com/moby/moby/client"
)

// removeTimeout bounds the removal of one set. On an idle machine it takes about a second; the rest is for machines
// that are not idle.
const removeTimeout = time.Minute

// removeLabeled removes every container, then every network, with this label and value. It asks the engine what there
// is instead of remembering what was created: a creation whose answer was lost is found as well.
func removeLabeled(ctx context.Context, engine client.APIClient, label, value string) error {
	filter := make(client.Filters).Add("label", label+"="+value)
	containers, err := engine.ContainerList(ctx, client.ContainerListOptions{All: true, Filters: filter})
	if err != nil {
		return err
	}
	var containerIDs []string
	for _, c := range containers.Items {
		containerIDs = append(containerIDs, c.ID)
	}
	// A network can be removed only when no container is attached to it.
	err = atOnce(containerIDs, func(id string) error { return removeContainer(ctx, engine, id) })
	networks, errList := engine.NetworkList(ctx, client.NetworkListOptions{Filters: filter})
	if errList != nil {
		return errors.Join(err, errList)
	}
	var networkIDs []string
	for _, n := range networks.Items {
		networkIDs = append(networkIDs, n.ID)
	}
	return errors.Join(err, atOnce(networkIDs, func(id string) error {
		_, err := engine.NetworkRemove(ctx, id, client.NetworkRemoveOptions{})
		return ignoreGone(err)
	}))
}

// removeContainer returns when the container is gone, also where another process is already removing it: the engine
// then answers "conflict", and its networks are busy until it is done.
func removeContainer(ctx context.Context, engine client.APIClient, id string) error {
	for {
		_, err := engine.ContainerRemove(ctx, id, client.ContainerRemoveOptions{Force: true, RemoveVolumes: true})
		if !errdefs.IsConflict(err) {
			return ignoreGone(err)
		}
		select {
		case <-ctx.Done():
			return err
		case <-time.After(50 * time.Millisecond):
		}
	}
}

// removeDead removes what test processes of this machine left behind that ended without their reaper, a reboot for
// instance.
func removeDead(ctx context.Context, engine client.APIClient) error {
	filter := make(client.Filters).Add("label", labelOwner)
	containers, err := engine.ContainerList(ctx, client.ContainerListOptions{All: true, Filters: filter})
	if err != nil {
		return err
	}
	networks, err := engine.NetworkList(ctx, client.NetworkListOptions{Filters: filter})
	if err != nil {
		return err
	}
	owners := map[string]bool{}
	for _, c := range containers.Items {
		owners[c.Labels[labelOwner]] = true
	}
	for _, n := range networks.Items {
		owners[n.Labels[labelOwner]] = true
	}
	var errs []error
	for o := range owners {
		if dead(o) {
			errs = append(errs, removeLabeled(ctx, engine, labelOwner, o))
		}
	}
	return errors.Join(errs...)
}

func ignoreGone(err error) error {
	if errdefs.IsNotFound(err) {
		return nil
	}
	return err
}

// atOnce does one step for all items in parallel and joins the errors: the engine spends most of each step waiting for
// the kernel.
func atOnce[T any](items []T, step func(T) error) error {
	errs := make([]error, len(items))
	var wg sync.WaitGroup
	for i, item := range items {
		wg.Go(func() { errs[i] = step(item) })
	}
	wg.Wait()
	return errors.Join(errs...)
}
