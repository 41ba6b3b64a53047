package mcphttp_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/patchbay-mcp/patchbay/mcp"
	"github.com/patchbay-mcp/patchbay/mcphttp"
)

func TestLimits_OfBodies(t *testing.T) {
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
				for era, builder := range f.requestBuilders() {
					headWithLength := func(n int) string {
						return head(append(builder.headers,
							fmt.Sprintf("Content-Length: %d\r\n", n))...)
					}
					check := func(what string, status, code int, parts ...string) (conn *rawConn) {
						conn = f.raw()
						conn.write(parts...)
						if got := conn.readResponse(); got.status != status || got.code() != code {
							t.Errorf("%s, %s: got %d %.200s, want %d", era, what, got.status, got.body, status)
						}
						return conn
					}
					check("largest body", 200, 0, headWithLength(limit.max), builder.bodyOfSize(limit.max))
					check("largest body in chunks", 200, 0, builder.chunked(limit.max)...)
					begin := time.Now()
					conn := check("Content-Length too large", 413, mcp.CodeInvalidRequest,
						headWithLength(limit.max+1)) // and no byte of the body
					if waited := time.Since(begin); waited != 0 {
						t.Errorf("%s: the server waited %v for a body whose Content-Length is too large", era, waited)
					}
					conn.expectClosed()
					check("too large in chunks", 413, mcp.CodeInvalidRequest,
						builder.chunked(limit.max+1)...).expectClosed()
				}
			})
		})
	}
}

func TestLimits_CompressedBodiesAreRefused(t *testing.T) {
	f := start(t, newTestCore(), nil)
	for _, test := range []struct {
		encoding string
		status   int
	}{{"identity", 200}, {"gzip", 415}, {"br", 415}, {"deflate", 415}, {"x-gzip", 415}, {"identity, gzip",
		415}, {"IDENTITY", 200}} {
		got := f.modern("tools/call", `"name":"echo"`, "Content-Encoding: "+test.encoding)
		if got.status != test.status {
			t.Errorf("%s: got %d %s, want %d", test.encoding, got.status, got.body, test.status)
		}
	}
	if got := f.modern("tools/call", `"name":"echo"`, "Content-Encoding: identity",
		"Content-Encoding: gzip"); got.status != 400 {
		t.Errorf("two encodings: got %d, want 400", got.status)
	}
}

func TestLimits_OfHeaders(t *testing.T) {
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
			if got := conn.readResponse(); got.status != test.status {
				t.Errorf("%s/%s: got %d %s, want %d", limit.name, test.name, got.status, got.body, test.status)
			}
		}
	}
}

