package oauth_test

import (
	"errors"
	"io"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/patchbay-mcp/patchbay/oauth"
)

const introspectURL = "https://auth.example.com/introspect"

// withIntrospection calls f, in a synctest bubble, with a verifier whose introspection endpoint
// responds with answer(), or 401 if that is empty. asked counts the requests; last is the latest.
func withIntrospection(t *testing.T, opts oauth.IntrospectionOptions, answer func() string,
	f func(t *testing.T, v *oauth.IntrospectionVerifier, asked *atomic.Int32, last *http.Request)) {
	synctest.Test(t, func(t *testing.T) {
		w := newNetwork(t)
		var asked atomic.Int32
		last := &http.Request{}
		var mu sync.Mutex // guards last while requests are concurrent
		w.Doc(issuerURL+"/.well-known/oauth-authorization-server",
			`{"issuer":"`+issuerURL+`","introspection_endpoint":"`+introspectURL+`",
			"authorization_endpoint":"https://auth.example.com/a","token_endpoint":"https://auth.example.com/t",
			"response_types_supported":["code"]}`)
		w.Page(introspectURL, func(rw http.ResponseWriter, r *http.Request) {
			asked.Add(1)
			body, _ := io.ReadAll(r.Body)
			r.PostForm, _ = url.ParseQuery(string(body))
			mu.Lock()
			*last = *r
			mu.Unlock()
			text := answer()
			if text == "" {
				rw.WriteHeader(http.StatusUnauthorized)
				return
			}
			rw.Header().Set("Content-Type", "application/json")
			_, _ = io.WriteString(rw, text)
		})
		opts.ClientID, opts.ClientSecret, opts.Fetcher = "me", "my secret", w.fetcher(nil)
		f(t, oauth.NewIntrospectionVerifier(issuerURL, &opts), &asked, last)
	})
}

func TestIntrospection(t *testing.T) {
	opaque := "an-opaque-token"
	for name, tc := range map[string]struct {
		change claims
		want   string // in the error; empty for a valid token
	}{
		"active":            {nil, ""},
		"without issuer":    {claims{"iss": nil}, ""},
		"without expiry":    {claims{"exp": nil}, ""},
		"inactive":          {claims{"active": false}, "inactive"},
		"active is missing": {claims{"active": nil}, "inactive"},
		"no audience":       {claims{"aud": nil}, "no aud"}, // Requirement: AUTHR-17
		"another issuer":    {claims{"iss": "https://evil.example"}, "another issuer"},
		"expired":           {claims{"exp": 1000}, "expired"},
		"no subject":        {claims{"sub": nil, "client_id": nil}, "sub is missing"},
	} {
		t.Run(name, func(t *testing.T) {
			answer := func() string { return mustJSON(goodClaims(claims{"active": true}, tc.change)) }
			withIntrospection(t, oauth.IntrospectionOptions{}, answer,
				func(t *testing.T, v *oauth.IntrospectionVerifier, _ *atomic.Int32, last *http.Request) {
					got, err := v.Verify(t.Context(), opaque)
					if tc.want != "" {
						if !errors.Is(err, oauth.ErrInvalidToken) || !strings.Contains(err.Error(), tc.want) ||
							strings.Contains(err.Error(), opaque) {
							t.Errorf("got error %v, want ErrInvalidToken with %q and without the token", err, tc.want)
						}
						return
					}
					if err != nil || got.Issuer != issuerURL || got.Subject != "ann" || got.ClientID != "app" ||
						!slices.Equal(got.Scopes, []string{"read"}) ||
						!slices.Equal(got.Audience, []string{resourceURL}) {
						t.Errorf("got %+v, error %v; want the token of ann", got, err)
					}
					if id, secret, ok := last.BasicAuth(); !ok || id != "me" || secret != "my+secret" ||
						last.PostForm.Get("token") != opaque {
						t.Errorf("got introspection request %v %v", last.Header, last.PostForm)
					}
				})
		})
	}
}

