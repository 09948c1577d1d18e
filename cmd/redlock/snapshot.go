package main

import (
	"cmp"
	"context"
	"maps"
	"slices"
	"time"

	"github.com/redlock-go/redlock/internal/node"
)

// snapshot is what all nodes say at one moment. Its JSON is what scripts rely on: fields are added, never changed.
type snapshot struct {
	At         time.Time         `json:"at"`
	Quorum     int               `json:"quorum"`
	Nodes      []nodeState       `json:"nodes"`
	Locks      []lockStatus      `json:"locks"`
	Semaphores []semaphoreStatus `json:"semaphores"`
	RWLocks    []rwStatus        `json:"rw_locks"` // reader-writer locks
}

type nodeState struct {
	Node  string `json:"node"`
	Error string `json:"error,omitempty"`
}

type lockStatus struct {
	Name         string     `json:"name"`
	Slot         int        `json:"slot,omitempty"`   // of a semaphore, from 1
	Side         string     `json:"side,omitempty"`   // of a reader-writer lock: writer or reader
	Holder       string     `json:"holder,omitempty"` // of most votes
	Label        string     `json:"label,omitempty"`  // who that is; of one that is kept, who it was
	Held         bool       `json:"held"`             // by a quorum
	Kept         bool       `json:"kept,omitempty"`   // by a quorum, from others, though nobody holds it any more
	FencingToken uint64     `json:"fencing_token,omitempty"`
	LeftMillis   int64      `json:"left_ms,omitempty"` // the nodes of a quorum keep it so long, if nothing renews it
	Votes        int        `json:"votes"`
	Waiters      int        `json:"waiters"`
	Nodes        []nodeLock `json:"nodes"`
}

type nodeLock struct {
	Node         string `json:"node"`
	Holder       string `json:"holder,omitempty"`
	Label        string `json:"label,omitempty"`
	Kept         bool   `json:"kept,omitempty"`
	FencingToken uint64 `json:"fencing_token,omitempty"`
	LeftMillis   int64  `json:"left_ms,omitempty"` // -1: its key has no end
	Waiters      int    `json:"waiters"`
	Error        string `json:"error,omitempty"`
}

type semaphoreStatus struct {
	Name    string       `json:"name"`
	K       int          `json:"k"`         // how many slots it has, as most nodes say
	KByNode []int        `json:"k_by_node"` // 0: that node knows nothing of it
	Held    int          `json:"held"`      // slots
	Waiters int          `json:"waiters"`   // for any slot
	Slots   []lockStatus `json:"slots"`     // more than k where a smaller k is new and a slot above it is still held
}

// rwStatus is a reader-writer lock. What waits, on each side, is the one line for both.
type rwStatus struct {
	Name    string       `json:"name"`
	Waiters int          `json:"waiters"` // to read or to write
	Writer  lockStatus   `json:"writer"`  // without votes if nobody writes
	Readers []lockStatus `json:"readers"` // whoever any node has
}

const (
	writerSide = "writer"
	readerSide = "reader"
)

