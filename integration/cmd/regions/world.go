package main

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/redis/rueidis"

	"github.com/redlock-go/redlock"
	"github.com/redlock-go/redlock/internal/netproxy"
	"github.com/redlock-go/redlock/internal/redisproc"
)

// world is five regions with a node in each, and two clients.
type world struct {
	nodes   []*redisproc.Node
	proxies []*netproxy.Proxy
	clients []*client
	locks   int // names used so far
}

// client is a Locker and its way to each region.
type client struct {
	name   string
	trips  []time.Duration // round trips to the regions
	links  []*netproxy.Link
	locker *redlock.Locker
}

const ms = time.Millisecond

// Client A is in region 1, client B in region 4.
func newWorld() (*world, error) {
	w := &world{clients: []*client{
		{name: "A", trips: []time.Duration{1 * ms, 30 * ms, 80 * ms, 150 * ms, 250 * ms}},
		{name: "B", trips: []time.Duration{150 * ms, 140 * ms, 180 * ms, 1 * ms, 110 * ms}},
	}}
	nodes, err := redisproc.StartSet(len(w.clients[0].trips), redisproc.Options{})
	if err != nil {
		return nil, err
	}
	w.nodes = nodes
	for _, n := range nodes {
		w.proxies = append(w.proxies, netproxy.New(n.Network(), n.Addr()))
	}
	for _, c := range w.clients {
		for region, p := range w.proxies {
			link, err := p.Listen()
			if err != nil {
				w.close()
				return nil, err
			}
			c.links = append(c.links, link)
			link.Delay(netproxy.Both, c.trips[region]/2, nil)
		}
	}
	return w, nil
}

// open makes the clients' Lockers, and returns how long A took to skip the first quarantine.
func (w *world) open(ctx context.Context, option redlock.LockerOption) (init time.Duration, err error) {
	for i, c := range w.clients {
		option.Nodes = nil
		for _, l := range c.links {
			option.Nodes = append(option.Nodes, rueidis.ClientOption{InitAddress: []string{l.Addr()}})
		}
		c.locker, err = redlock.NewLocker(option)
		if err != nil {
			return 0, err
		}
		if i > 0 {
			continue
		}
		start := time.Now()
		for {
			if err = c.locker.Init(ctx); err == nil {
				break
			}
			if time.Since(start) > 20*time.Second || ctx.Err() != nil {
				return 0, err
			}
		}
		init = time.Since(start)
	}
	// For a lease and a bit after a node was adopted it grants fencing tokens from a floor of its own, on which a quorum
	// has to agree in a second round. That is over soon, and is not what is to be measured.
	time.Sleep(option.KeyValidity + option.KeyValidity/10)
	return init, w.settle(ctx)
}

func (w *world) close() {
	for _, c := range w.clients {
		if c.locker != nil {
			c.locker.Close()
		}
	}
	for _, p := range w.proxies {
		p.Close()
	}
	for _, n := range w.nodes {
		n.Close()
	}
}

// settle waits until both clients have all nodes.
func (w *world) settle(ctx context.Context) error {
	for _, c := range w.clients {
		for {
			before := time.Now()
			g, err := c.locker.Acquire(ctx, w.lock())
			if err != nil {
				return err
			}
			// A quorum answers first; the others have answered when the slowest round trip is over. What they say is seen
			// in the number of nodes that have the key.
			time.Sleep(time.Until(before.Add(400 * ms)))
			votes := 0
			for _, n := range w.nodes {
				if value, err := n.Do("EXISTS", "redlock:{"+g.Name()+"}"); err == nil && value == "1" {
					votes++
				}
			}
			if err := g.Release(ctx); err != nil {
				return err
			}
			if votes == len(w.nodes) {
				break
			}
		}
	}
	return nil
}

// lock returns a name that nobody has used.
func (w *world) lock() string {
	w.locks++
	return fmt.Sprintf("lock-%d", w.locks)
}

// lose makes a region silent for everybody.
func (w *world) lose(region int) {
	for _, c := range w.clients {
		c.links[region].Silence(netproxy.Both)
	}
}

func (w *world) restore(region int) {
	for _, c := range w.clients {
		c.links[region].Heal(netproxy.Both)
	}
}

// figure is one thing measured, by each client.
type figure struct {
	what string
	by   [2]samples
}

// What is measured.
const (
	acquiring  = "acquire a free lock"
	refusing   = "be refused by the other's lock (`TryAcquire`)"
	extending  = "extend (until the validity has moved on)"
	releasing  = "release"
	takingOver = "take over from the other (`ForceAcquire`)"
	displacing = "the displaced holder's context ends, after the call"
	handingTo  = "hand-over to the other, who waits: from release to granted"
	handingOwn = "hand-over to a waiter in the own process"
)

