package redlock

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/redis/rueidis"
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
func (l *Locker) admit(ctx context.Context, n *node, client rueidis.Client, info serverInfo, raw string, clockErr error) error {
	s := seen{read: true, runID: info.runID, fault: info.fault()}
	if s.fault == nil {
		s.fault = l.twice(n, info.runID)
	}
	if s.fault != nil {
		l.report(n, s)
		return s.fault
	}
	if info.maxMemory > 0 && info.policy != "" && info.policy != "noeviction" {
		l.log.Warn("redlock: node may evict locks: set maxmemory-policy noeviction", "node", n.addr, "policy", info.policy)
	}

	for range markTries {
		s.marker, s.adopted = l.judge(n, raw, info.runID)
		l.report(n, s)
		var due *change
		var why error
		if s.adopted {
			due, why = l.due(n, s)
		} else {
			due, why = l.adoption(n, s, l.survey(ctx, n), clockErr)
		}
		if due == nil {
			if why == nil {
				n.identify(s.marker)
			}
			return why
		}
		if s.adopted {
			l.log.Info("redlock: amending a node's marker", "node", n.addr, "from", s.marker.rest(), "to", due.rest())
		}
		var err error
		if raw, err = l.mark(ctx, n, client, info.runID, s.marker, *due); err != nil {
			return err
		}
	}
	n.lookAgain()
	return fmt.Errorf("%w: its marker keeps changing", ErrQuarantined)
}

// markTries bounds how often the marker is read again because another client was first to write it.
const markTries = 8

// twice refuses a server that is already another node: one server would have two votes. The later listed goes.
func (l *Locker) twice(n *node, runID string) error {
	l.mu.Lock()
	defer l.mu.Unlock()
	for i, s := range l.seen {
		if i < n.index && s.read && s.runID == runID {
			return fmt.Errorf("%w: it is the same server as %s (run_id %s); nodes must be independent", ErrUnsupportedNode, l.nodes[i].addr, runID)
		}
		if i > n.index && s.read && s.runID == runID && s.fault == nil {
			l.nodes[i].lookAgain()
		}
	}
	return nil
}

// judge parses a stored marker and says whether it vouches for the process that has this run id. One that
// quarantines for longer than any lease was written by a clock that has gone back since.
func (l *Locker) judge(n *node, raw, runID string) (m marker, adopted bool) {
	m, ok := parseMarker(raw)
	if !ok || m.runID != runID {
		return m, false
	}
	now := l.clock.now()
	n.mu.Lock()
	latest := now + n.offset.aged(now, l.option.DriftFactor).hi // a slow answer does not prove that it has gone back
	n.mu.Unlock()
	ahead := time.Duration(m.until)*time.Microsecond - latest
	return m, ahead <= l.longestQuarantine(m)
}

// longestQuarantine returns how far ahead the end of a quarantine can lie unless the node's clock has gone back.
func (l *Locker) longestQuarantine(m marker) time.Duration {
	return max(m.longest, l.quarantine) + l.option.ClockBound
}

// report notes what was read, and wakes keepers that wait for more nodes to have been read.
func (l *Locker) report(n *node, s seen) {
	l.mu.Lock()
	defer l.mu.Unlock()
	before := l.seen[n.index]
	l.seen[n.index] = s
	if before.read && before.marker.raw == s.marker.raw && before.adopted == s.adopted {
		return
	}
	for i, other := range l.seen {
		if i != n.index && other.read && other.fault == nil {
			if u := l.nodes[i].unfitNow(); u != nil || !other.adopted || other.marker.set != s.marker.set {
				l.nodes[i].lookAgain()
			}
		}
	}
}

// change is what the mark script is to write.
type change struct {
	marker
	quarantine time.Duration // from the node's now; negative keeps the instant
	raise      time.Duration // how far above the node's now the fence floor goes; negative leaves it
}

