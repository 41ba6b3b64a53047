package oauthclient_test

import (
	"context"
	"crypto/sha256"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"net/url"
	"path"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/patchbay-mcp/patchbay/internal/oauthtest"
	"github.com/patchbay-mcp/patchbay/oauth"
	"github.com/patchbay-mcp/patchbay/oauth/oauthclient"
)

const (
	clientMCP      = "https://mcp.example/mcp"
	clientIssuer   = "https://as.example"
	otherIssuer    = "https://other.example"
	clientRedirect = "http://127.0.0.1:7777/callback"
)

// A testEnv is a network with a protected MCP server, its authorization servers and a user who logs
// in.
type testEnv struct {
	*network
	rs *fakeResource
	as *fakeServer

	servers []*fakeServer // all authorization servers, as among them

	mu     sync.Mutex // guards the fields below
	logins []*oauthclient.LoginRequest
	answer func(login *oauthclient.LoginRequest, answer url.Values) (url.Values, error) // changes a response on its way
	leaks  []string
}

func newTestEnv(t *testing.T) *testEnv {
	w := &testEnv{network: newNetwork(t)}
	w.as = w.newServer(clientIssuer)
	w.rs = &fakeResource{as: w.as, resource: clientMCP}
	w.rs.publish(w.network)
	return w
}

// login plays the user, whose browser follows the redirects of the authorization server.
func (w *testEnv) login(_ context.Context, login *oauthclient.LoginRequest) (url.Values, error) {
	w.mu.Lock()
	w.logins = append(w.logins, login)
	change := w.answer
	w.mu.Unlock()
	u, err := url.Parse(login.URL)
	if err != nil {
		return nil, err
	}
	var as *fakeServer
	for _, s := range w.rs.servers {
		if strings.HasPrefix(login.URL, s.issuer+"/") {
			as = s
		}
	}
	if as == nil {
		w.t.Errorf("got a login at the unknown host %s", u.Host)
		return nil, errors.New("unknown host")
	}
	answer := as.authorize(u.Query())
	if change != nil {
		return change(login, answer)
	}
	return answer, nil
}

func (w *testEnv) loginCount() int {
	w.mu.Lock()
	defer w.mu.Unlock()
	return len(w.logins)
}

// changeResponse sets the function that changes the next authorization responses; nil for none.
func (w *testEnv) changeResponse(f func(login *oauthclient.LoginRequest, answer url.Values) (url.Values, error)) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.answer = f
}

// transport returns a Transport to the server. w fills Base, Fetcher, Logger and a nil Authorizer.
func (w *testEnv) transport(opts *oauthclient.TransportOptions) *oauthclient.Transport {
	var o oauthclient.TransportOptions
	if opts != nil {
		o = *opts
	}
	o.Base = roundTripper(w.roundTrip)
	o.Fetcher = w.fetcher(nil)
	o.Logger = slog.New(slog.DiscardHandler)
	if o.Authorizer == nil {
		o.Authorizer = oauthclient.NewAuthorizer(clientRedirect, w.login)
	}
	return oauthclient.NewTransport(clientMCP, &o)
}

// unattended returns a Transport without an Authorizer.
func (w *testEnv) unattended(store oauthclient.Store) *oauthclient.Transport {
	return oauthclient.NewTransport(clientMCP, &oauthclient.TransportOptions{
		Base: roundTripper(w.roundTrip), Fetcher: w.fetcher(nil), Logger: slog.New(slog.DiscardHandler), Store: store,
	})
}

type roundTripper func(req *http.Request) (*http.Response, error)

func (f roundTripper) RoundTrip(req *http.Request) (*http.Response, error) { return f(req) }

