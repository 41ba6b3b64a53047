package login

import (
	"net/http"
	"slices"
	"strings"
	"sync"

	"github.com/patchbay-mcp/patchbay/host/internal/server"
	"github.com/patchbay-mcp/patchbay/oauth/oauthclient"
)

// oauthOptions returns the options of logins and requests at the server, without a store.
func (s *Server) oauthOptions(e *server.Server) oauthclient.TransportOptions {
	o := oauthclient.TransportOptions{}
	if s.logins.opts.OAuth != nil && e.Config != nil {
		o = *s.logins.opts.OAuth(e.Config)
	}
	set := &e.Settings.OAuth
	if set.ClientID != "" {
		o.Client.ID, o.Client.Secret = set.ClientID, ""
		if set.ClientSecret != "" {
			o.Client.Secret, _ = s.logins.opts.Lookup(set.ClientSecret)
			s.opts.KeepSecrets([]string{o.Client.Secret})
		}
	}
	if set.Issuer != "" {
		o.Client.Issuer = set.Issuer
		o.Client.InsecureUnlistedPKCE, o.Client.OmitResource = set.InsecureUnlistedPKCE, set.OmitResource
	}
	o.Scopes = append(slices.Clone(o.Scopes), set.Scopes...)
	o.WholeOrigin = true // all requests are of MCP; HTTP+SSE servers choose other paths
	if o.Logger == nil {
		o.Logger = s.logins.opts.Logger
	}
	return o
}

// base returns the round tripper below the credentials.
func (s *Server) base(e *server.Server) http.RoundTripper {
	if o := s.oauthOptions(e); o.Base != nil {
		return o.Base
	}
	return defaultBase()
}

// defaultBase sends requests of servers without [Options.OAuth]. It follows no redirects.
var defaultBase = sync.OnceValue(func() http.RoundTripper {
	return http.DefaultTransport.(*http.Transport).Clone()
})

// authorizedOnly sends no request without a token: a server may accept it for an anonymous session,
// which later requests of the caller would use.
type authorizedOnly struct {
	credential *Credential
	base       http.RoundTripper
}

// RoundTrip sends a request, or responds as a server that requires a token.
func (a *authorizedOnly) RoundTrip(r *http.Request) (*http.Response, error) {
	if value := r.Header.Get("Authorization"); value != "" {
		a.credential.sent(value)
		return a.base.RoundTrip(r)
	}
	if r.Body != nil {
		_ = r.Body.Close()
	}
	return &http.Response{Status: "401 Unauthorized", StatusCode: http.StatusUnauthorized, Proto: "HTTP/1.1",
		ProtoMajor: 1, ProtoMinor: 1, Header: http.Header{}, Body: http.NoBody, Request: r}, nil
}

// CloseIdleConnections closes idle connections.
func (a *authorizedOnly) CloseIdleConnections() {
	if c, ok := a.base.(interface{ CloseIdleConnections() }); ok {
		c.CloseIdleConnections()
	}
}

// maxTokens limits the tokens of a principal that are masked. A server can repeat only the tokens of
// requests in progress: the last token, or the token before.
const maxTokens = 4

// minToken is the length of the shortest token that is masked, in bytes: to replace a shorter one would
// change other texts.
const minToken = 8

// sent notes the token of a request.
func (c *Credential) sent(authorization string) {
	_, token, _ := strings.Cut(authorization, " ")
	for {
		old := c.tokens.Load()
		var all []string
		if old != nil {
			all = *old
		}
		if len(token) < minToken || slices.Contains(all, token) {
			return
		}
		all = append(slices.Clone(all), token)
		all = all[max(0, len(all)-maxTokens):]
		if c.tokens.CompareAndSwap(old, &all) {
			return
		}
	}
}
