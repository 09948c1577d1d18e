package redlock_test

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/redis/rueidis"

	"github.com/redlock-go/redlock"
	"github.com/redlock-go/redlock/internal/roster"
)

// In some profiles there are more servers than members, programs list some of them, each its own, and operators change who the
// members are, one of them beside another. All that must be true of a lock must be true of it; here is what has to be true of the
// set, and how far the faults may go: a majority of its members remembers it, a member that is named Off is off until the change is
// made, and no list is of servers alone that have forgotten all.

// remembered is what one server remembers of its set, zero if that is nothing.
type remembered struct {
	set   string
	state roster.State
}

// remembers reads a server's marker. One of another process is forgotten.
func (s *sim) remembers(i int) (m remembered) {
	n := s.cluster.Node(i)
	raw, _ := n.Get(simPrefix + ":marker")
	f := strings.Split(raw, ":")
	if len(f) != 8 || f[0] != n.RunID() || s.willForget(i) {
		return m
	}
	_, text, _ := strings.Cut(f[6], ",")
	m.state, _ = roster.ParseState(text)
	m.set = f[5]
	return m
}

// willForget reports whether a server is off, and will have lost its memory when it is back.
func (s *sim) willForget(i int) bool {
	s.listsMu.Lock()
	defer s.listsMu.Unlock()
	return s.forgetful[i]
}

func (s *sim) noteForgetful(i int, yes bool) {
	s.listsMu.Lock()
	defer s.listsMu.Unlock()
	s.forgetful[i] = yes
}

// takeOff has one operator at a time replace one that is off.
func (s *sim) takeOff() bool {
	s.listsMu.Lock()
	defer s.listsMu.Unlock()
	was := s.lists.off
	s.lists.off = true
	return !was
}

func (s *sim) giveOff() {
	s.listsMu.Lock()
	defer s.listsMu.Unlock()
	s.lists.off = false
}

// isBroken reports whether a promise was broken.
func (s *sim) isBroken() bool {
	select {
	case <-s.broken:
		return true
	default:
		return false
	}
}

func (s *sim) noteOperated(l *redlock.Locker) {
	s.listsMu.Lock()
	defer s.listsMu.Unlock()
	s.operated = append(s.operated, l)
}

// deploy adds a list of which programs may be started from now on.
func (s *sim) deploy(list []int) {
	s.listsMu.Lock()
	defer s.listsMu.Unlock()
	s.lists.all = append(s.lists.all, list)
}

// move notes that a change begins, or has ended.
func (s *sim) move(by int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.moving += by
	s.moved = time.Since(s.start)
}

// roster returns the newest record that is in force anywhere, nil if there is none yet.
func (s *sim) roster() (newest *roster.Record) {
	for i := range s.cluster.Len() {
		if r := s.remembers(i).state.InForce(); r.Newer(newest) {
			newest = r
		}
	}
	return newest
}

// mayForget reports whether a server may lose its memory: of all records that may be in force, a majority of the members remembers.
func (s *sim) mayForget(i int) bool {
	var all []remembered
	for j := range s.cluster.Len() {
		all = append(all, s.remembers(j))
	}
	if s.roster() == nil {
		return false
	}
	displaced := all[i].state.Active != nil && !s.roster().Has(all[i].state.Name)
	if displaced && s.lists.lasting {
		return false
	}
	for _, m := range all {
		for _, r := range []*roster.Record{m.state.InForce(), m.state.Value} {
			if r == nil {
				continue
			}
			left := 0
			for j, o := range all {
				if j != i && o.set == m.set && o.state.InForce() != nil && r.Has(o.state.Name) {
					left++
				}
			}
			if left < r.Quorum() && (r.Newer(s.roster()) || r.Is(s.roster())) {
				return false
			}
		}
	}
	return true
}

// lists are the lists of nodes that programs are started with.
type lists struct {
	lasting bool // a server that was displaced forgets nothing, so that any list of before says who the members are
	all     [][]int
	off     bool // an operator replaces one that is off
}

// drawLists draws who the first members are, and how many servers there are beyond them.
func (s *sim) drawLists(n int) (spare int) {
	r := s.source(9)
	s.lists.lasting = chance(r, .5)
	first := make([]int, n)
	for i := range first {
		first[i] = i
	}
	s.lists.all = [][]int{first}
	return 2 + r.IntN(2)
}

