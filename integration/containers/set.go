package containers

import (
	"context"
	"crypto/rand"
	"fmt"
	"io"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/moby/moby/api/types/container"
	"github.com/moby/moby/api/types/network"
	"github.com/moby/moby/client"
	"github.com/redis/rueidis"
	"github.com/testcontainers/testcontainers-go"
)

// Options says what [Start] starts.
type Options struct {
	Nodes int      // default 5
	Sides int      // 1 (the default), or 2 where two groups of clients are to be cut apart
	Args  []string // for redis-server, after "--save '' --appendonly no --protected-mode no"
}

// Set is some Redis nodes, each in a container of its own, empty, persisting nothing.
type Set struct {
	Nodes []*Node
}

// startTimeout bounds [Start], an image to be built or pulled included.
const startTimeout = 5 * time.Minute

// Start starts the nodes and returns when all of them answer. They are removed when t ends. It skips t where there is
// no container engine, and fails it where REDLOCK_NEED_DOCKER=1 demands one. The package's TestMain has to call [Main].
func Start(t testing.TB, opt Options) *Set {
	t.Helper()
	engine := engineOf(t)
	if opt.Nodes == 0 {
		opt.Nodes = 5
	}
	if opt.Sides == 0 {
		opt.Sides = 1
	}
	if opt.Nodes < 0 || opt.Sides < 0 || opt.Sides > sides {
		t.Fatalf("containers: %d nodes on %d sides: there must be a node and one side or two", opt.Nodes, opt.Sides)
	}
	if err := startReaper(engine); err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(context.Background(), startTimeout)
	defer cancel()
	name, err := chooseImage(ctx, engine)
	if err != nil {
		t.Fatal(err)
	}

	labels := map[string]string{
		labelRun:   thisRun,
		labelSet:   strings.ToLower(rand.Text()[:12]),
		labelOwner: thisOwner.String(),
	}
	// Before anything exists, so that a start that fails halfway is cleaned up, too.
	t.Cleanup(func() {
		ctx, cancel := context.WithTimeout(context.Background(), removeTimeout)
		defer cancel()
		if err := removeLabeled(ctx, engine, labelSet, labels[labelSet]); err != nil {
			t.Errorf("containers: removing %s: %v", labels[labelSet], err)
		}
	})

	set := &Set{Nodes: make([]*Node, opt.Nodes)}
	for i := range set.Nodes {
		set.Nodes[i] = &Node{engine: engine, networks: make([]attachment, opt.Sides)}
	}
	if err := atOnce(set.Nodes, func(n *Node) error { return n.create(ctx, name, labels, opt.Args) }); err != nil {
		t.Fatalf("containers: starting %d nodes of %s: %v", opt.Nodes, name, err)
	}
	return set
}

// Addrs are the nodes' addresses on one side.
func (s *Set) Addrs(side Side) []string {
	addrs := make([]string, len(s.Nodes))
	for i, n := range s.Nodes {
		addrs[i] = n.Addr(side)
	}
	return addrs
}

// ClientOptions names the nodes to clients of one side, one option per node.
func (s *Set) ClientOptions(side Side) []rueidis.ClientOption {
	options := make([]rueidis.ClientOption, len(s.Nodes))
	for i, n := range s.Nodes {
		options[i] = rueidis.ClientOption{InitAddress: []string{n.Addr(side)}}
	}
	return options
}

// Silence silences the nodes with these indexes to one side. Clients of the other side notice nothing.
func (s *Set) Silence(ctx context.Context, side Side, nodes ...int) error {
	return atOnce(nodes, func(i int) error { return s.Nodes[i].Silence(ctx, side) })
}

// Clear clears every node, see [Node.Clear].
func (s *Set) Clear(ctx context.Context) error {
	return atOnce(s.Nodes, func(n *Node) error { return n.Clear(ctx) })
}

// create makes the node's networks and its container, attaches all of them while the container does not run yet, and
// starts it.
func (n *Node) create(ctx context.Context, image string, labels map[string]string, args []string) error {
	for side := range n.networks {
		nw, addr, err := newNetwork(ctx, labels)
		if err != nil {
			return err
		}
		n.networks[side] = attachment{network: nw.ID, name: nw.Name, addr: addr}
	}
	first := n.networks[0]
	ctr, err := testcontainers.Run(ctx, image,
		testcontainers.WithNoStart(),
		testcontainers.WithLabels(labels),
		testcontainers.WithCmd(slices.Concat([]string{"redis-server", "--save", "", "--appendonly", "no", "--protected-mode", "no"}, args)...),
		testcontainers.WithHostConfigModifier(func(hc *container.HostConfig) { hc.NetworkMode = container.NetworkMode(first.name) }),
		testcontainers.WithEndpointSettingsModifier(func(endpoints map[string]*network.EndpointSettings) {
			endpoints[first.name] = first.endpoint()
		}))
	if err != nil {
		return err
	}
	n.id = ctr.GetContainerID()
	for side := 1; side < len(n.networks); side++ {
		if err := n.attach(ctx, Side(side)); err != nil {
			return err
		}
	}
	if err := n.Start(ctx); err != nil {
		return fmt.Errorf("%w%s", err, n.lastWords(ctx))
	}
	return nil
}

// lastWords is what a node that did not start has logged.
func (n *Node) lastWords(ctx context.Context) string {
	logs, err := n.engine.ContainerLogs(ctx, n.id, client.ContainerLogsOptions{ShowStdout: true, ShowStderr: true, Tail: "20"})
	if err != nil {
		return ""
	}
	defer logs.Close()
	text, _ := io.ReadAll(io.LimitReader(logs, 4<<10))
	return "\nits log ends:\n" + string(text)
}
