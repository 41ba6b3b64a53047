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

// A grantEnv is an MCP server, its authorization server and an identity provider for grants without
// user interaction. A registration or login fails the test.
type grantEnv struct {
	t        *testing.T
	as       *httptest.Server
	rs       *httptest.Server
	idp      *httptest.Server
	metadata oauth.ServerMetadata // beyond the endpoints
	required string               // scope of the challenge
	bound    bool                 // the resource metadata requires bound tokens

	// token and exchange answer the requests to the two token endpoints.
	token    func(w http.ResponseWriter, r *http.Request)
	exchange func(w http.ResponseWriter, r *http.Request)
	// guard checks requests to the MCP server with an Authorization header.
	guard func(w http.ResponseWriter, r *http.Request) bool

	mu               sync.Mutex     // guards the fields below
	tokenRequests    []tokenRequest // at the token endpoint of the authorization server
	exchangeRequests []tokenRequest // at that of the identity provider
	good             string         // the token that the MCP server takes
}

// A tokenRequest is a request to a token endpoint.
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
		w.t.Errorf("got a request for %s at the authorization server", r.URL.Path)
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
		w.t.Errorf("got a request for %s at the identity provider", r.URL.Path)
		http.NotFound(rw, r)
	}
}

func (w *grantEnv) record(all *[]tokenRequest, r *http.Request) {
	if err := r.ParseForm(); err != nil {
		w.t.Error(err)
	}
	for name, values := range r.PostForm {
		if len(values) != 1 {
			w.t.Errorf("got the parameter %s %d times, want once", name, len(values))
		}
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	*all = append(*all, tokenRequest{r.PostForm, r.Header.Clone()})
}

// issue responds with a new token.
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
		rw.Header().Set("WWW-Authenticate",
			fmt.Sprintf(`Bearer resource_metadata="%s/.well-known/oauth-protected-resource/mcp", scope="%s"`,
				w.rs.URL, w.required))
		rw.WriteHeader(http.StatusUnauthorized)
	default:
		_, _ = rw.Write([]byte("hello"))
	}
}

func writeJSON(rw http.ResponseWriter, status int, v any) {
	rw.Header().Set("Content-Type", "application/json")
	rw.WriteHeader(status)
	_ = json.NewEncoder(rw).Encode(v)
}

// client returns options with the credentials of a registered client.
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
		w.t.Errorf("got status %s, want 200", res.Status)
	}
	return nil
}

func (w *grantEnv) transport(opts *TransportOptions) *Transport {
	transport := NewTransport(w.rs.URL+"/mcp", opts)
	w.t.Cleanup(transport.CloseIdleConnections)
	return transport
}

// try sends a request through a new Transport.
func (w *grantEnv) try(opts *TransportOptions) error {
	w.t.Helper()
	return w.get(w.transport(opts))
}

// wantForm checks that a form has exactly the given parameters.
func wantForm(t *testing.T, got url.Values, want map[string]string) {
	t.Helper()
	for name, value := range want {
		if got.Get(name) != value {
			t.Errorf("got %s %q, want %q", name, got.Get(name), value)
		}
	}
	for name := range got {
		if _, ok := want[name]; !ok {
			t.Errorf("got the unexpected parameter %s", name)
		}
	}
}

// Requirement: EAUTH-03, EAUTH-05
func TestClientCredentials(t *testing.T) {
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
		{"no methods in the metadata", nil, nil, basic, nil},
		{"post", []string{"none", "client_secret_post"}, nil, "", []string{"client_id", "client_secret"}},
		{"a key", []string{"private_key_jwt", "client_secret_basic"}, &AssertionKey{Key: key}, "",
			[]string{"client_assertion_type", "client_assertion"}},
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
				t.Fatalf("got %d token requests, want 1", len(w.tokenRequests))
			}
			got := w.tokenRequests[0]
			want := map[string]string{"grant_type": "client_credentials", "resource": w.rs.URL + "/mcp",
				"scope": "mcp:basic"}
			all := map[string]string{
				"client_id": "client 1", "client_secret": "se:cret", "client_assertion_type": clientAssertionType,
				"client_assertion": got.form.Get("client_assertion"),
			}
			for _, name := range tt.form {
				want[name] = all[name]
			}
			wantForm(t, got.form, want)
			if h := got.header.Get("Authorization"); h != tt.header {
				t.Errorf("got Authorization %q, want %q", h, tt.header)
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
			t.Errorf("got claims %s, want %s in them", payload, claim)
		}
	}
}

