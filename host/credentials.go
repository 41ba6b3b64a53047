package host

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/patchbay-mcp/patchbay/host/config"
	"github.com/patchbay-mcp/patchbay/internal/netx"
	"github.com/patchbay-mcp/patchbay/mcp"
	"github.com/patchbay-mcp/patchbay/oauth/oauthclient"
)

// maxCredentials bounds the credentials that are kept of one server. Those of a caller that comes back
// are made again, from the tokens of [Options.Tokens].
const maxCredentials = 1000

type clientKey struct{}

// ClientFrom returns the HTTP client for the connection that ctx of [Options.Dial] is for. It adds the
// credentials of the caller of the connection to a server with "auth": "caller" or "forward". It is nil
// for other servers. [Dial] also gets one for "gateway", which a function of the program does itself.
func ClientFrom(ctx context.Context) *http.Client {
	c, _ := ctx.Value(clientKey{}).(*http.Client)
	return c
}

// credentials are those of one server, by principal and URL. They are safe for concurrent use.
type credentials struct {
	mu       sync.Mutex // guards the fields below
	all      map[credentialKey]*credential
	entry    *entry // that url is of
	endpoint string
}

type credentialKey struct{ principal, url string }

// A credential is the login of one principal at one server, and authorizes its requests.
type credential struct {
	up        *Upstream
	caller    *mcp.Principal // nil for the local user
	url       string
	transport *oauthclient.Transport
	used      time.Time // guarded by the lock of credentials

	missing atomic.Bool              // a login is required, as far as is known
	tokens  atomic.Pointer[[]string] // the last that were sent, which errors and records must not have

	mu      sync.Mutex // guards the field below
	changed chan struct{}
}

// loginPrincipal returns the principal whose login authorizes the requests of a caller, and whether a
// login that the host has does.
func (u *Upstream) loginPrincipal(e *entry, c *Caller) (p *mcp.Principal, ok bool) {
	switch e.Settings.Auth {
	case config.AuthCaller:
		return c.Principal, true
	case config.AuthGateway:
		return nil, u.host.dials
	}
	return nil, false
}

// client returns the HTTP client of connections with an entry, for a caller; see [ClientFrom].
func (p *pool) client(e *entry, url string) *http.Client {
	if e.Settings.Auth == config.AuthForward {
		return &http.Client{Transport: &forwarding{pool: p, base: p.up.base(e)}}
	}
	principal, ok := p.up.loginPrincipal(e, p.caller)
	if !ok {
		return nil
	}
	return &http.Client{Transport: p.up.credential(e, principal, url)}
}

// checkHeaders refuses credentials that would be readable on the network, and a header
// Authorization from a header command, because it is not the caller's.
func checkHeaders(e *entry, s *config.Server) error {
	if err := checkHTTP(e, s); err != nil {
		return err
	}
	switch e.Settings.Auth {
	case config.AuthNone, config.AuthGateway, config.AuthCaller:
		for name := range s.Header {
			if http.CanonicalHeaderKey(name) == "Authorization" {
				return errors.New("headersHelper: has a header Authorization, which excludes \"auth\": \"" +
					string(e.Settings.Auth) + "\"")
			}
		}
	}
	return nil
}

// checkHTTP refuses to send credentials of the entry or of callers to an http URL of another
// machine.
func checkHTTP(e *entry, s *config.Server) error {
	u, err := url.Parse(s.URL)
	if s.Type == config.TypeStdio || err != nil || u.Scheme != "http" || e.Settings.InsecureHTTP ||
		netx.IsLoopback(u.Hostname()) {
		return nil
	}
	names := append(slices.Sorted(maps.Keys(s.Header)), e.Settings.ForwardHeaders...)
	if e.Settings.InsecureForwardAuthorization {
		names = append(names, "Authorization")
	}
	if u.User != nil {
		names = append(names, "Authorization")
	}
	for _, name := range names {
		if netx.IsCredentialHeader(name) {
			return fmt.Errorf("the header %q for http://%s would be readable on the network: use https, or set "+
				"\"insecureHTTP\": true in the settings of the server", name, u.Host)
		}
	}
	return nil
}

