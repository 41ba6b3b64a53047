// Package target finds the server that a command line names, and asks whether to trust it.
package target

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"net/http"
	"net/url"
	"os"
	"slices"
	"strings"

	"github.com/patchbay-mcp/patchbay/gateway/cmd/patchbay/internal/configs"
	"github.com/patchbay-mcp/patchbay/gateway/cmd/patchbay/internal/term"
	"github.com/patchbay-mcp/patchbay/gateway/internal/netx"
	"github.com/patchbay-mcp/patchbay/gateway/internal/rawjson"
	"github.com/patchbay-mcp/patchbay/host/config"
	"github.com/patchbay-mcp/patchbay/oauth/oauthclient"
)

// A Target is a server: a command to start or a URL.
type Target struct {
	Command     []string
	Environment []string
	Directory   string

	URL    string
	Header http.Header

	InsecureHTTP bool            // credentials of header may be sent in the clear
	StartTimeout config.Duration // of a command in the configuration; 0 for the default

	Name      string                 // the argument on the command line
	From      string                 // the configuration file; empty for a URL or command
	Secrets   []string               // of the entry in it, which messages do not show
	Auth      *oauthclient.Transport // authorizes requests; may be nil
	Host      *HostTarget            // all configured servers; nil for others
	Contacted bool                   // a connection was tried
	NoLogin   bool                   // the user is not asked to log in
}

// String returns the target for messages.
func (t *Target) String() string {
	if t.URL != "" {
		return t.Masked(t.URL)
	}
	var all []string
	for _, word := range t.Command {
		all = append(all, term.ShellWord(t.Masked(word)))
	}
	return strings.Join(all, " ")
}

// Masked returns a text of the target without its secrets.
func (t *Target) Masked(text string) string {
	for _, secret := range t.Secrets {
		text = strings.ReplaceAll(text, secret, Hidden)
	}
	return text
}

// An UnknownServerError is returned for a name that no configuration file contains.
type UnknownServerError struct{ error }

// Named returns the target of a URL or of a name in a configuration file. It calls trust for a
// server of a project file that the user must trust first.
func (p *Finder) Named(ctx context.Context, name string, trust truster) (*Target, error) {
	switch name {
	case HostName, RunningName:
		return p.HostNamed(ctx, name)
	}
	if strings.Contains(name, "://") {
		return &Target{URL: name, Header: http.Header{}}, CheckServerURL(name)
	}
	f, server, err := p.FindServer(name, func(*configs.File) bool { return true })
	if f == nil {
		return nil, err
	}
	if err != nil {
		for line := range strings.Lines(err.Error()) { // a line for each file
			p.IO.Err.Printf("patchbay: ignored a configuration file: %s", term.CleanLine(line))
		}
	}
	return p.FromFile(ctx, f, server, trust)
}

// FindServer returns the first wanted file that contains a server, and the server's name in that
// file. The error contains the errors of unreadable files.
func (p *Finder) FindServer(name string, wanted func(f *configs.File) bool) (*configs.File, string, error) {
	app, short, qualified := configs.Split(name)
	ofApp := qualified && !p.NamesConfig() // do not suggest servers of other applications
	var found *configs.File                // contains the whole name
	var known []string
	var problems error
	for f, err := range configs.Files(p.Flags.Config) {
		switch {
		case err != nil && qualified && f.App != app:
		case err != nil:
			problems = errors.Join(problems, err)
		case !wanted(f):
		case qualified && f.App == app && f.Has(short):
			return f, short, problems
		case !qualified && f.Has(name):
			return f, name, problems
		default:
			if found == nil && f.Has(name) {
				found = f
			}
			for _, name := range f.Names() {
				if !ofApp || f.App == app {
					known = append(known, f.Target(name))
				}
			}
		}
	}
	if found != nil {
		return found, name, problems
	}
	problem := p.unknownServer(name, known)
	if ofApp {
		problem = unknownServerOf(app, name, known)
	}
	return nil, "", errors.Join(problems, &UnknownServerError{problem}) // a file may be the cause of the second error
}

// NamesConfig reports whether the user named a configuration file. Then no other file is read.
func (p *Finder) NamesConfig() bool { return p.Flags.Config != "" || os.Getenv(config.PathEnv) != "" }

// unknownServerOf returns the error for a name with the prefix of an application.
func unknownServerOf(app, name string, known []string) error {
	if len(known) > 0 {
		return term.UnknownName("server", name, known)
	}
	return fmt.Errorf("unknown server %q: found no servers in %s", name, strings.Join(configs.Paths(app), ", "))
}

func (p *Finder) unknownServer(name string, known []string) error {
	problem := term.UnknownName("server", name, known)
	if len(known) == 0 {
		problem = fmt.Errorf("unknown server %q: found no configuration file with servers (tried %s, and files "+
			"of applications)", name, strings.Join(config.Paths(p.Flags.Config), ", "))
		if p.NamesConfig() {
			problem = fmt.Errorf("unknown server %q: found no servers in %s", name, config.Paths(p.Flags.Config)[0])
		}
	}
	if strings.ContainsAny(name, "/:") {
		problem = fmt.Errorf("%w; a URL begins with http:// or https://, and a command follows --", problem)
	}
	return problem
}

