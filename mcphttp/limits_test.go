package mcphttp_test

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
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

// A rawConn is a connection on which a test writes HTTP by hand.
type rawConn struct {
	net.Conn
	t      *testing.T
	reader *bufio.Reader
}

func (f *fixture) raw() *rawConn {
	f.t.Helper()
	conn, err := f.listener.dial()
	if err != nil {
		f.t.Fatal(err)
	}
	f.t.Cleanup(func() { conn.Close() })
	return &rawConn{conn, f.t, bufio.NewReader(conn)}
}

// write sends bytes beside the test, since nobody may want to read them all.
func (c *rawConn) write(parts ...string) {
	go func() {
		for _, part := range parts {
			if _, err := io.WriteString(c, part); err != nil {
				return
			}
		}
	}()
}

// answer reads one response.
func (c *rawConn) answer() answer {
	c.t.Helper()
	resp, err := http.ReadResponse(c.reader, nil)
	if err != nil {
		c.t.Fatalf("no response: %v", err)
	}
	defer resp.Body.Close()
	body, err := io.ReadAll(resp.Body)
	if err != nil {
		c.t.Fatal(err)
	}
	return answer{resp.StatusCode, resp.Header, string(body)}
}

// ended waits until the server has closed the connection.
func (c *rawConn) ended() {
	c.t.Helper()
	c.SetReadDeadline(time.Now().Add(5 * time.Minute))
	if b, err := c.reader.ReadByte(); !errors.Is(err, io.EOF) {
		c.t.Errorf("read %q, %v; want the connection to be closed", b, err)
	}
}

// head is the head of a POST; each header line ends with CR LF.
func head(headers ...string) string {
	return "POST /mcp HTTP/1.1\r\nHost: localhost:8765\r\nContent-Type: application/json\r\nAccept: application/json, text/event-stream\r\n" +
		strings.Join(headers, "") + "\r\n"
}

// An sseClient is a client of the oldest revision: an event stream, and an address to post to.
type sseClient struct {
	*stream
	f       *fixture
	query   string
	headers []string
}

// openSSE opens the event stream. The session is not initialized yet.
func (f *fixture) openSSE(ctx context.Context, headers ...string) *sseClient {
	f.t.Helper()
	c := &sseClient{stream: f.stream(f.request(ctx, http.MethodGet, "", headers...)), f: f, headers: headers}
	e := c.next()
	c.query = strings.TrimPrefix(string(e.Data), "?")
	if e.Type != "endpoint" || !strings.HasPrefix(c.query, "sessionId=") {
		f.t.Fatalf("the first event is %s %q", e.Type, e.Data)
	}
	return c
}

// initializedSSE opens the event stream and the session.
func (f *fixture) initializedSSE(ctx context.Context, headers ...string) *sseClient {
	f.t.Helper()
	c := f.openSSE(ctx, headers...)
	c.post(initializeBody(november2024))
	if got := c.next(); !strings.Contains(string(got.Data), `"protocolVersion":"`+november2024+`"`) {
		f.t.Fatalf("initialize: %s", got.Data)
	}
	c.post(`{"jsonrpc":"2.0","method":"notifications/initialized"}`)
	return c
}

// post sends a message that has to be accepted.
func (c *sseClient) post(body string) {
	c.t.Helper()
	if got := c.try(body); got.status != http.StatusAccepted {
		c.t.Fatalf("%.100s: got %d %s", body, got.status, got.body)
	}
}

func (c *sseClient) try(body string, headers ...string) answer {
	c.t.Helper()
	all := append([]string{"Query: " + c.query}, c.headers...)
	return c.f.do(http.MethodPost, body, append(all, headers...)...)
}

// A poster sends the body of a request in one of the eras and gives the response to the HTTP request.
type poster struct {
	headers []string // each with CR LF
	request func(id, pad string) string
}

