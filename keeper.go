package redlock

import (
	"cmp"
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"net"
	"strconv"
	"strings"
	"time"

	"github.com/redis/rueidis"
)

// The keeper is the goroutine that owns one node's connection. rueidis never reconnects by itself: the next call
// dials, its context drives the dial, and every other caller inherits the outcome. So only the keeper dials, and
// everybody else finds a node that is up or one that is known to be down.

const (
	minBackoff = 10 * time.Millisecond
	maxBackoff = time.Second
	// dialWithin bounds dial, handshake and the first look at a node.
	dialWithin = 5 * time.Second
)

// errNotDialing is what a call finds that would have made rueidis dial.
var errNotDialing = errors.New("the keeper has not reconnected yet")

// keep holds the connection to the node until the Locker's life ends.
func (n *node) keep() {
	backoff := minBackoff
	for n.l.life.Err() == nil {
		lookedAt := n.l.clock.now()
		err := n.check()
		n.l.checked(n, err)
		wait := time.Duration(0) // until somebody asks
		switch {
		case err != nil:
			wait, backoff = backoff/2+n.l.jitter(backoff/2), min(2*backoff, maxBackoff)
		case n.unfitNow() != nil:
			wait, backoff = maxBackoff, minBackoff
		default:
			backoff = minBackoff
		}
		n.idle(wait, err != nil)
		if n.forgot.Swap(false) { // maybe again and again: guards look after every look, whose NOSCRIPT has the next follow
			n.idle(max(1, lookedAt+minBackoff-n.l.clock.now()), true) // 0 would be for ever
		}
	}
	n.mu.Lock()
	client := n.client
	n.client, n.down = nil, ErrLockerClosed
	n.mu.Unlock()
	if client != nil {
		n.hangUpFor(ErrLockerClosed) // a hung server would hold Close up for a second
		client.Close()
	}
}

// idle waits until the node is to be looked at again: after wait, if that is not 0, or when somebody asks, but for those
// that are left alone for the whole of it.
func (n *node) idle(wait time.Duration, alone bool) {
	var timer <-chan time.Time
	if wait > 0 {
		timer = time.After(n.l.clock.wait(wait))
	}
	recheck := n.recheck
	if alone {
		recheck = nil
	}
	select {
	case <-timer:
	case <-recheck:
	case <-n.l.life.Done():
	}
}

func (n *node) unfitNow() error {
	n.mu.Lock()
	defer n.mu.Unlock()
	return n.unfit
}

// check connects if need be, looks at the server, and brings its marker in order. After nil the node is up; it may
// still be unfit to vote.
func (n *node) check() error {
	n.mayDial.Store(true)
	defer n.mayDial.Store(false)
	ctx, cancel := context.WithTimeout(n.l.life, n.l.clock.wait(max(n.l.option.NodeTimeout, dialWithin)))
	defer cancel()
	err := n.look(ctx)
	if errors.Is(err, ErrNodeTimeout) {
		n.hangUpFor(err) // connected but mute: rueidis alone would wait for 11 s
	}
	if err != nil {
		n.mu.Lock()
		n.down = err
		n.mu.Unlock()
	}
	return err
}

// look is one pass of check.
func (n *node) look(ctx context.Context) error {
	client, err := n.connect()
	if err != nil {
		return err
	}
	b := client.B()
	sentAt := n.l.clock.now()
	results := client.DoMulti(ctx, b.Time().Build(), b.Info().Build(), b.Get().Key(n.l.markerKey).Build())
	at := n.l.clock.now()
	if err := results[0].NonRedisError(); err != nil {
		return n.refusedTracking(client, err)
	}

	clock, err := results[0].AsIntSlice()
	if err == nil && len(clock) != 2 {
		err = fmt.Errorf("TIME answered %d numbers", len(clock))
	}
	if err != nil {
		return err
	}
	text, err := results[1].ToString()
	if err != nil {
		return err
	}
	info := parseInfo(text)
	raw, err := results[2].ToString()
	if err != nil && !rueidis.IsRedisNil(err) {
		return cmp.Or(info.fault(), err) // a cluster answers CLUSTERDOWN or MOVED
	}
	if info.loopsScripts() && n.wantsPushes() {
		n.loops = true
		n.drop(client)
		n.lookAgain()
		n.l.log.Warn("redlock: server pushes our own writes back (redis#11052): running without pushes from it; upgrade to 6.2.8, 7.0.5 or later",
			"node", n.addr, "version", info.version)
		return fmt.Errorf("%w: %w", ErrNodeDown, errTracking)
	}

	var scripts loaded
	if info.fault() == nil {
		if scripts, err = n.load(ctx, client, info); err != nil {
			return err
		}
	}
	nodeNow := time.Duration(clock[0])*time.Second + time.Duration(clock[1])*time.Microsecond
	clockErr := n.watch(offsetOf(nodeNow, sentAt, at))
	unfit := n.l.admit(ctx, n, client, info, raw, clockErr)
	n.mu.Lock() // all at once: a node that is up and not known to be unfit is asked for votes
	wasDown := n.down != nil
	n.scripts, n.cutFor, n.down, n.unfit = scripts, nil, nil, unfit
	n.mu.Unlock()
	if wasDown {
		n.l.log.Info("redlock: node is up", "node", n.addr, "version", info.version)
	}
	return nil
}

