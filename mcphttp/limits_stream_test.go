package mcphttp_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"runtime"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/patchbay-mcp/patchbay/mcp"
	"github.com/patchbay-mcp/patchbay/mcphttp"
)

// A discardWriter is an http.ResponseWriter that discards the body.
type discardWriter struct {
	header  http.Header
	flushed chan<- struct{} // receives a value at the first flush; may be nil
	first   sync.Once       // later flushes may be of keep-alive comments
}

func (w *discardWriter) Header() http.Header { return w.header }

func (w *discardWriter) Write(b []byte) (int, error) { return len(b), nil }

func (w *discardWriter) WriteHeader(int) {}

func (w *discardWriter) Flush() {
	if w.flushed != nil {
		w.first.Do(func() { w.flushed <- struct{}{} })
	}
}

func TestLimits_OfListensPerPrincipal(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := start(t, newTestCore(), nil)
		listen := func(subject string) int {
			body, headers := modernCall("subscriptions/listen", `"notifications":{}`, "Authorization: "+subject)
			return f.open(f.request(t.Context(), http.MethodPost, body, headers...)).StatusCode
		}
		for n := range 64 {
			if got := listen("ann"); got != 200 {
				t.Fatalf("subscription %d: got %d, want 200", n, got)
			}
		}
		if got := listen("ann"); got != 429 {
			t.Errorf("subscription 65: got %d, want 429", got)
		}
		if got := listen("bob"); got != 200 {
			t.Errorf("another principal: got %d, want 200", got)
		}
	})
}

func TestLimits_OfListensInAll(t *testing.T) {
	const most = 5_000 // the share of anonymous callers in 10,000
	core := newTestCore()
	core.causes = make(chan error, most)
	h := mcphttp.NewHandler(core, &mcphttp.Options{Logger: discardLogger})
	f := &fixture{t: t, host: "localhost:8765"}
	ctx, cancel := context.WithCancel(t.Context())
	body, headers := modernCall("subscriptions/listen", `"notifications":{}`)
	var listening sync.WaitGroup
	acknowledged := make(chan struct{}, most)
	for range most {
		r := f.request(ctx, http.MethodPost, body, headers...)
		listening.Go(func() { h.ServeHTTP(&discardWriter{header: http.Header{}, flushed: acknowledged}, r) })
	}
	for range most {
		<-acknowledged
	}
	try := func(method, params string) *httptest.ResponseRecorder {
		body, headers := modernCall(method, params)
		w := httptest.NewRecorder()
		h.ServeHTTP(w, f.request(ctx, http.MethodPost, body, headers...))
		return w
	}
	if w := try("subscriptions/listen", `"notifications":{}`); w.Code != 503 || w.Header().Get("Retry-After") == "" {
		t.Errorf("anonymous subscription 5,001: got %d %s, want 503", w.Code, w.Body)
	}
	if w := try("tools/call", `"name":"echo"`); w.Code != 200 {
		t.Errorf("call: got %d %s, want 200", w.Code, w.Body)
	}
	cancel()
	listening.Wait()
}

// Resuming after discarded events has status 404.
//
// Requirement: LHTTP-21
func TestResumedStreamHasNoGap(t *testing.T) {
	for notes, status := range map[int]int{1000: 200, 100_000: 404} { // more than 8 MiB
		t.Run(strconv.Itoa(notes), func(t *testing.T) {
			core := mcp.HandlerFunc(func(ctx context.Context, req *mcp.Request) (mcp.Result, error) {
				if req.Method == "server/discover" {
					return mcp.RawResult(`{"resultType":"complete","capabilities":{"tools":{}}}`), nil
				}
				for n := range notes {
					req.Notify(ctx, "notifications/message", fmt.Appendf(nil, `{"level":"info","data":%d}`, n))
				}
				return text("done"), nil
			})
			f := start(t, core, nil)
			s := f.initialize(november2025)
			resp := f.stream(s.post(t.Context(), callBody(1, "burst")))
			first := resp.next().ID
			for range notes + 1 {
				resp.next()
			}
			resp.expectEnd()
			got := f.do(http.MethodGet, "", append(s.headers, "Last-Event-ID: "+first)...)
			if got.status != status || status == 200 && strings.Count(got.body, "data: ") != notes+1 {
				t.Errorf("got %d with %d events, want %d", got.status, strings.Count(got.body, "data: "), status)
			}
		})
	}
}

