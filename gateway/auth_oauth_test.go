package gateway_test

import (
	"encoding/json"
	"io"
	"log/slog"
	"net"
	"net/http"
	"net/http/httptest"
	"net/url"
	"slices"
	"strings"
	"testing"

	"github.com/patchbay-mcp/patchbay/gateway"
	"github.com/patchbay-mcp/patchbay/host/state"
	"github.com/patchbay-mcp/patchbay/mcptest"
	"github.com/patchbay-mcp/patchbay/oauth"
	"github.com/patchbay-mcp/patchbay/oauth/authserver"
)

// An issuer is an authorization server with the clients ann and bob.
type issuer struct {
	url    string
	secret string
}

// newIssuer serves an authorization server for resources.
func newIssuer(t *testing.T, resources ...string) *issuer {
	t.Helper()
	secret, hash := authserver.NewClientSecret()
	mux := http.NewServeMux()
	s := httptest.NewServer(mux)
	t.Cleanup(s.Close)
	var all []authserver.Resource
	for _, url := range resources {
		all = append(all, authserver.Resource{URL: url, Scopes: []authserver.Scope{{Name: "use"}, {Name: "code"}, {Name: "ops"}}})
	}
	auth, err := authserver.New(&authserver.Options{Issuer: s.URL, Resources: all, Logger: slog.New(slog.DiscardHandler),
		Clients: []authserver.Client{{ID: "ann", SecretHash: hash}, {ID: "bob", SecretHash: hash}}})
	if err != nil {
		t.Fatal(err)
	}
	mux.Handle("/", auth)
	return &issuer{s.URL, secret}
}

// token returns a token of a client for a resource.
func (i *issuer) token(t *testing.T, client, resource, scope string) string {
	t.Helper()
	form := url.Values{"grant_type": {"client_credentials"}, "resource": {resource}, "scope": {scope}}
	r, err := http.NewRequestWithContext(t.Context(), http.MethodPost, i.url+"/token", strings.NewReader(form.Encode()))
	if err != nil {
		t.Fatal(err)
	}
	r.SetBasicAuth(client, i.secret)
	r.Header.Set("Content-Type", "application/x-www-form-urlencoded")
	res, err := http.DefaultClient.Do(r)
	if err != nil {
		t.Fatal(err)
	}
	defer res.Body.Close()
	defer http.DefaultClient.CloseIdleConnections()
	body, err := io.ReadAll(res.Body)
	var out struct {
		Token string `json:"access_token"`
	}
	if err != nil || json.Unmarshal(body, &out) != nil || out.Token == "" {
		t.Fatalf("token: %d %s, %v", res.StatusCode, body, err)
	}
	return out.Token
}

// options returns options that accept the tokens of the issuer.
func (i *issuer) options(public string) *gateway.Options {
	o := &gateway.Options{PublicURL: public, Keys: []string{key}, KeyStore: gateway.NewKeyStore(&state.Memory{}),
		Logger: slog.New(slog.DiscardHandler), OAuth: &gateway.OAuth{
			Verifier: oauth.NewJWTVerifier(i.url, nil), AuthorizationServers: []string{i.url},
			Audiences: []string{"https://audience.example"}, Scopes: []string{"use"}}}
	o.HTTP.AllowedHosts = []string{"127.0.0.1"} // of request
	return o
}

const publicURL = "https://mcp.example.com"

