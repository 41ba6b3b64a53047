package gateway_test

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/sha256"
	"encoding/base64"
	"encoding/json"
	"net/http"
	"net/http/httptest"
	"net/url"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/go-jose/go-jose/v4"

	"github.com/patchbay-mcp/patchbay/gateway"
	"github.com/patchbay-mcp/patchbay/host/policy"
	"github.com/patchbay-mcp/patchbay/mcp"
	"github.com/patchbay-mcp/patchbay/oauth"
	"github.com/patchbay-mcp/patchbay/oauth/authserver"
)

// A callerIssuer is the OpenID provider of the callers. The header browserUser of a request names its user.
type callerIssuer struct {
	url string
	key *ecdsa.PrivateKey

	mu     sync.Mutex                  // guards the fields below
	codes  map[string]url.Values       // authorization requests, with the user
	change func(claims map[string]any) // changes ID tokens
}

func newCallerIssuer(t *testing.T) *callerIssuer {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	i := &callerIssuer{key: key, codes: map[string]url.Values{}}
	s := httptest.NewServer(i)
	t.Cleanup(s.Close)
	i.url = s.URL
	return i
}

func (i *callerIssuer) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	i.mu.Lock()
	defer i.mu.Unlock()
	_ = r.ParseForm()
	w.Header().Set("Content-Type", "application/json")
	answer := map[string]any{}
	switch r.URL.Path {
	case "/.well-known/openid-configuration":
		answer = map[string]any{"issuer": i.url, "authorization_endpoint": i.url + "/authorize",
			"token_endpoint": i.url + "/token", "jwks_uri": i.url + "/keys",
			"id_token_signing_alg_values_supported":          []string{"ES256"},
			"authorization_response_iss_parameter_supported": true}
	case "/keys":
		answer["keys"] = []jose.JSONWebKey{{Key: i.key.Public(), KeyID: "1", Algorithm: "ES256", Use: "sig"}}
	case "/authorize":
		code := rand.Text()
		q := r.URL.Query()
		q.Set("user", r.Header.Get(browserUser))
		i.codes[code] = q
		to := url.Values{"code": {code}, "state": q["state"], "iss": {i.url}}
		http.Redirect(w, r, q.Get("redirect_uri")+"?"+to.Encode(), http.StatusFound)
		return
	case "/token":
		asked := i.codes[r.PostForm.Get("code")]
		delete(i.codes, r.PostForm.Get("code"))
		sum := sha256.Sum256([]byte(r.PostForm.Get("code_verifier")))
		id, _, _ := r.BasicAuth()
		if asked == nil || id != "gateway" || asked.Get("code_challenge_method") != "S256" ||
			asked.Get("code_challenge") != base64.RawURLEncoding.EncodeToString(sum[:]) ||
			r.PostForm.Get("redirect_uri") != asked.Get("redirect_uri") {
			w.WriteHeader(http.StatusBadRequest)
			answer["error"] = "invalid_grant"
			break
		}
		claims := map[string]any{"iss": i.url, "sub": asked.Get("user"), "aud": "gateway", "nonce": asked.Get("nonce"),
			"iat": time.Now().Unix(), "exp": time.Now().Add(time.Hour).Unix()}
		if i.change != nil {
			i.change(claims)
		}
		answer = map[string]any{"access_token": "x", "token_type": "Bearer", "id_token": i.sign(claims)}
	default:
		w.WriteHeader(http.StatusNotFound)
	}
	_ = json.NewEncoder(w).Encode(answer)
}

func (i *callerIssuer) sign(claims map[string]any) string {
	signer, err := jose.NewSigner(jose.SigningKey{Algorithm: jose.ES256, Key: jose.JSONWebKey{Key: i.key, KeyID: "1"}}, nil)
	if err != nil {
		return err.Error()
	}
	payload, _ := json.Marshal(claims)
	signed, err := signer.Sign(payload)
	if err != nil {
		return err.Error()
	}
	text, _ := signed.CompactSerialize()
	return text
}

// options configures a gateway whose callers have access tokens of i.
func (i *callerIssuer) options(clientID string) func(o *gateway.Options) {
	return func(o *gateway.Options) {
		o.ConnectPrincipal = nil
		o.OAuth = &gateway.OAuth{Verifier: oauth.NewJWTVerifier(i.url, nil), AuthorizationServers: []string{i.url},
			ClientID: clientID, ClientSecret: "secret"}
	}
}

func (i *callerIssuer) person(name string) *mcp.Principal {
	return &mcp.Principal{Issuer: i.url, Subject: name}
}

// A caller with an access token sends the address of its login to another user. The gateway asks the
// authorization server of its callers who the visitor is, before it sends anything to the server.
//
// Requirement: ELI-21
func TestLoginIsForTheUserWhoStartedIt(t *testing.T) {
	u, i := newProtectedUpstream(t), newCallerIssuer(t)
	g := newLoginGateway(t, u, `{"auth": "caller"}`, "", i.options("gateway"))
	page := g.begin(t, i.person("eve"))
	victim, eve := g.visitor(t, "ann"), g.visitor(t, "eve")
	status, text := victim.visit(page)
	if status != http.StatusForbidden || !strings.Contains(text, "You are not the caller that the login is for") {
		t.Errorf("the victim: %d, %s, want 403", status, text)
	}
	u.mu.Lock()
	sent := len(u.events)
	u.mu.Unlock()
	if sent != 0 || g.loggedIn(t, i.person("eve")) || g.loggedIn(t, i.person("ann")) {
		t.Errorf("%d events at the authorization server of the server, want none", sent)
	}
	if status, text := eve.visit(page); status != 200 || !strings.Contains(text, "You are logged in") {
		t.Errorf("the caller: %d, %s, want 200", status, text)
	}
	if !g.loggedIn(t, i.person("eve")) || u.count(authserver.AuditLogin) != 1 {
		t.Errorf("the caller is not logged in")
	}
}

