package tasks_test

import (
	"context"
	"fmt"
	"time"

	"github.com/patchbay-mcp/patchbay/ext/tasks"
	"github.com/patchbay-mcp/patchbay/mcp"
)

// newPress returns a server with one tool that runs as a task.
func newPress() *mcp.Server {
	s := mcp.NewServer("press", "1.0.0", nil)
	t := tasks.NewServer(s, &tasks.Options{PollInterval: 50 * time.Millisecond})
	tasks.AddTool(t, &mcp.Tool{Name: "print", Description: "Prints a book."}, nil, func(ctx context.Context, in struct {
		Title string `json:"title"`
	}) (string, error) {
		select {
		case <-time.After(10 * time.Millisecond):
			return in.Title + " is printed", nil
		case <-ctx.Done():
			return "", context.Cause(ctx)
		}
	})
	return s
}

// A call that becomes a task returns the result as every call does.
func ExampleDeclare() {
	ctx := context.Background()
	c, err := mcp.Connect(ctx, mcp.InMemory(newPress()), tasks.Declare(nil, nil))
	if err != nil {
		fmt.Println(err)
		return
	}
	defer c.Close()
	text, err := mcp.CallTool[string](ctx, c, "print", map[string]string{"title": "Emma"})
	if err != nil {
		fmt.Println(err)
		return
	}
	fmt.Println(text)
	// Output: Emma is printed
}

// A program that does not wait stores the ID of the task. Any program can wait for the task later.
func ExampleStart() {
	ctx := context.Background()
	c, err := mcp.Connect(ctx, mcp.InMemory(newPress()), tasks.Declare(nil, nil))
	if err != nil {
		fmt.Println(err)
		return
	}
	defer c.Close()
	h, err := tasks.Start(ctx, c, "print", map[string]string{"title": "Emma"})
	if err != nil {
		fmt.Println(err)
		return
	}
	id := h.ID() // store it

	r, err := tasks.Resume(c, id).Wait(ctx)
	if err != nil {
		fmt.Println(err)
		return
	}
	fmt.Println(r.Text())
	// Output: Emma is printed
}

// Updates yields each state of the task up to the final one.
func ExampleHandle_Updates() {
	ctx := context.Background()
	c, err := mcp.Connect(ctx, mcp.InMemory(newPress()), tasks.Declare(nil, nil))
	if err != nil {
		fmt.Println(err)
		return
	}
	defer c.Close()
	h, err := tasks.Start(ctx, c, "print", map[string]string{"title": "Emma"})
	if err != nil {
		fmt.Println(err)
		return
	}
	for task, err := range h.Updates(ctx) {
		if err != nil {
			fmt.Println(err)
			return
		}
		if task.Status.Final() {
			fmt.Println(task.Status)
		}
	}
	// Output: completed
}
