package authserver_test

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/sha256"
	"encoding/base64"
	"encoding/json"
	"maps"
	"net/http"
	"net/http/httptest"
	"net/url"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/go-jose/go-jose/v4"

	"github.com/patchbay-mcp/patchbay/oauth/authserver"
)

const (
	idpClient = "our client id"
	idpSecret = "our:client secret"
)

// An idp is an OpenID provider whose users are logged in and allow all requests. Its fields change
// its responses.
type idp struct {
	t   *testing.T
	URL string
	key *ecdsa.PrivateKey

	mu        sync.Mutex
	metadata  map[string]any                  // added to the metadata; nil removes a member
	claims    func(claims map[string]any)     // changes an ID token
	sign      func(payload []byte) string     // replaces the signature of ID tokens
	userinfo  func() (status int, answer any) // replaces the userinfo response for valid tokens
	answer    url.Values                      // replaces code and iss of the authorization response
	expires   int                             // expires_in of access tokens; 0 omits it
	noRefresh bool                            // issues no refresh tokens
	down      bool                            // all responses are 503
	user      string
	codes     map[string]url.Values // the authorization requests of codes
	access    map[string]bool       // the valid access tokens
	refresh   map[string]bool       // the valid refresh tokens
	calls     map[string]int        // the number of requests, by path
	forms     map[string]url.Values // the form of the last request, by path
}

func newIDP(t *testing.T) *idp {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	p := &idp{t: t, key: key, user: "user-1", expires: 3600, codes: map[string]url.Values{}, access: map[string]bool{},
		refresh: map[string]bool{}, calls: map[string]int{}, forms: map[string]url.Values{}}
	server := httptest.NewServer(p)
	t.Cleanup(server.Close)
	p.URL = server.URL
	return p
}

func (p *idp) provider(id string) authserver.Provider {
	return authserver.Provider{ID: id, Name: "Provider " + id, Issuer: p.URL, ClientID: idpClient,
		ClientSecret: idpSecret}
}

// set changes what the provider does.
func (p *idp) set(change func()) {
	p.mu.Lock()
	defer p.mu.Unlock()
	change()
}

func (p *idp) count(path string) int {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.calls[path]
}

func (p *idp) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	p.mu.Lock()
	defer p.mu.Unlock()
	_ = r.ParseForm()
	p.calls[r.URL.Path]++
	p.forms[r.URL.Path] = maps.Clone(r.Form)
	if p.down {
		w.WriteHeader(http.StatusServiceUnavailable)
		return
	}
	if r.Method == http.MethodPost {
		id, pass, _ := r.BasicAuth()
		id, _ = url.QueryUnescape(id)
		pass, _ = url.QueryUnescape(pass)
		if id != idpClient || pass != idpSecret {
			p.writeJSON(w, http.StatusUnauthorized, map[string]any{"error": "invalid_client"})
			return
		}
	}
	switch r.URL.Path {
	case "/.well-known/openid-configuration":
		p.serveMetadata(w)
	case "/keys":
		p.writeJSON(w, http.StatusOK, jose.JSONWebKeySet{Keys: []jose.JSONWebKey{{Key: p.key.Public(), KeyID: "1",
			Algorithm: "ES256", Use: "sig"}}})
	case "/authorize":
		p.serveAuthorize(w, r)
	case "/token":
		p.serveToken(w, r)
	case "/userinfo":
		token := strings.TrimPrefix(r.Header.Get("Authorization"), "Bearer ")
		if !p.access[token] {
			w.WriteHeader(http.StatusUnauthorized)
			return
		}
		if p.userinfo != nil {
			status, answer := p.userinfo()
			p.writeJSON(w, status, answer)
			return
		}
		p.writeJSON(w, http.StatusOK, map[string]any{"sub": p.user})
	case "/introspect":
		p.writeJSON(w, http.StatusOK, map[string]any{"active": p.access[r.Form.Get("token")]})
	case "/revoke":
		delete(p.access, r.Form.Get("token"))
		delete(p.refresh, r.Form.Get("token"))
	default:
		w.WriteHeader(http.StatusNotFound)
	}
}

func (p *idp) writeJSON(w http.ResponseWriter, status int, v any) {
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(status)
	_ = json.NewEncoder(w).Encode(v)
}

