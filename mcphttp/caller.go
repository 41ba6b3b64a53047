package mcphttp

import (
	"net/http"

	"github.com/patchbay-mcp/patchbay/mcp"
)

// A caller identifies the sender of a request for limits. Requests with equal callers count for the
// same share of a limit.
type caller struct {
	key         string // empty for an anonymous caller that cannot be distinguished from others
	isAnonymous bool
}

// caller returns the caller of a request: its principal or, without one, its AnonymousKey.
func (h *Handler) caller(r *http.Request, principal *mcp.Principal) caller {
	if key := principal.Key(); key != "" {
		return caller{key: key}
	}
	c := caller{isAnonymous: true}
	if h.opts.AnonymousKey != nil {
		c.key = h.opts.AnonymousKey(r)
	}
	return c
}
