package authserver_test

import (
	"context"
	"encoding/json"
	"net/http"
	"net/url"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/patchbay-mcp/patchbay/oauth/authserver"
)

func TestUsingACodeTwiceEndsItsGrant(t *testing.T) {
	w := newEnv(t, nil)
	code := w.code()
	got := w.tokensOf(w.post("/token", exchangeForm(code)))
	w.wantValid(got.Access, "before the code is used again")
	w.post("/token", exchangeForm(code)).wantError(t, http.StatusBadRequest, "invalid_grant")
	w.wantInvalid(got.Access, "after the code was used again")
	w.post("/token", refreshForm(got.Refresh)).wantError(t, http.StatusBadRequest, "invalid_grant")
}

func TestCodesAreBoundToClientVerifierAndRedirectURI(t *testing.T) {
	w := newEnv(t, func(o *authserver.Options) {
		o.Clients = append(o.Clients, authserver.Client{ID: "other", RedirectURIs: []string{publicURI}})
	})
	for name, change := range map[string][]string{
		"another client":             {"client_id", "other"},
		"another verifier":           {"code_verifier", verifier[:len(verifier)-1] + "x"},
		"the challenge for verifier": {"code_verifier", challenge()},
		"another port":               {"redirect_uri", "http://127.0.0.1:4712/callback"},
		"the registered URI":         {"redirect_uri", publicURI},
		"no redirect URI":            {"redirect_uri", ""},
	} {
		code := w.code()
		w.post("/token", exchangeForm(code, change...)).wantError(t, http.StatusBadRequest, "invalid_grant")
		if res := w.post("/token", exchangeForm(code)); res.StatusCode != http.StatusBadRequest {
			t.Errorf("%s: second try with the code: %s, want 400", name, res.Status)
		}
	}
	for name, change := range map[string][]string{
		"no verifier":       {"code_verifier", ""},
		"short verifier":    {"code_verifier", verifier[:42]},
		"long verifier":     {"code_verifier", strings.Repeat("x", 129)},
		"invalid character": {"code_verifier", verifier + "\xe4"},
		"no code":           {"code", ""},
	} {
		if res := w.post("/token", exchangeForm("x", change...)); res.StatusCode != http.StatusBadRequest ||
			res.json(t)["error"] != "invalid_request" {
			t.Errorf("%s: %s %s, want invalid_request", name, res.Status, res.body)
		}
	}
	w.post("/token", exchangeForm(strings.Repeat("x", 43))).wantError(t, http.StatusBadRequest, "invalid_grant")
	w.post("/token", exchangeForm(w.code(), "resource", "https://evil.example/")).wantError(t, http.StatusBadRequest,
		"invalid_target")
	w.post("/token", exchangeForm(w.code("scope", "read"), "scope", "write")).wantError(t, http.StatusBadRequest,
		"invalid_scope")
	if got := w.tokensOf(w.post("/token", exchangeForm(w.code(), "scope", "read"))); got.Scope != "read" {
		t.Errorf("exchange for scope read granted %q, want read", got.Scope)
	}
}

func TestCodesExpire(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newInProcessEnv(t, nil)
		early, late := w.code(), w.code()
		time.Sleep(60*time.Second - 1)
		w.tokensOf(w.post("/token", exchangeForm(early)))
		time.Sleep(1)
		w.post("/token", exchangeForm(late)).wantError(t, http.StatusBadRequest, "invalid_grant")
	})
}

func TestUsingAnExpiredCodeTwiceEndsItsGrant(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newInProcessEnv(t, nil)
		code := w.code()
		got := w.tokensOf(w.post("/token", exchangeForm(code)))
		time.Sleep(10 * time.Minute)
		w.wantValid(got.Access, "before the code is used again")
		w.post("/token", exchangeForm(code)).wantError(t, http.StatusBadRequest, "invalid_grant")
		w.wantInvalid(got.Access, "after the code was used again")
	})
}