// oauthOptions returns the options of logins and requests at the server, without a store.
func (u *Upstream) oauthOptions(e *entry) oauthclient.TransportOptions {
	o := oauthclient.TransportOptions{}
	if u.host.opts.OAuth != nil && e.Config != nil {
		o = *u.host.opts.OAuth(e.Config)
	}
	set := &e.Settings.OAuth
	if set.ClientID != "" {
		o.Client.ID, o.Client.Secret = set.ClientID, ""
		if set.ClientSecret != "" {
			o.Client.Secret, _ = u.host.opts.Lookup(set.ClientSecret)
			u.keepSecrets([]string{o.Client.Secret})
		}
	}
	if set.Issuer != "" {
		o.Client.Issuer = set.Issuer
		o.Client.InsecureUnlistedPKCE, o.Client.OmitResource = set.InsecureUnlistedPKCE, set.OmitResource
	}
	o.Scopes = append(slices.Clone(o.Scopes), set.Scopes...)
	o.WholeOrigin = true // all requests are of MCP; HTTP+SSE servers choose other paths
	if o.Logger == nil {
		o.Logger = u.host.opts.Logger
	}
	return o
}

// base returns what sends the requests to the server, nil for the default of the user of it.
func (u *Upstream) base(e *entry) http.RoundTripper {
	if o := u.oauthOptions(e); o.Base != nil {
		return o.Base
	}
	return defaultBase()
}

// defaultBase sends requests of servers without [Options.OAuth]. It follows no redirects.
var defaultBase = sync.OnceValue(func() http.RoundTripper {
	return http.DefaultTransport.(*http.Transport).Clone()
})

// store returns the tokens of a principal.
func (h *Host) store(principal string) oauthclient.Store {
	if h.opts.Tokens != nil {
		return h.opts.Tokens(principal)
	}
	h.memory.mu.Lock()
	defer h.memory.mu.Unlock()
	s := h.memory.stores[principal]
	if s == nil {
		if h.memory.stores == nil {
			h.memory.stores = map[string]oauthclient.Store{}
		}
		s = oauthclient.NewMemoryStore()
		h.memory.stores[principal] = s
	}
	return s
}

// memoryTokens has the stores of a host without [Options.Tokens].
type memoryTokens struct {
	mu     sync.Mutex // guards stores
	stores map[string]oauthclient.Store
}

// credential returns the login of a principal at the server.
func (u *Upstream) credential(e *entry, p *mcp.Principal, url string) *credential {
	key := credentialKey{p.Key(), url}
	u.credentials.mu.Lock()
	defer u.credentials.mu.Unlock()
	c := u.credentials.all[key]
	if c == nil {
		if u.credentials.all == nil {
			u.credentials.all = map[credentialKey]*credential{}
		}
		if len(u.credentials.all) >= maxCredentials {
			u.credentials.evict()
		}
		c = &credential{up: u, caller: p, url: url, changed: make(chan struct{})}
		o := u.oauthOptions(e)
		if o.Base == nil {
			o.Base = defaultBase()
		}
		o.Base, o.Store, o.Authorizer = &authorizedOnly{c, o.Base}, u.host.store(key.principal), nil
		c.transport = oauthclient.NewTransport(url, &o)
		u.credentials.all[key] = c
	}
	c.used = time.Now()
	return c
}

// evict removes the credential that was not used for the longest time. The lock is held.
func (c *credentials) evict() {
	var oldest credentialKey
	var at time.Time
	for key, one := range c.all {
		if at.IsZero() || one.used.Before(at) {
			oldest, at = key, one.used
		}
	}
	delete(c.all, oldest)
}

// forget removes the credentials after a change of the configuration.
func (c *credentials) forget() {
	c.mu.Lock()
	defer c.mu.Unlock()
	clear(c.all)
	c.entry = nil
}

// endpointOf returns the URL that logins at the server are for. It is expanded once for an entry.
func (u *Upstream) endpointOf(ctx context.Context, e *entry) (string, error) {
	u.credentials.mu.Lock()
	url, known := u.credentials.endpoint, u.credentials.entry == e
	u.credentials.mu.Unlock()
	if known {
		return url, nil
	}
	if e.Invalid != nil {
		return "", e.Invalid
	}
	url, err := e.Config.ExpandURL(ctx, u.host.opts.Lookup)
	if err != nil {
		return "", err
	}
	u.setEndpoint(e, url)
	return url, nil
}

