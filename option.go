package redlock

import (
	"fmt"
	"log/slog"
	"net"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/redis/rueidis"

	"github.com/redlock-go/redlock/internal/node"
)

// LockerOption configures a [Locker]. Only Nodes is required; every other zero value is the default.
type LockerOption struct {
	// Nodes are the independent Redis or Valkey servers that vote, one rueidis option each. It is where to look: who the
	// members of the set are, the nodes remember, and [Locker.SetNodes] changes; the first list makes the set. A member that is
	// not listed cannot be asked, a server that is listed and is no member has no vote. A node is one server or its
	// Sentinel-led primary, never a Redis Cluster.
	// ForceSingleClient, DisableRetry, PipelineMultiplex, BlockingPipeline and the tracking options are set by the
	// Locker. DisableCache or AlwaysRESP2 means "no invalidation pushes from this node": a loss there is then seen
	// at the next extension.
	Nodes []rueidis.ClientOption
	// ClientBuilder builds the client of one node; default rueidis.NewClient. It must use the option it is given.
	// It is the place for tracing and for in-process nodes.
	ClientBuilder func(rueidis.ClientOption) (rueidis.Client, error)

	// KeyPrefix begins every key; default "redlock". It may hold no braces, nor end in ":queue", ":slot", ":rw", ":wake", ":fence" or
	// ":marker": those are keys of the prefix before it.
	KeyPrefix string
	// KeyValidity is the lease: how long a node keeps a lock by itself; default 10s. A holder that dies costs
	// the others at most this long.
	KeyValidity time.Duration
	// ExtendInterval is how often a held lock is renewed on every node; default KeyValidity/3.
	ExtendInterval time.Duration
	// NodeTimeout is the longest wait for one node's answer; default min(1s, KeyValidity/4). It bounds how long
	// a call takes with silent nodes, and must exceed the round trip to the farthest node of a quorum.
	NodeTimeout time.Duration

	// MaxKeyValidity is the longest lease that any client of these nodes and this prefix uses; default
	// KeyValidity. A node that lost its memory grants nothing for as long. It is what a new set allows; later
	// [Locker.SetNodes] changes that, and a longer KeyValidity is refused.
	MaxKeyValidity time.Duration
	// RestartQuarantine is how long a node that lost its memory grants nothing; default (0) MaxKeyValidity, and
	// never less. It is of the set, which is made with it. Negative turns it off, for tests and for nodes that lose no acknowledged write
	// (appendfsync always): otherwise a node that restarts empty can vote for a second holder.
	RestartQuarantine time.Duration
	// DriftFactor is how far the rates of two clocks may differ, as a fraction; default 0.1. NTP daemons slew by
	// up to 0.083.
	DriftFactor float64
	// ClockBound is the largest step of a node's clock that must be survived; default KeyValidity/20.
	ClockBound time.Duration

	// NoLabel keeps this program's name, process id and host out of the locks it takes; see [Label].
	NoLabel bool

	// Logger is told what an operator should know, a line for each change: locks lost, nodes that go and come and why,
	// quarantines, clocks off, pushes refused. docs/logging.md lists the lines. Default: silent, so that a wait for a
	// quarantine or for a quorum looks like a wait for the lock.
	Logger *slog.Logger
	// Observer is told what becomes of calls, locks and questions to nodes, for metrics and traces. Default: nobody, and
	// nothing is measured.
	Observer Observer
}

// invalid builds an error that names the value and the rule.
func invalid(format string, args ...any) error {
	return fmt.Errorf("%w: "+format, append([]any{ErrInvalidOption}, args...)...)
}

