package redlock_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"regexp"
	"runtime"
	"runtime/debug"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/redlock-go/redlock"
	"github.com/redlock-go/redlock/redlocktest"
)

// The simulation: the whole library over simulated nodes, under virtual time, with everything drawn from a seed:
// workload, network, faults. sim_history_test.go says what must be true; sim_host_test.go stops client hosts.
//
//	REDLOCK_SIM_SEEDS=17 go test -run TestSimulation$ .         17 seeds from 0
//	REDLOCK_SIM_SEEDS=17-17 go test -run TestSimulation$ -v .   seed 17 alone
//	REDLOCK_SIM_TRACE=1                                         with what goes over the wire, and the library's log

const (
	simPrefix  = "sim"
	burstsOf   = 60    // lives at most
	forcedName = "now" // taken with ForceAcquireNow too: its holders may overlap
)

// profile is what a run suffers from: how many faults of each kind per virtual second, and what is promised then.
type profile struct {
	name     string
	nodes    []int
	quiet    bool // nothing happens: no lock may be lost, and waiters are served in order
	majority bool // only a minority of nodes is ill: no lock may be lost, no call fails for it
	outside  bool // outside the assumptions: only what the fencing tokens promise

	late                                  float64 // share of messages that are late by up to two leases
	silence, cut, partition               float64
	freeze, crash, restart, flush, delete float64
	scripts, tracking, refuse             float64
	drift, step, jump                     float64
	stops                                 float64
	stalls                                float64 // a whole machine stands still, its clock too, as it does while it is migrated
	forces                                float64 // share of calls that take over
	holds                                 float64 // share of calls that give their lock options of its own: sim_holds_test.go
	closes                                float64 // share of calls that close the Locker
	quarantineOff                         bool
	poach                                 bool // somebody tries again and again, so that the end of a lease is met
	sparse                                bool // programs look at their guards seldom
	rollout                               bool // programs with three leases, and no word on the longest; some call Init
	skewed                                bool // nodes' clocks are apart, within the bound
	crowd                                 bool // everybody tries at the same moments, as cron jobs do; half of the run is calm
	slots                                 bool // the names are semaphores
	rw                                    bool // the names are reader-writer locks
	several                               bool // most calls want several of the names as one: sim_several_test.go
	twice                                 bool // every other program lists the first node a second time, instead of the last
	members                               bool // operators change who the members are, and programs list some of the nodes: sim_members_test.go
	steady                                bool // one change at a time, and then a pause, as docs/roster.md asks for: no lock may be lost
}

var profiles = []profile{
	{name: "quiet", nodes: []int{1, 3, 4, 5, 7}, quiet: true},
	{name: "minority", nodes: []int{3, 4, 5, 7}, majority: true, silence: 2, cut: 2, freeze: 2, crash: 1, restart: 1, flush: .5, scripts: 2, tracking: .5, refuse: 1, closes: .01},
	{name: "network", nodes: []int{1, 3, 5, 5, 7}, late: .03, silence: 4, cut: 3, partition: 1, closes: .01, holds: .1},
	{name: "nodes", nodes: []int{3, 4, 5, 7}, cut: 1, freeze: 2, crash: 1, restart: 1, flush: .5, scripts: 2, tracking: 1, refuse: 2, closes: .01, holds: .1},
	{name: "clocks", nodes: []int{1, 1, 3}, silence: 5, drift: 2, step: 5, stops: 1, poach: true, holds: .1},
	{name: "stops", nodes: []int{1, 3, 3, 5}, late: .05, stops: 8, silence: 2, cut: 1, sparse: true, holds: .1},
	{name: "force", nodes: []int{1, 3, 3, 5}, late: .03, silence: 3, cut: 2, partition: 1, stops: 3, forces: .35, closes: .01, holds: .1},
	{name: "losses", nodes: []int{3, 5}, late: .03, crash: 2, flush: 1, stops: 4, silence: 3, forces: .05, holds: .1},
	{name: "all", nodes: []int{3, 4, 5, 7}, late: .02, silence: 2, cut: 1, partition: 1, freeze: 1, crash: .5, restart: .5, flush: .3, scripts: 1, tracking: .5, refuse: 1, drift: 1, step: 1, stops: 3, forces: .1, closes: .02, holds: .1},
	{name: "rollout", nodes: []int{1, 3, 5}, rollout: true, skewed: true, silence: 2, cut: 1, stops: 1, forces: .1, closes: .02, holds: .1},
	{name: "crowd", nodes: []int{3, 3, 5}, crowd: true, skewed: true, late: .02, silence: 2, restart: .5, stops: 1},
	{name: "twice", nodes: []int{3, 3, 4, 5}, twice: true, silence: 2, cut: 2, freeze: .5, restart: .5, stops: 1, forces: .05, closes: .05, holds: .1},
	{name: "slots, quiet", nodes: []int{1, 3, 4, 5}, slots: true, quiet: true},
	{name: "slots, minority", nodes: []int{3, 4, 5}, slots: true, majority: true, silence: 2, cut: 2, freeze: 2, crash: 1, restart: 1, flush: .5, scripts: 2, tracking: .5, refuse: 1, closes: .01},
	{name: "slots, all", nodes: []int{3, 4, 5}, slots: true, late: .02, silence: 2, cut: 1, partition: 1, freeze: 1, crash: .5, restart: .5, flush: .3, scripts: 1, tracking: .5, drift: 1, step: 1, stops: 3, forces: .1, closes: .02},
	{name: "rw, quiet", nodes: []int{1, 3, 4, 5}, rw: true, quiet: true},
	{name: "rw, minority", nodes: []int{3, 4, 5}, rw: true, majority: true, silence: 2, cut: 2, freeze: 2, crash: 1, restart: 1, flush: .5, scripts: 2, tracking: .5, refuse: 1, closes: .01},
	{name: "rw, all", nodes: []int{3, 4, 5}, rw: true, late: .02, silence: 2, cut: 1, partition: 1, freeze: 1, crash: .5, restart: .5, flush: .3, scripts: 1, tracking: .5, drift: 1, step: 1, stops: 3, closes: .02},
	{name: "members, steady", nodes: []int{3, 3, 4, 5}, members: true, steady: true},
	{name: "members, ill", nodes: []int{3, 3, 4, 5}, members: true, late: .01, silence: 2, cut: 1, partition: .5, freeze: .5, crash: 1, restart: .5, flush: .5, scripts: .5, stops: 2, forces: .05, closes: .03, holds: .1},
	{name: "several, quiet", nodes: []int{1, 3, 3, 4}, several: true, quiet: true},
	{name: "several, minority", nodes: []int{3, 4, 5}, several: true, majority: true, silence: 2, cut: 2, freeze: 2, crash: 1, restart: 1, flush: .5, scripts: 2, tracking: .5, refuse: 1, closes: .01},
	{name: "several, all", nodes: []int{3, 4, 5}, several: true, late: .02, silence: 2, cut: 1, partition: 1, freeze: 1, crash: .5, restart: .5, flush: .3, scripts: 1, tracking: .5, drift: 1, step: 1, stops: 3, forces: .1, closes: .02},
	{name: "outside: machines stand still", nodes: []int{3, 5}, outside: true, late: .02, silence: 2, stalls: 3, stops: 1, forces: .1},
	{name: "outside: clocks jump", nodes: []int{3, 5}, outside: true, late: .02, silence: 2, jump: 4, stops: 2, forces: .1},
	{name: "outside: memory lost, keys deleted", nodes: []int{3, 5}, outside: true, quarantineOff: true, late: .02, silence: 2, crash: 2, flush: 1, delete: 4, stops: 2, forces: .1},
}

