package oauthclient

import (
	"context"
)

// A Grant is how a client obtains tokens: by a login of the user, which is the default, or with
// credentials of the program. Only this package implements it.
type Grant interface {
	// obtain requests tokens from an authorization server. The caller stores them.
	obtain(ctx context.Context, r *grantRequest) (*TokenSet, error)
}

// A grantRequest has the parameters of a grant.
type grantRequest struct {
	transport *Transport
	discovery *discovery
	scopes    []string // of the scope parameter; empty to omit it

	// awaitUser suspends the timeouts of all requests that wait for the tokens, until done is
	// called.
	awaitUser func() (done func())
}

// configured returns the client of the options, as the authorization server knows it. It is an
// error if there is none, or if it belongs to another authorization server.
func (r *grantRequest) configured(context.Context) (*Registration, error) {
	return r.transport.configured(r.discovery)
}

// tokenEndpoint returns the token endpoint of the authorization server, for a client.
func (r *grantRequest) tokenEndpoint(client *Registration) *tokenEndpoint {
	return r.transport.tokenEndpoint(r.discovery.Server, client, r.discovery.Resource, r.discovery.scope)
}
