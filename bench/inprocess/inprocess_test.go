// Package inprocess contains benchmarks of one modern call of a typed tool
// without a network.
//
//   - Server: from the bytes of a request to the bytes of the response.
//   - Client: the same SDK on both sides, over its in-memory transport.
//   - ServeMCP: the handler alone, without decoding the request or encoding the result.
package inprocess

import (
	"testing"

	"github.com/patchbay-mcp/patchbay/bench/internal/echo"
	"github.com/patchbay-mcp/patchbay/bench/internal/load"
)

// call is the request of the Server and ServeMCP benchmarks.
var call = load.Call{Era: echo.Modern, Tool: echo.Tool}

// benchmarkServer measures serve and checks its first response.
func benchmarkServer(b *testing.B, serve func(message []byte) ([]byte, error)) {
	message := call.Message()
	answer, err := serve(message)
	if err != nil {
		b.Fatal(err)
	}
	if err := call.Check(answer); err != nil {
		b.Fatal(err)
	}
	b.ReportAllocs()
	for b.Loop() {
		if _, err := serve(message); err != nil {
			b.Fatal(err)
		}
	}
}

// benchmarkClient measures call, which must return its argument.
func benchmarkClient(b *testing.B, call func(message string) (string, error)) {
	b.ReportAllocs()
	for b.Loop() {
		if text, err := call(echo.Message); err != nil || text != echo.Message {
			b.Fatal(text, err)
		}
	}
}
