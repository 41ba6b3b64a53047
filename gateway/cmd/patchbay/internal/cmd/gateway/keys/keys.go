// Package keys creates and revokes keys, and stores secrets.
package keys

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/patchbay-mcp/patchbay/gateway"
	"github.com/patchbay-mcp/patchbay/gateway/cmd/patchbay/internal/cmdutil"
	"github.com/patchbay-mcp/patchbay/gateway/cmd/patchbay/internal/connect"
	"github.com/patchbay-mcp/patchbay/gateway/cmd/patchbay/internal/exit"
	"github.com/patchbay-mcp/patchbay/gateway/cmd/patchbay/internal/gatewayclient"
	"github.com/patchbay-mcp/patchbay/gateway/cmd/patchbay/internal/hosting"
	"github.com/patchbay-mcp/patchbay/gateway/cmd/patchbay/internal/question"
	"github.com/patchbay-mcp/patchbay/gateway/cmd/patchbay/internal/term"
	"github.com/patchbay-mcp/patchbay/gateway/gatewayconfig"
	"github.com/patchbay-mcp/patchbay/host/config"
	"github.com/patchbay-mcp/patchbay/host/policy"
)

// defaultKeyTime is how long a new key is valid, so that an unused one does not stay valid.
const defaultKeyTime = "90d"

// neverExpires is the value of --expires for a key without an end.
const neverExpires = "never"

// keyKinds are the values of --only.
var keyKinds = []struct {
	name string
	kind policy.ActionKind
}{{"tools", policy.ActionCall}, {"prompts", policy.ActionGet}, {"resources", policy.ActionRead}}

// NewCmdKeys returns the commands about keys of principals. They need no running gateway.
func NewCmdKeys(f *cmdutil.Factory) *cobra.Command {
	return cmdutil.WithSubcommands(f, "keys", "Create, list and revoke keys of users and agents (API keys, access)",
		NewCmdNew(f, nil),
		cmdutil.Plain(f, "list", "List the keys, with their limits and last use", cobra.NoArgs, list),
		cmdutil.WithCompletion(cmdutil.Plain(f, "revoke NAME…",
			"Revoke keys: their clients are refused, and their sessions end", cobra.MinimumNArgs(1), revoke),
			completeKeys(f)))
}

// KeyStore returns the keys of the gateways of this user.
func KeyStore(ctx context.Context, f *cmdutil.Factory) (*gateway.KeyStore, error) {
	state, err := hosting.GatewayState(ctx, f)
	if err != nil {
		return nil, err
	}
	return gateway.NewKeyStore(state), nil
}

// NewOptions are the flags of "gateway keys new".
type NewOptions struct {
	cmdutil.Invocation
	Subject, Profile, Expires string
	Console                   string // a role; empty for none
	Servers, Only             []string
	ReadOnly, All             bool
}

// NewCmdNew returns the command "gateway keys new".
func NewCmdNew(p *cmdutil.Factory, run cmdutil.Run[*NewOptions]) *cobra.Command {
	o := &NewOptions{}
	cmd := cmdutil.Command(p, "new NAME", "Create a key and print it once, with the configuration of a client",
		cobra.ExactArgs(1), o, cmdutil.Or(run, newKey))
	cmd.ValidArgsFunction = cobra.NoFileCompletions
	f := cmd.Flags()
	f.StringVar(&o.Subject, "principal", "", "`name` of the user or agent; default: the name of the key. Keys of a "+
		"principal share its processes, approvals and limits")
	f.StringVar(&o.Profile, "profile", "", "the only `profile` that the key opens")
	f.StringArrayVar(&o.Servers, "server", nil, "a `server` that the key opens (repeatable)")
	f.BoolVar(&o.All, "all-servers", false, "the key opens all servers of your own file, also future servers")
	f.StringSliceVar(&o.Only, "only", nil, "tools, prompts or resources (`kinds`, with commas); default: everything")
	f.BoolVar(&o.ReadOnly, "read-only", false, "only tools that declare readOnlyHint, prompts and resources")
	f.StringVar(&o.Console, "console", "", "the key also opens the web console of the gateway, with this `role`: "+
		"viewer or operator")
	f.StringVar(&o.Expires, "expires", defaultKeyTime, "`time` until the key ends, such as 12h or 90d, or never")
	return cmd
}

