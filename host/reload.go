package host

import (
	"context"
	"fmt"
	"maps"
	"reflect"
	"slices"

	"github.com/patchbay-mcp/patchbay/host/config"
	"github.com/patchbay-mcp/patchbay/host/internal/approve"
	"github.com/patchbay-mcp/patchbay/host/internal/upstream"
	"github.com/patchbay-mcp/patchbay/mcp"
)

// A Diff contains the changes of a reload. Names are in the order of the file that contains them.
type Diff struct {
	// Added and Removed are the names of servers.
	Added   []string `json:"added,omitempty"`
	Removed []string `json:"removed,omitempty"`
	// Changed are the servers that are connected to again.
	Changed []string `json:"changed,omitempty"`
	// Updated contains the servers whose settings changed and that keep their connections.
	Updated []string `json:"updated,omitempty"`
	// Settings contains the other members of the settings that changed, such as "profiles", and
	// "mcpServers" for the order of the servers.
	Settings []string `json:"settings,omitempty"`
	// Restart contains the members of the settings that changed and that require a restart of the
	// program, such as "listen".
	Restart []string `json:"restart,omitempty"`
}

// IsEmpty reports whether the reload changed no setting and no server.
func (d *Diff) IsEmpty() bool {
	return len(d.Added)+len(d.Removed)+len(d.Changed)+len(d.Updated)+len(d.Settings)+len(d.Restart) == 0
}

// Reload replaces the configuration. A server is changed if the meaning of its entry differs:
// values of variables and contents of files count, outputs of commands such as ${exec:…} do not.
//
//   - Servers that are not changed keep their processes, sessions, requests and subscriptions.
//   - Reload starts new instances of a changed server. When they are ready, they replace the old
//     instances as with [Upstream.Restart]. An instance whose replacement fails stays in use, the
//     failure is an event, and Reload with another entry, or a later attempt, replaces it. If the
//     replacement fails because a secret is no longer stored, the instance receives no new requests. A
//     server that becomes a URL instead of a command, or the reverse, or that changes its mode of
//     sharing, is replaced at once.
//   - Removed servers receive no new requests. Requests in progress continue for 30 seconds at most,
//     suspended requests until their end.
//   - Other settings apply to the next request, and so do limits and settings of a server that do not
//     concern a connection, such as allow. "trust" concerns a connection: the host compares the
//     definitions of a new connection with pins again.
//   - [Options.Configure] sets the policy, channels and webhook. Approvals and decisions of another epoch
//     of the policy are void. See [Diff] for settings that require a restart.
//
// Every view with subscriptions is notified of lists that differ. If the settings of the file are
// invalid, Reload keeps the old configuration and returns the error. The outcome is also an event,
// unless the file contains no change. A file whose servers need trust must be trusted before: see
// [config.TrustStore]. Reload does not wait for servers.
func (h *Host) Reload(ctx context.Context, f *config.File) (*Diff, error) {
	h.reloading.Lock()
	defer h.reloading.Unlock()
	d, err := h.reload(ctx, f)
	if err != nil || !d.IsEmpty() {
		h.send(Event{Reload: d, Err: err})
	}
	return d, err
}

func (h *Host) reload(ctx context.Context, f *config.File) (*Diff, error) {
	set, err := h.servers.NewSet(f)
	if err != nil {
		return nil, err
	}
	rules, err := h.opts.configured(f)
	if err != nil {
		return nil, err
	}
	d := h.compare(set)
	if ctx.Err() != nil {
		return nil, context.Cause(ctx)
	}
	if d.IsEmpty() {
		return d, nil
	}
	old, views, err := h.apply(set, rules)
	if err != nil {
		return nil, err
	}
	h.servers.Settle(old, d.Changed)
	for _, v := range views {
		v.table.Servers()
	}
	h.servers.Wake()
	h.approve.Recheck() // questions of the last policy are void
	h.recordConfig(f, "reload")
	return d, nil
}

// apply replaces the set of servers and the rules. It returns the previous set, and the views with
// subscriptions.
func (h *Host) apply(set *upstream.Set, rules *Options) (*upstream.Set, []*View, error) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.closed {
		return nil, nil, mcp.ErrClosed
	}
	if h.opts.Configure != nil {
		h.use(rules) // before the servers: the last policy must not decide about a request for a new server
	}
	return h.servers.Use(set), slices.Collect(maps.Keys(h.subscribed)), nil
}

// compare returns the differences between the present configuration and a set that is not yet in use.
func (h *Host) compare(set *upstream.Set) *Diff {
	servers := h.servers.Compare(set)
	d := &Diff{Added: servers.Added, Removed: servers.Removed, Changed: servers.Changed, Updated: servers.Updated}
	if servers.Reordered {
		d.Settings = append(d.Settings, "mcpServers")
	}
	h.compareSettings(d, h.servers.Current().Settings(), set.Settings())
	return d
}

// configured returns the options for a file.
func (opts *Options) configured(f *config.File) (*Options, error) {
	o := *opts
	if o.Configure != nil {
		if err := o.Configure(f, &o); err != nil {
			return nil, fmt.Errorf("host: %w", err)
		}
	}
	return &o, nil
}

// use replaces the policy and the channels with the values of options.
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
