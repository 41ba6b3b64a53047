package patchbay

import (
	"context"
	"encoding/json"
	"fmt"

	"github.com/patchbay-mcp/patchbay/mcp"
)

// Forecast starts a server, calls its tool and returns the degrees of two days.
func Forecast(ctx context.Context, command string) ([]int, error) {
	c, err := mcp.Connect(ctx, mcp.Command(command), &mcp.ClientOptions{Elicit: answer})
	if err != nil {
		return nil, err
	}
	defer c.Close()
	for tool, err := range c.Tools(ctx) {
		if err != nil {
			return nil, err
		}
		fmt.Println(tool.Name)
	}
	f, err := mcp.CallTool[forecast](ctx, c, "forecast", place{City: "Oslo", Days: 2})
	return f.Degrees, err
}

func answer(_ context.Context, p *mcp.ElicitRequestParams) (*mcp.ElicitResult, error) {
	return &mcp.ElicitResult{Action: mcp.ElicitAccept, Content: json.RawMessage(`{"value":3}`)}, nil
}
