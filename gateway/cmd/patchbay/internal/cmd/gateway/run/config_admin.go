package run

import (
	"bytes"
	"errors"
	"fmt"
	"net/http"
	"os"
	"regexp"
	"slices"

	"github.com/patchbay-mcp/patchbay/gateway"
	"github.com/patchbay-mcp/patchbay/gateway/celpolicy"
	"github.com/patchbay-mcp/patchbay/gateway/cmd/patchbay/internal/cmdutil"
	"github.com/patchbay-mcp/patchbay/gateway/cmd/patchbay/internal/configedit"
	"github.com/patchbay-mcp/patchbay/gateway/cmd/patchbay/internal/configs"
	"github.com/patchbay-mcp/patchbay/gateway/cmd/patchbay/internal/hosting"
	"github.com/patchbay-mcp/patchbay/gateway/cmd/patchbay/internal/target"
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

// newCommands returns the command lines that text contains and old does not, without secrets.
func newCommands(old, text []byte) [][]string {
	before, now := commandsOf(old), commandsOf(text)
	all := [][]string{}
	for key, command := range now {
		if _, known := before[key]; !known {
			all = append(all, target.PublicArguments(command))
		}
	}
	slices.SortFunc(all, slices.Compare[[]string])
	return all
}

// execVariable matches a variable that runs a command.
var execVariable = regexp.MustCompile(`\$\{exec:([^}]*)\}`)

// commandsOf returns the command lines that a configuration runs. The key contains everything that
// determines the process: command, folder and environment.
func commandsOf(text []byte) map[string][]string {
	commands := map[string][]string{}
	f, err := config.Parse(text)
	if err != nil || len(bytes.TrimSpace(text)) == 0 {
		return commands
	}
	for _, name := range f.Names() {
		s, err := f.Server(name)
		if err != nil || s.Disabled {
			continue
		}
		if s.Type == config.TypeStdio {
			line := append([]string{s.Command}, s.Args...)
			commands[fmt.Sprintf("%q", []any{line, s.Dir, s.EnvFile, s.Env})] = line
		}
		if s.HeaderCommand != "" {
			commands[fmt.Sprintf("helper %q", s.HeaderCommand)] = []string{s.HeaderCommand}
		}
		for _, m := range execVariable.FindAllStringSubmatch(fmt.Sprint(s.URL, s.Header, s.Env, s.Args, s.Dir), -1) {
			commands[m[0]] = []string{m[1]}
		}
	}
	return commands
}
