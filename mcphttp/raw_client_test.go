package mcphttp_test

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
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

// write sends bytes from a goroutine of its own, since the server may not read all of them.
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

// A poster sends the body of a request of one era and returns the HTTP response.
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
		return `{"jsonrpc":"2.0","id":` + id +
			`,"method":"tools/call","params":{"name":"echo","arguments":{"message":"` + text + `"}}}`
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
