package bench

import (
	"slices"
	"time"

	"github.com/redlock-go/redlock/bench/client"
)

// Section is groups that make one table.
type Section struct {
	Name, Title, Text string
	Groups            []Group
	Columns           []string // figures shown; the JSON has all
}

var (
	overNodes = []string{"redlock", "fan-out", "bare/batch", "bare/fenced", "redsync/rueidis", "redsync/goredis"}
	onOneNode = append(overNodes[:len(overNodes):len(overNodes)], "rueidislock/1", "rueidislock/5", "bsm/redislock")
)

// PeerModules are the modules that peers are from.
var PeerModules = []string{
	"github.com/redis/rueidis", "github.com/redis/go-redis/v9", "github.com/go-redsync/redsync/v4", "github.com/bsm/redislock",
}

// Sections is everything there is to measure.
func Sections() []Section {
	return []Section{pairsSection(), faultsSection(), networkSection(), holdSection(), contendSection(), slotsSection(), readWriteSection(), severalSection()}
}

func pairsSection() Section {
	var groups []Group
	for _, transport := range []string{"tcp", "unix"} {
		for _, set := range []struct {
			nodes   int
			callers []int
		}{
			{1, []int{1, 4, 16, 64}},
			{1, []int{256, 1024}}, // apart: servers and processes that so many have used are slower afterwards
			{3, []int{1, 16, 64}},
			{5, []int{1, 4, 16, 64}},
			{5, []int{256, 1024}},
			{7, []int{64}},
			{9, []int{64}},
		} {
			g := Group{Peers: overNodes, Rounds: 5, Each: 80 * time.Millisecond, open: openPairs, rate: "pairs/s"}
			if set.nodes == 1 {
				g.Peers = onOneNode
			}
			if set.callers[0] >= 256 { // a measurement takes three times as long with so many
				g.Rounds = 3
			}
			for _, callers := range set.callers {
				g.Conditions = append(g.Conditions, Condition{Section: "pairs", Transport: transport, Nodes: set.nodes, Callers: callers})
			}
			groups = append(groups, g)
		}
	}
	return Section{
		Name: "pairs", Title: "Acquire and release, uncontended", Groups: groups,
		Text:    "A pair is one acquisition and one release of a name that nobody else wants. CPU is per pair: of the client's process, and of the servers, per pair and node; where they share cores, as here, their sum bounds the rate. Scripts are EVALSHA commands, per pair and node.",
		Columns: []string{"pairs/s", Ratio, "p50 µs", "p99 µs", "client µs", "server µs", "scripts", "allocs", "failed"},
	}
}

func faultsSection() Section {
	var groups []Group
	for _, nodes := range []int{3, 5} {
		for _, state := range []string{allWell, lastSlow, lastSilent} {
			g := Group{Peers: []string{"redlock", "fan-out", "redsync/rueidis"}, Rounds: 5, Each: 100 * time.Millisecond, open: openPairs, rate: "pairs/s"}
			for _, callers := range []int{1, 16} {
				g.Conditions = append(g.Conditions, Condition{Section: "faults", Transport: "unix", Nodes: nodes, Callers: callers, State: state})
			}
			groups = append(groups, g)
		}
	}
	return Section{
		Name: "faults", Title: "One node slow, one node silent", Groups: groups,
		Text:    "The last node answers 100 ms late, or is stopped with SIGSTOP after it has taken connections. Redsync's Unlock is given a context of 500 ms, as it has no bound of its own.",
		Columns: []string{"pairs/s", Ratio, "p50 µs", "p99 µs", "max µs", "failed"},
	}
}

func networkSection() Section {
	g := Group{Peers: []string{"redlock", "fan-out", "redsync/rueidis", "redsync/goredis"}, Rounds: 5, Each: 100 * time.Millisecond, open: openPairs, rate: "pairs/s"}
	for _, callers := range []int{1, 16, 64, 256} {
		g.Conditions = append(g.Conditions, Condition{Section: "network", Transport: "unix", Nodes: 5, Callers: callers, State: network1ms})
	}
	return Section{
		Name: "network", Title: "Over a network of 1 ms each way", Groups: []Group{g},
		Text:    "Every node is behind a proxy that delays each direction by 1 ms. The proxies share the two cores and are what bounds the rate at 64 callers and more.",
		Columns: []string{"pairs/s", Ratio, "p50 µs", "p99 µs", "client µs", "server µs", "scripts", "allocs", "failed"},
	}
}

