package node

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/redis/rueidis"

	"github.com/redlock-go/redlock/internal/roster"
)

// A node may vote only while its marker proves that it has forgotten nothing, and while the clients agree on what
// must be the same for all of them. Both are looked at here, by the node's keeper, whenever it has connected, when
// the marker was pushed, or when a script found another marker than expected.

// seen is what a keeper read of its node.
type seen struct {
	read    bool
	runID   string
	marker  marker
	adopted bool // the marker is of this process and this memory
	fault   error
}

// admit looks at what a check found, adopts or amends the node's marker where that is due, and returns why the node
// may not vote, nil if it may.
func (ns *Set) admit(ctx context.Context, n *Node, client rueidis.Client, info serverInfo, raw string, clockErr error) error {
	s := seen{read: true, runID: info.runID, fault: cmp.Or(info.fault(), ns.claimServer(n, info.runID))}
	if s.fault != nil {
		ns.report(n, s)
		ns.learn(n, marker{})
		return s.fault
	}
	n.tellEviction(info)

	for range markTries {
		s.marker, s.adopted = ns.judge(n, raw, info.runID)
		ns.report(n, s)
		if s.adopted {
			ns.learn(n, s.marker)
		} else {
			ns.learn(n, marker{}) // what it is called is known now
		}
		var due *change
		var why error
		if s.adopted {
			due, why = ns.due(n, s)
		}
		switch {
		case why == errFoundable:
			due, why = ns.founding(ctx, n, s)
		case !s.adopted, why == errErased:
			due, why = ns.adoption(n, s, ns.survey(ctx, n), clockErr)
		}
		if due == nil && why != nil && !s.adopted { // another program may have seen more, and been faster
			now, err := client.Do(ctx, client.B().Get().Key(ns.markerKey).Build()).ToString()
			if err == nil && now != raw {
				raw = now
				continue
			}
		}
		if due == nil {
			if why == nil {
				n.identify(s.marker)
			}
			return why
		}
		var written bool
		var err error
		if raw, written, err = ns.mark(ctx, client, info.runID, s.marker, *due); err != nil {
			return err
		}
		if written { // else another program was first, and tells
			n.tellMarked(s, *due)
		}
	}
	n.LookAgain()
	return fmt.Errorf("%w: its marker keeps changing", ErrQuarantined)
}

// markTries bounds how often the marker is read again because another client was first to write it.
const markTries = 8

// server is one process, and the one node of this set that votes for it.
type server struct {
	node   int
	leftAt time.Duration // when that node was last known to be connected to it; 0 while it is
}

// claimServer makes n the node that votes for the process with this run id, or refuses it: one server that is listed
// under two addresses would have two votes. Who comes second is refused, wherever it is listed, until the first is down
// or has turned out to be another process.
//
// At any moment no two nodes of a set have votes that count from one process. Finding and noting are one step, or two
// keepers would both find nobody. Votes outlive a node's connection, so whoever is refused, or whose process is another
// node's now, loses those it has; an answer that is still on its way from there finds that the node votes for another
// process, or for none (Disowns). Both come before the new one is asked.
func (ns *Set) claimServer(n *Node, runID string) error {
	first, twice := ns.noteServer(n, runID)
	switch {
	case twice != nil:
		ns.option.Listener.Distrusted(n.index, twice)
	case first != n:
		ns.option.Listener.Distrusted(first.index, fmt.Errorf("%w: its server (run_id %s) is reached as %s now", ErrUnsupportedNode, runID, n.addr))
	}
	return twice
}

// noteServer returns who had the process before, n itself if nobody had, and why n is refused.
func (ns *Set) noteServer(n *Node, runID string) (first *Node, twice error) {
	ns.mu.Lock()
	defer ns.mu.Unlock()
	first = n
	s, known := ns.servers[runID]
	if known {
		first = ns.nodes[s.node]
	}
	ns.leaveServers(n, runID)
	if first != n && s.leftAt == 0 {
		twice = fmt.Errorf("%w: it is the same server as %s (run_id %s); nodes must be independent", ErrUnsupportedNode, first.addr, runID)
		n.mu.Lock()
		n.server.Store(new(string))
		n.unfit = twice
		n.mu.Unlock()
		return first, twice
	}
	if first != n {
		first.mu.Lock()
		if first.votesFor(runID) {
			first.server.Store(new(string))
		}
		first.mu.Unlock()
	}
	ns.servers[runID] = server{node: n.index}
	n.mu.Lock()
	n.server.Store(&runID)
	n.mu.Unlock()
	return first, nil
}

