package cli

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"net/url"
	"slices"
	"strings"
	"unicode/utf8"

	"github.com/spf13/cobra"

	"github.com/patchbay-mcp/patchbay/gateway/cmd/patchbay/internal/configs"
	"github.com/patchbay-mcp/patchbay/host/config"
)

// A truster decides about a server of a project file that the user has not trusted. It returns an
// error unless the user has trusted the server now.
type truster func(ctx context.Context, c *configs.File, s *config.Server, store *config.TrustStore) error

// checkTrust calls trust for a server that the user has not trusted.
func checkTrust(ctx context.Context, c *configs.File, s *config.Server, trust truster) error {
	if !s.Project {
		return nil
	}
	store, err := trustStore()
	if err != nil {
		return err
	}
	if store.NeedsTrust(s) {
		return trust(ctx, c, s, store)
	}
	return nil
}

func trustStore() (*config.TrustStore, error) {
	dir, err := stateDir("trusted")
	return &config.TrustStore{Dir: dir}, err
}

// refuseTrust is a truster that trusts nothing.
func refuseTrust(_ context.Context, c *configs.File, s *config.Server, _ *config.TrustStore) error {
	return fmt.Errorf("server %s of the project file %s is not trusted: run \"patchbay trust %[1]s\" in a terminal, "+
		"or name the file with --config", serverWord(c, s), cleanLine(c.Path))
}

// serverWord returns the target of a server as a word of a command line, cut if it is very long.
func serverWord(c *configs.File, s *config.Server) string {
	return shorten(shellWord(c.Target(s.Name)), maxNameShown)
}

// maxNameShown bounds a name of a configuration file or server in messages, in characters.
const maxNameShown = 100

// maxTrustRows bounds the description of a server above the question, in rows of the terminal, so
// that its first row is still on the screen. Most terminals have 24 rows or more.
const maxTrustRows = 20

// askTrust is a truster that shows the server to the user and asks. It refuses without a terminal,
// and if the description does not fit on the screen.
func (f *finder) askTrust(ctx context.Context, c *configs.File, s *config.Server, store *config.TrustStore) error {
	if !f.IO.mayPrompt() {
		return refuseTrust(ctx, c, s, store)
	}
	text := trustText(c, s)
	if f.IO.Err.rows(text) > maxTrustRows {
		return fmt.Errorf("server %s of the project file %s is not trusted, and is too long to show: read the file, "+
			"then run \"patchbay trust %[1]s --yes\"", serverWord(c, s), cleanLine(c.Path))
	}
	f.IO.Err.printf("%s", text)
	trusted, err := f.Ask.confirm(ctx, "Trust it, now and as long as it does not change?", "n")
	switch {
	case err != nil && !errors.Is(err, errDeclined) && !errors.Is(err, errCancelled):
		return err
	case !trusted:
		return fmt.Errorf("server %s of %s is not trusted: nothing was run or sent",
			serverWord(c, s), cleanLine(c.Path))
	}
	return store.Trust(s)
}

// trustText describes what using a server does, with its variables unexpanded. Each word is quoted
// as for a shell, so that no two entries look the same.
func trustText(c *configs.File, s *config.Server) string {
	var b strings.Builder
	what := "starts a command"
	if s.Type != config.TypeStdio {
		what = "connects to a URL"
	}
	fmt.Fprintf(&b, "Server %s of the project file %s %s:\n", shellWord(s.Name), cleanLine(c.Path), what)
	if s.Type != config.TypeStdio {
		fmt.Fprintf(&b, "  %s\n  %s\n", shellWord(s.URL), hostText(s.URL))
	} else {
		fmt.Fprintf(&b, "  %s\n", &target{command: append([]string{s.Command}, s.Args...)})
	}
	if s.EnvFile != "" {
		fmt.Fprintf(&b, "  with the variables of the file %s\n", shellWord(s.EnvFile))
	}
	for _, in := range s.Inputs {
		fmt.Fprintf(&b, "  asks you for the input %s: %s\n", shellWord(in.ID), shellWord(in.Description))
	}
	if s.Dir != "" {
		fmt.Fprintf(&b, "  in the directory %s\n", shellWord(s.Dir))
	}
	for _, key := range slices.Sorted(maps.Keys(s.Env)) {
		fmt.Fprintf(&b, "  with %s=%s\n", shellWord(key), shellWord(s.Env[key]))
	}
	for _, key := range slices.Sorted(maps.Keys(s.Header)) {
		fmt.Fprintf(&b, "  with the header %s: %s\n", shellWord(key), shellWord(s.Header[key]))
	}
	if s.HeaderCommand != "" {
		fmt.Fprintf(&b, "  runs a command line for headers: %s\n", shellWord(s.HeaderCommand))
	}
	if s.Settings != nil {
		fmt.Fprintf(&b, "  with the settings %s\n", shellWord(string(s.Settings)))
	}
	text := b.String()
	for _, warning := range dangersOf(s) {
		b.WriteString(warning + "\n")
	}
	if strings.ContainsFunc(text, func(r rune) bool { return r >= utf8.RuneSelf }) {
		b.WriteString("warning: some letters are not ASCII and may look like ASCII letters\n")
	}
	if strings.Contains(text, "${") {
		b.WriteString("${…} is replaced by a variable of your environment, by a file, or by the text after :-; " +
			"${$} is $\n")
	}
	return strings.TrimRight(b.String(), "\n")
}

