package run

import (
	"cmp"
	"context"
	"errors"

	"github.com/patchbay-mcp/patchbay/gateway"
	"github.com/patchbay-mcp/patchbay/gateway/cmd/patchbay/internal/cmdutil"
	"github.com/patchbay-mcp/patchbay/gateway/cmd/patchbay/internal/exit"
	"github.com/patchbay-mcp/patchbay/gateway/cmd/patchbay/internal/hosting"
	"github.com/patchbay-mcp/patchbay/gateway/cmd/patchbay/internal/term"
	"github.com/patchbay-mcp/patchbay/gateway/gatewayconfig"
	"github.com/patchbay-mcp/patchbay/stores/bolt"
)

// offerWebhooks offers the webhooks of events to callers with keys or tokens. If the subscriptions cannot be used, it
// prints why, and fails only if the settings name their file.
func offerWebhooks(
	ctx context.Context, f *cmdutil.Factory, g *Run, gw *gateway.Gateway, s *gatewayconfig.Settings,
) error {
	o := cmp.Or(s.Events, new(gatewayconfig.Events))
	store, err := g.Config.Stores.Webhooks(o.Store)
	if err != nil {
		switch {
		case o.Store != "":
			return &exit.Error{Code: exit.Failure, Err: errors.Join(errors.New("open events.store"), err)}
		case errors.Is(err, bolt.ErrInUse):
			f.IO.Err.Printf("patchbay: webhooks of events are not offered, because another gateway delivers them: " +
				"set events.store in the settings to another file")
		case !errors.Is(err, hosting.ErrSharedWebhooks):
			f.IO.Err.Printf("patchbay: webhooks of events are not offered: %s", term.CleanLine(err.Error()))
		}
		return nil
	}
	f.Exit.Add(cmdutil.ExitLocks, func() { _ = store.Close() }) // after the host, which stores the last positions
	return gateway.OfferWebhooks(ctx, gw, &gateway.WebhookOptions{Store: store,
		Fetcher: f.Client.Net.NewFetcher(g.sources.Logger(f.IO.Logger()), nil, o.AllowedHosts...)})
}