// sim is one run.
type sim struct {
	t       testing.TB
	seed    uint64
	profile profile
	tracing bool
	cluster *redlocktest.Cluster
	start   time.Time
	leases  []time.Duration
	longest time.Duration
	bound   time.Duration
	latency time.Duration
	names   []string
	hosts   []*simHost

	calm       time.Duration // until when there are no faults
	orderSlack time.Duration // by how much who began later may be served first
	outlives   time.Duration // by how much a key may outlive its owner

	stopping chan struct{} // no new calls
	broken   chan struct{} // closed at the first violation

	mu          sync.Mutex
	locks       map[string]*lockHistory
	open        []*asked
	ill         []int           // by node: faults under way that let nothing happen there
	healthy     []time.Duration // since when not
	nextID      int
	acts        int
	losses      int
	clockOfActs int // of reader-writer locks
	refusals    int
	violation   *violation
	over        bool
	forgotAt    time.Duration // when a node last lost its memory
	forgotten   bool          // more than a minority has lost its memory at one time: who is left may be taken for another set
	forgetful   []bool        // by node: it is off, and will have lost its memory
	listsMu     sync.Mutex    // of forgetful, lists and operated
	lists       lists
	moving      int           // changes of the members under way
	moved       time.Duration // when the last one ended
	changes     int           // made
	unchanged   int           // and those that came to nothing
	operated    []*redlock.Locker

	takenMu    sync.Mutex
	taken      map[time.Duration]bool // instants at which a timer of the library fires
	takenLimit int                    // how many are remembered before those that have passed are dropped

	eventsMu sync.Mutex
	events   []event
}

var errParentGone = errors.New("the caller went away")

// source is a stream of random numbers for one purpose.
func (s *sim) source(purpose ...uint64) *rand.Rand {
	h := s.seed ^ 0x5851f42d4c957f2d
	for _, p := range purpose {
		h = (h ^ p) * 0x9e3779b97f4a7c15
		h ^= h >> 29
	}
	return rand.New(rand.NewPCG(s.seed, h))
}

func upTo(r *rand.Rand, d time.Duration) time.Duration { return 1 + time.Duration(r.Int64N(int64(d))) }

func chance(r *rand.Rand, p float64) bool { return r.Float64() < p }

// simulate runs one seed.
func simulate(t *testing.T, seed uint64) *sim {
	s := &sim{t: t, seed: seed, profile: profiles[seed%uint64(len(profiles))], tracing: os.Getenv("REDLOCK_SIM_TRACE") != ""}
	defer runtime.GOMAXPROCS(runtime.GOMAXPROCS(1)) // goroutines of one instant take turns
	runtime.GC()
	defer debug.SetGCPercent(debug.SetGCPercent(-1)) // which the collector would mix up
	seedRandom(t, seed)
	alignScheduler()
	synctest.Test(t, func(t *testing.T) {
		s.run()
		synctest.Wait()
	})
	return s
}

// alignScheduler brings the count by which the scheduler takes its turns to the same point of its cycle: on every 61st
// turn the global queue comes first, into which rueidis puts a goroutine whenever it yields (pipe.go, _background), so
// which of two consequences of one instant comes first would depend on all that the process did before.
//
// A goroutine that yields to more than a cycle of others comes back when the cycle ends. How many came before it tells
// how far that was, and as many more turns lead to the same point whatever it was.
func alignScheduler() {
	var others sync.WaitGroup
	var turns atomic.Int64
	for range 2 * 61 {
		others.Go(func() { turns.Add(1) })
	}
	runtime.Gosched()
	toCycleEnd := turns.Load()
	others.Wait()
	for range toCycleEnd {
		others.Go(func() {})
	}
	others.Wait()
}

