package login

import (
	"cmp"
	"context"
	"errors"
	"net/http"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/patchbay-mcp/patchbay/host/config"
	"github.com/patchbay-mcp/patchbay/host/hosterr"
	"github.com/patchbay-mcp/patchbay/host/internal/server"
	"github.com/patchbay-mcp/patchbay/host/operator"
	"github.com/patchbay-mcp/patchbay/host/policy"
	"github.com/patchbay-mcp/patchbay/mcp"
	"github.com/patchbay-mcp/patchbay/oauth/oauthclient"
)

// maxCredentials limits the credentials of a server. Evicted credentials are rebuilt from
// [Options.Tokens] when the caller returns.
const maxCredentials = 1000

// A Server contains the credentials for a server, by principal and URL. It is safe for concurrent
// use.
type Server struct {
	logins *Logins
	name   string
	opts   ServerOptions

	// The lock of the logins guards the fields below.
	all      map[credentialKey]*Credential
	entry    *server.Server // that endpoint belongs to
	endpoint string
}

// ServerOptions configure [Logins.NewServer].
type ServerOptions struct {
	// Entry returns the configuration of the server that is in force.
	Entry func() *server.Server
	// KeepSecrets adds texts that errors and records must not contain.
	KeepSecrets func(texts []string)
	// WithoutServer removes the name of the server from an error of the configuration.
	WithoutServer func(err error) error
	// Changed is called after a principal has logged in, before the requests that wait for it continue.
	Changed func(p *mcp.Principal)
}

// NewServer returns the credentials for a server of the configuration.
func (s *Logins) NewServer(name string, o ServerOptions) *Server {
	return &Server{logins: s, name: name, opts: o, all: map[credentialKey]*Credential{}}
}

type credentialKey struct{ principal, url string }

// A Credential is the login of a principal at a server, and authorizes its requests.
type Credential struct {
	server    *Server
	principal *mcp.Principal // nil for the local user
	url       string
	transport *oauthclient.Transport
	used      time.Time     // guarded by the lock of the logins
	changed   chan struct{} // guarded by the lock of the logins

	missing atomic.Bool // a login is required, as far as is known
	// tokens are the last tokens that were sent. Errors and records must not contain them.
	tokens atomic.Pointer[[]string]
}

// Principal returns the principal whose login authorizes the requests of a caller. ok is false if no
// login of the host authorizes them.
func (s *Server) Principal(e *server.Server, c *policy.Caller) (p *mcp.Principal, ok bool) {
	switch e.Settings.Auth {
	case config.AuthCaller:
		return c.Principal, true
	case config.AuthGateway:
		return nil, s.logins.opts.Dials
	}
	return nil, false
}

// Client returns the HTTP client of connections with an entry, for a caller. It is nil if the connections
// need no credentials of the host or the caller.
func (s *Server) Client(e *server.Server, c *policy.Caller, url string, f *Forwarded) *http.Client {
	if e.Settings.Auth == config.AuthForward {
		return &http.Client{Transport: Forward(f, s.base(e))}
	}
	principal, ok := s.Principal(e, c)
	if !ok {
		return nil
	}
	return &http.Client{Transport: s.credential(e, principal, url)}
}

