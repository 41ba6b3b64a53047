//go:build linux

package main

import (
	"context"
	"encoding/json"
	"math/rand/v2"
	"net"
	"net/http"
	"time"

	"github.com/patchbay-mcp/patchbay/mcphttp"
	"github.com/patchbay-mcp/patchbay/oauth"
)

// introspectionTime is how long the authorization server takes for an answer on average.
const introspectionTime = 20 * time.Millisecond

// serveIntrospection serves MCP to callers whose tokens are verified by an authorization server, which
// knows one token.
func serveIntrospection(l net.Listener, as string) error {
	endpoint := "http://" + as
	v := oauth.NewIntrospectionVerifier(endpoint, &oauth.IntrospectionOptions{
		Endpoint: endpoint, ClientID: "me", ClientSecret: "secret",
		Fetcher: oauth.NewFetcher(&oauth.FetcherOptions{InsecureAnyAddress: true, Logger: discardLogger}),
	})
	return serveVerified(l, v, endpoint)
}

// introspectionEndpoint is the name of the authorization server of the part introspection.
const introspectionEndpoint = "introspection-endpoint"

func serveIntrospectionEndpoint(l net.Listener, _ string) error {
	return serveBounded(l, http.HandlerFunc(answerIntrospection))
}

func answerIntrospection(w http.ResponseWriter, r *http.Request) {
	time.Sleep(introspectionTime/2 + rand.N(introspectionTime))
	w.Header().Set("Content-Type", "application/json")
	now := time.Now()
	_ = json.NewEncoder(w).Encode(map[string]any{
		"active": r.PostFormValue("token") == "known", "sub": "ann", "aud": resourceURL, "client_id": "c",
		"iat": now.Unix(), "exp": now.Add(time.Hour).Unix(),
	})
}

// serveStatic serves MCP to callers with one known token, which is not verified by asking.
func serveStatic(l net.Listener, _ string) error {
	return serveVerified(l, staticVerifier{}, "https://as.example")
}

type staticVerifier struct{}

func (staticVerifier) Verify(_ context.Context, token string) (*oauth.Token, error) {
	if token != "known" {
		return nil, oauth.ErrInvalidToken
	}
	return &oauth.Token{Issuer: "https://as.example", Subject: "ann", Audience: []string{resourceURL}}, nil
}

func serveVerified(l net.Listener, v oauth.Verifier, issuer string) error {
	protect := oauth.Require(v, oauth.ResourceMetadata{Resource: resourceURL, AuthorizationServers: []string{issuer}},
		&oauth.RequireOptions{Logger: discardLogger})
	h := mcphttp.NewHandler(newServer(), &mcphttp.Options{Logger: discardLogger})
	return mcphttp.Serve(context.Background(), l, "/mcp", h, protect)
}
