package oauthclient

import (
	"context"
	"encoding/json"
	"errors"
	"net/url"
	"strings"

	"github.com/patchbay-mcp/patchbay/internal/oauthwire"
)

// A Grant is how a client obtains tokens: by a login of the user, which is the default, or with
// credentials of the program. Only this package implements it.
type Grant interface {
	// obtain requests tokens from an authorization server. The caller stores them.
	obtain(ctx context.Context, r *grantRequest) (*TokenSet, error)
	// extension returns the id of the extension that defines the grant; may be empty.
	extension() string
}

// Identifiers of the authorization extensions that clients declare; see [Transport.Extensions].
const (
	// ExtensionClientCredentials defines [NewClientCredentialsGrant].
	ExtensionClientCredentials = "io.modelcontextprotocol/oauth-client-credentials"
	// ExtensionEnterpriseManaged defines [NewEnterpriseGrant].
	ExtensionEnterpriseManaged = "io.modelcontextprotocol/enterprise-managed-authorization"
)

// Extensions returns the extension that defines the grant of the Transport, without settings; nil
// for a grant without an extension. It is for [mcp.ClientOptions].Extensions, so that the client
// declares it to the server:
//
//	c, err := mcp.Connect(ctx, transport, &mcp.ClientOptions{Extensions: login.Extensions()})
//
// Spec: basic (2026-07-28), Extensions.
func (t *Transport) Extensions() map[string]json.RawMessage {
	id := t.grant.extension()
	if id == "" {
		return nil
	}
	return map[string]json.RawMessage{id: json.RawMessage("{}")}
}

type grantRequest struct {
	transport *Transport
	discovery *discovery
	scopes    []string             // of the scope parameter; empty to omit it
	awaitUser func() (done func()) // see flow.awaitUser
}

func (r *grantRequest) tokenEndpoint(client *Registration) *tokenEndpoint {
	return r.transport.tokenEndpoint(r.discovery.Server, client, r.discovery.Resource, r.discovery.scope)
}

// NewClientCredentialsGrant returns the client credentials grant, for programs that act for
// themselves and not for a user: the client authenticates with its secret or key and gets tokens.
// Its id, secret and issuer are in [TransportOptions].Client:
//
//	login := oauthclient.NewTransport(endpoint, &oauthclient.TransportOptions{
//		Grant:  oauthclient.NewClientCredentialsGrant(),
//		Client: oauthclient.Identity{ID: "nightly", Secret: os.Getenv("CLIENT_SECRET"), Issuer: issuer},
//	})
//
// The client is never registered, and no browser is opened. Expired tokens are requested again. The
// Grant is safe for concurrent use.
//
// Spec: extension [ExtensionClientCredentials]; RFC 6749, section 4.4.
func NewClientCredentialsGrant() Grant { return clientCredentials{} }

type clientCredentials struct{}

func (clientCredentials) extension() string { return ExtensionClientCredentials }

func (clientCredentials) obtain(ctx context.Context, r *grantRequest) (*TokenSet, error) {
	client, err := r.transport.configured(r.discovery)
	if err != nil {
		return nil, err
	}
	endpoint := r.tokenEndpoint(client)
	method, err := endpoint.authMethod()
	if err != nil {
		return nil, err
	}
	if method == oauthwire.AuthNone {
		return nil, errors.New("oauth: the client credentials grant needs a client secret or a key")
	}
	return endpoint.grant(ctx, scopedForm("client_credentials", r.scopes))
}

// grant requests tokens by a grant that can be repeated at any time. It ignores a refresh token.
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

func scopedForm(grant string, scopes []string) url.Values {
	form := url.Values{"grant_type": {grant}}
	if len(scopes) > 0 {
		form.Set("scope", strings.Join(scopes, " "))
	}
	return form
}
