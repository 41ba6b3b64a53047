package oauthclient

import (
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"net/url"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/go-jose/go-jose/v4"

	"github.com/patchbay-mcp/patchbay/oauth"
)

// A grantEnv is an MCP server, its authorization server and an identity provider, which know
// machines alone: whoever registers or opens a login page fails the test.
type grantEnv struct {
	t        *testing.T
	as       *httptest.Server
	rs       *httptest.Server
	idp      *httptest.Server
	metadata oauth.ServerMetadata // beyond the endpoints
	required string               // scope of the challenge
	bound    bool                 // the MCP server says that tokens have to be bound to keys

	// token and exchange answer the requests to the two token endpoints.
	token    func(w http.ResponseWriter, r *http.Request)
	exchange func(w http.ResponseWriter, r *http.Request)
	// guard judges requests to the MCP server that hold an Authorization header.
	guard func(w http.ResponseWriter, r *http.Request) bool

	mu               sync.Mutex     // guards the fields below
	tokenRequests    []tokenRequest // at the token endpoint of the authorization server
	exchangeRequests []tokenRequest // at that of the identity provider
	good             string         // the token that the MCP server takes
}

// An asked is a request to a token endpoint.
type tokenRequest struct {
	form   url.Values
	header http.Header
}

func newGrantEnv(t *testing.T) *grantEnv {
	t.Helper()
	w := &grantEnv{t: t, required: "mcp:basic"}
	w.token = func(rw http.ResponseWriter, _ *http.Request) { w.issue(rw, "Bearer", nil) }
	w.as = httptest.NewServer(http.HandlerFunc(w.serveAS))
	w.rs = httptest.NewServer(http.HandlerFunc(w.serveRS))
	w.idp = httptest.NewServer(http.HandlerFunc(w.serveIDP))
	t.Cleanup(func() {
		w.as.Close()
		w.rs.Close()
		w.idp.Close()
	})
	return w
}

func (w *grantEnv) serveAS(rw http.ResponseWriter, r *http.Request) {
	switch r.URL.Path {
	case "/.well-known/oauth-authorization-server":
		m := w.metadata
		m.Issuer, m.TokenEndpoint = w.as.URL, w.as.URL+"/token?tenant=1"
		m.AuthorizationEndpoint, m.RegistrationEndpoint = w.as.URL+"/authorize", w.as.URL+"/register"
		writeJSON(rw, http.StatusOK, m)
	case "/token":
		w.record(&w.tokenRequests, r)
		w.token(rw, r)
	default:
		w.t.Errorf("the authorization server was asked for %s", r.URL.Path)
		http.NotFound(rw, r)
	}
}

func (w *grantEnv) serveIDP(rw http.ResponseWriter, r *http.Request) {
	switch r.URL.Path {
	case "/.well-known/oauth-authorization-server":
		http.NotFound(rw, r)
	case "/.well-known/openid-configuration":
		writeJSON(rw, http.StatusOK, oauth.ServerMetadata{Issuer: w.idp.URL, TokenEndpoint: w.idp.URL + "/exchange"})
	case "/exchange":
		w.record(&w.exchangeRequests, r)
		w.exchange(rw, r)
	default:
		w.t.Errorf("the identity provider was asked for %s", r.URL.Path)
		http.NotFound(rw, r)
	}
}

