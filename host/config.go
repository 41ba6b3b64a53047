package host

import (
	stdjson "encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"

	"github.com/patchbay-mcp/patchbay/internal/jsonscan"
)

// maxConfig bounds a configuration file, in bytes: a thousand servers with all their settings are far below it.
const maxConfig = 4 << 20

// A Config is a configuration file that names servers. It is immutable and safe for concurrent use.
type Config struct {
	// Path is the file that it was read from; empty when there is none.
	Path string
	// Extra holds the members beside the servers, as they were written.
	Extra map[string]stdjson.RawMessage

	names   []string // in the order of the file
	servers map[string]stdjson.RawMessage
}

// LoadConfig reads a file. The error wraps fs.ErrNotExist if there is none, and names line and column of what is no
// JSON.
func LoadConfig(path string) (*Config, error) {
	f, err := os.Open(path)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	text, err := io.ReadAll(io.LimitReader(f, maxConfig+1))
	if err != nil {
		return nil, err
	}
	c, err := ParseConfig(text)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", path, err)
	}
	c.Path = path
	return c, nil
}

// ParseConfig reads the text of a file. It looks at the servers' names alone; [Config.Server] reads one of them, so
// that a mistake in one does not take the others away.
func ParseConfig(text []byte) (*Config, error) {
	if len(text) > maxConfig {
		return nil, fmt.Errorf("the configuration has more than %d bytes", maxConfig)
	}
	plain, err := plainJSON(text)
	if err != nil {
		return nil, err
	}
	if jsonscan.Kind(plain) != '{' {
		return nil, errors.New("the configuration is not a JSON object")
	}
	c := &Config{Extra: map[string]stdjson.RawMessage{}, servers: map[string]stdjson.RawMessage{}}
	found := false
	for key, value := range jsonscan.Members(plain) {
		if string(key) != "mcpServers" && string(key) != "servers" {
			c.Extra[string(key)] = value
			continue
		}
		found = true
		if err := c.addServers(string(key), value); err != nil {
			return nil, err
		}
	}
	if !found {
		return nil, errors.New(`the configuration names no servers: it has neither a member "mcpServers" nor "servers"`)
	}
	return c, nil
}

func (c *Config) addServers(key string, servers []byte) error {
	if jsonscan.Kind(servers) != '{' {
		return fmt.Errorf("%s is not an object", key)
	}
	for name, server := range jsonscan.Members(servers) {
		if _, has := c.servers[string(name)]; has {
			return fmt.Errorf("server %q stands in mcpServers and in servers", name)
		}
		c.names = append(c.names, string(name))
		c.servers[string(name)] = server
	}
	return nil
}

// Names returns the names of the servers, in the order of the file.
func (c *Config) Names() []string { return slices.Clone(c.names) }

// Has reports whether a server of that name stands in the file, well formed or not.
func (c *Config) Has(name string) bool {
	_, ok := c.servers[name]
	return ok
}

// Server reads the entry of one server. Its variables are not expanded yet. The error says which member is wrong.
func (c *Config) Server(name string) (*Server, error) {
	raw, ok := c.servers[name]
	if !ok {
		return nil, fmt.Errorf("no server %q", name)
	}
	s, err := parseServer(raw)
	if err != nil {
		return nil, fmt.Errorf("server %q: %w", name, err)
	}
	s.Name = name
	if c.Path != "" {
		s.base = filepath.Dir(c.Path)
	}
	return s, nil
}
