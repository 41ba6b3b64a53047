package authserver_test

import (
	"net/http"
	"net/url"
	"testing"
	"testing/synctest"
	"time"

	"github.com/patchbay-mcp/patchbay/oauth/authserver"
)

func TestLimitsByAddressAtEveryEndpoint(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		two := authserver.Rate{Count: 2, Per: time.Minute}
		w := newQuietWorld(t, func(o *authserver.Options) {
			o.Limits = authserver.LimitOptions{Pages: two, Tokens: two, Registrations: two, Documents: two, Introspections: two}
		})
		for _, paths := range [][2]string{
			{"GET", "/jwks"}, {"GET", "/authorize"}, {"POST", "/token"}, {"POST", "/register"}, {"POST", "/introspect"},
			{"GET", "/.well-known/oauth-authorization-server"}, {"GET", "/consent"}, {"GET", "/login/callback"}, {"POST", "/revoke"},
		} {
			last := 0
			for range 3 {
				res := w.send(&http.Client{Transport: w.base}, w.request(paths[0], paths[1], ""))
				last = res.StatusCode
				if last == http.StatusTooManyRequests && (res.Header.Get("Retry-After") == "" || res.Header.Get("Cache-Control") != "no-store") {
					t.Errorf("%s: headers are %v", paths[1], res.Header)
				}
			}
			if last != http.StatusTooManyRequests {
				t.Errorf("%s: the third request gets %d", paths[1], last)
			}
		}
	})
}

// One that proves who it is has a rate of its own; the id of a public client is everybody's, and nobody's to use up.
func TestProvenClientsHaveARate(t *testing.T) {
	w := newWorld(t, func(o *authserver.Options) { o.Limits.Clients = authserver.Rate{Count: 2, Per: time.Hour} })
	form := url.Values{"grant_type": {"client_credentials"}, "client_id": {machineID}, "client_secret": {secret}}
	for range 5 {
		w.post("/token", url.Values{"grant_type": {"client_credentials"}, "client_id": {machineID}, "client_secret": {"wrong"}})
	}
	w.tokensOf(w.post("/token", form))
	w.tokensOf(w.post("/token", form))
	w.post("/token", form).want(t, http.StatusTooManyRequests, "slow_down")
	for range 3 {
		w.login()
	}
}

func TestInteractionsAreBounded(t *testing.T) {
	store := authserver.NewMemoryStore()
	w := newWorld(t, func(o *authserver.Options) { o.Store = store })
	w.code()
	for i := range 100_000 {
		key := "k" + string(rune('a'+i%26)) + time.Duration(i).String()
		if err := store.Put(t.Context(), "interaction", key, []byte("{}"), time.Now().Add(time.Minute)); err != nil {
			t.Fatal(err)
		}
	}
	if res := w.browser().get("/authorize?" + authorizeQuery().Encode()); res.StatusCode != http.StatusServiceUnavailable {
		t.Errorf("got %s", res.Status)
	}
}

// A server for machines alone has nothing for browsers, and says so.
func TestServerOfMachines(t *testing.T) {
	w := newWorld(t, func(o *authserver.Options) { o.Login = nil })
	for _, path := range []string{"/authorize", "/consent", "/login", "/register"} {
		if res := w.browser().get(path); res.StatusCode != http.StatusNotFound {
			t.Errorf("%s: %s", path, res.Status)
		}
	}
	m := w.browser().get("/.well-known/oauth-authorization-server").json(t)
	if m["authorization_endpoint"] != nil || m["registration_endpoint"] != nil || m["client_id_metadata_document_supported"] != nil {
		t.Errorf("metadata %v", m)
	}
	if types, ok := m["response_types_supported"].([]any); !ok || len(types) != 0 {
		t.Errorf("response types are %v", m["response_types_supported"])
	}
	form := url.Values{"grant_type": {"client_credentials"}, "client_id": {machineID}, "client_secret": {secret}}
	w.wantAlive(w.tokensOf(w.post("/token", form)).Access, "of a machine")
}