func (w *grantEnv) record(all *[]tokenRequest, r *http.Request) {
	if err := r.ParseForm(); err != nil {
		w.t.Error(err)
	}
	for name, values := range r.PostForm {
		if len(values) != 1 {
			w.t.Errorf("%s is sent %d times", name, len(values))
		}
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	*all = append(*all, tokenRequest{r.PostForm, r.Header.Clone()})
}

// issue answers with a new token.
func (w *grantEnv) issue(rw http.ResponseWriter, tokenType string, more map[string]any) {
	w.mu.Lock()
	w.good = fmt.Sprintf("token-%d", len(w.tokenRequests))
	answer := map[string]any{"access_token": w.good, "token_type": tokenType, "expires_in": 3600}
	w.mu.Unlock()
	for name, value := range more {
		answer[name] = value
	}
	writeJSON(rw, http.StatusOK, answer)
}

func (w *grantEnv) serveRS(rw http.ResponseWriter, r *http.Request) {
	w.mu.Lock()
	good := w.good
	w.mu.Unlock()
	header := r.Header.Get("Authorization")
	switch {
	case r.URL.Path == "/.well-known/oauth-protected-resource/mcp":
		writeJSON(rw, http.StatusOK, oauth.ResourceMetadata{
			Resource: w.rs.URL + "/mcp", AuthorizationServers: []string{w.as.URL}, DPoPRequired: w.bound,
		})
	case r.URL.Path != "/mcp":
		http.NotFound(rw, r)
	case header != "" && w.guard != nil && !w.guard(rw, r):
	case good == "" || header != "Bearer "+good && header != "DPoP "+good:
		rw.Header().Set("WWW-Authenticate", fmt.Sprintf(`Bearer resource_metadata="%s/.well-known/oauth-protected-resource/mcp", scope="%s"`,
			w.rs.URL, w.required))
		rw.WriteHeader(http.StatusUnauthorized)
	default:
		_, _ = rw.Write([]byte("welcome"))
	}
}

func writeJSON(rw http.ResponseWriter, status int, v any) {
	rw.Header().Set("Content-Type", "application/json")
	rw.WriteHeader(status)
	_ = json.NewEncoder(rw).Encode(v)
}

// client returns options with a client that the authorization server knows.
func (w *grantEnv) client(grant Grant) *TransportOptions {
	return &TransportOptions{
		Grant:  grant,
		Client: Identity{ID: "client 1", Secret: "se:cret", Issuer: w.as.URL},
	}
}

// get makes a request to the MCP server.
func (w *grantEnv) get(transport *Transport) error {
	w.t.Helper()
	req, err := http.NewRequestWithContext(w.t.Context(), http.MethodGet, w.rs.URL+"/mcp", nil)
	if err != nil {
		w.t.Fatal(err)
	}
	res, err := (&http.Client{Transport: transport}).Do(req)
	if err != nil {
		return err
	}
	defer res.Body.Close()
	if res.StatusCode != http.StatusOK {
		w.t.Errorf("the server answers %s", res.Status)
	}
	return nil
}

func (w *grantEnv) transport(opts *TransportOptions) *Transport {
	transport := NewTransport(w.rs.URL+"/mcp", opts)
	w.t.Cleanup(transport.CloseIdleConnections)
	return transport
}

// try makes a Transport and a request with it.
func (w *grantEnv) try(opts *TransportOptions) error {
	w.t.Helper()
	return w.get(w.transport(opts))
}

// wantForm checks what was sent, except for what differs every time.
func wantForm(t *testing.T, got url.Values, want map[string]string) {
	t.Helper()
	for name, value := range want {
		if got.Get(name) != value {
			t.Errorf("%s is %q, want %q", name, got.Get(name), value)
		}
	}
	for name := range got {
		if _, ok := want[name]; !ok {
			t.Errorf("%s is sent, which should not be", name)
		}
	}
}

func TestEAUTH03_ClientCredentials(t *testing.T) {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	const basic = "Basic Y2xpZW50KzE6c2UlM0FjcmV0" // client+1:se%3Acret
	for _, tt := range []struct {
		name    string
		methods []string
		key     *AssertionKey
		header  string
		form    []string
	}{
		{"basic", []string{"client_secret_basic"}, nil, basic, nil},
		{"basic before post", []string{"client_secret_post", "client_secret_basic"}, nil, basic, nil},
		{"nothing said", nil, nil, basic, nil},
		{"post", []string{"none", "client_secret_post"}, nil, "", []string{"client_id", "client_secret"}},
		{"a key", []string{"private_key_jwt", "client_secret_basic"}, &AssertionKey{Key: key}, "", []string{"client_assertion_type", "client_assertion"}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			w := newGrantEnv(t)
			w.metadata.TokenEndpointAuthMethods = tt.methods
			opts := w.client(NewClientCredentialsGrant())
			opts.Client.Key = tt.key
			if err := w.try(opts); err != nil {
				t.Fatal(err)
			}
			if len(w.tokenRequests) != 1 {
				t.Fatalf("%d token requests, want 1", len(w.tokenRequests))
			}
			got := w.tokenRequests[0]
			want := map[string]string{"grant_type": "client_credentials", "resource": w.rs.URL + "/mcp", "scope": "mcp:basic"}
			said := map[string]string{
				"client_id": "client 1", "client_secret": "se:cret", "client_assertion_type": clientAssertionType,
				"client_assertion": got.form.Get("client_assertion"),
			}
			for _, name := range tt.form {
				want[name] = said[name]
			}
			wantForm(t, got.form, want)
			if h := got.header.Get("Authorization"); h != tt.header {
				t.Errorf("Authorization is %q, want %q", h, tt.header)
			}
			if tt.key != nil {
				checkAudience(t, got.form.Get("client_assertion"), key, w.as.URL)
			}
		})
	}
}

