package authserver_test

import (
	"net/http"
	"net/url"
	"strings"
	"testing"

	"github.com/patchbay-mcp/patchbay/oauth/authserver"
)

// withScopes logs in alice, who may grant only these scopes.
func withScopes(scopes []string) func(*authserver.Options) {
	return func(o *authserver.Options) {
		o.Login = authserver.LoginFunc(func(w http.ResponseWriter, r *http.Request, l *authserver.LoginRequest) {
			l.Finish(w, r, authserver.Subject{ID: "alice", Scopes: scopes})
		})
	}
}

// Anyone can register a client that requests all scopes. Its tokens still have only scopes that the
// user may grant.
func TestUsersGrantOnlyTheirScopes(t *testing.T) {
	for name, tc := range map[string]struct {
		scopes        []string
		request, want string
	}{
		"all":                       {nil, "read write admin", "read write admin"},
		"some":                      {[]string{"read", "elsewhere"}, "read write admin", "read"},
		"scope with OnRequest":      {[]string{"admin"}, "admin read", "admin"},
		"some, no scope requested":  {[]string{"write", "admin"}, "", "write"},
		"none, no scope requested":  {[]string{}, "", ""},
		"none, only offline_access": {[]string{}, "offline_access", ""},
	} {
		t.Run(name, func(t *testing.T) {
			w := newEnv(t, withScopes(tc.scopes))
			registered := w.register(`{"redirect_uris":["http://localhost/cb"],"token_endpoint_auth_method":"none",
				"grant_types":["authorization_code","refresh_token"]}`)
			id, uri := registered["client_id"].(string), "http://localhost:99/cb"
			code := w.code("client_id", id, "redirect_uri", uri, "scope", tc.request)
			got := w.tokensOf(w.post("/token", exchangeForm(code, "client_id", id, "redirect_uri", uri)))
			token, err := w.verify(got.Access)
			if err != nil || got.Scope != tc.want || strings.Join(token.Scopes, " ") != tc.want {
				t.Errorf("granted %q, token %+v, %v, want %q", got.Scope, token, err, tc.want)
			}
			next := w.tokensOf(w.post("/token", refreshForm(got.Refresh, "client_id", id)))
			if next.Scope != tc.want {
				t.Errorf("refresh granted %q, want %q", next.Scope, tc.want)
			}
			if tc.want != "read write admin" {
				w.post("/token", refreshForm(next.Refresh, "client_id", id, "scope", "read write admin")).
					wantError(t, http.StatusBadRequest, "invalid_scope")
			}
		})
	}
}

func TestRequestForOnlyScopesThatTheUserMayNotGrantIsDenied(t *testing.T) {
	for _, scopes := range [][]string{{}, {"read"}, {"elsewhere"}} {
		w := newEnv(t, withScopes(scopes))
		answer := w.browser().authorize(authorizeQuery("scope", "write admin"))
		if answer.Get("error") != "access_denied" || answer.Has("code") || answer.Get("state") != "the state" ||
			answer.Get("iss") != w.issuer {
			t.Errorf("user with scopes %q: authorization response is %v, want access_denied", scopes, answer)
		}
	}
}

func TestPasswordUsersHaveScopes(t *testing.T) {
	hash, err := passwordHash()
	if err != nil {
		t.Fatal(err)
	}
	w := newEnv(t, func(o *authserver.Options) {
		login, err := authserver.NewPasswordLogin(&authserver.PasswordOptions{
			Users: []authserver.PasswordUser{{Name: "alice", Hash: hash, Scopes: []string{"read"}}},
		})
		if err != nil {
			t.Fatal(err)
		}
		o.Login = login
	})
	b := w.browser()
	answer := b.redirectQuery(b.submitPassword(b.passwordForm(), "alice", "correct horse"))
	if got := w.tokensOf(w.post("/token", exchangeForm(answer.Get("code")))); got.Scope != "read" {
		t.Errorf("got %+v, want scope read", got)
	}
	for name, u := range map[string]authserver.PasswordUser{
		"scope with a space": {Name: "alice", Hash: hash, Scopes: []string{"read write"}},
		"empty scope":        {Name: "alice", Hash: hash, Subject: authserver.Subject{Scopes: []string{""}}},
		"two lists": {Name: "alice", Hash: hash, Scopes: []string{"read"},
			Subject: authserver.Subject{Scopes: []string{"write"}}},
	} {
		users := []authserver.PasswordUser{u}
		if _, err := authserver.NewPasswordLogin(&authserver.PasswordOptions{Users: users}); err == nil {
			t.Errorf("%s: NewPasswordLogin returned no error", name)
		}
	}
}

// There is no consent page for client credentials, so scopes with OnRequest must be in the options
// of the client.
func TestClientCredentialsWithOnRequestScopes(t *testing.T) {
	w := newEnv(t, func(o *authserver.Options) {
		o.Clients = append(o.Clients, authserver.Client{ID: "plain", SecretHash: secretHash},
			authserver.Client{ID: "trusted", SecretHash: secretHash, Scopes: []string{"admin", "read"}})
	})
	request := func(id, scope string) response {
		return w.post("/token", url.Values{"grant_type": {"client_credentials"}, "client_id": {id},
			"client_secret": {secret}, "resource": {resource}, "scope": {scope}})
	}
	for _, tc := range [][3]string{
		{"plain", "", "read write"}, {"plain", "read admin", "read"},
		{"trusted", "", "read"}, {"trusted", "admin", "admin"},
	} {
		if got := w.tokensOf(request(tc[0], tc[1])); got.Scope != tc[2] {
			t.Errorf("%s requests %q: granted %q, want %q", tc[0], tc[1], got.Scope, tc[2])
		}
	}
	request("plain", "admin").wantError(t, http.StatusBadRequest, "invalid_scope")
}
