package gatewayconfig

import (
	"net"
	"net/netip"

	"github.com/patchbay-mcp/patchbay/host/config"
)

// A Cluster says how the gateways that share a store reach each other.
type Cluster struct {
	// Listen is the address as host:port at which the gateway serves the other gateways.
	Listen string `json:"listen" jsonschema:"address for other gateways as host:port"`
	// Advertise is the address as host:port by which the other gateways reach Listen. Default: Listen.
	Advertise string `json:"advertise,omitzero" jsonschema:"address by which other gateways reach listen"`
}

// checkCluster checks the addresses of the cluster.
func (s *Settings) checkCluster(p *config.Problems) {
	if s.Cluster == nil {
		return
	}
	if !isAddress(s.Cluster.Listen) {
		p.Add("/cluster/listen", "got %.64q, want host:port, such as \"10.0.0.1:7801\"", s.Cluster.Listen)
		return
	}
	host, port, _ := net.SplitHostPort(s.Cluster.Listen)
	ip, err := netip.ParseAddr(host)
	switch {
	case s.Cluster.Advertise != "" && !isAddress(s.Cluster.Advertise):
		p.Add("/cluster/advertise", "got %.64q, want host:port, such as \"gateway-1:7801\"", s.Cluster.Advertise)
	case s.Cluster.Advertise == "" && err == nil && ip.IsUnspecified():
		p.Add("/cluster/advertise", "is missing, and %q is no address that others reach: want host:port, such as "+
			"\"gateway-1:%s\"", s.Cluster.Listen, port)
	}
}