func checkAudience(t *testing.T, assertion string, key *ecdsa.PrivateKey, issuer string) {
	t.Helper()
	signed, err := jose.ParseSignedCompact(assertion, []jose.SignatureAlgorithm{jose.ES256})
	if err != nil {
		t.Fatal(err)
	}
	payload, err := signed.Verify(key.Public())
	if err != nil {
		t.Fatal(err)
	}
	for _, claim := range []string{`"iss":"client 1"`, `"sub":"client 1"`, `"aud":"` + issuer + `"`} {
		if !strings.Contains(string(payload), claim) {
			t.Errorf("the claims are %s, want %s in them", payload, claim)
		}
	}
}

// TestGrantIsRepeated refuses a token: the next one is asked for in the same way, even if there is
// a refresh token.
func TestGrantIsRepeated(t *testing.T) {
	w := newGrantEnv(t)
	w.token = func(rw http.ResponseWriter, _ *http.Request) {
		w.issue(rw, "Bearer", map[string]any{"refresh_token": "r"})
	}
	transport := w.transport(w.client(NewClientCredentialsGrant()))
	for range 2 {
		if err := w.get(transport); err != nil {
			t.Fatal(err)
		}
	}
	if len(w.tokenRequests) != 1 {
		t.Fatalf("%d token requests for two requests, want 1", len(w.tokenRequests))
	}
	w.mu.Lock()
	w.good = "revoked"
	w.mu.Unlock()
	if err := w.get(transport); err != nil {
		t.Fatal(err)
	}
	if len(w.tokenRequests) != 2 || w.tokenRequests[1].form.Get("grant_type") != "client_credentials" {
		t.Errorf("token requests: %v", w.tokenRequests)
	}
}

func TestClientCredentialsAreNotShown(t *testing.T) {
	t.Run("to another authorization server", func(t *testing.T) {
		w := newGrantEnv(t)
		opts := w.client(NewClientCredentialsGrant())
		opts.Client.Issuer = "https://as.example"
		if err := w.try(opts); err == nil {
			t.Error("the request succeeded, want an error")
		}
		if len(w.tokenRequests) != 0 {
			t.Error("the token endpoint was asked")
		}
	})
	for name, client := range map[string]Identity{"without a secret": {ID: "c"}, "without a client": {}} {
		t.Run(name, func(t *testing.T) {
			w := newGrantEnv(t)
			opts := w.client(NewClientCredentialsGrant())
			if opts.Client = client; client.ID != "" {
				opts.Client.Issuer = w.as.URL
			}
			if err := w.try(opts); err == nil {
				t.Error("the request succeeded, want an error")
			}
			if len(w.tokenRequests) != 0 {
				t.Error("the token endpoint was asked")
			}
		})
	}
}

// refuseGrant answers with an OAuth error, whose text repeats the form.
func refuseGrant(code string) func(http.ResponseWriter, *http.Request) {
	return func(rw http.ResponseWriter, r *http.Request) {
		writeJSON(rw, http.StatusBadRequest, map[string]string{"error": code, "error_description": "not with " + r.PostForm.Encode()})
	}
}

