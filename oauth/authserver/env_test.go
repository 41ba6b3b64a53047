package authserver_test

import (
	"crypto/sha256"
	"encoding/base64"
	"encoding/json"
	"io"
	"log/slog"
	"maps"
	"net"
	"net/http"
	"net/http/cookiejar"
	"net/http/httptest"
	"net/url"
	"regexp"
	"strings"
	"testing"

	"github.com/patchbay-mcp/patchbay/oauth"
	"github.com/patchbay-mcp/patchbay/oauth/authserver"
)

const (
	resource  = "https://mcp.example/mcp"
	verifier  = "a-verifier-of-43-characters-at-the-very-least-"
	publicID  = "public"
	publicURI = "http://127.0.0.1/callback"
	secretID  = "confidential"
	machineID = "machine"
	checkerID = "checker" // the resource server, which may introspect tokens
)

var secret, secretHash = authserver.NewClientSecret()

// challenge returns the S256 code challenge of verifier.
func challenge() string {
	sum := sha256.Sum256([]byte(verifier))
	return base64.RawURLEncoding.EncodeToString(sum[:])
}

// aliceLogsIn is a Login that logs in alice at once.
var aliceLogsIn = authserver.LoginFunc(func(w http.ResponseWriter, r *http.Request, l *authserver.LoginRequest) {
	l.Finish(w, r, authserver.Subject{ID: "alice", Name: "Alice A.", Claims: map[string]any{"team": "red"}})
})

func options(issuer string) authserver.Options {
	return authserver.Options{
		Issuer: issuer,
		Resources: []authserver.Resource{{URL: resource, Name: "Calendar", Scopes: []authserver.Scope{
			{Name: "read", Description: "Read your calendar"}, {Name: "write"}, {Name: "admin", OnRequest: true},
		}}},
		Login: aliceLogsIn,
		Clients: []authserver.Client{
			{ID: publicID, Name: "Public", RedirectURIs: []string{publicURI}},
			{ID: secretID, SecretHash: secretHash, RedirectURIs: []string{"https://app.example/callback"}},
			{ID: machineID, SecretHash: secretHash, Scopes: []string{"read"}},
			{ID: checkerID, SecretHash: secretHash, Introspects: []string{resource}},
		},
		Limits: authserver.LimitOptions{
			Pages: unlimited, Tokens: unlimited, Registrations: unlimited, Metadata: unlimited,
		},
		Logger: slog.New(slog.DiscardHandler),
	}
}

var unlimited = authserver.Rate{Count: 1e6, Per: 1}

// An env is an authorization server with helpers that send requests to it.
type env struct {
	t      *testing.T
	server *authserver.Server
	issuer string
	base   http.RoundTripper
}

// newEnv returns a server that listens on a loopback address.
func newEnv(t *testing.T, change func(*authserver.Options)) *env {
	t.Helper()
	var server *authserver.Server
	front := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		server.ServeHTTP(w, r)
	}))
	t.Cleanup(front.Close)
	o := options(front.URL)
	if change != nil {
		change(&o)
	}
	server = newServer(t, o)
	return &env{t, server, o.Issuer, front.Client().Transport}
}

// newInProcessEnv returns a server at an https URL that is called without a network, for tests
// with synctest.
func newInProcessEnv(t *testing.T, change func(*authserver.Options)) *env {
	t.Helper()
	o := options("https://as.example")
	if change != nil {
		change(&o)
	}
	server := newServer(t, o)
	return &env{t, server, o.Issuer, handlerTransport{server, "192.0.2.1"}}
}

func newServer(t *testing.T, o authserver.Options) *authserver.Server {
	t.Helper()
	server, err := authserver.New(&o)
	if err != nil {
		t.Fatal(err)
	}
	return server
}

// A handlerTransport sends requests to a handler without a network.
type handlerTransport struct {
	handler http.Handler
	from    string // an IP address
}

// from returns an env of the same server, called from another IP address.
func (w *env) from(address string) *env {
	other := *w
	other.base = handlerTransport{w.server, address}
	return &other
}

func (d handlerTransport) RoundTrip(req *http.Request) (*http.Response, error) {
	if req.Body == nil {
		req.Body = http.NoBody
	}
	req.RemoteAddr = net.JoinHostPort(d.from, "1234")
	w := httptest.NewRecorder()
	d.handler.ServeHTTP(w, req)
	res := w.Result()
	res.Request = req
	return res, nil
}