// Requirement: MHTTP-06
func TestStreamsOfEveryKindCarryComments(t *testing.T) {
	for _, limit := range []struct {
		name  string
		opts  mcphttp.Options
		pause time.Duration
	}{
		{"default", mcphttp.Options{}, 15 * time.Second},
		{"option", mcphttp.Options{KeepAlive: time.Minute}, time.Minute},
	} {
		t.Run(limit.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				core := newTestCore()
				f := start(t, core, &limit.opts)
				body, headers := modernCall("subscriptions/listen", `"notifications":{}`)
				call, callHeaders := modernCall("tools/call", `"name":"notifywait"`)
				s := f.initialize(november2025)
				for name, r := range map[string]*http.Request{
					"subscription":      f.request(t.Context(), http.MethodPost, body, headers...),
					"call":              f.request(t.Context(), http.MethodPost, call, callHeaders...),
					"call of session":   s.post(t.Context(), callBody(1, "notifywait")),
					"stream of session": s.get(t.Context()),
					"HTTP+SSE":          nil,
				} {
					var resp *http.Response
					if r != nil {
						resp = f.open(r)
					} else {
						resp = f.initializedSSE(t.Context()).resp
					}
					buf := make([]byte, 1000)
					var pauses []time.Duration
					for last := time.Now(); len(pauses) < 1; {
						n, err := resp.Body.Read(buf)
						if err != nil {
							t.Errorf("%s: %v", name, err)
							break
						}
						if strings.HasPrefix(string(buf[:n]), ":") {
							pauses = append(pauses, time.Since(last))
						}
						last = time.Now()
					}
					if len(pauses) != 1 || pauses[0] != limit.pause {
						t.Errorf("%s: comment after %v, want %v", name, pauses, limit.pause)
					}
					go io.Copy(io.Discard, resp.Body)
				}
				for range 2 {
					core.proceed <- struct{}{}
				}
			})
		})
	}
}

// Events that a client does not read use a bounded amount of memory, block their own call for a
// bounded time, and do not slow down other clients.
func TestLimits_OfUnreadEvents(t *testing.T) {
	const budget = 16 << 20
	for _, limit := range []struct {
		name string
		opts mcphttp.Options
		time time.Duration
	}{
		{"default", mcphttp.Options{}, 30 * time.Second},
		{"option", mcphttp.Options{WriteTimeout: time.Second}, time.Second},
	} {
		for _, era := range []string{"modern", "session", "HTTP+SSE"} {
			t.Run(limit.name+"/"+era, func(t *testing.T) {
				synctest.Test(t, func(t *testing.T) {
					core := &largeOutputCore{ended: make(chan error, 1)}
					f := start(t, core, &limit.opts)
					other := f.initialize(november2025)
					conn := f.raw()
					var r *http.Request
					ctx, cancel := context.WithCancel(t.Context())
					defer cancel()
					switch era {
					case "modern":
						body, headers := modernCall("tools/call", `"name":"large"`)
						r = f.request(ctx, http.MethodPost, body, headers...)
					case "session":
						r = f.initialize(november2025).post(ctx, callBody(1, "large"))
					case "HTTP+SSE":
						c := conn.openSSE(f)
						c.post(initializeBody(november2024))
						synctest.Wait() // its response is on the stream
						c.post(callBody(1, "large"))
					}
					before, begin := heapInUse(), time.Now()
					if r != nil {
						go r.Write(conn)
					}
					synctest.Wait()
					for range 100 {
						if got := other.send(`{"jsonrpc":"2.0","id":1,"method":"ping"}`); got.status != 200 {
							t.Fatalf("another client: got %d %s, want 200", got.status, got.body)
						}
						if got := f.modern("tools/call", `"name":"echo"`); got.status != 200 {
							t.Fatalf("another client: got %d %s, want 200", got.status, got.body)
						}
					}
					if waited := time.Since(begin); waited != 0 {
						t.Errorf("other clients waited for %v", waited)
					}
					grown := heapInUse() - before
					t.Logf("after %d KiB the heap has grown by %d KiB", core.sent.Load()>>10, grown>>10)
					if grown > budget || core.sent.Load() > 3<<20 {
						t.Errorf("%d bytes were accepted and %d are stored, want at most 3 MiB and %d",
							core.sent.Load(), grown, budget)
					}
					err := <-core.ended
					if took := time.Since(begin); took != limit.time {
						t.Errorf("Notify was blocked for %v, want %v", took, limit.time)
					}
					switch era {
					case "session": // the client may resume, so the call continues and its events are stored
						if grown := heapInUse() - before; err != nil || grown > budget {
							t.Errorf("the call ended with %v and %d bytes are stored, want no error and at most %d",
								err, grown, budget)
						}
					default:
						if !errors.Is(err, mcp.ErrDisconnected) {
							t.Errorf("the call ended with %v, want ErrDisconnected", err)
						}
					}
				})
			})
		}
	}
}

