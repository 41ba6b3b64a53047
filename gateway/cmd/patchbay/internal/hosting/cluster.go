package hosting

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/url"
	"strings"

	"github.com/patchbay-mcp/patchbay/gateway/cmd/patchbay/internal/exit"
	"github.com/patchbay-mcp/patchbay/gateway/gatewayconfig"
	"github.com/patchbay-mcp/patchbay/gateway/internal/netx"
	"github.com/patchbay-mcp/patchbay/host"
	"github.com/patchbay-mcp/patchbay/host/cluster"
)

// UseCluster listens for the other gateways of the settings, and makes the host use the node. Without settings, the
// servers of a cluster fail in this process, which must not start a second instance. The caller must call end after the
// host is closed.
func (c *Config) UseCluster(ctx context.Context, o *gatewayconfig.Cluster, log *slog.Logger) (end func(), err error) {
	if o == nil {
		return func() {}, nil
	}
	node, err := c.Stores.listenCluster(ctx, o, log)
	if err != nil {
		return nil, err
	}
	before := c.Prepare
	c.Prepare = func(opts *host.Options) {
		if before != nil {
			before(opts)
		}
		opts.Cluster = node
	}
	return func() { _ = node.Close() }, nil
}

// loopbackText returns a warning if other machines use the store, and cannot reach this process at its address.
func loopbackText(o *gatewayconfig.Cluster, places []string) string {
	address := cmp.Or(o.Advertise, o.Listen)
	host, _, _ := net.SplitHostPort(address)
	if !netx.IsLocalHost(host) {
		return ""
	}
	for _, place := range places {
		kind, hosts, _ := strings.Cut(place, " at ")
		if kind != kindRedis {
			continue
		}
		for store := range strings.SplitSeq(hosts, ",") {
			u := &url.URL{Host: store}
			if !netx.IsLocalHost(u.Hostname()) {
				return fmt.Sprintf("other gateways of the store %s cannot reach %s, an address of this machine only: "+
					"set cluster.advertise to an address that they reach, such as \"gateway-1:7801\"", store, address)
			}
		}
	}
	return ""
}

func (s *Stores) listenCluster(
	ctx context.Context, o *gatewayconfig.Cluster, log *slog.Logger,
) (*cluster.Node, error) {
	if s == nil || s.redis == nil {
		return nil, exit.UsageError(errors.New("the setting \"cluster\" requires a store in Redis, by which gateways " +
			"agree where a server runs: add \"store\": [\"redis://HOST:PORT\"] to the settings, " +
			"or --store redis://HOST:PORT"))
	}
	var listen net.ListenConfig
	l, err := listen.Listen(ctx, "tcp", o.Listen)
	if err != nil {
		err = fmt.Errorf("listen for other gateways at cluster.listen: %w", err)
		return nil, &exit.Error{Code: exit.Failure, Err: err}
	}
	if text := loopbackText(o, s.places); text != "" {
		log.Warn("cluster: " + text)
	}
	node, err := cluster.New(l, &cluster.Options{Leases: s.redis.Leases(), Key: s.StateKeys()[0],
		Advertise: o.Advertise, Logger: log})
	if err != nil {
		_ = l.Close()
		return nil, exit.UsageError(err)
	}
	return node, nil
}
