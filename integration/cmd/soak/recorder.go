package main

import (
	"encoding/json"
	"net"
	"sync"
)

// recorder is the fenced register, and the memory of everything that happened. It is safe for concurrent use.
type recorder struct {
	broken bool // the register accepts every token

	mu       sync.Mutex
	stopping bool
	highest  map[string]uint64
	guards   map[string]*record
	order    []*record
	writes   []attempt
	windows  []window
	faults   map[string]int
	deaths   []string // worker processes that ended though nobody told them to
}

// record is what was told of one guard, or of one call that came to none.
type record struct {
	id, lock string
	slot     int // of the semaphore; 0 for a lock
	way      way
	process  string
	asked    instant
	bound    int64
	returned instant // 0: the call is still on its way, or its process was killed
	failed   string  // what kind of error the call came to
	text     string
	token    uint64
	held     bool
	over     bool
	lost     instant // its process was killed, or went away
	life     life
}

// attempt is one write that reached the register.
type attempt struct {
	at       instant
	guard    string
	lock     string
	token    uint64
	alive    bool // the guard's Err was nil just before
	accepted bool
}

// window is a stretch of time in which something was broken on purpose.
type window struct {
	from, to instant
	process  string // it alone: stopped, killed, or its network broken; "" for a majority of nodes out of everybody's reach
	stopped  bool   // it executed nothing
}

func newRecorder() *recorder {
	return &recorder{highest: make(map[string]uint64), guards: make(map[string]*record), faults: make(map[string]int)}
}

// serve speaks to one worker until it hangs up.
func (r *recorder) serve(conn net.Conn) {
	defer conn.Close()
	in, out := json.NewDecoder(conn), json.NewEncoder(conn)
	var open string // the guard it speaks of
	for {
		var e event
		if in.Decode(&e) != nil {
			break
		}
		open = e.Guard
		if out.Encode(r.take(e)) != nil {
			break
		}
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	if g := r.guards[open]; g != nil && !g.over && g.failed == "" {
		g.lost = now()
	}
}

// take notes an event, and lets the register decide about a write.
func (r *recorder) take(e event) reply {
	r.mu.Lock()
	defer r.mu.Unlock()
	answer := reply{Stop: r.stopping}
	g := r.guards[e.Guard]
	if e.Kind == asked {
		if !r.stopping {
			g = &record{id: e.Guard, lock: e.Lock, way: e.Way, process: processOf(e.Guard), asked: e.At, bound: int64(e.Bound)}
			r.guards[e.Guard] = g
			r.order = append(r.order, g)
		}
		return answer
	}
	switch e.Kind {
	case failed:
		g.returned, g.failed, g.text = e.Returned, e.Error, e.Text
	case got:
		g.returned, g.token, g.held = e.Returned, e.Token, true
		if g.lock == pool {
			g.lock, g.slot = slotOf(e.Slot), e.Slot
		}
		if g.way.reads() {
			g.lock = readOf(g.id)
		}
		g.life.First, g.life.Last = e.First, e.First
	case write:
		answer.Accepted = r.offer(g, e.Looked)
	case over:
		g.over, g.life = true, *e.Life
	}
	return answer
}

// offer is the register: it refuses a token smaller than one it has seen.
func (r *recorder) offer(g *record, looked instant) (accepted bool) {
	accepted = g.token >= r.highest[g.lock] || r.broken
	if accepted {
		r.highest[g.lock] = max(r.highest[g.lock], g.token)
	}
	r.writes = append(r.writes, attempt{at: now(), guard: g.id, lock: g.lock, token: g.token, alive: looked != 0, accepted: accepted})
	g.life.Last = max(g.life.Last, looked) // all that is known of a guard whose process is killed
	return accepted
}

// fault counts one.
func (r *recorder) fault(kind string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.faults[kind]++
}

// broke notes a window, which ends now if it has no end yet.
func (r *recorder) broke(w window) {
	if w.to == 0 {
		w.to = now()
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	r.windows = append(r.windows, w)
}

// died notes a worker process that ended by itself.
func (r *recorder) died(what string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.deaths = append(r.deaths, what)
}

// stop tells all workers to finish, with the next answer.
func (r *recorder) stop() {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.stopping = true
}
