package redlock_test

import (
	"context"
	"fmt"
	"sync"
	"testing"
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
				if (testing.Short() || redlock.RaceDetector) && k > 32 || row.handOver > handOver && k > 8 {
					continue
				}
				t.Run(fmt.Sprintf("%s, %d nodes, %d contenders", row.name, nodes, k), func(t *testing.T) {
					perHandOver, rounds := 0.0, 1
					if k == 2 {
						rounds = 8 // one hand-over alone is what the draw of its messages makes of it
					}
					for round := range rounds {
						seed := uint64(k + 1000*round)
						seedRandom(t, seed)
						synctest.Test(t, func(t *testing.T) {
							cluster := redlocktest.NewCluster(t, nodes, redlocktest.Seed(seed), redlocktest.Jitter(latency/10, latency))
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
							each = took / time.Duration(alive)
							scripts := (float64(spent)/float64(nodes) - idle) / float64(alive)
							t.Logf("%d served in %v, %v each; %.2f scripts per hand-over and node, %.2f but for idle ones", alive, took, each, float64(spent)/float64(nodes*alive), scripts)
							perHandOver += scripts / float64(rounds)
							var closing sync.WaitGroup
							for _, l := range lockers {
								closing.Go(l.Close)
							}
							closing.Wait()
							wg.Wait()
						})
					}
					if row.handOver == 0 { // by polling, it costs polls; and while a dead one is waited for, too
						assert.LessOrEqual(t, perHandOver, 4.5+4*float64(row.dead), "scripts for a hand-over and node")
					}
				})
			}
		}
	}
}

// slow is the context of a call that gets to run late, whenever it looks at it.
type slow struct{ context.Context }

func (s slow) Done() <-chan struct{} {
	time.Sleep(20 * time.Millisecond)
	return s.Context.Done()
}

// Schedule: calls 0 to 3 of one Locker wait, and no hold takes any time. 2 is told to ask when 0 is served, and is slow:
// 1 is served and 3 is told before the questions of 2 have left. No node knows that 2 is before 3.
func TestScheduleASlowCallKeepsItsPlaceInItsLocker(t *testing.T) {
	for _, nodes := range []int{1, 3, 4, 5} {
		t.Run(fmt.Sprint(nodes, " nodes"), func(t *testing.T) {
			interleave(t, nodes, func(t *testing.T, s *schedule) {
				l := s.open("a")
				g := tryAcquire(t, l, "x")
				var order []int // of guards: nobody holds at one time with another
				var wg sync.WaitGroup
				for i := range 4 {
					ctx := context.Background()
					if i == 2 {
						ctx = slow{ctx}
						time.Sleep(15 * time.Millisecond)
					}
					wg.Go(func() {
						g, err := l.Acquire(ctx, "x")
						require.NoError(t, err)
						order = append(order, i)
						require.NoError(t, g.Release(context.Background()))
					})
					synctest.Wait()
				}
				release(t, g)
				wg.Wait()
				require.Equal(t, []int{0, 1, 2, 3}, order)
			})
		})
	}
}

// Schedule: two calls of one Locker begin to wait at one instant, while the lock is held elsewhere. The second is in line on
// the nodes one round trip after the first: a hold that ends then is followed by both of them, and by no newcomer.
func TestScheduleTheSecondOfALockerLinesUpBehindTheFirst(t *testing.T) {
	interleave(t, 3, func(t *testing.T, s *schedule) {
		a, b, c := s.open("a"), s.open("b"), s.open("c")
		g := tryAcquire(t, a, "x")
		ctx, cancel := context.WithCancel(context.Background())
		var wg sync.WaitGroup
		for range 3 {
			wg.Go(func() { b.Acquire(ctx, "x") })
		}
		time.Sleep(4*oneWay + oneWay/2)
		line, err := c.Inspect(ctx, "x")
		require.NoError(t, err)
		require.Equal(t, 2, line.Waiters)
		cancel()
		wg.Wait()
		release(t, g)
	})
}

func silence(c *redlocktest.Client) {
	for _, l := range c.Links() {
		l.Silence()
	}
}

// commands returns how many scripts the nodes have executed, but for the trials of keepers, which are sent by source.
func commands(c *redlocktest.Cluster) (n int) {
	for _, node := range c.Nodes() {
		n += node.Commands()["EVALSHA"]
	}
	return n
}