// key returns the key that the flags describe.
func (o *NewOptions) key(name string, f *config.File) (gateway.Key, error) {
	k := gateway.Key{Name: name, Subject: o.Subject, Profile: o.Profile, Servers: o.Servers, ReadOnly: o.ReadOnly,
		Console: gateway.ConsoleRole(o.Console)}
	settings, err := gatewayconfig.Read(f)
	if err != nil {
		return k, err
	}
	if o.Profile != "" && settings.Profiles[o.Profile] == nil {
		return k, term.UnknownName("profile", o.Profile, slices.Sorted(maps.Keys(settings.Profiles)))
	}
	for _, server := range o.Servers {
		switch {
		case !f.Has(server):
			return k, term.UnknownName("server", server, keyServers(f, nil))
		case f.IsLocal(server):
			return k, fmt.Errorf("server %s is not in your own file, so only you may use it: add it with \"patchbay "+
				"gateway import\" or \"add\" first", term.CleanLine(server))
		}
	}
	for _, name := range o.Only {
		var known []string
		for _, kind := range keyKinds {
			if known = append(known, kind.name); kind.name == name {
				k.Only = append(k.Only, kind.kind)
			}
		}
		if !slices.Contains(known, name) {
			return k, fmt.Errorf("--only: %w", term.UnknownName("kind", name, known))
		}
	}
	if o.Expires != neverExpires {
		d, err := parseDays(o.Expires)
		if err != nil {
			return k, fmt.Errorf("invalid --expires %q: want a duration such as 12h or 90d, or %s", o.Expires,
				neverExpires)
		}
		k.Expires = time.Now().Add(d).UTC().Truncate(time.Second)
	}
	return k, nil
}

// keyServers returns the servers that keys may open. A profile that is not nil restricts them.
func keyServers(f *config.File, profile *config.Profile) []string {
	return slices.DeleteFunc(f.Names(), func(name string) bool {
		return f.IsLocal(name) || profile != nil && len(profile.Servers) > 0 && !slices.Contains(profile.Servers, name)
	})
}

// askServers asks which servers a key opens, unless a flag names them.
func askServers(ctx context.Context, p *cmdutil.Factory, o *NewOptions, f *config.File) error {
	if o.Profile != "" || len(o.Servers) > 0 || o.All {
		return nil
	}
	own := keyServers(f, nil)
	if !p.IO.MayPrompt() {
		return fmt.Errorf("missing servers that the key opens: pass --profile P, --server S (repeatable), or "+
			"--all-servers for all servers, now %s", hosting.ShownNames(own))
	}
	text := fmt.Sprintf("Servers that the key opens, of %s; names with commas, or \"all\" with later ones: ",
		hosting.ShownNames(own))
	names, err := question.Prompt(ctx, p.Ask, text, p.Ask.PromptText, func(line string) ([]string, error) {
		names := strings.FieldsFunc(line, func(r rune) bool { return r == ',' || r == ' ' })
		for _, name := range names {
			if name != "all" && !slices.Contains(own, name) {
				return nil, term.UnknownName("server", name, own)
			}
		}
		if len(names) == 0 {
			return nil, errors.New("no server was named")
		}
		return names, nil
	})
	if o.Servers = names; slices.Contains(names, "all") {
		o.Servers, o.All = nil, true
	}
	return err
}

// opened describes the servers that a key opens, for users.
func opened(f *config.File, k *gateway.Key) string {
	var profile *config.Profile
	if settings, err := gatewayconfig.Read(f); err == nil {
		profile = settings.Profiles[k.Profile]
	}
	names := slices.DeleteFunc(keyServers(f, profile), func(name string) bool {
		return k.Servers != nil && !slices.Contains(k.Servers, name)
	})
	if len(names) == 0 {
		return "no server"
	}
	text := hosting.ShownNames(names)
	if k.Servers == nil && k.Profile == "" {
		text += ", and those that you add to your own file"
	}
	return text
}

// parseDays returns a positive duration, also of days.
func parseDays(text string) (time.Duration, error) {
	const day, most = 24 * time.Hour, 36500 // days
	if days, ok := strings.CutSuffix(text, "d"); ok {
		n, err := strconv.Atoi(days)
		if err != nil || n <= 0 || n > most {
			return 0, errors.New("invalid number of days")
		}
		return time.Duration(n) * day, nil
	}
	d, err := time.ParseDuration(text)
	if err == nil && d <= 0 {
		err = errors.New("not positive")
	}
	return d, err
}

