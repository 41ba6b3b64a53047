package legacy_test

import (
	"context"
	"testing"

	"github.com/patchbay-mcp/patchbay/internal/legacy"
	"github.com/patchbay-mcp/patchbay/internal/wire"
	"github.com/patchbay-mcp/patchbay/jsonrpc"
)

// A cannedCore returns the same result for every request.
type cannedCore struct {
	fakeCore
	result string
}

func (c *cannedCore) Serve(
	_ context.Context, dst []byte, req wire.Request, _ legacy.Notify,
) (_ []byte, isProjected bool, _ *jsonrpc.Error) {
	return append(dst, c.result...), false, nil
}

const cannedResult = `{"resultType":"complete","_meta":{"io.modelcontextprotocol/serverInfo":{"name":"s","version":"1"}},"content":[{"type":"text","text":"hello"}]}`

func BenchmarkCall(b *testing.B) {
	for _, version := range []string{"2024-11-05", "2025-11-25"} {
		b.Run(version, func(b *testing.B) {
			core := &cannedCore{fakeCore: fakeCore{discovered: discovered}, result: discovered}
			session, answer := legacy.Initialize(b.Context(), config(core), initialize(version))
			if session == nil {
				b.Fatal(answer.Error)
			}
			core.result = cannedResult
			request := message(`{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"echo","arguments":{"message":"hello"}}}`)
			var buf []byte
			b.ReportAllocs()
			for b.Loop() {
				x := new(legacy.Exchange)
				if reply := session.Begin(b.Context(), x, request, nil); reply != nil {
					b.Fatal(reply.Error)
				}
				buf, _ = x.AppendResponse(buf[:0])
			}
		})
	}
}
