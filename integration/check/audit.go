package check

import (
	"bufio"
	"errors"
	"fmt"
	"net"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"
)

// Audit reads what one node executes, by MONITOR, replays it, and judges every write of the library's scripts to a
// lock's key, in the node's own order and time:
//
//   - nobody deletes or replaces what another owner stores, but by a takeover that lists that owner;
//   - who is listed stays listed until its lease has run out there, or its own release strikes it out;
//   - an owner's lease never gets shorter;
//   - nothing is granted in quarantine.
//
// What others write, and what was there before the connection came up, is not known and not judged.
type Audit struct {
	name string
	stop chan struct{}
	done sync.WaitGroup

	mu     sync.Mutex
	conn   net.Conn
	replay replay
}

// NewAudit starts an audit of the node at an address. Stop it.
func NewAudit(network, addr string) *Audit {
	a := &Audit{name: addr, stop: make(chan struct{})}
	a.done.Go(func() { a.run(network, addr) })
	return a
}

// Stop ends the audit and returns what was wrong.
func (a *Audit) Stop() (violations []string) {
	close(a.stop)
	a.mu.Lock()
	if a.conn != nil {
		a.conn.Close()
	}
	a.mu.Unlock()
	a.done.Wait()
	a.replay.ended()
	for _, v := range a.replay.violations {
		violations = append(violations, "audit of "+a.name+": "+v)
	}
	return violations
}

// run reconnects for as long as it takes: nodes are killed and clients hung up on.
func (a *Audit) run(network, addr string) {
	for {
		a.follow(network, addr)
		select {
		case <-a.stop:
			return
		case <-time.After(20 * time.Millisecond):
		}
	}
}

func (a *Audit) follow(network, addr string) {
	conn, err := net.Dial(network, addr)
	if err != nil {
		return
	}
	defer conn.Close()
	a.mu.Lock()
	select {
	case <-a.stop:
		a.mu.Unlock()
		return
	default:
	}
	a.conn = conn
	a.mu.Unlock()
	if _, err := conn.Write([]byte("MONITOR\r\n")); err != nil {
		return
	}
	a.replay.forget()
	lines := bufio.NewScanner(conn)
	lines.Buffer(nil, 1<<20)
	for lines.Scan() {
		a.replay.line(lines.Text())
	}
}

// replay is one node as its commands say it is.
type replay struct {
	keys       map[string]stored
	latest     int64    // the latest node time seen: what was over then is gone, also where the clock has been set back since
	freeFrom   int64    // end of the quarantine, node time in µs
	by         call     // the script that runs
	pending    func()   // what a SET NX does, if the next command says that it was done
	running    []string // violations of that script, which may still take its grant back
	violations []string
	judged     int
}

// stored is what a lock's key holds.
type stored struct {
	value string
	until int64 // node time in µs
}

// call is a script call: who it is for, and which step it is.
type call struct {
	step  string
	owner string
}

const (
	acquires = "acquire"
	extends  = "extend"
	releases = "release"

	// blur is how far the time that MONITOR tells may be from the one that a script saw, in µs: Redis counts a lease in
	// whole milliseconds from the start of the script.
	blur = 5000
)

func (r *replay) forget() {
	r.keys, r.freeFrom, r.by, r.pending, r.running = make(map[string]stored), 0, call{}, nil, nil
	r.latest = 0
}

// line takes in one line of MONITOR:
//
//	1700000000.123456 [0 lua] "SET" "redlock:{a}" "OWNER" "PX" "10000"
func (r *replay) line(text string) {
	now, source, args, err := parseMonitor(text)
	if err != nil || len(args) == 0 {
		return // +OK
	}
	r.latest = max(r.latest, now)
	command := strings.ToUpper(args[0])
	if source != "lua" {
		r.ended()
		r.direct(command, args)
		return
	}
	if pending := r.pending; pending != nil {
		r.pending = nil
		if command != "GETEX" { // a refused acquire looks at the marker next
			pending()
		}
	}
	if len(args) < 2 {
		return
	}
	key := args[1]
	switch {
	case strings.HasSuffix(key, ":marker") && command == "SET":
		r.marked(args[2])
	case !strings.Contains(key, ":{") || strings.Contains(key, ":queue:"):
	case command == "SET":
		r.set(now, key, args)
	case command == "PEXPIRE":
		r.expire(now, key, args[2])
	case command == "DEL":
		r.del(now, key)
	}
}

// ended notes that the script has come to its end.
func (r *replay) ended() {
	r.violations = append(r.violations, r.running...)
	r.pending, r.running = nil, nil
}

// direct takes in a command that a client sent.
func (r *replay) direct(command string, args []string) {
	switch command {
	case "EVALSHA", "EVAL":
		r.by = callOf(args)
	case "FLUSHALL", "FLUSHDB", "SWAPDB", "REPLICAOF", "SLAVEOF", "DEBUG":
		r.forget()
	default:
		for _, key := range args[1:] {
			delete(r.keys, key)
			if strings.HasSuffix(key, ":marker") && command == "SET" {
				r.freeFrom = 0
			}
		}
	}
}

// callOf tells a step by its arguments.
func callOf(args []string) call {
	if len(args) < 4 {
		return call{}
	}
	n, err := strconv.Atoi(args[2])
	if err != nil || n < 1 || len(args) < 3+n+1 {
		return call{}
	}
	keys, argv := args[3:3+n], args[3+n:]
	c := call{owner: headOf(argv[0])}
	switch {
	case len(argv) == 16:
		c.step = acquires
	case len(argv) == 8 && n == 2 && strings.HasSuffix(keys[1], ":marker"):
		c.step = extends
	case len(argv) == 8:
		c.step = releases
	}
	return c
}