func (s *sim) run() {
	r := s.source(1)
	s.start = time.Now()
	n := s.profile.nodes[r.IntN(len(s.profile.nodes))]
	s.latency = []time.Duration{200 * time.Microsecond, time.Millisecond, 4 * time.Millisecond}[r.IntN(3)]
	base := 200 * time.Millisecond
	if chance(r, .3) && !s.profile.members { // there are many servers
		base = 200*time.Millisecond + upTo(r, 1800*time.Millisecond)
	}
	s.leases = []time.Duration{base}
	if chance(r, .3) {
		s.leases = append(s.leases, 2*base)
	}
	if s.profile.rollout {
		s.leases = []time.Duration{base, 2 * base, 5 * base}
	}
	s.longest = slices.Max(s.leases)
	s.bound = base / 20
	s.calm = 3 * s.longest // a brand-new set settles first: who it is made of is not agreed on before
	if s.profile.crowd {
		s.calm = 12 * s.longest
	}
	s.outlives = s.longest/4 + s.longest*12/10 + 4*s.bound + 200*time.Millisecond
	if s.profile.late > 0 || s.profile.stops > 0 {
		s.outlives += 4 * s.longest // "not after" is as lax as the slowest answer that told the node's clock
	}
	s.orderSlack = 8*s.latency + time.Millisecond
	s.stopping, s.broken = make(chan struct{}), make(chan struct{})
	servers := n
	if s.profile.members {
		servers += s.drawLists(n)
	}
	s.ill, s.healthy, s.forgetful = make([]int, servers), make([]time.Duration, servers), make([]bool, servers)
	s.names = []string{"a", "b", forcedName}[:1+r.IntN(3)]
	if s.profile.several {
		s.names = []string{"a", "b", "c"} // none is taken by ForceAcquireNow, whose victims hold others, too
	}
	s.locks = map[string]*lockHistory{}
	s.taken = map[time.Duration]bool{}
	for _, name := range s.histories() {
		s.locks[name] = &lockHistory{}
	}
	s.cluster = redlocktest.Start(servers, redlocktest.Seed(s.seed), redlocktest.Jitter(s.latency/10, s.latency))
	defer s.cluster.Close()

	if s.profile.skewed {
		skew := s.source(5)
		for _, n := range s.cluster.Nodes() {
			n.SkewClock(upTo(skew, s.bound*9/10) - s.bound*9/20)
		}
	}

	hosts := 2 + r.IntN(4)
	lasts := 20*s.longest + time.Second
	s.note("", "", "begin", fmt.Sprintf("seed %d, %s: %d nodes, %d hosts, leases %v, bound %v, latency up to %v, names %v", s.seed, s.profile.name, n, hosts, s.leases, s.bound, s.latency, s.names))
	for i := range hosts {
		h := s.newHost(string(rune('A'+i)), i)
		s.hosts = append(s.hosts, h)
		s.delays(h)
	}

	var actors, faults sync.WaitGroup
	number := uint64(0)
	for _, h := range s.hosts {
		for range 1 + r.IntN(2) {
			l := h.newLocker(len(h.lockers))
			for range 1 + r.IntN(2) {
				number++
				a := &actor{sim: s, host: h, from: l, r: s.source(2, number), opts: s.source(6, number)}
				actors.Go(a.work)
			}
		}
	}
	faults.Go(func() {
		s.sleep(s.calm)
		s.faults(&faults)
	})
	if s.profile.rollout {
		faults.Go(s.raiseLease)
	}
	if s.profile.members {
		s.operators(&faults)
	}
	s.every(&faults, s.longest/3, s.audit)
	if s.profile.poach {
		h := s.newHost("P", 0)
		s.hosts = append(s.hosts, h)
		a := &actor{sim: s, host: h, from: h.newLocker(0), r: s.source(2, 99), opts: s.source(6, 99)}
		actors.Go(a.poach)
	}

	s.sleep(lasts)
	close(s.stopping)
	s.note("", "", "faults", "off")
	faults.Wait()
	for _, h := range s.hosts {
		h.resume()
	}
	if s.profile.jump > 0 {
		for _, n := range s.cluster.Nodes() {
			n.SkewClock(0)
		}
		s.sleep(2 * s.longest) // their votes do not count for a lease
	}

	die := r.IntN(3) == 0
	if die {
		for _, h := range s.hosts {
			h.die()
		}
		s.mu.Lock()
		s.over = true
		s.mu.Unlock()
		s.note("", "", "all die", "")
		s.fresh()
	}
	done := make(chan struct{})
	go func() {
		actors.Wait()
		close(done)
	}()
	limit := 3*s.longest + time.Duration(2*number+4)*1200*time.Millisecond
	if !die {
		select {
		case <-done:
		case <-time.After(limit):
			s.mu.Lock()
			for _, a := range s.open {
				if l := a.from.opened(); l != nil {
					for _, n := range l.Status().Nodes {
						s.note(a.host.name, a.name, "status", fmt.Sprintf("%+v", n))
					}
				}
				s.violated(a.host.name, a.name, "every waiter ends", "%s asked at %v has not come back, %v after all faults", a.call, a.began, limit)
			}
			s.mu.Unlock()
		}
		if s.violation == nil {
			s.fresh()
		}
		if s.violation == nil {
			s.forgetting()
		}
	}
	s.mu.Lock()
	s.ticks()
	s.mu.Unlock()
	s.mu.Lock()
	s.over = true
	s.mu.Unlock()
	for _, h := range s.hosts {
		for _, l := range h.lockers {
			l.close()
		}
	}
	for _, l := range s.operated {
		l.Close()
	}
	<-done
	s.mu.Lock()
	for i, node := range s.cluster.Nodes() {
		s.auditEnds(i, node)
	}
	s.mu.Unlock()
	if s.violation == nil && !s.profile.outside {
		time.Sleep(s.outlives + 6*time.Second)
		for i, node := range s.cluster.Nodes() {
			for _, key := range node.Keys() {
				if key != simPrefix+":marker" && !strings.HasPrefix(key, simPrefix+":fence:") {
					s.mu.Lock()
					value, _ := node.Get(key)
					left, leased := node.PTTL(key)
					s.violated("", "", "lease", "node %d still has %s = %q (%v, %v) when nobody is left", i, key, value, left, leased)
					s.mu.Unlock()
				}
			}
		}
	}
}

// raiseLease is an operator who allows the longest of the programs' leases: the set was founded by one of them.
func (s *sim) raiseLease() {
	h := s.newHost("O", 0)
	var l *redlock.Locker
	for l == nil {
		var err error
		if l, err = redlock.NewLockerOn(h.option, h.now, s.apart); err != nil {
			s.note(h.name, "", "no locker", err.Error())
			s.sleep(s.longest / 10)
		}
	}
	defer l.Close()
	for done := false; !done; {
		ctx, cancel := context.WithTimeout(context.Background(), s.longest)
		err := l.SetNodes(ctx, redlock.NodeSet{LongestLease: s.longest})
		cancel()
		s.note(h.name, "", "longest lease", fmt.Sprint(err))
		select {
		case <-s.stopping:
			done = true
		default:
			if done = err == nil; !done {
				s.sleep(s.longest / 10)
			}
		}
	}
}

