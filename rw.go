package redlock

import (
	"cmp"
	"context"
	crand "crypto/rand"
	"fmt"
	"slices"

	"github.com/redlock-go/redlock/internal/node"
)

// RW is a reader-writer lock: many readers at a time, or one writer. [Locker.RW] returns one. It is safe for concurrent use, and
// costs nothing while nobody asks for it.
//
// A guard of it is like any other. Each reader has a lease of its own. All stand in one line: a writer that waits keeps out the
// readers that came after it, and readers next to each other in line enter together, so that nobody starves. A writer's fencing token
// is larger than that of everybody before it, a reader's than that of every writer before it.
//
// It is not reentrant: to read or to write while holding a guard of the same lock waits for that guard, or for a writer that waits for it.
// Only where a reader wants to write is that certain, and refused: [ErrUpgrade]. A writer becomes a reader by [Guard.Downgrade].
//
// The name is its own: a lock or a semaphore of the same name has nothing to do with it.
type RW struct {
	l    *Locker
	name string
}

// RW returns the reader-writer lock of a name. It asks nothing of the nodes; what is wrong with the name is the error of the calls.
func (l *Locker) RW(name string) *RW { return &RW{l, name} }

// Read waits until nobody writes, and no writer is before it in line, and returns a guard that keeps writers out. ctx bounds the wait
// alone. Errors, and what is left behind, are those of [Locker.Acquire].
func (rw *RW) Read(ctx context.Context, opts ...HoldOption) (*Guard, error) {
	return rw.read(ctx, rw.name, holdOf(hold{}, opts))
}

func (rw *RW) read(ctx context.Context, name string, h hold) (*Guard, error) {
	h.slot = node.Reader
	return rw.l.acquire(ctx, name, h)
}

// TryRead takes a place among the readers if nobody writes, and nobody waits to. Errors, time, and what is left behind are those of
// [Locker.TryAcquire]; this Locker itself refuses it where it writes, or waits to.
func (rw *RW) TryRead(ctx context.Context, opts ...HoldOption) (*Guard, error) {
	h := holdOf(hold{}, opts)
	h.slot = node.Reader
	return rw.l.tryAcquire(ctx, rw.name, h)
}

// Write waits until nobody else reads or writes, and returns a guard that keeps everybody out. ctx bounds the wait alone. Errors, and
// what is left behind, are those of [Locker.Acquire]; and [ErrUpgrade], at once, where ctx comes from the context of a read guard of
// the same lock and Locker that is alive.
func (rw *RW) Write(ctx context.Context, opts ...HoldOption) (*Guard, error) {
	return rw.write(ctx, rw.name, holdOf(hold{}, opts))
}

func (rw *RW) write(ctx context.Context, name string, h hold) (*Guard, error) {
	if err := rw.checkUpgrade(ctx); err != nil {
		return nil, err
	}
	h.slot = node.Writer
	return rw.l.acquire(ctx, name, h)
}

// TryWrite is Write if nobody reads, writes, or waits. Errors, time, and what is left behind are those of [Locker.TryAcquire], and
// ErrUpgrade as with Write; this Locker itself refuses it where it reads, writes, or waits to.
func (rw *RW) TryWrite(ctx context.Context, opts ...HoldOption) (*Guard, error) {
	if err := rw.checkUpgrade(ctx); err != nil {
		return nil, err
	}
	h := holdOf(hold{}, opts)
	h.slot = node.Writer
	return rw.l.tryAcquire(ctx, rw.name, h)
}

// ReadDo reads while fn runs: [Locker.Do] with Read.
func (rw *RW) ReadDo(ctx context.Context, fn func(context.Context) error, opts ...HoldOption) error {
	return do(ctx, rw.name, fn, rw.read, opts)
}

// WriteDo writes while fn runs: [Locker.Do] with Write.
func (rw *RW) WriteDo(ctx context.Context, fn func(context.Context) error, opts ...HoldOption) error {
	return do(ctx, rw.name, fn, rw.write, opts)
}

// checkUpgrade refuses to write for whoever reads.
func (rw *RW) checkUpgrade(ctx context.Context) error {
	for ctx != nil {
		g, ok := ctx.Value(guardKey{}).(*Guard)
		if !ok {
			break
		}
		if g.l == rw.l && g.life.slot == node.Reader && g.life.name == rw.name && g.Err() == nil {
			return fmt.Errorf("%w: %q: release %v first", ErrUpgrade, rw.name, g)
		}
		ctx = g.base // and what that one was acquired with
	}
	return nil
}

