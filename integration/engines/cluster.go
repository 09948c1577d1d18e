package engines

import (
	"strconv"
	"testing"
	"time"

	"github.com/redlock-go/redlock/internal/redisproc"
	"github.com/redlock-go/redlock/internal/redisproc/redistest"
)

// StartCluster starts the smallest Redis Cluster that works: one node with all slots. It returns when the cluster
// serves every key.
func StartCluster(t testing.TB) *redisproc.Node {
	t.Helper()
	// Not on a unix socket: clients of a cluster dial the addresses it tells them.
	node := redistest.Start(t, redisproc.Options{TCP: true, Args: []string{"--cluster-enabled", "yes"}})
	addSlots := []string{"CLUSTER", "ADDSLOTS"} // ADDSLOTSRANGE came with 7.0
	for slot := range 16384 {
		addSlots = append(addSlots, strconv.Itoa(slot))
	}
	if _, err := node.Do(addSlots...); err != nil {
		t.Fatalf("engines: giving the node its slots: %v", err)
	}
	await(t, "the cluster is up", func() error {
		_, err := node.Do("GET", "any")
		return err
	})
	return node
}

// settleTimeout bounds the waiting for servers to agree with each other.
const settleTimeout = time.Minute

// await tries a step until it gives no error.
func await(t testing.TB, what string, step func() error) {
	t.Helper()
	err := step()
	for end := time.Now().Add(settleTimeout); err != nil; err = step() {
		if time.Now().After(end) {
			t.Fatalf("engines: waiting until %s: %v", what, err)
		}
		time.Sleep(20 * time.Millisecond)
	}
}
