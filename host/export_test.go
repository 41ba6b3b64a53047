package host

import (
	"context"
	"runtime"

	"github.com/patchbay-mcp/patchbay/host/policy"
	"github.com/patchbay-mcp/patchbay/mcp"
	"github.com/patchbay-mcp/patchbay/oauth/oauthclient"
)

// Sizes returns the number of views and of pools that a host keeps.
func Sizes(h *Host) (views, pools int) {
	for _, u := range h.servers.Current().Servers() {
		pools += len(u.AllPools())
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	return len(h.views), pools
}

// EndBackoff lets the next start of a server begin at once, without an end of a crash loop.
func EndBackoff(u *Upstream) { u.server.EndDelays() }

// ResponseOf returns what a client receives for an error.
func ResponseOf(v *View, method string, err error) (mcp.Result, error) {
	return v.response(context.Background(), method, err)
}

// FailLogin begins a login of a caller, which fails. The result reports whether it is kept for requests that come
// back.
func FailLogin(ctx context.Context, h *Host, server string, c *policy.Caller) (kept func() bool, err error) {
	cred, err := h.servers.Current().Named(server).Logins().Of(ctx, c)
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
	return u.server.ListBytes()
}
