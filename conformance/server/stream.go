package main

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/patchbay-mcp/patchbay/mcp"
	"github.com/patchbay-mcp/patchbay/mcphttp"
)

// pause is the time between two notifications that the suites suggest.
const pause = 50 * time.Millisecond

// sleep waits until the time is over or the context is done.
func sleep(ctx context.Context, d time.Duration) error {
	select {
	case <-time.After(d):
		return nil
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}

// addStreamTools adds the tools that send notifications or requests before their result.
func addStreamTools(s *mcp.Server) {
	mcp.AddTool(s, &mcp.Tool{Name: "test_tool_with_logging", Description: "Send log messages."}, sendLogs)
	mcp.AddTool(s, &mcp.Tool{Name: "test_logging_tool", Description: "Send a log message at once."},
		func(ctx context.Context, _ none) (string, error) {
			mcp.Logger(ctx).Info("Tool execution started")
			return "logged", nil
		})
	mcp.AddTool(s, &mcp.Tool{Name: "test_tool_with_progress", Description: "Report progress."},
		func(ctx context.Context, _ none) (string, error) {
			for _, done := range []float64{0, 50, 100} {
				mcp.Progress(ctx, done, 100, fmt.Sprintf("completed %v of 100", done))
				if err := sleep(ctx, pause); err != nil {
					return "", err
				}
			}
			return "done", nil
		})
	mcp.AddTool(s, &mcp.Tool{Name: "test_reconnection", Description: "End the stream before the result."},
		func(ctx context.Context, _ none) (string, error) {
			if err := mcphttp.CloseStream(ctx, 2*pause); err != nil && !errors.Is(err, errors.ErrUnsupported) {
				return "", err
			}
			if err := sleep(ctx, pause); err != nil {
				return "", err
			}
			return "the result after the reconnection", nil
		})
	mcp.AddTool(s, &mcp.Tool{Name: "test_streaming_elicitation", Description: "Report progress, then ask."},
		func(ctx context.Context, _ none) (string, error) {
			mcp.Progress(ctx, 1, 2, "about to ask")
			name, err := mcp.Ask[userName](ctx, "user_name", "What is your name?", nil)
			if err != nil {
				return "", err
			}
			return "Hello, " + name.Name, nil
		})
}

func sendLogs(ctx context.Context, _ none) (string, error) {
	for _, text := range []string{"Tool execution started", "Tool processing data", "Tool execution completed"} {
		mcp.Logger(ctx).Info(text)
		if err := sleep(ctx, pause); err != nil {
			return "", err
		}
	}
	return "logged", nil
}