func holdSection() Section {
	var groups []Group
	for _, set := range []struct {
		nodes int
		peers []string
		locks []int
	}{
		{3, []string{"redlock"}, []int{1000, 10_000}},
		{3, []string{"redlock", "bare/batch"}, []int{100_000}},
		{1, []string{"redlock", "rueidislock/1"}, []int{10_000}},
	} {
		g := Group{Peers: set.peers, Rounds: 3, Each: client.ExtendInterval, open: openHold, rate: "taken/s"}
		for _, locks := range set.locks {
			g.Conditions = append(g.Conditions, Condition{Section: "hold", Transport: "unix", Nodes: set.nodes, Locks: locks})
		}
		groups = append(groups, g)
	}
	return Section{
		Name: "hold", Title: "Locks held", Groups: groups,
		Text:    "256 callers of one client take the locks, while those taken are renewed; then it only holds them. Lease 10 s, renewed every 3.33 s. Memory is live heap and stacks, per lock; CPU is a share of one core; requests are per node.",
		Columns: []string{"taken/s", "taking client µs", "client %", "requests/s", "B/lock", "goroutines", "failed"},
	}
}

func contendSection() Section {
	return Section{
		Name: "contend", Title: "Contention: hand-over of one lock",
		Groups:  handOvers(Condition{Section: "contend"}, []string{"redlock", "redsync/rueidis", "redsync/eager"}, []string{"rueidislock/1", "bsm/redislock"}, 2, 16),
		Text:    "Each contender is a client of its own, holds for 1 ms and asks again at once. Hand-over is from the call of a release to the return of the next acquisition; worst wait is of one acquisition, also of one that got nothing; shares are the acquisitions a second of the contender with the fewest and of the one with the most; requests are those of all clients to all nodes, per hand-over. redsync/eager and bsm/redislock ask again after 1 to 5 ms and after 3 ms.",
		Columns: []string{"hand-overs/s", "p50 µs", "p99 µs", "max µs", "worst wait ms", "smallest share", "largest share", "requests", "failed"},
	}
}

// handOvers is contenders that hand something over, on one node and on five; some peers know one node only.
func handOvers(c Condition, peers, onlyOnOne []string, contenders ...int) (groups []Group) {
	c.Transport = "unix"
	for _, c.Nodes = range []int{1, 5} {
		g := Group{Peers: peers, Rounds: 3, Each: 500 * time.Millisecond, open: openContend, rate: "hand-overs/s"}
		if c.Nodes == 1 {
			g.Peers = slices.Concat(peers, onlyOnOne)
		}
		for _, c.Contenders = range contenders {
			g.Conditions = append(g.Conditions, c)
		}
		groups = append(groups, g)
	}
	return groups
}

var comparedHandOvers = []string{"hand-overs/s", Ratio, "p50 µs", "p99 µs", "max µs", "worst wait ms", "smallest share", "largest share", "requests", "failed"}

func slotsSection() Section {
	const slots = 4
	return Section{
		Name: "slots", Title: "Semaphore of 4 slots",
		Groups:  handOvers(Condition{Section: "slots", Slots: slots}, []string{"redlock", "redsync/rueidis"}, []string{"redisson/script", "madelson/script"}, slots, 4*slots),
		Text:    "As with the hand-over of one lock; hand-over is from the call of the last release by anybody to the return of an acquisition. redsync/rueidis is a mutex for each slot, tried in turn from a random one, and again after 1 to 5 ms. The scripts are the forms of two semaphores of a single server, bare: redisson/script that of Redisson's RPermitExpirableSemaphore, whose waiters all ask again when a release is published, madelson/script that of distributed-lock-redis and of madelson's DistributedLock, whose waiters ask again, here after 1 to 5 ms. Neither script renews, fences or orders anything.",
		Columns: comparedHandOvers,
	}
}

func readWriteSection() Section {
	return Section{
		Name: "rw", Title: "Reader-writer lock, nine of ten acquisitions read",
		Groups:  handOvers(Condition{Section: "rw", Reads: 9}, []string{"redlock", "redlock/plain", "redsync/eager"}, []string{"redisson/script"}, 8),
		Text:    "As with the hand-over of one lock; hand-over is from the call of the last release by anybody to the return of an acquisition. redlock/plain and redsync/eager are a lock, with which readers keep each other out, too. redisson/script is the form of Redisson's RReadWriteLock, bare: all that wait ask again when the last holder's release is published; it renews, fences and orders nothing, and writers wait for as long as readers come.",
		Columns: comparedHandOvers,
	}
}

func severalSection() Section {
	return Section{
		Name: "several", Title: "Four names as one lock",
		Groups:  handOvers(Condition{Section: "several", Names: 4}, []string{"redlock", "redlock/plain", "redsync/eager"}, []string{"bare/script"}, 4),
		Text:    "As with the hand-over of one lock; all contenders want the same four names. redlock/plain and redsync/eager take four locks, one after the other, in order. bare/script sets all keys or none in one script of one server, and asks again after 1 to 5 ms; it renews, fences and orders nothing.",
		Columns: comparedHandOvers,
	}
}