func TestConcurrentUsesOfACodeGiveAtMostOneToken(t *testing.T) {
	w := newEnv(t, nil)
	code := w.code()
	var good atomic.Int32
	var access atomic.Value
	var all sync.WaitGroup
	for range 100 {
		all.Go(func() {
			res := w.post("/token", exchangeForm(code))
			if res.StatusCode == http.StatusOK {
				good.Add(1)
				access.Store(w.tokensOf(res).Access)
			} else if !strings.Contains(res.body, "invalid_grant") {
				t.Errorf("got %s %s, want invalid_grant", res.Status, res.body)
			}
		})
	}
	all.Wait()
	// The other uses may end the grant before the first use returns a token.
	if n := good.Load(); n > 1 {
		t.Errorf("%d uses returned a token, want at most 1", n)
	}
	if token, ok := access.Load().(string); ok {
		w.wantInvalid(token, "after the code was used again")
	}
}

// Requirement: AUTHB-10, AUTHR-26
func TestRefreshTokensRotate(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newInProcessEnv(t, nil)
		first := w.login()
		second := w.tokensOf(w.post("/token", refreshForm(first.Refresh)))
		time.Sleep(10*time.Second - 1)
		again := w.tokensOf(w.post("/token", refreshForm(first.Refresh)))
		if again.Refresh != second.Refresh || again.Refresh == first.Refresh {
			t.Errorf("refresh token within the grace period is %q, want %q", again.Refresh, second.Refresh)
		}
		w.wantValid(again.Access, "within the grace period")
		time.Sleep(1)
		w.post("/token", refreshForm(first.Refresh)).wantError(t, http.StatusBadRequest, "invalid_grant")
		for name, token := range map[string]string{"first": first.Access, "second": second.Access,
			"again": again.Access} {
			w.wantInvalid(token, "after reuse of a refresh token, "+name)
		}
		w.post("/token", refreshForm(second.Refresh)).wantError(t, http.StatusBadRequest, "invalid_grant")
	})
}

// The grace period is only for the predecessor of the current token.
func TestReuseOfAnOlderRefreshTokenEndsTheGrant(t *testing.T) {
	w := newEnv(t, nil)
	first := w.login()
	second := w.tokensOf(w.post("/token", refreshForm(first.Refresh)))
	third := w.tokensOf(w.post("/token", refreshForm(second.Refresh)))
	w.post("/token", refreshForm(first.Refresh)).wantError(t, http.StatusBadRequest, "invalid_grant")
	w.wantInvalid(third.Access, "after reuse of a refresh token")
	w.post("/token", refreshForm(third.Refresh)).wantError(t, http.StatusBadRequest, "invalid_grant")
}

func TestUsingTheRefreshTokenOfAnotherClientEndsTheGrant(t *testing.T) {
	w := newEnv(t, nil)
	got := w.login()
	form := refreshForm(got.Refresh, "client_id", secretID, "client_secret", secret)
	w.post("/token", form).wantError(t, http.StatusBadRequest, "invalid_grant")
	w.wantInvalid(got.Access, "after another client used the refresh token")
}

func TestUnknownRefreshTokensDoNotEndTheGrant(t *testing.T) {
	w := newEnv(t, nil)
	got := w.login()
	id, secret, _ := strings.Cut(got.Refresh, ".")
	for _, token := range []string{"x", ".", id + ".", "." + secret, secret, strings.Repeat("A", 22) + "." + secret,
		got.Refresh + "A"} {
		w.post("/token", refreshForm(token)).wantError(t, http.StatusBadRequest, "invalid_grant")
	}
	w.tokensOf(w.post("/token", refreshForm(got.Refresh)))
}

func TestRefreshCanNarrowTheScopeOfOneToken(t *testing.T) {
	w := newEnv(t, nil)
	got := w.login()
	w.post("/token", refreshForm(got.Refresh, "scope", "read admin")).
		wantError(t, http.StatusBadRequest, "invalid_scope")
	w.post("/token", refreshForm(got.Refresh, "resource", "https://other.example/")).
		wantError(t, http.StatusBadRequest, "invalid_target")
	less := w.tokensOf(w.post("/token", refreshForm(got.Refresh, "scope", "read")))
	if less.Scope != "read" {
		t.Errorf("refresh for scope read granted %q, want read", less.Scope)
	}
	if more := w.tokensOf(w.post("/token", refreshForm(less.Refresh))); more.Scope != "read write" {
		t.Errorf("the next refresh granted %q, want the scopes of the grant", more.Scope)
	}
}