// posters are a client of each kind. The requests are calls of "echo" with a text of a given length.
func (f *fixture) posters() map[string]poster {
	line := func(headers []string) (lines []string) {
		for _, h := range headers {
			lines = append(lines, h+"\r\n")
		}
		return lines
	}
	modernHeaders := func() []string { _, h := modernCall("tools/call", `"name":"echo"`); return h }()
	session := f.initialize(november2025)
	plain := func(id, text string) string {
		return `{"jsonrpc":"2.0","id":` + id + `,"method":"tools/call","params":{"name":"echo","arguments":{"message":"` + text + `"}}}`
	}
	return map[string]poster{
		"modern": {line(modernHeaders), func(id, text string) string {
			body, _ := modernCall("tools/call", `"name":"echo","arguments":{"message":"`+text+`"}`)
			return strings.Replace(body, `"id":1`, `"id":`+id, 1)
		}},
		"session": {line(session.headers), plain},
	}
}

// chunked returns the parts of a request of n bytes that does not say how long it is.
func (p poster) chunked(n int) []string {
	body := p.sized(n)
	parts := []string{head(append(p.headers, "Transfer-Encoding: chunked\r\n")...)}
	for len(body) > 0 {
		part := body[:min(len(body), 1<<16)]
		body = body[len(part):]
		parts = append(parts, fmt.Sprintf("%x\r\n%s\r\n", len(part), part))
	}
	return append(parts, "0\r\n\r\n")
}

// sized returns a request of n bytes.
func (p poster) sized(n int) string {
	return p.request("1", strings.Repeat("x", n-len(p.request("1", ""))))
}

func TestR7_2_Body(t *testing.T) {
	for _, limit := range []struct {
		name string
		opts mcphttp.Options
		max  int
	}{
		{"default", mcphttp.Options{}, 4 << 20},
		{"option", mcphttp.Options{MaxBody: 1000}, 1000},
	} {
		t.Run(limit.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				f := start(t, newTestCore(), &limit.opts)
				for era, p := range f.posters() {
					announced := func(n int) string { return head(append(p.headers, fmt.Sprintf("Content-Length: %d\r\n", n))...) }
					check := func(what string, status, code int, parts ...string) (conn *rawConn) {
						conn = f.raw()
						conn.write(parts...)
						if got := conn.answer(); got.status != status || got.code() != code {
							t.Errorf("%s, %s: got %d %.200s, want %d", era, what, got.status, got.body, status)
						}
						return conn
					}
					check("all", 200, 0, announced(limit.max), p.sized(limit.max))
					check("all in chunks", 200, 0, p.chunked(limit.max)...)
					begin := time.Now()
					conn := check("too much announced", 413, mcp.CodeInvalidRequest, announced(limit.max+1)) // and not one byte of it sent
					if waited := time.Since(begin); waited != 0 {
						t.Errorf("%s: a body that is announced to be too large was waited on for %v", era, waited)
					}
					conn.ended()
					check("too much in chunks", 413, mcp.CodeInvalidRequest, p.chunked(limit.max+1)...).ended()
				}
			})
		})
	}
}

func TestR7_2_CompressedBody(t *testing.T) {
	f := start(t, newTestCore(), nil)
	for _, test := range []struct {
		encoding string
		status   int
	}{{"identity", 200}, {"gzip", 415}, {"br", 415}, {"deflate", 415}, {"x-gzip", 415}, {"identity, gzip", 415}, {"IDENTITY", 200}} {
		got := f.modern("tools/call", `"name":"echo"`, "Content-Encoding: "+test.encoding)
		if got.status != test.status {
			t.Errorf("%s: got %d %s, want %d", test.encoding, got.status, got.body, test.status)
		}
	}
	if got := f.modern("tools/call", `"name":"echo"`, "Content-Encoding: identity", "Content-Encoding: gzip"); got.status != 400 {
		t.Errorf("two encodings: got %d", got.status)
	}
}

