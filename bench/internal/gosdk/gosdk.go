// Package gosdk builds servers of the official Go SDK with the tools of the
// benchmark.
package gosdk

import (
	"context"
	"strconv"

	"github.com/modelcontextprotocol/go-sdk/mcp"
	"github.com/patchbay-mcp/patchbay/bench/internal/echo"
)

// NewServer returns a server that offers the tools.
func NewServer() *mcp.Server {
	s := NewLister(0)
	mcp.AddTool(s, &mcp.Tool{Name: echo.Tool, Description: echo.ToolDescription}, answer)
	mcp.AddTool(s, &mcp.Tool{Name: echo.ProgressTool, Description: echo.ProgressToolDescription},
		answerWithNotifications(1))
	mcp.AddTool(s, &mcp.Tool{Name: echo.NotificationsTool, Description: echo.NotificationsToolDescription},
		answerWithNotifications(echo.Notifications))
	mcp.AddTool(s, &mcp.Tool{Name: echo.CountTool, Description: echo.CountToolDescription}, count)
	mcp.AddTool(s, &mcp.Tool{Name: echo.LargeTool, Description: echo.LargeToolDescription}, large)
	return s
}

// NewLister returns a server that offers n tools.
func NewLister(n int) *mcp.Server {
	s := mcp.NewServer(&mcp.Implementation{Name: "go-sdk", Version: "1.8.0"}, nil)
	for i := range n {
		mcp.AddTool(s, &mcp.Tool{Name: echo.ListedTool(i), Description: echo.ToolDescription}, answer)
	}
	return s
}

func answer(_ context.Context, _ *mcp.CallToolRequest, in echo.In) (*mcp.CallToolResult, any, error) {
	return text(in.Message), nil, nil
}

func answerWithNotifications(n int) mcp.ToolHandlerFor[echo.In, any] {
	return func(ctx context.Context, req *mcp.CallToolRequest, in echo.In) (*mcp.CallToolResult, any, error) {
		if token := req.Params.GetProgressToken(); token != nil {
			for i := range n {
				note := &mcp.ProgressNotificationParams{ProgressToken: token, Progress: float64(i + 1),
					Total: float64(n)}
				if err := req.Session.NotifyProgress(ctx, note); err != nil {
					return nil, nil, err
				}
			}
		}
		return text(in.Message), nil, nil
	}
}

func count(_ context.Context, _ *mcp.CallToolRequest, in echo.In) (*mcp.CallToolResult, any, error) {
	return text(strconv.Itoa(len(in.Message))), nil, nil
}

func large(context.Context, *mcp.CallToolRequest, echo.In) (*mcp.CallToolResult, any, error) {
	return text(echo.Large()), nil, nil
}

func text(s string) *mcp.CallToolResult {
	return &mcp.CallToolResult{Content: []mcp.Content{&mcp.TextContent{Text: s}}}
}