// The member aud of a response is optional: zitadel/oidc and ory/fosite omit it by default.
func TestIntrospectionWithoutAudience(t *testing.T) {
	answer := func() string { return mustJSON(goodClaims(claims{"active": true, "aud": nil})) }
	withIntrospection(t, oauth.IntrospectionOptions{InsecureAudience: resourceURL}, answer,
		func(t *testing.T, v *oauth.IntrospectionVerifier, _ *atomic.Int32, _ *http.Request) {
			if got, err := v.Verify(t.Context(), "an-opaque-token"); err != nil || !slices.Equal(got.Audience, []string{resourceURL}) {
				t.Errorf("got %+v, error %v; want the audience %s", got, err, resourceURL)
			}
		})
	answer = func() string { return mustJSON(goodClaims(claims{"active": true, "aud": "https://other.example"})) }
	withIntrospection(t, oauth.IntrospectionOptions{InsecureAudience: resourceURL}, answer,
		func(t *testing.T, v *oauth.IntrospectionVerifier, _ *atomic.Int32, _ *http.Request) {
			if got, err := v.Verify(t.Context(), "an-opaque-token"); err != nil || slices.Contains(got.Audience, resourceURL) {
				t.Errorf("got %+v, error %v; want the audience of the response", got, err)
			}
		})
}

func TestIntrospectionFailures(t *testing.T) {
	for name, text := range map[string]string{"refused": "", "malformed": "{", "active as text": `{"active":"true"}`,
		"twice": `{"active":true,"active":true}`} {
		t.Run(name, func(t *testing.T) {
			withIntrospection(t, oauth.IntrospectionOptions{PostSecret: true}, func() string { return text },
				func(t *testing.T, v *oauth.IntrospectionVerifier, _ *atomic.Int32, last *http.Request) {
					_, err := v.Verify(t.Context(), "opaque")
					if err == nil || errors.Is(err, oauth.ErrInvalidToken) ||
						strings.Contains(err.Error(), "opaque") || strings.Contains(err.Error(), "secret") {
						t.Errorf("got error %v, want one that is not ErrInvalidToken and has no secret", err)
					}
					if last.Header.Get("Authorization") != "" || last.PostForm.Get("client_secret") != "my secret" {
						t.Errorf("got introspection request %v %v", last.Header, last.PostForm)
					}
				})
		})
	}
}

// An active response is cached for CacheTime; an inactive one for ten seconds.
func TestIntrospectionCache(t *testing.T) {
	for name, tc := range map[string]struct {
		time time.Duration
		want []int32 // requests so far: at once, again at once, after 20 s, after 40 s
	}{
		"by default": {0, []int32{1, 1, 1, 2}},
		"longer":     {time.Hour, []int32{1, 1, 1, 1}},
		"not at all": {-1, []int32{1, 2, 3, 4}},
	} {
		t.Run(name, func(t *testing.T) {
			answer := func() string { return mustJSON(goodClaims(claims{"active": true})) }
			withIntrospection(t, oauth.IntrospectionOptions{CacheTime: tc.time}, answer,
				func(t *testing.T, v *oauth.IntrospectionVerifier, asked *atomic.Int32, _ *http.Request) {
					for i, wait := range []time.Duration{0, 0, 20 * time.Second, 20 * time.Second} {
						time.Sleep(wait)
						wantVerified(t, v, "opaque")
						if got := asked.Load(); got != tc.want[i] {
							t.Errorf("step %d: got %d introspection requests, want %d", i, got, tc.want[i])
						}
					}
				})
		})
	}
	t.Run("revoked token", func(t *testing.T) {
		var revoked atomic.Bool
		answer := func() string { return mustJSON(goodClaims(claims{"active": !revoked.Load()})) }
		withIntrospection(t, oauth.IntrospectionOptions{}, answer,
			func(t *testing.T, v *oauth.IntrospectionVerifier, asked *atomic.Int32, _ *http.Request) {
				wantVerified(t, v, "opaque")
				revoked.Store(true)
				time.Sleep(30 * time.Second)
				wantRefused(t, v, "opaque")
				wantRefused(t, v, "opaque")
				if asked.Load() != 2 {
					t.Errorf("got %d introspection requests, want 2: a refusal is cached", asked.Load())
				}
				revoked.Store(false)
				time.Sleep(10 * time.Second)
				wantVerified(t, v, "opaque")
			})
	})
}
