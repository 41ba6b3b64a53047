package mcphttp_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/patchbay-mcp/patchbay/mcp"
	"github.com/patchbay-mcp/patchbay/mcphttp"
)

func initializeBody(version string) string {
	return fmt.Sprintf(`{"jsonrpc":"2.0","id":0,"method":"initialize","params":{"protocolVersion":%q,`+
		`"capabilities":{"elicitation":{},"sampling":{}},"clientInfo":{"name":"test","version":"1"}}}`, version)
}

// A testSession is a client with a session of Streamable HTTP.
type testSession struct {
	*fixture
	headers []string
	id      string
}

func (f *fixture) initialize(version string, headers ...string) *testSession {
	f.t.Helper()
	got := f.do(http.MethodPost, initializeBody(version), headers...)
	s := &testSession{fixture: f, id: got.header.Get("Mcp-Session-Id")}
	if got.status != 200 || s.id == "" || !strings.Contains(got.body, `"protocolVersion":"`+version+`"`) {
		f.t.Fatalf("initialize: got %d %s %s", got.status, got.header, got.body)
	}
	s.headers = append([]string{"Mcp-Session-Id: " + s.id}, headers...)
	if version > march2025 {
		s.headers = append(s.headers, "MCP-Protocol-Version: "+version)
	}
	if got := s.send(`{"jsonrpc":"2.0","method":"notifications/initialized"}`); got.status != 202 {
		f.t.Fatalf("initialized: got %d %s", got.status, got.body)
	}
	return s
}

func (s *testSession) send(body string, headers ...string) response {
	s.t.Helper()
	return s.do(http.MethodPost, body, override(s.headers, headers)...)
}

// override returns the headers of base and extra. Those of extra replace those of base.
func override(base, extra []string) []string {
	var all []string
	for _, h := range base {
		name, _, _ := strings.Cut(h, ":")
		if !slices.ContainsFunc(extra, func(e string) bool { return strings.HasPrefix(e, name+":") }) {
			all = append(all, h)
		}
	}
	return append(all, extra...)
}

func callBody(id int, tool string) string {
	return fmt.Sprintf(`{"jsonrpc":"2.0","id":%d,"method":"tools/call","params":{"name":%q,`+
		`"arguments":{"message":"hi"}}}`, id, tool)
}

func (s *testSession) post(ctx context.Context, body string) *http.Request {
	return s.request(ctx, http.MethodPost, body, s.headers...)
}

func (s *testSession) get(ctx context.Context, headers ...string) *http.Request {
	return s.request(ctx, http.MethodGet, "", append(s.headers, headers...)...)
}

// Requirement: HTTP-05, HTTP-14
func TestEveryRevisionIsServedAtOneEndpoint(t *testing.T) {
	f := start(t, newTestCore(), nil)
	for _, version := range sessionRevisions {
		t.Run(version, func(t *testing.T) {
			s := f.initialize(version)
			got := s.send(callBody(7, "echo"))
			if got.status != 200 || got.header.Get("Content-Type") != "application/json" ||
				got.body != `{"jsonrpc":"2.0","id":7,"result":{"content":[{"type":"text","text":"hi"}]}}` {
				t.Errorf("got %d %s %s, want 200 and the result as JSON", got.status, got.header, got.body)
			}
			if got := s.send(`{"jsonrpc":"2.0","id":8,"method":"no/such"}`); got.status != 200 ||
				got.code() != mcp.CodeMethodNotFound {
				t.Errorf("unknown method: got %d %s, want 200 with the error", got.status, got.body)
			}
			if got := s.send(`{"jsonrpc":"2.0","id":9,"method":"ping"}`); got.body !=
				`{"jsonrpc":"2.0","id":9,"result":{}}` {
				t.Errorf("ping: got %s, want an empty result", got.body)
			}
			events := f.stream(s.get(t.Context()))
			f.do(http.MethodDelete, "", s.headers...)
			if version == november2025 {
				events.next() // the first event, which has only an id
			}
			events.expectEnd()
		})
	}
}