// Each path is a resource with metadata of its own, and a token for one is not valid at another. What
// does not exist cannot be told from what does.
func TestTokensAreForOnePath(t *testing.T) {
	as := newIssuer(t, publicURL+"/mcp", publicURL+"/mcp/s/one", "https://audience.example")
	h := gateway.New((&upstreams{}).newHost(t, twoServers), as.options(publicURL)).Handler()
	for path, resource := range map[string]string{"/mcp": "/mcp", "/mcp/s/one": "/mcp/s/one", "/mcp/p/code": "/mcp/p/code",
		"/mcp/s/unknown": "/mcp/s/unknown", "/mcp/s/a%2Fb": "/mcp/s/a%2Fb", "/mcp/x/y": "/mcp"} {
		w := request(h, "POST", path)
		want := publicURL + "/.well-known/oauth-protected-resource" + resource
		challenges := oauth.ParseChallenges(w.Header())
		if w.Code != 401 || len(challenges) != 1 || challenges[0].Params["resource_metadata"] != want {
			t.Errorf("%s: %d %v, want a challenge with %s", path, w.Code, w.Header(), want)
		}
		w = request(h, "GET", strings.TrimPrefix(want, publicURL))
		var m oauth.ResourceMetadata
		if err := json.Unmarshal(w.Body.Bytes(), &m); err != nil || w.Code != 200 || m.Resource != publicURL+resource ||
			!slices.Equal(m.AuthorizationServers, []string{as.url}) || !slices.Equal(m.ScopesSupported, []string{"use"}) {
			t.Errorf("%s: %d %s", want, w.Code, w.Body)
		}
	}
	for path, want := range map[string]int{"/.well-known/oauth-protected-resource": 200,
		"/.well-known/oauth-protected-resource/mcp/x/y": 404, "/.well-known/oauth-protected-resource/other": 404,
		"/.well-known/oauth-authorization-server": 404} {
		if w := request(h, "GET", path); w.Code != want {
			t.Errorf("%s: %d, want %d", path, w.Code, want)
		}
	}
	for _, c := range []struct {
		resource, scope string
		want            map[string]int
	}{
		{publicURL + "/mcp", "use", map[string]int{"/mcp": 200, "/mcp/s/one": 401, "/mcp/p/code": 401}},
		{publicURL + "/mcp/s/one", "use", map[string]int{"/mcp": 401, "/mcp/s/one": 200, "/mcp/s/two": 401}},
		{"https://audience.example", "use", map[string]int{"/mcp": 200, "/mcp/s/two": 200, "/mcp/s/unknown": 404}},
		{"https://audience.example", "code", map[string]int{"/mcp": 403, "/mcp/s/unknown": 403}},
	} {
		token := as.token(t, "ann", c.resource, c.scope)
		for path, want := range c.want {
			if w := request(h, "POST", path, "Authorization", "Bearer "+token); w.Code != want {
				t.Errorf("a token for %s at %s: %d %s, want %d", c.resource, path, w.Code, w.Body, want)
			}
		}
	}
	other := newIssuer(t, publicURL+"/mcp").token(t, "ann", publicURL+"/mcp", "use")
	if w := request(h, "POST", "/mcp", "Authorization", "Bearer "+other); w.Code != 401 {
		t.Errorf("a token of another issuer: %d, want 401", w.Code)
	}
}

// Keys and tokens are accepted side by side. A value with the prefix of keys is no token.
func TestKeysAndTokens(t *testing.T) {
	as := newIssuer(t, publicURL+"/mcp")
	opts := as.options(publicURL)
	secret := newKey(t, opts.KeyStore, gateway.Key{Name: "ann"})
	h := gateway.New((&upstreams{}).newHost(t, twoServers), opts).Handler()
	for name, c := range map[string]struct {
		value string
		want  int
	}{
		"the key of the local user": {"Bearer " + key, 200}, "a key": {"Bearer " + secret, 200},
		"a token":     {"Bearer " + as.token(t, "ann", publicURL+"/mcp", "use"), 200},
		"a wrong key": {"Bearer patchbay_" + gateway.NewKey(), 401}, "a wrong token": {"Bearer " + gateway.NewKey(), 401},
		"another scheme": {"Basic YTpi", 401}, "nothing": {"Bearer ", 400},
	} {
		w := request(h, "POST", "/mcp", "Authorization", c.value)
		challenge := w.Header().Get("WWW-Authenticate")
		if w.Code != c.want || w.Code == 401 && !strings.Contains(challenge, "/.well-known/oauth-protected-resource/mcp") {
			t.Errorf("%s: %d %q, want %d", name, w.Code, challenge, c.want)
		}
	}
	opts = as.options(publicURL)
	opts.Keys, opts.KeyStore = nil, nil
	h = gateway.New((&upstreams{}).newHost(t, twoServers), opts).Handler()
	for _, value := range []string{key, secret} {
		if w := request(h, "POST", "/mcp", "Authorization", "Bearer "+value); w.Code != 401 {
			t.Errorf("a key where only tokens are accepted: %d, want 401", w.Code)
		}
	}
}

