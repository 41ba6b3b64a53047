package authserver_test

import (
	"context"
	"fmt"
	"net/http"
	"net/netip"
	"net/url"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/patchbay-mcp/patchbay/oauth/authserver"
)

const (
	honest   = "198.51.100.1"
	attacker = "203.0.113.66"
)

// behindProxy makes the server take the address of a request from X-Forwarded-For.
func behindProxy(o *authserver.Options) {
	o.Limits.TrustedProxies = []netip.Prefix{netip.MustParsePrefix("192.0.2.1/32")}
}

// postFrom posts to the token endpoint from an address.
func (w *env) postFrom(address string, form url.Values) response {
	w.t.Helper()
	return w.post("/token", form, "X-Forwarded-For", address)
}

const documentURI = "http://127.0.0.1:7/cb"

// loginWithDocument returns the tokens of a client with a document.
func (w *env) loginWithDocument(id string) tokens {
	w.t.Helper()
	code := w.code("client_id", id, "redirect_uri", documentURI)
	return w.tokensOf(w.post("/token", exchangeForm(code, "client_id", id, "redirect_uri", documentURI)))
}

// A client that requests many unknown documents must not evict those of others from the cache.
func TestFailuresDoNotDisplaceDocuments(t *testing.T) {
	h := newDocumentHost(t)
	synctest.Test(t, func(t *testing.T) {
		w := h.newEnv(t, behindProxy)
		id := h.URL + "/client.json"
		got := w.loginWithDocument(id)
		h.set(func() { h.status = http.StatusNotFound })
		for i := range 60 {
			w.postFrom(attacker, refreshForm("x", "client_id", fmt.Sprintf("%s/none%d", h.URL, i)))
		}
		for i := range 1100 {
			w.postFrom(attacker, refreshForm("x", "client_id", fmt.Sprintf("http://x.invalid/%d", i)))
			id := fmt.Sprintf("http://y%d.invalid/c", i)
			w.postFrom(fmt.Sprintf("203.0.113.%d", i%50), refreshForm("x", "client_id", id))
		}
		if good, bad := authserver.CachedDocuments(w.server); good != 1 || bad != 1000 {
			t.Errorf("%d documents and %d failures are cached, want 1 and 1000", good, bad)
		}
		h.set(func() { h.status = http.StatusOK })
		got = w.tokensOf(w.postFrom(honest, refreshForm(got.Refresh, "client_id", id)))
		time.Sleep(6 * time.Minute) // its document has to be fetched again
		n := h.count()
		for range 10 { // also from the address that has reached its limit
			w.postFrom(attacker, refreshForm("x", "client_id", id))
		}
		w.tokensOf(w.postFrom(honest, refreshForm(got.Refresh, "client_id", id)))
		if h.count() != n+1 {
			t.Errorf("the document was fetched %d times, want once", h.count()-n)
		}
		w.postFrom(honest, refreshForm("x", "client_id", h.URL+"/other.json")).wantError(t, http.StatusBadRequest,
			"invalid_grant")
	})
}

func TestUnknownDocumentsAreLimitedByAddress(t *testing.T) {
	h := newDocumentHost(t)
	synctest.Test(t, func(t *testing.T) {
		w := h.newEnv(t, behindProxy)
		countRefused := func(address string, n int) (refused int) {
			for i := range n {
				id := fmt.Sprintf("%s/%s-%d", h.URL, address, i)
				res := w.postFrom(address, refreshForm("x", "client_id", id))
				if res.StatusCode == http.StatusServiceUnavailable {
					refused++
				}
			}
			return refused
		}
		if n := countRefused("2001:db8:1:2::3", 30); n != 0 {
			t.Errorf("%d of the first 30 requests are refused, want 0", n)
		}
		if n := countRefused("2001:db8:1:ffff::4", 3); n != 3 {
			t.Errorf("%d of 3 requests from the same /48 after 30 are refused, want 3", n)
		}
		if n := countRefused("2001:db8:2::1", 3); n != 0 {
			t.Errorf("%d of 3 requests from another /48 are refused, want 0", n)
		}
	})
}

func TestRefreshOfAValidDocumentIsNotLimited(t *testing.T) {
	h := newDocumentHost(t)
	synctest.Test(t, func(t *testing.T) {
		w := h.newEnv(t, func(o *authserver.Options) {
			o.Limits.Fetches = authserver.Rate{Count: 1, Per: 1000 * time.Hour}
		})
		for i, pause := range []time.Duration{0, time.Hour, 30 * time.Hour} {
			time.Sleep(pause)
			if _, err := authserver.DocumentClient(t.Context(), w.server, h.URL+"/c"); err != nil || h.count() != i+1 {
				t.Errorf("after %v: %v, fetched %d times, want %d", pause, err, h.count(), i+1)
			}
		}
		if _, err := authserver.DocumentClient(t.Context(), w.server, h.URL+"/other"); err == nil {
			t.Error("another document was fetched beyond the limit")
		}
	})
}