// A response that the authorization server of the callers did not send to this browser starts no login.
//
// Requirement: ELI-21
func TestResponsesOfTheIssuerAreChecked(t *testing.T) {
	for name, c := range map[string]struct {
		token  func(claims map[string]any)
		query  func(q url.Values)
		other  bool // another browser
		status int
	}{
		"unchanged":       {status: http.StatusSeeOther},
		"wrong nonce":     {token: func(c map[string]any) { c["nonce"] = "x" }, status: 502},
		"no nonce":        {token: func(c map[string]any) { delete(c, "nonce") }, status: 502},
		"wrong audience":  {token: func(c map[string]any) { c["aud"] = "x" }, status: 502},
		"expired":         {token: func(c map[string]any) { c["exp"] = 1 }, status: 502},
		"wrong issuer":    {token: func(c map[string]any) { c["iss"] = "https://evil.example" }, status: 502},
		"other subject":   {token: func(c map[string]any) { c["sub"] = "Ann" }, status: 403},
		"no subject":      {token: func(c map[string]any) { delete(c, "sub") }, status: 502},
		"wrong iss":       {query: func(q url.Values) { q.Set("iss", "https://evil.example") }, status: 502},
		"no iss":          {query: func(q url.Values) { q.Del("iss") }, status: 502},
		"wrong code":      {query: func(q url.Values) { q.Set("code", "x") }, status: 502},
		"two codes":       {query: func(q url.Values) { q.Add("code", "x") }, status: 502},
		"refused":         {query: func(q url.Values) { q.Set("error", "access_denied") }, status: 502},
		"wrong state":     {query: func(q url.Values) { q.Set("state", q.Get("state")+"x") }, status: 404},
		"no state":        {query: func(q url.Values) { q.Del("state") }, status: 404},
		"another browser": {other: true, status: 403},
	} {
		t.Run(name, func(t *testing.T) {
			u, i := newProtectedUpstream(t), newCallerIssuer(t)
			i.change = c.token
			g := newLoginGateway(t, u, `{"auth": "caller"}`, "", i.options("gateway"))
			ann := g.visitor(t, "ann")
			status, to := ann.start(g.begin(t, i.person("ann")))
			if status != http.StatusSeeOther || !strings.HasPrefix(to.String(), i.url+"/authorize?") {
				t.Fatalf("%d, %v, want the authorization server of the callers", status, to)
			}
			back := ann.response(to)
			unchanged := back.String()
			if c.query != nil {
				q := back.Query()
				c.query(q)
				back.RawQuery = q.Encode()
			}
			visitor := ann
			if c.other {
				visitor = g.visitor(t, "ann")
			}
			res, err := visitor.stop().Get(back.String())
			if err != nil {
				t.Fatal(err)
			}
			visitor.read(res)
			if res.StatusCode != c.status {
				t.Errorf("%d, want %d", res.StatusCode, c.status)
			}
			if started := strings.HasPrefix(res.Header.Get("Location"), u.issuer); started != (c.status == http.StatusSeeOther) {
				t.Errorf("redirected to %q", res.Header.Get("Location"))
			}
			wasUsed := c.status == 502 || c.status == http.StatusSeeOther || name == "other subject"
			if status, _ := ann.get(unchanged); wasUsed && status != http.StatusNotFound || !wasUsed && status != http.StatusSeeOther {
				t.Errorf("the true response afterwards: %d, used %t", status, wasUsed)
			}
		})
	}
}

// If the gateway cannot identify the visitor, the caller gets no page, and an error names the missing setting.
//
// Requirement: ELI-21
func TestCallersWhoCannotBeIdentifiedGetNoPage(t *testing.T) {
	u, i := newProtectedUpstream(t), newCallerIssuer(t)
	g := newLoginGateway(t, u, `{"auth": "caller"}`, `, "connect": {"links": true}`, i.options(""))
	for issuer, want := range map[string]string{i.url: "must set auth.oidc.clientId", loginIssuer: "does not know how to identify users"} {
		g.issuer = issuer
		ann := g.visitor(t, "ann")
		c := g.client(t, "ann", "2026-07-28", ann.elicit)
		code, text := errorCode(t, c, "log_in")
		if code != "auth_required" || !strings.Contains(text, want) || len(ann.opened()) != 0 {
			t.Errorf("%s: %q, %q, opened %q; want auth_required with %q", issuer, code, text, ann.opened(), want)
		}
		p := &mcp.Principal{Issuer: issuer, Subject: "ann"}
		if _, err := g.host.Operator().BeginLogin(t.Context(), "notes", &policy.Caller{Principal: p}); err == nil {
			t.Errorf("%s: a login has begun", issuer)
		}
	}
}
