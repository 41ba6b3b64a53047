package mcphttp_test

import (
	"context"
	"encoding/json"
	"errors"
	"io"
	"net"
	"net/http"
	"strings"
	"sync"
	"testing"
	"testing/synctest"

	"github.com/patchbay-mcp/patchbay/jsonrpc"
	"github.com/patchbay-mcp/patchbay/mcp"
	"github.com/patchbay-mcp/patchbay/mcp/driver"
	"github.com/patchbay-mcp/patchbay/mcphttp"
)

// A byteLimiter closes one connection when a number of bytes have passed on all connections in one
// direction. Later connections are not limited.
type byteLimiter struct {
	reads     bool // from the server; else to it
	mu        sync.Mutex
	remaining int
	cut       bool
}

type limitedConn struct {
	net.Conn
	*byteLimiter
}

func (c *byteLimiter) allow(n int) (passes int, cut bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.cut || n <= c.remaining {
		c.remaining -= n
		return n, false
	}
	c.cut = true
	return c.remaining, true
}

func (c limitedConn) Read(p []byte) (int, error) {
	n, err := c.Conn.Read(p)
	if !c.reads {
		return n, err
	}
	passes, cut := c.allow(n)
	if cut {
		c.Conn.Close()
		return passes, io.EOF
	}
	return n, err
}

func (c limitedConn) Write(p []byte) (int, error) {
	if c.reads {
		return c.Conn.Write(p)
	}
	passes, cut := c.allow(len(p))
	n, err := c.Conn.Write(p[:passes])
	if cut {
		c.Conn.Close()
		return n, io.ErrClosedPipe
	}
	return n, err
}

// A countingCore counts the calls of each tool.
type countingCore struct {
	*testCore
	mu   sync.Mutex
	runs map[string]int
}

func (c *countingCore) ServeMCP(ctx context.Context, req *mcp.Request) (mcp.Result, error) {
	var p struct{ Name string }
	_ = json.Unmarshal(req.Params, &p)
	c.mu.Lock()
	c.runs[p.Name]++
	c.mu.Unlock()
	return c.testCore.ServeMCP(ctx, req)
}

// A cutTest is an exchange whose connection is closed at some byte, or not at all if whole.
type cutTest struct {
	*testing.T
	tr    *mcphttp.Transport
	core  *countingCore
	whole bool
}

// checkError reports whether err is an error of a call. It checks that the tool has run at most
// once, and not at all if the error says so.
func (t *cutTest) checkError(err error, tool string) bool {
	t.core.mu.Lock()
	ran := t.core.runs[tool]
	t.core.mu.Unlock()
	if tool != "" && ran > 1 {
		t.Errorf("%s ran %d times", tool, ran)
	}
	if err == nil {
		return false
	}
	if t.whole || !mayHaveRun(t, err) && tool != "" && ran > 0 {
		t.Errorf("got %v after %d runs, want no error or one that matches", err, ran)
	}
	return true
}

// cutExchanges are what a client does. They fail the test if the client receives anything but the
// responses or a typed error.
var cutExchanges = map[string]func(t *cutTest){
	"modern JSON": func(t *cutTest) { t.modern("echo") },
	"modern SSE":  func(t *cutTest) { t.modern("notify") },
	"modern 400":  func(t *cutTest) { t.modern("missing") },
	march2025:     func(t *cutTest) { t.session(march2025) },
	november2025:  func(t *cutTest) { t.session(november2025) },
	november2024:  func(t *cutTest) { t.session(november2024) },
}

