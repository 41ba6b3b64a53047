package cli

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
	"github.com/patchbay-mcp/patchbay/gateway/cmd/patchbay/internal/configs"
	"github.com/patchbay-mcp/patchbay/gateway/internal/jsonc"
	"github.com/patchbay-mcp/patchbay/gateway/internal/rawjson"
	"github.com/patchbay-mcp/patchbay/host/config"
)

// serverMember returns the member of a configuration that has a server, or to which one is added, and
// whether it has it.
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
		return "", notFound(fmt.Errorf("unknown server %.100q: %s has no servers", name, path))
	}
	f, err := config.Parse(text)
	if err != nil {
		return "", fmt.Errorf("%s: %w; nothing was changed", path, err)
	}
	member, has := serverMember(text, name)
	if !has {
		return "", notFound(fmt.Errorf("%s: %w", path, unknownName("server", name, f.Names())))
	}
	return member, nil
}

func removeCommand(f *factory) *cobra.Command {
	var dryRun bool
	cmd := editCommand(f, &cobra.Command{Use: "remove NAME", Aliases: []string{"rm"},
		Short: "Remove a server and its settings from your configuration", Args: cobra.ExactArgs(1),
		ValidArgsFunction: func(v1 *cobra.Command, args []string, v2 string) ([]string, cobra.ShellCompDirective) {
			return completeOwn(f, v1, args, v2)
		},
		RunE: func(_ *cobra.Command, args []string) error {
			return editOwn(f, args[0], dryRun, removeServer)
		}})
	cmd.Flags().BoolVar(&dryRun, "dry-run", false, "show the difference, and change nothing")
	return cmd
}

func enableCommand(f *factory, enable bool) *cobra.Command {
	var dryRun bool
	use, short, edit := "enable NAME", "Use a server of your configuration again", enableServer
	if !enable {
		use, short, edit = "disable NAME", "Keep a server in your configuration, and do not use it", disableServer
	}
	cmd := editCommand(f, &cobra.Command{Use: use, Short: short, Args: cobra.ExactArgs(1),
		ValidArgsFunction: func(v1 *cobra.Command, args []string, v2 string) ([]string, cobra.ShellCompDirective) {
			return completeOwn(f, v1, args, v2)
		},
		RunE: func(_ *cobra.Command, args []string) error { return editOwn(f, args[0], dryRun, edit) }})
	cmd.Flags().BoolVar(&dryRun, "dry-run", false, "show the difference, and change nothing")
	return cmd
}

// editOwn edits a server of the user's file.
func editOwn(f *factory, name string, dryRun bool, edit func(text []byte, member, name string) ([]byte, error)) error {
	path, text, err := ownFile(f)
	if err != nil {
		return err
	}
	member, err := knownServer(path, text, name)
	if err != nil {
		return err
	}
	e := &fileEdit{path: path, old: text}
	if e.text, err = edit(text, member, name); err != nil {
		return fmt.Errorf("%s: %w; nothing was changed", path, err)
	}
	r, err := e.apply(dryRun)
	if err != nil {
		return err
	}
	if f.Flags.json {
		f.IO.Out.value(r)
		return nil
	}
	showEdit(f, r)
	return nil
}

// removeServer removes a server with its settings, and from the lists of profiles, which must name
// servers of the file.
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
func completeOwn(p *factory, _ *cobra.Command, args []string, _ string) ([]string, cobra.ShellCompDirective) {
	path := config.Paths(p.Flags.config)[0]
	if len(args) > 0 || !p.Config.namesConfig() && !filepath.IsAbs(path) {
		return nil, cobra.ShellCompDirectiveNoFileComp
	}
	text, err := configs.ReadForEdit(path)
	if err != nil {
		return nil, cobra.ShellCompDirectiveNoFileComp
	}
	f, err := config.Parse(text)
	if err != nil {
		return nil, cobra.ShellCompDirectiveNoFileComp
	}
	return f.Names(), cobra.ShellCompDirectiveNoFileComp
}

func listCommand(f *factory) *cobra.Command {
	return editCommand(f, &cobra.Command{Use: "list", Aliases: []string{"ls"},
		Short: "List the servers that the gateway serves, and to whom",
		RunE:  func(cmd *cobra.Command, _ []string) error { return listOwn(cmd.Context(), f) }})
}

// listOwn prints the servers of the user's file, and the other servers that the gateway serves to the user.
func listOwn(ctx context.Context, f *factory) error {
	path, text, err := ownFile(f)
	if err != nil {
		return err
	}
	reports := []serverReport{}
	if !jsonc.IsBlank(text) {
		parsed, err := config.Parse(text)
		if err != nil {
			return fmt.Errorf("%s: %w", path, err)
		}
		parsed.Path = path
		store, err := trustStore()
		if err != nil {
			return err
		}
		for _, name := range parsed.Names() {
			reports = append(reports, reportServer(&configs.File{File: parsed, App: "patchbay"}, name, store))
		}
	}
	if reports, err = addRecipients(ctx, f, reports); err != nil {
		return err
	}
	if f.Flags.json {
		f.IO.Out.value(map[string]any{"file": path, "servers": reports})
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
		rows = append(rows, []string{shorten(cleanLine(r.Name), maxNameShown), state, r.Transport,
			shorten(cleanLine(r.Does), maxDoesShown), strings.Join(r.To, ", ")})
	}
	f.IO.Out.columns("NAME STATE TRANSPORT COMMAND-OR-URL CALLERS", rows)
	if len(reports) == 0 {
		f.IO.Err.printf("%s has no servers; add one with \"patchbay gateway add\" or \"patchbay gateway import\".",
			cleanLine(path))
	}
	return nil
}

// addRecipients adds the servers that are not in the user's file but served by the gateway, and who may use each
// server.
func addRecipients(ctx context.Context, f *factory, reports []serverReport) ([]serverReport, error) {
	c, _, err := readConfig(f, "")
	if err != nil {
		return nil, err
	}
	settings, err := c.file.Settings()
	if err != nil {
		return nil, err
	}
	keys, err := listKeys(ctx)
	if err != nil {
		return nil, err
	}
	store, err := trustStore()
	if err != nil {
		return nil, err
	}
	for i := range reports {
		if r := &reports[i]; c.file.Has(r.Name) && r.Invalid == "" && !r.Disabled {
			r.To = recipients(settings, keys, r.Name)
		}
	}
	for _, e := range c.servers {
		if e.Local {
			app, _, _ := configs.Split(c.targets[e.Name].name)
			r := reportServer(&configs.File{File: e.File, App: cmp.Or(app, "project")}, e.Server, store)
			r.Name, r.To = e.Name, []string{"you"}
			reports = append(reports, r)
		}
	}
	return reports, nil
}

// recipients returns who may use a server of the user's file.
func recipients(settings *config.Settings, keys []gateway.Key, server string) []string {
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
		to = append(to, "users of "+cleanLine(settings.Auth.OIDC.Issuer))
	}
	return to
}
