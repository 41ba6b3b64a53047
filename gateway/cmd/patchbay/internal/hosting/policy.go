package hosting

import (
	"net/url"
	"os"

	"github.com/patchbay-mcp/patchbay/gateway/celpolicy"
	"github.com/patchbay-mcp/patchbay/gateway/gatewayconfig"
	"github.com/patchbay-mcp/patchbay/host"
	"github.com/patchbay-mcp/patchbay/host/config"
	"github.com/patchbay-mcp/patchbay/host/policy"
)

// configure sets the policy of a file in the options of a host, and returns the settings of the file.
func configure(f *config.File, opts *host.Options) (config.Section, error) {
	settings, err := gatewayconfig.Read(f)
	if err != nil || settings.Policy == nil {
		return settings, err
	}
	compiled, err := celpolicy.New(f, nil)
	if err != nil {
		return nil, err
	}
	opts.Policy = compiled
	for _, channel := range settings.Approve {
		opts.Channels = append(opts.Channels, policy.Channel(channel))
	}
	if settings.Webhook != nil {
		if opts.Webhook, err = celpolicy.Webhook(settings.Webhook, os.LookupEnv); err != nil {
			return nil, err
		}
		if u, err := url.Parse(settings.Webhook.URL); err == nil {
			opts.WebhookName = u.Host
		}
	}
	return settings, nil
}