func (t *cutTest) modern(tool string) {
	req := modernRequest(t, "tools/call", `"name":"`+tool+`","arguments":{"message":"echo"}`)
	res, err := t.tr.RoundTrip(t.Context(), req)
	remote := (*mcp.Error)(nil)
	switch {
	case err == nil:
		if !strings.Contains(string(res.(mcp.RawResult)), `"text":"`+tool+`"`) {
			t.Errorf("got %s, want the result", res)
		}
	case errors.As(err, &remote):
		if tool != "missing" || remote.Code != driver.CodeMissingRequiredClientCapability {
			t.Errorf("got %v, want the error of the tool", err)
		}
	default:
		if status := (*mcphttp.StatusError)(nil); tool == "missing" && errors.As(err, &status) &&
			status.StatusCode == 400 {
			return // closed after the status, which is enough
		}
		t.checkError(err, tool)
	}
}

func (t *cutTest) session(version string) {
	conn, err := t.tr.OpenSession(t.Context(), func(*jsonrpc.Message) {})
	if err != nil {
		t.Fatal(err)
	}
	c := &sessionClient{SessionConn: conn, t: t}
	m, err := c.try(t.Context(), "initialize",
		`{"protocolVersion":"`+version+`","capabilities":{},"clientInfo":{"name":"test","version":"1"}}`)
	if t.checkError(err, "") || m.Error != nil {
		return
	}
	if t.checkError(c.Send(t.Context(), &jsonrpc.Message{Method: "notifications/initialized"}), "") {
		return
	}
	if _, err := c.try(t.Context(), "logging/setLevel", `{"level":"debug"}`); t.checkError(err, "") {
		return
	}
	for _, tool := range []string{"notify", "echo"} {
		m, err := c.try(t.Context(), "tools/call", `{"name":"`+tool+`","arguments":{"message":"echo"}}`)
		if !t.checkError(err, tool) && !strings.Contains(string(m.Result), `"text":"`+tool+`"`) {
			t.Errorf("got %s, want the result", jsonrpc.Append(nil, m))
		}
	}
	c.Close()
}

// The connection of each exchange is closed at every byte, in both directions. The caller receives
// the response or an error that says whether the request may have run. The synctest bubble shows
// that nothing blocks.
func TestTransport_ConnectionClosedAtEveryByte(t *testing.T) {
	if testing.Short() {
		t.Skip("takes seconds")
	}
	for name, exchange := range cutExchanges {
		for _, reads := range []bool{true, false} {
			direction := map[bool]string{true: "from the server", false: "to the server"}[reads]
			t.Run(name+" "+direction, func(t *testing.T) {
				const unlimited = 1 << 20
				all := unlimited - runWithCut(t, name, exchange, &byteLimiter{reads: reads, remaining: unlimited}, true)
				step := 1
				if testing.Short() {
					step = 17
				}
				for n := 0; n < all; n += step {
					runWithCut(t, name, exchange, &byteLimiter{reads: reads, remaining: n}, false)
					if t.Failed() {
						t.Fatalf("closed after %d of %d bytes", n, all)
					}
				}
			})
		}
	}
}

// runWithCut runs an exchange and returns the number of bytes that may still pass.
func runWithCut(t *testing.T, name string, exchange func(t *cutTest), c *byteLimiter, whole bool) (remaining int) {
	synctest.Test(t, func(t *testing.T) {
		core := &countingCore{testCore: newTestCore(), runs: map[string]int{}}
		f := start(t, core, nil)
		network := f.client.Transport.(*http.Transport)
		network.DialContext = func(context.Context, string, string) (net.Conn, error) {
			conn, err := f.listener.dial()
			return limitedConn{conn, c}, err
		}
		client := f.client
		if name == november2024 {
			client = &http.Client{Transport: roundTripper(func(r *http.Request) (*http.Response, error) {
				if r.Method == http.MethodPost && r.URL.RawQuery == "" {
					return methodRefuser{nil, http.MethodPost, 405}.RoundTrip(r)
				}
				return network.RoundTrip(r)
			})}
		}
		exchange(&cutTest{T: t, tr: f.transport(&mcphttp.TransportOptions{Client: client}), core: core, whole: whole})
		c.mu.Lock()
		defer c.mu.Unlock()
		remaining = c.remaining
	})
	return remaining
}