func TestR7_2_HeaderBlock(t *testing.T) {
	body, modernHeaders := modernCall("tools/call", `"name":"echo"`)
	base := strings.Join(modernHeaders, "\r\n") + fmt.Sprintf("\r\nContent-Length: %d\r\n", len(body))
	lines := func(n int) string { // with Content-Type and Accept
		n -= strings.Count(base, "\r\n") + 2
		return base + strings.Repeat("X-Line: x\r\n", n)
	}
	size := func(n int) string {
		all := len("/mcp") + len(head(base)) - len("POST /mcp HTTP/1.1\r\nHost: localhost:8765\r\n\r\n")
		return base + "X-Pad: " + strings.Repeat("x", n-all-len("X-Pad: \r\n")) + "\r\n"
	}
	for _, limit := range []struct {
		name         string
		opts         mcphttp.Options
		lines, bytes int
	}{
		{"default", mcphttp.Options{}, 100, 64 << 10},
		{"option", mcphttp.Options{MaxHeaderLines: 20, MaxHeaderBytes: 2000}, 20, 2000},
	} {
		f := start(t, newTestCore(), &limit.opts)
		for _, test := range []struct {
			name, headers string
			status        int
		}{
			{"lines", lines(limit.lines), 200},
			{"one line more", lines(limit.lines + 1), 431},
			{"bytes", size(limit.bytes), 200},
			{"one byte more", size(limit.bytes + 1), 431},
		} {
			conn := f.raw()
			conn.write(head(test.headers), body)
			if got := conn.answer(); got.status != test.status {
				t.Errorf("%s/%s: got %d %s, want %d", limit.name, test.name, got.status, got.body, test.status)
			}
		}
	}
}

// served runs Serve on a network in memory until the test ends.
func servedInMemory(t *testing.T, core mcp.Handler, opts *mcphttp.Options) *fixture {
	o := *opts
	o.Logger = quiet
	f := &fixture{t: t, handler: mcphttp.NewHandler(core, &o), listener: newMemListener(), host: "localhost:8765"}
	ctx, stop := context.WithCancel(context.Background())
	done := make(chan error, 1)
	go func() { done <- mcphttp.Serve(ctx, f.listener, "/mcp", f.handler) }()
	transport := &http.Transport{DialContext: func(context.Context, string, string) (net.Conn, error) { return f.listener.dial() }}
	f.client = &http.Client{Transport: transport}
	t.Cleanup(func() {
		transport.CloseIdleConnections()
		stop()
		if err := <-done; err != nil {
			t.Errorf("Serve: %v", err)
		}
		f.listener.Close()
	})
	return f
}

// The server that Serve runs bounds the header block before it has read all of it, and the times in which a client has
// to say something.
func TestR7_2_LimitsOfServe(t *testing.T) {
	body, modernHeaders := modernCall("tools/call", `"name":"echo"`)
	base := head(strings.Join(modernHeaders, "\r\n")+"\r\n", fmt.Sprintf("Content-Length: %d\r\n", len(body)))
	synctest.Test(t, func(t *testing.T) {
		f := servedInMemory(t, newTestCore(), &mcphttp.Options{})
		for _, headers := range []string{"X-Pad: " + strings.Repeat("x", 200<<10) + "\r\n", strings.Repeat("X-Pad: x\r\n", 20<<10)} {
			conn := f.raw()
			conn.write(head(headers))
			if got := conn.answer(); got.status != 431 {
				t.Errorf("a header block of %d bytes: got %d %s", len(headers), got.status, got.body)
			}
			conn.ended()
		}

		conn, begin := f.raw(), time.Now()
		conn.write(base[:len(base)/2])
		conn.ended()
		if got := time.Since(begin); got != 10*time.Second {
			t.Errorf("half a head was waited on for %v, want 10s", got)
		}

		conn = f.raw()
		conn.write(base, body)
		if got := conn.answer(); got.status != 200 {
			t.Errorf("got %d %s", got.status, got.body)
		}
		begin = time.Now()
		conn.ended()
		if got := time.Since(begin); got != 120*time.Second {
			t.Errorf("an idle connection was kept for %v, want 120s", got)
		}
	})
}

