package page

import (
	"context"
	"errors"
	"log/slog"
	"net/http"
	"sync"

	"github.com/patchbay-mcp/patchbay/gateway"
	"github.com/patchbay-mcp/patchbay/gateway/cmd/patchbay/internal/adminclient"
	"github.com/patchbay-mcp/patchbay/mcp"
)

// A Site contains the values and services that the screens of a console share. It is safe for
// concurrent use.
type Site struct {
	Logger *slog.Logger
	// Opens reports whether a principal may use a server. Default: every principal may use all servers.
	Opens func(p *mcp.Principal, server string) bool
	// AssetURL returns the URL of a file in assets, AssetsDigest is the digest of the files, and
	// HasPath reports whether the console has a path. They must be set before [Site.Render].
	AssetURL     func(name string) string
	AssetsDigest string
	HasPath      func(path string) bool

	admin   func(p *mcp.Principal) *http.Client
	ctx     context.Context // ends with End
	cancel  context.CancelFunc
	running sync.WaitGroup // goroutines of Background

	mu      sync.Mutex    // guards the fields below
	ended   bool          // Background starts no goroutine any more
	changed chan struct{} // closed by Changed
}

// NewSite returns a Site. admin returns a client of the admin API, whose records name the
// principal. The caller must call End.
func NewSite(admin func(p *mcp.Principal) *http.Client, log *slog.Logger) *Site {
	s := &Site{admin: admin, Logger: log, changed: make(chan struct{})}
	s.ctx, s.cancel = context.WithCancel(context.Background())
	return s
}

// Request returns a request of a person for [Route.View], [Route.Act] and [Route.Serve].
func (s *Site) Request(r *http.Request, p *mcp.Principal, role Role) *Request {
	return &Request{Request: r, Principal: p, Role: role, site: s}
}

// Context returns a context that ends with the console.
func (s *Site) Context() context.Context { return s.ctx }

// Background calls run in a goroutine, for which the end of the console waits. The context ends
// with the console, and run must return then.
func (s *Site) Background(run func(ctx context.Context)) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if !s.ended {
		s.running.Go(func() { run(s.ctx) })
	}
}

// Cancel ends the context of the site, and does not wait.
func (s *Site) Cancel() { s.cancel() }

// End ends the goroutines of Background, and waits for them.
func (s *Site) End() {
	s.cancel()
	s.mu.Lock()
	s.ended = true
	s.mu.Unlock()
	s.running.Wait()
}

// Changed tells the streams to render their fragments again.
func (s *Site) Changed() {
	s.mu.Lock()
	defer s.mu.Unlock()
	close(s.changed)
	s.changed = make(chan struct{})
}

// Wait returns a channel that the next Changed closes.
func (s *Site) Wait() <-chan struct{} {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.changed
}

// Call sends a request to the admin API as the principal p, nil for the local user. body is encoded
// as JSON, nil for none, and the response is decoded into v, which may be nil. It returns a
// [*gateway.Problem] for a response with an error.
func (s *Site) Call(ctx context.Context, p *mcp.Principal, method, path string, body, v any) error {
	return adminclient.Do(ctx, s.admin(p), method, path, body, v)
}

// ErrorText returns the text of an error for a person, with hidden characters escaped.
func ErrorText(err error) string {
	var p *gateway.Problem
	if errors.As(err, &p) {
		return Escape(p.Detail)
	}
	return Escape(err.Error())
}
