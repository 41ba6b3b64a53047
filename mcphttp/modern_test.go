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
	"github.com/patchbay-mcp/patchbay/mcphttp"
)

func TestHTTP14_RequestIsAnsweredWithJSON(t *testing.T) {
	f := start(t, newTestCore(), nil)
	got := f.modern("tools/call", `"name":"echo","arguments":{"message":"héllo\n"}`)
	const want = `{"jsonrpc":"2.0","id":1,"result":{"resultType":"complete","content":[{"type":"text","text":"héllo\n"}]}}`
	if got.status != 200 || got.body != want || got.header.Get("Content-Type") != "application/json" {
		t.Errorf("got %d %s %q, want %s", got.status, got.header, got.body, want)
	}
	if got := f.modern("tools/call", `"name":"lines"`); strings.ContainsAny(got.body, "\r\n") {
		t.Errorf("got %q, want one line", got.body)
	}
}

func TestMHTTP13to17_StatusFollowsError(t *testing.T) {
	f := start(t, newTestCore(), nil)
	for _, test := range []struct {
		name, method, params string
		status, code         int
	}{
		{"success", "tools/call", `"name":"echo"`, 200, 0},
		{"MHTTP13 unknown method", "no/such", ``, 404, mcp.CodeMethodNotFound},
		{"T14 initialize with an envelope", "initialize", ``, 404, mcp.CodeMethodNotFound},
		{"MHTTP15 missing capability", "tools/call", `"name":"missing"`, 400, mcp.CodeMissingRequiredClientCapability},
		{"MHTTP17 other errors", "tools/call", `"name":"error"`, 200, mcp.CodeInvalidParams},
		{"a panic", "tools/call", `"name":"panic"`, 200, mcp.CodeInternalError},
		{"busy", "tools/call", `"name":"busy"`, 503, mcp.CodeBusy},
	} {
		t.Run(test.name, func(t *testing.T) {
			got := f.modern(test.method, test.params)
			if got.status != test.status || got.code() != test.code || !strings.Contains(got.body, `"id":1`) {
				t.Errorf("got %d %s, want %d with code %d and the id", got.status, got.body, test.status, test.code)
			}
			if test.name == "busy" && got.header.Get("Retry-After") != "2" {
				t.Errorf("Retry-After is %q, want 2", got.header.Get("Retry-After"))
			}
		})
	}
}