// New tokens of a grant do not have scopes that were removed from the options since.
func TestRemovedScopesAreNotInNewTokens(t *testing.T) {
	const other = "https://other.example/mcp"
	for name, test := range map[string]struct {
		change func(*authserver.Options)
		scope  string // of the token request
		want   string // the granted scopes, or an error
	}{
		"a scope of the client": {func(o *authserver.Options) { o.Clients[0].Scopes = []string{"read"} }, "", "read"},
		"a scope of the resource": {func(o *authserver.Options) { o.Resources[0].Scopes = o.Resources[0].Scopes[1:] },
			"", "write"},
		"one of the requested scopes": {func(o *authserver.Options) { o.Clients[0].Scopes = []string{"read"} },
			"read write", "read"},
		"the requested scope": {func(o *authserver.Options) { o.Clients[0].Scopes = []string{"read"} }, "write",
			"invalid_scope"},
		"all scopes": {func(o *authserver.Options) { o.Clients[0].Scopes = []string{"admin"} }, "",
			"invalid_grant"},
		"the resource": {func(o *authserver.Options) { o.Resources[0].URL = other; o.Clients[3].Introspects = nil }, "",
			"invalid_grant"},
		"the client's resource": {func(o *authserver.Options) {
			o.Resources = append(o.Resources, authserver.Resource{URL: other})
			o.Clients[0].Resources = []string{other}
		}, "", "invalid_grant"},
		"nothing": {func(*authserver.Options) {}, "", "read write"},
	} {
		store := authserver.NewMemoryStore()
		start := func(change func(*authserver.Options)) *env {
			return newInProcessEnv(t, func(o *authserver.Options) {
				o.Store = store
				change(o)
			})
		}
		before := start(func(*authserver.Options) {})
		code, got := before.code(), before.login()
		after := start(test.change)
		for _, form := range []url.Values{
			exchangeForm(code, "scope", test.scope), refreshForm(got.Refresh, "scope", test.scope),
		} {
			res := after.post("/token", form).json(t)
			if res["error"] != test.want && res["scope"] != test.want {
				t.Errorf("%s removed: %s returned scope %v, error %v, want %s", name, form.Get("grant_type"),
					res["scope"], res["error"], test.want)
			}
		}
	}
}

// A rotation time in the future, after the clock was set back, must not extend the grace period.
func TestGracePeriodAfterTheClockWasSetBack(t *testing.T) {
	for ahead, good := range map[time.Duration]bool{
		0: true, 5 * time.Second: true, 10 * time.Second: false, time.Hour: false,
	} {
		synctest.Test(t, func(t *testing.T) {
			store := &clockStore{Store: authserver.NewMemoryStore()}
			w := newInProcessEnv(t, func(o *authserver.Options) { o.Store = store })
			first := w.login()
			w.tokensOf(w.post("/token", refreshForm(first.Refresh)))
			store.ahead = ahead
			if res := w.post("/token", refreshForm(first.Refresh)); (res.StatusCode == http.StatusOK) != good {
				t.Errorf("rotated %v in the future: %s %s, want success %v", ahead, res.Status, res.body, good)
			}
		})
	}
}

// A clockStore changes the time of the last rotation of refresh tokens to one in the future.
type clockStore struct {
	authserver.Store
	ahead time.Duration
}

func (s *clockStore) Get(ctx context.Context, kind, key string) ([]byte, error) {
	value, err := s.Store.Get(ctx, kind, key)
	return s.shift(kind, value), err
}

func (s *clockStore) Update(ctx context.Context, kind, key string,
	change func([]byte) ([]byte, time.Time, error),
) error {
	return s.Store.Update(ctx, kind, key, func(old []byte) ([]byte, time.Time, error) {
		return change(s.shift(kind, old))
	})
}

func (s *clockStore) shift(kind string, value []byte) []byte {
	if kind != "refresh" || value == nil || s.ahead == 0 {
		return value
	}
	var rec map[string]any
	if err := json.Unmarshal(value, &rec); err != nil {
		panic(err)
	}
	rec["rotated"] = time.Now().Add(s.ahead)
	shifted, err := json.Marshal(rec)
	if err != nil {
		panic(err)
	}
	return shifted
}

