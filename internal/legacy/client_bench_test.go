package legacy

import (
	"encoding/json"
	"testing"

	"github.com/patchbay-mcp/patchbay/internal/wire"
	"github.com/patchbay-mcp/patchbay/jsonrpc"
)

// BenchmarkClientRoundTrip measures the translation of a small call.
func BenchmarkClientRoundTrip(b *testing.B) {
	conn := &echoConn{answer: jsonrpc.Message{ID: jsonrpc.IntID(1), Result: json.RawMessage(`{"content":[{"type":"text","text":"hello world"}]}`)}}
	c := openClient(b, wire.LatestLegacy(), conn)
	params := json.RawMessage(`{"_meta":{"io.modelcontextprotocol/protocolVersion":"2025-11-25","io.modelcontextprotocol/clientInfo":{"name":"bench","version":"1.0.0"},` +
		`"io.modelcontextprotocol/clientCapabilities":{},"io.modelcontextprotocol/logLevel":"info"},"name":"echo","arguments":{"message":"hello world"}}`)
	b.ReportAllocs()
	for b.Loop() {
		if _, err := c.RoundTrip(b.Context(), wire.MethodToolsCall, params, nil); err != nil {
			b.Fatal(err)
		}
	}
}