// snapshot asks all nodes for what was named, a lock, a semaphore, a reader-writer lock or several of these, or for all there are.
func (c *call) snapshot(ctx context.Context, lookers []*looker) *snapshot {
	s := &snapshot{At: time.Now().UTC().Truncate(time.Millisecond), Quorum: len(lookers)/2 + 1, Nodes: make([]nodeState, len(lookers)),
		Locks: []lockStatus{}, Semaphores: []semaphoreStatus{}, RWLocks: []rwStatus{}}
	errs := make([]error, len(lookers))
	ask := func(do func(i int, l *looker) error) {
		eachOf(lookers, func(i int, l *looker) {
			if errs[i] = cmp.Or(errs[i], l.err); errs[i] == nil {
				errs[i] = do(i, l)
			}
		})
	}
	named := len(c.args) > 0
	names := node.Names{Locks: c.args, Semaphores: c.args, RWs: c.args}
	if !named {
		found := make([]node.Names, len(lookers))
		ask(func(i int, l *looker) (err error) {
			found[i], err = node.FindNames(ctx, l.client, c.nodes.prefix)
			return err
		})
		names = allOf(found)
	}
	counted := make([][]node.Slots, len(lookers))
	ask(func(i int, l *looker) (err error) {
		asking, cancel := c.forSoMany(ctx, len(names.Semaphores))
		defer cancel()
		counted[i], err = node.CountSlots(asking, l.client, c.nodes.prefix, names.Semaphores)
		return err
	})

	var places []node.Place
	for _, name := range names.Locks {
		s.Locks = append(s.Locks, lockStatus{Name: name})
		places = append(places, node.LockPlace(c.nodes.prefix, name))
	}
	for j, name := range names.Semaphores {
		semaphore := semaphoreStatus{Name: name, KByNode: make([]int, len(lookers))}
		slots := 0
		for i := range lookers {
			if counted[i] != nil {
				semaphore.KByNode[i] = counted[i][j].K
				slots = max(slots, counted[i][j].K, counted[i][j].Taken)
			}
		}
		semaphore.K = mostCommon(semaphore.KByNode)
		for slot := range slots {
			semaphore.Slots = append(semaphore.Slots, lockStatus{Name: name, Slot: slot + 1})
			places = append(places, node.SlotPlace(c.nodes.prefix, name, slot+1))
		}
		s.Semaphores = append(s.Semaphores, semaphore)
	}
	views := make([][]node.View, len(lookers))
	ask(func(i int, l *looker) (err error) {
		asking, cancel := c.forSoMany(ctx, len(places))
		defer cancel()
		views[i], err = node.Views(asking, l.client, c.nodes.prefix, places)
		return err
	})
	sides := make([][]node.RWView, len(lookers))
	ask(func(i int, l *looker) (err error) {
		asking, cancel := c.forSoMany(ctx, len(names.RWs))
		defer cancel()
		sides[i], err = node.RWViews(asking, l.client, c.nodes.prefix, names.RWs)
		return err
	})
	for i, l := range lookers {
		s.Nodes[i] = nodeState{Node: l.name, Error: errorText(errs[i])}
	}

	fill := func(l *lockStatus, said func(i int) node.View) {
		for i, state := range s.Nodes {
			n := nodeLock{Node: state.Node, Error: state.Error}
			if errs[i] == nil {
				n.take(said(i))
			}
			l.Nodes = append(l.Nodes, n)
		}
		l.sum(s.Quorum)
	}
	next := 0
	fillNext := func(l *lockStatus) {
		fill(l, func(i int) node.View { return views[i][next] })
		next++
	}
	for i := range s.Locks {
		fillNext(&s.Locks[i])
	}
	for i := range s.Semaphores {
		semaphore := &s.Semaphores[i]
		for j := range semaphore.Slots {
			slot := &semaphore.Slots[j]
			fillNext(slot)
			semaphore.Waiters = slot.Waiters
			if slot.Held {
				semaphore.Held++
			}
		}
		taken := func(l lockStatus) bool { return l.Votes > 0 }
		if len(semaphore.Slots) > semaphore.K && !slices.ContainsFunc(semaphore.Slots[semaphore.K:], taken) {
			semaphore.Slots = semaphore.Slots[:semaphore.K] // a node that was away knows an older k
		}
	}
	for j, name := range names.RWs {
		rw := rwStatus{Name: name, Writer: lockStatus{Name: name, Side: writerSide}, Readers: []lockStatus{}}
		fill(&rw.Writer, func(i int) node.View { return sides[i][j].Writer })
		rw.Waiters = rw.Writer.Waiters
		readers := make(map[string]bool)
		for i := range lookers {
			if errs[i] == nil {
				for owner := range sides[i][j].Readers {
					readers[owner] = true
				}
			}
		}
		for _, owner := range slices.Sorted(maps.Keys(readers)) { // not by lease: a watch would shuffle them
			reader := lockStatus{Name: name, Side: readerSide}
			fill(&reader, func(i int) node.View {
				v := sides[i][j].Readers[owner]
				v.Waiters = sides[i][j].Writer.Waiters
				return v
			})
			rw.Readers = append(rw.Readers, reader)
		}
		s.RWLocks = append(s.RWLocks, rw)
	}
	s.Locks = slices.DeleteFunc(s.Locks, func(l lockStatus) bool { return !named && l.Votes == 0 && l.Waiters == 0 }) // it ended between the two looks
	s.Semaphores = slices.DeleteFunc(s.Semaphores, func(s semaphoreStatus) bool {
		return len(s.Slots) == 0 || !named && s.Waiters == 0 && !slices.ContainsFunc(s.Slots, func(l lockStatus) bool { return l.Votes > 0 })
	})
	s.RWLocks = slices.DeleteFunc(s.RWLocks, func(rw rwStatus) bool { return rw.Waiters == 0 && rw.Writer.Votes == 0 && len(rw.Readers) == 0 })
	return s
}

