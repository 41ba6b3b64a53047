package authserver_test

import (
	"bytes"
	"context"
	"crypto"
	"io"
	"maps"
	"net/http"
	"net/http/httptest"
	"net/url"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/patchbay-mcp/patchbay/mcp"
	"github.com/patchbay-mcp/patchbay/mcphttp"
	"github.com/patchbay-mcp/patchbay/oauth"
	"github.com/patchbay-mcp/patchbay/oauth/authserver"
	"github.com/patchbay-mcp/patchbay/oauth/oauthclient"
)

// A mount is an MCP server and its authorization server at one address, as in the example of the
// package comment.
type mount struct {
	*env
	endpoint string

	mu        sync.Mutex // guards the fields below
	paths     []string   // of the requests to the authorization server
	tokenForm url.Values // of the last token request
}

// newMount returns a mount with the MCP endpoint at a pattern of http.ServeMux. The MCP server has
// the tool whoami.
func newMount(t *testing.T, pattern string, change func(*authserver.Options)) *mount {
	t.Helper()
	mux := http.NewServeMux()
	front := httptest.NewServer(mux)
	t.Cleanup(front.Close)
	m := &mount{endpoint: front.URL + strings.TrimSuffix(pattern, "{$}")}
	o := options(front.URL)
	o.Resources[0].URL, o.Clients = m.endpoint, nil
	if change != nil {
		change(&o)
	}
	auth := newServer(t, o)
	m.env = &env{t, auth, front.URL, front.Client().Transport}
	server := mcp.NewServer("notes", "1.0.0", nil)
	mcp.AddTool(server, &mcp.Tool{Name: "whoami"}, func(ctx context.Context, _ struct{}) (string, error) {
		return mcp.RequestFrom(ctx).Principal.Subject + " " + mcp.PrincipalFrom(ctx).Subject, nil
	})
	handler := mcphttp.NewHandler(server, nil)
	t.Cleanup(func() { _ = handler.Shutdown(context.Background()) })
	protect := oauth.Require(auth.Verifier(m.endpoint), auth.ResourceMetadata(m.endpoint), nil)
	mux.Handle(pattern, protect(handler))
	mux.Handle("/", http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		m.record(r)
		auth.ServeHTTP(w, r)
	}))
	return m
}

func (m *mount) record(r *http.Request) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.paths = append(m.paths, r.URL.Path)
	if r.URL.Path != "/token" {
		return
	}
	body, err := io.ReadAll(r.Body)
	if err != nil {
		m.t.Error(err)
	}
	r.Body = io.NopCloser(bytes.NewReader(body))
	if m.tokenForm, err = url.ParseQuery(string(body)); err != nil {
		m.t.Error(err)
	}
}

// requests returns the paths and the token form since the last call.
func (m *mount) requests() (paths []string, tokenForm url.Values) {
	m.mu.Lock()
	defer m.mu.Unlock()
	paths, tokenForm = m.paths, m.tokenForm
	m.paths, m.tokenForm = nil, nil
	return paths, tokenForm
}

// whoami connects a client that knows only the endpoint, and checks the result of the tool.
func (m *mount) whoami(opts *oauthclient.TransportOptions, want string) {
	m.t.Helper()
	client := &http.Client{Transport: oauthclient.NewTransport(m.endpoint, opts)}
	transport := mcphttp.NewTransport(m.endpoint, &mcphttp.TransportOptions{Client: client})
	c, err := mcp.Connect(m.t.Context(), transport, nil)
	if err != nil {
		m.t.Fatal(err)
	}
	defer c.Close()
	res, err := c.CallTool(m.t.Context(), "whoami", nil)
	if err != nil || res.Text() != want {
		m.t.Errorf("whoami = %+v, %v, want %q", res, err, want)
	}
}

// Requirement: AUTHR-03
func TestClientLogsInAtAServerOnAMux(t *testing.T) {
	for _, pattern := range []string{"/mcp", "/{$}"} {
		m := newMount(t, pattern, nil)
		authorizer := oauthclient.NewAuthorizer("http://127.0.0.1:4711/callback", m.consent)
		m.whoami(&oauthclient.TransportOptions{Authorizer: authorizer}, "alice alice")
	}
}

// A client with client credentials finds the authorization server by the metadata, and requests a
// token for the resource, as other clients do.
//
// Requirement: EAUTH-02, EAUTH-05
func TestClientCredentialsFromDiscoveryToCall(t *testing.T) {
	key := newKey(t)
	m := newMount(t, "/mcp", func(o *authserver.Options) {
		o.Clients = []authserver.Client{
			{ID: machineID, SecretHash: secretHash, Scopes: []string{"read"}},
			{ID: "signer", Keys: []crypto.PublicKey{key.Public()}, Scopes: []string{"read"}},
		}
	})
	for name, c := range map[string]struct {
		client oauthclient.Identity
		want   map[string]string // additional parameters; * is any value
	}{
		"secret": {oauthclient.Identity{ID: machineID, Secret: secret, Issuer: m.issuer}, nil},
		"JWT assertion": {
			oauthclient.Identity{ID: "signer", Key: &oauthclient.AssertionKey{Key: key}, Issuer: m.issuer},
			map[string]string{"client_assertion_type": jwtBearer, "client_assertion": "*"},
		},
	} {
		t.Run(name, func(t *testing.T) {
			m.requests() // discard those of the other client
			m.whoami(&oauthclient.TransportOptions{Grant: oauthclient.NewClientCredentialsGrant(), Client: c.client},
				c.client.ID+" "+c.client.ID)
			paths, form := m.requests()
			for _, path := range []string{"/.well-known/oauth-authorization-server", "/token"} {
				if !slices.Contains(paths, path) {
					t.Errorf("requests are %q, want one to %s", paths, path)
				}
			}
			for _, path := range []string{"/register", "/authorize"} {
				if slices.Contains(paths, path) {
					t.Errorf("requests are %q, want none to %s", paths, path)
				}
			}
			want := map[string]string{"grant_type": "client_credentials", "resource": m.endpoint, "scope": "read write"}
			maps.Copy(want, c.want)
			for parameter := range form {
				if w, ok := want[parameter]; !ok || w != "*" && w != form.Get(parameter) {
					t.Errorf("token request has %s=%q, want %q", parameter, form.Get(parameter), w)
				}
			}
			if len(form) != len(want) {
				t.Errorf("token request is %v, want the parameters of %v", form, want)
			}
		})
	}
}

