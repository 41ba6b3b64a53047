package mcp

import "context"

// A Principal is the authenticated caller of a request. Authorization middleware puts it into the context of the HTTP
// request; the transport hands it on as [Request.Principal]. A nil Principal is an anonymous caller.
//
// Issuer, Subject and ClientID together identify the principal: sessions, request state and subscriptions are bound to
// them and survive a new token for the same three. A Principal is not changed once it is in a context.
type Principal struct {
	Issuer   string         // who vouches for Subject
	Subject  string         // the user or machine
	ClientID string         // the application that acts for it
	Scopes   []string       // what the token allows
	Claims   map[string]any // further verified claims
}

// Key identifies the principal in one string: equal for two tokens of the same caller, different for different
// callers. It is empty for nil.
func (p *Principal) Key() string {
	if p == nil {
		return ""
	}
	// NUL cannot stand in any of the three, so no two principals share a key.
	return p.Issuer + "\x00" + p.Subject + "\x00" + p.ClientID
}

type principalKey struct{}

// WithPrincipal returns a context that carries the authenticated caller. It is for authorization middleware.
func WithPrincipal(ctx context.Context, p *Principal) context.Context {
	return context.WithValue(ctx, principalKey{}, p)
}

// PrincipalFrom returns the authenticated caller of the context, or nil.
func PrincipalFrom(ctx context.Context) *Principal {
	p, _ := ctx.Value(principalKey{}).(*Principal)
	return p
}