// leaveServers notes that n is connected to no other process than the one with this run id, "" for none. What it left
// is remembered for as long as votes that it got there may count. The caller holds the set's mutex.
func (ns *Set) leaveServers(n *Node, runID string) {
	now := ns.option.Clock.Now()
	for id, s := range ns.servers {
		switch {
		case s.node == n.index && id != runID && s.leftAt == 0:
			s.leftAt = now
			ns.servers[id] = s
		case s.leftAt != 0 && (now-s.leftAt)/2 > ns.option.KeyValidity:
			delete(ns.servers, id)
		}
	}
}

// judge parses a stored marker and says whether it vouches for the process that has this run id. One that
// quarantines for longer than any lease was written by a clock that has gone back since.
func (ns *Set) judge(n *Node, raw, runID string) (m marker, adopted bool) {
	m, ok := parseMarker(raw)
	if !ok || m.runID != runID {
		return m, false
	}
	now := ns.option.Clock.Now()
	n.mu.Lock()
	latest := now + n.offset.Aged(now, ns.option.DriftFactor).Hi // a slow answer does not prove that it has gone back
	n.mu.Unlock()
	ahead := time.Duration(m.until)*time.Microsecond - latest
	return m, ahead <= ns.longestQuarantine(m)
}

// longestQuarantine returns how far ahead the end of a quarantine can lie unless the node's clock has gone back.
func (ns *Set) longestQuarantine(m marker) time.Duration {
	return max(m.longest, waitOf(m.roster), ns.quarantine) + ns.option.ClockBound
}

// waitOf returns how long what a member may have forgotten can matter: by the record in force, or by one that it holds, and that may
// be in force by now.
func waitOf(s roster.State) (wait time.Duration) {
	for _, r := range []*roster.Record{s.Active, s.Value} {
		if r != nil && r.Wait > 0 {
			wait = max(wait, r.Wait, r.Longest)
		}
	}
	return wait
}

// report notes what was read, and wakes keepers that wait for more nodes to have been read.
func (ns *Set) report(n *Node, s seen) {
	ns.mu.Lock()
	defer ns.mu.Unlock()
	before := ns.seen[n.index]
	ns.seen[n.index] = s
	if before.read && before.marker.raw == s.marker.raw && before.adopted == s.adopted {
		return
	}
	for i, other := range ns.seen {
		if i != n.index && other.read && other.fault == nil {
			if u := ns.nodes[i].unfitNow(); u != nil || !other.adopted || other.marker.inForce() == nil || other.marker.set != s.marker.set {
				ns.nodes[i].LookAgain()
			}
		}
	}
}

// change is what the mark script is to write.
type change struct {
	marker
	quarantine time.Duration // from the node's now; negative keeps the instant
	raise      time.Duration // how far above the node's now the fence floor goes; negative leaves it
	spread     int64         // how far above the floors of others, µs
}

// lift has the fence floor go above every token that the node may have handed out; and, where anything may have been granted,
// above those that started at the floors of others, and have risen since. Grants take more than 8 µs each, so that is less than
// an eighth of a lease by the time that the clock has passed the floor; and clocks that are within the bound of their median
// are two bounds apart.
func (ns *Set) lift(c *change, floor int64, granted bool) {
	c.floor, c.raise = floor, c.longest+ns.option.ClockBound
	if granted { // else no token was handed out, and none of these floors is to be the highest of all
		spread := c.longest/8 + 2*ns.option.ClockBound
		c.raise += spread
		c.spread = spread.Microseconds()
	}
}

// survey reads the markers of all other nodes that answer now: what was read before may be out of date. What is read is by node,
// nil for who has not answered; a marker of another process than the one that was looked at last is none.
func (ns *Set) survey(ctx context.Context, n *Node) []*marker {
	ctx, cancel := context.WithTimeout(ctx, ns.option.Clock.Wait(ns.option.NodeTimeout))
	defer cancel()
	var wg sync.WaitGroup
	found := make([]*marker, len(ns.nodes))
	for i, o := range ns.nodes {
		o.mu.Lock()
		client, down := o.client, o.down
		o.mu.Unlock()
		ns.mu.Lock()
		seen := ns.seen[i]
		ns.mu.Unlock()
		if o == n || down != nil || !seen.read || seen.fault != nil {
			continue
		}
		wg.Go(func() {
			raw, err := client.Do(ctx, client.B().Get().Key(ns.markerKey).Build()).ToString()
			if err == nil || rueidis.IsRedisNil(err) {
				m, _ := parseMarker(raw)
				found[i] = &m
			}
		})
	}
	wg.Wait()
	return found
}

