package mcphttp_test

import (
	"context"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"time"

	"github.com/patchbay-mcp/patchbay/mcp"
	"github.com/patchbay-mcp/patchbay/mcphttp"
)

func newGreeter() *mcp.Server {
	s := mcp.NewServer("greeter", "1.0.0", nil)
	type in struct {
		Name string `json:"name"`
	}
	mcp.AddTool(s, &mcp.Tool{Name: "greet", Description: "Say hello"}, func(_ context.Context, in in) (string, error) {
		return "Hello, " + in.Name, nil
	})
	return s
}

// One handler serves clients of every revision. This request is of 2026-07-28.
func ExampleNewHandler() {
	mux := http.NewServeMux()
	mux.Handle("/mcp", mcphttp.NewHandler(newGreeter(), nil))
	server := httptest.NewServer(mux)
	defer server.Close()

	const body = `{"jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": {"name": "greet", "arguments": {"name": "Ada"},
		"_meta": {"io.modelcontextprotocol/protocolVersion": "2026-07-28", "io.modelcontextprotocol/clientCapabilities": {}}}}`
	req, err := http.NewRequest("POST", server.URL+"/mcp", strings.NewReader(body))
	if err != nil {
		panic(err)
	}
	req.Header.Set("Content-Type", "application/json")
	req.Header.Set("MCP-Protocol-Version", "2026-07-28")
	req.Header.Set("Mcp-Method", "tools/call")
	req.Header.Set("Mcp-Name", "greet")
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		panic(err)
	}
	defer resp.Body.Close()
	answer, err := io.ReadAll(resp.Body)
	if err != nil {
		panic(err)
	}
	fmt.Println(resp.Status, strings.Contains(string(answer), "Hello, Ada"))
	// Output: 200 OK true
}

// A web page of another origin may use the server only if the origin is in AllowedOrigins.
func ExampleOptions() {
	h := mcphttp.NewHandler(newGreeter(), &mcphttp.Options{AllowedOrigins: []string{"https://app.example.com"}})
	for _, origin := range []string{"https://app.example.com", "https://evil.example"} {
		req := httptest.NewRequest("OPTIONS", "/mcp", nil)
		req.Header.Set("Origin", origin)
		resp := httptest.NewRecorder()
		h.ServeHTTP(resp, req)
		fmt.Println(origin, resp.Code)
	}
	// Output:
	// https://app.example.com 204
	// https://evil.example 403
}

// When the context ends, subscriptions end with their result and calls may finish.
func ExampleListenAndServe() {
	ctx, stop := context.WithTimeout(context.Background(), 10*time.Millisecond)
	defer stop()
	err := mcphttp.ListenAndServe(ctx, "127.0.0.1:0", "/mcp", mcphttp.NewHandler(newGreeter(), nil))
	fmt.Println(err)
	// Output: <nil>
}

// A long call does not need a connection: its client polls for the result.
func ExampleCloseStream() {
	s := mcp.NewServer("builder", "1.0.0", nil)
	mcp.AddTool(s, &mcp.Tool{Name: "build"}, func(ctx context.Context, _ struct{}) (string, error) {
		if err := mcphttp.CloseStream(ctx, 5*time.Second); err != nil {
			fmt.Println(err) // this client cannot poll
		}
		return "built", nil
	})
	fmt.Println(mcphttp.CloseStream(context.Background(), time.Second))
	// Output: unsupported operation
}
