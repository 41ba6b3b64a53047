// Package config adds, lists, imports and validates servers in the configuration.
package config

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"path/filepath"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"github.com/patchbay-mcp/patchbay/gateway/cmd/patchbay/internal/cmd/gateway/pins"
	"github.com/patchbay-mcp/patchbay/gateway/cmd/patchbay/internal/cmdutil"
	"github.com/patchbay-mcp/patchbay/gateway/cmd/patchbay/internal/configedit"
	"github.com/patchbay-mcp/patchbay/gateway/cmd/patchbay/internal/configs"
	"github.com/patchbay-mcp/patchbay/gateway/cmd/patchbay/internal/exit"
	"github.com/patchbay-mcp/patchbay/gateway/cmd/patchbay/internal/target"
	"github.com/patchbay-mcp/patchbay/gateway/cmd/patchbay/internal/term"
	"github.com/patchbay-mcp/patchbay/gateway/internal/jsonc"
	"github.com/patchbay-mcp/patchbay/gateway/internal/rawjson"
	"github.com/patchbay-mcp/patchbay/host/config"
)

// AddOptions are the flags and arguments of "gateway add".
type AddOptions struct {
	cmdutil.Invocation
	Name                       string
	Command                    []string
	URL                        string // if Command is empty
	Replace, NoConnect, DryRun bool
}

// An AddReport is an added server, in JSON.
type AddReport struct {
	Name      string   `json:"name"`
	Does      string   `json:"does"`             // its command or URL, without secrets
	Variables []string `json:"env,omitzero"`     // names of the variables of its environment
	Headers   []string `json:"headers,omitzero"` // names
	Tools     []string `json:"tools,omitzero"`   // names; absent with --no-connect
	// Pins are the definitions that were recorded; absent with --no-connect and --dry-run.
	Pins []addedPin `json:"pins,omitzero"`
	configedit.Report
}

// NewCmdAdd returns the command "gateway add".
func NewCmdAdd(f *cmdutil.Factory, run cmdutil.Run[*AddOptions]) *cobra.Command {
	a := &AddOptions{}
	cmd := cmdutil.Command(f, "add NAME URL | add NAME -- COMMAND…",
		"Add a server to your configuration, after a look at its tools", nil, a, cmdutil.Or(run, addServer))
	cmd.PreRunE = func(cmd *cobra.Command, args []string) error {
		if err := a.parse(cmd, args); err != nil {
			return exit.UsageError(err)
		}
		return nil
	}
	cmd.Flags().BoolVar(&a.Replace, "replace", false, "replace a server of that name")
	cmd.Flags().BoolVar(&a.NoConnect, "no-connect", false, "add the server without starting it or connecting to it")
	cmd.Flags().BoolVar(&a.DryRun, "dry-run", false, "show the difference, and change nothing")
	return cmd
}

func (a *AddOptions) parse(cmd *cobra.Command, args []string) error {
	dash := cmd.ArgsLenAtDash()
	switch {
	case dash == 1 && len(args) > 1:
		a.Command = args[1:]
	case dash < 0 && len(args) == 2 && strings.Contains(args[1], "://"):
		a.URL = args[1]
	case dash < 0 && len(args) >= 2:
		return fmt.Errorf("unexpected argument %q: want a URL, or a command after --\nusage: %s", args[1],
			cmd.UseLine())
	default:
		return fmt.Errorf("want NAME and a URL, or NAME -- and a command\nusage: %s", cmd.UseLine())
	}
	a.Name = args[0]
	return configedit.CheckServerName(a.Name)
}

