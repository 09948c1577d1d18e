package node

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
	// DialWithin bounds dial, handshake and the first look at a node.
	DialWithin = 5 * time.Second
)

// errNotDialing is what a call finds that would have made rueidis dial.
var errNotDialing = errors.New("the connection was lost, and is not made anew yet")

// Keep holds the connection to the node until the set's life ends.
func (n *Node) Keep() {
	backoff, again := minBackoff, time.Duration(0)
	for n.set.option.Life.Err() == nil {
		if down := n.downFor(); down != nil && n.told != "" {
			n.tell(down) // hung up, or broken off: that it may be back in a moment is no reason to hide it
		}
		lookedAt := n.set.option.Clock.Now()
		n.thorough = n.takeDoubt() || n.thorough
		refused := n.refused()
		err := n.check()
		still := n.refused()
		n.set.checked(n, err, refused == 0 || still != refused)
		wait := time.Duration(0) // until somebody asks
		switch {
		case err != nil, still > 0:
			wait, backoff = backoff/2+n.set.option.Jitter(backoff/2), min(2*backoff, maxBackoff)
		case n.unfitNow() != nil:
			wait, backoff = maxBackoff, minBackoff
		default:
			wait, backoff = n.tellQuarantine(), minBackoff
		}
		n.idle(wait, err != nil || still > 0)
		switch {
		case !n.isDoubted():
			again = 0
		case again == 0:
			again = minBackoff
		default: // a step was refused what the look before found allowed, maybe again and again: as below
			n.idle(again, true)
			again = min(2*again, maxBackoff)
		}
		if n.forgot.Swap(false) { // maybe again and again: steps follow every look, whose NOSCRIPT has the next follow
			n.idle(max(1, lookedAt+minBackoff-n.set.option.Clock.Now()), true) // 0 would be for ever
		}
	}
	n.mu.Lock()
	client := n.client
	n.client, n.down = nil, n.set.option.Closed
	n.mu.Unlock()
	if client != nil {
		n.hangUpFor(n.set.option.Closed) // a hung server would hold Close up for a second
		client.Close()
	}
}

// idle waits until the node is to be looked at again: after wait, if that is not 0, or when somebody asks, but for those
// that are left alone for the whole of it.
func (n *Node) idle(wait time.Duration, alone bool) {
	var timer <-chan time.Time
	if wait > 0 {
		timer = time.After(n.set.option.Clock.Wait(wait))
	}
	recheck := n.recheck
	if alone {
		recheck = nil
	}
	select {
	case <-timer:
	case <-recheck:
	case <-n.set.option.Life.Done():
	}
}

// downFor returns why nothing can be sent, nil while connected.
func (n *Node) downFor() error {
	n.mu.Lock()
	defer n.mu.Unlock()
	return n.down
}

// unfitNow returns why the node gives no vote although it is connected.
func (n *Node) unfitNow() error {
	n.mu.Lock()
	defer n.mu.Unlock()
	return cmp.Or(n.unfit, n.refusals[ScriptAcquire])
}

// check connects if need be, looks at the server, and brings its marker in order. After nil the node is up; it may
// still be unfit to vote.
func (n *Node) check() error {
	n.mayDial.Store(true)
	defer n.mayDial.Store(false)
	ctx, cancel := context.WithTimeout(n.set.option.Life, n.set.option.Clock.Wait(max(n.set.option.NodeTimeout, DialWithin)))
	defer cancel()
	err := n.look(ctx)
	if hungUpOn(err) && n.wantsTLS(ctx) {
		err = fmt.Errorf("%w: %w", ErrNodeDown, errSpeaksTLS)
	}
	if errors.Is(err, ErrNodeTimeout) {
		n.hangUpFor(err) // connected but mute: rueidis alone would wait for 11 s
	}
	if err != nil {
		n.mu.Lock()
		n.down = err
		n.mu.Unlock()
		n.set.mu.Lock()
		n.set.leaveServers(n, "") // after that: who takes its server over must find it down
		n.set.mu.Unlock()
	}
	return err
}

