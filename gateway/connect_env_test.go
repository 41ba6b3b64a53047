package gateway_test

import (
	"bytes"
	"context"
	"crypto/ed25519"
	"encoding/json"
	"errors"
	"fmt"
	"html"
	"io"
	"log/slog"
	"net/http"
	"net/http/cookiejar"
	"net/http/httptest"
	"net/url"
	"regexp"
	"strings"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/patchbay-mcp/patchbay/gateway"
	"github.com/patchbay-mcp/patchbay/gateway/audit"
	"github.com/patchbay-mcp/patchbay/host"
	"github.com/patchbay-mcp/patchbay/host/config"
	"github.com/patchbay-mcp/patchbay/host/operator"
	"github.com/patchbay-mcp/patchbay/mcp"
	"github.com/patchbay-mcp/patchbay/mcphttp"
	"github.com/patchbay-mcp/patchbay/oauth"
	"github.com/patchbay-mcp/patchbay/oauth/authserver"
	"github.com/patchbay-mcp/patchbay/oauth/oauthclient"
)

// A protectedUpstream is an MCP server that requires tokens of its own authorization server.
type protectedUpstream struct {
	url       string // of the MCP server
	issuer    string
	refuse    atomic.Pointer[string] // a token that the server no longer accepts
	onlyCalls atomic.Bool            // refuse is for calls only
	broken    atomic.Bool            // the token endpoint refuses refresh tokens
	callers   sync.Map               // subjects of calls
	asked     atomic.Int64           // calls of the tool that asks
	demands   atomic.Bool            // calls are refused, whatever scopes the token has
	handler   atomic.Pointer[mcphttp.Handler]
	server    *mcp.Server

	mu      sync.Mutex // guards the fields below
	headers []http.Header
	events  []authserver.AuditEvent
	tokens  map[string]bool // all that were seen, and codes
	bodies  bytes.Buffer    // of token responses
}

// logs has everything that a test logs.
type logs struct {
	mu sync.Mutex // guards b
	b  bytes.Buffer
}

func (l *logs) Write(b []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.b.Write(b)
}

func (l *logs) String() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.b.String()
}

func (l *logs) logger() *slog.Logger {
	return slog.New(slog.NewTextHandler(l, &slog.HandlerOptions{Level: slog.LevelDebug}))
}

const browserUser = "X-Browser-User"

