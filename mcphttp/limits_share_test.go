package mcphttp_test

import (
	"fmt"
	"io"
	"net/http"
	"runtime"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/patchbay-mcp/patchbay/mcp"
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

// callFromEachEra returns functions that call a tool as one caller, from the era of their name.
func callFromEachEra(f *fixture, headers ...string) map[string]func(tool string) response {
	session := f.initialize(november2025, headers...)
	var id atomic.Int32 // of a request of the session
	return map[string]func(tool string) response{
		"modern":  func(tool string) response { return f.modern("tools/call", fmt.Sprintf(`"name":%q`, tool), headers...) },
		"session": func(tool string) response { return session.send(callBody(int(id.Add(1)), tool)) },
	}
}

// A caller cannot take the requests in progress of others, in either era.
func TestLimits_OfCallsInFlightPerPrincipal(t *testing.T) {
	const limit = 256
	for _, era := range []string{"modern", "session", "HTTP+SSE"} {
		t.Run(era, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				core := newTestCore()
				core.started, core.causes = make(chan struct{}, 2*limit), make(chan error, 2*limit)
				f := start(t, core, nil)
				ann := callFromEachEra(f, "Authorization: ann")
				if era == "HTTP+SSE" {
					c := f.initializedSSE(t.Context(), "Authorization: ann")
					id := 0
					go func() { io.Copy(io.Discard, c.resp.Body) }()
					ann[era] = func(tool string) response { id++; return c.send(callBody(id, tool)) }
				}
				for range limit {
					if era == "HTTP+SSE" {
						ann[era]("stubborn")
					} else {
						go ann[era]("stubborn")
					}
				}
				synctest.Wait()
				for name, call := range ann {
					if got := call("echo"); got.status != 429 || got.code() != mcp.CodeBusy ||
						got.header.Get("Retry-After") != "1" {
						t.Errorf("call %d, %s: got %d %s, want 429 with Retry-After 1", limit+1, name, got.status, got.body)
					}
				}
				for name, call := range callFromEachEra(f, "Authorization: bob") {
					if got := call("echo"); got.status != 200 {
						t.Errorf("another principal, %s: got %d %s, want 200", name, got.status, got.body)
					}
				}
				for range limit {
					core.proceed <- struct{}{}
				}
				synctest.Wait()
				if got := ann["modern"]("echo"); got.status != 200 {
					t.Errorf("after the calls: got %d %s, want 200", got.status, got.body)
				}
			})
		})
	}
}

// Anonymous callers together cannot take the requests in progress that are reserved for principals.
func TestLimits_AnonymousCallsLeaveHalfToPrincipals(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		core := newTestCore()
		f := start(t, core, &mcphttp.Options{MaxInFlight: 8})
		anonymous := callFromEachEra(f)
		var calls sync.WaitGroup
		for range 2 {
			for _, call := range anonymous {
				calls.Go(func() { call("wait") })
			}
		}
		synctest.Wait()
		for era, call := range anonymous {
			if got := call("echo"); got.status != 503 || got.code() != mcp.CodeBusy {
				t.Errorf("anonymous call, %s: got %d %s, want 503", era, got.status, got.body)
			}
		}
		for era, call := range callFromEachEra(f, "Authorization: ann") {
			if got := call("echo"); got.status != 200 {
				t.Errorf("principal, %s: got %d %s, want 200", era, got.status, got.body)
			}
		}
		for range 4 {
			core.proceed <- struct{}{}
		}
		calls.Wait()
	})
}

// All callers together are limited too, in either era.
func TestLimits_OfCallsInFlightOfAllPrincipals(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		core := newTestCore()
		f := start(t, core, &mcphttp.Options{MaxInFlight: 8, MaxInFlightPerPrincipal: 4})
		var calls sync.WaitGroup
		for _, name := range []string{"ann", "bob"} {
			for _, call := range callFromEachEra(f, "Authorization: "+name) {
				calls.Go(func() { call("wait") })
				calls.Go(func() { call("wait") })
			}
		}
		third := callFromEachEra(f, "Authorization: cleo")
		synctest.Wait()
		for era, call := range third {
			if got := call("echo"); got.status != 503 || got.code() != mcp.CodeBusy || got.header.Get("Retry-After") != "1" {
				t.Errorf("call 9, %s: got %d %s, want 503 with Retry-After 1", era, got.status, got.body)
			}
		}
		for range 8 {
			core.proceed <- struct{}{}
		}
		calls.Wait()
	})
}