// Requirement: LHTTP-23, LHTTP-24, LHTTP-25
func TestSessionIDs(t *testing.T) {
	const sessions, length = 200, 22 // characters
	for _, version := range streamableRevisions {
		f := start(t, newTestCore(), &mcphttp.Options{Sessions: mcphttp.SessionOptions{Max: sessions}})
		ids := map[string]bool{}
		var characters [length]map[byte]bool
		for range sessions {
			id := f.do(http.MethodPost, initializeBody(version)).header.Get("Mcp-Session-Id")
			if len(id) < length || strings.ContainsFunc(id, func(c rune) bool { return c < 0x21 || c > 0x7e }) {
				t.Fatalf("%s: got %q, want at least %d characters of visible ASCII", version, id, length)
			}
			ids[id] = true
			for i := range length {
				if characters[i] == nil {
					characters[i] = map[byte]bool{}
				}
				characters[i][id[i]] = true
			}
		}
		if len(ids) != sessions {
			t.Errorf("%s: %d sessions have %d ids", version, sessions, len(ids))
		}
		for i, values := range characters {
			if len(values) < 16 {
				t.Errorf("%s: character %d has %d values in %d ids, want random ones", version, i, len(values),
					sessions)
			}
		}
	}
}

// bodyFor returns a body for a request with an HTTP method.
func bodyFor(method string) string {
	if method == http.MethodPost {
		return callBody(1, "echo")
	}
	return ""
}

// Requirement: LHTTP-28, LHTTP-29, LHTTP-34, LHTTP-35
func TestSessionHeaders(t *testing.T) {
	methods := []string{http.MethodPost, http.MethodGet, http.MethodDelete}
	for _, revision := range streamableRevisions {
		f := start(t, newTestCore(), nil)
		ann := f.initialize(revision, "Authorization: ann")
		version, id := "MCP-Protocol-Version: "+revision, "Mcp-Session-Id: "+ann.id
		for _, test := range []struct {
			name    string
			headers []string
			status  int
		}{
			{"no session id", []string{version}, 400}, // Requirement: LHTTP-28
			{"unknown session id", []string{version, "Mcp-Session-Id: nonsense"}, 404},
			{"another principal", []string{version, id, "Authorization: bob"}, 404}, // Requirement: SEC-10
			{"no principal", []string{version, id}, 404},                            // Requirement: SEC-10
			// Requirement: LHTTP-35
			{"unsupported version", []string{"MCP-Protocol-Version: 1999-01-01", id, "Authorization: ann"},
				400},
			// Requirement: LHTTP-35
			{"invalid version", []string{"MCP-Protocol-Version: x", id, "Authorization: ann"}, 400},
		} {
			for _, method := range methods {
				if method == http.MethodGet && len(test.headers) == 1 {
					continue // a GET without a session is one of HTTP+SSE
				}
				t.Run(revision+"/"+test.name+"/"+method, func(t *testing.T) {
					got := f.do(method, bodyFor(method), test.headers...)
					if got.status != test.status || got.code() == 0 {
						t.Errorf("got %d %s, want %d with an error", got.status, got.body, test.status)
					}
				})
			}
		}
		for _, test := range []struct{ name, header string }{
			{"negotiated version", version},
			{"no version", "MCP-Protocol-Version: "}, // Requirement: LHTTP-34
			{"another version, which only should not be sent", "MCP-Protocol-Version: " + june2025},
		} {
			if got := ann.send(callBody(1, "echo"), test.header); got.status != 200 {
				t.Errorf("%s, %s: got %d %s, want 200", revision, test.name, got.status, got.body)
			}
		}
		if got := f.do(http.MethodDelete, "", ann.headers...); got.status != 204 {
			t.Errorf("%s: DELETE: got %d %s, want 204", revision, got.status, got.body)
		}
		for _, method := range methods {
			if got := f.do(method, bodyFor(method), ann.headers...); got.status != 404 {
				t.Errorf("%s: %s after DELETE: got %d, want 404", revision, method, got.status)
			}
		}
	}
}

// Only revision 2025-03-26 has batches.
//
// Requirement: MHTTP-21, LHTTP-34
func TestRequestWithoutVersionHeaderIsServedAs2025_03_26(t *testing.T) {
	f := start(t, newTestCore(), nil)
	got := f.do(http.MethodPost, initializeBody(march2025))
	session := "Mcp-Session-Id: " + got.header.Get("Mcp-Session-Id")
	f.do(http.MethodPost, `{"jsonrpc":"2.0","method":"notifications/initialized"}`, session)
	got = f.do(http.MethodPost, "["+callBody(1, "echo")+"]", session)
	if got.status != 200 || !strings.HasPrefix(got.body, `[{"jsonrpc":"2.0","id":1,"result":`) {
		t.Errorf("got %d %s, want 200 and a batch of one response", got.status, got.body)
	}
	if got := f.modern("tools/call", `"name":"echo"`); got.status != 200 {
		t.Errorf("request with the version header: got %d, want 200", got.status)
	}
}