// resolve checks the options and fills in the defaults.
func (o LockerOption) resolve() (LockerOption, error) {
	if len(o.Nodes) == 0 {
		return o, invalid("Nodes is empty: a lock needs at least one node")
	}
	if _, err := checkNodes(o.Nodes); err != nil {
		return o, err
	}
	if err := checkPrefix(o.KeyPrefix); err != nil {
		return o, err
	}
	// Each by itself first: sums and products of what is within these bounds do not overflow.
	for _, d := range []struct {
		field     string
		value     time.Duration
		least     time.Duration
		switchOff bool
	}{
		{"KeyValidity", o.KeyValidity, minKeyValidity, false}, {"ExtendInterval", o.ExtendInterval, minDuration, false},
		{"NodeTimeout", o.NodeTimeout, minDuration, false}, {"MaxKeyValidity", o.MaxKeyValidity, minKeyValidity, false},
		{"RestartQuarantine", o.RestartQuarantine, minKeyValidity, true}, {"ClockBound", o.ClockBound, minDuration, false},
	} {
		switch {
		case d.value == 0, d.value < 0 && d.switchOff:
		case d.value < 0:
			return o, invalid("%s is %v: it must not be negative", d.field, d.value)
		case d.value < d.least:
			return o, invalid("%s is %v: it must be at least %v", d.field, d.value, d.least)
		case d.value > maxDuration:
			return o, invalid("%s is %v: it must be at most %v", d.field, d.value, maxDuration)
		}
	}
	if !(o.DriftFactor >= 0 && o.DriftFactor < 1) {
		return o, invalid("DriftFactor is %v: it must be at least 0 (for the default) and below 1", o.DriftFactor)
	}

	if o.ClientBuilder == nil {
		o.ClientBuilder = rueidis.NewClient
	}
	setDefault(&o.KeyPrefix, "redlock")
	setDefault(&o.KeyValidity, 10*time.Second)
	o.KeyValidity = o.KeyValidity.Truncate(time.Millisecond) // as nodes count it: never count on more
	setDefault(&o.ExtendInterval, o.KeyValidity/3)
	setDefault(&o.NodeTimeout, min(time.Second, o.KeyValidity/4))
	setDefault(&o.MaxKeyValidity, o.KeyValidity)
	o.MaxKeyValidity = (o.MaxKeyValidity + time.Millisecond - 1).Truncate(time.Millisecond) // as markers store it
	setDefault(&o.DriftFactor, 0.1)
	setDefault(&o.ClockBound, o.KeyValidity/20)
	if o.Logger == nil {
		o.Logger = slog.New(slog.DiscardHandler)
	}

	if o.MaxKeyValidity < o.KeyValidity {
		return o, invalid("MaxKeyValidity is %v, below KeyValidity %v: it is the longest lease of any client", o.MaxKeyValidity, o.KeyValidity)
	}
	if o.RestartQuarantine > 0 && o.RestartQuarantine < o.MaxKeyValidity {
		return o, invalid("RestartQuarantine is %v, below MaxKeyValidity %v: a forgotten lease may still run that long", o.RestartQuarantine, o.MaxKeyValidity)
	}
	counted := claimUntil(0, o.KeyValidity, o.DriftFactor, o.ClockBound)
	if o.ExtendInterval+o.NodeTimeout >= counted {
		return o, invalid("ExtendInterval %v + NodeTimeout %v is not below %v, what counts of KeyValidity %v after drift %v and ClockBound %v: a lock could end before it is renewed",
			o.ExtendInterval, o.NodeTimeout, counted, o.KeyValidity, o.DriftFactor, o.ClockBound)
	}
	return o, nil
}

// quarantine returns how long a node that lost its memory grants nothing; 0 is off. The options are resolved.
func (o LockerOption) quarantine() time.Duration {
	if o.RestartQuarantine == 0 {
		return o.MaxKeyValidity
	}
	return max(0, o.RestartQuarantine)
}

const (
	minKeyValidity = 20 * time.Millisecond
	minDuration    = time.Millisecond // of what is waited for: below it nothing would be done but that
	maxDuration    = node.MaxDuration
)

