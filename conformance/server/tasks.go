package main

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/patchbay-mcp/patchbay/ext/tasks"
	"github.com/patchbay-mcp/patchbay/mcp"
)

type computeIn struct {
	Seconds float64 `json:"seconds,omitempty" jsonschema:"how long to compute,minimum=0,maximum=600"`
	Label   string  `json:"label,omitempty" jsonschema:"the name of the computation"`
}

type nameIn struct {
	Name string `json:"name" jsonschema:"the name of the user"`
}

type fileIn struct {
	Filename string `json:"filename" jsonschema:"the file to delete"`
}

type consent struct {
	Confirm bool `json:"confirm" jsonschema:"whether to continue"`
}

// addTasks adds the fixtures of tasks.
func addTasks(s *mcp.Server, opts *tasks.Options) *tasks.Server {
	m := tasks.NewServer(s, opts)
	mcp.AddTool(s, &mcp.Tool{Name: "greet", Description: "Greet at once."},
		func(_ context.Context, in nameIn) (string, error) { return "Hello, " + in.Name + "!", nil })
	tasks.AddTool(m, &mcp.Tool{Name: "slow_compute", Description: "Compute for some seconds."}, nil, compute)
	required := &tasks.ToolOptions{Required: true}
	tasks.AddTool(m, &mcp.Tool{Name: "failing_job", Description: "Fail after a second."}, required,
		func(ctx context.Context, _ none) (string, error) {
			return "", errors.Join(sleep(ctx, time.Second), errors.New("the job has failed"))
		})
	tasks.AddTool(m, &mcp.Tool{Name: "protocol_error_job", Description: "Return a JSON-RPC error."}, nil,
		func(context.Context, none) (string, error) {
			return "", mcp.Errorf(mcp.CodeInternalError, "the job returned a JSON-RPC error")
		})
	tasks.AddTool(m, &mcp.Tool{Name: "confirm_delete", Description: "Delete a file, after asking."}, nil, confirmDelete)
	tasks.AddTool(m, &mcp.Tool{Name: "multi_input", Description: "Ask two things at once."}, nil, askTwo)
	tasks.AddTool(m, &mcp.Tool{Name: "test_tool_with_task", Description: "Ask first, then become a task."},
		&tasks.ToolOptions{Required: true, ManualStart: true}, askThenBegin)
	return m
}

func compute(ctx context.Context, in computeIn) (string, error) {
	if err := sleep(ctx, time.Duration(in.Seconds*float64(time.Second))); err != nil {
		return "", err
	}
	return fmt.Sprintf("computed %s for %gs", in.Label, in.Seconds), nil
}

func confirmDelete(ctx context.Context, in fileIn) (string, error) {
	yes, err := mcp.Ask[consent](ctx, "confirm", "Delete "+in.Filename+"?", nil)
	switch {
	case err != nil:
		return "", err
	case !yes.Confirm:
		return in.Filename + " is kept", nil
	}
	return in.Filename + " is deleted", nil
}

func askTwo(ctx context.Context, _ none) (string, error) {
	var user userName
	var yes consent
	err := mcp.AskAll(ctx,
		mcp.FormQuestion("name", "What is your name?", &user, nil),
		mcp.FormQuestion("confirm", "Continue?", &yes, nil))
	return fmt.Sprintf("%s: %v", user.Name, yes.Confirm), err
}

func askThenBegin(ctx context.Context, _ none) (string, error) {
	user, err := mcp.Ask[userName](ctx, "user_name", "What is your name?", nil)
	if err != nil {
		return "", err
	}
	if err := tasks.Begin(ctx); err != nil {
		return "", err
	}
	return "Hello, " + user.Name, sleep(ctx, pause)
}
