// Package redlocktest simulates independent Redis nodes, and the network to them, for tests of redlock and of programs
// that use it. A real rueidis client speaks RESP3 to them, in the same process and without sockets, so that whole lock
// lives run in a [testing/synctest] bubble under virtual time:
//
//	synctest.Test(t, func(t *testing.T) {
//		cluster := redlocktest.NewCluster(t, 5)
//		locker, err := redlock.NewLocker(cluster.Option())
//		require.NoError(t, err)
//		defer locker.Close()
//		cluster.Node(0).CrashEmpty()
//		cluster.Client("client").Link(1).Silence()
//		time.Sleep(time.Hour) // takes milliseconds
//	})
//
// Outside a test, [Start] and [Cluster.Close] do the same in real time. A cluster made in a bubble stays in it: make it
// there, and let it close there.
//
// # What there is
//
// A [Cluster] has nodes and client hosts. A [Client] is a host with one [Link] to each node; [Cluster.Option] is the
// option of a first one, further clients are made by name, so that a partition between them is a matter of their links:
//
//	cluster.Client("a").Option()           // a redlock.LockerOption
//	cluster.Client("b").Link(2).Silence()  // only b, only node 2
//	cluster.Node(2).Silence()              // everybody
//
// Faults of a node or a link: Delay, DelayFunc, Silence, SilenceRequests, SilenceReplies, Heal, HealLosing, Cut. Of a
// node alone: Refuse, Accept; Stop, Start; Freeze, Thaw; Restart, CrashEmpty; SkewClock, StepClock, SetClockRate,
// StopClock; RefuseTracking, AllowTracking; Fail, Recover; FillMemory, FreeMemory; FlushScripts; Untrack;
// SetActiveExpiry; RequirePassword; SetInfo. To look inside: Get, PTTL, Keys, Tracked, Now, RunID, Commands, Dials,
// Connections. To act as a foreign client: Set, Del, Do. [Cluster.Add] starts another node.
//
// # What a node does as Redis 7.2 does
//
// Strings, sorted sets, expiry by the node's own clock, SCAN, databases, MULTI, Lua scripts with Redis' number formats
// and conversions, HELLO, CLIENT TRACKING in all modes with its pushes, INFO. An expired key goes when it is touched,
// or within 100 ms. One suite runs against these nodes and against redis-server: see conformance_test.go.
//
// # What it does not do
//
// No hashes, lists, sets, streams, pub/sub, WATCH, ACL rules, functions, clusters, replication, persistence (a Restart
// keeps all data), eviction; in Lua no cjson, cmsgpack, struct, bit and no RESP3, and patterns are gopher-lua's, where
// %f and the ^ of gmatch go wrong. A script that never ends is not interrupted. Commands and scripts take no time. A
// socket buffer never fills, so that Write never waits. TLS is not spoken: its configuration is ignored.
//
// # Repeatable runs
//
// Nothing inside depends on map order or on the scheduler, and what is drawn comes from the [Seed]. But goroutines of
// one instant race: where two clients send to one node at the same virtual nanosecond without delay, either may be
// first. With a delay of at least 1 ns on every message (as by [Jitter]) messages of one instant are delivered in the
// order of node, client and connection, and a run in a bubble repeats exactly as long as the program under test is
// itself indifferent to the order of goroutines within one instant. Random delays make such coincidences rare.
package redlocktest
