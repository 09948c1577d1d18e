package netproxy

import (
	"errors"
	"net"
	"sync"
	"time"
)

// maxQueued is how many bytes a lane keeps before it makes the sender wait: what two kernels' socket buffers would
// take.
const maxQueued = 4 << 20

// lane is one direction of one connection. A reader fills its queue, a writer empties it as the fault allows.
type lane struct {
	changed chan struct{} // 1-buffered: the writer should look again
	room    chan struct{} // 1-buffered: the reader should look again
	stopped chan struct{} // closed by stop
	stop    func()

	mu     sync.Mutex
	fault  fault
	queue  []chunk
	queued int       // bytes in queue
	free   time.Time // when the next may leave, for a rate's or a slice's sake
	doom   time.Time // when the connection is to be reset; zero if it is not
}

// chunk is a piece of data, or the end of what the sender has to say.
type chunk struct {
	data []byte
	end  error // io.EOF for an ordinary end; nil for data
	due  time.Time
}

func newLane(f fault) *lane {
	l := &lane{
		changed: make(chan struct{}, 1),
		room:    make(chan struct{}, 1),
		stopped: make(chan struct{}),
		fault:   f,
	}
	l.stop = sync.OnceFunc(func() { close(l.stopped) })
	return l
}

func (l *lane) set(f fault) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.fault = f
	wake(l.changed)
}

// lose is set, but what a silence kept that is over with it is dropped. It reports whether there was anything: the
// connection is of no use then.
func (l *lane) lose(f fault) (lost bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if lost = l.fault.silent && !f.silent && len(l.queue) > 0; lost {
		l.queue, l.queued = nil, 0
		wake(l.room)
	}
	l.fault = f
	wake(l.changed)
	return lost
}

// read takes in what src sends, up to its end or to stop (which goes with a close of src, or Read would not return).
func (l *lane) read(src net.Conn) {
	buf := make([]byte, 32<<10)
	for {
		n, err := src.Read(buf)
		if n > 0 {
			l.push(chunk{data: append([]byte(nil), buf[:n]...)})
		}
		if err != nil {
			l.push(chunk{end: err})
			return
		}
		if !l.awaitRoom() {
			return
		}
	}
}

// push appends a chunk and says when it is due, which is settled now: a later change of the delay does not reach what
// is under way.
func (l *lane) push(c chunk) {
	l.mu.Lock()
	delay := l.fault.delay
	l.mu.Unlock()
	c.due = time.Now()
	if delay != nil {
		c.due = c.due.Add(delay()) // calls out, hence outside the lock
	}

	l.mu.Lock()
	defer l.mu.Unlock()
	l.queue = append(l.queue, c)
	l.queued += len(c.data)
	wake(l.changed)
}

// awaitRoom waits while the queue is full. It is false once the lane is stopped.
func (l *lane) awaitRoom() bool {
	for {
		l.mu.Lock()
		full := l.queued >= maxQueued
		l.mu.Unlock()
		if !full {
			return true
		}
		select {
		case <-l.room:
		case <-l.stopped:
			return false
		}
	}
}

// write lets the queue out to dst until the sender's end has been handed on, or stop. It reports whether the connection
// is to be reset. A dst that takes no more bytes does not end it: what it has to say about that comes through the other
// lane, and is subject to that lane's fault.
func (l *lane) write(dst net.Conn) (doomed bool) {
	dead := false
	for {
		c, ok := l.next()
		switch {
		case !ok:
			return false
		case c.end == errDoomed:
			return true
		case c.end != nil:
			passEnd(dst, c.end)
			return false
		case !dead:
			_, err := dst.Write(c.data)
			dead = err != nil
		}
	}
}

// errDoomed is the end of a connection whose last data has been swallowed, see Link.ResetAfter.
var errDoomed = errors.New("netproxy: to be reset")

// next waits for the chunk that is to leave now. It is false once the lane is stopped.
func (l *lane) next() (chunk, bool) {
	for {
		c, wait, ready := l.take(time.Now())
		if ready {
			return c, true
		}
		var due <-chan time.Time
		if wait > 0 {
			due = time.After(wait)
		}
		select {
		case <-due:
		case <-l.changed:
		case <-l.stopped:
			return chunk{}, false
		}
	}
}

// take removes what is to leave at now: the first chunk, or a piece of it. If there is nothing, wait says when to look
// again, 0 for at the next change. Only the first chunk is ever looked at, so a late one holds up those behind it.
func (l *lane) take(now time.Time) (c chunk, wait time.Duration, ready bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.doom.IsZero() {
		if l.fault.silent || len(l.queue) == 0 {
			return chunk{}, 0, false
		}
		first := &l.queue[0]
		if wait = max(first.due.Sub(now), l.free.Sub(now)); wait > 0 {
			return chunk{}, wait, false
		}
		if first.end != nil {
			return *first, 0, true // the last one
		}
		if !l.fault.reset {
			return l.takePiece(now), 0, true
		}
		l.doom = now.Add(l.fault.resetAfter)
	}
	wait = l.doom.Sub(now)
	return chunk{end: errDoomed}, wait, wait <= 0
}

// takePiece removes what leaves at once of the first chunk.
func (l *lane) takePiece(now time.Time) chunk {
	first := &l.queue[0]
	size, pause := l.fault.piece(len(first.data))
	c := chunk{data: first.data[:size]}
	first.data = first.data[size:]
	if len(first.data) == 0 {
		l.queue[0] = chunk{}
		l.queue = l.queue[1:]
	}
	l.queued -= size
	l.free = now.Add(pause)
	wake(l.room)
	return c
}

// wake tells the one who listens to look again; a second wake before it did is the same.
func wake(ch chan struct{}) {
	select {
	case ch <- struct{}{}:
	default:
	}
}