// TestGrantRefusalIsFinal refuses every kind of grant: the error is the server's, and it is asked once,
// in one way.
func TestGrantRefusalIsFinal(t *testing.T) {
	for name, grant := range map[string]func(w *grantEnv) Grant{
		"client credentials": func(*grantEnv) Grant { return NewClientCredentialsGrant() },
		"workload":           func(*grantEnv) Grant { return NewWorkloadGrant(fixedAssertion("platform-jwt")) },
		"enterprise":         func(w *grantEnv) Grant { return NewEnterpriseGrant(w.enterprise()) },
	} {
		for _, code := range []string{"invalid_grant", "invalid_client", "invalid_scope", "unauthorized_client", "unsupported_grant_type", "slow_down"} {
			t.Run(name+" "+code, func(t *testing.T) {
				w := newGrantEnv(t)
				w.token = refuseGrant(code)
				w.exchange = w.issueIDJAG(nil)
				err := w.try(w.client(grant(w)))
				var refused *TokenError
				if !errors.As(err, &refused) || refused.Code != code {
					t.Errorf("the error is %v, want %s", err, code)
				}
				for _, secret := range []string{"platform-jwt", "se:cret", "se%3Acret", "the-jag", "id-token"} {
					if strings.Contains(fmt.Sprint(err), secret) {
						t.Errorf("the error shows %s: %v", secret, err)
					}
				}
				if len(w.tokenRequests) != 1 || len(w.exchangeRequests) > 1 {
					t.Errorf("the token endpoint was asked %d times, the identity provider %d times", len(w.tokenRequests), len(w.exchangeRequests))
				}
			})
		}
	}
}

func fixedAssertion(jwt string) AssertionFunc {
	return func(context.Context, string) (string, error) { return jwt, nil }
}

func TestWorkload(t *testing.T) {
	for name, client := range map[string]Identity{
		"no client": {}, "a public client": {ID: "workload-1"}, "a client with a secret": {ID: "workload-1", Secret: "s"},
	} {
		t.Run(name, func(t *testing.T) {
			w := newGrantEnv(t)
			w.metadata.TokenEndpointAuthMethods = []string{"none", "client_secret_post"}
			var audience string
			opts := w.client(NewWorkloadGrant(func(_ context.Context, issuer string) (string, error) {
				audience = issuer
				return workloadJWT(issuer), nil
			}))
			if opts.Client = client; client.ID != "" {
				opts.Client.Issuer = w.as.URL
			}
			if err := w.try(opts); err != nil {
				t.Fatal(err)
			}
			if audience != w.as.URL {
				t.Errorf("the assertion was made for %q, want %q", audience, w.as.URL)
			}
			want := map[string]string{
				"grant_type": grantJWTBearer, "assertion": workloadJWT(w.as.URL), "resource": w.rs.URL + "/mcp", "scope": "mcp:basic",
			}
			if client.ID != "" {
				want["client_id"] = "workload-1"
			}
			if client.Secret != "" {
				want["client_secret"] = "s"
			}
			wantForm(t, w.tokenRequests[0].form, want)
			if h := w.tokenRequests[0].header.Get("Authorization"); h != "" {
				t.Errorf("Authorization is %q", h)
			}
		})
	}
}

// TestWorkloadFileRotates writes another JWT to the file before the second token is asked for.
func TestWorkloadFileRotates(t *testing.T) {
	w := newGrantEnv(t)
	file := filepath.Join(t.TempDir(), "token")
	transport := w.transport(w.client(NewWorkloadGrant(AssertionFile(file))))
	if err := w.get(transport); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("without the file: %v", err)
	}
	for _, jwt := range []string{"jwt-1", "jwt-2"} {
		if err := os.WriteFile(file, []byte(jwt+"\n"), 0o600); err != nil {
			t.Fatal(err)
		}
		w.mu.Lock()
		w.good = "revoked"
		w.mu.Unlock()
		if err := w.get(transport); err != nil {
			t.Fatal(err)
		}
		if got := w.tokenRequests[len(w.tokenRequests)-1].form.Get("assertion"); got != jwt {
			t.Errorf("the assertion is %q, want %q", got, jwt)
		}
	}
}

func TestWorkloadWithoutAssertion(t *testing.T) {
	for name, jwt := range map[string]string{"empty": "", "two lines": "a\nb", "too long": strings.Repeat("j", maxTokenSize+1)} {
		t.Run(name, func(t *testing.T) {
			w := newGrantEnv(t)
			file := filepath.Join(t.TempDir(), "token")
			if err := os.WriteFile(file, []byte(jwt), 0o600); err != nil {
				t.Fatal(err)
			}
			if err := w.try(w.client(NewWorkloadGrant(AssertionFile(file)))); err == nil {
				t.Error("the workload was let in")
			}
			if len(w.tokenRequests) != 0 {
				t.Error("the token endpoint was asked")
			}
		})
	}
	defer func() {
		if recover() == nil {
			t.Error("NewWorkloadGrant takes nil")
		}
	}()
	NewWorkloadGrant(nil)
}

