package upstream

import (
	"context"
	"errors"
	"maps"
	"slices"
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
	"github.com/patchbay-mcp/patchbay/mcp"
)

// maxPools limits the sessions or principals whose lists of a server are kept.
const maxPools = 1000

func newPool(u *Server, c *policy.Caller) *Pool {
	p := &Pool{failures: u.failures, up: u, caller: c, instances: map[string]*instance{},
		requests: u.limits.NewQueue(false)}
	p.lists = listing.New(&listing.Options{Source: (*poolSource)(p), Review: p.reviewer(u.entry().pins),
		Memory: u.lists, Server: u.name, Shared: u.Share() == config.ShareShared, Context: u.env.Context,
		Go: u.env.Go, StartTimeout: func() time.Duration { return startTimeout(u) }, BeforeRead: p.refreshLogin,
		Drift: func(kind catalogue.Kind, old, now *catalogue.List) {
			u.env.free()
			recordDrift(p, kind, old, now)
		},
		Logger: u.env.Logger})
	return p
}

// refreshLogin checks again for a missing login: the user may log in with another process.
func (p *Pool) refreshLogin(ctx context.Context) {
	if p.failedLogin() {
		_ = p.CheckLogin(ctx) // the error of the connection says more
	}
}

// A poolSource is the [listing.Source] of a pool.
type poolSource Pool

// Acquire implements [listing.Source].
func (s *poolSource) Acquire(ctx context.Context, waits bool) (*connection.Conn, listing.Reviewer, error) {
	p := (*Pool)(s)
	for waited := false; ; waited = true {
		c, err := p.Acquire(ctx, AnyClass)
		switch {
		case waits && errors.Is(err, errProcesses) && waitFor(ctx, s.up.env.freed, processWait) == nil:
			continue
		case err != nil:
			return nil, nil, err
		case waited:
			s.up.env.free() // another process may be able to start
		}
		return c.Conn, p.reviewer(c.pins), nil
	}
}

// Failure implements [listing.Source].
func (s *poolSource) Failure(ctx context.Context, c *connection.Conn, err error) *hosterr.Error {
	for _, conn := range s.up.conns() {
		if conn.Conn == c && conn.at().peer != nil {
			err = hosterr.FromPeer(err, s.up.name)
		}
	}
	return s.up.Failure(ctx, err)
}

// Observe implements [listing.Source].
func (s *poolSource) Observe(c *connection.Conn, failed *hosterr.Error) {
	for _, s := range s.up.conns() {
		if s.Conn == c {
			s.observe(failed)
		}
	}
}

// isWatched reports whether callers hold subscriptions that need a connection. Subscriptions to
// lists need no connection to a command: lists do not change while the process does not run.
func (p *Pool) isWatched() bool {
	lists, resources := p.lists.HasListeners()
	return resources || lists && !p.up.isCommand()
}

// Connect connects to the server of a pool.
func (p *Pool) Connect(ctx context.Context) {
	p.Restore(ctx)
	p.lists.Connect(ctx)
}

// Server returns the server of the pool.
func (p *Pool) Server() *Server { return p.up }

// Entry returns the configuration of the server.
func (p *Pool) Entry() *server.Server { return p.up.entry().Server }

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

// Forwarded returns the headers of the caller that requests of the host itself send to the server.
func (p *Pool) Forwarded() *login.Forwarded { return &p.forwarded }

// Schema returns the parsed schemas of a tool of the server.
func (p *Pool) Schema(item *catalogue.Item) *catalogue.Schema { return p.up.lists.Schema(item) }

// poolKey returns the key of the pool that serves a caller.
func (u *Server) poolKey(c *policy.Caller) string {
	switch u.Share() {
	case config.ShareShared:
		return ""
	case config.ShareSession:
		return server.JoinKey(c.Key(), c.Session)
	}
	if c.Workspace != "" && u.usesWorkspace() {
		return server.JoinKey(c.Key(), "workspace", c.Workspace)
	}
	return server.JoinKey(c.Key())
}

// Pool returns the pool of a caller.
func (u *Server) Pool(c *policy.Caller) *Pool {
	u.mu.Lock()
	defer u.mu.Unlock()
	return u.poolOf(c)
}

func (u *Server) poolOf(c *policy.Caller) *Pool {
	key := u.poolKey(c)
	p := u.pools[key]
	if p == nil {
		if len(u.pools) >= maxPools {
			u.evictPoolLocked()
		}
		p = newPool(u, c)
		p.key, p.used = key, time.Now()
		u.pools[key] = p
	}
	return p
}

// presentLocked returns the present pool of the caller of p, which replaces p if p was unused and removed.
func (u *Server) presentLocked(p *Pool, now time.Time) *Pool {
	q := u.pools[p.key]
	if q == nil {
		q = u.poolOf(p.caller)
		q.requests = p.requests // views hold the other pool
	}
	q.used = now
	return q
}

// Connected returns the pools with connections.
func (u *Server) Connected() map[*Pool]struct{} {
	pools := map[*Pool]struct{}{}
	for _, s := range u.conns() {
		pools[s.in.pool] = struct{}{}
	}
	return pools
}

// AllPools returns the pools of all callers.
func (u *Server) AllPools() []*Pool {
	u.mu.Lock()
	defer u.mu.Unlock()
	return slices.Collect(maps.Values(u.pools))
}

// PoolOfConnection returns the pool of the connection with an ID, see [Conn.ServedID], or nil after the end of the
// connection.
func (u *Server) PoolOfConnection(id string) *Pool {
	for _, s := range u.conns() {
		if s.ServedID() == id {
			return s.in.pool
		}
	}
	return nil
}

// evictPoolLocked removes the least recently used pool without connections and subscriptions of the
// principal that holds the most pools.
func (u *Server) evictPoolLocked() {
	connected := map[*Pool]struct{}{}
	for s := range u.connections {
		connected[s.in.pool] = struct{}{}
	}
	counts := map[string]int{}
	for _, p := range u.pools {
		counts[p.caller.Key()]++
	}
	var oldest *Pool
	most := 0
	for _, p := range u.pools {
		n := counts[p.caller.Key()]
		if n < most || n == most && oldest != nil && !p.used.Before(oldest.used) {
			continue
		}
		if _, ok := connected[p]; !ok && !p.isWatched() {
			oldest, most = p, n
		}
	}
	if oldest != nil {
		oldest.lists.Retire()
		delete(u.pools, oldest.key)
	}
}

// PoolsOf returns the pools whose requests the login of a principal authorizes.
func (u *Server) PoolsOf(p *mcp.Principal) (all []*Pool) {
	return slices.DeleteFunc(u.AllPools(), func(pool *Pool) bool { return !u.logins.Authorizes(p, pool.Caller()) })
}
