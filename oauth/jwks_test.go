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

// A keyServer publishes a key set and counts the requests for it.
type keyServer struct {
	fetches atomic.Int32
	keys    atomic.Pointer[[]byte] // nil for a server that is down
	wait    time.Duration
}

func (s *keyServer) publish(keys []byte) { s.keys.Store(&keys) }

func (s *keyServer) ServeHTTP(w http.ResponseWriter, _ *http.Request) {
	s.fetches.Add(1)
	time.Sleep(s.wait)
	keys := s.keys.Load()
	if keys == nil {
		w.WriteHeader(http.StatusBadGateway)
		return
	}
	w.Header().Set("Content-Type", "application/jwk-set+json")
	_, _ = w.Write(*keys)
}

// withKeyServer calls f, in a synctest bubble, with a key server and a verifier that finds it
// through the issuer's metadata.
func withKeyServer(t *testing.T, f func(t *testing.T, s *keyServer, v *oauth.JWTVerifier)) {
	first := jwks(t, map[string]any{"ec": ecKey().Public()})
	synctest.Test(t, func(t *testing.T) {
		w, s := newNetwork(t), &keyServer{}
		s.publish(first)
		w.Doc(issuerURL+"/.well-known/oauth-authorization-server", `{"issuer":"`+issuerURL+`","jwks_uri":"`+jwksURL+`",
			"authorization_endpoint":"https://auth.example.com/a","token_endpoint":"https://auth.example.com/t",
			"response_types_supported":["code"]}`)
		w.Page(jwksURL, s.ServeHTTP)
		f(t, s, oauth.NewJWTVerifier(issuerURL, &oauth.JWTOptions{Fetcher: w.fetcher(nil)}))
	})
}

func wantVerified(t *testing.T, v oauth.Verifier, token string) {
	t.Helper()
	if _, err := v.Verify(t.Context(), token); err != nil {
		t.Errorf("got error %v, want a verified token", err)
	}
}

func wantRefused(t *testing.T, v oauth.Verifier, token string) {
	t.Helper()
	if _, err := v.Verify(t.Context(), token); !errors.Is(err, oauth.ErrInvalidToken) {
		t.Errorf("got error %v, want ErrInvalidToken", err)
	}
}

func wantFetches(t *testing.T, s *keyServer, want int32) {
	t.Helper()
	if got := s.fetches.Swap(0); got != want {
		t.Errorf("the keys were fetched %d times, want %d", got, want)
	}
}

func issueWithKid(t testing.TB, kid string) string {
	return sign(t, jose.ES256, ecKey(), map[jose.HeaderKey]any{"kid": kid}, goodClaims())
}

// Concurrent tokens with unknown key ids cause one fetch per minute.
func TestUnknownKeyIDsFetchTheKeysOnce(t *testing.T) {
	withKeyServer(t, func(t *testing.T, s *keyServer, v *oauth.JWTVerifier) {
		s.wait = time.Second
		var wg sync.WaitGroup
		for i := range 50 {
			token := issueWithKid(t, strings.Repeat("x", i+1))
			wg.Go(func() { wantRefused(t, v, token) })
			wg.Go(func() { wantVerified(t, v, issue(t)) })
		}
		wg.Wait()
		wantFetches(t, s, 1)
		time.Sleep(30 * time.Second)
		wantRefused(t, v, issueWithKid(t, "y"))
		wantFetches(t, s, 0)
		time.Sleep(31 * time.Second)
		for range 10 {
			wantRefused(t, v, issueWithKid(t, "z"))
		}
		wantFetches(t, s, 1)
		forged := sign(t, jose.ES256, foreignKey(), map[jose.HeaderKey]any{"kid": "ec"}, goodClaims())
		for range 10 {
			wantRefused(t, v, forged)
		}
		wantFetches(t, s, 0) // wrong signatures with a known key ID share the limit
		<-time.After(61 * time.Second)
		for range 10 {
			wantRefused(t, v, forged)
		}
		wantFetches(t, s, 1)
	})
}