// roundTrip sends a request to the server. It records tokens that are sent to other URLs.
func (w *testEnv) roundTrip(req *http.Request) (*http.Response, error) {
	if err := req.Context().Err(); err != nil {
		return nil, err
	}
	target := req.URL.Scheme + "://" + req.URL.Host + req.URL.Path
	if target != clientMCP && req.Header.Get("Authorization") != "" && !w.rs.covers(target) {
		w.mu.Lock()
		w.leaks = append(w.leaks, target)
		w.mu.Unlock()
	}
	rec := httptest.NewRecorder()
	w.rs.ServeHTTP(rec, req)
	res := rec.Result()
	res.Request = req
	return res, nil
}

// post sends a request to the server and returns the status and the body of its response.
func post(t *oauthclient.Transport, ctx context.Context) (int, string, error) {
	return send(t, ctx, clientMCP)
}

func send(t *oauthclient.Transport, ctx context.Context, target string) (int, string, error) {
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, target, strings.NewReader("hello"))
	if err != nil {
		return 0, "", err
	}
	res, err := (&http.Client{Transport: t}).Do(req)
	if err != nil {
		return 0, "", err
	}
	defer res.Body.Close()
	if res.Request.Header.Get("Authorization") != "" {
		return 0, "", errors.New("the response's request has an Authorization header")
	}
	body, err := io.ReadAll(res.Body)
	return res.StatusCode, string(body), err
}

// mustPost sends a request and fails the test unless it succeeds.
func (w *testEnv) mustPost(t *oauthclient.Transport) {
	w.t.Helper()
	status, body, err := post(t, w.t.(*testing.T).Context())
	if err != nil || status != http.StatusOK || body != "hello" {
		w.t.Fatalf("got %d %q, error %v; want 200 and the echoed body", status, body, err)
	}
}

// A fakeResource is an MCP server that accepts the tokens of one authorization server.
type fakeResource struct {
	world    *network
	resource string
	servers  []*fakeServer

	mu        sync.Mutex // guards the fields below
	as        *fakeServer
	wants     []string // scopes of every request
	challenge func(status int, lacking string) []string
	path      string   // URL of the resource metadata, as in challenges
	silent    bool     // send no challenge
	byPath    bool     // require the last path segment as the scope, in place of wants
	refuse    bool     // refuse every token
	received  []string // tokens of all requests
	used      []string // tokens of the accepted requests
	requests  int
	redirect  string
}

// firstToken returns the token of the first accepted request, or an empty string.
func (r *fakeResource) firstToken() string {
	r.mu.Lock()
	defer r.mu.Unlock()
	if len(r.used) == 0 {
		return ""
	}
	return r.used[0]
}

func (r *fakeResource) publish(w *network) {
	r.world, r.servers = w, append(r.servers, r.as)
	r.path = "https://mcp.example/.well-known/oauth-protected-resource/mcp"
	r.document(r.as.issuer, nil)
}

// document publishes resource metadata that names an issuer.
func (r *fakeResource) document(issuer string, scopes []string) {
	text, _ := json.Marshal(oauth.ResourceMetadata{Resource: r.resource, AuthorizationServers: []string{issuer},
		ScopesSupported: scopes})
	r.world.Doc(r.path, string(text))
}

// moveTo makes the server accept the tokens of another authorization server only.
func (r *fakeResource) moveTo(as *fakeServer) {
	r.mu.Lock()
	r.as = as
	r.servers = append(r.servers, as)
	r.mu.Unlock()
	r.document(as.issuer, nil)
}

func (r *fakeResource) covers(target string) bool {
	return strings.HasPrefix(target+"/", r.resource+"/")
}

