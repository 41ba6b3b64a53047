package oauth_test

import (
	"context"
	"encoding/json"
	"errors"
	"net/http"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/go-jose/go-jose/v4"

	"github.com/patchbay-mcp/patchbay/oauth"
)

const jwksURL = "https://auth.example.com/keys"

// A keyServer publishes keys in a world, and counts how often it is asked.
type keyServer struct {
	asked atomic.Int32
	keys  atomic.Pointer[[]byte] // nil for a server that is away
	wait  time.Duration
}

func (s *keyServer) publish(keys []byte) { s.keys.Store(&keys) }

func (s *keyServer) ServeHTTP(w http.ResponseWriter, _ *http.Request) {
	s.asked.Add(1)
	time.Sleep(s.wait)
	keys := s.keys.Load()
	if keys == nil {
		w.WriteHeader(http.StatusBadGateway)
		return
	}
	w.Header().Set("Content-Type", "application/jwk-set+json")
	_, _ = w.Write(*keys)
}

// withKeyServer runs a test with a key server and a verifier that finds it through the metadata of
// the issuer.
func withKeyServer(t *testing.T, f func(t *testing.T, s *keyServer, v *oauth.JWTVerifier)) {
	first := jwks(t, map[string]any{"ec": ecKey().Public()})
	synctest.Test(t, func(t *testing.T) {
		w, s := newNetwork(t), &keyServer{}
		s.publish(first)
		w.Doc(issuerURL+"/.well-known/oauth-authorization-server", `{"issuer":"`+issuerURL+`","jwks_uri":"`+jwksURL+`",
			"authorization_endpoint":"https://auth.example.com/a","token_endpoint":"https://auth.example.com/t","response_types_supported":["code"]}`)
		w.Page(jwksURL, s.ServeHTTP)
		f(t, s, oauth.NewJWTVerifier(issuerURL, &oauth.JWTOptions{Fetcher: w.fetcher(nil)}))
	})
}

func verifies(t *testing.T, v oauth.Verifier, token string) {
	t.Helper()
	if _, err := v.Verify(t.Context(), token); err != nil {
		t.Errorf("not verified: %v", err)
	}
}

func refuses(t *testing.T, v oauth.Verifier, token string) {
	t.Helper()
	if _, err := v.Verify(t.Context(), token); !errors.Is(err, oauth.ErrInvalidToken) {
		t.Errorf("got %v, want a refusal", err)
	}
}

func asks(t *testing.T, s *keyServer, want int32) {
	t.Helper()
	if got := s.asked.Swap(0); got != want {
		t.Errorf("the keys were fetched %d times, want %d", got, want)
	}
}

func otherKid(t testing.TB, kid string) string {
	return sign(t, jose.ES256, ecKey(), map[jose.HeaderKey]any{"kid": kid}, goodClaims())
}

// However many key ids strangers make up, and however many callers there are at once, the keys are
// fetched once.
func TestUnknownKeysDoNotFloodTheServer(t *testing.T) {
	withKeyServer(t, func(t *testing.T, s *keyServer, v *oauth.JWTVerifier) {
		s.wait = time.Second
		var wg sync.WaitGroup
		for i := range 50 {
			token := otherKid(t, strings.Repeat("x", i+1))
			wg.Go(func() { refuses(t, v, token) })
			wg.Go(func() { verifies(t, v, issue(t)) })
		}
		wg.Wait()
		asks(t, s, 1)
		time.Sleep(30 * time.Second)
		refuses(t, v, otherKid(t, "y"))
		asks(t, s, 0)
		time.Sleep(31 * time.Second)
		for range 10 {
			refuses(t, v, otherKid(t, "z"))
		}
		asks(t, s, 1)
		refuses(t, v, sign(t, jose.ES256, strangeKey(), map[jose.HeaderKey]any{"kid": "ec"}, goodClaims()))
		time.Sleep(2 * time.Minute)
		refuses(t, v, sign(t, jose.ES256, strangeKey(), map[jose.HeaderKey]any{"kid": "ec"}, goodClaims()))
		asks(t, s, 0) // a wrong signature by a known key is no reason
	})
}

