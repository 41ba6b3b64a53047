package gateway_test

import (
	"context"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/patchbay-mcp/patchbay/gateway"
	"github.com/patchbay-mcp/patchbay/host"
	"github.com/patchbay-mcp/patchbay/host/config"
	"github.com/patchbay-mcp/patchbay/mcp"
	"github.com/patchbay-mcp/patchbay/mcptest"
)

const latestRevision, latestSession = "2026-07-28", "2025-11-25"

// An endpoint is a server of a gateway, to which a test writes HTTP by hand. Its server has the tool
// report, which reports a step and returns after every call has begun.
type endpoint struct {
	t       *testing.T
	url     string
	client  *http.Client
	reports sync.WaitGroup // calls of report that have not begun
}

func newEndpoint(t *testing.T) *endpoint {
	t.Helper()
	f, err := config.Parse([]byte(`{"mcpServers": {"one": {"command": "one"}}}`))
	if err != nil {
		t.Fatal(err)
	}
	e := &endpoint{t: t}
	h, err := host.Open(t.Context(), f, &host.Options{
		Dial:   func(context.Context, *config.Server) (mcp.Transport, error) { return mcp.InMemory(e.server()), nil },
		Logger: slog.New(slog.DiscardHandler),
	})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := h.Close(); err != nil {
			t.Error(err)
		}
	})
	g := gateway.New(h, &gateway.Options{Keys: []string{key}, Logger: slog.New(slog.DiscardHandler)})
	e.url = serve(t, g) + "/mcp/s/one"
	transport := http.DefaultTransport.(*http.Transport).Clone()
	t.Cleanup(transport.CloseIdleConnections)
	e.client = &http.Client{Transport: transport}
	return e
}

func (e *endpoint) server() *mcp.Server {
	s := mcp.NewServer("one", "1", nil)
	mcp.AddTool(s, &mcp.Tool{Name: "report"}, func(ctx context.Context, in struct {
		Text string `json:"text"`
	}) (string, error) {
		e.reports.Done()
		e.reports.Wait()
		mcp.Progress(ctx, 1, 2, in.Text)
		return in.Text, nil
	})
	return s
}

// open posts a body with headers in the form "Name: value".
func (e *endpoint) open(ctx context.Context, body string, headers ...string) *http.Response {
	e.t.Helper()
	r, err := http.NewRequestWithContext(ctx, http.MethodPost, e.url, strings.NewReader(body))
	if err != nil {
		e.t.Fatal(err)
	}
	r.Header.Set("Authorization", "Bearer "+key)
	r.Header.Set("Content-Type", "application/json")
	r.Header.Set("Accept", "application/json, text/event-stream")
	for _, h := range headers {
		name, value, _ := strings.Cut(h, ": ")
		r.Header.Set(name, value)
	}
	resp, err := e.client.Do(r)
	if err != nil {
		e.t.Fatal(err)
	}
	e.t.Cleanup(func() { resp.Body.Close() })
	return resp
}

// post is like open and returns the status and the whole body.
func (e *endpoint) post(body string, headers ...string) (status int, text string) {
	e.t.Helper()
	resp := e.open(e.t.Context(), body, headers...)
	b, err := io.ReadAll(resp.Body)
	if err != nil {
		e.t.Fatal(err)
	}
	return resp.StatusCode, string(b)
}

// initialize begins a session and returns the headers of its requests.
func (e *endpoint) initialize(revision string) (headers []string) {
	e.t.Helper()
	resp := e.open(e.t.Context(), `{"jsonrpc":"2.0","id":1,"method":"initialize","params":{"protocolVersion":"`+revision+
		`","capabilities":{},"clientInfo":{"name":"c","version":"1"}}}`)
	if _, err := io.Copy(io.Discard, resp.Body); err != nil || resp.StatusCode != http.StatusOK {
		e.t.Fatalf("initialize: status %d, %v", resp.StatusCode, err)
	}
	headers = []string{"Mcp-Session-Id: " + resp.Header.Get("Mcp-Session-Id")}
	if revision > "2025-03-26" {
		headers = append(headers, "MCP-Protocol-Version: "+revision)
	}
	if status, text := e.post(`{"jsonrpc":"2.0","method":"notifications/initialized"}`, headers...); status != 202 {
		e.t.Fatalf("notifications/initialized: got %d %s", status, text)
	}
	return headers
}