// What the conformance suite probes: each has to be refused with the request's id.
func TestT11_OrderOfChecks(t *testing.T) {
	f := start(t, newTestCore(), nil)
	body := func(meta string) string {
		return `{"jsonrpc":"2.0","id":"x","method":"server/discover","params":{` + meta + `}}`
	}
	version := func(v string) string {
		return fmt.Sprintf(`"_meta":{"io.modelcontextprotocol/protocolVersion":%q,"io.modelcontextprotocol/clientCapabilities":{}}`, v)
	}
	const header, method = "MCP-Protocol-Version: ", "Mcp-Method: server/discover"
	for _, test := range []struct {
		name, body string
		headers    []string
		status     int
		code       int
	}{
		{"META10 no _meta", body(""), []string{header + modern, method}, 400, mcp.CodeInvalidParams},
		{"META10 no _meta wins over a missing method header", body(""), []string{header + modern}, 400,
			mcp.CodeInvalidParams},
		{"META10 no version", body(`"_meta":{"io.modelcontextprotocol/clientCapabilities":{}}`),
			[]string{header + modern, method}, 400, mcp.CodeInvalidParams},
		{"META10 no capabilities", body(`"_meta":{"io.modelcontextprotocol/protocolVersion":"2026-07-28"}`),
			[]string{header + modern, method}, 400, mcp.CodeInvalidParams},
		{"META11 no client info", body(version(modern)), []string{header + modern, method}, 200, 0},
		{"MHTTP22 no version header", body(version(modern)), []string{method}, 400, mcp.CodeHeaderMismatch},
		{"HDR02 header differs from body", body(version("v999.0.0")), []string{header + modern, method}, 400,
			mcp.CodeHeaderMismatch},
		{"HDR02 older header", body(version(modern)), []string{header + november2025, method}, 400,
			mcp.CodeHeaderMismatch},
		{"MHTTP14 unknown version", body(version("v999.0.0")), []string{header + "v999.0.0", method}, 400,
			mcp.CodeUnsupportedProtocolVersion},
		{"MHTTP14 version that needs initialize", body(version(november2025)),
			[]string{header + november2025, method}, 400, mcp.CodeUnsupportedProtocolVersion},
		{"HDR09 no method header", body(version(modern)), []string{header + modern}, 400, mcp.CodeHeaderMismatch},
		{"HDR09 mismatch wins over unknown version", body(version("v999.0.0")), []string{header + "v999.0.0"}, 400,
			mcp.CodeHeaderMismatch},
		{"HDR07 method in other case", body(version(modern)),
			[]string{header + modern, "Mcp-Method: SERVER/DISCOVER"}, 400, mcp.CodeHeaderMismatch},
		{"MHTTP12 session header is ignored", body(version(modern)),
			[]string{header + modern, method, "Mcp-Session-Id: nonsense"}, 200, 0},
		{"MHTTP07 last event is ignored", body(version(modern)),
			[]string{header + modern, method, "Last-Event-ID: 1"}, 200, 0},
	} {
		t.Run(test.name, func(t *testing.T) {
			got := f.do(http.MethodPost, test.body, test.headers...)
			if got.status != test.status || got.code() != test.code || !strings.Contains(got.body, `"id":"x"`) {
				t.Errorf("got %d %s, want %d with code %d and the id", got.status, got.body, test.status, test.code)
			}
			if got.header.Get("Mcp-Session-Id") != "" {
				t.Error("a session id was sent")
			}
		})
	}
}

func TestVER04_UnsupportedVersionNamesSupportedOnes(t *testing.T) {
	f := start(t, newTestCore(), nil)
	ask := func(v string) string {
		body := fmt.Sprintf(`{"jsonrpc":"2.0","id":1,"method":"tools/list","params":{"_meta":{`+
			`"io.modelcontextprotocol/protocolVersion":%q,"io.modelcontextprotocol/clientCapabilities":{}}}}`, v)
		return f.do(http.MethodPost, body, "MCP-Protocol-Version: "+v, "Mcp-Method: tools/list").body
	}
	if got := ask("v999"); !strings.Contains(got, `"supported":["2026-07-28","2025-11-25"`) ||
		!strings.Contains(got, `"requested":"v999"`) {
		t.Errorf("unknown version: got %s", got)
	}
	// A version that was refused is not offered in the same breath.
	if got := ask(november2025); !strings.Contains(got, `"supported":["2026-07-28"]`) {
		t.Errorf("older version: got %s", got)
	}
}

