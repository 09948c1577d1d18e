// Package check judges what guards did while a test broke things. A test takes its locks through a History, which
// watches each guard's own Err, the only judge of whether a guard is alive, and says in the end which of the
// library's promises were broken:
//
//   - exclusion: no two guards of one name are alive at once;
//   - finality: a guard that was seen dead is never seen alive again;
//   - fencing: tokens are all different, and a lock asked for after another was got has the larger one;
//   - linearizability of all that, judged by porcupine: one holder at a time, tokens rise.
//
// An Audit judges the same from the other side: by what each node executes.
//
// What is reported is proven: a guard counts as alive only between two looks at Err that both said so. A Register is
// the resource that a fencing token protects.
package check

import (
	"cmp"
	"context"
	"fmt"
	"maps"
	"slices"
	"sync"
	"time"

	"github.com/redlock-go/redlock"
)

// lookEvery is how often a guard is looked at: what two guards may overlap unseen.
const lookEvery = time.Millisecond

// checkEvery is how often a look becomes an operation that porcupine has to place.
const checkEvery = 50 * time.Millisecond

// Hold is one guard's life as seen from outside. All instants are of one host.
type Hold struct {
	Lock, Client string
	Token        uint64
	Invoked      time.Time // the lock was asked for
	Returned     time.Time // and got
	First, Last  time.Time // Err was nil before First and after Last: alive in between
	Checks       []Check   // some of the looks that found it alive
	LetGo        time.Time // the release was called for; zero: it was not
	Ended        time.Time // by then it was seen dead; zero: it never was
	Revived      time.Time // it was seen alive after that, which must never be; zero: it was not
	Cause        error
	MayOverlap   bool // taken by ForceAcquireNow: only the fence is promised
}

// Check is one look at Err that found the guard alive, from its call to its return.
type Check struct{ From, To time.Time }

// History is what all guards of a test did. It is safe for concurrent use.
type History struct {
	stop     chan struct{}
	stopOnce sync.Once
	watchers sync.WaitGroup

	mu    sync.Mutex
	holds []*Hold
	ended map[*redlock.Guard]*Hold
}

// New returns an empty history. Stop it.
func New() *History {
	return &History{stop: make(chan struct{}), ended: make(map[*redlock.Guard]*Hold)}
}

// Acquirer is one of Locker's ways to a lock: l.Acquire, l.TryAcquire, l.ForceAcquire.
type Acquirer = func(context.Context, string, ...redlock.HoldOption) (*redlock.Guard, error)

// Acquire asks for a lock and watches the guard from the moment it is there.
func (h *History) Acquire(ctx context.Context, client string, acquire Acquirer, name string) (*redlock.Guard, error) {
	return h.acquire(ctx, client, acquire, name, false)
}

// AcquireNow is Acquire for ForceAcquireNow, whose guard may overlap with others.
func (h *History) AcquireNow(ctx context.Context, client string, acquire Acquirer, name string) (*redlock.Guard, error) {
	return h.acquire(ctx, client, acquire, name, true)
}

func (h *History) acquire(ctx context.Context, client string, acquire Acquirer, name string, mayOverlap bool) (*redlock.Guard, error) {
	invoked := time.Now()
	g, err := acquire(ctx, name)
	if err != nil {
		return nil, err
	}
	hold := &Hold{Lock: name, Client: client, Token: g.FencingToken(), Invoked: invoked, Returned: time.Now(), MayOverlap: mayOverlap}
	h.mu.Lock()
	h.holds = append(h.holds, hold)
	h.ended[g] = hold
	h.mu.Unlock()
	h.look(hold, g)
	h.watchers.Go(func() { h.watch(hold, g) })
	return g, nil
}

// Release lets a guard go, and notes when.
func (h *History) Release(ctx context.Context, g *redlock.Guard) error {
	h.mu.Lock()
	if hold := h.ended[g]; hold.LetGo.IsZero() {
		hold.LetGo = time.Now()
	}
	h.mu.Unlock()
	return g.Release(ctx)
}

// Add takes in a life that was watched elsewhere, in another process.
func (h *History) Add(hold Hold) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.holds = append(h.holds, &hold)
}

// Of returns what was seen of a guard so far.
func (h *History) Of(g *redlock.Guard) Hold {
	h.mu.Lock()
	defer h.mu.Unlock()
	return *h.ended[g]
}

// Stop ends the watching and returns when nobody watches any more.
func (h *History) Stop() {
	h.stopOnce.Do(func() { close(h.stop) })
	h.watchers.Wait()
}

func (h *History) watch(hold *Hold, g *redlock.Guard) {
	ticker := time.NewTicker(lookEvery)
	defer ticker.Stop()
	done := g.Done()
	for {
		select {
		case <-h.stop:
			h.look(hold, g)
			return
		case <-done:
			done = nil
		case <-ticker.C:
		}
		if !h.look(hold, g) && done == nil {
			// Dead, and its context too. It must stay so: look again for a while, ever more seldom.
			h.watchDead(hold, g)
			return
		}
	}
}