// enterprise returns the options of a client that the identity provider knows too.
func (w *grantEnv) enterprise() *EnterpriseOptions {
	return &EnterpriseOptions{
		Issuer: w.idp.URL, ClientID: "idp-client",
		Subject: func(context.Context) (string, string, error) { return "id-token", TokenTypeID, nil },
	}
}

// issueIDJAG answers a token exchange.
func (w *grantEnv) issueIDJAG(differently map[string]any) func(http.ResponseWriter, *http.Request) {
	return func(rw http.ResponseWriter, _ *http.Request) {
		answer := map[string]any{"access_token": "the-jag", "issued_token_type": tokenTypeIDJAG, "token_type": "N_A", "expires_in": 300}
		for name, value := range differently {
			if answer[name] = value; value == nil {
				delete(answer, name)
			}
		}
		writeJSON(rw, http.StatusOK, answer)
	}
}

// TestEAUTH06_Enterprise plays both requests, with the identity provider named in every way and
// with every way for the client to say who it is.
func TestEAUTH06_Enterprise(t *testing.T) {
	for name, change := range map[string]func(w *grantEnv, o *EnterpriseOptions, exchange map[string]string){
		"by issuer": func(_ *grantEnv, _ *EnterpriseOptions, want map[string]string) { want["client_id"] = "idp-client" },
		"by token endpoint": func(w *grantEnv, o *EnterpriseOptions, want map[string]string) {
			o.Issuer, o.TokenEndpoint = "", w.idp.URL+"/exchange"
			want["client_id"] = "idp-client"
		},
		"with a secret": func(_ *grantEnv, o *EnterpriseOptions, _ map[string]string) { o.ClientSecret = "idp-secret" },
		"with SAML": func(_ *grantEnv, o *EnterpriseOptions, want map[string]string) {
			o.Subject = func(context.Context) (string, string, error) { return "c2FtbA", TokenTypeSAML2, nil }
			want["client_id"], want["subject_token"], want["subject_token_type"] = "idp-client", "c2FtbA", TokenTypeSAML2
		},
	} {
		t.Run(name, func(t *testing.T) {
			w := newGrantEnv(t)
			w.required = "chat.read chat.history"
			w.exchange = w.issueIDJAG(map[string]any{"scope": "chat.read"})
			opts := w.enterprise()
			want := map[string]string{
				"grant_type": grantTokenExchange, "requested_token_type": tokenTypeIDJAG, "audience": w.as.URL,
				"resource": w.rs.URL + "/mcp", "scope": "chat.read chat.history",
				"subject_token": "id-token", "subject_token_type": TokenTypeID,
			}
			change(w, opts, want)
			if err := w.try(w.client(NewEnterpriseGrant(opts))); err != nil {
				t.Fatal(err)
			}
			wantForm(t, w.exchangeRequests[0].form, want)
			if opts.ClientSecret != "" && w.exchangeRequests[0].header.Get("Authorization") != "Basic aWRwLWNsaWVudDppZHAtc2VjcmV0" {
				t.Errorf("at the identity provider Authorization is %q", w.exchangeRequests[0].header.Get("Authorization"))
			}
			wantForm(t, w.tokenRequests[0].form, map[string]string{
				"grant_type": grantJWTBearer, "assertion": "the-jag", "resource": w.rs.URL + "/mcp", "scope": "chat.read",
			})
			if h := w.tokenRequests[0].header.Get("Authorization"); !strings.HasPrefix(h, "Basic ") {
				t.Errorf("at the authorization server Authorization is %q", h)
			}
		})
	}
}