// An issuer that replaces its key and keeps the key ID is verified again after at most a minute.
func TestKeyIsReplacedUnderItsID(t *testing.T) {
	withKeyServer(t, func(t *testing.T, s *keyServer, v *oauth.JWTVerifier) {
		renewed := sign(t, jose.ES256, foreignKey(), map[jose.HeaderKey]any{"kid": "ec"}, goodClaims())
		wantVerified(t, v, issueWithKid(t, "ec"))
		s.publish(jwks(t, map[string]any{"ec": foreignKey().Public()}))
		<-time.After(30 * time.Second)
		wantRefused(t, v, renewed)
		wantFetches(t, s, 1)
		<-time.After(31 * time.Second)
		wantVerified(t, v, renewed)
		wantRefused(t, v, issueWithKid(t, "ec"))
		wantFetches(t, s, 1)
	})
}

func TestTokensOfOtherIssuersFetchNoKeys(t *testing.T) {
	withKeyServer(t, func(t *testing.T, s *keyServer, v *oauth.JWTVerifier) {
		s.keys.Store(nil) // the server is down
		secret := strings.Repeat("s", 30)
		both := oauth.Verifiers(v, staticVerifier(t, oauth.StaticToken{Token: secret, Subject: "robot"}))
		wantVerified(t, both, secret)
		wantRefused(t, both, issue(t, claims{"iss": "https://other.example"}))
		wantFetches(t, s, 0)
		if _, err := both.Verify(t.Context(), issue(t)); err == nil || errors.Is(err, oauth.ErrInvalidToken) {
			t.Errorf("got error %v, want one other than ErrInvalidToken", err)
		}
	})
}

func TestKeysAreRotated(t *testing.T) {
	next, only := jwks(t, map[string]any{"ec": ecKey().Public(), "next": foreignKey().Public()}), jwks(t,
		map[string]any{"next": foreignKey().Public()})
	withKeyServer(t, func(t *testing.T, s *keyServer, v *oauth.JWTVerifier) {
		old := issue(t)
		renewed := sign(t, jose.ES256, foreignKey(), map[jose.HeaderKey]any{"kid": "next"}, goodClaims())
		wantVerified(t, v, old)
		s.publish(next)
		time.Sleep(61 * time.Second)
		wantVerified(t, v, renewed)
		wantVerified(t, v, old)
		wantFetches(t, s, 2)
		s.publish(only) // the old key is withdrawn
		time.Sleep(10 * time.Minute)
		wantRefused(t, v, old) // although it was verified and cached
		wantVerified(t, v, renewed)
	})
}

func TestStaleKeysWhileServerIsDown(t *testing.T) {
	withKeyServer(t, func(t *testing.T, s *keyServer, v *oauth.JWTVerifier) {
		wantVerified(t, v, issue(t))
		s.keys.Store(nil)
		wantFetches(t, s, 1)
		time.Sleep(65 * time.Minute)
		for range 5 {
			wantVerified(t, v, issue(t))
		}
		wantFetches(t, s, 1) // not for every request
		time.Sleep(6 * time.Minute)
		if _, err := v.Verify(t.Context(), issue(t)); err == nil || errors.Is(err, oauth.ErrInvalidToken) {
			t.Errorf("after the limit for stale keys: got error %v, want one other than ErrInvalidToken", err)
		}
		s.publish(jwks(t, map[string]any{"ec": ecKey().Public()}))
		time.Sleep(6 * time.Second)
		wantVerified(t, v, issue(t))
	})
}

// While new keys are fetched, other callers use the old ones without waiting.
func TestOldKeysDuringFetch(t *testing.T) {
	withKeyServer(t, func(t *testing.T, s *keyServer, v *oauth.JWTVerifier) {
		wantVerified(t, v, issue(t))
		s.wait = 5 * time.Second
		time.Sleep(11 * time.Minute)
		go wantVerified(t, v, issue(t))
		synctest.Wait()
		begin := time.Now()
		wantVerified(t, v, issue(t))
		if waited := time.Since(begin); waited != 0 {
			t.Errorf("waited %v, want 0", waited)
		}
		time.Sleep(6 * time.Second)
	})
}

// Cancelling the call that started a fetch does not cancel the fetch for other callers.
func TestKeyFetchOutlivesItsCaller(t *testing.T) {
	withKeyServer(t, func(t *testing.T, s *keyServer, v *oauth.JWTVerifier) {
		s.wait = 2 * time.Second
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		go func() { _, _ = v.Verify(ctx, issue(t)) }()
		synctest.Wait()
		short, cancelShort := context.WithTimeout(t.Context(), time.Second/2)
		defer cancelShort()
		begin := time.Now()
		if _, err := v.Verify(short, issue(t)); !errors.Is(err, context.DeadlineExceeded) ||
			time.Since(begin) != time.Second/2 {
			t.Errorf("returned after %v with error %v, want DeadlineExceeded after 500ms", time.Since(begin), err)
		}
		wantVerified(t, v, issue(t))
		wantFetches(t, s, 1)
	})
}

