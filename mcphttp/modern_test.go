package mcphttp_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/patchbay-mcp/patchbay/jsonrpc"
	"github.com/patchbay-mcp/patchbay/mcp"
	"github.com/patchbay-mcp/patchbay/mcp/driver"
	"github.com/patchbay-mcp/patchbay/mcphttp"
)

// Requirement: HTTP-06, HTTP-14
func TestResponseIsJSON(t *testing.T) {
	f := start(t, newTestCore(), nil)
	got := f.modern("tools/call", `"name":"echo","arguments":{"message":"héllo\n"}`)
	const want = `{"jsonrpc":"2.0","id":1,"result":{"resultType":"complete","content":[{"type":"text","text":"héllo\n"}]}}`
	if got.status != 200 || got.body != want || got.header.Get("Content-Type") != "application/json" {
		t.Errorf("got %d %s %q, want %s", got.status, got.header, got.body, want)
	}
	if got := f.modern("tools/call", `"name":"lines"`); strings.ContainsAny(got.body, "\r\n") {
		t.Errorf("result of several lines: got %q, want one line", got.body)
	}
}

// Requirement: MHTTP-13, MHTTP-15, MHTTP-17
func TestStatusFollowsTheError(t *testing.T) {
	f := start(t, newTestCore(), nil)
	for _, test := range []struct {
		name, method, params string
		status, code         int
	}{
		{"success", "tools/call", `"name":"echo"`, 200, 0},
		{"unknown method", "no/such", ``, 404, mcp.CodeMethodNotFound}, // Requirement: MHTTP-13
		{"T-14 initialize with an envelope", "initialize", ``, 404, mcp.CodeMethodNotFound},
		// Requirement: MHTTP-15
		{"missing capability", "tools/call", `"name":"missing"`, 400, driver.CodeMissingRequiredClientCapability},
		// Requirement: MHTTP-17
		{"another error", "tools/call", `"name":"error"`, 200, mcp.CodeInvalidParams},
		{"panic", "tools/call", `"name":"panic"`, 200, mcp.CodeInternalError},
		{"busy", "tools/call", `"name":"busy"`, 503, mcp.CodeBusy},
		{"busy in older revisions", "tools/call", `"name":"implementation code"`, 200, -32000}, // Requirement: RPC-28
	} {
		t.Run(test.name, func(t *testing.T) {
			got := f.modern(test.method, test.params)
			if got.status != test.status || got.code() != test.code || !strings.Contains(got.body, `"id":1`) {
				t.Errorf("got %d %s, want %d with code %d and the request's id", got.status, got.body, test.status,
					test.code)
			}
			if test.name == "busy" && got.header.Get("Retry-After") != "2" {
				t.Errorf("Retry-After: got %q, want 2", got.header.Get("Retry-After"))
			}
		})
	}
}

