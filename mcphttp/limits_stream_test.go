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

// A discardWriter is a response that is discarded and never slow.
type discardWriter struct {
	header  http.Header
	flushed chan<- struct{} // gets one for the first flush; may be nil
	first   sync.Once       // what follows may be signs of life, any number on a slow machine
}

func (w *discardWriter) Header() http.Header { return w.header }

func (w *discardWriter) Write(b []byte) (int, error) { return len(b), nil }

func (w *discardWriter) WriteHeader(int) {}

func (w *discardWriter) Flush() {
	if w.flushed != nil {
		w.first.Do(func() { w.flushed <- struct{}{} })
	}
}

func TestR7_2_ListensOfAPrincipal(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := start(t, newTestCore(), nil)
		listen := func(who string) int {
			body, headers := modernCall("subscriptions/listen", `"notifications":{}`, "Authorization: "+who)
			return f.open(f.request(t.Context(), http.MethodPost, body, headers...)).StatusCode
		}
		for n := range 64 {
			if got := listen("ann"); got != 200 {
				t.Fatalf("subscription %d: got %d", n, got)
			}
		}
		if got := listen("ann"); got != 429 {
			t.Errorf("subscription 65: got %d, want 429", got)
		}
		if got := listen("bob"); got != 200 {
			t.Errorf("someone else: got %d", got)
		}
	})
}

func TestR7_2_ListensInAll(t *testing.T) {
	const most = 10_000
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
		t.Errorf("subscription 10,001: got %d %s, want 503", w.Code, w.Body)
	}
	if w := try("tools/call", `"name":"echo"`); w.Code != 200 {
		t.Errorf("a call beside them: got %d %s", w.Code, w.Body)
	}
	cancel()
	listening.Wait()
}

// Resuming after discarded events is a 404, and not a stream with a gap.
func TestR7_2_ResumedStreamHasNoGap(t *testing.T) {
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

func TestR7_2_KeepAlive(t *testing.T) {
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
					var heard []time.Duration
					for last := time.Now(); len(heard) < 1; {
						n, err := resp.Body.Read(buf)
						if err != nil {
							t.Errorf("%s: %v", name, err)
							break
						}
						if strings.HasPrefix(string(buf[:n]), ":") {
							heard = append(heard, time.Since(last))
						}
						last = time.Now()
					}
					if len(heard) != 1 || heard[0] != limit.pause {
						t.Errorf("%s: comments come after %v, want %v", name, heard, limit.pause)
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

// Whatever a client does not read, it costs the server a bounded amount of memory and its sender's patience, and it costs
// other clients nothing.
func TestR7_2_UnreadEventsAreBounded(t *testing.T) {
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
						body, headers := modernCall("tools/call", `"name":"flood"`)
						r = f.request(ctx, http.MethodPost, body, headers...)
					case "session":
						r = f.initialize(november2025).post(ctx, callBody(1, "flood"))
					case "HTTP+SSE":
						c := conn.openSSE(f)
						c.post(initializeBody(november2024))
						synctest.Wait() // its answer is on the stream
						c.post(callBody(1, "flood"))
					}
					before, begin := heapInUse(), time.Now()
					if r != nil {
						go r.Write(conn)
					}
					synctest.Wait()
					for range 100 {
						if got := other.send(`{"jsonrpc":"2.0","id":1,"method":"ping"}`); got.status != 200 {
							t.Fatalf("another client got %d %s", got.status, got.body)
						}
						if got := f.modern("tools/call", `"name":"echo"`); got.status != 200 {
							t.Fatalf("another client got %d %s", got.status, got.body)
						}
					}
					if waited := time.Since(begin); waited != 0 {
						t.Errorf("other clients waited for %v", waited)
					}
					grown := heapInUse() - before
					t.Logf("after %d KiB the heap has grown by %d KiB", core.sent.Load()>>10, grown>>10)
					if grown > budget || core.sent.Load() > 3<<20 {
						t.Errorf("%d bytes were taken and %d kept, want at most 3 MiB and %d", core.sent.Load(),
							grown, budget)
					}
					err := <-core.ended
					if took := time.Since(begin); took != limit.time {
						t.Errorf("the sender was held back for %v, want %v", took, limit.time)
					}
					switch era {
					case "session": // the client may come back: the call goes on, and what is kept for it is bounded too
						if grown := heapInUse() - before; err != nil || grown > budget {
							t.Errorf("the call ended with %v and %d bytes are kept", err, grown)
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

// A floodCore has a tool that sends 100 MB of messages.
type largeOutputCore struct {
	testCore
	sent  atomic.Int64 // bytes that were taken
	ended chan error
}

func (c *largeOutputCore) ServeMCP(ctx context.Context, req *mcp.Request) (mcp.Result, error) {
	if !strings.Contains(string(req.Params), `"flood"`) {
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
	return text("flooded"), err
}

// heapInUse returns the bytes in use after a collection that empties the pools.
func heapInUse() int64 {
	runtime.GC()
	runtime.GC()
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return int64(m.HeapAlloc)
}

// A notification of a change never waits for a client. A client that does not read loses the
// stream.
func TestR7_2_UnreadChanges(t *testing.T) {
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
			t.Errorf("whoever told of changes waited for %v", waited)
		}
		if grown := heapInUse() - before; grown > 8<<20 {
			t.Errorf("the heap has grown by %d bytes", grown)
		}
		time.Sleep(time.Minute)
		if n, err := io.Copy(io.Discard, conn); err != nil || n > 4<<20 {
			t.Errorf("read %d bytes, %v; want the end of the stream", n, err)
		}
		events := f.stream(s.get(t.Context())) // the place is free again
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

// A client that posts and never reads its stream cannot pile up answers either.
func TestR7_2_UnreadAnswersOfHTTPSSE(t *testing.T) {
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
			got := c.send(fmt.Sprintf(`{"jsonrpc":"2.0","id":%d,"method":"tools/call","params":{"name":"echo","arguments":{"message":"%s"}}}`, id, pad))
			if got.status != http.StatusAccepted {
				if got.status != 429 || got.code() != mcp.CodeBusy || got.header.Get("Retry-After") == "" {
					t.Errorf("post %d: got %d %.300s, want 429", id, got.status, got.body)
				}
				break
			}
			accepted++
		}
		if accepted == posts {
			t.Errorf("%d posts were accepted and none of their answers was read", accepted)
		}
		if grown := heapInUse() - before; grown > 16<<20 { // of 50 MB of requests and answers if nothing bounded them
			t.Errorf("the heap has grown by %d bytes", grown)
		}
	})
}
