package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"strings"
	"time"

	"github.com/redlock-go/redlock"
)

const (
	lockName = "cron:purge"
	lockKey  = "redlock:{" + lockName + "}"
	lease    = 2 * time.Second // short, so that nobody has to wait long to see a lock run out
)

var demoCommand = &command{
	name:    "demo",
	args:    "[--embedded]",
	summary: "a lock over five nodes of its own, told in ten seconds",
	about: `Two workers contend, nodes die, the lock is taken over and lost. It starts redis-server processes of its own
and ends them.

  --embedded            simulated nodes in this process, as where there is no redis-server`,
	prepare: func(f *flag.FlagSet, _ *connection) action {
		embedded := f.Bool("embedded", false, "")
		return func(ctx context.Context, c *call) error {
			if err := c.wantArgs(0, 0); err != nil {
				return err
			}
			return demo(ctx, c.out, *embedded)
		}
	},
}

// demo tells the story, and returns an error if it does not go as told.
func demo(ctx context.Context, out io.Writer, embedded bool) (err error) {
	nodes, err := startCluster(embedded)
	if err != nil {
		return err
	}
	s := &show{out: out, start: time.Now(), cluster: nodes, dead: make([]bool, nodeCount), owners: make(map[string]string)}
	defer func() {
		closing := nodes.close()
		err = errors.Join(err, closing)
		if closing == nil {
			s.say("demo", "the five nodes are gone, nothing is left behind")
		}
	}()
	s.introduce()

	a, err := s.worker("A")
	if err != nil {
		return err
	}
	defer a.locker.Close()
	b, err := s.worker("B")
	if err != nil {
		return err
	}
	defer b.locker.Close()

	for _, w := range []*worker{a, b} {
		if err := s.await(ctx, func() bool { return s.reachesAll(ctx, w) }); err != nil {
			return fmt.Errorf("worker %s does not find all nodes: %w", w.name, err)
		}
	}
	for _, chapter := range []func(context.Context, *worker, *worker) error{
		s.contend, s.extend, s.killMinority, s.takeOver, s.killMajority, s.comeBack,
	} {
		if err := chapter(ctx, a, b); err != nil {
			return err
		}
	}
	s.chapter("The end")
	return nil
}

// worker is one of the contenders. It has a Locker, hence connections, of its own, as a program of its own has.
type worker struct {
	name   string
	locker *redlock.Locker
	guard  *redlock.Guard
}

func (s *show) worker(name string) (*worker, error) {
	option := redlock.LockerOption{
		KeyValidity:       lease,
		RestartQuarantine: -1, // or the brand-new nodes would grant nothing for one lease
	}
	for i, n := range s.nodes {
		option.Nodes = append(option.Nodes, n.option(fmt.Sprintf("node-%d", i+1)))
	}
	locker, err := redlock.NewLocker(option)
	if err != nil {
		return nil, err
	}
	return &worker{name: name, locker: locker}, nil
}

// contend: one holds, the other is refused, waits, and is served.
func (s *show) contend(ctx context.Context, a, b *worker) error {
	s.chapter("Contention: one holder at a time, and the fencing token only grows")
	if err := s.acquired(ctx, a, a.locker.TryAcquire); err != nil {
		return err
	}
	asked := time.Now()
	_, err := b.locker.TryAcquire(ctx, lockName)
	if !errors.Is(err, redlock.ErrNotLocked) {
		return fmt.Errorf("worker B was not refused: %w", err)
	}
	s.say("B", "TryAcquire: refused after %v", short(time.Since(asked)))
	s.explain(err)

	waiting, stop := context.WithCancel(ctx)
	defer stop()
	served := make(chan error, 1)
	s.say("B", "Acquire: waits in line")
	go func() {
		guard, err := b.locker.Acquire(waiting, lockName)
		b.guard = guard
		served <- err
	}()
	if err := pause(ctx, 400*time.Millisecond); err != nil {
		return err
	}
	released := time.Now()
	if err := a.guard.Release(ctx); err != nil {
		return err
	}
	s.say("A", "releases")
	if err := <-served; err != nil {
		return err
	}
	after := time.Since(released)
	s.holds(b)
	s.note("B was woken by a push from Redis, %v after A's release began", short(after))
	return nil
}