// survey reads the markers of all other nodes that answer now: what was read before may be out of date.
func (l *Locker) survey(ctx context.Context, n *node) []marker {
	ctx, cancel := context.WithTimeout(ctx, l.clock.wait(l.option.NodeTimeout))
	defer cancel()
	var wg sync.WaitGroup
	found := make([]*marker, len(l.nodes))
	for i, o := range l.nodes {
		o.mu.Lock()
		client, down := o.client, o.down
		o.mu.Unlock()
		l.mu.Lock()
		unread := !l.seen[i].read || l.seen[i].fault != nil
		l.mu.Unlock()
		if o == n || down != nil || unread {
			continue
		}
		wg.Go(func() {
			raw, err := client.Do(ctx, client.B().Get().Key(l.markerKey).Build()).ToString()
			if err == nil || rueidis.IsRedisNil(err) {
				m, _ := parseMarker(raw)
				found[i] = &m
			}
		})
	}
	wg.Wait()
	var markers []marker
	for _, m := range found {
		if m != nil {
			markers = append(markers, *m)
		}
	}
	return markers
}

// due returns the change that an adopted node's marker needs, or nil and why the node may not vote, or twice nil: it may.
func (l *Locker) due(n *node, s seen) (*change, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if err := l.disagreement(s.marker); err != nil {
		return nil, err
	}
	if set := l.smallestSet(s.marker); set < s.marker.set {
		if !l.allFirst(s.marker.set) || !l.allFirst(set) {
			return nil, fmt.Errorf("%w: this node belongs to set %s, another to set %s: nodes of different sets were mixed; if they are one set that was split when it lost its memory, delete %s on the nodes of one of the two, which are then adopted anew", ErrDisagreement, s.marker.set, set, l.markerKey)
		}
		c := change{marker: s.marker, quarantine: -1, raise: -1}
		c.set = set
		return &c, nil
	}
	c := change{marker: s.marker, quarantine: -1, raise: -1}
	switch {
	case s.marker.longest < l.option.MaxKeyValidity:
		c.longest = l.option.MaxKeyValidity // announced; used when it is proven
		return &c, nil
	case s.marker.proven < s.marker.longest && l.knownToAll(s.marker.proven):
		c.proven = s.marker.longest
		return &c, nil
	case s.marker.proven < l.option.KeyValidity:
		return nil, fmt.Errorf("%w: KeyValidity %v is longer than %v, the longest lease in use so far; it may be used when every node has known it for that long",
			ErrQuarantined, l.option.KeyValidity, s.marker.proven)
	}
	return nil, nil
}

// knownToAll reports whether every node has shown the longest lease of all for as long as one of the old leases lasts.
// Only then may it be used: until then a node that loses its memory may be adopted, by a client that has read none but
// nodes that do not know it, with a quarantine that is too short. What is proven is written into the markers, since a
// client that restarts remembers nothing.
func (l *Locker) knownToAll(old time.Duration) bool {
	longest := time.Duration(0)
	for _, o := range l.seen {
		longest = max(longest, o.marker.longest)
	}
	for _, o := range l.seen {
		if !o.adopted || o.marker.longest < longest {
			l.knownFrom = 0
			return false
		}
	}
	now := l.clock.now()
	if l.knownFrom == 0 {
		l.knownFrom = now
	}
	return now >= l.knownFrom+goneAfter(old, l.option.DriftFactor, l.option.ClockBound)
}

// adoption returns the marker for a node that has none, or one of another process: it grants nothing until every
// lease that it may have forgotten has run out, and its fencing tokens start above all it may have handed out.
//
// It waits until a quorum of nodes has been read, this one included: some of them then remember the longest lease
// in use and the set's id. Its clock must agree with the others', for until and floor are written in it.
func (l *Locker) adoption(n *node, s seen, others []marker, clockErr error) (*change, error) {
	if q := quorumOf(len(l.nodes)); 1+len(others) < q {
		return nil, fmt.Errorf("%w: it is adopted once %d nodes have been read, %d have", ErrQuarantined, q, 1+len(others))
	}
	longest, set, brandNew := max(l.option.MaxKeyValidity, s.marker.longest), s.marker.set, s.marker.raw == ""
	proven := time.Duration(0)
	for _, o := range others {
		if o.set != "" {
			if err := l.disagreement(o); err != nil {
				return nil, err
			}
			if set == "" || o.set < set {
				set = o.set
			}
		}
		longest, proven = max(longest, o.longest), max(proven, o.proven)
		brandNew = brandNew && (o.raw == "" || o.first)
	}
	if proven == 0 {
		proven = longest // nobody remembers a shorter one
	}
	if clockErr == nil {
		clockErr = l.clockAgrees(n)
	}
	if clockErr != nil {
		return nil, clockErr
	}
	if set == "" {
		set = l.newSet
	}
	c := &change{
		marker: marker{longest: longest, proven: proven, nodes: len(l.nodes), set: set, first: brandNew, quarantined: l.quarantine > 0, floor: s.marker.floor},
		raise:  longest + l.option.ClockBound,
	}
	if l.quarantine > 0 {
		c.quarantine = max(l.quarantine, longest)
	}
	what := "redlock: adopting a node that lost its memory"
	if brandNew {
		what = "redlock: adopting a brand-new node"
	}
	l.log.Warn(what, "node", n.addr, "grants nothing for", c.quarantine, "had marker", s.marker.raw)
	return c, nil
}

