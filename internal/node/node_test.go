package node

import (
	"testing"

	"github.com/stretchr/testify/require"
)

// One server and those who wait for it would take turns if all that they ask left together: a call begins whenever there is enough for
// one more. Several servers have each other's time to work in, and a call each for whatever comes up.
func TestCallsAreSharesOfWhatIsAskedOfTheOneNode(t *testing.T) {
	for _, row := range []struct {
		nodes, callers int
		begin          []int // by how many steps one more call has begun
	}{
		{1, 1, []int{1, maxBatch, 2 * maxBatch}},
		{1, 2, []int{1, minShare, 2 * minShare}},
		{1, 60, []int{1, 20, 40}},
		{1, 3000, []int{1, maxBatch, 2 * maxBatch}},
		{3, 60, []int{1, maxBatch, 2 * maxBatch}},
	} {
		var begun []int
		steps := 0
		ns := idleSet()
		ns.nodes = ns.nodes[:row.nodes]
		ns.option.Go = func(func()) bool {
			begun = append(begun, steps)
			return true
		}
		n := ns.nodes[0]
		n.down = nil
		ns.Callers.Store(int32(row.callers))
		for steps = 1; steps <= 3*maxBatch; steps++ {
			require.NoError(t, n.Send(Delivery{Lock: &Lock{}}))
		}
		require.Equal(t, row.begin, begun, "%d nodes, %d callers", row.nodes, row.callers)
	}
}