// sleep waits, but not when the run is broken already.
func (s *sim) sleep(d time.Duration) {
	select {
	case <-time.After(d):
	case <-s.broken:
	}
}

// every calls f again and again until the faults end.
func (s *sim) every(wg *sync.WaitGroup, d time.Duration, f func()) {
	wg.Go(func() {
		for {
			select {
			case <-time.After(d):
				f()
			case <-s.stopping:
				return
			}
		}
	})
}

// fresh is a client that comes when the faults have ended: it gets every lock within the longest lease.
func (s *sim) fresh() {
	h := s.newHost("Z", 0)
	h.option.KeyValidity, h.option.NodeTimeout = s.longest, 0
	if s.profile.members {
		h.option.KeyValidity = min(s.longest, s.roster().Longest)
	}
	l, err := redlock.NewLockerOn(h.option, h.now, s.apart)
	s.mu.Lock()
	split := s.forgotten && errors.Is(err, redlock.ErrDisagreement) // for an operator to mend, by design
	if err != nil && !split {
		s.violated(h.name, "", "liveness", "NewLocker: %v", err)
	}
	s.mu.Unlock()
	if err != nil {
		return
	}
	defer l.Close()
	begin := time.Now()
	within := s.longest + s.longest/5 + 4*s.bound + 3*time.Second/2
	if s.profile.members { // a change that somebody left is finished first, and then who joins is waited for
		within = 2*within + 2*time.Second
	}
	if n := len(s.open); n > 0 {
		within = max(within, 3*time.Second) // they died waiting: skipped within 2 s
	}
	for _, name := range s.names {
		ctx, cancel := context.WithTimeout(context.Background(), 10*within)
		var g *redlock.Guard
		var slots []*redlock.Guard
		if s.profile.slots {
			slots, err = freshSlots(ctx, l, name)
		} else if s.profile.rw {
			slots, err = freshRW(ctx, l, name)
		} else {
			g, err = l.Acquire(ctx, name)
		}
		cancel()
		s.mu.Lock()
		took := time.Since(begin)
		s.note(h.name, name, "fresh", fmt.Sprint(took, " ", err))
		if (err != nil || took > within) && !(s.forgotten && errors.Is(err, redlock.ErrDisagreement)) {
			s.violated(h.name, name, "liveness", "with all faults off a fresh Acquire took %v (%v), want at most %v", took, err, within)
		}
		s.mu.Unlock()
		if g != nil {
			slots = append(slots, g)
		}
		for _, g := range slots {
			g.Release(context.Background())
		}
	}
}

// forgetting asserts that Lockers keep no guard in memory whose lease has run out everywhere, whatever became of it.
func (s *sim) forgetting() {
	time.Sleep(s.outlives)
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, h := range s.hosts {
		for _, l := range h.lockers {
			if locker := l.opened(); locker != nil && locker.OpenGuards() > 0 {
				s.violated(h.name, "", "memory", "a Locker keeps %d guards when nobody has a lock", locker.OpenGuards())
			}
		}
	}
}

// wire traces what goes over a socket.
func (s *sim) wire(h *simHost, node int, way string, b []byte) {
	if s.tracing {
		for line := range bytes.Lines(b) {
			if line = bytes.TrimSpace(line); len(line) > 0 && line[0] != '$' && len(line) < 300 {
				s.note(h.name, "", "wire", fmt.Sprintf("%s%d %q", way, node, line))
			}
		}
	}
}

// actor is a program on a host.
type actor struct {
	sim  *sim
	host *simHost
	from *simLocker
	r    *rand.Rand
	opts *rand.Rand // of locks with options of their own

	brief bool // it is in a burst
}

func (a *actor) gate() bool {
	return a.host.gate(func() time.Duration { return upTo(a.r, time.Millisecond) })
}

// pause sleeps, and then for as long as the host is stopped. It reports whether to go on.
func (a *actor) pause(d time.Duration) bool {
	select {
	case <-time.After(d):
	case <-a.sim.broken:
		return false
	}
	return a.gate()
}

func (a *actor) stopping() bool {
	select {
	case <-a.sim.stopping:
		return true
	case <-a.sim.broken:
		return true
	default:
		return false
	}
}

func (a *actor) work() {
	if !a.pause(upTo(a.r, 20*time.Millisecond)) {
		return
	}
	lease := a.host.option.KeyValidity
	if a.sim.profile.rollout && chance(a.r, .5) {
		if locker, err := a.from.get(); err == nil {
			err = locker.Init(context.Background())
			a.sim.note(a.host.name, "", "init", fmt.Sprint(err))
		}
	}
	for !a.stopping() {
		if a.sim.profile.crowd {
			every := a.sim.longest
			if !a.pause(every-time.Since(a.sim.start)%every+upTo(a.r, a.sim.latency)) || !a.call() {
				return
			}
			continue
		}
		if !a.burst() || !a.call() {
			return
		}
		gap := upTo(a.r, lease/8)
		if chance(a.r, .2) {
			gap = upTo(a.r, lease)
		}
		if !a.pause(gap) {
			return
		}
	}
}

// burst takes locks and gives them back at once, one after the other, as busy workers do: lives in which a release, the
// next question and what is pushed of both cross on the wire.
func (a *actor) burst() bool {
	a.brief = true
	defer func() { a.brief = false }()
	most := burstsOf
	if a.sim.profile.members {
		most /= 6 // there are many servers
	}
	for range a.r.IntN(most) {
		if a.stopping() || !a.call() || !a.pause(upTo(a.r, a.sim.latency)) {
			return false
		}
	}
	return true
}

