package inprocess

import (
	"testing"

	"github.com/patchbay-mcp/patchbay/bench/internal/echo"
	"github.com/patchbay-mcp/patchbay/bench/internal/gateway"
	"github.com/patchbay-mcp/patchbay/bench/internal/patchbay"
	"github.com/patchbay-mcp/patchbay/mcp"
)

func openGateway(t testing.TB, era echo.Era) *mcp.Client {
	view, err := gateway.View(gateway.Servers{N: 1, Era: era, Server: patchbay.NewServer})
	if err != nil {
		t.Fatal(err)
	}
	c, err := mcp.Connect(t.Context(), mcp.InMemory(view), nil)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = c.Close() })
	return c
}

func BenchmarkGateway(b *testing.B) {
	for _, era := range []echo.Era{echo.Modern, echo.Session} {
		b.Run(string(era), func(b *testing.B) {
			c := openGateway(b, era)
			name := echo.GatewayTool(echo.GatewayServer(0), echo.Tool)
			b.ReportAllocs()
			for b.Loop() {
				text, err := mcp.CallTool[string](b.Context(), c, name, map[string]any{"message": echo.Message})
				if err != nil || text != echo.Message {
					b.Fatal(text, err)
				}
			}
		})
	}
}
