package access_test

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"encoding/json"
	"errors"
	"net/http"
	"net/http/httptest"
	"net/url"
	"os"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/go-jose/go-jose/v4"

	"github.com/patchbay-mcp/patchbay/gateway"
	"github.com/patchbay-mcp/patchbay/gateway/cmd/patchbay/internal/console/access"
	"github.com/patchbay-mcp/patchbay/gateway/gatewayconfig"
	"github.com/patchbay-mcp/patchbay/mcptest/testhome"
	"github.com/patchbay-mcp/patchbay/oauth"
)

func TestMain(m *testing.M) { os.Exit(testhome.Main(m, (*testing.M).Run)) }

// A provider is an OpenID provider with one user, ann.
type provider struct {
	url      string
	key      *ecdsa.PrivateKey
	userinfo string // the response of the endpoint; "" without an endpoint
	status   int
	claims   map[string]any // of the ID token
	asked    atomic.Int32   // requests for userinfo
}

func (p *provider) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	var answer map[string]any
	switch r.URL.Path {
	case "/.well-known/openid-configuration":
		answer = map[string]any{"issuer": p.url, "authorization_endpoint": p.url + "/authorize",
			"token_endpoint": p.url + "/token", "jwks_uri": p.url + "/keys",
			"id_token_signing_alg_values_supported": []string{"ES256"}}
		if p.userinfo != "" {
			answer["userinfo_endpoint"] = p.url + "/userinfo"
		}
	case "/keys":
		answer = map[string]any{"keys": []jose.JSONWebKey{{Key: p.key.Public(), KeyID: "1", Algorithm: "ES256",
			Use: "sig"}}}
	case "/token":
		answer = map[string]any{"access_token": "the-token", "token_type": "Bearer", "id_token": p.idToken()}
	case "/userinfo":
		p.asked.Add(1)
		if r.Header.Get("Authorization") != "Bearer the-token" {
			w.WriteHeader(http.StatusUnauthorized)
			return
		}
		w.Header().Set("Content-Type", "application/json")
		w.WriteHeader(p.status)
		_, _ = w.Write([]byte(p.userinfo))
		return
	}
	w.Header().Set("Content-Type", "application/json")
	_ = json.NewEncoder(w).Encode(answer)
}

func (p *provider) idToken() string {
	key := jose.SigningKey{Algorithm: jose.ES256, Key: jose.JSONWebKey{Key: p.key, KeyID: "1"}}
	signer, err := jose.NewSigner(key, nil)
	if err != nil {
		return err.Error()
	}
	payload, _ := json.Marshal(p.claims)
	signed, err := signer.Sign(payload)
	if err != nil {
		return err.Error()
	}
	text, _ := signed.CompactSerialize()
	return text
}

// A provider may put groups only into the userinfo. They count if the ID token has no such claim, and
// the userinfo is about the same user.
func TestGroupsOfTheUserinfo(t *testing.T) {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	const platform = `{"sub": "ann", "groups": ["platform"]}`
	for name, c := range map[string]struct {
		groups   any // of the ID token; nil without the claim
		userinfo string
		status   int
		want     gateway.ConsoleRole
		err      string
		asked    int32
	}{
		"in the ID token":       {[]string{"platform"}, `{"sub": "ann"}`, 200, gateway.ConsoleOperator, "", 0},
		"in the userinfo":       {nil, platform, 200, gateway.ConsoleOperator, "", 1},
		"none in the ID token":  {[]string{}, platform, 200, "", access.ErrRefused.Error(), 0},
		"none in the userinfo":  {nil, `{"sub": "ann"}`, 200, "", access.ErrRefused.Error(), 1},
		"no endpoint":           {nil, "", 200, "", access.ErrRefused.Error(), 0},
		"another user":          {nil, `{"sub": "eve", "groups": ["platform"]}`, 200, "", "another sub", 1},
		"no sub":                {nil, `{"groups": ["platform"]}`, 200, "", "another sub", 1},
		"sub of the wrong type": {nil, `{"sub": ["ann"], "groups": ["platform"]}`, 200, "", "another sub", 1},
		"refused":               {nil, platform, 403, "", "HTTP 403", 1},
		"no JSON":               {nil, "eyJhbGciOi.J9.x", 200, "", "must be a JSON object", 1},
		"too large":             {nil, platform + strings.Repeat(" ", 256<<10), 200, "", "must be a JSON object", 1},
		"groups of another shape": {nil, `{"sub": "ann", "groups": {"platform": true}}`, 200, "",
			access.ErrRefused.Error(), 1},
	} {
		p := &provider{key: key, userinfo: c.userinfo, status: c.status}
		s := httptest.NewServer(p)
		p.url = s.URL
		i, err := access.NewIdentity(&gateway.OAuth{AuthorizationServers: []string{s.URL}, ClientID: "gateway",
			ClientSecret: "x", Fetcher: oauth.NewFetcher(nil)}, &gatewayconfig.ConsoleRoles{Claim: "groups",
			Operator: []string{"platform"}}, "https://console.example")
		if err != nil {
			t.Fatal(err)
		}
		at, err := i.Start(t.Context(), "browser", "/")
		if err != nil {
			t.Fatal(err)
		}
		u, err := url.Parse(at)
		if err != nil {
			t.Fatal(err)
		}
		p.claims = map[string]any{"iss": s.URL, "sub": "ann", "aud": "gateway", "nonce": u.Query().Get("nonce"),
			"iat": time.Now().Unix(), "exp": time.Now().Add(time.Hour).Unix()}
		if c.groups != nil {
			p.claims["groups"] = c.groups
		}
		person, _, err := i.Finish(t.Context(), "browser", url.Values{"code": {"c"}, "state": u.Query()["state"]})
		role := gateway.ConsoleRole("")
		if err == nil {
			_, role, err = person.Check()
		}
		if role != c.want || (err == nil) != (c.err == "") || err != nil && !strings.Contains(err.Error(), c.err) ||
			p.asked.Load() != c.asked {
			t.Errorf("%s: got %q, %v after %d requests, want %q, %q after %d", name, role, err, p.asked.Load(), c.want,
				c.err, c.asked)
		}
		if c.err == access.ErrRefused.Error() && !errors.Is(err, access.ErrRefused) {
			t.Errorf("%s: got %v, want ErrRefused", name, err)
		}
		s.Close()
	}
}