// disagreement says what a marker written by another client contradicts.
func (l *Locker) disagreement(m marker) error {
	switch on := l.quarantine > 0; {
	case m.nodes != len(l.nodes):
		return fmt.Errorf("%w: this Locker has %d nodes, the node's marker says %d", ErrDisagreement, len(l.nodes), m.nodes)
	case m.quarantined != on:
		return fmt.Errorf("%w: RestartQuarantine is %s here, the node's marker says %s", ErrDisagreement, onOff(on), onOff(m.quarantined))
	}
	return nil
}

func onOff(on bool) string {
	if on {
		return "on"
	}
	return "off"
}

// smallestSet returns the smallest set id that any node carries.
func (l *Locker) smallestSet(m marker) string {
	set := m.set
	for _, o := range l.seen {
		if o.adopted && o.marker.set < set {
			set = o.marker.set
		}
	}
	return set
}

// allFirst reports whether every node that carries a set's id was adopted as brand-new, and within the last lease: two
// clients that met a new set at the same time may have made up two ids. Later two ids are two sets.
func (l *Locker) allFirst(set string) bool {
	now := l.clock.now()
	for i, o := range l.seen {
		if !o.adopted || o.marker.set != set {
			continue
		}
		// The fence floor lies a lease above the node's time at adoption, also where the quarantine is off or was skipped.
		if t, _ := l.nodes[i].nodeTime(now); !o.marker.first || o.marker.floor <= t.Microseconds() {
			return false
		}
	}
	return true
}

// mark writes a node's marker if nobody else was first, and returns what is stored after that.
func (l *Locker) mark(ctx context.Context, n *node, client rueidis.Client, runID string, was marker, c change) (string, error) {
	micros := func(d time.Duration) string {
		if d < 0 {
			return "-1"
		}
		return strconv.FormatInt(d.Microseconds(), 10)
	}
	reply, err := client.Do(ctx, client.B().Eval().Script(luaMark).Numkeys(1).Key(l.markerKey).
		Arg(was.raw, runID, micros(c.quarantine), strconv.FormatInt(c.until, 10),
			strconv.FormatInt(c.floor, 10), micros(c.raise), c.rest()).Build()).ToArray()
	if err == nil && len(reply) != 3 {
		err = fmt.Errorf("mark answered %d values", len(reply))
	}
	if err != nil {
		if ne := (*rueidis.RedisError)(nil); errors.As(err, &ne) {
			return "", err
		}
		return "", nodeFault(err)
	}
	return reply[2].ToString()
}

// identify tells the scripts of a node's marker.
func (n *node) identify(m marker) {
	n.mu.Lock()
	defer n.mu.Unlock()
	if n.known.marker.raw != m.raw {
		n.known = identify(m)
	}
}

