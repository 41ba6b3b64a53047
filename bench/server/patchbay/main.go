// Command patchbay is the server under test: this project's own SDK.
package main

import (
	"context"
	"net/http"

	"github.com/patchbay-mcp/patchbay/bench/internal/echo"
	"github.com/patchbay-mcp/patchbay/bench/internal/rig"
	"github.com/patchbay-mcp/patchbay/mcp"
	"github.com/patchbay-mcp/patchbay/mcphttp"
)

func main() {
	rig.Main(rig.Program{
		HTTP: func(rig.Options) http.Handler {
			return mcphttp.NewHandler(newServer(), nil)
		},
		Stdio: func(rig.Options) error {
			return newServer().Run(context.Background(), mcp.Stdio())
		},
	})
}

func newServer() *mcp.Server {
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
