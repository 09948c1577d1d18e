package main

import (
	"context"
	"fmt"
	"math/rand/v2"
	"sync"
	"syscall"
	"time"

	"github.com/redlock-go/redlock/internal/netproxy"
	"github.com/redlock-go/redlock/internal/redisproc"
)

// breaker breaks things, a minority of nodes at a time but for the phases in which a majority is out of reach, and
// never the memory of more than a minority within one lease.
type breaker struct {
	rng       *rand.Rand // the scheduler's alone
	lease     time.Duration
	nodes     []*redisproc.Node
	processes []*process
	operator  *operator
	rec       *recorder
	say       func(format string, args ...any)
	wg        sync.WaitGroup

	mu       sync.Mutex
	bad      []bool   // nodes that do not vote
	busy     [][]bool // links in use by a fault, by process and node
	down     bool     // a worker process is stopped or dead
	majority bool     // a majority phase is on
	changing bool     // a node has left the set, or is about to
}

func newBreaker(seed uint64, lease time.Duration, nodes []*redisproc.Node, processes []*process, operator *operator, rec *recorder, say func(string, ...any)) *breaker {
	b := &breaker{
		rng: rand.New(rand.NewPCG(seed, 0)), lease: lease, nodes: nodes, processes: processes, operator: operator, rec: rec, say: say,
		bad: make([]bool, len(nodes)),
	}
	for range processes {
		b.busy = append(b.busy, make([]bool, len(nodes)))
	}
	return b
}

func (b *breaker) minority() int { return (len(b.nodes) - 1) / 2 }

// run breaks things until ctx is done, and returns when everything is whole again.
func (b *breaker) run(ctx context.Context) {
	faults := []struct {
		weight int
		start  func(context.Context)
	}{
		{10, b.killNode}, {10, b.flushAll}, {12, b.freezeShort}, {8, b.freezeLong}, {10, b.clientKill}, {8, b.scriptFlush},
		{24, b.breakLinks}, {6, b.silenceNode}, {10, b.stopProcess}, {4, b.killProcess},
		{6, b.changeMembers},
	}
	total := 0
	for _, f := range faults {
		total += f.weight
	}
	nextMajority := now().add(b.between(3*b.lease, 5*b.lease))
	for b.sleep(ctx, b.between(20*time.Millisecond, 350*time.Millisecond)) {
		if now() > nextMajority {
			b.wg.Go(b.majorityOut(ctx))
			nextMajority = now().add(b.between(6*b.lease, 10*b.lease))
			continue
		}
		r := b.rng.IntN(total)
		for _, f := range faults {
			if r -= f.weight; r < 0 {
				f.start(ctx)
				break
			}
		}
	}
	b.wg.Wait()
}

func (b *breaker) between(low, high time.Duration) time.Duration {
	return low + time.Duration(b.rng.Int64N(int64(high-low)))
}

// sleep reports whether it slept all of d.
func (b *breaker) sleep(ctx context.Context, d time.Duration) bool {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-ctx.Done():
		return false
	case <-timer.C:
		return true
	}
}

// note counts a fault and says what it is.
func (b *breaker) note(kind, format string, args ...any) {
	b.rec.fault(kind)
	b.say("%s: "+format, append([]any{kind}, args...)...)
}

// takeNode claims a node for a fault, if a minority of nodes at most is broken with it.
func (b *breaker) takeNode() (i int, ok bool) {
	i = b.rng.IntN(len(b.nodes))
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.majority || b.bad[i] || b.countBad() >= b.minority() {
		return 0, false
	}
	b.bad[i] = true
	return i, true
}

func (b *breaker) countBad() (n int) {
	for _, bad := range b.bad {
		if bad {
			n++
		}
	}
	return n
}

func (b *breaker) giveNode(i int) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.bad[i] = false
}

// forgotten is how long a node counts as broken after it lost its memory: until it votes again, and until all that it
// may have forgotten is over. Since it is among the broken ones so long, no third node can lose its memory within a
// lease.
func (b *breaker) forgotten() time.Duration { return b.lease + b.lease/2 + 500*time.Millisecond }

func (b *breaker) killNode(ctx context.Context) {
	dead := b.between(10*time.Millisecond, 3*b.lease/2)
	i, ok := b.takeNode()
	if !ok {
		return
	}
	b.note("node kill -9, restart empty", "node %d for %v", i, dead)
	b.wg.Go(func() {
		defer b.giveNode(i)
		b.must("kill", b.nodes[i].Kill())
		b.sleep(ctx, dead)
		b.must("start empty", b.nodes[i].CrashEmpty())
		b.sleep(ctx, b.forgotten())
	})
}

func (b *breaker) flushAll(ctx context.Context) {
	i, ok := b.takeNode()
	if !ok {
		return
	}
	b.note("FLUSHALL of a node", "node %d", i)
	b.wg.Go(func() {
		defer b.giveNode(i)
		b.do(i, "FLUSHALL")
		b.sleep(ctx, b.forgotten())
	})
}