func (p *idp) serveMetadata(w http.ResponseWriter) {
	m := map[string]any{
		"issuer": p.URL, "authorization_endpoint": p.URL + "/authorize", "token_endpoint": p.URL + "/token",
		"jwks_uri": p.URL + "/keys", "userinfo_endpoint": p.URL + "/userinfo", "revocation_endpoint": p.URL + "/revoke",
		"id_token_signing_alg_values_supported": []string{"ES256"}, "response_types_supported": []string{"code"},
		"authorization_response_iss_parameter_supported": true,
	}
	for name, value := range p.metadata {
		if m[name] = value; value == nil {
			delete(m, name)
		}
	}
	p.writeJSON(w, http.StatusOK, m)
}

func (p *idp) serveAuthorize(w http.ResponseWriter, r *http.Request) {
	q := r.URL.Query()
	if q.Get("client_id") != idpClient || q.Get("response_type") != "code" || q.Get("code_challenge_method") != "S256" {
		p.t.Errorf("the provider got the authorization request %v, want code flow with S256", q)
	}
	answer := maps.Clone(p.answer)
	if answer == nil {
		code := "code-" + rand.Text()
		p.codes[code] = q
		answer = url.Values{"code": {code}, "iss": {p.URL}}
	}
	answer["state"] = q["state"]
	http.Redirect(w, r, q.Get("redirect_uri")+"?"+answer.Encode(), http.StatusFound)
}

func (p *idp) serveToken(w http.ResponseWriter, r *http.Request) {
	switch r.Form.Get("grant_type") {
	case "authorization_code":
		q, ok := p.codes[r.Form.Get("code")]
		sum := sha256.Sum256([]byte(r.Form.Get("code_verifier")))
		if !ok || q.Get("redirect_uri") != r.Form.Get("redirect_uri") ||
			q.Get("code_challenge") != base64.RawURLEncoding.EncodeToString(sum[:]) {
			p.writeJSON(w, http.StatusBadRequest, map[string]any{"error": "invalid_grant"})
			return
		}
		delete(p.codes, r.Form.Get("code"))
		p.writeTokens(w, q.Get("nonce"))
	case "refresh_token":
		if !p.refresh[r.Form.Get("refresh_token")] {
			p.writeJSON(w, http.StatusBadRequest, map[string]any{"error": "invalid_grant"})
			return
		}
		delete(p.refresh, r.Form.Get("refresh_token"))
		clear(p.access)
		p.writeTokens(w, "")
	default:
		p.writeJSON(w, http.StatusBadRequest, map[string]any{"error": "unsupported_grant_type"})
	}
}

func (p *idp) writeTokens(w http.ResponseWriter, nonce string) {
	access := "upstream-access-" + rand.Text()
	p.access[access] = true
	m := map[string]any{"access_token": access, "token_type": "Bearer"}
	if p.expires > 0 {
		m["expires_in"] = p.expires
	}
	if !p.noRefresh {
		refresh := "upstream-refresh-" + rand.Text()
		p.refresh[refresh] = true
		m["refresh_token"] = refresh
	}
	sum := sha256.Sum256([]byte(access))
	claims := map[string]any{
		"iss": p.URL, "sub": p.user, "aud": idpClient, "exp": time.Now().Add(time.Hour).Unix(),
		"iat": time.Now().Unix(), "nonce": nonce, "at_hash": base64.RawURLEncoding.EncodeToString(sum[:16]),
		"name":  "User One",
		"email": "one@example.com", "email_verified": true, "groups": []string{"a"},
	}
	if p.claims != nil {
		p.claims(claims)
	}
	payload, err := json.Marshal(claims)
	if err != nil {
		p.t.Error(err)
	}
	sign := p.sign
	if sign == nil {
		sign = p.signer(p.key, jose.ES256)
	}
	m["id_token"] = sign(payload)
	p.writeJSON(w, http.StatusOK, m)
}

func (p *idp) signer(key any, alg jose.SignatureAlgorithm) func([]byte) string {
	return func(payload []byte) string {
		s, err := jose.NewSigner(jose.SigningKey{Algorithm: alg, Key: key}, (&jose.SignerOptions{}).WithHeader("kid",
			"1"))
		if err != nil {
			p.t.Fatal(err)
		}
		jws, err := s.Sign(payload)
		if err != nil {
			p.t.Fatal(err)
		}
		text, _ := jws.CompactSerialize()
		return text
	}
}

// visit sends the authorization request of a browser to the provider, and returns the URL that the
// provider redirects to.
func (p *idp) visit(b *browser, address string) string {
	b.w.t.Helper()
	if !strings.HasPrefix(address, p.URL+"/authorize?") {
		b.w.t.Fatalf("the browser is sent to %s, want the provider", address)
	}
	w := httptest.NewRecorder()
	p.ServeHTTP(w, httptest.NewRequest(http.MethodGet, strings.TrimPrefix(address, p.URL), nil))
	return w.Header().Get("Location")
}
