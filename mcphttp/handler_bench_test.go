package mcphttp_test

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/patchbay-mcp/patchbay/mcp"
	"github.com/patchbay-mcp/patchbay/mcphttp"
)

// A responseRecorder records the last response, without a connection.
type responseRecorder struct {
	header http.Header
	status int
	last   []byte
}

func (w *responseRecorder) Header() http.Header              { return w.header }
func (w *responseRecorder) WriteHeader(status int)           { w.status, w.last = status, w.last[:0] }
func (w *responseRecorder) SetReadDeadline(time.Time) error  { return nil }
func (w *responseRecorder) SetWriteDeadline(time.Time) error { return nil }
func (w *responseRecorder) Flush()                           {}

func (w *responseRecorder) Write(p []byte) (int, error) {
	w.last = append(w.last, p...)
	return len(p), nil
}

// A repeatedRequest sends one request to a handler repeatedly, without net/http.
type repeatedRequest struct {
	handler http.Handler
	request *http.Request
	body    *bytes.Reader
	writer  *responseRecorder
}

func newRepeatedRequest(h http.Handler, body string, header http.Header) *repeatedRequest {
	x := &repeatedRequest{handler: h, body: bytes.NewReader([]byte(body)),
		writer: &responseRecorder{header: http.Header{}}}
	x.request = httptest.NewRequest(http.MethodPost, "/mcp", nil)
	local := &net.TCPAddr{IP: net.IPv4(127, 0, 0, 1), Port: 8765}
	x.request = x.request.WithContext(context.WithValue(context.Background(), http.LocalAddrContextKey, local))
	x.request.Host, x.request.Header, x.request.ContentLength = "127.0.0.1:8765", header, int64(len(body))
	x.request.Body = io.NopCloser(x.body)
	return x
}

func (x *repeatedRequest) run() {
	_, _ = x.body.Seek(0, io.SeekStart)
	clear(x.writer.header)
	x.handler.ServeHTTP(x.writer, x.request)
}

// check checks that the last response has status 200 and contains want.
func (x *repeatedRequest) check(tb testing.TB, want string) {
	if x.writer.status != http.StatusOK || !strings.Contains(string(x.writer.last), want) {
		tb.Fatalf("got %d %.300s, want %q", x.writer.status, x.writer.last, want)
	}
}

func (x *repeatedRequest) bench(b *testing.B, want string) {
	b.ReportAllocs()
	for b.Loop() {
		x.run()
	}
	x.check(b, want)
}

func modernHeader() http.Header {
	return http.Header{
		"Content-Type": {"application/json"}, "Accept": {"application/json, text/event-stream"},
		"Content-Length":       {"300"},
		"Mcp-Protocol-Version": {modern}, "Mcp-Method": {"tools/call"}, "Mcp-Name": {"echo"},
	}
}

// Calls with a progress token.
var (
	progressBody        = strings.Replace(modernBody, `"_meta":{`, `"_meta":{"progressToken":1,`, 1)
	sessionProgressBody = strings.Replace(sessionBody, `"name"`, `"_meta":{"progressToken":1},"name"`, 1)
)

// sessionHeader opens a session and returns the header of its requests.
func sessionHeader(tb testing.TB, h http.Handler) http.Header {
	header := http.Header{"Content-Type": {"application/json"}, "Accept": {"application/json, text/event-stream"}}
	x := newRepeatedRequest(h, initializeBody(november2025), header)
	x.run()
	x.check(tb, "serverInfo")
	header["Mcp-Session-Id"] = x.writer.header["Mcp-Session-Id"]
	header["Mcp-Protocol-Version"] = []string{november2025}
	newRepeatedRequest(h, `{"jsonrpc":"2.0","method":"notifications/initialized"}`, header).run()
	return header
}

// echoServer returns a server with one tool, which sends the given number of progress notifications.
func echoServer(notes int) *mcp.Server {
	s := mcp.NewServer("s", "1", &mcp.ServerOptions{Logger: discardLogger})
	type in struct {
		Message string `json:"message"`
	}
	mcp.AddTool(s, &mcp.Tool{Name: "echo"}, func(ctx context.Context, in in) (string, error) {
		for i := range notes {
			mcp.Progress(ctx, float64(i+1), float64(notes), "")
		}
		return in.Message, nil
	})
	return s
}

// BenchmarkHandler measures a call from the request that net/http has read to the response.
func BenchmarkHandler(b *testing.B) {
	h := mcphttp.NewHandler(echoServer(0), nil)
	b.Run("modern", func(b *testing.B) { newRepeatedRequest(h, modernBody, modernHeader()).bench(b, "hello") })
	b.Run("session", func(b *testing.B) { newRepeatedRequest(h, sessionBody, sessionHeader(b, h)).bench(b, "hello") })
	one := mcphttp.NewHandler(echoServer(1), nil)
	b.Run("modern/progress", func(b *testing.B) {
		newRepeatedRequest(one, progressBody, modernHeader()).bench(b, "hello")
	})
	b.Run("session/progress", func(b *testing.B) {
		newRepeatedRequest(one, sessionProgressBody, sessionHeader(b, one)).bench(b, "hello")
	})
	many := mcphttp.NewHandler(echoServer(1000), nil)
	b.Run("modern/progress1000", func(b *testing.B) {
		newRepeatedRequest(many, progressBody, modernHeader()).bench(b, "hello")
	})
	canned := mcphttp.NewHandler(cannedCore, nil)
	b.Run("canned", func(b *testing.B) { newRepeatedRequest(canned, modernBody, modernHeader()).bench(b, "hello") })
}

// BenchmarkHandlerParallel measures calls on several goroutines, which must not block each other.
func BenchmarkHandlerParallel(b *testing.B) {
	h := mcphttp.NewHandler(cannedCore, nil)
	b.ReportAllocs()
	b.RunParallel(func(pb *testing.PB) {
		x := newRepeatedRequest(h, modernBody, modernHeader())
		for pb.Next() {
			x.run()
		}
	})
}

// BenchmarkList measures a list of a thousand tools, which the server caches encoded.
func BenchmarkList(b *testing.B) {
	s := mcp.NewServer("s", "1", &mcp.ServerOptions{Logger: discardLogger})
	for i := range 1000 {
		mcp.AddTool(s, &mcp.Tool{Name: fmt.Sprintf("tool_%04d", i), Description: "Return the message"},
			func(context.Context, struct{ Message string }) (string, error) { return "", nil })
	}
	h := mcphttp.NewHandler(s, nil)
	header := modernHeader()
	header["Mcp-Method"] = []string{"tools/list"}
	delete(header, "Mcp-Name")
	b.Run("modern", func(b *testing.B) {
		newRepeatedRequest(h, strings.Replace(modernBody, "tools/call", "tools/list", 1), header).bench(b, "tool_0999")
	})
	b.Run("session", func(b *testing.B) {
		const body = `{"jsonrpc":"2.0","id":1,"method":"tools/list"}`
		newRepeatedRequest(h, body, sessionHeader(b, h)).bench(b, "tool_0999")
	})
}