// measure measures everything.
func (w *world) measure(ctx context.Context, tries int) ([]figure, error) {
	figures, err := w.measureShort(ctx, tries)
	if err != nil {
		return nil, err
	}
	refused, displaced, own := figure{what: refusing}, figure{what: displacing}, figure{what: handingOwn}
	for i, c := range w.clients {
		other := w.clients[1-i]
		for range tries {
			took, err := refusal(ctx, other, c, w.lock())
			if err != nil {
				return nil, err
			}
			refused.by[i] = append(refused.by[i], took)
			_, ended, err := takeover(ctx, other, c, w.lock())
			if err != nil {
				return nil, err
			}
			displaced.by[i] = append(displaced.by[i], ended)
			took, err = handOver(ctx, c, c, w.lock())
			if err != nil {
				return nil, err
			}
			own.by[i] = append(own.by[i], took)
		}
	}
	extended := figure{what: extending}
	for i, c := range w.clients {
		extended.by[i], err = w.extensions(ctx, c, tries)
		if err != nil {
			return nil, err
		}
	}
	return append(figures, refused, extended, displaced, own), nil
}

// short names what is measured with a region lost.
func (w *world) short() []string {
	return []string{"acquire", "release", "take over", "hand-over to the other"}
}

// measureShort measures what short names.
func (w *world) measureShort(ctx context.Context, tries int) ([]figure, error) {
	acquired, released := figure{what: acquiring}, figure{what: releasing}
	taken, handed := figure{what: takingOver}, figure{what: handingTo}
	for i, c := range w.clients {
		other := w.clients[1-i]
		for range tries {
			start := time.Now()
			g, err := c.locker.TryAcquire(ctx, w.lock())
			if err != nil {
				return nil, err
			}
			acquired.by[i] = append(acquired.by[i], time.Since(start))
			rest() // the other answers come in, as they do in a program that holds a lock for some time
			start = time.Now()
			if err := g.Release(ctx); err != nil {
				return nil, err
			}
			released.by[i] = append(released.by[i], time.Since(start))

			took, _, err := takeover(ctx, other, c, w.lock())
			if err != nil {
				return nil, err
			}
			taken.by[i] = append(taken.by[i], took)
			took, err = handOver(ctx, c, other, w.lock())
			if err != nil {
				return nil, err
			}
			handed.by[i] = append(handed.by[i], took)
		}
	}
	return []figure{acquired, released, taken, handed}, nil
}

// rest lets everything that is on its way arrive.
func rest() { time.Sleep(300 * ms) }

// refusal is how long it takes c to be refused what other holds.
func refusal(ctx context.Context, other, c *client, lock string) (time.Duration, error) {
	g, err := other.locker.TryAcquire(ctx, lock)
	if err != nil {
		return 0, err
	}
	defer g.Release(ctx)
	rest()
	start := time.Now()
	_, err = c.locker.TryAcquire(ctx, lock)
	took := time.Since(start)
	if !errors.Is(err, redlock.ErrNotLocked) {
		return 0, fmt.Errorf("%s asked for what %s holds: %v", c.name, other.name, err)
	}
	return took, nil
}

// takeover is how long it takes c to take the lock over from other, and for other's context to end. It is an error if
// c has the lock while other's guard is alive.
func takeover(ctx context.Context, other, c *client, lock string) (took, ended time.Duration, err error) {
	old, err := other.locker.TryAcquire(ctx, lock)
	if err != nil {
		return 0, 0, err
	}
	rest()
	done := make(chan time.Time, 1)
	go func() {
		<-old.Done()
		done <- time.Now()
	}()
	start := time.Now()
	g, err := c.locker.ForceAcquire(ctx, lock)
	took = time.Since(start)
	if err != nil {
		old.Release(ctx)
		return 0, 0, err
	}
	defer g.Release(ctx)
	switch {
	case g.Err() == nil && old.Err() == nil:
		return 0, 0, fmt.Errorf("%s has taken over from %s, whose guard is alive", c.name, other.name)
	case g.FencingToken() <= old.FencingToken():
		return 0, 0, fmt.Errorf("token %d after %d", g.FencingToken(), old.FencingToken())
	case !errors.Is(old.Err(), redlock.ErrTakenOver):
		return 0, 0, fmt.Errorf("displaced, not taken over: %w", old.Err())
	}
	return took, (<-done).Sub(start), nil
}

// handOver is how long it takes from the release of c until other, who waits for it, has the lock.
func handOver(ctx context.Context, c, other *client, lock string) (time.Duration, error) {
	g, err := c.locker.TryAcquire(ctx, lock)
	if err != nil {
		return 0, err
	}
	type outcome struct {
		at  time.Time
		err error
	}
	served := make(chan outcome, 1)
	go func() {
		next, err := other.locker.Acquire(ctx, lock)
		at := time.Now()
		if err == nil {
			err = next.Release(ctx)
		}
		served <- outcome{at, err}
	}()
	rest() // it has asked, and stands in line
	start := time.Now()
	if err := g.Release(ctx); err != nil {
		return 0, err
	}
	o := <-served
	return o.at.Sub(start), o.err
}