func newProtectedUpstream(t *testing.T) *protectedUpstream {
	t.Helper()
	u := &protectedUpstream{tokens: map[string]bool{}}
	as := httptest.NewUnstartedServer(nil)
	rs := httptest.NewUnstartedServer(nil)
	u.issuer, u.url = "http://"+as.Listener.Addr().String(), "http://"+rs.Listener.Addr().String()+"/mcp"
	a, err := authserver.New(&authserver.Options{
		Issuer: u.issuer, Logger: slog.New(slog.DiscardHandler),
		Resources: []authserver.Resource{{URL: u.url, Scopes: []authserver.Scope{{Name: "read"},
			{Name: "write", OnRequest: true}}}},
		Login: authserver.LoginFunc(func(w http.ResponseWriter, r *http.Request, l *authserver.LoginRequest) {
			if id := r.Header.Get(browserUser); id != "" {
				l.Finish(w, r, authserver.Subject{ID: id})
				return
			}
			l.Fail(w, r, "access_denied", "")
		}),
		Limits: authserver.LimitOptions{},
		Audit: func(_ context.Context, e authserver.AuditEvent) {
			u.mu.Lock()
			defer u.mu.Unlock()
			u.events = append(u.events, e)
		},
	})
	if err != nil {
		t.Fatal(err)
	}
	as.Config.Handler = http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path == "/token" {
			body, _ := io.ReadAll(r.Body)
			form, _ := url.ParseQuery(string(body))
			if u.broken.Load() && form.Get("grant_type") == "refresh_token" {
				w.Header().Set("Content-Type", "application/json")
				w.WriteHeader(http.StatusBadRequest)
				_, _ = io.WriteString(w, `{"error":"invalid_grant","error_description":"`+form.Get("refresh_token")+`"}`)
				return
			}
			r.Body = io.NopCloser(bytes.NewReader(body))
			w = &recorder{w, u}
		}
		a.ServeHTTP(w, r)
	})
	protect := oauth.Require(a.Verifier(u.url), oauth.ResourceMetadata{Resource: u.url,
		AuthorizationServers: []string{u.issuer}, ScopesSupported: []string{"read", "write"}},
		&oauth.RequireOptions{Scopes: oauth.AllOf("read"), Logger: slog.New(slog.DiscardHandler)})
	u.server = u.newServer()
	u.restart()
	protected := protect(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		u.handler.Load().ServeHTTP(w, r)
	}))
	rs.Config.Handler = http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		u.mu.Lock()
		u.headers = append(u.headers, r.Header.Clone())
		u.mu.Unlock()
		isCall := r.Header.Get("Mcp-Method") == "tools/call"
		if token := u.refuse.Load(); token != nil && r.Header.Get("Authorization") == "Bearer "+*token && (isCall || !u.onlyCalls.Load()) {
			r.Header.Set("Authorization", "Bearer expired")
		}
		if u.demands.Load() && r.Header.Get("Authorization") != "" && isCall {
			w.Header().Set("WWW-Authenticate", `Bearer error="insufficient_scope", scope="write"`)
			http.Error(w, "no", http.StatusForbidden)
			return
		}
		protected.ServeHTTP(w, r)
	})
	as.Start()
	rs.Start()
	t.Cleanup(func() {
		rs.CloseClientConnections()
		rs.Close()
		as.CloseClientConnections()
		as.Close()
		_ = u.handler.Load().Shutdown(context.Background())
	})
	return u
}

// restart makes the server lose its sessions.
func (u *protectedUpstream) restart() {
	old := u.handler.Swap(mcphttp.NewHandler(u.server, &mcphttp.Options{Logger: slog.New(slog.DiscardHandler)}))
	if old != nil {
		_ = old.Shutdown(context.Background())
	}
}

// A recorder keeps the token responses.
type recorder struct {
	http.ResponseWriter
	up *protectedUpstream
}

func (r *recorder) Write(b []byte) (int, error) {
	r.up.mu.Lock()
	r.up.bodies.Write(b)
	r.up.mu.Unlock()
	return r.ResponseWriter.Write(b)
}

func (u *protectedUpstream) newServer() *mcp.Server {
	s := mcp.NewServer("notes", "1", &mcp.ServerOptions{Middleware: []mcp.Middleware{
		oauth.RequireScopes(&oauth.ScopeRules{Tools: map[string]oauth.Scopes{"write": oauth.AllOf("write")}}),
	}})
	mcp.AddTool(s, &mcp.Tool{Name: "whoami"}, func(ctx context.Context, _ struct{}) (string, error) {
		subject := mcp.RequestFrom(ctx).Principal.Subject
		n, _ := u.callers.LoadOrStore(subject, new(atomic.Int64))
		n.(*atomic.Int64).Add(1)
		return subject, nil
	})
	mcp.AddTool(s, &mcp.Tool{Name: "write"}, func(ctx context.Context, _ struct{}) (string, error) {
		return "written by " + mcp.RequestFrom(ctx).Principal.Subject, nil
	})
	mcp.AddTool(s, &mcp.Tool{Name: "ask"}, func(ctx context.Context, _ struct{}) (string, error) {
		u.asked.Add(1)
		color, err := mcp.Ask[string](ctx, "color", "Which color?", nil)
		return color + " of " + mcp.RequestFrom(ctx).Principal.Subject, err
	})
	mcp.AddTool(s, &mcp.Tool{Name: "leak"}, func(ctx context.Context, _ struct{}) (string, error) {
		u.mu.Lock()
		defer u.mu.Unlock()
		return "", errors.New("leaked " + u.headers[len(u.headers)-1].Get("Authorization"))
	})
	return s
}

