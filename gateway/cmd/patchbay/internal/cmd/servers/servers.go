// Package servers lists the configured servers.
package servers

import (
	"context"
	"errors"
	"strings"

	"github.com/spf13/cobra"

	"github.com/patchbay-mcp/patchbay/gateway/cmd/patchbay/internal/cmdutil"
	"github.com/patchbay-mcp/patchbay/gateway/cmd/patchbay/internal/configs"
	"github.com/patchbay-mcp/patchbay/gateway/cmd/patchbay/internal/exit"
	"github.com/patchbay-mcp/patchbay/gateway/cmd/patchbay/internal/target"
	"github.com/patchbay-mcp/patchbay/gateway/cmd/patchbay/internal/term"
	"github.com/patchbay-mcp/patchbay/host/config"
)

// NewCmdServers returns the command "servers". The Words may contain an application.
func NewCmdServers(f *cmdutil.Factory, run cmdutil.Run[*cmdutil.Invocation]) *cobra.Command {
	cmd := cmdutil.Command(f, "servers [APPLICATION]",
		"List the servers that are configured, here and in other applications", cobra.MaximumNArgs(1),
		&cmdutil.Invocation{}, cmdutil.Or(run, list))
	cmd.ValidArgs = configs.Applications()
	return cmd
}

// A ServerReport is a configured server in JSON.
type ServerReport struct {
	Name        string `json:"name"`
	Application string `json:"application"`
	Target      string `json:"target"` // names the server on the command line
	Transport   string `json:"transport,omitzero"`
	Trust       string `json:"trust,omitzero"`
	File        string `json:"file"`
	Does        string `json:"does,omitzero"` // its command or URL, without secrets, with variables unexpanded
	Disabled    bool   `json:"disabled,omitzero"`
	Invalid     string `json:"invalid,omitzero"`
	// To names who may use the server through the gateway. Only "patchbay gateway list" sets it.
	To []string `json:"to,omitempty"`
}

// list prints the servers of all configuration files, or of those of an application.
func list(_ context.Context, o *cmdutil.Invocation) error {
	app := strings.Join(o.Words, "")
	if _, _, exists := configs.Split(app + ":x"); len(o.Words) > 0 && !exists {
		return exit.UsageError(term.UnknownName("application", app, configs.Applications()))
	}
	store, err := target.TrustStore()
	if err != nil {
		return err
	}
	var problems error
	reports := []ServerReport{}
	for f, err := range configs.Files(o.Flags.Config) {
		switch {
		case app != "" && f.App != app:
		case err != nil:
			problems = errors.Join(problems, err)
		default:
			for _, name := range f.Names() {
				reports = append(reports, ReportServer(f, name, store))
			}
		}
	}
	if o.Flags.JSON {
		o.IO.Out.Value(map[string][]ServerReport{"servers": reports})
		return problems
	}
	var rows [][]string
	for _, r := range reports {
		transport, what := r.Transport, r.Does
		if r.Invalid != "" {
			transport, what = "invalid", r.Invalid
		}
		if r.Disabled {
			what += " (disabled)"
		}
		rows = append(rows, []string{term.Shorten(term.CleanLine(r.Name), term.MaxNameShown), r.Application,
			transport, r.Trust,
			term.CleanLine(r.File), term.Shorten(term.CleanLine(what), term.MaxDoesShown)})
	}
	o.IO.Out.Columns("NAME APPLICATION TRANSPORT TRUST FILE COMMAND-OR-URL", rows)
	if len(reports) == 0 && problems == nil {
		o.IO.Err.Printf("Found no configured servers; see \"patchbay help config\".")
	}
	return problems
}

// ReportServer returns the report of a server of a configuration file.
func ReportServer(f *configs.File, name string, store *config.TrustStore) ServerReport {
	r := ServerReport{Name: name, Application: f.App, Target: f.Target(name), File: f.Path}
	s, err := f.Server(name)
	if err != nil {
		r.Invalid = err.Error()
		return r
	}
	r.Transport, r.Disabled = string(s.Type), s.Disabled
	switch {
	case !s.Project:
		r.Trust = "own"
	case store.NeedsTrust(s):
		r.Trust = "not trusted"
	default:
		r.Trust = "trusted"
	}
	if r.Does = target.PublicURL(s.URL); s.Type == config.TypeStdio {
		r.Does = (&target.Target{Command: append([]string{s.Command}, target.PublicArguments(s.Args)...)}).String()
	}
	return r
}
