package redlock

import (
	"cmp"
	"context"
	"slices"
	"sync"
	"time"

	"github.com/redlock-go/redlock/internal/node"
)

// Line is who holds a lock and who waits for it, as a quorum of nodes said at one moment. It may be out of date when
// it is returned: look, do not decide by it.
type Line struct {
	// Holder is the holder's random id, as in HeldError; empty if nobody has a quorum.
	Holder string
	// Label says who that is, if it does; see the option of that name. So it does of who keeps the lock.
	Label string
	// Kept says that nobody holds the lock any more, and that it is kept from others for Left: AtLeast, or LockDelay.
	Kept bool
	// FencingToken is the holder's, or a larger one that was granted since to another name that shares its counter.
	FencingToken uint64
	// Left is how long the holder's lease lasts if nothing renews it, or longer with AtLeast or LockDelay; the nodes keep the
	// quorum's keys so long.
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
	lines, err := l.inspect(ctx, subject{name: name}, []node.Place{node.LockPlace(l.option.KeyPrefix, name)})
	if err != nil {
		return Line{}, err
	}
	return lines[0], nil
}

// inspect asks every node who holds each of these, and who waits in the one line for them.
func (l *Locker) inspect(ctx context.Context, of subject, places []node.Place) ([]Line, error) {
	seen := make([][]view, len(places))
	e := l.askAll(ctx, of.name, func(ctx context.Context, n *node.Node) (func(), error) {
		views, err := n.Inspect(ctx, places)
		return func() {
			for i, v := range views {
				seen[i] = append(seen[i], viewOf(v))
			}
		}, err
	})
	if e != nil {
		return nil, e
	}
	lines, us := make([]Line, len(places)), l.firstWaiter(of)
	for i := range lines {
		lines[i] = lineOf(seen[i], l.set.Electorate().Quorum, us)
	}
	return lines, nil
}

// askAll asks every node something, at most NodeTimeout, and takes in what each has answered, in their order. The error says
// that too few have, or that ctx has ended.
func (l *Locker) askAll(ctx context.Context, name string, ask func(context.Context, *node.Node) (take func(), err error)) error {
	asking, cancel := context.WithTimeout(ctx, l.option.NodeTimeout)
	defer cancel()
	takes := make([]func(), len(l.nodes))
	errs := make([]error, len(l.nodes))
	var wg sync.WaitGroup
	for i, n := range l.nodes {
		wg.Go(func() { takes[i], errs[i] = ask(asking, n) })
	}
	wg.Wait()
	by := l.set.Electorate()
	e := &QuorumError{Name: name, Quorum: by.Quorum, Nodes: by.Size, kind: ErrNoQuorum}
	for i, err := range errs {
		if err == nil && by.Members[i] {
			takes[i]()
			e.Votes++
			continue
		}
		if err == nil {
			err = errNoMember
		}
		e.Errs = append(e.Errs, l.nodeError(node.Fault{Node: i, Err: err}))
	}
	if e.Votes >= e.Quorum {
		return nil
	}
	if ctx.Err() != nil {
		return node.ContextEnded(ctx, name)
	}
	return e
}

// view is one node's part of a Line.
type view struct {
	owner   string // or keeper
	label   string
	left    time.Duration
	token   uint64
	waiters []string
}

func viewOf(v node.View) view {
	return view{owner: holderOf(v.Value), label: labelOf(v.Value), left: v.Left, token: v.Token, waiters: v.Waiters}
}

// keeper is who has a lock that nobody holds and that is kept.
const keeper = tombstone + "!"

// holderOf returns who has a lock by its value: an owner, or keeper; "" for nobody.
func holderOf(value string) string {
	if isKept(value) {
		return keeper
	}
	if owner := ownerOf(value); owner != tombstone {
		return owner
	}
	return ""
}

// lineOf puts the nodes' views together. What a quorum must have in common is the q-th best of what they say.
func lineOf(views []view, quorum int, us string) Line {
	holders := make(map[string][]view)
	var line Line
	var lengths, positions []int
	for _, v := range views {
		if v.owner != "" {
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
		line.Label, line.Left = votes[0].label, votes[quorum-1].left
		if line.Kept = owner == keeper; !line.Kept {
			line.Holder = owner
		}
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
func (l *Locker) firstWaiter(of subject) string {
	l.mu.Lock()
	defer l.mu.Unlock()
	if p := l.places[of]; p != nil && len(p.waiters()) > 0 {
		return p.waiters()[0].id
	}
	return ""
}