// Nothing is fetched for what is no token of the issuer, so that another verifier can be asked at
// once.
func TestTokensOfOtherIssuersFetchNoKeys(t *testing.T) {
	withKeyServer(t, func(t *testing.T, s *keyServer, v *oauth.JWTVerifier) {
		s.keys.Store(nil) // the server is away
		secret := strings.Repeat("s", 30)
		both := oauth.Verifiers(v, staticVerifier(t, oauth.StaticToken{Token: secret, Subject: "robot"}))
		verifies(t, both, secret)
		refuses(t, both, issue(t, claims{"iss": "https://other.example"}))
		asks(t, s, 0)
		if _, err := both.Verify(t.Context(), issue(t)); err == nil || errors.Is(err, oauth.ErrInvalidToken) {
			t.Errorf("got %v, want a failure", err)
		}
	})
}

func TestKeysAreRotated(t *testing.T) {
	next, only := jwks(t, map[string]any{"ec": ecKey().Public(), "next": strangeKey().Public()}), jwks(t, map[string]any{"next": strangeKey().Public()})
	withKeyServer(t, func(t *testing.T, s *keyServer, v *oauth.JWTVerifier) {
		old := issue(t)
		renewed := sign(t, jose.ES256, strangeKey(), map[jose.HeaderKey]any{"kid": "next"}, goodClaims())
		verifies(t, v, old)
		s.publish(next)
		time.Sleep(61 * time.Second)
		verifies(t, v, renewed)
		verifies(t, v, old)
		asks(t, s, 2)
		s.publish(only) // the old key is withdrawn
		time.Sleep(10 * time.Minute)
		refuses(t, v, old) // although it was verified and remembered
		verifies(t, v, renewed)
	})
}

func TestStaleKeysWhileServerIsDown(t *testing.T) {
	withKeyServer(t, func(t *testing.T, s *keyServer, v *oauth.JWTVerifier) {
		verifies(t, v, issue(t))
		s.keys.Store(nil)
		asks(t, s, 1)
		time.Sleep(65 * time.Minute)
		for range 5 {
			verifies(t, v, issue(t))
		}
		asks(t, s, 1) // not with every request
		time.Sleep(6 * time.Minute)
		if _, err := v.Verify(t.Context(), issue(t)); err == nil || errors.Is(err, oauth.ErrInvalidToken) {
			t.Errorf("after the bound: got %v, want a failure that is not the token's", err)
		}
		s.publish(jwks(t, map[string]any{"ec": ecKey().Public()}))
		time.Sleep(6 * time.Second)
		verifies(t, v, issue(t))
	})
}

// While somebody fetches new keys in place of old ones, the others need not wait.
func TestOldKeysDuringFetch(t *testing.T) {
	withKeyServer(t, func(t *testing.T, s *keyServer, v *oauth.JWTVerifier) {
		verifies(t, v, issue(t))
		s.wait = 5 * time.Second
		time.Sleep(11 * time.Minute)
		go verifies(t, v, issue(t))
		synctest.Wait()
		begin := time.Now()
		verifies(t, v, issue(t))
		if waited := time.Since(begin); waited != 0 {
			t.Errorf("waited %v", waited)
		}
		time.Sleep(6 * time.Second)
	})
}

// A caller that goes away takes the fetch from nobody.
func TestKeyFetchOutlivesItsCaller(t *testing.T) {
	withKeyServer(t, func(t *testing.T, s *keyServer, v *oauth.JWTVerifier) {
		s.wait = 2 * time.Second
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		go func() { _, _ = v.Verify(ctx, issue(t)) }()
		synctest.Wait()
		impatient, leave := context.WithTimeout(t.Context(), time.Second/2)
		defer leave()
		begin := time.Now()
		if _, err := v.Verify(impatient, issue(t)); !errors.Is(err, context.DeadlineExceeded) || time.Since(begin) != time.Second/2 {
			t.Errorf("one who waits for another's fetch left after %v with %v", time.Since(begin), err)
		}
		verifies(t, v, issue(t))
		asks(t, s, 1)
	})
}