// A KeyReport is a key in JSON.
type KeyReport struct {
	Name      string     `json:"name"`
	Principal string     `json:"principal"`
	Profile   string     `json:"profile,omitzero"`
	Servers   []string   `json:"servers,omitempty"`
	Only      []string   `json:"only,omitempty"`
	ReadOnly  bool       `json:"readOnly,omitzero"`
	Console   string     `json:"console,omitzero"` // the role
	Created   time.Time  `json:"created"`
	Expires   *time.Time `json:"expires,omitempty"`
	Used      *time.Time `json:"used,omitempty"`
	Expired   bool       `json:"expired"`
}

func newKeyReport(k *gateway.Key) KeyReport {
	r := KeyReport{Name: k.Name, Principal: k.Subject, Profile: k.Profile, Servers: k.Servers, ReadOnly: k.ReadOnly,
		Console: string(k.Console), Created: k.Created, Expired: k.IsExpired(time.Now())}
	for _, kind := range keyKinds {
		if slices.Contains(k.Only, kind.kind) {
			r.Only = append(r.Only, kind.name)
		}
	}
	if !k.Expires.IsZero() {
		r.Expires = &k.Expires
	}
	if !k.Used.IsZero() {
		r.Used = &k.Used
	}
	return r
}

// limits returns the limits of a key in words.
func (r *KeyReport) limits() string {
	var all []string
	if r.Profile != "" {
		all = append(all, "profile "+term.CleanLine(r.Profile))
	}
	if r.Servers != nil {
		all = append(all, "servers "+hosting.ShownNames(r.Servers))
	}
	if r.Only != nil {
		all = append(all, "only "+strings.Join(r.Only, ", "))
	}
	if r.ReadOnly {
		all = append(all, "read only")
	}
	if all == nil {
		all = []string{"everything"}
	}
	if r.Console != "" {
		all = append(all, "console "+r.Console)
	}
	return strings.Join(all, "; ")
}

// end returns the end of a key in words.
func (r *KeyReport) end() string {
	switch {
	case r.Expires == nil:
		return "never expires"
	case r.Expired:
		return "expired " + r.Expires.Local().Format(time.DateTime)
	}
	return "expires " + r.Expires.Local().Format(time.DateTime)
}

// newKey makes a key.
func newKey(ctx context.Context, o *NewOptions) error {
	f, name := o.Factory, o.Words[0]
	c, invalid, err := hosting.ReadConfig(f, "")
	if err = errors.Join(append(invalid, err)...); err != nil && f.Config.NamesConfig() {
		return exit.UsageError(err)
	}
	if err := askServers(ctx, f, o, c.File); err != nil {
		return exit.UsageError(err)
	}
	k, err := o.key(name, c.File)
	if err != nil {
		return exit.UsageError(err)
	}
	store, err := KeyStore(ctx, f)
	if err != nil {
		return err
	}
	secret, err := store.Create(ctx, k)
	switch {
	case errors.Is(err, gateway.ErrKeyExists):
		return fmt.Errorf("key %s exists: choose another name, or revoke it: patchbay gateway keys revoke %[1]s",
			term.CleanLine(name))
	case err != nil:
		return exit.UsageError(err)
	}
	k.Subject = cmp.Or(k.Subject, name)
	k.Created = time.Now().UTC().Truncate(time.Second)
	hosting.RecordAdmin(ctx, f, c.File, map[string]any{"action": "create key", "key": newKeyReport(&k)})
	printNewKey(ctx, f, c, &k, secret)
	return nil
}

// printNewKey prints a key, the only time.
func printNewKey(ctx context.Context, f *cmdutil.Factory, c *hosting.Config, k *gateway.Key, secret string) {
	address := clientURL(ctx, f, c)
	if k.Profile != "" {
		address += "/p/" + url.PathEscape(k.Profile)
	}
	entry := cmdutil.ConfigEntry{Type: "http", URL: address, Headers: map[string]string{"Authorization": "Bearer " +
		secret}}
	report := newKeyReport(k)
	if f.Flags.JSON {
		f.IO.Out.Value(struct {
			KeyReport
			Key    string         `json:"key"`
			URL    string         `json:"url"`
			Config map[string]any `json:"config"`
		}{report, secret, address, map[string]any{"mcpServers": map[string]any{"patchbay": entry}}})
		return
	}
	f.IO.Out.Printf(`Key of %s (%s; %s). It opens %s:

%s

Store it now: it is not shown again. Configuration of a client over HTTP (Claude Code, Cursor and most others):
%s

VS Code (.vscode/mcp.json):
%s`, term.CleanLine(k.Subject), report.limits(), report.end(), opened(c.File, k), secret,
		cmdutil.ClientConfig("mcpServers", "patchbay", entry), cmdutil.ClientConfig("servers", "patchbay", entry))
}

