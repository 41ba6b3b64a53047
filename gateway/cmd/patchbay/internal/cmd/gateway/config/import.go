package config

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"path/filepath"
	"reflect"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"github.com/patchbay-mcp/patchbay/gateway/cmd/patchbay/internal/cmdutil"
	"github.com/patchbay-mcp/patchbay/gateway/cmd/patchbay/internal/configedit"
	"github.com/patchbay-mcp/patchbay/gateway/cmd/patchbay/internal/configs"
	"github.com/patchbay-mcp/patchbay/gateway/cmd/patchbay/internal/exit"
	"github.com/patchbay-mcp/patchbay/gateway/cmd/patchbay/internal/hosting"
	"github.com/patchbay-mcp/patchbay/gateway/cmd/patchbay/internal/target"
	"github.com/patchbay-mcp/patchbay/gateway/cmd/patchbay/internal/term"
	"github.com/patchbay-mcp/patchbay/gateway/internal/jsonc"
	"github.com/patchbay-mcp/patchbay/gateway/internal/rawjson"
	"github.com/patchbay-mcp/patchbay/host/config"
)

// ImportOptions are the flags of "gateway import".
type ImportOptions struct {
	cmdutil.Invocation
	As     string
	DryRun bool
}

// An importRun copies servers of applications into the user's file.
type importRun struct {
	*ImportOptions
	app, server string // empty for all
	edit        configedit.Edit
	imported    []importedServer
}

// An importedServer is a server of an application, in JSON.
type importedServer struct {
	From   string `json:"from"` // its target
	File   string `json:"file"`
	Name   string `json:"name,omitzero"` // in the user's file
	Status string `json:"status"`        // added, unchanged or skipped
	Reason string `json:"reason,omitzero"`
	// LeftOut lists the members that Patchbay ignores, such as members that grant consent.
	LeftOut []string `json:"leftOut,omitzero"`
}

// An ImportReport is the output of `patchbay gateway import --json`.
type ImportReport struct {
	Servers []importedServer `json:"servers"`
	configedit.Report
}

// NewCmdImport returns the command "gateway import".
func NewCmdImport(f *cmdutil.Factory, run cmdutil.Run[*ImportOptions]) *cobra.Command {
	o := &ImportOptions{}
	cmd := cmdutil.Command(f, "import [APPLICATION[:NAME]]",
		"Copy the servers of other applications into your configuration", cobra.MaximumNArgs(1), o,
		cmdutil.Or(run, importServers))
	cmd.ValidArgs = configs.Clients()
	cmd.Flags().StringVar(&o.As, "as", "", "`name` of the server in your configuration")
	cmd.Flags().BoolVar(&o.DryRun, "dry-run", false, "show the difference, and change nothing")
	return cmd
}

func importServers(ctx context.Context, o *ImportOptions) (err error) {
	p, r := o.Factory, &importRun{ImportOptions: o}
	if len(o.Words) > 0 {
		r.app, r.server, _ = strings.Cut(o.Words[0], ":")
		others := configs.Applications()[1:] // not the file that is written
		if !slices.Contains(others, r.app) {
			return exit.UsageError(term.UnknownName("application", r.app, others))
		}
	}
	if o.As != "" && r.server == "" {
		return exit.UsageError(errors.New("--as is for one server: want APPLICATION:NAME"))
	}
	if r.edit.Path, r.edit.Old, err = configedit.OwnFile(p); err != nil {
		return err
	}
	r.edit.Text = r.edit.Old
	var problems error
	for f, err := range configs.All() {
		switch {
		case r.app != "" && f.App != r.app || f.App == "patchbay" || err == nil && sameFile(f.Path, r.edit.Path):
		case err != nil && r.app == "":
			p.IO.Err.Printf("patchbay: ignored a configuration file: %s", term.CleanLine(err.Error()))
		case err != nil:
			problems = errors.Join(problems, err)
		case f.Project && r.app == "": // of another author: only if the user names it
		default:
			if err := importFile(ctx, p, r, f); err != nil {
				return err
			}
		}
	}
	if r.server != "" && len(r.imported) == 0 && problems == nil {
		return exit.NotFoundError(fmt.Errorf("found no server %q of %s in %s", r.server, r.app,
			strings.Join(configs.Paths(r.app), ", ")))
	}
	report := &ImportReport{Servers: append([]importedServer{}, r.imported...)}
	if report.Report, err = r.edit.Apply(r.DryRun); err != nil {
		return err
	}
	if len(r.imported) > 0 || problems == nil {
		showImport(p, report)
	}
	return problems
}