// Requirement: AUTHB-10, AUTHB-15
func TestTokensExpire(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newInProcessEnv(t, func(o *authserver.Options) {
			o.Lifetimes = authserver.Lifetimes{Access: time.Minute, RefreshIdle: time.Hour, Refresh: 90 * time.Minute}
		})
		got, idle := w.login(), w.login()
		time.Sleep(59 * time.Second)
		w.wantValid(got.Access, "before it expires")
		time.Sleep(time.Second)
		w.wantInvalid(got.Access, "when it has expired")
		time.Sleep(58 * time.Minute)
		got = w.tokensOf(w.post("/token", refreshForm(got.Refresh)))
		time.Sleep(time.Minute)
		w.post("/token", refreshForm(idle.Refresh)).wantError(t, http.StatusBadRequest, "invalid_grant")
		time.Sleep(30*time.Minute - 30*time.Second)
		got = w.tokensOf(w.post("/token", refreshForm(got.Refresh)))
		if got.Expires > 30 {
			t.Errorf("30 s before the end of the grant expires_in is %v, want at most 30", got.Expires)
		}
		time.Sleep(31 * time.Second)
		w.post("/token", refreshForm(got.Refresh)).wantError(t, http.StatusBadRequest, "invalid_grant")
	})
}

func TestConcurrentRefreshesReturnOneSuccessor(t *testing.T) {
	synctest.Test(t, func(t *testing.T) { // on a slow machine the last one may come after the grace period
		w := newInProcessEnv(t, nil)
		got := w.login()
		var successors sync.Map
		var all sync.WaitGroup
		for range 50 {
			all.Go(func() { successors.Store(w.tokensOf(w.post("/token", refreshForm(got.Refresh))).Refresh, true) })
		}
		all.Wait()
		n := 0
		successors.Range(func(any, any) bool { n++; return true })
		if n != 1 {
			t.Errorf("50 concurrent refreshes returned %d successors, want 1", n)
		}
	})
}

// Requirement: AUTHB-08
func TestOtherGrantTypesAreRefused(t *testing.T) {
	w := newEnv(t, nil)
	w.post("/token", url.Values{"client_id": {publicID}}).wantError(t, http.StatusBadRequest, "invalid_request")
	for _, grant := range []string{"password", "implicit", "urn:ietf:params:oauth:grant-type:jwt-bearer"} {
		w.post("/token", url.Values{"client_id": {publicID}, "grant_type": {grant}}).
			wantError(t, http.StatusBadRequest, "unsupported_grant_type")
	}
	w.post("/token", url.Values{"client_id": {publicID}, "grant_type": {"client_credentials"}}).
		wantError(t, http.StatusBadRequest, "unauthorized_client")
	w.post("/token?client_id=x", exchangeForm("x")).wantError(t, http.StatusBadRequest, "invalid_request")
	w.send(http.DefaultClient, w.request(http.MethodPost, "/token", "{}", "Content-Type", "application/json")).
		wantError(t, http.StatusBadRequest, "invalid_request")
	w.post("/token", url.Values{"x": {strings.Repeat("x", 64<<10)}}).wantError(t, http.StatusRequestEntityTooLarge,
		"invalid_request")
}

func TestRevocationEndsTheGrant(t *testing.T) {
	for _, kind := range []string{"access", "refresh"} {
		w := newEnv(t, nil)
		got, other := w.login(), w.login()
		token := map[string]string{"access": got.Access, "refresh": got.Refresh}[kind]
		// The response to another client is the same, and the token stays valid.
		res := w.post("/revoke", url.Values{"token": {token}, "client_id": {secretID}, "client_secret": {secret}})
		if res.StatusCode != http.StatusOK {
			t.Errorf("%s token, another client: %s, want 200", kind, res.Status)
		}
		w.wantValid(got.Access, kind+" token revoked by another client")
		w.post("/revoke", url.Values{"token": {token}, "client_id": {secretID}}).
			wantError(t, http.StatusUnauthorized, "invalid_client")
		for range 2 {
			res := w.post("/revoke", url.Values{"token": {token}, "client_id": {publicID}})
			if res.StatusCode != http.StatusOK || res.body != "" {
				t.Errorf("%s token: %s %s, want 200 without a body", kind, res.Status, res.body)
			}
		}
		w.wantInvalid(got.Access, kind+" token revoked")
		w.post("/token", refreshForm(got.Refresh)).wantError(t, http.StatusBadRequest, "invalid_grant")
		w.wantValid(other.Access, kind+" token of another grant revoked")
		res = w.post("/revoke", url.Values{"token": {"nonsense"}, "client_id": {publicID}})
		if res.StatusCode != http.StatusOK {
			t.Errorf("unknown token: %s, want 200", res.Status)
		}
		w.post("/revoke", url.Values{"client_id": {publicID}}).wantError(t, http.StatusBadRequest, "invalid_request")
	}
}