func TestR7_2_BodyTime(t *testing.T) {
	for _, limit := range []struct {
		name string
		opts mcphttp.Options
		time time.Duration
	}{
		{"default", mcphttp.Options{}, 30 * time.Second},
		{"option", mcphttp.Options{BodyTimeout: time.Second}, time.Second},
	} {
		for name, pace := range map[string]time.Duration{"nothing": time.Hour, "byte by byte": 100 * time.Millisecond} {
			t.Run(limit.name+"/"+name, func(t *testing.T) {
				synctest.Test(t, func(t *testing.T) {
					f := start(t, newTestCore(), &limit.opts)
					for era, p := range f.posters() {
						conn, begin := f.raw(), time.Now()
						go func() {
							body := p.sized(1000)
							io.WriteString(conn, head(append(p.headers, "Content-Length: 1000\r\n")...))
							for i := range body {
								select {
								case <-time.After(pace):
								case <-t.Context().Done():
									return
								}
								if _, err := io.WriteString(conn, body[i:i+1]); err != nil {
									return
								}
							}
						}()
						if got := conn.answer(); got.status != 408 || got.code() != mcp.CodeInvalidRequest {
							t.Errorf("%s: got %d %s, want 408", era, got.status, got.body)
						}
						if got := time.Since(begin); got != limit.time {
							t.Errorf("%s: the body was waited on for %v, want %v", era, got, limit.time)
						}
						conn.ended()
						conn.Close()
					}
				})
			})
		}
	}
}

func TestR7_2_MessagesOnHTTP(t *testing.T) {
	f := start(t, newTestCore(), nil)
	nested := func(depth int) string { return strings.Repeat("[", depth) + strings.Repeat("]", depth) }
	keys := func(n int) string {
		var b strings.Builder
		for i := range n {
			fmt.Fprintf(&b, `,"k%d":0`, i)
		}
		return "{" + b.String()[1:] + "}"
	}
	with := func(id, member string) string {
		body, _ := modernCall("tools/call", `"name":"echo","x":`+member)
		return strings.Replace(body, `"id":1`, `"id":`+id, 1)
	}
	_, headers := modernCall("tools/call", `"name":"echo"`)
	session := f.initialize(november2025)
	for _, test := range []struct {
		name, body string
		code       int
		id         string
	}{
		{"depth", with(`7`, nested(62)), 0, `7`},
		{"depth + 1", with(`7`, nested(63)), mcp.CodeInvalidRequest, `7`},
		{"keys", with(`7`, keys(10_000)), 0, `7`},
		{"keys + 1", with(`7`, keys(10_001)), mcp.CodeInvalidRequest, `7`},
		{"id", with(`"`+strings.Repeat("i", 256)+`"`, `0`), 0, `"` + strings.Repeat("i", 256) + `"`},
		{"id + 1", with(`"`+strings.Repeat("i", 257)+`"`, `0`), mcp.CodeInvalidRequest, ``},
		{"digits", with(strings.Repeat("9", 20), `0`), 0, strings.Repeat("9", 20)},
		{"digits + 1", with(strings.Repeat("9", 21), `0`), mcp.CodeInvalidRequest, ``},
	} {
		for era, headers := range map[string][]string{"modern": headers, "session": session.headers} {
			body := test.body
			if era == "session" {
				body = body[:strings.Index(body, `,"_meta"`)] + "}}"
			}
			got := f.do(http.MethodPost, body, headers...)
			status := http.StatusOK
			if test.code != 0 {
				status = http.StatusBadRequest
			}
			hasID := strings.Contains(got.body, `"id":`+test.id+`,`) && test.id != "" || test.id == "" && !strings.Contains(got.body, `"id":`)
			if got.status != status || got.code() != test.code || !hasID {
				t.Errorf("%s, %s: got %d %.300s, want %d, code %d and id %q", test.name, era, got.status, got.body, status, test.code, test.id)
			}
		}
	}
}