// A largeOutputCore has the tool "large", which sends 100 MB of messages.
type largeOutputCore struct {
	testCore
	sent  atomic.Int64 // bytes that Notify accepted
	ended chan error
}

func (c *largeOutputCore) ServeMCP(ctx context.Context, req *mcp.Request) (mcp.Result, error) {
	if !strings.Contains(string(req.Params), `"large"`) {
		return c.testCore.ServeMCP(ctx, req)
	}
	params := fmt.Appendf(nil, `{"level":"info","data":"%010000d"}`, 0)
	var err error
	for n := 0; n < 100<<20 && err == nil; n += len(params) {
		if err = req.Notify(ctx, "notifications/message", params); err == nil {
			c.sent.Add(int64(len(params)))
		}
	}
	if err != nil && ctx.Err() != nil {
		err = context.Cause(ctx)
	}
	c.ended <- err
	return text("done"), err
}

// heapInUse returns the bytes in use after two collections, which empty every sync.Pool.
func heapInUse() int64 {
	runtime.GC()
	runtime.GC()
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return int64(m.HeapAlloc)
}

// A change does not wait for clients. The stream of a client that does not read ends.
func TestLimits_OfUnreadChanges(t *testing.T) {
	if testing.Short() {
		t.Skip("takes seconds")
	}
	synctest.Test(t, func(t *testing.T) {
		server := mcp.NewServer("s", "1", &mcp.ServerOptions{Logger: discardLogger})
		const resources = 100
		uri := func(n int) string { return fmt.Sprintf("mem:%d", n%resources) }
		for n := range resources {
			mcp.AddResource(server, &mcp.Resource{URI: uri(n), Name: "r"},
				func(context.Context, string) (string, error) { return "", nil })
		}
		f := start(t, server, nil)
		s := f.initialize(november2025)
		for n := range resources {
			s.send(fmt.Sprintf(`{"jsonrpc":"2.0","id":1,"method":"resources/subscribe","params":{"uri":%q}}`, uri(n)))
		}
		conn := f.raw()
		go s.get(t.Context()).Write(conn)
		synctest.Wait()
		before, begin := heapInUse(), time.Now()
		for n := range 100_000 {
			server.ResourceUpdated(uri(n))
		}
		if waited := time.Since(begin); waited != 0 {
			t.Errorf("ResourceUpdated was blocked for %v, want 0", waited)
		}
		if grown := heapInUse() - before; grown > 8<<20 {
			t.Errorf("the heap has grown by %d bytes, want a bounded amount", grown)
		}
		time.Sleep(time.Minute)
		if n, err := io.Copy(io.Discard, conn); err != nil || n > 4<<20 {
			t.Errorf("read %d bytes, %v; want the end of the stream", n, err)
		}
		events := f.stream(s.get(t.Context())) // the session may open a stream again
		synctest.Wait()
		server.ResourceUpdated(uri(7))
		for {
			e := events.next()
			if strings.Contains(string(e.Data), `"mem:7"`) {
				break
			}
		}
	})
}

// Responses that a client of HTTP+SSE does not read are bounded: further calls get status 429.
func TestLimits_OfUnreadResponsesOfHTTPSSE(t *testing.T) {
	const posts = 5000
	synctest.Test(t, func(t *testing.T) {
		f := start(t, newTestCore(), nil)
		c := f.raw().openSSE(f)
		c.post(initializeBody(november2024))
		synctest.Wait()
		before := heapInUse()
		pad := strings.Repeat("x", 5<<10)
		accepted := 0
		for id := range posts {
			got := c.send(fmt.Sprintf(`{"jsonrpc":"2.0","id":%d,"method":"tools/call","params":{"name":"echo",`+
				`"arguments":{"message":"%s"}}}`, id, pad))
			if got.status != http.StatusAccepted {
				if got.status != 429 || got.code() != mcp.CodeBusy || got.header.Get("Retry-After") == "" {
					t.Errorf("post %d: got %d %.300s, want 429", id, got.status, got.body)
				}
				break
			}
			accepted++
		}
		if accepted == posts {
			t.Errorf("all of %d posts were accepted although their responses were not read", accepted)
		}
		if grown := heapInUse() - before; grown > 16<<20 { // requests and responses have 50 MB
			t.Errorf("the heap has grown by %d bytes, want a bounded amount", grown)
		}
	})
}