// founding has a node go by the first record of its set if all members are found to hold it at one moment: each is read twice,
// and what they hold only ever falls until it is in force. So no other record can be held by all who would have to.
func (ns *Set) founding(ctx context.Context, n *Node, s seen) (*change, error) {
	x := s.marker.roster.Active
	first, second := ns.survey(ctx, n), ns.survey(ctx, n)
	members := 1
	for i := range first {
		if a, b := first[i], second[i]; a != nil && b != nil && a.raw == b.raw && a.roster.Active.Is(x) && x.Has(a.roster.Name) && a.runID == ns.processOf(i) {
			members++
		}
	}
	if members < len(x.Members) {
		if s.marker.first && s.marker.quarantined {
			return nil, fmt.Errorf("%w: its set (%s) is founded when all members have been reached", ErrQuarantined, describe(x))
		}
		return nil, nil
	}
	ns.mu.Lock()
	defer ns.mu.Unlock()
	return ns.activation(s.marker, s.marker.roster.Name, x), nil
}

// processOf returns the run id of the process that a node was when it was last looked at.
func (ns *Set) processOf(i int) string {
	ns.mu.Lock()
	defer ns.mu.Unlock()
	return ns.seen[i].runID
}

// due returns the change that an adopted node's marker needs, or nil and why the node may not vote, or twice nil: it may.
func (ns *Set) due(n *Node, s seen) (*change, error) {
	ns.mu.Lock()
	defer ns.mu.Unlock()
	if set := ns.view.set; set != s.marker.set {
		if r := ns.view.record; r != nil && s.marker.unfounded() && len(s.marker.roster.Active.Members) == len(r.Members) {
			return nil, ns.yields(n, s.marker, r)
		}
		if set > s.marker.set || s.marker.inForce() != nil || ns.view.record != nil || !ns.allFirst(s.marker.set) || !ns.allFirst(set) {
			return nil, fmt.Errorf("%w: this node belongs to set %s, another to set %s: nodes of different sets were mixed; if they are one set that was split when it lost its memory, delete %s on the nodes of one of the two, which are then adopted anew", ErrDisagreement, s.marker.set, set, ns.markerKey)
		}
		c := change{marker: s.marker, quarantine: -1, raise: -1}
		c.set, c.roster = set, roster.State{}
		return &c, nil
	}
	if ns.view.record != nil {
		return ns.dueInForce(n, s.marker)
	}
	return ns.dueFounding(n, s.marker)
}

