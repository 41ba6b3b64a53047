// Package inprocess holds benchmarks without a network: one modern call of a
// typed tool.
//
//   - Server: the bytes of a request in, the bytes of the answer out.
//   - Client: the same SDK on both sides, over its own in-memory transport.
//   - ServeMCP: the handler alone, message decoded and result not encoded.
package inprocess

import (
	"testing"

	"github.com/patchbay-mcp/patchbay/bench/internal/echo"
	"github.com/patchbay-mcp/patchbay/bench/internal/load"
)

// call is what the Server and ServeMCP benchmarks ask for.
var call = load.Call{Era: echo.Modern, Tool: echo.Tool}

// benchmarkServer measures serve, whose first answer must be right.
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

// benchmarkClient measures ask, which must return what it is given.
func benchmarkClient(b *testing.B, ask func(message string) (string, error)) {
	b.ReportAllocs()
	for b.Loop() {
		if text, err := ask(echo.Message); err != nil || text != echo.Message {
			b.Fatal(text, err)
		}
	}
}