// clientURL returns the URL of all servers of a gateway for its clients.
func clientURL(ctx context.Context, f *cmdutil.Factory, c *hosting.Config) string {
	if running, ok, err := gatewayclient.Find(ctx, f); err == nil && ok {
		var status hosting.GatewayStatus
		if err := running.Do(ctx, http.MethodGet, "/status", nil, &status); err == nil && status.URL != "" {
			return status.URL
		}
	}
	settings, err := gatewayconfig.Read(c.File)
	if err != nil {
		settings = new(gatewayconfig.Settings)
	}
	return settings.BaseURL(hosting.GatewayAddr(c.Settings, "")) + connect.Endpoint
}

func list(ctx context.Context, o *cmdutil.Invocation) error {
	all, err := ListKeys(ctx, o.Factory)
	if err != nil {
		return err
	}
	reports := []KeyReport{}
	var rows [][]string
	for i := range all {
		r := newKeyReport(&all[i])
		used := "not used"
		if r.Used != nil {
			used = "used " + r.Used.Local().Format(time.DateTime)
		}
		reports = append(reports, r)
		rows = append(rows, []string{r.Name, term.CleanLine(r.Principal), r.limits(), r.end(), used})
	}
	switch {
	case o.Flags.JSON:
		o.IO.Out.Value(map[string]any{"keys": reports})
	case len(all) == 0:
		o.IO.Err.Printf("No keys yet: create one with \"patchbay gateway keys new NAME\".")
	default:
		o.IO.Out.Columns("NAME PRINCIPAL LIMITS EXPIRES USED", rows)
	}
	return nil
}

// ListKeys returns the keys of the gateway.
func ListKeys(ctx context.Context, f *cmdutil.Factory) ([]gateway.Key, error) {
	store, err := KeyStore(ctx, f)
	if err != nil {
		return nil, err
	}
	return store.List(ctx)
}

func completeKeys(f *cmdutil.Factory) cobra.CompletionFunc {
	return func(cmd *cobra.Command, args []string, typed string) ([]string, cobra.ShellCompDirective) {
		all, _ := ListKeys(cmd.Context(), f)
		var names []string
		for i := range all {
			if name := all[i].Name; strings.HasPrefix(name, typed) && !slices.Contains(args, name) {
				names = append(names, name)
			}
		}
		return names, cobra.ShellCompDirectiveNoFileComp
	}
}

// revoke revokes keys. After an unknown key it must still revoke the others.
func revoke(ctx context.Context, o *cmdutil.Invocation) error {
	store, err := KeyStore(ctx, o.Factory)
	if err != nil {
		return err
	}
	revoked := []string{}
	var errs []error
	for _, name := range o.Words {
		k, err := store.Revoke(ctx, name)
		switch {
		case errors.Is(err, gateway.ErrUnknownKey):
			all, _ := store.List(ctx)
			var keys []string
			for i := range all {
				keys = append(keys, all[i].Name)
			}
			errs = append(errs, exit.NotFoundError(term.UnknownName("key", name, keys)))
		case err != nil:
			errs = append(errs, err)
		default:
			revoked = append(revoked, name)
			if c, _, err := hosting.ReadConfig(o.Factory, ""); err == nil {
				hosting.RecordAdmin(ctx, o.Factory, c.File,
					map[string]any{"action": "revoke key", "key": newKeyReport(k)})
			}
		}
	}
	if o.Flags.JSON && len(errs) == 0 {
		o.IO.Out.Value(map[string][]string{"revoked": revoked})
	} else if len(revoked) > 0 && !o.Flags.JSON {
		o.IO.Out.Printf("Revoked: %s. Running gateways refuse them within a second.", hosting.ShownNames(revoked))
	}
	return errors.Join(errs...)
}
