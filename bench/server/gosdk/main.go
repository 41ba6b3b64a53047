// Command gosdk is the official Go SDK as a server under test: with sessions
// for the session era, stateless for the modern one, which it serves in no
// other way.
package main

import (
	"context"
	"net/http"

	"github.com/modelcontextprotocol/go-sdk/mcp"
	"github.com/patchbay-mcp/patchbay/bench/internal/echo"
	"github.com/patchbay-mcp/patchbay/bench/internal/rig"
)

func main() {
	rig.Main(rig.Program{
		HTTP: func(opts rig.Options) http.Handler {
			s := newServer()
			return mcp.NewStreamableHTTPHandler(
				func(*http.Request) *mcp.Server { return s },
				&mcp.StreamableHTTPOptions{
					Stateless:    opts.Era == echo.Modern,
					JSONResponse: !opts.SSE,
				})
		},
		Stdio: func(rig.Options) error {
			return newServer().Run(context.Background(), &mcp.StdioTransport{})
		},
	})
}

func newServer() *mcp.Server {
	s := mcp.NewServer(&mcp.Implementation{Name: "go-sdk", Version: "1.8.0"}, nil)
	mcp.AddTool(s, &mcp.Tool{Name: echo.Tool, Description: echo.ToolDescription}, answer)
	mcp.AddTool(s, &mcp.Tool{Name: echo.ProgressTool, Description: echo.ProgressToolDescription}, answerWithProgress)
	return s
}

func answer(_ context.Context, _ *mcp.CallToolRequest, in echo.In) (*mcp.CallToolResult, any, error) {
	return &mcp.CallToolResult{Content: []mcp.Content{&mcp.TextContent{Text: in.Message}}}, nil, nil
}

func answerWithProgress(ctx context.Context, req *mcp.CallToolRequest, in echo.In) (*mcp.CallToolResult, any, error) {
	if token := req.Params.GetProgressToken(); token != nil {
		note := &mcp.ProgressNotificationParams{ProgressToken: token, Progress: 1, Total: 1}
		if err := req.Session.NotifyProgress(ctx, note); err != nil {
			return nil, nil, err
		}
	}
	return answer(ctx, req, in)
}
