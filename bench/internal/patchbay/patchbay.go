// Package patchbay is this project's server, with the tools of the benchmark.
package patchbay

import (
	"context"

	"github.com/patchbay-mcp/patchbay/bench/internal/echo"
	"github.com/patchbay-mcp/patchbay/mcp"
)

// NewServer returns a server that offers the tools.
func NewServer() *mcp.Server {
	s := mcp.NewServer("patchbay", "1.0.0", nil)
	mcp.AddTool(s, &mcp.Tool{Name: echo.Tool, Description: echo.ToolDescription}, answer)
	mcp.AddTool(s, &mcp.Tool{Name: echo.ProgressTool, Description: echo.ProgressToolDescription}, answerWithProgress)
	return s
}

func answer(_ context.Context, in echo.In) (string, error) {
	return in.Message, nil
}

func answerWithProgress(ctx context.Context, in echo.In) (string, error) {
	mcp.Progress(ctx, 1, 1, "")
	return in.Message, nil
}
