package inprocess

import (
	"testing"

	"github.com/patchbay-mcp/patchbay/bench/internal/echo"
	"github.com/patchbay-mcp/patchbay/bench/internal/patchbay"
	"github.com/patchbay-mcp/patchbay/jsonrpc"
	"github.com/patchbay-mcp/patchbay/mcp"
)

func BenchmarkInProcess_Server_Patchbay(b *testing.B) {
	ctx, server := b.Context(), mcp.Driver(patchbay.NewServer())
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
		if out, failure = server.AppendResponse(out[:0], ctx, req); failure != nil {
			return nil, failure
		}
		return out, nil
	})
}

func BenchmarkInProcess_ServeMCP_Patchbay(b *testing.B) {
	ctx, s := b.Context(), patchbay.NewServer()
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

func BenchmarkInProcess_Client_Patchbay(b *testing.B) {
	ctx := b.Context()
	c, err := mcp.Connect(ctx, mcp.InMemory(patchbay.NewServer()), nil)
	if err != nil {
		b.Fatal(err)
	}
	defer c.Close()
	benchmarkClient(b, func(message string) (string, error) {
		return mcp.CallTool[string](ctx, c, echo.Tool, map[string]any{"message": message})
	})
}
