package main

import (
	"context"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"net"
	"os"
	"strings"
	"sync"
	"time"

	"github.com/redis/rueidis"

	"github.com/redlock-go/redlock"
)

// A worker process has one Locker, as a program has, and some workers that take its locks one after the other.

const (
	// lookEvery is how often a guard is looked at: what two guards may overlap unseen.
	lookEvery = time.Millisecond
	// checkEvery is how often a look becomes one that porcupine has to place.
	checkEvery = 50 * time.Millisecond
	// nowLock is the one lock that ForceAcquireNow is used on; on all others only one guard may be alive.
	nowLock   = "now"
	safeLocks = 6
	// pool is a semaphore. It is asked for by so many workers that all its slots are taken most of the time.
	pool       = "pool"
	poolSlots  = 3
	poolWeight = 4 // a lock has 1
	// shelf is a reader-writer lock.
	shelf       = "shelf"
	shelfWeight = 3
)

// readOf is what is judged of a guard that reads: nobody else has it, but writers must not be there.
func readOf(guard string) string { return shelf + "/" + guard }

// slotOf is what is judged of a guard of the semaphore: its slot, as a lock by itself.
func slotOf(slot int) string { return fmt.Sprintf("%s/%d", pool, slot) }

// workerOptions is the command line of a worker process.
type workerOptions struct {
	socket, id, prefix, nodes string
	workers                   int
	seed                      uint64
	lease                     time.Duration
	verbose                   bool
}

func (o workerOptions) args() []string {
	return []string{
		workerCommand, "-socket", o.socket, "-id", o.id, "-prefix", o.prefix, "-nodes", o.nodes,
		fmt.Sprintf("-workers=%d", o.workers), fmt.Sprintf("-seed=%d", o.seed), fmt.Sprintf("-lease=%v", o.lease),
		fmt.Sprintf("-v=%v", o.verbose),
	}
}

// workerCommand is the first argument of a worker process.
const workerCommand = "worker"

// beWorker is a worker process. It ends when the parent says so, or is gone.
func beWorker(args []string) int {
	var o workerOptions
	flags := flag.NewFlagSet(workerCommand, flag.ExitOnError)
	flags.StringVar(&o.socket, "socket", "", "the parent's socket")
	flags.StringVar(&o.id, "id", "", "process.life")
	flags.StringVar(&o.prefix, "prefix", "", "KeyPrefix")
	flags.StringVar(&o.nodes, "nodes", "", "addresses")
	flags.IntVar(&o.workers, "workers", 1, "how many")
	flags.Uint64Var(&o.seed, "seed", 1, "of what the workers do")
	flags.DurationVar(&o.lease, "lease", time.Second, "KeyValidity")
	flags.BoolVar(&o.verbose, "v", false, "log")
	flags.Parse(args)
	if err := work(o); err != nil {
		fmt.Fprintf(os.Stderr, "soak: worker process %s: %v\n", o.id, err)
		return 1
	}
	return 0
}

func work(o workerOptions) error {
	option := redlock.LockerOption{KeyPrefix: o.prefix, KeyValidity: o.lease}
	for _, addr := range strings.Split(o.nodes, ",") {
		option.Nodes = append(option.Nodes, rueidis.ClientOption{InitAddress: []string{addr}})
	}
	if o.verbose {
		option.Logger = slog.New(slog.NewTextHandler(os.Stderr, nil)).With("process", o.id)
	}
	locker, err := redlock.NewLocker(option)
	if err != nil {
		return err
	}
	var wg sync.WaitGroup
	errs := make([]error, o.workers)
	for i := range o.workers {
		wg.Go(func() {
			conn, err := net.Dial("unix", o.socket)
			if err != nil {
				errs[i] = err
				return
			}
			defer conn.Close()
			w := &worker{
				locker: locker, lease: o.lease, id: fmt.Sprintf("%s/%d", o.id, i),
				rng: rand.New(rand.NewPCG(o.seed, uint64(i))),
				in:  json.NewDecoder(conn), out: json.NewEncoder(conn),
			}
			errs[i] = w.run()
		})
	}
	wg.Wait()
	locker.Close()
	return errors.Join(errs...)
}

// worker takes locks, one after the other, and writes to the register under them.
type worker struct {
	locker *redlock.Locker
	lease  time.Duration
	id     string
	rng    *rand.Rand
	in     *json.Decoder
	out    *json.Encoder
	stop   bool // the parent said so
}

// tell sends an event and takes the parent's answer.
func (w *worker) tell(e event) (reply, error) {
	var r reply
	if err := w.out.Encode(e); err != nil {
		return r, err
	}
	err := w.in.Decode(&r)
	w.stop = w.stop || r.Stop
	return r, err
}

// run takes locks until the parent says stop.
func (w *worker) run() error {
	for n := 0; !w.stop; n++ {
		if err := w.once(fmt.Sprintf("%s/%d", w.id, n)); err != nil {
			return err
		}
	}
	return nil
}

