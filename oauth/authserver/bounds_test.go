package authserver_test

import (
	"context"
	"net/http"
	"net/url"
	"strconv"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/patchbay-mcp/patchbay/oauth/authserver"
)

func TestEveryEndpointIsLimitedByAddress(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		two := authserver.Rate{Count: 2, Per: time.Minute}
		w := newInProcessEnv(t, func(o *authserver.Options) {
			o.Limits = authserver.LimitOptions{Pages: two, Tokens: two, Registrations: two, Metadata: two,
				Introspections: two}
		})
		for _, paths := range [][2]string{
			{"GET", "/jwks"}, {"GET", "/authorize"}, {"POST", "/token"}, {"POST", "/register"}, {"POST", "/introspect"},
			{"GET", "/.well-known/oauth-authorization-server"}, {"GET", "/consent"}, {"GET",
				"/login/callback"}, {"POST",
				"/revoke"},
		} {
			last := 0
			for range 3 {
				res := w.send(&http.Client{Transport: w.base}, w.request(paths[0], paths[1], ""))
				last = res.StatusCode
				if last == http.StatusTooManyRequests && (res.Header.Get("Retry-After") == "" ||
					res.Header.Get("Cache-Control") != "no-store") {
					t.Errorf("%s: headers are %v", paths[1], res.Header)
				}
			}
			if last != http.StatusTooManyRequests {
				t.Errorf("%s: the third request gets %d", paths[1], last)
			}
		}
	})
}

// Authenticated clients are limited by client. Public clients are not, because anyone can use their
// ID.
func TestAuthenticatedClientsAreLimited(t *testing.T) {
	w := newEnv(t, func(o *authserver.Options) { o.Limits.Clients = authserver.Rate{Count: 2, Per: time.Hour} })
	form := url.Values{"grant_type": {"client_credentials"}, "client_id": {machineID}, "client_secret": {secret}}
	for range 5 {
		w.post("/token", url.Values{"grant_type": {"client_credentials"}, "client_id": {machineID},
			"client_secret": {"wrong"}})
	}
	w.tokensOf(w.post("/token", form))
	w.tokensOf(w.post("/token", form))
	refused := w.post("/token", form)
	refused.wantError(t, http.StatusTooManyRequests, "slow_down")
	// half an hour for one of two
	if wait, _ := strconv.Atoi(refused.Header.Get("Retry-After")); wait < 1700 || wait > 1800 {
		t.Errorf("Retry-After is %q", refused.Header.Get("Retry-After"))
	}
	for range 3 {
		w.login()
	}
}

func TestInteractionsAreBounded(t *testing.T) {
	store := authserver.NewMemoryStore()
	w := newEnv(t, func(o *authserver.Options) { o.Store = store })
	w.code()
	for i := range 20_000 {
		key := "k" + string(rune('a'+i%26)) + time.Duration(i).String()
		if err := store.Put(t.Context(), "interaction", key, []byte("{}"), time.Now().Add(time.Minute)); err != nil {
			t.Fatal(err)
		}
	}
	if res := w.browser().get("/authorize?" + authorizeQuery().Encode()); res.StatusCode != http.StatusServiceUnavailable {
		t.Errorf("got %s", res.Status)
	}
}

// The client chooses most of the stored interaction.
func TestInteractionSizeIsBounded(t *testing.T) {
	store := &sizeStore{Store: authserver.NewMemoryStore()}
	w := newEnv(t, func(o *authserver.Options) { o.Store = store })
	for name, c := range map[string]struct {
		state  string
		status int
	}{
		"a plain state":                   {strings.Repeat("s", 4096), http.StatusSeeOther},
		"one that is escaped for pages":   {strings.Repeat("<", 4096), http.StatusSeeOther},
		"one that is escaped in any case": {strings.Repeat("\u2028", 1365), http.StatusSeeOther},
	} {
		store.largest = 0
		res := w.browser().get("/authorize?" + authorizeQuery("state", c.state).Encode())
		if res.StatusCode != c.status || store.largest > 10<<10 {
			t.Errorf("%s: %s, %d bytes are kept", name, res.Status, store.largest)
		}
	}
	if answer := w.browser().authorize(authorizeQuery("state", "<&>\u2028\"")); answer.Get("state") != "<&>\u2028\"" ||
		answer.Get("code") == "" {
		t.Errorf("the answer is %v", answer)
	}
}

// A weighing store knows how large the largest interaction was.
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
				t.Fatalf("got %s, Retry-After %q", res.Status, res.Header.Get("Retry-After"))
			}
			time.Sleep(time.Second)
		}
		if begun < 60+10*15-1 || begun > 60+10*15 {
			t.Errorf("%d logins began in 10 minutes, want a burst of 60 and 15 in each minute", begun)
		}
	})
}

// A server for machines alone has nothing for browsers, and says so.
func TestServerWithoutLogin(t *testing.T) {
	w := newEnv(t, func(o *authserver.Options) { o.Login = nil })
	for _, path := range []string{"/authorize", "/consent", "/login", "/register"} {
		if res := w.browser().get(path); res.StatusCode != http.StatusNotFound {
			t.Errorf("%s: %s", path, res.Status)
		}
	}
	m := w.browser().get("/.well-known/oauth-authorization-server").json(t)
	if m["authorization_endpoint"] != nil || m["registration_endpoint"] != nil ||
		m["client_id_metadata_document_supported"] != nil {
		t.Errorf("metadata %v", m)
	}
	if types, ok := m["response_types_supported"].([]any); !ok || len(types) != 0 {
		t.Errorf("response types are %v", m["response_types_supported"])
	}
	form := url.Values{"grant_type": {"client_credentials"}, "client_id": {machineID}, "client_secret": {secret}}
	w.wantValid(w.tokensOf(w.post("/token", form)).Access, "of a machine")
}
