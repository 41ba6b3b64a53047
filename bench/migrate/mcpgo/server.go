// Package mcpgo has the server and the client of the migration guide with mcp-go.
package mcpgo

import (
	"context"
	"errors"
	"fmt"
	"strings"

	"github.com/mark3labs/mcp-go/mcp"
	"github.com/mark3labs/mcp-go/server"
)

type place struct {
	City string `json:"city"`
	Days int    `json:"days"`
}

// placeOptions are the arguments of both tools, and the description of one.
func placeOptions(description string) []mcp.ToolOption {
	return []mcp.ToolOption{
		mcp.WithDescription(description),
		mcp.WithString("city", mcp.Required(), mcp.Description("name of a city")),
		mcp.WithNumber("days", mcp.Description("number of days"), mcp.Min(1), mcp.Max(7), mcp.DefaultNumber(1.0)),
	}
}

type forecast struct {
	City    string `json:"city"`
	Degrees []int  `json:"degrees" jsonschema:"one for each day"`
}

func getForecast(ctx context.Context, req mcp.CallToolRequest, in place) (forecast, error) {
	if in.Days == 0 {
		in.Days = 1 // defaults of the schema are not applied
	}
	f := forecast{City: in.City}
	for day := range in.Days {
		f.Degrees = append(f.Degrees, 20-day)
		if meta := req.Params.Meta; meta != nil && meta.ProgressToken != nil {
			err := server.ServerFromContext(ctx).SendNotificationToClient(ctx, "notifications/progress", map[string]any{
				"progressToken": meta.ProgressToken, "progress": day + 1, "total": in.Days, "message": "computing",
			})
			if err != nil {
				return forecast{}, err
			}
		}
	}
	return f, nil
}

func book(ctx context.Context, _ mcp.CallToolRequest, in place) (*mcp.CallToolResult, error) {
	res, err := server.ServerFromContext(ctx).RequestElicitation(ctx, mcp.ElicitationRequest{
		Params: mcp.ElicitationParams{
			Message: "How many nights in " + in.City + "?",
			RequestedSchema: map[string]any{
				"type":       "object",
				"properties": map[string]any{"value": map[string]any{"type": "integer"}},
				"required":   []string{"value"},
			},
		},
	})
	if err != nil {
		return nil, err
	}
	switch res.Action {
	case mcp.ElicitationResponseActionAccept:
		content, _ := res.Content.(map[string]any)
		nights, ok := content["value"].(float64)
		if !ok {
			return mcp.NewToolResultErrorf("got %T, want a number", content["value"]), nil
		}
		return mcp.NewToolResultText(fmt.Sprintf("%.0f nights in %s are booked.", nights, in.City)), nil
	case mcp.ElicitationResponseActionDecline:
		return mcp.NewToolResultText("Nothing was booked."), nil
	}
	return mcp.NewToolResultError("the user has dismissed the question"), nil
}

func describe(_ context.Context, req mcp.ReadResourceRequest) ([]mcp.ResourceContents, error) {
	name := strings.TrimPrefix(req.Params.URI, "city:///")
	return []mcp.ResourceContents{
		mcp.TextResourceContents{URI: req.Params.URI, MIMEType: "text/plain", Text: name + " is a city."},
	}, nil
}

func plan(_ context.Context, req mcp.GetPromptRequest) (*mcp.GetPromptResult, error) {
	name, ok := req.Params.Arguments["name"]
	if !ok {
		return nil, errors.New("the argument name is missing")
	}
	return mcp.NewGetPromptResult("", []mcp.PromptMessage{
		mcp.NewPromptMessage(mcp.RoleUser, mcp.NewTextContent("Plan a trip to "+name+".")),
	}), nil
}

// NewServer returns the server.
func NewServer() *server.MCPServer {
	s := server.NewMCPServer("travel", "1.0.0",
		server.WithElicitation(), server.WithInputSchemaValidation(), server.WithRecovery())
	options := append(placeOptions("Forecast the weather."), mcp.WithOutputSchema[forecast]())
	s.AddTool(mcp.NewTool("forecast", options...), mcp.NewStructuredToolHandler(getForecast))
	s.AddTool(mcp.NewTool("book", placeOptions("Book a hotel.")...), mcp.NewTypedToolHandler(book))
	s.AddResourceTemplate(mcp.NewResourceTemplate("city:///{name}", "city"), describe)
	s.AddPrompt(mcp.NewPrompt("plan", mcp.WithPromptDescription("Plan a trip."),
		mcp.WithArgument("name", mcp.RequiredArgument())), plan)
	return s
}