// TestEAUTH08_ExchangeIsChecked sends nothing to the authorization server unless the identity
// provider gave an ID-JAG.
func TestEAUTH08_ExchangeIsChecked(t *testing.T) {
	boom := errors.New("not logged in")
	for name, change := range map[string]func(w *grantEnv, o *TransportOptions, e *EnterpriseOptions){
		"an access token": func(w *grantEnv, _ *TransportOptions, _ *EnterpriseOptions) {
			w.exchange = w.issueIDJAG(map[string]any{"issued_token_type": "urn:ietf:params:oauth:token-type:access_token"})
		},
		"no type of token": func(w *grantEnv, _ *TransportOptions, _ *EnterpriseOptions) {
			w.exchange = w.issueIDJAG(map[string]any{"issued_token_type": nil})
		},
		"to be used as Bearer": func(w *grantEnv, _ *TransportOptions, _ *EnterpriseOptions) {
			w.exchange = w.issueIDJAG(map[string]any{"token_type": "Bearer"})
		},
		"no token": func(w *grantEnv, _ *TransportOptions, _ *EnterpriseOptions) {
			w.exchange = w.issueIDJAG(map[string]any{"access_token": ""})
		},
		"refused": func(w *grantEnv, _ *TransportOptions, _ *EnterpriseOptions) {
			w.exchange = refuseGrant("access_denied")
		},
		"nobody has logged in": func(_ *grantEnv, _ *TransportOptions, e *EnterpriseOptions) {
			e.Subject = func(context.Context) (string, string, error) { return "", "", boom }
		},
		"no token of a person": func(_ *grantEnv, _ *TransportOptions, e *EnterpriseOptions) {
			e.Subject = func(context.Context) (string, string, error) { return "", TokenTypeID, nil }
		},
		"no client": func(_ *grantEnv, o *TransportOptions, _ *EnterpriseOptions) { o.Client = Identity{} },
		"another authorization server's client": func(_ *grantEnv, o *TransportOptions, _ *EnterpriseOptions) {
			o.Client.Issuer = "https://as.example"
		},
		"no identity provider": func(_ *grantEnv, _ *TransportOptions, e *EnterpriseOptions) { e.Issuer = "" },
		"another issuer's metadata": func(w *grantEnv, _ *TransportOptions, e *EnterpriseOptions) {
			e.Issuer = strings.Replace(w.idp.URL, "127.0.0.1", "localhost", 1)
		},
		"a key, and no issuer that it signs for": func(w *grantEnv, _ *TransportOptions, e *EnterpriseOptions) {
			e.Issuer, e.TokenEndpoint = "", w.idp.URL+"/exchange"
			key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
			if err != nil {
				w.t.Fatal(err)
			}
			e.ClientKey = &AssertionKey{Key: key}
		},
		"no client at the identity provider": func(_ *grantEnv, _ *TransportOptions, e *EnterpriseOptions) { e.ClientID = "" },
		"no subject":                         func(_ *grantEnv, _ *TransportOptions, e *EnterpriseOptions) { e.Subject = nil },
	} {
		t.Run(name, func(t *testing.T) {
			w := newGrantEnv(t)
			w.exchange = w.issueIDJAG(nil)
			e := w.enterprise()
			opts := w.client(nil)
			change(w, opts, e)
			opts.Grant = NewEnterpriseGrant(e)
			err := w.try(opts)
			if err == nil {
				t.Fatal("the client was let in")
			}
			for _, secret := range []string{"id-token", "the-jag", "se:cret"} {
				if strings.Contains(err.Error(), secret) {
					t.Errorf("the error shows %s: %v", secret, err)
				}
			}
			if len(w.tokenRequests) != 0 {
				t.Error("the authorization server was asked")
			}
		})
	}
}

// TestGrantedScopesAreKept takes what the server says it has granted, and asks for what the
// challenge names.
func TestGrantedScopesAreKept(t *testing.T) {
	w := newGrantEnv(t)
	w.token = func(rw http.ResponseWriter, _ *http.Request) {
		w.issue(rw, "Bearer", map[string]any{"scope": "mcp:basic mcp:more"})
	}
	transport := w.transport(w.client(NewClientCredentialsGrant()))
	if err := w.get(transport); err != nil {
		t.Fatal(err)
	}
	status, err := transport.Status(t.Context())
	if err != nil || status == nil {
		t.Fatalf("Status = %v, %v", status, err)
	}
	if !slices.Equal(status.Scopes, []string{"mcp:basic", "mcp:more"}) || status.Renewable || status.Expires.Before(time.Now()) {
		t.Errorf("Status = %+v", status)
	}
}
