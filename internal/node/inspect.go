package node

import (
	"cmp"
	"context"
	_ "embed"
	"errors"
	"maps"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/redis/rueidis"
)

//go:embed lua/inspect.lua
var luaInspect string

//go:embed lua/inspect_rw.lua
var luaInspectRW string

//go:embed lua/resize.lua
var luaResize string

// View is what one node says of a lock.
type View struct {
	Value   string // stored for the lock: who holds it, empty if nobody does
	Left    time.Duration
	Token   uint64
	Waiters []string
}

// Place is the keys of a lock, or of a semaphore's slot, that say who holds it and who waits.
type Place struct{ lock, queue, fence string }

// LockPlace returns the keys of a lock.
func LockPlace(prefix, name string) Place {
	return Place{LockKey(prefix, name), QueueKey(prefix, name), FenceKey(prefix, name)}
}

// SlotPlace returns the keys of a slot.
func SlotPlace(prefix, name string, slot int) Place {
	return Place{SlotKey(prefix, name, slot), SlotQueueKey(prefix, name), FenceKey(prefix, SlotFence(name, slot))}
}

// Inspect asks the node who holds each of these and who waits for it.
func (n *Node) Inspect(ctx context.Context, places []Place) ([]View, error) {
	n.mu.Lock()
	client, down := n.client, n.down
	n.mu.Unlock()
	if down != nil {
		return nil, down
	}
	return Views(ctx, client, n.set.option.KeyPrefix, places)
}

// viewsAtOnce bounds how many locks, or semaphores, one round trip asks for.
const viewsAtOnce = 128

// Views asks a server, through any client, who holds each of these and who waits for it. It changes nothing, and asks nothing of
// the server's being a node.
func Views(ctx context.Context, client rueidis.Client, prefix string, places []Place) ([]View, error) {
	views := make([]View, 0, len(places))
	for some := range slices.Chunk(places, viewsAtOnce) {
		commands := make([]rueidis.Completed, 0, len(some))
		for _, p := range some {
			commands = append(commands, client.B().Eval().Script(luaInspect).Numkeys(2).Key(p.lock, p.queue).Arg(p.fence, WakePrefix(prefix)).Build())
		}
		for _, reply := range client.DoMulti(ctx, commands...) {
			values, err := reply.ToArray()
			if err != nil {
				return nil, seenFromOutside(err)
			}
			v, err := viewOf(values)
			if err != nil {
				return nil, err
			}
			views = append(views, v)
		}
	}
	return views, nil
}

// RWView is what one node says of a reader-writer lock.
type RWView struct {
	Writer  View            // with all who wait, to read or to write
	Readers map[string]View // by the owner whose key it is, also where that only keeps writers out; without waiters
}

// InspectRW asks the node who writes, who reads, and who waits to do either.
func (n *Node) InspectRW(ctx context.Context, name string) (RWView, error) {
	n.mu.Lock()
	client, down := n.client, n.down
	n.mu.Unlock()
	if down != nil {
		return RWView{}, down
	}
	views, err := RWViews(ctx, client, n.set.option.KeyPrefix, []string{name})
	if err != nil {
		return RWView{}, err
	}
	return views[0], nil
}

// RWViews asks a server who writes, who reads and who waits, for each of these reader-writer locks, as Views does.
func RWViews(ctx context.Context, client rueidis.Client, prefix string, names []string) ([]RWView, error) {
	views := make([]RWView, 0, len(names))
	for some := range slices.Chunk(names, viewsAtOnce) {
		commands := make([]rueidis.Completed, 0, 2*len(some))
		for _, name := range some {
			fence := func(side int) string { return fencePrefix(prefix) + strconv.Itoa(int(RWBucket(name, side))) }
			commands = append(commands,
				client.B().Eval().Script(luaInspect).Numkeys(2).Key(WriterKey(prefix, name), WaitersKey(prefix, name)).Arg(fence(Writer), WakePrefix(prefix)).Build(),
				client.B().Eval().Script(luaInspectRW).Numkeys(2).Key(WriterKey(prefix, name), ReadersKey(prefix, name)).Arg(fence(Reader)).Build())
		}
		for pair := range slices.Chunk(client.DoMulti(ctx, commands...), 2) {
			writer, err1 := pair[0].ToArray()
			readers, err2 := pair[1].ToArray()
			if err := cmp.Or(err1, err2); err != nil {
				return nil, seenFromOutside(err)
			}
			v, err := rwViewOf(writer, readers)
			if err != nil {
				return nil, err
			}
			views = append(views, v)
		}
	}
	return views, nil
}

// rwViewOf reads the answers of the inspect script, asked for the writer, and of the inspect_rw script.
func rwViewOf(writer, readers []rueidis.RedisMessage) (v RWView, err error) {
	if v.Writer, err = viewOf(writer); err != nil {
		return RWView{}, err
	}
	v.Readers = make(map[string]View, len(readers)/4)
	for reader := range slices.Chunk(readers, 4) {
		owner, err := reader[0].ToString()
		if err != nil {
			return RWView{}, err
		}
		if v.Readers[owner], err = viewOf(reader[1:]); err != nil {
			return RWView{}, err
		}
	}
	return v, nil
}