// Keys that cannot verify signatures are ignored; the other keys of the set are used.
func TestUnusableKeysAreIgnored(t *testing.T) {
	public := func(change func(map[string]any)) any {
		text, _ := (&jose.JSONWebKey{Key: ecKey().Public(), KeyID: "ec"}).MarshalJSON()
		return mustChange(t, text, change)
	}
	private, _ := (&jose.JSONWebKey{Key: ecKey(), KeyID: "ec"}).MarshalJSON()
	for name, tc := range map[string]struct {
		key  any
		want bool
	}{
		"unchanged":        {public(nil), true},
		"alg":              {public(func(k map[string]any) { k["alg"] = "ES256" }), true},
		"another alg":      {public(func(k map[string]any) { k["alg"] = "ES384" }), false},
		"for encryption":   {public(func(k map[string]any) { k["use"] = "enc" }), false},
		"key_ops":          {public(func(k map[string]any) { k["key_ops"] = []string{"verify"} }), true},
		"other key_ops":    {public(func(k map[string]any) { k["key_ops"] = []string{"encrypt"} }), false},
		"private":          {mustChange(t, private, nil), false},
		"off the curve":    {public(func(k map[string]any) { k["x"] = k["y"] }), false},
		"an unknown curve": {public(func(k map[string]any) { k["crv"] = "P-999" }), false},
		"symmetric":        {map[string]any{"kty": "oct", "k": "AAAA", "kid": "ec"}, false},
		"not an object":    {"ec", false},
	} {
		t.Run(name, func(t *testing.T) {
			other, _ := (&jose.JSONWebKey{Key: rsaKey().Public(), KeyID: "rsa"}).MarshalJSON()
			set := mustJSON(map[string]any{"keys": []any{tc.key, map[string]any{"kty": "new"},
				mustChange(t, other, nil)}})
			v := oauth.NewJWTVerifier(issuerURL, &oauth.JWTOptions{JWKS: []byte(set)})
			if _, err := v.Verify(t.Context(), issue(t)); (err == nil) != tc.want {
				t.Errorf("got error %v, want success %t", err, tc.want)
			}
			wantVerified(t, v, sign(t, jose.RS256, rsaKey(), map[jose.HeaderKey]any{"kid": "rsa"}, goodClaims()))
		})
	}
}

// Requirement: SEC-07
func TestKeySetAtPrivateAddressIsNotFetched(t *testing.T) {
	for _, address := range []string{"http://auth.example.com/keys", "https://169.254.169.254/keys",
		"https://10.0.0.1/keys", "file:///etc/passwd"} {
		w := newNetwork(t)
		w.Doc(issuerURL+"/.well-known/oauth-authorization-server", `{"issuer":"`+issuerURL+`","jwks_uri":"`+address+`",
			"authorization_endpoint":"https://auth.example.com/a","token_endpoint":"https://auth.example.com/t",
			"response_types_supported":["code"]}`)
		v := oauth.NewJWTVerifier(issuerURL, &oauth.JWTOptions{Fetcher: w.fetcher(nil)})
		if _, err := v.Verify(t.Context(), issue(t)); err == nil || errors.Is(err, oauth.ErrInvalidToken) {
			t.Errorf("%s: got error %v, want one other than ErrInvalidToken", address, err)
		}
	}
}

// Requirement: AUTHR-13
func TestMetadataOfAnotherIssuerIsDiscarded(t *testing.T) {
	w := newNetwork(t)
	w.Doc(issuerURL+"/.well-known/oauth-authorization-server",
		`{"issuer":"https://evil.example","jwks_uri":"`+jwksURL+`"}`)
	w.Page(jwksURL, func(http.ResponseWriter, *http.Request) { t.Error("the keys of another issuer were fetched") })
	v := oauth.NewJWTVerifier(issuerURL, &oauth.JWTOptions{Fetcher: w.fetcher(nil)})
	if _, err := v.Verify(t.Context(), issue(t)); err == nil || errors.Is(err, oauth.ErrInvalidToken) {
		t.Errorf("got error %v, want one other than ErrInvalidToken", err)
	}
}

// mustChange decodes a JSON object and calls change with it, if change is not nil.
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
