package config

import (
	"encoding/json"
	"errors"
	"fmt"
	"maps"
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
	// Workspace is the directory of the client for which the server runs: the value of
	// ${workspaceFolder}, and the directory of a command whose Dir is empty. Files do not contain
	// it, and it does not affect an entry of a project file. Default: the current directory.
	Workspace string
	// Project is set if the entry is in a project file; see [File.Project].
	Project bool
	// Type is the member type. Default: TypeHTTP with a URL, else TypeStdio.
	Type ServerType

	// Command is the program to start, and Args its arguments. They are not passed to a shell.
	Command string
	Args    []string
	// Env is added to the environment of the command.
	Env map[string]string
	// EnvFile is a file of lines NAME=value, which [Server.Expand] reads into Env.
	EnvFile string
	// Dir is the working directory of the command; empty for the current directory. [Server.Expand]
	// resolves a relative path against the directory of the configuration file.
	Dir string
	// Inputs are the inputs of the file that the entry refers to by ${input:ID}.
	Inputs []Input

	// URL is the URL of the server, and Header the additional HTTP headers of requests.
	URL    string
	Header map[string]string
	// HeaderCommand is a command line that prints more headers as a JSON object of strings.
	// [Server.Expand] runs it. Source: Claude Code, dynamic headers.
	HeaderCommand string

	// Disabled means that the user has disabled the server.
	Disabled bool
	// AllowedTools are patterns of the only tools that are used; nil for all. See [Match].
	AllowedTools []string
	// ExcludedTools contains patterns of tools that must not be used, even if AllowedTools matches
	// them.
	ExcludedTools []string
	// Settings contains the settings of the server in the member patchbay of the file, unparsed;
	// nil means that the file contains none. See [File.Settings].
	Settings json.RawMessage
	// Extra holds the unknown members, unparsed. Members that let an application call tools without
	// asking, such as autoApprove and alwaysAllow, are among them: they grant no rights.
	Extra map[string]json.RawMessage

	path, base string   // the configuration file, and the directory that its paths refer to
	secrets    []string // of an expanded entry, the longest first
}

// memberNames maps the names of members in other applications, which docs/configurations.md lists,
// to the names here.
var memberNames = map[string]string{
	"transport": "type", "environment": "env", "serverUrl": "url", "httpUrl": "url",
	"includeTools": "allowedTools", "enabledTools": "allowedTools",
	"excludeTools": "excludedTools", "disabledTools": "excludedTools", "disallowedTools": "excludedTools",
}

func parseServer(raw []byte) (*Server, error) {
	if jsonscan.Kind(raw) != '{' {
		return nil, errors.New("must be an object")
	}
	s := &Server{Extra: map[string]json.RawMessage{}}
	seen := map[string]string{}
	for key, value := range jsonscan.Members(raw) {
		name := string(key)
		if name == "transport" && jsonscan.Kind(value) != '"' {
			s.Extra[name] = value // an object of another meaning
			continue
		}
		if canonical := memberNames[name]; canonical != "" {
			name = canonical
		}
		if other := seen[name]; other != "" {
			return nil, fmt.Errorf("%s: the same as %s: keep one of them", key, other)
		}
		seen[name] = string(key)
		if slices.Contains(members, name) && jsonscan.Kind(value) == 'n' {
			continue // the same as an absent member
		}
		if err := s.set(name, value); err != nil {
			return nil, fmt.Errorf("%s: %w", key, err)
		}
	}
	return s, s.resolveType()
}

// members contains the members that Server represents.
var members = []string{"type", "command", "args", "env", "envFile", "cwd", "url", "headers", "headersHelper",
	"allowedTools", "excludedTools", "disabled", "enabled"}

func (s *Server) set(key string, value []byte) (err error) {
	switch key {
	case "type":
		var name string
		if name, err = text(value); err == nil {
			s.Type, err = serverType(name)
		}
	case "command":
		err = s.setCommand(value)
	case "args":
		var args []string
		args, err = list(value)
		s.Args = append(s.Args, args...)
	case "env":
		s.Env, err = table(value)
	case "envFile":
		s.EnvFile, err = text(value)
	case "cwd":
		s.Dir, err = text(value)
	case "url":
		s.URL, err = text(value)
	case "headers":
		s.Header, err = table(value)
	case "headersHelper":
		s.HeaderCommand, err = text(value)
	case "allowedTools":
		s.AllowedTools, err = list(value)
	case "excludedTools":
		s.ExcludedTools, err = list(value)
	case "disabled":
		s.Disabled = s.Disabled || jsonscan.Kind(value) == 't'
	case "enabled":
		s.Disabled = s.Disabled || jsonscan.Kind(value) == 'f'
	default:
		s.Extra[key] = value
	}
	return err
}

// setCommand sets the program, or the program with arguments, as opencode writes it.
func (s *Server) setCommand(value []byte) (err error) {
	if jsonscan.Kind(value) != '[' {
		s.Command, err = text(value)
		return err
	}
	words, err := list(value)
	if err == nil && len(words) == 0 {
		err = errors.New("must have at least one element")
	}
	if err == nil {
		s.Command, s.Args = words[0], append(words[1:len(words):len(words)], s.Args...)
	}
	return err
}

// serverType parses a type in its various spellings.
func serverType(name string) (ServerType, error) {
	switch typeMarks.Replace(strings.ToLower(name)) {
	case "stdio", "local":
		return TypeStdio, nil
	case "http", "streamablehttp", "remote":
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

// texts returns the texts in which [Server.Expand] replaces variables.
func (s *Server) texts() []string {
	all := append([]string{s.Command, s.EnvFile, s.Dir, s.URL}, s.Args...)
	return slices.AppendSeq(slices.AppendSeq(all, maps.Values(s.Env)), maps.Values(s.Header))
}

var typeMarks = strings.NewReplacer("-", "", "_", "")