// clockAgrees compares a node's clock with the others' that were measured of late.
func (l *Locker) clockAgrees(n *node) error {
	now := l.clock.now()
	var mine offset
	var all []offset
	for _, o := range l.nodes {
		o.mu.Lock()
		if o.watched && o.down == nil {
			off := o.offset.aged(now, l.option.DriftFactor)
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
	if gap := mine.gap(medianOffset(all)); gap > l.option.ClockBound {
		return fmt.Errorf("%w: it is %v from the nodes' median, ClockBound is %v", ErrClockOff, gap, l.option.ClockBound)
	}
	return nil
}

// Init ends the quarantine of a brand-new set of nodes, which otherwise waits one lease before the first grant. It
// acts only if every node answers, none holds a lock of this prefix, and none is past its first quarantine: then
// nobody can have been granted anything. Fence floors stay. Init on a set that is not quarantined does nothing.
//
// A set all of whose nodes were wiped (FLUSHALL everywhere) looks like a brand-new one: do not call Init while locks
// of before may still be held.
//
// It waits for nodes that are just starting, five seconds at most or one NodeTimeout if that is longer, and returns an
// error that names the nodes in the way; the nodes whose quarantine it ended stay so.
func (l *Locker) Init(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, max(l.option.NodeTimeout, dialWithin))
	defer cancel()
	markers := make([]marker, len(l.nodes))
	err := l.onAll(func(n *node) (err error) {
		if err = l.awaitFit(ctx, n); err == nil {
			markers[n.index], err = l.inFirstQuarantine(ctx, n)
		}
		return err
	})
	if err != nil {
		return err
	}
	fresh := 0
	for _, m := range markers {
		if m.raw != "" {
			fresh++
		}
	}
	switch fresh {
	case 0:
		return nil
	case len(l.nodes):
		return l.onAll(func(n *node) error { return l.endQuarantine(ctx, n, markers[n.index]) })
	}
	return fmt.Errorf("redlock: Init: %d of %d nodes are past their first quarantine: locks may have been granted, wait for the others", len(l.nodes)-fresh, len(l.nodes))
}

// onAll takes a step of Init on all nodes at once, since it takes round trips, which may be long ones.
func (l *Locker) onAll(step func(*node) error) error {
	errs := make([]error, len(l.nodes))
	var wg sync.WaitGroup
	for i, n := range l.nodes {
		wg.Go(func() {
			if err := step(n); err != nil {
				errs[i] = fmt.Errorf("redlock: Init: %w", &NodeError{n.addr, err})
			}
		})
	}
	wg.Wait()
	return errors.Join(errs...)
}

// awaitFit waits until a node's keeper has connected to it and adopted it.
func (l *Locker) awaitFit(ctx context.Context, n *node) error {
	for {
		_, _, err := n.forInit()
		if err == nil || permanent(err) {
			return err
		}
		select {
		case <-ctx.Done():
			return err
		case <-l.life.Done():
			return ErrLockerClosed
		case <-time.After(time.Millisecond):
		}
	}
}

// inFirstQuarantine returns the marker of a node that waits in the quarantine which it got as a brand-new one, an empty
// marker if it does not. It is an error if it does and yet holds a lock.
func (l *Locker) inFirstQuarantine(ctx context.Context, n *node) (marker, error) {
	client, known, err := n.forInit()
	if err != nil {
		return marker{}, err
	}
	now, _ := n.nodeTime(l.clock.now())
	if known.until <= now.Microseconds() || !known.first {
		return marker{}, nil
	}
	for cursor := uint64(0); ; {
		page, err := client.Do(ctx, client.B().Scan().Cursor(cursor).Match(globEscape(l.option.KeyPrefix)+":{*").Count(1000).Build()).AsScanEntry()
		if err != nil {
			if _, answered := rueidis.IsRedisErr(err); !answered {
				err = nodeFault(err)
			}
			return marker{}, err
		}
		if len(page.Elements) > 0 {
			return marker{}, fmt.Errorf("it holds the lock key %q", page.Elements[0])
		}
		if cursor = page.Cursor; cursor == 0 {
			return known, nil
		}
	}
}

// endQuarantine ends the quarantine of the node whose marker was known, if it is still the one.
func (l *Locker) endQuarantine(ctx context.Context, n *node, known marker) error {
	client, _, err := n.forInit()
	if err != nil {
		return err
	}
	raw, err := l.mark(ctx, n, client, known.runID, known, change{marker: known, quarantine: 0, raise: -1})
	if err != nil {
		return err
	}
	if m, ok := parseMarker(raw); !ok || m.set != known.set {
		return fmt.Errorf("its marker changed meanwhile, to %q", raw)
	}
	// The keeper reads the marker back and tells the scripts; a vote asked for before it has fails, so wait.
	n.lookAgain()
	for {
		if _, now, err := n.forInit(); err == nil && now.raw != known.raw {
			return nil
		}
		select {
		case <-ctx.Done():
			return contextEnded(ctx, "Init")
		case <-l.life.Done():
			return ErrLockerClosed
		case <-time.After(time.Millisecond):
		}
	}
}

// forInit returns what Init needs of a node that is up and adopted.
func (n *node) forInit() (rueidis.Client, marker, error) {
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
