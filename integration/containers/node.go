package containers

import (
	"context"
	"fmt"
	"net"
	"net/netip"

	"github.com/moby/moby/api/types/container"
	"github.com/moby/moby/api/types/network"
	"github.com/moby/moby/client"
)

// Side is a group of clients that reach the nodes by addresses of their own.
type Side int

const (
	West Side = iota // the side of a set with one side
	East
	sides = iota
)

func (s Side) String() string { return [sides]string{"west", "east"}[s] }

// Node is one Redis in a container. Its methods are the faults it can suffer and their ends; each returns when the
// engine has done it. They may be called from several goroutines, for one node one after the other.
type Node struct {
	engine   client.APIClient
	id       string
	networks []attachment // by side
}

// attachment is a network and the address the node has there for good.
type attachment struct {
	network, name string
	addr          netip.Addr
}

func (a attachment) endpoint() *network.EndpointSettings {
	return &network.EndpointSettings{
		NetworkID:  a.network,
		IPAMConfig: &network.EndpointIPAMConfig{IPv4Address: a.addr},
	}
}

// Addr is the node's host:port on a side. No fault changes it.
func (n *Node) Addr(side Side) string {
	return net.JoinHostPort(n.networks[side].addr.String(), "6379")
}

// Freeze stops the node's process as SIGSTOP does. The kernel goes on accepting connections and bytes for it, so
// clients see silence, and commands sent meanwhile are executed after [Node.Thaw]. The engine refuses to stop, or kill
// a frozen node.
func (n *Node) Freeze(ctx context.Context) error {
	_, err := n.engine.ContainerPause(ctx, n.id, client.ContainerPauseOptions{})
	return wrap("freeze", err)
}

// Thaw lets the process go on, with its memory, its connections, and keys that have expired meanwhile by its clock.
func (n *Node) Thaw(ctx context.Context) error {
	_, err := n.engine.ContainerUnpause(ctx, n.id, client.ContainerUnpauseOptions{})
	return wrap("thaw", err)
}

// Stop ends the process with SIGTERM. It closes its connections, then the address vanishes with the container's network
// interface: a dial finds no route after some 4 s, unless its own timeout is shorter, and is never refused.
func (n *Node) Stop(ctx context.Context) error {
	_, err := n.engine.ContainerStop(ctx, n.id, client.ContainerStopOptions{})
	return wrap("stop", err)
}

// Kill is [Node.Stop] with SIGKILL.
func (n *Node) Kill(ctx context.Context) error {
	if _, err := n.engine.ContainerKill(ctx, n.id, client.ContainerKillOptions{}); err != nil {
		return wrap("kill", err)
	}
	// The signal is sent, the process may still run.
	wait := n.engine.ContainerWait(ctx, n.id, client.ContainerWaitOptions{Condition: container.WaitConditionNotRunning})
	select {
	case <-wait.Result:
		return nil
	case err := <-wait.Error:
		return wrap("kill", err)
	}
}

// Start starts a stopped or killed node: empty, with a new run_id, at the same addresses. It returns when the node
// answers on every side it is connected to.
func (n *Node) Start(ctx context.Context) error {
	if _, err := n.engine.ContainerStart(ctx, n.id, client.ContainerStartOptions{}); err != nil {
		return wrap("start", err)
	}
	return n.Ready(ctx)
}

// CrashEmpty is [Node.Kill] and [Node.Start]: the node forgets everything.
func (n *Node) CrashEmpty(ctx context.Context) error {
	if err := n.Kill(ctx); err != nil {
		return err
	}
	return n.Start(ctx)
}

// Silence takes the node's network to one side away. Its process runs on and notices nothing; clients of that side see
// silence on open connections, and dials that time out or find no route.
func (n *Node) Silence(ctx context.Context, side Side) error {
	_, err := n.engine.NetworkDisconnect(ctx, n.networks[side].network, client.NetworkDisconnectOptions{Container: n.id})
	return wrap("silence "+side.String(), err)
}

// Heal ends [Node.Silence], and returns when the node answers on that side, if it runs. Connections that were open go
// on where neither end gave them up, and what was sent meanwhile arrives.
func (n *Node) Heal(ctx context.Context, side Side) error {
	if err := n.attach(ctx, side); err != nil {
		return err
	}
	return n.Ready(ctx)
}

// Clear ends whatever fault the node is in: it is thawed, connected to all sides and started, and answers everywhere. A
// node in no fault is only asked.
func (n *Node) Clear(ctx context.Context) error {
	state, err := n.inspect(ctx)
	if err != nil {
		return err
	}
	if state.State.Paused {
		if err := n.Thaw(ctx); err != nil {
			return err
		}
	}
	for side, a := range n.networks {
		if !attached(state, a) {
			if err := n.attach(ctx, Side(side)); err != nil {
				return err
			}
		}
	}
	if !state.State.Running {
		return n.Start(ctx)
	}
	return n.Ready(ctx)
}

// Ready returns when the node answers on every side it is connected to, at once if it is stopped or frozen.
func (n *Node) Ready(ctx context.Context) error {
	state, err := n.inspect(ctx)
	if err != nil || !state.State.Running || state.State.Paused {
		return err
	}
	for side, a := range n.networks {
		if !attached(state, a) {
			continue
		}
		if err := waitReady(ctx, n.Addr(Side(side))); err != nil {
			return err
		}
	}
	return nil
}

func (n *Node) attach(ctx context.Context, side Side) error {
	a := n.networks[side]
	_, err := n.engine.NetworkConnect(ctx, a.network, client.NetworkConnectOptions{Container: n.id, EndpointConfig: a.endpoint()})
	return wrap("connect "+side.String(), err)
}

func (n *Node) inspect(ctx context.Context) (container.InspectResponse, error) {
	res, err := n.engine.ContainerInspect(ctx, n.id, client.ContainerInspectOptions{})
	return res.Container, wrap("inspect", err)
}

func attached(state container.InspectResponse, a attachment) bool {
	_, ok := state.NetworkSettings.Networks[a.name]
	return ok
}

func wrap(step string, err error) error {
	if err != nil {
		return fmt.Errorf("containers: %s: %w", step, err)
	}
	return nil
}