func TestMHTTP_OtherMessages(t *testing.T) {
	f := start(t, newTestCore(), nil)
	const header = "MCP-Protocol-Version: " + modern
	for _, test := range []struct {
		name, body   string
		headers      []string
		status, code int
	}{
		{"HTTP12 notification", `{"jsonrpc":"2.0","method":"notifications/x"}`, []string{header}, 202, 0},
		{"T05 notification with its method", `{"jsonrpc":"2.0","method":"notifications/x"}`,
			[]string{header, "Mcp-Method: notifications/x"}, 202, 0},
		{"T05 notification with another method", `{"jsonrpc":"2.0","method":"notifications/x"}`,
			[]string{header, "Mcp-Method: notifications/y"}, 400, mcp.CodeHeaderMismatch},
		{"HTTP13 notification of an unknown version", `{"jsonrpc":"2.0","method":"notifications/x"}`,
			[]string{"MCP-Protocol-Version: v999"}, 400, mcp.CodeUnsupportedProtocolVersion},
		{"HTTP11 response", `{"jsonrpc":"2.0","id":1,"result":{}}`, []string{header}, 400, mcp.CodeInvalidRequest},
		{"RPC18 batch", `[{"jsonrpc":"2.0","id":1,"method":"tools/list"}]`, []string{header}, 400,
			mcp.CodeInvalidRequest},
		{"RPC32 not JSON", `{"jsonrpc":`, []string{header}, 400, jsonrpc.CodeParseError},
		{"trailing data", `{"jsonrpc":"2.0","method":"x"} {}`, []string{header}, 400, jsonrpc.CodeParseError},
		{"RPC03 null id", `{"jsonrpc":"2.0","id":null,"method":"x"}`, []string{header}, 400, mcp.CodeInvalidRequest},
		{"duplicate key", `{"jsonrpc":"2.0","id":1,"method":"x","method":"y"}`, []string{header}, 400,
			mcp.CodeInvalidRequest},
	} {
		t.Run(test.name, func(t *testing.T) {
			got := f.do(http.MethodPost, test.body, test.headers...)
			if got.status != test.status || got.code() != test.code {
				t.Errorf("got %d %s, want %d with code %d", got.status, got.body, test.status, test.code)
			}
			if test.status == 202 && got.body != "" {
				t.Errorf("got the body %q, want none", got.body)
			}
		})
	}
}

func TestMHTTP04_EarlierMessagesMakeAStream(t *testing.T) {
	f := start(t, newTestCore(), nil)
	for _, tool := range []string{"notify", "notifylines"} {
		s := f.modernStream(t.Context(), "tools/call", `"name":"`+tool+`"`)
		if got := s.resp.Header.Get("X-Accel-Buffering"); got != "no" {
			t.Errorf("MHTTP05: X-Accel-Buffering is %q, want no", got)
		}
		if got := s.resp.Header.Get("Cache-Control"); got != "no-store" {
			t.Errorf("Cache-Control is %q, want no-store", got)
		}
		for n := 1; n <= 2; n++ {
			e := s.next()
			if want := fmt.Sprintf(`{"jsonrpc":"2.0","method":"notifications/message","params":{"level":"info","data":%d}}`, n); string(e.Data) != want {
				t.Errorf("got %s, want %s", e.Data, want)
			}
			if e.HasID {
				t.Error("MHTTP07: the event has an id")
			}
		}
		if e := s.next(); !strings.Contains(string(e.Data), `"result":{`) {
			t.Errorf("got %s, want the result", e.Data)
		}
		s.ends()
	}
}

func TestT10_ErrorAfterTheFirstEventTravelsInTheStream(t *testing.T) {
	f := start(t, newTestCore(), nil)
	s := f.modernStream(t.Context(), "tools/call", `"name":"late"`)
	s.next()
	if e := s.next(); !strings.Contains(string(e.Data), `"code":-32021`) {
		t.Errorf("got %s, want the error", e.Data)
	}
	s.ends()
}

func TestMHTTP09_DisconnectCancels(t *testing.T) {
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
					t.Errorf("the cause is %v, want ErrDisconnected", cause)
				}
			})
		})
	}
}

func TestMHTTP10_NothingIsSentForACancelledRequest(t *testing.T) {
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
			t.Errorf("a notification gave %v, want ErrDisconnected", err)
		}
	})
}

func TestSUB_ListenEndsWithItsResultAtShutdown(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		core := newTestCore()
		f := start(t, core, nil)
		s := f.modernStream(t.Context(), "subscriptions/listen", `"notifications":{}`)
		if e := s.next(); !strings.Contains(string(e.Data), "acknowledged") {
			t.Fatalf("MHTTP20: got %s first, want the acknowledgement", e.Data)
		}
		done := make(chan error)
		go func() { done <- f.handler.Shutdown(t.Context()) }()
		if e := s.next(); !strings.Contains(string(e.Data), `"ended":true`) {
			t.Errorf("SUB10: got %s, want the result", e.Data)
		}
		s.ends()
		if err := <-done; err != nil {
			t.Error(err)
		}
		if got := f.modern("tools/call", `"name":"echo"`); got.status != 503 || got.header.Get("Retry-After") == "" {
			t.Errorf("after the shutdown: got %d %s, want 503", got.status, got.header)
		}
	})
}

