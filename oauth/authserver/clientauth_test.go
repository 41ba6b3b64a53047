package authserver_test

import (
	"crypto"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"encoding/json"
	"maps"
	"net/http"
	"net/url"
	"testing"
	"testing/synctest"
	"time"

	"github.com/go-jose/go-jose/v4"

	"github.com/patchbay-mcp/patchbay/oauth/authserver"
)

// The response must not say whether a client exists.
func TestUnknownClientAndWrongSecretHaveTheSameResponse(t *testing.T) {
	w := newEnv(t, nil)
	form := func(id, secret string) url.Values {
		return url.Values{"grant_type": {"client_credentials"}, "client_id": {id}, "client_secret": {secret}}
	}
	wrong, unknown := w.post("/token", form(machineID, "wrong")), w.post("/token", form("unknown", "wrong"))
	wrong.wantError(t, http.StatusUnauthorized, "invalid_client")
	if wrong.body != unknown.body || wrong.StatusCode != unknown.StatusCode ||
		wrong.Header.Get("WWW-Authenticate") == "" {
		t.Errorf("wrong secret: %s %s\nunknown client: %s %s\nwant the same, with WWW-Authenticate",
			wrong.Status, wrong.body, unknown.Status, unknown.body)
	}
}

func TestClientAuthenticationMethods(t *testing.T) {
	w := newEnv(t, nil)
	basic := func(id, secret string) string {
		r, _ := http.NewRequest(http.MethodGet, "/", nil)
		r.SetBasicAuth(id, secret)
		return r.Header.Get("Authorization")
	}
	grant := url.Values{"grant_type": {"client_credentials"}}
	with := func(more ...string) url.Values {
		f := maps.Clone(grant)
		for i := 0; i < len(more); i += 2 {
			f.Set(more[i], more[i+1])
		}
		return f
	}
	w.tokensOf(w.post("/token", grant, "Authorization", basic(machineID, secret)))
	w.tokensOf(w.post("/token", with("client_id", machineID), "Authorization", basic(machineID, secret)))
	w.tokensOf(w.post("/token", with("client_id", machineID, "client_secret", secret)))
	for name, c := range map[string]struct {
		form   url.Values
		header []string
		status int
		code   string
	}{
		"two methods": {with("client_secret", secret, "client_id", machineID), []string{"Authorization",
			basic(machineID, secret)}, 400, "invalid_request"},
		"two headers": {grant, []string{"Authorization", basic(machineID, secret), "Authorization",
			basic(machineID, secret)}, 400, "invalid_request"},
		"two client IDs": {with("client_id", secretID), []string{"Authorization", basic(machineID, secret)}, 401,
			"invalid_client"},
		"wrong secret": {grant, []string{"Authorization", basic(machineID, "x"+secret)}, 401,
			"invalid_client"},
		"the hash as the secret": {grant, []string{"Authorization", basic(machineID, secretHash)}, 401,
			"invalid_client"},
		"no secret":                 {with("client_id", machineID), nil, 401, "invalid_client"},
		"empty secret":              {grant, []string{"Authorization", basic(machineID, "")}, 401, "invalid_client"},
		"secret of a public client": {with("client_id", publicID, "client_secret", "x"), nil, 401, "invalid_client"},
		"bearer":                    {grant, []string{"Authorization", "Bearer " + secret}, 401, "invalid_client"},
		"no client":                 {grant, nil, 401, "invalid_client"},
		"unknown client":            {with("client_id", "unknown"), nil, 401, "invalid_client"},
		"unknown assertion type": {with("client_assertion", "x", "client_assertion_type", "saml"), nil, 400,
			"invalid_request"},
		"invalid assertion": {with("client_assertion", "x", "client_assertion_type", jwtBearer), nil, 401,
			"invalid_client"},
	} {
		t.Run(name, func(t *testing.T) { w.post("/token", c.form, c.header...).wantError(t, c.status, c.code) })
	}
}

const jwtBearer = "urn:ietf:params:oauth:client-assertion-type:jwt-bearer"

func newKey(t *testing.T) *ecdsa.PrivateKey {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	return key
}

func sign(t *testing.T, alg jose.SignatureAlgorithm, key any, claims map[string]any) string {
	t.Helper()
	signer, err := jose.NewSigner(jose.SigningKey{Algorithm: alg, Key: key}, (&jose.SignerOptions{}).WithType("JWT"))
	if err != nil {
		t.Fatal(err)
	}
	payload, err := json.Marshal(claims)
	if err != nil {
		t.Fatal(err)
	}
	signed, err := signer.Sign(payload)
	if err != nil {
		t.Fatal(err)
	}
	token, err := signed.CompactSerialize()
	if err != nil {
		t.Fatal(err)
	}
	return token
}

