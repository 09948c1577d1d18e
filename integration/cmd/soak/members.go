package main

import (
	"context"
	"time"

	"github.com/redis/rueidis"

	"github.com/redlock-go/redlock"
	"github.com/redlock-go/redlock/internal/redisproc"
)

// operator changes who the members of the set are, while all workers list all nodes.
type operator struct {
	locker *redlock.Locker
	nodes  []rueidis.ClientOption
}

func newOperator(nodes []*redisproc.Node, prefix string, lease time.Duration) (*operator, error) {
	o := new(operator)
	for _, n := range nodes {
		o.nodes = append(o.nodes, rueidis.ClientOption{InitAddress: []string{n.Addr()}, DialCtxFn: dialUnix})
	}
	var err error
	o.locker, err = redlock.NewLocker(redlock.LockerOption{KeyValidity: lease, KeyPrefix: prefix, Nodes: o.nodes})
	return o, err
}

// init skips the first quarantine of the nodes.
func (o *operator) init(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, 10*time.Second)
	defer cancel()
	for {
		err := o.locker.Init(ctx)
		if err == nil || ctx.Err() != nil {
			return err
		}
	}
}

// members makes all nodes the members, but for one (-1: all). It repeats the call until that is so: a change that has
// begun while a member is out of reach would keep everybody from their locks. It reports whether it is.
func (o *operator) members(ctx context.Context, without int) bool {
	var to []rueidis.ClientOption
	for i, n := range o.nodes {
		if i != without {
			to = append(to, n)
		}
	}
	for ctx.Err() == nil {
		if o.locker.SetNodes(ctx, redlock.NodeSet{Nodes: to}) == nil {
			return true
		}
		select {
		case <-ctx.Done():
		case <-time.After(20 * time.Millisecond):
		}
	}
	return false
}

// changeMembers has a node leave the set, and join it again a while later. Meanwhile it counts as broken.
func (b *breaker) changeMembers(ctx context.Context) {
	away := b.between(b.lease, 4*b.lease)
	b.mu.Lock()
	changing := b.changing
	b.mu.Unlock()
	if changing {
		return
	}
	i, ok := b.takeNode()
	if !ok {
		return
	}
	b.mu.Lock()
	b.changing = true
	b.mu.Unlock()
	b.note("members change: a node leaves and joins", "node %d for %v", i, away)
	b.wg.Go(func() {
		defer func() {
			b.mu.Lock()
			b.changing = false
			b.mu.Unlock()
			b.giveNode(i)
		}()
		if b.operator.members(ctx, i) {
			b.sleep(ctx, away)
		}
		whole, cancel := context.WithTimeout(context.WithoutCancel(ctx), 30*time.Second) // also when the faults are over
		defer cancel()
		if !b.operator.members(whole, -1) {
			b.rec.died("availability: the members could not be changed back within 30 s")
		}
		b.sleep(ctx, b.forgotten()) // it has joined, and votes after a lease
	})
}