// count returns the successful events of an action.
func (u *protectedUpstream) count(action string) (n int) {
	u.mu.Lock()
	defer u.mu.Unlock()
	for _, e := range u.events {
		if e.Action == action && !e.Refused {
			n++
		}
	}
	return n
}

func (u *protectedUpstream) calls(subject string) int64 {
	n, ok := u.callers.Load(subject)
	if !ok {
		return 0
	}
	return n.(*atomic.Int64).Load()
}

// secrets returns all tokens that the authorization server has issued.
func (u *protectedUpstream) secrets(t *testing.T) (all []string) {
	t.Helper()
	u.mu.Lock()
	defer u.mu.Unlock()
	decoder := json.NewDecoder(bytes.NewReader(u.bodies.Bytes()))
	for {
		var r struct {
			Access  string `json:"access_token"`
			Refresh string `json:"refresh_token"`
		}
		if err := decoder.Decode(&r); err != nil {
			return all
		}
		for _, token := range []string{r.Access, r.Refresh} {
			if token != "" {
				all = append(all, token)
			}
		}
	}
}

// lastToken returns the last token that the server has received.
func (u *protectedUpstream) lastToken() string {
	u.mu.Lock()
	defer u.mu.Unlock()
	token, _ := strings.CutPrefix(u.headers[len(u.headers)-1].Get("Authorization"), "Bearer ")
	return token
}

// A loginGateway is a gateway whose callers have principals: a request with "Bearer NAME" is of NAME.
type loginGateway struct {
	url   string
	host  *host.Host
	logs  *logs
	audit string // folder
	log   *audit.Log
	pages logs // that browsers have received

	upstream string // URL of the server
	issuer   string // of callers

	mu     sync.Mutex // guards tokens
	stores map[string]oauthclient.Store
}

const loginIssuer = "https://people.example"

func newLoginGateway(t *testing.T, u *protectedUpstream, settings, connect string, change func(o *gateway.Options),
	hostChange ...func(o *host.Options)) *loginGateway {
	t.Helper()
	g := &loginGateway{upstream: u.url, issuer: loginIssuer, logs: &logs{}, audit: t.TempDir(), stores: map[string]oauthclient.Store{}}
	text := fmt.Sprintf(`{"mcpServers": {"notes": {"url": %q}}, "patchbay": {"servers": {"notes": %s}%s}}`, u.url, settings, connect)
	f, err := config.Parse([]byte(text))
	if err != nil {
		t.Fatal(err)
	}
	_, signer, err := ed25519.GenerateKey(nil)
	if err != nil {
		t.Fatal(err)
	}
	g.log, err = audit.Open(&audit.Options{Dir: g.audit, Arguments: audit.ArgumentsFull, Key: signer,
		Logger: slog.New(slog.DiscardHandler)})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = g.log.Close() })
	opened := &host.Options{Logger: g.logs.logger(), Recorder: g.log, Tokens: g.store,
		LoginCommand: func(server string) string { return "patchbay gateway login " + server }}
	for _, change := range hostChange {
		change(opened)
	}
	g.host, err = host.Open(t.Context(), f, opened)
	if err != nil {
		t.Fatal(err)
	}
	s := httptest.NewUnstartedServer(nil)
	g.url = "http://" + s.Listener.Addr().String()
	opts := &gateway.Options{Keys: []string{key}, Logger: g.logs.logger(), PublicURL: g.url,
		ConnectPrincipal: g.anyone}
	if change != nil {
		change(opts)
	}
	gw := gateway.New(g.host, opts)
	mcpHandler := mcphttp.NewHandler(gw.Endpoint(gateway.Route{}), &mcphttp.Options{Logger: g.logs.logger()})
	mux := http.NewServeMux()
	mux.Handle("/mcp", http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		name, _ := strings.CutPrefix(r.Header.Get("Authorization"), "Bearer ")
		ctx := operator.WithAuthorization(r.Context(), r.Header.Get("Authorization"))
		if name != "local" {
			ctx = mcp.WithPrincipal(ctx, &mcp.Principal{Issuer: g.issuer, Subject: name})
		}
		mcpHandler.ServeHTTP(w, r.WithContext(ctx))
	}))
	mux.Handle("/", gw.Handler())
	s.Config.Handler = mux
	s.Start()
	t.Cleanup(func() {
		_ = mcpHandler.Shutdown(context.Background())
		_ = gw.Shutdown(context.Background())
		s.CloseClientConnections()
		s.Close()
		if err := g.host.Close(); err != nil {
			t.Error(err)
		}
	})
	return g
}