// look is one pass of check.
func (n *Node) look(ctx context.Context) error {
	client, err := n.connect()
	if err != nil {
		return err
	}
	b := client.B()
	sentAt := n.set.option.Clock.Now()
	results := client.DoMulti(ctx, b.Time().Build(), b.Info().Build(), b.Get().Key(n.set.markerKey).Build())
	at := n.set.option.Clock.Now()
	if err := results[0].NonRedisError(); err != nil {
		return n.refusedTracking(client, err)
	}

	text, err := results[1].ToString()
	if err != nil {
		return err
	}
	info := parseInfo(text)
	if info.mode == "sentinel" {
		return info.fault() // it knows neither TIME nor keys
	}
	clock, err := results[0].AsIntSlice()
	if err == nil && len(clock) != 2 {
		err = fmt.Errorf("TIME answered %d numbers", len(clock))
	}
	if err != nil {
		return err
	}
	raw, err := results[2].ToString()
	if err != nil && !rueidis.IsRedisNil(err) {
		return cmp.Or(info.fault(), err) // a cluster answers CLUSTERDOWN or MOVED
	}
	if info.loopsScripts() && n.wantsPushes() {
		n.loops = true
		n.drop(client)
		n.LookAgain()
		n.set.option.Log.Warn("redlock: server pushes our own writes back (redis#11052): running without pushes from it; Redis does not from 6.2.8 and 7.0.5 on",
			"node", n.addr, "product", info.product, "version", info.version)
		return fmt.Errorf("%w: %w", ErrNodeDown, errTracking)
	}

	var scripts loaded
	var rights error
	n.mu.Lock()
	refusals := n.refusals // a replica is not tried: that refuses what it refused
	n.mu.Unlock()
	if info.fault() == nil {
		if refusals, rights = n.try(ctx, client); rights != nil && !errors.Is(rights, errRights) {
			return rights
		}
		if scripts, err = n.load(ctx, client, info); err != nil {
			return err
		}
	}
	nodeNow := time.Duration(clock[0])*time.Second + time.Duration(clock[1])*time.Microsecond
	clockErr := n.watch(OffsetOf(nodeNow, sentAt, at))
	unfit := n.set.admit(ctx, n, client, info, raw, clockErr)
	if rights != nil {
		unfit = rights
	}
	n.mu.Lock() // all at once: a node that is up and not known to be unfit is asked for votes
	n.scripts, n.cutFor, n.down, n.unfit = &scripts, nil, nil, unfit
	for k, err := range refusals {
		if err != nil || !n.doubted { // else a step may have been refused since the trial
			n.refusals[k] = err
		}
	}
	n.thorough = false
	n.mu.Unlock()
	n.version = info.version
	n.pushes.Store(n.wantsPushes() && !n.pushesOff)
	n.tellPushes()
	return nil
}

// load loads the scripts into the process that was looked at, and makes sure that it was that one.
func (n *Node) load(ctx context.Context, client rueidis.Client, info serverInfo) (loaded, error) {
	s := loaded{runID: info.runID, volatile: versionAtLeast(info.version, 7, 0, 0)}
	sources := SourcesFor(info.runID, s.volatile)
	s.resend = resendFor(sources, s.volatile)
	b := client.B()
	var commands []rueidis.Completed
	for _, source := range sources {
		commands = append(commands, b.ScriptLoad().Script(source).Build())
	}
	commands = append(commands, b.Info().Section("server").Build())
	results := client.DoMulti(ctx, commands...)
	if err := results[0].NonRedisError(); err != nil {
		return s, ConnectionFault(err)
	}
	var err error
	for i := range s.digests {
		if s.digests[i], err = results[i].ToString(); err != nil {
			return s, err
		}
	}
	text, err := results[len(sources)].ToString()
	if err != nil {
		return s, err
	}
	if now := parseInfo(text).runID; now != info.runID {
		return s, fmt.Errorf("%w: it became another process meanwhile (run_id %s, then %s)", ErrNodeDown, info.runID, now)
	}
	return s, nil
}

// connect returns the node's client, building it where there is none.
func (n *Node) connect() (rueidis.Client, error) {
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
	client, err := n.set.option.ClientBuilder(n.clientOption())
	if client == nil {
		if err == nil {
			err = errors.New("ClientBuilder returned no client and no error")
		}
		return nil, ConnectionFault(err)
	}
	n.mu.Lock()
	n.client = client
	n.mu.Unlock()
	if err != nil {
		return nil, n.refusedTracking(client, err)
	}
	return client, nil
}

func (n *Node) drop(client rueidis.Client) {
	n.mu.Lock()
	n.client, n.down = nil, ErrNodeDown
	n.mu.Unlock()
	client.Close()
}

// errTracking marks the pass in which a server refused client tracking.
var errTracking = errors.New("client tracking refused")

// refusedTracking looks whether it was client tracking that the server refused in the handshake. If so the client
// is given up, and the next one does without pushes: the node still votes, and a loss is seen by extension.
func (n *Node) refusedTracking(client rueidis.Client, err error) error {
	if !errors.Is(err, rueidis.ErrNoCache) || n.pushesOff {
		return ConnectionFault(err)
	}
	for _, passing := range []string{"BUSY", "LOADING", "MASTERDOWN", "UNBLOCKED"} {
		if strings.Contains(err.Error(), passing) {
			return ConnectionFault(err)
		}
	}
	n.pushesOff = true
	n.drop(client)
	if !n.toldPushes {
		n.toldPushes = true
		n.set.option.Log.Warn("redlock: node refuses client tracking: a lost vote there is seen only at the next extension",
			"node", n.addr, "error", strings.ReplaceAll(err.Error(), "\n", ": "))
	}
	n.LookAgain()
	return fmt.Errorf("%w: %w", ErrNodeDown, errTracking)
}