// adoption returns the marker for a node that has none, or one of another process: it grants nothing until every
// lease that it may have forgotten has run out, and its fencing tokens start above all it may have handed out.
//
// It is back as a member of its set if a quorum of the members remembers the set, this one included, or if all members have been
// read. Where one of them has accepted a change, this one might have accepted it, too, and forgotten that: it is back as one that
// has. A change is decided only when every old member has been told, so what they say is true. Its clock must agree with the others', for until and floor are
// written in it.
func (ns *Set) adoption(n *Node, s seen, others []*marker, clockErr error) (*change, error) {
	for i, o := range others {
		if o != nil && o.runID == ns.processOf(i) {
			ns.learn(ns.nodes[i], *o)
		}
	}
	ns.mu.Lock()
	defer ns.mu.Unlock()
	t, _ := n.Time(ns.option.Clock.Now())
	read, brandNew, granted := 1, s.marker.raw == "", s.marker.raw != ""
	floor, set, longest, proven := s.marker.floor, s.marker.set, max(ns.option.MaxKeyValidity, s.marker.longest), time.Duration(0)
	var first *roster.Record // the smallest that is proposed
	old := false             // a node of a set without a roster was read
	for _, o := range others {
		if o == nil {
			continue
		}
		read++
		if o.set != "" && (set == "" || o.set < set) {
			set = o.set
		}
		if o.roster.Founding && (first == nil || o.roster.Active.String() < first.String()) {
			first = o.roster.Active
		}
		old = old || o.raw != "" && o.roster.Active == nil
		longest, proven = max(longest, o.longest), max(proven, o.proven)
		floor = max(floor, o.floor)
		granted = granted || o.raw != "" && o.until <= (t+2*ns.option.ClockBound).Microseconds()
		// The fence floor lies a lease above the time of adoption: who is past it belongs to a set that was used since.
		brandNew = brandNew && (o.raw == "" || o.first && o.floor > t.Microseconds())
	}
	c := &change{marker: marker{first: brandNew}}
	if r := ns.view.record; r != nil {
		c.set = ns.view.set
		name := ns.nameOf(n, s.marker, r)
		states, err := ns.mayReturn(n, name, r, others)
		if err != nil {
			return nil, err
		}
		c.marker = c.with(roster.Return(name, r, states))
		switch {
		case r.Wait > 0:
			c.quarantine = waitOf(c.roster)
		case r.Version > 1 && s.marker.raw == "": // it may be one that joins
			c.quarantine = r.Longest
		}
		if s.adopted && s.marker.roster.Active == nil { // by an old version, which knows nothing of rosters: no vote was forgotten
			c.quarantine, c.until = -1, s.marker.until
		}
	} else {
		if q := ns.option.Quorum; read < q {
			return nil, fmt.Errorf("%w: it is adopted once %d nodes have been read, %d have", ErrQuarantined, q, read)
		}
		for _, o := range others {
			if o != nil && o.set != "" {
				if err := ns.disagreement(*o); err != nil {
					return nil, err
				}
			}
		}
		if proven == 0 {
			proven = longest // nobody remembers a shorter one
		}
		whole := read == len(ns.nodes)
		switch {
		case first != nil && !first.Has(n.addr):
			return nil, ns.stranger(n, n.addr, first)
		case first == nil && !old && !whole && ns.quarantine > 0:
			return nil, fmt.Errorf("%w: of %d nodes %d have been read, and none remembers anything: a new set is founded once all have been", ErrQuarantined, len(ns.nodes), read)
		}
		if set == "" {
			set = ns.newSet
		}
		c.marker = marker{longest: longest, proven: proven, nodes: len(ns.nodes), set: set, first: brandNew, quarantined: ns.quarantine > 0}
		if first == nil && !old && whole {
			first = ns.newRecord(set, longest)
		}
		if first != nil {
			c.marker = c.with(roster.State{Name: n.addr, Active: first, Founding: true}).firstly(c.marker)
		}
		if ns.quarantine > 0 {
			c.quarantine = max(ns.quarantine, longest)
		}
	}
	if clockErr == nil {
		clockErr = ns.clockAgrees(n)
	}
	if clockErr != nil {
		return nil, clockErr
	}
	ns.lift(c, s.marker.floor, granted)
	if granted {
		c.floor = floor + c.spread
	}
	return c, nil
}

// mayReturn returns why a member that has forgotten its set is not taken back by what the others say now, nil if it is, and what
// they remember. The caller holds the mutex.
func (ns *Set) mayReturn(n *Node, name string, r *roster.Record, others []*marker) (states []roster.State, err error) {
	if !r.Has(name) {
		return nil, ns.stranger(n, name, r)
	}
	remember := map[string]bool{name: true}
	read := map[string]bool{name: true}
	for i, o := range others {
		if o == nil {
			continue
		}
		who := ns.nameOf(ns.nodes[i], *o, r)
		if who == name {
			if o.roster.Name == name && o.runID == ns.seen[i].runID {
				return nil, fmt.Errorf("%w: %s gives the votes of %s already", ErrUnsupportedNode, ns.nodes[i].addr, name)
			}
			continue
		}
		if o.set != ns.view.set && o.inForce() != nil {
			continue // it is of another set now
		}
		if o.runID != ns.seen[i].runID || o.set != ns.view.set {
			read[who], remember[who] = true, r.Wait == 0
			continue
		}
		states = append(states, o.roster)
		read[who] = true
		if o.inForce().Is(r) || r.Wait == 0 { // with the quarantine off no node forgets what it has granted
			remember[who] = true
		}
	}
	known, all := 0, true
	for _, m := range r.Members {
		if remember[m] {
			known++
		}
		all = all && read[m]
	}
	if known >= r.Quorum() || all {
		return states, nil
	}
	var lost []string
	for _, m := range r.Members {
		if !remember[m] || m == name {
			lost = append(lost, m)
		}
	}
	return nil, fmt.Errorf("%w: it has lost its memory, and is taken back once %d members of (%s) that remember have been read, itself counted, or all members: %d have; "+
		"if %s are off for good or have lost their memory, SetNodes that names them Off makes a set of the others", ErrQuarantined, r.Quorum(), describe(r), known, strings.Join(lost, ", "))
}

