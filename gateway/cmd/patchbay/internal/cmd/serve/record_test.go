package serve

import (
	"context"
	"testing"

	"github.com/patchbay-mcp/patchbay/gateway/cmd/patchbay/internal/capture"
	"github.com/patchbay-mcp/patchbay/mcp"
)

// Each request is recorded once: a request of the console at its connection, and a request of another client by the
// server.
func TestEachRequestIsRecordedOnce(t *testing.T) {
	ring := capture.New(&capture.Options{Always: true})
	server := mcp.NewServer("demo", "1", &mcp.ServerOptions{
		Middleware: []mcp.Middleware{recordClients(ring.Middleware("demo"))}})
	mcp.AddTool(server, &mcp.Tool{Name: "add"}, func(context.Context, struct{}) (string, error) { return "3", nil })
	calls, err := capture.ParseQuery("method:tools/call")
	if err != nil {
		t.Fatal(err)
	}
	for n, transport := range []mcp.Transport{mcp.InMemory(server),
		ring.Connect(mcp.InMemory(recorded{server}), "demo", "")} {
		c, err := mcp.Connect(t.Context(), transport, nil)
		if err != nil {
			t.Fatal(err)
		}
		if _, err := c.CallTool(t.Context(), "add", nil); err != nil {
			t.Fatal(err)
		}
		c.Close()
		if got := ring.Find(calls, 0, 10); len(got) != n+1 {
			t.Errorf("after call %d: got %d exchanges: %+v", n+1, len(got), got)
		}
	}
}
