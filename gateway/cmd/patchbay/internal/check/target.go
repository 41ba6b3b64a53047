package check

import (
	"context"
	"errors"
	"fmt"
	"path/filepath"
	"slices"
	"strings"

	"github.com/go-json-experiment/json"

	"github.com/patchbay-mcp/patchbay/gateway/cmd/patchbay/internal/configs"
	"github.com/patchbay-mcp/patchbay/gateway/cmd/patchbay/internal/target"
	"github.com/patchbay-mcp/patchbay/gateway/cmd/patchbay/internal/term"
	"github.com/patchbay-mcp/patchbay/gateway/internal/rawjson"
	"github.com/patchbay-mcp/patchbay/host/config"
)

// config returns the file as a project file with the servers target and variables. The settings of the
// target contain the expressions of variables, so that the user's trust in it ends when a call uses
// another variable.
func (f *File) config() (*configs.File, error) {
	env := map[string]string{}
	for _, e := range f.outside {
		env[e] = "${" + e + "}"
	}
	servers := map[string]any{"variables": map[string]any{"command": "-", "env": env}}
	if rawjson.Kind(f.target) == '{' {
		servers["target"] = f.target
	}
	doc := map[string]any{"mcpServers": servers}
	if len(f.outside) > 0 {
		doc["patchbay"] = map[string]any{"servers": map[string]any{"target": map[string]any{"variables": f.outside}}}
	}
	text, err := json.Marshal(doc, json.Deterministic(true))
	if err != nil {
		return nil, err
	}
	c, err := config.Parse(text)
	if err != nil {
		return nil, err
	}
	c.Path, c.Dir, c.Project = f.Path, filepath.Dir(f.Path), true
	return &configs.File{File: c, App: "project"}, nil
}

// Target returns the server to check: given, a target of the command line, or the target of the file
// if given is nil. It replaces the variables of the file. The user must trust what the file starts,
// connects to and replaces, unless trusted is set: Target asks on a terminal, and otherwise returns an
// error.
func (f *File) Target(
	ctx context.Context, p *target.Finder, given *target.Target, trusted bool,
) (t *target.Target, err error) {
	c, err := f.config()
	if err != nil {
		return nil, fmt.Errorf("%s: %w", f.Path, err)
	}
	trust := func(ctx context.Context, c *configs.File, s *config.Server, store *config.TrustStore) error {
		switch {
		case trusted:
			return nil
		case !p.IO.MayPrompt() || p.IO.Err.Rows(target.TrustText(c, s)) > target.MaxTrustRows:
			return f.untrusted("contains a target that is not trusted")
		}
		return p.AskTrust(ctx, c, s, store)
	}
	switch t = given; {
	case t == nil && f.target == nil:
		err = fmt.Errorf("%s contains no target: name the server after the file, or its command after --", f.Path)
	case t == nil && rawjson.Kind(f.target) == '{':
		t, err = p.FromFile(ctx, c, "target", trust)
	case t == nil: // a URL, or a configured name with the logins and secrets of the user
		name, _ := rawjson.Unquote(f.target) // valid
		if err = f.confirm(ctx, p, trusted, "sends its calls to "+term.ShellWord(name)); err == nil {
			t, err = p.Named(ctx, name, p.AskTrust)
		}
		if err == nil {
			t.Name = name
		}
	case len(f.outside) > 0:
		err = f.confirm(ctx, p, trusted, "sends values of variables to the server")
	}
	if err != nil {
		return nil, err
	}
	return t, f.expand(ctx, p, c, t)
}

// expand replaces the variables that no call sets. Their secrets become secrets of the target.
func (f *File) expand(ctx context.Context, p *target.Finder, c *configs.File, t *target.Target) error {
	s, err := c.Server("variables")
	if err != nil {
		return fmt.Errorf("%s: %w", f.Path, err)
	}
	values, err := p.Variables(ctx, c, s)
	if err != nil {
		return err
	}
	if s, err = s.Expand(ctx, values); err != nil {
		return fmt.Errorf("%s: %w", f.Path, err)
	}
	for expression, value := range s.Env {
		f.values[expression] = rawjson.AppendQuote(nil, value)
	}
	t.Secrets = append(slices.Clone(t.Secrets), s.Secrets()...)
	slices.SortFunc(t.Secrets, func(a, b string) int { return len(b) - len(a) })
	return nil
}

// confirm asks whether the file may do something in this run.
func (f *File) confirm(ctx context.Context, p *target.Finder, trusted bool, what string) error {
	if len(f.outside) > 0 {
		what += ": " + term.ShellWord("${"+strings.Join(f.outside, "} ${")+"}")
	}
	switch {
	case trusted:
		return nil
	case !p.IO.MayPrompt() || p.IO.Err.Rows(what) > target.MaxTrustRows:
		return f.untrusted(what)
	}
	p.IO.Err.Printf("%s %s", term.CleanLine(f.Path), term.CleanLine(what))
	yes, err := p.Ask.Confirm(ctx, "Trust the file in this run?", "n")
	if err == nil && !yes {
		err = errors.New("the file is not trusted: nothing was run or sent")
	}
	return err
}

func (f *File) untrusted(what string) error {
	return fmt.Errorf("%s %s: nothing was run or sent: run the command in a terminal, which asks, or read the file "+
		"and pass --trust", term.CleanLine(f.Path), term.Shorten(term.CleanLine(what), term.MaxDoesShown))
}
