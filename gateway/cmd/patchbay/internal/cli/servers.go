package cli

import (
	"errors"
	"net/url"
	"regexp"
	"strings"

	"github.com/spf13/cobra"

	"github.com/patchbay-mcp/patchbay/gateway/cmd/patchbay/internal/configs"
	"github.com/patchbay-mcp/patchbay/host/config"
)

func serversCommand(f *factory) *cobra.Command {
	return &cobra.Command{
		Use:                   "servers [APPLICATION]",
		Short:                 "List the servers that are configured, here and in other applications",
		DisableFlagsInUseLine: true,
		Args:                  cobra.MaximumNArgs(1),
		ValidArgs:             configs.Applications(),
		RunE: func(_ *cobra.Command, args []string) error {
			app := ""
			if len(args) > 0 {
				app = args[0]
				if _, _, known := configs.Split(app + ":x"); !known {
					return usage(unknownName("application", app, configs.Applications()))
				}
			}
			return listServers(f, app)
		},
	}
}

// A serverReport is a configured server in JSON.
type serverReport struct {
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

// listServers prints the servers of all configuration files, or of those of an application.
func listServers(p *factory, app string) error {
	store, err := trustStore()
	if err != nil {
		return err
	}
	var problems error
	reports := []serverReport{}
	for f, err := range configs.Files(p.Flags.config) {
		switch {
		case app != "" && f.App != app:
		case err != nil:
			problems = errors.Join(problems, err)
		default:
			for _, name := range f.Names() {
				reports = append(reports, reportServer(f, name, store))
			}
		}
	}
	if p.Flags.json {
		p.IO.Out.value(map[string][]serverReport{"servers": reports})
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
		rows = append(rows, []string{shorten(cleanLine(r.Name), maxNameShown), r.Application, transport, r.Trust,
			cleanLine(r.File), shorten(cleanLine(what), maxDoesShown)})
	}
	p.IO.Out.columns("NAME APPLICATION TRANSPORT TRUST FILE COMMAND-OR-URL", rows)
	if len(reports) == 0 && problems == nil {
		p.IO.Err.printf("Found no configured servers; see \"patchbay help config\".")
	}
	return problems
}

func reportServer(f *configs.File, name string, store *config.TrustStore) serverReport {
	r := serverReport{Name: name, Application: f.App, Target: f.Target(name), File: f.Path}
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
	if r.Does = publicURL(s.URL); s.Type == config.TypeStdio {
		r.Does = (&target{command: append([]string{s.Command}, publicArguments(s.Args)...)}).String()
	}
	return r
}

// hidden replaces a secret in lists.
const hidden = "***"

// publicURL returns a URL without user information, and without the values that are often secret:
// those of the query, the fragment, and segments of the path that look like keys.
func publicURL(address string) string {
	u, err := url.Parse(address)
	if err != nil || u.Host == "" {
		if scheme, _, found := strings.Cut(address, "://"); found {
			return scheme + "://" + hidden
		}
		return hidden
	}
	segments := strings.Split(u.Path, "/")
	for i, segment := range segments {
		segments[i] = hideKeys(segment)
	}
	text := u.Scheme + "://" + u.Host + strings.Join(segments, "/")
	if u.RawQuery != "" {
		text += "?" + hidden
	}
	return text
}

// publicArguments returns arguments without the values that may be secret: those of flags with such
// names, those of variables and headers, and what looks like a key.
func publicArguments(args []string) []string {
	out, next := make([]string, len(args)), false
	for i, arg := range args {
		name, _, hasValue := strings.Cut(arg, "=")
		header, _, isHeader := strings.Cut(arg, ": ")
		switch {
		case next && !strings.HasPrefix(arg, "--"):
			out[i] = hidden
		case hasValue && !strings.Contains(name, "://") && secretName.MatchString(name):
			out[i] = name + "=" + hidden
		case isHeader:
			out[i] = header + ": " + hidden
		case strings.Contains(arg, "://"):
			before, address, isValue := strings.Cut(arg, "=")
			if !isValue || strings.Contains(before, "://") {
				out[i] = publicURL(arg)
			} else {
				out[i] = before + "=" + publicURL(address)
			}
		default:
			out[i] = hideKeys(arg)
		}
		next = !hasValue && strings.HasPrefix(arg, "-") && secretName.MatchString(arg)
	}
	return out
}

var secretName = regexp.MustCompile(`(?i)token|key|secret|passw|pwd|auth|bearer|credential|cookie|session|^-[pu]$`)

// hideKeys replaces long words of letters and digits, and words with the prefixes of known tokens.
func hideKeys(text string) string {
	return keyLike.ReplaceAllStringFunc(text, func(word string) string {
		const longest = 20 // of names; random keys are longer
		known := knownKey.MatchString(word)
		if known || len(word) >= longest && strings.ContainsAny(word, "0123456789") {
			return hidden
		}
		return word
	})
}

var (
	keyLike  = regexp.MustCompile(`[A-Za-z0-9_+=-]{8,}`)
	knownKey = regexp.MustCompile(
		`^(sk|pk|rk|ghp|gho|ghu|ghs|github_pat|glpat|xox[a-z]|AKIA|AIza|eyJ|npm|hf)[-_A-Z0-9]`)
)