// listOf draws the list that a Locker is made with.
func (s *sim) listOf(r *rand.Rand) []int {
	s.listsMu.Lock()
	all := slices.Clone(s.lists.all)
	s.listsMu.Unlock()
	newest := all[len(all)-1]
	list := newest
	switch p := r.Float64(); {
	case p < .25:
		list = all[r.IntN(len(all))]
	case p < .55:
		list = s.everybody()
	case p < .7:
		if i := r.IntN(s.cluster.Len()); !slices.Contains(list, i) {
			list = append(slices.Clone(list), i)
		}
	case p < .85 && s.roster() != nil:
		list = slices.Delete(slices.Clone(list), 0, 1)
	}
	members := s.roster()
	if members == nil { // whoever is first founds a set of its list
		return all[0]
	}
	known := 0
	for _, i := range list {
		if members.Has(s.cluster.Node(i).Addr()) {
			known++
		}
	}
	if known < members.Quorum() && !s.lists.lasting {
		return newest
	}
	return list
}

// everybody lists all servers.
func (s *sim) everybody() (list []int) {
	for i := range s.cluster.Len() {
		list = append(list, i)
	}
	return list
}

// listing returns the options of the listed nodes.
func (h *simHost) listing(list []int) (nodes []rueidis.ClientOption) {
	for _, i := range list {
		nodes = append(nodes, h.nodes[i])
	}
	return nodes
}

// operator changes the set now and then, until the faults end.
type operator struct {
	sim  *sim
	host *simHost
	r    *rand.Rand
}

func (o *operator) work() {
	s := o.sim
	s.sleep(s.calm)
	var l *redlock.Locker
	for !s.stopped() && !s.isBroken() {
		if l == nil {
			var err error
			option := o.host.option
			option.Nodes, option.KeyValidity = o.host.nodes, slices.Min(s.leases)
			if l, err = redlock.NewLockerOn(option, o.host.now, s.apart); err != nil {
				s.note(o.host.name, "", "no locker", err.Error())
				l = nil
				s.sleep(s.longest / 10)
				continue
			}
			s.noteOperated(l) // it lives on, and finishes what was begun
		}
		o.change(l)
		pause := upTo(o.r, 2*s.longest)
		if s.profile.steady {
			pause += s.longest*3/2 + s.longest/3
		}
		select {
		case <-time.After(pause):
		case <-s.stopping:
		case <-s.broken:
		}
	}
}