// After a refused token the grant is used again, also if there is a refresh token.
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
		t.Fatalf("got %d token requests for two requests, want 1", len(w.tokenRequests))
	}
	w.mu.Lock()
	w.good = "revoked"
	w.mu.Unlock()
	if err := w.get(transport); err != nil {
		t.Fatal(err)
	}
	if len(w.tokenRequests) != 2 || w.tokenRequests[1].form.Get("grant_type") != "client_credentials" {
		t.Errorf("got token requests %v, want two with client_credentials", w.tokenRequests)
	}
}

func TestClientCredentialsAreNotSent(t *testing.T) {
	t.Run("to another authorization server", func(t *testing.T) {
		w := newGrantEnv(t)
		opts := w.client(NewClientCredentialsGrant())
		opts.Client.Issuer = "https://as.example"
		if err := w.try(opts); err == nil {
			t.Error("the request succeeded, want an error")
		}
		if len(w.tokenRequests) != 0 {
			t.Error("the client sent a token request")
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
				t.Error("the client sent a token request")
			}
		})
	}
}

// refuseGrant responds with an OAuth error, whose description repeats the form.
func refuseGrant(code string) func(http.ResponseWriter, *http.Request) {
	return func(rw http.ResponseWriter, r *http.Request) {
		writeJSON(rw, http.StatusBadRequest,
			map[string]string{"error": code, "error_description": "not with " + r.PostForm.Encode()})
	}
}

// A refused grant returns the server's error and is not tried again in another way.
func TestGrantRefusalIsFinal(t *testing.T) {
	for name, grant := range map[string]func(w *grantEnv) Grant{
		"client credentials": func(*grantEnv) Grant { return NewClientCredentialsGrant() },
		"workload":           func(*grantEnv) Grant { return NewWorkloadGrant(fixedAssertion("platform-jwt")) },
		"enterprise":         func(w *grantEnv) Grant { return NewEnterpriseGrant(w.enterprise()) },
	} {
		for _, code := range []string{"invalid_grant", "invalid_client", "invalid_scope", "unauthorized_client",
			"unsupported_grant_type", "slow_down"} {
			t.Run(name+" "+code, func(t *testing.T) {
				w := newGrantEnv(t)
				w.token = refuseGrant(code)
				w.exchange = w.issueIDJAG(nil)
				err := w.try(w.client(grant(w)))
				var refused *TokenError
				if !errors.As(err, &refused) || refused.Code != code {
					t.Errorf("got error %v, want %s", err, code)
				}
				for _, secret := range []string{"platform-jwt", "se:cret", "se%3Acret", "the-jag", "id-token"} {
					if strings.Contains(fmt.Sprint(err), secret) {
						t.Errorf("got error %v, want one without %s", err, secret)
					}
				}
				if len(w.tokenRequests) != 1 || len(w.exchangeRequests) > 1 {
					t.Errorf("got %d token requests and %d exchange requests, want 1 and at most 1",
						len(w.tokenRequests), len(w.exchangeRequests))
				}
			})
		}
	}
}

func fixedAssertion(jwt string) AssertionFunc {
	return func(context.Context, string) (string, error) { return jwt, nil }
}