// load loads the scripts into the process that was looked at, and makes sure that it was that one.
func (n *node) load(ctx context.Context, client rueidis.Client, info serverInfo) (loaded, error) {
	s := loaded{volatile: versionAtLeast(info.version, 7, 0, 0)}
	sources := sourcesFor(info.runID, s.volatile)
	s.resend = resendFor(sources, s.volatile)
	b := client.B()
	var commands []rueidis.Completed
	for _, source := range sources {
		commands = append(commands, b.ScriptLoad().Script(source).Build())
	}
	commands = append(commands, b.Info().Section("server").Build())
	results := client.DoMulti(ctx, commands...)
	if err := results[0].NonRedisError(); err != nil {
		return s, nodeFault(err)
	}
	var err error
	for i := range s.digests {
		if s.digests[i], err = results[i].ToString(); err != nil {
			return s, err
		}
	}
	text, err := results[scriptCount].ToString()
	if err != nil {
		return s, err
	}
	if now := parseInfo(text).runID; now != info.runID {
		return s, fmt.Errorf("%w: it became another process meanwhile (run_id %s, then %s)", ErrNodeDown, info.runID, now)
	}
	return s, nil
}

// connect returns the node's client, building it where there is none.
func (n *node) connect() (rueidis.Client, error) {
	n.mu.Lock()
	client, down := n.client, n.down
	n.mu.Unlock()
	if client != nil && n.pushesOff && n.wantsPushes() && down != nil && !errors.Is(down, errTracking) {
		n.pushesOff = false // it was refused once: ask again at every reconnection
		n.drop(client)
		client = nil
	}
	if client != nil {
		return client, nil
	}
	client, err := n.l.option.ClientBuilder(n.clientOption())
	if client == nil {
		if err == nil {
			err = errors.New("ClientBuilder returned no client and no error")
		}
		return nil, nodeFault(err)
	}
	n.mu.Lock()
	n.client = client
	n.mu.Unlock()
	if err != nil {
		return nil, n.refusedTracking(client, err)
	}
	return client, nil
}

func (n *node) drop(client rueidis.Client) {
	n.mu.Lock()
	n.client, n.down = nil, ErrNodeDown
	n.mu.Unlock()
	client.Close()
}

// errTracking marks the pass in which a server refused client tracking.
var errTracking = errors.New("client tracking refused")

// refusedTracking looks whether it was client tracking that the server refused in the handshake. If so the client
// is given up, and the next one does without pushes: the node still votes, and a loss is seen by extension.
func (n *node) refusedTracking(client rueidis.Client, err error) error {
	if !errors.Is(err, rueidis.ErrNoCache) || n.pushesOff {
		return nodeFault(err)
	}
	for _, passing := range []string{"BUSY", "LOADING", "MASTERDOWN", "UNBLOCKED"} {
		if strings.Contains(err.Error(), passing) {
			return nodeFault(err)
		}
	}
	n.pushesOff = true
	n.drop(client)
	n.l.log.Warn("redlock: node refuses client tracking: a lost vote there is seen only at the next extension",
		"node", n.addr, "error", strings.ReplaceAll(err.Error(), "\n", ": "))
	n.lookAgain()
	return fmt.Errorf("%w: %w", ErrNodeDown, errTracking)
}

// wantsPushes reports whether the user left client tracking on, and the server does it right.
func (n *node) wantsPushes() bool {
	return !n.option.DisableCache && !n.option.AlwaysRESP2 && !n.loops
}

// clientOption is the user's option with what the Locker relies on: one pipelined connection, nothing repeated
// behind its back, pushes on that connection.
func (n *node) clientOption() rueidis.ClientOption {
	o := n.option
	o.ForceSingleClient = true
	o.DisableRetry = true
	o.PipelineMultiplex = -1
	o.BlockingPipeline = -1 // a batch is no reason to dial another connection
	o.AlwaysPipelining = true
	setDefault(&o.RingScaleEachConn, 8) // 134 KiB a client instead of 1.4 MiB
	setDefault(&o.ReadBufferEachConn, 16<<10)
	setDefault(&o.WriteBufferEachConn, 16<<10)
	if n.wantsPushes() && !n.pushesOff {
		o.ClientTrackingOptions = []string{"OPTOUT", "NOLOOP"} // without NOLOOP every own write pushes to itself
	} else {
		o.DisableCache = true
	}
	users := o.OnInvalidations
	o.OnInvalidations = func(keys []rueidis.RedisMessage) {
		n.l.invalidated(n, keys)
		if users != nil {
			users(keys)
		}
	}
	o.DialCtxFn, o.DialFn = n.dialer(o), nil
	return o
}

