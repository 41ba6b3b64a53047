package host

import (
	"context"
	"runtime"
	"time"

	"github.com/patchbay-mcp/patchbay/host/internal/connection"
	"github.com/patchbay-mcp/patchbay/host/policy"
	"github.com/patchbay-mcp/patchbay/mcp"
	"github.com/patchbay-mcp/patchbay/oauth/oauthclient"
)

// Sizes returns the number of views and of pools that a host keeps.
func Sizes(h *Host) (views, pools int) {
	h.mu.Lock()
	defer h.mu.Unlock()
	for _, u := range h.servers.Current().Servers() {
		u.mu.Lock()
		pools += len(u.pools)
		u.mu.Unlock()
	}
	return len(h.views.views), pools
}

// EndBackoff lets the next start of a server begin at once, without an end of a crash loop.
func EndBackoff(up *Upstream) {
	u := up.server
	u.mu.Lock()
	defer u.mu.Unlock()
	u.delay.Until = time.Time{}
	for _, p := range u.pools {
		for _, i := range p.instances {
			if i.state != connection.StateCrashLoop {
				i.backoff.Until = time.Time{}
			}
		}
	}
}

// ResponseOf returns what a client receives for an error.
func ResponseOf(v *View, method string, err error) (mcp.Result, error) {
	return v.response(context.Background(), method, err)
}

// LockInstances locks the instances of a server.
func LockInstances(h *Host, server string) (unlock func()) {
	u := h.servers.Current().Named(server)
	u.mu.Lock()
	return u.mu.Unlock
}

// WaitForLogin returns what happens at the end of a login of a caller, and a channel that is closed when the
// requests that wait for it go on.
func WaitForLogin(
	ctx context.Context, h *Host, server string, c *policy.Caller,
) (loggedIn func(), woken <-chan struct{}, err error) {
	cred, err := h.servers.Current().Named(server).logins.Of(ctx, c)
	if err != nil {
		return nil, nil, err
	}
	return cred.LoggedIn, cred.Waiting(), nil
}

// FailLogin begins a login of a caller, which fails. The result reports whether it is kept for requests that come
// back.
func FailLogin(ctx context.Context, h *Host, server string, c *policy.Caller) (kept func() bool, err error) {
	cred, err := h.servers.Current().Named(server).logins.Of(ctx, c)
	if err != nil {
		return nil, err
	}
	l, err := h.logins.Begin(cred, nil)
	if err != nil {
		return nil, err
	}
	l.Finish(oauthclient.ErrLoginTimeout)
	return func() bool { return h.logins.ByID(c.Principal.Key(), l.ID()) == l }, nil
}

// ListBytes returns the size of the lists that a server's callers use.
func ListBytes(u *Upstream) int {
	runtime.GC()
	return u.server.lists.Bytes()
}
