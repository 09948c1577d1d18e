package roster

import (
	"fmt"
	"hash/maphash"
	"os"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// The explorer takes changes of members, memory that is lost and given back, and two holders of one lock through every order of
// events, up to a depth. Real are the records, the states and the changes; a model are the servers, which do one step at a time,
// and the guards, which go by the rules of docs/roster.md. Every duration is a lease, so what began first ends first.

// world is a state of everything.
type world struct {
	nodes   []mnode
	changes []*Change
	guards  []mguard
	clock   int // of what has begun
	left    budget
	decided []*Record
	story   []string
}

// budget is how often what may happen.
type budget struct{ restart, lost, pass, tries int }

// mnode is a server.
type mnode struct {
	name  string
	run   int
	state State // zero: it remembers nothing
	quar  int   // when its quarantine began; 0: it is in none
	owner int   // whose key it has, by number; 0: nobody's
	key   int   // when that was last renewed
	back  *comeback
}

// comeback is an adoption that was decided on by what was read then, and is yet to be written.
type comeback struct {
	run   int
	state State
}

// mguard is a holder, or who wants to be.
type mguard struct {
	record *Record
	pend   []*Record
	claims []int // by node: when it was last renewed; 0: it does not count
	held   bool
	dead   bool
}

func (w *world) clone() *world {
	c := *w
	c.nodes = slices.Clone(w.nodes)
	c.changes = make([]*Change, len(w.changes))
	for i, p := range w.changes {
		copied := *p
		copied.said = slices.Clone(p.said)
		c.changes[i] = &copied
	}
	c.guards = slices.Clone(w.guards)
	for i := range c.guards {
		c.guards[i].claims = slices.Clone(c.guards[i].claims)
		c.guards[i].pend = slices.Clone(c.guards[i].pend)
	}
	c.decided = slices.Clone(w.decided)
	c.story = append(slices.Clone(w.story), "")
	return &c
}

// key is a state as a text: instants by their order alone.
func (w *world) key() string {
	instants := w.instants()
	rank := func(at int) int {
		i, _ := slices.BinarySearch(instants, at)
		if at == 0 {
			return 0
		}
		return i + 1
	}
	var b strings.Builder
	for _, n := range w.nodes {
		fmt.Fprintf(&b, "%d %v %d %d %d", n.run, n.state, rank(n.quar), n.owner, rank(n.key))
		if n.back != nil {
			fmt.Fprintf(&b, " back %d %v", n.back.run, n.back.state)
		}
		b.WriteByte('|')
	}
	for _, c := range w.changes {
		fmt.Fprintf(&b, "%v %v %v %v %v|", c.Value, c.Ballot, c.Phase, c.said, c.found)
	}
	for _, g := range w.guards {
		fmt.Fprintf(&b, "%v %v %v %v", g.record, g.pend, g.held, g.dead)
		for _, c := range g.claims {
			fmt.Fprintf(&b, " %d", rank(c))
		}
		b.WriteByte('|')
	}
	fmt.Fprint(&b, w.left)
	return b.String()
}

// quorate reports whether a guard has a quorum of every record that it goes by, without one node (-1: with all).
func (g *mguard) quorate(nodes []mnode, without int) bool {
	has := func(r *Record) bool {
		n := 0
		for i := range nodes {
			if i != without && g.claims[i] != 0 && r.Has(nodes[i].name) {
				n++
			}
		}
		return n >= r.Quorum()
	}
	for _, p := range g.pend {
		if p.Newer(g.record) && !has(p) {
			return false
		}
	}
	return has(g.record)
}

// told has a guard go by a newer record, if it stands by both.
func (g *mguard) told(r *Record, nodes []mnode) {
	if !r.Newer(g.record) || g.dead {
		return
	}
	if g.held && !g.quorate(nodes, -1) {
		g.dead = true
		return
	}
	g.record = r
	for i := range nodes {
		if !r.Has(nodes[i].name) {
			g.claims[i] = 0
		}
	}
	if !g.held {
		g.claims = make([]int, len(nodes)) // an attempt ends, and the next begins
	}
	g.dead = g.held && !g.quorate(nodes, -1)
}

// moves returns every state that can be next.
func (w *world) moves() (next []*world) {
	branch := func(format string, args ...any) *world {
		c := w.clone()
		c.story[len(c.story)-1] = fmt.Sprintf(format, args...)
		next = append(next, c)
		return c
	}
	for p, change := range w.changes {
		for _, name := range change.Due() {
			i := slices.IndexFunc(w.nodes, func(n mnode) bool { return n.name == name })
			if w.nodes[i].state.Active == nil {
				continue // it remembers nothing, and is not asked
			}
			step := func(c *world) (State, bool) {
				after, yes := c.changes[p].Step(c.nodes[i].state)
				if yes {
					c.nodes[i].state = after
				}
				return c.nodes[i].state, yes
			}
			c := branch("change %d: %d at %s", p, change.Phase, name)
			s, yes := step(c)
			c.changes[p].Answer(name, strconv.Itoa(c.nodes[i].run), s, yes)
			if c.changes[p].Phase == Decided && change.Phase != Decided {
				c.decided = append(c.decided, c.changes[p].Value)
			}
			if w.left.lost > 0 && change.Phase != Confirming {
				c := branch("change %d: %d at %s, and the answer is lost", p, change.Phase, name)
				c.left.lost--
				step(c)
			}
		}
		if change.Phase == Beaten && w.left.tries > 0 {
			c := branch("change %d: again", p)
			c.left.tries--
			c.changes[p] = NewChange(change.Base, change.Value, Ballot{change.Ahead.N + 1, change.Ballot.By})
		}
	}
	for _, r := range w.decided {
		for i, n := range w.nodes {
			if n.state.Active != nil && r.Newer(n.state.Active) || n.state.Active == nil && r.Has(n.name) && n.back == nil && !r.hasOld(n.name, w) {
				c := branch("%s is told of %v", n.name, r)
				if !r.Stays(n.name, n.state.Active) && r.Has(n.name) {
					c.clock++
					c.nodes[i].quar = c.clock
				}
				c.nodes[i].state = Activate(n.name, r)
			}
		}
	}
	for i, n := range w.nodes {
		if n.state.Active != nil && w.left.restart > 0 && n.name != "D" {
			c := branch("%s forgets", n.name)
			c.left.restart--
			c.nodes[i] = mnode{name: n.name, run: n.run + 1}
		}
		if n.state.Active == nil && n.back == nil {
			for seen := range 1 << len(w.nodes) { // whoever reads sees these
				if s := w.comesBack(i, seen); s.Active != nil {
					branch("%s: is to be back as %v, by %b", n.name, s, seen).nodes[i].back = &comeback{n.run, s}
				}
			}
		}
		if n.back != nil {
			c := branch("%s: is back", n.name)
			c.nodes[i].back = nil
			if n.back.run == n.run && n.state.Active == nil {
				c.clock++
				c.nodes[i].state, c.nodes[i].quar = n.back.state, c.clock
			}
		}
	}
	for k := range w.guards {
		g := &w.guards[k]
		if g.dead {
			continue
		}
		for i, n := range w.nodes {
			switch {
			case n.owner == k+1: // renewed, and told
				c := branch("guard %d renews at %s", k, n.name)
				c.clock++
				c.nodes[i].key = c.clock
				d := &c.guards[k]
				if v := n.state.Value; v != nil && !slices.Contains(d.pend, v) {
					d.pend = append(d.pend, v)
				}
				d.told(n.state.Active, c.nodes)
				if !d.dead && n.state.Active.Is(d.record) && n.state.Active.Has(n.name) && (d.claims[i] != 0 || !d.held || d.quorate(c.nodes, i)) {
					d.claims[i] = c.clock
				}
			case n.owner == 0 && n.quar == 0 && n.state.Votes() && n.state.Active.Is(g.record) && (!g.held || g.quorate(w.nodes, i)):
				c := branch("guard %d asks %s", k, n.name)
				c.clock++
				c.nodes[i].owner, c.nodes[i].key = k+1, c.clock
				c.guards[k].claims[i] = c.clock
				if d := &c.guards[k]; d.quorate(c.nodes, -1) {
					d.held = true
				}
			}
		}
		for _, r := range w.decided {
			if r.Newer(g.record) && !g.held {
				branch("guard %d is told of %v", k, r).guards[k].told(r, w.nodes)
			}
		}
	}
	if w.left.pass > 0 {
		if instants := w.instants(); len(instants) > 0 {
			c := branch("the oldest ends")
			c.left.pass--
			c.end(instants[0])
		}
	}
	return next
}

// hasOld reports whether a name is that of a member of the first record, which comes back and does not join.
func (r *Record) hasOld(name string, w *world) bool { return w.changes[0].Base.Has(name) }

// comesBack returns what an empty member is back as by what these nodes say, nothing if it is not.
func (w *world) comesBack(i, seen int) (s State) {
	var r *Record
	for j, n := range w.nodes {
		if seen&(1<<j) != 0 && j != i && n.state.Active.Newer(r) {
			r = n.state.Active
		}
	}
	if r == nil || !r.Has(w.nodes[i].name) {
		return s
	}
	remember := 1 // itself
	var others []State
	for j, n := range w.nodes {
		if seen&(1<<j) == 0 || j == i || !r.Has(n.name) || n.state.Active == nil {
			continue
		}
		if others = append(others, n.state); n.state.Active.Is(r) {
			remember++
		}
	}
	if remember < r.Quorum() {
		return s
	}
	return Return(w.nodes[i].name, r, others)
}

// instants is when what is not over began, in order.
func (w *world) instants() []int {
	var all []int
	note := func(at int) {
		if at != 0 {
			all = append(all, at)
		}
	}
	for _, n := range w.nodes {
		note(n.quar)
		note(n.key)
	}
	for _, g := range w.guards {
		for _, c := range g.claims {
			note(c)
		}
	}
	slices.Sort(all)
	return slices.Compact(all)
}

// end ends all that began at an instant.
func (w *world) end(began int) {
	for i := range w.nodes {
		n := &w.nodes[i]
		if n.quar == began {
			n.quar = 0
		}
		if n.key == began {
			n.owner, n.key = 0, 0
		}
	}
	for k := range w.guards {
		g := &w.guards[k]
		for i, c := range g.claims {
			if c == began {
				g.claims[i] = 0
			}
		}
		if g.held && !g.quorate(w.nodes, -1) {
			g.dead = true
		}
	}
}

// judge returns what is wrong.
func (w *world) judge() error {
	for _, r := range w.decided {
		if !r.Is(w.decided[0]) {
			return fmt.Errorf("fork: %v and %v", w.decided[0], r)
		}
	}
	if len(w.decided) > 0 {
		base, untold := w.changes[0].Base, 0
		for _, n := range w.nodes {
			if n.state.Active.Is(base) && n.state.Votes() {
				untold++
			}
		}
		if untold >= base.Quorum() {
			return fmt.Errorf("a quorum of the old members stands as if nothing had been decided")
		}
	}
	alive := 0
	for k := range w.guards {
		if g := &w.guards[k]; g.held && !g.dead && g.quorate(w.nodes, -1) {
			alive++
		}
	}
	if alive > 1 {
		return fmt.Errorf("%d guards hold one lock", alive)
	}
	return nil
}

func TestExploreRoster(t *testing.T) {
	base := New(Record{Version: 1, ID: "v1", Members: []string{"A", "B", "C"}, Longest: time.Second, Wait: time.Second})
	next := func(id string, off []string, members ...string) *Record {
		return New(Record{Version: 2, ID: id, Base: "v1", Members: members, Off: off, Longest: time.Second, Wait: time.Second})
	}
	less := 0
	if d := os.Getenv("REDLOCK_EXPLORE_DEPTH"); d != "" {
		n, err := strconv.Atoi(d)
		require.NoError(t, err)
		less = -n
	}
	if testing.Short() || raceDetector {
		less += 3
	}
	for _, tc := range []struct {
		name   string
		depth  int
		values []*Record
		guards int
		held   int // by the first guard, as bits of A, B and C
		left   budget
	}{
		{"two changes", 24, []*Record{next("x", nil, "A", "B", "D"), next("y", nil, "A", "C", "D")}, 0, 0, budget{lost: 1, tries: 2}},
		{"two changes, and a member forgets", 11, []*Record{next("x", nil, "A", "B", "D"), next("y", nil, "B", "C", "D")}, 0, 0, budget{restart: 1, tries: 2}},
		{"two members forget", 12, []*Record{next("x", nil, "A", "B", "D")}, 0, 0, budget{restart: 2}},
		{"a member is replaced under a lock", 14, []*Record{next("x", nil, "A", "B", "D")}, 2, 0b101, budget{pass: 4}},
		{"a dead member is replaced under a lock", 14, []*Record{next("x", []string{"C"}, "A", "B", "D")}, 2, 0b110, budget{pass: 4}},
		{"and a member forgets", 13, []*Record{next("x", nil, "A", "C", "D")}, 2, 0b110, budget{pass: 3, restart: 1}},
		{"down to one", 13, []*Record{next("x", nil, "A")}, 2, 0b110, budget{pass: 4}},
	} {
		t.Run(tc.name, func(t *testing.T) {
			w := &world{left: tc.left}
			for _, name := range []string{"A", "B", "C"} {
				w.nodes = append(w.nodes, mnode{name: name, state: Activate(name, base)})
			}
			w.nodes = append(w.nodes, mnode{name: "D"})
			for i, v := range tc.values {
				w.changes = append(w.changes, NewChange(base, v, Ballot{1, string(rune('p' + i))}))
			}
			for range tc.guards {
				w.guards = append(w.guards, mguard{record: base, claims: make([]int, len(w.nodes))})
			}
			for i := range 3 {
				if tc.held&(1<<i) != 0 {
					w.clock++
					w.nodes[i].owner, w.nodes[i].key = 1, w.clock
					w.guards[0].claims[i], w.guards[0].held = w.clock, true
				}
			}
			seed := maphash.MakeSeed()
			known := map[uint64]bool{}
			level := []*world{w}
			start, decided, ended := time.Now(), 0, 0
			for depth := 0; depth < tc.depth-less && len(level) > 0; depth++ {
				var found []*world
				for _, w := range level {
					for _, after := range w.moves() {
						key := maphash.String(seed, after.key())
						if known[key] {
							continue
						}
						known[key] = true
						err := after.judge()
						require.NoError(t, err, "%s", strings.Join(after.story, "\n"))
						if len(after.decided) > 0 {
							decided++
						}
						if len(after.guards) > 1 && after.guards[1].held {
							ended++
						}
						found = append(found, after)
					}
				}
				level = found
			}
			t.Logf("%d states, %d of them after the decision, %d with a second holder, %v", len(known), decided, ended, time.Since(start).Round(time.Millisecond))
			if less == 0 {
				require.NotZero(t, decided, "the depth reaches a decision")
			}
		})
	}
}
