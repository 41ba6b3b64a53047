package authserver_test

import (
	"maps"
	"net/http"
	"strings"
	"testing"
	"testing/synctest"
	"time"
)

// serveProfileFromUserinfo makes the provider do as OpenID Connect Core has it: the claims about the user come from
// userinfo.
func (p *idp) serveProfileFromUserinfo(userinfo map[string]any) {
	p.set(func() {
		p.claims = func(c map[string]any) {
			delete(c, "name")
			delete(c, "email")
		}
		p.userinfo = func() (int, any) { return http.StatusOK, userinfo }
	})
}

func userinfoClaims(change ...any) map[string]any {
	m := map[string]any{
		"sub": "user-1", "name": "Grace", "preferred_username": "grace", "email": "grace@example.com",
		"email_verified": false,
		"acr":            "high", "aud": "somebody", "groups": []string{"admin"},
	}
	for i := 0; i < len(change); i += 2 {
		m[change[i].(string)] = change[i+1]
	}
	return m
}

// OpenID Connect Core 1.0, section 5.4.
func TestUserinfoCompletesTheIDToken(t *testing.T) {
	p := newIDP(t)
	long := strings.Repeat("x", 1025)
	for name, c := range map[string]struct {
		scopes   []string
		userinfo map[string]any
		want     map[string]any // of the claims below
		asked    int
	}{
		"all of it": {nil, userinfoClaims(), map[string]any{
			// of this address
			"name": "Grace", "preferred_username": "grace", "email": "grace@example.com", "email_verified": false,
		}, 1},
		"profile alone": {[]string{"openid", "profile"}, userinfoClaims(), map[string]any{
			"name": "Grace", "preferred_username": "grace", "email_verified": true, // from the ID token
		}, 1},
		"neither asked for": {[]string{"openid"}, userinfoClaims(), map[string]any{"email_verified": true}, 0},
		"no such claims":    {nil, map[string]any{"sub": "user-1"}, map[string]any{}, 1},
		"of a wrong type": {nil, userinfoClaims("name", 7, "email", []string{"x"}), map[string]any{
			"name": "grace", "preferred_username": "grace", "email_verified": false, // the name is what we call the user
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
		if n := p.count("/userinfo") - before; n != c.asked {
			t.Errorf("%s: userinfo was asked %d times, want %d", name, n, c.asked)
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
	// An ID token that has it all spares the request.
	p.set(func() { p.claims = nil })
	before := p.count("/userinfo")
	newEnv(t, withProviders(t, p.provider("idp"))).loginVia(p)
	if n := p.count("/userinfo"); n != before {
		t.Error("userinfo was asked for what the ID token has")
	}
}

// OpenID Connect Core 1.0, section 5.3.2: claims of another sub must not be used.
func TestUnusableUserinfo(t *testing.T) {
	p := newIDP(t)
	deep := any("x")
	for range 20 {
		deep = []any{deep}
	}
	for name, c := range map[string]struct {
		status int
		answer any
		want   string // the error of the login, empty if it works without a name
	}{
		"another user":   {http.StatusOK, userinfoClaims("sub", "user-2"), "server_error"},
		"no sub":         {http.StatusOK, map[string]any{"name": "Grace"}, "server_error"},
		"a sub of bytes": {http.StatusOK, userinfoClaims("sub", []string{"user-1"}), "server_error"},
		"down":           {http.StatusServiceUnavailable, nil, "temporarily_unavailable"},
		"forbidden":      {http.StatusForbidden, map[string]any{"error": "insufficient_scope"}, ""},
		"no JSON":        {http.StatusOK, "a.b.c", ""},
		"too deep":       {http.StatusOK, userinfoClaims("address", deep), ""},
		"too large":      {http.StatusOK, userinfoClaims("address", strings.Repeat("x", 1<<20)), ""},
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
			t.Errorf("%s: the third party's grant was revoked %d times", name, n)
		}
		if c.want != "" {
			continue
		}
		token, err := w.verify(w.tokensOf(w.post("/token", exchangeForm(answer.Get("code")))).Access)
		if err != nil || token.Claims["name"] != nil || token.Subject != "idp|user-1" {
			t.Errorf("%s: token %+v, %v", name, token, err)
		}
	}
}

// AUTHB-13: providers may return 403 for a disabled user.
func TestAUTHB13_ForbiddenUserinfoIsInvalid(t *testing.T) {
	for name, single := range map[string]bool{"with a refresh token": false, "without": true} {
		t.Run(name, func(t *testing.T) {
			p := newIDP(t)
			p.noRefresh = single
			synctest.Test(t, func(t *testing.T) {
				w := newInProcessEnv(t, withProviders(t, p.provider("idp")))
				got := w.loginVia(p)
				p.set(func() {
					p.userinfo = func() (int, any) {
						return http.StatusForbidden,
							map[string]any{"error": "access_denied"}
					}
				})
				time.Sleep(time.Minute)
				if !single { // the token endpoint has the last word
					w.wantValid(got.Access, "while the token endpoint gives new ones")
					if n := p.count("/token"); n != 2 {
						t.Errorf("the token endpoint was asked %d times, want 2", n)
					}
					p.set(func() { clear(p.refresh) })
					time.Sleep(time.Minute)
				}
				w.wantInvalid(got.Access, "a minute after the third party locked the user out")
			})
		})
	}
}
