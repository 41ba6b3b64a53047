package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"sync/atomic"
	"time"

	"github.com/modelcontextprotocol/go-sdk/mcp"
)

type (
	addIn       struct{ A, B int }
	addOut      struct{ Sum int }
	countIn     struct{ Steps int }
	noArguments struct{}
	callTool    = mcp.CallToolRequest
)

func addTools(s *mcp.Server) {
	mcp.AddTool(s, &mcp.Tool{Name: "add", Description: "Adds."},
		func(_ context.Context, _ *callTool, in addIn) (*mcp.CallToolResult, addOut, error) {
			return nil, addOut{in.A + in.B}, nil
		})
	mcp.AddTool(s, &mcp.Tool{Name: "count", Description: "Counts, with progress and log messages."}, count)
	mcp.AddTool(s, &mcp.Tool{Name: "fail", Description: "Fails."},
		func(context.Context, *callTool, noArguments) (*mcp.CallToolResult, any, error) {
			return nil, nil, errors.New("it failed, as it should")
		})
	mcp.AddTool(s, &mcp.Tool{Name: "greet", Description: "Asks for a name."}, greet)
	mcp.AddTool(s, &mcp.Tool{Name: "summarize", Description: "Asks a model."}, summarize)
	mcp.AddTool(s, &mcp.Tool{Name: "where", Description: "Asks for the roots."}, where)
	mcp.AddTool(s, &mcp.Tool{Name: "increment", Description: "Changes the counter."},
		func(ctx context.Context, _ *callTool, _ noArguments) (*mcp.CallToolResult, any, error) {
			return text("done"), nil, s.ResourceUpdated(ctx, &mcp.ResourceUpdatedNotificationParams{URI: "demo://counter"})
		})
	var grown atomic.Int64
	mcp.AddTool(s, &mcp.Tool{Name: "grow", Description: "Adds a tool."},
		func(context.Context, *callTool, noArguments) (*mcp.CallToolResult, any, error) {
			mcp.AddTool(s, &mcp.Tool{Name: fmt.Sprint("added", grown.Add(1))},
				func(context.Context, *callTool, noArguments) (*mcp.CallToolResult, any, error) {
					return text("added"), nil, nil
				})
			return text("done"), nil, nil
		})
	cancelled := make(chan struct{}, 1000)
	mcp.AddTool(s, &mcp.Tool{Name: "wait", Description: "Waits to be cancelled."},
		func(ctx context.Context, req *callTool, _ noArguments) (*mcp.CallToolResult, any, error) {
			notifyProgress(ctx, req, 1, 1) // the call has started
			<-ctx.Done()
			cancelled <- struct{}{}
			return nil, nil, ctx.Err()
		})
	mcp.AddTool(s, &mcp.Tool{Name: "cancelled", Description: "Waits until the wait tool was cancelled."},
		func(context.Context, *callTool, noArguments) (*mcp.CallToolResult, any, error) {
			select {
			case <-cancelled:
				return text("yes"), nil, nil
			case <-time.After(5 * time.Second):
				return text("no"), nil, nil
			}
		})
}

func text(s string) *mcp.CallToolResult {
	return &mcp.CallToolResult{Content: []mcp.Content{&mcp.TextContent{Text: s}}}
}

func notifyProgress(ctx context.Context, req *callTool, step, steps int) {
	if token := req.Params.GetProgressToken(); token != nil {
		_ = req.Session.NotifyProgress(ctx, &mcp.ProgressNotificationParams{ProgressToken: token,
			Progress: float64(step), Total: float64(steps)})
	}
}

func count(ctx context.Context, req *callTool, in countIn) (*mcp.CallToolResult, any, error) {
	for i := 1; i <= in.Steps; i++ {
		notifyProgress(ctx, req, i, in.Steps)
		_ = req.Session.Log(ctx, &mcp.LoggingMessageParams{Level: "info", Logger: "count",
			Data: fmt.Sprint("step ", i)})
	}
	return text(fmt.Sprint("counted to ", in.Steps)), nil, nil
}

func greet(_ context.Context, req *callTool, _ noArguments) (*mcp.CallToolResult, any, error) {
	if answer, ok := req.Params.InputResponses["name"].(*mcp.ElicitResult); ok {
		if answer.Action != "accept" {
			return text("declined"), nil, nil
		}
		return text(fmt.Sprintf("Hello, %s! (%s)", answer.Content["name"], req.Params.RequestState)), nil, nil
	}
	return &mcp.CallToolResult{RequestState: "state", InputRequests: mcp.InputRequestMap{"name": &mcp.ElicitParams{
		Message:         "Who are you?",
		RequestedSchema: json.RawMessage(`{"type":"object","properties":{"name":{"type":"string"}},"required":["name"]}`),
	}}}, nil, nil
}

func summarize(_ context.Context, req *callTool, _ noArguments) (*mcp.CallToolResult, any, error) {
	if answer, ok := req.Params.InputResponses["summary"].(*mcp.CreateMessageWithToolsResult); ok &&
		len(answer.Content) == 1 {
		return text(answer.Content[0].(*mcp.TextContent).Text), nil, nil
	}
	return &mcp.CallToolResult{InputRequests: mcp.InputRequestMap{"summary": &mcp.CreateMessageParams{
		Messages: []*mcp.SamplingMessage{{Role: "user", Content: &mcp.TextContent{Text: "Summarize."}}}, MaxTokens: 10,
	}}}, nil, nil
}

func where(_ context.Context, req *callTool, _ noArguments) (*mcp.CallToolResult, any, error) {
	if answer, ok := req.Params.InputResponses["roots"].(*mcp.ListRootsResult); ok && len(answer.Roots) == 1 {
		return text(answer.Roots[0].URI), nil, nil
	}
	return &mcp.CallToolResult{InputRequests: mcp.InputRequestMap{"roots": &mcp.ListRootsParams{}}}, nil, nil
}
