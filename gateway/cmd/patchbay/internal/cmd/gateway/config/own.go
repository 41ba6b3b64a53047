package config

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/patchbay-mcp/patchbay/gateway"
	"github.com/patchbay-mcp/patchbay/gateway/cmd/patchbay/internal/cmd/gateway/keys"
	"github.com/patchbay-mcp/patchbay/gateway/cmd/patchbay/internal/cmd/servers"
	"github.com/patchbay-mcp/patchbay/gateway/cmd/patchbay/internal/cmdutil"
	"github.com/patchbay-mcp/patchbay/gateway/cmd/patchbay/internal/configedit"
	"github.com/patchbay-mcp/patchbay/gateway/cmd/patchbay/internal/configs"
	"github.com/patchbay-mcp/patchbay/gateway/cmd/patchbay/internal/exit"
	"github.com/patchbay-mcp/patchbay/gateway/cmd/patchbay/internal/hosting"
	"github.com/patchbay-mcp/patchbay/gateway/cmd/patchbay/internal/target"
	"github.com/patchbay-mcp/patchbay/gateway/cmd/patchbay/internal/term"
	"github.com/patchbay-mcp/patchbay/gateway/gatewayconfig"
	"github.com/patchbay-mcp/patchbay/gateway/internal/jsonc"
	"github.com/patchbay-mcp/patchbay/gateway/internal/rawjson"
	"github.com/patchbay-mcp/patchbay/host/config"
)

// serverMember returns the member of a configuration that contains a server or to which a new
// server must be added. has reports whether the member contains the server.
func serverMember(text []byte, name string) (member string, has bool) {
	member = "mcpServers"
	plain, err := config.Plain(text)
	if err != nil {
		return member, false // jsonc.Set returns the error
	}
	common, isCommon := rawjson.Get(plain, "mcpServers")
	others, isOther := rawjson.Get(plain, "servers")
	if _, has = rawjson.Get(common, name); has {
		return member, true
	}
	if _, has = rawjson.Get(others, name); has || isOther && !isCommon {
		return "servers", has
	}
	return member, false
}

// knownServer returns the member with a server of the user's file.
func knownServer(path string, text []byte, name string) (member string, err error) {
	if jsonc.IsBlank(text) {
		return "", exit.NotFoundError(fmt.Errorf("unknown server %.100q: %s has no servers", name, path))
	}
	f, err := config.Parse(text)
	if err != nil {
		return "", fmt.Errorf("%s: %w; nothing was changed", path, err)
	}
	member, has := serverMember(text, name)
	if !has {
		return "", exit.NotFoundError(fmt.Errorf("%s: %w", path, term.UnknownName("server", name, f.Names())))
	}
	return member, nil
}

// EditOptions are the flags of "gateway remove", "enable" and "disable".
type EditOptions struct {
	cmdutil.Invocation
	DryRun bool
}

// NewCmdRemove returns the command "gateway remove".
func NewCmdRemove(f *cmdutil.Factory, run cmdutil.Run[*EditOptions]) *cobra.Command {
	cmd := newCmdEdit(f, "remove NAME", "Remove a server and its settings from your configuration", run, removeServer)
	cmd.Aliases = []string{"rm"}
	return cmd
}

type editFunc func(text []byte, member, name string) ([]byte, error)

func newCmdEdit(f *cmdutil.Factory, use, short string, run cmdutil.Run[*EditOptions], edit editFunc) *cobra.Command {
	o := &EditOptions{}
	cmd := cmdutil.Command(f, use, short, cobra.ExactArgs(1), o, cmdutil.Or(run,
		func(_ context.Context, o *EditOptions) error { return editOwn(f, o.Words[0], o.DryRun, edit) }))
	cmd.ValidArgsFunction = completeOwn(f)
	cmd.Flags().BoolVar(&o.DryRun, "dry-run", false, "show the difference, and change nothing")
	return cmd
}

// editOwn edits a server of the user's file.
func editOwn(f *cmdutil.Factory, name string, dryRun bool, edit editFunc) error {
	path, text, err := configedit.OwnFile(f)
	if err != nil {
		return err
	}
	member, err := knownServer(path, text, name)
	if err != nil {
		return err
	}
	e := &configedit.Edit{Path: path, Old: text}
	if e.Text, err = edit(text, member, name); err != nil {
		return fmt.Errorf("%s: %w; nothing was changed", path, err)
	}
	r, err := e.Apply(dryRun)
	if err != nil {
		return err
	}
	if f.PrintedJSON(r) {
		return nil
	}
	configedit.Show(f, r)
	return nil
}

// removeServer removes a server, its settings, and its name in the lists of profiles.
func removeServer(text []byte, member, name string) ([]byte, error) {
	out, err := jsonc.Remove(text, []string{member, name})
	if err != nil {
		return nil, err
	}
	if without, err := jsonc.Remove(out, []string{"patchbay", "servers", name}); err == nil {
		out = without
	} else if !errors.Is(err, jsonc.ErrAbsent) {
		return nil, err
	}
	plain, err := config.Plain(out)
	if err != nil {
		return nil, err
	}
	settings, _ := rawjson.Get(plain, "patchbay")
	profiles, _ := rawjson.Get(settings, "profiles")
	for profile, value := range rawjson.Members(profiles) {
		servers, _ := rawjson.Get(value, "servers")
		index := 0
		for element := range rawjson.Elements(servers) {
			if server, err := rawjson.Unquote(element); err != nil || server != name {
				index++
				continue
			}
			path := []string{"patchbay", "profiles", string(profile), "servers", fmt.Sprint(index)}
			if out, err = jsonc.Remove(out, path); err != nil {
				return nil, err
			}
		}
	}
	return out, nil
}