// addServer connects to the server, unless --no-connect is set, and then writes the entry.
func addServer(ctx context.Context, a *AddOptions) error {
	f := a.Factory
	path, text, err := configedit.OwnFile(f)
	if err != nil {
		return err
	}
	entry, err := newEntry(ctx, f, a)
	if err != nil {
		return exit.UsageError(err)
	}
	member, has := serverMember(text, a.Name)
	if has && !a.Replace {
		return exit.UsageError(fmt.Errorf("%s has a server %q: choose another name, or use --replace", path, a.Name))
	}
	e := &configedit.Edit{Path: path, Old: text}
	if e.Text, err = jsonc.Set(text, []string{member, a.Name}, entry); err != nil {
		return fmt.Errorf("%s: %w; nothing was changed", path, err)
	}
	if f.Flags.InsecureHTTP && a.URL != "" { // the gateway does not get the flag
		e.Text, err = jsonc.Set(e.Text, []string{"patchbay", "servers", a.Name, "insecureHTTP"}, []byte("true"))
		if err != nil {
			return fmt.Errorf("%s: %w; nothing was changed", path, err)
		}
	}
	i, r, err := tryServer(ctx, f, a, e)
	if err != nil {
		return err
	}
	if err := writeServer(ctx, f, a, e, i, r); err != nil {
		return err
	}
	if f.PrintedJSON(r) {
		return nil
	}
	configedit.Show(f, r.Report)
	showRecorded(f, a, r)
	return nil
}

// writeServer records the definitions that were shown, and writes the entry. i is nil without a connection.
func writeServer(ctx context.Context, f *cmdutil.Factory, a *AddOptions, e *configedit.Edit, i *inspection,
	r *AddReport) (err error) {
	if i == nil || a.DryRun || !i.used {
		if i != nil && !a.DryRun {
			f.IO.Err.Printf("patchbay: the definitions are not recorded, because the gateway does not use this entry")
		}
		r.Report, err = e.Apply(a.DryRun)
		return err
	}
	fresh, undo, err := recordInspection(ctx, f, i, r)
	if err != nil {
		return err
	}
	if r.Report, err = e.Apply(false); err != nil {
		return errors.Join(err, undo())
	}
	pins.RecordApproved(ctx, f, i.config.File, fresh)
	return nil
}

