package host

import (
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"path/filepath"
	"regexp"
	"slices"
	"strings"

	"github.com/patchbay-mcp/patchbay/internal/jsonscan"
)

// A ServerType is the transport of a server.
type ServerType string

// Types of servers.
const (
	TypeStdio ServerType = "stdio" // a command, used over its standard input and output
	TypeHTTP  ServerType = "http"  // a URL of Streamable HTTP; also spelled streamable-http
	TypeSSE   ServerType = "sse"   // a URL of HTTP+SSE (2024-11-05); clients that detect the transport may ignore it
)

// A Server is the entry of a server in a configuration.
type Server struct {
	// Name is the key of the entry.
	Name string
	// Project is set if the entry is in a project file; see [Config.Project].
	Project bool
	// Type is the member type. Default: TypeHTTP with a URL, else TypeStdio.
	Type ServerType

	// Command is the program to start, and Args its arguments. They are not passed to a shell.
	Command string
	Args    []string
	// Env is added to the environment of the command.
	Env map[string]string
	// Dir is the working directory of the command; empty for the current directory. [Server.Expand]
	// resolves a relative path against the directory of the configuration file.
	Dir string

	// URL is the URL of the server, and Header the additional HTTP headers of requests.
	URL    string
	Header map[string]string

	// Disabled is set if the user has disabled the server.
	Disabled bool
	// Extra has the unknown members, unparsed.
	Extra map[string]json.RawMessage

	base string // directory of the configuration file
}

func parseServer(raw []byte) (*Server, error) {
	if jsonscan.Kind(raw) != '{' {
		return nil, errors.New("must be an object")
	}
	s := &Server{Extra: map[string]json.RawMessage{}}
	for key, value := range jsonscan.Members(raw) {
		if err := s.set(string(key), value); err != nil {
			return nil, fmt.Errorf("%s: %w", key, err)
		}
	}
	return s, s.resolveType()
}

func (s *Server) set(key string, value []byte) (err error) {
	switch key {
	case "type":
		var name string
		if name, err = text(value); err == nil {
			s.Type, err = serverType(name)
		}
	case "command":
		s.Command, err = text(value)
	case "args":
		s.Args, err = list(value)
	case "env":
		s.Env, err = table(value)
	case "cwd":
		s.Dir, err = text(value)
	case "url":
		s.URL, err = text(value)
	case "headers":
		s.Header, err = table(value)
	case "disabled":
		s.Disabled = jsonscan.Kind(value) == 't'
	default:
		s.Extra[key] = value
	}
	return err
}

// serverType parses a type in its various spellings.
func serverType(name string) (ServerType, error) {
	switch strings.NewReplacer("-", "", "_", "").Replace(strings.ToLower(name)) {
	case "stdio":
		return TypeStdio, nil
	case "http", "streamablehttp":
		return TypeHTTP, nil
	case "sse":
		return TypeSSE, nil
	}
	return "", fmt.Errorf("invalid value %.64q: want stdio, http, streamable-http or sse", name)
}

// resolveType sets the default type, and checks the members that the type requires.
func (s *Server) resolveType() error {
	if s.Type == "" && s.Command != "" && s.URL != "" {
		return errors.New("ambiguous type with command and url: set type")
	}
	switch {
	case s.Type == "" && s.URL != "":
		s.Type = TypeHTTP
	case s.Type == "":
		s.Type = TypeStdio
	}
	switch {
	case s.Type == TypeStdio && s.Command == "":
		return errors.New("missing command")
	case s.Type != TypeStdio && s.URL == "":
		return errors.New("missing url")
	}
	return nil
}

func text(value []byte) (string, error) {
	s, err := jsonscan.Unquote(value)
	if err != nil {
		err = errors.New("must be a string")
	}
	return s, err
}

func list(value []byte) ([]string, error) {
	if jsonscan.Kind(value) != '[' {
		return nil, errors.New("must be an array of strings")
	}
	var out []string
	for element := range jsonscan.Elements(value) {
		s, err := text(element)
		if err != nil {
			return nil, fmt.Errorf("element %d: %w", len(out), err)
		}
		out = append(out, s)
	}
	return out, nil
}

