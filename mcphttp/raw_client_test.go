package mcphttp_test

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/url"
	"strings"
	"testing"
	"time"
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

// write sends bytes on a new goroutine, because the server may not read all of them.
func (c *rawConn) write(parts ...string) {
	go func() {
		for _, part := range parts {
			if _, err := io.WriteString(c, part); err != nil {
				return
			}
		}
	}()
}

// readResponse reads one response.
func (c *rawConn) readResponse() response {
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
	return response{resp.StatusCode, resp.Header, string(body)}
}

// expectClosed waits until the server has closed the connection.
func (c *rawConn) expectClosed() {
	c.t.Helper()
	c.SetReadDeadline(time.Now().Add(5 * time.Minute))
	if b, err := c.reader.ReadByte(); !errors.Is(err, io.EOF) {
		c.t.Errorf("read %q, %v; want the connection to be closed", b, err)
	}
}

// head returns the head of a POST. Each of the given header lines ends with CR LF.
func head(headers ...string) string {
	return "POST /mcp HTTP/1.1\r\nHost: localhost:8765\r\nContent-Type: application/json\r\n" +
		"Accept: application/json, text/event-stream\r\n" + strings.Join(headers, "") + "\r\n"
}

// An sseClient is a client of HTTP+SSE, the transport of revision 2024-11-05: an event stream and the
// address of the endpoint for POST. Such clients send no Accept header with a POST, and no header with
// the version or the session.
type sseClient struct {
	*stream
	f       *fixture
	query   string   // of the endpoint
	headers []string // of every request
}

// openSSE opens the event stream and reads the event endpoint. The session is not initialized yet.
func (f *fixture) openSSE(ctx context.Context, headers ...string) *sseClient {
	f.t.Helper()
	get := f.request(ctx, http.MethodGet, "", append(headers, "Accept: text/event-stream")...)
	c := &sseClient{stream: f.stream(get), f: f, headers: headers}
	e := c.next()
	base, _ := url.Parse("http://" + f.host + "/mcp")
	target, err := base.Parse(string(e.Data))
	if e.Type != "endpoint" || err != nil || target.Host != base.Host || target.Path != base.Path {
		f.t.Fatalf("first event %s %q, %v; want an endpoint at %s", e.Type, e.Data, err, base)
	}
	c.query = target.RawQuery
	return c
}

// initializedSSE opens the event stream and the session.
func (f *fixture) initializedSSE(ctx context.Context, headers ...string) *sseClient {
	f.t.Helper()
	c := f.openSSE(ctx, headers...)
	c.post(initializeBody(november2024))
	got := c.next()
	if got.Type != "message" || !strings.Contains(string(got.Data), `"protocolVersion":"`+november2024+`"`) ||
		got.HasID {
		f.t.Fatalf("initialize: got %s %s, want a message without an id", got.Type, got.Data)
	}
	c.post(`{"jsonrpc":"2.0","method":"notifications/initialized"}`)
	return c
}

// post sends a message and checks that the response is 202 with an empty body.
func (c *sseClient) post(body string) {
	c.t.Helper()
	if got := c.send(body); got.status != http.StatusAccepted || got.body != "" {
		c.t.Fatalf("%.100s: got %d %q, want 202 and an empty body", body, got.status, got.body)
	}
}

// send sends a message and returns the response.
func (c *sseClient) send(body string) response {
	c.t.Helper()
	return c.f.do(http.MethodPost, body, append([]string{"Query: " + c.query, "Accept: "}, c.headers...)...)
}

// A requestBuilder builds calls of the tool "echo" for one era.
type requestBuilder struct {
	headers []string // each with CR LF
	request func(id, text string) string
}

// modernBuilder returns the requestBuilder of the modern era.
func modernBuilder() requestBuilder {
	return requestBuilder{crlf(modernHeaders("echo")), func(id, text string) string {
		body, _ := modernCall("tools/call", `"name":"echo","arguments":{"message":"`+text+`"}`)
		return strings.Replace(body, `"id":1`, `"id":`+id, 1)
	}}
}

func crlf(headers []string) (lines []string) {
	for _, h := range headers {
		lines = append(lines, h+"\r\n")
	}
	return lines
}

// requestBuilders returns a requestBuilder for each era.
func (f *fixture) requestBuilders() map[string]requestBuilder {
	session := f.initialize(november2025)
	plain := func(id, text string) string {
		return `{"jsonrpc":"2.0","id":` + id +
			`,"method":"tools/call","params":{"name":"echo","arguments":{"message":"` + text + `"}}}`
	}
	return map[string]requestBuilder{"modern": modernBuilder(), "session": {crlf(session.headers), plain}}
}

// chunked returns the parts of a request with a body of n bytes in chunks.
func (b requestBuilder) chunked(n int) []string {
	body := b.bodyOfSize(n)
	parts := []string{head(append(b.headers, "Transfer-Encoding: chunked\r\n")...)}
	for len(body) > 0 {
		part := body[:min(len(body), 1<<16)]
		body = body[len(part):]
		parts = append(parts, fmt.Sprintf("%x\r\n%s\r\n", len(part), part))
	}
	return append(parts, "0\r\n\r\n")
}

// bodyOfSize returns the body of a request, of n bytes.
func (b requestBuilder) bodyOfSize(n int) string {
	return b.request("1", strings.Repeat("x", n-len(b.request("1", ""))))
}

// openSSE opens the event stream of HTTP+SSE and reads only its first event.
func (c *rawConn) openSSE(f *fixture) *sseClient {
	c.t.Helper()
	c.write("GET /mcp HTTP/1.1\r\nHost: localhost:8765\r\nAccept: text/event-stream\r\n\r\n")
	resp, err := http.ReadResponse(c.reader, nil) // not closed, since Close reads the rest of the body
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