func TestR7_2_CallsInFlightOfASession(t *testing.T) {
	const most = 256
	synctest.Test(t, func(t *testing.T) {
		core := newTestCore()
		core.started, core.causes = make(chan struct{}, 2*most), make(chan error, 2*most)
		f := start(t, core, nil)
		s := f.initialize(november2025)
		done := make(chan answer, most)
		for id := range most {
			go func() { done <- s.send(callBody(id+1, "stubborn")) }()
		}
		synctest.Wait()
		busy := func() {
			t.Helper()
			got := s.send(callBody(1000, "echo"))
			if got.status != 429 || got.code() != mcp.CodeBusy || got.header.Get("Retry-After") != "1" || !strings.Contains(got.body, `"retryAfterMs":1000`) {
				t.Errorf("got %d %s, want 429", got.status, got.body)
			}
		}
		busy()
		s.send(`{"jsonrpc":"2.0","method":"notifications/cancelled","params":{"requestId":1}}`)
		busy() // a call that was cancelled counts until its handler returns
		if got := f.initialize(november2025).send(callBody(1, "echo")); got.status != 200 {
			t.Errorf("another session: got %d %s", got.status, got.body)
		}
		if got := f.modern("tools/call", `"name":"echo"`); got.status != 200 {
			t.Errorf("a client without a session: got %d %s", got.status, got.body)
		}
		core.proceed <- struct{}{}
		<-done
		if got := s.send(callBody(1000, "echo")); got.status != 200 {
			t.Errorf("after one has ended: got %d %s", got.status, got.body)
		}
		for range most - 1 {
			core.proceed <- struct{}{}
			<-done
		}
	})
}

// A call beyond what the whole server can do is another matter than one beyond the client's share.
func TestR7_2_CallsInFlightOfAServer(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		server := mcp.NewServer("s", "1", &mcp.ServerOptions{MaxInFlight: 2, Logger: quiet})
		proceed := make(chan struct{})
		mcp.AddTool(server, &mcp.Tool{Name: "wait"}, func(context.Context, struct{}) (string, error) { <-proceed; return "", nil })
		f := start(t, server, nil)
		s := f.initialize(november2025)
		done := make(chan answer, 2)
		for range 2 {
			go func() { done <- f.modern("tools/call", `"name":"wait"`) }()
		}
		synctest.Wait()
		for era, got := range map[string]answer{"modern": f.modern("tools/call", `"name":"wait"`), "session": s.send(`{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"wait"}}`)} {
			if got.status != 503 || got.code() != mcp.CodeBusy || got.header.Get("Retry-After") != "1" {
				t.Errorf("%s: got %d %s, want 503", era, got.status, got.body)
			}
		}
		for range 2 {
			proceed <- struct{}{}
			<-done
		}
	})
}

func TestR7_2_SessionsOfAPrincipal(t *testing.T) {
	for name, open := range map[string]func(f *fixture, who string) answer{
		"Streamable HTTP": func(f *fixture, who string) answer {
			return f.do(http.MethodPost, initializeBody(november2025), "Authorization: "+who)
		},
		"HTTP+SSE": func(f *fixture, who string) answer {
			resp := f.open(f.request(f.t.Context(), http.MethodGet, "", "Authorization: "+who))
			return answer{status: resp.StatusCode, header: resp.Header}
		},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				f := start(t, newTestCore(), nil)
				for n := range 64 {
					if got := open(f, "ann"); got.status != 200 {
						t.Fatalf("session %d: got %d %s", n, got.status, got.body)
					}
				}
				if got := open(f, "ann"); got.status != 429 || got.header.Get("Retry-After") == "" {
					t.Errorf("session 65: got %d %s, want 429", got.status, got.body)
				}
				if got := open(f, "bob"); got.status != 200 {
					t.Errorf("someone else: got %d %s", got.status, got.body)
				}
			})
		})
	}
}