// poach takes the first lock over and over, as soon as it is free.
func (a *actor) poach() {
	locker, err := a.from.get()
	for err == nil && !a.stopping() && a.pause(upTo(a.r, a.host.option.KeyValidity/50)) {
		ctx := context.Background()
		ask := a.sim.invoke(a.from, a.sim.names[0], "TryAcquire", false, false)
		g, err := locker.TryAcquire(ctx, ask.name)
		if !a.got(ask, locker, ctx, g, err) {
			return
		}
	}
}

// call asks for a lock once, and holds it. It reports whether the host is alive.
func (a *actor) call() bool {
	s, r := a.sim, a.r
	locker, err := a.from.get()
	if err != nil {
		s.note(a.host.name, "", "no locker", err.Error())
		return a.pause(upTo(r, 100*time.Millisecond))
	}
	if !a.gate() {
		return false
	}
	if !a.brief && chance(r, s.profile.closes) {
		s.note(a.host.name, "", "close", strconv.Itoa(a.from.number))
		a.from.close()
		return a.gate()
	}
	if s.profile.members && a.from.takeUnserved() { // there is no use in asking again at once
		if chance(r, .3) {
			s.note(a.host.name, "", "close", strconv.Itoa(a.from.number))
			a.from.close()
		}
		return a.pause(upTo(r, a.host.option.KeyValidity/2))
	}
	name := s.names[r.IntN(len(s.names))]
	ctx, cancel := context.WithCancelCause(context.Background())
	defer cancel(nil)
	limit := func(p float64) {
		if chance(r, p) {
			d := upTo(r, 3*a.host.option.KeyValidity)
			timer := time.AfterFunc(d, func() { cancel(errParentGone) })
			context.AfterFunc(ctx, func() { timer.Stop() })
		}
	}
	if s.profile.slots {
		return a.callSlot(locker, name, ctx, limit)
	}
	if s.profile.rw {
		return a.callRW(locker, name, ctx, limit)
	}
	if s.profile.several && chance(r, .6) {
		return a.callSeveral(locker, ctx, limit)
	}
	p := r.Float64()
	if s.profile.crowd {
		p = 0 // TryAcquire
	}
	switch {
	case name == forcedName && chance(r, .3):
		ask := s.invoke(a.from, name, "ForceAcquireNow", false, true)
		g, err := locker.ForceAcquireNow(ctx, name)
		return a.got(ask, locker, ctx, g, err)
	case chance(r, s.profile.forces):
		limit(.2)
		ask := s.invoke(a.from, name, "ForceAcquire", false, true)
		g, err := locker.ForceAcquire(ctx, name, a.options(ask)...)
		return a.got(ask, locker, ctx, g, err)
	case p < .3:
		ask := s.invoke(a.from, name, "TryAcquire", false, false)
		g, err := locker.TryAcquire(ctx, name, a.options(ask)...)
		return a.got(ask, locker, ctx, g, err)
	case p < .7:
		limit(.4)
		ask := s.invoke(a.from, name, "Acquire", true, false)
		g, err := locker.Acquire(ctx, name, a.options(ask)...)
		return a.got(ask, locker, ctx, g, err)
	case p < .85:
		limit(.5)
		ask := s.invoke(a.from, name, "Do", true, false)
		var l *life
		err := locker.Do(ctx, name, func(held context.Context) error {
			g := redlock.GuardOf(held)
			l = s.granted(ask, a.from, locker, g, a.errOf(held), ctx)
			if !a.gate() {
				return nil
			}
			a.hold(l)
			s.releasing(l)
			return nil
		}, a.options(ask)...)
		if !a.gate() {
			return false
		}
		if l == nil {
			s.failed(ask, a.from, locker, ctx, err)
			return true
		}
		s.finished(l)
		return true
	default:
		limit(.5)
		ask := s.invoke(a.from, name, "WithContext", true, false)
		held, release, err := locker.WithContext(ctx, name)
		if err != nil {
			if !a.gate() {
				return false
			}
			s.failed(ask, a.from, locker, ctx, err)
			return true
		}
		l := s.granted(ask, a.from, locker, redlock.GuardOf(held), a.errOf(held), ctx)
		if !a.gate() {
			return false
		}
		if !a.hold(l) {
			return false
		}
		s.releasing(l)
		release()
		if !a.gate() {
			return false
		}
		s.finished(l)
		return true
	}
}

// errOf is the view of those who only have the context, and derive another.
func (a *actor) errOf(held context.Context) func() error {
	return func() error {
		if held.Err() == nil {
			return nil
		}
		return context.Cause(held)
	}
}

// finished looks at a guard after the call that ends it.
func (s *sim) finished(l *life) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.judge(l) {
		s.violated(l.host.name, l.name, "cause", "guard %d is alive after its release", l.id)
	}
}

// got takes what a call came to, and holds the lock if that is a guard.
func (a *actor) got(ask *asked, locker *redlock.Locker, ctx context.Context, g *redlock.Guard, err error) bool {
	s := a.sim
	if err != nil {
		if !a.gate() {
			return false
		}
		s.failed(ask, a.from, locker, ctx, err)
		return true
	}
	l := s.granted(ask, a.from, locker, g, g.Err, nil)
	if !a.gate() || !a.hold(l) {
		return false
	}
	if !a.brief && chance(a.r, .03) && !s.profile.quiet { // forgotten for a while: lost or not, it is released some time
		if !a.pause(upTo(a.r, 2*a.host.option.KeyValidity)) {
			return false
		}
	}
	if s.profile.rw && !isReading(l.name) && chance(a.r, .3) {
		reader, alive := a.downgrade(l, ctx)
		if !alive || reader != nil && !a.hold(reader) {
			return false
		}
		if reader != nil {
			l, g = reader, reader.guard
		}
	}
	before := s.releasing(l)
	err = g.Release(ctx)
	if !a.gate() {
		return false
	}
	s.releasedAs(l, before, err)
	s.finished(l)
	return true
}