// Keys that are for something else, weak, secret or unknown verify nothing, and do not spoil the
// others.
func TestKeysThatCannotVerify(t *testing.T) {
	public := func(change func(map[string]any)) any {
		text, _ := (&jose.JSONWebKey{Key: ecKey().Public(), KeyID: "ec"}).MarshalJSON()
		return mustChange(t, text, change)
	}
	private, _ := (&jose.JSONWebKey{Key: ecKey(), KeyID: "ec"}).MarshalJSON()
	for name, tc := range map[string]struct {
		key  any
		want bool
	}{
		"as it is":         {public(nil), true},
		"alg":              {public(func(k map[string]any) { k["alg"] = "ES256" }), true},
		"another alg":      {public(func(k map[string]any) { k["alg"] = "ES384" }), false},
		"for encryption":   {public(func(k map[string]any) { k["use"] = "enc" }), false},
		"key_ops":          {public(func(k map[string]any) { k["key_ops"] = []string{"verify"} }), true},
		"other key_ops":    {public(func(k map[string]any) { k["key_ops"] = []string{"encrypt"} }), false},
		"private":          {mustChange(t, private, nil), false},
		"off the curve":    {public(func(k map[string]any) { k["x"] = k["y"] }), false},
		"an unknown curve": {public(func(k map[string]any) { k["crv"] = "P-999" }), false},
		"a secret":         {map[string]any{"kty": "oct", "k": "AAAA", "kid": "ec"}, false},
		"no key":           {"ec", false},
	} {
		t.Run(name, func(t *testing.T) {
			other, _ := (&jose.JSONWebKey{Key: rsaKey().Public(), KeyID: "rsa"}).MarshalJSON()
			set := mustJSON(map[string]any{"keys": []any{tc.key, map[string]any{"kty": "new"}, mustChange(t, other, nil)}})
			v := oauth.NewJWTVerifier(issuerURL, &oauth.JWTOptions{JWKS: []byte(set)})
			if _, err := v.Verify(t.Context(), issue(t)); (err == nil) != tc.want {
				t.Errorf("got %v", err)
			}
			verifies(t, v, sign(t, jose.RS256, rsaKey(), map[jose.HeaderKey]any{"kid": "rsa"}, goodClaims()))
		})
	}
}

// Keys are not fetched from where the issuer has no right to.
func TestSEC07_KeySetAtPrivateAddress(t *testing.T) {
	for _, address := range []string{"http://auth.example.com/keys", "https://169.254.169.254/keys", "https://10.0.0.1/keys", "file:///etc/passwd"} {
		w := newNetwork(t)
		w.Doc(issuerURL+"/.well-known/oauth-authorization-server", `{"issuer":"`+issuerURL+`","jwks_uri":"`+address+`",
			"authorization_endpoint":"https://auth.example.com/a","token_endpoint":"https://auth.example.com/t","response_types_supported":["code"]}`)
		v := oauth.NewJWTVerifier(issuerURL, &oauth.JWTOptions{Fetcher: w.fetcher(nil)})
		if _, err := v.Verify(t.Context(), issue(t)); err == nil || errors.Is(err, oauth.ErrInvalidToken) {
			t.Errorf("%s: got %v", address, err)
		}
	}
}

// AUTHR-13: the metadata of another issuer is of no use.
func TestKeysOfAnotherIssuer(t *testing.T) {
	w := newNetwork(t)
	w.Doc(issuerURL+"/.well-known/oauth-authorization-server", `{"issuer":"https://evil.example","jwks_uri":"`+jwksURL+`"}`)
	w.Page(jwksURL, func(http.ResponseWriter, *http.Request) { t.Error("the keys were fetched") })
	v := oauth.NewJWTVerifier(issuerURL, &oauth.JWTOptions{Fetcher: w.fetcher(nil)})
	if _, err := v.Verify(t.Context(), issue(t)); err == nil || errors.Is(err, oauth.ErrInvalidToken) {
		t.Errorf("got %v", err)
	}
}

// mustChange decodes a JSON object and changes it.
func mustChange(t testing.TB, text []byte, change func(map[string]any)) map[string]any {
	t.Helper()
	var obj map[string]any
	if err := json.Unmarshal(text, &obj); err != nil {
		t.Fatal(err)
	}
	if change != nil {
		change(obj)
	}
	return obj
}
