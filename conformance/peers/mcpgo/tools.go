package main

import (
	"context"
	"errors"
	"fmt"
	"sync/atomic"
	"time"

	"github.com/mark3labs/mcp-go/mcp"
	"github.com/mark3labs/mcp-go/server"
)

func addTools(s *server.MCPServer) {
	type addOut struct {
		Sum int
	}
	s.AddTool(mcp.NewTool("add", mcp.WithDescription("Adds."), mcp.WithNumber("A", mcp.Required()),
		mcp.WithNumber("B", mcp.Required()), mcp.WithOutputSchema[addOut]()),
		func(_ context.Context, req mcp.CallToolRequest) (*mcp.CallToolResult, error) {
			return mcp.NewToolResultStructuredOnly(addOut{req.GetInt("A", 0) + req.GetInt("B", 0)}), nil
		})
	add := func(name, description string, f server.ToolHandlerFunc, opts ...mcp.ToolOption) {
		s.AddTool(mcp.NewTool(name, append(opts, mcp.WithDescription(description))...), f)
	}
	add("count", "Counts, with progress and log messages.", count, mcp.WithNumber("Steps"))
	add("fail", "Fails.", func(context.Context, mcp.CallToolRequest) (*mcp.CallToolResult, error) {
		return mcp.NewToolResultErrorFromErr("", errors.New("it failed, as it should")), nil
	})
	add("greet", "Asks for a name.", greet)
	add("summarize", "Asks a model.", summarize)
	add("where", "Asks for the roots.", where)
	add("increment", "Changes the counter.", func(context.Context, mcp.CallToolRequest) (*mcp.CallToolResult, error) {
		s.SendNotificationToAllClients(string(mcp.MethodNotificationResourceUpdated),
			map[string]any{"uri": "demo://counter"})
		return mcp.NewToolResultText("done"), nil
	})
	var grown atomic.Int64
	add("grow", "Adds a tool.", func(context.Context, mcp.CallToolRequest) (*mcp.CallToolResult, error) {
		add(fmt.Sprint("added", grown.Add(1)), "New.", func(context.Context, mcp.CallToolRequest) (*mcp.CallToolResult, error) {
			return mcp.NewToolResultText("added"), nil
		})
		return mcp.NewToolResultText("done"), nil
	})
	cancelled := make(chan struct{}, 1000)
	add("wait", "Waits to be cancelled.",
		func(ctx context.Context, req mcp.CallToolRequest) (*mcp.CallToolResult, error) {
			notifyProgress(ctx, req, 1, 1) // the call has started
			<-ctx.Done()
			cancelled <- struct{}{}
			return nil, ctx.Err()
		})
	add("cancelled", "Waits until the wait tool was cancelled.",
		func(context.Context, mcp.CallToolRequest) (*mcp.CallToolResult, error) {
			select {
			case <-cancelled:
				return mcp.NewToolResultText("yes"), nil
			case <-time.After(5 * time.Second):
				return mcp.NewToolResultText("no"), nil
			}
		})
}

func notifyProgress(ctx context.Context, req mcp.CallToolRequest, step, steps int) {
	if req.Params.Meta == nil || req.Params.Meta.ProgressToken == nil {
		return
	}
	_ = server.ServerFromContext(ctx).SendNotificationToClient(ctx, string(mcp.MethodNotificationProgress),
		map[string]any{"progressToken": req.Params.Meta.ProgressToken, "progress": step, "total": steps})
}

func count(ctx context.Context, req mcp.CallToolRequest) (*mcp.CallToolResult, error) {
	steps := req.GetInt("Steps", 0)
	for i := 1; i <= steps; i++ {
		notifyProgress(ctx, req, i, steps)
		_ = server.ServerFromContext(ctx).SendLogMessageToClient(ctx,
			mcp.NewLoggingMessageNotification(mcp.LoggingLevelInfo, "count", fmt.Sprint("step ", i)))
	}
	return mcp.NewToolResultText(fmt.Sprint("counted to ", steps)), nil
}

func greet(_ context.Context, req mcp.CallToolRequest) (*mcp.CallToolResult, error) {
	if answer := server.ElicitationResponse(req.Params.InputResponses, "name"); answer != nil {
		content, _ := answer.Content.(map[string]any)
		if answer.Action != mcp.ElicitationResponseActionAccept {
			return mcp.NewToolResultText("declined"), nil
		}
		return mcp.NewToolResultText(fmt.Sprintf("Hello, %s! (%s)", content["name"], req.Params.RequestState)), nil
	}
	return server.NewInputRequestBuilder("state").Elicit("name", mcp.ElicitationParams{
		Mode:    mcp.ElicitationModeForm,
		Message: "Who are you?",
		RequestedSchema: map[string]any{
			"type": "object", "properties": map[string]any{"name": map[string]any{"type": "string"}},
			"required": []string{"name"},
		},
	}).ToolResult(), nil
}

func summarize(_ context.Context, req mcp.CallToolRequest) (*mcp.CallToolResult, error) {
	if answer := server.SamplingResponse(req.Params.InputResponses, "summary"); answer != nil {
		return mcp.NewToolResultText(mcp.GetTextFromContent(answer.Content)), nil
	}
	return server.NewInputRequestBuilder("").Sample("summary", mcp.CreateMessageParams{
		Messages:  []mcp.SamplingMessage{{Role: mcp.RoleUser, Content: mcp.NewTextContent("Summarize.")}},
		MaxTokens: 10,
	}).ToolResult(), nil
}

func where(_ context.Context, req mcp.CallToolRequest) (*mcp.CallToolResult, error) {
	if answer := server.RootsResponse(req.Params.InputResponses, "roots"); answer != nil && len(answer.Roots) == 1 {
		return mcp.NewToolResultText(answer.Roots[0].URI), nil
	}
	return server.NewInputRequestBuilder("").Roots("roots").ToolResult(), nil
}