func TestR7_2_SessionsInAll(t *testing.T) {
	f := start(t, newTestCore(), &mcphttp.Options{Sessions: mcphttp.SessionOptions{Max: 2}})
	f.openSSE(t.Context())
	f.initialize(november2025)
	for method, body := range map[string]string{http.MethodGet: "", http.MethodPost: initializeBody(november2025)} {
		if got := f.do(method, body); got.status != 503 || got.header.Get("Retry-After") == "" || got.code() != mcp.CodeBusy {
			t.Errorf("%s: got %d %s, want 503", method, got.status, got.body)
		}
	}
}

func TestR7_2_SessionTimes(t *testing.T) {
	for _, limit := range []struct {
		name       string
		opts       mcphttp.SessionOptions
		idle, init time.Duration
	}{
		{"default", mcphttp.SessionOptions{}, 30 * time.Minute, 30 * time.Second},
		{"option", mcphttp.SessionOptions{IdleTimeout: time.Minute, InitTimeout: 2 * time.Second}, time.Minute, 2 * time.Second},
	} {
		t.Run(limit.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				f := start(t, newTestCore(), &mcphttp.Options{Sessions: limit.opts})
				// A session may be found idle a little later: one timer looks after all.
				late := min(limit.idle, limit.init)/4 + time.Millisecond
				status := func(id string) int {
					return f.do(http.MethodPost, `{"jsonrpc":"2.0","id":1,"method":"ping"}`, "Mcp-Session-Id: "+id).status
				}
				open := func() string { return f.do(http.MethodPost, initializeBody(november2025)).header.Get("Mcp-Session-Id") }

				unused, used, kept := open(), open(), open()
				time.Sleep(limit.init - time.Millisecond)
				if got := status(used); got != 200 {
					t.Errorf("a session that is used just in time: got %d", got)
				}
				status(kept)
				time.Sleep(time.Millisecond + late)
				if got := status(unused); got != 404 {
					t.Errorf("a session that was not used: got %d", got)
				}
				time.Sleep(limit.idle - late - 2*time.Millisecond)
				if got := status(kept); got != 200 {
					t.Errorf("a session that was used again just in time: got %d", got)
				}
				time.Sleep(2*time.Millisecond + late)
				if got := status(used); got != 404 {
					t.Errorf("an idle session: got %d", got)
				}

				begin, c := time.Now(), f.openSSE(t.Context())
				c.ends()
				if got := time.Since(begin); got != limit.init {
					t.Errorf("a stream without initialize was open for %v, want %v", got, limit.init)
				}
				c = f.initializedSSE(t.Context())
				pinged := make(chan struct{})
				go func() {
					defer close(pinged)
					time.Sleep(2 * limit.idle)
					c.post(`{"jsonrpc":"2.0","id":1,"method":"ping"}`)
				}()
				if got := c.next(); string(got.Data) != `{"jsonrpc":"2.0","id":1,"result":{}}` {
					t.Errorf("a session whose stream is open: %s", got.Data)
				}
				<-pinged
			})
		})
	}
}

// A discardWriter is a response that nobody reads. It cannot be slow.
type discardWriter struct {
	header  http.Header
	flushed chan<- struct{} // gets one for the first flush; may be nil
	first   sync.Once       // what follows may be signs of life, any number on a slow machine
}

func (w *discardWriter) Header() http.Header         { return w.header }
func (w *discardWriter) Write(b []byte) (int, error) { return len(b), nil }
func (w *discardWriter) WriteHeader(int)             {}

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
	h := mcphttp.NewHandler(core, &mcphttp.Options{Logger: quiet})
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