func disableServer(text []byte, member, name string) ([]byte, error) {
	if out, err := jsonc.Remove(text, []string{member, name, "enabled"}); err == nil {
		text = out // disabled says it
	}
	return jsonc.Set(text, []string{member, name, "disabled"}, []byte("true"))
}

func enableServer(text []byte, member, name string) ([]byte, error) {
	for _, key := range []string{"disabled", "enabled"} {
		out, err := jsonc.Remove(text, []string{member, name, key})
		switch {
		case err == nil:
			text = out
		case !errors.Is(err, jsonc.ErrAbsent):
			return nil, err
		}
	}
	return text, nil
}

// completeOwn completes the names of the servers of the user's file.
func completeOwn(p *cmdutil.Factory) cobra.CompletionFunc {
	return func(_ *cobra.Command, args []string, _ string) (names []string, _ cobra.ShellCompDirective) {
		path := config.Paths(p.Flags.Config)[0]
		if len(args) == 0 && (p.Config.NamesConfig() || filepath.IsAbs(path)) {
			text, err := configs.ReadForEdit(path)
			if f, invalid := config.Parse(text); err == nil && invalid == nil {
				names = f.Names()
			}
		}
		return names, cobra.ShellCompDirectiveNoFileComp
	}
}

// listOwn prints the servers of the user's file, and the other servers that the gateway serves to the user.
func listOwn(ctx context.Context, o *cmdutil.Invocation) error {
	f := o.Factory
	path, text, err := configedit.OwnFile(f)
	if err != nil {
		return err
	}
	reports := []servers.ServerReport{}
	if !jsonc.IsBlank(text) {
		parsed, err := config.Parse(text)
		if err != nil {
			return fmt.Errorf("%s: %w", path, err)
		}
		parsed.Path = path
		store, err := target.TrustStore()
		if err != nil {
			return err
		}
		for _, name := range parsed.Names() {
			reports = append(reports, servers.ReportServer(&configs.File{File: parsed, App: "patchbay"}, name, store))
		}
	}
	if reports, err = addRecipients(ctx, f, reports); err != nil {
		return err
	}
	if f.PrintedJSON(map[string]any{"file": path, "servers": reports}) {
		return nil
	}
	var rows [][]string
	for _, r := range reports {
		state := "enabled"
		switch {
		case r.Invalid != "":
			state, r.Does = "invalid", r.Invalid
		case r.Disabled:
			state = "disabled"
		}
		rows = append(rows, []string{term.Shorten(term.CleanLine(r.Name), term.MaxNameShown), state, r.Transport,
			term.Shorten(term.CleanLine(r.Does), term.MaxDoesShown), strings.Join(r.To, ", ")})
	}
	f.IO.Out.Columns("NAME STATE TRANSPORT COMMAND-OR-URL CALLERS", rows)
	if len(reports) == 0 {
		f.IO.Err.Printf("%s has no servers; add one with \"patchbay gateway add\" or \"patchbay gateway import\".",
			term.CleanLine(path))
	}
	return nil
}

// addRecipients adds served servers of other files, and who may use each server.
func addRecipients(ctx context.Context, f *cmdutil.Factory, reports []servers.ServerReport) ([]servers.ServerReport,
	error) {
	c, _, err := hosting.ReadConfig(f, "")
	if err != nil {
		return nil, err
	}
	settings, err := gatewayconfig.Read(c.File)
	if err != nil {
		return nil, err
	}
	keys, err := keys.ListKeys(ctx, f)
	if err != nil {
		return nil, err
	}
	store, err := target.TrustStore()
	if err != nil {
		return nil, err
	}
	for i := range reports {
		if r := &reports[i]; c.File.Has(r.Name) && r.Invalid == "" && !r.Disabled {
			r.To = recipients(settings, keys, r.Name)
		}
	}
	for _, e := range c.Servers {
		if e.Local {
			app, _, _ := configs.Split(c.Targets[e.Name].Name)
			r := servers.ReportServer(&configs.File{File: e.File, App: cmp.Or(app, "project")}, e.Server, store)
			r.Name, r.To = e.Name, []string{"you"}
			reports = append(reports, r)
		}
	}
	return reports, nil
}

// recipients returns who may use a server of the user's file.
func recipients(settings *gatewayconfig.Settings, keys []gateway.Key, server string) []string {
	to := []string{"you"}
	for i := range keys {
		k := &keys[i]
		profile := settings.Profiles[k.Profile]
		inProfile := k.Profile == "" || profile != nil && (len(profile.Servers) == 0 ||
			slices.Contains(profile.Servers, server))
		if !k.IsExpired(time.Now()) && inProfile && (k.Servers == nil || slices.Contains(k.Servers, server)) {
			to = append(to, "key "+k.Name)
		}
	}
	if settings.Auth != nil && settings.Auth.OIDC != nil {
		to = append(to, "users of "+term.CleanLine(settings.Auth.OIDC.Issuer))
	}
	return to
}