// The conformance suite sends the same requests.
//
// Requirement: MHTTP-14, MHTTP-16, MHTTP-23
func TestFirstFailedCheckDecides(t *testing.T) {
	f := start(t, newTestCore(), nil)
	body := func(meta string) string {
		return `{"jsonrpc":"2.0","id":"x","method":"server/discover","params":{` + meta + `}}`
	}
	version := func(v string) string {
		return fmt.Sprintf(`"_meta":{"io.modelcontextprotocol/protocolVersion":%q,`+
			`"io.modelcontextprotocol/clientCapabilities":{}}`, v)
	}
	const header, method = "MCP-Protocol-Version: ", "Mcp-Method: server/discover"
	for _, test := range []struct {
		name, body string
		headers    []string
		status     int
		code       int
	}{
		{"no _meta", body(""), []string{header + modern, method}, 400, mcp.CodeInvalidParams}, // Requirement: META-10
		// Requirement: META-10
		{"no _meta is checked before the method header", body(""), []string{header + modern}, 400,
			mcp.CodeInvalidParams},
		{"no version", body(`"_meta":{"io.modelcontextprotocol/clientCapabilities":{}}`), // Requirement: META-10
			[]string{header + modern, method}, 400, mcp.CodeInvalidParams},
		// Requirement: META-10
		{"no capabilities", body(`"_meta":{"io.modelcontextprotocol/protocolVersion":"2026-07-28"}`),
			[]string{header + modern, method}, 400, mcp.CodeInvalidParams},
		// Requirement: META-11
		{"no client info", body(version(modern)), []string{header + modern, method}, 200, 0},
		// Requirement: MHTTP-22
		{"no version header", body(version(modern)), []string{method}, 400, driver.CodeHeaderMismatch},
		// Requirement: HDR-02
		{"header differs from body", body(version("v999.0.0")), []string{header + modern, method}, 400,
			driver.CodeHeaderMismatch},
		// Requirement: HDR-02
		{"header with an older version", body(version(modern)), []string{header + november2025, method}, 400,
			driver.CodeHeaderMismatch},
		// Requirement: MHTTP-14
		{"unknown version", body(version("v999.0.0")), []string{header + "v999.0.0", method}, 400,
			driver.CodeUnsupportedProtocolVersion},
		{"version that needs initialize", body(version(november2025)), // Requirement: MHTTP-14
			[]string{header + november2025, method}, 400, driver.CodeUnsupportedProtocolVersion},
		// Requirement: HDR-09
		{"no method header", body(version(modern)), []string{header + modern}, 400, driver.CodeHeaderMismatch},
		{"the method header is checked before the version", body(version("v999.0.0")), // Requirement: HDR-09
			[]string{header + "v999.0.0"}, 400,
			driver.CodeHeaderMismatch},
		{"method in upper case", body(version(modern)), // Requirement: HDR-07
			[]string{header + modern, "Mcp-Method: SERVER/DISCOVER"}, 400, driver.CodeHeaderMismatch},
		{"session header is ignored", body(version(modern)), // Requirement: MHTTP-12
			[]string{header + modern, method, "Mcp-Session-Id: nonsense"}, 200, 0},
		{"last event is ignored", body(version(modern)), // Requirement: MHTTP-07
			[]string{header + modern, method, "Last-Event-ID: 1"}, 200, 0},
	} {
		t.Run(test.name, func(t *testing.T) {
			got := f.do(http.MethodPost, test.body, test.headers...)
			if got.status != test.status || got.code() != test.code || !strings.Contains(got.body, `"id":"x"`) {
				t.Errorf("got %d %s, want %d with code %d and the request's id", got.status, got.body, test.status,
					test.code)
			}
			if got.header.Get("Mcp-Session-Id") != "" {
				t.Errorf("Mcp-Session-Id: got %q, want none", got.header.Get("Mcp-Session-Id"))
			}
		})
	}
}

// Requirement: VER-04
func TestUnsupportedVersionNamesSupportedOnes(t *testing.T) {
	f := start(t, newTestCore(), nil)
	list := func(v string) string {
		body := fmt.Sprintf(`{"jsonrpc":"2.0","id":1,"method":"tools/list","params":{"_meta":{`+
			`"io.modelcontextprotocol/protocolVersion":%q,"io.modelcontextprotocol/clientCapabilities":{}}}}`, v)
		return f.do(http.MethodPost, body, "MCP-Protocol-Version: "+v, "Mcp-Method: tools/list").body
	}
	if got := list("v999"); !strings.Contains(got, `"supported":["2026-07-28","2025-11-25"`) ||
		!strings.Contains(got, `"requested":"v999"`) {
		t.Errorf("unknown version: got %s", got)
	}
	// The refused version is not among the supported ones, although the server has sessions of it.
	if got := list(november2025); !strings.Contains(got, `"supported":["2026-07-28"]`) {
		t.Errorf("older version: got %s", got)
	}
}

func TestMHTTP_NotificationsAndInvalidMessages(t *testing.T) {
	f := start(t, newTestCore(), nil)
	const header = "MCP-Protocol-Version: " + modern
	for _, test := range []struct {
		name, body   string
		headers      []string
		status, code int
	}{
		// Requirement: HTTP-12
		{"notification", `{"jsonrpc":"2.0","method":"notifications/x"}`, []string{header}, 202, 0},
		{"T-05 notification with its method", `{"jsonrpc":"2.0","method":"notifications/x"}`,
			[]string{header, "Mcp-Method: notifications/x"}, 202, 0},
		{"T-05 notification with another method", `{"jsonrpc":"2.0","method":"notifications/x"}`,
			[]string{header, "Mcp-Method: notifications/y"}, 400, driver.CodeHeaderMismatch},
		{"notification of an unknown version", `{"jsonrpc":"2.0","method":"notifications/x"}`, // Requirement: HTTP-13
			[]string{"MCP-Protocol-Version: v999"}, 400, driver.CodeUnsupportedProtocolVersion},
		// Requirement: HTTP-11
		{"response", `{"jsonrpc":"2.0","id":1,"result":{}}`, []string{header}, 400, mcp.CodeInvalidRequest},
		{"batch", `[{"jsonrpc":"2.0","id":1,"method":"tools/list"}]`, []string{header}, 400, // Requirement: RPC-18
			mcp.CodeInvalidRequest},
		{"not JSON", `{"jsonrpc":`, []string{header}, 400, jsonrpc.CodeParseError}, // Requirement: RPC-32
		{"trailing data", `{"jsonrpc":"2.0","method":"x"} {}`, []string{header}, 400, jsonrpc.CodeParseError},
		// Requirement: RPC-03
		{"null id", `{"jsonrpc":"2.0","id":null,"method":"x"}`, []string{header}, 400, mcp.CodeInvalidRequest},
		{"duplicate key", `{"jsonrpc":"2.0","id":1,"method":"x","method":"y"}`, []string{header}, 400,
			mcp.CodeInvalidRequest},
	} {
		t.Run(test.name, func(t *testing.T) {
			got := f.do(http.MethodPost, test.body, test.headers...)
			if got.status != test.status || got.code() != test.code {
				t.Errorf("got %d %s, want %d with code %d", got.status, got.body, test.status, test.code)
			}
			if test.status == 202 && got.body != "" {
				t.Errorf("got body %q, want an empty one", got.body)
			}
		})
	}
}