// Requirement: EAUTH-03
func TestClientAuthenticatesWithPrivateKeyJWT(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		key := newKey(t)
		w := newInProcessEnv(t, func(o *authserver.Options) {
			o.Clients = append(o.Clients, authserver.Client{ID: "signer", Keys: []crypto.PublicKey{key.Public()}})
		})
		now := time.Now().Unix()
		n := 0
		claims := func(change ...any) map[string]any {
			n++
			c := map[string]any{"iss": "signer", "sub": "signer", "aud": w.issuer, "jti": string(rune('a' + n)),
				"iat": now,
				"exp": now + 300}
			for i := 0; i < len(change); i += 2 {
				if c[change[i].(string)] = change[i+1]; change[i+1] == nil {
					delete(c, change[i].(string))
				}
			}
			return c
		}
		form := func(assertion string) url.Values {
			return url.Values{"grant_type": {"client_credentials"}, "client_assertion_type": {jwtBearer},
				"client_assertion": {assertion}}
		}
		good := sign(t, jose.ES256, key, claims())
		got := w.tokensOf(w.post("/token", form(good)))
		w.wantValid(got.Access, "of a client with a key")
		w.post("/token", form(good)).wantError(t, http.StatusUnauthorized, "invalid_client") // jti used
		w.tokensOf(w.post("/token", form(sign(t, jose.ES256, key, claims("aud", []string{w.issuer})))))

		for name, c := range map[string]map[string]any{
			"token endpoint as audience": claims("aud", w.issuer+"/token"),
			"two audiences":              claims("aud", []string{w.issuer, "https://other.example"}),
			"no audience":                claims("aud", nil),
			"another issuer":             claims("iss", "other"),
			"a client with a secret":     claims("iss", machineID, "sub", machineID),
			"expired":                    claims("exp", now),
			"no expiry":                  claims("exp", nil),
			"expiry out of range":        claims("exp", 1e300),
			"expiry too late":            claims("exp", now+601),
			"not valid yet":              claims("nbf", now+31),
			"issued in the future":       claims("iat", now+31),
			"no jti":                     claims("jti", nil),
		} {
			if res := w.post("/token", form(sign(t, jose.ES256, key, c))); res.StatusCode != http.StatusUnauthorized {
				t.Errorf("%s: %s %s, want 401", name, res.Status, res.body)
			}
		}
		w.post("/token", form(sign(t, jose.ES256, newKey(t), claims()))).wantError(t, http.StatusUnauthorized,
			"invalid_client")
		public, _ := key.PublicKey.Bytes()
		w.post("/token", form(sign(t, jose.HS256, public, claims()))).
			wantError(t, http.StatusUnauthorized, "invalid_client")
		secret := url.Values{"grant_type": {"client_credentials"}, "client_id": {"signer"}, "client_secret": {"x"}}
		w.post("/token", secret).wantError(t, http.StatusUnauthorized, "invalid_client")
		w.post("/token", url.Values{"grant_type": {"client_credentials"}, "client_id": {"signer"}}).wantError(t,
			http.StatusUnauthorized, "invalid_client")
	})
}

func TestInvalidOptionsAreErrors(t *testing.T) {
	for name, change := range map[string]func(*authserver.Options){
		"no issuer": func(o *authserver.Options) { o.Issuer = "" },
		// Requirement: AUTH-10
		"issuer over http":          func(o *authserver.Options) { o.Issuer = "http://as.example" },
		"issuer with a slash":       func(o *authserver.Options) { o.Issuer = "https://as.example/" },
		"issuer with a query":       func(o *authserver.Options) { o.Issuer = "https://as.example?x" },
		"issuer with an empty port": func(o *authserver.Options) { o.Issuer = "https://as.example:" },
		"resource with an empty port": func(o *authserver.Options) {
			o.Resources[0].URL = "https://mcp.example:/mcp"
		},
		"no resource": func(o *authserver.Options) { o.Resources = nil },
		"resource twice": func(o *authserver.Options) {
			o.Resources = append(o.Resources, authserver.Resource{URL: "HTTPS://MCP.example/mcp"})
		},
		"resource with a fragment":   func(o *authserver.Options) { o.Resources[0].URL += "#x" },
		"scope with a space":         func(o *authserver.Options) { o.Resources[0].Scopes[0].Name = "a b" },
		"access token over an hour":  func(o *authserver.Options) { o.Lifetimes.Access = time.Hour + 1 },
		"secret instead of its hash": func(o *authserver.Options) { o.Clients[1].SecretHash = secret },
		"redirect over http": func(o *authserver.Options) { // Requirement: AUTHB-15
			o.Clients[0].RedirectURIs = []string{"http://app.example/"}
		},
		"client credentials, public": func(o *authserver.Options) {
			o.Clients[0].Grants = []string{"client_credentials"}
		},
		"client twice": func(o *authserver.Options) { o.Clients[0].ID = secretID },
		"unknown resource": func(o *authserver.Options) {
			o.Clients[3].Introspects = []string{"https://x.example"}
		},
		"public introspection": func(o *authserver.Options) { o.Clients[0].Introspects = []string{resource} },
		"unknown grant":        func(o *authserver.Options) { o.Clients[0].Grants = []string{"password"} },
	} {
		t.Run(name, func(t *testing.T) {
			o := options("https://as.example")
			change(&o)
			if _, err := authserver.New(&o); err == nil {
				t.Error("New returned no error")
			}
		})
	}
}
