package oauth_test

import (
	"errors"
	"io"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/patchbay-mcp/patchbay/oauth"
)

const introspectURL = "https://auth.example.com/introspect"

// introspecting runs a test with a server that gives an answer to every question.
func introspecting(t *testing.T, opts oauth.IntrospectionOptions, answer func() string, f func(t *testing.T, v *oauth.IntrospectionVerifier, asked *atomic.Int32, last *http.Request)) {
	synctest.Test(t, func(t *testing.T) {
		w := newNetwork(t)
		var asked atomic.Int32
		last := &http.Request{}
		w.Doc(issuerURL+"/.well-known/oauth-authorization-server", `{"issuer":"`+issuerURL+`","introspection_endpoint":"`+introspectURL+`",
			"authorization_endpoint":"https://auth.example.com/a","token_endpoint":"https://auth.example.com/t","response_types_supported":["code"]}`)
		w.Page(introspectURL, func(rw http.ResponseWriter, r *http.Request) {
			asked.Add(1)
			body, _ := io.ReadAll(r.Body)
			r.PostForm, _ = url.ParseQuery(string(body))
			*last = *r
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
		want   string // "" for taken
	}{
		"active":               {nil, ""},
		"without issuer":       {claims{"iss": nil}, ""},
		"without expiry":       {claims{"exp": nil}, ""},
		"inactive":             {claims{"active": false}, "inactive"},
		"nothing about active": {claims{"active": nil}, "inactive"},
		"AUTHR17 no audience":  {claims{"aud": nil}, "no aud"},
		"another issuer":       {claims{"iss": "https://evil.example"}, "another issuer"},
		"expired":              {claims{"exp": 1000}, "expired"},
		"no subject":           {claims{"sub": nil, "client_id": nil}, "sub is missing"},
	} {
		t.Run(name, func(t *testing.T) {
			answer := func() string { return mustJSON(goodClaims(claims{"active": true}, tc.change)) }
			introspecting(t, oauth.IntrospectionOptions{}, answer, func(t *testing.T, v *oauth.IntrospectionVerifier, _ *atomic.Int32, last *http.Request) {
				got, err := v.Verify(t.Context(), opaque)
				if tc.want != "" {
					if !errors.Is(err, oauth.ErrInvalidToken) || !strings.Contains(err.Error(), tc.want) || strings.Contains(err.Error(), opaque) {
						t.Errorf("got %v, want %q", err, tc.want)
					}
					return
				}
				if err != nil || got.Issuer != issuerURL || got.Subject != "ann" || got.ClientID != "app" || !slices.Equal(got.Scopes, []string{"read"}) || !slices.Equal(got.Audience, []string{resourceURL}) {
					t.Errorf("got %+v, %v", got, err)
				}
				if id, secret, ok := last.BasicAuth(); !ok || id != "me" || secret != "my+secret" || last.PostForm.Get("token") != opaque {
					t.Errorf("asked with %v %v", last.Header, last.PostForm)
				}
			})
		})
	}
}

func TestIntrospectionFailures(t *testing.T) {
	for name, text := range map[string]string{"refused": "", "rubbish": "{", "active as text": `{"active":"true"}`, "twice": `{"active":true,"active":true}`} {
		t.Run(name, func(t *testing.T) {
			introspecting(t, oauth.IntrospectionOptions{PostSecret: true}, func() string { return text },
				func(t *testing.T, v *oauth.IntrospectionVerifier, _ *atomic.Int32, last *http.Request) {
					_, err := v.Verify(t.Context(), "opaque")
					if err == nil || errors.Is(err, oauth.ErrInvalidToken) || strings.Contains(err.Error(), "opaque") || strings.Contains(err.Error(), "secret") {
						t.Errorf("got %v", err)
					}
					if last.Header.Get("Authorization") != "" || last.PostForm.Get("client_secret") != "my secret" {
						t.Errorf("asked with %v %v", last.Header, last.PostForm)
					}
				})
		})
	}
}

// A good answer is believed for a while, and a revoked token is found out then.
func TestIntrospectionCache(t *testing.T) {
	for name, tc := range map[string]struct {
		time time.Duration
		want []int32 // questions so far: at once, once more, after 20 s, after 40 s
	}{
		"by default": {0, []int32{1, 1, 1, 2}},
		"longer":     {time.Hour, []int32{1, 1, 1, 1}},
		"not at all": {-1, []int32{1, 2, 3, 4}},
	} {
		t.Run(name, func(t *testing.T) {
			answer := func() string { return mustJSON(goodClaims(claims{"active": true})) }
			introspecting(t, oauth.IntrospectionOptions{CacheTime: tc.time}, answer,
				func(t *testing.T, v *oauth.IntrospectionVerifier, asked *atomic.Int32, _ *http.Request) {
					for i, wait := range []time.Duration{0, 0, 20 * time.Second, 20 * time.Second} {
						time.Sleep(wait)
						verifies(t, v, "opaque")
						if got := asked.Load(); got != tc.want[i] {
							t.Errorf("step %d: asked %d times, want %d", i, got, tc.want[i])
						}
					}
				})
		})
	}
	t.Run("a revoked one", func(t *testing.T) {
		var revoked atomic.Bool
		answer := func() string { return mustJSON(goodClaims(claims{"active": !revoked.Load()})) }
		introspecting(t, oauth.IntrospectionOptions{}, answer,
			func(t *testing.T, v *oauth.IntrospectionVerifier, asked *atomic.Int32, _ *http.Request) {
				verifies(t, v, "opaque")
				revoked.Store(true)
				time.Sleep(30 * time.Second)
				refuses(t, v, "opaque")
				refuses(t, v, "opaque")
				if asked.Load() != 3 { // refusals are not remembered
					t.Errorf("asked %d times", asked.Load())
				}
			})
	})
}