func sameFile(a, b string) bool {
	one, err := filepath.EvalSymlinks(a)
	two, err2 := filepath.EvalSymlinks(b)
	return err == nil && err2 == nil && one == two
}

func showImport(f *cmdutil.Factory, r *ImportReport) {
	if f.Flags.JSON {
		f.IO.Out.Value(r)
		return
	}
	var rows [][]string
	for _, s := range r.Servers {
		note := s.Reason
		if len(s.LeftOut) > 0 {
			note = strings.TrimSpace(note + " without " + strings.Join(s.LeftOut, ", "))
		}
		rows = append(rows, []string{term.Shorten(term.CleanLine(s.From), term.MaxNameShown), s.Status,
			term.Shorten(term.CleanLine(s.Name), term.MaxNameShown), term.Shorten(term.CleanLine(note),
				term.MaxDoesShown)})
	}
	f.IO.Out.Columns("SERVER STATUS NAME NOTE", rows)
	if len(rows) == 0 {
		f.IO.Err.Printf("Found no servers in the files of applications; see \"patchbay servers\".")
	}
	configedit.Show(f, r.Report)
}

// importFile adds the servers of a file. An error ends the import.
func importFile(ctx context.Context, p *cmdutil.Factory, r *importRun, f *configs.File) error {
	for _, name := range f.Names() {
		if r.server != "" && name != r.server {
			continue
		}
		report := importedServer{From: f.Target(name), File: f.Path, Status: "skipped"}
		s, err := f.Server(name)
		switch {
		case err != nil:
			report.Reason = err.Error()
		case hosting.IsGateway(s, hosting.GatewayPorts(nil, "")):
			report.Reason = "is the gateway itself"
		default:
			if err := target.CheckTrust(ctx, f, s, p.Config.AskTrust); err != nil {
				return err
			}
			if err := r.add(f, s, &report); err != nil {
				report.Status, report.Reason = "skipped", err.Error()
			}
		}
		r.imported = append(r.imported, report)
	}
	return nil
}

// add adds a server to the text, unless it is there. An error skips the server.
func (r *importRun) add(f *configs.File, s *config.Server, report *importedServer) error {
	s, err := independent(f, s)
	if err != nil {
		return err
	}
	entry := entryJSON(s)
	names := []string{s.Name, f.App + "-" + s.Name}
	if r.As != "" {
		names = []string{r.As}
	}
	if report.Name = r.existing(names, entry); report.Name != "" {
		report.Status = "unchanged"
		return nil
	}
	public, err := r.freeName(names)
	if err != nil {
		return err
	}
	text := r.edit.Text
	for i := range s.Inputs {
		if text, err = addInput(text, &s.Inputs[i]); err != nil {
			return err
		}
	}
	member, _ := serverMember(text, public)
	if text, err = jsonc.Set(text, []string{member, public}, entry); err != nil {
		return err
	}
	r.edit.Text = text
	report.Status, report.Name = "added", public
	report.LeftOut = slices.Sorted(maps.Keys(s.Extra))
	return nil
}

// freeName returns the first of the names that the user's file does not contain.
func (r *importRun) freeName(names []string) (string, error) {
	for _, name := range names {
		if err := configedit.CheckServerName(name); err != nil {
			return "", fmt.Errorf("%w; choose a name with --as", err)
		}
		if _, taken := serverMember(r.edit.Text, name); !taken {
			return name, nil
		}
	}
	return "", fmt.Errorf("your configuration has other servers %s: choose a name with --as",
		strings.Join(names, " and "))
}