// wantsPushes reports whether the user left client tracking on, and the server does it right.
func (n *Node) wantsPushes() bool {
	return !n.option.DisableCache && !n.option.AlwaysRESP2 && !n.loops
}

// clientOption is the user's option with what the set relies on: one pipelined connection, nothing repeated
// behind its back, pushes on that connection.
func (n *Node) clientOption() rueidis.ClientOption {
	o := n.option
	o.ForceSingleClient = true
	o.DisableRetry = true
	o.PipelineMultiplex = -1
	o.BlockingPipeline = -1 // a batch is no reason to dial another connection
	o.AlwaysPipelining = true
	o.RingScaleEachConn = cmp.Or(o.RingScaleEachConn, 8) // 134 KiB a client instead of 1.4 MiB
	o.ReadBufferEachConn = cmp.Or(o.ReadBufferEachConn, 16<<10)
	o.WriteBufferEachConn = cmp.Or(o.WriteBufferEachConn, 16<<10)
	if n.wantsPushes() && !n.pushesOff {
		o.ClientTrackingOptions = []string{"OPTOUT", "NOLOOP"} // without NOLOOP every own write pushes to itself
	} else {
		o.DisableCache = true
	}
	users := o.OnInvalidations
	o.OnInvalidations = func(keys []rueidis.RedisMessage) {
		n.invalidated(keys)
		if users != nil {
			users(keys)
		}
	}
	o.DialCtxFn, o.DialFn = n.dialer(o), nil
	return o
}

// invalidated takes what the node pushed. It runs on the reader of its connection: it hands the keys over, never waits, and
// takes any bytes for a key. nil means that the node was flushed or the connection went.
func (n *Node) invalidated(keys []rueidis.RedisMessage) {
	if keys == nil {
		n.LookAgain()
		n.set.option.Listener.Forgotten(n.index)
		return
	}
	for i := range keys {
		key, err := keys[i].ToString()
		switch {
		case err != nil:
		case key == n.set.markerKey:
			n.LookAgain()
		default:
			n.set.option.Listener.Pushed(n.index, key)
		}
	}
}

// dialer wraps the user's way of dialing, or rueidis' own, so that only the keeper dials and the connection can be
// hung up.
func (n *Node) dialer(o rueidis.ClientOption) func(context.Context, string, *net.Dialer, *tls.Config) (net.Conn, error) {
	inner := o.DialCtxFn
	if inner == nil && o.DialFn != nil {
		inner = func(_ context.Context, dst string, d *net.Dialer, c *tls.Config) (net.Conn, error) {
			return o.DialFn(dst, d, c)
		}
	}
	if inner == nil {
		inner = func(ctx context.Context, dst string, d *net.Dialer, c *tls.Config) (net.Conn, error) {
			if c != nil {
				return dialTLS(ctx, dst, d, c, n.set.option.NodeTimeout/4)
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
		defer context.AfterFunc(n.set.option.Life, cancel)()
		conn, err := inner(ctx, dst, d, c)
		if err != nil {
			return nil, err
		}
		n.mu.Lock()
		n.conns[dst] = conn
		n.mu.Unlock()
		if n.set.option.Life.Err() != nil { // Close may have hung up just before
			conn.Close()
			return nil, n.set.option.Closed
		}
		return conn, nil
	}
}

// hangUp closes a connection whose oldest call has gone unanswered for too long. rueidis alone sees a mute peer
// after 11 s, and meanwhile every vote there would wait.
func (n *Node) hangUp() {
	n.hangUpFor(fmt.Errorf("%w: nothing for %v, hung up", ErrNodeTimeout, Rounded(n.set.hangAfter)))
}

func (n *Node) hangUpFor(why error) {
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
	n.LookAgain()
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
		case "mvcc_depth": // KeyDB's own; its INFO has no server_name
			s.product = keyDB
		case "role":
			s.role = value
		case "redis_mode", "server_mode": // Valkey calls it so
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
	case s.mode == "sentinel":
		return fmt.Errorf("%w: it is a Sentinel, which only knows who the primary is; list its addresses with Sentinel.MasterSet", ErrUnsupportedNode)
	case s.mode == "cluster":
		return fmt.Errorf("%w: it runs in cluster mode; a node is one independent server, because a lock's scripts touch keys of several slots", ErrUnsupportedNode)
	case s.role != "master":
		return fmt.Errorf("%w: it is a replica (role %s); a node must be a primary", ErrUnsupportedNode, s.role)
	case !versionAtLeast(s.version, 6, 2, 0):
		return fmt.Errorf("%w: version %s is below 6.2", ErrUnsupportedNode, s.version)
	}
	return nil
}

const keyDB = "KeyDB"

// loopsScripts reports whether NOLOOP does not hold for writes in scripts (redis#11052): each extension would push
// to ourselves, so such a server gets no client tracking.
func (s serverInfo) loopsScripts() bool {
	if s.product == keyDB {
		return true // every version: 6.3.4 is of Redis 6.2's code from before it was mended
	}
	if s.product != "Redis" && s.product != "redis" {
		return false
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
