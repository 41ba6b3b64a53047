package patchbay

import (
	"context"
	"strconv"
	"sync/atomic"

	"github.com/patchbay-mcp/patchbay/bench/internal/echo"
	"github.com/patchbay-mcp/patchbay/mcp"
)

// AddChange adds the tool that changes the list, and the one that it changes.
func AddChange(s *mcp.Server) {
	changed := mcp.AddTool(s, &mcp.Tool{Name: echo.ChangedTool}, func(_ context.Context, in echo.In) (string, error) { return in.Message, nil })
	var changes atomic.Int64
	mcp.AddTool(s, &mcp.Tool{Name: echo.ChangeTool, Description: echo.ChangeToolDescription},
		func(_ context.Context, in echo.In) (string, error) {
			description := strconv.FormatInt(changes.Add(1), 10)
			changed.Update(func(t *mcp.Tool) { t.Description = description })
			return in.Message, nil
		})
}
