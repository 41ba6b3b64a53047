package host

import (
	"context"
	"fmt"
	"sync"

	"github.com/patchbay-mcp/patchbay/host/config"
	"github.com/patchbay-mcp/patchbay/internal/catalogue"
)

// An Upstream is a configured server. It is safe for concurrent use.
type Upstream struct {
	host     *Host
	name     string
	server   *config.Server // unexpanded; nil if the entry is invalid
	settings *config.ServerSettings
	invalid  error  // of the entry
	id       string // in public names
	schemas  toolSchemas
	options  *catalogue.ServerOptions // never changes, so that catalogues share definitions

	mu    sync.Mutex // guards pools
	pools map[string]*pool
}

func newUpstream(h *Host, f *config.File, name string) *Upstream {
	u := &Upstream{host: h, name: name, settings: h.settings.Servers[name], pools: map[string]*pool{}}
	if u.settings == nil {
		u.settings = &config.ServerSettings{}
	}
	u.server, u.invalid = f.Server(name)
	u.id = f.ID(name)
	u.options = &catalogue.ServerOptions{Allow: u.settings.Allow, Deny: u.settings.Deny, Rename: u.settings.Rename,
		Describe: u.settings.Describe, HideArgs: u.settings.HideArgs}
	return u
}

// Name returns the name of the server in the configuration.
func (u *Upstream) Name() string { return u.name }

// expanded returns the entry with its variables replaced.
func (u *Upstream) expanded(ctx context.Context) (*config.Server, error) {
	if u.invalid != nil {
		return nil, u.invalid
	}
	return u.server.Expand(ctx, u.host.opts.Lookup)
}

// share returns the sharing mode. A process serves one caller unless the configuration says
// otherwise.
func (u *Upstream) share() config.Share {
	if u.settings.Share != "" {
		return u.settings.Share
	}
	return config.ShareCaller
}

// poolKey returns the key of the pool that serves a caller.
func (u *Upstream) poolKey(c *Caller) string {
	switch u.share() {
	case config.ShareShared:
		return ""
	case config.ShareSession:
		return joinKey(c.principal(), c.Session)
	}
	return joinKey(c.principal())
}

// pool returns the pool of a caller.
func (u *Upstream) pool(c *Caller) *pool {
	key := u.poolKey(c)
	u.mu.Lock()
	defer u.mu.Unlock()
	p := u.pools[key]
	if p == nil {
		p = newPool(u, c)
		u.pools[key] = p
	}
	return p
}

func (u *Upstream) close() {
	u.mu.Lock()
	pools := u.pools
	u.pools = nil
	u.mu.Unlock()
	var wait sync.WaitGroup
	for _, p := range pools {
		wait.Go(p.close)
	}
	wait.Wait()
}

func (u *Upstream) errorf(code ErrorCode, format string, args ...any) *Error {
	return &Error{Code: code, Server: u.name, Err: fmt.Errorf(format, args...)}
}