// dialer wraps the user's way of dialing, or rueidis' own, so that only the keeper dials and the connection can be
// hung up.
func (n *node) dialer(o rueidis.ClientOption) func(context.Context, string, *net.Dialer, *tls.Config) (net.Conn, error) {
	inner := o.DialCtxFn
	if inner == nil && o.DialFn != nil {
		inner = func(_ context.Context, dst string, d *net.Dialer, c *tls.Config) (net.Conn, error) {
			return o.DialFn(dst, d, c)
		}
	}
	if inner == nil {
		inner = func(ctx context.Context, dst string, d *net.Dialer, c *tls.Config) (net.Conn, error) {
			if c != nil {
				return (&tls.Dialer{NetDialer: d, Config: c}).DialContext(ctx, "tcp", dst)
			}
			return d.DialContext(ctx, "tcp", dst)
		}
	}
	alone := o.Sentinel.MasterSet == "" // Sentinel's client has to follow its primary by itself
	return func(ctx context.Context, dst string, d *net.Dialer, c *tls.Config) (net.Conn, error) {
		if alone && !n.mayDial.Load() {
			return nil, errNotDialing
		}
		ctx, cancel := context.WithCancel(ctx) // rueidis dials first with a context of its own
		defer cancel()
		defer context.AfterFunc(n.l.life, cancel)()
		conn, err := inner(ctx, dst, d, c)
		if err != nil {
			return nil, err
		}
		n.mu.Lock()
		n.conns[dst] = conn
		n.mu.Unlock()
		if n.l.life.Err() != nil { // Close may have hung up just before
			conn.Close()
			return nil, ErrLockerClosed
		}
		return conn, nil
	}
}

// hangUp closes a connection whose oldest call has gone unanswered for too long. rueidis alone sees a mute peer
// after 11 s, and meanwhile every vote there would wait.
func (n *node) hangUp() {
	n.hangUpFor(fmt.Errorf("%w: nothing for %v, hung up", ErrNodeTimeout, n.l.hangAfter))
}

func (n *node) hangUpFor(why error) {
	n.mu.Lock()
	conns := n.conns
	n.conns = make(map[string]net.Conn)
	n.cutFor = why
	if n.down == nil {
		n.down = why
	}
	n.mu.Unlock()
	for _, conn := range conns {
		if t, ok := conn.(*tls.Conn); ok {
			conn = t.NetConn() // closing TLS would wait to say good-bye
		}
		if t, ok := conn.(*net.TCPConn); ok {
			t.SetLinger(0) // what is still unsent is not to be sent
		}
		conn.Close()
	}
	n.lookAgain()
}

// serverInfo is what INFO says that decides whether a server can be a node.
type serverInfo struct {
	runID, version, role, mode, policy, product string
	maxMemory                                   int64
}

func parseInfo(text string) serverInfo {
	var s serverInfo
	s.product = "Redis"
	for line := range strings.Lines(text) {
		field, value, _ := strings.Cut(strings.TrimSpace(line), ":")
		switch field {
		case "run_id":
			s.runID = value
		case "redis_version":
			s.version = value
		case "server_name":
			s.product = value
		case "role":
			s.role = value
		case "redis_mode":
			s.mode = value
		case "cluster_enabled":
			if value == "1" {
				s.mode = "cluster"
			}
		case "maxmemory":
			s.maxMemory, _ = strconv.ParseInt(value, 10, 64)
		case "maxmemory_policy":
			s.policy = value
		}
	}
	return s
}

// fault says why a server cannot be a node, nil if it can.
func (s serverInfo) fault() error {
	switch {
	case len(s.runID) != runIDLen:
		return fmt.Errorf("%w: INFO names no run_id (%q)", ErrUnsupportedNode, s.runID)
	case s.mode == "cluster":
		return fmt.Errorf("%w: it runs in cluster mode; a node is one independent server, because a lock's scripts touch keys of several slots", ErrUnsupportedNode)
	case s.role != "master":
		return fmt.Errorf("%w: it is a replica (role %s); a node must be a primary", ErrUnsupportedNode, s.role)
	case !versionAtLeast(s.version, 6, 2, 0):
		return fmt.Errorf("%w: version %s is below 6.2", ErrUnsupportedNode, s.version)
	}
	return nil
}

// loopsScripts reports whether NOLOOP does not hold for writes in scripts (redis#11052): each extension would push
// to ourselves, so such a server gets no client tracking.
func (s serverInfo) loopsScripts() bool {
	if s.product != "Redis" && s.product != "redis" {
		return s.product == "keydb"
	}
	return !versionAtLeast(s.version, 6, 2, 8) || versionAtLeast(s.version, 7, 0, 0) && !versionAtLeast(s.version, 7, 0, 5)
}

func versionAtLeast(version string, want ...int) bool {
	parts := strings.Split(version, ".")
	for i, w := range want {
		have := 0
		if i < len(parts) {
			have, _ = strconv.Atoi(parts[i])
		}
		if have != w {
			return have > w
		}
	}
	return true
}
