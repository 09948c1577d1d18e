// Package engines gives tests the kinds of servers that a node can be: plain ones, started here or named from outside,
// one behind Sentinel, and one of a Redis Cluster, which the library has to refuse.
//
// # Which server
//
//   - REDLOCK_TEST_ADDRS=host:port,host:port,...: the nodes of [Nodes] are these, which
//     somebody else runs: another version, Valkey, KeyDB, on another machine. Tests must
//     use keys of their own there, for nothing is flushed.
//   - REDLOCK_REDIS_SERVER=program: what is started in place of redis-server, everywhere.
package engines
