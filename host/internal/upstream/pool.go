package upstream

import (
	"context"
	"time"

	"github.com/patchbay-mcp/patchbay/host/config"
	"github.com/patchbay-mcp/patchbay/host/hosterr"
	"github.com/patchbay-mcp/patchbay/host/internal/catalogue"
	"github.com/patchbay-mcp/patchbay/host/internal/connection"
	"github.com/patchbay-mcp/patchbay/host/internal/limits"
	"github.com/patchbay-mcp/patchbay/host/internal/listing"
	"github.com/patchbay-mcp/patchbay/host/internal/login"
	"github.com/patchbay-mcp/patchbay/host/internal/server"
	"github.com/patchbay-mcp/patchbay/host/policy"
)

// A Pool holds the connections of a server for one caller, or for all callers of a shared server, and
// their lists.
type Pool struct {
	up     *Server
	caller *policy.Caller
	key    string // see [Server.poolKey]
	lists  *listing.Lists

	// The lock of the upstream guards instances, used and latest.
	instances map[string]*instance
	used      time.Time // by a request
	latest    string    // the class of the latest request, for servers with classes

	requests *limits.Queue // see queue

	forwarded login.Forwarded
}

func newPool(u *Server, c *policy.Caller) *Pool {
	p := &Pool{up: u, caller: c, instances: map[string]*instance{}, requests: u.limits.NewQueue(false)}
	p.lists = listing.New(&listing.Options{Source: (*poolSource)(p), Review: p.reviewer(u.entry().pins),
		Memory: u.lists, Server: u.name, Shared: u.Share() == config.ShareShared, Context: u.servers.Context,
		Go: u.servers.Go, StartTimeout: u.startTimeout, BeforeRead: p.refreshLogin,
		Drift: p.recordDrift, Logger: u.servers.Logger})
	return p
}

// refreshLogin checks a login that is missing again: the user may have logged in with another process.
func (p *Pool) refreshLogin(ctx context.Context) {
	if p.failedLogin() {
		_ = p.CheckLogin(ctx) // the error of the connection says more
	}
}

// A poolSource is the [listing.Source] of a pool.
type poolSource Pool

// Acquire implements [listing.Source].
func (s *poolSource) Acquire(ctx context.Context) (*connection.Conn, listing.Reviewer, error) {
	p := (*Pool)(s)
	c, err := p.Acquire(ctx, AnyClass)
	if err != nil {
		return nil, nil, err
	}
	return c.Conn, p.reviewer(c.pins), nil
}

// Failure implements [listing.Source].
func (s *poolSource) Failure(ctx context.Context, err error) *hosterr.Error {
	return s.up.failure(ctx, err)
}

// Observe implements [listing.Source].
func (s *poolSource) Observe(c *connection.Conn, failed *hosterr.Error) {
	for _, s := range s.up.conns() {
		if s.Conn == c {
			s.observe(failed)
		}
	}
}

// isWatched reports whether callers have subscriptions that need a connection. Subscriptions to lists need
// no connection to a command: a process that does not run changes no lists.
func (p *Pool) isWatched() bool {
	lists, resources := p.lists.HasListeners()
	return resources || lists && !p.up.isCommand()
}

// Connect connects to the server of a pool.
func (p *Pool) Connect(ctx context.Context) {
	p.Restore(ctx)
	p.lists.Connect(ctx)
}

// Offers returns what a pool offers.
func (p *Pool) Offers(lists [catalogue.Kinds]*catalogue.List) catalogue.Server {
	e, about := p.up.entry(), p.lists.About()
	return catalogue.Server{Name: p.up.name, ID: e.ID, Lists: lists, Options: e.Options,
		Capabilities: about.Capabilities, Instructions: about.Instructions}
}

// Name returns the name of the server in the configuration.
func (p *Pool) Name() string { return p.up.name }

// Server returns the server of the pool.
func (p *Pool) Server() *Server { return p.up }

// Entry returns the configuration of the server.
func (p *Pool) Entry() *server.Server { return p.up.entry().Server }

// Settings returns the settings of the server.
func (p *Pool) Settings() *config.ServerSettings { return p.up.entry().Settings }

// IsCommand reports whether the server is a command, so that each connection is a process.
func (p *Pool) IsCommand() bool { return p.up.isCommand() }

// Share returns the sharing mode of the server.
func (p *Pool) Share() config.Share { return p.up.Share() }

// Caller returns the caller of the pool. For a shared server it is the first caller.
func (p *Pool) Caller() *policy.Caller { return p.caller }

// Lists returns the lists that the server offers to the caller.
func (p *Pool) Lists() *listing.Lists { return p.lists }

// Limits returns the limits of the server.
func (p *Pool) Limits() *limits.Server { return p.up.limits }

// Logins returns the credentials for the server.
func (p *Pool) Logins() *login.Server { return p.up.logins }

// Forwarded returns the headers of the caller that requests of the host itself send to the server.
func (p *Pool) Forwarded() *login.Forwarded { return &p.forwarded }

// Schemas returns the schemas of the server's tools.
func (p *Pool) Schemas() *catalogue.Schemas { return &p.up.schemas }

// Errorf returns an error about the server. Callers may see its text.
func (p *Pool) Errorf(code hosterr.Code, format string, args ...any) *hosterr.Error {
	return p.up.errorf(code, format, args...)
}

// Failure returns the error of a request or connection that has no valid response.
func (p *Pool) Failure(ctx context.Context, err error) *hosterr.Error { return p.up.failure(ctx, err) }

// RequestError returns the error of a request: an [*hosterr.Error] if there is no valid response.
func (p *Pool) RequestError(ctx context.Context, err error) error { return p.up.requestError(ctx, err) }