// once asks for one lock, and holds it if it gets it.
func (w *worker) once(guard string) error {
	lock, how := w.choose()
	call := map[way]func(context.Context, string, ...redlock.HoldOption) (*redlock.Guard, error){
		acquire: w.locker.Acquire, try: w.locker.TryAcquire, force: w.locker.ForceAcquire, forceNow: w.locker.ForceAcquireNow,
	}[how]
	switch {
	case lock == pool:
		call = w.callForSlot(how)
	case lock == shelf:
		call = w.callForShelf(how)
	case how == acquire && w.chance(0.25): // with another name, as one lock: it excludes those who want the one alone, and they it
		call = w.withAnother
	}
	bound := 6 * w.lease
	if _, err := w.tell(event{Kind: asked, Guard: guard, Lock: lock, Way: how, At: now(), Bound: bound}); err != nil || w.stop {
		return err
	}
	ctx, cancel := context.WithTimeout(context.Background(), bound)
	g, err := call(ctx, lock)
	returned := now()
	cancel()
	if err != nil {
		_, telling := w.tell(event{Kind: failed, Guard: guard, Returned: returned, Error: errorKind(err), Text: err.Error()})
		time.Sleep(w.between(5*time.Millisecond, 100*time.Millisecond))
		return telling
	}
	h := &holding{worker: w, guard: g, id: guard, over: make(chan struct{})}
	h.look()
	if _, err := w.tell(event{Kind: got, Guard: guard, Returned: returned, Token: g.FencingToken(), Slot: g.Slot(), First: h.life.First}); err != nil {
		return err
	}
	return h.hold()
}

// withAnother waits for a lock and another name, as one lock. The other is wanted by nobody who does not want two.
func (w *worker) withAnother(ctx context.Context, lock string, opts ...redlock.HoldOption) (*redlock.Guard, error) {
	return w.locker.AcquireAll(ctx, []string{fmt.Sprintf("side-%d", w.rng.IntN(3)), lock}, opts...)
}

// choose picks a lock and a way to it.
func (w *worker) choose() (string, way) {
	r := w.rng.Float64()
	lock := fmt.Sprintf("lock-%d", w.rng.IntN(safeLocks))
	switch n := w.rng.IntN(safeLocks + 1 + poolWeight + shelfWeight); {
	case n == 0:
		switch {
		case r < 0.15:
			return nowLock, forceNow
		case r < 0.25:
			return nowLock, try
		}
		return nowLock, acquire
	case n <= poolWeight:
		lock = pool
	case n <= poolWeight+shelfWeight:
		switch {
		case r < 0.6:
			return shelf, read
		case r < 0.7:
			return shelf, tryToRead
		case r < 0.75:
			return shelf, tryToWrite
		}
		return shelf, writing
	}
	switch {
	case r < 0.15:
		return lock, force
	case r < 0.25:
		return lock, try
	}
	return lock, acquire
}

// callForSlot returns a way to a slot of the semaphore.
func (w *worker) callForSlot(how way) func(context.Context, string, ...redlock.HoldOption) (*redlock.Guard, error) {
	slots := w.locker.Semaphore(pool, poolSlots)
	return func(ctx context.Context, _ string, opts ...redlock.HoldOption) (*redlock.Guard, error) {
		switch how {
		case force:
			return slots.ForceAcquire(ctx, 1+w.rng.IntN(poolSlots), opts...)
		case try:
			return slots.TryAcquire(ctx, opts...)
		}
		return slots.Acquire(ctx, opts...)
	}
}

// callForShelf returns a way to the reader-writer lock.
func (w *worker) callForShelf(how way) func(context.Context, string, ...redlock.HoldOption) (*redlock.Guard, error) {
	rw := w.locker.RW(shelf)
	call := map[way]func(context.Context, ...redlock.HoldOption) (*redlock.Guard, error){
		read: rw.Read, writing: rw.Write, tryToRead: rw.TryRead, tryToWrite: rw.TryWrite,
	}[how]
	return func(ctx context.Context, _ string, opts ...redlock.HoldOption) (*redlock.Guard, error) {
		return call(ctx, opts...)
	}
}

func (w *worker) chance(p float64) bool { return w.rng.Float64() < p }

func (w *worker) between(a, b time.Duration) time.Duration {
	return a + time.Duration(w.rng.Int64N(int64(b-a)))
}

// holdFor is how long a lock is held: mostly for some requests' time, at times over several extensions.
func (w *worker) holdFor() time.Duration {
	switch r := w.rng.Float64(); {
	case r < 0.85:
		return w.between(time.Millisecond, 30*time.Millisecond)
	case r < 0.97:
		return w.between(w.lease/20, w.lease/3)
	default:
		return w.between(w.lease/2, 5*w.lease/2)
	}
}

