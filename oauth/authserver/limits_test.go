package authserver_test

import (
	"fmt"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"strconv"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/patchbay-mcp/patchbay/oauth/authserver"
)

// serveFrom calls a handler with a request from an address, with values of X-Forwarded-For.
func serveFrom(s http.Handler, method, path, from string, forwarded ...string) *httptest.ResponseRecorder {
	r := httptest.NewRequest(method, "https://as.example"+path, nil)
	r.RemoteAddr = from
	for _, f := range forwarded {
		r.Header.Add("X-Forwarded-For", f)
	}
	return serveRequest(s, r)
}

func serveRequest(s http.Handler, r *http.Request) *httptest.ResponseRecorder {
	w := httptest.NewRecorder()
	s.ServeHTTP(w, r)
	return w
}

func TestEveryEndpointHasALimitByAddress(t *testing.T) {
	for path, method := range map[string]string{
		"/authorize": http.MethodGet, "/consent": http.MethodGet, "/login": http.MethodPost, "/token": http.MethodPost,
		"/register": http.MethodPost, "/revoke": http.MethodPost, "/introspect": http.MethodPost,
		"/jwks": http.MethodGet,
		"/.well-known/oauth-authorization-server": http.MethodGet, "/login/callback": http.MethodGet,
	} {
		synctest.Test(t, func(t *testing.T) {
			three := authserver.Rate{Count: 3, Per: time.Minute}
			o := options("https://as.example")
			o.Limits = authserver.LimitOptions{Pages: three, Tokens: three, Introspections: three, Registrations: three,
				Metadata: three}
			s := newServer(t, o)
			for n := range 3 {
				if w := serveFrom(s, method, path, "192.0.2.1:1"); w.Code == http.StatusTooManyRequests {
					t.Errorf("%s: request %d of 3: status 429", path, n+1)
				}
			}
			wait := 20 * time.Second
			if path == "/register" { // its limit is strict: at most three in any minute
				wait = time.Minute
			}
			w := serveFrom(s, method, path, "192.0.2.1:2")
			if w.Code != http.StatusTooManyRequests || w.Header().Get("Retry-After") != fmt.Sprint(wait.Seconds()) {
				t.Errorf("%s: request 4: %d, Retry-After %q; want 429, %v", path, w.Code, w.Header().Get("Retry-After"),
					wait)
			}
			if got := w.Header().Get("Cache-Control"); got != "no-store" {
				t.Errorf("%s: Cache-Control of the refusal is %q, want no-store", path, got)
			}
			if w := serveFrom(s, method, path, "192.0.2.2:1"); w.Code == http.StatusTooManyRequests {
				t.Errorf("%s: request from another address: status 429", path)
			}
			time.Sleep(wait - time.Millisecond)
			if w := serveFrom(s, method, path, "192.0.2.1:1"); w.Code != http.StatusTooManyRequests {
				t.Errorf("%s: before the time of Retry-After: status %d, want 429", path, w.Code)
			}
			time.Sleep(time.Millisecond)
			if w := serveFrom(s, method, path, "192.0.2.1:1"); w.Code == http.StatusTooManyRequests {
				t.Errorf("%s: at the time of Retry-After: status 429", path)
			}
			time.Sleep(24 * time.Hour)
			for n := range 4 {
				if w := serveFrom(s, method, path, "192.0.2.1:1"); (w.Code == http.StatusTooManyRequests) != (n == 3) {
					t.Errorf("%s: request %d after a day: status %d, want 429 only for request 4", path, n+1, w.Code)
				}
			}
		})
	}
}