// What is no longer kept of a stream is a 404, and not a stream with a hole.
func TestR7_2_ResumedStreamHasNoGap(t *testing.T) {
	for notes, status := range map[int]int{998: 200, 1000: 404} { // with the empty first event and the result
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
			resp.ends()
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
func TestR7_2_UnreadEventsCostLittleAndNobodyElse(t *testing.T) {
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
					core := &floodCore{ended: make(chan error, 1)}
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
						t.Errorf("%d bytes were taken and %d kept, want at most 3 MiB and %d", core.sent.Load(), grown, budget)
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

// openSSE opens the event stream of HTTP+SSE, reads its first event, and no more.
func (c *rawConn) openSSE(f *fixture) *sseClient {
	c.t.Helper()
	c.write("GET /mcp HTTP/1.1\r\nHost: localhost:8765\r\nAccept: text/event-stream\r\n\r\n")
	resp, err := http.ReadResponse(c.reader, nil) // not to be closed: that would read all the rest
	if err != nil {
		c.t.Fatal(err)
	}
	var event strings.Builder
	for one := make([]byte, 1); !strings.HasSuffix(event.String(), "\n\n"); event.Write(one) {
		if _, err := io.ReadFull(resp.Body, one); err != nil {
			c.t.Fatal(err)
		}
	}
	_, data, _ := strings.Cut(event.String(), "data: ?")
	return &sseClient{stream: &stream{t: c.t, resp: resp}, f: f, query: strings.TrimSpace(data)}
}

// A floodCore has a tool that sends 100 MB of messages.
type floodCore struct {
	testCore
	sent  atomic.Int64 // bytes that were taken
	ended chan error
}

func (c *floodCore) ServeMCP(ctx context.Context, req *mcp.Request) (mcp.Result, error) {
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

// What a server tells without being asked waits for nobody: whoever does not read it loses the stream.
func TestR7_2_UnreadChanges(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		server := mcp.NewServer("s", "1", &mcp.ServerOptions{Logger: quiet})
		const resources = 100
		uri := func(n int) string { return fmt.Sprintf("mem:%d", n%resources) }
		for n := range resources {
			mcp.AddResource(server, &mcp.Resource{URI: uri(n), Name: "r"}, func(context.Context, string) (string, error) { return "", nil })
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
			got := c.try(fmt.Sprintf(`{"jsonrpc":"2.0","id":%d,"method":"tools/call","params":{"name":"echo","arguments":{"message":"%s"}}}`, id, pad))
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

func TestR7_2_ShutdownDrain(t *testing.T) {
	for _, test := range []struct {
		tool  string
		drain time.Duration
		took  time.Duration
		err   error
		cause error
	}{
		{"wait", 12 * time.Second, 10 * time.Second, nil, mcp.ErrShutdown},
		{"wait", time.Second, time.Second / 2, nil, mcp.ErrShutdown},
		{"stubborn", 12 * time.Second, 12 * time.Second, context.DeadlineExceeded, nil},
	} {
		for _, era := range []string{"modern", "session", "HTTP+SSE"} {
			t.Run(fmt.Sprint(test.tool, " ", test.drain, "/", era), func(t *testing.T) {
				synctest.Test(t, func(t *testing.T) {
					core := newTestCore()
					f := start(t, core, nil)
					done := make(chan struct{})
					go func() {
						defer close(done)
						switch era {
						case "modern":
							f.modern("tools/call", fmt.Sprintf(`"name":%q`, test.tool))
						case "session":
							f.initialize(november2025).send(callBody(1, test.tool))
						default:
							c := f.initializedSSE(t.Context())
							c.post(callBody(1, test.tool))
							io.Copy(io.Discard, c.resp.Body)
						}
					}()
					<-core.started
					begin := time.Now()
					ctx, cancel := context.WithTimeout(t.Context(), test.drain)
					defer cancel()
					if err := f.handler.Shutdown(ctx); !errors.Is(err, test.err) {
						t.Errorf("Shutdown: %v, want %v", err, test.err)
					}
					if took := time.Since(begin); took != test.took {
						t.Errorf("it took %v, want %v", took, test.took)
					}
					if test.cause != nil {
						if err := <-core.causes; !errors.Is(err, test.cause) {
							t.Errorf("the cause is %v, want %v", err, test.cause)
						}
					}
					core.proceed <- struct{}{} // for the one that does not listen
					<-done
				})
			})
		}
	}
}
