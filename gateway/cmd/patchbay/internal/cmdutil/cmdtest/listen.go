package cmdtest

import (
	"context"
	"net/http/httptest"
	"testing"

	"github.com/patchbay-mcp/patchbay/mcp"
	"github.com/patchbay-mcp/patchbay/mcphttp"
)

// ListenHTTP serves s over HTTP until the test ends, and returns its URL.
func ListenHTTP(t *testing.T, s mcp.Handler) string {
	t.Helper()
	h := mcphttp.NewHandler(s, nil)
	web := httptest.NewServer(h)
	t.Cleanup(func() {
		if err := h.Shutdown(context.Background()); err != nil {
			t.Error(err)
		}
		web.Close()
	})
	return web.URL
}
