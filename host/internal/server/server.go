// Package server describes the servers of a configuration: their settings, identities and fingerprints.
package server

import (
	"crypto/rand"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"reflect"

	"github.com/patchbay-mcp/patchbay/host/config"
	"github.com/patchbay-mcp/patchbay/host/internal/catalogue"
	"github.com/patchbay-mcp/patchbay/internal/wire"
)

// A Server contains the configuration of one server. It must not be changed.
type Server struct {
	Config   *config.Server // unexpanded; nil if the configuration of the server is invalid
	Settings *config.ServerSettings
	Invalid  error                    // why the configuration cannot be used
	ID       string                   // in public names
	Local    bool                     // only the local user may use the server
	Options  *catalogue.ServerOptions // shared between equal settings, so that catalogues share definitions
}

// New returns a server of a file. The server shares equal options with its predecessor, which may be nil.
func New(f *config.File, set *config.Settings, name string, old *Server) *Server {
	s := &Server{Settings: set.Servers[name], ID: f.ID(name), Local: f.IsLocal(name)}
	if s.Settings == nil {
		s.Settings = &config.ServerSettings{}
	}
	s.Config, s.Invalid = f.Server(name)
	s.Options = &catalogue.ServerOptions{Allow: s.Settings.Allow, Deny: s.Settings.Deny, Rename: s.Settings.Rename,
		Describe: s.Settings.Describe, HideArgs: s.Settings.HideArgs}
	if old != nil && reflect.DeepEqual(old.Options, s.Options) {
		s.Options = old.Options
	}
	return s
}

// Identity returns the identity of the server for its pins, and adds it to the identities of earlier
// servers. Servers that differ only in their variables or headers, such as two accounts of a program,
// offer different definitions: the name is part of every identity after the first. Values of variables
// are not part of an identity, because a new token must not make definitions unknown.
func (s *Server) Identity(earlier map[string]bool) string {
	if s.Config == nil {
		return ""
	}
	identity := s.Config.Identity()
	if earlier[identity] {
		sum := sha256.Sum256([]byte(identity + " " + s.Config.Name))
		identity = hex.EncodeToString(sum[:])
	}
	earlier[identity] = true
	return identity
}

// Program identifies the command or the URL of the server, or is empty for an invalid configuration.
func (s *Server) Program() string {
	if s.Config == nil {
		return ""
	}
	return s.Config.Identity()
}

// WithoutMeta returns the member of `_meta` that the server must not receive, or "".
func (s *Server) WithoutMeta() string {
	if s.Settings.ForwardBaggage {
		return ""
	}
	return wire.MetaBaggage
}

// IsCommand reports whether the server is a command, so that each connection is a process.
func (s *Server) IsCommand() bool { return s.Config == nil || s.Config.Type == config.TypeStdio }

// DependsOnCaller reports whether the server receives a credential, a header or the subject of its
// caller. The lists of such a server may differ between callers.
func (s *Server) DependsOnCaller() bool {
	return s.Config == nil || s.Config.UsesCaller() || s.Settings.InsecureForwardAuthorization ||
		s.Settings.Auth == config.AuthCaller || s.Settings.Auth == config.AuthForward
}

// UsesLoginOfCaller reports whether each caller must log in to the server.
func (s *Server) UsesLoginOfCaller() bool { return s.Settings.Auth == config.AuthCaller }

// HasAuthorization reports whether the configuration contains a header Authorization.
func (s *Server) HasAuthorization() bool {
	for name := range s.Config.Header {
		if http.CanonicalHeaderKey(name) == "Authorization" {
			return true
		}
	}
	return false
}

// Share returns the sharing mode. By default, an instance serves a single caller.
func (s *Server) Share() config.Share {
	if s.Settings.Share != "" {
		return s.Settings.Share
	}
	return config.ShareCaller
}

// Digest identifies the program and the settings of connections, in all processes alike. It contains the names of
// variables, but not their values: paths of directories differ between machines. It is empty for an invalid
// configuration.
func (s *Server) Digest() string {
	c := s.Config
	if c == nil {
		return ""
	}
	hash := sha256.New()
	fmt.Fprintf(hash, "%q ", []any{string(c.Type), c.Command, c.Args, c.Env, c.EnvFile, c.Dir, c.URL, c.Header})
	s.writeSettings(hash)
	return hex.EncodeToString(hash.Sum(nil))
}

// writeSettings writes the settings that a connection depends on.
func (s *Server) writeSettings(w io.Writer) {
	set := s.Settings
	fmt.Fprintf(w, "%q", []any{set.Era, set.Timeout, set.MaxTimeout, set.Roots, fmt.Sprintf("%+v", set.Limits)})
	if set.Sandbox != nil {
		text, _ := json.Marshal(set.Sandbox) // texts and numbers only: no error is possible
		fmt.Fprintf(w, " sandbox %s", text)
	}
}

// A Fingerprint identifies everything that a connection depends on. A connection whose fingerprint
// differs from the fingerprint of the configuration must be replaced.
type Fingerprint [sha256.Size]byte

// NewFingerprintKey returns a random key for [Server.Fingerprint].
func NewFingerprintKey() []byte {
	key := make([]byte, sha256.Size)
	_, _ = rand.Read(key) // never fails
	return key
}

// Fingerprint returns the fingerprint of connections to the server with the present values of variables.
// pins identifies the treatment of definitions, and is empty for a server without pins.
func (s *Server) Fingerprint(key []byte, lookup func(string) (string, bool), pins string) Fingerprint {
	hash := sha256.New()
	if s.Invalid != nil {
		fmt.Fprintf(hash, "invalid %q ", s.Invalid)
	} else {
		sum := s.Config.Fingerprint(key, lookup)
		hash.Write(sum[:])
	}
	set := s.Settings
	if pins != "" {
		fmt.Fprintf(hash, "pins %s ", pins)
	}
	fmt.Fprintf(hash, "auth %q ", []any{set.Auth, fmt.Sprintf("%+v", set.OAuth), set.ForwardHeaders,
		set.InsecureForwardAuthorization})
	s.writeSettings(hash)
	return Fingerprint(hash.Sum(nil))
}