// newEntry returns the entry of the command line as JSON.
func newEntry(ctx context.Context, p *cmdutil.Factory, a *AddOptions) ([]byte, error) {
	f := p.Flags
	s := &config.Server{Type: config.TypeHTTP, URL: a.URL, Env: map[string]string{}, Header: map[string]string{}}
	if a.URL == "" {
		s.Type, s.Command, s.Args = config.TypeStdio, a.Command[0], a.Command[1:]
		if strings.ContainsAny(s.Command, `/\`) && !strings.HasPrefix(s.Command, "${") {
			var err error
			if s.Command, err = filepath.Abs(s.Command); err != nil { // other commands start in other directories
				return nil, err
			}
		}
	} else if !strings.Contains(a.URL, "${") {
		if err := target.CheckServerURL(a.URL); err != nil {
			return nil, err
		}
	}
	t := &target.Target{URL: a.URL, Header: map[string][]string{}}
	if err := p.Config.AddToTarget(ctx, t); err != nil { // checks the flags
		return nil, err
	}
	for name := range t.Header {
		s.Header[name] = t.Header.Get(name)
	}
	for _, line := range f.Environment {
		name, value, _ := strings.Cut(line, "=")
		s.Env[name] = value
		if target.SecretName.MatchString(name) && value != "" && !strings.Contains(value, "${") {
			p.IO.Err.Printf("patchbay: the value of %s is stored as text: with --env '%[1]s=${%[1]s}' it is read from "+
				"the environment instead", term.CleanLine(name))
		}
	}
	if f.Directory != "" {
		dir, err := filepath.Abs(f.Directory)
		if err != nil {
			return nil, err
		}
		s.Dir = dir
	}
	return entryJSON(s), nil
}

// entryJSON returns an entry in the form of Patchbay.
func entryJSON(s *config.Server) []byte {
	entry := []byte("{}")
	set := func(name string, value []byte) { entry = rawjson.Set(entry, name, value) }
	text := func(name, value string) {
		if value != "" {
			set(name, rawjson.AppendQuote(nil, value))
		}
	}
	list := func(name string, values []string) {
		if values == nil {
			return
		}
		all := []byte("[")
		for i, value := range values {
			if i > 0 {
				all = append(all, ',')
			}
			all = rawjson.AppendQuote(all, value)
		}
		set(name, append(all, ']'))
	}
	table := func(name string, values map[string]string) {
		all := []byte("{}")
		for _, key := range slices.Sorted(maps.Keys(values)) {
			all = rawjson.Set(all, key, rawjson.AppendQuote(nil, values[key]))
		}
		if len(values) > 0 {
			set(name, all)
		}
	}
	if s.Type == config.TypeSSE {
		text("type", string(s.Type))
	}
	text("command", s.Command)
	list("args", s.Args)
	table("env", s.Env)
	text("envFile", s.EnvFile)
	text("cwd", s.Dir)
	text("url", s.URL)
	table("headers", s.Header)
	text("headersHelper", s.HeaderCommand)
	if s.Disabled {
		set("disabled", []byte("true"))
	}
	list("allowedTools", s.AllowedTools)
	list("excludedTools", s.ExcludedTools)
	return entry
}

// tryServer shows the entry, connects to the new server, and shows its definitions. The inspection
// is nil with --no-connect.
func tryServer(ctx context.Context, f *cmdutil.Factory, a *AddOptions, e *configedit.Edit) (*inspection, *AddReport,
	error) {
	parsed, err := config.Parse(e.Text)
	if err != nil {
		return nil, nil, fmt.Errorf("%s: %w", e.Path, err)
	}
	parsed.Path = e.Path
	s, err := parsed.Server(a.Name)
	if err != nil {
		return nil, nil, exit.UsageError(err)
	}
	r := &AddReport{Name: a.Name, Variables: slices.Sorted(maps.Keys(s.Env)),
		Headers: slices.Sorted(maps.Keys(s.Header)), Does: does(s)}
	if !f.Flags.JSON {
		showAddition(f, r, s)
	}
	if a.NoConnect {
		return nil, r, nil
	}
	i, err := inspectServer(ctx, f, a, e, &configs.File{File: parsed, App: "patchbay"})
	if err != nil {
		f.IO.Err.Printf("patchbay: %s was not added; with --no-connect it is added without a connection", a.Name)
		if exit.Code(ctx, err) == exit.Auth {
			f.IO.Err.Printf("Log in or pass a token, and run the command again.")
		}
		return nil, r, err
	}
	showInspection(f, i, r)
	return i, r, nil
}

// does returns the command or URL of a server without secrets.
func does(s *config.Server) string {
	if s.Type != config.TypeStdio {
		return target.PublicURL(s.URL)
	}
	return (&target.Target{Command: append([]string{s.Command}, target.PublicArguments(s.Args)...)}).String()
}

func showAddition(f *cmdutil.Factory, r *AddReport, s *config.Server) {
	what := "starts the command"
	if s.Type != config.TypeStdio {
		what = "connects to"
	}
	f.IO.Err.Printf("Server %s %s\n  %s", r.Name, what, term.CleanLine(r.Does))
	if len(r.Variables) > 0 {
		f.IO.Err.Printf("  with the variables %s", term.CleanLine(strings.Join(r.Variables, ", ")))
	}
	if len(r.Headers) > 0 {
		f.IO.Err.Printf("  with the headers %s", term.CleanLine(strings.Join(r.Headers, ", ")))
	}
	for _, warning := range target.DangersOf(s) {
		f.IO.Err.Printf("%s", warning)
	}
	if name := statelessPackage(s); name != "" {
		f.IO.Err.Printf("  each caller has a process of this server; %s has no state, so that all callers can share "+
			"a process:\n  \"patchbay\": {\"servers\": {\"%s\": {\"share\": \"shared\"}}}", name, r.Name)
	}
}

// statelessPackages lists published servers that hold no state between calls and ask no questions.
var statelessPackages = []string{"mcp-server-fetch", "mcp-server-time", "@upstash/context7-mcp",
	"@brave/brave-search-mcp-server", "tavily-mcp", "exa-mcp-server"}

// statelessPackage returns an entry's package, without version, if statelessPackages contains it.
func statelessPackage(s *config.Server) string {
	for _, arg := range append([]string{s.Command}, s.Args...) {
		arg, _, _ = strings.Cut(arg, "==")
		if at := strings.LastIndexByte(arg, '@'); at > 0 {
			arg = arg[:at]
		}
		if slices.Contains(statelessPackages, arg) {
			return arg
		}
	}
	return ""
}