func TestWorkloadGrant(t *testing.T) {
	for name, client := range map[string]Identity{
		"no client": {}, "a public client": {ID: "workload-1"}, "a client with a secret": {ID: "workload-1",
			Secret: "s"},
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
				t.Errorf("got the issuer %q, want %q", audience, w.as.URL)
			}
			want := map[string]string{
				"grant_type": grantJWTBearer, "assertion": workloadJWT(w.as.URL), "resource": w.rs.URL +
					"/mcp", "scope": "mcp:basic",
			}
			if client.ID != "" {
				want["client_id"] = "workload-1"
			}
			if client.Secret != "" {
				want["client_secret"] = "s"
			}
			wantForm(t, w.tokenRequests[0].form, want)
			if h := w.tokenRequests[0].header.Get("Authorization"); h != "" {
				t.Errorf("got Authorization %q, want none", h)
			}
		})
	}
}

// The file of an assertion is read again for each token.
func TestWorkloadFileRotates(t *testing.T) {
	w := newGrantEnv(t)
	file := filepath.Join(t.TempDir(), "token")
	transport := w.transport(w.client(NewWorkloadGrant(AssertionFile(file))))
	if err := w.get(transport); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("missing file: got error %v, want os.ErrNotExist", err)
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
			t.Errorf("got assertion %q, want %q", got, jwt)
		}
	}
}

func TestWorkloadWithoutAssertion(t *testing.T) {
	for name, jwt := range map[string]string{"empty": "", "two lines": "a\nb",
		"too long": strings.Repeat("j", maxTokenSize+1)} {
		t.Run(name, func(t *testing.T) {
			w := newGrantEnv(t)
			file := filepath.Join(t.TempDir(), "token")
			if err := os.WriteFile(file, []byte(jwt), 0o600); err != nil {
				t.Fatal(err)
			}
			if err := w.try(w.client(NewWorkloadGrant(AssertionFile(file)))); err == nil {
				t.Error("the request succeeded, want an error")
			}
			if len(w.tokenRequests) != 0 {
				t.Error("the client sent a token request")
			}
		})
	}
	defer func() {
		if recover() == nil {
			t.Error("NewWorkloadGrant(nil) did not panic")
		}
	}()
	NewWorkloadGrant(nil)
}

// enterprise returns options for a client that is registered at the identity provider.
func (w *grantEnv) enterprise() *EnterpriseOptions {
	return &EnterpriseOptions{
		Issuer: w.idp.URL, ClientID: "idp-client",
		Subject: func(context.Context) (string, string, error) { return "id-token", TokenTypeID, nil },
	}
}

// issueIDJAG returns a handler that responds to a token exchange. A nil value removes a member.
func (w *grantEnv) issueIDJAG(differently map[string]any) func(http.ResponseWriter, *http.Request) {
	return func(rw http.ResponseWriter, _ *http.Request) {
		answer := map[string]any{"access_token": "the-jag", "issued_token_type": tokenTypeIDJAG, "token_type": "N_A",
			"expires_in": 300}
		for name, value := range differently {
			if answer[name] = value; value == nil {
				delete(answer, name)
			}
		}
		writeJSON(rw, http.StatusOK, answer)
	}
}

// Requirement: EAUTH-06, EAUTH-10
func TestEnterpriseGrant(t *testing.T) {
	for name, change := range map[string]func(w *grantEnv, o *EnterpriseOptions, exchange map[string]string){
		"by issuer": func(_ *grantEnv, _ *EnterpriseOptions, want map[string]string) {
			want["client_id"] = "idp-client"
		},
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
			if opts.ClientSecret != "" &&
				w.exchangeRequests[0].header.Get("Authorization") != "Basic aWRwLWNsaWVudDppZHAtc2VjcmV0" {
				t.Errorf("got Authorization %q at the identity provider, want that of the client",
					w.exchangeRequests[0].header.Get("Authorization"))
			}
			wantForm(t, w.tokenRequests[0].form, map[string]string{
				"grant_type": grantJWTBearer, "assertion": "the-jag", "resource": w.rs.URL +
					"/mcp", "scope": "chat.read",
			})
			if h := w.tokenRequests[0].header.Get("Authorization"); !strings.HasPrefix(h, "Basic ") {
				t.Errorf("got Authorization %q at the authorization server, want Basic", h)
			}
		})
	}
}