// serveInMemory runs Serve on a memListener until the test ends.
func serveInMemory(t *testing.T, core mcp.Handler, opts *mcphttp.Options) *fixture {
	o := *opts
	o.Logger = discardLogger
	f := &fixture{t: t, handler: mcphttp.NewHandler(core, &o), listener: newMemListener(), host: "localhost:8765"}
	ctx, stop := context.WithCancel(context.Background())
	done := make(chan error, 1)
	go func() { done <- mcphttp.Serve(ctx, f.listener, "/mcp", f.handler) }()
	transport := &http.Transport{
		DialContext: func(context.Context, string, string) (net.Conn, error) { return f.listener.dial() },
	}
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

// The http.Server that Serve runs refuses a header before it has read all of it, and limits the time
// to read a header and the time of an idle connection.
func TestLimits_OfServe(t *testing.T) {
	body, modernHeaders := modernCall("tools/call", `"name":"echo"`)
	base := head(strings.Join(modernHeaders, "\r\n")+"\r\n", fmt.Sprintf("Content-Length: %d\r\n", len(body)))
	synctest.Test(t, func(t *testing.T) {
		f := serveInMemory(t, newTestCore(), &mcphttp.Options{})
		for _, headers := range []string{"X-Pad: " + strings.Repeat("x", 200<<10) + "\r\n",
			strings.Repeat("X-Pad: x\r\n", 20<<10)} {
			conn := f.raw()
			conn.write(head(headers))
			if got := conn.readResponse(); got.status != 431 {
				t.Errorf("header of %d bytes: got %d %s, want 431", len(headers), got.status, got.body)
			}
			conn.expectClosed()
		}

		conn, begin := f.raw(), time.Now()
		conn.write(base[:len(base)/2])
		conn.expectClosed()
		if got := time.Since(begin); got != 10*time.Second {
			t.Errorf("the server waited %v for the rest of a header, want 10s", got)
		}

		conn = f.raw()
		conn.write(base, body)
		if got := conn.readResponse(); got.status != 200 {
			t.Errorf("got %d %s, want 200", got.status, got.body)
		}
		begin = time.Now()
		conn.expectClosed()
		if got := time.Since(begin); got != 120*time.Second {
			t.Errorf("an idle connection was open for %v, want 120s", got)
		}
	})
}

func TestLimits_OfTheTimeToReadABody(t *testing.T) {
	for _, limit := range []struct {
		name string
		opts mcphttp.Options
		time time.Duration
	}{
		{"default", mcphttp.Options{}, 10 * time.Second},
		{"option", mcphttp.Options{BodyTimeout: time.Second}, time.Second},
	} {
		for name, pace := range map[string]time.Duration{"nothing": time.Hour, "byte by byte": 100 * time.Millisecond,
			"a byte per second": time.Second} {
			t.Run(limit.name+"/"+name, func(t *testing.T) {
				synctest.Test(t, func(t *testing.T) {
					f := start(t, newTestCore(), &limit.opts)
					for era, builder := range f.requestBuilders() {
						conn, begin := f.raw(), time.Now()
						go func() {
							body := builder.bodyOfSize(1000)
							io.WriteString(conn, head(append(builder.headers, "Content-Length: 1000\r\n")...))
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
						if got := conn.readResponse(); got.status != 408 || got.code() != mcp.CodeInvalidRequest {
							t.Errorf("%s: got %d %s, want 408", era, got.status, got.body)
						}
						if got := time.Since(begin); got != limit.time {
							t.Errorf("%s: the server waited %v for the body, want %v", era, got, limit.time)
						}
						conn.expectClosed()
						conn.Close()
					}
				})
			})
		}
	}
}

// A slow body is read as long as it arrives at the least rate, until the time limit.
func TestLimits_SlowBodiesAreRead(t *testing.T) {
	for name, test := range map[string]struct {
		seconds int // at one KiB per second
		stop    int // the second in which the client stops; 0 for never
		status  int
		took    time.Duration
	}{
		"before the time limit": {29, 0, 200, 29 * time.Second},
		"after the time limit":  {31, 0, 408, 30 * time.Second},
		"stops":                 {29, 11, 408, 20 * time.Second},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				f := start(t, newTestCore(), nil)
				for era, builder := range f.requestBuilders() {
					conn, begin := f.raw(), time.Now()
					body := builder.bodyOfSize(test.seconds << 10)
					go func() {
						io.WriteString(conn, head(append(builder.headers, fmt.Sprintf("Content-Length: %d\r\n", len(body)))...))
						for n := range test.seconds {
							time.Sleep(time.Second)
							if test.stop > 0 && n >= test.stop {
								return
							}
							if _, err := io.WriteString(conn, body[n<<10:(n+1)<<10]); err != nil {
								return
							}
						}
					}()
					if got := conn.readResponse(); got.status != test.status {
						t.Errorf("%s: got %d %.200s, want %d", era, got.status, got.body, test.status)
					}
					if got := time.Since(begin); got != test.took {
						t.Errorf("%s: the response came after %v, want %v", era, got, test.took)
					}
					conn.Close()
					time.Sleep(time.Minute)
				}
			})
		})
	}
}

func TestLimits_OfTheTimeToShutDown(t *testing.T) {
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
						t.Errorf("Shutdown: got %v, want %v", err, test.err)
					}
					if took := time.Since(begin); took != test.took {
						t.Errorf("Shutdown took %v, want %v", took, test.took)
					}
					if test.cause != nil {
						if err := <-core.causes; !errors.Is(err, test.cause) {
							t.Errorf("cause of the call's end: got %v, want %v", err, test.cause)
						}
					}
					core.proceed <- struct{}{} // for the tool that ignores its context
					<-done
				})
			})
		}
	}
}