// checkPrefix refuses a prefix whose keys could be those of another one. A key is the prefix, a colon and "{name}",
// "queue:{name}", "slot:{name}" or "rw:{name}" and what stands behind it, "wake:<id>", "fence:<n>" or "marker", and a name may hold any bytes. Without braces in a prefix the
// first brace of a key ends what can be taken for one; the queue of a lock of P would be a lock of "P:queue". The other
// words are kept free so that "<prefix>:<word>" never is both a prefix and a part of one.
func checkPrefix(prefix string) error {
	if strings.ContainsAny(prefix, "{}") {
		return invalid("KeyPrefix %q holds a brace: braces mark the lock's name in a key", prefix)
	}
	for _, word := range []string{"queue", "slot", "rw", "wake", "fence", "marker"} {
		if strings.HasSuffix(prefix, ":"+word) {
			return invalid("KeyPrefix %q ends in %q: such keys belong to prefix %q", prefix, ":"+word, strings.TrimSuffix(prefix, ":"+word))
		}
	}
	return nil
}

func setDefault[T comparable](field *T, value T) {
	var zero T
	if *field == zero {
		*field = value
	}
}

// checkNodes refuses a list of nodes that cannot be, and returns how errors name those of one that can.
func checkNodes(nodes []rueidis.ClientOption) (addrs []string, err error) {
	for i, n := range nodes {
		if err := checkNode(i, n); err != nil {
			return nil, err
		}
		address := nodeAddr(n)
		if j := slices.Index(addrs, address); j >= 0 {
			return nil, invalid("Nodes[%d] and Nodes[%d] are both %s: nodes must be independent servers", j, i, address)
		}
		addrs = append(addrs, address)
	}
	return addrs, nil
}

// checkNode refuses what would make one node more than one server, or more than one connection.
func checkNode(i int, n rueidis.ClientOption) error {
	sentinel := n.Sentinel.MasterSet != ""
	switch {
	case len(n.InitAddress) == 0:
		return invalid("Nodes[%d].InitAddress is empty: it names the node", i)
	case len(n.InitAddress) > 1 && !sentinel:
		return invalid("Nodes[%d].InitAddress has %d addresses %v: a node is one server, list each as a node of its own (several are for Sentinel)", i, len(n.InitAddress), n.InitAddress)
	case n.ReplicaOnly:
		return invalid("Nodes[%d].ReplicaOnly is set: a replica cannot vote", i)
	case n.SendToReplicas != nil:
		return invalid("Nodes[%d].SendToReplicas is set: a replica cannot vote", i)
	case len(n.Standalone.ReplicaAddress) > 0 || n.Standalone.EnableRedirect:
		return invalid("Nodes[%d].Standalone is set: a node is one server", i)
	case n.DisableAutoPipelining:
		return invalid("Nodes[%d].DisableAutoPipelining is set: a node has one connection, which its pushes arrive on", i)
	case n.ConnLifetime != 0:
		return invalid("Nodes[%d].ConnLifetime is %v: rueidis repeats writes when a connection expires", i, n.ConnLifetime)
	}
	if n.DialFn != nil || n.DialCtxFn != nil {
		return nil // what an address is, is theirs to say: a unix socket's path, a name
	}
	for _, address := range n.InitAddress {
		if strings.Contains(address, "://") || strings.Contains(address, "@") { // not shown: it may hold a password
			return invalid("Nodes[%d].InitAddress is a URL: it must be host:port; rueidis.ParseURL makes a node's option of a URL", i)
		}
		_, port, err := net.SplitHostPort(address)
		if err != nil {
			return invalid("Nodes[%d].InitAddress %q is not host:port: %v", i, address, err)
		}
		if number, err := strconv.ParseUint(port, 10, 16); err != nil || number == 0 {
			return invalid("Nodes[%d].InitAddress %q: port %q is not a number from 1 to 65535", i, address, port)
		}
	}
	return nil
}

// nodeAddr returns the name a node has in errors and logs.
func nodeAddr(n rueidis.ClientOption) string {
	address := strings.Join(n.InitAddress, ",")
	if n.Sentinel.MasterSet != "" {
		address = n.Sentinel.MasterSet + "@" + address
	}
	return address
}

// checkName refuses a name that no key can be made of.
func checkName(name string) error {
	if name == "" {
		return invalid("the lock's name is empty")
	}
	if len(name) > maxName {
		return invalid("the lock's name has %d bytes: it must have at most %d", len(name), maxName)
	}
	return nil
}

const maxName = 64 << 10
