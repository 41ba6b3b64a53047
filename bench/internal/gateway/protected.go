package gateway

import (
	"context"
	"net/http"
	"strconv"
	"time"

	"github.com/patchbay-mcp/patchbay/gateway"
	"github.com/patchbay-mcp/patchbay/mcphttp"
	"github.com/patchbay-mcp/patchbay/oauth"
)

const (
	issuer   = "http://127.0.0.1/issuer"
	resource = "http://127.0.0.1/mcp"
)

// A verifier contains the claims of each token. A verifier of signed tokens keeps the claims of tokens
// that it has verified in the same way.
type verifier map[string]*oauth.Token

func (v verifier) Verify(_ context.Context, token string) (*oauth.Token, error) {
	if t := v[token]; t != nil {
		return t, nil
	}
	return nil, oauth.ErrInvalidToken
}

// Protected returns a gateway over HTTP that identifies n principals by their tokens.
func Protected(s Servers, n int, token func(i int) string) (http.Handler, error) {
	h, err := Open(s)
	if err != nil {
		return nil, err
	}
	all := make(verifier)
	for i := range n {
		all[token(i)] = &oauth.Token{Issuer: issuer, Audience: []string{resource}, Subject: "caller-" + strconv.Itoa(i),
			Expires: time.Now().Add(time.Hour)}
	}
	front := gateway.New(h, &gateway.Options{})
	protect := oauth.Require(all, oauth.ResourceMetadata{Resource: resource, AuthorizationServers: []string{issuer}},
		&oauth.RequireOptions{Issuers: []string{issuer}})
	return protect(mcphttp.NewHandler(front.Endpoint(gateway.Route{}), nil)), nil
}
