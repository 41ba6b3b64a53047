package tasks_test

import (
	"context"
	"fmt"

	"github.com/patchbay-mcp/patchbay/ext/tasks"
	"github.com/patchbay-mcp/patchbay/mcp"
)

// A tool that takes long and asks a question. Its handler is an ordinary function.
func ExampleAddTool() {
	s := mcp.NewServer("press", "1.0.0", nil)
	t := tasks.NewServer(s, nil)
	defer func() { _ = t.Close(context.Background()) }()
	type in struct {
		Pages int `json:"pages"`
	}
	tasks.AddTool(t, &mcp.Tool{Name: "print"}, nil, func(ctx context.Context, in in) (string, error) {
		color, err := mcp.Ask[string](ctx, "color", "Which color?", nil)
		if err != nil {
			return "", err // the task waits; the function runs again with the answer
		}
		for page := range in.Pages {
			mcp.Progress(ctx, float64(page+1), float64(in.Pages), "printing")
		}
		return fmt.Sprintf("%d pages in %s", in.Pages, color), nil
	})

	ctx := context.Background()
	c, err := mcp.Connect(ctx, mcp.InMemory(s), tasks.Declare(&mcp.ClientOptions{
		Elicit: func(context.Context, *mcp.ElicitRequestParams) (*mcp.ElicitResult, error) {
			return &mcp.ElicitResult{Action: mcp.ElicitAccept, Content: []byte(`{"value":"blue"}`)}, nil
		},
	}, nil))
	if err != nil {
		fmt.Println(err)
		return
	}
	defer func() { _ = c.Close() }()
	result, err := c.CallTool(ctx, "print", in{Pages: 3})
	if err != nil {
		fmt.Println(err)
		return
	}
	fmt.Println(result.Content[0].(*mcp.TextContent).Text)
	// Output: 3 pages in blue
}

// A tool that asks first, and makes a task of the call only if there is much to do.
func ExampleBegin() {
	s := mcp.NewServer("press", "1.0.0", nil)
	t := tasks.NewServer(s, nil)
	type in struct {
		Pages int `json:"pages"`
	}
	tasks.AddTool(t, &mcp.Tool{Name: "print"}, &tasks.ToolOptions{ManualStart: true},
		func(ctx context.Context, in in) (string, error) {
			sure, err := mcp.Ask[bool](ctx, "sure", fmt.Sprintf("Print %d pages?", in.Pages), nil)
			if err != nil || !sure {
				return "", err
			}
			if in.Pages > 100 {
				if err := tasks.Begin(ctx); err != nil {
					return "", err
				}
			}
			return fmt.Sprintf("%d pages", in.Pages), nil
		})
	fmt.Println(t.Close(context.Background()))
	// Output: <nil>
}