// Bodies that are being read are limited by their bytes, in total and for one caller.
func TestLimits_OfBodiesInMemory(t *testing.T) {
	if testing.Short() {
		t.Skip("takes seconds")
	}
	for name, test := range map[string]struct {
		header string // with %d for one of 5 callers
		bodies int
		status int
		others int // status of another principal
	}{
		"principal":  {"Authorization: ann\r\n", 15, 429, 200}, // of 4 MiB and a byte each
		"anonymous":  {"", 31, 503, 200},
		"principals": {"Authorization: user%d\r\n", 63, 503, 503},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				f := start(t, newTestCore(), nil)
				builder := f.requestBuilders()["modern"]
				body := builder.bodyOfSize(4 << 20)
				begin := func(n int) *rawConn {
					caller := strings.ReplaceAll(test.header, "%d", fmt.Sprint(n%5))
					conn := f.raw()
					conn.write(head(append(builder.headers, caller, fmt.Sprintf("Content-Length: %d\r\n", len(body)))...),
						body[:1<<20])
					return conn
				}
				var conns []*rawConn
				for n := range test.bodies {
					conns = append(conns, begin(n))
				}
				synctest.Wait()
				conn := begin(test.bodies)
				if got := conn.readResponse(); got.status != test.status || got.header.Get("Retry-After") == "" {
					t.Errorf("one body more: got %d %s, want %d", got.status, got.body, test.status)
				}
				conn.Close()
				if got := f.modern("tools/call", `"name":"echo"`); got.status != 200 {
					t.Errorf("small body: got %d %s, want 200", got.status, got.body)
				}
				bob := append(modernHeaders("echo"), "Authorization: bob")
				if got := f.do(http.MethodPost, body, bob...); got.status != test.others {
					t.Errorf("another principal: got %d %.200s, want %d", got.status, got.body, test.others)
				}
				for i, conn := range conns {
					conn.write(body[1<<20:])
					if got := conn.readResponse(); got.status != 200 {
						t.Errorf("body %d: got %d %.200s, want 200", i, got.status, got.body)
					}
				}
				if got := f.do(http.MethodPost, body, modernHeaders("echo")...); got.status != 200 {
					t.Errorf("after the bodies: got %d %.200s, want 200", got.status, got.body)
				}
				time.Sleep(time.Second) // net/http waits before it closes a connection whose body it did not read
			})
		})
	}
}

func modernHeaders(tool string) []string {
	_, headers := modernCall("tools/call", fmt.Sprintf(`"name":%q`, tool))
	return headers
}

// The filters of open subscriptions are limited by their bytes, apart from bodies.
func TestLimits_OfFiltersInMemory(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		core := newTestCore()
		core.causes = make(chan error, 1000)
		f := start(t, core, &mcphttp.Options{MaxListensPerPrincipal: 1000})
		pad := strings.Repeat("x", 300<<10)
		accepted := 0
		for ; accepted < 1000; accepted++ {
			body, headers := modernCall("subscriptions/listen", `"notifications":{},"x":"`+pad+`"`, "Authorization: ann")
			if resp := f.open(f.request(t.Context(), http.MethodPost, body, headers...)); resp.StatusCode != 200 {
				if resp.StatusCode != 429 {
					t.Errorf("subscription %d: got %d, want 429", accepted, resp.StatusCode)
				}
				break
			}
		}
		if kept := accepted * len(pad); kept > 32<<20 || kept < 30<<20 {
			t.Errorf("%d subscriptions keep %d bytes, want at most 32 MiB", accepted, kept)
		}
		body := f.requestBuilders()["modern"].bodyOfSize(4 << 20)
		if got := f.do(http.MethodPost, body, append(modernHeaders("echo"), "Authorization: ann")...); got.status != 200 {
			t.Errorf("large body: got %d %.200s, want 200", got.status, got.body)
		}
		time.Sleep(time.Second) // net/http waits before it closes a connection whose body it did not read
	})
}

// An open subscription keeps its filter and not the rest of its body.
func TestLimits_OpenSubscriptionsDoNotHoldBodies(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := start(t, newTestCore(), nil)
		listen, headers := modernCall("subscriptions/listen", `"notifications":{}`)
		listen += strings.Repeat(" ", 4<<20-len(listen))
		heap := func() int64 {
			var m runtime.MemStats
			runtime.GC()
			runtime.ReadMemStats(&m)
			return int64(m.HeapAlloc)
		}
		before := heap()
		const n = 40
		for i := range n {
			resp := f.open(f.request(t.Context(), http.MethodPost, listen, headers...))
			if resp.StatusCode != 200 {
				t.Fatalf("subscription %d: got %d, want 200", i, resp.StatusCode)
			}
		}
		body := f.requestBuilders()["modern"].bodyOfSize(4 << 20)
		if got := f.do(http.MethodPost, body, modernHeaders("echo")...); got.status != 200 {
			t.Errorf("large body: got %d %.200s, want 200", got.status, got.body)
		}
		if kept := (heap() - before) / n; kept > 1<<20 {
			t.Errorf("an open subscription keeps %d bytes, want at most 1 MiB", kept)
		}
	})
}