// table parses an object of strings. Numbers and booleans become strings, and null is ignored.
func table(value []byte) (map[string]string, error) {
	if jsonscan.Kind(value) != '{' {
		return nil, errors.New("must be an object of strings")
	}
	out := map[string]string{}
	for key, v := range jsonscan.Members(value) {
		switch jsonscan.Kind(v) {
		case 'n':
		case '0', 't', 'f':
			out[string(key)] = string(v)
		default:
			s, err := text(v)
			if err != nil {
				return nil, fmt.Errorf("%.64q: %w", key, err)
			}
			out[string(key)] = s
		}
	}
	return out, nil
}

// maxExpanded bounds an expanded string, in bytes.
const maxExpanded = 1 << 20

// Expand returns a copy with variables replaced: ${NAME} by its value, and ${NAME:-text} by text if
// the variable is unset or empty. ${env:NAME} is the same as ${NAME}. A variable that is unset and
// has no default is an error. lookup is usually os.LookupEnv; its values are not expanded again.
func (s *Server) Expand(lookup func(name string) (string, bool)) (*Server, error) {
	out := *s
	var errs []error
	expand := func(where, text string) string {
		expanded, err := expandText(text, lookup)
		if err != nil {
			errs = append(errs, fmt.Errorf("%s: %w", where, err))
		}
		return expanded
	}
	out.Command = expand("command", s.Command)
	out.Args = slices.Clone(s.Args)
	for i, arg := range out.Args {
		out.Args[i] = expand(fmt.Sprintf("args %d", i), arg)
	}
	out.Dir = expand("cwd", s.Dir)
	if out.Dir != "" && !filepath.IsAbs(out.Dir) {
		out.Dir = filepath.Join(s.base, out.Dir)
	}
	out.URL = expand("url", s.URL)
	out.Env = expandTable("env", s.Env, expand)
	out.Header = expandTable("headers", s.Header, expand)
	if err := errors.Join(errs...); err != nil {
		return nil, fmt.Errorf("server %q: %w", s.Name, err)
	}
	return &out, nil
}

func expandTable(where string, table map[string]string, expand func(where, text string) string) map[string]string {
	out := maps.Clone(table)
	for _, key := range slices.Sorted(maps.Keys(table)) {
		out[key] = expand(fmt.Sprintf("%s %.64q", where, key), table[key])
	}
	return out
}

// expandText replaces the variables of a string. A dollar sign without a brace is literal.
func expandText(text string, lookup func(name string) (string, bool)) (string, error) {
	var b strings.Builder
	for {
		before, rest, found := strings.Cut(text, "${")
		b.WriteString(before)
		if !found {
			return b.String(), nil
		}
		inner, after, closed := strings.Cut(rest, "}")
		if !closed {
			return "", errors.New("unterminated ${")
		}
		value, err := variable(inner, lookup)
		if err != nil {
			return "", err
		}
		if b.Len()+len(value)+len(after) > maxExpanded {
			return "", fmt.Errorf("too large with variables replaced: want at most %d bytes", maxExpanded)
		}
		b.WriteString(value)
		text = after
	}
}

// variable returns the value of the content of ${…}.
func variable(inner string, lookup func(name string) (string, bool)) (string, error) {
	name, fallback, hasFallback := strings.Cut(inner, ":-")
	name = strings.TrimPrefix(name, "env:")
	if !variableName.MatchString(name) {
		return "", fmt.Errorf("invalid variable ${%.64s}: want ${NAME} or ${NAME:-default}", inner)
	}
	value, set := lookup(name)
	switch {
	case hasFallback && value == "":
		return fallback, nil
	case !set:
		return "", fmt.Errorf("environment variable %.64s is not set", name)
	}
	return value, nil
}

var variableName = regexp.MustCompile(`^[A-Za-z_][A-Za-z0-9_]*$`)
