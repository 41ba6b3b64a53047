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

// behindProxy makes a quiet world tell addresses apart by X-Forwarded-For.
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

// One address makes up ids as fast as it is let: the clients of others do not notice.
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
			w.postFrom(fmt.Sprintf("203.0.113.%d", i%50), refreshForm("x", "client_id", fmt.Sprintf("http://y%d.invalid/c",
				i)))
		}
		if good, bad := authserver.CachedDocuments(w.server); good != 1 || bad != 1000 {
			t.Errorf("%d documents and %d failures are kept, want 1 and 1000", good, bad)
		}
		h.set(func() { h.status = http.StatusOK })
		got = w.tokensOf(w.postFrom(honest, refreshForm(got.Refresh, "client_id", id)))
		time.Sleep(6 * time.Minute) // its document has to be fetched again
		n := h.count()
		for range 10 { // from the address that has used up what it has, too
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
		ask := func(address string, n int) (busy int) {
			for i := range n {
				if w.postFrom(address, refreshForm("x", "client_id", fmt.Sprintf("%s/%s-%d", h.URL, address,
					i))).StatusCode == http.StatusServiceUnavailable {
					busy++
				}
			}
			return busy
		}
		if busy := ask("2001:db8:1:2::3", 30); busy != 0 {
			t.Errorf("%d of the first 30 are refused", busy)
		}
		if busy := ask("2001:db8:1:ffff::4", 3); busy != 3 {
			t.Errorf("%d of 3 of the same site are refused beyond 30, want all", busy)
		}
		if busy := ask("2001:db8:2::1", 3); busy != 0 {
			t.Errorf("%d of 3 of another site are refused", busy)
		}
	})
}

// Refreshing a valid document is not limited.
func TestKnownDocumentsAreNotLimited(t *testing.T) {
	h := newDocumentHost(t)
	synctest.Test(t, func(t *testing.T) {
		w := h.newEnv(t, func(o *authserver.Options) {
			o.Limits.Fetches = authserver.Rate{Count: 1,
				Per: 1000 * time.Hour}
		})
		for i, pause := range []time.Duration{0, time.Hour, 30 * time.Hour} {
			time.Sleep(pause)
			if _, err := authserver.DocumentClient(t.Context(), w.server, h.URL+"/c"); err != nil || h.count() != i+1 {
				t.Errorf("after %v: %v, fetched %d times, want %d", pause, err, h.count(), i+1)
			}
		}
		if _, err := authserver.DocumentClient(t.Context(), w.server, h.URL+"/other"); err == nil {
			t.Error("a document that was never good has no rate")
		}
	})
}

func TestDocumentsOfClientsWithTokensSurviveARestart(t *testing.T) {
	h := newDocumentHost(t)
	store := authserver.NewMemoryStore()
	synctest.Test(t, func(t *testing.T) {
		open := func() *env { return h.newEnv(t, func(o *authserver.Options) { o.Store = store }) }
		id, stranger := h.URL+"/client.json", h.URL+"/stranger.json"
		w := open()
		got := w.loginWithDocument(id)
		w.postFrom(honest, refreshForm("x", "client_id", stranger)).wantError(t, http.StatusBadRequest, "invalid_grant")
		h.set(func() { h.status = http.StatusBadGateway })
		w = open()
		if n, _ := store.Count(t.Context(), "document"); n != 1 {
			t.Errorf("%d documents are in the store, want that of the client with a token alone", n)
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
			t.Errorf("when the outage is over: %v", err)
		}
		h.set(func() { h.status = http.StatusBadGateway })
		if uris, err := authserver.DocumentClient(t.Context(), open().server, id); err != nil ||
			uris[1] != "https://new.example/cb" {
			t.Errorf("after a restart the document is that of before: %v, %v", uris, err)
		}
		h.set(func() { h.status = http.StatusGone })
		time.Sleep(time.Hour)
		_, _ = authserver.DocumentClient(t.Context(), w.server, id)
		h.set(func() { h.status = http.StatusBadGateway })
		if _, err := authserver.DocumentClient(t.Context(), open().server, id); err == nil {
			t.Error("a document that is gone comes back with a restart")
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
			_, err := authserver.DocumentClient(authserver.WithClientAddress(t.Context(), address), w.server, h.URL+path)
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
			t.Errorf("somebody else: %v after %v", err, took)
		}
		if took, err := get(attacker, "/old.json"); err != nil || took > 0 {
			t.Errorf("a document that stands in: %v after %v", err, took)
		}
		if took, err := get(attacker, "/more.json"); err == nil || !strings.Contains(err.Error(),
			"temporarily_unavailable") || took != time.Second {
			t.Errorf("the one who has no room left: %v after %v", err, took)
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
			t.Errorf("another request: %v", err)
		}
		all.Wait()
		if h.count() != 1 {
			t.Errorf("the document was fetched %d times", h.count())
		}
	})
}
