package redlock

import (
	"fmt"
	"log/slog"
	"strings"
	"time"

	"github.com/redis/rueidis"
)

// LockerOption configures a [Locker]. Only Nodes is required; every other zero value is the default.
type LockerOption struct {
	// Nodes are the independent Redis or Valkey servers that vote, one rueidis option each. All clients of one
	// KeyPrefix must list the same nodes. A node is one server or its Sentinel-led primary, never a Redis Cluster.
	// ForceSingleClient, DisableRetry, PipelineMultiplex, BlockingPipeline and the tracking options are set by the
	// Locker. DisableCache or AlwaysRESP2 means "no invalidation pushes from this node": a loss there is then seen
	// at the next extension.
	Nodes []rueidis.ClientOption
	// ClientBuilder builds the client of one node; default rueidis.NewClient. It must use the option it is given.
	// It is the place for tracing and for in-process nodes.
	ClientBuilder func(rueidis.ClientOption) (rueidis.Client, error)

	// KeyPrefix begins every key; default "redlock". It may hold no braces.
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
	// KeyValidity. A node that lost its memory grants nothing for as long.
	MaxKeyValidity time.Duration
	// RestartQuarantine is how long a node that lost its memory grants nothing; default (0) MaxKeyValidity, and
	// never less. Negative turns it off, for tests and for nodes that lose no acknowledged write
	// (appendfsync always): otherwise a node that restarts empty can vote for a second holder.
	RestartQuarantine time.Duration
	// DriftFactor is how far the rates of two clocks may differ, as a fraction; default 0.1. NTP daemons slew by
	// up to 0.083.
	DriftFactor float64
	// ClockBound is the largest step of a node's clock that must be survived; default KeyValidity/20.
	ClockBound time.Duration

	// Logger reports what an operator should know: nodes that go and come, pushes refused, clocks off, markers
	// adopted. Default: silent.
	Logger *slog.Logger
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
	listed := make(map[string]int)
	for i, n := range o.Nodes {
		if err := checkNode(i, n); err != nil {
			return o, err
		}
		address := nodeAddr(n)
		if j, twice := listed[address]; twice {
			return o, invalid("Nodes[%d] and Nodes[%d] are both %s: nodes must be independent servers", j, i, address)
		}
		listed[address] = i
	}
	if strings.ContainsAny(o.KeyPrefix, "{}") {
		return o, invalid("KeyPrefix %q holds a brace: braces mark the lock's name in a key", o.KeyPrefix)
	}
	for _, d := range []struct {
		field string
		value time.Duration
	}{
		{"KeyValidity", o.KeyValidity}, {"ExtendInterval", o.ExtendInterval}, {"NodeTimeout", o.NodeTimeout},
		{"MaxKeyValidity", o.MaxKeyValidity}, {"ClockBound", o.ClockBound},
	} {
		if d.value < 0 {
			return o, invalid("%s is %v: it must not be negative", d.field, d.value)
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
	if o.KeyValidity > minKeyValidity {
		o.KeyValidity = o.KeyValidity.Truncate(time.Millisecond) // as nodes count it: never count on more
	}
	setDefault(&o.ExtendInterval, o.KeyValidity/3)
	setDefault(&o.NodeTimeout, min(time.Second, o.KeyValidity/4))
	setDefault(&o.MaxKeyValidity, o.KeyValidity)
	o.MaxKeyValidity = (o.MaxKeyValidity + time.Millisecond - 1).Truncate(time.Millisecond) // as markers store it
	setDefault(&o.DriftFactor, 0.1)
	setDefault(&o.ClockBound, o.KeyValidity/20)
	if o.Logger == nil {
		o.Logger = slog.New(slog.DiscardHandler)
	}

	if o.KeyValidity%time.Millisecond != 0 || o.MaxKeyValidity%time.Millisecond != 0 {
		return o, invalid("KeyValidity is %v and MaxKeyValidity %v: Redis counts leases in whole milliseconds", o.KeyValidity, o.MaxKeyValidity)
	}
	if o.KeyValidity < minKeyValidity {
		return o, invalid("KeyValidity is %v: it must be at least %v, Redis counts leases in milliseconds", o.KeyValidity, minKeyValidity)
	}
	if o.MaxKeyValidity < o.KeyValidity {
		return o, invalid("MaxKeyValidity is %v, below KeyValidity %v: it is the longest lease of any client", o.MaxKeyValidity, o.KeyValidity)
	}
	if o.MaxKeyValidity > maxKeyValidity {
		return o, invalid("MaxKeyValidity is %v: it must be at most %v", o.MaxKeyValidity, maxKeyValidity)
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

const (
	minKeyValidity = 20 * time.Millisecond
	maxKeyValidity = 90 * 24 * time.Hour // leaves room for instants in nanoseconds
)

func setDefault[T comparable](field *T, value T) {
	var zero T
	if *field == zero {
		*field = value
	}
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
