package host

import (
	stdjson "encoding/json"
	"errors"
	"fmt"
	"strings"

	"github.com/patchbay-mcp/patchbay/internal/jsonscan"
)

// A ServerType says how a server is reached.
type ServerType string

// The types of server.
const (
	TypeStdio ServerType = "stdio" // a command that is started, and spoken to over its standard input and output
	TypeHTTP  ServerType = "http"  // a URL; streamable-http and other spellings of it are read as this
	TypeSSE   ServerType = "sse"   // a URL of the oldest HTTP transport; clients that find out by themselves may ignore it
)

// A Server is the entry of one server.
type Server struct {
	Name string
	// Type is given by the entry, or follows from whether it has a command or a URL.
	Type ServerType

	// Command is the program to start, Args its arguments. No shell sees them.
	Command string
	Args    []string
	// Env is added to the environment of the command.
	Env map[string]string
	// Dir is where the command starts; empty for where this program is. [Server.Expand] makes it relative to the file's
	// folder.
	Dir string

	// URL is where the server is, Header what goes with every request to it.
	URL    string
	Header map[string]string

	// Disabled says that the user has switched the server off.
	Disabled bool
	// Extra holds the members that are not understood, as they were written.
	Extra map[string]stdjson.RawMessage

	base string // the folder of the file
}

// parseServer reads one entry.
func parseServer(raw []byte) (*Server, error) {
	if jsonscan.Kind(raw) != '{' {
		return nil, errors.New("the entry is not an object")
	}
	s := &Server{Extra: map[string]stdjson.RawMessage{}}
	for key, value := range jsonscan.Members(raw) {
		if err := s.set(string(key), value); err != nil {
			return nil, fmt.Errorf("%s: %w", key, err)
		}
	}
	return s, s.settle()
}

// set reads one member.
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

// serverType reads the spellings that are about.
func serverType(name string) (ServerType, error) {
	switch strings.NewReplacer("-", "", "_", "").Replace(strings.ToLower(name)) {
	case "stdio":
		return TypeStdio, nil
	case "http", "streamablehttp":
		return TypeHTTP, nil
	case "sse":
		return TypeSSE, nil
	}
	return "", fmt.Errorf("got %q, want stdio, http, streamable-http or sse", name)
}

// settle finds the type of an entry that names none, and whether all is there.
func (s *Server) settle() error {
	if s.Type == "" && s.Command != "" && s.URL != "" {
		return errors.New("it has a command and a url: say with type which one counts")
	}
	if s.Type == "" && s.URL != "" {
		s.Type = TypeHTTP
	}
	if s.Type == "" {
		s.Type = TypeStdio
	}
	switch {
	case s.Type == TypeStdio && s.Command == "":
		return errors.New("it has no command")
	case s.Type != TypeStdio && s.URL == "":
		return errors.New("it has no url")
	}
	return nil
}

func text(value []byte) (string, error) {
	s, err := jsonscan.Unquote(value)
	if err != nil {
		return "", errors.New("want a string")
	}
	return s, nil
}

func list(value []byte) ([]string, error) {
	if jsonscan.Kind(value) != '[' {
		return nil, errors.New("want a list of strings")
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

// table reads an object of strings. Numbers and booleans stand for their text, and null for nothing.
func table(value []byte) (map[string]string, error) {
	if jsonscan.Kind(value) != '{' {
		return nil, errors.New("want an object of strings")
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
				return nil, fmt.Errorf("%s: %w", key, err)
			}
			out[string(key)] = s
		}
	}
	return out, nil
}