// allOf puts together what several nodes have keys of.
func allOf(found []node.Names) node.Names {
	together := func(of func(node.Names) []string) (names []string) {
		for _, f := range found {
			names = append(names, of(f)...)
		}
		slices.Sort(names)
		return slices.Compact(names)
	}
	return node.Names{
		Locks:      together(func(n node.Names) []string { return n.Locks }),
		Semaphores: together(func(n node.Names) []string { return n.Semaphores }),
		RWs:        together(func(n node.Names) []string { return n.RWs }),
	}
}

// forSoMany bounds a question about so many things.
func (c *call) forSoMany(ctx context.Context, n int) (context.Context, context.CancelFunc) {
	return context.WithTimeout(ctx, c.nodes.timeout+time.Duration(n)*time.Millisecond)
}

// mostCommon returns the number that most say, the largest of those; 0 if nobody says any.
func mostCommon(numbers []int) (most int) {
	count := make(map[int]int)
	for _, n := range numbers {
		if n == 0 {
			continue
		}
		if count[n]++; most == 0 || count[n] > count[most] || count[n] == count[most] && n > most {
			most = n
		}
	}
	return most
}

// take takes what one node says.
func (n *nodeLock) take(v node.View) {
	h := holderIn(v.Value)
	n.Holder, n.Label, n.Kept, n.Waiters = h.id, h.label, h.kept, len(v.Waiters)
	if v.Value != "" {
		n.FencingToken, n.LeftMillis = v.Token, v.Left.Milliseconds()
	}
}

// sum puts together what the nodes say of one lock.
func (l *lockStatus) sum(quorum int) {
	type who struct {
		id   string
		kept bool
	}
	votes := make(map[who][]nodeLock)
	var most who
	for _, n := range l.Nodes {
		l.Waiters = max(l.Waiters, n.Waiters)
		if n.Holder != "" || n.Kept {
			by := who{n.Holder, n.Kept}
			votes[by] = append(votes[by], n)
		}
	}
	for by, of := range votes {
		if most == (who{}) || len(of) > len(votes[most]) || len(of) == len(votes[most]) && by.id < most.id {
			most = by
		}
	}
	by := votes[most]
	if l.Votes = len(by); l.Votes > 0 {
		l.Holder, l.Label = most.id, by[0].Label
	}
	if len(by) < quorum {
		return
	}
	l.Held, l.Kept = !most.kept, most.kept
	slices.SortFunc(by, func(a, b nodeLock) int { return cmp.Compare(b.LeftMillis, a.LeftMillis) })
	l.LeftMillis = by[quorum-1].LeftMillis
	slices.SortFunc(by, func(a, b nodeLock) int { return cmp.Compare(b.FencingToken, a.FencingToken) })
	l.FencingToken = by[quorum-1].FencingToken
}

func (s *snapshot) answered() (n int) {
	for _, state := range s.Nodes {
		if state.Error == "" {
			n++
		}
	}
	return n
}
