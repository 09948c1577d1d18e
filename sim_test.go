package redlock_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"runtime"
	"runtime/debug"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"testing/cryptotest"
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

func lockKeyOf(name string) string { return simPrefix + ":{" + name + "}" }

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
	forces                                float64 // share of calls that take over
	closes                                float64 // share of calls that close the Locker
	quarantineOff                         bool
	poach                                 bool // somebody tries again and again, so that the end of a lease is met
	sparse                                bool // programs look at their guards seldom
}

var profiles = []profile{
	{name: "quiet", nodes: []int{1, 3, 4, 5, 7}, quiet: true},
	{name: "minority", nodes: []int{3, 4, 5, 7}, majority: true, silence: 2, cut: 2, freeze: 2, crash: 1, restart: 1, flush: .5, scripts: 2, tracking: .5, refuse: 1, closes: .01},
	{name: "network", nodes: []int{1, 3, 5, 5, 7}, late: .03, silence: 4, cut: 3, partition: 1, closes: .01},
	{name: "nodes", nodes: []int{3, 4, 5, 7}, cut: 1, freeze: 2, crash: 1, restart: 1, flush: .5, scripts: 2, tracking: 1, refuse: 2, closes: .01},
	{name: "clocks", nodes: []int{1, 1, 3}, silence: 5, drift: 2, step: 5, stops: 1, poach: true},
	{name: "stops", nodes: []int{1, 3, 3, 5}, late: .05, stops: 8, silence: 2, cut: 1, sparse: true},
	{name: "force", nodes: []int{1, 3, 3, 5}, late: .03, silence: 3, cut: 2, partition: 1, stops: 3, forces: .35, closes: .01},
	{name: "losses", nodes: []int{3, 5}, late: .03, crash: 2, flush: 1, stops: 4, silence: 3, forces: .05},
	{name: "all", nodes: []int{3, 4, 5, 7}, late: .02, silence: 2, cut: 1, partition: 1, freeze: 1, crash: .5, restart: .5, flush: .3, scripts: 1, tracking: .5, refuse: 1, drift: 1, step: 1, stops: 3, forces: .1, closes: .02},
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

	orderSlack time.Duration // by how much who began later may be served first
	outlives   time.Duration // by how much a key may outlive its owner

	stopping chan struct{} // no new calls
	broken   chan struct{} // closed at the first violation

	mu        sync.Mutex
	locks     map[string]*lockHistory
	open      []*asked
	ill       []int           // by node: faults under way that let nothing happen there
	healthy   []time.Duration // since when not
	nextID    int
	acts      int
	losses    int
	refusals  int
	violation *violation
	over      bool
	forgotten bool // more than a minority has lost its memory at one time: who is left may be taken for another set

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
	cryptotest.SetGlobalRandom(t, seed)
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
	if chance(r, .3) {
		base = 200*time.Millisecond + upTo(r, 1800*time.Millisecond)
	}
	s.leases = []time.Duration{base}
	if chance(r, .3) {
		s.leases = append(s.leases, 2*base)
	}
	s.longest = slices.Max(s.leases)
	s.bound = base / 20
	s.outlives = s.longest/4 + s.longest*12/10 + 4*s.bound + 200*time.Millisecond
	if s.profile.late > 0 || s.profile.stops > 0 {
		s.outlives += 4 * s.longest // "not after" is as lax as the slowest answer that told the node's clock
	}
	s.orderSlack = 8*s.latency + time.Millisecond
	s.stopping, s.broken = make(chan struct{}), make(chan struct{})
	s.ill, s.healthy = make([]int, n), make([]time.Duration, n)
	s.names = []string{"a", "b", forcedName}[:1+r.IntN(3)]
	s.locks = map[string]*lockHistory{}
	s.taken = map[time.Duration]bool{}
	for _, name := range s.names {
		s.locks[name] = &lockHistory{}
	}
	s.cluster = redlocktest.Start(n, redlocktest.Seed(s.seed), redlocktest.Jitter(s.latency/10, s.latency))
	defer s.cluster.Close()

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
				a := &actor{sim: s, host: h, from: l, r: s.source(2, number)}
				actors.Go(a.work)
			}
		}
	}
	faults.Go(func() { // a brand-new set settles first: who it is made of is not agreed on before
		s.sleep(3 * s.longest)
		s.faults(&faults)
	})
	s.every(&faults, s.longest/3, s.audit)
	if s.profile.poach {
		h := s.newHost("P", 0)
		s.hosts = append(s.hosts, h)
		a := &actor{sim: s, host: h, from: h.newLocker(0), r: s.source(2, 99)}
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
				s.violated(a.host.name, a.name, "every waiter ends", "%s asked at %v has not come back, %v after all faults", a.call, a.began, limit)
			}
			s.mu.Unlock()
		}
		if s.violation == nil {
			s.fresh()
		}
	}
	s.mu.Lock()
	s.over = true
	s.mu.Unlock()
	for _, h := range s.hosts {
		for _, l := range h.lockers {
			l.close()
		}
	}
	<-done
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
	if n := len(s.open); n > 0 {
		within = max(within, 3*time.Second) // they died waiting: skipped within 2 s
	}
	for _, name := range s.names {
		ctx, cancel := context.WithTimeout(context.Background(), 10*within)
		g, err := l.Acquire(ctx, name)
		cancel()
		s.mu.Lock()
		took := time.Since(begin)
		s.note(h.name, name, "fresh", fmt.Sprint(took, " ", err))
		if (err != nil || took > within) && !(s.forgotten && errors.Is(err, redlock.ErrDisagreement)) {
			s.violated(h.name, name, "liveness", "with all faults off a fresh Acquire took %v (%v), want at most %v", took, err, within)
		}
		s.mu.Unlock()
		if g != nil {
			g.Release(context.Background())
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
	for !a.stopping() {
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
	for range a.r.IntN(burstsOf) {
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
		ask := a.sim.invoke(a.host, a.sim.names[0], "TryAcquire", false, false)
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
	switch p := r.Float64(); {
	case name == forcedName && chance(r, .3):
		ask := s.invoke(a.host, name, "ForceAcquireNow", false, true)
		g, err := locker.ForceAcquireNow(ctx, name)
		return a.got(ask, locker, ctx, g, err)
	case chance(r, s.profile.forces):
		limit(.2)
		ask := s.invoke(a.host, name, "ForceAcquire", false, true)
		g, err := locker.ForceAcquire(ctx, name)
		return a.got(ask, locker, ctx, g, err)
	case p < .3:
		ask := s.invoke(a.host, name, "TryAcquire", false, false)
		g, err := locker.TryAcquire(ctx, name)
		return a.got(ask, locker, ctx, g, err)
	case p < .7:
		limit(.4)
		ask := s.invoke(a.host, name, "Acquire", true, false)
		g, err := locker.Acquire(ctx, name)
		return a.got(ask, locker, ctx, g, err)
	case p < .85:
		limit(.5)
		ask := s.invoke(a.host, name, "Do", true, false)
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
		})
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
		ask := s.invoke(a.host, name, "WithContext", true, false)
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
	switch p := r.Float64(); {
	case a.brief || p < .2:
	case p < .6:
		end = end.Add(upTo(r, lease/3))
	default:
		end = end.Add(upTo(r, 3*lease))
	}
	for {
		if !s.act(l, chance(r, .5)) || a.stopping() || !time.Now().Before(end) {
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

// delays draws how long messages of a host take.
func (s *sim) delays(h *simHost) {
	if s.profile.late == 0 {
		return
	}
	for i, l := range h.client.Links() {
		hook := func(way uint64) func() time.Duration {
			r := s.source(4, uint64(h.index), uint64(i), way)
			return func() time.Duration {
				if chance(r, s.profile.late) && time.Since(s.start) > 3*s.longest {
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
	sick := func(i, by int) {
		s.mu.Lock()
		defer s.mu.Unlock()
		s.ill[i] += by
		s.healthy[i] = time.Since(s.start)
	}

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
		s.forgotten = s.forgotten || empty > s.cluster.Len()-s.cluster.Len()/2-1
	}

	poisson(p.silence, func(r *rand.Rand) {
		h := host(r)
		i, _ := node(r)
		l := h.client.Link(i)
		on := []func(){l.Silence, l.SilenceRequests, l.SilenceReplies}[r.IntN(3)]
		heal := []func(){l.Heal, l.HealLosing}[r.IntN(2)]
		during(r, fmt.Sprintf("silence %s-%d", h.name, i), func() { on(); sick(i, 1) }, func() { heal(); sick(i, -1) })
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
		h.client.Link(i).Cut()
	})
	poisson(p.partition, func(r *rand.Rand) {
		h := host(r)
		var cut []*redlocktest.Link
		for i, l := range h.client.Links() {
			if chance(r, .6) {
				cut = append(cut, l)
				sick(i, 1)
				defer sick(i, -1)
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
		if chance(r, .5) {
			s.note("", "", "fault", fmt.Sprintf("crash node %d, empty", i))
			forgets()
			n.CrashEmpty()
			return
		}
		during(r, fmt.Sprintf("node %d is off, comes back empty", i), n.Stop, func() { forgets(); n.CrashEmpty(); n.Accept() })
	})
	poisson(p.restart, func(r *rand.Rand) {
		i, n := node(r)
		s.note("", "", "fault", fmt.Sprintf("restart node %d", i))
		n.Restart()
	})
	poisson(p.flush, func(r *rand.Rand) {
		i, n := node(r)
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
		message := []string{"BUSY Redis is busy running a script.", "OOM command not allowed when used memory > 'maxmemory'.", "NOPERM this user has no permissions to run the 'evalsha' command", "LOADING Redis is loading the dataset in memory"}[r.IntN(4)]
		during(r, fmt.Sprintf("%.5s on node %d", message, i), func() { n.Fail("EVALSHA", message) }, func() { n.Recover("EVALSHA") })
	})
	s.clockFaults(poisson)
	poisson(p.stops, func(r *rand.Rand) {
		h := host(r)
		d := s.longest/4 + upTo(r, 5*s.longest/2)
		s.note(h.name, "", "fault", fmt.Sprintf("stopped for %v", d))
		h.stop()
		wg.Go(func() {
			select {
			case <-time.After(d):
			case <-s.stopping:
			}
			s.note(h.name, "", "fault", "goes on")
			h.resume()
		})
	})
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
		s.cluster.Node(i).JumpClock(d)
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
		s.cluster.Node(i).JumpClock(d)
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
	type tally struct{ seeds, lives, losses, refusals, acts int }
	byProfile := map[string]*tally{}
	lives, refusals := 0, 0
	virtual := time.Duration(0)
	cpu := cpuTime()
	seeds := uint64(66)
	if raceDetector {
		seeds = 33
	}
	for _, seed := range seedsOf(t, os.Getenv("REDLOCK_SIM_SEEDS"), seeds) {
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
// until two runs are alike.
func TestSimulationRepeats(t *testing.T) {
	if raceDetector {
		t.Skip("the race detector shuffles the scheduler; `make sim` runs this without it")
	}
	for seed := range uint64(22) { // every profile twice
		t.Run(strconv.FormatUint(seed, 10), func(t *testing.T) {
			runs := []*sim{simulate(t, seed)}
			for range 4 {
				again := simulate(t, seed)
				if slices.ContainsFunc(runs, func(s *sim) bool { return s.fingerprint() == again.fingerprint() }) {
					return
				}
				t.Logf("seed %d differs:\n%s", seed, runs[0].firstDifference(again))
				runs = append(runs, again)
			}
			require.Fail(t, "no two runs of one seed are alike")
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
