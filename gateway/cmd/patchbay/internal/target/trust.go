package target

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"net/url"
	"slices"
	"strings"
	"unicode/utf8"

	"github.com/patchbay-mcp/patchbay/gateway/cmd/patchbay/internal/configs"
	"github.com/patchbay-mcp/patchbay/gateway/cmd/patchbay/internal/question"
	"github.com/patchbay-mcp/patchbay/gateway/cmd/patchbay/internal/term"
	"github.com/patchbay-mcp/patchbay/gateway/cmd/patchbay/internal/userdir"
	"github.com/patchbay-mcp/patchbay/host/config"
)

// A truster decides about a server of a project file that is not trusted yet. It must return an
// error unless the user trusts the server now.
type truster func(ctx context.Context, c *configs.File, s *config.Server, store *config.TrustStore) error

// CheckTrust calls trust if a server must be trusted first.
func CheckTrust(ctx context.Context, c *configs.File, s *config.Server, trust truster) error {
	if !s.Project {
		return nil
	}
	store, err := TrustStore()
	if err != nil {
		return err
	}
	if store.NeedsTrust(s) {
		return trust(ctx, c, s, store)
	}
	return nil
}

// TrustStore returns the store of trusted servers.
func TrustStore() (*config.TrustStore, error) {
	dir, err := userdir.Dir("trusted")
	return &config.TrustStore{Dir: dir}, err
}

// RefuseTrust is a truster that never trusts a server.
func RefuseTrust(_ context.Context, c *configs.File, s *config.Server, _ *config.TrustStore) error {
	return fmt.Errorf("server %s of the project file %s is not trusted: run \"patchbay trust %[1]s\" in a terminal, "+
		"or name the file with --config", ServerWord(c, s), term.CleanLine(c.Path))
}

// ServerWord returns the target of a server as a word of a command line, cut if it is very long.
func ServerWord(c *configs.File, s *config.Server) string {
	return term.Shorten(term.ShellWord(c.Target(s.Name)), term.MaxNameShown)
}

// MaxTrustRows limits the description of a server above the question, in rows of the terminal, so
// that its first row is still on the screen. Most terminals show 24 rows or more.
const MaxTrustRows = 20

// AskTrust is a truster that shows the server to the user and asks. It refuses without a terminal,
// and if the description does not fit on the screen.
func (p *Finder) AskTrust(ctx context.Context, c *configs.File, s *config.Server, store *config.TrustStore) error {
	if !p.IO.MayPrompt() {
		return RefuseTrust(ctx, c, s, store)
	}
	text := TrustText(c, s)
	if p.IO.Err.Rows(text) > MaxTrustRows {
		return fmt.Errorf("server %s of the project file %s is not trusted, and is too long to show: read the file, "+
			"then run \"patchbay trust %[1]s --yes\"", ServerWord(c, s), term.CleanLine(c.Path))
	}
	p.IO.Err.Printf("%s", text)
	trusted, err := p.Ask.Confirm(ctx, "Trust it, now and as long as it does not change?", "n")
	switch {
	case err != nil && !errors.Is(err, question.ErrDeclined) && !errors.Is(err, question.ErrCancelled):
		return err
	case !trusted:
		return fmt.Errorf("server %s of %s is not trusted: nothing was run or sent",
			ServerWord(c, s), term.CleanLine(c.Path))
	}
	return store.Trust(s)
}

// TrustText describes the effects of using a server, with its variables unexpanded. Each word is
// quoted as for a shell, so that no two entries look the same.
func TrustText(c *configs.File, s *config.Server) string {
	var b strings.Builder
	what := "starts a command"
	if s.Type != config.TypeStdio {
		what = "connects to a URL"
	}
	fmt.Fprintf(&b, "Server %s of the project file %s %s:\n", term.ShellWord(s.Name), term.CleanLine(c.Path), what)
	if s.Type != config.TypeStdio {
		fmt.Fprintf(&b, "  %s\n  %s\n", term.ShellWord(s.URL), hostText(s.URL))
	} else {
		fmt.Fprintf(&b, "  %s\n", &Target{Command: append([]string{s.Command}, s.Args...)})
	}
	if s.EnvFile != "" {
		fmt.Fprintf(&b, "  with the variables of the file %s\n", term.ShellWord(s.EnvFile))
	}
	for _, in := range s.Inputs {
		fmt.Fprintf(&b, "  asks you for the input %s: %s\n", term.ShellWord(in.ID), term.ShellWord(in.Description))
	}
	if s.Dir != "" {
		fmt.Fprintf(&b, "  in the directory %s\n", term.ShellWord(s.Dir))
	}
	for _, key := range slices.Sorted(maps.Keys(s.Env)) {
		fmt.Fprintf(&b, "  with %s=%s\n", term.ShellWord(key), term.ShellWord(s.Env[key]))
	}
	for _, key := range slices.Sorted(maps.Keys(s.Header)) {
		fmt.Fprintf(&b, "  with the header %s: %s\n", term.ShellWord(key), term.ShellWord(s.Header[key]))
	}
	if s.HeaderCommand != "" {
		fmt.Fprintf(&b, "  runs a command line for headers: %s\n", term.ShellWord(s.HeaderCommand))
	}
	if s.Settings != nil {
		fmt.Fprintf(&b, "  with the settings %s\n", term.ShellWord(string(s.Settings)))
	}
	text := b.String()
	for _, warning := range DangersOf(s) {
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
	return "host " + term.CleanLine(u.Host) + strings.ReplaceAll(question.HostWarning(u.Hostname()), "\n", "\n  ")
}
