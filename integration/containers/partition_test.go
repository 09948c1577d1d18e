package containers_test

import (
	"strconv"
	"testing"

	"github.com/redis/rueidis"
	"github.com/stretchr/testify/require"

	"github.com/redlock-go/redlock/integration/containers"
)

// Two groups of clients, each with a majority, and the two majorities are different: west reaches 0, 1, 2 and east
// reaches 2, 3, 4. Only node 2 can tell them of each other.
func TestTwoSidesSeeDifferentMajorities(t *testing.T) {
	set := containers.Start(t, containers.Options{Sides: 2})
	west := dialAll(t, set.Addrs(containers.West))
	east := dialAll(t, set.Addrs(containers.East))
	for i := range set.Nodes {
		do(t, west[i], "SET", "seen", "by west")
		require.Equal(t, "by west", do(t, east[i], "GET", "seen"), "both sides of node %d are one server", i)
	}

	require.NoError(t, set.Silence(t.Context(), containers.West, 3, 4))
	require.NoError(t, set.Silence(t.Context(), containers.East, 0, 1))

	// In one parallel group, so that five silences take the time of one.
	t.Run("cut", func(t *testing.T) {
		for i := range set.Nodes {
			t.Run(strconv.Itoa(i), func(t *testing.T) {
				t.Parallel()
				if i <= 2 {
					do(t, west[i], "SET", "written", "by west")
				} else {
					requireSilent(t, west[i])
				}
				if i >= 2 {
					requireAnswers(t, east[i])
				} else {
					requireSilent(t, east[i])
				}
			})
		}
	})

	require.NoError(t, set.Clear(t.Context()))
	for i := range set.Nodes {
		requireAnswers(t, west[i])
		requireAnswers(t, east[i])
		want := ""
		if i <= 2 {
			want = "by west"
		}
		require.Equal(t, want, get(t, east[i], "written"), "node %d", i)
	}
}

// Clear ends all faults at once, also several on one node.
func TestClear(t *testing.T) {
	set := containers.Start(t, containers.Options{Nodes: 3, Sides: 2})
	frozen, stopped, killed := set.Nodes[0], set.Nodes[1], set.Nodes[2]
	require.NoError(t, frozen.Silence(t.Context(), containers.East))
	require.NoError(t, frozen.Freeze(t.Context()))
	require.NoError(t, stopped.Stop(t.Context()))
	require.NoError(t, stopped.Silence(t.Context(), containers.West))
	require.NoError(t, stopped.Silence(t.Context(), containers.East))
	require.NoError(t, killed.Silence(t.Context(), containers.West))
	require.NoError(t, killed.Kill(t.Context()))

	require.NoError(t, set.Clear(t.Context()))
	require.NoError(t, set.Clear(t.Context()), "nothing left to end")
	for _, side := range []containers.Side{containers.West, containers.East} {
		for _, client := range dialAll(t, set.Addrs(side)) {
			do(t, client, "PING")
		}
	}
}

func dialAll(t *testing.T, addrs []string) []rueidis.Client {
	clients := make([]rueidis.Client, len(addrs))
	for i, addr := range addrs {
		clients[i] = dial(t, addr)
	}
	return clients
}

// get gives nothing for a key that is not there.
func get(t *testing.T, client rueidis.Client, key string) string {
	t.Helper()
	value, err := try(client, patience, "GET", key)
	if rueidis.IsRedisNil(err) {
		return ""
	}
	require.NoError(t, err)
	return value
}