func TestMHTTP06_SUB14_KeepAlive(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := start(t, newTestCore(), &mcphttp.Options{KeepAlive: time.Minute})
		body, headers := modernCall("subscriptions/listen", `"notifications":{}`)
		resp := f.open(f.request(t.Context(), http.MethodPost, body, headers...))
		begin := time.Now()
		buf := make([]byte, 1000)
		if n, _ := resp.Body.Read(buf); !strings.HasPrefix(string(buf[:n]), "data: ") {
			t.Fatalf("got %q first", buf[:n])
		}
		for i := 1; i <= 3; i++ {
			n, err := resp.Body.Read(buf)
			if got := time.Since(begin); !strings.HasPrefix(string(buf[:n]), ":") || err != nil ||
				got != time.Duration(i)*time.Minute {
				t.Errorf("got %q, %v after %v; want a comment each minute", buf[:n], err, got)
			}
		}
	})
}

func TestR72_ListenQuota(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := start(t, newTestCore(), &mcphttp.Options{MaxListens: 3, MaxListensPerPrincipal: 2})
		listen := func(who string) (int, context.CancelFunc) {
			ctx, cancel := context.WithCancel(t.Context())
			body, headers := modernCall("subscriptions/listen", `"notifications":{}`, "Authorization: "+who)
			return f.open(f.request(ctx, http.MethodPost, body, headers...)).StatusCode, cancel
		}
		for i, test := range []struct {
			who    string
			status int
		}{{"ann", 200}, {"ann", 200}, {"ann", 429}, {"bob", 200}, {"", 503}} {
			status, cancel := listen(test.who)
			if status != test.status {
				t.Errorf("listen %d of %q: got %d, want %d", i, test.who, status, test.status)
			}
			if i == 1 {
				defer func() {
					cancel()
					synctest.Wait()
					if status, _ := listen("ann"); status != 200 {
						t.Errorf("after one has ended: got %d, want 200", status)
					}
				}()
			}
		}
	})
}

// A client that does not read blocks the sender, and counts as gone after the write timeout.
func TestR72_UnreadStream(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		core := newTestCore()
		f := start(t, core, &mcphttp.Options{WriteTimeout: 30 * time.Second})
		conn, err := f.listener.dial()
		if err != nil {
			t.Fatal(err)
		}
		defer conn.Close()
		body, headers := modernCall("tools/call", `"name":"flood"`)
		go f.request(t.Context(), http.MethodPost, body, headers...).Write(conn)
		begin := time.Now()
		if err := <-core.causes; !errors.Is(err, mcp.ErrDisconnected) {
			t.Errorf("the sender got %v, want ErrDisconnected", err)
		}
		if got := time.Since(begin); got != 30*time.Second {
			t.Errorf("the stream ended after %v, want 30s", got)
		}
	})
}

func TestRequestIsAsTheTransportSawIt(t *testing.T) {
	core := newTestCore()
	f := start(t, core, nil)
	f.modern("tools/call", `"name":"inspect"`, "Authorization: ann", "X-Custom: 1")
	req := <-core.request
	if req.Principal == nil || req.Principal.Subject != "ann" || req.Header["X-Custom"][0] != "1" ||
		req.Revision() != modern {
		t.Errorf("got principal %v, header %v, revision %s", req.Principal, req.Header, req.Revision())
	}
	if err := req.Notify(context.Background(), "notifications/message", nil); err == nil {
		t.Error("a notification after the end of the call was no error")
	}
}