// store returns the tokens of a principal.
func (s *Logins) store(principal string) oauthclient.Store {
	if s.opts.Tokens != nil {
		return s.opts.Tokens(principal)
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	store := s.stores[principal]
	if store == nil {
		store = oauthclient.NewMemoryStore()
		s.stores[principal] = store
	}
	return store
}

// credential returns the login of a principal at the server.
func (s *Server) credential(e *server.Server, p *mcp.Principal, url string) *Credential {
	key := credentialKey{p.Key(), url}
	c := s.use(key, nil)
	if c == nil {
		c = &Credential{server: s, principal: p, url: url, changed: make(chan struct{})}
		o := s.oauthOptions(e, p)
		if o.Base == nil {
			o.Base = defaultBase()
		}
		o.Base, o.Store, o.Authorizer = &authorizedOnly{c, o.Base}, s.logins.store(key.principal), nil
		c.transport = oauthclient.NewTransport(url, &o)
		c = s.use(key, c)
	}
	return c
}

// use returns the credential with a key. Without such a credential, it stores and returns made, unless
// made is nil. At most maxCredentials are kept: it removes the least recently used credential.
func (s *Server) use(key credentialKey, made *Credential) *Credential {
	s.logins.mu.Lock()
	defer s.logins.mu.Unlock()
	c := s.all[key]
	if c == nil && made != nil {
		if len(s.all) >= maxCredentials {
			var oldest *Credential
			for _, c := range s.all {
				if oldest == nil || c.used.Before(oldest.used) {
					oldest = c
				}
			}
			delete(s.all, credentialKey{oldest.principal.Key(), oldest.url})
		}
		c, s.all[key] = made, made
	}
	if c != nil {
		c.used = time.Now()
	}
	return c
}

// Forget removes the credentials after a change of the configuration.
func (s *Server) Forget() {
	s.logins.mu.Lock()
	defer s.logins.mu.Unlock()
	clear(s.all)
	s.entry = nil
}

// endpointOf returns the URL that logins at the server are for. It is expanded once for an entry.
func (s *Server) endpointOf(ctx context.Context, e *server.Server) (string, error) {
	s.logins.mu.Lock()
	url, known := s.endpoint, s.entry == e
	s.logins.mu.Unlock()
	if known {
		return url, nil
	}
	if e.Invalid != nil {
		return "", e.Invalid
	}
	url, err := e.Config.ExpandURL(ctx, s.logins.opts.Lookup)
	if err != nil {
		return "", err
	}
	s.SetEndpoint(e, url)
	return url, nil
}

// SetEndpoint sets the URL that logins at the server are for.
func (s *Server) SetEndpoint(e *server.Server, url string) {
	s.logins.mu.Lock()
	defer s.logins.mu.Unlock()
	s.entry, s.endpoint = e, url
}

// Of returns the login that the requests of a caller require, or nil. The error is an
// [*hosterr.Error].
func (s *Server) Of(ctx context.Context, c *policy.Caller) (*Credential, error) {
	e := s.opts.Entry()
	p, ok := s.Principal(e, c)
	if !ok {
		return nil, nil //nolint:nilnil // no login is needed
	}
	return s.at(ctx, e, p)
}

// at returns the login of a principal at the endpoint of an entry.
func (s *Server) at(ctx context.Context, e *server.Server, p *mcp.Principal) (*Credential, error) {
	url, err := s.endpointOf(ctx, e)
	if err != nil {
		return nil, &hosterr.Error{Code: hosterr.CodeConfigError, Server: s.name, Err: s.opts.WithoutServer(err)}
	}
	return s.credential(e, p, url), nil
}

// With returns the context of a request with the headers that the server receives.
func (s *Server) With(ctx context.Context, f *Forwarded, req *mcp.Request) context.Context {
	settings := s.opts.Entry().Settings
	if settings.Auth != config.AuthForward {
		return ctx
	}
	header := http.Header{}
	for _, name := range settings.ForwardHeaders {
		if values := req.Header[name]; len(values) > 0 {
			header[name] = append([]string(nil), values...)
		}
	}
	if value := operator.Authorization(ctx); settings.InsecureForwardAuthorization && value != "" {
		header["Authorization"] = []string{value}
		_, token, _ := strings.Cut(value, " ")
		if len(token) >= minToken {
			s.opts.KeepSecrets([]string{token})
		}
	}
	f.last.Store(&header)
	return context.WithValue(ctx, forwardedKey{f}, header)
}

// TokensOf returns the tokens that were last sent for a caller; nil means for all callers.
func (s *Server) TokensOf(c *policy.Caller) (all []string) {
	if !s.logins.SentTokens() {
		return nil
	}
	s.logins.mu.Lock()
	defer s.logins.mu.Unlock()
	add := func(c *Credential) {
		if c == nil {
			return
		}
		if tokens := c.tokens.Load(); tokens != nil {
			all = append(all, *tokens...)
		}
	}
	if c != nil && len(s.all) > 0 {
		add(s.all[credentialKey{c.Key(), s.endpoint}])
		if c.Principal != nil {
			add(s.all[credentialKey{"", s.endpoint}])
		}
		return all
	}
	for _, c := range s.all {
		add(c)
	}
	return all
}

// RoundTrip sends a request with the token of the principal.
func (c *Credential) RoundTrip(r *http.Request) (*http.Response, error) {
	if r.Header.Get("Authorization") != "" { // not of the principal
		r = r.Clone(r.Context())
		r.Header.Del("Authorization")
	}
	res, err := c.transport.RoundTrip(r)
	refused, ok := errors.AsType[*oauthclient.AuthorizeError](err)
	if ok && refused.Status == http.StatusUnauthorized && errors.Is(err, oauthclient.ErrLoginRequired) {
		c.missing.Store(true)
	}
	return res, err
}

// CloseIdleConnections closes idle connections.
func (c *Credential) CloseIdleConnections() { c.transport.CloseIdleConnections() }

// Ready returns an error unless there are tokens. The error is that of a request without them.
func (c *Credential) Ready(ctx context.Context) error {
	_, err := c.transport.Token(ctx)
	if errors.Is(err, oauthclient.ErrLoginRequired) { // another process may have logged in
		if now, failed := c.transport.Status(ctx); failed == nil && now != nil {
			_, err = c.transport.Token(ctx)
		}
	}
	switch {
	case errors.Is(err, oauthclient.ErrLoginRequired):
		c.missing.Store(true)
	case err == nil && c.missing.CompareAndSwap(true, false):
		c.LoggedIn()
	}
	return err
}

// LoggedIn reports the change to the host, which connects again, and then wakes the requests that wait:
// before, they would get the error of the last attempt to connect, and ask for another login.
func (c *Credential) LoggedIn() {
	c.missing.Store(false)
	c.server.opts.Changed(c.principal)
	c.server.logins.mu.Lock()
	defer c.server.logins.mu.Unlock()
	close(c.changed)
	c.changed = make(chan struct{})
}

// Waiting returns a channel that is closed with the next login.
func (c *Credential) Waiting() <-chan struct{} {
	c.server.logins.mu.Lock()
	defer c.server.logins.mu.Unlock()
	return c.changed
}

// logIn obtains tokens for the requests of the principal.
func (c *Credential) logIn(ctx context.Context, scopes []string, a oauthclient.Authorizer) error {
	o := c.server.oauthOptions(c.server.opts.Entry(), c.principal)
	o.Store, o.Authorizer = c.server.logins.store(c.principal.Key()), a
	o.Scopes = append(o.Scopes, scopes...)
	if now, err := c.transport.Status(ctx); err == nil && now != nil && len(scopes) > 0 {
		o.Scopes = append(o.Scopes, now.Scopes...) // to add scopes, all are requested
	}
	o.Client.Metadata.Name = cmp.Or(o.Client.Metadata.Name, "Patchbay")
	o.Client.Metadata.ApplicationType = "native"
	if strings.HasPrefix(c.server.logins.URL(), "https:") {
		o.Client.Metadata.ApplicationType = "web"
	}
	err := oauthclient.NewTransport(c.url, &o).Login(ctx)
	if err == nil {
		_, err = c.transport.Status(ctx) // reads the tokens
	}
	c.server.logins.record(c, "", err)
	if err == nil {
		c.LoggedIn()
	}
	return err
}

// Logout removes the tokens, and revokes them if the authorization server supports that. The tokens are
// removed also if there is an error.
func (c *Credential) Logout(ctx context.Context) error {
	err := c.transport.Logout(ctx)
	c.missing.Store(true)
	c.server.logins.record(c, "logged out", err)
	return err
}

// IsMissing reports whether a login is required, as far as is known.
func (c *Credential) IsMissing() bool { return c.missing.Load() }

// Includes reports whether the principal is logged in with scopes.
func (c *Credential) Includes(ctx context.Context, scopes []string) bool {
	now, err := c.transport.Status(ctx)
	return err == nil && now != nil && Includes(now.Scopes, scopes)
}

// Principal returns the principal whose login it is, nil for the local user.
func (c *Credential) Principal() *mcp.Principal { return c.principal }

// Server returns the name of the server in the configuration.
func (c *Credential) Server() string { return c.server.name }

// IsOfCallers reports whether each caller logs in to the server.
func (c *Credential) IsOfCallers() bool { return c.server.opts.Entry().UsesLoginOfCaller() }

// oauthOptions returns the options for logins and requests of a principal at the server, without a store.
func (s *Server) oauthOptions(e *server.Server, p *mcp.Principal) oauthclient.TransportOptions {
	o := oauthclient.TransportOptions{}
	if s.logins.opts.OAuth != nil && e.Config != nil {
		o = *s.logins.opts.OAuth(e.Config, p)
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
	o.Logger = cmp.Or(o.Logger, s.logins.opts.Logger)
	return o
}

// base returns the round tripper below the credentials.
func (s *Server) base(e *server.Server) http.RoundTripper {
	if o := s.oauthOptions(e, nil); o.Base != nil {
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

// SentTokens reports whether any request to a server contained a token.
func (s *Logins) SentTokens() bool { return s.sent.Load() }

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
			c.server.logins.sent.Store(true)
			return
		}
	}
}