// The default is 20 registrations in any hour.
func TestRegistrationLimitIsStrict(t *testing.T) {
	for name, pause := range map[string]time.Duration{
		"no pause": 0, "3 minutes": 3 * time.Minute, "170 seconds": 170 * time.Second, "7 seconds": 7 * time.Second,
	} {
		synctest.Test(t, func(t *testing.T) {
			o := options("https://as.example")
			o.Limits = authserver.LimitOptions{}
			s := newServer(t, o)
			var accepted []time.Time
			for begun := time.Now(); len(accepted) < 100 && time.Since(begun) < 5*time.Hour; {
				w := serveFrom(s, http.MethodPost, "/register", "192.0.2.1:1")
				if w.Code != http.StatusTooManyRequests {
					accepted = append(accepted, time.Now())
					time.Sleep(pause)
					continue
				}
				wait, err := strconv.Atoi(w.Header().Get("Retry-After"))
				if err != nil || len(accepted) < 20 {
					t.Fatalf("pause %s: registration %d: status 429, Retry-After %q", name, len(accepted)+1,
						w.Header().Get("Retry-After"))
				}
				time.Sleep(time.Duration(wait) * time.Second)
			}
			if len(accepted) != 100 {
				t.Errorf("pause %s: %d registrations in 5 hours, want 100", name, len(accepted))
			}
			for i := 20; i < len(accepted); i++ {
				if span := accepted[i].Sub(accepted[i-20]); span < time.Hour {
					t.Errorf("pause %s: 21 registrations within %v, want at most 20 in an hour", name, span)
				}
			}
		})
	}
}

func TestClientAddressComesFromTrustedProxies(t *testing.T) {
	proxies := []netip.Prefix{netip.MustParsePrefix("10.0.0.0/8"), netip.MustParsePrefix("fd00::/8")}
	type origin struct {
		peer      string
		forwarded string
	}
	for name, c := range map[string]struct {
		proxies []netip.Prefix
		a, b    origin
		same    bool // whether both count as one address
	}{
		"one IPv4 address":     {nil, origin{"192.0.2.1:1", ""}, origin{"192.0.2.1:9", ""}, true},
		"two IPv4 addresses":   {nil, origin{"192.0.2.1:1", ""}, origin{"192.0.2.2:1", ""}, false},
		"IPv4 written as IPv6": {nil, origin{"192.0.2.1:1", ""}, origin{"[::ffff:192.0.2.1]:1", ""}, true},
		"one IPv6 site":        {nil, origin{"[2001:db8::1]:1", ""}, origin{"[2001:db8::ffff:2]:1", ""}, true},
		"two IPv6 sites":       {nil, origin{"[2001:db8::1]:1", ""}, origin{"[2001:db8:0:1::1]:1", ""}, false},
		"IPv6 with zones":      {nil, origin{"[fe80::1%eth0]:1", ""}, origin{"[fe80::1%eth1]:1", ""}, true},
		"header, no proxies":   {nil, origin{"192.0.2.1:1", "1.1.1.1"}, origin{"192.0.2.1:1", "2.2.2.2"}, true},
		"header not from a proxy": {proxies, origin{"192.0.2.1:1", "1.1.1.1"}, origin{"192.0.2.1:1", "2.2.2.2"},
			true},
		"two behind a proxy": {proxies, origin{"10.0.0.1:1", "1.1.1.1"}, origin{"10.0.0.1:1", "2.2.2.2"},
			false},
		"one behind two proxies": {proxies, origin{"10.0.0.1:1", "1.1.1.1"}, origin{"10.0.0.2:1",
			"1.1.1.1:8080, 10.9.9.9"}, true},
		"client that sends the header": {proxies, origin{"10.0.0.1:1", "7.7.7.7, 1.1.1.1"}, origin{"10.0.0.1:1",
			"8.8.8.8, 1.1.1.1"}, true},
		"invalid header of the client": {proxies, origin{"10.0.0.1:1", "x, 1.1.1.1"},
			origin{"10.0.0.1:1", "1.1.1.1"}, true},
		"invalid header of the proxy": {proxies, origin{"10.0.0.1:1", "unknown"}, origin{"10.0.0.1:1", ""}, true},
		"an IPv6 proxy": {proxies, origin{"[fd00::1]:1", "[2001:db8::1]:99"}, origin{"[fd00::1]:1",
			"2001:db8::2"}, true},
		"sockets without addresses": {nil, origin{"@", ""}, origin{"", ""}, true},
	} {
		o := options("https://as.example")
		o.Limits = authserver.LimitOptions{Metadata: authserver.Rate{Count: 1, Per: time.Hour},
			TrustedProxies: c.proxies}
		s := newServer(t, o)
		serveFrom(s, http.MethodGet, "/jwks", c.a.peer, c.a.forwarded)
		got := serveFrom(s, http.MethodGet, "/jwks", c.b.peer, c.b.forwarded).Code == http.StatusTooManyRequests
		if got != c.same {
			t.Errorf("%s: same address is %v, want %v", name, got, c.same)
		}
	}
}