// hold acts for a while under a lock. It reports whether the host is alive.
func (a *actor) hold(l *life) bool {
	s, r := a.sim, a.r
	lease := a.host.option.KeyValidity
	end := time.Now()
	minds := s.profile.holds > 0 && chance(a.opts, .5)
	switch p := r.Float64(); {
	case a.brief || p < .2:
	case p < .6:
		end = end.Add(upTo(r, lease/3))
	default:
		end = end.Add(upTo(r, 3*lease))
	}
	if d := l.terms.ends(); d != 0 && chance(a.opts, .5) { // until it has ended by itself, and on
		end = time.Now().Add(d + lease/4)
	}
	for {
		if !s.actAll(l, chance(r, .5)) || a.stopping() || !time.Now().Before(end) || minds && l.letsGo() {
			return true
		}
		gap := upTo(r, lease/8)
		switch p := r.Float64(); {
		case p < .3: // at the very end of what is counted on
			gap = max(1, time.Until(l.guard.ValidUntil())-upTo(r, lease/20))
			if chance(r, .5) {
				gap = max(1, time.Until(l.guard.ValidUntil())-1)
			}
		case p < .5 || s.profile.sparse:
			gap = upTo(r, lease*3/2)
		}
		if !a.pause(gap) {
			return false
		}
	}
}

// stopped reports whether the time of faults is over.
func (s *sim) stopped() bool {
	select {
	case <-s.stopping:
		return true
	default:
		return false
	}
}

// delays draws how long messages of a host take. Late ones are a fault, and end with the others.
func (s *sim) delays(h *simHost) {
	if s.profile.late == 0 {
		return
	}
	for i, l := range h.links {
		hook := func(way uint64) func() time.Duration {
			r := s.source(4, uint64(h.index), uint64(i), way)
			return func() time.Duration {
				if chance(r, s.profile.late) && time.Since(s.start) > s.calm && !s.stopped() {
					return upTo(r, 2*s.longest)
				}
				return 0
			}
		}
		l.DelayFunc(hook(0), hook(1))
	}
}

// faults lets happen what the profile says, each kind at its own rate.
func (s *sim) faults(wg *sync.WaitGroup) {
	p := s.profile
	kind := uint64(0)
	poisson := func(rate float64, f func(r *rand.Rand)) {
		kind++
		if rate == 0 {
			return
		}
		r := s.source(3, kind)
		wg.Go(func() {
			for {
				select {
				case <-time.After(1 + time.Duration(r.ExpFloat64()/rate*float64(time.Second))):
					f(r)
				case <-s.stopping:
					return
				}
			}
		})
	}
	lasts := func(r *rand.Rand) time.Duration {
		if chance(r, .2) {
			return upTo(r, 3*s.longest)
		}
		return upTo(r, s.longest)
	}
	// during starts a fault, and ends it some time later or with the run.
	during := func(r *rand.Rand, what string, on, off func()) {
		d := lasts(r)
		s.note("", "", "fault", fmt.Sprintf("%s for %v", what, d))
		on()
		wg.Go(func() {
			select {
			case <-time.After(d):
			case <-s.stopping:
			}
			off()
			s.note("", "", "fault", what+" is over")
		})
	}
	node := func(r *rand.Rand) (int, *redlocktest.Node) {
		n := s.cluster.Len()
		if p.majority {
			n -= n/2 + 1
		}
		i := r.IntN(n)
		return i, s.cluster.Node(i)
	}
	host := func(r *rand.Rand) *simHost { return s.hosts[r.IntN(len(s.hosts))] }
	sick := s.sick
	// spared reports whether a node may not lose its memory now.
	spared := func(i int) bool { return p.members && !s.mayForget(i) }

	// forgets notes that a node loses its memory.
	forgets := func() {
		empty := 1
		for _, n := range s.cluster.Nodes() {
			if _, ok := n.Get(simPrefix + ":marker"); !ok {
				empty++
			}
		}
		s.mu.Lock()
		defer s.mu.Unlock()
		s.forgotAt = time.Since(s.start)
		s.forgotten = s.forgotten || !p.members && empty > s.cluster.Len()-s.cluster.Len()/2-1
	}

	poisson(p.silence, func(r *rand.Rand) {
		h := host(r)
		i, _ := node(r)
		l := h.links[i]
		sick := func(by int) { sick(h.servers[i], by) }
		on := []func(){l.Silence, l.SilenceRequests, l.SilenceReplies}[r.IntN(3)]
		heal := []func(){l.Heal, l.HealLosing}[r.IntN(2)]
		during(r, fmt.Sprintf("silence %s-%d", h.name, i), func() { on(); sick(1) }, func() { heal(); sick(-1) })
	})
	poisson(p.cut, func(r *rand.Rand) {
		h := host(r)
		i, n := node(r)
		if chance(r, .3) {
			s.note("", "", "fault", fmt.Sprintf("cut node %d", i))
			n.Cut()
			return
		}
		s.note("", "", "fault", fmt.Sprintf("cut %s-%d", h.name, i))
		h.links[i].Cut()
	})
	poisson(p.partition, func(r *rand.Rand) {
		h := host(r)
		var cut []*redlocktest.Link
		for i, l := range h.links {
			if chance(r, .6) {
				cut = append(cut, l)
				sick(h.servers[i], 1)
				defer sick(h.servers[i], -1)
			}
		}
		during(r, fmt.Sprintf("partition %s from %d nodes", h.name, len(cut)), func() {
			for _, l := range cut {
				l.Silence()
			}
		}, func() {
			for _, l := range cut {
				l.Heal()
			}
		})
	})
	poisson(p.freeze, func(r *rand.Rand) {
		i, n := node(r)
		during(r, fmt.Sprintf("freeze node %d", i), func() { sick(i, 1); n.Freeze() }, func() { n.Thaw(); sick(i, -1) })
	})
	poisson(p.crash, func(r *rand.Rand) {
		i, n := node(r)
		if spared(i) {
			return
		}
		if chance(r, .5) {
			s.note("", "", "fault", fmt.Sprintf("crash node %d, empty", i))
			forgets()
			n.CrashEmpty()
			return
		}
		s.noteForgetful(i, true)
		during(r, fmt.Sprintf("node %d is off, comes back empty", i), n.Stop, func() { forgets(); n.CrashEmpty(); n.Start(); s.noteForgetful(i, false) })
	})
	poisson(p.restart, func(r *rand.Rand) {
		i, n := node(r)
		if spared(i) {
			return
		}
		s.note("", "", "fault", fmt.Sprintf("restart node %d", i))
		n.Restart()
	})
	poisson(p.flush, func(r *rand.Rand) {
		i, n := node(r)
		if spared(i) {
			return
		}
		s.note("", "", "fault", fmt.Sprintf("FLUSHALL node %d", i))
		forgets()
		n.Do("FLUSHALL")
	})
	poisson(p.delete, func(r *rand.Rand) {
		i, n := node(r)
		name := s.names[r.IntN(len(s.names))]
		s.note("", name, "fault", fmt.Sprintf("DEL on node %d", i))
		n.Del(lockKeyOf(name))
	})
	poisson(p.scripts, func(r *rand.Rand) {
		i, n := node(r)
		s.note("", "", "fault", fmt.Sprintf("SCRIPT FLUSH node %d", i))
		n.FlushScripts()
	})
	poisson(p.tracking, func(r *rand.Rand) {
		i, n := node(r)
		during(r, fmt.Sprintf("no tracking on node %d", i), func() { n.RefuseTracking(); n.Cut() }, n.AllowTracking)
	})
	poisson(p.refuse, func(r *rand.Rand) {
		i, n := node(r)
		answers := errorsOf(n)[r.IntN(len(errorsOf(n)))]
		during(r, fmt.Sprintf("%s on node %d", answers.what, i), answers.on, answers.off)
	})
	s.clockFaults(poisson)
	stops := func(what string, resume func(*simHost)) func(*rand.Rand) {
		return func(r *rand.Rand) {
			h := host(r)
			d := s.longest/4 + upTo(r, 5*s.longest/2)
			s.note(h.name, "", "fault", fmt.Sprintf("%s for %v", what, d))
			h.stop()
			wg.Go(func() {
				select {
				case <-time.After(d):
				case <-s.stopping:
				}
				s.note(h.name, "", "fault", "goes on")
				resume(h)
			})
		}
	}
	poisson(p.stops, stops("stopped", (*simHost).resume))
	poisson(p.stalls, stops("its machine stands still", (*simHost).resumeBehind))
}

