// Package install configures applications to use the gateway.
package install

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"github.com/patchbay-mcp/patchbay/gateway/cmd/patchbay/internal/cmd/gateway/run"
	"github.com/patchbay-mcp/patchbay/gateway/cmd/patchbay/internal/cmdutil"
	"github.com/patchbay-mcp/patchbay/gateway/cmd/patchbay/internal/configedit"
	"github.com/patchbay-mcp/patchbay/gateway/cmd/patchbay/internal/configs"
	"github.com/patchbay-mcp/patchbay/gateway/cmd/patchbay/internal/exit"
	"github.com/patchbay-mcp/patchbay/gateway/cmd/patchbay/internal/hosting"
	"github.com/patchbay-mcp/patchbay/gateway/cmd/patchbay/internal/secrets"
	"github.com/patchbay-mcp/patchbay/gateway/cmd/patchbay/internal/term"
	"github.com/patchbay-mcp/patchbay/gateway/cmd/patchbay/internal/vault"
	"github.com/patchbay-mcp/patchbay/gateway/internal/jsonc"
)

// Options are the flags of "gateway install" and "gateway uninstall".
type Options struct {
	cmdutil.Invocation
	Clients          []string
	File, Name       string
	Project, DryRun  bool
	Profile, Program string // of "gateway install"

	needsGateway bool // see InstallReport
}

func (f *Options) add(cmd *cobra.Command) {
	all := cmd.Flags()
	all.StringSliceVar(&f.Clients, "client", nil, "edit the file of this `application`: "+
		strings.Join(configs.Clients(), ", "))
	all.StringVar(&f.File, "file", "", "edit this `file` instead of the usual file of the application")
	all.StringVar(&f.Name, "name", "patchbay", "`name` of the entry")
	all.BoolVar(&f.Project, "project", false, "edit the file of the project in the current directory")
	all.BoolVar(&f.DryRun, "dry-run", false, "show the difference, and change nothing")
	_ = cmd.RegisterFlagCompletionFunc("client",
		func(*cobra.Command, []string, string) ([]string, cobra.ShellCompDirective) {
			return configs.Clients(), cobra.ShellCompDirectiveNoFileComp
		})
}

func (f *Options) check() error {
	switch {
	case len(f.Clients) == 0:
		return fmt.Errorf("missing --client: want one of %s", strings.Join(configs.Clients(), ", "))
	case f.File != "" && (f.Project || len(f.Clients) > 1):
		return errors.New("--file is for one --client, without --project")
	}
	for _, app := range f.Clients {
		if !slices.Contains(configs.Clients(), app) {
			return term.UnknownName("application", app, configs.Clients())
		}
	}
	return configedit.CheckServerName(f.Name)
}

// place returns the file of an application, and the application whose form the file must use.
func (f *Options) place(app string) (path, formOf string, err error) {
	if f.File != "" {
		return f.File, app, nil
	}
	return configs.ClientFile(app, f.Project)
}

// An InstallReport describes the change that install or uninstall made for an application, as JSON.
type InstallReport struct {
	Client string `json:"client"`
	// NeedsGateway reports whether the entry can use stored logins and secrets only while a gateway runs.
	NeedsGateway bool `json:"needsGateway,omitzero"`
	configedit.Report
}

// NewCmdInstall returns the command "gateway install".
func NewCmdInstall(p *cmdutil.Factory, run cmdutil.Run[*Options]) *cobra.Command {
	o := &Options{}
	cmd := cmdutil.Command(p, "install --client APPLICATION", "Add the gateway to the configuration of an application",
		cobra.NoArgs, o, cmdutil.Or(run, install))
	o.add(cmd)
	cmd.Flags().StringVar(&o.Profile, "profile", "", "serve the servers and tools of this `profile` of the settings")
	cmd.Flags().StringVar(&o.Program, "command", "", "start this `program`, such as patchbay; default this program")
	return cmd
}

func install(_ context.Context, o *Options) (err error) {
	if o.needsGateway, err = needsPassphrase(o.Factory); err != nil {
		return err
	}
	return editClients(o, func(app string, text []byte) ([]byte, error) {
		command, args := run.StdioCommand(o.Factory, &run.Run{Options: run.Options{Profile: o.Profile}})
		switch {
		case o.Program != "":
			command, args = o.Program, args[slices.Index(args, "gateway"):]
		case command == "go" && args[0] == "-C":
			return nil, errors.New("this program is a temporary file: use \"go install\", or --command " +
				"with the path of another program")
		}
		if old, err := configs.Entry(app, text, o.Name); err == nil && !hosting.IsGateway(old, nil) {
			return nil, fmt.Errorf("the file has another server %q: choose another --name", o.Name)
		}
		return configs.Install(app, text, o.Name, append([]string{command}, args...))
	})
}

