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
//   - an owner is replaced by another that resumes its lock, and that names it, or given back to it;
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
	by         call     // the step that runs
	batch      []call   // the steps that are still to come, where it is a script of several
	pending    func()   // what a SET NX does, if the next command says that it was done
	asked      string   // the lock of the SET NX that was the last command
	running    []string // violations of that script, which may still take its grant back
	violations []string
	judged     int
}

// stored is what a lock's key holds.
type stored struct {
	value string
	until int64 // node time in µs
}

// call is a step of a script: which it is, who it is for, and of which lock.
type call struct {
	step   string
	owner  string
	key    string
	from   string // whose place an extend may take
	backTo string // who gets it back by a release
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
	r.latest, r.batch = 0, nil
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
	if source == "lua" && len(args) > 1 && isOfSemaphore(args[1]) {
		return
	}
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
	if strings.Contains(key, ":rw:{") {
		r.side(now, command, key, args)
		return
	}
	r.turnTo(command, args)
	switch {
	case strings.HasSuffix(key, ":marker") && command == "SET":
		r.marked(args[2])
	case !strings.Contains(key, ":{") || strings.Contains(key, ":queue:"):
	case command == "SET":
		r.set(now, key, args)
	case command == "PEXPIRE":
		r.expire(now, key, args)
	case command == "DEL":
		r.del(now, key)
	}
}

// isOfSemaphore reports whether a key is a semaphore's number of slots or its line: neither lock nor marker.
func isOfSemaphore(key string) bool {
	return strings.Contains(key, ":slot:{") && (strings.HasSuffix(key, "}") || strings.HasSuffix(key, "}queue"))
}