// Requirement: MHTTP-11
func TestOtherHTTPMethodsAreNotAllowed(t *testing.T) {
	f := start(t, newTestCore(), nil)
	for _, method := range []string{http.MethodGet, http.MethodDelete} {
		got := f.do(method, "", "MCP-Protocol-Version: "+modern)
		if got.status != 405 || got.header.Get("Allow") != "POST, OPTIONS" {
			t.Errorf("%s: got %d with Allow %q, want 405 with the methods", method, got.status,
				got.header.Get("Allow"))
		}
	}
	for _, method := range []string{http.MethodPut, http.MethodHead, http.MethodPatch} {
		got := f.do(method, "")
		if got.status != 405 || got.header.Get("Allow") != "POST, GET, DELETE, OPTIONS" {
			t.Errorf("%s: got %d with Allow %q, want 405 with the methods", method, got.status,
				got.header.Get("Allow"))
		}
	}
}

// Requirement: VER-08
func TestBothErasShareAnEndpoint(t *testing.T) {
	f := start(t, newTestCore(), nil)
	s := f.initialize(november2025)
	body, headers := modernCall("tools/call", `"name":"echo"`)
	if got := s.do(http.MethodPost, body, append(s.headers[:1:1], headers...)...); !strings.Contains(got.body,
		`"resultType"`) {
		t.Errorf("modern request with a session header: got %s, want a modern result", got.body)
	}
	if got := s.send(callBody(1, "echo")); strings.Contains(got.body, `"resultType"`) {
		t.Errorf("request of the session: got %s, want a result of its revision", got.body)
	}
}

func TestFailedInitializeOpensNoSession(t *testing.T) {
	f := start(t, newTestCore(), &mcphttp.Options{Sessions: mcphttp.SessionOptions{Max: 1}})
	got := f.do(http.MethodPost, `{"jsonrpc":"2.0","id":0,"method":"initialize","params":{"protocolVersion":1}}`)
	if got.code() != mcp.CodeInvalidParams || got.header.Get("Mcp-Session-Id") != "" {
		t.Errorf("got %d %s %s, want invalid params and no session", got.status, got.header, got.body)
	}
	f.initialize(november2025) // the failed one does not count
}

// Requirement: RPC-15, RPC-17
func TestBatchesAreOf2025_03_26(t *testing.T) {
	f := start(t, newTestCore(), nil)
	s := f.initialize(march2025)
	requests := "[" + callBody(1, "echo") + `,{"jsonrpc":"2.0","method":"notifications/x"},` + callBody(2, "echo") + "]"
	got := s.send(requests)
	var responses []struct{ ID int }
	if err := json.Unmarshal([]byte(got.body), &responses); err != nil || got.status != 200 || len(responses) != 2 {
		t.Errorf("got %d %s, want both responses", got.status, got.body)
	}
	for _, test := range []struct {
		name, body string
		status     int
	}{
		{"notifications only", `[{"jsonrpc":"2.0","method":"notifications/x"}]`, 202}, // Requirement: HTTP-12
		{"initialize in a batch", "[" + initializeBody(march2025) + "]", 400},         // Requirement: RPC-17
		{"empty batch", "[]", 400},
	} {
		if got := s.send(test.body); got.status != test.status {
			t.Errorf("%s: got %d %s, want %d", test.name, got.status, got.body, test.status)
		}
	}
	for _, version := range []string{november2024, june2025, november2025} {
		if got := f.initialize(version).send(requests); got.status != 400 || got.code() != mcp.CodeInvalidRequest {
			t.Errorf("%s: got %d %s, want 400", version, got.status, got.body)
		}
	}
	if got := f.do(http.MethodPost, requests); got.status != 400 {
		t.Errorf("batch without a session: got %d, want 400", got.status)
	}
	if got := f.do(http.MethodPost, "["+initializeBody(march2025)+"]"); got.status != 400 {
		t.Errorf("initialize in a batch without a session: got %d, want 400", got.status)
	}
}