// hostText names the host of a server's URL, whose variables are unexpanded.
func hostText(address string) string {
	_, rest, hasScheme := strings.Cut(address, "://")
	authority := rest
	if end := strings.IndexAny(rest, "/?#"); end >= 0 {
		authority = rest[:end]
	}
	u, err := url.Parse(address)
	switch {
	case !hasScheme || strings.Contains(authority, "${"):
		return "warning: the host depends on variables"
	case err != nil:
		return "warning: the URL may be invalid"
	}
	return "host " + cleanLine(u.Host) + strings.ReplaceAll(hostWarning(u.Hostname()), "\n", "\n  ")
}

func trustCommand(f *factory) *cobra.Command {
	var yes, revoke bool
	cmd := &cobra.Command{
		Use:                   "trust [NAME]",
		Short:                 "Trust a server of a project file, such as .mcp.json or .vscode/mcp.json",
		DisableFlagsInUseLine: true,
		Args:                  cobra.MaximumNArgs(1),
		ValidArgsFunction: func(_ *cobra.Command, _ []string, typed string) ([]string, cobra.ShellCompDirective) {
			return f.Config.targetNames(typed), cobra.ShellCompDirectiveNoFileComp
		},
		RunE: func(cmd *cobra.Command, args []string) error {
			store, err := trustStore()
			if err != nil {
				return err
			}
			if len(args) == 0 {
				return listTrust(f, store)
			}
			c, s, err := projectServer(f, args[0])
			switch {
			case err != nil:
				return usage(err)
			case revoke:
				return store.Revoke(s)
			case yes:
				f.IO.Err.printf("%s", trustText(c, s))
				if err := store.Trust(s); err != nil {
					return err
				}
				f.IO.Err.printf("Server %s is trusted now.", serverWord(c, s))
				return nil
			case !store.NeedsTrust(s):
				f.IO.Err.printf("Server %s is trusted already.", serverWord(c, s))
				return nil
			}
			if err := f.Config.askTrust(cmd.Context(), c, s, store); err != nil {
				return usage(err)
			}
			return nil
		},
	}
	cmd.Flags().BoolVar(&yes, "yes", false, "trust the server without asking")
	cmd.Flags().BoolVar(&revoke, "revoke", false, "remove the trust in the server")
	return cmd
}

func inProject(f *configs.File) bool { return f.Project }

// projectServer returns a server of the project files.
func projectServer(p *factory, name string) (*configs.File, *config.Server, error) {
	f, name, err := p.Config.findServer(name, inProject)
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

// maxDoesShown bounds the command or URL in the list, in characters.
const maxDoesShown = 300

// listTrust prints the servers of the project files.
func listTrust(p *factory, store *config.TrustStore) error {
	var problems error
	reports := []trustReport{}
	for f, err := range configs.Files(p.Flags.config) {
		if err != nil {
			problems = errors.Join(problems, err)
		} else if f.Project {
			for _, name := range f.Names() {
				reports = append(reports, reportTrust(f, name, store))
			}
		}
	}
	if p.Flags.json {
		p.IO.Out.value(map[string][]trustReport{"servers": reports})
		return problems
	}
	var rows [][]string
	for _, r := range reports {
		state := "not trusted"
		if r.Trusted {
			state = "trusted"
		}
		rows = append(rows, []string{shorten(cleanLine(r.Name), maxNameShown), state,
			shorten(cleanLine(r.Does+r.Invalid), maxDoesShown)})
	}
	p.IO.Out.columns("NAME STATE COMMAND-OR-URL", rows)
	if len(reports) == 0 {
		p.IO.Err.printf("Found no project files with servers; see \"patchbay trust --help\".")
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
		r.Does = (&target{command: append([]string{s.Command}, s.Args...)}).String()
	}
	return r
}
