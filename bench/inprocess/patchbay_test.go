package inprocess

import (
	"context"
	"testing"

	"github.com/patchbay-mcp/patchbay/bench/internal/echo"
	"github.com/patchbay-mcp/patchbay/jsonrpc"
	"github.com/patchbay-mcp/patchbay/mcp"
)

func newPatchbay() *mcp.Server {
	s := mcp.NewServer("patchbay", "1.0.0", nil)
	mcp.AddTool(s, &mcp.Tool{Name: echo.Tool, Description: echo.ToolDescription},
		func(_ context.Context, in echo.In) (string, error) { return in.Message, nil })
	return s
}

func BenchmarkInProcess_Server_Patchbay(b *testing.B) {
	ctx, s := b.Context(), newPatchbay()
	var out []byte
	benchmarkServer(b, func(message []byte) ([]byte, error) {
		m, err := jsonrpc.Decode(message)
		if err != nil {
			return nil, err
		}
		req, err := mcp.NewRequest(m)
		if err != nil {
			return nil, err
		}
		var failure *mcp.Error
		if out, failure = mcp.AppendAnswer(out[:0], ctx, s, req); failure != nil {
			return nil, failure
		}
		return out, nil
	})
}

func BenchmarkInProcess_ServeMCP_Patchbay(b *testing.B) {
	ctx, s := b.Context(), newPatchbay()
	m, err := jsonrpc.Decode(call.Message())
	if err != nil {
		b.Fatal(err)
	}
	b.ReportAllocs()
	for b.Loop() {
		req, err := mcp.NewRequest(m)
		if err != nil {
			b.Fatal(err)
		}
		if _, err := s.ServeMCP(ctx, req); err != nil {
			b.Fatal(err)
		}
	}
}
