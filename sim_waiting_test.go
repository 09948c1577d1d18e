package redlock_test

import (
	"context"
	"fmt"
	"sync"
	"testing"
	"testing/cryptotest"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/redlock-go/redlock"
	"github.com/redlock-go/redlock/redlocktest"
)

// TestSimulationWaiting is contention: who began to wait first is served first, nobody waits longer than the holds
// before it take, and what a hand-over costs does not depend on how many wait.
func TestSimulationWaiting(t *testing.T) {
	const (
		hold     = 20 * time.Millisecond
		latency  = time.Millisecond // one way, at most
		handOver = 6 * latency
	)
	for _, row := range []struct {
		name     string
		faulty   func(c *redlocktest.Cluster, contenders []*redlocktest.Client)
		dead     int           // of 8 contenders, so many vanish while they wait
		gaveUp   int           // and so many are cancelled
		handOver time.Duration // where it takes longer than two round trips
		nodes    []int
	}{
		{name: "all is well", nodes: []int{1, 5}},
		{name: "one node is off", nodes: []int{5}, faulty: func(c *redlocktest.Cluster, _ []*redlocktest.Client) { c.Node(2).Stop() }},
		{name: "one node is frozen", nodes: []int{5}, faulty: func(c *redlocktest.Cluster, _ []*redlocktest.Client) { c.Node(2).Freeze() }},
		{name: "some refuse tracking", nodes: []int{5}, faulty: func(c *redlocktest.Cluster, _ []*redlocktest.Client) {
			c.Node(0).RefuseTracking()
			c.Node(1).RefuseTracking()
		}},
		{name: "no tracking at all", nodes: []int{1, 5}, handOver: time.Second, faulty: func(c *redlocktest.Cluster, _ []*redlocktest.Client) {
			for _, n := range c.Nodes() {
				n.RefuseTracking()
			}
		}},
		{name: "dead waiters", nodes: []int{1, 5}, dead: 2},
		{name: "cancelled waiters", nodes: []int{1, 5}, gaveUp: 3},
	} {
		for _, nodes := range row.nodes {
			for _, k := range []int{2, 8, 32, 100} {
				if (testing.Short() || raceDetector) && k > 32 || row.handOver > handOver && k > 8 {
					continue
				}
				t.Run(fmt.Sprintf("%s, %d nodes, %d contenders", row.name, nodes, k), func(t *testing.T) {
					cryptotest.SetGlobalRandom(t, uint64(k))
					synctest.Test(t, func(t *testing.T) {
						cluster := redlocktest.NewCluster(t, nodes, redlocktest.Seed(uint64(k)), redlocktest.Jitter(latency/10, latency))
						var clients []*redlocktest.Client
						var lockers []*redlock.Locker
						for i := range k {
							clients = append(clients, cluster.Client(fmt.Sprint("c", i)))
						}
						if row.faulty != nil {
							row.faulty(cluster, clients)
						}
						for _, c := range clients {
							o := c.Option()
							o.KeyValidity = 3 * time.Second
							l, err := redlock.NewLocker(o)
							require.NoError(t, err)
							t.Cleanup(l.Close)
							lockers = append(lockers, l)
						}
						// Let all settle: where tracking is refused a client connects twice.
						time.Sleep(time.Second)

						first, err := lockers[0].Acquire(context.Background(), "x")
						require.NoError(t, err)
						var mu sync.Mutex
						var order []int
						var wg, living sync.WaitGroup
						dead := func(i int) bool { return i%8 >= 8-row.dead && i > 0 }
						gaveUp := func(i int) bool { return i%8 >= 8-row.gaveUp && i > 0 }
						alive := 0
						for i := 1; i < k; i++ {
							ctx, cancel := context.WithCancel(context.Background())
							t.Cleanup(cancel)
							switch {
							case dead(i):
								time.AfterFunc(time.Duration(k)*10*latency, func() { silence(clients[i]) })
								time.AfterFunc(time.Hour, cancel)
							case gaveUp(i):
								time.AfterFunc(time.Duration(k)*10*latency, cancel)
							default:
								alive++
								living.Add(1)
							}
							wg.Go(func() {
								g, err := lockers[i].Acquire(ctx, "x")
								if dead(i) || gaveUp(i) {
									require.Error(t, err)
									return
								}
								defer living.Done()
								require.NoError(t, err)
								mu.Lock()
								order = append(order, i)
								mu.Unlock()
								time.Sleep(hold)
								require.NoError(t, g.Err())
								require.NoError(t, g.Release(context.Background()))
							})
							time.Sleep(6 * latency) // in line before the next asks
						}
						time.Sleep(time.Duration(k) * 10 * latency) // the dead have died, the cancelled have left
						time.Sleep(100 * time.Millisecond)
						before := commands(cluster)
						begin := time.Now()
						require.NoError(t, first.Release(context.Background()))
						living.Wait()
						took := time.Since(begin)
						spent := commands(cluster) - before

						last := 0
						for _, i := range order {
							require.Greater(t, i, last, "served out of turn: %v", order)
							last = i
						}
						require.Len(t, order, alive)
						each := max(handOver, row.handOver)
						limit := time.Duration(alive) * (hold + each)
						if row.dead > 0 {
							limit += 2 * time.Second * time.Duration(1+k*row.dead/8) // each is skipped within 2 s
						}
						require.LessOrEqual(t, took, limit, "%d waiters", alive)
						// Per node: an acquire and a release for each, and what the next in line asks once. Beside that everybody
						// asks about once a second to keep its place.
						idle := float64(k) * took.Seconds() / 0.85
						perHandOver := (float64(spent)/float64(nodes) - idle) / float64(alive)
						t.Logf("%d served in %v, %v each; %.2f scripts per hand-over and node, %.2f but for idle ones", alive, took, took/time.Duration(alive), float64(spent)/float64(nodes*alive), perHandOver)
						if row.handOver == 0 { // by polling, it costs polls; and while a dead one is waited for, too
							assert.LessOrEqual(t, perHandOver, 4.5+4*float64(row.dead), "%d scripts for %d hand-overs", spent, alive)
						}
						var closing sync.WaitGroup
						for _, l := range lockers {
							closing.Go(l.Close)
						}
						closing.Wait()
						wg.Wait()
					})
				})
			}
		}
	}
}

func silence(c *redlocktest.Client) {
	for _, l := range c.Links() {
		l.Silence()
	}
}

// commands returns how many scripts the nodes have executed.
func commands(c *redlocktest.Cluster) (n int) {
	for _, node := range c.Nodes() {
		n += node.Commands()["EVALSHA"] + node.Commands()["EVAL"]
	}
	return n
}
