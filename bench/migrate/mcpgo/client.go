package mcpgo

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"

	"github.com/mark3labs/mcp-go/client"
	"github.com/mark3labs/mcp-go/client/transport"
	"github.com/mark3labs/mcp-go/mcp"
)

// Forecast starts a server, calls its tool and returns the degrees of two days.
func Forecast(ctx context.Context, command string) ([]int, error) {
	c := client.NewClient(transport.NewStdio(command, nil), client.WithElicitationHandler(answer{}))
	if err := c.Start(ctx); err != nil {
		return nil, err
	}
	defer c.Close()
	var init mcp.InitializeRequest
	init.Params.ProtocolVersion = mcp.LATEST_PROTOCOL_VERSION
	init.Params.ClientInfo = mcp.Implementation{Name: "traveler", Version: "1.0.0"}
	if _, err := c.Initialize(ctx, init); err != nil {
		return nil, err
	}
	tools, err := c.ListTools(ctx, mcp.ListToolsRequest{})
	if err != nil {
		return nil, err
	}
	for _, tool := range tools.Tools {
		fmt.Println(tool.Name)
	}
	var req mcp.CallToolRequest
	req.Params.Name = "forecast"
	req.Params.Arguments = place{City: "Oslo", Days: 2}
	res, err := c.CallTool(ctx, req)
	if err != nil {
		return nil, err
	}
	if res.IsError {
		return nil, errors.New("the tool failed")
	}
	raw, err := json.Marshal(res.StructuredContent)
	if err != nil {
		return nil, err
	}
	var f forecast
	err = json.Unmarshal(raw, &f)
	return f.Degrees, err
}

type answer struct{}

func (answer) Elicit(context.Context, mcp.ElicitationRequest) (*mcp.ElicitationResult, error) {
	return &mcp.ElicitationResult{ElicitationResponse: mcp.ElicitationResponse{
		Action: mcp.ElicitationResponseActionAccept, Content: map[string]any{"value": 3},
	}}, nil
}