// A response is an HTTP response whose body has been read.
type response struct {
	*http.Response
	body string
}

func (w *env) send(client *http.Client, req *http.Request) response {
	w.t.Helper()
	res, err := client.Do(req)
	if err != nil {
		w.t.Fatal(err)
	}
	defer res.Body.Close()
	body, err := io.ReadAll(res.Body)
	if err != nil {
		w.t.Fatal(err)
	}
	if res.StatusCode >= 500 && res.StatusCode != http.StatusServiceUnavailable {
		w.t.Errorf("%s %s: %s %s, want no server error", req.Method, req.URL.Path, res.Status, body)
	}
	return response{res, string(body)}
}

func (r response) json(t *testing.T) map[string]any {
	t.Helper()
	var v map[string]any
	if err := json.Unmarshal([]byte(r.body), &v); err != nil {
		t.Fatalf("%s with a body that is not JSON: %v: %s", r.Status, err, r.body)
	}
	return v
}

// wantError checks the status and the code of an OAuth error.
func (r response) wantError(t *testing.T, status int, code string) {
	t.Helper()
	if got, _ := r.json(t)["error"].(string); r.StatusCode != status || got != code {
		t.Errorf("got %s %s, want status %d and error %s", r.Status, r.body, status, code)
	}
	if got := r.Header.Get("Cache-Control"); got != "no-store" {
		t.Errorf("Cache-Control is %q, want no-store", got)
	}
}

func (w *env) request(method, address string, body string, header ...string) *http.Request {
	w.t.Helper()
	if strings.HasPrefix(address, "/") {
		address = w.issuer + address
	}
	req, err := http.NewRequestWithContext(w.t.Context(), method, address, strings.NewReader(body))
	if err != nil {
		w.t.Fatal(err)
	}
	for i := 0; i < len(header); i += 2 {
		req.Header.Add(header[i], header[i+1])
	}
	return req
}

// post sends a form without cookies, as a client does.
func (w *env) post(path string, form url.Values, header ...string) response {
	w.t.Helper()
	header = append(header, "Content-Type", "application/x-www-form-urlencoded")
	return w.send(&http.Client{Transport: w.base}, w.request(http.MethodPost, path, form.Encode(), header...))
}

// A browser keeps cookies and does not follow redirects.
type browser struct {
	w      *env
	client *http.Client
}

func (w *env) browser() *browser {
	jar, _ := cookiejar.New(nil)
	noRedirect := func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }
	return &browser{w, &http.Client{Transport: w.base, Jar: jar, CheckRedirect: noRedirect}}
}

func (b *browser) get(address string) response {
	b.w.t.Helper()
	return b.w.send(b.client, b.w.request(http.MethodGet, address, ""))
}

func (b *browser) submit(address string, form url.Values, header ...string) response {
	b.w.t.Helper()
	header = append(header, "Content-Type", "application/x-www-form-urlencoded")
	return b.w.send(b.client, b.w.request(http.MethodPost, address, form.Encode(), header...))
}

// authorizeQuery returns the query of a valid authorization request of the public client. change
// has names and new values; an empty value removes the parameter.
func authorizeQuery(change ...string) url.Values {
	q := url.Values{
		"response_type": {"code"}, "client_id": {publicID}, "redirect_uri": {"http://127.0.0.1:4711/callback"},
		"state": {"the state"}, "code_challenge": {challenge()}, "code_challenge_method": {"S256"},
		"resource": {resource}, "scope": {"read write"},
	}
	for i := 0; i < len(change); i += 2 {
		if q.Del(change[i]); change[i+1] != "" {
			q.Set(change[i], change[i+1])
		}
	}
	return q
}

var hiddenInput = regexp.MustCompile(`<input type="hidden" name="([a-z]+)" value="([^"]*)">`)

