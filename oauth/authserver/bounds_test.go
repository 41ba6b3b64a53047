package authserver_test

import (
	"context"
	"fmt"
	"net/http"
	"net/url"
	"strconv"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/patchbay-mcp/patchbay/oauth/authserver"
)

// Public clients have no limit of their own, because anyone can use their ID.
func TestAuthenticatedClientsAreLimited(t *testing.T) {
	w := newEnv(t, func(o *authserver.Options) { o.Limits.Clients = authserver.Rate{Count: 2, Per: time.Hour} })
	form := func(secret string) url.Values {
		return url.Values{"grant_type": {"client_credentials"}, "client_id": {machineID}, "client_secret": {secret}}
	}
	for range 5 { // attempts without authentication are not counted
		w.post("/token", form("wrong")).wantError(t, http.StatusUnauthorized, "invalid_client")
	}
	for range 2 {
		w.tokensOf(w.post("/token", form(secret)))
	}
	// The limit is not shown without authentication.
	w.post("/token", form("wrong")).wantError(t, http.StatusUnauthorized, "invalid_client")
	refused := w.post("/token", form(secret))
	refused.wantError(t, http.StatusTooManyRequests, "slow_down")
	if wait, _ := strconv.Atoi(refused.Header.Get("Retry-After")); wait < 1700 || wait > 1800 {
		t.Errorf("Retry-After is %q, want half an hour at a rate of two an hour", refused.Header.Get("Retry-After"))
	}
	for range 3 {
		w.login()
	}
}

// Anyone can start a login and consent to it, as often as the limit by address permits.
func TestStrangersDoNotEndTheLoginsOfOthers(t *testing.T) {
	if testing.Short() {
		t.Skip("takes seconds")
	}
	synctest.Test(t, func(t *testing.T) {
		store := authserver.NewMemoryStore()
		w := newInProcessEnv(t, func(o *authserver.Options) { o.Store = store })
		early := w.browser()
		_, form := early.consentPage(authorizeQuery())
		login := early.decide(form, "allow").Header.Get("Location")
		const networks, each = 400, 60
		for i := range 10 {
			stranger := w.from(fmt.Sprintf("10.0.%d.1", i)).browser()
			for range each {
				if res := stranger.get("/authorize?" + authorizeQuery().Encode()); res.StatusCode != http.StatusSeeOther {
					t.Fatalf("authorization request of network %d: %s, want 303", i, res.Status)
				}
			}
		}
		if n := authserver.MemoryRecords(store, "interaction"); n != 1 {
			t.Errorf("%d interactions stored; want only the one that was consented to", n)
		}
		for i := range networks {
			for range each {
				err := authserver.StoreConsent(t.Context(), w.server, fmt.Sprintf("10.%d.%d.1", i/250, i%250))
				if err != nil {
					t.Fatal(err)
				}
			}
		}
		late := w.from("192.0.2.77").browser()
		if answer := late.authorize(authorizeQuery()); answer.Get("code") == "" {
			t.Errorf("new login: %v, want a code", answer)
		}
		if res := early.get(login); early.redirectQuery(res).Get("code") == "" {
			t.Errorf("login that began before: %s, want a code", res.Status)
		}
		if n := authserver.MemoryRecords(store, "interaction"); n > 20_000 {
			t.Errorf("%d interactions stored; want at most 20000", n)
		}
	})
}

// Most of a stored interaction comes from the client's request.
func TestInteractionSizeIsBounded(t *testing.T) {
	store := &sizeStore{Store: authserver.NewMemoryStore()}
	w := newEnv(t, func(o *authserver.Options) { o.Store = store })
	for name, state := range map[string]string{
		"plain":                             strings.Repeat("s", 4096),
		"escaped by encoding/json for HTML": strings.Repeat("<", 4096),
		"always escaped by encoding/json":   strings.Repeat("\u2028", 1365),
	} {
		store.largest = 0
		res := w.browser().get("/authorize?" + authorizeQuery("state", state).Encode())
		if res.StatusCode != http.StatusSeeOther || store.largest > 10<<10 {
			t.Errorf("state %s: %s, %d bytes stored, want 303 and at most 10 KiB", name, res.Status, store.largest)
		}
	}
	if answer := w.browser().authorize(authorizeQuery("state", "<&>\u2028\"")); answer.Get("state") != "<&>\u2028\"" ||
		answer.Get("code") == "" {
		t.Errorf("authorization response is %v, want a code and the state", answer)
	}
}

// A sizeStore records the size of the largest interaction.
type sizeStore struct {
	authserver.Store
	largest int
}

func (s *sizeStore) Put(ctx context.Context, kind, key string, value []byte, expires time.Time) error {
	if kind == "interaction" {
		s.largest = max(s.largest, len(value))
	}
	return s.Store.Put(ctx, kind, key, value, expires)
}

// A login takes four pages, so new logins are limited to a quarter of the pages.
func TestNewLoginsAreLimited(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newInProcessEnv(t, func(o *authserver.Options) { o.Limits.Pages = authserver.Rate{} })
		begun := 0
		for range 10 * 60 {
			res := w.browser().get("/authorize?" + authorizeQuery().Encode())
			switch {
			case res.StatusCode == http.StatusSeeOther:
				begun++
			case res.StatusCode != http.StatusTooManyRequests || res.Header.Get("Retry-After") == "":
				t.Fatalf("got %s, Retry-After %q, want 303 or 429 with Retry-After", res.Status,
					res.Header.Get("Retry-After"))
			}
			time.Sleep(time.Second)
		}
		if begun < 60+10*15-1 || begun > 60+10*15 {
			t.Errorf("%d logins began in 10 minutes, want a burst of 60 and 15 in each minute", begun)
		}
	})
}

func TestServerWithoutLoginHasOnlyClientCredentials(t *testing.T) {
	w := newEnv(t, func(o *authserver.Options) { o.Login = nil })
	for _, path := range []string{"/authorize", "/consent", "/login", "/register"} {
		if res := w.browser().get(path); res.StatusCode != http.StatusNotFound {
			t.Errorf("%s: %s, want 404", path, res.Status)
		}
	}
	m := w.browser().get("/.well-known/oauth-authorization-server").json(t)
	if m["authorization_endpoint"] != nil || m["registration_endpoint"] != nil ||
		m["client_id_metadata_document_supported"] != nil {
		t.Errorf("metadata is %v, want it without the endpoints of logins", m)
	}
	if types, ok := m["response_types_supported"].([]any); !ok || len(types) != 0 {
		t.Errorf("response types are %v, want none", m["response_types_supported"])
	}
	form := url.Values{"grant_type": {"client_credentials"}, "client_id": {machineID}, "client_secret": {secret}}
	w.wantValid(w.tokensOf(w.post("/token", form)).Access, "with client credentials")
}