// needsPassphrase reports whether a passphrase protects the stored logins and secrets. Applications do not pass the
// passphrase to the commands that they start.
func needsPassphrase(f *cmdutil.Factory) (bool, error) {
	v, err := f.Vault.Open()
	if err != nil {
		return false, err
	}
	d, err := v.Describe()
	return d.Key == vault.InPassphrase || d.Key == "" && os.Getenv(secrets.EnvPassphrase) != "", err
}

// NewCmdUninstall returns the command "gateway uninstall".
func NewCmdUninstall(p *cmdutil.Factory, run cmdutil.Run[*Options]) *cobra.Command {
	o := &Options{}
	cmd := cmdutil.Command(p, "uninstall --client APPLICATION",
		"Remove the gateway from the configuration of an application", cobra.NoArgs, o, cmdutil.Or(run, uninstall))
	o.add(cmd)
	return cmd
}

func uninstall(_ context.Context, o *Options) error {
	return editClients(o, func(app string, text []byte) ([]byte, error) {
		switch old, err := configs.Entry(app, text, o.Name); {
		case errors.Is(err, jsonc.ErrAbsent):
			return text, nil
		case err != nil:
			return nil, err
		case !hosting.IsGateway(old, nil):
			return nil, fmt.Errorf("the entry %q is not a Patchbay gateway: remove it with the application", o.Name)
		}
		return configs.Uninstall(app, text, o.Name)
	})
}

// editClients edits the file of each application. An error must not keep it from the others.
func editClients(f *Options, edit func(app string, text []byte) ([]byte, error)) error {
	if err := f.check(); err != nil {
		return exit.UsageError(err)
	}
	var problems error
	reports := []InstallReport{}
	for _, app := range f.Clients {
		r, err := editClient(f, app, edit)
		if err != nil {
			problems = errors.Join(problems, err)
			continue
		}
		reports = append(reports, InstallReport{app, f.needsGateway, r})
		if f.Flags.JSON {
			continue
		}
		configedit.Show(f.Factory, r)
		if r.Changed && !r.DryRun {
			f.IO.Err.Printf("Restart %s, or reload its servers, to use the change.", app)
		}
	}
	if f.needsGateway && len(reports) > 0 {
		f.IO.Err.Printf("patchbay: the entry opens stored logins and secrets only while a gateway runs: they require "+
			"a passphrase, and applications do not pass $%s on.\nKeep \"patchbay gateway\" running with the "+
			"passphrase, or run \"patchbay auth key keyring\" (or file), after which no passphrase is needed.",
			secrets.EnvPassphrase)
	}
	if f.Flags.JSON && len(reports) > 0 {
		f.IO.Out.Value(map[string][]InstallReport{"clients": reports})
	}
	return problems
}

func editClient(f *Options, app string,
	edit func(app string, text []byte) ([]byte, error)) (configedit.Report, error) {
	path, form, err := f.place(app)
	if err != nil {
		return configedit.Report{}, err
	}
	e := &configedit.Edit{Path: path}
	if e.Old, err = configs.ReadForEdit(path); err != nil {
		return configedit.Report{}, err
	}
	if e.Text, err = edit(form, e.Old); err != nil {
		return configedit.Report{}, fmt.Errorf("%s: %w; nothing was changed", path, err)
	}
	if !f.DryRun && len(e.Text) > 0 {
		if err := makeFolder(app, path, f.Project); err != nil {
			return configedit.Report{}, err
		}
	}
	return e.Apply(f.DryRun)
}

// makeFolder makes the folder of a project file. That of a user's file must exist: without it the
// application is not installed.
func makeFolder(app, path string, project bool) error {
	dir := filepath.Dir(path)
	if project {
		return os.MkdirAll(dir, 0o755)
	}
	if _, err := os.Stat(dir); errors.Is(err, fs.ErrNotExist) {
		return fmt.Errorf("%s is not installed for this user: the folder %s does not exist; start it once, or use "+
			"--file", app, dir)
	}
	return nil
}