// consentPage sends an authorization request and returns the consent page and its hidden fields.
func (b *browser) consentPage(q url.Values) (page response, form url.Values) {
	b.w.t.Helper()
	res := b.get("/authorize?" + q.Encode())
	if res.StatusCode != http.StatusSeeOther || !strings.HasPrefix(res.Header.Get("Location"), b.w.issuer+"/consent?") {
		b.w.t.Fatalf("authorization request: %s, Location %q, want a redirect to the consent page: %s", res.Status,
			res.Header.Get("Location"), res.body)
	}
	page = b.get(res.Header.Get("Location"))
	form = url.Values{}
	for _, m := range hiddenInput.FindAllStringSubmatch(page.body, -1) {
		form.Set(m[1], m[2])
	}
	if page.StatusCode != http.StatusOK || len(form) != 2 {
		b.w.t.Fatalf("consent page: %s %s, want 200 with two hidden fields", page.Status, page.body)
	}
	return page, form
}

// decide submits the form of the consent page.
func (b *browser) decide(form url.Values, decision string) response {
	b.w.t.Helper()
	form = maps.Clone(form)
	form.Set("decision", decision)
	return b.submit("/consent", form)
}

// authorize completes an authorization with consent and login. It returns the parameters of the
// authorization response.
func (b *browser) authorize(q url.Values) url.Values {
	b.w.t.Helper()
	_, form := b.consentPage(q)
	res := b.decide(form, "allow")
	if res.StatusCode != http.StatusSeeOther || !strings.HasPrefix(res.Header.Get("Location"), b.w.issuer+"/login?") {
		b.w.t.Fatalf("consent: %s %s, want a redirect to the login", res.Status, res.body)
	}
	return b.redirectQuery(b.get(res.Header.Get("Location")))
}

// redirectQuery returns the query of a redirect, as the client receives it.
func (b *browser) redirectQuery(res response) url.Values {
	b.w.t.Helper()
	u, err := res.Location()
	if err != nil {
		b.w.t.Fatalf("got %s, want a redirect: %v: %s", res.Status, err, res.body)
	}
	return u.Query()
}

// code returns an authorization code for authorizeQuery(change...).
func (w *env) code(change ...string) string {
	w.t.Helper()
	answer := w.browser().authorize(authorizeQuery(change...))
	if answer.Get("code") == "" {
		w.t.Fatalf("authorization response is %v, want a code", answer)
	}
	return answer.Get("code")
}

// exchangeForm returns the form of a valid token request of the public client.
func exchangeForm(code string, change ...string) url.Values {
	f := url.Values{
		"grant_type": {"authorization_code"}, "code": {code}, "client_id": {publicID}, "code_verifier": {verifier},
		"redirect_uri": {"http://127.0.0.1:4711/callback"}, "resource": {resource},
	}
	for i := 0; i < len(change); i += 2 {
		if f.Del(change[i]); change[i+1] != "" {
			f.Set(change[i], change[i+1])
		}
	}
	return f
}

type tokens struct {
	Access  string  `json:"access_token"`
	Refresh string  `json:"refresh_token"`
	Type    string  `json:"token_type"`
	Scope   string  `json:"scope"`
	Expires float64 `json:"expires_in"`
}

func (w *env) tokensOf(res response) tokens {
	w.t.Helper()
	var t tokens
	if err := json.Unmarshal([]byte(res.body), &t); err != nil || res.StatusCode != http.StatusOK || t.Access == "" {
		w.t.Fatalf("token response is %s %s, want 200 with a token", res.Status, res.body)
	}
	return t
}

func (w *env) login() tokens {
	w.t.Helper()
	return w.tokensOf(w.post("/token", exchangeForm(w.code())))
}

func refreshForm(token string, change ...string) url.Values {
	f := url.Values{"grant_type": {"refresh_token"}, "refresh_token": {token}, "client_id": {publicID}}
	for i := 0; i < len(change); i += 2 {
		if f.Del(change[i]); change[i+1] != "" {
			f.Set(change[i], change[i+1])
		}
	}
	return f
}

func (w *env) verify(token string) (*oauth.Token, error) {
	return w.server.Verifier(resource).Verify(w.t.Context(), token)
}

func (w *env) wantInvalid(token, when string) {
	w.t.Helper()
	if _, err := w.verify(token); !isInvalid(err) {
		w.t.Errorf("%s: verify returned %v, want ErrInvalidToken", when, err)
	}
}

func (w *env) wantValid(token, when string) {
	w.t.Helper()
	if _, err := w.verify(token); err != nil {
		w.t.Errorf("%s: verify returned %v, want a valid access token", when, err)
	}
}
