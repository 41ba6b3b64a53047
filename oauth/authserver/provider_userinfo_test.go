package authserver_test

import (
	"maps"
	"net/http"
	"strings"
	"testing"
	"testing/synctest"
	"time"
)

// serveProfileFromUserinfo removes the name and the email address from ID tokens, and sets the
// response of the userinfo endpoint.
func (p *idp) serveProfileFromUserinfo(userinfo map[string]any) {
	p.set(func() {
		p.claims = func(c map[string]any) {
			delete(c, "name")
			delete(c, "email")
		}
		p.userinfo = func() (int, any) { return http.StatusOK, userinfo }
	})
}

// userinfoClaims returns claims of a user. change has names and new values.
func userinfoClaims(change ...any) map[string]any {
	m := map[string]any{
		"sub": "user-1", "name": "Grace", "preferred_username": "grace", "email": "grace@example.com",
		"email_verified": false, "acr": "high", "aud": "another client", "groups": []string{"admin"},
	}
	for i := 0; i < len(change); i += 2 {
		m[change[i].(string)] = change[i+1]
	}
	return m
}

// Spec: OpenID Connect Core 1.0, section 5.4.
func TestUserinfoCompletesTheIDToken(t *testing.T) {
	p := newIDP(t)
	long := strings.Repeat("x", 1025)
	for name, c := range map[string]struct {
		scopes   []string
		userinfo map[string]any
		want     map[string]any // of the claims that the test compares
		requests int
	}{
		"all claims": {nil, userinfoClaims(), map[string]any{
			"name": "Grace", "preferred_username": "grace", "email": "grace@example.com", "email_verified": false,
		}, 1},
		"profile scope only": {[]string{"openid", "profile"}, userinfoClaims(), map[string]any{
			"name": "Grace", "preferred_username": "grace", "email_verified": true, // from the ID token
		}, 1},
		"no scope for claims": {[]string{"openid"}, userinfoClaims(), map[string]any{"email_verified": true}, 0},
		"no such claims":      {nil, map[string]any{"sub": "user-1"}, map[string]any{}, 1},
		"wrong types": {nil, userinfoClaims("name", 7, "email", []string{"x"}), map[string]any{
			// the name is the preferred username
			"name": "grace", "preferred_username": "grace", "email_verified": false,
		}, 1},
		"too long": {nil, userinfoClaims("name", long, "email", long[1:]), map[string]any{
			"name": "grace", "preferred_username": "grace", "email": long[1:], "email_verified": false,
		}, 1},
	} {
		up := p.provider("idp")
		up.Scopes = c.scopes
		w := newEnv(t, withProviders(t, up))
		p.serveProfileFromUserinfo(c.userinfo)
		before := p.count("/userinfo")
		token, err := w.verify(w.loginVia(p).Access)
		if err != nil {
			t.Fatal(err)
		}
		if n := p.count("/userinfo") - before; n != c.requests {
			t.Errorf("%s: userinfo got %d requests, want %d", name, n, c.requests)
		}
		got := map[string]any{}
		for _, claim := range []string{"name", "preferred_username", "email", "email_verified", "groups", "acr"} {
			if v, ok := token.Claims[claim]; ok {
				got[claim] = v
			}
		}
		if !maps.Equal(got, c.want) {
			t.Errorf("%s: claims are %v, want %v", name, got, c.want)
		}
	}
	// An ID token with all claims makes the request unnecessary.
	p.set(func() { p.claims = nil })
	before := p.count("/userinfo")
	newEnv(t, withProviders(t, p.provider("idp"))).loginVia(p)
	if n := p.count("/userinfo"); n != before {
		t.Errorf("userinfo got %d requests for claims of the ID token, want 0", n-before)
	}
}

// Claims of another sub must not be used.
//
// Spec: OpenID Connect Core 1.0, section 5.3.2.
func TestInvalidUserinfoIsNotUsed(t *testing.T) {
	p := newIDP(t)
	deep := any("x")
	for range 20 {
		deep = []any{deep}
	}
	for name, c := range map[string]struct {
		status int
		answer any
		want   string // the error of the login; empty if the login succeeds, without a name
	}{
		"another user":     {http.StatusOK, userinfoClaims("sub", "user-2"), "server_error"},
		"no sub":           {http.StatusOK, map[string]any{"name": "Grace"}, "server_error"},
		"sub not a string": {http.StatusOK, userinfoClaims("sub", []string{"user-1"}), "server_error"},
		"unavailable":      {http.StatusServiceUnavailable, nil, "temporarily_unavailable"},
		"forbidden":        {http.StatusForbidden, map[string]any{"error": "insufficient_scope"}, ""},
		"not JSON":         {http.StatusOK, "a.b.c", ""},
		"too deep":         {http.StatusOK, userinfoClaims("address", deep), ""},
		"too large":        {http.StatusOK, userinfoClaims("address", strings.Repeat("x", 1<<20)), ""},
	} {
		w := newInProcessEnv(t, withProviders(t, p.provider("idp")))
		p.serveProfileFromUserinfo(nil)
		p.set(func() { p.userinfo = func() (int, any) { return c.status, c.answer } })
		revoked := p.count("/revoke")
		answer := w.browser().viaProvider(p)
		if answer.Get("error") != c.want || (answer.Get("code") == "") != (c.want != "") {
			t.Errorf("%s: %v, want error %q", name, answer, c.want)
		}
		if n := p.count("/revoke") - revoked; (n == 1) != (c.want != "") {
			t.Errorf("%s: %d tokens of the provider were revoked, want 1 if the login failed", name, n)
		}
		if c.want != "" {
			continue
		}
		token, err := w.verify(w.tokensOf(w.post("/token", exchangeForm(answer.Get("code")))).Access)
		if err != nil || token.Claims["name"] != nil || token.Subject != "idp|user-1" {
			t.Errorf("%s: token is %+v, %v, want idp|user-1 without a name", name, token, err)
		}
	}
}

// Providers may return 403 for a disabled user.
//
// Requirement: AUTHB-13
func TestForbiddenUserinfoEndsTheGrant(t *testing.T) {
	for name, single := range map[string]bool{"with a refresh token": false, "without": true} {
		t.Run(name, func(t *testing.T) {
			p := newIDP(t)
			p.noRefresh = single
			synctest.Test(t, func(t *testing.T) {
				w := newInProcessEnv(t, withProviders(t, p.provider("idp")))
				got := w.loginVia(p)
				p.set(func() {
					p.userinfo = func() (int, any) {
						return http.StatusForbidden, map[string]any{"error": "access_denied"}
					}
				})
				time.Sleep(time.Minute)
				if !single { // the grant is valid as long as the refresh token is
					w.wantValid(got.Access, "while the provider issues new tokens")
					if n := p.count("/token"); n != 2 {
						t.Errorf("the token endpoint got %d requests, want 2", n)
					}
					p.set(func() { clear(p.refresh) })
					time.Sleep(time.Minute)
				}
				w.wantInvalid(got.Access, "a minute after the provider disabled the user")
			})
		})
	}
}