// disagreement says what a marker written by another client contradicts.
func (ns *Set) disagreement(m marker) error {
	switch on := ns.quarantine > 0; {
	case m.nodes != len(ns.nodes):
		return fmt.Errorf("%w: this Locker has %d nodes, the node's marker says %d", ErrDisagreement, len(ns.nodes), m.nodes)
	case m.quarantined != on:
		return quarantineDiffers(on)
	}
	return nil
}

func quarantineDiffers(on bool) error {
	return fmt.Errorf("%w: RestartQuarantine is %s here, the node's marker says %s", ErrDisagreement, onOff(on), onOff(!on))
}

func onOff(on bool) string {
	if on {
		return "on"
	}
	return "off"
}

// allFirst reports whether every node that carries a set's id was adopted as brand-new, and within the last lease: two
// clients that met a new set at the same time may have made up two ids. Later two ids are two sets.
func (ns *Set) allFirst(set string) bool {
	now := ns.option.Clock.Now()
	for i, o := range ns.seen {
		if !o.adopted || o.marker.set != set {
			continue
		}
		// The fence floor lies a lease above the node's time at adoption, also where the quarantine is off or was skipped.
		if t, _ := ns.nodes[i].Time(now); !o.marker.first || o.marker.floor <= t.Microseconds() {
			return false
		}
	}
	return true
}

// mark writes a node's marker if nobody else was first, and returns what is stored after that.
func (ns *Set) mark(ctx context.Context, client rueidis.Client, runID string, was marker, c change) (raw string, written bool, err error) {
	micros := func(d time.Duration) string {
		if d < 0 {
			return "-1"
		}
		return strconv.FormatInt(d.Microseconds(), 10)
	}
	reply, err := client.Do(ctx, client.B().Eval().Script(luaMark).Numkeys(1).Key(ns.markerKey).
		Arg(was.raw, runID, micros(c.quarantine), strconv.FormatInt(c.until, 10),
			strconv.FormatInt(c.floor, 10), micros(c.raise), c.rest()).Build()).ToArray()
	if err == nil && len(reply) != 3 {
		err = fmt.Errorf("mark answered %d values", len(reply))
	}
	if err != nil {
		if ne := (*rueidis.RedisError)(nil); errors.As(err, &ne) {
			return "", false, err
		}
		return "", false, ConnectionFault(err)
	}
	first, err := reply[0].AsInt64()
	if err != nil {
		return "", false, err
	}
	raw, err = reply[2].ToString()
	return raw, first == 1, err
}

// identify tells the scripts of a node's marker.
func (n *Node) identify(m marker) {
	n.mu.Lock()
	defer n.mu.Unlock()
	if n.known.marker.raw != m.raw {
		n.known = identify(m)
	}
}

// clockAgrees compares a node's clock with the others' that were measured of late.
func (ns *Set) clockAgrees(n *Node) error {
	now := ns.option.Clock.Now()
	var mine Offset
	var all []Offset
	for _, o := range ns.nodes {
		o.mu.Lock()
		if o.watched && o.down == nil && !o.votesFor("") { // one server is one clock, too
			off := o.offset.Aged(now, ns.option.DriftFactor)
			all = append(all, off)
			if o == n {
				mine = off
			}
		}
		o.mu.Unlock()
	}
	if len(all) < 2 {
		return nil
	}
	if gap := mine.Gap(MedianOffset(all)); gap > ns.option.ClockBound {
		return fmt.Errorf("%w: it is %v from the nodes' median, ClockBound is %v", ErrClockOff, Rounded(gap), Rounded(ns.option.ClockBound))
	}
	return nil
}

// Init ends the quarantine of a brand-new set of nodes; the Locker's Init says when it does, and what that asks for. It
// returns the nodes in the way, or else an error of the set as a whole.
func (ns *Set) Init(ctx context.Context) ([]Fault, error) {
	ctx, cancel := context.WithTimeout(ctx, max(ns.option.NodeTimeout, DialWithin))
	defer cancel()
	markers := make([]marker, len(ns.nodes))
	faults := ns.onAll(func(n *Node) (err error) {
		if err = ns.awaitFit(ctx, n); err == nil {
			markers[n.index], err = ns.inFirstQuarantine(ctx, n)
		}
		return err
	})
	if len(faults) > 0 {
		return faults, nil
	}
	fresh := 0
	for _, m := range markers {
		if m.raw != "" {
			fresh++
		}
	}
	switch fresh {
	case 0:
		return nil, nil
	case len(ns.nodes):
		return ns.onAll(func(n *Node) error { return ns.endQuarantine(ctx, n, markers[n.index]) }), nil
	}
	return nil, fmt.Errorf("redlock: Init: %d of %d nodes are past their first quarantine: locks may have been granted, wait for the others", len(ns.nodes)-fresh, len(ns.nodes))
}

