package run

import (
	"bytes"
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"net/http"
	"os"
	"reflect"
	"regexp"
	"slices"
	"strings"

	"github.com/patchbay-mcp/patchbay/gateway"
	"github.com/patchbay-mcp/patchbay/gateway/celpolicy"
	"github.com/patchbay-mcp/patchbay/gateway/cmd/patchbay/internal/cmdutil"
	"github.com/patchbay-mcp/patchbay/gateway/cmd/patchbay/internal/configedit"
	"github.com/patchbay-mcp/patchbay/gateway/cmd/patchbay/internal/configs"
	"github.com/patchbay-mcp/patchbay/gateway/cmd/patchbay/internal/hosting"
	"github.com/patchbay-mcp/patchbay/gateway/cmd/patchbay/internal/target"
	"github.com/patchbay-mcp/patchbay/gateway/gatewayconfig"
	"github.com/patchbay-mcp/patchbay/host/config"
)

// configFiles returns the files of the configuration of a gateway, with masks.
func configFiles(p *cmdutil.Factory, g *Run) ([]gateway.ConfigFile, error) {
	own := config.Paths(p.Flags.Config)[0]
	var files []gateway.ConfigFile
	for f, err := range configs.Files(p.Flags.Config) {
		if err != nil {
			continue // the gateway does not use it
		}
		text, err := os.ReadFile(f.Path)
		if err != nil {
			continue // it was just removed
		}
		files = append(files, gateway.ConfigFile{Path: f.Path, Editable: f.Path == own && hosting.IsOwnForm(f.App),
			Servers: g.Config.NamesFrom(f.Path), Text: g.mask.Masked(text), Version: g.mask.version(text)})
	}
	return files, nil
}

func refusedChange(status int, code, format string, args ...any) error {
	return &gateway.Problem{Status: status, Code: code, Detail: fmt.Sprintf(format, args...)}
}

// setConfig writes the configuration file of the user, which the gateway then reads again.
func setConfig(f *cmdutil.Factory, g *Run, c *gateway.ConfigChange) (*gateway.ConfigResult, error) {
	path, old, err := configedit.OwnFile(f)
	switch {
	case err != nil:
		return nil, refusedChange(http.StatusConflict, "not_editable", "%v", err)
	case c.Version != g.mask.version(old):
		return nil, refusedChange(http.StatusConflict, "config_changed",
			"%s has changed since it was read: read it again", path)
	}
	text, err := g.mask.Restore(old, c.Text)
	if err != nil {
		return nil, refusedChange(http.StatusBadRequest, "masked_value", "%v", err)
	}
	if err := checkConfig(path, text); err != nil {
		return nil, refusedChange(http.StatusUnprocessableEntity, "invalid_config", "%s; nothing was changed",
			g.Config.Masked(err.Error()))
	}
	r := &gateway.ConfigResult{File: path, DryRun: c.DryRun, Version: g.mask.version(text),
		Diff: configedit.DiffText(path, g.mask.Masked(old), g.mask.Masked(text)), Commands: newCommands(old, text)}
	report, err := (&configedit.Edit{Path: path, Old: old, Text: text}).Apply(c.DryRun)
	if errors.Is(err, configs.ErrChanged) {
		return nil, refusedChange(http.StatusConflict, "config_changed", "%v", err)
	}
	r.Changed, r.Backup = report.Changed, report.Backup
	return r, err
}

// checkConfig returns the errors of a new text of a configuration file.
func checkConfig(path string, text []byte) error {
	v := &hosting.Validation{File: path}
	v.Check(text)
	const most = 10
	var errs []error
	for _, problem := range v.Errors[:min(len(v.Errors), most)] {
		errs = append(errs, errors.New(v.Text(problem, "")))
	}
	if len(errs) > 0 {
		return errors.Join(errs...)
	}
	f, err := configs.Parse(path, text)
	if err != nil {
		return err
	}
	if _, has := f.Extra["patchbay"]; has {
		_, err = celpolicy.New(f.File, nil)
	}
	return err
}

// newCommands returns the command lines, addresses and insecure settings that text contains and old does
// not, without secrets, and the changed settings that a running gateway keeps until its restart.
func newCommands(old, text []byte) [][]string {
	before, oldSettings := commandsOf(old)
	now, settings := commandsOf(text)
	all := [][]string{}
	for key, shown := range now {
		if _, known := before[key]; !known {
			all = append(all, shown)
		}
	}
	slices.SortFunc(all, slices.Compare[[]string])
	return appendChanged(all, "", oldSettings, settings)
}

// fixed returns the settings that need a restart: the addresses and names of the gateway, whom it
// serves, the console with its roles, and the audit log.
func fixed(s *gatewayconfig.Settings) map[string]any {
	all, v := map[string]any{}, reflect.ValueOf(s).Elem()
	for _, field := range reflect.VisibleFields(v.Type()) {
		if field.Tag.Get("reload") == "restart" {
			name, _, _ := strings.Cut(field.Tag.Get("json"), ",")
			all[name] = v.FieldByIndex(field.Index).Interface()
		}
	}
	return all
}

// appendChanged appends the name, the old and the new value of each setting that differs between
// two JSON values.
func appendChanged(all [][]string, name string, old, now json.RawMessage) [][]string {
	var before, after map[string]json.RawMessage
	if bytes.Equal(old, now) {
		return all
	}
	if json.Unmarshal(old, &before) != nil || json.Unmarshal(now, &after) != nil || before == nil || after == nil {
		return append(all, []string{name, cmp.Or(string(old), "null"), "→", cmp.Or(string(now), "null")})
	}
	members := slices.AppendSeq(slices.Collect(maps.Keys(before)), maps.Keys(after))
	slices.Sort(members)
	for _, member := range slices.Compact(members) {
		all = appendChanged(all, strings.TrimPrefix(name+"."+member, "."), before[member], after[member])
	}
	return all
}