// holding is one guard in its worker's hands.
type holding struct {
	*worker
	guard *redlock.Guard
	id    string
	over  chan struct{} // closed when the watching is to end

	mu   sync.Mutex
	life life
}

// hold writes to the register while the guard lives, lets it go, and tells what was seen.
//
// One of ten is quiet: nobody looks at Err while it is held, which would end the context, so that it is seen when the
// context ends by itself. And every other one that loses its lock writes on.
func (h *holding) hold() error {
	h.life.Quiet = h.chance(0.1)
	var watching sync.WaitGroup
	watching.Go(h.watch)
	d := h.holdFor()
	if h.life.Quiet {
		d = h.between(h.lease, 3*h.lease) // long enough to be lost
	}
	err := h.use(time.After(d))
	if err == nil && h.guard.Err() != nil && h.chance(0.5) {
		err = h.write()
	}
	released := now()
	releasing := h.guard.Release(context.Background())
	took := now().sub(released)
	close(h.over)
	watching.Wait()
	if err != nil {
		return err
	}
	h.life.ReleasedAt, h.life.ReleaseTook = released, took
	for range 3 { // dead is dead
		h.look()
		time.Sleep(lookEvery)
	}
	if h.life.Cause == "" && releasing != nil {
		h.life.Cause, h.life.Text = errorKind(releasing), releasing.Error()
	}
	_, err = h.tell(event{Kind: over, Guard: h.id, Life: &h.life})
	return err
}

// use writes until enough, or the guard's end.
func (h *holding) use(enough <-chan time.Time) error {
	if err := h.write(); err != nil {
		return err
	}
	for {
		pause := time.After(h.between(time.Millisecond, 15*time.Millisecond))
		if h.life.Quiet {
			pause = nil
		}
		select {
		case <-enough:
			return nil
		case <-h.guard.Done():
			return nil
		case <-pause:
		}
		if err := h.write(); err != nil || h.stop {
			return err
		}
	}
}

// write looks at the guard and offers a write to the register whatever it saw, as a program would that was stopped in
// between; now and then it is slow to do so.
func (h *holding) write() error {
	looked := h.look()
	if h.chance(0.005) && !h.life.Quiet {
		time.Sleep(h.between(h.lease/10, 3*h.lease/2))
	}
	r, err := h.tell(event{Kind: write, Guard: h.id, Looked: looked})
	if err != nil {
		return err
	}
	if !r.Accepted && looked != 0 && !h.life.Quiet && h.look() != 0 {
		h.mu.Lock()
		h.life.LiveRefused = looked
		h.mu.Unlock()
	}
	return nil
}

// look looks at the guard's Err, and returns when if it was nil.
func (h *holding) look() instant {
	from := now()
	err := h.guard.Err()
	to := now()
	h.mu.Lock()
	defer h.mu.Unlock()
	l := &h.life
	switch {
	case err != nil:
		if l.Ended == 0 {
			l.Ended, l.Cause, l.Text = to, errorKind(err), err.Error()
		}
		return 0
	case l.Ended != 0:
		l.Revived = from
		return from
	case l.First == 0:
		l.First = to
	}
	l.Last = from
	if n := len(l.Checks); n == 0 || from.sub(l.Checks[n-1][0]) >= checkEvery {
		l.Checks = append(l.Checks, [2]instant{from, to})
	}
	return from
}

// watch looks at the guard until it is let go, and notes when its context ends.
func (h *holding) watch() {
	ticker := time.NewTicker(lookEvery)
	defer ticker.Stop()
	done := h.guard.Done()
	for {
		select {
		case <-done:
			ended := now()
			done = nil
			h.mu.Lock()
			h.life.Done = ended
			h.mu.Unlock()
			h.look()
		case <-h.over:
			return
		case <-ticker.C:
			if done == nil {
				continue
			}
			until := at(h.guard.ValidUntil())
			h.mu.Lock()
			if h.life.Ended == 0 {
				h.life.ValidUntil = max(h.life.ValidUntil, until)
			}
			quiet := h.life.Quiet
			h.mu.Unlock()
			if !quiet {
				h.look()
			}
		}
	}
}

// errorKind names what an error of the library matches.
func errorKind(err error) string {
	for _, known := range []struct {
		err  error
		name string
	}{
		{redlock.ErrReleased, "ErrReleased"},
		{redlock.ErrLockerClosed, "ErrLockerClosed"},
		{redlock.ErrTakenOver, "ErrTakenOver"},
		{redlock.ErrLost, "ErrLost"},
		{redlock.ErrNotLocked, "ErrNotLocked"},
		{redlock.ErrNoQuorum, "ErrNoQuorum"},
		{context.DeadlineExceeded, "DeadlineExceeded"},
	} {
		if errors.Is(err, known.err) {
			return known.name
		}
	}
	return undocumented
}

const undocumented = "undocumented"