func (u *Upstream) setEndpoint(e *entry, url string) {
	u.credentials.mu.Lock()
	defer u.credentials.mu.Unlock()
	u.credentials.entry, u.credentials.endpoint = e, url
}

// login returns the login that the requests of a caller need, nil if they need none.
func (u *Upstream) login(ctx context.Context, c *Caller) (*credential, error) {
	e := u.entry()
	p, ok := u.loginPrincipal(e, c)
	if !ok {
		return nil, nil //nolint:nilnil // no login is needed
	}
	url, err := u.endpointOf(ctx, e)
	if err != nil {
		return nil, &Error{Code: CodeConfigError, Server: u.name, Err: withoutServer(err, u.name)}
	}
	return u.credential(e, p, url), nil
}

// authorizedOnly sends no request without a token: a server may accept it for an anonymous session,
// which later requests of the caller would use.
type authorizedOnly struct {
	credential *credential
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

// maxTokens bounds the tokens of a principal that are masked. A server that repeats one has received it
// with a request in progress: it is the last one, or the one before.
const maxTokens = 4

// minToken is the length of the shortest token that is masked, in bytes: to replace a shorter one would
// change other texts.
const minToken = 8

// sent notes the token of a request.
func (c *credential) sent(authorization string) {
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

// tokensOf returns the tokens that were last sent for a caller, or for all.
func (u *Upstream) tokensOf(c *Caller) (all []string) {
	u.credentials.mu.Lock()
	defer u.credentials.mu.Unlock()
	add := func(one *credential) {
		if one == nil {
			return
		}
		if tokens := one.tokens.Load(); tokens != nil {
			all = append(all, *tokens...)
		}
	}
	if c != nil {
		add(u.credentials.all[credentialKey{c.Key(), u.credentials.endpoint}])
		if c.Principal != nil {
			add(u.credentials.all[credentialKey{"", u.credentials.endpoint}])
		}
		return all
	}
	for _, one := range u.credentials.all {
		add(one)
	}
	return all
}

// RoundTrip sends a request with the token of the principal.
func (c *credential) RoundTrip(r *http.Request) (*http.Response, error) {
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
func (c *credential) CloseIdleConnections() { c.transport.CloseIdleConnections() }

// ready returns an error unless there are tokens. The error is that of a request without them.
func (c *credential) ready(ctx context.Context) error {
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
		c.loggedIn()
	}
	return err
}

// loggedIn makes the instances of the principal connect again, and then wakes the requests that wait: before, they
// would get the error of the last attempt to connect, and ask for another login.
func (c *credential) loggedIn() {
	c.missing.Store(false)
	c.up.retryLogins(c.caller)
	c.mu.Lock()
	defer c.mu.Unlock()
	close(c.changed)
	c.changed = make(chan struct{})
}

// waiting returns a channel that is closed with the next login.
func (c *credential) waiting() <-chan struct{} {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.changed
}

// retryLogins ends the delays of instances that lacked a login, and makes views read their lists.
func (u *Upstream) retryLogins(p *mcp.Principal) {
	for _, pool := range u.poolsOf(p) {
		pool.retryLogin()
	}
}

// poolsOf returns the pools whose requests the login of a principal authorizes.
func (u *Upstream) poolsOf(p *mcp.Principal) (all []*pool) {
	e := u.entry()
	for _, pool := range u.allPools() {
		owner, ok := u.loginPrincipal(e, pool.caller)
		if ok && owner.Key() == p.Key() || p == nil && u.dialsWithLogin(e) {
			all = append(all, pool)
		}
	}
	return all
}

// lookup returns the variables of an instance of a caller.
func (h *Host) lookup(c *Caller) func(name string) (string, bool) {
	return func(name string) (string, bool) {
		if name != "caller:subject" {
			return h.opts.Lookup(name)
		}
		if c.Principal == nil {
			return "", false
		}
		return c.Principal.Subject, true
	}
}
