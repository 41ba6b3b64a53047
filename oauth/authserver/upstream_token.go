package authserver

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"time"

	"github.com/patchbay-mcp/patchbay/mcp"
)

// An UpstreamToken is an access token of a third party, for its API alone.
type UpstreamToken struct {
	Upstream string    // the ID of the [Upstream]
	Token    string    // a secret
	Type     string    // how it is sent, mostly "Bearer"
	Expires  time.Time // zero if the third party did not say
}

// String tells whose token it is, and not the token.
func (t UpstreamToken) String() string { return "token of " + t.Upstream }

// GoString is String.
func (t UpstreamToken) GoString() string { return t.String() }

// LogValue is String, for logs.
func (t UpstreamToken) LogValue() slog.Value { return slog.StringValue(t.String()) }

// ErrNoUpstreamToken is the error for a principal whom no third party gave anything, or not for this resource.
var ErrNoUpstreamToken = errors.New("authserver: no third party gave anything for this principal and resource")

// UpstreamToken returns a token with which the server of a resource acts for a principal at the third party that the
// principal logged in by. The principal must come from the server's own tokens for that very resource. The token has a
// minute left to live at least, or half its life if that is less, while the third party answers and renews it, and never
// has expired; it must never be passed on to the client.
//
// The error is [ErrNoUpstreamToken] or [ErrUpstreamEnded], or what keeps the third party from answering.
//
// Spec: basic/authorization (2025-03-26), Session Binding Requirements; security best practices, Token Passthrough.
func (s *Server) UpstreamToken(ctx context.Context, resource string, p *mcp.Principal) (*UpstreamToken, error) {
	u, ok := s.delegate.(*upstreamLogin)
	if !ok || p == nil || p.Issuer != s.o.Issuer {
		return nil, ErrNoUpstreamToken
	}
	id, _ := p.Claims[ClaimGrant].(string)
	g, err := s.grant(ctx, id)
	switch {
	case errors.Is(err, errNoGrant):
		return nil, ErrNoUpstreamToken
	case err != nil:
		return nil, fmt.Errorf("authserver: upstream token: %w", err)
	case g.Subject != p.Subject || g.Client != p.ClientID || resourceKey(g.Resource) != resourceKey(resource) || g.Upstream == "":
		return nil, ErrNoUpstreamToken
	}
	err = s.checkUpstream(ctx, g)
	if errors.Is(err, errNoGrant) {
		return nil, ErrUpstreamEnded
	}
	var kept *upstreamGrant
	if err == nil {
		kept, _, err = u.load(ctx, g.Upstream)
	}
	switch {
	case err != nil:
		return nil, fmt.Errorf("authserver: upstream token: %w", err)
	case kept == nil:
		return nil, ErrUpstreamEnded
	case kept.Subject != g.Subject || kept.Client != g.Client || resourceKey(kept.Resource) != resourceKey(resource):
		return nil, ErrNoUpstreamToken
	case !kept.Expires.IsZero() && !time.Now().Before(kept.Expires):
		return nil, errors.New("authserver: upstream token: it has expired, and cannot be renewed for now")
	}
	return &UpstreamToken{Upstream: kept.Upstream, Token: kept.Access, Type: kept.Type, Expires: kept.Expires}, nil
}