func TestDocumentsOfClientsWithTokensSurviveARestart(t *testing.T) {
	h := newDocumentHost(t)
	store := authserver.NewMemoryStore()
	synctest.Test(t, func(t *testing.T) {
		open := func() *env { return h.newEnv(t, func(o *authserver.Options) { o.Store = store }) }
		id, unused := h.URL+"/client.json", h.URL+"/unused.json"
		w := open()
		got := w.loginWithDocument(id)
		w.postFrom(honest, refreshForm("x", "client_id", unused)).wantError(t, http.StatusBadRequest, "invalid_grant")
		h.set(func() { h.status = http.StatusBadGateway })
		w = open()
		if n := authserver.MemoryRecords(store, "document"); n != 1 {
			t.Errorf("%d documents are in the store, want only that of the client with a token", n)
		}
		got = w.tokensOf(w.post("/token", refreshForm(got.Refresh, "client_id", id)))
		time.Sleep(time.Hour)
		w = open()
		got = w.tokensOf(w.post("/token", refreshForm(got.Refresh, "client_id", id)))
		time.Sleep(24 * time.Hour)
		open().post("/token", refreshForm(got.Refresh, "client_id", id)).wantError(t, http.StatusServiceUnavailable,
			"temporarily_unavailable")

		h.set(func() { h.status, h.body = http.StatusOK, strings.Replace(h.body, "app.example", "new.example", 1) })
		if _, err := authserver.DocumentClient(t.Context(), open().server, id); err != nil {
			t.Errorf("after the outage: %v", err)
		}
		h.set(func() { h.status = http.StatusBadGateway })
		if uris, err := authserver.DocumentClient(t.Context(), open().server, id); err != nil ||
			uris[1] != "https://new.example/cb" {
			t.Errorf("redirect URIs after a restart are %v, %v; want those of the new document", uris, err)
		}
		h.set(func() { h.status = http.StatusGone })
		time.Sleep(time.Hour)
		_, _ = authserver.DocumentClient(t.Context(), w.server, id)
		h.set(func() { h.status = http.StatusBadGateway })
		if _, err := authserver.DocumentClient(t.Context(), open().server, id); err == nil {
			t.Error("a document that was removed is accepted after a restart")
		}
	})
}

// slowPaths makes requests for paths with "slow" in them wait.
func slowPaths(r *http.Request) error {
	if !strings.Contains(r.URL.Path, "slow") {
		return nil
	}
	<-r.Context().Done()
	return r.Context().Err()
}

func TestSlowHostsDelayOnlyTheirClient(t *testing.T) {
	h := newDocumentHost(t)
	synctest.Test(t, func(t *testing.T) {
		w := h.newEnv(t, func(o *authserver.Options) { o.ClientMetadata.Fetcher = h.slowFetcher(slowPaths) })
		get := func(address, path string) (time.Duration, error) {
			began := time.Now()
			ctx := authserver.WithClientAddress(t.Context(), address)
			_, err := authserver.DocumentClient(ctx, w.server, h.URL+path)
			return time.Since(began), err
		}
		if _, err := get(honest, "/old.json"); err != nil {
			t.Fatal(err)
		}
		time.Sleep(time.Hour) // old enough to be fetched again
		var all sync.WaitGroup
		defer all.Wait()
		for i := range 80 {
			all.Go(func() { _, _ = get(attacker, fmt.Sprintf("/slow%d", i)) })
		}
		synctest.Wait()
		if took, err := get(honest, "/client.json"); err != nil || took > 0 {
			t.Errorf("another address: %v after %v, want no delay", err, took)
		}
		if took, err := get(attacker, "/old.json"); err != nil || took > 0 {
			t.Errorf("stale document: %v after %v, want no delay", err, took)
		}
		took, err := get(attacker, "/more.json")
		if err == nil || !strings.Contains(err.Error(), "temporarily_unavailable") || took != time.Second {
			t.Errorf("too many fetches for an address: %v after %v, want temporarily_unavailable after 1s", err, took)
		}
	})
}

// A canceled request does not cancel the fetch that others wait for.
func TestCanceledRequestKeepsTheFetch(t *testing.T) {
	h := newDocumentHost(t)
	synctest.Test(t, func(t *testing.T) {
		w := h.newEnv(t, func(o *authserver.Options) {
			o.ClientMetadata.Fetcher = h.slowFetcher(func(r *http.Request) error {
				select {
				case <-time.After(5 * time.Second):
				case <-r.Context().Done():
				}
				return r.Context().Err()
			})
		})
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		var all sync.WaitGroup
		all.Go(func() { _, _ = authserver.DocumentClient(ctx, w.server, h.URL+"/c") })
		synctest.Wait()
		if _, err := authserver.DocumentClient(t.Context(), w.server, h.URL+"/c"); err != nil {
			t.Errorf("second request: %v", err)
		}
		all.Wait()
		if h.count() != 1 {
			t.Errorf("the document was fetched %d times, want once", h.count())
		}
	})
}
