package mcphttp_test

import (
	"fmt"
	"net/http"
	"testing"
	"testing/synctest"
	"time"

	"github.com/patchbay-mcp/patchbay/mcphttp"
)

// byClientHeader distinguishes anonymous callers in tests.
func byClientHeader(r *http.Request) string { return r.Header.Get("X-Client") }

// sessionOpeners open a session over each transport that has sessions.
var sessionOpeners = map[string]func(f *fixture, headers ...string) response{
	"Streamable HTTP": func(f *fixture, headers ...string) response {
		return f.do(http.MethodPost, initializeBody(november2025), headers...)
	},
	"HTTP+SSE": func(f *fixture, headers ...string) response {
		resp := f.open(f.request(f.t.Context(), http.MethodGet, "", headers...))
		return response{status: resp.StatusCode, header: resp.Header}
	},
}

// Anonymous callers cannot take the sessions that are reserved for principals.
func TestLimits_AnonymousSessionsLeaveHalfToPrincipals(t *testing.T) {
	for hostile, open := range sessionOpeners {
		for honest, openHonest := range sessionOpeners {
			t.Run(hostile+" against "+honest, func(t *testing.T) {
				synctest.Test(t, func(t *testing.T) {
					f := start(t, newTestCore(), &mcphttp.Options{Sessions: mcphttp.SessionOptions{Max: 20}})
					for range 40 {
						open(f)
					}
					for n := range 10 {
						if got := openHonest(f, "Authorization: ann"); got.status != 200 {
							t.Errorf("session %d of a principal: got %d %s, want 200", n, got.status, got.body)
						}
					}
				})
			})
		}
	}
}

// The anonymous session that was idle for the longest time ends when there is no room for another.
// Sessions that were never used end first.
func TestLimits_LongestIdleAnonymousSessionEnds(t *testing.T) {
	forEach(t, streamableRevisions, func(t *testing.T, revision string) {
		f := start(t, newTestCore(), &mcphttp.Options{Sessions: mcphttp.SessionOptions{Max: 8}})
		ping := func(s *testSession) int { return s.send(`{"jsonrpc":"2.0","id":1,"method":"ping"}`).status }
		first := f.initialize(revision)
		second := f.initialize(revision)
		busy := f.initialize(revision)
		events := f.stream(busy.get(t.Context()))
		defer events.resp.Body.Close()
		time.Sleep(time.Second)
		if got := ping(first); got != 200 { // so that the second one is idle for longer
			t.Fatalf("ping: got %d, want 200", got)
		}
		unused := f.do(http.MethodPost, initializeBody(revision))
		third := f.initialize(revision)
		got := f.do(http.MethodPost, `{"jsonrpc":"2.0","id":1,"method":"ping"}`,
			"Mcp-Session-Id: "+unused.header.Get("Mcp-Session-Id"))
		if got.status != 404 {
			t.Errorf("session that was never used: got %d, want 404", got.status)
		}
		fourth := f.initialize(revision)
		for _, test := range []struct {
			name    string
			session *testSession
			status  int
		}{{"first", first, 200}, {"second", second, 404}, {"busy", busy, 200}, {"third", third, 200},
			{"fourth", fourth, 200}} {
			if got := ping(test.session); got != test.status {
				t.Errorf("%s session: got %d, want %d", test.name, got, test.status)
			}
		}
	})
}

// With AnonymousKey an anonymous caller has a share, as a principal has.
func TestLimits_AnonymousCallersWithAKeyHaveShares(t *testing.T) {
	for name, open := range sessionOpeners {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				f := start(t, newTestCore(), &mcphttp.Options{AnonymousKey: byClientHeader,
					Sessions: mcphttp.SessionOptions{Max: 20, MaxPerPrincipal: 3}})
				for n := range 5 {
					want := 200
					if n >= 3 {
						want = 429
					}
					if got := open(f, "X-Client: mallory"); got.status != want {
						t.Errorf("session %d: got %d %s, want %d", n, got.status, got.body, want)
					}
				}
				for _, header := range []string{"X-Client: bob", "Authorization: mallory"} {
					if got := open(f, header); got.status != 200 {
						t.Errorf("%s: got %d %s, want 200", header, got.status, got.body)
					}
				}
			})
		})
	}
}

// Anonymous callers cannot take the subscriptions that are reserved for principals.
func TestLimits_AnonymousSubscriptionsLeaveHalfToPrincipals(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := start(t, newTestCore(), &mcphttp.Options{MaxListens: 10})
		listen := func(headers ...string) int {
			body, all := modernCall("subscriptions/listen", `"notifications":{}`, headers...)
			return f.open(f.request(t.Context(), http.MethodPost, body, all...)).StatusCode
		}
		for n := range 8 {
			want := 200
			if n >= 5 {
				want = 503
			}
			if got := listen(); got != want {
				t.Errorf("anonymous subscription %d: got %d, want %d", n, got, want)
			}
		}
		for n := range 5 {
			if got := listen(fmt.Sprint("Authorization: user", n)); got != 200 {
				t.Errorf("subscription of principal %d: got %d, want 200", n, got)
			}
		}
	})
}