// Two principals with tokens of a real authorization server have own instances, over every revision and
// transport. Servers get no token.
func TestTokensHavePrincipals(t *testing.T) {
	mcptest.NoLeaks(t)
	u := &upstreams{}
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	base := "http://" + l.Addr().String()
	as := newIssuer(t, base+"/mcp")
	g := gateway.New(u.newHost(t, `{"mcpServers": {"one": {"command": "one"}}}`), as.options(base))
	serveOn(t, g, l)
	for _, client := range []string{"ann", "bob"} {
		token := as.token(t, client, base+"/mcp", "use")
		for _, c := range connections(t, base+"/mcp", token) {
			if res, err := c.CallTool(t.Context(), "whoami", nil); err != nil || res.IsError {
				t.Errorf("call: %+v, %v", res, err)
			}
			c.Close()
		}
	}
	u.mu.Lock()
	defer u.mu.Unlock()
	var principals []string
	for _, c := range u.callers {
		if c.Principal == nil || c.Principal.Issuer != as.url || c.Principal.ClientID != "" {
			t.Errorf("principal %+v, want the issuer, and no client", c.Principal)
			continue
		}
		principals = append(principals, c.Principal.Subject+" "+c.Principal.Claims["client_id"].(string))
		if c.Principal.Claims["exp"] != nil || c.Principal.Claims["jti"] != nil {
			t.Errorf("claims %v, want none that differ between tokens", c.Principal.Claims)
		}
	}
	if slices.Sort(principals); !slices.Equal(principals, []string{"ann ann", "bob bob"}) {
		t.Errorf("instances of %q, want one for each principal", principals)
	}
	for _, h := range u.headers {
		if h["Authorization"] != nil {
			t.Error("a server got a token")
		}
	}
}

// Scopes of a token choose the profiles that it opens.
func TestScopesOpenProfiles(t *testing.T) {
	const text = `{"mcpServers": {"one": {"command": "one"}, "two": {"command": "two"}}, "patchbay": {"profiles":
		{"code": {"servers": ["two"]}, "ops": {"servers": ["one"]}}}}`
	as := newIssuer(t, "https://audience.example")
	opts := as.options(publicURL)
	opts.OAuth.Scopes, opts.OAuth.Profiles = nil, map[string]string{"code": "code", "ops": "ops"}
	h := gateway.New((&upstreams{}).newHost(t, text), opts).Handler()
	for scope, paths := range map[string]map[string]string{
		"code":     {"/mcp": "two__", "/mcp/p/code": "two__", "/mcp/p/ops": "404", "/mcp/s/two": "404"},
		"code ops": {"/mcp": "two__", "/mcp/p/code": "two__", "/mcp/p/ops": "one__"},
		"use":      {"/mcp": "403", "/mcp/p/code": "403"},
	} {
		token := as.token(t, "ann", "https://audience.example", scope)
		for path, want := range paths {
			w := request(h, "POST", path, "Authorization", "Bearer "+token)
			got := w.Body.String()
			if w.Code != 200 {
				got = http.StatusText(w.Code)
				want = map[string]string{"404": "Not Found", "403": "Forbidden"}[want]
			}
			if want == "" || !strings.Contains(got, want) || strings.Contains(got, "one__") && strings.Contains(got, "two__") {
				t.Errorf("scope %q at %s: %d %s, want %s", scope, path, w.Code, w.Body, want)
			}
		}
	}
}

// The host of the public URL and the allowed ones are accepted, on every connection.
func TestPublicURL(t *testing.T) {
	h := (&upstreams{}).newHost(t, twoServers)
	opts := &gateway.Options{Keys: []string{key}, PublicURL: publicURL, Logger: slog.New(slog.DiscardHandler)}
	opts.HTTP.AllowedHosts = []string{"internal.example"}
	handler := gateway.New(h, opts).Handler()
	for host, want := range map[string]int{"mcp.example.com": 200, "internal.example:8080": 200, "evil.example": 403} {
		r := httptest.NewRequestWithContext(t.Context(), "POST", "http://"+host+"/mcp", strings.NewReader(listTools))
		for name, value := range map[string]string{"Authorization": "Bearer " + key, "Content-Type": "application/json",
			"Accept": "application/json, text/event-stream", "Mcp-Protocol-Version": "2026-07-28", "Mcp-Method": "tools/list"} {
			r.Header.Set(name, value)
		}
		w := httptest.NewRecorder()
		if handler.ServeHTTP(w, r); w.Code != want {
			t.Errorf("%s: %d, want %d", host, w.Code, want)
		}
	}
	for _, text := range []string{"mcp.example.com", "http://mcp.example.com", "https://mcp.example.com/mcp", "https://a@b.example",
		"https://mcp.example.com?x"} {
		func() {
			defer func() {
				if recover() == nil {
					t.Errorf("PublicURL %q: no panic", text)
				}
			}()
			gateway.New(h, &gateway.Options{PublicURL: text})
		}()
	}
}
