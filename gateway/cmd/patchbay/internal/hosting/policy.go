package hosting

import (
	"net/url"
	"os"

	"github.com/patchbay-mcp/patchbay/gateway/celpolicy"
	"github.com/patchbay-mcp/patchbay/host"
	"github.com/patchbay-mcp/patchbay/host/config"
	"github.com/patchbay-mcp/patchbay/host/policy"
)

// applyPolicy sets the options of a host that the settings of a file say about its policy.
func applyPolicy(f *config.File, opts *host.Options) error {
	settings, err := f.Settings()
	if err != nil || settings.Policy == nil {
		return err
	}
	compiled, err := celpolicy.New(f, nil)
	if err != nil {
		return err
	}
	opts.Policy = compiled
	for _, channel := range settings.Approve {
		opts.Channels = append(opts.Channels, policy.Channel(channel))
	}
	if settings.Webhook != nil {
		if opts.Webhook, err = celpolicy.Webhook(settings.Webhook, os.LookupEnv); err != nil {
			return err
		}
		if u, err := url.Parse(settings.Webhook.URL); err == nil {
			opts.WebhookName = u.Host
		}
	}
	return nil
}
