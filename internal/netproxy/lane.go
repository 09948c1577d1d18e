package netproxy

import (
	"net"
	"sync"
	"time"
)

// maxQueued is how many bytes a lane keeps before it makes the sender wait: what two
// kernels' socket buffers would take.
const maxQueued = 4 << 20

// lane is one direction of one connection. A reader fills its queue, a writer empties
// it as the fault allows.
type lane struct {
	changed chan struct{} // 1-buffered: the writer should look again
	room    chan struct{} // 1-buffered: the reader should look again
	stopped chan struct{} // closed by stop
	stop    func()

	mu     sync.Mutex
	fault  fault
	queue  []chunk
	queued int // bytes in queue
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

// read takes in what src sends, up to its end or to stop (which goes with a close of
// src, or Read would not return).
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

// push appends a chunk and says when it is due, which is settled now: a later change of
// the delay does not reach what is under way.
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

// write lets the queue out to dst until the sender's end has been handed on, or stop. A
// dst that takes no more bytes does not end it: what it has to say about that comes
// through the other lane, and is subject to that lane's fault.
func (l *lane) write(dst net.Conn) {
	dead := false
	for {
		c, ok := l.next()
		if !ok {
			return
		}
		if c.end != nil {
			passEnd(dst, c.end)
			return
		}
		if !dead {
			_, err := dst.Write(c.data)
			dead = err != nil
		}
	}
}

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

// take removes the chunk that is to leave at now. If there is none, wait says when to
// look again, 0 for at the next change. Dropped data is removed on the way. Only the
// first chunk is ever looked at, so a late one holds up those behind it.
func (l *lane) take(now time.Time) (c chunk, wait time.Duration, ready bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for len(l.queue) > 0 {
		c = l.queue[0]
		if wait = c.due.Sub(now); wait > 0 {
			return chunk{}, wait, false
		}
		if l.fault.kind == hold || l.fault.kind == drop && c.end != nil {
			return chunk{}, 0, false
		}
		l.queue[0] = chunk{}
		l.queue = l.queue[1:]
		l.queued -= len(c.data)
		wake(l.room)
		if l.fault.kind == pass {
			return c, 0, true
		}
	}
	return chunk{}, 0, false
}

// wake tells the one who listens to look again; a second wake before it did is the same.
func wake(ch chan struct{}) {
	select {
	case ch <- struct{}{}:
	default:
	}
}