// change asks for one change of the members, and begins with one that is off, now and then.
func (o *operator) change(l *redlock.Locker) {
	s, r := o.sim, o.r
	is := s.roster()
	if is == nil {
		return
	}
	var members, others []int
	for i, n := range s.cluster.Nodes() {
		if is.Has(n.Addr()) {
			members = append(members, i)
		} else {
			others = append(others, i)
		}
	}
	r.Shuffle(len(members), func(i, j int) { members[i], members[j] = members[j], members[i] })
	r.Shuffle(len(others), func(i, j int) { others[i], others[j] = others[j], others[i] })

	var set redlock.NodeSet
	what, to := "", slices.Clone(members)
	off := -1
	switch p := r.Float64(); {
	case p < .15 && len(members) > 4:
		what, to = "5 to 3", members[:len(members)-2]
	case p < .3 && len(members) > 3:
		what, to = "one less", members[:len(members)-1]
	case p < .4 && len(others) > 1 && len(members) < 4:
		what, to = "3 to 5", append(to, others[:2]...)
	case p < .5 && len(others) > 0 && len(members) < 5:
		what, to = "one more", append(to, others[0])
	case p < .65 && !s.profile.steady:
		what, to = "longest lease", nil
		set.LongestLease = s.leases[r.IntN(len(s.leases))] * time.Duration(1+r.IntN(2))
	case len(others) > 0:
		what = "replace"
		if !s.profile.steady && chance(r, .3) && s.mayForget(members[0]) && s.takeOff() { // one at a time, or they wait for each other
			what, off = "replace one that is off", members[0]
		}
		to[0] = others[0]
	default:
		return
	}
	if to != nil {
		slices.Sort(to)
		set.Nodes = o.host.listing(to)
		if chance(r, .5) { // the deploy begins before
			s.deploy(to)
		} else {
			defer s.deploy(to)
		}
	}
	if off >= 0 {
		n := s.cluster.Node(off)
		s.sick(off, 1)
		s.noteForgetful(off, true)
		n.Stop()
		n.CrashEmpty()
		set.Off = []string{n.Addr()}
		defer func() {
			s.noteForgetful(off, false)
			n.Start()
			s.sick(off, -1)
			s.giveOff()
			s.note("", "", "fault", fmt.Sprintf("node %d is back, empty", off))
		}()
	}
	ctx, cancel := context.WithTimeout(context.Background(), s.longest/2+upTo(r, 4*s.longest))
	defer cancel()
	s.move(1)
	defer s.move(-1)
	end := time.Duration(0)
	for again := true; again; again = off >= 0 && !s.isBroken() { // what is off stays off until it is made
		s.note(o.host.name, "", "change", fmt.Sprintf("%s: from %s to %v, off %v, lease %v", what, describe(is), to, set.Off, set.LongestLease))
		err := l.SetNodes(ctx, set)
		s.note(o.host.name, "", "changed", fmt.Sprintf("%s: %v", what, err))
		s.changed(what, err)
		if err == nil || off >= 0 && strings.Contains(err.Error(), "is not a member") {
			return
		}
		if s.profile.steady {
			s.mu.Lock()
			s.violated(o.host.name, "", "change", "%s: %v, although nothing is ill", what, err)
			s.mu.Unlock()
			return
		}
		switch {
		case !s.stopped():
		case end == 0:
			end = time.Since(s.start)
		case time.Since(s.start) > end+10*s.longest+10*time.Second:
			s.mu.Lock()
			s.violated(o.host.name, "", "change", "%s: %v, long after all other faults", what, err)
			s.mu.Unlock()
		}
		if ctx.Err() != nil {
			ctx, cancel = context.WithTimeout(context.Background(), 2*s.longest)
			defer cancel()
		}
		s.sleep(s.longest / 2)
	}
}

func describe(r *roster.Record) string {
	return fmt.Sprintf("%d (%s)", r.Version, strings.Join(r.Members, " "))
}

// changed looks at what a change came to.
func (s *sim) changed(what string, err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if err == nil {
		s.changes++
		return
	}
	s.unchanged++
	if errors.Is(err, context.DeadlineExceeded) || errors.Is(err, redlock.ErrNodeDown) || errors.Is(err, redlock.ErrNodeTimeout) || errors.Is(err, redlock.ErrDisagreement) {
		return
	}
	s.note("", "", "odd", fmt.Sprintf("%s: %v", what, err))
}

// auditRoster looks at what servers remember: there is one set, and one record of a version.
func (s *sim) auditRoster() {
	s.mu.Lock()
	defer s.mu.Unlock()
	if time.Since(s.start) < s.calm {
		return
	}
	set, first := "", 0
	byVersion := map[int]*roster.Record{}
	for i := range s.cluster.Len() {
		m := s.remembers(i)
		r := m.state.InForce()
		if r == nil {
			continue
		}
		if set == "" {
			set, first = m.set, i
		}
		if m.set != set {
			s.violated("", "", "roster", "node %d is of set %s, node %d of set %s", first, set, i, m.set)
		}
		if o := byVersion[r.Version]; o != nil && !o.Is(r) {
			s.violated("", "", "roster", "roster %d is %v, and %v", r.Version, o, r)
		}
		byVersion[r.Version] = r
	}
}

// operators starts those who change the set.
func (s *sim) operators(wg *sync.WaitGroup) {
	r := s.source(10)
	n := 1
	if !s.profile.steady && chance(r, .5) {
		n = 2
	}
	for i := range n {
		h := s.newHost(fmt.Sprintf("O%d", i), 50+i)
		s.hosts = append(s.hosts, h)
		s.delays(h)
		o := &operator{sim: s, host: h, r: s.source(11, uint64(i))}
		wg.Go(o.work)
	}
	s.every(wg, s.longest/10, s.auditRoster)
}