func TestIntrospectionIsOnlyForTheResource(t *testing.T) {
	w := newEnv(t, func(o *authserver.Options) {
		o.Resources = append(o.Resources, authserver.Resource{URL: "https://other.example/mcp"})
		o.Clients = append(o.Clients, authserver.Client{ID: "stranger", SecretHash: secretHash,
			Introspects: []string{"https://other.example/mcp"}})
	})
	got := w.login()
	introspect := func(id, token string) response {
		return w.post("/introspect", url.Values{"client_id": {id}, "client_secret": {secret}, "token": {token}})
	}
	claims := introspect(checkerID, got.Access).json(t)
	for name, want := range map[string]any{
		"active": true, "sub": "alice", "client_id": publicID, "aud": resource, "iss": w.issuer, "scope": "read write",
		"token_type": "Bearer",
	} {
		if claims[name] != want {
			t.Errorf("%s is %v, want %v", name, claims[name], want)
		}
	}
	const inactive = `{"active":false}`
	for name, body := range map[string]string{
		"client of another resource": introspect("stranger", got.Access).body,
		"client without Introspects": introspect(machineID, got.Access).body,
		"refresh token":              introspect(checkerID, got.Refresh).body,
		"nonsense":                   introspect(checkerID, "nonsense").body,
		"token of another server":    introspect(checkerID, newEnv(t, nil).login().Access).body,
	} {
		if body != inactive {
			t.Errorf("%s: got %s, want %s", name, body, inactive)
		}
	}
	w.post("/introspect", url.Values{"token": {got.Access}}).wantError(t, http.StatusUnauthorized, "invalid_client")
	w.post("/introspect", url.Values{"token": {got.Access}, "client_id": {publicID}}).
		wantError(t, http.StatusUnauthorized, "invalid_client")
	w.post("/introspect", url.Values{"token": {got.Access}, "client_id": {checkerID}, "client_secret": {"wrong"}}).
		wantError(t, http.StatusUnauthorized, "invalid_client")
	w.post("/revoke", url.Values{"token": {got.Refresh}, "client_id": {publicID}})
	if body := introspect(checkerID, got.Access).body; body != inactive {
		t.Errorf("revoked token: got %s, want %s", body, inactive)
	}
}

func TestRefreshGraceIsAnOption(t *testing.T) {
	for name, c := range map[string]struct {
		grace, within, after time.Duration // within < 0: even an immediate retry ends the grant
	}{
		"default":  {0, 9 * time.Second, 10 * time.Second},
		"a minute": {time.Minute, 59 * time.Second, time.Minute},
		"strict":   {-1, -1, 0},
	} {
		synctest.Test(t, func(t *testing.T) {
			w := newInProcessEnv(t, func(o *authserver.Options) { o.Lifetimes.RefreshGrace = c.grace })
			first := w.login()
			next := w.tokensOf(w.post("/token", refreshForm(first.Refresh)))
			if c.within >= 0 {
				time.Sleep(c.within)
				again := w.tokensOf(w.post("/token", refreshForm(first.Refresh)))
				if again.Refresh != next.Refresh {
					t.Errorf("%s: a retry after %v returns another successor", name, c.within)
				}
				time.Sleep(c.after - c.within)
			}
			w.post("/token", refreshForm(first.Refresh)).wantError(t, http.StatusBadRequest, "invalid_grant")
			w.post("/token", refreshForm(next.Refresh)).wantError(t, http.StatusBadRequest, "invalid_grant")
		})
	}
	o := options("https://as.example")
	o.Lifetimes.RefreshGrace = time.Minute + 1
	if _, err := authserver.New(&o); err == nil {
		t.Error("New accepts a grace of more than a minute")
	}
}