// In 2025-03-26 the status alone makes clients log in.
//
// Requirement: AUTHB-01
func TestRequestsWithoutAValidTokenGet401(t *testing.T) {
	w := newInProcessEnv(t, nil)
	handler := mcphttp.NewHandler(mcp.NewServer("notes", "1.0.0", nil), nil)
	t.Cleanup(func() { _ = handler.Shutdown(context.Background()) })
	protected := oauth.Require(w.server.Verifier(resource), w.server.ResourceMetadata(resource), nil)(handler)
	const initialize = `{"jsonrpc":"2.0","id":1,"method":"initialize","params":{"protocolVersion":"2025-03-26",` +
		`"capabilities":{},"clientInfo":{"name":"c","version":"1"}}}`
	for name, c := range map[string]struct {
		method, body, authorization string
		want                        int
	}{
		"initialize":                    {http.MethodPost, initialize, "", http.StatusUnauthorized},
		"initialize with invalid token": {http.MethodPost, initialize, "Bearer x", http.StatusUnauthorized},
		"GET of the stream":             {http.MethodGet, "", "", http.StatusUnauthorized},
		"DELETE of the session":         {http.MethodDelete, "", "", http.StatusUnauthorized},
		"initialize with a token":       {http.MethodPost, initialize, "Bearer " + w.login().Access, http.StatusOK},
	} {
		req := httptest.NewRequest(c.method, resource, strings.NewReader(c.body))
		req.Header.Set("Content-Type", "application/json")
		req.Header.Set("Accept", "application/json, text/event-stream")
		if c.authorization != "" {
			req.Header.Set("Authorization", c.authorization)
		}
		rec := httptest.NewRecorder()
		protected.ServeHTTP(rec, req)
		if rec.Code != c.want {
			t.Errorf("%s: status %d %s, want %d", name, rec.Code, rec.Body, c.want)
		}
	}
}

// consent logs in alice, who allows all requests.
func (w *env) consent(_ context.Context, login *oauthclient.LoginRequest) (url.Values, error) {
	u, err := url.Parse(login.URL)
	if err != nil {
		return nil, err
	}
	return w.browser().authorize(u.Query()), nil
}

// The Server serves the same document as Require, also at the root, for resources at its own host.
//
// Requirement: AUTHR-03
func TestResourceMetadataIsServed(t *testing.T) {
	get := func(handler http.Handler, host, path string) *httptest.ResponseRecorder {
		r, rec := httptest.NewRequest(http.MethodGet, "https://"+host+path, nil), httptest.NewRecorder()
		handler.ServeHTTP(rec, r)
		return rec
	}
	const known = "/.well-known/oauth-protected-resource"
	o := options("https://mcp.example/as")
	one := newServer(t, o)
	protect := oauth.Require(one.Verifier(resource), one.ResourceMetadata(resource), nil)(http.NotFoundHandler())
	for _, path := range []string{known + "/mcp", known} {
		got, want := get(one, "mcp.example", path), get(protect, "mcp.example", path)
		if got.Code != http.StatusOK || got.Body.String() != want.Body.String() ||
			got.Header().Get("Content-Type") != "application/json" ||
			got.Header().Get("Access-Control-Allow-Origin") != "*" ||
			!strings.Contains(got.Header().Get("Cache-Control"), "max-age") {
			t.Errorf("%s: got %d %s %v, want %s", path, got.Code, got.Body, got.Header(), want.Body)
		}
		if proxied := get(one, "10.0.0.1:8080", path); proxied.Body.String() != want.Body.String() {
			t.Errorf("%s behind a proxy: got %d %s, want %s", path, proxied.Code, proxied.Body, want.Body)
		}
	}

	o.Resources = append(o.Resources, authserver.Resource{URL: "https://mcp.example:443/other"},
		authserver.Resource{URL: "https://elsewhere.example/mcp"},
		authserver.Resource{URL: "https://mcp.example/search?q=1"})
	four := newServer(t, o)
	for address, want := range map[string]string{
		"mcp.example" + known + "/mcp":           `"resource":"https://mcp.example/mcp"`,
		"mcp.example:443" + known + "/other":     `"resource":"https://mcp.example:443/other"`,
		"ELSEWHERE.example" + known + "/mcp":     `"resource":"https://elsewhere.example/mcp"`,
		"elsewhere.example" + known:              `"resource":"https://elsewhere.example/mcp"`,
		"mcp.example" + known:                    "", // ambiguous
		"elsewhere.example" + known + "/other":   "",
		"mcp.example" + known + "/search":        "",
		"mcp.example" + known + "/mcp/":          "",
		"mcp.example" + known + "/mcp/../search": "",
	} {
		host, path, _ := strings.Cut(address, "/")
		got := get(four, host, "/"+path)
		if want == "" && got.Code != http.StatusNotFound || want != "" && (got.Code != http.StatusOK ||
			!strings.Contains(got.Body.String(), want)) {
			t.Errorf("%s: got %d %s, want %q", address, got.Code, got.Body, want)
		}
	}
}
