package authserver

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"time"

	"github.com/patchbay-mcp/patchbay/mcp"
)

// An ProviderToken is an access token of a third party, for its API alone.
type ProviderToken struct {
	Provider string    // the ID of the [Provider]
	Token    string    // a secret
	Type     string    // how it is sent, mostly "Bearer"
	Expires  time.Time // zero if the third party did not say
}

// String tells whose token it is, and not the token.
func (t ProviderToken) String() string { return "token of " + t.Provider }

// GoString is String.
func (t ProviderToken) GoString() string { return t.String() }

// LogValue is String, for logs.
func (t ProviderToken) LogValue() slog.Value { return slog.StringValue(t.String()) }

// ErrNoProviderToken is the error for a principal whom no third party gave anything, or not for this resource.
var ErrNoProviderToken = errors.New("authserver: no third party gave anything for this principal and resource")

// ProviderToken returns a token with which the server of a resource acts for a principal at the third party that the
// principal logged in by. The principal must come from the server's own tokens for that very resource. The token has a
// minute left to live at least, or half its life if that is less, while the third party answers and renews it, and never
// has expired; it must never be passed on to the client.
//
// The error is [ErrNoProviderToken] or [ErrProviderGrantEnded], or what keeps the third party from answering.
//
// Spec: basic/authorization (2025-03-26), Session Binding Requirements; security best practices, Token Passthrough.
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
		return nil, fmt.Errorf("authserver: upstream token: %w", err)
	case g.Subject != p.Subject || g.Client != p.ClientID || resourceKey(g.Resource) != resourceKey(resource) || g.ProviderGrant == "":
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
		return nil, fmt.Errorf("authserver: upstream token: %w", err)
	case kept == nil:
		return nil, ErrProviderGrantEnded
	case kept.Subject != g.Subject || kept.Client != g.Client || resourceKey(kept.Resource) != resourceKey(resource):
		return nil, ErrNoProviderToken
	case !kept.Expires.IsZero() && !time.Now().Before(kept.Expires):
		return nil, errors.New("authserver: upstream token: it has expired, and cannot be renewed for now")
	}
	return &ProviderToken{Provider: kept.Provider, Token: kept.Access, Type: kept.Type, Expires: kept.Expires}, nil
}
