package authserver_test

import (
	"net/http"
	"strconv"
	"testing"
	"testing/synctest"
	"time"

	"github.com/patchbay-mcp/patchbay/oauth/authserver"
	"github.com/patchbay-mcp/patchbay/oauth/authserver/storetest"
)

func TestMemoryStore(t *testing.T) {
	storetest.Run(t, func(string) (authserver.Store, error) { return authserver.NewMemoryStore(), nil })
}

// A memory store is shared by the servers of one process.
func TestMemoryStoreCanBeShared(t *testing.T) {
	stores := map[string]authserver.Store{}
	storetest.RunShared(t, func(dir string) (authserver.Store, error) {
		if stores[dir] == nil {
			stores[dir] = authserver.NewMemoryStore()
		}
		return stores[dir], nil
	})
}

// Each request goes to another server than the one before, as behind a load balancer.
func TestServersWithOneStoreAreOneAuthorizationServer(t *testing.T) {
	store, keys := authserver.NewMemoryStore(), []authserver.SealKey{authserver.NewSealKey()}
	next := 0
	var servers []*authserver.Server
	balancer := http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		next++
		servers[next%len(servers)].ServeHTTP(w, r)
	})
	o := options("https://as.example")
	o.Store, o.SealKeys = store, keys
	for range 3 {
		servers = append(servers, newServer(t, o))
	}
	w := &env{t, servers[0], o.Issuer, handlerTransport{balancer, "192.0.2.1"}}
	id := w.register(`{"redirect_uris":["` + publicURI + `"],"token_endpoint_auth_method":"none",
		"grant_types":["authorization_code","refresh_token"]}`)["client_id"].(string)
	code := w.code("client_id", id)
	got := w.tokensOf(w.post("/token", exchangeForm(code, "client_id", id)))
	w.wantValid(got.Access, "issued by another server")
	refresh := refreshForm(got.Refresh, "client_id", id)
	successor := w.tokensOf(w.post("/token", refresh))
	if again := w.tokensOf(w.post("/token", refresh)); again.Refresh != successor.Refresh {
		t.Error("a retry at another server returns another refresh token")
	}
	w.post("/token", exchangeForm(code, "client_id", id)).wantError(t, http.StatusBadRequest, "invalid_grant")
	for i, s := range servers {
		if _, err := s.Verifier(resource).Verify(t.Context(), successor.Access); !isInvalid(err) {
			t.Errorf("server %d after the second use of the code: %v, want ErrInvalidToken", i, err)
		}
	}
}

func TestMemoryStoreRemovesExpiredRecords(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s, ctx := authserver.NewMemoryStore(), t.Context()
		put := func(kind, key string, expires time.Time) {
			t.Helper()
			if err := s.Put(ctx, kind, key, []byte("v"), expires); err != nil {
				t.Fatal(err)
			}
		}
		for i := range 50 {
			put("code", strconv.Itoa(i), time.Now().Add(time.Minute))
		}
		put("grant", "lasts", time.Now().Add(time.Hour))
		put("code", "7", time.Now().Add(time.Hour)) // its first expiry no longer counts
		time.Sleep(2 * time.Minute)
		put("grant", "new", time.Time{})
		if n := authserver.MemoryRecords(s); n != 3 {
			t.Errorf("%d records after the sweep, want 3", n)
		}
	})
}