// watchDead looks whether a dead guard stays dead. The gaps grow, so that a thousand dead ones cost nothing.
func (h *History) watchDead(hold *Hold, g *redlock.Guard) {
	for gap := lookEvery; gap < time.Minute; gap *= 2 {
		select {
		case <-h.stop:
			h.look(hold, g)
			return
		case <-time.After(gap):
			h.look(hold, g)
		}
	}
}

func (h *History) look(hold *Hold, g *redlock.Guard) (alive bool) {
	from := time.Now()
	err := g.Err()
	to := time.Now()
	token := g.FencingToken()
	h.mu.Lock()
	defer h.mu.Unlock()
	switch {
	case err != nil:
		if hold.Ended.IsZero() {
			hold.Ended, hold.Cause = to, err
		}
		return false
	case !hold.Ended.IsZero():
		hold.Revived = from
		return true
	case hold.First.IsZero():
		hold.First = to
	}
	hold.Last = from
	if token != hold.Token {
		hold.Revived = from // a token that changes is another life
	}
	if n := len(hold.Checks); n == 0 || from.Sub(hold.Checks[n-1].From) >= checkEvery {
		hold.Checks = append(hold.Checks, Check{from, to})
	}
	return true
}

// Holds returns everything seen so far, in the order in which the locks were got.
func (h *History) Holds() []Hold {
	h.mu.Lock()
	defer h.mu.Unlock()
	holds := make([]Hold, len(h.holds))
	for i, hold := range h.holds {
		holds[i] = *hold
		holds[i].Checks = slices.Clone(hold.Checks)
	}
	slices.SortStableFunc(holds, func(a, b Hold) int { return a.Returned.Compare(b.Returned) })
	return holds
}

// Violations returns every broken promise, in words. Locks that were taken with ForceAcquireNow are judged by their
// tokens alone.
func (h *History) Violations() []string { return Judge(h.Holds()) }

// Judge is Violations for lives recorded elsewhere.
func Judge(holds []Hold) []string {
	byLock := make(map[string][]Hold)
	for _, hold := range holds {
		byLock[hold.Lock] = append(byLock[hold.Lock], hold)
	}
	var violations []string
	for _, name := range slices.Sorted(maps.Keys(byLock)) {
		lives := byLock[name]
		forced := slices.ContainsFunc(lives, func(h Hold) bool { return h.MayOverlap })
		violations = append(violations, judgeFinality(lives)...)
		violations = append(violations, judgeTokens(lives)...)
		if !forced {
			violations = append(violations, judgeTimeline(lives)...)
			violations = append(violations, judgeLinearizable(name, lives)...)
		}
	}
	return violations
}

func judgeFinality(lives []Hold) (violations []string) {
	for _, h := range lives {
		if !h.Revived.IsZero() {
			violations = append(violations, fmt.Sprintf("finality: %v was alive again, or had another token, at %s", h, clock(h.Revived)))
		}
	}
	return violations
}

func judgeTimeline(lives []Hold) (violations []string) {
	alive := slices.DeleteFunc(slices.Clone(lives), func(h Hold) bool { return !h.First.Before(h.Last) })
	slices.SortFunc(alive, func(a, b Hold) int { return a.First.Compare(b.First) })
	for i, a := range alive {
		for _, b := range alive[i+1:] {
			if !b.First.Before(a.Last) {
				break
			}
			end := a.Last
			if b.Last.Before(end) {
				end = b.Last
			}
			violations = append(violations, fmt.Sprintf("exclusion: both alive for %v:\n\t%v\n\t%v", end.Sub(b.First), a, b))
		}
	}
	return violations
}

func judgeTokens(lives []Hold) (violations []string) {
	lives = slices.Clone(lives)
	slices.SortFunc(lives, func(a, b Hold) int { return cmp.Compare(a.Token, b.Token) })
	for i, h := range lives {
		if h.Token == 0 || h.Token >= 1<<53 {
			violations = append(violations, fmt.Sprintf("fencing: token out of range: %v", h))
		}
		if i > 0 && lives[i-1].Token == h.Token {
			violations = append(violations, fmt.Sprintf("fencing: one token twice:\n\t%v\n\t%v", lives[i-1], h))
		}
	}
	// By tokens ascending, nobody may have returned before the one with the smaller token was asked for.
	for i, smaller := range lives {
		for _, larger := range lives[i+1:] {
			if larger.Returned.Before(smaller.Invoked) {
				violations = append(violations, fmt.Sprintf("fencing: token fell:\n\t%v\n\t%v", larger, smaller))
			}
		}
	}
	return violations
}

func (h Hold) String() string {
	s := fmt.Sprintf("%s of %s, token %d, asked for at %s, got at %s, alive from %s to %s",
		h.Lock, h.Client, h.Token, clock(h.Invoked), clock(h.Returned), clock(h.First), clock(h.Last))
	if !h.LetGo.IsZero() {
		s += ", let go at " + clock(h.LetGo)
	}
	if !h.Ended.IsZero() {
		s += fmt.Sprintf(", seen dead at %s (%v)", clock(h.Ended), h.Cause)
	}
	return s
}

func clock(t time.Time) string {
	if t.IsZero() {
		return "never"
	}
	return t.Format("05.000000")
}