// sick notes that a fault begins, or ends, that lets nothing happen at a node.
func (s *sim) sick(i, by int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.ill[i] += by
	s.healthy[i] = time.Since(s.start)
}

// answering is a fault that makes a node answer errors.
type answering struct {
	what    string
	on, off func()
}

// errorsOf returns the errors that a node can be made to answer: to everything, to scripts, to writes alone, or to one
// command in the middle of a script, which has run in part by then.
func errorsOf(n *redlocktest.Node) []answering {
	fail := func(message string, commands ...string) answering {
		what, _, _ := strings.Cut(message, ":")
		return answering{fmt.Sprintf("%.30s to %v", what, commands), func() {
			for _, c := range commands {
				n.Fail(c, message)
			}
		}, func() {
			for _, c := range commands {
				n.Recover(c)
			}
		}}
	}
	writes := []string{"SET", "GETEX", "SETRANGE", "DEL", "INCRBY", "PEXPIRE", "ZADD", "ZPOPMIN", "ZREM"}
	const denied = "ERR ACL failure in script: User default has no permissions to run the command"
	list := []answering{
		fail("BUSY Redis is busy running a script.", "EVALSHA", "EVAL", "GET", "SCRIPT LOAD"),
		fail("LOADING Redis is loading the dataset in memory", "EVALSHA", "EVAL", "GET", "SCRIPT LOAD"),
		fail("BUSY Redis is busy running a script.", "EVALSHA"),
		fail("NOPERM this user has no permissions to run the 'evalsha' command", "EVALSHA"),
		fail("MISCONF Redis is configured to save RDB snapshots", writes...),
		fail("READONLY You can't write against a read only replica.", writes...),
		{"OOM", n.FillMemory, n.FreeMemory},
	}
	for _, c := range []string{"SET", "PEXPIRE", "DEL", "INCRBY", "ZPOPMIN", "MGET"} {
		list = append(list, fail(denied, c))
	}
	return list
}

// clockFaults are rates and steps of nodes' clocks, inside the bounds or, by jump, far outside.
func (s *sim) clockFaults(poisson func(float64, func(*rand.Rand))) {
	p := s.profile
	rate := 1.0
	poisson(p.drift, func(r *rand.Rand) { // all alike: apart, nodes could not go on for long
		rate = []float64{1, .92, 1.09, .95, 1.05}[r.IntN(5)]
		s.note("", "", "fault", fmt.Sprintf("node clocks at rate %v", rate))
		for _, n := range s.cluster.Nodes() {
			n.SetClockRate(rate)
		}
	})
	stepped := make([]time.Duration, s.cluster.Len())
	off := make([]time.Duration, s.cluster.Len())
	step := func(i int) {
		now := time.Since(s.start)
		if stepped[i] != 0 && now < stepped[i]+s.longest*5/4 {
			return // one step of a lease
		}
		stepped[i] = now
		d := s.bound * 19 / 20
		if off[i] > 0 {
			d = -d
		}
		off[i] += d
		s.note("", "", "fault", fmt.Sprintf("step node %d's clock by %v", i, d))
		s.cluster.Node(i).StepClock(d)
	}
	poisson(p.step, func(r *rand.Rand) {
		if chance(r, .5) {
			for i := range s.cluster.Len() {
				step(i)
			}
			return
		}
		step(r.IntN(s.cluster.Len()))
	})
	poisson(p.jump, func(r *rand.Rand) {
		i := r.IntN(s.cluster.Len())
		d := upTo(r, 2*s.longest)
		if off[i] > 0 {
			d = -off[i]
		}
		off[i] += d
		s.note("", "", "fault", fmt.Sprintf("node %d's clock jumps by %v", i, d))
		s.cluster.Node(i).StepClock(d)
	})
}