func (r *fakeResource) ServeHTTP(w http.ResponseWriter, req *http.Request) {
	var body []byte
	if req.Body != nil {
		body, _ = io.ReadAll(req.Body)
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	r.requests++
	if r.redirect != "" {
		http.Redirect(w, req, r.redirect, http.StatusTemporaryRedirect)
		return
	}
	token, _ := strings.CutPrefix(req.Header.Get("Authorization"), "Bearer ")
	if token != "" {
		r.received = append(r.received, token)
	}
	scopes, ok := r.as.check(token, r.resource)
	if r.refuse || !ok {
		r.answer(w, http.StatusUnauthorized, strings.Join(r.wants, " "))
		return
	}
	r.used = append(r.used, token)
	wants := r.wants
	if r.byPath {
		wants = []string{path.Base(req.URL.Path)}
	}
	for _, want := range wants {
		if !slices.Contains(scopes, want) {
			r.answer(w, http.StatusForbidden, strings.Join(wants, " "))
			return
		}
	}
	_, _ = w.Write(body)
}

// answer sends a refusal with a challenge. The caller holds mu.
func (r *fakeResource) answer(w http.ResponseWriter, status int, scope string) {
	if r.challenge != nil {
		for _, c := range r.challenge(status, scope) {
			w.Header().Add("WWW-Authenticate", c)
		}
	} else if !r.silent {
		c := `Bearer resource_metadata="` + r.path + `"`
		if scope != "" {
			c += `, scope="` + scope + `"`
		}
		if status == http.StatusForbidden {
			c += `, error="insufficient_scope"`
		}
		w.Header().Set("WWW-Authenticate", c)
	}
	http.Error(w, "no", status)
}

func (r *fakeResource) set(f func(r *fakeResource)) {
	r.mu.Lock()
	defer r.mu.Unlock()
	f(r)
}

// A fakeServer is an authorization server. An invalid request fails the test.
type fakeServer struct {
	t      testing.TB
	issuer string

	mu        sync.Mutex          // guards the fields below
	clients   map[string]string   // secrets by ids
	redirects map[string][]string // registered redirect URIs by client ids
	method    string              // of client authentication
	codes     map[string]url.Values
	grants    map[string]*fakeGrant // by access tokens and refresh tokens
	counts    map[string]int
	serial    int
	lifetime  any // expires_in; nil to omit it
	noRefresh bool
	grant     func(asked string) string // returns the granted scope; nil to grant the requested one
	noScope   bool                      // omit scope in token responses
	noIss     bool
	resource  string                                          // that every request must name
	respond   func(form url.Values) (status int, body string) // replaces the token response if status is not 0
	last      url.Values
	lastAuth  string
	rotates   bool
	delay     time.Duration // of the token endpoint
	document  map[string]any
}

type fakeGrant struct {
	client, resource, scope string
	ends                    time.Time // zero for never
	refresh                 bool
}

func (w *testEnv) newServer(issuer string) *fakeServer {
	s := &fakeServer{
		t: w.t, issuer: issuer, clients: map[string]string{}, redirects: map[string][]string{}, method: "none",
		codes:  map[string]url.Values{},
		grants: map[string]*fakeGrant{}, counts: map[string]int{}, resource: clientMCP, rotates: true, lifetime: 3600,
	}
	s.document = map[string]any{
		"issuer": issuer, "authorization_endpoint": issuer + "/authorize", "token_endpoint": issuer + "/token",
		"registration_endpoint": issuer + "/register", "revocation_endpoint": issuer + "/revoke",
		"response_types_supported": []string{"code"}, "code_challenge_methods_supported": []string{"S256"},
		"token_endpoint_auth_methods_supported":          []string{"none"},
		"authorization_response_iss_parameter_supported": true,
	}
	w.servers = append(w.servers, s)
	w.Page(issuer+"/.well-known/oauth-authorization-server", func(rw http.ResponseWriter, req *http.Request) {
		s.mu.Lock()
		text, _ := json.Marshal(s.document)
		s.mu.Unlock()
		oauthtest.JSONPage(string(text))(rw, req)
	})
	w.Page(issuer+"/register", s.register)
	w.Page(issuer+"/token", s.token)
	w.Page(issuer+"/revoke", s.revoke)
	return s
}

func (s *fakeServer) set(f func(s *fakeServer)) {
	s.mu.Lock()
	defer s.mu.Unlock()
	f(s)
}

// count returns the number of requests of a kind since the last call.
func (s *fakeServer) count(what string) int {
	s.mu.Lock()
	defer s.mu.Unlock()
	n := s.counts[what]
	s.counts[what] = 0
	return n
}

// newID returns a unique id. The caller holds mu.
func (s *fakeServer) newID(kind string) string {
	s.serial++
	return fmt.Sprintf("%s-%d-of-%s", kind, s.serial, strings.TrimPrefix(s.issuer, "https://"))
}

func (s *fakeServer) register(w http.ResponseWriter, req *http.Request) {
	var m oauth.ClientMetadata
	if err := json.NewDecoder(req.Body).Decode(&m); err != nil || len(m.RedirectURIs) == 0 {
		s.t.Errorf("got invalid registration %+v, error %v", m, err)
	}
	if !slices.Contains(m.GrantTypes, "refresh_token") || m.ApplicationType != "native" {
		s.t.Errorf("got registration %+v, want a native client with refresh tokens", m)
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.counts["register"]++
	id := s.newID("client")
	s.clients[id], s.redirects[id] = "", m.RedirectURIs
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(http.StatusCreated)
	_ = json.NewEncoder(w).Encode(map[string]any{"client_id": id, "token_endpoint_auth_method": "none",
		"redirect_uris": m.RedirectURIs})
}

// authorize returns the response to an authorization request to which the user has agreed.
func (s *fakeServer) authorize(q url.Values) url.Values {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.counts["authorize"]++
	for name, values := range q {
		if len(values) != 1 {
			s.t.Errorf("authorization request with %s %q", name, values)
		}
	}
	if _, known := s.clients[q.Get("client_id")]; !known {
		s.t.Errorf("authorization request of the client %q", q.Get("client_id"))
	}
	if known := s.redirects[q.Get("client_id")]; known != nil && !slices.Contains(known, q.Get("redirect_uri")) {
		s.t.Errorf("authorization request with the redirect URI %q, registered are %q", q.Get("redirect_uri"), known)
	}
	if q.Get("response_type") != "code" || q.Get("code_challenge_method") != "S256" ||
		len(q.Get("code_challenge")) != 43 ||
		len(q.Get("state")) < 43 || q.Get("resource") != s.resource || q.Has("resource") != (s.resource != "") {
		s.t.Errorf("got invalid authorization request %v", q)
	}
	s.last = q
	code := s.newID("code")
	s.codes[code] = q
	answer := url.Values{"code": {code}, "state": {q.Get("state")}}
	if !s.noIss {
		answer.Set("iss", s.issuer)
	}
	return answer
}

func (s *fakeServer) token(w http.ResponseWriter, req *http.Request) {
	if err := req.ParseForm(); err != nil || req.URL.RawQuery != "" {
		s.t.Errorf("token request: %v", err)
	}
	f := req.PostForm
	s.mu.Lock()
	delay := s.delay
	s.mu.Unlock()
	time.Sleep(delay)
	s.mu.Lock()
	defer s.mu.Unlock()
	s.lastAuth = req.Header.Get("Authorization")
	s.counts[f.Get("grant_type")]++
	if s.respond != nil {
		if status, body := s.respond(f); status != 0 {
			w.Header().Set("Content-Type", "application/json")
			w.WriteHeader(status)
			_, _ = io.WriteString(w, body)
			return
		}
	}
	client, ok := s.authenticated(req)
	if !ok {
		writeError(w, "invalid_client")
		return
	}
	if f.Get("resource") != s.resource || len(f["resource"]) > 1 || f.Has("resource") != (s.resource != "") {
		s.t.Errorf("token request for the resource %q", f["resource"])
	}
	switch f.Get("grant_type") {
	case "authorization_code":
		q := s.codes[f.Get("code")]
		delete(s.codes, f.Get("code"))
		sum := sha256.Sum256([]byte(f.Get("code_verifier")))
		if q == nil || q.Get("client_id") != client || q.Get("redirect_uri") != f.Get("redirect_uri") ||
			q.Get("code_challenge") != base64.RawURLEncoding.EncodeToString(sum[:]) {
			writeError(w, "invalid_grant")
			return
		}
		s.issueTokens(w, client, q.Get("scope"))
	case "refresh_token":
		g := s.grants[f.Get("refresh_token")]
		if g == nil || !g.refresh || g.client != client {
			writeError(w, "invalid_grant")
			return
		}
		if s.rotates {
			delete(s.grants, f.Get("refresh_token"))
		}
		s.issueTokens(w, client, g.scope)
	case "client_credentials":
		s.issueTokens(w, client, f.Get("scope"))
	default:
		writeError(w, "unsupported_grant_type")
	}
}

// authenticated returns the client of a request. The caller holds mu.
func (s *fakeServer) authenticated(req *http.Request) (string, bool) {
	id, secret := req.PostForm.Get("client_id"), req.PostForm.Get("client_secret")
	user, password, basic := req.BasicAuth()
	switch s.method {
	case "none":
		if basic || secret != "" {
			s.t.Error("got a secret of a public client")
		}
	case "client_secret_post":
		if basic {
			s.t.Error("got basic authentication, want client_secret_post")
		}
	case "client_secret_basic":
		if !basic || secret != "" || id != "" {
			s.t.Errorf("got form %v, want basic authentication", req.PostForm)
		}
		id, _ = url.QueryUnescape(user)
		secret, _ = url.QueryUnescape(password)
	}
	want, known := s.clients[id]
	return id, known && want == secret
}

// issueTokens sends a token response. The caller holds mu.
func (s *fakeServer) issueTokens(w http.ResponseWriter, client, scope string) {
	asked := scope
	if s.grant != nil {
		scope = s.grant(scope)
	}
	g := &fakeGrant{client: client, resource: s.resource, scope: scope}
	if seconds, ok := s.lifetime.(int); ok {
		g.ends = time.Now().Add(time.Duration(seconds) * time.Second)
	}
	access := s.newID("access")
	s.grants[access] = g
	answer := map[string]any{"access_token": access, "token_type": "bearer"}
	if !s.noScope && (scope != "" || asked != "") {
		answer["scope"] = scope
	}
	if s.lifetime != nil {
		answer["expires_in"] = s.lifetime
	}
	if !s.noRefresh {
		refresh := s.newID("refresh")
		s.grants[refresh] = &fakeGrant{client: client, resource: s.resource, scope: scope, refresh: true}
		answer["refresh_token"] = refresh
	}
	w.Header().Set("Content-Type", "application/json")
	_ = json.NewEncoder(w).Encode(answer)
}

func writeError(w http.ResponseWriter, code string) {
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(http.StatusBadRequest)
	_ = json.NewEncoder(w).Encode(map[string]string{"error": code, "error_description": "because"})
}

func (s *fakeServer) revoke(w http.ResponseWriter, req *http.Request) {
	_ = req.ParseForm()
	s.mu.Lock()
	defer s.mu.Unlock()
	if _, ok := s.authenticated(req); !ok {
		s.t.Errorf("revocation by %v", req.PostForm)
	}
	s.counts["revoke "+req.PostForm.Get("token_type_hint")]++
	delete(s.grants, req.PostForm.Get("token"))
	w.WriteHeader(http.StatusOK)
}

// check returns the scopes of an access token and reports whether it is valid.
func (s *fakeServer) check(token, resource string) ([]string, bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	g := s.grants[token]
	if g == nil || g.refresh || s.resource != "" && g.resource != resource || !g.ends.IsZero() &&
		!time.Now().Before(g.ends) {
		return nil, false
	}
	return strings.Fields(g.scope), true
}

// revokeAccess revokes all access tokens, but no refresh tokens.
func (s *fakeServer) revokeAccess() {
	s.mu.Lock()
	defer s.mu.Unlock()
	for token, g := range s.grants {
		if !g.refresh {
			delete(s.grants, token)
		}
	}
}

// forgetAll revokes all tokens.
func (s *fakeServer) forgetAll() {
	s.mu.Lock()
	defer s.mu.Unlock()
	clear(s.grants)
}
