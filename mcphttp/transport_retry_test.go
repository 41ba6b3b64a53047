package mcphttp_test

import (
	"bytes"
	"context"
	"encoding/json"
	"io"
	"net/http"
	"net/http/httptest"
	"sync"
	"testing"

	"github.com/patchbay-mcp/patchbay/mcp"
	"github.com/patchbay-mcp/patchbay/mcphttp"
)

// A retry with input has its own id, headers and progress token.
//
// Requirement: MRTR-22
func TestRetryHasItsOwnMetadata(t *testing.T) {
	type sent struct {
		ID     json.RawMessage
		Method string
		Params struct {
			InputResponses json.RawMessage
			Meta           map[string]json.RawMessage `json:"_meta"`
		}
		header http.Header
	}
	var mu sync.Mutex
	var calls []sent
	s := mcp.NewServer("s", "1", nil)
	mcp.AddTool(s, &mcp.Tool{Name: "greet"}, func(ctx context.Context, _ struct{}) (string, error) {
		return mcp.Ask[string](ctx, "name", "Your name?", nil)
	})
	h := mcphttp.NewHandler(s, nil)
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		body, _ := io.ReadAll(r.Body)
		r.Body = io.NopCloser(bytes.NewReader(body))
		var m sent
		if json.Unmarshal(body, &m) == nil && m.Method == "tools/call" {
			m.header = r.Header.Clone()
			mu.Lock()
			calls = append(calls, m)
			mu.Unlock()
		}
		h.ServeHTTP(w, r)
	}))
	defer server.Close()
	c, err := mcp.Connect(t.Context(), mcphttp.NewTransport(server.URL, nil), &mcp.ClientOptions{
		Elicit: func(context.Context, *mcp.ElicitRequestParams) (*mcp.ElicitResult, error) {
			return &mcp.ElicitResult{Action: mcp.ElicitAccept, Content: json.RawMessage(`{"value":"Ada"}`)}, nil
		},
		Log: func(context.Context, *mcp.LoggingMessage) {}, LogLevel: "warning",
	})
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	ctx := mcp.WithCallOptions(t.Context(), mcp.CallOptions{Progress: func(mcp.ProgressUpdate) {}})
	if r, err := c.CallTool(ctx, "greet", nil); err != nil || r.Text() != "Ada" {
		t.Fatalf("got %v, %v", r, err)
	}
	if len(calls) != 2 || calls[0].Params.InputResponses != nil || calls[1].Params.InputResponses == nil {
		t.Fatalf("got requests %+v, want the call and its retry", calls)
	}
	const token, level = "progressToken", "io.modelcontextprotocol/logLevel"
	for i, call := range calls {
		if call.header.Get("Mcp-Method") != "tools/call" || call.header.Get("Mcp-Name") != "greet" ||
			call.header.Get("MCP-Protocol-Version") != "2026-07-28" || string(call.Params.Meta[level]) != `"warning"` ||
			call.Params.Meta[token] == nil {
			t.Errorf("request %d: got headers %v and _meta %s", i, call.header, call.Params.Meta)
		}
	}
	if bytes.Equal(calls[0].ID, calls[1].ID) || bytes.Equal(calls[0].Params.Meta[token], calls[1].Params.Meta[token]) {
		t.Errorf("got ids %s and %s, progress tokens %s and %s, want different ones", calls[0].ID, calls[1].ID,
			calls[0].Params.Meta[token], calls[1].Params.Meta[token])
	}
}
