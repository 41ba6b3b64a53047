package gosdk

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os/exec"

	"github.com/modelcontextprotocol/go-sdk/mcp"
)

// Forecast starts a server, calls its tool and returns the degrees of two days.
func Forecast(ctx context.Context, command string) ([]int, error) {
	client := mcp.NewClient(&mcp.Implementation{Name: "traveler", Version: "1.0.0"},
		&mcp.ClientOptions{ElicitationHandler: answer})
	session, err := client.Connect(ctx, &mcp.CommandTransport{Command: exec.Command(command)}, nil)
	if err != nil {
		return nil, err
	}
	defer session.Close()
	for tool, err := range session.Tools(ctx, nil) {
		if err != nil {
			return nil, err
		}
		fmt.Println(tool.Name)
	}
	res, err := session.CallTool(ctx, &mcp.CallToolParams{
		Name: "forecast", Arguments: place{City: "Oslo", Days: 2},
	})
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

func answer(context.Context, *mcp.ElicitRequest) (*mcp.ElicitResult, error) {
	return &mcp.ElicitResult{Action: "accept", Content: map[string]any{"value": 3}}, nil
}