// seedsOf reads REDLOCK_SIM_SEEDS: how many, or which (a-b, or several of either kind).
func seedsOf(t testing.TB, text string, otherwise uint64) (seeds []uint64) {
	if text == "" {
		text = strconv.FormatUint(otherwise, 10)
	}
	words := strings.Fields(text)
	for _, word := range words {
		first, last, isRange := strings.Cut(word, "-")
		a, err := strconv.ParseUint(first, 10, 64)
		require.NoError(t, err, "REDLOCK_SIM_SEEDS=%q: want a count, a range a-b, or several seeds", text)
		b := a
		switch {
		case isRange:
			b, err = strconv.ParseUint(last, 10, 64)
			require.NoError(t, err, "REDLOCK_SIM_SEEDS=%q: want a count, a range a-b, or several seeds", text)
		case len(words) == 1:
			require.NotZero(t, a, "REDLOCK_SIM_SEEDS=%q: no seed at all", text)
			a, b = 0, a-1
		}
		for ; a <= b; a++ {
			seeds = append(seeds, a)
		}
	}
	return seeds
}

func cpuTime() time.Duration {
	var u syscall.Rusage
	syscall.Getrusage(syscall.RUSAGE_SELF, &u)
	return time.Duration(u.Utime.Nano() + u.Stime.Nano())
}

func TestSimulation(t *testing.T) {
	type tally struct{ seeds, lives, losses, refusals, acts, changes, unchanged int }
	byProfile := map[string]*tally{}
	lives, refusals := 0, 0
	virtual := time.Duration(0)
	cpu := cpuTime()
	seeds := uint64(4 * len(profiles))
	if redlock.RaceDetector {
		seeds /= 4 // one a profile; `make sim`, and CI by it, runs them all without it
	}
	tame := regexp.MustCompile(`(quiet|minority|steady)$`)
	for _, seed := range seedsOf(t, os.Getenv("REDLOCK_SIM_SEEDS"), seeds) {
		if redlock.RaceDetector && tame.MatchString(profiles[seed%uint64(len(profiles))].name) {
			continue // others do the same, and break more
		}
		t.Run(strconv.FormatUint(seed, 10), func(t *testing.T) {
			s := simulate(t, seed)
			p := byProfile[s.profile.name]
			if p == nil {
				p = &tally{}
				byProfile[s.profile.name] = p
			}
			p.seeds++
			p.lives += s.nextID
			p.losses += s.losses
			p.refusals += s.refusals
			p.acts += s.acts
			p.changes += s.changes
			p.unchanged += s.unchanged
			lives += s.nextID
			refusals += s.refusals
			virtual += s.events[len(s.events)-1].at
			s.report(t)
		})
	}
	cpu = cpuTime() - cpu
	t.Logf("%d lives and %d refusals in %v of CPU: %.0f and %.0f a second; %v simulated", lives, refusals,
		cpu.Round(time.Millisecond), float64(lives)/cpu.Seconds(), float64(refusals)/cpu.Seconds(), virtual.Round(time.Second))
	for _, p := range profiles {
		if n := byProfile[p.name]; n != nil {
			t.Logf("%-36s %+v", p.name, *n)
		}
	}
}

// report fails the test for a violation, with what led to it.
func (s *sim) report(t *testing.T) {
	t.Helper()
	if s.violation == nil {
		return
	}
	lines := 120
	if s.tracing {
		lines = len(s.events)
	}
	t.Errorf("seed %d, profile %q: %s: %s\n%s\n%s\nagain: REDLOCK_SIM_SEEDS=%d-%d go test -run 'TestSimulation$' .   (REDLOCK_SIM_TRACE=1 for the wire)",
		s.seed, s.profile.name, s.violation.check, s.violation.text, s.events[0], s.story(lines), s.seed, s.seed)
}

// TestSimulationRepeats runs seeds again: a failing seed is worth nothing if it does not fail again.
//
// A run is drawn from its seed but for the order of goroutines within one virtual instant. What could depend on that and
// does not: messages (one goroutine delivers them, in the order of nodes and connections), timers (a bubble fires those
// of one instant in an order that it draws anew each time, hence sim.apart), the garbage collector and a second
// processor (off), and on which turn of the scheduler's cycle of 61, in which it looks at its global queue first, a run
// begins (alignScheduler). One thing is left that no seed governs: a goroutine that the machine, busy with others, kept
// for 10 ms of real time is preempted, and of two consequences of one instant the other comes first. Hence a seed is run
// until two runs are alike. How many runs that takes is the machine's: with eight test suites on two processors, of 21
// seeds run 8 times each, 8 were alike every time, and two had no more than 2 runs alike. What is drawn from anything
// but the seed is alike in none.
func TestSimulationRepeats(t *testing.T) {
	if redlock.RaceDetector {
		t.Skip("the race detector shuffles the scheduler; `make sim` runs this without it")
	}
	if !randomIsSeeded {
		t.Skip("crypto/rand cannot be seeded before Go 1.26")
	}
	for seed := range uint64(len(profiles)) {
		if p := profiles[seed]; p.slots || p.rw || p.members {
			continue // calls of one program, or questions of one SetNodes, go on at one instant, in the order in which Go runs them: some seeds never repeat
		}
		t.Run(strconv.FormatUint(seed, 10), func(t *testing.T) {
			runs := []*sim{simulate(t, seed)}
			for range 39 {
				again := simulate(t, seed)
				if slices.ContainsFunc(runs, func(s *sim) bool { return s.fingerprint() == again.fingerprint() }) {
					return
				}
				t.Logf("seed %d differs:\n%s", seed, runs[0].firstDifference(again))
				runs = append(runs, again)
			}
			require.Fail(t, "no two runs of one seed are alike", "of %d", len(runs))
		})
	}
}

// firstDifference shows where two histories part.
func (s *sim) firstDifference(o *sim) string {
	i := 0
	for i < min(len(s.events), len(o.events)) && s.events[i] == o.events[i] {
		i++
	}
	var b strings.Builder
	show := func(sign string, events []event) {
		for _, e := range events {
			fmt.Fprintf(&b, "%s %s\n", sign, e)
		}
	}
	show(" ", s.events[max(0, i-5):i])
	show("-", s.events[i:min(len(s.events), i+3)])
	show("+", o.events[i:min(len(o.events), i+3)])
	return b.String()
}