// Requirement: CAN-04
func TestCancelledRequestHasNoResponse(t *testing.T) {
	forEach(t, streamableRevisions, func(t *testing.T, version string) {
		core := newTestCore()
		s := start(t, core, nil).initialize(version)
		done := make(chan response)
		go func() { done <- s.send(callBody(5, "wait")) }()
		<-core.started
		s.send(`{"jsonrpc":"2.0","method":"notifications/cancelled","params":{"requestId":5,"reason":"bored"}}`)
		if cause := <-core.causes; !errors.Is(cause, mcp.ErrCancelled) {
			t.Errorf("cause of the call's end: got %v, want ErrCancelled", cause)
		}
		got := <-done
		hasResponse := strings.Contains(got.body, `"id":5`)
		if got.status != 200 || hasResponse || got.header.Get("Content-Type") != "text/event-stream" {
			t.Errorf("got %d %s %q, want a stream without a response", got.status, got.header, got.body)
		}
	})
}

// TestLHTTP_InvalidInitializeKeepsTheLiveSession sends an initialize that fails and names a session.
func TestLHTTP_InvalidInitializeKeepsTheLiveSession(t *testing.T) {
	forEach(t, streamableRevisions, func(t *testing.T, revision string) {
		f := start(t, newTestCore(), nil)
		old := f.initialize(revision)
		got := f.do(http.MethodPost, `{"jsonrpc":"2.0","id":1,"method":"initialize","params":{"protocolVersion":7}}`,
			"Mcp-Session-Id: "+old.id)
		if got.header.Get("Mcp-Session-Id") != "" || !strings.Contains(got.body, "-32602") {
			t.Errorf("initialize with a number as its version: got %d %s, want invalid params", got.status, got.body)
		}
		if got := old.send(`{"jsonrpc":"2.0","id":2,"method":"ping"}`); got.status != 200 {
			t.Errorf("session after an initialize that failed: got %d %s, want 200", got.status, got.body)
		}
	})
}

// An initialize with the id of a live session ends that session and opens another, for its owner
// only.
func TestLHTTP_InitializeWithALiveSessionStartsAgain(t *testing.T) {
	forEach(t, streamableRevisions, func(t *testing.T, revision string) {
		core := newTestCore()
		f := start(t, core, &mcphttp.Options{Sessions: mcphttp.SessionOptions{MaxPerPrincipal: 1}})
		old := f.initialize(revision, "Authorization: ann")
		called := make(chan response)
		go func() { called <- old.send(callBody(1, "wait")) }()
		<-core.started
		got := f.do(http.MethodPost, initializeBody(revision), "Authorization: bob", "Mcp-Session-Id: "+old.id)
		if got.status != 200 {
			t.Errorf("initialize of another principal: got %d %s, want 200", got.status, got.body)
		}
		if got := old.send(`{"jsonrpc":"2.0","id":2,"method":"ping"}`); got.status != 200 {
			t.Errorf("session after the initialize of another principal: got %d, want 200", got.status)
		}
		got = f.do(http.MethodPost, initializeBody(revision), "Authorization: ann", "Mcp-Session-Id: "+old.id)
		id := got.header.Get("Mcp-Session-Id")
		if got.status != 200 || id == "" || id == old.id {
			t.Errorf("second initialize: got %d %s and id %q, want a new session", got.status, got.body, id)
		}
		select {
		case cause := <-core.causes:
			if !errors.Is(cause, mcp.ErrClosed) {
				t.Errorf("call of the old session: ended with %v, want ErrClosed", cause)
			}
		case <-time.After(time.Second):
			t.Error("the call of the old session is still running")
			core.proceed <- struct{}{}
		}
		<-called
		if got := old.send(`{"jsonrpc":"2.0","id":3,"method":"ping"}`); got.status != 404 {
			t.Errorf("old session: got %d, want 404", got.status)
		}
		got = f.do(http.MethodPost, `{"jsonrpc":"2.0","id":4,"method":"ping"}`, "Authorization: ann", "Mcp-Session-Id: "+id)
		if got.status != 200 {
			t.Errorf("new session: got %d %s, want 200", got.status, got.body)
		}
	})
}
