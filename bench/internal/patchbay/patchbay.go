// Package patchbay builds servers of this project with the tools of the
// benchmark.
package patchbay

import (
	"context"
	"encoding/json"
	"strconv"

	"github.com/patchbay-mcp/patchbay/bench/internal/echo"
	"github.com/patchbay-mcp/patchbay/mcp"
)

// NewServer returns a server that offers the tools.
func NewServer() *mcp.Server { return NewObserved(nil) }

// NewObserved is [NewServer] with an observer, which may be nil.
func NewObserved(o mcp.Observer) *mcp.Server {
	s := mcp.NewServer("patchbay", "1.0.0", &mcp.ServerOptions{Observer: o})
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
	s := mcp.NewServer("patchbay", "1.0.0", nil)
	for i := range n {
		mcp.AddTool(s, &mcp.Tool{Name: echo.ListedTool(i), Description: echo.ToolDescription}, answer)
	}
	return s
}

// NewWideLister returns a server that offers n tools as echo.WideTool describes them.
func NewWideLister(n int) *mcp.Server {
	s := mcp.NewServer("patchbay", "1.0.0", nil)
	for i := range n {
		description, schema := echo.WideTool(i)
		mcp.AddTool(s, &mcp.Tool{Name: echo.ListedTool(i), Description: description,
			InputSchema: json.RawMessage(schema)}, answer)
	}
	return s
}

// NewAsker returns a server that offers echo.AskTool.
func NewAsker() *mcp.Server {
	s := mcp.NewServer("patchbay", "1.0.0", nil)
	mcp.AddTool(s, &mcp.Tool{Name: echo.AskTool, Description: echo.AskToolDescription},
		func(ctx context.Context, in echo.In) (string, error) {
			_, err := mcp.Ask[bool](ctx, "sure", "Sure?", nil)
			return in.Message, err
		})
	return s
}

func answer(_ context.Context, in echo.In) (string, error) { return in.Message, nil }

func answerWithNotifications(n int) func(context.Context, echo.In) (string, error) {
	return func(ctx context.Context, in echo.In) (string, error) {
		for i := range n {
			mcp.Progress(ctx, float64(i+1), float64(n), "")
		}
		return in.Message, nil
	}
}

func count(_ context.Context, in echo.In) (string, error) { return strconv.Itoa(len(in.Message)), nil }

func large(context.Context, echo.In) (string, error) { return echo.Large(), nil }

// NewGatewayLister returns a server that offers what a gateway does over several servers with n tools
// together.
func NewGatewayLister(servers, n int) *mcp.Server {
	s := mcp.NewServer("patchbay", "1.0.0", &mcp.ServerOptions{PageSize: echo.GatewayPage})
	for i := range n {
		each := n / servers
		name := echo.GatewayTool(echo.GatewayServer(i/each), echo.ListedTool(i%each))
		mcp.AddTool(s, &mcp.Tool{Name: name, Description: echo.ToolDescription}, answer)
	}
	return s
}
