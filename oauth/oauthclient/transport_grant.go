package oauthclient

import (
	"context"
)

// A Grant is how a client comes by tokens: by asking a person in the browser, which is the default, or by something that
// the program holds. Only this package makes them.
type Grant interface {
	// obtain asks an authorization server for tokens. What it returns is stored by the caller.
	obtain(ctx context.Context, r *grantRequest) (*TokenSet, error)
}

// A grantRequest is what a grant is asked for.
type grantRequest struct {
	transport *Transport
	discovery *discovery
	scopes    []string // to ask for, in the scope parameter; empty leaves it out

	// awaitUser stops the time limits of all requests that wait for the tokens, until done is called.
	awaitUser func() (done func())
}

// configured returns the client that the options name, as the authorization server knows it. It is an error if there is
// none, or if it belongs to another authorization server.
func (r *grantRequest) configured(context.Context) (*Registration, error) {
	return r.transport.configured(r.discovery)
}

// tokenEndpoint returns the token endpoint of the authorization server, for a client. Resource and proofs are as the
// server and the options want them.
func (r *grantRequest) tokenEndpoint(client *Registration) *tokenEndpoint {
	return r.transport.tokenEndpoint(r.discovery.Server, client, r.discovery.Resource, r.discovery.scope)
}