// side takes in a command on a key of a reader-writer lock, whatever step it is of: when a writer's key is set no reader's may stand, and when
// a reader's is, no writer's but one of its own party.
func (r *replay) side(now int64, command, key string, args []string) {
	base := key[:strings.LastIndexByte(key, '}')+1]
	reader := key[len(base):]
	if reader == "queue" || reader == "readers" {
		return
	}
	was, known := r.keys[key]
	switch command {
	case "DEL":
		delete(r.keys, key)
	case "PEXPIRE":
		if ms, err := strconv.ParseInt(args[2], 10, 64); known && err == nil {
			r.keys[key] = stored{was.value, max(was.until, now+ms*1000)}
		}
	case "SET":
		set := func() {
			r.judged++
			for other, s := range r.keys {
				opposite := strings.HasPrefix(other, base) && (other == base) != (key == base)
				party := len(s.value) > 16 && s.value[1:16] == args[2][1:16]
				if opposite && !party && s.value[0] != '~' && r.latest < s.until-blur {
					r.violated(now, key, "set to %q although %s stands for %d µs", args[2], other, s.until-now)
				}
			}
			r.keys[key] = stored{args[2], was.until}
			if i := slices.Index(args, "PX"); i > 0 && i+1 < len(args) {
				ms, _ := strconv.ParseInt(args[i+1], 10, 64)
				r.keys[key] = stored{args[2], now + ms*1000}
			}
		}
		switch {
		case slices.Contains(args, "NX"):
			if !known || r.latest >= was.until-blur {
				r.pending = set
			}
		case len(args[2]) > 16 && args[2][0] != '~' && !slices.Contains(args, "KEEPTTL"):
			set()
		}
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
		r.by, r.batch = callOf(args), stepsOf(args)
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

// turnTo finds the step of a batch that a command belongs to, by its lock: they come in order, and each begins with a SET
// NX or a GETEX of it. An acquire that is refused looks at the lock at once after that SET: this is no other step.
func (r *replay) turnTo(command string, args []string) {
	key, opens := args[1], command == "SET" && slices.Contains(args, "NX")
	refused := command == "GETEX" && r.asked == key
	if r.asked = ""; opens {
		r.asked = key
	}
	if !opens && command != "GETEX" || refused {
		return
	}
	r.skipTo(func(c call) bool { return c.key == key && opens == (c.step == acquires) }) // what lies between was late: it touches nothing
}

// skipTo turns to the first step to come that fits, if one does.
func (r *replay) skipTo(fits func(call) bool) {
	if next := slices.IndexFunc(r.batch, fits); next >= 0 {
		r.ended()
		r.by, r.batch = r.batch[next], r.batch[next+1:]
	}
}

// stepsOf tells the steps of a batch by its arguments: lua/batch.lua in internal/node has them. One that is late, or whose
// node has another marker, touches nothing.
func stepsOf(args []string) (steps []call) {
	const head = 10
	keys, argv := split(args)
	if len(keys) < 1 || len(argv) < head || isOfSeveral(argv) || !strings.HasSuffix(keys[0], ":marker") || !strings.HasSuffix(argv[6], ":wake:") {
		return nil
	}
	keys, argv = keys[1:], argv[head:]
	for len(argv) > 0 {
		if argv[0] == "own" && len(argv) > 3 {
			argv = argv[3:]
		}
		if (argv[0] == "slot" || argv[0] == "rw") && len(argv) > 2 {
			argv = argv[2:]
		}
		c, more, read := call{step: releases}, 6, 0
		switch argv[0] {
		case "acquire", "take":
			c.step, read, more = acquires, 1, 4
		case "wait":
			c.step, read, more = acquires, 2, 4
		case "ask":
			c.step, read, more = acquires, 2, 5
		case "extend", "regain":
			c.step, read, more = extends, 1, 4
		case "succeed":
			c.step, read, more = extends, 1, 5
		case "stay":
			read = 1
		case "end":
			more = 3
		case "keep":
			more = 7
		}
		if len(argv) < more || len(keys) < read {
			return nil
		}
		c.owner, c.key = headOf(argv[1]), argv[2]
		switch {
		case argv[0] == "succeed":
			c.from = tail(argv[4])
		case argv[0] == "release":
			c.backTo = tail(argv[3])
		}
		if c.step != releases {
			c.key = keys[0]
		}
		steps, argv, keys = append(steps, c), argv[more:], keys[read:]
	}
	return steps
}

// split returns the keys and the arguments of a script call.
func split(args []string) (keys, argv []string) {
	if len(args) < 4 {
		return nil, nil
	}
	n, err := strconv.Atoi(args[2])
	if err != nil || n < 1 || len(args) < 3+n+1 {
		return nil, nil
	}
	return args[3 : 3+n], args[3+n:]
}

// callOf tells a lone step by its arguments.
func callOf(args []string) call {
	keys, argv := split(args)
	if len(argv) == 0 {
		return call{}
	}
	if isOfSeveral(argv) {
		step, _, _ := strings.Cut(argv[8], " ")
		return call{step: step, owner: headOf(argv[9])}
	}
	c := call{owner: headOf(argv[0])}
	switch {
	case len(argv) == 12, len(argv) == 15, len(argv) == 16:
		c.step = acquires
	case (len(argv) == 8 || len(argv) == 10) && len(keys) == 2 && strings.HasSuffix(keys[1], ":marker"):
		c.step, c.from = extends, tail(argv[7])
	case len(argv) == 3:
		c.step = releases
	case len(argv) == 9, len(argv) == 10:
		c.step, c.backTo = releases, tail(argv[3])
	}
	return c
}

// isOfSeveral reports whether a script is one step of several names: lua/several.lua in internal/node.
func isOfSeveral(argv []string) bool { return len(argv) > 15 && strings.HasSuffix(argv[8], " all") }

// tail returns what stands behind a flag.
func tail(flag string) string { return flag[min(1, len(flag)):] }

// handsOver reports whether a step puts its owner in the place of the one whose lock it resumes, or gives it back, and
// leaves the rest of the value.
func (c call) handsOver(was, value string) bool {
	head, now := headOf(was), headOf(value)
	return was[len(head):] == value[len(now):] &&
		(head == c.from && now == c.owner || head == c.owner && now == c.backTo)
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
	if alive && kept && r.by.handsOver(was.value, value) { // no grant: the key stays
		r.judged++
		r.keys[key] = stored{value, was.until}
		return
	}
	if !known && kept { // of a key that was there before: it is not known, nor how long it lasts
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
		if r.by.step == acquires && until < was.until-blur && !outlastsLeases(was.value) {
			r.violated(now, key, "lease shortened by %d µs", was.until-until)
		}
	}
	if kept {
		until = was.until
	}
	write()
}

func (r *replay) expire(now int64, key string, args []string) {
	was, known := r.keys[key]
	ms, err := strconv.ParseInt(args[2], 10, 64)
	if !known || err != nil {
		return
	}
	r.judged++
	until := now + ms*1000
	if len(args) > 3 && strings.EqualFold(args[3], "GT") {
		until = max(until, was.until)
	}
	// Whoever is refused may cut a lease down that is longer than any: PERSIST, or a clock that went back.
	// A release may keep a lock from others for less than that.
	if headOf(was.value) == r.by.owner && r.by.step != releases && r.latest < was.until && until < was.until-blur {
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
	head := headOf(was.value)
	if head != r.by.owner && r.by.step != acquires { // its own release, if the step that is taken for this one was late
		r.skipTo(func(c call) bool { return c.key == key && c.step == releases && c.owner == head })
	}
	switch {
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
	if end := strings.IndexAny(value, ";#!="); end >= 0 {
		return value[:end]
	}
	return value
}

// outlastsLeases reports whether a lock's value says that its key may last longer than a lease: then a taker's need not.
func outlastsLeases(value string) bool {
	claim, _, _ := strings.Cut(value, ";")
	claim, _, _ = strings.Cut(claim, "=")
	return strings.Contains(claim, "!")
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
		quoted, ok := quotedPrefix(rest)
		if !ok {
			return 0, "", nil, errNotMonitor
		}
		arg := quoted[1 : len(quoted)-1]
		if len(args) == 1 && args[0] == "SCRIPT" {
			return micros, source, args, nil // the sources of scripts are most of all that is told, and of no interest
		}
		if strings.IndexByte(arg, '\\') >= 0 && !(len(args) == 1 && args[0] == "EVAL") {
			if arg, err = strconv.Unquote(quoted); err != nil {
				return 0, "", nil, errNotMonitor
			}
		}
		args, rest = append(args, arg), rest[len(quoted):]
	}
	return micros, source, args, nil
}

// quotedPrefix returns the quoted text that s begins with.
func quotedPrefix(s string) (quoted string, ok bool) {
	if s[0] != '"' {
		return "", false
	}
	for i := 1; ; i++ {
		n := strings.IndexByte(s[i:], '"')
		if n < 0 {
			return "", false
		}
		i += n
		text := s[1:i]
		if escapes := len(text) - len(strings.TrimRight(text, `\`)); escapes%2 == 0 {
			return s[:i+1], true
		}
	}
}