// modernCall returns the body and the headers of a call in the latest revision, with a progress token.
func modernCall(tool, text, token string) (body string, headers []string) {
	body = fmt.Sprintf(`{"jsonrpc":"2.0","id":2,"method":"tools/call","params":{"name":%q,"arguments":{"text":%q},`+
		`"_meta":{"progressToken":%q,"io.modelcontextprotocol/protocolVersion":%q,`+
		`"io.modelcontextprotocol/clientCapabilities":{}}}}`,
		tool, text, token, latestRevision)
	return body, []string{"MCP-Protocol-Version: " + latestRevision, "Mcp-Method: tools/call", "Mcp-Name: " + tool}
}

// A body is a single message, except in revision 2025-03-26.
//
// Requirement: RPC-15, RPC-18
func TestEndpointRefusesBatches(t *testing.T) {
	mcptest.NoLeaks(t)
	e := newEndpoint(t)
	const batch = `[{"jsonrpc":"2.0","id":1,"method":"ping"},{"jsonrpc":"2.0","id":2,"method":"ping"}]`
	for _, revision := range mcptest.Revisions() {
		headers := []string{"MCP-Protocol-Version: " + revision, "Mcp-Method: ping"}
		want := http.StatusBadRequest
		switch {
		case revision == "2024-11-05":
			continue // a session of HTTP+SSE
		case revision == "2025-03-26":
			headers, want = e.initialize(revision), http.StatusOK
		case revision != latestRevision:
			headers = e.initialize(revision)
		}
		status, text := e.post(batch, headers...)
		if status != want || (want != 200) != strings.Contains(text, `"error":{"code":-32600`) {
			t.Errorf("%s: got %d %s, want %d", revision, status, text, want)
		}
	}
}

// A version header that no revision has is refused before a session and in a session.
//
// Requirement: LHTTP-35
func TestEndpointRefusesUnknownRevisions(t *testing.T) {
	mcptest.NoLeaks(t)
	e := newEndpoint(t)
	session := e.initialize(latestSession)
	for _, version := range []string{"invalid-protocol-version", "2000-01-01", "2099-01-01"} {
		for name, headers := range map[string][]string{"without a session": nil, "in a session": session[:1]} {
			status, text := e.post(`{"jsonrpc":"2.0","id":3,"method":"tools/list","params":{}}`,
				slices.Concat(headers, []string{"MCP-Protocol-Version: " + version})...)
			if status != 400 || !strings.Contains(text, `"error":{"code":`) {
				t.Errorf("%s %s: got %d %s, want 400 and an error", version, name, status, text)
			}
		}
	}
	if status, text := e.post(`{"jsonrpc":"2.0","id":4,"method":"ping"}`, session...); status != 200 {
		t.Errorf("ping in the session: got %d %s, want 200", status, text)
	}
}

// Concurrent calls with equal ids are told apart: each response contains its progress and result only.
//
// Requirement: MHTTP-02
func TestEndpointTellsEqualIDsApart(t *testing.T) {
	mcptest.NoLeaks(t)
	for _, revision := range []string{"2025-06-18", latestSession, latestRevision} {
		t.Run(revision, func(t *testing.T) {
			e := newEndpoint(t)
			const calls = 8 // the concurrency of a server
			e.reports.Add(calls)
			var all sync.WaitGroup
			for i := range calls {
				token := fmt.Sprintf("caller-%d-", i)
				body, headers := modernCall("report", token, token)
				if revision != latestRevision {
					body, _, _ = strings.Cut(body, `,"io.modelcontextprotocol/`)
					body, headers = body+"}}}", e.initialize(revision)
				}
				all.Go(func() {
					status, text := e.post(body, headers...)
					if status != 200 || strings.Count(text, `"progressToken":"`+token+`"`) != 1 ||
						strings.Count(text, "notifications/progress") != 1 || !strings.Contains(text, `"text":"`+token+`"`) ||
						strings.Count(text, "caller-") != 3 {
						t.Errorf("%s: got %d %s, want one progress and the result", token, status, text)
					}
				})
			}
			all.Wait()
		})
	}
}
