// Soak lets worker processes contend for locks on five real redis-server processes while it breaks servers, network
// and workers at random, and judges in the end whether the library kept its promises.
//
//	soak                    a minute, with a random seed
//	soak -duration 1h       longer
//	soak -seed 7            the faults of seed 7 again; how they fall together is the machine's
//	soak -break fence       a run that must fail: the register accepts stale writes
//	soak -break lock        a run that must fail: each worker process has locks of its own
//
// Faults stay within what the library assumes: at any time a minority of nodes has lost its memory. Phases in which
// nobody reaches a quorum are part of it, and so are changes of the members: a node leaves the set and joins it again. Beside locks there is a semaphore, each slot of which is judged as a lock, and all of them
// by how many guards are alive at once; and a reader-writer lock, of which nobody may read while somebody writes. What they protect is a register in this process that rejects a fencing
// token smaller than one it has seen. Workers speak to it over a unix socket and tell it, too, what they saw of their
// guards. All instants are CLOCK_MONOTONIC, which the processes of a host share.
//
// It exits with 1 if a promise was broken, and with 2 if it could not run.
package main
