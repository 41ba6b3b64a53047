// Package trust lists and trusts the servers of project files.
package trust

import (
	"context"
	"errors"

	"github.com/spf13/cobra"

	"github.com/patchbay-mcp/patchbay/gateway/cmd/patchbay/internal/cmdutil"
	"github.com/patchbay-mcp/patchbay/gateway/cmd/patchbay/internal/configs"
	"github.com/patchbay-mcp/patchbay/gateway/cmd/patchbay/internal/exit"
	"github.com/patchbay-mcp/patchbay/gateway/cmd/patchbay/internal/target"
	"github.com/patchbay-mcp/patchbay/gateway/cmd/patchbay/internal/term"
	"github.com/patchbay-mcp/patchbay/host/config"
)

// Options are the flags of "trust". The Words may contain a server.
type Options struct {
	cmdutil.Invocation
	Yes, Revoke bool
}

// NewCmdTrust returns the command "trust".
func NewCmdTrust(f *cmdutil.Factory, run cmdutil.Run[*Options]) *cobra.Command {
	o := &Options{}
	cmd := cmdutil.Command(f, "trust [NAME]", "Trust a server of a project file, such as .mcp.json or .vscode/mcp.json",
		cobra.MaximumNArgs(1), o, cmdutil.Or(run, trust))
	cmd.ValidArgsFunction = func(_ *cobra.Command, _ []string, typed string) ([]string, cobra.ShellCompDirective) {
		return f.Config.TargetNames(typed), cobra.ShellCompDirectiveNoFileComp
	}
	cmd.Flags().BoolVar(&o.Yes, "yes", false, "trust the server without asking")
	cmd.Flags().BoolVar(&o.Revoke, "revoke", false, "remove the trust in the server")
	return cmd
}

func trust(ctx context.Context, o *Options) error {
	store, err := target.TrustStore()
	if err != nil {
		return err
	}
	if len(o.Words) == 0 {
		return listTrust(o.Factory, store)
	}
	c, s, err := projectServer(o.Factory, o.Words[0])
	switch {
	case err != nil:
		return exit.UsageError(err)
	case o.Revoke:
		return store.Revoke(s)
	case o.Yes:
		o.IO.Err.Printf("%s", target.TrustText(c, s))
		if err := store.Trust(s); err != nil {
			return err
		}
		o.IO.Err.Printf("Server %s is trusted now.", target.ServerWord(c, s))
		return nil
	case !store.NeedsTrust(s):
		o.IO.Err.Printf("Server %s is trusted already.", target.ServerWord(c, s))
		return nil
	}
	if err := o.Config.AskTrust(ctx, c, s, store); err != nil {
		return exit.UsageError(err)
	}
	return nil
}

func inProject(f *configs.File) bool { return f.Project }

// projectServer returns a server of the project files.
func projectServer(p *cmdutil.Factory, name string) (*configs.File, *config.Server, error) {
	f, name, err := p.Config.FindServer(name, inProject)
	if f == nil {
		return nil, nil, err
	}
	s, err := f.Server(name)
	return f, s, err
}

// A trustReport is a server of a project file in JSON.
type trustReport struct {
	Name    string `json:"name"`
	File    string `json:"file"`
	Trusted bool   `json:"trusted"`
	Does    string `json:"does,omitzero"` // its command or URL, with variables unexpanded
	Invalid string `json:"invalid,omitzero"`
}

// listTrust prints the servers of the project files.
func listTrust(p *cmdutil.Factory, store *config.TrustStore) error {
	var problems error
	reports := []trustReport{}
	for f, err := range configs.Files(p.Flags.Config) {
		if err != nil {
			problems = errors.Join(problems, err)
		} else if f.Project {
			for _, name := range f.Names() {
				reports = append(reports, reportTrust(f, name, store))
			}
		}
	}
	if p.Flags.JSON {
		p.IO.Out.Value(map[string][]trustReport{"servers": reports})
		return problems
	}
	var rows [][]string
	for _, r := range reports {
		state := "not trusted"
		if r.Trusted {
			state = "trusted"
		}
		rows = append(rows, []string{term.Shorten(term.CleanLine(r.Name), term.MaxNameShown), state,
			term.Shorten(term.CleanLine(r.Does+r.Invalid), term.MaxDoesShown)})
	}
	p.IO.Out.Columns("NAME STATE COMMAND-OR-URL", rows)
	if len(reports) == 0 {
		p.IO.Err.Printf("Found no project files with servers; see \"patchbay trust --help\".")
	}
	return problems
}

func reportTrust(c *configs.File, name string, store *config.TrustStore) trustReport {
	r := trustReport{Name: c.Target(name), File: c.Path}
	s, err := c.Server(name)
	if err != nil {
		r.Invalid = err.Error()
		return r
	}
	r.Trusted = !store.NeedsTrust(s)
	if r.Does = s.URL; s.Type == config.TypeStdio {
		r.Does = (&target.Target{Command: append([]string{s.Command}, s.Args...)}).String()
	}
	return r
}
