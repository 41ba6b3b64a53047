package host

import (
	"context"
	"fmt"
	"maps"
	"reflect"
	"slices"
	"strings"

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
	rules, settings, err := h.opts.configured(f)
	if err != nil {
		return nil, err
	}
	set, err := h.servers.NewSet(f)
	if err != nil {
		return nil, err
	}
	d := h.compare(set, settings)
	if ctx.Err() != nil {
		return nil, context.Cause(ctx)
	}
	if d.IsEmpty() {
		return d, nil
	}
	old, views, err := h.apply(set, rules, settings)
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
func (h *Host) apply(
	set *upstream.Set, rules *Options, settings config.Section,
) (*upstream.Set, []*View, error) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.closed {
		return nil, nil, mcp.ErrClosed
	}
	if h.opts.Configure != nil {
		h.use(rules) // before the servers: the last policy must not decide about a request for a new server
	}
	h.settings = settings
	return h.servers.Use(set), slices.Collect(maps.Keys(h.subscribed)), nil
}

// compare returns the differences between the present configuration and a set that is not yet in use.
func (h *Host) compare(set *upstream.Set, settings config.Section) *Diff {
	servers := h.servers.Compare(set)
	d := &Diff{Added: servers.Added, Removed: servers.Removed, Changed: servers.Changed, Updated: servers.Updated}
	if servers.Reordered {
		d.Settings = append(d.Settings, "mcpServers")
	}
	d.compareSettings(h.settings, settings)
	return d
}

// configured returns the options and the settings for a file.
func (o *Options) configured(f *config.File) (out *Options, settings config.Section, err error) {
	if out = new(*o); out.Configure != nil {
		settings, err = out.Configure(f, out)
	}
	if settings == nil && err == nil {
		settings, err = f.Settings()
	}
	if err != nil {
		err = fmt.Errorf("host: %w", err)
	}
	return out, settings, err
}

// use replaces the policy and the channels with the values of options.
func (h *Host) use(o *Options) {
	h.approve.Use(approve.Channels{Order: slices.Clone(o.Channels), Webhook: o.Webhook, WebhookName: o.WebhookName})
	h.authorize.Use(o.Policy)
}

// compareSettings sets the members of the settings that differ, in the order of their fields.
func (d *Diff) compareSettings(old, now config.Section) {
	before, after := reflect.ValueOf(old).Elem(), reflect.ValueOf(now).Elem()
	for _, f := range reflect.VisibleFields(after.Type()) {
		name, _, _ := strings.Cut(f.Tag.Get("json"), ",")
		same := func() bool {
			return reflect.DeepEqual(before.FieldByIndex(f.Index).Interface(), after.FieldByIndex(f.Index).Interface())
		}
		switch {
		case f.Anonymous || name == "servers" || same():
		case f.Tag.Get("reload") == "restart":
			d.Restart = append(d.Restart, name)
		default:
			d.Settings = append(d.Settings, name)
		}
	}
}
