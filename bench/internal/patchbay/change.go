package patchbay

import (
	"context"
	"strconv"
	"sync/atomic"

	"github.com/patchbay-mcp/patchbay/bench/internal/echo"
	"github.com/patchbay-mcp/patchbay/mcp"
)

// AddChange adds echo.ChangeTool and the tool that it changes.
func AddChange(s *mcp.Server) {
	changed := mcp.AddTool(s, &mcp.Tool{Name: echo.ChangedTool},
		func(_ context.Context, in echo.In) (string, error) { return in.Message, nil })
	var changes atomic.Int64
	mcp.AddTool(s, &mcp.Tool{Name: echo.ChangeTool, Description: echo.ChangeToolDescription},
		func(_ context.Context, in echo.In) (string, error) {
			description := strconv.FormatInt(changes.Add(1), 10)
			changed.Update(func(t *mcp.Tool) { t.Description = description })
			return in.Message, nil
		})
}

// AddUpdate adds a resource and the tool that reports updates of it.
func AddUpdate(s *mcp.Server) {
	mcp.AddResource(s, &mcp.Resource{URI: echo.UpdatedResource, Name: "updated"},
		func(context.Context, string) (string, error) { return echo.Message, nil })
	mcp.AddTool(s, &mcp.Tool{Name: echo.UpdateTool, Description: echo.UpdateToolDescription},
		func(_ context.Context, in echo.In) (string, error) {
			s.ResourceUpdated(echo.UpdatedResource)
			return in.Message, nil
		})
}