// onAll takes a step of Init on all nodes at once, since it takes round trips, which may be long ones.
func (ns *Set) onAll(step func(*Node) error) []Fault {
	errs := make([]error, len(ns.nodes))
	var wg sync.WaitGroup
	for i, n := range ns.nodes {
		wg.Go(func() { errs[i] = step(n) })
	}
	wg.Wait()
	var faults []Fault
	for i, err := range errs {
		if err != nil {
			faults = append(faults, Fault{i, err})
		}
	}
	return faults
}

// awaitFit waits until a node's keeper has connected to it and adopted it.
func (ns *Set) awaitFit(ctx context.Context, n *Node) error {
	for {
		_, _, err := n.forInit()
		if err == nil || Permanent(err) {
			return err
		}
		select {
		case <-ctx.Done():
			return err
		case <-ns.option.Life.Done():
			return ns.option.Closed
		case <-time.After(time.Millisecond):
		}
	}
}

// inFirstQuarantine returns the marker of a node that waits in the quarantine which it got as a brand-new one, an empty
// marker if it does not. It is an error if it does and yet holds a lock.
func (ns *Set) inFirstQuarantine(ctx context.Context, n *Node) (marker, error) {
	client, known, err := n.forInit()
	if err != nil {
		return marker{}, err
	}
	now, _ := n.Time(ns.option.Clock.Now())
	if known.until <= now.Microseconds() || !known.first || !known.quarantined { // without a quarantine it ends as it begins
		return marker{}, nil
	}
	for cursor := uint64(0); ; {
		page, err := client.Do(ctx, client.B().Scan().Cursor(cursor).Match(globEscape(ns.option.KeyPrefix)+":*{*").Count(1000).Build()).AsScanEntry()
		if err != nil {
			if _, answered := rueidis.IsRedisErr(err); !answered {
				err = ConnectionFault(err)
			}
			return marker{}, err
		}
		for _, key := range page.Elements {
			if _, _, isLock := ParseLock(ns.option.KeyPrefix, key); isLock {
				return marker{}, fmt.Errorf("it holds the lock key %q", key)
			}
		}
		if cursor = page.Cursor; cursor == 0 {
			return known, nil
		}
	}
}

// endQuarantine ends the quarantine of the node whose marker was known, if it is still the one.
func (ns *Set) endQuarantine(ctx context.Context, n *Node, known marker) error {
	client, _, err := n.forInit()
	if err != nil {
		return err
	}
	raw, _, err := ns.mark(ctx, client, known.runID, known, change{marker: known, quarantine: 0, raise: -1})
	if err != nil {
		return err
	}
	if m, ok := parseMarker(raw); !ok || m.set != known.set {
		return fmt.Errorf("its marker changed meanwhile, to %q", raw)
	}
	// The keeper reads the marker back and tells the scripts; a vote asked for before it has fails, so wait.
	n.LookAgain()
	for {
		if _, now, err := n.forInit(); err == nil && now.raw != known.raw {
			return nil
		}
		select {
		case <-ctx.Done():
			return ContextEnded(ctx, "Init")
		case <-ns.option.Life.Done():
			return ns.option.Closed
		case <-time.After(time.Millisecond):
		}
	}
}

// forInit returns what Init needs of a node that is up and adopted.
func (n *Node) forInit() (rueidis.Client, marker, error) {
	n.mu.Lock()
	defer n.mu.Unlock()
	switch {
	case n.down != nil:
		return nil, marker{}, n.down
	case n.unfit != nil:
		return nil, marker{}, n.unfit
	}
	return n.client, n.known.marker, nil
}

// globEscape quotes what SCAN MATCH would take for a pattern.
func globEscape(s string) string {
	return strings.NewReplacer(`\`, `\\`, `*`, `\*`, `?`, `\?`, `[`, `\[`, `]`, `\]`).Replace(s)
}
