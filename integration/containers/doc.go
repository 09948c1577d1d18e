// Package containers runs Redis nodes in containers, so that tests can take them away in ways a process on this machine
// cannot be taken away: frozen, gone, empty after a restart, or cut off from one client and not from another.
//
// # Use
//
//	func TestMain(m *testing.M) { os.Exit(containers.Main(m)) }
//
//	func TestSomething(t *testing.T) {
//		set := containers.Start(t, containers.Options{Sides: 2})
//		west := set.ClientOptions(containers.West) // goes into LockerOption.Nodes
//		east := set.ClientOptions(containers.East)
//		require.NoError(t, set.Silence(ctx, containers.West, 3, 4)) // west sees 0, 1, 2
//		require.NoError(t, set.Silence(ctx, containers.East, 0, 1)) // east sees 2, 3, 4
//		...
//		require.NoError(t, set.Clear(ctx))
//	}
//
// # Addresses
//
// Each node has one bridge network of its own per side, and is dialed at its address in that network, never through a
// published port. Cutting a node from a network takes that address away from it: packets vanish, open connections hang,
// new dials time out, and after [Node.Heal] the same address answers, and open connections go on where they stood. A
// published port does none of this: the engine's proxy for it ends with the network, so the client is told "connection
// refused" at once, and with two networks the port moves to the other one and nothing is cut at all.
//
// Two groups of clients that dial different sides therefore live in two worlds that can be cut apart node by node. The
// price is that the addresses of the engine's bridges must be reachable from the test, which is so on Linux with an
// ordinary engine, and not with one that lives in a virtual machine or runs rootless.
//
// # Environment
//
//   - REDLOCK_NEED_DOCKER=1: a missing engine fails the tests instead of skipping them.
//   - REDLOCK_TEST_IMAGE: the image to run, pulled where it is missing. By default
//     [image.Name] is used, built from the installed redis-server on first use; where
//     none is installed, redis:8.
//   - The engine is found as every docker client finds it (DOCKER_HOST and so on).
//
// # What is left behind
//
// Nothing. A test removes its set when it ends; a process of its own waits for the end of the test process, however it
// ends, and removes what is still there; and the first Start of a run removes what dead runs of this machine could not.
package containers
