package containers

import (
	"context"
	"math/rand/v2"
	"net"
	"net/netip"

	"github.com/moby/moby/api/types/network"
	"github.com/testcontainers/testcontainers-go"
	tcnetwork "github.com/testcontainers/testcontainers-go/network"
)

// A container keeps its address over disconnect and connect only where it asked for that address, and it may ask only
// in a network whose subnet was asked for, too. So the subnets are ours to choose: blocks of 8 addresses (network,
// gateway, node, broadcast, and room) out of half of the range that RFC 2544 sets aside for testing. It is routed
// nowhere, and a bridge takes only its own 8 addresses from whoever uses the range for something else.
const (
	subnetBits  = 29
	subnetCount = 1 << (subnetBits - 16)
)

var subnetRange = [2]byte{198, 19}

// newNetwork makes a bridge network in a block nobody uses, and returns the address for the one node in it. The network
// is internal, without a way out: the node needs none, and the machine itself reaches it nevertheless.
func newNetwork(ctx context.Context, labels map[string]string) (*testcontainers.DockerNetwork, netip.Addr, error) {
	const tries = 10
	for try := 1; ; try++ {
		subnet := freeSubnet()
		gateway := subnet.Addr().Next()
		nw, err := tcnetwork.New(ctx,
			tcnetwork.WithLabels(labels),
			tcnetwork.WithInternal(),
			tcnetwork.WithIPAM(&network.IPAM{Config: []network.IPAMConfig{{Subnet: subnet, Gateway: gateway}}}))
		// The engine refuses a block that one of its networks has, the one conflict to expect with so many blocks. Its
		// error is not told apart from others, so those are tried again in vain before they are returned.
		if err == nil || try == tries || ctx.Err() != nil {
			return nw, gateway.Next(), err
		}
	}
}

// freeSubnet picks at random, because other test processes pick at the same time. It avoids the addresses this machine
// has; the engine avoids those of its networks.
func freeSubnet() netip.Prefix {
	own, _ := net.InterfaceAddrs()
	for {
		block := rand.IntN(subnetCount) << (32 - subnetBits)
		base := netip.AddrFrom4([4]byte{subnetRange[0], subnetRange[1], byte(block >> 8), byte(block)})
		subnet := netip.PrefixFrom(base, subnetBits)
		if !overlapsAny(subnet, own) {
			return subnet
		}
	}
}

// overlapsAny ignores networks wider than a block: with 198.18.0.0/15 on some interface, every block would overlap, and
// a bridge's narrower route wins anyway.
func overlapsAny(subnet netip.Prefix, addrs []net.Addr) bool {
	for _, a := range addrs {
		if ip, err := netip.ParsePrefix(a.String()); err == nil && subnet.Contains(ip.Addr()) {
			return true
		}
	}
	return false
}
