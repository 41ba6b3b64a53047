package limits

import (
	"sync/atomic"
	"time"

	"github.com/patchbay-mcp/patchbay/host/config"
	"github.com/patchbay-mcp/patchbay/host/hosterr"
	"github.com/patchbay-mcp/patchbay/host/internal/observe"
)

// A Server applies the limits of one server, and counts the requests that they refuse. It is safe for
// concurrent use.
type Server struct {
	limits   *Limits
	name     string
	settings atomic.Pointer[config.ServerSettings]
	refused  observe.Counters[string] // by setting
}

// NewServer returns the limits of a server with a name of the configuration.
func (l *Limits) NewServer(name string, settings *config.ServerSettings) *Server {
	s := &Server{limits: l, name: name}
	s.settings.Store(settings)
	return s
}

// Configure changes the settings. The queues of the server must be updated afterwards.
func (s *Server) Configure(settings *config.ServerSettings) { s.settings.Store(settings) }

// Refuse returns the error of a request that a setting refuses, and counts it.
func (s *Server) Refuse(
	code hosterr.Code, setting string, after time.Duration, format string, args ...any,
) *hosterr.Error {
	s.Count(setting)
	e := hosterr.Errorf(code, s.name, format, args...)
	e.RetryAfter = after
	return e
}

// Count counts a request that a setting refuses.
func (s *Server) Count(setting string) { s.refused.Add(setting) }

// Refused returns the number of requests that each setting has refused.
func (s *Server) Refused() map[string]uint64 { return s.refused.All() }

// rounded rounds a time to wait for texts.
func rounded(d time.Duration) time.Duration {
	if d > time.Second {
		return d.Round(time.Second)
	}
	return d.Round(time.Millisecond)
}
