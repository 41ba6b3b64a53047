package host

import (
	"context"
	"slices"
	"strings"

	"github.com/patchbay-mcp/patchbay/mcp"
)

// A Caller is the party that requests are made for. Its members decide which instances of the
// servers serve it: nothing of one principal reaches the instances of another, except those of
// servers that the configuration shares.
type Caller struct {
	// Principal is the authenticated caller, nil for the local user.
	Principal *mcp.Principal
	// Session identifies the session or connection of the caller, empty if it has none. Only servers
	// with "share": "session" depend on it.
	Session string
	// Profile is the name of a profile of the configuration: the servers and tools that the caller
	// sees. Default: all.
	Profile string
	// Server is the name of the only server that the caller sees, with its names and URIs unchanged. A
	// profile must have it, too.
	Server string
}

type callerKey struct{}

// CallerFrom returns the caller whose request ctx belongs to, or nil. It is for [Options.Dial] and
// the middleware of [Options.Client].
func CallerFrom(ctx context.Context) *Caller {
	c, _ := ctx.Value(callerKey{}).(*Caller)
	return c
}

// principal returns a key that is unequal for different principals.
func (c *Caller) principal() string { return c.Principal.Key() }

// viewKey returns a key of the view: callers with equal keys share it.
func (c *Caller) viewKey(sessions bool) string {
	parts := []string{c.principal(), c.Profile, c.Server, ""}
	if sessions {
		parts[3] = c.Session
	}
	if c.Principal != nil {
		scopes := slices.Clone(c.Principal.Scopes)
		slices.Sort(scopes)
		parts = append(parts, scopes...)
	}
	return joinKey(parts...)
}

var keyEscapes = strings.NewReplacer(`\`, `\\`, "\x00", `\0`)

// joinKey joins texts such that different texts have different keys.
func joinKey(parts ...string) string {
	var b strings.Builder
	for _, part := range parts {
		b.WriteString(keyEscapes.Replace(part))
		b.WriteByte(0)
	}
	return b.String()
}
