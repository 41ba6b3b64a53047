package authserver_test

import (
	"context"
	"net/http"
	"net/http/httptest"
	"net/url"
	"strings"
	"testing"

	"github.com/patchbay-mcp/patchbay/mcp"
	"github.com/patchbay-mcp/patchbay/mcphttp"
	"github.com/patchbay-mcp/patchbay/oauth"
	"github.com/patchbay-mcp/patchbay/oauth/authserver"
	"github.com/patchbay-mcp/patchbay/oauth/oauthclient"
)

// The server is mounted as in the example of the package comment.
func TestAUTHR03_ClientLogsInAtAServerOnAMux(t *testing.T) {
	for _, withRoot := range []bool{false, true} {
		mux := http.NewServeMux()
		front := httptest.NewServer(mux)
		t.Cleanup(front.Close)
		path := "/mcp"
		if withRoot {
			path = "/{$}"
		}
		endpoint := front.URL + strings.TrimSuffix(path, "{$}")
		o := options(front.URL)
		o.Resources[0].URL, o.Clients = endpoint, nil
		auth := newServer(t, o)
		server := mcp.NewServer("notes", "1.0.0", nil)
		mcp.AddTool(server, &mcp.Tool{Name: "whoami"}, func(ctx context.Context, _ struct{}) (string, error) {
			return mcp.RequestFrom(ctx).Principal.Subject + " " + mcp.PrincipalFrom(ctx).Subject, nil
		})
		handler := mcphttp.NewHandler(server, nil)
		t.Cleanup(func() { _ = handler.Shutdown(context.Background()) })
		protect := oauth.Require(auth.Verifier(endpoint), auth.ResourceMetadata(endpoint), nil)
		mux.Handle(path, protect(handler))
		mux.Handle("/", auth)

		w := &env{t, auth, front.URL, front.Client().Transport}
		login := oauthclient.NewTransport(endpoint,
			&oauthclient.TransportOptions{Authorizer: oauthclient.NewAuthorizer("http://127.0.0.1:4711/callback",
				w.consent)})
		c, err := mcp.Connect(t.Context(), mcphttp.NewTransport(endpoint,
			&mcphttp.TransportOptions{Client: &http.Client{Transport: login}}), nil)
		if err != nil {
			t.Fatal(err)
		}
		res, err := c.CallTool(t.Context(), "whoami", nil)
		if err != nil || len(res.Content) != 1 {
			t.Fatalf("CallTool = %+v, %v, want one content block", res, err)
		}
		if text, _ := res.Content[0].(*mcp.TextContent); text == nil || text.Text != "alice alice" {
			t.Errorf("got %+v, want the text %q", res.Content[0], "alice alice")
		}
		_ = c.Close()
	}
}

// In 2025-03-26 the status alone makes clients log in.
func TestAUTHB01_RequestsWithoutAValidTokenGet401(t *testing.T) {
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
func TestAUTHR03_ResourceMetadataIsServed(t *testing.T) {
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
