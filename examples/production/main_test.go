package main

import (
	"context"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/patchbay-mcp/patchbay/mcp"
	"github.com/patchbay-mcp/patchbay/mcphttp"
)

const stateKey = "000102030405060708090a0b0c0d0e0f101112131415161718191a1b1c1d1e1f"

func TestHostsAndOrigins(t *testing.T) {
	s, err := newServer(stateKey)
	if err != nil {
		t.Fatal(err)
	}
	mux := newMux(newHandler(s, []string{"mcp.example.com"}, []string{"https://app.example.com"}))
	for _, test := range []struct {
		method, path, host, origin string
		want                       int
	}{
		{"OPTIONS", "/mcp", "mcp.example.com", "https://app.example.com", http.StatusNoContent},
		{"OPTIONS", "/mcp", "mcp.example.com", "https://mcp.example.com", http.StatusNoContent},
		{"OPTIONS", "/mcp", "mcp.example.com", "https://other.example", http.StatusForbidden},
		{"OPTIONS", "/mcp", "other.example", "", http.StatusForbidden},
		{"GET", "/healthz", "10.0.0.7", "", http.StatusOK},
	} {
		req := httptest.NewRequest(test.method, test.path, nil)
		req.Host = test.host
		if test.origin != "" {
			req.Header.Set("Origin", test.origin)
		}
		resp := httptest.NewRecorder()
		mux.ServeHTTP(resp, req)
		if resp.Code != test.want {
			t.Errorf("%+v: got status %d", test, resp.Code)
		}
	}
}

func TestServe(t *testing.T) {
	s, err := newServer(stateKey)
	if err != nil {
		t.Fatal(err)
	}
	server := httptest.NewServer(newMux(newHandler(s, []string{"mcp.example.com"}, nil)))
	defer server.Close()
	c, err := mcp.Connect(t.Context(), mcphttp.NewTransport(server.URL+"/mcp", nil), nil)
	if err != nil {
		t.Fatal(err) // on a loopback address, local names are allowed too
	}
	defer c.Close()
	if got, err := mcp.CallTool[int](t.Context(), c, "add", sum{1, 2}); err != nil || got != 3 {
		t.Errorf("got %d, %v", got, err)
	}
}

func TestShutdown(t *testing.T) {
	ctx, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
	defer cancel()
	settings := map[string]string{"MCP_ADDR": "127.0.0.1:0", "MCP_STATE_KEY": stateKey}
	if err := run(ctx, func(name string) string { return settings[name] }); err != nil {
		t.Error(err)
	}
	if err := run(ctx, func(string) string { return "" }); err == nil || !strings.Contains(err.Error(), "MCP_STATE_KEY") {
		t.Errorf("without a key: got %v", err)
	}
}
