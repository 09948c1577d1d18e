// Package redlock is a distributed lock over N independent Redis nodes, with rueidis underneath.
//
// A name is held by whoever has the votes of a quorum, N/2+1 of all N nodes. A held lock is a [Guard]: it is extended
// in the background, and its context ends the moment the quorum is gone, with a cause that says why.
//
//	guard, err := locker.Acquire(ctx, "cron:purge") // ctx bounds the wait
//	if err != nil {
//		return err
//	}
//	defer guard.Release(ctx)
//	return purge(guard.Context(), guard.FencingToken())
//
// # Promise
//
//   - Exclusion: no two guards of one name are alive at once, as each one's own [Guard.Err] judges at the moment it is
//     called.
//   - Continuity: a guard that was below a quorum for a moment is dead for good. While it is alive nobody else has held
//     the lock, ever.
//   - Fencing: tokens of one name rise from holder to holder.
//   - Liveness: a dead holder costs the others at most one lease, [LockerOption].KeyValidity; a dead waiter one lease, but
//     at least 180 ms and at most 1.8 s. A minority of nodes that are slow, silent or dead costs nothing.
//   - Of simultaneous [Locker.TryAcquire] on a free lock one wins, while nodes are healthy.
//
// Exclusion and continuity hold while these do:
//
//   - clocks, the client's and the nodes', run at rates that differ by less than DriftFactor (10 %);
//   - a node's clock makes no step larger than ClockBound (a twentieth of the lease) between two looks at it;
//   - no node runs twice under one address, is rolled back to a snapshot, or evicts keys;
//   - a majority of the set's members remembers who they are, and the restart quarantine is on, or no node loses a write;
//   - members that SetNodes was told are off for good are off, or come back without their memory.
//
// # What it does not promise
//
// No lock of this kind keeps a process from sleeping between its look at the lock and its act: a garbage collection, a
// paused virtual machine, a packet that waits in a queue. By the time it acts, somebody else may hold the lock. Only the
// resource can refuse it, by the fencing token: it rejects a token smaller than the largest it has seen
// (https://martin.kleppmann.com/2016/02/08/how-to-do-distributed-locking.html). Where correctness depends on the lock,
// pass [Guard.FencingToken] along and have it checked. Where a rare second run is only waste, the lock alone will do.
//
// The tokens themselves rise also where the assumptions above fail, unless a node's memory is lost and node clocks
// disagree by more than a lease.
//
// Locks are not reentrant. Who waits is served in the order in which the waits began, among programs too, but that is
// an aim and not a promise: see docs/waiting.md.
//
// A lock with [AtLeast] is kept from others after it is over, by the nodes' memory alone: what they lose of it is forgotten,
// and then a job may run twice in one tick. It promises nothing about two at a time that a lock without it does not.
//
// # Formula
//
// Each node that voted yes stores the owner, a random value of this one attempt, for one lease. That is a claim, and it
// is counted for less than the node keeps it:
//
//	claim ends  = sent + lease·(1 − drift) − bound
//	guard valid = until the q-th latest end among its claims
//
// Sent is read before the request can leave, drift is DriftFactor, bound is ClockBound. With the defaults that is 8.5 of
// 10 s. It is Redlock's
//
//	MIN_VALIDITY = TTL − (T2 − T1) − CLOCK_DRIFT
//
// (https://redis.io/docs/latest/develop/clients/patterns/distributed-locks/), taken for each node rather than once for
// all: a claim bounds only its own key, so the guard lives as long as any q of them do. Any two quorums share a node,
// and one node never stores two owners.
//
// # One lock's life
//
//	  0.000  Acquire: every node is asked at once, in one round trip
//	         |  raise the fence, store the owner for 10 s, unless another one is there
//	  q yes  granted: at the third of five; the others are counted when they come, or released
//	         |
//	~ 3.3 s  every vote is renewed, valid until 8.5 s after this; ~ 6.6 s again, and so on
//	         |  a push from a node says that the key changed: look again
//	         |  a vote is lost: nothing, while q others stand; it is won back at a renewal
//	         |
//	 end     Release: deleted on every node, returns when q have confirmed
//	         or lost: below q by answer, by push, or by the clock; Context is done, deleted on every node
//
// # What loses a lock
//
//   - No answer from a quorum until the validity is over: a partition, dead nodes, a process that was stopped. The
//     guard ends by its own clock, which counts the time that the machine was suspended. No node needs to be asked.
//   - The key is gone on so many nodes that less than a quorum is left: deleted, flushed, restarted without data.
//   - [Locker.ForceAcquire] by somebody else. The cause then matches [ErrTakenOver] beside [ErrLost].
//   - Its time is over: [AtMost], [FixedLease]. The cause matches [ErrHeldTooLong] and not ErrLost.
//   - A node's clock jumped, so that its votes do not count any more, and no quorum is left without them.
//
// A node that answers an error (BUSY, LOADING, OOM), or does not answer, does not lose the lock: its vote counts until
// its claim ends, and is asked for again meanwhile, for all guards together where the node refuses everybody.
//
// # Nodes
//
// A node is one Redis (6.2 or later) or Valkey, or the primary that Sentinel leads to; never a Redis Cluster. Nodes know
// nothing of each other. One that restarts without its data may have forgotten a vote, so it grants nothing for the
// longest lease in use: the restart quarantine. That holds for brand-new nodes too: the first locks of a new set of
// nodes are granted one lease after the first look at them, or after [Locker.Init].
//
// Who the members are stands in a record that they keep; a program's list says where to look for them. [Locker.SetNodes] changes it,
// while programs with the old list and with the new one run.
//
// # Concurrency
//
// Everything is safe for concurrent use. A Locker has one connection per node, a goroutine that keeps it and up to three that
// wait for what is to be sent, and one goroutine and one timer for all guards together. [Locker.Close] ends all of it, and waits for that.
package redlock
