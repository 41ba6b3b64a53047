package host

import (
	"fmt"
	"reflect"
	"slices"

	"github.com/patchbay-mcp/patchbay/host/config"
	"github.com/patchbay-mcp/patchbay/host/internal/approve"
)

// configured returns the options for a file.
func (h *Host) configured(f *config.File) (*Options, error) {
	o := h.opts
	if o.Configure != nil {
		if err := o.Configure(f, &o); err != nil {
			return nil, fmt.Errorf("host: %w", err)
		}
	}
	return &o, nil
}

// use makes the policy and the channels of options those of the host.
func (h *Host) use(o *Options) {
	h.approve.Use(approve.Channels{Order: slices.Clone(o.Channels), Webhook: o.Webhook, WebhookName: o.WebhookName})
	h.authorize.Use(o.Policy)
}

// compareSettings sets the members of the settings that differ, in the order in which they are
// documented.
func (h *Host) compareSettings(d *Diff, a, b *config.Settings) {
	restarts := map[string]bool{"listen": true, "audit": true, "auth": true, "publicURL": true,
		"allowedHosts": true, "ops": true, "pprof": true}
	for _, rules := range []string{"policy", "approve", "webhook"} {
		restarts[rules] = h.opts.Configure == nil
	}
	for _, s := range []struct {
		name     string
		old, now any
	}{
		{"listen", a.Listen, b.Listen}, {"ops", a.Ops, b.Ops}, {"pprof", a.Pprof, b.Pprof},
		{"trustTraceContext", a.TrustTraceContext, b.TrustTraceContext},
		{"publicURL", a.PublicURL, b.PublicURL},
		{"allowedHosts", a.AllowedHosts, b.AllowedHosts}, {"auth", a.Auth, b.Auth},
		{"names", a.Names, b.Names}, {"tools", a.Tools, b.Tools},
		{"profiles", a.Profiles, b.Profiles}, {"audit", a.Audit, b.Audit}, {"policy", a.Policy, b.Policy},
		{"approve", a.Approve, b.Approve}, {"webhook", a.Webhook, b.Webhook}, {"limits", a.Limits, b.Limits},
	} {
		switch {
		case reflect.DeepEqual(s.old, s.now):
		case restarts[s.name]:
			d.Restart = append(d.Restart, s.name)
		default:
			d.Settings = append(d.Settings, s.name)
		}
	}
}