// Requirement: HTTP-16, MHTTP-04, MHTTP-05, MHTTP-07
func TestNotificationsAndResultMakeAStream(t *testing.T) {
	f := start(t, newTestCore(), nil)
	for _, tool := range []string{"notify", "notifylines"} {
		s := f.modernStream(t.Context(), "tools/call", `"name":"`+tool+`"`)
		if got := s.resp.Header.Get("X-Accel-Buffering"); got != "no" {
			t.Errorf("X-Accel-Buffering: got %q, want no", got)
		}
		if got := s.resp.Header.Get("Cache-Control"); got != "no-store" {
			t.Errorf("Cache-Control: got %q, want no-store", got)
		}
		for n := 1; n <= 2; n++ {
			e := s.next()
			want := fmt.Sprintf(`{"jsonrpc":"2.0","method":"notifications/message",`+
				`"params":{"level":"info","data":%d}}`, n)
			if string(e.Data) != want || e.HasID {
				t.Errorf("got %s with id %t, want %s without an id", e.Data, e.HasID, want)
			}
		}
		if e := s.next(); !strings.Contains(string(e.Data), `"result":{`) {
			t.Errorf("got %s, want the result", e.Data)
		}
		s.expectEnd()
	}
}

func TestErrorAfterTheFirstEventIsAnEvent(t *testing.T) {
	f := start(t, newTestCore(), nil)
	s := f.modernStream(t.Context(), "tools/call", `"name":"late"`)
	s.next()
	if e := s.next(); !strings.Contains(string(e.Data), `"code":-32021`) {
		t.Errorf("got %s, want the error", e.Data)
	}
	s.expectEnd()
}

// Requirement: MHTTP-09
func TestDisconnectCancels(t *testing.T) {
	for _, tool := range []string{"wait", "notifywait"} {
		t.Run(tool, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				core := newTestCore()
				f := start(t, core, nil)
				ctx, cancel := context.WithCancel(t.Context())
				body, headers := modernCall("tools/call", `"name":"`+tool+`"`)
				go func() {
					<-core.started
					cancel()
				}()
				resp, err := f.client.Do(f.request(ctx, http.MethodPost, body, headers...))
				if err == nil {
					_, err = io.Copy(io.Discard, resp.Body)
					resp.Body.Close()
				}
				if !errors.Is(err, context.Canceled) {
					t.Fatal(err)
				}
				if cause := <-core.causes; !errors.Is(cause, mcp.ErrDisconnected) {
					t.Errorf("cause of the call's end: got %v, want ErrDisconnected", cause)
				}
			})
		})
	}
}

// Requirement: MHTTP-10
func TestNothingIsSentForACancelledRequest(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		core := newTestCore()
		f := start(t, core, nil)
		ctx, cancel := context.WithCancel(t.Context())
		go func() {
			<-core.started
			cancel()
			synctest.Wait()
			core.proceed <- struct{}{}
		}()
		body, headers := modernCall("tools/call", `"name":"stubborn"`)
		if _, err := f.client.Do(f.request(ctx, http.MethodPost, body, headers...)); !errors.Is(err, context.Canceled) {
			t.Fatal(err)
		}
		if err := <-core.causes; !errors.Is(err, mcp.ErrDisconnected) {
			t.Errorf("Notify: got %v, want ErrDisconnected", err)
		}
	})
}