// Resize has the node note that a semaphore has so many slots from now on, and returns how many it has there: others if it
// is not the number that it was taken to be. ctx bounds it, and nothing may be in doubt for longer than that.
func (n *Node) Resize(ctx context.Context, name string, from, to int) (int64, error) {
	n.mu.Lock()
	client, down := n.client, n.down
	n.mu.Unlock()
	if down != nil {
		return 0, down
	}
	size, err := client.Do(ctx, client.B().Eval().Script(luaResize).Numkeys(1).Key(SizeKey(n.set.option.KeyPrefix, name)).
		Arg(strconv.Itoa(from), strconv.Itoa(to), strconv.FormatInt(n.LongestLease().Milliseconds(), 10)).Build()).AsInt64()
	if err != nil {
		return 0, seenFromOutside(err)
	}
	return size, nil
}

// viewOf reads the answer of the inspect script.
func viewOf(reply []rueidis.RedisMessage) (View, error) {
	if len(reply) < 3 {
		return View{}, errors.New("reply is not one of ours")
	}
	value, err1 := reply[0].ToString()
	left, err2 := reply[1].AsInt64()
	token, err3 := reply[2].ToString()
	if err := errors.Join(err1, err2, err3); err != nil {
		return View{}, err
	}
	v := View{Value: value, Left: time.Duration(left) * time.Millisecond}
	v.Token, _ = strconv.ParseUint(token, 10, 64)
	for _, w := range reply[3:] {
		id, err := w.ToString()
		if err != nil {
			return View{}, err
		}
		v.Waiters = append(v.Waiters, id)
	}
	return v, nil
}

// seenFromOutside is the error of a command as a node's: what the server said, or what became of the connection.
func seenFromOutside(err error) error {
	if re := (*rueidis.RedisError)(nil); errors.As(err, &re) {
		return err
	}
	return ConnectionFault(err)
}

// Names are the locks, the semaphores and the reader-writer locks that a server has a key of, sorted.
type Names struct{ Locks, Semaphores, RWs []string }

// FindNames finds them. It scans: a large database takes many round trips, none of which keeps the server for long.
func FindNames(ctx context.Context, client rueidis.Client, prefix string) (Names, error) {
	locks, semaphores, rws := make(map[string]bool), make(map[string]bool), make(map[string]bool) // SCAN may return a key twice
	for cursor := uint64(0); ; {
		page, err := client.Do(ctx, client.B().Scan().Cursor(cursor).Match(globEscape(prefix)+":[{rs]*").Count(1000).Build()).AsScanEntry()
		if err != nil {
			return Names{}, seenFromOutside(err)
		}
		for _, key := range page.Elements {
			rest, ours := strings.CutPrefix(key, prefix+":")
			rest, isSlot := strings.CutPrefix(rest, "slot:")
			rest, isRW := strings.CutPrefix(rest, "rw:")
			end := strings.LastIndexByte(rest, '}')
			switch {
			case !ours || end < 2 || rest[0] != '{': // no name, or none in braces
			case isSlot && isRW: // slot:rw: begins no key of ours
			case isSlot:
				semaphores[rest[1:end]] = true
			case isRW:
				rws[rest[1:end]] = true
			case end == len(rest)-1:
				locks[rest[1:end]] = true
			}
		}
		if cursor = page.Cursor; cursor == 0 {
			return Names{slices.Sorted(maps.Keys(locks)), slices.Sorted(maps.Keys(semaphores)), slices.Sorted(maps.Keys(rws))}, nil
		}
	}
}

// Slots is what one node knows of how many slots a semaphore has.
type Slots struct {
	K     int // 0: nothing
	Taken int // the highest that somebody has, 0 for none; above K after a Resize
}

// CountSlots asks a server for the slots of each of these semaphores.
func CountSlots(ctx context.Context, client rueidis.Client, prefix string, names []string) ([]Slots, error) {
	all := make([]Slots, 0, len(names))
	for some := range slices.Chunk(names, viewsAtOnce) {
		commands := make([]rueidis.Completed, len(some))
		for i, name := range some {
			mget := client.B().Mget().Key(SizeKey(prefix, name))
			for slot := range MaxSlots {
				mget = mget.Key(SlotKey(prefix, name, slot+1))
			}
			commands[i] = mget.Build()
		}
		for _, reply := range client.DoMulti(ctx, commands...) {
			values, err := reply.ToArray()
			if err != nil {
				return nil, seenFromOutside(err)
			}
			all = append(all, slotsIn(values))
		}
	}
	return all, nil
}

// slotsIn reads a semaphore's size and slots.
func slotsIn(values []rueidis.RedisMessage) (s Slots) {
	for slot, v := range values {
		text, err := v.ToString()
		switch {
		case err != nil: // there is none
		case slot == 0:
			s.K, _ = strconv.Atoi(text)
		default:
			s.Taken = slot
		}
	}
	return s
}