// commands contains the command lines that a configuration runs, and the addresses to which it
// connects, without secrets. The key contains everything that determines the process or the
// receiver.
type commands map[string][]string

func (c commands) add(shown []string, key ...any) { c[fmt.Sprintf("%q", key)] = shown }

// send adds an address that receives the value of a variable, or what detail says.
func (c commands) send(address, detail string, key ...any) {
	if address != "" {
		c.add([]string{target.PublicURL(address), detail}, append(key, address, detail)...)
	}
}

// commandsOf returns the commands of a text, and the settings that need a restart.
func commandsOf(text []byte) (all commands, restart json.RawMessage) {
	all = commands{}
	if len(bytes.TrimSpace(text)) == 0 {
		text = []byte("{}")
	}
	f, err := config.Parse(text)
	if err != nil {
		return all, json.RawMessage("{}")
	}
	settings, err := gatewayconfig.Read(f)
	if err != nil {
		settings = new(gatewayconfig.Settings) // checkConfig refuses the text
	}
	all.addSettings(settings)
	for _, name := range f.Names() {
		if s, err := f.Server(name); err == nil && !s.Disabled {
			all.addServer(s, cmp.Or(settings.Servers[name], &config.ServerSettings{}))
		}
	}
	restart, _ = json.Marshal(fixed(settings)) // they were read from JSON
	return all, restart
}

func (c commands) addSettings(s *gatewayconfig.Settings) {
	if s.Policy != nil && s.Policy.Hook != nil {
		hook := s.Policy.Hook
		if len(hook.Command) > 0 {
			c.add(target.PublicArguments(hook.Command), "hook", hook.Command)
		}
		c.send(hook.URL, "(policy hook)", hook.Secret)
	}
	if s.Webhook != nil {
		c.send(s.Webhook.URL, "(webhook)", s.Webhook.Secret)
	}
	if s.Auth != nil && s.Auth.OIDC != nil {
		c.send(s.Auth.OIDC.Issuer, "(logins to the gateway)", s.Auth.OIDC.ClientSecret)
	}
	for name, profile := range s.Profiles { // profiles limit the keys of operators
		servers, _ := json.Marshal(profile.Servers)
		tools, _ := json.Marshal(profile.Tools)
		shown := []string{"profile " + name, "servers " + string(servers), "tools " + string(tools)}
		c.add(shown, shown)
	}
	for name, set := range s.Servers {
		c.send(set.OAuth.Issuer, fmt.Sprintf("(logins to %s)", name), set.OAuth.ClientSecret)
		if set.Auth == config.AuthForward {
			c.add([]string{name, "(receives headers of callers)"}, name, set.ForwardHeaders,
				set.InsecureForwardAuthorization)
		}
		for setting, isSet := range map[string]bool{"insecureHTTP": set.InsecureHTTP,
			"oauth.insecureUnlistedPKCE": set.OAuth.InsecureUnlistedPKCE,
			"trust: insecureAll":         set.Trust == config.TrustInsecureAll} {
			if isSet {
				c.add([]string{name, "(" + setting + ")"}, name, setting)
			}
		}
	}
}

// variable matches a variable, whose value may come from a command, a file or the environment.
var variable = regexp.MustCompile(`\$\{(exec:)?([^}]*)\}`)

func (c commands) addServer(s *config.Server, set *config.ServerSettings) {
	if s.Type == config.TypeStdio {
		line, shown := append([]string{s.Command}, s.Args...), []string{}
		var inputs []string
		for _, in := range s.Inputs {
			inputs = append(inputs, in.ID)
		}
		for _, d := range [][2]string{{"cwd", target.HideKeys(s.Dir)}, {"envFile", target.HideKeys(s.EnvFile)},
			{"env", strings.Join(slices.Sorted(maps.Keys(s.Env)), ", ")}, {"inputs", strings.Join(inputs, ", ")}} {
			if d[1] != "" {
				shown = append(shown, fmt.Sprintf("(%s %s)", d[0], d[1]))
			}
		}
		if set.Sandbox != nil {
			text, _ := json.Marshal(set.Sandbox) // texts and numbers only: no error is possible
			shown = append(shown, fmt.Sprintf("(sandbox %s)", text))
		}
		c.add(append(target.PublicArguments(line), shown...), line, s.Dir, s.EnvFile, s.Env, s.Inputs, set.Sandbox)
	}
	if s.HeaderCommand != "" {
		c.add(target.PublicArguments([]string{s.HeaderCommand}), "helper", s.HeaderCommand)
	}
	detail := "(requests to %s)" // any name may resolve to an address of the network of the gateway
	if len(s.Header) > 0 || s.HeaderCommand != "" || set.Auth == config.AuthForward || set.OAuth.ClientID != "" {
		detail = "(credentials of %s)"
	}
	c.send(s.URL, fmt.Sprintf(detail, s.Name))
	texts := fmt.Sprint(s.URL, s.Header, s.Command, s.Args, s.EnvFile, s.Env, s.Dir)
	for _, m := range variable.FindAllStringSubmatch(texts, -1) {
		if m[1] != "" {
			c.add(target.PublicArguments(m[2:]), m[0])
		}
		shown, _, _ := strings.Cut(m[2], ":-") // a default may be secret
		c.send(s.URL, "${"+m[1]+target.HideKeys(shown)+"}", s.Name, m[0], s.Inputs)
	}
}