// extensions is how long extensions take: from when one is sent until the guard's validity has moved on, which it does
// with the answer of the third node. Validity is counted from when the extension was sent, so it tells when that was.
func (w *world) extensions(ctx context.Context, c *client, tries int) (samples, error) {
	var took samples
	counted := make([]time.Duration, 0, tries)
	var guards []*redlock.Guard
	for range tries {
		before := time.Now()
		g, err := c.locker.TryAcquire(ctx, w.lock())
		if err != nil {
			return nil, err
		}
		defer g.Release(ctx)
		guards, counted = append(guards, g), append(counted, g.ValidUntil().Sub(before))
	}
	rest()
	seen := make([]time.Time, len(guards))
	for i, g := range guards {
		seen[i] = g.ValidUntil()
	}
	for left := len(guards); left > 0; time.Sleep(100 * time.Microsecond) {
		for i, g := range guards {
			until := g.ValidUntil()
			if seen[i].IsZero() || until.Sub(seen[i]) < 50*ms { // the stragglers' answers move it by less
				continue
			}
			took = append(took, time.Since(until.Add(-counted[i])))
			seen[i] = time.Time{}
			left--
		}
		if err := ctx.Err(); err != nil {
			return nil, err
		}
		for _, g := range guards {
			if err := g.Err(); err != nil {
				return nil, err
			}
		}
	}
	return took, nil
}

// event is what happened how long after something else.
type event struct {
	what  string
	after time.Duration
}

const (
	aEnds      = "A's guard ends, by its own clock"
	bServed    = "B has the lock"
	aRefused   = "A's `TryAcquire` of a free lock says `ErrNoQuorum`, after its call"
	aGivesUp   = "A's `Acquire` of another lock gives up with `ErrNoQuorum`"
	aGoesAgain = "after healing, A has a lock again"
)

// partition leaves A, which holds a lock, with regions 1 and 2, and B, which waits for it, with 3, 4 and 5.
func (w *world) partition(ctx context.Context) ([]event, error) {
	a, b := w.clients[0], w.clients[1]
	lock, other := w.lock(), w.lock()
	held, err := a.locker.TryAcquire(ctx, lock)
	if err != nil {
		return nil, err
	}
	served := make(chan error, 1)
	var next *redlock.Guard
	var servedAt time.Time
	go func() {
		next, err = b.locker.Acquire(ctx, lock)
		servedAt = time.Now()
		served <- err
	}()
	rest()

	start := time.Now()
	for _, r := range []int{2, 3, 4} {
		a.links[r].Silence(netproxy.Both)
	}
	for _, r := range []int{0, 1} {
		b.links[r].Silence(netproxy.Both)
	}
	type end struct {
		at  time.Time
		err error
	}
	waited := make(chan end, 1)
	go func() {
		g, err := a.locker.Acquire(ctx, other)
		if err == nil {
			g.Release(ctx)
		}
		waited <- end{time.Now(), err}
	}()
	asked := time.Now()
	_, err = a.locker.TryAcquire(ctx, w.lock())
	refusedAfter := time.Since(asked)
	if !errors.Is(err, redlock.ErrNoQuorum) {
		return nil, fmt.Errorf("asked by A in the minority: %v", err)
	}
	<-held.Done()
	endedAt := time.Now()
	if err := <-served; err != nil {
		return nil, fmt.Errorf("asked by B with the majority: %w", err)
	}
	if servedAt.Before(endedAt) || next.FencingToken() <= held.FencingToken() {
		return nil, fmt.Errorf("granted to B %v after A ended, with token %d after %d", servedAt.Sub(endedAt), next.FencingToken(), held.FencingToken())
	}
	gaveUp := <-waited
	if !errors.Is(gaveUp.err, redlock.ErrNoQuorum) {
		return nil, fmt.Errorf("waited for by A in the minority: %v", gaveUp.err)
	}
	if err := next.Release(ctx); err != nil {
		return nil, err
	}
	healed := time.Now()
	for region := range w.nodes {
		w.restore(region)
	}
	g, err := a.locker.Acquire(ctx, w.lock())
	if err != nil {
		return nil, err
	}
	again := time.Since(healed)
	if held.Err() == nil {
		return nil, errors.New("healing revived A's guard")
	}
	return []event{
		{aRefused, refusedAfter}, {aEnds, endedAt.Sub(start)}, {aGivesUp, gaveUp.at.Sub(start)}, {bServed, servedAt.Sub(start)},
		{aGoesAgain, again},
	}, g.Release(ctx)
}