// extend: a held lock is renewed in the background.
func (s *show) extend(ctx context.Context, _, b *worker) error {
	s.chapter("Extension: held for as long as it takes, in leases of " + lease.String())
	until := b.guard.ValidUntil()
	for range 2 {
		s.say("B", "works; the lock is valid for %v more, if nothing renews it", short(time.Until(b.guard.ValidUntil())))
		if err := b.work(ctx, 900*time.Millisecond); err != nil {
			return err
		}
	}
	moved := b.guard.ValidUntil().Sub(until)
	s.say("B", "has been extended: its end moved on by %v", short(moved))
	if moved <= 0 {
		return errors.New("worker B was not extended")
	}
	return nil
}

// killMinority: two dead nodes of five change nothing, and those that come back empty join again.
func (s *show) killMinority(ctx context.Context, a, b *worker) error {
	s.chapter("Two of five nodes die: nothing happens")
	for i := range 2 {
		if err := s.kill(i); err != nil {
			return err
		}
		if err := b.work(ctx, lease*6/10); err != nil {
			return err
		}
		s.sayNodes("B", "still holds, and is extended")
	}
	for i := range 2 {
		if err := s.restart(i); err != nil {
			return err
		}
	}
	back := time.Now()
	if err := s.await(ctx, func() bool { return s.holder(0) == "B" && s.holder(1) == "B" }); err != nil {
		return fmt.Errorf("nodes 1 and 2 did not join again: %w", err)
	}
	s.sayNodes("B", "has won both back, %v later", short(time.Since(back)))
	if err := b.guard.Err(); err != nil {
		return err
	}
	if err := s.await(ctx, func() bool { return s.reachesAll(ctx, a) }); err != nil {
		return fmt.Errorf("worker A does not find all nodes again: %w", err)
	}
	return nil
}

// takeOver: A takes the lock by force; B's context ends.
func (s *show) takeOver(ctx context.Context, a, b *worker) error {
	s.chapter("Takeover: A takes the lock by force, B's context ends")
	var store store
	old := b.guard
	store.write(old.FencingToken())
	s.say("B", "writes to a store that checks fencing tokens: accepted")

	start := time.Now()
	loss := s.watch(b, start)
	guard, err := a.locker.ForceAcquire(ctx, lockName)
	if err != nil {
		return fmt.Errorf("worker A could not take over: %w", err)
	}
	took := time.Since(start)
	ended := <-loss
	s.say("B", "context ended %v after A began, cause:", short(ended))
	s.explain(context.Cause(old.Context()))
	a.guard = guard
	s.holds(a)
	s.note("ForceAcquire took %v: it returns once B's guard has ended", short(took))
	if !errors.Is(old.Err(), redlock.ErrLost) {
		return fmt.Errorf("worker B's guard does not say that it was lost: %w", old.Err())
	}

	store.write(guard.FencingToken())
	s.say("A", "writes to the store: accepted")
	if store.write(old.FencingToken()) {
		return errors.New("the store took a write with an old fencing token")
	}
	s.say("B", "did not look at its context and writes: rejected, its token is smaller")
	return nil
}

// killMajority: with three nodes dead nobody can renew, so the lock ends by the clock.
func (s *show) killMajority(ctx context.Context, a, b *worker) error {
	s.chapter("Three of five nodes die: the lock is lost when its time is up")
	for i := range 3 {
		if err := s.kill(i); err != nil {
			return err
		}
	}
	start := time.Now()
	until := a.guard.ValidUntil()
	s.say("A", "still has %v of proven validity, and works on", short(time.Until(until)))
	select {
	case ended := <-s.watch(a, start):
		s.say("A", "context ended %v after the third node died, cause:", short(ended))
	case <-time.After(2 * lease):
		return errors.New("worker A holds a lock without a quorum")
	case <-ctx.Done():
		return ctx.Err()
	}
	cause := context.Cause(a.guard.Context())
	s.explain(cause)
	if !errors.Is(cause, redlock.ErrLost) {
		return fmt.Errorf("the cause is not a loss: %w", cause)
	}
	_, err := b.locker.TryAcquire(ctx, lockName)
	if !errors.Is(err, redlock.ErrNoQuorum) {
		return fmt.Errorf("worker B did not find the quorum missing: %w", err)
	}
	s.say("B", "TryAcquire: nobody can have the lock now")
	s.explain(err)
	return nil
}

