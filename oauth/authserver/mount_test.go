package authserver_test

import (
	"context"
	"io"
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

// The mount lines of the package comment are all that a client needs to log in.
func TestAUTHR03_ServerOnAMux(t *testing.T) {
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
		mcp.AddTool(server, &mcp.Tool{Name: "who"}, func(ctx context.Context, _ struct{}) (string, error) {
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
		res, err := c.CallTool(t.Context(), "who", nil)
		if err != nil || len(res.Content) != 1 {
			t.Fatalf("got %+v, %v", res, err)
		}
		if text, _ := res.Content[0].(*mcp.TextContent); text == nil || text.Text != "alice alice" {
			t.Errorf("got %+v", res.Content[0])
		}
		_ = c.Close()
	}
}

// consent is a user who allows everything.
func (w *env) consent(_ context.Context, login *oauthclient.LoginRequest) (url.Values, error) {
	u, err := url.Parse(login.URL)
	if err != nil {
		return nil, err
	}
	return w.browser().authorize(u.Query()), nil
}

// The document is the one that Require serves, byte for byte, at both addresses, for a resource at
// this host.
func TestAUTHR03_ResourceMetadata(t *testing.T) {
	at := func(host, path string) func(handler http.Handler) *httptest.ResponseRecorder {
		return func(handler http.Handler) *httptest.ResponseRecorder {
			r, rec := httptest.NewRequest(http.MethodGet, "https://"+host+path, nil), httptest.NewRecorder()
			handler.ServeHTTP(rec, r)
			return rec
		}
	}
	const known = "/.well-known/oauth-protected-resource"
	o := options("https://mcp.example/as")
	one := newServer(t, o)
	protect := oauth.Require(one.Verifier(resource), one.ResourceMetadata(resource), nil)(http.NotFoundHandler())
	for _, path := range []string{known + "/mcp", known} {
		got, want := at("mcp.example", path)(one), at("mcp.example", path)(protect)
		if got.Code != http.StatusOK || got.Body.String() != want.Body.String() ||
			got.Header().Get("Content-Type") != "application/json" ||
			got.Header().Get("Access-Control-Allow-Origin") != "*" || !strings.Contains(got.Header().Get("Cache-Control"),
			"max-age") {
			t.Errorf("%s: got %d %s %v, want %s", path, got.Code, got.Body, got.Header(), want.Body)
		}
		if inner := at("10.0.0.1:8080", path)(one); inner.Body.String() != want.Body.String() {
			t.Errorf("%s behind a proxy: got %d", path, inner.Code)
		}
	}

	o.Resources = append(o.Resources, authserver.Resource{URL: "https://mcp.example:443/other"},
		authserver.Resource{URL: "https://elsewhere.example/mcp"}, authserver.Resource{URL: "https://mcp.example/search?q=1"})
	four := newServer(t, o)
	for address, want := range map[string]string{
		"mcp.example" + known + "/mcp":           `"resource":"https://mcp.example/mcp"`,
		"mcp.example:443" + known + "/other":     `"resource":"https://mcp.example:443/other"`,
		"ELSEWHERE.example" + known + "/mcp":     `"resource":"https://elsewhere.example/mcp"`,
		"elsewhere.example" + known:              `"resource":"https://elsewhere.example/mcp"`,
		"mcp.example" + known:                    "", // of which of them?
		"elsewhere.example" + known + "/other":   "",
		"mcp.example" + known + "/search":        "",
		"mcp.example" + known + "/mcp/":          "",
		"mcp.example" + known + "/mcp/../search": "",
	} {
		host, path, _ := strings.Cut(address, "/")
		got := at(host, "/"+path)(four)
		if want == "" && got.Code != http.StatusNotFound || want != "" && (got.Code != http.StatusOK ||
			!strings.Contains(got.Body.String(), want)) {
			body, _ := io.ReadAll(got.Body)
			t.Errorf("%s: got %d %s", address, got.Code, body)
		}
	}
}
