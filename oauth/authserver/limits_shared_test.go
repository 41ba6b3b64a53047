package authserver_test

import (
	"bytes"
	"fmt"
	"log/slog"
	"net/http"
	"net/netip"
	"net/url"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/patchbay-mcp/patchbay/oauth/authserver"
)

// Hosted clients share addresses with many others.
func TestAuthenticatedClientsDoNotCountForTheirAddress(t *testing.T) {
	w := newInProcessEnv(t, func(o *authserver.Options) {
		o.Limits.Tokens = authserver.Rate{Count: 3, Per: time.Hour}
	})
	form := url.Values{"grant_type": {"client_credentials"}, "client_id": {machineID}, "client_secret": {secret}}
	for range 5 {
		w.tokensOf(w.post("/token", form))
	}
	for range 3 {
		w.post("/token", exchangeForm("unknown")).wantError(t, http.StatusBadRequest, "invalid_grant")
	}
	w.post("/token", exchangeForm("unknown")).wantError(t, http.StatusTooManyRequests, "slow_down")
	for range 5 {
		w.tokensOf(w.post("/token", form))
	}
	form.Set("client_secret", "wrong")
	w.post("/token", form).wantError(t, http.StatusTooManyRequests, "slow_down")
	form.Set("client_secret", secret)
	for range 30 {
		w.post("/token", exchangeForm("unknown"))
	}
	w.post("/token", form).wantError(t, http.StatusTooManyRequests, "slow_down") // ten times the rate is the maximum
	w.from("192.0.2.2").tokensOf(w.from("192.0.2.2").post("/token", form))
}

// A hosted client registers for all of its users from one address.
func TestRegistrationsCountByRedirectHostToo(t *testing.T) {
	w := newInProcessEnv(t, func(o *authserver.Options) {
		o.Limits.Registrations = authserver.Rate{Count: 2, Per: time.Hour}
	})
	try := func(w *env, uris ...string) int {
		return w.tryRegister(`{"redirect_uris":["` + strings.Join(uris, `","`) + `"]}`).StatusCode
	}
	count := func(w *env, n int, uris ...string) (accepted int) {
		for range n {
			if try(w, uris...) == http.StatusCreated {
				accepted++
			}
		}
		return accepted
	}
	const hosted = "https://hosted.example/cb"
	if n := count(w, 15, hosted); n != 15 {
		t.Errorf("%d of 15 registrations of a hosted client are accepted, want all", n)
	}
	for _, uris := range [][]string{{"http://localhost/cb"}, {"com.example:/cb"}, {hosted, "https://other.example/cb"}} {
		if got := try(w, uris...); got != http.StatusTooManyRequests {
			t.Errorf("%v when the address has no registrations left: status %d, want 429", uris, got)
		}
	}
	if n := count(w.from("192.0.2.9"), 15, hosted); n != 2+7 {
		t.Errorf("%d of 15 more registrations for the host are accepted, want 2 for the address and 7 of 20", n)
	}
}

func TestOneAddressForAllRequestsIsReportedOnce(t *testing.T) {
	for name, c := range map[string]struct {
		change func(*http.Request, int)
		warns  int
	}{
		"proxy":      {func(r *http.Request, i int) { r.Header.Set("X-Forwarded-For", fmt.Sprint("192.0.2.", i)) }, 1},
		"Forwarded":  {func(r *http.Request, i int) { r.Header.Set("Forwarded", fmt.Sprint("for=192.0.2.", i)) }, 1},
		"no proxy":   {func(*http.Request, int) {}, 0},
		"one client": {func(r *http.Request, _ int) { r.Header.Set("X-Forwarded-For", "192.0.2.1") }, 0},
		"two addresses": {func(r *http.Request, i int) {
			r.Header.Set("X-Forwarded-For", fmt.Sprint("192.0.2.", i))
			r.RemoteAddr = fmt.Sprintf("10.0.0.%d:1", i%2)
		}, 0},
		"trusted proxy": {func(r *http.Request, i int) {
			r.Header.Set("X-Forwarded-For", fmt.Sprint("192.0.2.", i))
			r.RemoteAddr = "10.9.0.1:1"
		}, 0},
	} {
		var log bytes.Buffer
		o := options("https://as.example")
		o.Logger = slog.New(slog.NewTextHandler(&log, nil))
		o.Limits.TrustedProxies = []netip.Prefix{netip.MustParsePrefix("10.9.0.0/16")}
		w := newServer(t, o)
		for i := range 50 {
			r, err := http.NewRequestWithContext(t.Context(), http.MethodGet, "https://as.example/jwks", nil)
			if err != nil {
				t.Fatal(err)
			}
			r.RemoteAddr = "10.0.0.1:1"
			c.change(r, i)
			serveRequest(w, r)
		}
		if got := strings.Count(log.String(), "trusted proxy"); got != c.warns {
			t.Errorf("%s: %d warnings, want %d: %s", name, got, c.warns, log.String())
		}
	}
}

// A request from each of more addresses than are remembered must not reset the limits.
func TestEvictedRatesCountForTheirNetwork(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		o := options("https://as.example")
		o.Limits = authserver.LimitOptions{
			Metadata:      authserver.Rate{Count: 3, Per: time.Hour},
			Registrations: authserver.Rate{Count: 3, Per: time.Hour},
		}
		s := newServer(t, o)
		for path, method := range map[string]string{"/jwks": http.MethodGet, "/register": http.MethodPost} {
			refused := func(address string) bool {
				return serveFrom(s, method, path, address+":1").Code == http.StatusTooManyRequests
			}
			for range 3 {
				refused("192.0.2.1")
			}
			if !refused("192.0.2.1") {
				t.Errorf("%s: request 4 is not refused", path)
			}
			for i := range authserver.MaxLimited {
				refused(fmt.Sprintf("10.%d.%d.%d", i>>16, i>>8&255, i&255))
			}
			if !refused("192.0.2.1") {
				t.Errorf("%s: after requests from %d other addresses the limit is reset", path, authserver.MaxLimited)
			}
			if !refused("192.0.2.2") {
				t.Errorf("%s: a new address of the network does not start with what the evicted one has taken", path)
			}
			if refused("198.51.100.1") {
				t.Errorf("%s: the first request from another network is refused", path)
			}
			time.Sleep(time.Hour)
			if refused("192.0.2.1") || refused("192.0.2.3") {
				t.Errorf("%s: refused after an hour", path)
			}
		}
	})
}