// comeBack: the nodes come back without their data; tokens grow all the same.
func (s *show) comeBack(ctx context.Context, a, b *worker) error {
	s.chapter("The dead nodes come back, without their data")
	for i, dead := range s.dead {
		if !dead {
			continue
		}
		if err := s.restart(i); err != nil {
			return err
		}
	}
	waiting, cancel := context.WithTimeout(ctx, 4*lease)
	defer cancel()
	if err := s.acquired(waiting, b, b.locker.Acquire); err != nil {
		return err
	}
	if b.guard.FencingToken() <= a.guard.FencingToken() {
		return fmt.Errorf("worker B's fencing token %d is not above A's %d", b.guard.FencingToken(), a.guard.FencingToken())
	}
	s.note("the nodes forgot their counters, and still the token is larger than A's")
	if err := b.guard.Release(ctx); err != nil {
		return err
	}
	s.say("B", "releases")
	return nil
}

// work holds the lock for d, and returns early if it ends.
func (w *worker) work(ctx context.Context, d time.Duration) error {
	select {
	case <-time.After(d):
		return w.guard.Err()
	case <-w.guard.Done():
		return w.guard.Err()
	case <-ctx.Done():
		return ctx.Err()
	}
}

func pause(ctx context.Context, d time.Duration) error {
	select {
	case <-time.After(d):
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

// store is a resource that checks fencing tokens: it rejects those smaller than it has seen.
type store struct{ highest uint64 }

func (s *store) write(token uint64) (accepted bool) {
	if token < s.highest {
		return false
	}
	s.highest = token
	return true
}

// show is what the audience sees, and what the nodes look like.
type show struct {
	*cluster
	out      io.Writer
	start    time.Time
	chapters int
	dead     []bool
	owners   map[string]string // worker by the owner stored in the lock's key
}

func (s *show) introduce() {
	const indent = "        "
	fmt.Fprintf(s.out, "Two workers, A and B, want one lock: %q. Five independent Redis nodes vote on it.\n", lockName)
	fmt.Fprintf(s.out, "Nodes:  %s\n", s.about)
	if s.hint != "" {
		fmt.Fprintf(s.out, "%s%s\n", indent, wrap(s.hint, indent))
	}
	fmt.Fprintf(s.out, `Lock:   key %s on each node, lease %v, renewed every %v;
        counted as valid for 1.7s: lease - 10%% drift - 100ms for a step of a node's clock
Quorum: 3 of 5
Note:   the restart quarantine is OFF here (RestartQuarantine: -1), so that nodes without
        data vote at once. Leave it on where it matters: see README.md, "Lost memory".
On the right, who is stored on each node: A, B, - for nobody, x for a dead node.
`, lockKey, lease, short(lease/3))
}

func (s *show) chapter(title string) {
	s.chapters++
	fmt.Fprintf(s.out, "\n%d. %s\n", s.chapters, title)
}

// say prints what somebody did, and when.
func (s *show) say(who, format string, args ...any) {
	fmt.Fprintf(s.out, "%7.3fs  %-4s  %s\n", time.Since(s.start).Seconds(), who, fmt.Sprintf(format, args...))
}

// reachesAll reports whether a worker has connections to all nodes: a Locker looks for lost ones by itself, at least
// once a second.
func (s *show) reachesAll(ctx context.Context, w *worker) bool {
	const probe = "demo:probe"
	guard, err := w.locker.TryAcquire(ctx, probe)
	if err != nil {
		return false
	}
	defer guard.Release(ctx)
	time.Sleep(5 * time.Millisecond) // the last votes arrive after a quorum has decided
	for _, n := range s.nodes {
		if value, err := n.get("redlock:{" + probe + "}"); err != nil || value == "" {
			return false
		}
	}
	return true
}

// sayNodes is say with a look at the nodes.
func (s *show) sayNodes(who, format string, args ...any) {
	s.say(who, "%-47s nodes %s", fmt.Sprintf(format, args...), s.drawn())
}

// note prints a remark on the line before.
func (s *show) note(format string, args ...any) {
	const indent = "                "
	fmt.Fprintf(s.out, "%s%s\n", indent, wrap(fmt.Sprintf(format, args...), indent+"    "))
}

// wrap breaks long lines between words.
func wrap(text, indent string) string {
	const width = 96
	var b strings.Builder
	at := len(indent)
	for i, word := range strings.SplitAfter(text, " ") {
		if i > 0 && at+len(strings.TrimSpace(word)) > width {
			b.WriteString("\n" + indent)
			at = len(indent)
		}
		b.WriteString(word)
		at += len(word)
	}
	return b.String()
}

// explain prints an error of the library, a line for each node that it names.
func (s *show) explain(err error) {
	var qe *redlock.QuorumError
	ok := errors.As(err, &qe)
	if !ok {
		s.note("%v", err)
		return
	}
	whole := qe.Error()
	head, _, _ := strings.Cut(whole, " (")
	s.note("%s", head)
	for _, e := range qe.Errs {
		s.note("  %v", e)
	}
}

// acquired has a worker take the lock, and says so.
func (s *show) acquired(ctx context.Context, w *worker, acquire acquireFunc) error {
	start := time.Now()
	guard, err := acquire(ctx, lockName)
	if err != nil {
		return fmt.Errorf("worker %s did not get the lock: %w", w.name, err)
	}
	took := time.Since(start)
	w.guard = guard
	s.holds(w)
	s.note("that took %v", short(took))
	return nil
}

type acquireFunc func(context.Context, string, ...redlock.HoldOption) (*redlock.Guard, error)

// holds says that a worker holds the lock.
func (s *show) holds(w *worker) {
	s.learn(w)
	s.sayNodes(w.name, "HOLDS the lock, fencing token %d", w.guard.FencingToken())
}

// learn finds out by what owner the nodes know the worker that now holds the lock: the one most of them store. The
// last votes arrive after a quorum has decided, or are won at the first renewal, so it gives them time for that.
func (s *show) learn(w *worker) {
	for end := time.Now().Add(lease / 2); time.Now().Before(end); time.Sleep(time.Millisecond) {
		count, alive := make(map[string]int), 0
		for i := range s.nodes {
			if s.dead[i] {
				continue
			}
			alive++
			count[s.owner(i)]++
		}
		for owner, n := range count {
			if owner != "" && n > nodeCount/2 {
				s.owners[owner] = w.name
				if n == alive {
					return
				}
			}
		}
	}
}

// owner returns what comes first in the value of the lock's key on node i: the random value of whoever holds it.
func (s *show) owner(i int) string {
	value, err := s.nodes[i].get(lockKey)
	if err != nil {
		return ""
	}
	if end := strings.IndexAny(value, ";#"); end >= 0 {
		value = value[:end]
	}
	return value
}

// holder returns the worker that node i stores, "" for none.
func (s *show) holder(i int) string { return s.owners[s.owner(i)] }

// drawn draws the nodes.
func (s *show) drawn() string {
	marks := make([]string, len(s.nodes))
	for i := range s.nodes {
		switch holder := s.holder(i); {
		case s.dead[i]:
			marks[i] = "x"
		case holder == "":
			marks[i] = "-"
		default:
			marks[i] = holder
		}
	}
	return strings.Join(marks, " ")
}

func (s *show) kill(i int) error {
	if err := s.nodes[i].kill(); err != nil {
		return err
	}
	s.dead[i] = true
	s.sayNodes("demo", s.killing, i+1)
	return nil
}

func (s *show) restart(i int) error {
	if err := s.nodes[i].crashEmpty(); err != nil {
		return err
	}
	s.dead[i] = false
	s.sayNodes("demo", "starts node %d again, without data", i+1)
	return nil
}

// await polls until done, at most two leases.
func (s *show) await(ctx context.Context, done func() bool) error {
	deadline := time.Now().Add(2 * lease)
	for !done() {
		if time.Now().After(deadline) {
			return errors.New("it took too long")
		}
		if err := pause(ctx, 5*time.Millisecond); err != nil {
			return err
		}
	}
	return nil
}

// watch reports how long after start a worker's context ended.
func (s *show) watch(w *worker, start time.Time) <-chan time.Duration {
	ended := make(chan time.Duration, 1)
	done := w.guard.Context().Done()
	go func() {
		<-done
		ended <- time.Since(start)
	}()
	return ended
}

// short rounds a duration to what the eye can use.
func short(d time.Duration) time.Duration {
	if d < 10*time.Millisecond {
		return d.Round(10 * time.Microsecond)
	}
	return d.Round(time.Millisecond)
}