// Requirement: MHTTP-20, SUB-10
func TestListenIsAcknowledgedAndEndsWithAResultAtShutdown(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		core := newTestCore()
		f := start(t, core, nil)
		s := f.modernStream(t.Context(), "subscriptions/listen", `"notifications":{}`)
		if e := s.next(); !strings.Contains(string(e.Data), "acknowledged") {
			t.Fatalf("got %s first, want the acknowledgement", e.Data)
		}
		done := make(chan error)
		go func() { done <- f.handler.Shutdown(t.Context()) }()
		if e := s.next(); !strings.Contains(string(e.Data), `"ended":true`) {
			t.Errorf("got %s, want the result", e.Data)
		}
		s.expectEnd()
		if err := <-done; err != nil {
			t.Error(err)
		}
		if got := f.modern("tools/call", `"name":"echo"`); got.status != 503 || got.header.Get("Retry-After") == "" {
			t.Errorf("call after Shutdown: got %d %s, want 503 with Retry-After", got.status, got.header)
		}
	})
}

// Requirement: MHTTP-06, SUB-14
func TestLongStreamsCarryComments(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := start(t, newTestCore(), &mcphttp.Options{KeepAlive: time.Minute})
		body, headers := modernCall("subscriptions/listen", `"notifications":{}`)
		resp := f.open(f.request(t.Context(), http.MethodPost, body, headers...))
		begin := time.Now()
		buf := make([]byte, 1000)
		if n, _ := resp.Body.Read(buf); !strings.HasPrefix(string(buf[:n]), "data: ") {
			t.Fatalf("got %q first, want an event", buf[:n])
		}
		for i := 1; i <= 3; i++ {
			n, err := resp.Body.Read(buf)
			if got := time.Since(begin); !strings.HasPrefix(string(buf[:n]), ":") || err != nil ||
				got != time.Duration(i)*time.Minute {
				t.Errorf("got %q, %v after %v; want a comment every minute", buf[:n], err, got)
			}
		}
	})
}

func TestListens_AreLimitedInAllAndPerPrincipal(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := start(t, newTestCore(), &mcphttp.Options{MaxListens: 3, MaxListensPerPrincipal: 2})
		listen := func(subject string) (int, context.CancelFunc) {
			ctx, cancel := context.WithCancel(t.Context())
			body, headers := modernCall("subscriptions/listen", `"notifications":{}`, "Authorization: "+subject)
			return f.open(f.request(ctx, http.MethodPost, body, headers...)).StatusCode, cancel
		}
		for i, test := range []struct {
			subject string
			status  int
		}{{"ann", 200}, {"ann", 200}, {"ann", 429}, {"bob", 200}, {"", 503}} {
			status, cancel := listen(test.subject)
			if status != test.status {
				t.Errorf("listen %d of %q: got %d, want %d", i, test.subject, status, test.status)
			}
			if i == 1 {
				defer func() {
					cancel()
					synctest.Wait()
					if status, _ := listen("ann"); status != 200 {
						t.Errorf("after a listen has ended: got %d, want 200", status)
					}
				}()
			}
		}
	})
}

// A client that does not read its stream blocks Notify until the write timeout.
func TestUnreadStream_EndsAfterTheWriteTimeout(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		core := newTestCore()
		f := start(t, core, &mcphttp.Options{WriteTimeout: 30 * time.Second})
		conn, err := f.listener.dial()
		if err != nil {
			t.Fatal(err)
		}
		defer conn.Close()
		body, headers := modernCall("tools/call", `"name":"endless"`)
		go f.request(t.Context(), http.MethodPost, body, headers...).Write(conn)
		begin := time.Now()
		if err := <-core.causes; !errors.Is(err, mcp.ErrDisconnected) {
			t.Errorf("Notify: got %v, want ErrDisconnected", err)
		}
		if got := time.Since(begin); got != 30*time.Second {
			t.Errorf("the stream ended after %v, want 30s", got)
		}
	})
}

func TestRequestHasPrincipalHeaderAndRevision(t *testing.T) {
	core := newTestCore()
	f := start(t, core, nil)
	f.modern("tools/call", `"name":"inspect"`, "Authorization: ann", "X-Custom: 1")
	req := <-core.request
	if req.Principal == nil || req.Principal.Subject != "ann" || req.Header["X-Custom"][0] != "1" ||
		req.Revision() != modern {
		t.Errorf("got principal %v, header %v, revision %s", req.Principal, req.Header, req.Revision())
	}
	if err := req.Notify(context.Background(), "notifications/message", nil); err == nil {
		t.Error("Notify after the end of the call: got no error")
	}
}
