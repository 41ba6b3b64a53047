package redis_test

import (
	"testing"

	"github.com/patchbay-mcp/patchbay/mcp"
	"github.com/patchbay-mcp/patchbay/mcphttp"
	"github.com/patchbay-mcp/patchbay/stores/redis"
)

// TestDocOpen runs the code of the package comment.
func TestDocOpen(t *testing.T) {
	ctx, url, opts := t.Context(), need(t).url(), calm()
	server := mcp.NewServer("press", "1.0.0", nil)
	err := func() error {
		store, err := redis.Open(ctx, url, opts)
		if err != nil {
			return err
		}
		defer store.Close()
		sessions := mcphttp.SessionOptions{Store: store.Sessions(), Events: store.Events()}
		handler := mcphttp.NewHandler(server, &mcphttp.Options{Sessions: sessions})
		return handler.Shutdown(ctx)
	}()
	if err != nil {
		t.Error(err)
	}
}
