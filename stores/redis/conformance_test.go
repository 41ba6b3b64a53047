package redis_test

import (
	"testing"

	"github.com/patchbay-mcp/patchbay/mcp"
	"github.com/patchbay-mcp/patchbay/mcphttp"
	"github.com/patchbay-mcp/patchbay/storetest"
)

func TestEvents(t *testing.T) {
	storetest.RunEvents(t, func(t *testing.T) (mcphttp.EventStore, mcphttp.EventStore) {
		a, b := openTwo(t)
		return a.Events(), b.Events()
	})
}

func TestStates(t *testing.T) {
	storetest.RunStates(t, func(t *testing.T) (mcp.OnceStore, mcp.OnceStore) {
		a, b := openTwo(t)
		return a.States(), b.States()
	})
}
