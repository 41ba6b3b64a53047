package oauthclient

import (
	"context"
	"errors"
	"net/url"
	"strings"

	"github.com/patchbay-mcp/patchbay/internal/oauthwire"
)

// NewClientCredentialsGrant returns the grant of programs that act for themselves and not for a person: the client shows its
// secret or signs with its key, and gets tokens. Its id, secret and issuer stand in [TransportOptions].Client:
//
//	t := oauth.NewTransport(endpoint, &oauth.TransportOptions{
//		Grant: oauth.NewClientCredentialsGrant(),
//		Client: oauth.Identity{
//			ID: "nightly", Secret: os.Getenv("CLIENT_SECRET"), Issuer: "https://auth.example.com",
//		},
//	})
//
// It is never registered, and no browser is opened; tokens that have ended are asked for again. The Grant is safe for
// concurrent use.
//
// Spec: extension io.modelcontextprotocol/oauth-client-credentials; RFC 6749, section 4.4.
func NewClientCredentialsGrant() Grant { return clientCredentials{} }

type clientCredentials struct{}

func (clientCredentials) obtain(ctx context.Context, r *grantRequest) (*TokenSet, error) {
	client, err := r.configured(ctx)
	if err != nil {
		return nil, err
	}
	endpoint := r.tokenEndpoint(client)
	method, err := endpoint.authMethod()
	if err != nil {
		return nil, err
	}
	if method == oauthwire.AuthNone {
		return nil, errors.New("oauth: client credentials need a secret or a key of the client")
	}
	return endpoint.grant(ctx, scopedForm("client_credentials", r.scopes))
}

// grant asks for tokens by a grant that can be asked for again at any time. A refresh token, which nobody should give
// for one, is dropped: each renewal is to be decided anew by whoever vouches for the client.
//
// Spec: RFC 6749, section 4.4.3; RFC 7521, section 4.1.
func (e *tokenEndpoint) grant(ctx context.Context, form url.Values) (*TokenSet, error) {
	if err := e.prover.CheckServer(e.server.DPoPAlgorithms); err != nil {
		return nil, err
	}
	set, err := e.request(ctx, form)
	if err != nil {
		return nil, err
	}
	set.RefreshToken = ""
	return set, nil
}

// scopedForm begins the form of a token request.
func scopedForm(grant string, scopes []string) url.Values {
	form := url.Values{"grant_type": {grant}}
	if len(scopes) > 0 {
		form.Set("scope", strings.Join(scopes, " "))
	}
	return form
}
