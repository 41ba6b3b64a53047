package hosting

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"

	"github.com/patchbay-mcp/patchbay/gateway/cmd/patchbay/internal/exit"
	"github.com/patchbay-mcp/patchbay/gateway/gatewayconfig"
	"github.com/patchbay-mcp/patchbay/host"
	"github.com/patchbay-mcp/patchbay/host/cluster"
	"github.com/patchbay-mcp/patchbay/host/config"
)

// UseCluster listens for the other gateways of the settings, and makes the host use the node. A configuration with a
// server of a cluster is invalid without a node. The caller must call end after the host is closed.
func (c *Config) UseCluster(ctx context.Context, o *gatewayconfig.Cluster, log *slog.Logger) (end func(), err error) {
	var node *cluster.Node
	end = func() {}
	if o != nil {
		if node, err = c.Stores.listenCluster(ctx, o, log); err != nil {
			return nil, err
		}
		end = func() { _ = node.Close() }
	}
	before := c.Prepare
	c.Prepare = func(opts *host.Options) {
		if before != nil {
			before(opts)
		}
		opts.Cluster = node
		if inner := opts.Configure; inner != nil && node == nil {
			opts.Configure = func(f *config.File, o *host.Options) (config.Section, error) {
				if err := withoutCluster(f); err != nil {
					return nil, err
				}
				return inner(f, o)
			}
		}
	}
	return end, nil
}

// withoutCluster returns an error if a server of a file runs once for all gateways.
func withoutCluster(f *config.File) error {
	s, err := f.Settings()
	if err != nil {
		return err
	}
	for _, name := range f.Names() {
		if set := s.Servers[name]; set != nil && set.Share == config.ShareCluster {
			return fmt.Errorf("server %.64q has the share \"cluster\", and this process is not connected to other "+
				"gateways: start a gateway over HTTP with the settings \"cluster\" and \"store\"", name)
		}
	}
	return nil
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
	node, err := cluster.New(l, &cluster.Options{Leases: s.redis.Leases(), Key: s.StateKeys()[0],
		Advertise: o.Advertise, Logger: log})
	if err != nil {
		_ = l.Close()
		return nil, exit.UsageError(err)
	}
	return node, nil
}