// Downgrade makes the guard of a writer one of a reader, without anybody else writing in between: the reader's is returned, and the
// writer's ends, with the cause ErrReleased. It does not wait in line, and lets other readers in. The reader's lease counts from its own
// first question. ctx bounds the call, which takes at most NodeTimeout; options are the reader's.
//
// After an error there is no reader's guard, and the writer's goes on unless it has ended: then the error is its cause. It matches
// ErrInvalidOption where the guard is no writer's, or has AtLeast or LockDelay, which would keep the reader out; else errors are
// those of [Locker.TryAcquire].
func (g *Guard) Downgrade(ctx context.Context, opts ...HoldOption) (*Guard, error) {
	h := holdOf(hold{slot: node.Reader}, opts)
	switch {
	case g.life.slot != node.Writer:
		return nil, invalid("%v is not the guard of a writer: there is nothing to downgrade", g)
	case g.life.atLeast != 0 || g.life.delay != 0:
		return nil, invalid("a writer with AtLeast(%v), LockDelay(%v) cannot become a reader: what is kept is kept from readers", g.life.atLeast, g.life.delay)
	}
	if err := g.l.prepare(ctx, g.life.name, &h); err != nil {
		return nil, err
	}
	reader := g.l.newGuard(ctx, g.life.name, h)
	reader.life.owner = node.ReaderID(g.life.owner[:identityLen] + crand.Text()[identityLen:]) // of the writer's party
	reader.compete(firstTicket)
	if err := g.l.enter(reader); err != nil {
		reader.cancel(err)
		return nil, err
	}
	err := g.l.attempt(ctx, reader)
	if err != nil {
		return nil, cmp.Or(g.Err(), err)
	}
	if lost := g.end(ErrReleased); lost != nil { // who knows who has written since
		reader.Release(ctx)
		return nil, lost
	}
	return reader, nil
}

// firstTicket is before those of all who wait.
const firstTicket = 1

// isHinderedBy reports whether an attempt is refused by those of a side, so that it is to ask again when a node says that
// the key of one of them has changed.
func (g *Guard) isHinderedBy(side int) bool {
	asks := g.deadline.Load() == 0 && !g.ended.Load()
	return asks && (side == node.Writer && g.life.slot == node.Reader || side == node.Reader && g.life.slot == node.Writer)
}

// RWLine is who holds a reader-writer lock and who waits for it, as a quorum of nodes said at one moment. It may be out of date
// when it is returned: look, do not decide by it.
type RWLine struct {
	Line           // of the writer; Waiters and Position are those of all who wait, to read or to write
	Readers []Line // one for each, in the order in which their leases end; Waiters and Position are 0
}

// Inspect asks every node who reads, who writes, and who waits. It changes nothing. Errors are those of [Locker.Inspect].
func (rw *RW) Inspect(ctx context.Context) (RWLine, error) {
	l := rw.l
	if err := l.ready(ctx, rw.name); err != nil {
		return RWLine{}, err
	}
	writers := make([]view, 0, len(l.nodes))
	readers := make(map[string][]view)
	err := l.askAll(ctx, rw.name, func(ctx context.Context, n *node.Node) (func(), error) {
		v, err := n.InspectRW(ctx, rw.name)
		return func() {
			writers = append(writers, viewOf(v.Writer))
			for owner, reader := range v.Readers {
				readers[owner] = append(readers[owner], viewOf(reader))
			}
		}, err
	})
	if err != nil {
		return RWLine{}, err
	}
	quorum := l.set.Electorate().Quorum
	line := RWLine{Line: lineOf(writers, quorum, l.firstWaiter(subject{rw.name, anRW}))}
	for _, views := range readers {
		if reader := lineOf(views, quorum, ""); reader.Holder != "" || reader.Kept {
			line.Readers = append(line.Readers, reader)
		}
	}
	slices.SortFunc(line.Readers, func(a, b Line) int { return cmp.Or(cmp.Compare(a.Left, b.Left), cmp.Compare(a.Holder, b.Holder)) })
	return line, nil
}
