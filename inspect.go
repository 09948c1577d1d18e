package redlock

import (
	"cmp"
	"context"
	_ "embed"
	"errors"
	"slices"
	"strconv"
	"sync"
	"time"

	"github.com/redis/rueidis"
)

//go:embed lua/inspect.lua
var luaInspect string

// Line is who holds a lock and who waits for it, as a quorum of nodes said at one moment. It may be out of date when
// it is returned: look, do not decide by it.
type Line struct {
	// Holder is the holder's random id, as in HeldError; empty if nobody has a quorum.
	Holder string
	// FencingToken is the holder's, or a larger one that was granted since to another name that shares its counter.
	FencingToken uint64
	// Left is how long the holder's lease lasts if nothing renews it; the nodes keep the quorum's keys so long.
	Left time.Duration
	// Waiters is how many wait in line on the nodes, at most two for each Locker: its further calls stand behind those,
	// and come to the nodes when one has been served.
	Waiters int
	// Position is where the first waiter of this Locker stands in that line: 1 is next, 0 is not waiting.
	Position int
}

// Inspect asks every node who holds the named lock and who waits for it. It changes nothing.
//
// The error matches ErrNoQuorum and carries a *QuorumError if too few nodes answered within NodeTimeout, or ctx.Err()
// if ctx ended first.
func (l *Locker) Inspect(ctx context.Context, name string) (Line, error) {
	if err := l.ready(ctx, name); err != nil {
		return Line{}, err
	}
	asking, cancel := context.WithTimeout(ctx, l.option.NodeTimeout)
	defer cancel()
	views := make([]view, len(l.nodes))
	errs := make([]error, len(l.nodes))
	var wg sync.WaitGroup
	for i, n := range l.nodes {
		wg.Go(func() { views[i], errs[i] = n.inspect(asking, name) })
	}
	wg.Wait()

	var seen []view
	e := &QuorumError{Name: name, Quorum: quorumOf(len(l.nodes)), Nodes: len(l.nodes), kind: ErrNoQuorum}
	for i, err := range errs {
		if err == nil {
			seen = append(seen, views[i])
			continue
		}
		e.Errs = append(e.Errs, &NodeError{l.nodes[i].addr, err})
	}
	if e.Votes = len(seen); e.Votes >= e.Quorum {
		return lineOf(seen, e.Quorum, l.firstWaiter(name)), nil
	}
	if ctx.Err() != nil {
		return Line{}, contextEnded(ctx, name)
	}
	return Line{}, e
}

// view is one node's part of a Line.
type view struct {
	owner   string
	left    time.Duration
	token   uint64
	waiters []string
}

func (n *node) inspect(ctx context.Context, name string) (view, error) {
	n.mu.Lock()
	client, down := n.client, n.down
	n.mu.Unlock()
	if down != nil {
		return view{}, down
	}
	prefix := n.l.option.KeyPrefix
	reply, err := client.Do(ctx, client.B().Eval().Script(luaInspect).Numkeys(2).
		Key(lockKey(prefix, name), queueKey(prefix, name)).Arg(fenceKey(prefix, name), n.l.wakePrefix).Build()).ToArray()
	if err != nil {
		if re := (*rueidis.RedisError)(nil); errors.As(err, &re) {
			return view{}, err
		}
		return view{}, nodeFault(err)
	}
	if len(reply) < 3 {
		return view{}, errors.New("reply is not one of ours")
	}
	value, err1 := reply[0].ToString()
	left, err2 := reply[1].AsInt64()
	token, err3 := reply[2].ToString()
	if err := errors.Join(err1, err2, err3); err != nil {
		return view{}, err
	}
	v := view{owner: ownerOf(value), left: time.Duration(left) * time.Millisecond}
	v.token, _ = strconv.ParseUint(token, 10, 64)
	for _, w := range reply[3:] {
		id, err := w.ToString()
		if err != nil {
			return view{}, err
		}
		v.waiters = append(v.waiters, id)
	}
	return v, nil
}

// lineOf puts the nodes' views together. What a quorum must have in common is the q-th best of what they say.
func lineOf(views []view, quorum int, us string) Line {
	holders := make(map[string][]view)
	var line Line
	var lengths, positions []int
	for _, v := range views {
		if v.owner != "" && v.owner != tombstone {
			holders[v.owner] = append(holders[v.owner], v)
		}
		lengths = append(lengths, len(v.waiters))
		if i := slices.Index(v.waiters, us); us != "" && i >= 0 {
			positions = append(positions, i+1)
		}
	}
	for owner, votes := range holders {
		if len(votes) < quorum {
			continue
		}
		slices.SortFunc(votes, func(a, b view) int { return cmp.Compare(b.left, a.left) })
		line.Holder, line.Left = owner, votes[quorum-1].left
		slices.SortFunc(votes, func(a, b view) int { return cmp.Compare(b.token, a.token) })
		line.FencingToken = votes[quorum-1].token
	}
	slices.Sort(lengths)
	line.Waiters = lengths[(len(lengths)-1)/2]
	if len(positions) > 0 {
		slices.Sort(positions)
		line.Position = positions[(len(positions)-1)/2]
	}
	return line
}

// firstWaiter returns the id of the call of this Locker that stands in line on the nodes, "" for none.
func (l *Locker) firstWaiter(name string) string {
	l.mu.Lock()
	defer l.mu.Unlock()
	if p := l.places[name]; p != nil && len(p.waiters) > 0 {
		return p.waiters[0].id
	}
	return ""
}