// CheckServerURL returns an error for a text that is not the URL of a server.
func CheckServerURL(text string) error {
	u, err := url.Parse(text)
	if err != nil || u.Host == "" || u.Scheme != "http" && u.Scheme != "https" {
		return fmt.Errorf("invalid server URL %.200q: want http://… or https://…", PublicURL(text))
	}
	return nil
}

// FromFile returns the target of a server in a configuration file. It calls trust for a server of a
// project file that the user must trust first, before it replaces variables.
func (p *Finder) FromFile(ctx context.Context, f *configs.File, name string, trust truster) (*Target, error) {
	s, err := f.Server(name)
	if err == nil && s.Type != config.TypeStdio && !strings.Contains(s.URL, "${") {
		err = CheckServerURL(s.URL) // before the user is asked about it
	}
	if err != nil {
		return nil, fmt.Errorf("%s: %w", f.Path, err)
	}
	if _, ok := rawjson.Get(s.Settings, "sandbox"); ok && s.Type == config.TypeStdio {
		return nil, fmt.Errorf("%s: server %.64q runs in a sandbox, which a direct connection does not enforce: "+
			"use the target %s", f.Path, name, HostName)
	}
	if err := CheckTrust(ctx, f, s, trust); err != nil {
		return nil, err
	}
	variables, err := p.Variables(ctx, f, s)
	if err != nil {
		return nil, err
	}
	if s, err = s.Expand(ctx, variables); err == nil && s.Type != config.TypeStdio {
		err = CheckServerURL(s.URL)
	}
	if err != nil {
		return nil, fmt.Errorf("%s: %w", f.Path, err)
	}
	return ExpandedTarget(s, f.Path), nil
}

// ExpandedTarget returns the target of a server of a file whose variables are expanded.
func ExpandedTarget(s *config.Server, path string) *Target {
	if s.Type != config.TypeStdio {
		t := &Target{URL: s.URL, Header: http.Header{}, From: path, Secrets: s.Secrets()}
		for key, value := range s.Header {
			t.Header.Set(key, value)
		}
		insecure, _ := rawjson.Get(s.Settings, "insecureHTTP")
		t.InsecureHTTP = string(insecure) == "true"
		return t
	}
	t := &Target{Command: append([]string{s.Command}, s.Args...), Directory: s.Dir, From: path, Secrets: s.Secrets()}
	startTimeout, _ := rawjson.Get(s.Settings, "startTimeout")
	_ = json.Unmarshal(startTimeout, &t.StartTimeout) // the default applies to an invalid value
	for _, key := range slices.Sorted(maps.Keys(s.Env)) {
		t.Environment = append(t.Environment, key+"="+s.Env[key])
	}
	return t
}

// AddToTarget adds the flags of the command line to a target, and hides its credentials in messages.
func (p *Finder) AddToTarget(ctx context.Context, t *Target) error {
	f := p.Flags
	if t.Host != nil {
		if len(f.Header)+len(f.Environment) > 0 || f.Directory != "" {
			return errHostFlags
		}
		return nil
	}
	if t.URL == "" && len(f.Header) > 0 {
		return errors.New("--header is for URLs: the target is a command")
	}
	if t.URL == "" && f.CaCert != "" {
		return errors.New("--cacert is for URLs: the target is a command")
	}
	if err := p.Net.LoadCACert(ctx); err != nil {
		return err
	}
	if t.URL != "" && (len(f.Environment) > 0 || f.Directory != "") {
		return errors.New("--env and --cwd are for commands: the target is a URL")
	}
	for _, line := range f.Header {
		name, value, ok := strings.Cut(line, ":")
		if !ok || strings.TrimSpace(name) == "" {
			return fmt.Errorf("invalid --header %q: want Name:value", strings.Fields(line + " ?")[0])
		}
		t.Header.Set(strings.TrimSpace(name), strings.TrimSpace(value))
	}
	if err := p.checkHTTP(t); err != nil {
		return err
	}
	for _, line := range f.Environment {
		if strings.IndexByte(line, '=') <= 0 {
			return fmt.Errorf("invalid --env %q: want KEY=value", strings.Fields(line + " ?")[0])
		}
	}
	t.Environment = append(t.Environment, f.Environment...)
	if f.Directory != "" {
		t.Directory = f.Directory
	}
	t.HideFlags()
	return nil
}

// isCredentialHeader reports whether the name of a header suggests that its value is a credential.
func isCredentialHeader(name string) bool {
	name = strings.NewReplacer("-", "", "_", "").Replace(strings.ToLower(name))
	return slices.ContainsFunc([]string{"auth", "cookie", "token", "secret", "password", "passwd", "credential",
		"signature", "apikey", "accesskey", "privatekey", "sessionid"},
		func(word string) bool { return strings.Contains(name, word) })
}

// checkHTTP returns an error if credentials would be sent to another machine in the clear.
func (p *Finder) checkHTTP(t *Target) error {
	u, err := url.Parse(t.URL)
	if err != nil || u.Scheme != "http" || p.Flags.InsecureHTTP || t.InsecureHTTP || netx.IsLocalHost(u.Hostname()) {
		return nil
	}
	for name := range t.Header {
		if isCredentialHeader(name) {
			return fmt.Errorf("the header %q for http://%s would be readable on the network: use https, or "+
				"--insecure-http", name, u.Host)
		}
	}
	if u.User != nil {
		return fmt.Errorf("the credentials for http://%s would be readable on the network: use https, or "+
			"--insecure-http", u.Host)
	}
	return nil
}