// anyone takes each visitor for the caller, for tests that are not about who opens a page.
func (g *loginGateway) anyone(r *http.Request) (*mcp.Principal, error) {
	l, err := g.host.Operator().Login(strings.TrimPrefix(r.URL.Path, "/connect/"))
	if err != nil {
		return nil, err
	}
	return l.Principal(), nil
}

func (g *loginGateway) store(principal string) oauthclient.Store {
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.stores[principal] == nil {
		g.stores[principal] = oauthclient.NewMemoryStore()
	}
	return g.stores[principal]
}

// A visitor is a user with a browser, who can be logged in at the authorization server.
type visitor struct {
	t    *testing.T
	g    *loginGateway
	name string // at the authorization server; empty for one who cancels
	http *http.Client

	visits sync.WaitGroup
	mu     sync.Mutex // guards the fields below
	pages  []string   // of elicitations
	texts  []string   // of pages of the gateway
}

func (g *loginGateway) visitor(t *testing.T, name string) *visitor {
	t.Helper()
	jar, err := cookiejar.New(nil)
	if err != nil {
		t.Fatal(err)
	}
	transport := &http.Transport{}
	t.Cleanup(transport.CloseIdleConnections)
	v := &visitor{t: t, g: g, name: name}
	t.Cleanup(v.visits.Wait) // before the gateway is closed
	v.http = &http.Client{Jar: jar, Transport: roundTripper(func(r *http.Request) (*http.Response, error) {
		if strings.HasPrefix(r.URL.String(), g.url) {
			return transport.RoundTrip(r)
		}
		r = r.Clone(r.Context())
		r.Header.Set(browserUser, v.name)
		return transport.RoundTrip(r)
	})}
	return v
}

type roundTripper func(r *http.Request) (*http.Response, error)

func (f roundTripper) RoundTrip(r *http.Request) (*http.Response, error) { return f(r) }

var (
	testAction = regexp.MustCompile(`<form method="post" action="([^"]*)"`)
	testHidden = regexp.MustCompile(`<input type="hidden" name="([^"]*)" value="([^"]*)"`)
)

// read returns the text of a response, and keeps that of a page of the gateway.
func (v *visitor) read(res *http.Response) string {
	v.t.Helper()
	defer res.Body.Close()
	b, err := io.ReadAll(res.Body)
	if err != nil {
		v.t.Error(err)
	}
	if strings.HasPrefix(res.Request.URL.String(), v.g.url) {
		fmt.Fprintf(&v.g.pages, "%v %v %s\n", res.Request.URL.Path, res.Header, b)
		v.mu.Lock()
		v.texts = append(v.texts, string(b))
		v.mu.Unlock()
	}
	return string(b)
}

// form returns the fields of the form of a page.
func form(page string) url.Values {
	fields := url.Values{"decision": {"allow"}}
	for _, f := range testHidden.FindAllStringSubmatch(page, -1) {
		fields.Set(f[1], html.UnescapeString(f[2]))
	}
	return fields
}

