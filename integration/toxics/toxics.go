// Package toxics puts one toxiproxy between the clients and each node, inside the test
// process, to make the way to the node slow, narrow, choppy or broken.
//
// What it cannot do: heal a silence. Bytes that meet [Timeout] are dropped for good, so
// taking it away closes the connections that had it. For a partition that heals as TCP
// heals it, on the same connection and with the bytes sent meanwhile, cut a container's
// network (package containers).
package toxics

import (
	"context"
	"encoding/json"
	"strings"
	"testing"
	"time"

	"github.com/Shopify/toxiproxy/v2"
	"github.com/rs/zerolog"
	zerologglobal "github.com/rs/zerolog/log"
)

// Some toxics log every interruption to zerolog's global logger, whatever logger the
// server was given.
func init() { zerologglobal.Logger = zerolog.Nop() }

// Direction is where the bytes go that a toxic works on.
type Direction string

const (
	ToNode   Direction = "upstream"   // requests
	ToClient Direction = "downstream" // answers and pushes
)

// Proxy stands in front of one node. Clients dial [Proxy.Addr].
type Proxy struct {
	proxy *toxiproxy.Proxy
}

// Start starts a proxy on a free port of 127.0.0.1 for each of the nodes' host:port,
// in their order. They end with the test, and with them all connections.
func Start(t testing.TB, nodes ...string) []*Proxy {
	t.Helper()
	server := toxiproxy.NewServer(toxiproxy.NewMetricsContainer(nil), zerolog.Nop())
	proxies := make([]*Proxy, len(nodes))
	for i, node := range nodes {
		p := &Proxy{proxy: toxiproxy.NewProxy(server, node, "127.0.0.1:0", node)}
		if err := p.proxy.Start(); err != nil {
			t.Fatalf("toxics: starting the proxy of %s: %v", node, err)
		}
		t.Cleanup(p.proxy.Stop)
		proxies[i] = p
	}
	return proxies
}

// Addr is the proxy's host:port. It stays the same over [Proxy.Down] and [Proxy.Up].
func (p *Proxy) Addr() string { return p.proxy.Listen }

// Add puts a toxic on all connections in one direction, those that are open and those
// to come. A direction can have one toxic of each kind at a time.
func (p *Proxy) Add(direction Direction, toxic Toxic) error {
	spec, err := json.Marshal(map[string]any{
		"type":       toxic.kind,
		"stream":     direction,
		"attributes": toxic.attributes,
	})
	if err != nil {
		return err
	}
	_, err = p.proxy.Toxics.AddToxicJson(strings.NewReader(string(spec)))
	return err
}

// Clear takes all toxics off. Connections that had [Timeout] or [ResetPeer] are closed,
// the others go on.
func (p *Proxy) Clear() { p.proxy.Toxics.ResetToxics(context.Background()) }

// Down closes all connections and the port: dials are refused.
func (p *Proxy) Down() { p.proxy.Stop() }

// Up ends [Proxy.Down], on the same port and with the toxics it had. It is an error on
// a proxy that is not down.
func (p *Proxy) Up() error { return p.proxy.Start() }

// Toxic is one thing that happens to bytes on their way.
type Toxic struct {
	kind       string
	attributes map[string]int64
}

// Latency delays bytes by latency, and by up to jitter more or less. Both count in
// whole milliseconds.
func Latency(latency, jitter time.Duration) Toxic {
	return Toxic{"latency", map[string]int64{"latency": latency.Milliseconds(), "jitter": jitter.Milliseconds()}}
}

// Bandwidth lets so many kilobytes through per second.
func Bandwidth(kilobytes int64) Toxic {
	return Toxic{"bandwidth", map[string]int64{"rate": kilobytes}}
}

// Slice cuts what is sent at once into pieces of size bytes, give or take variation,
// and waits for delay, in whole microseconds, between them: answers arrive in parts.
func Slice(size, variation int64, delay time.Duration) Toxic {
	return Toxic{"slicer", map[string]int64{"average_size": size, "size_variation": variation, "delay": delay.Microseconds()}}
}

// ResetPeer ends a connection when bytes come, and drops them, after so many whole
// milliseconds. Connections opened under it are reset; those that were open before
// are closed in the ordinary way.
func ResetPeer(after time.Duration) Toxic {
	return Toxic{"reset_peer", map[string]int64{"timeout": after.Milliseconds()}}
}

// Timeout drops all bytes and closes the connection when nothing has come for so many
// whole milliseconds; never for 0, which is silence.
func Timeout(after time.Duration) Toxic {
	return Toxic{"timeout", map[string]int64{"timeout": after.Milliseconds()}}
}