func (b *breaker) freezeShort(ctx context.Context) {
	b.freeze(ctx, "node SIGSTOP, shorter than the lease", b.between(b.lease/30, 4*b.lease/5))
}

func (b *breaker) freezeLong(ctx context.Context) {
	b.freeze(ctx, "node SIGSTOP, longer than the lease", b.between(b.lease, 5*b.lease/2))
}

func (b *breaker) freeze(ctx context.Context, kind string, d time.Duration) {
	i, ok := b.takeNode()
	if !ok {
		return
	}
	b.note(kind, "node %d for %v", i, d)
	b.wg.Go(func() {
		defer b.giveNode(i)
		b.must("freeze", b.nodes[i].Freeze())
		b.sleep(ctx, d)
		b.must("thaw", b.nodes[i].Thaw())
	})
}

// whole picks a node that is not broken, for a fault that costs no vote.
func (b *breaker) whole() (i int, ok bool) {
	i = b.rng.IntN(len(b.nodes))
	b.mu.Lock()
	defer b.mu.Unlock()
	return i, !b.bad[i]
}

func (b *breaker) clientKill(context.Context) {
	if i, ok := b.whole(); ok {
		b.note("CLIENT KILL of all clients of a node", "node %d", i)
		b.wg.Go(func() { b.do(i, "CLIENT", "KILL", "TYPE", "normal") })
	}
}

func (b *breaker) scriptFlush(context.Context) {
	if i, ok := b.whole(); ok {
		b.note("SCRIPT FLUSH", "node %d", i)
		b.wg.Go(func() { b.do(i, "SCRIPT", "FLUSH") })
	}
}

// silenceNode keeps all bytes from or to a node back, for everybody.
func (b *breaker) silenceNode(ctx context.Context) {
	d := b.between(b.lease/10, 2*b.lease)
	direction := b.direction()
	i, ok := b.takeNode()
	if !ok {
		return
	}
	links := b.takeLinks(nil, []int{i})
	b.note("network: node silent for all", "node %d, %s, for %v", i, words(direction), d)
	b.wg.Go(func() {
		defer b.giveNode(i)
		for _, l := range links {
			l.Silence(direction)
		}
		b.sleep(ctx, d)
		for _, l := range links {
			l.Heal(netproxy.Both)
		}
		b.giveLinks(links)
	})
}

// link is one process's way to one node, claimed by a fault.
type link struct {
	*netproxy.Link
	process, node int
}

// takeLinks claims the links between one process, or all, and some nodes, those that no other fault has.
func (b *breaker) takeLinks(process *int, nodes []int) []link {
	b.mu.Lock()
	defer b.mu.Unlock()
	var links []link
	for p := range b.processes {
		if process != nil && *process != p {
			continue
		}
		for _, n := range nodes {
			if !b.busy[p][n] {
				b.busy[p][n] = true
				links = append(links, link{b.processes[p].links[n], p, n})
			}
		}
	}
	return links
}

func (b *breaker) giveLinks(links []link) {
	b.mu.Lock()
	defer b.mu.Unlock()
	for _, l := range links {
		b.busy[l.process][l.node] = false
	}
}

func (b *breaker) direction() netproxy.Direction {
	return []netproxy.Direction{netproxy.Requests, netproxy.Replies, netproxy.Both}[b.rng.IntN(3)]
}

func words(d netproxy.Direction) string {
	return map[netproxy.Direction]string{netproxy.Requests: "requests", netproxy.Replies: "replies", netproxy.Both: "both ways"}[d]
}

// breakLinks breaks the network between one worker process and some nodes, or all.
func (b *breaker) breakLinks(ctx context.Context) {
	p := b.rng.IntN(len(b.processes))
	count := 1 + b.rng.IntN(len(b.nodes))
	if b.rng.IntN(2) == 0 {
		count = 1 + b.rng.IntN(b.minority())
	}
	nodes := b.rng.Perm(len(b.nodes))[:count]
	d := b.between(b.lease/20, b.lease)
	if b.rng.IntN(4) == 0 {
		d = b.between(b.lease, 5*b.lease/2)
	}
	direction := b.direction()
	slow, jitter := b.between(time.Millisecond, b.lease/6), b.between(time.Millisecond, b.lease/10)
	kinds := []string{"silence", "silence", "silence, all lost", "cut", "reset", "delay", "refuse"}
	kind := kinds[b.rng.IntN(len(kinds))]
	links := b.takeLinks(&p, nodes)
	if len(links) == 0 {
		return
	}
	label := "network of a process: " + kind
	if kind == "silence" && direction != netproxy.Both {
		label += ", one way"
	}
	proc := b.processes[p]
	b.note(label, "process %s, nodes %v, %s, for %v", proc.name, nodes, words(direction), d)
	b.wg.Go(func() {
		w := window{from: now(), process: proc.name}
		defer func() {
			b.giveLinks(links)
			b.rec.broke(w)
		}()
		each := func(f func(l link)) {
			for _, l := range links {
				f(l)
			}
		}
		switch kind {
		case "silence", "silence, all lost":
			each(func(l link) { l.Silence(direction) })
		case "cut":
			each(func(l link) { l.Cut() })
			return
		case "reset":
			each(func(l link) { l.Reset() })
			return
		case "delay":
			each(func(l link) {
				l.Delay(direction, slow, func() time.Duration { return rand.N(jitter) })
			})
		case "refuse":
			each(func(l link) { l.Refuse(); l.Reset() })
		}
		b.sleep(ctx, d)
		each(func(l link) {
			switch kind {
			case "silence, all lost":
				l.HealLosing(direction)
			case "refuse":
				b.must("accept", again(l.Accept))
			}
			l.Clear()
		})
	})
}

