package host

import (
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"strconv"

	"github.com/patchbay-mcp/patchbay/host/internal/server"
	"github.com/patchbay-mcp/patchbay/host/internal/upstream"
	"github.com/patchbay-mcp/patchbay/host/policy"
)

// CallerFrom returns the caller whose request ctx belongs to, or nil. It is for [Options.Dial] and
// the middleware of [Options.Client]. If it is called while the host connects to a server, the host
// assumes that the lists of the server depend on the caller.
func CallerFrom(ctx context.Context) *policy.Caller {
	return upstream.CallerFrom(ctx)
}

// viewKey returns a key of the view: callers with equal keys share it.
func viewKey(c *policy.Caller, sessions bool) string {
	parts := append(make([]string, 0, viewKeyParts), c.Key(), c.Profile, c.Server, "",
		strconv.FormatBool(c.Single), c.Workspace, "", "")
	if sessions {
		parts[3] = c.Session
	}
	if c.IsLimited() {
		parts[6] = fmt.Sprintf("%q %q %t", c.Servers, c.Only, c.ReadOnly)
	}
	if c.Principal != nil {
		parts[7] = claimsKey(c.Principal.Claims)
		scopes := slices.Clone(c.Principal.Scopes)
		slices.Sort(scopes)
		parts = append(parts, scopes...)
	}
	return server.JoinKey(parts...)
}

// viewKeyParts is the capacity for the parts of the key of a view, with a few scopes.
const viewKeyParts = 12

// claimsKey returns a key that is unequal for different claims: a policy decides by them.
func claimsKey(claims map[string]any) string {
	switch len(claims) {
	case 0:
		return ""
	case 1: // that of a key of package gateway; without reflection
		for name, value := range claims {
			if text, ok := value.(string); ok {
				return server.JoinKey(name, text)
			}
		}
	}
	text, _ := json.Marshal(claims) // of JSON; others match no rule
	return string(text)
}