func (r *replay) marked(marker string) {
	fields := strings.Split(marker, ":")
	if len(fields) > 2 {
		r.freeFrom, _ = strconv.ParseInt(fields[1], 10, 64)
	}
}

func (r *replay) violated(now int64, key, format string, args ...any) {
	r.running = append(r.running, fmt.Sprintf("%d: %s of %.8s to %s: %s", now, r.by.step, r.by.owner, key, fmt.Sprintf(format, args...)))
}

func (r *replay) set(now int64, key string, args []string) {
	value, until, kept := args[2], int64(0), false
	onlyNew := false
	for i := 3; i < len(args); i++ {
		switch strings.ToUpper(args[i]) {
		case "NX":
			onlyNew = true
		case "KEEPTTL":
			kept = true
		case "PX":
			ms, _ := strconv.ParseInt(args[i+1], 10, 64)
			until = now + ms*1000
		}
	}
	was, known := r.keys[key]
	alive := known && r.latest < was.until
	write := func() {
		r.judged++
		if r.by.step != releases && now < r.freeFrom-blur {
			r.violated(now, key, "granted in quarantine, %d µs before its end", r.freeFrom-now)
		}
		r.keys[key] = stored{value, until}
	}
	if onlyNew {
		if alive && r.latest < was.until-blur {
			write = func() {
				r.violated(now, key, "set although %q stands for %d µs", was.value, was.until-now)
				r.keys[key] = stored{value, until}
			}
		}
		r.pending = write
		return
	}
	if alive {
		head := headOf(was.value)
		due := listed(was.value, now+blur)
		if r.by.step != releases && head != r.by.owner && head != "~" {
			due = append(due, head)
		}
		if r.by.step == releases && head != r.by.owner && head != "~" && !kept {
			r.violated(now, key, "replaces %q, of another owner", was.value)
		}
		has := listed(value, 0)
		for _, owner := range due {
			if owner != r.by.owner && !slices.Contains(has, owner) {
				r.violated(now, key, "%q forgets %s of %q", value, owner, was.value)
			}
		}
		if r.by.step == acquires && until < was.until-blur {
			r.violated(now, key, "lease shortened by %d µs", was.until-until)
		}
	}
	if kept {
		until = was.until
	}
	write()
}

func (r *replay) expire(now int64, key, text string) {
	was, known := r.keys[key]
	ms, err := strconv.ParseInt(text, 10, 64)
	if !known || err != nil {
		return
	}
	r.judged++
	until := now + ms*1000
	// Whoever is refused may cut a lease down that is longer than any: PERSIST, or a clock that went back.
	if headOf(was.value) == r.by.owner && r.latest < was.until && until < was.until-blur {
		r.violated(now, key, "lease shortened by %d µs", was.until-until)
	}
	r.keys[key] = stored{was.value, until}
}

func (r *replay) del(now int64, key string) {
	was, known := r.keys[key]
	delete(r.keys, key)
	if !known || r.latest >= was.until {
		return
	}
	r.judged++
	switch head := headOf(was.value); {
	case head != r.by.owner && head != "~":
		r.violated(now, key, "deletes %q, of another owner", was.value)
	case r.by.step == acquires: // it has looked at the marker or the line, and takes the grant back
		r.running = nil
		return
	}
	for _, owner := range listed(was.value, now+blur) {
		if owner != r.by.owner {
			r.violated(now, key, "deletes %q, and with it %s", was.value, owner)
		}
	}
}

// headOf returns the owner in a lock's value.
func headOf(value string) string {
	if end := strings.IndexAny(value, ";#"); end >= 0 {
		return value[:end]
	}
	return value
}

// listed returns the displaced owners in a lock's value whose leases end after an instant.
func listed(value string, after int64) (owners []string) {
	for _, entry := range strings.Split(value, ";")[1:] {
		owner, until, _ := strings.Cut(entry, "@")
		if end, err := strconv.ParseInt(until, 10, 64); err == nil && end > after {
			owners = append(owners, owner)
		}
	}
	return owners
}

var errNotMonitor = errors.New("not a line of MONITOR")

func parseMonitor(text string) (micros int64, source string, args []string, err error) {
	text = strings.TrimPrefix(text, "+")
	stamp, rest, ok := strings.Cut(text, " [")
	seconds, fraction, ok2 := strings.Cut(stamp, ".")
	from, rest, ok3 := strings.Cut(rest, "] ")
	if !ok || !ok2 || !ok3 {
		return 0, "", nil, errNotMonitor
	}
	if micros, err = strconv.ParseInt(seconds+fraction, 10, 64); err != nil {
		return 0, "", nil, errNotMonitor
	}
	_, source, _ = strings.Cut(from, " ")
	for rest = strings.TrimSpace(rest); rest != ""; rest = strings.TrimSpace(rest) {
		quoted, err := strconv.QuotedPrefix(rest)
		if err != nil {
			return 0, "", nil, errNotMonitor
		}
		arg, err := strconv.Unquote(quoted)
		if err != nil {
			return 0, "", nil, errNotMonitor
		}
		args, rest = append(args, arg), rest[len(quoted):]
	}
	return micros, source, args, nil
}
