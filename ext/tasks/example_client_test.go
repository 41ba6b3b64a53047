package tasks_test

import (
	"context"
	"fmt"
	"time"

	"github.com/patchbay-mcp/patchbay/ext/tasks"
	"github.com/patchbay-mcp/patchbay/mcp"
)

// newPress is a server whose only tool takes its time.
func newPress() *mcp.Server {
	s := mcp.NewServer("press", "1.0.0", nil)
	m := tasks.NewServer(s, &tasks.Options{PollInterval: 50 * time.Millisecond})
	tasks.AddTool(m, &mcp.Tool{Name: "print", Description: "Prints a book."}, nil, func(ctx context.Context, in struct {
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

// A call whose server makes a task of it is a call like any other.
func ExampleDeclare() {
	ctx := context.Background()
	c, err := mcp.Connect(ctx, mcp.InMemory(newPress()), tasks.Declare(nil, nil))
	if err != nil {
		fmt.Println(err)
		return
	}
	defer c.Close()
	text, err := mcp.Call[string](ctx, c, "print", map[string]string{"title": "Emma"})
	if err != nil {
		fmt.Println(err)
		return
	}
	fmt.Println(text)
	// Output: Emma is printed
}

// A program that does not wait keeps the ID of the task, and any other program goes on with it.
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
	id := h.ID() // to be written down

	r, err := tasks.Resume(c, id).Wait(ctx)
	if err != nil {
		fmt.Println(err)
		return
	}
	fmt.Println(r.Text())
	// Output: Emma is printed
}

// Watch tells of each change until the last.
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
