package authserver

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"time"

	"github.com/patchbay-mcp/patchbay/mcp"
)

// A ProviderToken is an access token for the API of a [Provider].
type ProviderToken struct {
	Provider string    // Provider.ID
	Token    string    // a secret
	Type     string    // usually "Bearer"
	Expires  time.Time // zero if unknown
}

// String returns a description without the token.
func (t ProviderToken) String() string { return "token of " + t.Provider }

// GoString returns the same as String.
func (t ProviderToken) GoString() string { return t.String() }

// LogValue returns the same as String.
func (t ProviderToken) LogValue() slog.Value { return slog.StringValue(t.String()) }

// ErrNoProviderToken reports that there is no grant of a provider for a principal and a resource.
var ErrNoProviderToken = errors.New("authserver: no provider token for this principal and resource")

// ProviderToken returns an access token for the API of the identity provider that a principal
// logged in with. The principal must come from a token of this server for that resource. The token
// has not expired. It is valid for at least another minute, or half its lifetime if that is less,
// unless the provider is unavailable for a renewal. It must not be passed to the client.
//
// The error is [ErrNoProviderToken], [ErrProviderGrantEnded], or that of a failed request.
//
// Spec: basic/authorization (2025-03-26), Session Binding Requirements; security best practices,
// Token Passthrough.
func (s *Server) ProviderToken(ctx context.Context, resource string, p *mcp.Principal) (*ProviderToken, error) {
	u, ok := s.providerLogin.(*providerLogin)
	if !ok || p == nil || p.Issuer != s.o.Issuer {
		return nil, ErrNoProviderToken
	}
	id, _ := p.Claims[ClaimGrant].(string)
	g, err := s.grant(ctx, id)
	switch {
	case errors.Is(err, errNoGrant):
		return nil, ErrNoProviderToken
	case err != nil:
		return nil, fmt.Errorf("authserver: provider token: %w", err)
	case g.Subject != p.Subject || g.Client != p.ClientID || resourceKey(g.Resource) != resourceKey(resource) ||
		g.ProviderGrant == "":
		return nil, ErrNoProviderToken
	}
	err = s.checkProviderGrant(ctx, g)
	if errors.Is(err, errNoGrant) {
		return nil, ErrProviderGrantEnded
	}
	var kept *providerGrant
	if err == nil {
		kept, _, err = u.load(ctx, g.ProviderGrant)
	}
	switch {
	case err != nil:
		return nil, fmt.Errorf("authserver: provider token: %w", err)
	case kept == nil:
		return nil, ErrProviderGrantEnded
	case kept.Subject != g.Subject || kept.Client != g.Client || resourceKey(kept.Resource) != resourceKey(resource):
		return nil, ErrNoProviderToken
	case !kept.Expires.IsZero() && !time.Now().Before(kept.Expires):
		return nil, errors.New("authserver: provider token: expired, and it cannot be renewed now")
	}
	return &ProviderToken{Provider: kept.Provider, Token: kept.Access, Type: kept.Type, Expires: kept.Expires}, nil
}