// again tries for a while: somebody else may have been given the port of a link that refused.
func again(f func() error) (err error) {
	for deadline := now().add(slack); now() < deadline; time.Sleep(20 * time.Millisecond) {
		if err = f(); err == nil {
			return nil
		}
	}
	return err
}

// takeProcess claims a worker process, one at a time, so that the others go on.
func (b *breaker) takeProcess() (p *process, ok bool) {
	p = b.processes[b.rng.IntN(len(b.processes))]
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.down {
		return nil, false
	}
	b.down = true
	return p, true
}

func (b *breaker) giveProcess() {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.down = false
}

func (b *breaker) stopProcess(ctx context.Context) {
	d, kind := b.between(b.lease/10, b.lease), "worker process SIGSTOP, shorter than the lease"
	if b.rng.IntN(2) == 0 {
		d, kind = b.between(b.lease, 3*b.lease), "worker process SIGSTOP, longer than the lease"
	}
	p, ok := b.takeProcess()
	if !ok {
		return
	}
	b.note(kind, "process %s for %v", p.name, d)
	b.wg.Go(func() {
		defer b.giveProcess()
		w := window{from: now(), process: p.name, stopped: true}
		p.signal(syscall.SIGSTOP)
		b.sleep(ctx, d)
		w.to = now()
		p.signal(syscall.SIGCONT)
		b.rec.broke(w)
	})
}

func (b *breaker) killProcess(ctx context.Context) {
	d := b.between(10*time.Millisecond, b.lease)
	p, ok := b.takeProcess()
	if !ok {
		return
	}
	b.note("worker process kill -9, start again", "process %s after %v", p.name, d)
	b.wg.Go(func() {
		defer b.giveProcess()
		w := window{from: now(), process: p.name, stopped: true}
		p.kill()
		b.sleep(ctx, d)
		b.must("start again", p.spawn(b.rec.died))
		b.rec.broke(w)
	})
}

// majorityOut puts a majority of nodes out of everybody's reach: stopped, or silent. No memory is lost.
func (b *breaker) majorityOut(ctx context.Context) func() {
	order := b.rng.Perm(len(b.nodes))
	want := b.minority() + 1 + b.rng.IntN(b.minority()+1)
	d := b.between(b.lease/4, 5*b.lease/2)
	stop := b.rng.IntN(2) == 0
	direction := b.direction()

	var mine []int
	b.mu.Lock()
	b.majority = true
	total := b.countBad()
	for _, i := range order {
		if !b.bad[i] && total < want {
			b.bad[i] = true
			mine = append(mine, i)
			total++
		}
	}
	b.mu.Unlock()

	kind := "majority of nodes silent for all"
	if stop {
		kind = "majority of nodes SIGSTOP"
	}
	b.note(kind, "nodes %v, %s, for %v", mine, words(direction), d)
	return func() {
		w := window{from: now()}
		var links []link
		if stop {
			for _, i := range mine {
				b.must("freeze", b.nodes[i].Freeze())
			}
		} else {
			links = b.takeLinks(nil, mine)
			for _, l := range links {
				l.Silence(direction)
			}
		}
		b.sleep(ctx, d)
		for _, l := range links {
			l.Heal(netproxy.Both)
		}
		b.giveLinks(links)
		for _, i := range mine {
			if stop {
				b.must("thaw", b.nodes[i].Thaw())
			}
			b.giveNode(i)
		}
		b.rec.broke(w)
		b.mu.Lock()
		b.majority = false
		b.mu.Unlock()
	}
}

// do runs a command on a node. The node may be broken by the time it arrives.
func (b *breaker) do(i int, args ...string) {
	if _, err := b.nodes[i].Do(args...); err != nil {
		b.say("node %d: %v: %v", i, args, err)
	}
}

// must reports what the soak itself could not do, which is a failure of the run and not of the library.
func (b *breaker) must(what string, err error) {
	if err != nil {
		b.rec.died(fmt.Sprintf("soak: %s: %v", what, err))
	}
}
