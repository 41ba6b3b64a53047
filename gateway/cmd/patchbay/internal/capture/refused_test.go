package capture_test

import (
	"encoding/json"
	"testing"

	"github.com/patchbay-mcp/patchbay/gateway/cmd/patchbay/internal/capture"
	"github.com/patchbay-mcp/patchbay/jsonrpc"
	"github.com/patchbay-mcp/patchbay/mcp"
)

// A request of the server outside of a call ends with the response of the client, also with a refusal.
func TestRequestOfTheServerEnds(t *testing.T) {
	for want, answer := range map[string]*jsonrpc.Message{
		"ok":           {Result: json.RawMessage(`{"roots":[]}`)},
		"error -32601": {Error: mcp.Errorf(mcp.CodeMethodNotFound, "no roots")},
	} {
		ring := capture.New(&capture.Options{Always: true})
		take := ring.Frames("srv")
		take(mcp.Frame{Message: &jsonrpc.Message{ID: jsonrpc.IntID(1), Method: "roots/list"}})
		if x, _ := find(t, ring, "method:roots/list"); x.IsOver() {
			t.Errorf("before the response: got %+v, want an exchange in progress", x)
		}
		answer.ID = jsonrpc.IntID(1)
		take(mcp.Frame{Sent: true, Message: answer})
		if x, _ := find(t, ring, "method:roots/list"); x.Status != want || !x.IsOver() {
			t.Errorf("got %+v, want the status %q", x, want)
		}
	}
}
