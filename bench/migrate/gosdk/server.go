// Package gosdk has the server and the client of the migration guide with the official Go SDK.
package gosdk

import (
	"context"
	"encoding/json"
	"fmt"
	"strings"

	"github.com/google/jsonschema-go/jsonschema"
	"github.com/modelcontextprotocol/go-sdk/mcp"
)

type place struct {
	City string `json:"city" jsonschema:"name of a city"`
	Days int    `json:"days,omitempty" jsonschema:"number of days"`
}

// placeSchema adds what tags cannot express.
func placeSchema() *jsonschema.Schema {
	s, err := jsonschema.For[place](nil)
	if err != nil {
		panic(err)
	}
	days := s.Properties["days"]
	days.Minimum, days.Maximum = jsonschema.Ptr(1.0), jsonschema.Ptr(7.0)
	days.Default = json.RawMessage("1")
	return s
}

type forecast struct {
	City    string `json:"city"`
	Degrees []int  `json:"degrees" jsonschema:"one for each day"`
}

func getForecast(
	ctx context.Context, req *mcp.CallToolRequest, in place,
) (*mcp.CallToolResult, forecast, error) {
	f := forecast{City: in.City}
	for day := range in.Days {
		f.Degrees = append(f.Degrees, 20-day)
		if token := req.Params.GetProgressToken(); token != nil {
			err := req.Session.NotifyProgress(ctx, &mcp.ProgressNotificationParams{
				ProgressToken: token, Progress: float64(day + 1), Total: float64(in.Days), Message: "computing",
			})
			if err != nil {
				return nil, forecast{}, err
			}
		}
	}
	return nil, f, nil
}

func book(ctx context.Context, req *mcp.CallToolRequest, in place) (*mcp.CallToolResult, any, error) {
	res, err := req.Session.Elicit(ctx, &mcp.ElicitParams{
		Message: "How many nights in " + in.City + "?",
		RequestedSchema: &jsonschema.Schema{
			Type:       "object",
			Properties: map[string]*jsonschema.Schema{"value": {Type: "integer"}},
			Required:   []string{"value"},
		},
	})
	if err != nil {
		return nil, nil, err
	}
	switch res.Action {
	case "accept":
		nights, ok := res.Content["value"].(float64)
		if !ok {
			return nil, nil, fmt.Errorf("got %T, want a number", res.Content["value"])
		}
		return text(fmt.Sprintf("%.0f nights in %s are booked.", nights, in.City)), nil, nil
	case "decline":
		return text("Nothing was booked."), nil, nil
	}
	return nil, nil, fmt.Errorf("the user has dismissed the question")
}

func text(s string) *mcp.CallToolResult {
	return &mcp.CallToolResult{Content: []mcp.Content{&mcp.TextContent{Text: s}}}
}

func describe(_ context.Context, req *mcp.ReadResourceRequest) (*mcp.ReadResourceResult, error) {
	name := strings.TrimPrefix(req.Params.URI, "city:///")
	return &mcp.ReadResourceResult{Contents: []*mcp.ResourceContents{
		{URI: req.Params.URI, MIMEType: "text/plain", Text: name + " is a city."},
	}}, nil
}

func plan(_ context.Context, req *mcp.GetPromptRequest) (*mcp.GetPromptResult, error) {
	name, ok := req.Params.Arguments["name"]
	if !ok {
		return nil, fmt.Errorf("the argument name is missing")
	}
	return &mcp.GetPromptResult{Messages: []*mcp.PromptMessage{
		{Role: "user", Content: &mcp.TextContent{Text: "Plan a trip to " + name + "."}},
	}}, nil
}

// NewServer returns the server.
func NewServer() *mcp.Server {
	s := mcp.NewServer(&mcp.Implementation{Name: "travel", Version: "1.0.0"}, nil)
	tool := &mcp.Tool{Name: "forecast", Description: "Forecast the weather.", InputSchema: placeSchema()}
	mcp.AddTool(s, tool, getForecast)
	tool = &mcp.Tool{Name: "book", Description: "Book a hotel.", InputSchema: placeSchema()}
	mcp.AddTool(s, tool, book)
	s.AddResourceTemplate(&mcp.ResourceTemplate{URITemplate: "city:///{name}", Name: "city"}, describe)
	s.AddPrompt(&mcp.Prompt{Name: "plan", Description: "Plan a trip.", Arguments: []*mcp.PromptArgument{
		{Name: "name", Required: true},
	}}, plan)
	return s
}
