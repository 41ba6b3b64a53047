package main

import (
	"context"
	"errors"
	"net"
	"net/http"
	"os"
	"testing"

	"github.com/patchbay-mcp/patchbay/mcp"
	"github.com/patchbay-mcp/patchbay/mcphttp"
	"github.com/patchbay-mcp/patchbay/mcptest"
	"github.com/patchbay-mcp/patchbay/mcptest/testhome"
)

func TestMain(m *testing.M) { os.Exit(testhome.Main(m, mcptest.Main)) }

// After SIGTERM, the program is not ready and serves on, so that no request of a load balancer fails.
func TestServesOnAfterSIGTERM(t *testing.T) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	addr := l.Addr().String()
	_ = l.Close()
	ctx, end := context.WithCancel(t.Context())
	defer end()
	mux := http.NewServeMux()
	mux.Handle("GET /readyz", readiness(ctx, func(context.Context) error { return errors.New("unavailable") }))
	served := make(chan error, 1)
	go func() { served <- serve(ctx, addr, mux, mcphttp.NewHandler(mcp.NewServer("test", "1", nil), nil)) }()
	status := func() (code int) {
		for code == 0 { // until the program listens
			res, err := http.Get("http://" + addr + "/readyz")
			if err == nil {
				code = res.StatusCode
				_ = res.Body.Close()
			} else if len(served) > 0 {
				t.Fatalf("the program ended: %v", <-served)
			}
		}
		return code
	}
	if got := status(); got != http.StatusOK {
		t.Errorf("readiness without the store: got %d, want 200", got)
	}
	end()
	if got := status(); got != http.StatusServiceUnavailable {
		t.Errorf("readiness after the signal: got %d, want 503", got)
	}
	if err := <-served; err != nil {
		t.Error(err)
	}
}