// A customer with a /64 network often has the /56 or /48 network around it, with hundreds of
// separately limited networks.
func TestIPv6NetworksShareARate(t *testing.T) {
	for name, c := range map[string]struct {
		address string // of the nth client
		want    int
	}{
		"a /64":     {"[2001:db8::%x]:1", 2},
		"a /56":     {"[2001:db8:0:%x::1]:1", 8},
		"a /48":     {"[2001:db8:0:%x00::1]:1", 32},
		"many /48s": {"[2001:db8:%x::1]:1", 100},
		"IPv4":      {"192.0.2.%d:1", 100},
	} {
		o := options("https://as.example")
		o.Limits = authserver.LimitOptions{Metadata: authserver.Rate{Count: 2, Per: time.Hour}}
		s := newServer(t, o)
		served := 0
		for n := range 100 {
			if serveFrom(s, http.MethodGet, "/jwks", fmt.Sprintf(c.address, n)).Code == http.StatusOK {
				served++
			}
		}
		if served != c.want {
			t.Errorf("%s: %d of 100 clients are served, want %d", name, served, c.want)
		}
	}
}

func TestRefusedRequestsAreNotCountedByOtherLimits(t *testing.T) {
	o := options("https://as.example")
	o.Limits = authserver.LimitOptions{Metadata: authserver.Rate{Count: 2, Per: time.Hour}}
	s := newServer(t, o)
	for range 100 {
		serveFrom(s, http.MethodGet, "/jwks", "[2001:db8::1]:1")
	}
	if w := serveFrom(s, http.MethodGet, "/jwks", "[2001:db8:0:1::1]:1"); w.Code != http.StatusOK {
		t.Errorf("client in the same /56: status %d, want 200", w.Code)
	}
	for range 100 {
		authserver.AllowPasswordAttempt(s, "192.0.2.1:1", "alice")
	}
	if !authserver.AllowPasswordAttempt(s, "192.0.2.1:1", "bob") {
		t.Error("attempts for bob are refused after too many for alice")
	}
}

func TestNumberOfLimitedAddressesIsBounded(t *testing.T) {
	s := newServer(t, options("https://as.example"))
	for i := range authserver.MaxLimited + 500 {
		serveFrom(s, http.MethodGet, "/jwks", fmt.Sprintf("10.%d.%d.%d:1", i>>16, i>>8&255, i&255))
	}
	if n := authserver.LimitedKeys(s); n != authserver.MaxLimited {
		t.Errorf("%d addresses are remembered, want %d", n, authserver.MaxLimited)
	}
}

// FuzzForwardedFor checks that X-Forwarded-For is ignored unless the peer is a trusted proxy.
func FuzzForwardedFor(f *testing.F) {
	f.Add("1.1.1.1, 2.2.2.2")
	f.Add("[::1]:80,,unknown")
	f.Add(strings.Repeat("10.0.0.1,", 50))
	o := options("https://as.example")
	o.Logger = nil
	o.Limits.Metadata = authserver.Rate{Count: 1, Per: 1000 * time.Hour}
	o.Limits.TrustedProxies = []netip.Prefix{netip.MustParsePrefix("10.0.0.0/8")}
	f.Fuzz(func(t *testing.T, header string) {
		s, err := authserver.New(&o)
		if err != nil {
			t.Fatal(err)
		}
		if code := serveFrom(s, http.MethodGet, "/jwks", "192.0.2.1:1", header).Code; code != http.StatusOK {
			t.Errorf("first request: status %d, want 200", code)
		}
		if code := serveFrom(s, http.MethodGet, "/jwks", "192.0.2.1:1", "").Code; code != http.StatusTooManyRequests {
			t.Errorf("second request, without the header: status %d, want 429", code)
		}
		serveFrom(s, http.MethodGet, "/jwks", "10.0.0.1:1", header) // must not panic
	})
}