// visit opens a page, and fills in all forms that follow. It returns the last page.
func (v *visitor) visit(page string) (status int, text string) {
	v.t.Helper()
	res, err := v.http.Get(page)
	for range 6 {
		if err != nil {
			v.t.Error(err)
			return 0, ""
		}
		text = v.read(res)
		if !strings.Contains(text, "<form") || strings.Contains(text, `role="alert"`) {
			return res.StatusCode, text
		}
		to := res.Request.URL
		if action := testAction.FindStringSubmatch(text); action != nil {
			to, err = to.Parse(html.UnescapeString(action[1]))
			if err != nil {
				v.t.Error(err)
			}
		}
		res, err = v.http.PostForm(to.String(), form(text))
	}
	v.t.Errorf("too many pages, the last is %s", text)
	return 0, ""
}

// elicit is what the client of the visitor does when it is asked to open a page.
func (v *visitor) elicit(_ context.Context, p *mcp.ElicitRequestParams) (*mcp.ElicitResult, error) {
	v.mu.Lock()
	v.pages = append(v.pages, p.URL)
	v.mu.Unlock()
	v.visits.Go(func() { v.visit(p.URL) })
	return &mcp.ElicitResult{Action: mcp.ElicitAccept}, nil
}

func (v *visitor) opened() []string {
	v.mu.Lock()
	defer v.mu.Unlock()
	return append([]string(nil), v.pages...)
}

// client connects a client of a caller of the gateway. Its elicitations go to elicit, unless it is nil.
func (g *loginGateway) client(t *testing.T, caller, revision string,
	elicit func(context.Context, *mcp.ElicitRequestParams) (*mcp.ElicitResult, error)) *mcp.Client {
	t.Helper()
	c, err := g.connect(t, caller, revision, elicit)
	if err != nil {
		t.Fatal(err)
	}
	return c
}

// connect is like client, for a client that may not be able to connect.
func (g *loginGateway) connect(t *testing.T, caller, revision string,
	elicit func(context.Context, *mcp.ElicitRequestParams) (*mcp.ElicitResult, error)) (*mcp.Client, error) {
	t.Helper()
	return g.connectWith(t, caller, revision, &mcp.ClientOptions{ElicitURL: elicit})
}

func (g *loginGateway) clientWith(t *testing.T, caller, revision string, o *mcp.ClientOptions) *mcp.Client {
	t.Helper()
	c, err := g.connectWith(t, caller, revision, o)
	if err != nil {
		t.Fatal(err)
	}
	return c
}

func (g *loginGateway) connectWith(t *testing.T, caller, revision string, o *mcp.ClientOptions) (*mcp.Client, error) {
	t.Helper()
	o.Revision, o.Logger = revision, slog.New(slog.DiscardHandler)
	transport := http.DefaultTransport.(*http.Transport).Clone()
	t.Cleanup(transport.CloseIdleConnections)
	c, err := mcp.Connect(t.Context(), mcphttp.NewTransport(g.url+"/mcp", &mcphttp.TransportOptions{
		Client: &http.Client{Transport: transport}, Header: http.Header{"Authorization": {"Bearer " + caller},
			"Cookie": {"session=" + caller}, "X-Tenant": {"tenant-" + caller}}}), o)
	if err == nil {
		t.Cleanup(func() { _ = c.Close() })
	}
	return c, err
}

// call calls a tool and returns the text of its result.
func call(t *testing.T, c *mcp.Client, tool string) (text string, isError bool) {
	t.Helper()
	res, err := c.CallTool(t.Context(), tool, nil)
	if err != nil {
		t.Fatalf("%s: %v", tool, err)
	}
	return res.Text(), res.IsError
}

// errorCode returns the code of the gateway's error in a result.
func errorCode(t *testing.T, c *mcp.Client, tool string) (code, text string) {
	t.Helper()
	res, err := c.CallTool(t.Context(), tool, nil)
	if err != nil {
		t.Fatalf("%s: %v", tool, err)
	}
	raw, _ := json.Marshal(res.Meta["dev.patchbay/error"])
	var e struct{ Code string }
	_ = json.Unmarshal(raw, &e)
	return e.Code, res.Text()
}