// Without an ID-JAG from the identity provider, no token request is sent to the authorization
// server.
//
// Requirement: EAUTH-08
func TestExchangeIsChecked(t *testing.T) {
	errNotLoggedIn := errors.New("not logged in")
	for name, change := range map[string]func(w *grantEnv, o *TransportOptions, e *EnterpriseOptions){
		"an access token": func(w *grantEnv, _ *TransportOptions, _ *EnterpriseOptions) {
			w.exchange = w.issueIDJAG(map[string]any{"issued_token_type": "urn:ietf:params:oauth:token-type:access_token"})
		},
		"no issued_token_type": func(w *grantEnv, _ *TransportOptions, _ *EnterpriseOptions) {
			w.exchange = w.issueIDJAG(map[string]any{"issued_token_type": nil})
		},
		"token type Bearer": func(w *grantEnv, _ *TransportOptions, _ *EnterpriseOptions) {
			w.exchange = w.issueIDJAG(map[string]any{"token_type": "Bearer"})
		},
		"no token": func(w *grantEnv, _ *TransportOptions, _ *EnterpriseOptions) {
			w.exchange = w.issueIDJAG(map[string]any{"access_token": ""})
		},
		"refused": func(w *grantEnv, _ *TransportOptions, _ *EnterpriseOptions) {
			w.exchange = refuseGrant("access_denied")
		},
		"user not logged in": func(_ *grantEnv, _ *TransportOptions, e *EnterpriseOptions) {
			e.Subject = func(context.Context) (string, string, error) { return "", "", errNotLoggedIn }
		},
		"no subject token": func(_ *grantEnv, _ *TransportOptions, e *EnterpriseOptions) {
			e.Subject = func(context.Context) (string, string, error) { return "", TokenTypeID, nil }
		},
		"no client": func(_ *grantEnv, o *TransportOptions, _ *EnterpriseOptions) { o.Client = Identity{} },
		"client of another issuer": func(_ *grantEnv, o *TransportOptions, _ *EnterpriseOptions) {
			o.Client.Issuer = "https://as.example"
		},
		"no identity provider": func(_ *grantEnv, _ *TransportOptions, e *EnterpriseOptions) { e.Issuer = "" },
		"another issuer's metadata": func(w *grantEnv, _ *TransportOptions, e *EnterpriseOptions) {
			e.Issuer = strings.Replace(w.idp.URL, "127.0.0.1", "localhost", 1)
		},
		"a key, but no issuer for its assertion": func(w *grantEnv, _ *TransportOptions, e *EnterpriseOptions) {
			e.Issuer, e.TokenEndpoint = "", w.idp.URL+"/exchange"
			key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
			if err != nil {
				w.t.Fatal(err)
			}
			e.ClientKey = &AssertionKey{Key: key}
		},
		"no client at the identity provider": func(_ *grantEnv, _ *TransportOptions, e *EnterpriseOptions) {
			e.ClientID = ""
		},
		"no subject": func(_ *grantEnv, _ *TransportOptions, e *EnterpriseOptions) {
			e.Subject = nil
		},
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
				t.Fatal("the request succeeded, want an error")
			}
			for _, secret := range []string{"id-token", "the-jag", "se:cret"} {
				if strings.Contains(err.Error(), secret) {
					t.Errorf("got error %v, want one without %s", err, secret)
				}
			}
			if len(w.tokenRequests) != 0 {
				t.Error("the client sent a token request to the authorization server")
			}
		})
	}
}

// The scopes of the token response are kept as the granted scopes.
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
	if !slices.Equal(status.Scopes, []string{"mcp:basic", "mcp:more"}) || status.Renewable ||
		status.Expires.Before(time.Now()) {
		t.Errorf("Status = %+v, want the granted scopes, not renewable", status)
	}
}