// existing returns the name under which the user's file already contains the server, or "".
func (r *importRun) existing(names []string, entry []byte) string {
	own, err := config.Parse(r.edit.Text)
	if err != nil {
		return ""
	}
	for _, name := range names {
		if s, err := own.Server(name); err == nil && string(entryJSON(s)) == string(entry) {
			return name
		}
	}
	return ""
}

// independent returns a server that does the same in the user's file elsewhere: paths are absolute.
func independent(f *configs.File, s *config.Server) (*config.Server, error) {
	base := filepath.Dir(f.Path)
	if f.Dir != "" {
		base = f.Dir
	}
	base, err := filepath.Abs(base)
	if err != nil {
		return nil, err
	}
	out := *s
	out.Project = false
	if s.Project && s.Type == config.TypeStdio && s.Dir == "" {
		out.Dir = base
	}
	variables := strings.NewReplacer()
	if s.Project {
		escape := strings.NewReplacer("${", "${$}{").Replace(base)
		variables = strings.NewReplacer("${workspaceFolder}", escape,
			"${workspaceFolderBasename}", filepath.Base(escape), "${exec:", "${$}{exec:") // that was refused
	}
	relative := false
	change := func(text string) string {
		_, rest, found := strings.Cut(text, "${file:")
		relative = relative || found && !filepath.IsAbs(rest) && !strings.HasPrefix(rest, "~/")
		return variables.Replace(text)
	}
	changeAll := func(values map[string]string) map[string]string {
		all := map[string]string{}
		for key, value := range values {
			all[key] = change(value)
		}
		return all
	}
	path := func(text string) string {
		if text = change(text); text == "" || filepath.IsAbs(text) || strings.HasPrefix(text, "${") {
			return text
		}
		return filepath.Join(base, text)
	}
	out.Command, out.URL, out.HeaderCommand = change(s.Command), change(s.URL), s.HeaderCommand
	out.Dir, out.EnvFile = path(out.Dir), path(s.EnvFile)
	out.Env, out.Header = changeAll(s.Env), changeAll(s.Header)
	if out.Args = nil; s.Args != nil {
		out.Args = []string{}
	}
	for _, arg := range s.Args {
		out.Args = append(out.Args, change(arg))
	}
	if s.Project && s.HeaderCommand != "" {
		return nil, errors.New("has a headersHelper, which runs in the project: add it with an editor")
	}
	if relative {
		return nil, errors.New("refers to a file by a relative path in ${file:…}: make it absolute")
	}
	return &out, nil
}

// addInput adds an input, unless the text already contains it.
func addInput(text []byte, in *config.Input) ([]byte, error) {
	value := map[string]any{"id": in.ID, "type": "promptString"}
	if in.Options != nil {
		value["type"], value["options"] = "pickString", in.Options
	}
	if in.Description != "" {
		value["description"] = in.Description
	}
	if in.Default != "" {
		value["default"] = in.Default
	}
	if in.Password {
		value["password"] = true
	}
	raw, err := json.Marshal(value)
	if err != nil {
		return nil, err
	}
	if jsonc.IsBlank(text) {
		return jsonc.Set(text, []string{"inputs"}, slices.Concat([]byte("["), raw, []byte("]")))
	}
	plain, err := config.Plain(text)
	if err != nil {
		return nil, err
	}
	inputs, has := rawjson.Get(plain, "inputs")
	if !has {
		return jsonc.Set(text, []string{"inputs"}, slices.Concat([]byte("["), raw, []byte("]")))
	}
	for element := range rawjson.Elements(inputs) {
		var old map[string]any
		if json.Unmarshal(element, &old) != nil || old["id"] != in.ID {
			continue
		}
		var added map[string]any
		if err := json.Unmarshal(raw, &added); err == nil && reflect.DeepEqual(old, added) {
			return text, nil
		}
		return nil, fmt.Errorf("your configuration has another input %q", in.ID)
	}
	return jsonc.Set(text, []string{"inputs", jsonc.Last}, raw)
}
